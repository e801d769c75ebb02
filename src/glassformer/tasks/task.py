"""Training tasks: the rows of a step, the validation rows, the sample and the concerns of each.

The trainer, the validation loss and the report know tasks only by the `Task` protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from glassformer.base.config import Config, SampleConfig
from glassformer.model.transformer import Model
from glassformer.tasks.continuing import TextModel
from glassformer.tasks.filling import MaskFiller
from glassformer.text.batches import training_rows, validation_rows
from glassformer.text.prepare import Prepared
from glassformer.text.rows import Row, mask
from glassformer.text.store import TokenStore
from glassformer.text.tokenizers import Tokenizer

VALIDATION_SEED = (1 << 64) - 1
"""Seed of the holes in validation rows: the same at every evaluation, whatever the seed of training."""


class Task(Protocol):
    """One way to learn from prepared records."""

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

    def rows(self, step: int) -> Sequence[Row]:
        """The rows of one step: a pure function of the settings and the step."""

    def held_out(self, limit: int | None) -> Sequence[Row]:
        """Validation rows: all, or evenly drawn ones that predict about `limit` tokens."""

    def sample(self, model: Model, settings: SampleConfig) -> tuple[str, str]:
        """Return the prompt of an evaluation's sample, and the model's output for it."""

    def concerns(self, model: Model, loss: Callable[[Sequence[Row]], float]) -> Iterator[str]:
        """Yield concerns to report after an evaluation; `loss` measures rows with this model."""


@dataclass(frozen=True)
class TextTask:
    """A task that learns from running text: what its two forms have in common."""

    config: Config
    data: Prepared

    @property
    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer of the text."""
        return self.data.tokenizer

    @property
    def train(self) -> TokenStore:
        """Return the tokens to learn from."""
        return self.data.train.tokens["text"]

    @property
    def validation(self) -> TokenStore:
        """Return the tokens that are held out."""
        return self.data.validation.tokens["text"]

    @property
    def choices(self) -> int:
        """Vocabulary size V."""
        return self.tokenizer.vocab_size

    @property
    def unknown_share(self) -> float:
        """Share of the validation tokens that are the unknown token."""
        return self.validation.unknown_share

    @property
    def most_predicted(self) -> int:
        """Return the most tokens that a row predicts."""
        return self.config.model.context

    @property
    def steps_per_epoch(self) -> float:
        """Return the steps of an epoch: over windows that cover the text once, or over all documents."""
        documents = self.config.data.windows == "documents"
        rows = len(self.train.pieces(self.most_predicted)) if documents else len(self.train) / self.config.model.context
        return rows / self.config.train.batch

    def concerns(self, model: Model, loss: Callable[[Sequence[Row]], float]) -> Iterator[str]:
        """Yield no concerns."""
        return iter(())

    def _windows(self, step: int) -> list[Row]:
        train = self.config.train
        start = self.tokenizer.start_id
        return training_rows(self.train, self.config.data, self.most_predicted, train.batch, train.seed, step, start)

    def _held_out_windows(self, limit: int | None) -> Sequence[Row]:
        start = self.tokenizer.start_id
        return validation_rows(self.validation, self.config.data, self.most_predicted, start, limit)


class LanguageTask(TextTask):
    """The next token of running text."""

    unit = "token"

    @property
    def validation_bytes(self) -> int | None:
        """Bytes of the whole split; None where some of its tokens are unknown."""
        return self.validation.recoverable_bytes

    def rows(self, step: int) -> list[Row]:
        """Return rows of T+1 ids each."""
        return self._windows(step)

    def held_out(self, limit: int | None) -> Sequence[Row]:
        """Non-overlapping windows, or documents."""
        return self._held_out_windows(limit)

    def sample(self, model: Model, settings: SampleConfig) -> tuple[str, str]:
        """Return the prompt and the generated text."""
        return settings.prompt, "".join(TextModel(model, self.tokenizer, self.config).stream(settings.prompt, settings))


class MaskedTask(TextTask):
    """The hidden tokens of running text, with other holes each time (Liu et al. 2019, "dynamic masking")."""

    unit = "hidden token"
    validation_bytes = None

    @property
    def most_predicted(self) -> int:
        """Return one less than the context: the token before them is read too."""
        return self.config.model.context - 1

    def rows(self, step: int) -> list[Row]:
        """Return rows of up to T ids each."""
        train = self.config.train
        first = step * train.batch
        return [self._with_holes(row, (train.seed, first + number)) for number, row in enumerate(self._windows(step))]

    def held_out(self, limit: int | None) -> Sequence[Row]:
        """Return the same windows with the same holes each time."""
        rows = self._held_out_windows(limit)
        return LazyRows(rows, lambda number: self._with_holes(rows[number], (VALIDATION_SEED, number)))

    def _with_holes(self, row: Row, key: tuple[int, int]) -> Row:
        assert self.tokenizer.mask_id is not None
        return mask(row.ids, self.config.train.mask_share, self.tokenizer.mask_id, self.tokenizer.text_ids, key)

    def sample(self, model: Model, settings: SampleConfig) -> tuple[str, str]:
        """The prompt, or else a line of the validation part, with its holes filled."""
        filler = MaskFiller(model, self.tokenizer, self.config)
        prompt = settings.prompt or self._example(filler.MASK)
        return prompt, filler.filled(prompt)

    def _example(self, hole: str) -> str:
        """The first words of the validation part, every fifth a hole; or one at the end of a text without words."""
        most = min(60, self.config.model.context - 2)
        text = self.tokenizer.decode(self.validation.tokens[:most].tolist())
        words = text.split()[:15]
        if len(words) < 4:
            return text + hole
        return " ".join(hole if position % 5 == 3 else word for position, word in enumerate(words))


@dataclass(frozen=True)
class LazyRows(Sequence[Any]):
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
