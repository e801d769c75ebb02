"""Open a run: its settings, tokenizers, labels, model with weights, task and text.

Modules that read text are imported only when the text is needed, because most commands only run the model.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from glassformer.base.config import LABELLED, Config
from glassformer.base.errors import MALFORMED, GlassError
from glassformer.model.build import build_model
from glassformer.model.device import choose_device
from glassformer.model.precision import choose_precision
from glassformer.model.shapes_only import shapes_only
from glassformer.model.transformer import Model
from glassformer.model.weights import check_shapes, check_sizes, load_weights, shapes_in
from glassformer.runs.folder import Folder, Run, Which, open_run, step_of, version_of
from glassformer.tasks import AnyTextModel, ChatModel, TextModel, Translator
from glassformer.tasks.make import make_task, make_text_model
from glassformer.tasks.task_errors import wrong_task
from glassformer.text.chat_template import ChatTemplate
from glassformer.text.tokenizers import Tokenizer

if TYPE_CHECKING:
    from glassformer.tasks.task import Task
    from glassformer.tasks.task_rows import TaskRows
    from glassformer.text.prepare import Prepared


def ignore(text: str) -> None:
    """Ignore a note."""


@dataclass(frozen=True, repr=False)
class OpenedRun:
    """A run in memory: the model of one checkpoint, its tokenizers, settings and labels.

    Attributes:
        files: the run folder.
        checkpoint: the folder of the checkpoint; it may be missing if training has replaced the checkpoint since.
        version: string that identifies the contents of the checkpoint; see `version_of`.
        config: the settings of the run.
        model: the model with the checkpoint's weights, in evaluation mode.
        tokenizer: the tokenizer of the text; in an encoder-decoder, the tokenizer of the target.
        source_tokenizer: the tokenizer of the source; the same object if the vocabulary is shared.
        labels: names of a classifier's labels; empty for other runs.
        loss: the validation loss that training measured at the checkpoint's step; None if it is not recorded.
        note: function that receives a note if the encoded text is missing and is searched for or encoded again.
    """

    files: Run
    checkpoint: Path
    version: str
    config: Config
    model: Model
    tokenizer: Tokenizer
    source_tokenizer: Tokenizer
    labels: tuple[str, ...]
    loss: float | None = None
    note: Callable[[str], None] = field(default=ignore, compare=False)

    @classmethod
    def load(
        cls,
        folder: Folder,
        which: Which = "best",
        device: str = "auto",
        precision: str = "fp32",
        note: Callable[[str], None] = ignore,
    ) -> OpenedRun:
        """Load a run from its folder; its text is opened on first use.

        Args:
            folder: folder of the run.
            which: "best" (lowest validation loss) or "last" checkpoint.
            device: as in `train.device`.
            precision: precision of the weights, "fp32" or "bf16"; "auto": bf16 on devices where it is faster.
            note: function that receives a note if the encoded text is missing and is searched for or encoded again.

        Raises:
            GlassError: there is no such run, device or precision, or the run's files are damaged or belong to different
                models.
        """
        run = open_run(folder)
        torch_device = choose_device(device)
        config = run.config()
        if (loss := run.other_loss()) is not None:
            warnings.warn(f"{folder} was trained with another loss: {loss}", stacklevel=2)
        labels = run.labels()
        tokenizer = Tokenizer.load(run.tokenizer_file)
        source_tokenizer = Tokenizer.load(run.source_tokenizer_file) if config.two_vocabularies else tokenizer
        if config.train.task in LABELLED and not labels:
            raise GlassError(f"{folder} has no labels.json", "Copy it from the original run folder.")

        def read(checkpoint: Path) -> tuple[Model, str, float | None]:
            version = version_of(checkpoint)  # first: if the weights are replaced meanwhile, the version is outdated
            weights = checkpoint / "model.safetensors"
            model_shapes(config, tokenizer, source_tokenizer, labels, weights)  # before memory is allocated
            model = untrained_model(config, tokenizer, source_tokenizer, labels)
            load_weights(model, weights)
            return model, version, _recorded_loss(checkpoint)

        checkpoint, (model, version, validation_loss) = run.read_checkpoint(which, read)
        model = model.to(torch_device, choose_precision(precision, torch_device)).eval()
        return cls(run, checkpoint, version, config, model, tokenizer, source_tokenizer, labels, validation_loss, note)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields for pickle, without the opened text and `note`; a copy opens the text again if needed."""
        return {each.name: getattr(self, each.name) for each in fields(self)} | {"note": ignore}

    @property
    def folder(self) -> Path:
        """Return the run's folder."""
        return self.files.folder

    @property
    def device(self) -> torch.device:
        """Return the device of the model."""
        return self.model.embedding.tokens.weight.device

    @property
    def step(self) -> int:
        """Return the training step of the checkpoint."""
        return step_of(self.checkpoint)

    @cached_property
    def text_model(self) -> AnyTextModel:
        """Return the object that applies the model to text: generates text, predicts labels, or fills in masks."""
        return make_text_model(self.config, self.model, self.tokenizer, self.source_tokenizer, self.labels)

    @property
    def writer(self) -> TextModel | Translator:
        """Return the `text_model` of a run that generates text.

        Raises:
            GlassError: the run fills in masks or classifies.
        """
        model = self.text_model
        if not isinstance(model, TextModel | Translator):
            raise wrong_task(self.config.train.task, "lm", "Give a run of --task lm, translate or summarize.")
        return model

    @cached_property
    def chat_model(self) -> ChatModel:
        """Return the model as a `ChatModel`, which answers in a conversation.

        Raises:
            GlassError: the task of the run is neither chat, nor lm with a chat template.
        """
        if isinstance(self.text_model, ChatModel):
            return self.text_model
        template = self.files.chat_template()
        if template is None or not isinstance(self.text_model, TextModel):
            raise GlassError(
                f"{self.folder} was trained with train.task = {self.config.train.task} and cannot chat",
                "Train a chat model: glass train CONVERSATIONS --task chat; --from RUN starts from a language model.",
            )
        return ChatModel(self.model, self.tokenizer, self.config, ChatTemplate(template))

    @cached_property
    def data(self) -> Prepared:
        """Return the encoded text of the run.

        Raises:
            GlassError: the text is missing or differs from the run's text, or the run was imported without a text.
        """
        from glassformer.runs.run_text import find_or_encode_text

        return find_or_encode_text(self.files, self.config, self.note)

    @cached_property
    def task(self) -> Task:
        """Return the run's task on its text.

        Raises:
            GlassError: as in `data`.
        """
        return make_task(self.config, self.data)

    def held_out(self, tokens: int | None = None, precision: str | None = None) -> TaskRows:
        """Return rows of the validation split.

        Args:
            tokens: approximate number of targets in evenly spaced rows; None: all rows.
            precision: precision of matrix multiplications, as in `train.precision`; None: as in training.

        Raises:
            GlassError: as in `data`.
        """
        from glassformer.tasks.task_rows import TaskRows

        dtype = choose_precision(precision or self.config.train.precision, self.device)
        return TaskRows(self.task, self.task.held_out(tokens), self.device, dtype)

    @property
    def trained_with(self) -> str:
        """Return ", trained with another loss: NAME" for a run whose trainer was given another loss, otherwise ""."""
        loss = self.files.other_loss()
        return "" if loss is None else f", trained with another loss: {loss}"

    def __repr__(self) -> str:
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        loss = "" if self.loss is None else f", loss {self.loss:.4f}"
        config = self.config
        return (
            f"OpenedRun({str(self.folder)!r}: {config.model.family}, {parameters:,} parameters, "
            f"task {config.train.task}, step {self.step}{loss}{self.trained_with})"
        )


def _recorded_loss(checkpoint: Path) -> float | None:
    """Return the validation loss that training measured at the step of a checkpoint; None if it cannot be read."""
    try:
        progress = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))["progress"]
        return {int(step): float(loss) for step, loss in progress["evaluations"]}.get(step_of(checkpoint))
    except (OSError, *MALFORMED):  # an imported run has no training state
        return None


def model_shapes(
    config: Config, tokenizer: Tokenizer, source: Tokenizer, labels: tuple[str, ...], weights: Path
) -> Model:
    """Return the model of a run without tensor data, after comparing its shapes with the header of a weights file.

    This takes milliseconds, whatever sizes the settings have.

    Raises:
        GlassError: the file cannot be read, or belongs to another model.
    """
    saved = shapes_in(weights)
    check_sizes(weights, saved, config.model)
    with shapes_only():
        model = untrained_model(config, tokenizer, source, labels)
    check_shapes(weights, saved, model)
    return model


def untrained_model(config: Config, tokenizer: Tokenizer, source: Tokenizer, labels: tuple[str, ...]) -> Model:
    """Return a model with the sizes of a run and random weights, to load the weights of a checkpoint into."""
    return build_model(
        config.model,
        tokenizer.vocab_size,
        source_vocab_size=None if config.model.shared_embedding else source.vocab_size,
        classes=len(labels) if config.train.task in LABELLED else None,
    )
