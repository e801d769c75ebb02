"""Write files and folders atomically: no crash, kill or full disk leaves partial contents at the final path."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from glassformer.base.errors import MALFORMED, GlassError
from glassformer.base.wording import counted

MANIFEST = "manifest.json"
PARTIAL = ".partial"
"""Suffix of a file or folder while it is being written."""
OLD = ".old"
"""Suffix of a folder while it is being replaced."""


@contextmanager
def no_empty_folders(folder: Path) -> Iterator[None]:
    """On exit, remove `folder` and its parents if they are empty and did not exist on entry."""
    with convert_os_errors(folder):
        new_folders = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        yield
    finally:
        for path in new_folders:
            with suppress(OSError):
                path.rmdir()


@contextmanager
def convert_os_errors(path: Path) -> Iterator[None]:
    """Convert errors of the operating system (except `BrokenPipeError`) inside the context to a `GlassError`."""
    try:
        yield
    except BrokenPipeError:  # not a disk error: the program that reads our output has closed the pipe
        raise
    except PermissionError as error:
        raise GlassError(
            f"no permission to use {error.filename or path}", "Change its permissions, or choose another path."
        ) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
            problem = "the disk is full" if error.errno == errno.ENOSPC else "the disk quota is exceeded"
            raise GlassError(
                f"{problem}: {error.filename or path} could not be written",
                "Free some space and run the command again; everything written before is intact.",
            ) from error
        if error.errno in (errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG):
            verb = "write" if error.errno in (errno.EROFS, errno.EEXIST) else "use"
            raise GlassError(
                f"cannot {verb} {error.filename or path}: {error.strerror}", "Choose another path."
            ) from error
        raise GlassError(
            f"cannot use {error.filename or path}: {error.strerror or error}", "Check the path and the disk."
        ) from error


def write_text(path: Path, text: str) -> None:
    """Write a small UTF-8 file atomically."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write a small file atomically."""
    with convert_os_errors(path):
        partial = partial_path(path)
        try:
            with partial.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            _replace(partial, path)
        except OSError:
            partial.unlink(missing_ok=True)
            raise


def partial_path(path: Path) -> Path:
    """Return a temporary path beside `path` with a random name, so that two processes do not write the same file."""
    return path.with_name(f"{path.name}.{secrets.token_hex(4)}{PARTIAL}")


def refuse_no_folder(path: Path) -> None:
    """Raise a `GlassError` if the parent folder of `path` does not exist; call it before long work."""
    if not path.parent.is_dir():
        raise GlassError(f"there is no folder {path.parent} to write {path.name} into", "Create it first.")


def write_folder(final: Path, fill: Callable[[Path], None]) -> None:
    """Write a folder of files atomically, with a manifest of their sizes and SHA-256 hashes.

    Args:
        final: path of the folder; an existing folder is replaced.
        fill: function that writes the files into the folder that it receives.
    """
    with atomic_folder(final) as partial:
        fill(partial)


@contextmanager
def atomic_folder(final: Path) -> Iterator[Path]:
    """Yield an empty folder to fill; if the block ends without an error, write its manifest and rename it to `final`.

    An existing folder at `final` is replaced: it is named `final` + ".old" until the new folder is in place. A process
    that is killed in between leaves the old folder under that name, and `restore_folder` renames it back.
    """
    partial = partial_path(final)
    with convert_os_errors(final):
        try:
            partial.mkdir(parents=True)
            yield partial
            files = sorted(path for path in partial.iterdir())
            manifest = {path.name: {"bytes": path.stat().st_size, "sha256": sha256(path)} for path in files}
            write_text(partial / MANIFEST, json.dumps({"files": manifest}, indent=1))
            for path in files:
                sync(path)
            sync(partial)
            if final.exists():
                shutil.rmtree(old_path(final), ignore_errors=True)
                _replace(final, old_path(final))
            _replace(partial, final)
            sync(final.parent)
        except BaseException:
            restore_folder(final)
            shutil.rmtree(partial, ignore_errors=True)
            raise
        shutil.rmtree(old_path(final), ignore_errors=True)


def old_path(final: Path) -> Path:
    """Return the path to which `atomic_folder` renames an existing folder `final` while it replaces the folder."""
    return final.with_name(final.name + OLD)


def restore_folder(final: Path) -> None:
    """Undo an interrupted replacement by `atomic_folder`: if `final` is missing, rename the old folder back to it."""
    if old_path(final).exists() and not final.exists():
        _replace(old_path(final), final)


def is_complete(folder: Path) -> bool:
    """Return whether a folder with a manifest, written by `atomic_folder`, is complete and unaltered."""
    try:
        check_folder(folder)
    except GlassError:
        return False
    return True


def check_folder(folder: Path) -> None:
    """Compare the files of a folder with its manifest.

    Raises:
        GlassError: the manifest is missing or damaged, or a file is missing, truncated or altered; the error names the
            first such file.
    """
    remedy = "Replace the folder with an intact copy."
    try:
        entries = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        manifest = {str(name): (int(facts["bytes"]), str(facts["sha256"])) for name, facts in entries.items()}
    except (FileNotFoundError, NotADirectoryError):
        raise GlassError(f"{folder} is not complete: it has no {MANIFEST}", remedy) from None
    except MALFORMED:
        raise GlassError(f"{folder / MANIFEST} is damaged", remedy) from None
    for name, (expected_size, digest) in manifest.items():
        path = folder / name
        size = path.stat().st_size if path.is_file() else -1
        if size != expected_size:
            if size < 0:
                raise GlassError(f"{path} is missing", remedy)
            state = "truncated" if size < expected_size else "longer than recorded"
            raise GlassError(f"{path} is {state}: it has {counted(size, 'bytes')}, not {expected_size:,}", remedy)
        if sha256(path) != digest:
            raise GlassError(f"{path} was altered: its SHA-256 differs", remedy)


def recorded_sha256(folder: Path, name: str) -> str | None:
    """Return the SHA-256 that the manifest of a folder records for a file.

    Return None if the manifest does not list the file, or is missing or damaged.

    The file itself is not read, so this is fast even for large weights. `check_folder` compares the file with
    the hash.
    """
    try:
        return str(json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"][name]["sha256"])
    except (OSError, *MALFORMED):
        return None


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file as a hex string."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Flush a file or the entries of a folder to the disk; on Windows, folders cannot be opened and are skipped."""
    if path.is_dir() and os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY if os.name != "nt" else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace(source: Path, target: Path) -> None:
    """Rename a file or folder; on Windows, retry for two seconds, because another program may have the target open."""
    for _ in range(20 if os.name == "nt" else 0):
        try:
            source.replace(target)
            return
        except PermissionError:
            time.sleep(0.1)
    source.replace(target)
