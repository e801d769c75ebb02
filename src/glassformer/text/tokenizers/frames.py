"""Frames: the special tokens around an input text, such as a start token, `[CLS] … [SEP]` or `… </s> en_XX`.

A tokenizer that glassformer trained has no frame: the task and the settings determine where its end token is added. An
imported tokenizer may have the frame that its model was trained with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Frame:
    """Token ids before and after a text."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.before) + len(self.after)

    def around(self, ids: Sequence[int], longest: int | None = None) -> list[int]:
        """Return `ids` with the frame around them, at most `longest` ids in total; cut `ids` first, then the frame."""
        if longest is None:
            return [*self.before, *ids, *self.after]
        truncated = ids[: max(0, longest - len(self))]
        return [*self.before, *truncated, *self.after][:longest]
