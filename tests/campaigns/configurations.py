"""Small training configurations for the campaigns; together they use five tasks and every schedule and optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from tests.journey.task_files import write_all

Sections = dict[str, dict[str, Any]]
BASE: Mapping[str, Mapping[str, Any]] = {
    "model": {"layers": 1, "heads": 2, "width": 16, "hidden": 24, "context": 24},
    "tokenizer": {"kind": "characters"},
    "train": {
        "steps": 20,
        "batch": 6,
        "warmup": 2,
        "evaluate_every": 6,
        "save_every": 4,
        "log_every": 3,
        "threads": 1,
        "device": "cpu",
        "precision": "fp32",
        "learning_rate": 0.01,
    },
    "sample": {"tokens": 8},
}
SOURCES: Mapping[str, list[str]] = {
    "lm": ["book.txt"],
    "masked": ["book.txt"],
    "classify": ["mails.csv"],
    "translate": ["train.en", "train.de"],
    "summarize": ["articles.jsonl"],
}
"""Training files of each task, written by `write_texts`."""


@dataclass(frozen=True)
class Configuration:
    """Settings of one training run.

    Attributes:
        name: name for the option `--only`.
        task: training task.
        changes: settings that differ from `BASE`, by section.
        several: whether two processes, started by torchrun, train the run.
    """

    name: str
    task: str = "lm"
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    several: bool = False

    def sections(self, texts: Path) -> Sections:
        """Return all settings, as in a TOML file."""
        names = {*BASE, *self.changes, "data"}
        found: Sections = {name: {**BASE.get(name, {}), **self.changes.get(name, {})} for name in names}
        found["train"]["task"] = self.task
        sources = [str(texts / name) for name in SOURCES[self.task]]
        found["data"]["source"] = sources[0]
        if len(sources) > 1:
            found["data"]["target"] = sources[1]
        if self.task in ("translate", "summarize"):
            found["model"]["context"] = 80
        return found

    def arguments(self, texts: Path) -> list[str]:
        """Write the settings to a file, and return the arguments of `glass` that start the run."""
        settings = texts / f"{self.name}.toml"
        settings.write_text(tomli_w.dumps(self.sections(texts)), encoding="utf-8")
        return ["train", *self.sources(texts), "--config", str(settings), "--out", "run", "--json"]

    def sources(self, texts: Path) -> list[str]:
        """Return the paths of the training files."""
        return [str(texts / name) for name in SOURCES[self.task]]


def _train(**settings: Any) -> dict[str, dict[str, Any]]:
    return {"train": settings}


DROPOUT = {"dropout_residual": 0.1, "dropout_attention": 0.1, "dropout_embedding": 0.1}
CONFIGURATIONS: tuple[Configuration, ...] = (
    Configuration("lm-constant", changes=_train(schedule="constant")),
    Configuration("lm-linear-accumulation", changes=_train(schedule="linear", micro_batch=2)),
    Configuration("lm-cosine-dropout", changes={"model": DROPOUT, **_train(schedule="cosine")}),
    Configuration("lm-wsd-muon", changes=_train(schedule="wsd", optimizer="muon")),
    Configuration("lm-noam-bf16", changes=_train(schedule="noam", precision="bf16")),
    Configuration(
        "lm-plateau-dropout",
        changes={
            "model": DROPOUT,
            **_train(schedule="plateau", plateau_patience=0, evaluate_every=2, learning_rate=0.3, steps=16),
        },
    ),
    Configuration("lm-muon-bf16-accumulation", changes=_train(optimizer="muon", precision="bf16", micro_batch=4)),
    Configuration("lm-snapshots", changes=_train(snapshots=5)),
    Configuration("lm-early-stopping", changes=_train(patience=2, learning_rate=0.5, evaluate_every=3, steps=90)),
    Configuration("masked-cosine-dropout", "masked", {"model": DROPOUT, **_train(schedule="cosine")}),
    Configuration("classify-linear", "classify", _train(schedule="linear")),
    Configuration("translate-noam-accumulation", "translate", _train(schedule="noam", micro_batch=2)),
    Configuration(
        "translate-plateau-muon", "translate", _train(schedule="plateau", plateau_patience=0, optimizer="muon")
    ),
    Configuration("summarize-wsd-dropout", "summarize", {"model": DROPOUT, **_train(schedule="wsd", steps=12)}),
    Configuration("lm-two-processes", changes={"model": DROPOUT, **_train(micro_batch=2)}, several=True),
    Configuration("lm-two-shards", changes=_train(shard=True, optimizer="muon"), several=True),
)


def write_texts(folder: Path) -> None:
    """Write the training files of all configurations."""
    folder.mkdir(parents=True, exist_ok=True)
    write_all(folder)
