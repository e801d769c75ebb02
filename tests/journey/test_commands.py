"""Use the command line: train on every kind of source, resume, generate, evaluate, count, look at data."""

from __future__ import annotations

import gzip
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from glassformer.app.cli.main import COMMANDS, GROUPS, overview
from glassformer.base.config import Config
from glassformer.base.recipes import recipe_names
from glassformer.corpora import CORPORA, find_text_corpus
from glassformer.runs.folder import Run
from glassformer.training.verdicts import verdict
from tests.journey.command_output import REBUILT, facts, metrics, one_object, shown
from tests.journey.commands import glass, here
from tests.property.trainers import change_manifest, text_file

SMALL = [
    "--model.layers",
    "1",
    "--model.width",
    "12",
    "--model.heads",
    "2",
    "--train.threads",
    "1",
    "--set",
    "sample.tokens=12",
]
TINY = [
    *SMALL,
    "--steps",
    "40",
    "--model.context",
    "13",
    "--set",
    "tokenizer.kind=characters",
    "--set",
    "train.batch=5",
    "--set",
    "train.warmup=4",
    "--set",
    "train.evaluate_every=10",
    "--set",
    "train.log_every=5",
    "--set",
    "train.learning_rate=0.02",
]
TEXTS = [name for name, corpus in CORPORA.items() if corpus.tasks[0] == "lm"]  # what `glass train NAME` reads as text


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a text and a trained run `runs/book`; `train.json` and `train.log` have its output."""
    folder = tmp_path_factory.mktemp("home")
    text_file(folder)
    done = glass("train", "proverbs.txt", "--out", "runs/book", "--json", *TINY, folder=folder)
    assert done.returncode == 0, done.stderr
    (folder / "train.json").write_text(done.stdout, encoding="utf-8")
    (folder / "train.log").write_text(done.stderr, encoding="utf-8")
    return folder


@pytest.fixture
def copy(home: Path, tmp_path: Path) -> Path:
    """Return a copy of `home` that a test may change; its run still uses the token cache of `home`."""
    shutil.copytree(home, tmp_path / "copy")
    return tmp_path / "copy"


# ---- train


def test_train_prints_the_documented_json_fields(home: Path) -> None:
    said = one_object((home / "train.json").read_text(encoding="utf-8"))
    assert {"run", "step", "loss", "perplexity", "bits_per_byte", "train_seconds"} <= said.keys()
    assert Path(said["run"]) == Path("runs/book")
    assert said["perplexity"] == pytest.approx(math.exp(said["loss"]))
    assert said["bits_per_byte"] == pytest.approx(said["loss"] / math.log(2), rel=0.01)  # one byte, one character
    assert 0 < said["loss_ci95"] < 1
    assert 0 < said["train_seconds"] < 60
    assert said["steps_done"] == 40
    assert said["stopped_because"] == "all 40 steps are done"


def test_progress_goes_to_standard_error(home: Path) -> None:
    log = (home / "train.log").read_text(encoding="utf-8")
    for word in ("proverbs.txt", "UTF-8", "per character", "step     40", "tokens/s", "writes:", "left"):
        assert word in log
    assert "\x1b" not in log


def test_the_metrics_have_the_promised_fields(home: Path) -> None:
    lines = metrics(home / "runs" / "book")
    assert [line["step"] for line in lines] == list(range(5, 41, 5))
    assert all({"step", "tokens", "train_seconds", "loss", "learning_rate"} <= line.keys() for line in lines)
    assert [line["step"] for line in lines if "validation_loss" in line] == [10, 20, 30, 40]
    assert [line["tokens"] for line in lines] == [line["step"] * 5 * 13 for line in lines]
    seconds = [line["train_seconds"] for line in lines]
    assert seconds == sorted(seconds)
    assert lines[-1]["loss"] < lines[0]["loss"] - 0.3


def test_the_run_folder_has_all_promised_files(home: Path) -> None:
    run = Run(home / "runs" / "book")
    files = {"config.toml", "manifest.json", "tokenizer.json", "metrics.jsonl", "samples.txt", "loss.svg"}
    assert {path.name for path in run.folder.iterdir()} - {"lock"} == files | {"checkpoints", "best", "last"}
    manifest = run.manifest()
    assert {"glassformer", "python", "packages", "command", "data"} <= manifest.keys()
    assert {"source", "text_hash"} <= manifest["data"].keys()
    assert run.config().model.width == 12
    assert {path.name for path in run.checkpoints_folder.iterdir()} == {
        run.checkpoint(w).name for w in ("best", "last")
    }
    samples = (run.folder / "samples.txt").read_text(encoding="utf-8")
    assert samples.count("--- step") == 4
    assert "step" in (run.folder / "loss.svg").read_text(encoding="utf-8")


def test_the_reported_loss_and_verdict_belong_to_the_best_step(home: Path) -> None:
    said = one_object((home / "train.json").read_text(encoding="utf-8"))
    seen = [
        (line["step"], line["validation_loss"]) for line in metrics(home / "runs" / "book") if "validation_loss" in line
    ]
    assert said["step"] == min(seen, key=lambda pair: pair[1])[0]
    assert said["loss"] == pytest.approx(min(loss for _, loss in seen), abs=1e-6)
    vocabulary = facts("count", "runs/book", folder=home)["vocab_size"]
    assert said["verdict"] == verdict(seen, vocabulary)


def source(kind: str, folder: Path) -> tuple[list[str], str]:
    """Create training data of one kind in a folder; return the arguments and the standard input for training on it."""
    text = text_file(folder).read_text(encoding="utf-8")
    lines = text.splitlines()
    match kind:
        case "gz":
            (folder / "a.txt.gz").write_bytes(gzip.compress(text.encode("utf-8")))
            return ["a.txt.gz"], ""
        case "folder":
            (folder / "texts").mkdir()
            for name, part in (("one", lines[:60]), ("two", lines[60:])):
                (folder / "texts" / f"{name}.txt").write_text("\n".join(part), encoding="utf-8")
            return ["texts"], ""
        case "csv":
            rows = "".join(f'{i},"{line}, ""so""\nthey say",x\n' for i, line in enumerate(lines))
            (folder / "a.csv").write_text("id,saying,other\n" + rows, encoding="utf-8")
            return ["a.csv", "--data.column", "saying"], ""
        case "jsonl":
            rows = "".join(json.dumps({"id": i, "saying": line}) + "\n" for i, line in enumerate(lines))
            (folder / "a.jsonl").write_text(rows, encoding="utf-8")
            return ["a.jsonl", "--set", "data.column=saying"], ""
        case "stdin":
            return ["-"], text
        case _:
            return [kind, "--data.size", "600"], ""  # few documents may lack a word, and then there is no entropy


@pytest.mark.parametrize("kind", ["gz", "folder", "csv", "jsonl", "stdin", *TEXTS])
def test_train_accepts_every_kind_of_source(kind: str, tmp_path: Path) -> None:
    given, text = source(kind, tmp_path)
    said = facts(
        "train",
        *given,
        "--out",
        "run",
        *(SMALL if kind in CORPORA else TINY),
        "--steps",
        "2",
        folder=tmp_path,
        text=text,
    )
    assert said["steps_done"] == 2
    assert math.isfinite(said["loss"])
    if kind in CORPORA and find_text_corpus(kind).entropy() is not None:
        assert 0 < said["entropy"] < said["loss"]
    else:
        assert said["entropy"] is None
    assert shown("generate", "run", "--tokens", "3", folder=tmp_path)


def test_every_way_to_give_a_setting_gives_the_same_run(home: Path, tmp_path: Path) -> None:
    text_file(tmp_path)
    shutil.copy(home / "runs" / "book" / "config.toml", tmp_path / "mine.toml")
    facts("train", "--config", "mine.toml", "--out", "runs/again", folder=tmp_path)
    runs = [Run(home / "runs" / "book"), Run(tmp_path / "runs" / "again")]
    first, second = ((run.checkpoint() / "model.safetensors").read_bytes() for run in runs)
    assert first == second
    assert runs[0].config() == runs[1].config()


def test_train_without_out_names_the_run_after_the_text(tmp_path: Path) -> None:
    text_file(tmp_path)
    out = shown("train", "proverbs.txt", *TINY, "--steps", "2", folder=tmp_path)
    assert (tmp_path / "runs" / "proverbs" / "config.toml").is_file()
    assert "runs" in out.splitlines()[-1]
    assert "is ready: glass generate" in out.splitlines()[-1]


def test_an_unchanged_text_is_reused_and_an_edited_one_is_encoded_again(tmp_path: Path) -> None:
    path = text_file(tmp_path)
    said = []
    hashes = []
    for number in range(3):
        if number == 2:
            path.write_text(path.read_text(encoding="utf-8") + "a word more\n", encoding="utf-8")
        done = here("train", "proverbs.txt", "--out", f"runs/{number}", *TINY, "--steps", "1", folder=tmp_path)
        assert done.returncode == 0, done.stderr
        said.append(REBUILT in done.stderr)
        hashes.append(Run(tmp_path / "runs" / str(number)).manifest()["data"]["text_hash"])
    assert said == [True, False, True]
    assert hashes[0] == hashes[1] != hashes[2]


# ---- the reasons to stop, and going on


def test_a_run_resumes_with_more_steps(copy: Path) -> None:
    before = metrics(copy / "runs" / "book")
    said = facts("train", "--resume", "--out", "runs/book", "--steps", "60", folder=copy)
    assert said["steps_done"] == 60
    after = metrics(copy / "runs" / "book")
    assert after[: len(before)] == before
    assert [line["step"] for line in after[len(before) :]] == [45, 50, 55, 60]
    assert Run(copy / "runs" / "book").config().train.steps == 60


def test_resuming_a_finished_run_repeats_its_report(copy: Path) -> None:
    first = one_object((copy / "train.json").read_text(encoding="utf-8"))
    again = facts("train", "--resume", folder=copy)  # without --out: the newest run
    assert Path(again["run"]) == Path("runs/book")
    of_the_process = {"train_seconds": 0, "peak_memory_bytes": 0, "run": ""}
    assert {**again, **of_the_process} == {**first, **of_the_process}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        (["--minutes", "0.005"], "train.minutes = 0.005 leaves no time for another step"),
        (["--until-loss", "3.2"], "the validation loss reached 3.2"),
        (
            ["--train.patience", "2", "--train.learning_rate", "3", "--train.schedule", "constant"],
            "2 evaluations brought no improvement",
        ),
    ],
)
def test_training_stops_for_every_reason(limit: list[str], reason: str, tmp_path: Path) -> None:
    text_file(tmp_path)
    said = facts("train", "proverbs.txt", "--out", "run", *TINY, "--steps", "9999", *limit, folder=tmp_path)
    assert said["stopped_because"] == reason
    assert 0 < said["steps_done"] < 9999
    if "patience" in limit[0]:
        assert said["steps_done"] == said["step"] + 20
        losses = {w: facts("evaluate", "run", "--checkpoint", w, folder=tmp_path)["loss"] for w in ("best", "last")}
        assert losses["best"] == pytest.approx(said["loss"], abs=1e-6)
        assert losses["last"] > losses["best"]


# ---- generate


def test_streamed_text_equals_the_json_output(home: Path) -> None:
    said = facts("generate", "runs/book", "still ", "--tokens", "40", folder=home)
    assert {"text", "tokens", "tokens_per_second"} <= said.keys()
    assert said["tokens"] == 40 or said["samples"][0]["ended"] == "end"
    assert said["tokens_per_second"] > 0
    assert said["text"]
    assert shown("generate", "runs/book", "still ", "--tokens", "40", folder=home) == f"still {said['text']}\n"
    assert (
        shown("generate", "runs/book", "-", "--tokens", "40", folder=home, text="still ") == f"still {said['text']}\n"
    )


def test_samples_have_consecutive_seeds(home: Path) -> None:
    rows = facts("generate", "runs/book", "a", "--samples", "4", "--seed", "7", folder=home)["samples"]
    assert [row["seed"] for row in rows] == [7, 8, 9, 10]
    alone = [facts("generate", "runs/book", "a", "--seed", str(seed), folder=home)["text"] for seed in (7, 8, 9, 10)]
    assert [row["text"] for row in rows] == alone
    assert len(set(alone)) > 1
    plain = shown("generate", "runs/book", "a", "--samples", "2", folder=home)
    assert "--- seed 0, " in plain
    assert "--- seed 1, " in plain


def test_input_is_answered_line_by_line(home: Path) -> None:
    prompts = ["a", "", "still waters", "the quick brown fox jumps over the lazy dog", "a"]
    (home / "prompts.txt").write_bytes("\r\n".join(prompts).encode("utf-8") + b"\r\n")
    lines = shown("generate", "runs/book", "--input", "prompts.txt", folder=home).splitlines()
    assert len(lines) == len(prompts)
    assert lines[0] == lines[4]
    for prompt, line in zip(prompts, lines, strict=True):
        alone = facts("generate", "runs/book", prompt, folder=home)["text"]
        assert line == " ".join((prompt + alone).splitlines())
    rows = facts("generate", "runs/book", "--input", "prompts.txt", "--samples", "2", folder=home)["samples"]
    assert [(row["prompt"], row["seed"]) for row in rows] == [(prompt, n) for prompt in prompts for n in (0, 1)]


def test_unicode_line_separators_do_not_end_a_line(home: Path) -> None:
    """Only LF and CRLF end a prompt; U+2028 and form feed are part of it, so each input line has one output line."""
    (home / "odd.txt").write_text("a\u2028b\x0cc\nd\n", encoding="utf-8", newline="")
    assert len(facts("generate", "runs/book", "--input", "odd.txt", folder=home)["samples"]) == 2
    assert shown("generate", "runs/book", "--input", "odd.txt", folder=home).count("\n") == 2


def test_top_ranks_the_whole_vocabulary(home: Path) -> None:
    size = facts("count", "runs/book", folder=home)["vocab_size"]
    rows = facts("generate", "runs/book", "the qu", "--top", str(size), folder=home)["candidates"]
    chances = [row["probability"] for row in rows]
    assert len({row["token"] for row in rows}) == size
    assert sum(chances) == pytest.approx(1, abs=1e-5)
    assert chances == sorted(chances, reverse=True)
    assert (
        rows[0]["text"]
        == facts("generate", "runs/book", "the qu", "--temperature", "0", "--tokens", "1", folder=home)["text"]
    )
    lines = shown("generate", "runs/book", "the qu", "--top", folder=home).splitlines()
    assert len(lines) == 1 + 10
    assert f"{size} tokens" in lines[0]
    assert f"{chances[0]:.4%}" in lines[1]


def test_every_sampling_option_does_what_its_help_says(home: Path) -> None:
    def text(*flags: str) -> str:
        return str(facts("generate", "runs/book", "a ", "--tokens", "30", *flags, folder=home)["text"])

    greedy = text("--temperature", "0")
    assert text("--temperature", "0", "--seed", "5") == greedy
    assert text("--top-k", "1", "--temperature", "2") == greedy
    assert text("--top-p", "0.001", "--temperature", "2") == greedy
    assert text("--temperature", "2") != greedy
    assert text("--temperature", "0", "--repetition-penalty", "1.9") != greedy
    assert text("--seed", "3") != text("--seed", "4")
    assert text("--device", "cpu", "--precision", "fp32") == text()
    assert text("--checkpoint", "last") == text()  # the last step of this run was its best
    stop = greedy[9]
    cut = facts("generate", "runs/book", "a ", "--tokens", "30", "--temperature", "0", "--stop", stop, folder=home)
    assert cut["text"] == greedy[: greedy.index(stop)]
    assert cut["samples"][0]["ended"] == "stop"
    two = json.dumps([greedy[6:8], "zzz"])
    assert text("--temperature", "0", "--stop", two) == greedy[: greedy.index(greedy[6:8])]
    bf16 = facts("evaluate", "runs/book", "--precision", "bf16", folder=home)["loss"]
    fp32 = facts("evaluate", "runs/book", folder=home)["loss"]
    assert 0 < abs(bf16 - fp32) < 0.05


def test_unseen_characters_are_reported(home: Path) -> None:
    done = here("generate", "runs/book", "a Ω a É", folder=home)
    assert done.returncode == 0
    assert "É Ω" in done.stderr


def test_a_moved_run_generates_the_same_text_without_its_data(copy: Path, tmp_path: Path) -> None:
    before = facts("generate", "runs/book", "all", "--tokens", "50", folder=copy)["text"]
    shutil.move(copy / "runs" / "book", tmp_path / "taken away")
    shutil.rmtree(copy)
    assert facts("generate", "taken away", "all", "--tokens", "50", folder=tmp_path)["text"] == before


# ---- evaluate


def test_evaluate_prints_the_documented_json_fields(home: Path) -> None:
    said = facts("evaluate", "runs/book", folder=home)
    assert {"loss", "loss_ci95", "perplexity", "bits_per_byte", "tokens", "baselines"} <= said.keys()
    trained = one_object((home / "train.json").read_text(encoding="utf-8"))
    for name in ("loss", "loss_ci95", "perplexity", "bits_per_byte"):
        assert said[name] == pytest.approx(trained[name], abs=1e-6)
    ladder = {rung["name"]: rung["loss"] for rung in said["baselines"]}
    assert list(ladder) == ["uniform", "unigram", "5-gram", "gzip"]
    vocabulary = facts("count", "runs/book", folder=home)["vocab_size"]
    assert ladder["uniform"] == pytest.approx(math.log(vocabulary))
    assert said["longest_copy"]["text"] in said["sample"]
    assert 0 <= said["copy_meter"]["copied"] <= said["copy_meter"]["share"] <= 1
    assert said["copy_meter"]["held_out_characters"] > 0
    other = facts("evaluate", "runs/book", "--seed", "9", folder=home)
    assert other["loss"] == said["loss"]
    assert other["sample"] != said["sample"]
    table = shown("evaluate", "runs/book", folder=home)
    assert f"loss {said['loss']:.4f} ± {said['loss_ci95']:.4f} nats per token" in table


def test_evaluate_measures_the_whole_of_another_text(home: Path) -> None:
    (home / "other.txt").write_text("still waters run deep 3\n" * 9, encoding="utf-8")
    said = facts("evaluate", "runs/book", "other.txt", folder=home)
    assert said["tokens"] == 9 * 24  # the first token of all is not predicted, the end token is
    assert said["baselines"]
    piped = facts("evaluate", "runs/book", "-", folder=home, text="still waters run deep 3\n" * 9)
    assert piped["loss"] == said["loss"]


def test_evaluate_reports_the_true_entropy_of_a_generated_corpus(tmp_path: Path) -> None:
    shown("train", "recall", "--data.size", "300", "--out", "run", *SMALL, "--steps", "2", folder=tmp_path)
    ladder = {rung["name"]: rung["loss"] for rung in facts("evaluate", "run", "recall", folder=tmp_path)["baselines"]}
    assert 0 < ladder["true entropy"] < ladder["uniform"]


def test_evaluate_claims_no_interval_for_a_single_window(home: Path) -> None:
    assert facts("evaluate", "runs/book", "-", folder=home, text="still")["loss_ci95"] is None
    assert "one row: no interval" in shown("evaluate", "runs/book", "-", folder=home, text="still")


def test_evaluate_without_encoded_text_and_without_text(copy: Path) -> None:
    said = facts("evaluate", "runs/book", folder=copy)
    gone = str(copy / "runs" / ".tokens" / "gone")
    change_manifest(copy / "runs" / "book", lambda manifest: manifest["data"].update(tokens=gone))
    shutil.rmtree(copy / "runs" / ".tokens")
    done = here("evaluate", "runs/book", "--json", folder=copy)
    assert REBUILT in done.stderr
    assert one_object(done.stdout) == said
    shutil.rmtree(copy / "runs" / ".tokens")
    (copy / "proverbs.txt").rename(copy / "renamed.txt")
    refused = here("evaluate", "runs/book", folder=copy)
    assert refused.returncode == 2
    assert len(refused.stderr.strip().splitlines()) <= 3
    assert "proverbs.txt" in refused.stderr
    assert facts("evaluate", "runs/book", "renamed.txt", folder=copy) == said  # it is the run's own text, by its hash
    shutil.rmtree(copy / "runs" / ".tokens")
    (copy / "other.txt").write_text("still waters run deep 3\n" * 9, encoding="utf-8")
    (copy / "renamed.txt").unlink()
    measured = facts("evaluate", "runs/book", "other.txt", folder=copy)
    assert measured["tokens"] == 9 * 24
    assert measured["baselines"] == []
    assert measured["longest_copy"] is None
    assert measured["copy_meter"] is None


# ---- count, data


def test_count_equals_the_size_of_a_runs_weights(home: Path) -> None:
    from glassformer.model.weights import load_tensors

    said = facts("count", "runs/book", folder=home)
    weights = load_tensors(Run(home / "runs" / "book").checkpoint() / "model.safetensors")
    assert said["parameters"] == sum(tensor.numel() for tensor in weights.values())
    assert said["bytes"] == 4 * said["parameters"]
    assert sum(part["parameters"] for part in said["components"]) == said["parameters"]
    assert {"vocab_size", "components", "embedding_by_width", "published"} <= said.keys()
    assert f"{said['parameters']:,}" in shown("count", "runs/book", folder=home)
    twice = facts("count", "runs/book", "--set", "model.layers=2", folder=home)
    assert twice["parameters"] > said["parameters"]


def test_data_list_show_and_look_work(home: Path) -> None:
    listed = facts("data", "list", folder=home)
    assert list(listed["corpora"]) == list(CORPORA)
    assert list(listed["recipes"]) == list(recipe_names())
    plain = shown("data", "list", folder=home)
    assert all(name in plain for name in (*CORPORA, *recipe_names()))
    documents = facts("data", "show", "sort", "--size", "3", "--seed", "4", folder=home)["documents"]
    assert shown("data", "show", "sort", "--size", "3", "--seed", "4", folder=home).splitlines() == documents
    assert documents != facts("data", "show", "sort", "--size", "3", folder=home)["documents"]
    looked = facts("data", "look", "proverbs.txt", "--tokenizer.kind", "characters", folder=home)
    assert looked["tokens_per_character"] == pytest.approx(1, abs=0.001)
    assert any("UTF-8" in note for note in looked["notes"])
    assert shown("data", "look", "proverbs.txt", folder=home).splitlines()[0] == looked["notes"][0]


def test_size_and_seed_of_a_corpus_may_be_given_in_two_ways(home: Path) -> None:
    short = facts("data", "show", "recall", "--size", "3", "--seed", "4", folder=home)
    assert facts("data", "show", "recall", "--data.size", "3", "--set", "data.seed=4", folder=home) == short
    looked = facts("data", "look", "recall", "--size", "300", "--seed", "4", folder=home)
    assert any("300 documents, seed 4" in note for note in looked["notes"])
    assert facts("data", "look", "recall", "--data.size", "300", "--data.seed", "4", folder=home) == looked


# ---- the demonstration, and help


@pytest.mark.thorough
def test_demo_reports_the_ratio_to_the_entropy(tmp_path: Path) -> None:
    """Run only three steps of the demonstration."""
    said = facts("demo", "--steps", "3", folder=tmp_path)
    assert {"run", "loss", "loss_ci95", "perplexity", "bits_per_byte", "tokens", "baselines", "text"} <= said.keys()
    assert said["ratio"] == pytest.approx(said["loss"] / said["entropy"])
    assert said["ratio"] > 1
    assert Path(said["run"]) == Path("runs/demo")


def test_the_overview_has_every_command_in_one_of_five_groups() -> None:
    assert len(GROUPS) == 5
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COMMANDS)
    lines = overview().splitlines()
    assert [line for line in lines if line in GROUPS] == list(GROUPS)
    assert all(any(line.startswith(f"  glass {name} ") for line in lines) for name in COMMANDS)


@pytest.mark.skipif(os.name == "nt", reason="this system has no such pipes")
@pytest.mark.parametrize("words", [[], ["--version"]])
def test_a_closed_pipe_is_not_an_error(words: list[str]) -> None:
    """A reader such as `head -1` closes the pipe early."""
    process = subprocess.Popen(
        [sys.executable, "-m", "glassformer", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert (process.wait(), process.stderr.read()) == (0, b"")
    process.stderr.close()


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_explains_itself(command: str, home: Path) -> None:
    words = shown(command, "--help", folder=home).split()
    assert {"--json", "--debug"} <= set(words)
    if command in ("demo", "train", "generate", "evaluate"):  # the others compute nothing with a model
        assert {"--device", "--precision", "--seed"} <= set(words)


def test_train_explains_every_setting(home: Path) -> None:
    words = shown("train", "--help", folder=home)
    for section, field in Config.model_fields.items():
        assert f"{section}: {field.description}" in words
        for name in Config().model_dump()[section]:
            assert f"--{section}.{name} VALUE" in words
