"""Records with several labels are surveyed, split and stored like all other records."""

from __future__ import annotations

import json
from pathlib import Path

from glassformer.base.config import DataConfig, TokenizerConfig
from glassformer.text.encode import RecordWriter
from glassformer.text.prepare import prepare
from glassformer.text.record_store import RecordStore
from glassformer.text.records import RecordKind
from glassformer.text.split import split_records
from glassformer.text.survey import Facts, Survey
from glassformer.text.tokenizers import train_tokenizer

KIND = RecordKind("classify", ("text",), "several", ("sources",), noun="tagged texts")
RECORDS = [(f"word {number}", tuple("abc"[: 1 + number % 3])) for number in range(40)] + [("rare", ("d", "a"))]


def surveyed() -> Survey:
    found = Survey(KIND)
    for number, (text, labels) in enumerate(RECORDS):
        facts = Facts(characters=len(text), words=2, mark=hash_of(number), other_fields=labels)
        assert found.add(number, facts, True, DataConfig())
    return found


def hash_of(number: int) -> int:
    return (number * 0x9E3779B97F4A7C15) % 2**64


def test_each_label_belongs_to_its_record() -> None:
    found = surveyed()
    owners = [number for number, (_, labels) in enumerate(RECORDS) for _ in labels]
    assert found.label_owners().tolist() == owners
    counts = {name: sum(name in labels for _, labels in RECORDS) for name in "abcd"}
    assert dict(zip(found.label_names, found.label_counts().tolist(), strict=True)) == counts


def test_a_split_keeps_every_label_in_training() -> None:
    for rule in ("random", "end"):
        found = surveyed()
        split = split_records(found, DataConfig(split=rule, validation_fraction=0.3), "tags")
        kept = {
            label for (_, labels), held in zip(RECORDS, split.held_out, strict=True) if not held for label in labels
        }
        assert split.labels is not None
        assert set(split.labels) == kept
        assert 0 < split.held_out.sum() < len(RECORDS)
        assert ("d" in kept) == (rule == "random")


def test_several_labels_are_restored_from_the_store(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(TokenizerConfig(kind="bytes"), [text for text, _ in RECORDS])
    names = {name: number for number, name in enumerate("abcd")}
    writer = RecordWriter(KIND, tmp_path / "train", {"text": tokenizer}, names)
    for text, labels in RECORDS:
        writer.add((text,), labels)
    writer.close()
    store = RecordStore.open(KIND, tmp_path / "train")
    assert len(store) == len(RECORDS)
    for number, (_, labels) in enumerate(RECORDS):
        assert store.labels_of(number).tolist() == [names[label] for label in labels]
    assert list(store.texts()) == [(text, *labels) for text, labels in RECORDS]
    assert set(writer.sums) == {"train.texts.jsonl", "train.labels.npy", "train.label_ends.npy"}


def test_several_labels_are_read_from_lists(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"text": text, "labels": list(labels)} for text, labels in RECORDS]
    rows += [{"text": "without any", "labels": []}, {"text": "one alone", "labels": "a"}]
    refused: list[dict[str, object]] = [{"text": "no field"}, {"text": "not labels", "labels": [["a"]]}]
    source = tmp_path / "tags.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in [*rows, *refused]), encoding="utf-8")
    data = DataConfig(source=str(source), split="random", seed=1)
    found = prepare(KIND, data, TokenizerConfig(kind="bytes"), tmp_path / "cache")
    wanted = {(text, *labels) for text, labels in RECORDS} | {("without any",), ("one alone", "a")}
    assert {*found.train.texts(), *found.validation.texts()} == wanted
    assert len(found.validation)
    for store in (found.train, found.validation):
        for number, (_, *labels) in enumerate(store.texts()):
            assert [found.labels[label] for label in store.labels_of(number)] == labels
    assert "left out 1 row without a label" in found.notes
    assert "left out 1 row with a list or an object as label" in found.notes
