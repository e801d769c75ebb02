"""The text that the parent of a run learnt from, as far as it is at hand: what the child forgets of it, and repeats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from glassformer.base.config import LABELLED, PAIRS, Config
from glassformer.base.errors import GlassError
from glassformer.runs.run_text import open_text
from glassformer.runs.text_location import token_cache
from glassformer.tasks.make import make_task
from glassformer.tasks.mixed import MixedTask
from glassformer.tasks.task import Task
from glassformer.text.prepare import Prepared


@dataclass(frozen=True)
class Heritage:
    """What a run knows of its parent's text.

    Attributes:
        task: the parent's task on that text; None: it is not at hand.
        missing: why not.
    """

    task: Task | None
    missing: str = ""

    @classmethod
    def of(cls, record: Mapping[str, Any], folder: Path, config: Config, data: Prepared) -> Self:
        """Look for the encoded text of a parent.

        Args:
            record: what the manifest of the run says of its parent.
            folder: of the run.
            config: of the run.
            data: the text of the run.

        Raises:
            GlassError: `data.mix` is above 0, and the text is not at hand.
        """
        try:
            found = cls(_parents_task(record, folder, config, data))
        except GlassError as error:
            if config.data.mix:
                raise
            found = cls(None, error.problem)
        return found

    def mixed_into(self, task: Task, config: Config) -> Task:
        """Return the task of a run, with rows of the parent's text among its own if `data.mix` is above 0."""
        if not config.data.mix or self.task is None:
            return task
        return MixedTask(task, self.task, config.data.mix, config.train.seed)


def _parents_task(record: Mapping[str, Any], folder: Path, config: Config, data: Prepared) -> Task:
    """Return the task of the parent on its text, for the model of the run.

    Raises:
        GlassError: the run has no head for that task, or the text is gone.
    """
    task = record["task"]
    advice = "Set data.mix = 0, or leave it out."
    if task != config.train.task and not (task in PAIRS and config.train.task in PAIRS):
        raise GlassError(f"the parent learnt {task}, for which this run has no head", advice)
    own = Config.from_dict(
        {
            **config.model_dump(include={"model", "tokenizer", "sample"}),
            "data": record["data_settings"],
            "train": {**config.train.model_dump(), "task": task},
        }
    )
    recorded = Path(record["data"]["tokens"])
    caches = (token_cache(folder), token_cache(Path(record["run"])))
    for place in (recorded, *(cache / recorded.name for cache in caches)):
        try:
            found = open_text(own, place)
        except GlassError:
            continue
        same_tokens = [each.digest for each in found.tokenizers.values()] == [
            each.digest for each in data.tokenizers.values()
        ]
        if found.text_hash != record["data"]["text_hash"] or not same_tokens:
            continue
        if task in LABELLED and found.labels != data.labels:
            raise GlassError("the labels of the parent are not those of this run", advice)
        return make_task(own, found)
    raise GlassError(f"the text of the parent, {record['data']['source']}, is not at hand in {recorded}", advice)
