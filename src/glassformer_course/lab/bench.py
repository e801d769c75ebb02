"""The bench of the lab: trains small models with the library's own steps, and looks at them with its own trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
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
from glassformer.model.transformer import Decoder, Model
from glassformer.model.weights import load_weights
from glassformer.runs.run_text import prepare_for
from glassformer.tasks.make import make_task
from glassformer.tasks.task import Task
from glassformer.text.prepare import Prepared
from glassformer.text.tokenizers import Tokenizer
from glassformer.training.loop import compute_gradients
from glassformer.training.setup import fresh_model
from glassformer.training.stepping import Stepper
from glassformer.training.validation import validation_loss
from glassformer_course.lab.evidence import FAULTY, HEALTHY, Chart, Map, Number, Point, averaged

CPU = torch.device("cpu")
STORIES: dict[str, dict[str, Any]] = {
    "model": {"layers": 2, "heads": 2, "width": 32, "context": 32, "tied": False},
    "tokenizer": {"kind": "words"},
    "data": {"source": "stories", "size": 400},
    "train": {"batch": 16, "learning_rate": 1e-2, "weight_decay": 0.0, "device": "cpu"},
}
"""A decoder that learns generated stories in a second or two: words as tokens, windows of 32."""
WARMUP = 10  # steps
EVALUATIONS = 8  # on validation, on the way
Result = TypeVar("Result")


@dataclass
class Trained:
    """A model after training, and its curves.

    Attributes:
        losses: (step, loss) of every training step.
        validation: (step, loss) of every evaluation.
        watched: (step, what the case's `watch` found) of every evaluation.
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
        """Of what the model reads and writes."""
        return self.data.tokenizer

    @property
    def decoder(self) -> Decoder:
        """The model of a language task."""
        assert isinstance(self.model, Decoder)
        return self.model

    def continued(self, prompt: str, tokens: int = 30, temperature: float = 0.5, cached: bool = False) -> str:
        """The prompt's continuation; read anew for every token unless `cached`."""
        settings = SampleConfig(tokens=tokens, temperature=temperature)
        steps = generate(self.decoder, [self.tokenizer.encode(prompt)], settings, cached=cached)
        return self.tokenizer.decode([step.tokens[0] for step in steps])

    def heads(self, ids: Sequence[int], layer: int = 0) -> Tensor:
        """The attention weights of one layer of a decoder on some tokens: (H, T, T)."""
        return trace(self.model, torch.tensor([list(ids)])).stack.blocks[layer].attention.weights[0]

    def labels(self, ids: Sequence[int]) -> list[str]:
        """Tokens as rows and columns of maps are called."""
        return [self.tokenizer.token_text(int(id)).strip() or "␣" for id in ids]

    def map(self, title: str, ids: Sequence[int], head: int = 0, layer: int = 0) -> Map:
        """One head on some tokens; asked for while the model's bug is planted, if it has one."""
        return Map(title, self.labels(ids), self.labels(ids), rounded(self.heads(ids, layer)[head]))


class Bench:
    """Bench that makes healthy and faulty models in the same way, from the same seed.

    Args:
        fault: a context with the bug.
        folder: for texts and tokens, which models need for as long as they are looked at.
        share: of the steps that a case asks for; tests take fewer.
    """

    def __init__(self, fault: Callable[[], AbstractContextManager[None]], folder: Path, share: float = 1.0) -> None:
        self.fault = fault
        self.folder = folder
        self.share = share

    def both(self, work: Callable[[str], Result]) -> tuple[Result, Result]:
        """Return the results of `work(HEALTHY)` without the bug and of `work(FAULTY)` with it, both in one thread."""
        with one_thread():
            healthy = work(HEALTHY)
            with self.fault():
                return healthy, work(FAULTY)

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
    ) -> Trained:
        """Prepare the text, build the model, take the steps.

        Args:
            settings: sections and fields of a `Config`, which are added to those of `STORIES`.
            steps: at full share.
            watch: looks at the model before the first step and at each evaluation.
            files: texts of the case's own: the setting of `data` that names a file -> what stands in it.
            start: a file of weights to begin with.
        """
        steps = max(EVALUATIONS, round(steps * self.share))
        folder = self.new_folder()  # another one each time: the bug may be in what is made of the text
        config = Config.from_dict(merged(merged(STORIES, settings), {"data": written(files or {}, folder)}))
        data = prepare_for(config, folder / "tokens", lambda _: None)
        task = make_task(config, data)
        model = fresh_model(config, data)
        if start is not None:
            load_weights(model, start)
        found = Trained(config, data, task, model, [], [], [])
        stepper = Stepper(model, task, config)
        every = steps // min(EVALUATIONS, max(2, steps // 8))
        held_out = task.held_out(1000)
        for step in range(steps):
            if step % every == 0:
                _look(found, held_out, step, watch)
            gradients = compute_gradients(stepper, step)
            stepper.update(gradients, min(1.0, (step + 1) / WARMUP))
            found.losses.append((step + 1, gradients.loss))
        _look(found, held_out, steps, watch)
        return found


def _look(found: Trained, rows: Sequence[Any], step: int, watch: Callable[[Trained], Any] | None) -> None:
    estimate = validation_loss(found.model, rows, CPU)
    found.validation.append((step, estimate.loss))
    if watch is not None:
        found.watched.append((step, watch(found)))


def merged(own: Mapping[str, Mapping[str, Any]], changes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Settings with changes in some of their sections."""
    return {name: {**own.get(name, {}), **changes.get(name, {})} for name in {**own, **changes}}


def written(files: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Texts as files; their names, by the settings that name them."""
    for name, text in files.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return {name: str(folder / f"{name}.txt") for name in files}


def loss_chart(healthy: Trained, faulty: Trained, title: str = "training loss", floor: bool = True) -> Chart:
    """The training losses of both, and the true entropy of the text where it is known."""
    level = None
    if floor and healthy.config.train.task == "lm":
        held_out = healthy.data.validation.source
        truth = true_nats(held_out, healthy.tokenizer, healthy.config.data.source)
        level = ("true entropy", truth[0] / (len(held_out) - 1)) if truth is not None else None
    curves = {HEALTHY: averaged(healthy.losses), FAULTY: averaged(faulty.losses)}
    return Chart(title, "step", "nats per token", curves, level)


def compared(title: str, x: str, y: str, healthy: Sequence[Point], faulty: Sequence[Point]) -> Chart:
    """A curve of both models."""
    return Chart(title, x, y, {HEALTHY: list(healthy), FAULTY: list(faulty)})


def last_losses(healthy: Trained, faulty: Trained) -> Number:
    """Return the last validation loss of both models."""
    return Number("loss", "loss on validation at the end", healthy.validation[-1][1], faulty.validation[-1][1])


def rounded(weights: Tensor) -> list[list[float]]:
    """(T, S) as lists of numbers in four figures; zeros are exact zeros."""
    return [[float(f"{value:.4g}") for value in row] for row in weights.tolist()]


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread inside: for models as small as these more are slower, and sums come out the same everywhere."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
