"""Which command uses the run of which task."""

from __future__ import annotations

from pathlib import Path

from glassformer.base.config import Task
from glassformer.base.errors import GlassError
from glassformer.base.wording import quoted

USES = {
    "lm": "generate {} PROMPT",
    "masked": "fill {} TEXT-WITH-[MASK]",
    "classify": "classify {} TEXT",
    "translate": "generate {} SOURCE",
    "summarize": "generate {} SOURCE",
}
"""What to do with a run of each task."""


def use_of(run: Path, task: str) -> str:
    """The command that uses a run of this task, as it can be typed."""
    return f"glass {USES[task].format(quoted(run))}"


def wrong_command(run: Path, task: Task) -> GlassError:
    """The error of a command that cannot use a run of this task."""
    from glassformer.tasks.refusing import VERBS

    return GlassError(f"{run} learnt train.task = {task}: to {VERBS[task]}", f"Use {use_of(run, task)}")
