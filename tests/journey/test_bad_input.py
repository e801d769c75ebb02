"""A catalogue of user errors: each prints cause and remedy in two lines, exits with code 2, and changes no file."""

from __future__ import annotations

import gzip
import io
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from glassformer.app.cli.main import main
from glassformer.text.prepare import open_prepared
from glassformer.text.records import RECORD_KINDS
from tests.journey.commands import glass
from tests.journey.damage import (
    RUN,
    SetUp,
    both,
    change,
    edit,
    folder_at,
    half,
    in_checkpoint,
    new_weights,
    no_numbers,
    one_byte,
    one_missing,
    remove,
    train,
    tree,
    twice_as_wide,
    write,
)

ROWS = b'{"text": "how are you today"}\n' * 300
INFINITE = b'{"progress": {"plateau": {}, "evaluations": [[Infinity, 1.0]]}, "optimizer": {}}'
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(99)
WEIGHTS = "model.safetensors"
BOOK = str(RUN)


@dataclass(frozen=True)
class Mistake:
    """One entry of the catalogue.

    Attributes:
        name: description of the error.
        arguments: arguments of `glass`.
        cause, remedy: words that the two lines must contain, separated by " & ".
        set_up: function to call first, with a folder that contains proverbs.txt and the run runs/book.
        text: standard input.
        made: what the command may create: "" nothing, "tokens" an encoded text, "run" an encoded text and a run.
    """

    name: str
    arguments: list[str]
    cause: str
    remedy: str
    set_up: SetUp = lambda folder: None
    text: bytes | None = None
    made: str = ""


def generate(*more: str) -> list[str]:
    return ["generate", BOOK, *more]


def resume(*more: str) -> list[str]:
    return ["train", "--resume", "--out", BOOK, *more]


M = Mistake
THE_TEXT = [
    M("missing file", train("proverb.txt"), "proverb.txt does not exist", "Did you mean proverbs.txt?"),
    M("missing folder", train("no/where.txt"), "where.txt does not exist", "no folder no"),
    M("misspelt corpus", train("storys"), "storys does not exist", "Did you mean stories?"),
    M("empty file", train("a.txt"), "a.txt contains no text & 0 bytes", "some text", write("a.txt", b"")),
    M("blank file", train("a.txt"), "a.txt contains no text & empty", "some text", write("a.txt", b" \n\n \n")),
    M("binary file", train("a.txt"), "binary & offset 255", "UTF-8", write("a.txt", bytes(range(1, 256)) + bytes(9))),
    M("picture", train("a.png"), "a.png & image/png", ".txt", write("a.png", PNG)),
    M(
        "wrong encoding declared",
        [*train("a.txt"), "--set", "data.encoding=utf-8"],
        "not UTF-8 & 0xE9 at offset 3",
        "data.encoding",
        write("a.txt", b"caf\xe9 and tea"),
    ),
    M(
        "undecodable bytes",
        train("a.txt"),
        "a.txt is not valid UTF-8: byte 0xFF at offset 6",
        "save the file as UTF-8",
        write("a.txt", "কখ".encode() + b"\xff\xfe and more"),
    ),
    M(
        "half a UTF-16 character",
        train("a.txt"),
        "not UTF-16 LE & offset 12",
        "UTF-8",
        write("a.txt", "\ufeffhello!".encode("utf-16-le")[:-1]),
    ),
    M("UTF-32", train("a.txt"), "UTF-32", "Save it as UTF-8", write("a.txt", "hello".encode("utf-32"))),
    M(
        "truncated gzip",
        train("a.txt.gz"),
        "a.txt.gz is a damaged gzip",
        "again",
        write("a.txt.gz", gzip.compress(b"how are you today " * 500)[:-12]),
    ),
    M("no gzip", train("a.txt.gz"), "a.txt.gz is not a gzip file", "rename", write("a.txt.gz", b"how are you today")),
    M(
        "CSV without that column",
        train("a.csv", "--data.column", "txt"),
        "no column 'txt' & id, text",
        "Did you mean text?",
        write("a.csv", b"id,text\n1,hello there my friend\n2,a good day to you\n"),
    ),
    M(
        "CSV with two texts",
        train("a.csv"),
        "several columns & title, text",
        "data.column",
        write("a.csv", b"title,text\nhow are you today,and what about me\na good day to you,the same to you\n"),
    ),
    M("column of plain text", train("proverbs.txt", "--data.column", "text"), "'text' & plain text", "data.column out"),
    M(
        "JSONL with a broken line",
        train("a.jsonl"),
        "line 301 of a.jsonl is not JSON & character 10",
        "that line",
        write("a.jsonl", ROWS + b'{"text":\n'),
    ),
    M(
        "JSONL without that field",
        train("a.jsonl", "--data.column", "body"),
        "no column 'body' & text",
        "text",
        write("a.jsonl", ROWS),
    ),
    M(
        "JSONL of numbers",
        train("a.jsonl"),
        "line 1 of a.jsonl contains a value of type int",
        '{"text": "..."}',
        write("a.jsonl", "7"),
    ),
    M("empty folder", train("texts"), "texts contains no files", ".txt", folder_at("texts")),
    M(
        "folder without text",
        train("texts"),
        "texts contains no text & a.png",
        "some text",
        write("texts/a.png", b"\x89PNG" + bytes(99)),
    ),
    M(
        "text shorter than the context",
        train("a.txt"),
        "13 tokens & needs 17",
        "longer text & model.context=3",
        write("a.txt", "hello you 1234"),
        made="tokens",
    ),
    M("text too short to split", train("a.txt"), "the text is too short to split", "longer text", write("a.txt", "h")),
    M("all documents left out", change("data.min_words", 999), "fewer than 999 words", "data.min_words"),
    M("standard input is empty", train("-"), "standard input contains no text", "some text", text=b""),
    M("look at a missing file", ["data", "look", "proverb.txt"], "proverb.txt does not exist", "proverbs.txt"),
    M("look at nothing", ["data", "look"], "data look needs a name", "glass data look"),
    M("name that is not Unicode", train("\udc80.txt"), "not valid Unicode", "rename"),
]
THE_SETTINGS = [
    M("heads do not divide the width", change("model.heads", 5), "heads = 5 does not divide width = 12", "heads to 4"),
    M("unknown section", change("modle.heads", 2), "unknown section 'modle'", "Did you mean model?"),
    M("unknown setting", change("model.haeds", 2), "model.haeds", "Did you mean model.heads?"),
    M("setting without section", change("heads", 2), "'heads' names no section", "model.heads"),
    M("unknown option", train("proverbs.txt", "--step", "3"), "--step", "Did you mean --steps?"),
    M("option of another program", train("proverbs.txt", "--time", "3"), "--time", "Did you mean --minutes?"),
    M("unknown option before a missing one", ["export", "book", "--output", "x"], "--output", "Did you mean --out?"),
    M("unknown format", ["export", "book", "--to", "hff", "--out", "x"], "--to hff", "Did you mean hf?"),
    M("words without quotes", ["generate", "book", "It", "was"], "argument 'was'", "in quotes"),
    M("a run to import", ["import", BOOK, "--out", "x"], "is already a run", "glass export"),
    M("not an HTML file", ["share", "book", "--out", "page.txt"], "--out page.txt", "ends in .html"),
    M("unknown command", ["trian", "proverbs.txt"], "'trian'", "Did you mean train?"),
    M("unknown recipe", train("proverbs.txt", "--recipe", "tinny"), "'tinny'", "Did you mean tiny?"),
    M("unknown recipe to count", ["count", "tinny"], "tinny", "Did you mean tiny?"),
    M("unknown run to count", ["count", "runs/bok"], "runs/bok", f"Did you mean {BOOK}?"),
    M("unknown corpus", ["data", "show", "storys"], "'storys'", "Did you mean stories?"),
    M("no documents to show", ["data", "show", "stories", "--size", "0"], "--size 0", "at least 1"),
    M(
        "size of a file",
        ["data", "look", "proverbs.txt", "--size", "5"],
        "--size 5 & generated corpora",
        "Remove --size",
    ),
    M("unknown choice", change("model.norm", "layrnorm"), "model.norm = 'layrnorm'", "Did you mean layernorm?"),
    M("--set without =", train("proverbs.txt", "--set", "model.heads"), "model.heads has no =", "SECTION.FIELD=VALUE"),
    M("word for a number", change("train.batch", "many"), "train.batch = 'many'", "a whole number"),
    M("word for yes or no", change("model.tied", "perhaps"), "model.tied = 'perhaps'", "true or false"),
    M("no steps", train("proverbs.txt", "--steps", "0"), "train.steps = 0", "1 or more"),
    M("no minutes", train("proverbs.txt", "--minutes", "0"), "train.minutes = 0", "above 0"),
    M("seed beyond 64 bits", train("proverbs.txt", "--seed", str(2**70)), "train.seed", "below 18446744073709551616"),
    M(
        "nothing ends the run",
        train("proverbs.txt", "--steps", "unset", "--minutes", "unset"),
        "the run has no limit",
        "minutes",
    ),
    M(
        "config file is not TOML",
        train("proverbs.txt", "--config", "c.toml"),
        "c.toml is not valid TOML & line 1",
        "that line",
        write("c.toml", "[model\nheads = 2"),
    ),
    M(
        "config file is not UTF-8",
        train("proverbs.txt", "--config", "c.toml"),
        "c.toml is not UTF-8 at byte 0",
        "UTF-8",
        write("c.toml", b"\xff"),
    ),
    M(
        "config file is missing",
        train("proverbs.txt", "--config", "conf.toml"),
        "conf.toml does not exist",
        "Did you mean cnf.toml?",
        write("cnf.toml", "[model]"),
    ),
    M("config file is a folder", train("proverbs.txt", "--config", "runs"), "runs cannot be read", "TOML file"),
    M(
        "config file with an unknown key",
        train("proverbs.txt", "--config", "c.toml"),
        "model.haeds & in c.toml",
        "heads",
        write("c.toml", "[model]\nhaeds = 2"),
    ),
    M(
        "config file without sections",
        train("proverbs.txt", "--config", "c.toml"),
        "'heads' in c.toml",
        "[model]",
        write("c.toml", "heads = 2"),
    ),
    M("encoder as a language model", change("model.family", "encoder"), "encoder & train.task = lm", "decoder"),
    M(
        "vocab_size is not the tokenizer's",
        change("model.vocab_size", 99),
        "99 & 37 tokens",
        "vocab_size = 37",
        made="tokens",
    ),
    M(
        "vocabulary too small",
        [*change("tokenizer.kind", "bpe"), "--set", "tokenizer.vocab_size=9"],
        "vocab_size = 9 & bpe",
        "257 or more",
    ),
    M("device that is not here", train("proverbs.txt", "--device", "cuda:77"), "no device cuda:77", "cpu"),
    M("unknown device", train("proverbs.txt", "--device", "gpu"), "'gpu'", "auto, cpu, cuda"),
    M("unknown device to generate", generate("the", "--device", "gpu"), "'gpu'", "auto, cpu, cuda"),
    M("empty stop text in the settings", change("sample.stop", '[""]'), "stop string is empty", "Leave it out"),
    M("prompt in the settings is not Unicode", change("sample.prompt", "\udc80"), "not valid Unicode", "Remove"),
    M(
        "more memory than there is",
        [*change("model.hidden", 10**12), "--set", "model.width=1000"],
        "not enough memory",
        "train.micro_batch & model.context",
        made="tokens",
    ),
    # The step at which numbers overflow differs between processors, so it is not named here.
    M(
        "learning rate that explodes",
        [*change("train.learning_rate", 1e6), "--set", "train.warmup=0", "--steps", "9"],
        "was not taken & first non-finite tensor",
        "intact & train.learning_rate",
        made="run",
    ),
]
GENERATING = [
    M("negative temperature", generate("the", "--temperature", "-1"), "sample.temperature = -1", "0 or more"),
    M("top_p above 1", generate("the", "--top-p", "1.5"), "sample.top_p = 1.5", "1 or less"),
    M("top_k of 0", generate("the", "--top-k", "0"), "sample.top_k = 0", "1 or more"),
    M("no samples", generate("the", "--samples", "0"), "--samples 0", "at least 1"),
    M("no candidates", generate("the", "--top", "0"), "--top 0", "at least 1"),
    M("samples in words", generate("the", "--samples", "two"), "--samples & 'two'", "--help"),
    M("empty stop text", generate("the", "--stop", ""), "stop string is empty", "Leave it out"),
    M("stop list never closed", generate("the", "--stop", '["a"'), "sample.stop", "a list"),
    M(
        "candidates and samples",
        generate("the", "--top", "3", "--samples", "4"),
        "--samples & --top",
        "--samples or --top",
    ),
    M("candidates and tokens", generate("the", "--top", "3", "--tokens", "5"), "--tokens", "--tokens or --top"),
    M("candidates of a file", generate("--top", "3", "--input", "proverbs.txt"), "--top", "Remove --input or --top"),
    M("prompts file missing", generate("--input", "proverb.txt"), "proverb.txt does not exist", "proverbs.txt"),
    M("prompts file empty", generate("--input", "p.txt"), "p.txt is empty", "prompt per line", write("p.txt", b"")),
    M(
        "prompts file not UTF-8",
        generate("--input", "p.txt"),
        "p.txt is not valid UTF-8: byte 0xFF at offset 3",
        "UTF-8",
        write("p.txt", b"a\nb\xff"),
    ),
    M("prompt from a pipe is not UTF-8", generate("-"), "input is not UTF-8 at byte 1", "UTF-8", text=b"a\xff"),
    M("lone surrogate in a prompt", generate("the \udc80"), "lone surrogate, U+DC80, at character 4", "character"),
    M("examples of a running text", ["evaluate", BOOK, "--examples", "5"], "--examples 5 is for", "Leave it out"),
    M("evaluate a missing text", ["evaluate", BOOK, "proverb.txt"], "proverb.txt does not exist", "proverbs.txt"),
]
THE_RUN = [
    M("no such run", ["generate", "runs/bok", "the"], "no run at", f"Did you mean {BOOK}?"),
    M("folder that is no run", ["generate", "runs", "the"], "runs is not a run", "glass train"),
    M("run that exists", train("proverbs.txt", out=BOOK), "already contains a run", "--resume --out"),
    M("--out is a file", train("proverbs.txt", out="proverbs.txt"), "proverbs.txt is a file", "another --out"),
    M(
        "--out holds other things",
        train("proverbs.txt", out="mine"),
        "mine is not empty & manifest.json",
        "another --out",
        write("mine/manifest.json", "{}"),
    ),
    M("nothing to resume", ["train", "--resume"], "no run to resume", "--resume --out", remove("runs")),
    M("resume what is not there", ["train", "--resume", "--out", "runs/bok"], "no run at", BOOK),
    M("resume with a recipe", resume("--recipe", "tiny"), "--resume was given with --recipe tiny", "Remove --recipe"),
    M(
        "resume with another text",
        [*resume("--steps", "4"), "other.txt"],
        "other.txt is not the text & hash differs",
        "Restore",
        write("other.txt", "something else " * 99),
    ),
    M(
        "resume with a missing text",
        [*resume("--steps", "4"), "proverb.txt"],
        "proverb.txt does not exist",
        "Did you mean proverbs.txt?",
    ),
    M(
        "resume with standard input",
        resume("-"),
        "standard input cannot be compared",
        "Save the input to a file",
        text=b"a",
    ),
    M("resume as another model", resume("--set", "model.layers=2"), "model.layers cannot change", "start a new run"),
    M(
        "truncated checkpoint",
        generate("the"),
        f"{WEIGHTS} is truncated",
        "a copy of the run",
        in_checkpoint(WEIGHTS, half),
    ),
    M(
        "altered checkpoint",
        generate("the"),
        f"{WEIGHTS} was altered",
        "a copy of the run",
        in_checkpoint(WEIGHTS, one_byte),
    ),
    M(
        "resume an altered checkpoint",
        resume("--steps", "4"),
        "no complete checkpoint",
        "another --out",
        in_checkpoint("optimizer.safetensors", one_byte),
    ),
    M(
        "checkpoint with a foreign manifest",
        generate("the"),
        "manifest.json is damaged",
        "a copy of the run",
        in_checkpoint("manifest.json", lambda _: b'{"files": [1]}'),
    ),
    M(
        "weights of another model",
        generate("the"),
        "the settings have width 12 & has 24",
        "different models",
        new_weights(twice_as_wide),
    ),
    M(
        "weights with a tensor missing",
        resume("--steps", "4"),
        "has no tensor",
        "different models",
        new_weights(one_missing),
    ),
    M("weights that are not numbers", generate("the"), "not finite", "earlier checkpoint", new_weights(no_numbers)),
    M(
        "weights that are no safetensors",
        generate("the"),
        "cannot be read",
        "another checkpoint",
        in_checkpoint(WEIGHTS, lambda _: b"pickle", sealed=True),
    ),
    M(
        "state of another program",
        resume("--steps", "4"),
        "no complete checkpoint",
        "another --out",
        in_checkpoint("state.json", lambda _: b"{}", sealed=True),
    ),
    M("best names nothing", generate("the"), "best is damaged", "--resume", write(RUN / "best", b"\xff")),
    M(
        "best leads out of checkpoints",
        generate("the"),
        "best is damaged & names no checkpoint",
        "--resume",
        write(RUN / "best", "../checkpoints/step-000003\n"),
    ),
    M("best is gone", generate("the"), "no best checkpoint", "--resume", remove(RUN / "best")),
    M(
        "foreign tokenizer",
        generate("the"),
        "tokenizer.json was altered",
        "Copy it",
        write(RUN / "tokenizer.json", '{"model": {"type": "BPE"}}'),
    ),
    M(
        "altered tokenizer",
        generate("the"),
        "tokenizer.json was altered",
        "Copy it",
        edit(RUN / "tokenizer.json", '"a"', '"A"'),
    ),
    M(
        "truncated tokenizer",
        generate("the"),
        "tokenizer.json was altered",
        "Copy it",
        write(RUN / "tokenizer.json", '{"model":'),
    ),
    M(
        "tokenizer is gone",
        generate("the"),
        "tokenizer.json is missing",
        "Copy it",
        remove(RUN / "tokenizer.json"),
    ),
    M(
        "config.toml with an unknown key",
        generate("the"),
        "config.toml was edited",
        "Undo the edit",
        edit(RUN / "config.toml", "layers", "leyers"),
    ),
    M(
        "config.toml of another vocabulary",
        generate("the"),
        "config.toml was edited & model.vocab_size: unset -> 99",
        "train a new run",
        edit(RUN / "config.toml", '\nvocab_size = "unset"', "\nvocab_size = 99"),
    ),
    M(
        "manifest.json is gone",
        ["evaluate", BOOK],
        "manifest.json is missing",
        "Copy it",
        remove(RUN / "manifest.json"),
    ),
    M(
        "manifest.json is damaged",
        resume("--steps", "4"),
        "manifest.json does not record its own SHA-256",
        "Copy it",
        write(RUN / "manifest.json", "{}"),
    ),
    M(
        "manifest.json is nested too deeply",
        ["evaluate", BOOK],
        "manifest.json is damaged",
        "Copy it",
        write(RUN / "manifest.json", '{"data": ' + "[" * 100_000),
    ),
    M(
        "checkpoint of infinite size",
        generate("the"),
        "manifest.json is damaged",
        "a copy of the run",
        in_checkpoint("manifest.json", lambda _: b'{"files": {"a": {"bytes": Infinity, "sha256": ""}}}'),
    ),
    M(
        "state at an infinite step",
        resume("--steps", "4"),
        "no complete checkpoint",
        "another --out",
        in_checkpoint("state.json", lambda _: INFINITE, sealed=True),
    ),
    M(
        "config.toml is nested too deeply",
        generate("the"),
        "config.toml was edited",
        "Undo the edit",
        write(RUN / "config.toml", "a = " + "[" * 100_000),
    ),
    M(
        "config.toml with an endless number",
        generate("the"),
        "config.toml was edited",
        "Undo the edit",
        write(RUN / "config.toml", "a = " + "1" * 5000),
    ),
    M(
        "evaluate when the text is gone",
        ["evaluate", BOOK],
        "is gone & proverbs.txt",
        "Restore the text",
        remove("runs/.tokens", "proverbs.txt"),
    ),
    M(
        "evaluate when the text is another",
        ["evaluate", BOOK],
        "not the text & hash",
        "Restore",
        both(remove("runs/.tokens"), write("proverbs.txt", "something else " * 99)),
    ),
]
CATALOGUE = [*THE_TEXT, *THE_SETTINGS, *GENERATING, *THE_RUN]
IN_A_PROCESS = ["missing file", "standard input is empty", "unknown command", "altered checkpoint", "top_k of 0"]


def check(mistake: Mistake, code: int, out: str, err: str) -> None:
    """Assert that the error ends in the expected two lines, and has no other lines unless work had begun."""
    lines = err.splitlines()
    assert code == 2, err
    assert out == ""
    assert "Traceback" not in err
    assert all(line.strip() for line in lines[-2:])
    for words in mistake.cause.split(" & "):
        assert words in lines[-2]
    for words in mistake.remedy.split(" & "):
        assert words in lines[-1]
    begun = mistake.made or any(line.startswith("counting documents") or "is gone: reading" in line for line in lines)
    assert len(lines) == 2 or begun, err


def check_nothing_lost(mistake: Mistake, folder: Path, before: dict[str, str]) -> None:
    """Assert that existing files are unchanged, and that new files are expected and complete."""
    after = tree(folder)
    assert {name: after.get(name) for name in before} == before
    new = {name for name in after if name not in before}
    assert not {name for name in new if ".partial" in name or ".building" in name or "incoming" in name}
    encoded = {name for name in new if ".tokens" in name.split("/")}
    if mistake.made == "run":
        new -= {name for name in new if name.split("/")[0] == "out"}
    if mistake.made:
        for path in {name for name in encoded if name.split("/")[-2:-1] == [".tokens"]}:
            open_prepared(RECORD_KINDS["lm"], folder / path).train.source.verify()
        new -= encoded
    assert not new


@pytest.mark.thorough
@pytest.mark.parametrize("mistake", CATALOGUE, ids=[mistake.name for mistake in CATALOGUE])
def test_errors_have_two_lines_and_nothing_is_lost(
    mistake: Mistake, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake.set_up(here)
    before = tree(here)
    if mistake.text is not None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(mistake.text)))
    code = main(mistake.arguments)
    check(mistake, code, *capsys.readouterr())
    check_nothing_lost(mistake, here, before)


@pytest.mark.parametrize("name", IN_A_PROCESS)
def test_the_same_errors_in_a_separate_process(name: str, here: Path) -> None:
    mistake = next(each for each in CATALOGUE if each.name == name)
    mistake.set_up(here)
    before = tree(here)
    ended = glass(*mistake.arguments, folder=here, text=(mistake.text or b"").decode())
    check(mistake, ended.returncode, ended.stdout, ended.stderr)
    check_nothing_lost(mistake, here, before)


def test_the_catalogue_is_long_and_its_names_are_unique() -> None:
    assert len({mistake.name for mistake in CATALOGUE}) == len(CATALOGUE) >= 40
