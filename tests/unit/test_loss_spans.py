"""Records with loss spans are surveyed, split and stored like all other records, with exact boundaries."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.base.config import DataConfig, TokenizerConfig
from glassformer.text.encode import RecordWriter
from glassformer.text.record_store import RecordStore
from glassformer.text.records import RecordKind, RecordPiece
from glassformer.text.split import split_records
from glassformer.text.store import DamagedStoreError
from glassformer.text.survey import Survey, facts_of
from glassformer.text.tokenizers import Tokenizer, train_tokenizer

KIND = RecordKind("lm", ("text",), stores=("texts",), loss_spans=True, noun="conversations")
ANSWERED = [("Where is the cat? ", f"It sleeps under tree {number}.") for number in range(40)]
WORDS = st.sampled_from(["It sleeps", " under", "tree 1", "\nGood!", "Whe", "re is", "Ω", "ক "])


def records() -> list[RecordPiece]:
    found = []
    for number, (question, answer) in enumerate(ANSWERED):
        text = question + answer + "\nGood!" * (number % 2)
        spans = ((len(question), len(question) + len(answer)),)
        found.append(RecordPiece(number, (text,), position=f"line {number}", loss_spans=spans))
    return found


@cache
def tokenizer(kind: str = "bpe") -> Tokenizer:
    texts = [text for each in records() for text in each.texts]
    return train_tokenizer(TokenizerConfig(kind=kind, vocab_size=300), texts)


def stored(folder: Path, pieces: list[tuple[str, tuple[tuple[int, int], ...]]], own: Tokenizer) -> RecordStore:
    writer = RecordWriter(KIND, folder / "part", {"text": own})
    for text, spans in pieces:
        writer.add((text,), loss_spans=spans)
    writer.close()
    return RecordStore.open(KIND, folder / "part")


def test_records_with_spans_are_split_whole() -> None:
    assert not KIND.running_text
    data = DataConfig(split="random", validation_fraction=0.2, seed=3)
    found = Survey(KIND)
    for facts, number, whole in facts_of([*records(), RecordPiece(40, ("  ",), position="line 40")], data):
        found.add(number, facts, whole, data)
    assert found.left_out == {"conversations that the chat template leaves empty": 1}
    sides = list(split_records(found, data, "talk").split_pieces(records()))
    assert [(each.texts, each.loss_spans) for each in sides] == [(each.texts, each.loss_spans) for each in records()]
    assert {each.split for each in sides} == {"train", "validation"}


@pytest.mark.parametrize("kind", ["bpe", "characters", "bytes"])
def test_exactly_the_spans_count(tmp_path: Path, kind: str) -> None:
    own = tokenizer(kind)
    store = stored(tmp_path, [(each.texts[0], each.loss_spans) for each in records()], own)
    for number, (question, answer) in enumerate(ANSWERED):
        ids = np.append(store.target.document(number), own.end_id)
        mask = store.loss_mask_of(number)
        assert len(mask) == len(ids)
        assert own.decode(ids[mask]) == answer
        assert own.decode(ids[~mask]) == question + "\nGood!" * (number % 2)
        assert mask[-1] == (number % 2 == 0)  # the end token counts if the last part does


@given(parts=st.lists(st.tuples(WORDS, st.booleans()), min_size=1, max_size=6))
def test_no_token_crosses_a_span_boundary(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[str, bool]]
) -> None:
    own = tokenizer()
    text = ""
    spans: list[tuple[int, int]] = []
    for part, counts in parts:
        if counts:
            spans.append((len(text), len(text) + len(part)))
        text += part
    store = stored(tmp_path_factory.mktemp("spans"), [(text, tuple(spans))], own)
    ids = store.target.document(0)
    mask = store.loss_mask_of(0)
    assert own.decode(ids) == text
    assert own.decode(ids[mask[:-1]]) == "".join(part for part, counts in parts if counts)
    assert mask[-1] == parts[-1][1]


def test_without_spans_every_token_counts(tmp_path: Path) -> None:
    own = tokenizer("bytes")
    kind = RecordKind("classify", labels="one", stores=("sources",))
    writer = RecordWriter(kind, tmp_path / "part", {"text": own}, {"a": 0})
    writer.add(("some text",), ("a",))
    writer.close()
    store = RecordStore.open(kind, tmp_path / "part")
    assert store.loss_mask is None
    assert store.loss_mask_of(0).tolist() == [True] * 10


def test_a_mask_of_another_length_is_refused(tmp_path: Path) -> None:
    stored(tmp_path, [("a question and an answer", ((2, 5),))], tokenizer("bytes"))
    np.save(tmp_path / "part.loss_mask.npy", np.ones(3, dtype=np.bool_))
    with pytest.raises(DamagedStoreError, match="do not match each other"):
        RecordStore.open(KIND, tmp_path / "part")
