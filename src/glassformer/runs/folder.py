"""The run folder: all files of one training run, sufficient to use the run on another machine.

::

    config.toml     all settings; written last when the folder is created, and marks the folder as a run
    manifest.json   the run's id, versions, commands, the source of the text with its hash, the hashes of the settings,
                    tokenizers, labels and chat template, and the hash of all these values
    tokenizer.json  the tokenizer; in an encoder-decoder, the tokenizer of the target
    source_tokenizer.json  the tokenizer of the source, if the source has a separate vocabulary
    labels.json     the names of a classifier's labels
    metrics.jsonl   loss, learning rate, gradient norm, tokens and training seconds at each logged step
    samples.txt     a sample of the model's output at each evaluation
    loss.svg        the loss curve
    checkpoints/step-000850/model.safetensors, optimizer.safetensors  weights and optimizer state (sharded runs:
                    optimizer-1-of-2.safetensors and so on, one file for each process)
    checkpoints/step-000850/state.json, manifest.json  the rest of the training state with the id of the run and the
                    hashes of its logs so far, and a hash of each file
    best  last      one line each: the name of a checkpoint, and a seal (see `Run.point`); before the first evaluation,
                    both name the newest checkpoint
    snapshots/step-000850.npz  scores of the attention heads, if train.snapshots is above 0
    plan.json       the forecast, if the run was measured before it started, and its outcome
    verify.json     the last complete report of glass verify
    chat_template.jinja  the chat template: a copy of data.chat_template for other programs; in a run of task lm, a
                    template added by the user or by glass import
    lock            held by the training process from its first write to its last
    glassformer.creating  present while the folder is created; remains if the process is killed meanwhile

`open_run` refuses a folder in which the settings, tokenizers, labels, chat template or manifest were altered, and
`Run.checkpoint` a checkpoint that was altered or belongs to another run. Readers of the logs and snapshots refuse those
that differ from the hashes in the newest checkpoint (`Run.check_logs`).

The encoded text is beside the run, in `../.tokens/HASH`, where runs on the same text share it, or in the folder that
`glass data encode` wrote.
"""

from __future__ import annotations

import hashlib
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

from glassformer.base.config import Config, Task
from glassformer.base.errors import MALFORMED, GlassError, nearest
from glassformer.base.files import (
    MANIFEST,
    OLD,
    check_folder,
    convert_os_errors,
    has_prefix,
    hidden_folders,
    no_empty_folders,
    old_folder,
    recorded_sha256,
    restore_folder,
    sha256,
    write_text,
)
from glassformer.base.locks import is_held
from glassformer.base.sealed import read_sealed, write_sealed
from glassformer.base.settings import setting_text
from glassformer.base.version import __version__
from glassformer.base.wording import quoted

Which = Literal["best", "last"]
CHECKPOINT = re.compile(r"step-[0-9]+")
"""Pattern of the name of a checkpoint folder."""
Folder = str | PathLike[str]
"""Accepted types for the path of a folder."""
READINGS = 100
"""Maximum number of checkpoints that a reader tries while training replaces them."""
Value = TypeVar("Value")
FORMAT = 2
"""Format version of run folders, stored in `manifest.json`. Other numbers are refused."""
CREATING = "glassformer.creating"
"""Name of a file that is present while a run folder is created, and remains if the process is killed."""
CREATING_TEXT = "This run is being created. If the process was killed, run the same command again to start over.\n"
CHAT_TEMPLATE_FILE = "chat_template.jinja"
"""File name of the chat template in a run folder, and in a model folder of Hugging Face."""
VOCABULARY = ("tokenizer.json", "source_tokenizer.json", "labels.json", CHAT_TEMPLATE_FILE)
"""Files, besides the settings, that determine the meaning of a model's inputs and outputs; they never change."""
WRITTEN_BEFORE_CONFIG = ("manifest.json", *VOCABULARY)
"""Files of a run that are written before `config.toml`, which marks the folder as a run."""
COPY = "Copy it from the original run folder."
"""Remedy for a damaged file of a run."""
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
        if path.name not in self.manifest()["files"]:
            return ()
        try:
            return tuple(map(str, json.loads(path.read_text(encoding="utf-8"))))
        except (OSError, *MALFORMED):
            raise GlassError(f"{path} is damaged", COPY) from None

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
        return self.manifest().get("altered")

    def check_alteration(self, altered: str | None) -> None:
        """Raise a `GlassError` if the manifest cannot be read, or `altered` is not the run's change to the model."""
        recorded_change = self.altered
        if recorded_change is not None and recorded_change != altered:
            raise GlassError(
                f"{self.folder} is part of an experiment: its model has {recorded_change}",
                "Only glass compare opens such a run: choose another run.",
            )
        if recorded_change != altered:
            raise GlassError(
                f"{self.folder} is an ordinary run, not the run of an experiment with {altered}",
                "Choose another folder with --out.",
            )

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

    @property
    def checkpoints_folder(self) -> Path:
        """Return the path of the folder with one subfolder for each checkpoint, such as `step-000100`."""
        return self.folder / "checkpoints"

    def config(self) -> Config:
        """Return the settings of the run.

        Raises:
            GlassError: `config.toml` cannot be read or is not valid.
        """
        return Config.read(self.folder / "config.toml")

    def replace_config(self, config: Config) -> None:
        """Write other settings. The caller must hold the run's lock.

        The manifest first records the new file beside the old one, so that the run can be opened after a kill between
        the writes.
        """
        path = self.folder / "config.toml"
        text = config.to_toml()
        manifest = self.manifest()
        manifest["files"][path.name] = hashlib.sha256(text.encode("utf-8")).hexdigest()
        with convert_os_errors(path):
            self.write_manifest({**manifest, "replaced_config": sha256(path)})
        write_text(path, text)
        manifest.pop("replaced_config", None)  # of a process that was killed here
        self.write_manifest(manifest)

    def manifest(self) -> dict[str, Any]:
        """Return the manifest: `id`, versions, command, `files` with the SHA-256 of each file in `VOCABULARY` and of
        `config.toml`, and, in a run with a text, `data` with its source, its hash, a hash of each split (`parts`) and
        the token folder.

        Raises:
            GlassError: the file is missing, damaged or edited, or a version with another format wrote it.
        """
        path = self.folder / "manifest.json"
        with suppress(OSError, *MALFORMED):
            version = json.loads(path.read_text(encoding="utf-8")).get("format", FORMAT)
            if version != FORMAT:  # checked first, because other versions may compute other hashes
                raise GlassError(
                    f"{self.folder} was made by another version of glassformer: its format is {version}, but this "
                    f"version ({__version__}) reads format {FORMAT}",
                    "Use the version that made it, or train the run again.",
                )
        return read_sealed(path, COPY)

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Write the manifest with a new SHA-256 of itself. In an existing run, the caller must hold the run's lock."""
        write_sealed(self.folder / "manifest.json", manifest)

    @property
    def id(self) -> str | None:
        """Return the id of the run, which its checkpoints contain; None if the manifest cannot be read.

        It is a hash of the settings, vocabulary, text and parent with which the run began.
        """
        with suppress(GlassError):
            return str(self.manifest()["id"])
        return None

    def check_files(self) -> None:
        """Compare the settings, tokenizers, labels and chat template with the hashes in the manifest.

        Raises:
            GlassError: the manifest is missing, damaged or edited, or a file is missing or was altered.
        """
        manifest = self.manifest()
        for name, digest in manifest["files"].items():
            path = self.folder / name
            try:
                current = sha256(path)
            except FileNotFoundError:
                raise GlassError(f"{path} is missing", COPY) from None
            except OSError as error:
                raise GlassError(f"{path} cannot be read: {error.strerror}", COPY) from None
            if name == "config.toml" and current not in (digest, manifest.get("replaced_config")):
                raise self._edited_config()
            if name != "config.toml" and current != digest:
                raise GlassError(
                    f"{path} was altered: its SHA-256 differs from the one in manifest.json",
                    f"{COPY} To use another vocabulary, other labels or another chat template, train a new run.",
                )

    def copy_vocabulary(self, run: Run) -> None:
        """Copy the files of `VOCABULARY` that this run has to another run.

        Raises:
            GlassError: a file was altered.
        """
        self.check_files()
        with convert_os_errors(run.folder):
            for name in VOCABULARY:
                if (self.folder / name).exists():
                    shutil.copyfile(self.folder / name, run.folder / name)

    def _edited_config(self) -> GlassError:
        """Return an error that names the edited settings, as far as the newest checkpoint has the original ones."""
        path = self.folder / "config.toml"
        edits = "its SHA-256 differs from the one in manifest.json"
        with suppress(GlassError, *MALFORMED):
            current = Config.read(path).model_dump(mode="json")
            recorded = (self._newest_state() or {})["settings"]
            changes = [
                f"{section}.{name}: {setting_text(recorded[section][name])} -> {setting_text(value)}"
                for section, values in current.items()
                for name, value in values.items()
                if name in recorded[section] and recorded[section][name] != value
            ]
            edits = ", ".join(changes) or edits
        return GlassError(
            f"{path} was edited ({edits})",
            f"Undo the edit. Change limits and sampling with {self._resume_command()} --set SECTION.FIELD=VALUE; for "
            f"other settings train a new run: glass train DATA --config {quoted(path)} --out NEW",
        )

    def other_loss(self) -> str | None:
        """Return the name of the function that replaced the loss of the task in training; None if none did."""
        name = self.manifest().get("other_loss")
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
            raise GlassError(f"{self.folder / 'manifest.json'} is damaged", COPY) from None

    def checkpoint_name(self, which: Which = "best") -> str | None:
        """Return the name of the checkpoint in the file `best` or `last`; None if the file is missing or damaged."""
        with suppress(GlassError):
            return self.read_pointer(which)
        return None

    def checkpoint_version(self, which: Which = "best") -> str | None:
        """Return the version (see `version_of`) of the checkpoint `best` or `last`; None if there is none."""
        with suppress(GlassError, OSError):
            return version_of(self.checkpoints_folder / self.read_pointer(which))
        return None

    def checkpoint(self, which: Which = "best") -> Path:
        """Return the checkpoint folder that `best` or `last` names, after verifying every byte.

        Raises:
            GlassError: there is no such checkpoint, it is truncated or altered, or it belongs to another run.
        """
        if which not in get_args(Which):
            raise GlassError(f"there is no checkpoint {which!r}", "Give best or last.")
        name = self.read_pointer(which)
        folder = self.checkpoints_folder / name
        if not folder.exists():  # a process may have been killed while it replaced the checkpoint
            folder = old_folder(folder) or folder
        try:
            self.check_checkpoint(folder)
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

    def check_checkpoint(self, folder: Path) -> None:
        """Verify every byte of a checkpoint, and that this run saved it.

        Raises:
            GlassError: a file is missing, truncated or altered, or another run saved the checkpoint.
        """
        check_folder(folder)
        if self._read_state(folder)["run"] != self.manifest()["id"]:
            raise GlassError(
                f"{folder} is a checkpoint of another run", "Restore the checkpoint from a copy of this run."
            )

    def read_pointer(self, which: Which) -> str:
        """Return the name of the checkpoint in the file `best` or `last`.

        Raises:
            GlassError: the file is missing, damaged, edited, or that of another run or of the other pointer.
        """
        path = self.folder / which
        remedy = f"To write it again, resume training: {self._resume_command()}"
        try:
            name, _, seal = path.read_text(encoding="utf-8").strip().partition(" ")
        except FileNotFoundError:
            raise GlassError(f"{self.folder} has no {which} checkpoint", remedy) from None
        except (OSError, UnicodeDecodeError):
            name = seal = ""
        if not CHECKPOINT.fullmatch(name):  # the file could name a path outside of the run folder
            raise GlassError(f"{path} is damaged: it names no checkpoint", remedy)
        if seal != self._seal(which, name):
            raise GlassError(f"{path} was edited, or belongs to another run", remedy)
        return name

    def _seal(self, which: Which, name: str) -> str:
        text = f"{self.manifest()['id']} {which} {name}"
        return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]

    def _read_state(self, checkpoint: Path) -> dict[str, Any]:
        """Return the contents of a checkpoint's `state.json`.

        Raises:
            GlassError: the file is missing, damaged or altered.
        """
        path = checkpoint / "state.json"
        try:
            content = path.read_bytes()
            if hashlib.sha256(content).hexdigest() != recorded_sha256(checkpoint, path.name):
                raise ValueError
            state = dict(json.loads(content))
            if not state.keys() >= {"run", "logs", "progress", "settings"}:
                raise ValueError
        except (OSError, *MALFORMED):
            raise GlassError(f"{path} is missing, damaged or altered", "Use another checkpoint.") from None
        return state

    def _newest_state(self) -> dict[str, Any] | None:
        """Return the contents of `state.json` in the newest checkpoint of this run; None if there is none."""
        for folder in reversed(self.all_checkpoints()):
            with suppress(GlassError):
                state = self._read_state(folder)
                if state["run"] == self.manifest()["id"]:
                    return state
        return None

    def check_logs(self, *names: str) -> None:
        """Compare logs and snapshots with the hashes in the newest checkpoint.

        Entries and snapshots of later steps and missing files are accepted.

        Args:
            names: paths of files, relative to the run folder, such as `metrics.jsonl` and `snapshots/step-000512.npz`.

        Raises:
            GlassError: a log does not begin with the bytes that training wrote before the checkpoint, or training did
                not write a snapshot.
        """
        state = self._newest_state()
        if state is None:
            return
        check_logs(self.folder, {name: state["logs"][name] for name in names if name in state["logs"]})
        for path in (self.folder / name for name in names if name not in state["logs"]):
            if CHECKPOINT.fullmatch(path.stem) and step_of(path.with_suffix("")) <= state["progress"]["step"]:
                raise GlassError(f"{path} was not written by the training of this run", "Remove it from the folder.")

    def read_log(self, name: str) -> bytes:
        """Return the contents of a log at the newest checkpoint, and also what a running training process added later.

        If no process is training the run, entries after the checkpoint are left out, as a resumed run drops them.

        Args:
            name: name of the file.

        Raises:
            GlassError: the log is missing, or see `check_logs`.
        """
        self.check_logs(name)
        path = self.folder / name
        state = self._newest_state()
        size = 0 if state is None or name not in state["logs"] else state["logs"][name]["bytes"]
        if size and not path.exists():
            raise GlassError(
                f"{path} is missing", "Restore it from a copy of the run; training can also resume without it."
            )
        content = path.read_bytes() if path.exists() else b""
        return content if state is None or is_held(self.folder) else content[:size]

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
        complete: list[Path] = []
        for path in self.all_checkpoints():
            with suppress(GlassError):
                self.check_checkpoint(path)
                complete.append(path)
        return complete

    def point(self, which: Which, checkpoint: Path) -> None:
        """Point `best` or `last` to a checkpoint; a pointer that is already correct is not rewritten.

        The name is followed by a seal: a hash of the run's id, `which` and the name. It reveals an edited pointer, a
        pointer of another run, and an exchange of the two pointers.
        """
        path = self.folder / which
        text = f"{checkpoint.name} {self._seal(which, checkpoint.name)}\n"
        if not path.is_file() or path.read_bytes() != text.encode("utf-8"):
            write_text(path, text)

    def remove_other_checkpoints(self, names: Collection[str]) -> None:
        """Delete all checkpoints whose names are not in `names`. The caller must hold the run's lock."""
        for path in self.all_checkpoints():
            if path.name not in names:
                shutil.rmtree(path, ignore_errors=True)

    def refuse_links(self) -> None:
        """Raise a `GlassError` if a name that training writes is a link: it would change or delete files elsewhere."""
        written = {*WRITTEN_BY_TRAINING, "plan.json", "lock", "checkpoints", "snapshots"}
        for folder in (self.folder, self.checkpoints_folder, self.snapshots_folder):
            for path in folder.iterdir() if folder.is_dir() else ():
                if path.is_symlink() and (path.name in written or path.name.startswith("step-")):
                    raise GlassError(
                        f"{path} is a link to {path.resolve()}, whose files training would change or delete",
                        "Replace it by a copy; to keep a run on another disk, move its whole folder and link to that.",
                    )

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


def version_of(checkpoint: Path) -> str:
    """Return a string that identifies the contents of a checkpoint, without reading the weights.

    It consists of the name and the first digits of the SHA-256 of the checkpoint's manifest, which has the hashes of
    all other files. A run that was deleted and trained again to the same step has another version.

    Raises:
        OSError: the checkpoint has no manifest.
    """
    return f"{checkpoint.name}.{sha256(checkpoint / MANIFEST)[:16]}"


def check_logs(folder: Path, recorded: Mapping[str, Mapping[str, Any]]) -> None:
    """Compare files in a run folder with their recorded sizes and hashes.

    Args:
        folder: the run folder.
        recorded: path of each file, relative to the folder -> `bytes` and `sha256` of its beginning. Missing files are
            accepted.

    Raises:
        GlassError: a file has another beginning.
    """
    for name, facts in recorded.items():
        path = folder / name
        with convert_os_errors(path):
            is_unaltered = not path.exists() or has_prefix(path, facts["bytes"], facts["sha256"])
        if not is_unaltered:
            raise GlassError(
                f"{path} was altered: its first {facts['bytes']:,} bytes are not those that training wrote",
                "Restore it from a copy of the run, or remove it from the folder.",
            )


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
        facts: further entries of the manifest, such as `data`.
        add: function that writes the files of `VOCABULARY` that the run needs.

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
            add(run)
            with convert_os_errors(folder):
                files = {name: sha256(folder / name) for name in VOCABULARY if (folder / name).exists()}
            text = config.to_toml()
            files["config.toml"] = hashlib.sha256(text.encode("utf-8")).hexdigest()
            origin = {name: value for name, value in facts.items() if name not in ("data", "job")}
            origin |= {"files": files, "text_hash": facts.get("data", {}).get("text_hash")}
            id = hashlib.sha256(json.dumps(origin, sort_keys=True).encode("utf-8")).hexdigest()
            run.write_manifest({"id": id, **manifest, "files": files})
            write_text(folder / "config.toml", text)
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
    """Open the run in a folder, after checking its settings, tokenizers, labels and chat template by their hashes.

    Args:
        folder: folder of the run.
        altered: the value that `Run.altered` must have; None for a run that is not part of an experiment.

    Raises:
        GlassError: there is no run (see `find_run`), one of these files was altered, or `Run.altered` differs from
            `altered`.
    """
    run = find_run(folder)
    run.check_files()
    run.check_alteration(altered)
    return run


def find_run(folder: Folder) -> Run:
    """Return the run in a folder, without checking its files.

    Raises:
        GlassError: there is no run; if there is no such folder, the error suggests other runs.
    """
    folder = Path(folder)
    if (folder / "config.toml").is_file():
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
