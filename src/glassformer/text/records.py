"""Records: the data that a task learns from. A record has texts (each with a role), and labels or spans for some tasks.

A record of a language model is one text; of a classifier, a text and its label; of a translator, a source and its
target; of a chat model, a conversation as one text, with the spans of the answers, which alone contribute to the loss.
Except for `tokenizers.frames`, the modules of this package depend on a task only through its `RecordKind`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from glassformer.base.config import Task

Spans = tuple[tuple[int, int], ...]
"""Spans of a text, in order, each as (start, stop) in characters."""
END_MARK = "\ufdd0"
"""Mark of an end token inside a text with spans. Unicode reserves this code point for use inside programs."""
START_MARK = "\ufdd1"
"""Mark of a start token inside a text with spans."""
NAME_MARK = "\ufdd2"
"""Mark before the name of another special token inside a text with spans."""
NAME_END_MARK = "\ufdd3"
"""Mark after the name of a special token."""


@dataclass(frozen=True)
class RecordKind:
    """The texts and labels that each record of a task has.

    Attributes:
        task: the task that learns from these records.
        roles: the role of each text, in order; the model reads the first text.
        labels: number of labels per record; "several": any number, such as one for each token.
        stores: suffix of each role's token store on disk; empty: the token store has the name of the record store.
        mask_token: whether the tokenizer needs a mask token.
        loss_spans: whether each record lists the spans of its last text that contribute to the loss.
        noun: plural noun for such records in messages.
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
        """Return whether a record is a single text, which may have any length and may be cut in two by the split."""
        return len(self.roles) == 1 and self.labels == "none" and not self.loss_spans

    @property
    def version(self) -> int:
        """Return the format version of prepared folders; folders with another version are not used."""
        return 1 if self.running_text else 2

    def why_incomplete(self, blank: Sequence[bool]) -> str:
        """Return why a record with blank parts is left out.

        Args:
            blank: for each text, then each label, whether it consists of white space only.
        """
        if self.running_text:
            return f"empty {self.noun}"
        if self.loss_spans:
            return f"{self.noun} that the chat template leaves empty"
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
"""Task -> kind of its records."""


class RecordPiece(NamedTuple):
    """A record, or a piece of a running text that is too long to hold in memory.

    Attributes:
        number: index of the record among all records, including the records that are left out later.
        texts: one text for each role.
        labels: names of the labels.
        position: location of the record in the data, for messages; empty if messages show none.
        first, last: whether this piece is the first of its record, and whether it is the last.
        loss_spans: the spans of the last text that contribute to the loss, for kinds of records with loss spans.
    """

    number: int
    texts: tuple[str, ...]
    labels: tuple[str, ...] = ()
    position: str = ""
    first: bool = True
    last: bool = True
    loss_spans: Spans = ()
