"""A cache of folders, each named by a hash of what it was made from: whole or absent, whatever is killed meanwhile."""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from glassformer.base.errors import GlassError
from glassformer.base.files import clear_disk_errors, sync
from glassformer.text.store import DamagedStoreError, TokenStore

ABANDONED = 24 * 3600  # seconds after which an unfinished folder is taken for a killed process's
CHECKED_IN_FULL = 64_000_000  # bytes up to which a file is read through before it is used again
Made = TypeVar("Made")


def folder_of(cache: Path, everything: Mapping[str, object]) -> Path:
    """Return the folder of the result, which depends on `everything` and on nothing else."""
    key = hashlib.sha256(json.dumps(everything, sort_keys=True).encode("utf-8")).hexdigest()
    return cache / key[:32]


def reusable(folder: Path, checked: Callable[[Path], Made]) -> Made | None:
    """Return the content of the folder, opened by `checked`; None where it is absent or damaged."""
    if not folder.exists():
        return None
    try:
        return checked(folder)
    except DamagedStoreError:
        return None


def check_store(store: TokenStore) -> None:
    """Compare a store's bytes with their sums, unless they are very many; raises `DamagedStoreError`."""
    if store.tokens.nbytes <= CHECKED_IN_FULL:
        store.verify()


@contextmanager
def building(cache: Path, folder: Path, checked: Callable[[Path], object]) -> Iterator[Path]:
    """A temporary folder beside `folder` that takes its name when the block ends well, and vanishes otherwise."""
    temporary: Path | None = None
    try:
        with clear_disk_errors(cache):
            cache.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(cache)
            temporary = _new_folder(cache, folder.name[:8])
            yield temporary
            sync(temporary)
            _publish(temporary, folder, checked)
            sync(cache)
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def _new_folder(cache: Path, name: str) -> Path:
    """Make a folder with a unique name and the permissions of the umask; `mkdtemp` would allow its owner only."""
    made = cache / f".building-{name}-{secrets.token_hex(8)}"
    made.mkdir()
    return made


def _publish(temporary: Path, folder: Path, checked: Callable[[Path], object]) -> None:
    """Rename into place. Where another process was first, its equally good result stays; a damaged one is replaced."""
    for _ in range(3):
        try:
            temporary.rename(folder)
            return
        except OSError:
            if not folder.exists():
                raise
        if reusable(folder, checked) is not None:
            return
        aside = _new_folder(folder.parent, "damaged")
        try:
            folder.rename(aside / "old")
        except FileNotFoundError:
            pass  # another process was moving it too
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    raise GlassError(f"{folder} keeps changing while it is written", "Stop other commands that use it, then try again.")


def _remove_abandoned(cache: Path) -> None:
    """Delete what killed processes left behind; recent folders may belong to one that is at work."""
    for left in (*cache.glob(".building-*"), *cache.glob("incoming-*")):
        try:
            newest = max(path.stat().st_mtime for path in (left, *left.rglob("*")))
        except OSError:
            continue
        if time.time() - newest > ABANDONED:
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
