"""The task that settings name, over a prepared text."""

from __future__ import annotations

from glassformer.base.config import PAIRS, Config
from glassformer.tasks.example_tasks import ClassTask, PairTask
from glassformer.tasks.task import LanguageTask, MaskedTask, Task
from glassformer.text.examples import PreparedExamples
from glassformer.text.prepare import Prepared


def make_task(config: Config, data: Prepared | PreparedExamples) -> Task:
    """Return the task that learns from a prepared text."""
    if isinstance(data, PreparedExamples):
        return PairTask(config, data) if config.train.task in PAIRS else ClassTask(config, data)
    kind = MaskedTask if config.train.task == "masked" else LanguageTask
    return kind(config, data.tokenizer, data.train, data.validation)
