"""A cache of folders named by a hash of their inputs; a folder is complete or absent, even if a process is killed."""

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
from glassformer.base.files import convert_os_errors, sync
from glassformer.text.store import DamagedStoreError, TokenStore

ABANDONED = 24 * 3600  # seconds after which we assume that a killed process left an unfinished folder
CHECKED_IN_FULL = 64_000_000  # size in bytes of the largest file whose checksum is verified before reuse
Content = TypeVar("Content")


def folder_of(cache: Path, inputs: Mapping[str, object]) -> Path:
    """Return the cache folder of a result, named by a hash of the `inputs` that determine the result."""
    key = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode("utf-8")).hexdigest()
    return cache / key[:32]


def reusable(folder: Path, open_folder: Callable[[Path], Content]) -> Content | None:
    """Return the content of a folder, opened by `open_folder`; None if it is absent or damaged."""
    if not folder.exists():
        return None
    try:
        return open_folder(folder)
    except DamagedStoreError:
        return None


def check_store(store: TokenStore) -> None:
    """Verify the checksums of a store, unless its tokens have more than `CHECKED_IN_FULL` bytes.

    Raises:
        DamagedStoreError: a file was altered.
    """
    if store.tokens.nbytes <= CHECKED_IN_FULL:
        store.verify()


@contextmanager
def building(cache: Path, folder: Path, open_folder: Callable[[Path], object]) -> Iterator[Path]:
    """Yield a temporary folder; when the `with` block ends, rename it to `folder`, or, after an error, delete it.

    If another process has made `folder` in the meantime, and `open_folder` can open it, it is kept.
    """
    temporary: Path | None = None
    try:
        with convert_os_errors(cache):
            cache.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(cache)
            temporary = _new_folder(cache, folder.name[:8])
            yield temporary
            sync(temporary)
            _publish(temporary, folder, open_folder)
            sync(cache)
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def _new_folder(cache: Path, name: str) -> Path:
    """Make a folder with a unique name and the permissions of the umask; with `mkdtemp`, only its owner has access."""
    folder = cache / f".building-{name}-{secrets.token_hex(8)}"
    folder.mkdir()
    return folder


def _publish(temporary: Path, folder: Path, open_folder: Callable[[Path], object]) -> None:
    """Rename a temporary folder to `folder`; replace a damaged folder, but keep an undamaged one."""
    for _ in range(3):
        try:
            temporary.rename(folder)
            return
        except OSError:
            if not folder.exists():
                raise
        if reusable(folder, open_folder) is not None:
            return
        trash_folder = _new_folder(folder.parent, "damaged")
        try:
            folder.rename(trash_folder / "old")
        except FileNotFoundError:
            pass  # another process has moved it
        finally:
            shutil.rmtree(trash_folder, ignore_errors=True)
    raise GlassError(f"{folder} keeps changing while it is written", "Stop other commands that use it, then try again.")


def _remove_abandoned(cache: Path) -> None:
    """Delete files and folders of killed processes, except recent ones, whose process may still be running."""
    for entry in (*cache.glob(".building-*"), *cache.glob("incoming-*")):
        try:
            newest = max(path.stat().st_mtime for path in (entry, *entry.rglob("*")))
        except OSError:
            continue
        if time.time() - newest > ABANDONED:
            shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)
