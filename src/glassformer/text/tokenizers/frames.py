"""What stands around a text that a model reads: nothing, a token before it, `[CLS] … [SEP]`, `… </s> en_XX`.

A tokenizer of ours has no frame of its own: the task and the settings say what its end token does. One that was
imported brings the frame along that its model was trained with.
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
    """The ids before and after a text."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.before) + len(self.after)

    def around(self, ids: Sequence[int], longest: int | None = None) -> list[int]:
        """The ids in their frame; cut so that there are `longest` at most, of which the frame comes first."""
        if longest is None:
            return [*self.before, *ids, *self.after]
        kept = ids[: max(0, longest - len(self))]
        return [*self.before, *kept, *self.after][:longest]


def frame_of(tokenizer: Tokenizer, config: Config) -> Frame:
    """The frame of what a run's model reads: of an encoder-decoder, of its sources.

    Args:
        tokenizer: of what is read.
        config: of the run.
    """
    if tokenizer.frame is not None:
        return tokenizer.frame
    if config.train.task in PAIRS:
        return Frame(after=(tokenizer.end_id,))
    if config.train.task in (*LABELLED, *CONVERSATIONS) or config.data.windows == "documents":
        return Frame(before=(tokenizer.start_id,))
    return Frame()
