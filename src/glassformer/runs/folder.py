"""The run folder: all files of one training run, sufficient to use the run on another machine.

::

    config.toml     all settings; written last when the folder is created, and marks the folder as a run
    manifest.json   versions, commands, and the source of the text with its hash
    tokenizer.json  the tokenizer; in an encoder-decoder, the tokenizer of the target
    source_tokenizer.json  the tokenizer of the source, if the source has a separate vocabulary
    labels.json     the names of a classifier's labels
    metrics.jsonl   loss, learning rate, gradient norm, tokens and training seconds at each logged step
    samples.txt     a sample of the model's output at each evaluation
    loss.svg        the loss curve
    checkpoints/step-000850/model.safetensors, optimizer.safetensors  weights and optimizer state (sharded runs:
                    optimizer-1-of-2.safetensors and so on, one file for each process)
    checkpoints/step-000850/state.json, manifest.json  the rest of the training state, and a hash of each file
    best  last      one line each: the name of a checkpoint; before the first evaluation, both name the newest one
    snapshots/step-000850.npz  scores of the attention heads, if train.snapshots is above 0
    plan.json       the forecast, if the run was measured before it started, and its outcome
    verify.json     the last complete report of glass verify
    chat_template.jinja  the chat template: a copy of data.chat_template for other programs; in a run of task lm, a
                    template added by the user or by glass import
    lock            held by the training process from its first write to its last
    glassformer.creating  present while the folder is created; remains if the process is killed meanwhile

The encoded text is beside the run, in `../.tokens/HASH`, where runs on the same text share it, or in the folder that
`glass data encode` wrote.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, get_args

from glassformer import __version__
from glassformer.base.config import Config, Task
from glassformer.base.errors import MALFORMED, GlassError, nearest
from glassformer.base.files import (
    OLD,
    check_folder,
    convert_os_errors,
    hidden_folders,
    is_complete,
    no_empty_folders,
    old_folder,
    recorded_sha256,
    restore_folder,
    write_text,
)
from glassformer.base.wording import quoted

Which = Literal["best", "last"]
CHECKPOINT = re.compile(r"step-[0-9]+")
"""Pattern of the name of a checkpoint folder."""
Folder = str | PathLike[str]
"""Accepted types for the path of a folder."""
READINGS = 100
"""Maximum number of checkpoints that a reader tries while training replaces them."""
Value = TypeVar("Value")
FORMAT = 1
"""Format version of run folders, stored in `manifest.json`. It increases when older versions cannot read newer runs."""
CREATING = "glassformer.creating"
"""Name of a file that is present while a run folder is created, and remains if the process is killed."""
CREATING_TEXT = "This run is being created. If the process was killed, run the same command again to start over.\n"
CHAT_TEMPLATE_FILE = "chat_template.jinja"
"""File name of the chat template in a run folder, and in a model folder of Hugging Face."""
WRITTEN_BEFORE_CONFIG = ("manifest.json", "tokenizer.json", "source_tokenizer.json", "labels.json", CHAT_TEMPLATE_FILE)
"""Files of a run that are written before `config.toml`, which marks the folder as a run."""
WRITTEN_BY_TRAINING = (
    *WRITTEN_BEFORE_CONFIG,
    "config.toml",
    "metrics.jsonl",
    "samples.txt",
    "loss.svg",
    "best",
    "last",
)
"""Files that training writes; `Run.clean_up` removes what killed processes left of them."""


@dataclass(frozen=True)
class ParentEntry:
    """The entry `parent` in the manifest of a run that started from another run.

    Attributes:
        run: the folder of the parent.
        task: the task of the parent.
        checkpoint: the name of the checkpoint whose weights the run started from.
        weights_sha256: SHA-256 of these weights.
        data: the source of the parent's text, the hash of that text and the token folder, as in `Run.manifest`.
        data_settings: the settings of the parent in section `data`.
        imported: the entry `imported` in the parent's manifest; None: the parent was not imported.
        parent: the entry of the parent's parent, as JSON; None: the parent has no parent.
    """

    run: str
    task: Task
    checkpoint: str
    weights_sha256: str
    data: Mapping[str, Any]
    data_settings: Mapping[str, Any]
    imported: Mapping[str, Any] | None = None
    parent: Mapping[str, Any] | None = None

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """Create the entry from JSON; unknown fields, which later versions may write, are ignored.

        Raises:
            KeyError, TypeError: the entry is damaged.
        """
        needed = ("run", "task", "checkpoint", "weights_sha256", "data", "data_settings")
        entry = cls(
            **{name: facts[name] for name in needed}, imported=facts.get("imported"), parent=facts.get("parent")
        )
        strings = [entry.run, entry.task, entry.checkpoint, entry.weights_sha256]
        strings += [entry.data[name] for name in ("source", "text_hash", "tokens")]
        if not all(isinstance(each, str) for each in strings):
            raise TypeError("the names, hashes and data of a parent must be strings")
        return entry

    def facts(self) -> dict[str, Any]:
        """Return the entry as JSON values."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Run:
    """A run folder: its paths, and methods that read and write its files."""

    folder: Path

    @property
    def tokenizer_file(self) -> Path:
        """Return the path of the tokenizer."""
        return self.folder / "tokenizer.json"

    @property
    def source_tokenizer_file(self) -> Path:
        """Return the path of the source's tokenizer; the file exists only if the source has a separate vocabulary."""
        return self.folder / "source_tokenizer.json"

    def labels(self) -> tuple[str, ...]:
        """Return the names of a classifier's labels, in the order of the model's outputs; empty for other runs.

        Raises:
            GlassError: the file is damaged.
        """
        path = self.folder / "labels.json"
        try:
            return tuple(map(str, json.loads(path.read_text(encoding="utf-8")))) if path.exists() else ()
        except MALFORMED:
            raise GlassError(f"{path} is damaged", "Copy it from the original run folder.") from None

    def save_labels(self, names: Sequence[str]) -> None:
        """Write the names of the labels to `labels.json`."""
        write_text(self.folder / "labels.json", json.dumps(names, ensure_ascii=False) + "\n")

    def chat_template(self) -> str | None:
        """Return the chat template; None if there is none.

        Raises:
            GlassError: the template cannot be read.
        """
        path = self.folder / CHAT_TEMPLATE_FILE
        try:
            return path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise GlassError(
                f"{path} cannot be read: {error}",
                "Make it a readable UTF-8 file, or copy it from the original run folder.",
            ) from None

    def save_chat_template(self, source: str) -> None:
        """Write the chat template to `chat_template.jinja`, for this program and others."""
        write_text(self.folder / CHAT_TEMPLATE_FILE, source)

    @property
    def metrics_file(self) -> Path:
        """Return the path of the metrics: JSON lines with step, tokens, train_seconds, loss, learning_rate and more."""
        return self.folder / "metrics.jsonl"

    @property
    def samples_file(self) -> Path:
        """Return the path of the file with the samples that the model generated at each evaluation."""
        return self.folder / "samples.txt"

    @property
    def altered(self) -> str | None:
        """Return an experiment's change to the model, such as "no causal mask"; None: no change.

        Such a change is not part of the settings.
        """
        return self._manifest_or_empty().get("altered")

    @property
    def parent_weights_sha256(self) -> str | None:
        """Return the SHA-256 of the parent's weights that the run started from; None if no parent is known."""
        with suppress(GlassError):
            parent = self.parent_entry()
            return None if parent is None else parent.weights_sha256
        return None

    def recorded_weights_sha256(self) -> set[str]:
        """Return the SHA-256 of the weights of every checkpoint whose manifest records it."""
        digests = (recorded_sha256(folder, "model.safetensors") for folder in self.all_checkpoints())
        return {digest for digest in digests if digest is not None}

    def _manifest_or_empty(self) -> dict[str, Any]:
        """Return the contents of `manifest.json`; empty if it is missing or damaged."""
        try:
            return dict(json.loads((self.folder / "manifest.json").read_text(encoding="utf-8")))
        except (OSError, *MALFORMED):
            return {}

    @property
    def checkpoints_folder(self) -> Path:
        """Return the path of the folder with one subfolder for each checkpoint, such as `step-000100`."""
        return self.folder / "checkpoints"

    def config(self) -> Config:
        """Return the settings of the run.

        Raises:
            GlassError: the run was made by a later version of this program, or `config.toml` cannot be read or is not
                valid.
        """
        version = self._manifest_or_empty().get("format", FORMAT)
        if not isinstance(version, int) or version > FORMAT:
            raise GlassError(
                f"{self.folder} was made by a later version of glassformer: its format is {version}, but this version "
                f"({__version__}) reads formats only up to {FORMAT}",
                "Install a newer glassformer.",
            )
        return Config.read(self.folder / "config.toml")

    def manifest(self) -> dict[str, Any]:
        """Return the manifest: versions, command, and under `data` the source, its hash and the token folder.

        `data.parts` has a hash of each split; it is None in runs of older versions.

        Raises:
            GlassError: the file is missing or damaged.
        """
        path = self.folder / "manifest.json"
        try:
            facts = dict(json.loads(path.read_text(encoding="utf-8")))
            data: dict[str, Any] = {name: str(facts["data"][name]) for name in ("source", "text_hash", "tokens")}
            data["parts"] = facts["data"].get("parts")
        except FileNotFoundError:
            raise GlassError(f"{path} is missing", "Copy it from the original run folder.") from None
        except MALFORMED:
            raise GlassError(f"{path} is damaged", "Copy it from the original run folder.") from None
        return {**facts, "data": data}

    def other_loss(self) -> str | None:
        """Return the name of the function that replaced the loss of the task in training; None if none did."""
        try:
            name = json.loads((self.folder / "manifest.json").read_text(encoding="utf-8")).get("other_loss")
        except (OSError, *MALFORMED):  # commands that need the manifest report it
            return None
        return None if name is None else str(name)

    def parent_entry(self) -> ParentEntry | None:
        """Return the manifest's entry for the run that this run started from; None if there is no parent.

        Raises:
            GlassError: the manifest is missing or damaged.
        """
        entry = self.manifest().get("parent")
        try:
            return None if entry is None else ParentEntry.from_facts(entry)
        except MALFORMED:
            path = self.folder / "manifest.json"
            raise GlassError(f"{path} is damaged", "Copy it from the original run folder.") from None

    def checkpoint_name(self, which: Which = "best") -> str | None:
        """Return the name of the checkpoint in the file `best` or `last`; None if the file is missing or damaged."""
        try:
            return (self.folder / which).read_text(encoding="utf-8").strip() or None
        except (OSError, UnicodeDecodeError):
            return None

    def checkpoint(self, which: Which = "best") -> Path:
        """Return the checkpoint folder that `best` or `last` names, after verifying every byte.

        Raises:
            GlassError: there is no such checkpoint, or it is truncated or altered.
        """
        if which not in get_args(Which):
            raise GlassError(f"there is no checkpoint {which!r}", "Give best or last.")
        try:
            name = (self.folder / which).read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            raise GlassError(
                f"{self.folder} has no {which} checkpoint", f"To create it, resume training: {self._resume_command()}"
            ) from None
        except UnicodeDecodeError:
            name = ""
        if not CHECKPOINT.fullmatch(name):  # the file could name a path outside of the run folder
            raise GlassError(
                f"{self.folder / which} is damaged: it names no checkpoint",
                f"To write it again, resume training: {self._resume_command()}",
            )
        folder = self.checkpoints_folder / name
        if not folder.exists():  # a process may have been killed while it replaced the checkpoint
            folder = old_folder(folder) or folder
        try:
            check_folder(folder)
        except GlassError as error:
            others = [path.name for path in self.complete_checkpoints() if path != folder]
            complete = f"Complete checkpoints: {', '.join(others)}. To resume: {self._resume_command()}"
            remedy = complete if others else "Restore the checkpoint from a copy of the run, or train a new run."
            raise GlassError(error.problem, remedy) from None
        return folder

    def read_checkpoint(self, which: Which, read: Callable[[Path], Value]) -> tuple[Path, Value]:
        """Verify a checkpoint and read it, and return its folder and the result of `read`.

        Training deletes a checkpoint soon after `best` or `last` names its successor. If that happens before `read` has
        returned, the successor is read. The folder may be missing later: `read` must read all that will be needed.

        Args:
            which: "best" or "last".
            read: function that receives the folder of the checkpoint.

        Raises:
            GlassError: as in `checkpoint`; the error of `read`; or training deletes every checkpoint too early.
        """
        for _ in range(READINGS):
            name = self.checkpoint_name(which)
            try:
                folder = self.checkpoint(which)
                return folder, read(folder)
            except (GlassError, FileNotFoundError):
                if self.checkpoint_name(which) == name:
                    raise
        raise GlassError(
            f"{self.folder} is being trained, and each of its checkpoints is replaced before it can be read",
            "Wait until training has ended, or stop it with Ctrl-C; a larger train.save_every helps too.",
        )

    def _resume_command(self) -> str:
        return f"glass train --resume --out {quoted(self.folder)}"

    @property
    def snapshots_folder(self) -> Path:
        """Return the path of the folder of attention snapshots; it exists only if `train.snapshots` is above 0."""
        return self.folder / "snapshots"

    def all_checkpoints(self) -> list[Path]:
        """Return all checkpoints, complete or damaged, oldest first."""
        return sorted(filter(_is_checkpoint, self.checkpoints_folder.glob("step-*")), key=step_of)

    def complete_checkpoints(self) -> list[Path]:
        """Return all complete checkpoints, oldest first."""
        return [path for path in self.all_checkpoints() if is_complete(path)]

    def point(self, which: Which, checkpoint: Path) -> None:
        """Point `best` or `last` to a checkpoint; a pointer that is already correct is not rewritten."""
        path = self.folder / which
        text = checkpoint.name + "\n"
        if not path.is_file() or path.read_bytes() != text.encode("utf-8"):
            write_text(path, text)

    def remove_other_checkpoints(self, names: Collection[str]) -> None:
        """Delete all checkpoints whose names are not in `names`. The caller must hold the run's lock."""
        for path in self.all_checkpoints():
            if path.name not in names:
                shutil.rmtree(path, ignore_errors=True)

    def clean_up(self) -> None:
        """Undo or complete interrupted replacements of checkpoints, and remove partial files of killed processes.

        The caller must hold the run's lock.
        """
        with convert_os_errors(self.folder):
            for old in hidden_folders(self.checkpoints_folder, "step-*", OLD):
                restore_folder(self.checkpoints_folder / old.name.split(".")[1])
            _remove_hidden(self.checkpoints_folder, ("step-*",))
            _remove_hidden(self.folder, (*WRITTEN_BY_TRAINING, CREATING))
            (self.folder / CREATING).unlink(missing_ok=True)


def step_of(checkpoint: Path) -> int:
    """Return the step in the name of a checkpoint."""
    return int(checkpoint.name.removeprefix("step-"))


def _is_checkpoint(path: Path) -> bool:
    return CHECKPOINT.fullmatch(path.name) is not None


def create_run(
    folder: Path, config: Config, facts: dict[str, Any], add: Callable[[Run], None] = lambda run: None
) -> Run:
    """Create a run folder with its settings and manifest.

    `config.toml` is written last and marks the folder as a run. Files of an interrupted creation are replaced.

    Args:
        folder: the folder; it may be missing, be empty, or contain a lock or the files of an interrupted creation.
        config: all settings.
        facts: further entries of the manifest, such as `data` and hashes.
        add: function that writes the other files of the run, such as the tokenizer.

    Raises:
        GlassError: the folder contains a run or other files, or cannot be written.
    """
    run = Run(folder)
    refuse_existing(folder)
    manifest = {
        "format": FORMAT,
        "glassformer": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": package_versions(),
        "command": sys.argv,
        **facts,
    }
    with no_empty_folders(folder):
        try:
            with convert_os_errors(folder):
                folder.mkdir(parents=True, exist_ok=True)
                _remove_unfinished(folder)
            write_text(folder / CREATING, CREATING_TEXT)
            with convert_os_errors(folder):
                run.checkpoints_folder.mkdir()
            write_text(folder / "manifest.json", json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")
            add(run)
            write_text(folder / "config.toml", config.to_toml())
            with convert_os_errors(folder):
                (folder / CREATING).unlink()
        except BaseException:
            (folder / "config.toml").unlink(missing_ok=True)
            _remove_unfinished(folder)
            raise
    return run


def package_versions() -> dict[str, str]:
    """Return the versions of the packages that affect numerical results."""
    return {name: metadata.version(name) for name in ("torch", "numpy", "tokenizers", "safetensors")}


def _is_unfinished(folder: Path) -> bool:
    """Return whether the creation of a run in this folder was begun, but not finished."""
    return (folder / CREATING).is_file()


def _remove_unfinished(folder: Path) -> None:
    """Remove the files of a run whose creation was interrupted, and no other files."""
    for name in WRITTEN_BEFORE_CONFIG:
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):
        (folder / "checkpoints").rmdir()
    _remove_hidden(folder, (*WRITTEN_BEFORE_CONFIG, "config.toml", CREATING))
    (folder / CREATING).unlink(missing_ok=True)


def _remove_hidden(folder: Path, names: Collection[str]) -> None:
    """Remove the hidden folders in which killed processes were writing these files."""
    for name in names:
        for path in hidden_folders(folder, name):
            shutil.rmtree(path, ignore_errors=True)


def refuse_existing(folder: Path) -> None:
    """Raise a `GlassError` unless `folder` is missing or empty, so that no file is overwritten by mistake.

    The lock is allowed, and so are the files of an interrupted creation, which `create_run` replaces.
    """
    if (folder / "config.toml").exists():
        raise GlassError(
            f"{folder} already contains a run",
            f"Choose another --out, or resume this run: glass train --resume --out {quoted(folder)}",
        )
    if folder.exists() and not folder.is_dir():
        raise GlassError(f"{folder} is a file, not a folder", "Choose another --out.")
    names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if "lock" in names and (folder / "lock").is_file() and not (folder / "lock").stat().st_size:
        names.remove("lock")
    begun = (CREATING, *WRITTEN_BEFORE_CONFIG, "config.toml") if _is_unfinished(folder) else (CREATING,)
    names -= {path.name for name in begun for path in hidden_folders(folder, name)}
    if _is_unfinished(folder):
        names -= {"checkpoints", *begun}
    if names:
        raise GlassError(
            f"{folder} is not empty: it contains {min(names)}", "Choose another --out, or empty that folder."
        )


def open_run(folder: Folder, altered: str | None = None) -> Run:
    """Open the run in a folder.

    Args:
        folder: folder of the run.
        altered: the value that `Run.altered` must have; None for a run that is not part of an experiment.

    Raises:
        GlassError: there is no run (if there is no such folder, the error suggests other runs), or
            `Run.altered` differs from `altered`.
    """
    folder = Path(folder)
    if (folder / "config.toml").is_file():
        if (recorded_change := Run(folder).altered) != altered:
            if recorded_change:
                raise GlassError(
                    f"{folder} is part of an experiment: its model has {recorded_change}",
                    "Only glass compare opens such a run: choose another run.",
                )
            raise GlassError(
                f"{folder} is an ordinary run, not the run of an experiment with {altered}",
                "Choose another folder with --out.",
            )
        return Run(folder)
    nearby_runs = runs_near(folder)
    if folder.is_dir():
        raise GlassError(
            f"{folder} is not a run: it has no config.toml",
            "Give the folder of a run, as created by glass train or glass import.",
        )
    remedy = nearest(str(folder), nearby_runs) if nearby_runs else "Train one first: glass train DATA --out RUN"
    raise GlassError(f"there is no run at {folder}", remedy)


def runs_near(folder: Path) -> list[str]:
    """Return the paths of the runs beside `folder` and in `runs`, the default parent folder of runs."""
    parents = dict.fromkeys((folder.parent, Path("runs")))
    return [str(run.folder) for parent in parents for run in list_runs(parent)]


def list_runs(parent: Path) -> list[Run]:
    """Return the runs in a folder, except runs still being created; the most recently created or trained is last."""
    if not parent.is_dir():
        return []
    configs = [path / "config.toml" for path in parent.iterdir() if (path / "config.toml").is_file()]
    return [Run(path.parent) for path in sorted(configs, key=lambda path: _last_used(path.parent))]


def _last_used(folder: Path) -> float:
    return max(path.stat().st_mtime for path in (folder / "config.toml", folder / "last") if path.exists())
