"""Training tasks: each says which rows make a step, how they become a batch, and what to watch.

The trainer, the validation loss and the report know tasks only by the `Task` protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from glassformer.base.config import Config
from glassformer.model.transformer import Model
from glassformer.text.batches import Batch, training_rows, validation_rows
from glassformer.text.rows import Masked, Row, mask
from glassformer.text.store import TokenStore
from glassformer.text.tokenizers import Tokenizer

VALIDATION_SEED = (1 << 64) - 1
"""Seed of the holes in validation rows: the same at every evaluation, whatever the seed of training."""


class Task(Protocol):
    """One way to learn from a prepared text."""

    @property
    def unit(self) -> str:
        """Return the unit that a loss is the mean over: "token" or "example"."""

    @property
    def choices(self) -> int:
        """Return how many outcomes a prediction chooses from: the vocabulary, or the labels."""

    @property
    def validation_bytes(self) -> int | None:
        """UTF-8 bytes of what validation predicts, for bits per byte; None where the figure would have no meaning."""

    @property
    def unknown_share(self) -> float:
        """Share of the validation tokens that are the unknown token."""

    @property
    def steps_per_epoch(self) -> float:
        """Steps in which the training part is read once."""

    def rows(self, step: int) -> Sequence[Any]:
        """The rows of one step: a pure function of the settings and the step."""

    def held_out(self, limit: int | None) -> Sequence[Any]:
        """Validation rows: all, or evenly drawn ones that predict about `limit` tokens."""

    def collate(self, rows: Sequence[Any]) -> Batch:
        """Rows of this task as one batch."""

    def sample(self, model: Model) -> tuple[str, str]:
        """Return the prompt of an evaluation's sample, and the text that the model makes of it."""

    def concerns(self, model: Model, loss: Callable[[Sequence[Any]], float]) -> Iterator[str]:
        """Yield concerns that a person should know after an evaluation; `loss` measures rows with this very model."""


@dataclass(frozen=True)
class LanguageTask:
    """The next token of running text."""

    config: Config
    tokenizer: Tokenizer
    train: TokenStore
    validation: TokenStore
    unit: str = "token"

    @property
    def choices(self) -> int:
        """V."""
        return self.tokenizer.vocab_size

    @property
    def validation_bytes(self) -> int | None:
        """Bytes of the whole split; None where some of its tokens are unknown."""
        return self.validation.recoverable_bytes

    @property
    def unknown_share(self) -> float:
        """Share of the validation tokens that are the unknown token."""
        return self.validation.unknown_share

    @property
    def steps_per_epoch(self) -> float:
        """Return the steps of an epoch: over windows that cover the text once, or over all documents."""
        return _steps_per_epoch(self.train, self.config, self.config.model.context)

    def rows(self, step: int) -> list[Row]:
        """T+1 ids each."""
        train = self.config.train
        context = self.config.model.context
        start = self.tokenizer.start_id
        return training_rows(self.train, self.config.data, context, train.batch, train.seed, step, start)

    def held_out(self, limit: int | None) -> Sequence[Row]:
        """Non-overlapping windows, or documents."""
        config = self.config
        return validation_rows(self.validation, config.data, config.model.context, self.tokenizer.start_id, limit)

    def collate(self, rows: Sequence[Row]) -> Batch:
        """Each id from those before it."""
        return Batch.from_rows(rows)

    def sample(self, model: Model) -> tuple[str, str]:
        """The prompt, continued."""
        from glassformer.tasks import TextModel

        settings = self.config.sample
        return settings.prompt, "".join(TextModel(model, self.tokenizer, self.config).stream(settings.prompt, settings))

    def concerns(self, model: Model, loss: Callable[[Sequence[Any]], float]) -> Iterator[str]:
        """Yield none."""
        return iter(())


@dataclass(frozen=True)
class MaskedTask:
    """The hidden tokens of running text, with other holes each time (Liu et al. 2019, "dynamic masking")."""

    config: Config
    tokenizer: Tokenizer
    train: TokenStore
    validation: TokenStore
    unit: str = "hidden token"
    validation_bytes: None = None

    @property
    def choices(self) -> int:
        """V."""
        return self.tokenizer.vocab_size

    @property
    def unknown_share(self) -> float:
        """Share of the validation tokens that are the unknown token."""
        return self.validation.unknown_share

    @property
    def steps_per_epoch(self) -> float:
        """Return the steps of an epoch: over windows that cover the text once, or over all documents."""
        return _steps_per_epoch(self.train, self.config, self.config.model.context - 1)

    def rows(self, step: int) -> list[Masked]:
        """Return rows of up to T ids each."""
        config = self.config
        batch = config.train.batch
        seed = config.train.seed
        found = training_rows(
            self.train, config.data, config.model.context - 1, batch, seed, step, self.tokenizer.start_id
        )
        return [self._with_holes(row, (seed, step * batch + number)) for number, row in enumerate(found)]

    def held_out(self, limit: int | None) -> Sequence[Masked]:
        """Return the same windows with the same holes each time."""
        config = self.config
        rows = validation_rows(self.validation, config.data, config.model.context - 1, self.tokenizer.start_id, limit)
        return Mapped(rows, lambda number: self._with_holes(rows[number], (VALIDATION_SEED, number)))

    def _with_holes(self, row: Row, key: tuple[int, int]) -> Masked:
        assert self.tokenizer.mask_id is not None
        return mask(row, self.config.train.mask_share, self.tokenizer.mask_id, self.tokenizer.text_ids, key)

    def collate(self, rows: Sequence[Masked]) -> Batch:
        """Each hidden token from all around it."""
        return Batch.from_masked(rows)

    def sample(self, model: Model) -> tuple[str, str]:
        """The prompt, or else a line of the validation part, with its holes filled."""
        from glassformer.tasks import MaskFiller

        filler = MaskFiller(model, self.tokenizer, self.config)
        prompt = self.config.sample.prompt or self._example(filler.MASK)
        return prompt, filler.filled(prompt)

    def _example(self, hole: str) -> str:
        """The first words of the validation part, every fifth a hole; or one at the end of a text without words."""
        most = min(60, self.config.model.context - 2)
        text = self.tokenizer.decode(self.validation.tokens[:most].tolist())
        words = text.split()[:15]
        if len(words) < 4:
            return text + hole
        return " ".join(hole if place % 5 == 3 else word for place, word in enumerate(words))

    def concerns(self, model: Model, loss: Callable[[Sequence[Any]], float]) -> Iterator[str]:
        """Yield none."""
        return iter(())


def _steps_per_epoch(train: TokenStore, config: Config, context: int) -> float:
    """Return the steps of an epoch, with documents cut into rows of `context` + 1 ids at most."""
    documents = config.data.windows == "documents"
    rows = len(train.pieces(context)) if documents else len(train) / config.model.context
    return rows / config.train.batch


@dataclass(frozen=True)
class Mapped(Sequence[Any]):
    """As long as `rows`, each element made when asked for."""

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
