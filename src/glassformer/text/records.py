"""Records: the data that a task learns from: texts, each with a role, labels, and spans that count for the loss.

A language model reads records of one text; a classifier one text and its label; a translator a source and its target;
a chat model a conversation as one text, of which the answers count for the loss.
The rest of `text` knows a task only by its `RecordKind`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from glassformer.base.config import Task

Spans = tuple[tuple[int, int], ...]
"""(start, stop) of parts of a text, in characters, in order."""
END_MARK = "\ufdd0"
"""Stands for an end token inside a text with spans. Unicode reserves this code for use inside programs."""
START_MARK = "\ufdd1"
"""Stands for a start token there."""
NAME_MARK = "\ufdd2"
"""Stands before the name of another special token there."""
NAME_END_MARK = "\ufdd3"
"""Stands after that name."""


@dataclass(frozen=True)
class RecordKind:
    """The texts and labels that each record of a task has.

    Attributes:
        task: the task that learns from them.
        roles: the role of each text, in order; the model reads the first.
        labels: how many labels each record has; several: any number, such as one for each token.
        stores: the name of each role's token store on disk; empty: that of the part of the split alone.
        mask_token: the tokenizer needs a mask token.
        loss_spans: each record says which parts of its last text count for the loss; otherwise all of it does.
        noun: what messages call such records.
    """

    task: Task
    roles: tuple[str, ...] = ("text",)
    labels: Literal["none", "one", "several"] = "none"
    stores: tuple[str, ...] = ("",)
    mask_token: bool = False
    loss_spans: bool = False
    noun: str = "documents"

    @cached_property
    def running_text(self) -> bool:
        """Return whether a record is one text alone: it may be of any length, and be cut where the split falls."""
        return len(self.roles) == 1 and self.labels == "none" and not self.loss_spans

    @property
    def version(self) -> int:
        """Return the version of the prepared folder; a change in what it holds makes older folders unusable."""
        return 1 if self.running_text else 2

    def why_incomplete(self, blank: Sequence[bool]) -> str:
        """Return why a record with blank parts is left out.

        Args:
            blank: of each text and each label, whether it is white space alone.
        """
        if self.running_text:
            return f"empty {self.noun}"
        if len(self.roles) == 1 and self.labels == "none":
            return "rows with an empty text"
        if self.labels != "none":
            return "rows without a label" if any(blank[len(self.roles) :]) else "rows with an empty text"
        if all(blank):
            return "pairs with both sides empty"
        return f"pairs with an empty {self.roles[blank.index(True)]}"


def _pairs(task: Task) -> RecordKind:
    return RecordKind(task, ("source", "target"), stores=("sources", "targets"), noun="pairs")


RECORD_KINDS: Mapping[Task, RecordKind] = {
    "lm": RecordKind("lm"),
    "masked": RecordKind("masked", mask_token=True),
    "classify": RecordKind("classify", labels="one", stores=("sources",), noun="labelled texts"),
    "translate": _pairs("translate"),
    "summarize": _pairs("summarize"),
    "chat": RecordKind("chat", stores=("conversations",), loss_spans=True, noun="conversations"),
}
"""The records of each task."""


class RecordPiece(NamedTuple):
    """A record; or, of a running text too long to hold, a piece of it.

    Attributes:
        number: of the record, counted over all, also those that are left out.
        texts: one for each role.
        labels: their names.
        position: of the record in the data, for messages; empty where none is shown.
        first, last: whether the record begins and ends with this piece.
        loss_spans: the parts of the last text that count for the loss, if the kind of record has them.
    """

    number: int
    texts: tuple[str, ...]
    labels: tuple[str, ...] = ()
    position: str = ""
    first: bool = True
    last: bool = True
    loss_spans: Spans = ()
