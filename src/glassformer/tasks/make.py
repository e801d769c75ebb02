"""The task that settings name, over a prepared text."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from glassformer.base.config import Config
from glassformer.tasks.example_tasks import ClassTask, PairTask
from glassformer.tasks.task import LanguageTask, MaskedTask, Task
from glassformer.text.prepare import Prepared

TASKS: Mapping[str, Callable[[Config, Prepared], Task]] = {
    "lm": LanguageTask,
    "masked": MaskedTask,
    "classify": ClassTask,
    "translate": PairTask,
    "summarize": PairTask,
}


def make_task(config: Config, data: Prepared) -> Task:
    """Return the task that learns from a prepared text."""
    return TASKS[config.train.task](config, data)
