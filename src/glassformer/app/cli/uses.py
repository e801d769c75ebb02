"""The command that fits the task of a run."""

from __future__ import annotations

from pathlib import Path

from glassformer.base.config import TASK_FACTS, Task, command_for
from glassformer.base.errors import GlassError


def wrong_command(run: Path, task: Task) -> GlassError:
    """Return the error of a command that cannot use a run of this task."""
    return GlassError(f"{run} learnt train.task = {task}: to {TASK_FACTS[task].verb}", f"Use {command_for(run, task)}")
