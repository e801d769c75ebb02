"""A small trainer of each task, for the tests of training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from glassformer.base.config import Config
from glassformer.training.reporting import Silent
from glassformer.training.setup import new_training
from glassformer.training.trainer import Trainer

TASKS = ("lm", "masked", "classify", "translate", "summarize", "chat")
SECTIONS: dict[str, dict[str, Any]] = {
    "model": {"layers": 2, "heads": 2, "width": 14, "hidden": 22, "context": 23, "dropout_residual": 0.1},
    "tokenizer": {"kind": "characters"},
    "train": {"steps": 16, "batch": 5, "warmup": 2, "evaluate_every": 5, "save_every": 4, "log_every": 3, "threads": 1},
    "sample": {"tokens": 5},
}
SOURCES = {
    "lm": "reverse",
    "masked": "reverse",
    "classify": "labels.tsv",
    "translate": "reverse",
    "summarize": "sort",
    "chat": "talks.jsonl",
}


def trainer_of(task: str, folder: Path, name: str = "run", **changes: Any) -> Trainer:
    """Return a small trainer of a task at step 0; give changes as `section__field=value`."""
    sections: dict[str, dict[str, Any]] = {key: dict(values) for key, values in SECTIONS.items()}
    source = SOURCES[task]
    if source.endswith(".tsv"):
        rows = [
            f"{['ab', 'ba', 'aab'][i % 3]} {i} {'xyz'[i % 3] * (1 + i % 11)}\t{['odd', 'even'][i % 2]}"
            for i in range(90)
        ]
        (folder / source).write_text("\n".join(rows) + "\n", encoding="utf-8")
        source = str(folder / source)
    if task == "summarize":  # a table of pairs
        rows = [f"{i * 37 % 1000} {'abc'[i % 3] * (1 + i % 5)}\t{'abc'[i % 3] * (1 + i % 5)}" for i in range(90)]
        (folder / "pairs.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
        source = str(folder / "pairs.tsv")
    if task == "chat":
        talks = [
            {
                "messages": [
                    {"role": "user", "content": f"{i} {'abc'[i % 3]}"},
                    {"role": "assistant", "content": "xyz"[i % 3] * (1 + i % 4)},
                ]
            }
            for i in range(90)
        ]
        (folder / source).write_text("".join(f"{json.dumps(talk)}\n" for talk in talks), encoding="utf-8")
        source = str(folder / source)
    sections["data"] = {"source": source, "size": 150}
    if task in ("lm", "masked"):
        sections["data"]["windows"] = "documents"
    sections["train"]["task"] = task
    for key, value in changes.items():
        section, _, field = key.partition("__")
        sections[section][field] = value
    with new_training(Config.from_dict(sections), folder / name, Silent()) as trainer:
        return trainer
