"""The run folder: everything that one training run leaves, and all that is needed to use it elsewhere.

::

    config.toml  manifest.json  tokenizer.json  metrics.jsonl  samples.txt  loss.svg
    source_tokenizer.json  where source and target have a vocabulary each
    labels.json  names of a classifier's labels
    lock  held by the process that trains
    checkpoints/step-000850/{model,optimizer}.safetensors, state.json, manifest.json
    best  last      one line each: the name of a checkpoint
    snapshots/step-000850.npz  what the attention heads did, where train.snapshots is above 0
"""

from __future__ import annotations

import json
import platform
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from glassformer import __version__
from glassformer.config import Config
from glassformer.errors import GlassError, nearest
from glassformer.files import check_folder, clear_disk_errors, is_whole, write_text
from glassformer.wording import quoted

Which = Literal["best", "last"]
Folder = str | PathLike[str]
"""What people may name a folder by."""


@dataclass(frozen=True)
class Run:
    """One run folder."""

    folder: Path

    @property
    def tokenizer_file(self) -> Path:
        """The tokenizer, so that the run needs nothing else to speak."""
        return self.folder / "tokenizer.json"

    @property
    def source_tokenizer_file(self) -> Path:
        """The tokenizer of the source, where it has a vocabulary of its own."""
        return self.folder / "source_tokenizer.json"

    def labels(self) -> tuple[str, ...]:
        """The names of a classifier's labels, in the order of its scores; of other runs none.

        Raises:
            GlassError: the file is damaged.
        """
        path = self.folder / "labels.json"
        try:
            return tuple(map(str, json.loads(path.read_text(encoding="utf-8")))) if path.exists() else ()
        except (ValueError, TypeError):
            raise GlassError(f"{path} is damaged", "Copy it from where the run was made.") from None

    def save_labels(self, names: Sequence[str]) -> None:
        """Write what `labels` reads."""
        write_text(self.folder / "labels.json", json.dumps(names, ensure_ascii=False) + "\n")

    @property
    def metrics_file(self) -> Path:
        """One JSON object a line: step, tokens, train_seconds, loss, learning_rate, and validation_loss at times."""
        return self.folder / "metrics.jsonl"

    @property
    def samples_file(self) -> Path:
        """What the model wrote at each evaluation."""
        return self.folder / "samples.txt"

    @property
    def altered(self) -> str | None:
        """What an experiment took out of the model, which no setting says: "no causal mask"; of ordinary runs None."""
        try:
            return dict(json.loads((self.folder / "manifest.json").read_text(encoding="utf-8"))).get("altered")
        except (OSError, ValueError, TypeError):
            return None

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.folder / "checkpoints"

    def config(self) -> Config:
        """The settings of the run."""
        return Config.read(self.folder / "config.toml")

    def manifest(self) -> dict[str, Any]:
        """What made the run: versions, command, and under `data` the source, its hash and where its tokens lie.

        Raises:
            GlassError: the file is missing or damaged.
        """
        path = self.folder / "manifest.json"
        try:
            facts = dict(json.loads(path.read_text(encoding="utf-8")))
            data = {name: str(facts["data"][name]) for name in ("source", "text_hash", "tokens")}
        except FileNotFoundError:
            raise GlassError(f"{path} is missing", "Copy it from where the run was made.") from None
        except (ValueError, KeyError, TypeError):
            raise GlassError(f"{path} is damaged", "Copy it from where the run was made.") from None
        return {**facts, "data": data}

    def checkpoint(self, which: Which = "best") -> Path:
        """The checkpoint folder that `best` or `last` names, every byte checked.

        Raises:
            GlassError: there is none, or it is truncated or altered.
        """
        try:
            folder = self.checkpoints / (self.folder / which).read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            raise GlassError(f"{self.folder} has no {which} checkpoint", f"Train it first: {self._resume()}") from None
        except UnicodeDecodeError:
            raise GlassError(
                f"{self.folder / which} is damaged: it names no checkpoint", f"Write it anew: {self._resume()}"
            ) from None
        try:
            check_folder(folder)
        except GlassError as error:
            others = [path.name for path in self.whole_checkpoints() if path != folder]
            remedy = f"{', '.join(others)} is whole; to go on from it: {self._resume()}" if others else error.remedy
            raise GlassError(error.problem, remedy) from None
        return folder

    def _resume(self) -> str:
        return f"glass train --resume --out {quoted(self.folder)}"

    @property
    def snapshots(self) -> Path:
        """The folder of snapshots of attention, where the run keeps some."""
        return self.folder / "snapshots"

    def whole_checkpoints(self) -> list[Path]:
        """All complete checkpoints, oldest first."""
        found = sorted(self.checkpoints.glob("step-*[0-9]"), key=lambda path: int(path.name.removeprefix("step-")))
        return [path for path in found if is_whole(path)]

    def point(self, which: Which, checkpoint: Path) -> None:
        """Make `best` or `last` name a checkpoint."""
        write_text(self.folder / which, checkpoint.name + "\n")

    def remove_other_checkpoints(self) -> None:
        """Delete the checkpoints that neither `best` nor `last` names, and what a killed save left."""
        kept = {(self.folder / which).read_text(encoding="utf-8").strip() for which in ("best", "last")}
        for path in self.checkpoints.glob("step-*"):
            if path.name not in kept:
                shutil.rmtree(path, ignore_errors=True)


def create_run(folder: Path, config: Config, facts: dict[str, Any]) -> Run:
    """Make the folder with its configuration and manifest.

    Args:
        folder: must not hold a run yet.
        config: all settings.
        facts: what else the manifest shall say (data, hashes).
    """
    run = Run(folder)
    refuse_existing(folder)
    manifest = {
        "glassformer": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: metadata.version(name) for name in ("torch", "numpy", "tokenizers", "safetensors")},
        "command": sys.argv,
        **facts,
    }
    try:
        with clear_disk_errors(folder):
            run.checkpoints.mkdir(parents=True, exist_ok=True)
        write_text(folder / "manifest.json", json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")
        write_text(folder / "config.toml", config.to_toml())
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # it was empty or not there
        raise
    return run


def refuse_existing(folder: Path) -> None:
    """Raise a `GlassError` if there is something in `folder`, so that no file is ever overwritten or mixed up."""
    if (folder / "config.toml").exists():
        raise GlassError(
            f"{folder} already holds a run",
            f"Continue it with --resume --out {quoted(folder)}, or choose another --out.",
        )
    if folder.exists() and not folder.is_dir():
        raise GlassError(f"{folder} is a file, not a folder", "Choose another --out.")
    if folder.exists() and (name := next((path.name for path in folder.iterdir()), None)):
        raise GlassError(f"{folder} is not empty: it holds {name}", "Choose another --out, or empty that folder.")


def open_run(folder: Folder, altered: str | None = None) -> Run:
    """The run in a folder.

    Args:
        folder: of the run.
        altered: what an experiment took out of its model; only the experiment itself opens such a run.

    Raises:
        GlassError: there is none, and the nearest run beside it is named; or its settings do not say all of its model.
    """
    folder = Path(folder)
    if (folder / "config.toml").is_file():
        if (found := Run(folder).altered) != altered:
            raise GlassError(
                f"{folder} is part of an experiment: its model has {found or 'all its parts'}",
                "It is no ordinary run, and only glass compare uses it.",
            )
        return Run(folder)
    beside = runs_near(folder)
    if folder.is_dir():
        raise GlassError(f"{folder} is not a run: it has no config.toml", "Give a folder that glass train made.")
    remedy = nearest(str(folder), beside) if beside else "Train one first: glass train DATA --out RUN"
    raise GlassError(f"there is no run at {folder}", remedy)


def runs_near(folder: Path) -> list[str]:
    """The runs beside a folder, and those in `runs`, where they lie by default; as paths."""
    parents = dict.fromkeys((folder.parent, Path("runs")))
    return [str(run.folder) for parent in parents for run in list_runs(parent)]


def list_runs(parent: Path) -> list[Run]:
    """The runs in a folder, the most recently used last."""
    if not parent.is_dir():
        return []
    configs = [path / "config.toml" for path in parent.iterdir() if (path / "config.toml").is_file()]
    return [Run(path.parent) for path in sorted(configs, key=lambda path: _last_used(path.parent))]


def _last_used(folder: Path) -> float:
    return max(path.stat().st_mtime for path in (folder / "config.toml", folder / "last") if path.exists())
