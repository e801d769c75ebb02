"""A text encoded in parts equals the text encoded whole, byte for byte, for any split and any order of tasks."""

from __future__ import annotations

import importlib.util
import io
import os
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassformer.base.config import DataConfig, TokenizerConfig
from glassformer.base.errors import GlassError
from glassformer.text import documents
from glassformer.text.encode_jobs import steps
from glassformer.text.encode_jobs.job import EncodingJob, EncodingStage, EncodingStep, plan_job
from glassformer.text.encode_jobs.local import encode_with_datatrove, run_stage
from glassformer.text.encoded import encode_here, open_encoded, settings_of_encoded
from glassformer.text.prepare import TokenizerOrigin
from glassformer.text.records import RECORD_KINDS
from glassformer.text.source import open_source

LM = RECORD_KINDS["lm"]
WORDS = ["the", "old", "cat", "সে", "ক্ষুদ্র", "নদী", "saw", "日本語", "a", "mat", "…", "x" * 11]
LINES = {"document": "line"}
CASES: dict[str, dict[str, Any]] = {
    "one document, cut for validation": {},
    "lines": LINES,
    "paragraphs, cleaned": {"document": "paragraph", "clean": True},
    "drawn at random": {**LINES, "split": "random", "seed": 3},
    "drawn, too little room": {**LINES, "split": "random", "validation_limit": 7},
    "by length": {**LINES, "min_words": 5, "max_words": 17},
    "exact, the last document held out": {**LINES, "duplicates": "exact", "validation_fraction": 0.001},
    "near, by length, cleaned": {**LINES, "duplicates": "near", "min_words": 4, "clean": True},
}
VOCABULARY = TokenizerOrigin(TokenizerConfig(kind="bpe", vocab_size=300))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with texts of many lines, some repeated, in three files of very different sizes."""
    draw = random.Random(5)
    lines = [" ".join(draw.choices(WORDS, k=draw.randint(2, 24))) + draw.choice(["", " ", "\t"]) for _ in range(240)]
    lines += [line.replace("cat", "Cat") for line in lines[20:60]]
    draw.shuffle(lines)
    texts = tmp_path / "texts"
    texts.mkdir()
    for name, (start, end) in {"a.txt": (0, 3), "b.txt": (3, 250), "c.txt": (250, 280)}.items():
        joined = "".join(line + ("\r\n" if n % 9 else "\n\n\n") for n, line in enumerate(lines[start:end]))
        (texts / name).write_text(joined, encoding="utf-8", newline="")
    return tmp_path


def run_all(job: EncodingJob, order: random.Random) -> None:
    """Run every stage with its tasks in random order; each task gets a copy of the job, as in another process."""
    job.begin()
    for stage in steps.stages(job):
        ranks = list(range(stage.tasks))
        order.shuffle(ranks)
        for rank in ranks:
            pickle.loads(pickle.dumps(stage.step))(None, rank, stage.tasks)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def silent(message: str) -> None:
    """Ignore all messages."""


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES)
def test_encoded_parts_equal_the_whole(case: str, folder: Path) -> None:
    data = DataConfig(source=str(folder / "texts"), **CASES[case])
    whole = encode_here(LM, data, VOCABULARY, folder / "whole", silent)
    assert len(whole.train.source) > 60
    for parts in (1, 5, 41):
        with open_source(LM, data, folder) as source:
            job = plan_job(source, VOCABULARY, folder / f"parts-{parts}", parts)
        assert (job.parts == 1) == (parts == 1)
        run_all(job, random.Random(parts))
        assert files(job.out) == files(folder / "whole")


def test_documents_longer_than_the_memory_limit_are_encoded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long documents are read in several pieces; here some lines and all files are long enough."""
    monkeypatch.setattr(documents, "MAX_PENDING_CHARACTERS", 90)
    for name, settings in {"lines": {**LINES, "duplicates": "near", "max_words": 22}, "files": {"clean": True}}.items():
        data = DataConfig(source=str(folder / "texts"), **settings)
        encode_here(LM, data, VOCABULARY, folder / name, silent)
        with open_source(LM, data, folder) as source:
            job = plan_job(source, VOCABULARY, folder / f"{name}-parts", 7)
        run_all(job, random.Random(1))
        assert files(job.out) == files(folder / name)


def test_a_corpus_is_encoded_with_an_existing_tokenizer(folder: Path) -> None:
    ready = TokenizerOrigin(TokenizerConfig(), file=folder / "first" / "tokenizer.json")
    encode_here(LM, DataConfig(source=str(folder / "texts")), VOCABULARY, folder / "first", silent)
    data = DataConfig(source="stories", size=23)
    found = encode_here(LM, data, ready, folder / "whole", silent)
    with open_source(LM, data, folder) as source:
        job = plan_job(source, ready, folder / "parts")
    run_all(job, random.Random(2))
    assert files(job.out) == files(folder / "whole")
    assert found.tokenizer.vocab_size == 300
    assert settings_of_encoded(str(job.out))["tokenizer"]["vocab_size"] == 300


def test_a_stopped_job_is_recognized_and_another_job_starts_anew(folder: Path) -> None:
    def job(**settings: Any) -> EncodingJob:
        data = DataConfig(source=str(folder / "texts"), **settings)
        with open_source(LM, data, folder) as source:
            return plan_job(source, VOCABULARY, folder / "out", 5)

    first = job(**LINES)
    assert not first.begin()
    steps.read(first, 0)
    assert job(**LINES).begin()
    assert first.part_file(0).exists()
    assert not job(document="line", clean=True).begin()
    assert not first.part_file(0).exists()
    (folder / "texts" / "c.txt").write_text("another text\n", encoding="utf-8")
    assert not job(document="line", clean=True).begin()


class Planted:
    """An object that creates a file when it is unpickled."""

    def __init__(self, made: Path) -> None:
        self.made = made

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.made,)


@pytest.mark.parametrize("stage", ["encode", "merge"])
@pytest.mark.parametrize("packed", [False, True], ids=["a pickle", "an archive with a pickle"])
def test_a_pickle_planted_in_the_work_folder_is_refused_and_not_run(folder: Path, stage: str, packed: bool) -> None:
    made = folder / "the planted code ran"
    planted = io.BytesIO(pickle.dumps(Planted(made)))
    pickle.loads(planted.getvalue())
    assert made.exists()  # the file would run code
    made.unlink()
    if packed:
        planted = io.BytesIO()
        names = ("facts", "marks", "repeated", "bucket_documents", "bucket_characters")
        np.savez(planted, **{name: np.array([Planted(made)], dtype=object) for name in names})  # type: ignore[arg-type]
    data = DataConfig(source=str(folder / "texts"), **LINES)
    with open_source(LM, data, folder) as source:
        job = plan_job(source, VOCABULARY, folder / "out", 2)
    job.begin()
    for done in steps.stages(job):
        if done.name == stage:
            for plan in (job.work_folder / "plans").iterdir():
                if plan != job.tokenizer_file:
                    plan.write_bytes(planted.getvalue())
            with pytest.raises(GlassError, match=r"the plan .* cannot be read.*\n.*Delete .*out\.encoding"):
                done.step(None, 0, done.tasks)
            assert not made.exists()
            return
        for rank in range(done.tasks):
            done.step(None, rank, done.tasks)


def die(job: EncodingJob, rank: int) -> None:
    """End the process as an out-of-memory kill does."""
    os._exit(9)


def fail(job: EncodingJob, rank: int) -> None:
    """Raise an error as a failing step does."""
    raise GlassError(f"the text of {job.out.name} is wrong", "Put it right.")


@pytest.mark.skipif(importlib.util.find_spec("datatrove") is None, reason="datatrove is not installed")
def test_errors_in_a_worker_process_are_reported(folder: Path) -> None:
    data = DataConfig(source=str(folder / "texts"))
    with open_source(LM, data, folder) as source:
        job = plan_job(source, VOCABULARY, folder / "out")
    job.begin()
    with pytest.raises(GlassError, match="the text of out is wrong"):
        run_stage(job, EncodingStage("fail", 3, EncodingStep("fail", job, fail)), workers=2)
    with pytest.raises(GlassError, match=r"the process of task 0 \(of 1, from 0\) ended"):
        run_stage(job, EncodingStage("die", 1, EncodingStep("die", job, die)), workers=2)


def changed(folder: Path) -> Iterator[tuple[DataConfig, TokenizerConfig, bool, str]]:
    data = DataConfig(source=str(folder), **LINES)
    tokenizer = VOCABULARY.config
    yield DataConfig(source=str(folder)), tokenizer, False, "data.document = file, but .* encoded with line"
    yield data, tokenizer.replace(kind="bytes"), False, "tokenizer.kind = bytes, but .* encoded with bpe"
    yield data, tokenizer, True, "no mask token"


def test_an_encoded_text_is_opened_only_with_its_settings(folder: Path) -> None:
    data = DataConfig(source=str(folder / "texts"), **LINES)
    made = encode_here(LM, data, VOCABULARY, folder / "out", silent)
    found = open_encoded(LM, data.replace(source=str(folder / "out")), VOCABULARY.config)
    assert found.train.source.tokens.tolist() == made.train.source.tokens.tolist()
    for other, tokenizer, mask, problem in changed(folder / "out"):
        with pytest.raises(GlassError, match=problem):
            open_encoded(RECORD_KINDS["masked" if mask else "lm"], other, tokenizer)
    with pytest.raises(GlassError, match="already exists and is not overwritten"):
        encode_here(LM, data, VOCABULARY, folder / "out", silent)
    with (
        pytest.raises(GlassError, match="an encoded text"),
        open_source(LM, DataConfig(source=str(folder / "out")), folder),
    ):
        pass


def test_an_encoded_text_with_altered_settings_is_refused(folder: Path) -> None:
    data = DataConfig(source=str(folder / "texts"), **LINES)
    path = encode_here(LM, data, VOCABULARY, folder / "out", silent).folder / "prepared.json"
    text = path.read_text(encoding="utf-8")
    assert '"normalization": "none"' in text
    path.write_text(text.replace('"normalization": "none"', '"normalization": "nfc"'), encoding="utf-8")
    with pytest.raises(GlassError, match=r"prepared\.json was altered"):
        settings_of_encoded(str(folder / "out"))


@pytest.mark.skipif(importlib.util.find_spec("datatrove") is None, reason="datatrove is not installed")
def test_leftovers_of_a_job_do_not_allow_replacing_a_finished_folder(folder: Path) -> None:
    encode_here(LM, DataConfig(source=str(folder / "texts"), **LINES), VOCABULARY, folder / "out", silent)
    before = (folder / "out" / "train.ds").read_bytes()
    other = DataConfig(source=str(folder / "texts" / "b.txt"), **LINES)
    third = other.replace(source=str(folder / "texts" / "c.txt"))
    with open_source(LM, third, folder) as source:
        plan_job(source, VOCABULARY, folder / "out").begin()
    with pytest.raises(GlassError, match="already exists and is not overwritten"):
        encode_with_datatrove(LM, other, VOCABULARY, folder / "out", silent, workers=1)
    assert (folder / "out" / "train.ds").read_bytes() == before


def test_nothing_remains_of_a_text_that_cannot_be_encoded(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    with pytest.raises(GlassError, match="contains no text"):
        encode_here(
            LM, DataConfig(source=str(folder / "texts"), min_words=9999), VOCABULARY, folder / "new" / "out", silent
        )
    assert sorted(folder.rglob("*")) == before
