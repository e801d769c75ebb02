"""Tasks that train on examples: pairs of texts, conversations, and labelled texts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from glassformer.base.config import Config, SampleConfig
from glassformer.base.errors import GlassError
from glassformer.base.wording import counted
from glassformer.model.transformer import Model
from glassformer.tasks.chatting import ChatModel
from glassformer.tasks.classifying import TextClassifier
from glassformer.tasks.task import LazyRows
from glassformer.tasks.translating import Translator
from glassformer.text.buckets import AnyLength, LengthGroupedBatches
from glassformer.text.prepare import Prepared
from glassformer.text.record_store import RecordStore
from glassformer.text.rows import Ids, Row
from glassformer.text.tokenizers import Frame

WATCHED = 200
"""Maximum number of examples used to check whether the decoder uses the source."""
IGNORED = 0.02
"""If the loss rises by less than this fraction when sources are exchanged, the model is considered to ignore them."""
UNKNOWN = 0.05
"""Fraction of unknown tokens above which a concern is reported."""


@dataclass(frozen=True)
class ExampleTask(ABC):
    """Base class of the tasks that train on examples."""

    config: Config
    data: Prepared

    @abstractmethod
    def _rows_of(self, store: RecordStore) -> Sequence[Row]:
        """Return the examples of a store as rows."""

    @property
    def unknown_share(self) -> float:
        """Return the fraction of unknown tokens in the validation targets, or in the texts of tasks without targets."""
        return self.data.validation.target.unknown_share

    @cached_property
    def _train(self) -> Sequence[Row]:
        return self._rows_of(self.data.train)

    @cached_property
    def _order(self) -> AnyLength | LengthGroupedBatches:
        return _order(self.config, len(self._train), lambda: row_lengths(self.data.train, self.config))

    @property
    def steps_per_epoch(self) -> float:
        """Return the number of steps in one pass over the training examples that are not left out."""
        return self._order.steps_per_epoch

    def rows(self, step: int) -> list[Row]:
        """Return the examples of one step; with `train.batch_tokens`, they have similar lengths."""
        return [self._train[index] for index in self._order.step(step)]

    def held_out(self, limit: int | None) -> Sequence[Row]:
        """Return validation examples, shortest target first; all of them if `limit` is None.

        With a limit, return evenly spaced examples whose targets have about `limit` tokens in total. In tasks without
        targets, the lengths of the texts are used.
        """
        store = self.data.validation
        return _evenly_spaced(self._rows_of(store), limit, row_lengths(store, self.config)[:, -1])

    def concerns(self, model: Model, loss: Callable[[Sequence[Row]], float]) -> Iterator[str]:
        """Yield a concern if too many tokens are unknown."""
        yield from unknown_concern(self.data)


@dataclass(frozen=True)
class PairTask(ExampleTask):
    """Sequence-to-sequence task (translate, summarize): generate the target of a source."""

    unit: str = "token"

    @property
    def choices(self) -> int:
        """Return the size V of the target vocabulary."""
        return self.data.tokenizer.vocab_size

    @property
    def validation_bytes(self) -> int | None:
        """Return the size of all validation targets in bytes, or None; see `measured_bytes`."""
        return measured_bytes(self.data.validation, self.config.model.context)

    def _rows_of(self, store: RecordStore) -> Sequence[Row]:
        return pair_rows(store, self.config)

    def sample(self, model: Model, settings: SampleConfig) -> tuple[str, str]:
        """Return the prompt (if empty, the first validation source) and the generated text."""
        prompt = settings.prompt or next(self.data.validation.texts())[0]
        translator = Translator(model, self.data.source_tokenizer, self.data.tokenizer, self.config)
        return prompt, translator.generate([prompt], settings)[0].text

    def concerns(self, model: Model, loss: Callable[[Sequence[Row]], float]) -> Iterator[str]:
        """Yield a concern if the decoder ignores its source, and a concern if too many tokens are unknown."""
        rows = self.held_out(None)
        stride = max(1, len(rows) // WATCHED)
        checked_rows = [rows[index] for index in range(0, len(rows), stride)][:WATCHED]
        exchanged = [
            replace(row, source=other.source)
            for row, other in zip(
                checked_rows,
                checked_rows[len(checked_rows) // 2 :] + checked_rows[: len(checked_rows) // 2],
                strict=True,
            )
        ]
        true_source_loss = loss(checked_rows)
        exchanged_source_loss = loss(exchanged)
        if len(checked_rows) > 1 and exchanged_source_loss - true_source_loss < IGNORED * true_source_loss:
            yield (
                f"the decoder ignores its source so far: with other sources the loss is {exchanged_source_loss:.4f}, "
                f"with the correct sources {true_source_loss:.4f}"
            )
        yield from super().concerns(model, loss)


@dataclass(frozen=True)
class ChatTask(ExampleTask):
    """Chat: generate the answers in a conversation; the loss includes only answers and the tokens that end them."""

    unit: str = "token"
    validation_bytes: None = None

    @property
    def choices(self) -> int:
        """Return the vocabulary size V."""
        return self.data.tokenizer.vocab_size

    def _rows_of(self, store: RecordStore) -> Sequence[Row]:
        return conversation_rows(store, self.config)

    def sample(self, model: Model, settings: SampleConfig) -> tuple[str, str]:
        """Return the prompt (if empty, the first validation conversation up to its last answer) and the answer."""
        chat_model = ChatModel(model, self.data.tokenizer, self.config)
        if settings.prompt:
            return settings.prompt, chat_model.generate([settings.prompt], settings)[0].text
        ids, _ = last_question(self.data.validation, 0)
        return chat_model.decode_conversation(ids), chat_model.answers([ids], settings)[0].text


@dataclass(frozen=True)
class ClassTask(ExampleTask):
    """Classification: predict the label of a text."""

    unit: str = "example"
    validation_bytes: None = None

    @property
    def choices(self) -> int:
        """Return the number of labels C."""
        return len(self.data.labels)

    def _rows_of(self, store: RecordStore) -> Sequence[Row]:
        return labelled_rows(store, self.config)

    def sample(self, model: Model, settings: SampleConfig) -> tuple[str, str]:
        """Return the prompt (if empty, the first validation text) and the likeliest label."""
        prompt = settings.prompt or next(self.data.validation.texts())[0]
        prediction = TextClassifier(model, self.data.tokenizer, self.data.labels, self.config).classify([prompt])[0]
        return prompt, f"{prediction.label} ({prediction.probability:.1%})"


def pair_rows(store: RecordStore, config: Config) -> Sequence[Row]:
    """Return the pairs of a store as rows: all pairs, cut to the context, or only pairs that fit (`data.too_long`)."""
    context = config.model.context
    end = store.target.end_id
    start = store.target_start or (end,)
    frame = store.frame or Frame(after=(store.source.end_id,))
    record_indices = np.flatnonzero(used_record_mask(store, config))
    max_target_tokens = context - len(start) + 1

    def make(number: int) -> Row:
        index = int(record_indices[number])
        source = frame.around(store.source.document(index).tolist(), context)
        target = store.target.document(index)
        ends = [end] if len(target) < max_target_tokens else []  # a target that fills the context has no end token
        return Row.of_text(_ids(start, target[:max_target_tokens], ends), source=_ids(source))

    return LazyRows(range(len(record_indices)), make)


def labelled_rows(store: RecordStore, config: Config) -> Sequence[Row]:
    """Return the texts of a store as rows.

    An end token precedes each text, or the special tokens of an imported tokenizer surround it. A text that is longer
    than the context loses its last tokens, or is left out (`data.too_long`).
    """
    assert store.labels is not None
    labels = store.labels
    record_indices = np.flatnonzero(used_record_mask(store, config))
    frame = store.frame or Frame(before=(store.source.end_id,))

    def make(number: int) -> Row:
        index = int(record_indices[number])
        tokens = frame.around(store.source.document(index).tolist(), config.model.context)
        return Row(_ids(tokens), _ids(labels[index : index + 1]))

    return LazyRows(range(len(record_indices)), make)


def conversation_rows(store: RecordStore, config: Config) -> Sequence[Row]:
    """Return the conversations of a store as rows.

    Each conversation is preceded by an end token, or by the start token (if any) of an imported tokenizer. The loss
    includes only answers and the tokens that end them. A conversation that is longer than the context loses its first
    tokens, or is left out (`data.too_long`).
    """
    record_indices = np.flatnonzero(used_record_mask(store, config))
    end = store.target.end_id
    before = (end,) if store.frame is None else store.frame.before

    def make(number: int) -> Row:
        index = int(record_indices[number])
        ids = _ids(before, store.target.document(index), [end])  # (T+1)
        loss_mask = np.concatenate([np.zeros(len(before), dtype=np.bool_), store.loss_mask_of(index)])  # (T+1)
        longest = config.model.context + 1
        return Row.of_text(ids[-longest:], loss_mask=loss_mask[-longest:])

    return LazyRows(range(len(record_indices)), make)


def last_question(store: RecordStore, index: int) -> tuple[list[int], list[int]]:
    """Return the ids of a conversation before its last answer, and the ids of that answer without its end token.

    If another special token ends the answer, the answer includes that token, but not the template's text after it.
    """
    ids = store.target.document(index).tolist()
    loss_mask = store.loss_mask_of(index)[: len(ids)].tolist()
    end = len(ids)
    while end and not loss_mask[end - 1]:
        end -= 1
    start = end
    while start and loss_mask[start - 1]:
        start -= 1
    return ids[:start], ids[start:end]


def row_lengths(store: RecordStore, config: Config) -> npt.NDArray[np.int64]:
    """Return the length in tokens of each text in the records that become rows, (N, roles).

    The special tokens around a text are counted; a length above the context is replaced by the context.
    """
    return np.minimum(store.lengths() + store.frame_length, config.model.context)[used_record_mask(store, config)]


def length_notes(store: RecordStore, config: Config, name: str) -> Iterator[str]:
    """Yield a note if some examples are longer than the context; the note says whether they are cut or left out.

    Raises:
        GlassError: there are such examples and `data.too_long` refuses them, or leaves out every example.
    """
    n_too_long = count_too_long(store, config.model.context)
    if not n_too_long:
        return
    longest = int(store.lengths().max()) + store.frame_length
    of_examples = f"of {counted(len(store), 'examples')}"
    count = counted(n_too_long, f"{of_examples} are", f"{of_examples} is")
    problem = f"{name}: {count} longer than model.context = {config.model.context}"
    if config.data.too_long == "refuse" or (config.data.too_long == "leave_out" and n_too_long == len(store)):
        raise GlassError(problem, f"Set data.too_long = cut, or train a model with model.context = {longest}.")
    action = "cut" if config.data.too_long == "cut" else "left out"
    yield f"{problem} (the longest has {longest:,} tokens): {action}"


def used_record_mask(store: RecordStore, config: Config) -> npt.NDArray[np.bool_]:
    """Return a (records,) mask of the records that become rows; records that do not fit the context may be left out."""
    if config.data.too_long == "leave_out":
        return store.lengths().max(axis=1) <= config.model.context - store.frame_length
    return np.ones(len(store), dtype=np.bool_)


def count_too_long(store: RecordStore, context: int) -> int:
    """Return the number of examples that, with the special tokens around them, are longer than the context."""
    return int((store.lengths().max(axis=1) > context - store.frame_length).sum())


def measured_bytes(store: RecordStore, context: int) -> int | None:
    """Return the size of all targets in bytes; None if a text exceeds the context or a target has unknown tokens."""
    return None if count_too_long(store, context) else store.target.recoverable_bytes


def unknown_concern(data: Prepared) -> Iterator[str]:
    """Yield a concern if too many tokens of the training or validation split are unknown."""
    splits = (data.train, data.validation)
    unknown_fraction = max(store.unknown_share for part in splits for store in part.tokens.values())
    if unknown_fraction > UNKNOWN:
        yield (
            f"up to {unknown_fraction:.1%} of the tokens are unknown: "
            "increase tokenizer.vocab_size, or set tokenizer.kind = bpe, in a new run without --from"
        )


def _order(
    config: Config, examples: int, lengths: Callable[[], npt.NDArray[np.int64]]
) -> AnyLength | LengthGroupedBatches:
    train = config.train
    if train.batch_tokens is None:
        return AnyLength(examples, train.batch, train.seed)
    return LengthGroupedBatches(lengths(), train.batch_tokens, train.seed)


def _evenly_spaced(rows: Sequence[Any], limit: int | None, lengths: npt.NDArray[np.int64]) -> Sequence[Any]:
    """Return all rows, or evenly spaced rows with about `limit` tokens in total, shortest first."""
    tokens = int(lengths.sum())
    n_selected = len(rows) if limit is None else max(1, min(len(rows), len(rows) * limit // max(1, tokens)))
    chosen = sorted(
        (number * len(rows) // n_selected for number in range(n_selected)), key=lambda index: int(lengths[index])
    )
    return LazyRows(chosen, lambda number: rows[chosen[number]])


def _ids(*parts: Any) -> Ids:
    return np.concatenate([np.asarray(part, dtype=np.int64) for part in parts])
