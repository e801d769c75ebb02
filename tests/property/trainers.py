"""Small trainers on a small text, for the tests of training."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from glassformer.config import Config
from glassformer.files import sha256
from glassformer.runs import Run
from glassformer.training.reporting import Silent
from glassformer.training.setup import new_training, resume_training
from glassformer.training.trainer import Trainer

LINES = [
    "the quick brown fox jumps over the lazy dog", "a stitch in time saves nine", "still waters run deep",
    "all that glitters is not gold", "the early bird catches the worm", "a rolling stone gathers no moss",
]  # fmt: skip
SMALL: dict[str, dict[str, Any]] = {
    "model": {"layers": 2, "heads": 2, "width": 14, "hidden": 22, "context": 13, "dropout_residual": 0.1},
    "tokenizer": {"kind": "characters"},
    "data": {"document": "line"},
    "train": {"steps": 24, "batch": 5, "warmup": 3, "evaluate_every": 6, "save_every": 4, "log_every": 3, "threads": 1},
    "sample": {"tokens": 5},
}


def text_file(folder: Path) -> Path:
    """Lines of proverbs in a fixed, scrambled order."""
    path = folder / "proverbs.txt"
    if not path.exists():
        lines = [LINES[(i * i + i // 3) % len(LINES)] + f" {i % 7}" for i in range(120)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def small_config(folder: Path, **changes: Any) -> Config:
    """`SMALL` with changes given as `section__field=value`."""
    sections = {name: dict(values) for name, values in SMALL.items()}
    sections["data"]["source"] = str(text_file(folder))
    for key, value in changes.items():
        section, _, field = key.partition("__")
        sections[section][field] = value
    return Config.from_dict(sections)


def small_trainer(folder: Path, name: str = "run", **changes: Any) -> Trainer:
    """Return a trainer at step 0. No other process uses the folder of a test, so the lock is released."""
    with new_training(small_config(folder, **changes), folder / name, Silent()) as trainer:
        return trainer


def resumed(folder: Path, name: str = "run", **changes: str) -> Trainer:
    """Return the run as a new process would resume it; the lock is released, as in `small_trainer`."""
    with resume_training(folder / name, changes, Silent()) as trainer:
        return trainer


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    """A copy of all weights."""
    return {name: value.detach().clone() for name, value in trainer.model.state_dict().items()}


def last_weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    """The weights of the last checkpoint (`train` ends with the best ones in place)."""
    from glassformer.model.weights import load_tensors

    return load_tensors(trainer.run.checkpoint("last") / "model.safetensors")


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    """Bit for bit."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def change_state(run: Run, change: Callable[[dict[str, Any]], object]) -> None:
    """Edit `state.json` of the last checkpoint, with a manifest to match, as another version would have written it."""
    last = run.checkpoint("last")
    facts = json.loads((last / "state.json").read_text(encoding="utf-8"))
    change(facts)
    (last / "state.json").write_text(json.dumps(facts), encoding="utf-8")
    manifest = json.loads((last / "manifest.json").read_text(encoding="utf-8"))
    size = (last / "state.json").stat().st_size
    manifest["files"]["state.json"] = {"bytes": size, "sha256": sha256(last / "state.json")}
    (last / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
