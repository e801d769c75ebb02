"""Train runs once, and copy them for every test module and worker that needs the same runs.

The runs are stored in `.pytest_cache/trained`, under a hash of everything that determines the result of training: all
files of the package, the helper modules of the tests, the settings, the versions and the processor. A change to any of
them causes new training; `pytest --cache-clear` deletes all stored runs.
"""

from __future__ import annotations

import functools
import hashlib
import json
import platform
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from filelock import FileLock

import glassformer
from glassformer.base.sealed import write_sealed

ROOT = Path(__file__).parents[1]
SOURCE = Path(glassformer.__file__).parent
STORE = ROOT / ".pytest_cache" / "trained"
DAY = 24 * 60 * 60


def trained(folder: Path, name: str, settings: object, make: Callable[[Path], object]) -> Path:
    """Fill `folder` with a copy of the files that `make` writes, and return it; call `make` only if no copy is stored.

    Args:
        folder: folder to fill, which a test may change.
        name: prefix of the stored folder's name, for people who look into the store.
        settings: everything that `make` depends on besides the package and the helpers; must be JSON serializable.
        make: function that writes the files and runs into an empty folder.
    """
    key = hashlib.sha256(f"{digest()} {name} {json.dumps(settings, sort_keys=True)}".encode()).hexdigest()[:20]
    home = STORE / f"{name}-{key}"
    home.mkdir(parents=True, exist_ok=True)
    made = home / "made"
    whole = home / "whole"  # exists once `make` has ended
    with FileLock(home / "lock"):
        if not whole.exists():
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir()
            make(made)
            whole.touch()
            forget_old()
    copy_runs(made, folder)
    return folder


def copy_runs(original: Path, folder: Path) -> None:
    """Copy a folder of texts, runs and encoded texts; the copied runs refer to the copied encoded texts."""
    shutil.copytree(original, folder, dirs_exist_ok=True)
    for file in folder.rglob("manifest.json"):
        facts = json.loads(file.read_text(encoding="utf-8"))
        tokens = Path(facts.get("data", {}).get("tokens", ""))
        if tokens.is_relative_to(original):
            facts["data"]["tokens"] = str(folder / tokens.relative_to(original))
            write_sealed(file, facts)


def forget_old() -> None:
    """Delete the folders that were made more than a day ago."""
    for whole in STORE.glob("*/whole"):
        if time.time() - whole.stat().st_mtime > DAY:
            shutil.rmtree(whole.parent, ignore_errors=True)


@functools.cache
def digest() -> str:
    """Return a hash of the package, the helpers of the tests, the versions and the processor."""
    helpers = [path for path in (ROOT / "tests").rglob("*.py") if not path.name.startswith("test_")]
    where = [platform.platform(), platform.python_version(), torch.__version__, torch.backends.cpu.get_cpu_capability()]
    return digest_of([*SOURCE.rglob("*"), *helpers], where)


def digest_of(files: Iterable[Path], words: Iterable[str]) -> str:
    """Return a hash of `words` and of the names and contents of `files`; `.pyc` files are left out."""
    found = hashlib.sha256(json.dumps(list(words)).encode())
    for path in sorted(files):
        if path.is_file() and path.suffix != ".pyc":
            found.update(f"{path} {path.stat().st_size}\n".encode())
            found.update(path.read_bytes())
    return found.hexdigest()
