"""Train and inspect the small models of the lab with the library's own training step and trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, TypeVar

import torch
from torch import Tensor

from glassformer.base.config import Config, SampleConfig
from glassformer.corpora.truth import true_nats
from glassformer.generation.decoding import generate
from glassformer.inspection.trace import trace
from glassformer.model.threads import threads
from glassformer.model.transformer import Decoder, Model
from glassformer.model.weights import load_weights
from glassformer.runs.run_text import prepare_run_text
from glassformer.tasks.make import make_task
from glassformer.tasks.task import Task
from glassformer.text.prepare import Prepared
from glassformer.text.tokenizers import Tokenizer
from glassformer.training.loop import compute_gradients
from glassformer.training.setup import Alteration, fresh_model
from glassformer.training.stepping import Stepper
from glassformer.training.validation import validation_loss
from glassformer_course.lab.evidence import FAULTY, HEALTHY, Chart, Map, Number, Point, averaged

CPU = torch.device("cpu")
STORIES: dict[str, dict[str, Any]] = {
    "model": {"layers": 2, "heads": 2, "width": 32, "context": 32, "tied": False},
    "tokenizer": {"kind": "words"},
    "data": {"source": "stories", "size": 400},
    "train": {"batch": 16, "learning_rate": 1e-2, "weight_decay": 0.0, "device": "cpu", "precision": "fp32"},
}
"""Settings of a decoder that learns generated stories in a second or two: word tokens, a context of 32."""
WARMUP = 10  # steps
EVALUATIONS = 8  # on validation rows, during training
Result = TypeVar("Result")


@dataclass
class Trained:
    """A trained model and its curves.

    Attributes:
        losses: (step, loss) of every training step.
        validation: (step, loss) of every evaluation.
        watched: (step, result of the case's `watch` function) of every evaluation.
    """

    config: Config
    data: Prepared
    task: Task
    model: Model
    losses: list[Point]
    validation: list[Point]
    watched: list[tuple[int, Any]]

    @property
    def tokenizer(self) -> Tokenizer:
        """Tokenizer of the model."""
        return self.data.tokenizer

    @property
    def decoder(self) -> Decoder:
        """The model of a language modeling task, as a decoder."""
        assert isinstance(self.model, Decoder)
        return self.model

    def continuation(self, prompt: str, tokens: int = 30, temperature: float = 0.5, cached: bool = False) -> str:
        """Return a continuation of the prompt; unless `cached`, recompute all positions for every token."""
        settings = SampleConfig(tokens=tokens, temperature=temperature)
        steps = generate(self.decoder, [self.tokenizer.encode(prompt)], settings, cached=cached)
        return self.tokenizer.decode([step.tokens[0] for step in steps])

    def attention_weights(self, ids: Sequence[int], layer: int = 0) -> Tensor:
        """Return the attention weights of one decoder layer on some tokens: (H, T, T)."""
        return trace(self.model, torch.tensor([list(ids)])).stack.blocks[layer].attention.pattern[0]

    def labels(self, ids: Sequence[int]) -> list[str]:
        """Return the token texts that label the rows and columns of a map."""
        return [self.tokenizer.token_text(int(id)).strip() or "␣" for id in ids]

    def map(self, title: str, ids: Sequence[int], head: int = 0, layer: int = 0) -> Map:
        """Return the attention map of one head; for a faulty model, call this method while the bug is planted."""
        return Map(title, self.labels(ids), self.labels(ids), rounded(self.attention_weights(ids, layer)[head]))


class LabTrainer:
    """Trainer of healthy and faulty models, with the same settings and seed.

    Args:
        fault: context manager that plants the bug.
        folder: folder for texts and tokens; it must exist for as long as the models are used.
        step_fraction: fraction of each case's training steps to take; tests use a smaller fraction.
    """

    def __init__(
        self, fault: Callable[[], AbstractContextManager[None]], folder: Path, step_fraction: float = 1.0
    ) -> None:
        self.fault = fault
        self.folder = folder
        self.step_fraction = step_fraction

    def run_both(self, function: Callable[[str], Result]) -> tuple[Result, Result]:
        """Return `function(HEALTHY)` without the bug and `function(FAULTY)` with the bug, using one thread."""
        with threads(1):  # faster for such small models, and sums do not depend on the number of threads
            healthy = function(HEALTHY)
            with self.fault():
                return healthy, function(FAULTY)

    def new_folder(self) -> Path:
        """Create an empty folder and return its path."""
        return Path(mkdtemp(dir=self.folder))

    def train(
        self,
        settings: Mapping[str, Mapping[str, Any]],
        steps: int,
        watch: Callable[[Trained], Any] | None = None,
        files: Mapping[str, str] | None = None,
        start: Path | None = None,
        alteration: Alteration | None = None,
    ) -> Trained:
        """Prepare the text, build the model and train it.

        Args:
            settings: sections and fields of a `Config`, which override those of `STORIES`.
            steps: number of training steps if `step_fraction` is 1.
            watch: function called at each evaluation, first before training; `Trained.watched` stores its results.
            files: field of the `data` section that names a file -> content of that file.
            start: file of initial weights.
            alteration: change to the model that settings cannot make; None: none.
        """
        steps = max(EVALUATIONS, round(steps * self.step_fraction))
        folder = self.new_folder()  # a new one each time: the bug may be in the prepared data
        config = Config.from_dict(merged(merged(STORIES, settings), {"data": write_files(files or {}, folder)}))
        data = prepare_run_text(config, folder / "tokens", lambda _: None)
        task = make_task(config, data)
        model = fresh_model(config, data, alteration)
        if start is not None:
            load_weights(model, start)
        trained = Trained(config, data, task, model, [], [], [])
        stepper = Stepper(model, task, config)
        interval = steps // min(EVALUATIONS, max(2, steps // 8))
        held_out = task.held_out(1000)
        for step in range(steps):
            if step % interval == 0:
                _evaluate(trained, held_out, step, watch)
            gradients = compute_gradients(stepper, step)
            stepper.update(gradients, min(1.0, (step + 1) / WARMUP))
            trained.losses.append((step + 1, gradients.loss))
        _evaluate(trained, held_out, steps, watch)
        return trained


def _evaluate(trained: Trained, rows: Sequence[Any], step: int, watch: Callable[[Trained], Any] | None) -> None:
    estimate = validation_loss(trained.model, rows, CPU)
    trained.validation.append((step, estimate.loss))
    if watch is not None:
        trained.watched.append((step, watch(trained)))


def merged(settings: Mapping[str, Mapping[str, Any]], changes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return `settings`, with the fields in `changes` replaced or added, section by section."""
    return {name: {**settings.get(name, {}), **changes.get(name, {})} for name in {**settings, **changes}}


def write_files(files: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Write each text to a file and return the paths by the same keys."""
    for name, text in files.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return {name: str(folder / f"{name}.txt") for name in files}


def loss_chart(healthy: Trained, faulty: Trained, title: str = "training loss", floor: bool = True) -> Chart:
    """Return a chart of both training losses; with `floor`, it shows the true entropy of the text if this is known."""
    level = None
    if floor and healthy.config.train.task == "lm":
        held_out = healthy.data.validation.source
        entropy = true_nats(held_out, healthy.tokenizer, healthy.config.data.source)
        level = ("true entropy", entropy[0] / (len(held_out) - 1)) if entropy is not None else None
    curves = {HEALTHY: averaged(healthy.losses), FAULTY: averaged(faulty.losses)}
    return Chart(title, "step", "nats per token", curves, level)


def comparison_chart(title: str, x: str, y: str, healthy: Sequence[Point], faulty: Sequence[Point]) -> Chart:
    """Return a chart with one curve for each model."""
    return Chart(title, x, y, {HEALTHY: list(healthy), FAULTY: list(faulty)})


def last_losses(healthy: Trained, faulty: Trained) -> Number:
    """Return the last validation loss of each model."""
    return Number("loss", "validation loss at the end", healthy.validation[-1][1], faulty.validation[-1][1])


def rounded(weights: Tensor) -> list[list[float]]:
    """Return weights (T, S) as nested lists, rounded to four significant digits; zeros stay exactly 0."""
    return [[float(f"{value:.4g}") for value in row] for row in weights.tolist()]
