"""The command that fits the task of a run."""

from __future__ import annotations

from pathlib import Path

from glassformer.base.config import Task
from glassformer.base.errors import GlassError
from glassformer.base.wording import use_of


def wrong_command(run: Path, task: Task) -> GlassError:
    """Return the error of a command that cannot use a run of this task."""
    from glassformer.tasks.task_errors import VERBS

    return GlassError(f"{run} learnt train.task = {task}: to {VERBS[task]}", f"Use {use_of(run, task)}")
