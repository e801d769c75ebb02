"""Rows of a batch: inputs, targets and loss mask, in the same format for all tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.integer[Any]]
MASK_REPLACE_PROBABILITY = 0.8
"""Probability that a token chosen for prediction is replaced by the mask token (Devlin et al. 2019)."""
RANDOM_REPLACE_PROBABILITY = 0.1
"""Probability that a token chosen for prediction is replaced by a random token; other chosen tokens stay unchanged."""


@dataclass(frozen=True)
class Row:
    """One row of a batch.

    Attributes:
        inputs: (T) ids that the model reads; in an encoder-decoder model, ids that the decoder reads.
        targets: (T) ids to predict, one for each input; or (1) the index of the row's label.
        shifted: whether each target is the next input.
        loss_mask: (T) bool, True where a target contributes to the loss; None: everywhere.
        source: (S) ids that the encoder of an encoder-decoder reads, special tokens included; None for other models.
    """

    inputs: Ids
    targets: Ids
    shifted: bool = False
    loss_mask: npt.NDArray[np.bool_] | None = None
    source: Ids | None = None

    @classmethod
    def of_text(cls, ids: Ids, source: Ids | None = None, loss_mask: npt.NDArray[np.bool_] | None = None) -> Row:
        """Return a row that predicts each of T+1 ids except the first, from the ids before it and from the source.

        Args:
            ids: (T+1) ids.
            source: (S) ids that the encoder reads.
            loss_mask: (T+1) bool, True where an id contributes to the loss; the first value is not used. None: all ids
                count.
        """
        target_mask = None if loss_mask is None else loss_mask[1:]
        return cls(ids[:-1], ids[1:], shifted=True, loss_mask=target_mask, source=source)

    @property
    def ids(self) -> Ids:
        """Return the (T+1) ids that `of_text` received."""
        assert self.shifted
        return np.concatenate([self.inputs[:1], self.targets])

    def __len__(self) -> int:
        """Return the number of ids in the row, or in its source if the source has more."""
        length = len(self.inputs) + self.shifted
        return length if self.source is None else max(length, len(self.source))


def mask(ids: Ids, fraction: float, mask_id: int, text_ids: Ids, key: tuple[int, int]) -> Row:
    """Return a row that predicts `fraction` of the text tokens (Devlin et al. 2019, section 3.1).

    At least one token is chosen, if any id is in `text_ids`, which must be sorted. A chosen token becomes `mask_id`
    with probability 0.8, a random id of `text_ids` with probability 0.1, and otherwise stays unchanged. No id
    outside `text_ids` is chosen, and none except `mask_id` is inserted. The result depends only on the arguments; `key`
    seeds the random choices.
    """
    # Raw words of Philox 4x64-10 (Salmon et al. 2011) are the same in every version of NumPy and on every machine.
    random = np.random.Philox(key=np.array(key, dtype=np.uint64)).random_raw(3 * len(ids)).reshape(3, len(ids))
    nearest = np.minimum(np.searchsorted(text_ids, ids), len(text_ids) - 1)
    text_positions = np.flatnonzero(text_ids[nearest] == ids)
    chosen = np.zeros(len(ids), dtype=np.bool_)
    order = np.argsort(random[0][text_positions])
    chosen[text_positions[order][: max(1, round(fraction * len(text_positions)))]] = True
    uniform = random[1] / 2**64
    inputs = np.where(chosen & (uniform < MASK_REPLACE_PROBABILITY), mask_id, ids)
    random_ids = text_ids[random[2] % np.uint64(len(text_ids))]
    inputs = np.where(
        chosen
        & (uniform >= MASK_REPLACE_PROBABILITY)
        & (uniform < MASK_REPLACE_PROBABILITY + RANDOM_REPLACE_PROBABILITY),
        random_ids,
        inputs,
    )
    return Row(inputs, ids, loss_mask=chosen)
