"""Select the rows of each training step, and pad them to a `Batch` of tensors with an attention and a loss mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import numpy.typing as npt

from glassformer.base.config import DataConfig
from glassformer.base.errors import GlassError
from glassformer.base.wording import counted
from glassformer.text.document_rows import shuffled
from glassformer.text.rows import Row
from glassformer.text.store import TokenStore

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Batch:
    """Inputs, targets and masks of one forward pass, for any task.

    Attributes:
        inputs: (B, T) int64 ids; rows are padded on the right with id 0.
        targets: (B, T) int64 ids to predict, or (B, 1) labels, one for each row.
        attention_mask: (B, T) bool, False on padding.
        loss_mask: bool of the shape of `targets`, True where the loss includes the target.
        n_targets: number of targets that the loss includes.
        source: (B, S) int64 ids that the encoder of an encoder-decoder model reads; None for other models.
        source_attention_mask: (B, S) bool, False on padding; None if `source` is None.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    attention_mask: torch.Tensor
    loss_mask: torch.Tensor
    n_targets: int
    source: torch.Tensor | None = None
    source_attention_mask: torch.Tensor | None = None

    @classmethod
    def from_rows(cls, rows: Sequence[Row]) -> Batch:
        """Pad rows of one task to a common length and return them as a batch.

        Raises:
            ValueError: there are no rows, or a row has no target.
        """
        if not rows or not min(len(row.targets) for row in rows):
            raise ValueError("a batch needs rows with at least one target each")
        inputs, attention_mask = padded([row.inputs for row in rows])  # (B, T)
        targets, loss_mask = padded([row.targets for row in rows])  # (B, T) or (B, 1)
        if any(row.loss_mask is not None for row in rows):
            masks = [np.ones(len(row.targets)) if row.loss_mask is None else row.loss_mask for row in rows]
            loss_mask = padded(masks)[0].bool()  # (B, T)
        batch = cls(inputs, targets, attention_mask, loss_mask, int(loss_mask.sum()))
        sources = [row.source for row in rows if row.source is not None]
        if not sources:
            return batch
        source, source_attention_mask = padded(sources)  # (B, S)
        return replace(batch, source=source, source_attention_mask=source_attention_mask)

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch on `device`. Copies to a GPU are asynchronous, from pinned memory."""
        gpu = str(device).startswith("cuda")

        def moved(tensor: torch.Tensor) -> torch.Tensor:
            return (tensor.pin_memory() if gpu else tensor).to(device, non_blocking=gpu)

        return Batch(
            inputs=moved(self.inputs),
            targets=moved(self.targets),
            attention_mask=moved(self.attention_mask),
            loss_mask=moved(self.loss_mask),
            n_targets=self.n_targets,
            source=None if self.source is None else moved(self.source),
            source_attention_mask=None if self.source_attention_mask is None else moved(self.source_attention_mask),
        )


def padded(rows: Sequence[npt.NDArray[Any]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad rows on the right with zeros; return them as (B, T) int64, and a (B, T) mask, False on padding."""
    import torch

    ids = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)  # (B, T)
    mask = np.zeros(ids.shape, dtype=np.bool_)  # (B, T)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row
        mask[number, : len(row)] = True
    return torch.from_numpy(ids), torch.from_numpy(mask)


def training_rows(
    store: TokenStore,
    data: DataConfig,
    context: int,
    batch: int,
    seed: int,
    step: int,
    start_id: int,
) -> list[Row]:
    """Return the rows of training step `step`. The result depends only on the arguments.

    With `data.windows` = stream, each row has `context` + 1 tokens from a uniformly random position. Otherwise, each
    epoch contains every row of every document once, in a new random order.

    Raises:
        GlassError: the store has no row, or the documents cannot be cut in halves.
    """
    if data.windows != "stream":
        rows = DocumentRows(store, data, context, start_id, "train")
        if not len(rows):
            raise too_short("training", len(store), 2)
        positions = [divmod(step * batch + number, len(rows)) for number in range(batch)]
        return [rows[shuffled(position, len(rows), seed, epoch)] for epoch, position in positions]
    n_starts = len(store) - context
    if n_starts < 1:
        raise too_short("training", len(store), context + 1)
    # Philox 4x64-10 (Salmon et al. 2011) gives the same raw 64-bit words on every machine.
    key = np.array([seed % (1 << 64), step], dtype=np.uint64)
    random_words = np.random.Philox(key=key).random_raw(batch).tolist()
    starts = [word * n_starts >> 64 for word in random_words]
    return [Row.of_text(store.tokens[start : start + context + 1]) for start in starts]


def validation_rows(
    store: TokenStore, data: DataConfig, context: int, start_id: int, limit_tokens: int | None = None
) -> ValidationRows:
    """Return rows that predict every token of a store exactly once (in a stream, except the first token).

    With `data.windows` = prefixes or halves, they predict the targets that `DocumentRows` describes. With
    `limit_tokens`, return only enough rows to read about that many tokens of the store, spread evenly over it.

    Raises:
        GlassError: the store has fewer than two tokens, or no row.
    """
    if len(store) < 2:
        raise too_short("validation", len(store), 2)
    rows = ValidationRows(store, data, context, start_id, limit_tokens)
    if not rows.n_all_rows:
        raise too_short("validation", len(store), 3)
    return rows


class ValidationRows(Sequence[Row]):
    """Sequence of rows that predict different tokens of a store; each row is computed when it is accessed."""

    def __init__(self, store: TokenStore, data: DataConfig, context: int, start_id: int, limit: int | None) -> None:
        self.store = store
        self.context = context
        self.rows = None
        self.n_all_rows = -(-(len(store) - 1) // context)
        if data.windows != "stream":
            self.rows = DocumentRows(store, data, context, start_id, "validation")
            self.n_all_rows = len(self.rows)
        self.n_rows = (
            self.n_all_rows if limit is None else max(1, min(self.n_all_rows, self.n_all_rows * limit // len(store)))
        )

    def __len__(self) -> int:
        return self.n_rows

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(index)
        row = number * self.n_all_rows // self.n_rows
        if self.rows is not None:
            return self.rows[row]
        return Row.of_text(self.store.tokens[row * self.context : (row + 1) * self.context + 1])


class DocumentRows:
    """The rows into which documents are cut, unless `data.windows` is stream.

    documents: as in `DocumentPieces`; the first row of a document begins with the start token. prefixes: as in
    `PrefixRows`; with `data.split` = rows, only the rows of one split. halves: one row for each document, whose inputs
    are its first half and whose targets are its second half; end tokens are left out.
    """

    def __init__(
        self, store: TokenStore, data: DataConfig, context: int, start_id: int, split: Literal["train", "validation"]
    ) -> None:
        self.store = store
        self.windows = data.windows
        self.context = context
        self.start_id = start_id
        self.order: npt.NDArray[np.int64] | None = None
        if data.split == "rows":
            order = store.prefix_order(context, data.seed)
            held_out = round(data.validation_fraction * len(order))
            self.order = order[held_out:] if split == "train" else np.sort(order[:held_out])

    def __len__(self) -> int:
        if self.order is not None:
            return len(self.order)
        if self.windows == "prefixes":
            return len(self.store.prefixes(self.context))
        return len(self.store.document_ends) if self.windows == "halves" else len(self.store.pieces(self.context))

    def __getitem__(self, number: int) -> Row:
        tokens = self.store.tokens
        if self.windows == "prefixes":
            row = number if self.order is None else int(self.order[number])
            start, stop = self.store.prefixes(self.context).span(row)
            return Row.of_text(tokens[start:stop], loss_mask=np.arange(start, stop) == stop - 1)
        if self.windows == "halves":
            document = self.store.document(number)
            half = len(document) // 2
            if len(document) % 2 or not 0 < half <= self.context:
                raise GlassError(
                    f"document {number + 1} has {counted(len(document), 'tokens')}, which cannot be cut in two halves",
                    f"With data.windows = halves, give documents of 2, 4, ... {2 * self.context} tokens (2 x "
                    "model.context).",
                )
            return Row(document[:half], document[half:])
        start, stop, is_first = self.store.pieces(self.context).span(number)
        if not is_first:
            return Row.of_text(tokens[start - 1 : stop])
        start_of_text = np.array([self.start_id], dtype=tokens.dtype)
        return Row.of_text(np.concatenate([start_of_text, tokens[start:stop]]))


def too_short(split: str, tokens: int, needed: int) -> GlassError:
    """Return the error for a split that is too short for a single row."""
    return GlassError(
        f"the {split} split has {counted(tokens, 'tokens')}, but a single row needs {needed:,}",
        "Give a longer text. For the training split, you can also lower model.context.",
    )
