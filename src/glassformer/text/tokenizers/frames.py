"""Frames: the special tokens around an input text, such as a start token, `[CLS] … [SEP]` or `… </s> en_XX`.

A tokenizer that glassformer trained has no frame: the task and the settings determine where its end token is added. An
imported tokenizer may have the frame that its model was trained with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from glassformer.base.config import CONVERSATIONS, LABELLED, PAIRS, Config

if TYPE_CHECKING:
    from glassformer.text.tokenizers.tokenizer import Tokenizer


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


def frame_of(tokenizer: Tokenizer, config: Config) -> Frame:
    """Return the frame of the texts that a run's model reads (for an encoder-decoder, the frame of its sources).

    Args:
        tokenizer: tokenizer of the text that the model reads.
        config: settings of the run.
    """
    if tokenizer.frame is not None:
        return tokenizer.frame
    if config.train.task in PAIRS:
        return Frame(after=(tokenizer.end_id,))
    if config.train.task in (*LABELLED, *CONVERSATIONS) or config.data.windows == "documents":
        return Frame(before=(tokenizer.start_id,))
    return Frame()
