"""Pairs and labelled texts in common file formats: each is read exactly, and its columns are found."""

from __future__ import annotations

import gzip
import io
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassformer.base.config import DataConfig, TokenizerConfig
from tests.unit.example_files import (
    CHARACTERS,
    LABELLED,
    PAIRS,
    SPAM,
    Write,
    encoded,
    jsonl,
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


# Formats of pairs


def test_stores_contain_the_pairs_as_tokens_and_as_text(write: Write, tmp_path: Path) -> None:
    found = made(
        tmp_path,
        "translate",
        TokenizerConfig(kind="bpe", vocab_size=300),
        source=write("a.en", lines(s for s, _ in PAIRS)),
        target=write("a.fr", lines(t for _, t in PAIRS)),
        split="end",
    )
    assert texts(found) == PAIRS
    assert (len(found.train), len(found.validation)) == (36, 4)
    for store in (found.train, found.validation):
        assert store.labels is None
        for index, (source, target) in enumerate(store.texts()):
            assert found.source_tokenizer.decode(store.source.document(index)) == source
            assert found.tokenizer.decode(store.target.document(index)) == target
            assert store.source.document(index).tolist() == found.source_tokenizer.encode(source)
        assert store.source.lengths.tolist() == [len(store.source.document(i)) for i in range(len(store))]
        assert store.lengths()[:, 1].tolist() == [len(store.target.document(i)) for i in range(len(store))]
        assert store.source.lengths.dtype == np.int64
        assert store.target.bytes == sum(len(target.encode()) for _, target in store.texts())
        assert store.bytes == sum(len((source + target).encode()) for source, target in store.texts())
        assert isinstance(store.source.tokens, np.memmap)
        with pytest.raises(IndexError):
            store.source.document(len(store))
    assert found.labels == ()
    assert found.source_tokenizer is found.tokenizer
    assert found.train.unknown_fraction == 0


def test_every_format_gives_the_same_pairs(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    english = lines(s for s, _ in PAIRS)
    french = lines(t for _, t in PAIRS)
    table = tsv(PAIRS)
    three = [{"n": str(n), "source": s, "target": t} for n, (s, t) in enumerate(PAIRS)]
    write("folder/1.tsv", tsv(PAIRS[:15]))
    write("folder/2.tsv", tsv(PAIRS[15:]))
    forms: dict[str, dict[str, Any]] = {
        "two files": {"source": write("a.en", english), "target": write("a.fr", french)},
        "packed, other encodings and line ends": {
            "source": write("b.en.gz", gzip.compress(english.replace("\n", "\r\n").encode("utf-16"))),
            "target": write("b.fr", french.encode("cp1252")),
        },
        "no line end at the end": {"source": write("c.en", english[:-1]), "target": write("c.fr", french)},
        "tsv": {"source": write("d.tsv", table)},
        "tabs in a .txt": {"source": write("e.txt", table)},
        "csv": {"source": write("f.csv", "en,fr\n" + lines(f'"{s}","{t}"' for s, t in PAIRS))},
        "numbers": {"source": write("g.tsv", tsv(("x", t, s) for s, t in PAIRS)), "column": "3", "target_column": "2"},
        "two keys": {"source": write("h.jsonl", jsonl({"n": 1, "en": s, "fr": t} for s, t in PAIRS))},
        "names that say which": {"source": write("i.jsonl", jsonl({"tgt": t, "src": s} for s, t in PAIRS))},
        "keys asked for": {"source": write("j.jsonl", jsonl(three)), "column": "source", "target_column": "target"},
        "tables in a folder": {"source": str(tmp_path / "folder")},
        "standard input": {"source": "-"},
    }
    for name, form in forms.items():
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(table.encode())))
        found = made(tmp_path / name, "translate", split="end", **form)
        assert texts(found) == PAIRS, name
        assert not list((tmp_path / name / "cache").glob("incoming-*"))


def test_the_columns_are_reported(write: Write, tmp_path: Path) -> None:
    rows = lines(f"{t},{s}" for s, t in PAIRS)
    found = made(tmp_path, "summarize", source=write("t.csv", "Summary,Text\n" + rows))
    assert "t.csv: source: column Text, target: column Summary (row 1 contains the names Summary, Text)" in found.notes
    found = made(tmp_path, "translate", source=write("t.tsv", tsv(PAIRS)))
    assert "t.tsv: source: column 1, target: column 2" in found.notes


def test_a_first_row_whose_cells_repeat_is_not_a_header(write: Write, tmp_path: Path) -> None:
    rows = [("Go", "Va"), ("Go", "Allez"), ("Go", "Pars"), *PAIRS]
    assert sorted(texts(made(tmp_path, "translate", source=write("t.tsv", tsv(rows))))) == sorted(rows)


@pytest.mark.parametrize("first", [("no", "non"), ("name", "le nom"), ("question", "demande")])
def test_a_first_pair_with_one_word_that_is_a_name_is_learnt(
    first: tuple[str, str], write: Write, tmp_path: Path
) -> None:
    rows = [first, *PAIRS]
    assert sorted(texts(made(tmp_path, "translate", source=write("t.tsv", tsv(rows))))) == sorted(rows)


@pytest.mark.parametrize("names", ["id,dialog text,summary", "id,en,fr", "id,Dialogue,SUMMARY"])
def test_column_names_are_not_a_pair(names: str, write: Write, tmp_path: Path) -> None:
    source = write("t.csv", names + "\n" + lines(f"{n},{s},{t}" for n, (s, t) in enumerate(PAIRS)))
    assert sorted(texts(made(tmp_path, "summarize", source=source))) == sorted(PAIRS)


def test_generated_corpora_have_pairs(tmp_path: Path) -> None:
    found = made(tmp_path, "translate", CHARACTERS, source="reverse", size=60, seed=3)
    assert len(texts(found)) == 60
    assert all(target == source[::-1] for source, target in texts(found))
    assert "reverse: generated corpus, 60 examples, seed 3" in found.notes
    assert made(tmp_path, "translate", CHARACTERS, source="reverse", size=60, seed=4).folder != found.folder


def test_a_generated_corpus_is_validated_on_other_pairs(tmp_path: Path) -> None:
    found = made(tmp_path, "translate", CHARACTERS, source="reverse", validation="reverse", size=60, seed=3)
    other = made(tmp_path, "translate", CHARACTERS, source="reverse", size=60, seed=4, split="end")
    assert list(found.validation.texts()) == texts(other)
    assert "reverse: generated corpus, 60 examples, seed 3" in found.notes
    assert "reverse: generated corpus, 60 examples, seed 4" in found.notes
    assert "the seed of a generated validation split is data.seed + 1" in found.notes
    assert "60 of 60 validation pairs also occur" not in notes(found)  # short ones may be drawn again


# Formats of labelled texts


def test_labels_are_sorted_and_numbered(write: Write, tmp_path: Path) -> None:
    found = made(tmp_path, "classify", source=write("t.tsv", LABELLED))
    assert found.labels == ("ham", "spam")
    assert sorted(texts(found)) == sorted(SPAM)
    assert list(found.train.tokens) == ["text"]
    assert found.train.source is found.train.target
    for store in (found.train, found.validation):
        assert store.labels is not None
        assert [found.labels[number] for number in store.labels] == [label for _, label in store.texts()]
        with pytest.raises(KeyError):
            store.tokens["target"]
    assert "2 labels: ham (28), spam (12)" in found.notes
    assert "t.tsv: label: column 1, text: column 2" in notes(found)


FORMS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    # name: (file, content, settings, note on the columns)
    "no suffix, tabs": ("SMS", LABELLED, {}, "label: column 1, text: column 2"),
    "short first row": ("t.tsv", tsv([("ham", "Ok lar"), *((b, a) for a, b in SPAM)]), {}, "label: column 1"),
    "a first label that is a usual name": (
        "t.tsv",
        tsv([("comment", "Ok lar"), *((b.replace("ham", "comment"), a) for a, b in SPAM), *((b, a) for a, b in SPAM)]),
        {},
        "label: column 1, text: column 2",
    ),
    "header": ("t.csv", "text,label\n" + lines(map(",".join, SPAM)), {}, "label: column label, text: column text"),
    "unusual names": (
        "t.csv",
        "kommentar,klasse\n" + lines(map(",".join, SPAM)),
        {},
        "label: column klasse, text: column kommentar",
    ),
    "semicolons": ("t.csv", lines(f"{a};{b}" for a, b in SPAM), {}, "label: column 2, text: column 1"),
    "label by name": (
        "t.csv",
        "x,y,z\n" + lines(f"a,{a},{b}" for a, b in SPAM),
        {"label_column": "z"},
        "label: column z, text: column y",
    ),
    "one label by its name": (
        "t.csv",
        "lang,class,text\n" + lines(f"e{len(a) % 2},{b},{a}" for a, b in SPAM),
        {},
        "label: column class, text: column text",
    ),
    "a constant column": ("t.csv", lines(f"en,{b},{a}" for a, b in SPAM), {}, "label: column 2, text: column 3"),
    "an id": ("t.csv", lines(f"{n},{b},{a}" for n, (a, b) in enumerate(SPAM)), {}, "label: column 2, text: column 3"),
    "json": ("t.jsonl", jsonl({"text": a, "label": b} for a, b in SPAM), {}, "label: column label, text: column text"),
    "sorted": (
        "t.tsv",
        tsv((b, f"{a} {n}") for n in range(100) for a, b in SPAM[:1]) + LABELLED,
        {},
        "label: column 1, text: column 2",
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_label_and_text_columns_are_found(name: str, write: Write, tmp_path: Path) -> None:
    file, content, given, said = FORMS[name]
    found = made(tmp_path, "classify", source=write(file, content), **given)
    assert set(SPAM) <= set(texts(found))
    assert said in notes(found)


def test_a_header_above_short_cells_is_found(write: Write, tmp_path: Path) -> None:
    rows = [("ab"[n % 2], f"w{n}") for n in range(24)]
    found = made(tmp_path, "classify", source=write("t.csv", "label,text\n" + lines(map(",".join, rows))))
    assert sorted(texts(found)) == sorted((text, label) for label, text in rows)
    assert found.labels == ("a", "b")
    data = DataConfig(source=write("three.csv", "label,text\nb,w1\na,w2\nc,w3\n"))
    store, told = encoded("classify", data, (found.tokenizer, found.tokenizer), ("a", "b", "c"), tmp_path)
    assert list(store.texts()) == [("w1", "b"), ("w2", "a"), ("w3", "c")]
    assert "three.csv: label: column label, text: column text (row 1 contains the names label, text)" in told


def test_several_text_columns_are_joined_by_line_ends(write: Write, tmp_path: Path) -> None:
    rows = [(b, f"title of {n} words", a) for n, (a, b) in enumerate(SPAM)]
    rows[5] = ("ham", "", rows[5][2])
    source = write("t.tsv", tsv(rows))
    expected = {(f"{title}\n{body}" if title else body, label) for label, title, body in rows}
    assert set(texts(made(tmp_path, "classify", source=source))) == expected
    assert set(texts(made(tmp_path, "classify", source=source, column="2,3", label_column="1"))) == expected
    swapped = {(f"{body}\n{title}" if title else body, label) for label, title, body in rows}
    assert set(texts(made(tmp_path, "classify", source=source, column="3, 2"))) == swapped


def test_json_labels_become_text_as_json_writes_them(write: Write, tmp_path: Path) -> None:
    values: list[object] = [True, False, 1, 1.0, 1.5, "1", "yes"]
    rows = [{"text": f"text number {n} {i}", "label": value} for i in range(3) for n, value in enumerate(values)]
    found = made(tmp_path, "classify", source=write("t.jsonl", jsonl([*rows, {"text": "a b c", "label": None}])))
    assert found.labels == ("1", "1.0", "1.5", "false", "true", "yes")
    assert "left out 1 row without a label" in found.notes


def test_labels_that_look_like_numbers_stay_names(write: Write, tmp_path: Path) -> None:
    rows = [(label, f"text of {n} words") for n in range(4) for label in ("1", "01", "1.0")]
    found = made(tmp_path, "classify", source=write("t.tsv", tsv(rows)))
    assert found.labels == ("01", "1", "1.0")
    assert "the labels look like numbers" in notes(found)
    assert sorted(texts(found)) == sorted((text, label) for label, text in rows)


def test_folders_are_labels(write: Write, tmp_path: Path) -> None:
    for number, (text, label) in enumerate(SPAM):
        write(f"mails/{label}/{number:03}.txt", text + "\nsecond line")
    found = made(tmp_path, "classify", source=str(tmp_path / "mails"))
    assert sorted(texts(found)) == sorted((text + "\nsecond line", label) for text, label in SPAM)
    assert "label: the first subfolder in the path of a file" in notes(found)


def test_real_news_are_read(real_text: Path, tmp_path: Path) -> None:
    path = real_text / "agnews" / "ag_news_test.csv"
    found = made(tmp_path, "classify", source=str(path), validation_fraction=1000 / 7600)
    assert found.labels == ("1", "2", "3", "4")
    for store, each in ((found.train, 1650), (found.validation, 250)):
        assert store.labels is not None
        assert np.bincount(store.labels).tolist() == [each] * 4
    assert "label: column 1, text: columns 2, 3" in notes(found)
    first = next(found.train.texts())
    assert first[0].startswith("Fears for T N pension after talks\nUnions representing workers at Turner   Newall")


def test_real_translations_are_read(real_text: Path, tmp_path: Path) -> None:
    folder = real_text / "multi30k"
    names = {key: str(folder / f"{name}.gz") for key, name in (("source", "val.en"), ("target", "val.de"))}
    own = {
        "validation": str(folder / "test_2016_flickr.en.gz"),
        "validation_target": str(folder / "test_2016_flickr.de.gz"),
    }
    found = made(tmp_path, "translate", TokenizerConfig(kind="bpe", vocab_size=600), **names, **own)
    assert (len(found.train), len(found.validation)) == (1014, 1000)
    with gzip.open(folder / "test_2016_flickr.de.gz", "rt", encoding="utf-8") as file:
        assert [target for _, target in found.validation.texts()] == file.read().splitlines()


def test_equal_sources_of_real_pairs_are_in_one_split(real_text: Path, tmp_path: Path) -> None:
    path = real_text / "bangla" / "en-bn.tsv"
    found = made(tmp_path, "translate", source=str(path))
    train, validation = ({source for source, _ in side.texts()} for side in (found.train, found.validation))
    assert not train & validation
    assert (len(found.train), len(found.validation)) == (3940, 438)
    assert "825 sources have several targets" in found.notes
    assert Counter(texts(found)) == Counter(
        tuple(line.split("\t")) for line in path.read_text(encoding="utf-8").splitlines()
    )
