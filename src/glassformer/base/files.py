"""Write files and folders atomically: no crash, kill or full disk leaves partial contents at the final path."""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, mkdtemp

from glassformer.base.errors import MALFORMED, GlassError
from glassformer.base.wording import counted

MANIFEST = "manifest.json"
PARTIAL = ".partial"
"""Suffix of the hidden folder in which a file or folder is written; see `temporary_path`."""
OLD = ".old"
"""Suffix of the hidden folder that keeps a folder while `atomic_folder` replaces it."""


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


def output_path(argument: str) -> Path:
    """Return the argument of an option as a path; `glass` holds the lock of paths of this type (`base.locks`).

    Raises:
        GlassError: the argument is not in UTF-8, so that its name could not be written to a file.
    """
    try:
        argument.encode("utf-8")
    except UnicodeEncodeError:
        raise GlassError(f"the path {argument!a} is not in UTF-8", "Choose another path.") from None
    return Path(argument)


def write_text(path: Path, text: str) -> None:
    """Write a small UTF-8 file atomically."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write a small file atomically."""
    with atomic_file(path) as temporary:
        temporary.write_bytes(data)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path; if the block writes a file there without an error, rename the file to `path`.

    An existing file at `path` is replaced, and stays unchanged if the block fails.
    """
    with convert_os_errors(path), temporary_path(path) as temporary:
        yield temporary
        sync(temporary)
        _replace(temporary, path)


@contextmanager
def temporary_path(final: Path) -> Iterator[Path]:
    """Yield a path with the name of `final` in a new hidden folder beside it, from which a rename to `final` is atomic.

    The hidden folder has a random name, such as `.ex.k3v8_0ab.partial`, so that it is never a folder of the user or of
    another process. Only its owner may read it; the file or folder that is made inside has the usual permissions. At
    the end it is removed with its contents. A killed process leaves it behind.
    """
    with TemporaryDirectory(PARTIAL, f".{final.name}.", final.parent, ignore_cleanup_errors=True) as folder:
        yield Path(folder) / final.name


def hidden_folders(folder: Path, names: str, suffix: str = PARTIAL) -> list[Path]:
    """Return the hidden folders in `folder` of files whose names match a pattern: in use, or of killed processes."""
    return list(folder.glob(f".{names}.{'[a-z0-9_]' * 8}{suffix}"))


def refuse_no_file(path: Path, option: str = "--out") -> None:
    """Check that a file can be written to `path`, the value of `option`; call it before long work.

    Raises:
        GlassError: the parent folder does not exist, or `path` is a folder, a device or a pipe.
    """
    if path.is_dir():
        raise GlassError(f"{option} {path} is a folder", "Give the name of a file.")
    if not path.parent.is_dir():
        raise GlassError(f"there is no folder {path.parent} to write {path.name} into", "Create it first.")
    if path.exists() and not path.is_file():
        raise GlassError(f"{option} {path} is not a regular file", "Give the name of a new file.")


def refuse_taken(out: Path) -> None:
    """Raise a `GlassError` if `out` exists, even as a broken symbolic link; an empty folder is allowed."""
    with convert_os_errors(out):
        taken = any(out.iterdir()) if out.is_dir() else out.exists() or out.is_symlink()
    if taken:
        raise GlassError(f"{out} already exists and is not overwritten", f"Choose another --out, or move {out} away.")


@contextmanager
def new_output(out: Path) -> Iterator[Path]:
    """Yield a temporary path; if the block writes a file or folder there without an error, rename it to `out`.

    `out` appears when it is complete. Missing parent folders are created, and removed again if the block fails.

    Raises:
        GlassError: `out` exists and is not an empty folder, or the disk cannot be written. Errors of the block are
            passed on.
    """
    refuse_taken(out)
    final = out.resolve()
    with no_empty_folders(final.parent), convert_os_errors(out):
        final.parent.mkdir(parents=True, exist_ok=True)
        with temporary_path(final) as temporary:
            yield temporary
            for path in (*temporary.rglob("*"), temporary):
                sync(path)
            refuse_taken(out)  # another program may have created it meanwhile
            if out.is_dir():
                final.rmdir()  # on Windows, no folder can be renamed to an existing one
            _replace(temporary, final)
            sync(final.parent)


def write_folder(final: Path, fill: Callable[[Path], None]) -> None:
    """Call `fill` with a temporary folder, and rename the folder to `final`; see `atomic_folder`."""
    with atomic_folder(final) as temporary:
        fill(temporary)


@contextmanager
def atomic_folder(final: Path) -> Iterator[Path]:
    """Yield an empty folder to fill; if the block ends without an error, write its manifest and rename it to `final`.

    An existing folder at `final` is replaced: it is kept in a hidden folder until the new folder is in place. A process
    that is killed in between leaves it there, and `restore_folder` renames it back.
    """
    with convert_os_errors(final), temporary_path(final) as temporary:
        temporary.mkdir()
        yield temporary
        write_manifest(temporary)
        old_home = Path(mkdtemp(OLD, f".{final.name}.", final.parent)) if final.exists() else None
        try:
            if old_home is not None:
                _replace(final, old_home / final.name)
            _replace(temporary, final)
            sync(final.parent)
        except BaseException:
            restore_folder(final)
            raise
        if old_home is not None:
            rmtree(old_home, ignore_errors=True)


def write_manifest(folder: Path) -> None:
    """Write the manifest of a folder of files, with their sizes and SHA-256 hashes, and flush all to the disk."""
    files = sorted(folder.iterdir())
    manifest = {path.name: {"bytes": path.stat().st_size, "sha256": sha256(path)} for path in files}
    write_text(folder / MANIFEST, json.dumps({"files": manifest}, indent=1))
    for path in (*files, folder):
        sync(path)


def old_folder(final: Path) -> Path | None:
    """Return the folder that a killed `atomic_folder` had not yet replaced at `final`; None if there is none."""
    homes = hidden_folders(final.parent, glob.escape(final.name), OLD)
    return next((home / final.name for home in homes if (home / final.name).is_dir()), None)


def restore_folder(final: Path) -> None:
    """Undo or complete interrupted replacements by `atomic_folder`: rename the old folder back if `final` is missing.

    The caller must be the only process that writes `final`.
    """
    old = old_folder(final)
    if old is not None and not final.exists():
        _replace(old, final)
    if final.exists():
        for home in hidden_folders(final.parent, glob.escape(final.name), OLD):
            rmtree(home, ignore_errors=True)


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
        try:
            altered = sha256(path) != digest
        except FileNotFoundError:  # training has just deleted the checkpoint
            raise GlassError(f"{path} is missing", remedy) from None
        if altered:
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


def has_prefix(path: Path, size: int, digest: str) -> bool:
    """Return whether the first `size` bytes of a file have this SHA-256; False if the file is shorter."""
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        while size and (block := file.read(min(size, 1 << 20))):
            hasher.update(block)
            size -= len(block)
    return not size and hasher.hexdigest() == digest


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
