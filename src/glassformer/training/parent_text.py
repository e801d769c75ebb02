"""Find the encoded text of a run's parent, to measure forgetting and to mix its rows into training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from glassformer.base.config import LABELLED, OF_DECODERS, PAIRS, TEXTS, Config
from glassformer.base.errors import GlassError
from glassformer.base.wording import quoted
from glassformer.runs.folder import ParentEntry
from glassformer.runs.parent import Parent
from glassformer.runs.run_text import open_text
from glassformer.runs.text_location import token_cache
from glassformer.tasks.make import make_task
from glassformer.tasks.mixed import MixedTask
from glassformer.tasks.task import Task
from glassformer.text.prepare import Prepared
from glassformer.training.parallel.processes import OneProcess, Processes


@dataclass(frozen=True)
class ParentText:
    """Text that the parent of a run was trained on.

    Attributes:
        task: the parent's task on that text; None: the text cannot be used.
        reason: reason why the text cannot be used; empty if it can.
        config: settings that determine the rows of the text; None if it cannot be used.
        tokens: folder of the encoded text; None if it cannot be used.
    """

    task: Task | None
    reason: str = ""
    config: Config | None = None
    tokens: Path | None = None

    @classmethod
    def opened(cls, config: Config, tokens: Path) -> Self:
        """Open an encoded text.

        Raises:
            GlassError: the text is missing or damaged.
        """
        return cls(make_task(config, open_text(config, tokens)), config=config, tokens=tokens)

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """Open the text described by `facts` of another process.

        Raises:
            GlassError: the text is missing or damaged.
        """
        if "reason" in facts:
            return cls(None, facts["reason"])
        return cls.opened(Config.from_dict(facts["config"]), Path(facts["tokens"]))

    def facts(self) -> dict[str, Any]:
        """Return JSON from which another process can open this text."""
        if self.config is None:
            return {"reason": self.reason}
        return {"config": self.config.model_dump(mode="json"), "tokens": str(self.tokens)}

    def mixed_into(self, task: Task, config: Config) -> Task:
        """Return the task of a run, with rows of the parent's text mixed in if `data.mix` is above 0."""
        if not config.data.mix or self.task is None:
            return task
        whole_steps = config.train.batch_tokens is not None
        return MixedTask(task, self.task, config.data.mix, config.train.seed, whole_steps)


def text_of_parent(parent: Parent | None, folder: Path, config: Config, data: Prepared) -> ParentText | None:
    """Find the encoded text of a parent before a run starts, in a single process.

    Args:
        parent: parent of the new run; None: return None.
        folder: folder of the new run.
        config: settings of the new run.
        data: text of the new run.

    Raises:
        GlassError: as in `find_parent_text`.
    """
    return None if parent is None else find_parent_text(parent.entry(), folder, config, data, OneProcess())


def find_parent_text(
    parent: ParentEntry, folder: Path, config: Config, data: Prepared, processes: Processes
) -> ParentText:
    """Find the encoded text of a parent.

    Args:
        parent: entry of the parent in the run's manifest.
        folder: folder of the run.
        config: settings of the run.
        data: text of the run.
        processes: processes of the run; the text is usable only if all of them find it.

    Raises:
        GlassError: `data.mix` is above 0, and the text cannot be used.
    """
    parent_text = _open_parent_text(parent, folder, config, data)
    if processes.all_reduce_max(parent_text.task is None) and parent_text.task is not None:
        parent_text = ParentText(None, "the text of the parent is not available in all processes")
    if parent_text.task is None and config.data.mix:
        processes.raise_on_all(
            GlassError(
                f"data.mix = {config.data.mix:g}, but {parent_text.reason}",
                f"Restore the text if it is missing, or start without data.mix: --from {quoted(Path(parent.run))}",
            )
        )
    return parent_text


def _open_parent_text(parent: ParentEntry, folder: Path, config: Config, data: Prepared) -> ParentText:
    """Return the parent's text, or a `ParentText` with the reason why it cannot be used.

    It can be used if its encoded copy is found unchanged, the tokenizers and labels are those of the run, and the model
    of the run has a head for the parent's task.
    """
    task = parent.task
    same_head = any(task in tasks and config.train.task in tasks for tasks in (PAIRS, OF_DECODERS))
    if task != config.train.task and not same_head:
        return ParentText(None, f"the parent was trained on task {task}, for which this model has no head")
    if parent.imported is not None:
        return ParentText(None, f"{parent.run} was imported, without the text that it was trained on")
    excluded = {"batch_tokens"} if task in TEXTS else set()  # not for running text, whose rows have one length
    parent_config = Config.from_dict(
        {
            **config.model_dump(include={"model", "tokenizer", "sample"}),
            "data": parent.data_settings,
            "train": {**config.train.model_dump(exclude=excluded), "task": task},
        }
    )
    recorded = Path(parent.data["tokens"])
    caches = (token_cache(folder), token_cache(Path(parent.run)))
    for path in (recorded, *(cache / recorded.name for cache in caches)):
        try:
            prepared = open_text(parent_config, path)
        except GlassError:
            continue
        parent_digests = [each.digest for each in prepared.tokenizers.values()]
        run_digests = [each.digest for each in data.tokenizers.values()]
        if prepared.text_hash != parent.data["text_hash"] or parent_digests != run_digests:
            continue
        if task in LABELLED and prepared.labels != data.labels:
            return ParentText(None, "the labels of the parent differ from those of this run")
        return ParentText(make_task(parent_config, prepared), config=parent_config, tokens=path)
    return ParentText(
        None,
        f"the text of the parent, {parent.data['source']}, is missing or damaged in {recorded} and in the caches of "
        "both runs",
    )
