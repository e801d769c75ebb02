"""Folders of data sets: the tables are read, and splits are kept apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import glassformer as gf
from glassformer.base.config import DataConfig, Task, TokenizerConfig
from glassformer.base.errors import GlassError
from glassformer.text.evaluation_data import encode_evaluation_data
from glassformer.text.prepare import Prepared, prepare
from glassformer.text.records import RECORD_KINDS
from glassformer.text.source import open_source
from tests.unit.example_files import jsonl, lines

CARD = "---\nlicense: mit\n---\n# A card of the data set\n"
SPLITS = {"train": 30, "validation": 6, "test": 5}
TASKS: tuple[Task, ...] = ("lm", "masked", "classify", "translate", "summarize", "chat")
COLUMNS: dict[Task, dict[str, str]] = {
    "lm": {"column": "text"},
    "masked": {"column": "text"},
    "classify": {"column": "text", "label_column": "label"},
    "translate": {"column": "text", "target_column": "target"},
    "summarize": {"column": "text", "target_column": "target"},
    "chat": {"column": "text", "target_column": "target"},
}


def rows(split: str) -> list[dict[str, str]]:
    """Return the rows of a split; each text names the split."""
    return [
        {"label": "spam" if n % 2 else "ham", "text": f"the {split} text number {n}", "target": f"{split} answer {n}"}
        for n in range(SPLITS[split])
    ]


def write_rows(path: Path, found: list[dict[str, str]]) -> None:
    """Write rows in the format that the suffix names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix in (".jsonl", ".json"):
        path.write_text(jsonl(found), encoding="utf-8")
    elif path.suffix == ".csv":
        path.write_text(lines([",".join(found[0]), *(",".join(row.values()) for row in found)]), encoding="utf-8")
    else:
        pyarrow = pytest.importorskip("pyarrow")
        table = pyarrow.Table.from_pylist(found)
        if path.suffix == ".parquet":
            pytest.importorskip("pyarrow.parquet").write_table(table, path)
        else:
            with pyarrow.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)


def write_saved(folder: Path, split: str) -> None:
    """Write a split as `Dataset.save_to_disk` does."""
    write_rows(folder / "data-00000-of-00001.arrow", rows(split))
    facts = {"citation": "", "description": "a text of facts", "features": {}}
    (folder / "dataset_info.json").write_text(json.dumps(facts, indent=2), encoding="utf-8")
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_split": split}
    (folder / "state.json").write_text(json.dumps(state, indent=2), encoding="utf-8")


def hub(folder: Path, names: dict[str, str], card: str = "README.md") -> Path:
    """Write a folder with a card and a table for each split."""
    for split, name in names.items():
        write_rows(folder / name, rows(split))
    if card:
        (folder / card).write_text(CARD, encoding="utf-8")
    return folder


def saved_dictionary(folder: Path) -> Path:
    for split in SPLITS:
        write_saved(folder / split, split)
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": list(SPLITS)}), encoding="utf-8")
    return folder


LAYOUTS = {
    "saved dictionary": saved_dictionary,
    "parquet": lambda folder: hub(folder, {split: f"data/{split}-00000-of-00001.parquet" for split in SPLITS}),
    "csv": lambda folder: hub(folder, {split: f"{split}.csv" for split in SPLITS}),
    "jsonl in folders": lambda folder: hub(folder, {split: f"{split}/0001.jsonl" for split in SPLITS}),
    "json": lambda folder: hub(folder, {split: f"my_{split}_part.json" for split in SPLITS}),
    "short names": lambda folder: hub(
        folder, {"train": "en-training.csv", "validation": "en-dev.csv", "test": "en-eval.csv"}, "LICENSE"
    ),
    "no card": lambda folder: hub(folder, {split: f"{split}.jsonl" for split in SPLITS}, ""),
}


def prepared(task: Task, folder: Path, **data: Any) -> Prepared:
    settings = DataConfig(source=str(folder), **{"split": "random", **COLUMNS[task], **data})
    return prepare(RECORD_KINDS[task], settings, TokenizerConfig(kind="bytes"), folder.parent / ".tokens")


def texts(found: Prepared) -> tuple[list[str], list[str]]:
    """Return the first texts of the two splits."""
    if not found.kind.running_text:
        return [text for text, *_ in found.train.texts()], [text for text, *_ in found.validation.texts()]
    stores = [store.tokens["text"] for store in (found.train, found.validation)]
    documents = [
        [found.tokenizer.decode(store.tokens[start:stop]) for start, stop in zip([0, *ends[:-1]], ends, strict=True)]
        for store in stores
        for ends in [[int(end) for end in store.document_ends]]
    ]
    return documents[0], documents[1]


@pytest.mark.thorough
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("task", TASKS)
def test_splits_are_kept_apart(task: Task, layout: str, tmp_path: Path) -> None:
    found = prepared(task, LAYOUTS[layout](tmp_path / "set"))
    train, validation = texts(found)
    said = "\n".join(found.notes)
    assert "the split train is read" in said
    if RECORD_KINDS[task].running_text:
        assert len(train) + len(validation) == SPLITS["train"]
        assert all("the train text" in text for text in (*train, *validation))
        assert "left out the files of other splits: " in said
        assert "validation (" in said
    else:
        assert (len(train), len(validation)) == (SPLITS["train"], SPLITS["validation"])
        assert all("the train text" in text for text in train)
        assert all("the validation text" in text for text in validation)
    assert "test (" in said


@pytest.mark.parametrize("folders", [False, True])
@pytest.mark.parametrize("task", ["lm", "classify"])
def test_a_numbered_split_of_another_name_is_not_training_data(task: Task, folders: bool, tmp_path: Path) -> None:
    number = "00000-of-00001.jsonl"
    names = {split: f"{split}/data-{number}" if folders else f"{split}-{number}" for split in ("train", "unsupervised")}
    for name, split in ((names["train"], "train"), (names["unsupervised"], "test")):
        write_rows(tmp_path / "set" / name, rows(split))
    train, validation = texts(found := prepared(task, tmp_path / "set"))
    assert len(train) + len(validation) == SPLITS["train"]
    assert all("the train text" in text for text in (*train, *validation))
    assert "left out the files of other splits: others (1 file)" in found.notes


@pytest.mark.parametrize(("other", "holdout"), [("a.csv", "test.csv"), ("x.csv", "holdout.csv")])
def test_a_test_table_beside_an_unnamed_one_is_said(other: str, holdout: str, tmp_path: Path) -> None:
    for name, split in ((other, "train"), (holdout, "test")):
        write_rows(tmp_path / "set" / name, rows(split))
    found = prepared("classify", tmp_path / "set")
    assert f"{holdout} is read as training data too: no file is named as the training split" in found.notes
    (tmp_path / "set" / other).rename(tmp_path / "set" / "train.csv")
    assert len(texts(prepared("classify", tmp_path / "set"))[0]) == SPLITS["train"]


@pytest.mark.parametrize("task", ["lm", "classify"])
def test_an_evaluation_reads_the_test_split(task: Task, tmp_path: Path) -> None:
    folder = saved_dictionary(tmp_path / "set")
    tokenizer = prepared(task, folder).tokenizer
    kind = RECORD_KINDS[task]
    data = DataConfig(source=str(folder), **COLUMNS[task])
    (tmp_path / "whole").mkdir()
    tokenizers = dict.fromkeys(kind.roles, tokenizer)
    found = encode_evaluation_data(kind, data, tokenizers, tmp_path / "whole", ("ham", "spam"))
    assert found.store.source.documents == SPLITS["test"]
    assert "the split test is read" in found.notes


@pytest.mark.parametrize("task", TASKS)
def test_a_folder_of_one_split_is_read_without_its_metadata(task: Task, tmp_path: Path) -> None:
    write_saved(tmp_path / "saved", "train")
    write_rows(tmp_path / "saved" / "cache-0123456789abcdef.arrow", [{"indices": "0"}])
    found = prepared(task, tmp_path / "saved")
    assert sum(map(len, texts(found))) == SPLITS["train"]
    assert "left out 3 of 4 files" in "\n".join(found.notes)


@pytest.mark.parametrize("other", ["README.md", "LICENSE", "dataset.yaml", "plot.png", "facts.json", "CITATION.cff"])
def test_a_table_beside_its_description_is_read(other: str, tmp_path: Path) -> None:
    write_rows(tmp_path / "set" / "table.csv", rows("train"))
    (tmp_path / "set" / other).write_text(CARD, encoding="utf-8")
    data = DataConfig(source=str(tmp_path / "set"))
    for task in ("classify", "summarize"):
        with open_source(RECORD_KINDS[task], data.model_copy(update=COLUMNS[task]), tmp_path) as source:
            assert [file.name for file in source.files] == ["table.csv"]
    write_rows(tmp_path / "set" / "table.csv", [{"id": str(n), "text": f"the text number {n}"} for n in range(9)])
    with open_source(RECORD_KINDS["lm"], data, tmp_path) as source:  # no column is named
        assert [file.name for file in source.files] == ["table.csv"]
        assert f"left out 1 of 2 files: {other} (not a table)" in source.notes


@pytest.mark.parametrize("name", ["train.json", "data.json"])
@pytest.mark.parametrize("task", ["lm", "masked", "classify"])
def test_json_rows_beside_a_card_are_read_as_rows(task: Task, name: str, tmp_path: Path) -> None:
    folder = hub(tmp_path / "set", {"train": name})
    write_rows(folder / name, [{"label": row["label"], "text": row["text"]} for row in rows("train")])
    found = prepared(task, folder, **dict.fromkeys(COLUMNS[task]))
    train, validation = texts(found)
    assert sorted([*train, *validation]) == sorted(row["text"] for row in rows("train"))
    assert "left out 1 of 2 files: README.md (not a table)" in found.notes


def test_json_beside_a_card_that_is_not_rows_is_refused(tmp_path: Path) -> None:
    folder = hub(tmp_path / "set", {"train": "data.json"})
    (folder / "data.json").write_text(json.dumps(rows("train"), indent=1), encoding="utf-8")
    with pytest.raises(GlassError, match=r"line 1 of data\.json is not JSON") as caught:
        prepared("lm", folder)
    assert "JSONL" in caught.value.remedy


def test_json_beside_texts_is_a_text(tmp_path: Path) -> None:
    folder = hub(tmp_path / "set", {"train": "data.json"})
    (folder / "program.py").write_text("print()", encoding="utf-8")
    with open_source(RECORD_KINDS["lm"], DataConfig(source=str(folder)), tmp_path) as source:
        assert [file.name for file in source.files] == ["README.md", "data.json", "program.py"]


def test_a_text_beside_a_table_is_still_the_text(tmp_path: Path) -> None:
    write_rows(tmp_path / "set" / "table.csv", rows("train"))
    (tmp_path / "set" / "book.txt").write_text("the text of a book", encoding="utf-8")
    with open_source(RECORD_KINDS["lm"], DataConfig(source=str(tmp_path / "set")), tmp_path) as source:
        assert [file.name for file in source.files] == ["book.txt"]
        assert "left out 1 of 2 files: table.csv (a table; set data.column to read tables)" in source.notes


def test_splits_of_texts_are_kept_apart(tmp_path: Path) -> None:
    for split in SPLITS:
        (tmp_path / "texts").mkdir(exist_ok=True)
        (tmp_path / "texts" / f"wiki.{split}.txt").write_text(f"{split} text of many words\n" * 40, encoding="utf-8")
        for label in ("pos", "neg"):
            for n in range(6):
                path = tmp_path / "reviews" / split / label / f"{n}.txt"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"a {split} review {n} that is {label}", encoding="utf-8")
    train, validation = texts(prepared("lm", tmp_path / "texts", column=None, split="end"))
    assert set(" ".join([*train, *validation]).split()) == {"train", "text", "of", "many", "words"}
    found = prepared("classify", tmp_path / "reviews", column=None, label_column=None)
    train, validation = texts(found)
    assert found.labels == ("neg", "pos")
    assert (len(train), len(validation)) == (12, 12)
    assert all("train review" in text for text in train)
    assert all("validation review" in text for text in validation)


def test_names_that_only_contain_a_split_are_not_splits(tmp_path: Path) -> None:
    folder = tmp_path / "stories"
    folder.mkdir()
    for name in ("trained.txt", "contest.txt", "devil.txt", "valley.txt"):
        (folder / name).write_text(f"the story of {name}\n", encoding="utf-8")
    with open_source(RECORD_KINDS["lm"], DataConfig(source=str(folder)), tmp_path) as source:
        assert len(source.files) == 4
        assert "split" not in "\n".join(source.notes)


@pytest.mark.thorough
def test_fit_says_what_it_leaves_out(tmp_path: Path) -> None:
    folder = LAYOUTS["csv"](tmp_path / "set")
    settings = {"model.layers": 1, "model.width": 8, "model.heads": 2, "model.context": 32, "data.column": "text"}
    with pytest.warns(UserWarning, match="left out the files of other splits: others"):
        gf.fit(folder, steps=1, out=tmp_path / "run", settings=settings)


def test_fit_names_the_way_for_objects_of_the_library_datasets() -> None:
    class Dataset:
        def save_to_disk(self, path: str) -> None: ...

    for data in (Dataset(), type("DatasetDict", (dict,), {"save_to_disk": Dataset.save_to_disk})()):
        with pytest.raises(GlassError) as caught:
            gf.fit(data)
        assert "save_to_disk" in caught.value.remedy
