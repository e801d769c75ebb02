"""Tasks that learn from examples with an answer each: a text for a text, a label for a text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from glassformer.base.config import Config
from glassformer.base.errors import GlassError
from glassformer.base.wording import counted
from glassformer.model.transformer import Model
from glassformer.tasks.task import Mapped
from glassformer.text.batches import Batch
from glassformer.text.buckets import AnyLength, LikeLength
from glassformer.text.examples import ExampleStore, PreparedExamples
from glassformer.text.rows import Labelled, Pair, Row
from glassformer.text.tokenizers import Frame

WATCHED = 200
"""Examples on which it is seen whether the source is used."""
IGNORED = 0.02
"""A loss that grows by less than this share when sources are exchanged is that of a model that ignores them."""
UNKNOWN = 0.05
"""Share of unknown tokens above which a person is told."""


@dataclass(frozen=True)
class PairTask:
    """Write the target of a source."""

    config: Config
    data: PreparedExamples
    unit: str = "token"

    @property
    def choices(self) -> int:
        """V of the target."""
        return self.data.tokenizer.vocab_size

    @property
    def validation_bytes(self) -> int | None:
        """Bytes of all targets of the split; None where some are not measured whole or have unknown tokens."""
        return measured_bytes(self.data.validation, self.config.model.context)

    @property
    def unknown_share(self) -> float:
        """Share of the tokens of the validation targets that are the unknown token."""
        assert self.data.validation.targets is not None
        return self.data.validation.targets.unknown_share

    @cached_property
    def _train(self) -> Sequence[Pair]:
        return pair_rows(self.data.train, self.config)

    @cached_property
    def _order(self) -> AnyLength | LikeLength:
        return _order(self.config, len(self._train), lambda: pair_lengths(self.data.train, self.config))

    @property
    def steps_per_epoch(self) -> float:
        """Return the steps of an epoch over the pairs that are used."""
        return self._order.steps_per_epoch

    def rows(self, step: int) -> list[Pair]:
        """Any pairs, or pairs of like length."""
        return [self._train[index] for index in self._order.step(step)]

    def held_out(self, limit: int | None) -> Sequence[Pair]:
        """Pairs of the validation part, shortest first, so that little is padding."""
        store = self.data.validation
        return _evenly(pair_rows(store, self.config), limit, pair_lengths(store, self.config)[:, 1])

    def collate(self, rows: Sequence[Pair]) -> Batch:
        """Teacher forcing."""
        return Batch.from_pairs(rows)

    def sample(self, model: Model) -> tuple[str, str]:
        """The prompt, or else the first source of the validation part, and what is written for it."""
        from glassformer.tasks import Translator

        prompt = self.config.sample.prompt or next(self.data.validation.texts())[0]
        writer = Translator(model, self.data.source_tokenizer, self.data.tokenizer, self.config)
        return prompt, writer.generate([prompt], self.config.sample)[0].text

    def concerns(self, model: Model, loss: Callable[[Sequence[Any]], float]) -> Iterator[str]:
        """Says so if the source makes no difference, or if too much of the text is unknown."""
        rows = self.held_out(None)
        step = max(1, len(rows) // WATCHED)
        watched = [rows[index] for index in range(0, len(rows), step)][:WATCHED]
        exchanged = [
            Pair(other.source, row.target)
            for row, other in zip(watched, watched[len(watched) // 2 :] + watched[: len(watched) // 2], strict=True)
        ]
        own = loss(watched)
        others = loss(exchanged)
        if len(watched) > 1 and others - own < IGNORED * own:
            yield (
                f"the decoder ignores its source so far: with other sources the loss is {others:.4f}, "
                f"with the right ones {own:.4f}"
            )
        yield from unknown_concern(self.data)


@dataclass(frozen=True)
class ClassTask:
    """Name the label of a text."""

    config: Config
    data: PreparedExamples
    unit: str = "example"
    validation_bytes: None = None

    @property
    def unknown_share(self) -> float:
        """Share of the tokens of the validation texts that are the unknown token."""
        return self.data.validation.sources.unknown_share

    @property
    def choices(self) -> int:
        """Labels."""
        return len(self.data.labels)

    @cached_property
    def _train(self) -> Sequence[Labelled]:
        return labelled_rows(self.data.train, self.config)

    @cached_property
    def _order(self) -> AnyLength | LikeLength:
        lengths = self.data.train.source_lengths
        around = self.data.train.around
        used = kept(self.data.train, self.config)
        return _order(self.config, len(self._train), lambda: (lengths + around)[used][:, None])

    @property
    def steps_per_epoch(self) -> float:
        """Return the steps of an epoch over the texts that are used."""
        return self._order.steps_per_epoch

    def rows(self, step: int) -> list[Labelled]:
        """Any texts, or texts of like length."""
        return [self._train[index] for index in self._order.step(step)]

    def held_out(self, limit: int | None) -> Sequence[Labelled]:
        """Texts of the validation part, shortest first."""
        store = self.data.validation
        lengths = store.source_lengths[kept(store, self.config)] + store.around
        return _evenly(labelled_rows(store, self.config), limit, lengths)

    def collate(self, rows: Sequence[Labelled]) -> Batch:
        """A label each."""
        return Batch.from_labelled(rows)

    def sample(self, model: Model) -> tuple[str, str]:
        """The prompt, or else the first text of the validation part, and the likeliest label."""
        from glassformer.tasks import TextClassifier

        prompt = self.config.sample.prompt or next(self.data.validation.texts())[0]
        found = TextClassifier(model, self.data.tokenizer, self.data.labels, self.config).classify([prompt])[0]
        return prompt, f"{found.label} ({found.probability:.1%})"

    def concerns(self, model: Model, loss: Callable[[Sequence[Any]], float]) -> Iterator[str]:
        """Says so if too much of the text is unknown."""
        yield from unknown_concern(self.data)


def pair_rows(store: ExampleStore, config: Config) -> Sequence[Pair]:
    """The pairs of a store as rows: all, cut to fit the context, or those that fit it, as the settings say."""
    assert store.targets is not None
    context = config.model.context
    end = store.targets.end_id
    start = store.target_start or (end,)
    frame = store.frame or Frame(after=(store.sources.end_id,))
    used = np.flatnonzero(kept(store, config))
    room = context - len(start) + 1

    def make(number: int) -> Pair:
        index = int(used[number])
        source = frame.around(store.source(index).tolist(), context)
        target = store.target(index)
        ends = [end] if len(target) < room else []  # a target that is cut has no end
        return Pair(_ids(source), _ids(start, target[:room], ends))

    return Mapped(range(len(used)), make)


def pair_lengths(store: ExampleStore, config: Config) -> npt.NDArray[np.int64]:
    """(N, 2): tokens that each row of `pair_rows` makes the encoder and the decoder read."""
    both = np.stack([store.source_lengths + store.around, store.target_lengths + store.around], axis=1)
    return np.minimum(both, config.model.context)[kept(store, config)]


def labelled_rows(store: ExampleStore, config: Config) -> Sequence[Labelled]:
    """The texts of a store as rows, each after an end token, which stands for the whole text, or framed otherwise."""
    assert store.labels is not None
    labels = store.labels
    used = np.flatnonzero(kept(store, config))
    frame = store.frame or Frame(before=(store.sources.end_id,))

    def make(number: int) -> Labelled:
        index = int(used[number])
        tokens = frame.around(store.source(index).tolist(), config.model.context)
        return Labelled(_ids(tokens), int(labels[index]))

    return Mapped(range(len(used)), make)


def length_notes(store: ExampleStore, config: Config, side: str) -> Iterator[str]:
    """Say how many texts are longer than the context, and whether they are cut or left out.

    Raises:
        GlassError: there are such texts, and the settings refuse them; or none is left.
    """
    long = too_long(store, config.model.context)
    if not long:
        return
    longest = int(max(lengths.max() for lengths in _lengths(store))) + store.around
    of = f"of {counted(len(store), 'examples')}"
    problem = f"{side}: {counted(long, f'{of} are', f'{of} is')} longer than model.context = {config.model.context}"
    if config.data.too_long == "refuse" or (config.data.too_long == "leave_out" and long == len(store)):
        raise GlassError(problem, f"Set model.context = {longest}, or data.too_long = cut.")
    what = "cut" if config.data.too_long == "cut" else "left out"
    yield f"{problem} (the longest has {longest:,} tokens): {what}"


def kept(store: ExampleStore, config: Config) -> npt.NDArray[np.bool_]:
    """Return how many examples do not fit a context whole, together with the tokens that frame them."""
    if config.data.too_long == "leave_out":
        return np.max(_lengths(store), axis=0) <= config.model.context - store.around
    return np.ones(len(store), dtype=np.bool_)


def too_long(store: ExampleStore, context: int) -> int:
    """Return how many examples do not fit a context whole, together with the tokens that frame them."""
    return int((np.max(_lengths(store), axis=0) > context - store.around).sum())


def measured_bytes(store: ExampleStore, context: int) -> int | None:
    """Return the bytes of all targets; None where some are cut or left out, or have unknown tokens."""
    assert store.targets is not None
    return None if too_long(store, context) else store.targets.recoverable_bytes


def _lengths(store: ExampleStore) -> list[npt.NDArray[np.int64]]:
    return [store.source_lengths] + ([] if store.targets is None else [store.target_lengths])


def unknown_concern(data: PreparedExamples) -> Iterator[str]:
    """Says so if the vocabulary lacks too much of either side of either part."""
    stores = (store for part in (data.train, data.validation) for store in (part.sources, part.targets) if store)
    share = max(store.unknown_share for store in stores)
    if share > UNKNOWN:
        yield (
            f"{share:.1%} of the tokens are unknown: "
            "a larger tokenizer.vocab_size, or tokenizer.kind = bpe, would let the model read them"
        )


def _order(config: Config, examples: int, lengths: Callable[[], npt.NDArray[np.int64]]) -> AnyLength | LikeLength:
    train = config.train
    if train.batch_tokens is None:
        return AnyLength(examples, train.batch, train.seed)
    return LikeLength(lengths(), train.batch_tokens, train.seed)


def _evenly(rows: Sequence[Any], limit: int | None, lengths: npt.NDArray[np.int64]) -> Sequence[Any]:
    """Return all rows, or evenly drawn ones of about `limit` tokens."""
    tokens = int(lengths.sum())
    wanted = len(rows) if limit is None else max(1, min(len(rows), len(rows) * limit // max(1, tokens)))
    chosen = sorted((number * len(rows) // wanted for number in range(wanted)), key=lambda index: int(lengths[index]))
    return Mapped(chosen, lambda number: rows[chosen[number]])


def _ids(*parts: Any) -> Row:
    return np.concatenate([np.asarray(part, dtype=np.int64) for part in parts])
