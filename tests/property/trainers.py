"""Small trainers on a small text, for the tests of training."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer.base.config import Config
from glassformer.base.files import sha256
from glassformer.runs.folder import Run
from glassformer.training.loop import compute_gradients, train
from glassformer.training.reporting import Silent
from glassformer.training.setup import new_training, resume_training
from glassformer.training.trainer import Trainer

LINES = [
    "the quick brown fox jumps over the lazy dog",
    "a stitch in time saves nine",
    "still waters run deep",
    "all that glitters is not gold",
    "the early bird catches the worm",
    "a rolling stone gathers no moss",
]
SMALL: dict[str, dict[str, Any]] = {
    "model": {"layers": 2, "heads": 2, "width": 14, "hidden": 22, "context": 13, "dropout_residual": 0.1},
    "tokenizer": {"kind": "characters"},
    "data": {"document": "line"},
    "train": {"steps": 24, "batch": 5, "warmup": 3, "evaluate_every": 6, "save_every": 4, "log_every": 3, "threads": 1},
    "sample": {"tokens": 5},
}


def text_file(folder: Path) -> Path:
    """Write lines of proverbs in a fixed, shuffled order, and return the file."""
    path = folder / "proverbs.txt"
    if not path.exists():
        lines = [LINES[(i * i + i // 3) % len(LINES)] + f" {i % 7}" for i in range(120)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def small_config(folder: Path, **changes: Any) -> Config:
    """Return `SMALL` with changes given as `section__field=value`."""
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
    """Return the trainer of a run as a new process would resume it; the lock is released, as in `small_trainer`."""
    with resume_training(folder / name, changes, Silent()) as trainer:
        return trainer


def before_each_step(trainer: Trainer, do: Callable[[], object]) -> None:
    """Call `do` before each step of the training loop."""
    rate_factor = trainer.rate_factor

    def watched() -> float:
        do()
        return rate_factor()

    trainer.rate_factor = watched  # type: ignore[method-assign]


def killed_after(trainer: Trainer, step: int) -> None:
    """Train until a simulated kill after this step, without a last save."""

    def kill() -> None:
        if trainer.state.step == step:
            raise KeyboardInterrupt

    before_each_step(trainer, kill)
    with pytest.raises(KeyboardInterrupt):
        train(trainer)


def stop_during(trainer: Trainer, step: int) -> None:
    """Prepare a stop signal during this step; with several processes, only this one gets it."""

    def signal() -> None:
        trainer.stop_requested = trainer.state.step == step - 1

    before_each_step(trainer, signal)


def stop_after(trainer: Trainer, step: int) -> None:
    """Train with a signal during this step, after which everything is saved."""
    stop_during(trainer, step)
    assert train(trainer) is None
    assert trainer.state.step == step


def take_step(trainer: Trainer) -> None:
    """Take one step without the rest of the loop."""
    gradients = compute_gradients(trainer.stepper, trainer.state.step)
    trainer.stepper.update(gradients, trainer.rate_factor())
    trainer.state.step += 1


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    """Return a copy of all weights."""
    return {name: value.detach().clone() for name, value in trainer.model.state_dict().items()}


def last_weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    """Return the weights of the last checkpoint (`train` ends with the best weights loaded)."""
    from glassformer.model.weights import load_tensors

    return load_tensors(trainer.run.checkpoint("last") / "model.safetensors")


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    """Return whether weights are equal bit for bit."""
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


def change_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Edit the manifest of a run in place, and record its new SHA-256, as if the run had been created so."""
    run = Run(folder)
    manifest = run.manifest()
    change(manifest)
    run.write_manifest(manifest)


def record_files(folder: Path) -> None:
    """Record the current settings, tokenizers and labels in the manifest of a run, as if training had written them."""

    def record(manifest: dict[str, Any]) -> None:
        manifest["files"] = {name: sha256(folder / name) for name in manifest["files"] if (folder / name).exists()}

    change_manifest(folder, record)
