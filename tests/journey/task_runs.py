"""Make a tiny run of every task with the command line, for the journey tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.journey.commands import here
from tests.journey.task_files import write_all

TINY = [
    "--model.layers=1",
    "--model.width=24",
    "--model.heads=2",
    "--model.context=40",
    "--train.threads=1",
    "--train.batch=8",
    "--train.warmup=0",
    "--train.evaluate_every=20",
    "--train.log_every=10",
    "--train.save_every=20",
    "--train.learning_rate=0.02",
    "--sample.tokens=8",
    "--tokenizer.kind=words",
]
STEPS = "--steps=60"
RUNS = {  # what follows `glass train`
    "lm": ["book.txt"],
    "masked": ["book.txt", "--task", "masked"],
    "classify": ["mails.csv", "--task", "classify"],
    "translate": ["train.en", "train.de", "--task", "translate", "--train.batch_tokens=120"],
    "two": ["pairs.tsv", "--task", "translate", "--tokenizer.joint=false", "--model.shared_embedding=false"],
    "summarize": ["articles.jsonl", "--task", "summarize"],
    "chat": ["talks.jsonl", "--task", "chat"],
}
DOES = {  # a task's run, the command that uses it, and what it is given
    "lm": ("generate", "It was"),
    "masked": ("fill", "It was a [MASK] day when the [MASK] met"),
    "classify": ("classify", "win a 7 pound prize now"),
    "translate": ("generate", "the old dog sleeps ."),
    "two": ("generate", "the old dog sleeps ."),
    "summarize": ("generate", "The rain came early. Then the old dog sleeps."),
    "chat": ("chat", "the old dog sleeps . what does the dog do ?"),
}
OTHER_TEXT = {
    "lm": ["sentences.txt"],
    "masked": ["sentences.txt"],
    "classify": ["test.csv"],
    "translate": ["test.en", "test.de"],
    "two": ["test.en", "test.de"],
    "summarize": ["test.jsonl"],
    "chat": ["test-talks.jsonl"],
}
PAIRS = ("translate", "two", "summarize")
TASKS = tuple(RUNS)


def train(name: str, *more: str, out: str) -> list[str]:
    """Return the arguments that make the run `name` of `RUNS`."""
    return ["train", *RUNS[name][:1], *TINY, *RUNS[name][1:], STEPS, "--out", out, "--json", *more]


def make_runs(folder: Path) -> None:
    """Write all training files, and make a run `runs/NAME` for each name in `RUNS`.

    The output and the messages of training are saved in `NAME.json` and `NAME.log`.
    """
    write_all(folder)
    for name in RUNS:
        done = here(*train(name, out=f"runs/{name}"), folder=folder)
        assert done.returncode == 0, done.stderr
        (folder / f"{name}.json").write_text(done.stdout, encoding="utf-8")
        (folder / f"{name}.log").write_text(done.stderr, encoding="utf-8")


def said_of(name: str, home: Path) -> dict[str, Any]:
    """Return the JSON output of the `glass train` command that made a run."""
    found: dict[str, Any] = json.loads((home / f"{name}.json").read_text(encoding="utf-8"))
    return found


def refused(*arguments: str | Path, folder: Path) -> tuple[str, str]:
    """Run a command that must be refused, and return the last two lines of its error."""
    done = here(*arguments, folder=folder)
    lines = done.stderr.strip().replace("\\", "/").splitlines()
    assert (done.returncode, done.stdout) == (2, ""), (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return lines[-2], lines[-1]
