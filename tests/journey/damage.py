"""Settings of a small run, and functions that damage its folder or the files beside it."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load, save
from torch import Tensor

from glassformer.base.files import sha256
from tests.property.trainers import text_file

SetUp = Callable[[Path], object]
SMALL = (
    ("--steps", "3"),
    ("--set", "model.layers=1"),
    ("--set", "model.width=12"),
    ("--set", "model.heads=2"),
    ("--set", "model.context=16"),
    ("--set", "tokenizer.kind=characters"),
    ("--set", "train.batch=4"),
    ("--set", "sample.tokens=5"),
    ("--set", "train.threads=1"),
    ("--set", "train.evaluate_every=1"),
    ("--set", "train.log_every=1"),
)
RUN = Path("runs") / "book"


def train(source: str, *more: str, out: str = "out") -> list[str]:
    """Return the arguments of a training run that takes almost no time; settings in `more` replace those of `SMALL`."""
    given = {word.partition("=")[0] for word in more}
    small = [pair for pair in SMALL if not {pair[0], pair[1].partition("=")[0]} & (given - {"--set"})]
    return ["train", source, "--out", out, *(word for pair in small for word in pair), *more]


def change(key: str, value: object) -> list[str]:
    """Return the arguments of a training run on a correct text, with one setting changed."""
    return train("proverbs.txt", "--set", f"{key}={value}")


def make_text(folder: Path) -> None:
    """Write the text of `train("proverbs.txt")`."""
    text_file(folder)


def tree(folder: Path) -> dict[str, str]:
    """Return the paths of all files and folders below a folder, with the hash of each file and "" for folders."""
    found = sorted(folder.rglob("*"))
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in found
    }


def write(name: str | Path, content: bytes | str) -> SetUp:
    """Return a function that writes a file, and creates the folder for it."""
    data = content.encode("utf-8") if isinstance(content, str) else content

    def set_up(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)

    return set_up


def edit(name: str | Path, old: str, new: str) -> SetUp:
    """Return a function that replaces a text in a file, which must contain it."""

    def set_up(folder: Path) -> None:
        text = (folder / name).read_text(encoding="utf-8")
        assert old in text
        (folder / name).write_text(text.replace(old, new), encoding="utf-8")

    return set_up


def remove(*names: str | Path) -> SetUp:
    """Return a function that deletes files and folders, which must exist."""

    def set_up(folder: Path) -> None:
        for name in names:
            shutil.rmtree(folder / name) if (folder / name).is_dir() else (folder / name).unlink()

    return set_up


def folder_at(name: str) -> SetUp:
    """Return a function that creates an empty folder."""
    return lambda folder: (folder / name).mkdir()


def both(*steps: SetUp) -> SetUp:
    """Return a function that calls the given functions one after another."""
    return lambda folder: [step(folder) for step in steps]


def in_checkpoint(name: str, change: Callable[[bytes], bytes], sealed: bool = False) -> SetUp:
    """Return a function that changes a file of the only checkpoint; `sealed` also updates its hash in the manifest."""

    def set_up(folder: Path) -> None:
        (checkpoint,) = (folder / RUN / "checkpoints").iterdir()
        path = checkpoint / name
        path.write_bytes(change(path.read_bytes()))
        if sealed:
            facts = json.loads((checkpoint / "manifest.json").read_text(encoding="utf-8"))
            facts["files"][name] = {"bytes": path.stat().st_size, "sha256": sha256(path)}
            (checkpoint / "manifest.json").write_text(json.dumps(facts), encoding="utf-8")

    return set_up


def half(data: bytes) -> bytes:
    """Return the first half of a file's content."""
    return data[: len(data) // 2]


def one_byte(data: bytes) -> bytes:
    """Return a file's content with one bit flipped."""
    return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]


def new_weights(change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> SetUp:
    """Return a function that changes the run's weights, and their hash in the manifest."""
    return in_checkpoint("model.safetensors", lambda data: save(change(load(data))), sealed=True)


def twice_as_wide(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return zeros with every size doubled, so that the weights do not fit the model."""
    return {name: torch.zeros([2 * size for size in value.shape]) for name, value in weights.items()}


def one_missing(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return all weights except the first."""
    return dict(sorted(weights.items())[1:])


def no_numbers(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return weights that are all NaN, as after a diverged training run."""
    return {name: torch.full_like(value, float("nan")) for name, value in weights.items()}
