"""Rows and batches: tokens are predicted exactly once, targets are shifted by one, and no row crosses the split."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.base.config import DataConfig
from glassformer.base.errors import GlassError
from glassformer.text.batches import Batch, training_rows, validation_rows
from glassformer.text.document_rows import shuffled
from glassformer.text.rows import Row
from glassformer.text.store import StoreWriter, TokenStore

END = 65_000
STREAM = DataConfig(windows="stream")
DOCUMENTS = DataConfig(windows="documents")
PRIMES = st.sampled_from([1, 2, 3, 5, 7, 11, 13, 17, 31])
LENGTHS = st.lists(st.sampled_from([0, 1, 2, 3, 5, 7, 11, 13, 23, 47]), min_size=1, max_size=12)


class Numbers:
    """The properties of a tokenizer that a store needs."""

    vocab_size = 65_001
    end_id = END
    unknown_id = None
    digest = "numbers"


def store_of(folder: Path, lengths: list[int], first: int = 0, name: str = "s") -> TokenStore:
    """Return a store of documents of these lengths; tokens other than end tokens are distinct, counted from `first`."""
    writer = StoreWriter(folder / name, Numbers())  # type: ignore[arg-type]
    for length in lengths:
        writer.add(["x" * length], [list(range(first, first + length))], [True])
        first += length
    writer.close()
    return TokenStore.open(folder / name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stores")


def predicted(rows: list[Row]) -> list[tuple[int, int]]:
    """Return the (previous token, token) pairs of all scored predictions, read from a Batch."""
    batch = Batch.from_rows(rows)
    pairs = zip(batch.inputs[batch.loss_mask].tolist(), batch.targets[batch.loss_mask].tolist(), strict=True)
    return list(pairs)


@settings(max_examples=60)
@given(lengths=LENGTHS, context=PRIMES)
def test_stream_predicts_every_token_but_the_first_once(folder: Path, lengths: list[int], context: int) -> None:
    store = store_of(folder, [*lengths, 2])
    rows = validation_rows(store, STREAM, context, END)
    tokens = store.tokens.tolist()
    assert predicted(list(rows)) == list(itertools.pairwise(tokens))  # in order, each once
    assert all(2 <= len(row) <= context + 1 for row in rows)
    assert len(rows) == len(list(rows)) == -(-(len(tokens) - 1) // context)


@settings(max_examples=60)
@given(lengths=LENGTHS, context=PRIMES)
def test_documents_predict_every_token_once(folder: Path, lengths: list[int], context: int) -> None:
    store = store_of(folder, [*lengths, 1])
    rows = list(validation_rows(store, DOCUMENTS, context, END))
    expected = []
    start = 0
    for stop in store.document_ends.tolist():
        document = [END, *store.tokens[start:stop].tolist()]
        expected += list(itertools.pairwise(document))
        start = stop
    assert predicted(rows) == expected
    assert all(len(row) <= context + 1 for row in rows)
    assert len(rows) == sum(-(-(length + 1) // context) for length in [*lengths, 1])


@settings(max_examples=60)
@given(lengths=st.lists(st.integers(2, 37), min_size=1, max_size=9), seed=st.integers(0, 99))
def test_batch_shifts_once_and_masks_padding(lengths: list[int], seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = [random.integers(1, 60_000, length).astype(np.uint16) for length in lengths]
    batch = Batch.from_rows([Row.of_text(row) for row in rows])
    assert batch.inputs.dtype == batch.targets.dtype == torch.int64
    assert batch.attention_mask.dtype == batch.loss_mask.dtype == torch.bool
    assert batch.inputs.shape == (len(rows), max(lengths) - 1)
    assert batch.n_targets == sum(lengths) - len(rows) == int(batch.loss_mask.sum())
    for number, row in enumerate(rows):
        length = len(row) - 1
        assert batch.inputs[number, :length].tolist() == row[:-1].tolist()
        assert batch.targets[number, :length].tolist() == row[1:].tolist()
        assert batch.attention_mask[number].tolist() == [True] * length + [False] * (max(lengths) - 1 - length)
        assert not batch.inputs[number, length:].any()
        assert not batch.targets[number, length:].any()
    assert torch.equal(batch.attention_mask, batch.loss_mask)
    assert torch.equal(
        batch.targets[:, :-1][batch.attention_mask[:, 1:]], batch.inputs[:, 1:][batch.attention_mask[:, 1:]]
    )


def test_batch_refuses_rows_that_predict_nothing() -> None:
    for rows in ([], [Row.of_text(np.array([3]))]):
        with pytest.raises(ValueError, match="at least one target"):
            Batch.from_rows(rows)


def test_a_batch_moves_to_a_device() -> None:
    batch = Batch.from_rows([Row.of_text(np.array([1, 2, 3]))]).to("meta")
    assert {tensor.device.type for tensor in (batch.inputs, batch.targets, batch.attention_mask, batch.loss_mask)} == {
        "meta"
    }
    assert batch.n_targets == 2


@settings(max_examples=40)
@given(
    lengths=st.lists(st.sampled_from([5, 7, 11, 40]), min_size=5, max_size=9),
    batch=st.sampled_from([1, 3, 7, 11]),
    context=st.sampled_from([3, 5, 13]),
    seed=st.integers(0, 2**66),
    step=st.integers(0, 10**7),
    documents=st.booleans(),
)
def test_rows_depend_only_on_the_step(
    folder: Path, lengths: list[int], batch: int, context: int, seed: int, step: int, documents: bool
) -> None:
    store = store_of(folder, lengths)
    data = DOCUMENTS if documents else STREAM

    def rows() -> list[list[int]]:
        return [row.ids.tolist() for row in training_rows(store, data, context, batch, seed, step, END)]

    whole = rows()
    assert len(whole) == batch
    assert whole == rows()  # no state is kept between calls
    tokens = store.tokens.tolist()
    if not documents:
        assert all(len(row) == context + 1 for row in whole)
        assert all(row == tokens[(at := _place(tokens, row)) : at + context + 1] for row in whole)


def _place(tokens: list[int], row: list[int]) -> int:
    return next(at for at in range(len(tokens)) if tokens[at : at + len(row)] == row)


def test_stream_rows_are_sampled_evenly_from_all_positions(folder: Path) -> None:
    store = store_of(folder, [28])  # 29 tokens: 16 positions
    context = 13
    counts = Counter(
        int(row.inputs[0]) for step in range(400) for row in training_rows(store, STREAM, context, 8, 1, step, END)
    )
    assert sorted(counts) == list(range(16))
    expected = 400 * 8 / 16
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < 37.7  # chi-square, 15 d.f., p = 0.001
    first = [[row.ids.tolist() for row in training_rows(store, STREAM, context, 4, seed, 0, END)] for seed in range(5)]
    assert len({str(rows) for rows in first}) == 5


def test_the_order_of_samples_never_changes(folder: Path) -> None:
    """These numbers must never change: a run that is resumed on any machine must continue in the same order."""
    store = store_of(folder, [1000])
    assert [int(row.inputs[0]) for row in training_rows(store, STREAM, 7, 5, 1337, 42, END)] == STREAM_ORDER
    assert [shuffled(position, 11, seed=1337, epoch=2) for position in range(11)] == SHUFFLED


STREAM_ORDER = [526, 884, 601, 960, 481]
SHUFFLED = [0, 1, 8, 3, 7, 4, 5, 2, 6, 9, 10]


@pytest.mark.parametrize(("batch", "context"), [(1, 5), (3, 5), (7, 3), (50, 11)])
def test_each_piece_of_a_document_occurs_once_an_epoch(folder: Path, batch: int, context: int) -> None:
    store = store_of(folder, [3, 0, 11, 1, 29, 7, 2])
    wanted = Counter(str(row.ids.tolist()) for row in validation_rows(store, DOCUMENTS, context, END))
    size = sum(wanted.values())
    steps = -(-3 * size // batch)
    rows = [
        str(row.ids.tolist())
        for step in range(steps)
        for row in training_rows(store, DOCUMENTS, context, batch, 5, step, END)
    ]
    epochs = [rows[start : start + size] for start in range(0, 3 * size, size)]
    assert all(Counter(epoch) == wanted for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


@settings(max_examples=60)
@given(size=st.integers(1, 300), seed=st.integers(0, 2**64), epoch=st.integers(0, 99))
def test_shuffle_is_a_bijection(size: int, seed: int, epoch: int) -> None:
    assert sorted(shuffled(position, size, seed, epoch) for position in range(size)) == list(range(size))


def test_shuffle_is_even() -> None:
    """Over many epochs each document is first about equally often."""
    counts = Counter(shuffled(0, 7, 3, epoch) for epoch in range(2100))
    assert sum((count - 300) ** 2 / 300 for count in counts.values()) < 22.5  # chi-square, 6 d.f., p = 0.001


def test_rows_are_found_across_many_blocks_of_documents(folder: Path) -> None:
    """With more documents than fit in one block, positions are found in each block."""
    lengths = [n % 5 for n in range(3001)]
    store = store_of(folder, lengths)
    rows = validation_rows(store, DOCUMENTS, 2, END)
    assert predicted(list(rows)) == predicted(
        [Row.of_text(row) for document in _documents(store) for row in _cut(document, 2)]
    )


def _documents(store: TokenStore) -> list[list[int]]:
    ends = [0, *store.document_ends.tolist()]
    return [[END, *store.tokens[a:b].tolist()] for a, b in itertools.pairwise(ends)]


def _cut(document: list[int], context: int) -> list[np.ndarray]:
    return [np.array(document[start : start + context + 1]) for start in range(0, len(document) - 1, context)]


@pytest.mark.parametrize("data", [STREAM, DOCUMENTS])
def test_no_row_crosses_from_training_into_validation(folder: Path, data: DataConfig) -> None:
    train = store_of(folder, [97, 5, 31], 0, "train")
    held = store_of(folder, [41, 13], 30_000, "held")
    for step in range(50):
        assert all(
            max(t for t in row.ids.tolist() if t != END) < 30_000
            for row in training_rows(train, data, 7, 5, 0, step, END)
        )
    assert all(min(row.ids.tolist()) >= 30_000 for row in validation_rows(held, data, 7, END))


def test_limited_validation_is_spread_evenly(folder: Path) -> None:
    store = store_of(folder, [7 * 101 - 1])
    every = [row.ids.tolist() for row in validation_rows(store, STREAM, 7, END)]
    some = [row.ids.tolist() for row in validation_rows(store, STREAM, 7, END, limit_tokens=70)]
    assert len(some) == 10
    places = [every.index(row) for row in some]
    assert places == sorted(set(places))
    assert max(np.diff(places)) - min(np.diff(places)) <= 1
    assert len(validation_rows(store, STREAM, 7, END, limit_tokens=10**9)) == len(every)
    assert len(validation_rows(store, STREAM, 7, END, limit_tokens=1)) == 1


def test_rows_behave_as_a_sequence(folder: Path) -> None:
    rows = validation_rows(store_of(folder, [50]), STREAM, 7, END)
    assert [row.ids.tolist() for row in rows[2:4]] == [rows[2].ids.tolist(), rows[3].ids.tolist()]
    assert rows[-1].ids.tolist() == rows[len(rows) - 1].ids.tolist()
    with pytest.raises(IndexError):
        rows[len(rows)]


def test_too_few_tokens_are_refused(folder: Path) -> None:
    with pytest.raises(GlassError, match="training split has 7 tokens, but a single row needs 8"):
        training_rows(store_of(folder, [6]), STREAM, 7, 2, 0, 0, END)
    with pytest.raises(GlassError, match="validation split has 1 token, but a single row needs 2"):
        validation_rows(store_of(folder, [0]), STREAM, 7, END)
    assert len(training_rows(store_of(folder, [7]), STREAM, 7, 2, 0, 0, END)) == 2
