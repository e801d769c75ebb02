"""Small runs of every model family for the tests of the page: briefly trained, or with random weights."""

from __future__ import annotations

from pathlib import Path

from tests.journey.commands import here
from tests.journey.task_files import write_all, write_lines
from tests.journey.task_runs import RUNS, TINY
from tests.parity.written_runs import make_run

BANGLA = ["আমি বাংলায় গান গাই", "আমরা স্বাধীন দেশের মানুষ", "সে স্কুলে যায় এবং গান শেখে", "তুমি কি বাংলায় কথা বলো"]
ARABIC = ["القط ينام في البيت", "الولد يقرأ الكتاب", "البنت تكتب رسالة"]
LEARNT = {  # name -> arguments of `glass train`
    "book": [*RUNS["lm"], "--model.layers=2", "--model.positions=rotary", "--train.snapshots=3"],
    "post": [*RUNS["lm"], "--model.layers=2", "--model.norm_order=post", "--model.kv_heads=1"],
    "fill": RUNS["masked"],
    "mails": RUNS["classify"],
    "en-de": [*RUNS["translate"], "--model.layers=2"],
    "bangla": ["bangla.txt"],
    "talk": [*RUNS["chat"], "--model.layers=2", "--model.positions=rotary", "--train.snapshots=3", "--steps=200"],
    "sequel": ["book.txt", "--from", "runs/book", "--model.layers=2", "--model.positions=rotary"],
}
TEXTS = {
    "book": 'It was a tall day when the dog met the bird. "Who sleeps here?" asked the dog.',
    "post": "It was a small day when the child met the cat.",
    "fill": "It was a [MASK] day when the [MASK] met",
    "mails": "win a 7 pound prize now",
    "en-de": "the old dog sleeps .",
    "bangla": BANGLA[0],
    "talk": "the old dog sleeps . what does the dog do ?",
    "sequel": "It was a small day when the child met the cat.",
}
"""Input text for each run, by name."""
LONG = {"layers": 12, "heads": 12, "width": 24, "head_width": 2, "hidden": 16, "context": 4096}
"""Shape of the run `long`, which has random weights."""


def make_all(home: Path) -> None:
    """Write the files of `task_files`, a run `runs/NAME` for each name in `TEXTS`, and the run `long`."""
    write_all(home)
    write_lines(home / "bangla.txt", [*BANGLA, *ARABIC] * 40)
    for name, (source, *more) in LEARNT.items():
        done = here("train", source, *TINY, "--steps=20", *more, "--out", f"runs/{name}", "--json", folder=home)
        assert done.returncode == 0, done.stderr
    make_long(home / "runs" / "long")


def make_long(folder: Path) -> Path:
    """Make a run with as many heads as GPT-2, for texts of up to 4,096 tokens; see `long_text`."""
    return make_run(folder, positions="sinusoidal", tokenizer={"kind": "words"}, **LONG)


def long_text(tokens: int) -> str:
    """Return a text of the given number of tokens, for the run `long`."""
    return " ".join(["old", "dog", "sleeps", "river"][place * place % 7 % 4] for place in range(tokens))
