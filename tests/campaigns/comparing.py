"""Compare two run folders, ignoring times; of the manifest, only the text hash and the tokenizers are compared."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

SKIPPED = {"lock"}
SHARD = re.compile(r"optimizer-\d+-of-\d+\.safetensors")
"""Name of a file with one process's part of the optimizer state.

All such files of a checkpoint are compared together, because PyTorch chooses again at each save which process writes
the tensors that all processes have.
"""
TIMES = ("train_seconds",)


def differences(straight: Path, other: Path) -> list[str]:
    """Return a description of each difference between an uninterrupted run and one that was stopped and resumed."""
    wanted = facts(straight)
    found = facts(other)
    missing = [f"{name} is missing" for name in wanted if name not in found]
    more = [f"{name} is left over" for name in sorted({_top(name, wanted) for name in found if name not in wanted})]
    changed = [_change(name, wanted[name], found[name]) for name in wanted if name in found]
    return [*missing, *more, *filter(None, changed)]


def facts(run: Path) -> dict[str, Any]:
    """Return the contents to compare, by path in the run folder; the optimizer shards of a checkpoint are one entry."""
    files = sorted(path for path in run.rglob("*") if path.is_file())
    found: dict[str, Any] = {}
    for path in files:
        name = path.relative_to(run).as_posix()
        if SHARD.fullmatch(path.name):
            pieces = found.setdefault(f"{path.parent.relative_to(run).as_posix()}/optimizer shards", {})
            for tensor, value in sorted(load_file(path).items()):
                pieces.setdefault(tensor, []).append(hashlib.sha256(value.tobytes()).hexdigest())
        elif name not in SKIPPED:
            try:
                found[name] = _content(name, path)
            except (ValueError, KeyError, TypeError):  # damaged: every byte counts
                found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def _top(name: str, wanted: dict[str, Any]) -> str:
    """Return the topmost folder above a file that contains none of the files in `wanted`, or else the file itself."""
    parts = name.split("/")
    tops = ("/".join(parts[:length]) for length in range(1, len(parts)))
    return next((top for top in tops if not any(each.startswith(f"{top}/") for each in wanted)), name)


def _content(name: str, path: Path) -> Any:
    """Return the part of a file's content that must be equal in both runs."""
    if name == "manifest.json":
        facts = json.loads(path.read_text(encoding="utf-8"))
        return {"text_hash": facts["data"]["text_hash"], "id": facts["id"], "files": facts["files"]}
    if path.name == "manifest.json":  # of a checkpoint: names its files; their sums differ with the times
        return sorted(json.loads(path.read_text(encoding="utf-8"))["files"])
    if name == "metrics.jsonl":
        return [_without_times(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
    if path.name == "state.json":
        facts = json.loads(path.read_text(encoding="utf-8"))
        logs = {name: value for name, value in facts["logs"].items() if name != "metrics.jsonl"}  # which has times
        return {**facts, "logs": logs, "progress": _without_times(facts["progress"])}
    if path.suffix in (".txt", ".toml", "") or name in ("best", "last"):
        return path.read_text(encoding="utf-8")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _without_times(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name not in TIMES}


def _change(name: str, wanted: Any, found: Any) -> str:
    """Describe the difference between two contents of a file; return an empty string if they are equal."""
    if wanted == found:
        return ""
    if isinstance(wanted, str) and "\n" in wanted.strip():
        wanted = wanted.splitlines()
        found = found.splitlines()
    if isinstance(wanted, list):
        if len(wanted) != len(found):
            return f"{name} has {len(found)} lines, not {len(wanted)}"
        place = next(index for index, (a, b) in enumerate(zip(wanted, found, strict=True)) if a != b)
        return f"{name} differs in line {place + 1}: {_short(found[place])}, not {_short(wanted[place])}"
    if isinstance(wanted, dict):
        keys = [key for key in {**wanted, **found} if wanted.get(key) != found.get(key)]
        return f"{name} differs in {', '.join(keys)}: {_short(found.get(keys[0]))}, not {_short(wanted.get(keys[0]))}"
    return f"{name} is {_short(found)}, not {_short(wanted)}"


def _short(value: Any) -> str:
    text = str(value).strip()
    return text if len(text) <= 160 else f"{text[:160]}…"
