"""The parent of a run: the settings, tokenizers and weights that the run (the child) starts from.

A child has the parent's tokenizers and its model architecture, except for dropout and sometimes the head. It starts
from the weights of the parent's best checkpoint. Only a classifier's rows of the head for labels that the parent does
not have are initialized randomly. After its start, the child does not need the parent's folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from glassformer.base.config import CONVERSATIONS, LABELLED, PAIRS, TEXTS, Config, Task
from glassformer.base.errors import GlassError
from glassformer.base.files import sha256
from glassformer.base.locks import is_held
from glassformer.base.settings import setting_text
from glassformer.base.wording import listed, quoted
from glassformer.model.transformer import Model
from glassformer.model.weights import check_sizes, load_tensors, shapes_in
from glassformer.runs.folder import Folder, ParentEntry, Run, open_run
from glassformer.runs.run_text import tokenizers_of
from glassformer.text.tokenizers import Tokenizer

CHILD_TASKS: Mapping[Task, tuple[Task, ...]] = {
    "lm": ("lm", "chat"),
    "masked": ("masked", "classify"),
    "classify": ("classify",),
    "translate": PAIRS,
    "summarize": PAIRS,
    "chat": ("chat",),
}
"""Task of the parent -> tasks that a child can have."""
CHANGEABLE = ("classes", "dropout_embedding", "dropout_attention", "dropout_residual")
"""Settings of the model that a child may change, because labels come from its data and dropout has no weights."""
HEAD_SETTINGS = ("pooling", "head_transform")
"""Settings of the model that affect only the head; a classifier whose parent has another task may change them."""
KEPT_OF_TRAINING = ("batch", "batch_tokens", "micro_batch", "mask_share", "label_smoothing")
"""Settings of training that a child adopts from its parent if both have the same task."""
SHOWN_LABELS = 10
"""Maximum number of labels in each list of a note."""


@dataclass(frozen=True)
class Parent:
    """A run from which another run starts.

    Attributes:
        run: the run folder.
        config: the settings of the run.
        checkpoint: folder of the best checkpoint, whose files were verified.
        weights: its tensors by name.
        weights_sha256: SHA-256 of their file.
    """

    run: Run
    config: Config
    checkpoint: Path
    weights: Mapping[str, Tensor] = field(repr=False, compare=False)
    weights_sha256: str

    @classmethod
    def open(cls, folder: Folder) -> Self:
        """Open a run as a parent.

        Raises:
            GlassError: there is no run, or the run is damaged or being trained.
        """
        run = open_run(folder)
        if is_held(run.folder):
            raise GlassError(
                f"{run.folder} is being trained: its best checkpoint may change",
                "Wait until it ends, or stop it with Ctrl-C.",
            )
        config = run.config()

        def read(checkpoint: Path) -> tuple[dict[str, Tensor], str]:
            path = checkpoint / "model.safetensors"
            check_sizes(path, shapes_in(path), config.model)
            return load_tensors(path), sha256(path)

        checkpoint, (weights, digest) = run.read_checkpoint("best", read)
        return cls(run, config, checkpoint, weights, digest)

    @property
    def task(self) -> Task:
        """Return the task of the run."""
        return self.config.train.task

    @property
    def tokenizers(self) -> tuple[Tokenizer, ...]:
        """Return the tokenizers of the run; see `tokenizers_of`."""
        return tokenizers_of(self.run, self.config)

    def settings(self, task: Task) -> dict[str, dict[str, Any]]:
        """Return the settings that a child with the given task adopts from this run, by section.

        Raises:
            GlassError: a child with that task cannot start from this run.
        """
        if task not in CHILD_TASKS[self.task]:
            raise GlassError(
                f"train.task = {task} cannot start from {self.run.folder}, whose train.task is {self.task}",
                f"Set train.task to one of: {', '.join(CHILD_TASKS[self.task])}.",
            )
        settings = self.config.model_dump(exclude_none=True)
        model = {name: value for name, value in settings["model"].items() if name not in ("vocab_size", "classes")}
        child_settings: dict[str, dict[str, Any]] = {
            "model": model,
            "tokenizer": settings["tokenizer"],
            "train": {"task": task},
        }
        if task != self.task and task in LABELLED:
            child_settings["model"] = {name: value for name, value in model.items() if name not in HEAD_SETTINGS}
        if task in TEXTS:
            child_settings["data"] = {"windows": self.config.data.windows}
        if task in CONVERSATIONS and (template := self.run.chat_template()) is not None:
            child_settings["data"] = {"chat_template": template}
        if task == self.task:
            training_settings = settings["train"]
            child_settings["train"] |= {
                name: training_settings[name] for name in KEPT_OF_TRAINING if name in training_settings
            }
            child_settings["sample"] = settings["sample"]
        return child_settings

    def refuse_changes(self, config: Config, encoded: bool) -> None:
        """Raise a `GlassError` if a child's settings require other weights or tokenizers than those of this run.

        Args:
            config: settings of the child.
            encoded: whether the child's text is already encoded; if so, `open_encoded` compares the tokenizers.
        """
        inherited = self.settings(config.train.task)
        inherited_config = Config.from_dict(
            {section: inherited[section] for section in ("model", "tokenizer", "train")}
        )
        inherited_values = inherited_config.model_dump()
        changeable = (*CHANGEABLE, *(name for name in HEAD_SETTINGS if name not in inherited["model"]))
        for section in ("model",) if encoded else ("model", "tokenizer"):
            for name, value in config.model_dump()[section].items():
                if name not in changeable and value != inherited_values[section][name]:
                    raise GlassError(
                        f"{section}.{name} = {setting_text(value)}, but {self.run.folder} was trained with "
                        f"{setting_text(inherited_values[section][name])}",
                        f"Give no option, file or recipe that changes {section}.{name}: "
                        "a run with --from RUN has the model and tokenizer of RUN.",
                    )

    def copy_weights_to(self, model: Model, labels: tuple[str, ...]) -> list[str]:
        """Copy this run's weights into a child's model; in a classifier's head, each label keeps its row.

        Args:
            model: the child's model, with initial weights.
            labels: names of the child's labels, if the child is a classifier.

        Returns:
            The names of the tensors that keep some of their initial values: the head, if there are new labels.

        Raises:
            GlassError: the weights do not fit the model.
        """
        path = self.checkpoint / "model.safetensors"
        tensors = self.weights
        own_labels = self.run.labels()
        shared_labels = [label for label in labels if label in own_labels]
        rows = [labels.index(label) for label in shared_labels]
        own_rows = [own_labels.index(label) for label in shared_labels]
        new_names = []
        for name, value in model.state_dict().items():
            in_head = bool(labels) and name.startswith("head.")
            if in_head and len(rows) < len(labels):
                new_names.append(name)
            if in_head and not rows:
                continue
            expected_shape = (len(own_labels), *value.shape[1:]) if in_head else tuple(value.shape)
            if name not in tensors or tensors[name].shape != expected_shape:
                shape = tuple(tensors[name].shape) if name in tensors else "no tensor of that name"
                raise GlassError(
                    f"{path} does not fit the model: {name} needs shape {expected_shape}, but the file has {shape}",
                    f"Check the run: glass verify {quoted(self.run.folder)}",
                )
            with torch.no_grad():
                if in_head:
                    value[rows] = tensors[name][own_rows].to(value)
                else:
                    value.copy_(tensors[name])
        return new_names

    def label_note(self, labels: tuple[str, ...]) -> str | None:
        """Return a note on the labels that a child or this run does not have; None if there is no such label.

        Args:
            labels: names of the child's labels; empty if the child is not a classifier.
        """
        own_labels = self.run.labels()
        groups = {
            "random weights": [label for label in labels if label not in own_labels],
            "kept": [label for label in labels if label in own_labels],
            "not in this text": [label for label in own_labels if label not in labels] if labels else [],
        }
        if not groups["random weights"] and not groups["not in this text"]:
            return None
        named = "; ".join(f"{group}: {listed(names, SHOWN_LABELS)}" for group, names in groups.items() if names)
        return f"the head of the classifier is {'partly ' * bool(groups['kept'])}new ({named})"

    def entry(self) -> ParentEntry:
        """Return the entry for a child's manifest; it includes the entry of this run's parent, if any."""
        manifest = self.run.manifest()
        return ParentEntry(
            run=str(self.run.folder.resolve()),
            task=self.task,
            checkpoint=self.checkpoint.name,
            weights_sha256=self.weights_sha256,
            data=manifest["data"],
            data_settings=self.config.data.model_dump(mode="json"),
            imported=manifest.get("imported"),
            parent=manifest.get("parent"),
        )
