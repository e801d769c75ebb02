"""Prepared examples: tokenizers see only the training split, and stores are reproducible and never incomplete."""

from __future__ import annotations

import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from glassformer.base.config import TASK_FACTS, Config, DataConfig, ModelConfig, Task, TokenizerConfig, TrainConfig
from glassformer.base.errors import GlassError
from glassformer.runs.folder import Run, create_run
from glassformer.runs.run_text import find_or_encode_text, split_hashes
from glassformer.runs.text_location import token_cache
from glassformer.text import data_notes as notes_module
from glassformer.text.data_notes import overlap_note
from glassformer.text.prepare import open_prepared, prepare
from glassformer.text.record_store import RecordStore
from glassformer.text.records import RECORD_KINDS
from glassformer.text.split import hold_out
from glassformer.text.store import DamagedStoreError, StoreWriter
from glassformer.text.survey import Survey
from tests.unit.example_files import (
    BYTES,
    CHARACTERS,
    LABELLED,
    PAIRS,
    SPAM,
    Write,
    encoded,
    lines,
    made,
    notes,
    texts,
    tsv,
    writer,
)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    return writer(tmp_path)


# Tokenizers


def test_tokenizers_are_trained_only_on_the_training_part(write: Write, tmp_path: Path) -> None:
    rows = [*(("aa bb", "cc dd") for _ in range(9)), ("xyz", "uvw")]
    source = write("t.tsv", tsv(rows))
    joint = made(tmp_path, "translate", CHARACTERS, source=source, split="end")
    assert joint.tokenizer is joint.source_tokenizer
    assert joint.tokenizer.vocab_size == len("abcd ") + 2
    assert joint.validation.source.unknown == 3
    assert joint.train.unknown_fraction == 0
    assert "100.000% unknown" in notes(joint)
    separate = made(tmp_path, "translate", CHARACTERS.replace(joint=False), source=source, split="end")
    assert separate.source_tokenizer.decode(separate.source_tokenizer.encode("abc")) == "ab\ufffd"
    assert separate.tokenizer.decode(separate.tokenizer.encode("bcd")) == "\ufffdcd"
    assert separate.validation.target.tokenizer_digest == separate.tokenizer.digest
    assert (separate.folder / "source_tokenizer.json").is_file()
    again = open_prepared(RECORD_KINDS["translate"], separate.folder)
    assert again.source_tokenizer.digest == separate.source_tokenizer.digest != again.tokenizer.digest


def test_the_unknown_share_is_that_of_the_training_part(write: Write, tmp_path: Path) -> None:
    config = TokenizerConfig(kind="characters", min_count=2)
    found = made(tmp_path, "translate", config, source=write("t.tsv", "aaz\tbbb\naaa\tbbb\naaa\tbby\n"), split="end")
    assert found.train.unknown_fraction == pytest.approx(1 / 12)
    labelled = write("l.tsv", "one\taaz\ntwo\taaa\none\taaa\ntwo\taab\n")
    found = made(tmp_path, "classify", config, source=labelled, split="end", label_column="1", column="2")
    assert found.train.unknown_fraction == pytest.approx(1 / 9)


# The cache


def test_prepared_data_is_reused_until_something_changes(write: Write, tmp_path: Path) -> None:
    table = write("t.tsv", tsv(PAIRS))
    own = write("v.tsv", tsv(PAIRS[:3]))
    base: dict[str, Any] = {"source": table, "split": "random"}
    first = made(tmp_path, "translate", **base)
    again = made(tmp_path, "translate", **base)
    assert (first.reused, again.reused, again.folder) == (False, True, first.folder)
    assert again.notes == first.notes
    assert list(again.validation.texts()) == list(first.validation.texts())
    assert made(tmp_path, "translate", **base, too_long="refuse").reused
    folders = {first.folder}
    for changes in (
        {"column": "2"},
        {"min_words": 1},
        {"max_words": 9},
        {"split": "end"},
        {"validation_fraction": 0.2},
        {"validation_limit": 9},
        {"seed": 2},
        {"validation": own},
        {"encoding": "utf-8"},
        {"target_column": "1"},
    ):
        folders.add(made(tmp_path, "translate", **(base | changes)).folder)
    folders.add(made(tmp_path, "translate", CHARACTERS, **base).folder)
    folders.add(made(tmp_path, "translate", BYTES.replace(joint=False), **base).folder)
    folders.add(made(tmp_path, "summarize", **base).folder)
    assert len(folders) == 14
    write("t.tsv", tsv([*PAIRS, ("one", "more")]))
    assert not made(tmp_path, "translate", **base).reused


def test_a_renamed_label_folder_is_different_data(write: Write, tmp_path: Path) -> None:
    for number, (text, label) in enumerate(SPAM):
        write(f"mails/{label}/{number:03}.txt", text)
    mails = tmp_path / "mails"
    first = made(tmp_path, "classify", source=str(mails))
    (mails / "spam").rename(mails / "trash")
    assert made(tmp_path, "classify", source=str(mails)).labels == ("ham", "trash")
    (mails / "trash").rename(mails / "spam")
    assert made(tmp_path, "classify", source=str(mails)).folder == first.folder
    (mails / "ham" / "039.txt").rename(mails / "spam" / "0.txt")  # the files stay in the same order
    assert (SPAM[39][0], "spam") in texts(made(tmp_path, "classify", source=str(mails)))


def test_notes_name_the_current_files(write: Write, tmp_path: Path) -> None:
    told = []
    for name in ("old", "new"):
        own = write(f"{name}-own.tsv", tsv(PAIRS[:3]))
        told.append(made(tmp_path, "translate", source=write(f"{name}.tsv", tsv(PAIRS)), validation=own))
    assert told[1].reused
    assert "new.tsv" in notes(told[1])
    assert notes(told[1]) == notes(told[0]).replace("old", "new")
    assert open_prepared(RECORD_KINDS["translate"], told[1].folder).notes == told[0].notes


def test_the_same_data_gives_the_same_bytes(write: Write, tmp_path: Path) -> None:
    source = write("t.tsv", LABELLED)
    config = TokenizerConfig(kind="bpe", vocab_size=300)
    folders = [made(tmp_path / name, "classify", config, source=source).folder for name in "ab"]
    contents = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders]
    assert contents[0] == contents[1]
    assert set(contents[0]) >= {"train.labels.npy", "train.texts.jsonl", "train.sources.ds", "tokenizer.json"}


@pytest.mark.thorough
@pytest.mark.parametrize("task", ["translate", "classify"])
def test_damage_is_found_and_repaired(task: Task, write: Write, tmp_path: Path) -> None:
    rows = PAIRS if task == "translate" else [(label, text) for text, label in SPAM]
    source = write("t.tsv", tsv(rows))
    folder = made(tmp_path, task, source=source).folder
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name, content in whole.items():
        altered = bytes([content[0], content[1] ^ 1]) + content[2:]
        for broken in (None, content[: len(content) // 2], altered):
            if broken is None:
                (folder / name).unlink()
            else:
                (folder / name).write_bytes(broken)
            with pytest.raises(DamagedStoreError):
                open_prepared(RECORD_KINDS[task], folder)
            assert not made(tmp_path, task, source=source).reused
            assert (folder / name).read_bytes() == content
    (folder / "train.sources.json").write_bytes(whole["validation.sources.json"])
    with pytest.raises(DamagedStoreError):
        open_prepared(RECORD_KINDS[task], folder)


def test_nothing_incomplete_is_left(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write("t.tsv", tsv(PAIRS))

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(StoreWriter, "add", full)
        with pytest.raises(GlassError, match="the disk is full"):
            made(tmp_path, "translate", source=source)
        assert not (tmp_path / "cache").exists()
    assert not made(tmp_path, "translate", source=source).reused


def test_a_file_that_changes_meanwhile_is_reported(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write("t.tsv", tsv(PAIRS))
    for rows in ([*PAIRS, ("and", "more")], PAIRS[:-1], [*PAIRS[:-1], ("other", "words")]):
        write("t.tsv", tsv(PAIRS))

        def changing(found: Survey, data: DataConfig, rows: Any = rows) -> Any:
            write("t.tsv", tsv(rows))
            return hold_out(found, data)

        with monkeypatch.context() as patched:
            patched.setattr("glassformer.text.split.hold_out", changing)
            with pytest.raises(GlassError, match="changed while it was read"):
                made(tmp_path, "translate", source=source)


@pytest.mark.thorough
def test_memory_does_not_grow_with_the_texts(write: Write, tmp_path: Path) -> None:
    peaks = []
    for count in (5_000, 25_000):
        source = write("t.tsv", lines(f"{n} {'a' * 150}\t{n} {'b' * 150}" for n in range(count)))
        tracemalloc.start()
        made(tmp_path, "translate", source=source)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 20_000 * 120  # bytes; an example has about 700


# Data for evaluation only


def test_evaluation_examples_are_encoded(write: Write, tmp_path: Path) -> None:
    found = made(tmp_path, "translate", CHARACTERS.replace(joint=False), source=write("t.tsv", tsv(PAIRS)))
    tokenizers = (found.source_tokenizer, found.tokenizer)
    data = DataConfig(source=write("v.tsv", tsv([*PAIRS[:5], ("", "x")])))
    store, told = encoded("translate", data, tokenizers, (), tmp_path)
    assert list(store.texts()) == PAIRS[:5]
    assert found.tokenizer.decode(store.target.document(4)) == PAIRS[4][1]
    assert "5 pairs" in told
    assert "left out 1 pair with an empty source" in told
    with pytest.raises(GlassError, match="contains no example that can be used: left out 1 pair with an empty source"):
        encoded("translate", DataConfig(source=write("e.tsv", "\tx\n")), tokenizers, (), tmp_path)


def test_unknown_labels_are_reported(write: Write, tmp_path: Path) -> None:
    found = made(tmp_path, "classify", source=write("t.tsv", LABELLED))
    tokenizers = (found.tokenizer, found.tokenizer)
    rows = [("spam", "one two three"), ("spams", "four five six"), ("spams", "a b c"), ("ham", "x y z")]
    data = DataConfig(source=write("v.tsv", tsv(rows)), label_column="1", column="2")
    store, told = encoded("classify", data, tokenizers, found.labels, tmp_path)
    assert list(store.texts()) == [("one two three", "spam"), ("x y z", "ham")]
    assert store.labels is not None
    assert store.labels.tolist() == [1, 0]
    left_out = "left out 2 texts with labels that the training split does not have: spams (2)"
    assert f"{left_out}; the known label nearest to spams is spam" in told
    write("v.tsv", tsv([("Ham", "x y z"), ("hem", "x y"), ("hem", "z z")]))
    with pytest.raises(GlassError, match=r"most frequent label is 'hem'\nDid you mean ham"):
        encoded("classify", data, tokenizers, found.labels, tmp_path)


def test_evaluation_examples_from_the_training_data_are_counted(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes_module, "AT_ONCE", 7)
    train = made(tmp_path, "translate", source=write("t.tsv", tsv(PAIRS)), split="end")
    tokenizers = (train.tokenizer, train.tokenizer)
    other = [(PAIRS[1][0], "autre"), ("autre", PAIRS[1][1]), PAIRS[-1]]  # the last of PAIRS is held out

    def told(name: str, rows: list[tuple[str, str]]) -> str | None:
        data = DataConfig(source=write(name, tsv(rows)))
        return overlap_note(encoded("translate", data, tokenizers, (), tmp_path)[0], train.train)

    assert told("none.tsv", other) is None
    assert told("some.tsv", [*PAIRS[:2], PAIRS[35], PAIRS[0], *other]) == (
        "4 of 7 pairs also occur in the training split"
    )
    labelled = made(tmp_path, "classify", source=write("l.tsv", LABELLED))
    assert overlap_note(labelled.validation, labelled.train) is None
    assert overlap_note(labelled.train, labelled.train) == "36 of 36 labelled texts also occur in the training split"


def test_a_store_without_texts_raises_an_error(write: Write, tmp_path: Path) -> None:
    found = made(tmp_path, "translate", source=write("t.tsv", tsv(PAIRS)))
    with pytest.raises(ValueError, match="without its texts"):
        next(RecordStore(found.kind, found.train.tokens).texts())


# A run that is resumed


@pytest.mark.parametrize("changed", ["source", "target", "labels", "nothing"])
def test_a_run_resumes_only_with_its_own_vocabularies(changed: str, write: Write, tmp_path: Path) -> None:
    task: Task = "classify" if changed == "labels" else "translate"
    source = write("t.tsv", LABELLED if changed == "labels" else tsv(PAIRS))
    data = DataConfig(source=source, split="random")
    joint = task == "classify"
    tokenizer = CHARACTERS.replace(joint=joint)
    found = prepare(RECORD_KINDS[task], data, tokenizer, token_cache(tmp_path / "run"))
    family = ModelConfig(family=TASK_FACTS[task].family, shared_embedding=joint)
    config = Config(data=data, tokenizer=tokenizer, train=TrainConfig(task=task), model=family)
    parts = split_hashes(found)
    facts = {"source": source, "text_hash": found.text_hash, "parts": parts, "tokens": str(found.folder)}

    def add(run: Run) -> None:
        (found.source_tokenizer if changed == "target" else found.tokenizer).save(run.tokenizer_file)
        (found.tokenizer if changed == "source" else found.source_tokenizer).save(run.source_tokenizer_file)
        if found.labels:
            run.save_labels(found.labels[::-1])

    run = create_run(tmp_path / "run", config, {"data": facts}, add)
    shutil.rmtree(found.folder)
    if changed == "nothing":
        assert find_or_encode_text(run, config, print).text_hash == found.text_hash
        return
    with pytest.raises(GlassError, match=r"(differs from that of|differ \(in names or order\) from those of)"):
        find_or_encode_text(run, config, print)
