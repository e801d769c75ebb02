"""Error for a command that cannot be used with the task of a run."""

from __future__ import annotations

from pathlib import Path

from glassformer.base.config import TASK_FACTS, Task, command_for
from glassformer.base.errors import GlassError


def wrong_command(run: Path, task: Task) -> GlassError:
    """Return the error for a command that cannot use a run of this task; it names the right command."""
    return GlassError(
        f"{run} was trained with train.task = {task}, which this command does not support",
        f"To {TASK_FACTS[task].verb}, use {command_for(run, task)}",
    )
