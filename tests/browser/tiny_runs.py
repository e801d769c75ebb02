"""Small runs of every family that the page is tried on: learnt in a moment, or with weights that were drawn."""

from __future__ import annotations

from pathlib import Path

from tests.journey.commands import here
from tests.journey.task_files import write_all, write_lines
from tests.journey.task_runs import RUNS, TINY
from tests.parity.written_runs import make_run

BANGLA = ["আমি বাংলায় গান গাই", "আমরা স্বাধীন দেশের মানুষ", "সে স্কুলে যায় এবং গান শেখে", "তুমি কি বাংলায় কথা বলো"]
ARABIC = ["القط ينام في البيت", "الولد يقرأ الكتاب", "البنت تكتب رسالة"]
LEARNT = {  # name -> what follows `glass train`
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
"""What each run is asked with: a name -> a text."""
LONG = {"layers": 12, "heads": 12, "width": 24, "head_width": 2, "hidden": 16, "context": 4096}
"""The shape of the run `long`, whose weights were drawn."""


def make_all(home: Path) -> None:
    """Write the files of `task_files`, and a run `runs/NAME` of each name in `TEXTS`, and of `long`."""
    write_all(home)
    write_lines(home / "bangla.txt", [*BANGLA, *ARABIC] * 40)
    for name, (source, *more) in LEARNT.items():
        done = here("train", source, *TINY, "--steps=20", *more, "--out", f"runs/{name}", "--json", folder=home)
        assert done.returncode == 0, done.stderr
    make_long(home / "runs" / "long")


def make_long(folder: Path) -> Path:
    """A run with as many heads as GPT-2 has, which reads 4,096 tokens: see `long_text`."""
    return make_run(folder, positions="sinusoidal", tokenizer={"kind": "words"}, **LONG)


def long_text(tokens: int) -> str:
    """So many tokens of the run `long`."""
    return " ".join(["old", "dog", "sleeps", "river"][place * place % 7 % 4] for place in range(tokens))
