"""Rows of a batch, task by task; `len` says how many tokens are predicted or read, for grouping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Row = npt.NDArray[np.integer[Any]]
"""Running text: T+1 ids, of which all but the first are predicted."""
HIDDEN = 0.8
"""Share of the tokens to predict that the mask token hides (Devlin et al. 2019)."""
REPLACED = 0.1
"""Share of the tokens to predict that another token replaces; the rest is shown."""


@dataclass(frozen=True)
class Pair:
    """A source, its end token included, and its target with an end token at both sides."""

    source: Row
    target: Row

    def __len__(self) -> int:
        return max(len(self.source), len(self.target))


@dataclass(frozen=True)
class Labelled:
    """A text after an end token, and the index of its label."""

    tokens: Row
    label: int

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class Masked:
    """A text with holes: what is seen, what is true, and where it counts; all of one length."""

    inputs: Row
    targets: Row
    chosen: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.targets)


def mask(row: Row, share: float, mask_id: int, text_ids: Row, key: tuple[int, int]) -> Masked:
    """Choose a share of the tokens (one at least) and hide most of them: Devlin et al. 2019, section 3.1.

    Of the chosen, 80 % become `mask_id`, 10 % another token, 10 % stay. Only ids of `text_ids`, which ascend, are
    chosen and put in, so no special ones. A pure function of its arguments: other `key`, other holes.
    """
    # Raw words of Philox 4x64-10 (Salmon et al. 2011) are the same in every version and on every machine.
    drawn = np.random.Philox(key=np.array(key, dtype=np.uint64)).random_raw(3 * len(row)).reshape(3, len(row))
    at = np.minimum(np.searchsorted(text_ids, row), len(text_ids) - 1)
    words = np.flatnonzero(text_ids[at] == row)
    chosen = np.zeros(len(row), dtype=np.bool_)
    chosen[words[np.argsort(drawn[0][words])][: max(1, round(share * len(words)))]] = True
    fate = drawn[1] / 2**64
    inputs = np.where(chosen & (fate < HIDDEN), mask_id, row)
    others = text_ids[drawn[2] % np.uint64(len(text_ids))]
    inputs = np.where(chosen & (fate >= HIDDEN) & (fate < HIDDEN + REPLACED), others, inputs)
    return Masked(inputs, row, chosen)
