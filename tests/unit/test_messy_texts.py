"""Unexpected text is never trained on, measured or left out without a note.

Tables have separate tests; these tests cover running text, folders, encodings, the split and the metrics.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassformer.base.config import Config, DataConfig
from glassformer.base.errors import GlassError
from glassformer.corpora import find_text_corpus
from glassformer.evaluation.baseline_table import baselines
from glassformer.evaluation.evaluate import EvaluationRequest, evaluate_run
from glassformer.evaluation.training_overlap import count_seen
from glassformer.experiments.statistics import tabulate
from glassformer.text.evaluation_data import encode_evaluation_data
from glassformer.text.left_out import Tally
from glassformer.text.prepare import Prepared, prepare
from glassformer.text.records import RECORD_KINDS
from glassformer.text.source import open_source
from glassformer.text.split import split_documents
from glassformer.text.survey import kept_pieces, survey
from glassformer.training.loop import train
from glassformer.training.reporting import Silent
from glassformer.training.setup import new_training
from tests.property.trainers import change_manifest, last_weights, resumed, same, small_trainer, stop_after, text_file
from tests.unit.comparison_grids import grid_of, result

LM = RECORD_KINDS["lm"]
WORDS = {"kind": "words", "vocab_size": 20}


def prepared(folder: Path, source: Path, **tokenizer: object) -> Prepared:
    """Split and encode a text."""
    settings = Config.from_dict({"tokenizer": tokenizer, "data": {"source": str(source)}})
    return prepare(LM, settings.data, settings.tokenizer, folder / "cache")


# Unknown tokens


def test_a_text_with_unknown_tokens_has_no_bits_per_byte_and_no_gzip(tmp_path: Path) -> None:
    known = prepared(tmp_path, text_file(tmp_path), kind="bytes")
    assert known.validation.unknown_fraction == 0
    assert [rung.name for rung in baselines(known.train.source, known.validation.source, known.tokenizer)][-1] == "gzip"
    found = prepared(tmp_path, text_file(tmp_path), **WORDS)
    store = found.validation.source
    assert store.unknown_share == pytest.approx(
        np.mean(np.array(store.tokens)[np.array(store.tokens) != found.tokenizer.end_id] == found.tokenizer.unknown_id)
    )
    assert store.unknown_share > 0.2
    ladder = baselines(found.train.source, store, found.tokenizer)
    assert [rung.name for rung in ladder] == ["uniform", "unigram", "5-gram"]
    assert {rung.bits_per_byte for rung in ladder} == {None}
    assert ladder[0].loss == pytest.approx(math.log(found.tokenizer.vocab_size))  # nats per token keep their meaning


def test_with_unknown_tokens_the_true_entropy_is_not_a_floor(tmp_path: Path) -> None:
    text = tmp_path / "stories.txt"
    text.write_text("\n".join(find_text_corpus("stories").documents(60, 0)), encoding="utf-8")
    found = prepared(tmp_path, text, **WORDS)
    assert [rung.name for rung in baselines(found.train.source, found.validation.source, found.tokenizer, "stories")][
        -1
    ] == "5-gram"
    trainer = small_trainer(
        tmp_path,
        "words",
        tokenizer__kind="words",
        tokenizer__vocab_size=20,
        data__source="stories",
        data__size=60,
        data__document="file",
        train__steps=1,
    )
    assert trainer.entropy is None


def test_evaluate_and_train_show_the_fraction_of_unknown_tokens(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, tokenizer__kind="words", tokenizer__vocab_size=20, train__steps=2)
    outcome = train(trainer)
    assert outcome is not None
    assert outcome.bits_per_byte is None
    assert outcome.unknown_share > 0.2
    report = evaluate_run(EvaluationRequest(trainer.run.folder))
    facts = report.facts()
    assert facts["bits_per_byte"] is None
    assert facts["unknown_share"] == outcome.unknown_share
    assert [rung["bits_per_byte"] for rung in facts["baselines"]] == [None, None, None]
    assert f"{outcome.unknown_share:.3%} of the tokens are unknown: no bits per byte" in report.text()
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts


def test_a_text_in_another_script_has_no_bits_per_byte(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, train__steps=1)  # characters
    train(trainer)
    other = tmp_path / "bangla.txt"
    other.write_text("ক্ষুদ্র নদী বিশ্ববিদ্যালয়ের পথে\n" * 20, encoding="utf-8")
    facts = evaluate_run(EvaluationRequest(trainer.run.folder, source=str(other))).facts()
    assert facts["unknown_share"] > 0.8
    assert facts["bits_per_byte"] is None
    assert all(rung["bits_per_byte"] is None and rung["name"] != "gzip" for rung in facts["baselines"])


def test_unknown_targets_have_no_bits_per_byte(tmp_path: Path) -> None:
    config = Config.from_dict(
        {
            "model": {"encoder_layers": 1, "layers": 1, "width": 14, "heads": 2, "context": 30},
            "tokenizer": WORDS,
            "data": {"source": "reverse", "size": 80},
            "train": {"task": "translate", "steps": 1, "threads": 1},
            "sample": {"tokens": 3, "beams": 1},
        }
    )
    with new_training(config, tmp_path / "run", Silent()) as trainer:
        outcome = train(trainer)
    assert outcome is not None
    assert outcome.unknown_share > 0
    assert outcome.bits_per_byte is None
    facts = evaluate_run(EvaluationRequest(tmp_path / "run", examples=3)).facts()
    assert facts["bits_per_byte"] is None
    assert facts["unknown_share"] == outcome.unknown_share
    assert facts["unknown_source_share"] > 0


def test_a_comparison_of_tokenizers_leaves_out_cells_with_unknown_tokens() -> None:
    grid = grid_of("tokenizer.kind=bytes,words", seeds=1)
    names = [job.name for job in grid.jobs()]
    words = result(1.0, bits_per_byte=None, unknown_share=0.25)
    table = tabulate(grid, {names[0]: result(3.0, unknown_share=0.0), names[1]: words})
    assert table.measure == "bits_per_byte"
    assert [row.spread.mean for row in table.rows] == [1.0, None]
    assert table.rows[1].measured == "not available"
    assert "25.000% of the validation tokens are unknown" in table.warnings[0]


# The split of several files


def split_files(folder: Path, sizes: list[int], **changes: object) -> tuple[dict[str, list[int]], str]:
    """Return the document lengths in characters of each split, for files of these sizes, and the note."""
    texts = folder / "texts"
    shutil.rmtree(texts, ignore_errors=True)
    texts.mkdir()
    for number, size in enumerate(sizes):
        (texts / f"{number}.txt").write_text(chr(0x61 + number) * size, encoding="utf-8")
    data = DataConfig(source=str(texts), **changes)  # type: ignore[arg-type]
    sides: dict[str, list[int]] = defaultdict(list)
    with open_source(LM, data, folder) as source:
        found = survey(source)
        plan = split_documents(found, data)
        open_size = 0
        for side, (piece,), _, last, _ in plan.split_pieces(kept_pieces(source, found, marks=plan.bucket >= 0)):
            open_size += len(piece)
            if last:
                sides[side].append(open_size)
                open_size = 0
    assert sum(map(sum, sides.values())) == sum(sizes)  # nothing is lost, nothing is on both sides
    return sides, plan.note


@pytest.mark.parametrize(
    ("sizes", "train", "validation"),
    [
        ([100_000, 27], [90_024], [9_976, 27]),  # the last file alone would be the whole validation split
        ([50_000, 50_000], [50_000, 40_000], [10_000]),  # one of two files would be half of the text
        ([10_000] * 10, [10_000] * 9, [10_000]),  # a whole file is exactly the share
        ([45_000, 46_000, 9_000], [45_000, 46_000], [9_000]),  # near enough from below
        ([45_000, 43_000, 12_000], [45_000, 43_000], [12_000]),  # and from above
        ([45_000, 42_000, 13_000], [45_000, 42_000, 3_000], [10_000]),  # not near enough
        ([30_000, 60_000, 4_000, 3_000, 3_000], [30_000, 60_000], [4_000, 3_000, 3_000]),
    ],
)
def test_a_split_of_several_files_respects_the_fraction(
    sizes: list[int], train: list[int], validation: list[int], tmp_path: Path
) -> None:
    assert split_files(tmp_path, sizes)[0] == {"train": train, "validation": validation}


def test_whole_files_never_exceed_the_limit(tmp_path: Path) -> None:
    sizes = [900, 100, 105]
    assert split_files(tmp_path, sizes, validation_limit=105)[0]["validation"] == [105]
    assert split_files(tmp_path, sizes, validation_limit=104)[0]["validation"] == [104]


def test_starts_of_very_many_documents_are_subsampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.text.survey.MOST_MARKS", 8)
    text = tmp_path / "lines.txt"
    text.write_text("".join(f"{number:09d}\n" for number in range(100)), encoding="utf-8")
    data = DataConfig(source=str(text), document="line")
    with open_source(LM, data, tmp_path) as source:
        found = survey(source)
        assert len(found.starts) <= 8
        assert all(start % 9 == 0 for start in found.starts)
        held = [
            piece.texts[0]
            for piece in split_documents(found, data).split_pieces(kept_pieces(source, found, False))
            if piece.split == "validation"
        ]
    assert sum(map(len, held)) == pytest.approx(90, abs=0.25 * 90)


def test_the_note_gives_the_held_out_amount(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    for name, size in {"a.txt": 4_000, "b.txt": 5_970, "c.txt": 30}.items():
        (tmp_path / "texts" / name).write_text("words " * (size // 6), encoding="utf-8")
    notes = "\n".join(prepared(tmp_path, tmp_path / "texts", kind="bytes").notes)
    assert (
        "validation: the end of the text, with one document cut in two (2 documents, 1,000 characters, 10.0%)" in notes
    )
    assert "data.validation_fraction" not in notes
    settings = Config.from_dict({"data": {"source": str(tmp_path / "texts"), "validation_limit": 100}})
    notes = "\n".join(prepare(LM, settings.data, settings.tokenizer, tmp_path / "cache").notes)
    assert "1.0% of the characters are held out, with data.validation_fraction = 0.1" in notes


def several_files(folder: Path) -> Path:
    """Return a folder with two files, of which the second is short."""
    texts = folder / "texts"
    texts.mkdir()
    shutil.copy(text_file(folder), texts / "a.txt")
    (texts / "b.txt").write_text("still waters run deep 3\nthe early bird catches the worm 2\n" * 3, encoding="utf-8")
    return texts


def test_a_run_without_its_encoded_text_resumes_on_its_own_split(tmp_path: Path) -> None:
    """The tokenizer is the same for every split."""
    changes = {
        "data__source": str(several_files(tmp_path)),
        "data__document": "file",
        "tokenizer__kind": "bytes",
    }
    first = small_trainer(tmp_path, "resumed", **changes)
    stop_after(first, 10)
    shutil.rmtree(tmp_path / ".tokens")
    second = resumed(tmp_path, "resumed")
    train(second)
    whole = small_trainer(tmp_path, "again", **changes)
    train(whole)
    assert same(last_weights(second), last_weights(whole))


def test_a_run_does_not_resume_on_another_split_of_its_text(tmp_path: Path) -> None:
    """The encoded text is missing, and encoding the text again gives other parts than the run recorded."""
    changes = {"data__source": str(several_files(tmp_path)), "data__document": "file", "tokenizer__kind": "bytes"}
    run = small_trainer(tmp_path, **changes, train__steps=3)
    train(run)
    change_manifest(run.run.folder, lambda manifest: manifest["data"]["parts"].update(validation="0" * 64))
    shutil.rmtree(tmp_path / ".tokens")
    with pytest.raises(GlassError, match="differ from those of"):
        resumed(tmp_path, **{"train.steps": "6"})


@pytest.mark.parametrize("text", ["🇧🇩🇮🇳🇳🇵" * 30, "👍🏽👋🏿" * 40, "👩‍👩‍👧" * 30, "e\u0301" * 80])
def test_no_grapheme_is_cut_at_the_split(text: str, tmp_path: Path) -> None:
    import regex

    path = tmp_path / "t.txt"
    path.write_text(text, encoding="utf-8")
    for limit in range(1, 20):
        data = DataConfig(source=str(path), validation_limit=limit, validation_fraction=0.5)
        with open_source(LM, data, tmp_path) as source:
            found = survey(source)
            parts = [
                piece.texts[0] for piece in split_documents(found, data).split_pieces(kept_pieces(source, found, False))
            ]
        assert "".join(parts) == text
        assert [*regex.findall(r"\X", parts[0]), *regex.findall(r"\X", parts[1])] == regex.findall(r"\X", text)


# Evaluation text


@pytest.fixture(scope="module")
def proverbs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run of one step, with its text beside it."""
    folder = tmp_path_factory.mktemp("proverbs")
    train(small_trainer(folder, tokenizer__kind="bytes", data__document="file", train__steps=1))
    return folder


def evaluated(run: Path, text: Path, **changes: str) -> tuple[dict[str, Any], str]:
    """Return the facts and the messages of evaluating a text."""
    said: list[str] = []
    report = evaluate_run(EvaluationRequest(run, source=str(text), changes=changes, note=said.append))
    return report.facts(), "\n".join(said)


def test_evaluate_reports_omitted_documents(proverbs: Path, tmp_path: Path) -> None:
    rows = [{"text": "still waters run deep"}] * 50 + [{"text": " "}] * 3 + [{"other": 1}] * 2
    table = tmp_path / "rows.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    facts, said = evaluated(proverbs / "run", table, **{"data.column": "text"})
    assert sorted(facts["left_out"].values()) == [2, 3]
    assert "left out 3 empty documents" in said
    assert "left out 2 rows without text in that column" in said
    assert "left out 3 empty documents" in facts["notes"]


def test_evaluate_reports_that_a_text_is_the_training_text(proverbs: Path, tmp_path: Path) -> None:
    """The validation split is measured; if the text is read with other settings, the whole text is measured."""
    copy = tmp_path / "another name.txt"
    shutil.copy(text_file(proverbs), copy)
    own = evaluate_run(EvaluationRequest(proverbs / "run")).facts()
    facts, said = evaluated(proverbs / "run", copy)
    assert "evaluating on its validation split" in said
    assert (facts["loss"], facts["tokens"]) == (own["loss"], own["tokens"])
    assert facts["training_overlap"] is None
    assert facts["left_out"] == {}
    facts, said = evaluated(proverbs / "run", copy, **{"data.document": "paragraph"})
    assert facts["training_overlap"]["training_text"] is True
    assert facts["tokens"] > own["tokens"]
    assert "is the text that this run was trained on" in said


def test_evaluate_counts_the_passages_that_were_in_the_training_text(proverbs: Path, tmp_path: Path) -> None:
    learnt = text_file(proverbs).read_text(encoding="utf-8")[:320]
    mixed = tmp_path / "mixed.txt"
    mixed.write_text(learnt + "Nothing of this was ever in that text! " * 8 + "xy", encoding="utf-8")
    facts, said = evaluated(proverbs / "run", mixed)
    assert facts["training_overlap"] == {"training_text": False, "passages": 19, "seen": 10}
    assert "10 of 19 passages (of up to 32 tokens) appear token for token in the training split (52.6%)" in said
    mixed.write_text("Nothing of this was ever in that text! " * 8, encoding="utf-8")
    facts, said = evaluated(proverbs / "run", mixed)
    assert facts["training_overlap"]["seen"] == 0
    assert "token for token" not in said


@pytest.mark.parametrize("block", [40, 1 << 20])
def test_passage_counts_equal_a_plain_search(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.evaluation.training_overlap.BLOCK", block)
    draw = np.random.default_rng(1)
    lines = ["".join(draw.choice(list("ab"), draw.integers(1, 90))) for _ in range(60)]
    other = [line[:70] if number % 3 else line[::-1] for number, line in enumerate(lines)]
    stores = []
    for name, texts in {"train": lines, "other": other}.items():
        (tmp_path / name).write_text("\n".join(texts), encoding="utf-8")
        data = DataConfig(source=str(tmp_path / name), document="line")
        tokenizer = prepared(tmp_path, tmp_path / "train", kind="bytes").tokenizer
        (tmp_path / f"{name}-tokens").mkdir()
        stores.append(encode_evaluation_data(LM, data, {"text": tokenizer}, tmp_path / f"{name}-tokens").store.source)
    train = "|".join(["", *lines, ""])
    expected = [0, 0]
    for line in other:
        whole = [line[at : at + 32] in train for at in range(0, len(line) - 31, 32)]
        found = whole or [f"{line}|" in train]
        expected[0] += len(found)
        expected[1] += sum(found)
    assert count_seen(stores[1], stores[0]) == tuple(expected)


# Encodings


def read(path: Path, **settings: object) -> tuple[str, str]:
    """Return the text of a source, and all notes."""
    data = DataConfig(source=str(path), **settings)  # type: ignore[arg-type]
    with open_source(LM, data, path.parent) as source:
        found = survey(source)
        text = "".join(piece.texts[0] for piece in kept_pieces(source, found, marks=False))
        return text, "\n".join(source.notes)


def test_a_byte_that_is_not_utf8_is_located(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_bytes(b"plain words " * 1000 + b"of a caf\xe9 that " + b"go on " * 1000)
    text, notes = read(path)
    assert text[12_000:12_014] == "of a café that"
    assert "letter.txt is read as Windows-1252, because byte 0xE9 at offset 12008 is not UTF-8" in notes
    assert "'rds of a café that go on'" in notes
    assert "1 byte above 0x7F in 18,015" in notes
    with pytest.raises(GlassError, match="byte 0xE9 at offset 12008"):
        read(path, encoding="utf-8")
    assert "because" not in read(path, encoding="windows-1252")[1]


@pytest.mark.parametrize(
    "letters", ["Śnieg ", "Œuvre Ťava ", "ciał i był ", "10 € ", "ночь ", "কি ", "漢字 ", "😀 ", "λόγος ", "ø "]
)
def test_one_bad_byte_does_not_turn_utf8_into_another_encoding(letters: str, tmp_path: Path) -> None:
    path = tmp_path / "damaged.txt"
    path.write_bytes(b"begins with ascii \xe9 and goes on " + letters.encode() + b"to its end")
    with pytest.raises(GlassError, match="not valid UTF-8: byte 0xE9 at offset 18"):
        read(path)


JAPANESE = "これは日本語の文章です。\n吾輩は猫である。\n"


@pytest.mark.parametrize("codec", ["iso-2022-jp", "iso-2022-jp-2", "iso-2022-kr", "utf-7"])
@pytest.mark.parametrize("before", ["", "A heading in ASCII.\n" * 20])
def test_encodings_disguised_as_ascii_are_refused(codec: str, before: str, tmp_path: Path) -> None:
    path = tmp_path / "mail.txt"
    path.write_bytes((before + ("한국어 문장" if codec == "iso-2022-kr" else JAPANESE)).encode(codec))
    with pytest.raises(GlassError) as caught:
        read(path)
    assert f"mail.txt looks like {codec.upper()[:11]}" in caught.value.problem
    assert "data.encoding to utf-8" in caught.value.remedy
    assert read(path, encoding="utf-8")[0].encode() == path.read_bytes()


@pytest.mark.parametrize(
    "text",
    [
        "Call +4915112345678 or +1-555-0100 now, 1+200-3=198, C++ and a+b.",
        "--- a/file\n+++ b/file\n+import os\n+import sys\n-old\n",
        "Google+Facebook and Google+Facebook again, and +Facebook.",
        "Zm9vYmFy+Zm9vYmFyZm9v/YmFyZm9vYmFy+Zm9vYmFyZm9vYmFyZm9vYmFyZm9v\n" * 5,
        "\x1b[31mred\x1b[0m and \x1b(B plain",
        "+",
        "+-+-",
        "a + b",
        "",
    ],
)
def test_ascii_with_plus_signs_and_escapes_is_read(text: str, tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text(text + " end", encoding="utf-8")
    assert read(path)[0] == text + " end"


@pytest.mark.parametrize(
    "content", ["hello world\0", "a wörld\0", "1743042285\0\n", "one\0two\0six\0", "eins\ntwo\0three four\n" * 9]
)
def test_a_text_with_nul_bytes_is_not_utf16(content: str, tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes(content.encode())
    with pytest.raises(GlassError, match=r"t\.txt is a binary file, not text: NUL byte at offset"):
        read(path)


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", ["ฉันกินข้าวทุกวันที่บ้าน", "Привет", "مرحبا", "Καλημέρα"])
def test_utf16_without_spaces_is_not_read_as_utf8(text: str, codec: str, tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes(text.encode(codec))
    with pytest.raises(GlassError) as caught:
        read(path)
    assert "data.encoding" in caught.value.remedy
    assert read(path, encoding=codec)[0] == text
    path.write_bytes(f"{text} {text}\n".encode(codec))
    assert read(path)[0] == f"{text} {text}\n"


@pytest.mark.parametrize("codec", ["utf-8", "utf-16-le", "utf-16-be"])
def test_a_second_byte_order_mark_is_reported(codec: str, tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes("\ufeff\ufeffwords of a text".encode(codec))
    text, notes = read(path)
    assert text == "\ufeffwords of a text"
    assert "t.txt begins with two byte order marks" in notes


# Folders


@pytest.mark.skipif(sys.platform == "win32", reason="this system has no links or named pipes")
def test_skipped_links_and_pipes_of_a_folder_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    (folder / "inner").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (folder / "inner" / "a.txt").write_text("first ", encoding="utf-8")
    (tmp_path / "b.txt").write_text("second", encoding="utf-8")
    (folder / "link.txt").symlink_to(tmp_path / "b.txt")  # to a file: read
    (folder / "inner" / "more").symlink_to(tmp_path / "elsewhere")
    (folder / "gone.txt").symlink_to(tmp_path / "nowhere.txt")
    (folder / ".hidden").symlink_to(tmp_path / "nowhere.txt")
    os.mkfifo(folder / "pipe")
    text, notes = read(folder)
    assert text == "first second"
    assert "left out 1 hidden entry" in notes
    said = "gone.txt (a broken link), inner/more (a link to a folder), pipe (a pipe or a device)"
    assert f"left out 3 entries of {folder} that cannot be read as files: {said}" in notes
    for path in (folder / "inner" / "a.txt", folder / "link.txt"):
        path.unlink()
    with pytest.raises(GlassError, match="contains no files to read: left out gone"):
        read(folder)


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are Unicode")
def test_names_of_files_that_are_not_utf8_can_be_written_in_notes(tmp_path: Path) -> None:
    folder = tmp_path / "names"
    folder.mkdir()
    for name in (b"caf\xe9.csv", b"b.csv"):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_text("text\n" + "one two three\n" * 20)
    (folder / os.fsdecode(b"caf\xe9.bin")).write_bytes(b"\0\1\2")
    settings = Config.from_dict({"tokenizer": {"kind": "bytes"}, "data": {"source": str(folder), "column": "text"}})
    notes = prepare(LM, settings.data, settings.tokenizer, tmp_path / "cache").notes
    assert any("caf\\udce9.csv: column 'text' is read" in note for note in notes)
    assert any("caf\\udce9.bin" in note for note in notes)


def test_a_readme_beside_label_folders_is_skipped_and_reported(tmp_path: Path) -> None:
    folder = tmp_path / "mails"
    names = ("ham/1.txt", "ham/2.txt", "spam/1.txt", "spam/2.txt")
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"the text of {name}", encoding="utf-8")
    (folder / "README.md").write_text("Where these come from.", encoding="utf-8")
    with open_source(RECORD_KINDS["classify"], DataConfig(source=str(folder)), tmp_path) as source:
        found = [(*piece.texts, *piece.labels) for piece in source.records(Tally())]
        assert found == [
            (f"the text of {name}", name[:-6]) for name in ("ham/1.txt", "ham/2.txt", "spam/1.txt", "spam/2.txt")
        ]
        assert "left out 1 of 5 files: README.md (not in a label folder)" in "\n".join(source.notes)
        digest = source.digest
    (folder / "README.md").unlink()
    with open_source(RECORD_KINDS["classify"], DataConfig(source=str(folder)), tmp_path) as source:
        assert source.digest == digest  # so that older runs find their text
