"""Training tasks: each provides the rows of a step, the validation rows, a sample, and warnings for the user.

The training loop uses every task through the `Task` protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from glassformer.base.config import Config, SampleConfig
from glassformer.model.transformer import Model
from glassformer.tasks.continuing import TextModel
from glassformer.tasks.filling import MaskFiller
from glassformer.text.batches import DocumentRows, training_rows, validation_rows
from glassformer.text.prepare import Prepared
from glassformer.text.rows import Row, mask
from glassformer.text.store import TokenStore
from glassformer.text.tokenizers import Tokenizer

VALIDATION_SEED = (1 << 64) - 1
"""Seed of the masks in validation rows, the same at every evaluation and for every training seed."""


class Task(Protocol):
    """Protocol with the members of a task that the training loop uses."""

    @property
    def unit(self) -> str:
        """Return the unit over which the loss is averaged, such as "token" or "example"."""

    @property
    def choices(self) -> int:
        """Return the number of possible outcomes of a prediction: the vocabulary size, or the number of labels."""

    @property
    def validation_bytes(self) -> int | None:
        """Return the UTF-8 size of the predicted validation text, for bits per byte; None if that is undefined."""

    @property
    def unknown_share(self) -> float:
        """Return the fraction of unknown tokens in the validation texts; for pairs, only in the targets."""

    @property
    def steps_per_epoch(self) -> float:
        """Return the number of steps in one pass over the training split."""

    def rows(self, step: int) -> Sequence[Row]:
        """Return the rows of one step, which depend only on the settings, the data and the step."""

    def held_out(self, limit: int | None) -> Sequence[Row]:
        """Return all validation rows, or, with a limit, evenly spaced rows with about `limit` tokens in total."""

    def sample(self, model: Model, settings: SampleConfig) -> tuple[str, str]:
        """Return the prompt for the sample of an evaluation, and the model's output."""

    def concerns(self, model: Model, loss: Callable[[Sequence[Row]], float]) -> Iterator[str]:
        """Yield concerns (warnings for the user) after an evaluation; `loss` computes the model's loss on rows."""


@dataclass(frozen=True)
class TextTask:
    """Base class of the tasks that train on running text."""

    config: Config
    data: Prepared

    @property
    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer of the text."""
        return self.data.tokenizer

    @property
    def train(self) -> TokenStore:
        """Return the tokens of the training split."""
        return self.data.train.tokens["text"]

    @property
    def validation(self) -> TokenStore:
        """Return the tokens of the validation split."""
        return self.data.validation.tokens["text"]

    @property
    def choices(self) -> int:
        """Return the vocabulary size V."""
        return self.tokenizer.vocab_size

    @property
    def unknown_share(self) -> float:
        """Return the fraction of unknown tokens among the validation tokens."""
        return self.validation.unknown_share

    @property
    def max_predicted(self) -> int:
        """Return the maximum number of predicted tokens per row."""
        return self.config.model.context

    @property
    def steps_per_epoch(self) -> float:
        """Return the number of steps in one epoch.

        In an epoch, the windows of a stream have about as many tokens in total as the training split, and each row of
        documents is used once.
        """
        if self.config.data.windows == "stream":
            return len(self.train) / self.config.model.context / self.config.train.batch
        start = self.tokenizer.start_id
        rows = DocumentRows(self.train, self.config.data, self.max_predicted, start, "train")
        return len(rows) / self.config.train.batch

    def concerns(self, model: Model, loss: Callable[[Sequence[Row]], float]) -> Iterator[str]:
        """Yield nothing: there are no concerns about running text."""
        return iter(())

    def _windows(self, step: int) -> list[Row]:
        train = self.config.train
        start = self.tokenizer.start_id
        return training_rows(self.train, self.config.data, self.max_predicted, train.batch, train.seed, step, start)

    def _held_out_windows(self, limit: int | None) -> Sequence[Row]:
        start = self.tokenizer.start_id
        return validation_rows(self.validation, self.config.data, self.max_predicted, start, limit)


class LanguageTask(TextTask):
    """Language modeling: predict the next token of running text."""

    unit = "token"

    @property
    def validation_bytes(self) -> int | None:
        """Return the size of the validation split in bytes; None if it has unknown tokens.

        With `data.windows` = prefixes, only the bytes of predicted tokens are counted; with halves, the size is None.
        """
        windows = self.config.data.windows
        if windows == "halves" or self.validation.unknown:
            return None
        if windows == "prefixes":
            token_bytes = np.array([len(self.tokenizer.token_bytes(id)) for id in range(self.tokenizer.vocab_size)])
            return int(sum(token_bytes[row.targets[-1]] for row in self.held_out(None)))
        return self.validation.recoverable_bytes

    def rows(self, step: int) -> list[Row]:
        """Return the rows of one step, at most T+1 ids each."""
        return self._windows(step)

    def held_out(self, limit: int | None) -> Sequence[Row]:
        """Return validation rows: windows that predict different tokens, or rows of documents."""
        return self._held_out_windows(limit)

    def sample(self, model: Model, settings: SampleConfig) -> tuple[str, str]:
        """Return the prompt and the generated text."""
        return settings.prompt, "".join(TextModel(model, self.tokenizer, self.config).stream(settings.prompt, settings))


class MaskedTask(TextTask):
    """Masked language modeling: predict masked tokens; each step has new masks (dynamic masking: Liu et al. 2019)."""

    unit = "masked token"
    validation_bytes = None

    @property
    def max_predicted(self) -> int:
        """Return the context minus one: a row has `max_predicted` + 1 tokens, and the model reads all of them.

        If the targets are given (`data.windows` = halves), a row has as many inputs as targets.
        """
        return self.config.model.context - (self.config.data.windows != "halves")

    def rows(self, step: int) -> list[Row]:
        """Return the rows of one step, up to T ids each."""
        train = self.config.train
        first = step * train.batch
        return [self._masked(row, (train.seed, first + number)) for number, row in enumerate(self._windows(step))]

    def held_out(self, limit: int | None) -> Sequence[Row]:
        """Return validation rows with masks, which are the same at every call with the same limit."""
        rows = self._held_out_windows(limit)
        return LazyRows(rows, lambda number: self._masked(rows[number], (VALIDATION_SEED, number)))

    def _masked(self, row: Row, key: tuple[int, int]) -> Row:
        assert self.tokenizer.mask_id is not None
        if not row.shifted:  # the targets are given
            return replace(row, loss_mask=np.ones(len(row), dtype=np.bool_))
        return mask(row.ids, self.config.train.mask_share, self.tokenizer.mask_id, self.tokenizer.text_ids, key)

    def sample(self, model: Model, settings: SampleConfig) -> tuple[str, str]:
        """Return the prompt (if empty, words of the validation split) and the text with its masks filled."""
        filler = MaskFiller(model, self.tokenizer, self.config)
        prompt = settings.prompt or self._example(filler.MASK)
        return prompt, filler.filled(prompt)

    def _example(self, mask_text: str) -> str:
        """Return the first words of the validation split, at most 15, with words 4, 9 and 14 masked.

        If there are fewer than four words, a mask follows them.
        """
        max_tokens = min(60, self.config.model.context - 2)
        text = self.tokenizer.decode(self.validation.tokens[:max_tokens].tolist())
        words = text.split()[:15]
        if len(words) < 4:
            return text + mask_text
        return " ".join(mask_text if position % 5 == 3 else word for position, word in enumerate(words))


@dataclass(frozen=True)
class LazyRows(Sequence[Any]):
    """A sequence with the length of `rows`, whose element i is computed as `make(i)` when it is accessed."""

    rows: Sequence[Any]
    make: Callable[[int], Any]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.make(index)
