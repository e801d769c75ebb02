"""Runs of each family whose training text is available, served by a registry, and requests to their views."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from glassformer.app.server.registry import ModelRegistry, ServedModel
from glassformer.app.server.view import LIMIT, Binary
from glassformer.app.server.views import find_view
from glassformer.runs.opening import OpenedRun
from glassformer.tasks import AnyTextModel
from tests.journey.commands import begin, ended, here
from tests.journey.task_files import write_all
from tests.journey.task_runs import RUNS, TINY
from tests.trained import trained

LEARNT = {
    "book": [*RUNS["lm"], "--model.layers=2"],
    "post": [*RUNS["lm"], "--model.norm_order=post"],
    "letters": [*RUNS["lm"], "--tokenizer.kind=characters", "--model.context=90"],
    "fill": RUNS["masked"],
    "mails": RUNS["classify"],
    "turn": RUNS["translate"],
    "talk": RUNS["chat"],
}
TALL = "It was a tall day when the dog met the bird."
TEXTS = {
    **dict.fromkeys(("book", "book-small", "post", "letters"), TALL),
    "fill": "It was a [MASK] day when the [MASK] met",
    "mails": "win a 7 pound prize now",
    "turn": "the old dog sleeps .",
    **dict.fromkeys(("talk", "talk-small"), "the old dog sleeps . what does the dog do ?"),
}
Script = tuple[str, list[float]]
"""A script, and the numbers that it has to print."""


def learn(folder: Path, learnt: dict[str, list[str]] = LEARNT) -> Path:
    """Fill an empty folder with the texts and a run `runs/NAME` of each of `learnt`."""
    return trained(folder, "served", [TINY, learnt], lambda made: make(made, learnt))


def make(folder: Path, learnt: dict[str, list[str]]) -> None:
    """Write the texts and train the runs."""
    write_all(folder)
    for name, (source, *more) in learnt.items():
        done = here("train", source, *TINY, *more, "--steps=20", "--out", f"runs/{name}", "--json", folder=folder)
        assert done.returncode == 0, done.stderr


def ask(registry: ModelRegistry, run: str, name: str, **question: Any) -> Any:
    """Return the response of a view to a JSON body: a dict, or a `Binary`."""
    view = find_view(name)
    opened = registry.open(run)
    asked = view.parse(json.dumps({"text": TEXTS[run], **question}).encode())
    reply = view.reply(opened, asked, [registry.open(other) for other in view.others(asked)])
    assert len(reply.body) <= LIMIT
    return Binary.unpacked(reply.body) if reply.binary else json.loads(reply.body)


def library(opened: ServedModel) -> AnyTextModel:
    """Open the run with the library, without the views."""
    return OpenedRun.load(opened.folder, device="cpu").text_model


def check_scripts(scripts: list[Script], home: Path) -> None:
    """Run all scripts in one process; each must print its numbers in order."""
    mark = "=== the next script"
    code = "\n".join(f"print({mark!r})\nexec(compile({script!r}, 'script', 'exec'), {{}})" for script, _ in scripts)
    done = ended(begin("-c", code, folder=home))
    assert done.returncode == 0, done.stderr
    for shown, (script, numbers) in zip(done.stdout.split(mark)[1:], scripts, strict=True):
        said = [value for word in shown.split() if (value := _number(word)) is not None]
        at = 0
        for number in numbers:  # other output may be in between
            while at < len(said) and abs(said[at] - number) > 1e-6:
                at += 1
            assert at < len(said), f"{script}\nprints no {number} in its place:\n{shown}"
            at += 1


def _number(word: str) -> float | None:
    try:
        return float(word.strip("(),[]"))
    except ValueError:
        return None
