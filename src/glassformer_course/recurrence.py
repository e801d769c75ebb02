"""Why not a recurrent network? An LSTM beside a transformer with about as many weights, trained on the same tokens.

The LSTM (Hochreiter and Schmidhuber 1997; PyTorch's `nn.LSTM`) replaces the blocks of the transformer. Tokenizer,
embedding, output head, rows, optimizer and number of steps are the same. The study measures four things: the loss on
held-out text, the time of a training step by the length of the rows, how much the prediction depends on earlier tokens
by their distance (norm of the gradient), and how often a value is recalled by its distance.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.base.config import ModelConfig
from glassformer.corpora.recall import LINE, Recall
from glassformer.model.threads import threads
from glassformer.model.transformer import Decoder, Embedding, Model
from glassformer.text.batches import Batch
from glassformer.training.setup import Alteration
from glassformer_course.lab.bench import LabTrainer, Trained
from glassformer_course.lab.charts import chart_text, charts_svg
from glassformer_course.lab.evidence import Chart, Point, averaged

TRANSFORMER = "transformer"
LSTM = "LSTM"
RATES = (3e-3, 1e-2, 3e-2)
"""Learning rates of AdamW that are tried with seed 0 for each network; the other seeds use the better one."""
TEXT_STEPS = 600
RECALL_STEPS = 1500
LENGTHS = (32, 64, 128, 256, 512, 1024)
STEP_TOKENS = 2048
"""Tokens of each timed step, in rows of each of `LENGTHS`."""
WINDOWS = 64
"""Number of held-out windows whose gradients are averaged."""
MODEL: dict[str, Any] = {"layers": 2, "heads": 4, "width": 64, "positions": "rotary", "activation": "gelu"}
TEXT: dict[str, dict[str, Any]] = {
    "model": {**MODEL, "context": 64},
    "tokenizer": {"kind": "characters"},
    "data": {"size": 2000},
    "train": {"batch": 32},
}
"""Settings of both networks on running text."""
RECALL: dict[str, dict[str, Any]] = {
    "model": {**MODEL, "context": 50},
    "tokenizer": {"kind": "characters"},
    "data": {"document": "line", "windows": "documents"},
    "train": {"batch": 64, "optimizer": "muon", "learning_rate": 1e-2, "beta2": 0.98},
}
"""Settings of both networks on key-value pairs, with the optimizer of the recipe `recall`."""
PAIRS = Recall(fewest=2, most=12)
"""A line has at most 4 x 12 + 1 characters."""
LINES = 40_000


class LSTMStack(nn.Module):
    """Layers of an LSTM with the interface of the transformer's `Stack`: token ids (B, T) to hidden states (B, T, D).

    A block of width D has 12 D² weights and a layer of the LSTM 8 D², so there are three layers for two blocks. The
    biases of the forget gates start at 1 (Jozefowicz et al. 2015). The attribute is named `blocks`, so that Muon, if it
    is chosen, trains the matrices as those of blocks.
    """

    def __init__(self, config: ModelConfig, norm: nn.Module) -> None:
        super().__init__()
        self.blocks = nn.LSTM(config.width, config.width, max(1, round(1.5 * config.layers)), batch_first=True)
        self.norm = norm
        for name, bias in self.blocks.named_parameters():
            if name.startswith("bias_ih"):
                nn.init.ones_(bias[config.width : 2 * config.width])  # gates in the order input, forget, cell, output

    def forward(
        self, tokens: Tensor, embedding: Embedding, attention_mask: Tensor | None = None, cache: None = None
    ) -> Tensor:
        """Return the hidden states (B, T, D) of ids (B, T); padding is on the right and has no effect on the left."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)[None]  # (1, T)
        x, _ = self.blocks(embedding(tokens, positions))  # (B, T, D)
        return self.norm(x)  # (B, T, D)


def _replace_blocks(model: Model, seed: int) -> None:
    assert isinstance(model, Decoder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model.stack = LSTMStack(model.config, model.stack.norm)  # type: ignore[assignment]


def alteration(name: str, seed: int) -> Alteration | None:
    """Return what is changed in the transformer to make a network; the seed is that of the LSTM's initial weights."""
    if name == TRANSFORMER:
        return None
    return Alteration("an LSTM in place of the blocks", partial(_replace_blocks, seed=seed))


@dataclass(frozen=True)
class Comparison:
    """Result of the study; each dictionary has a value for each network.

    Attributes:
        parameters: number of parameters.
        rates: learning rate with the lowest loss.
        losses: held-out loss in nats per token for each seed.
        charts: training loss by step, microseconds per token by length, gradient by distance, recall by distance.
        recalled: fraction of the values that are recalled at any distance.
    """

    parameters: dict[str, int]
    rates: dict[str, float]
    losses: dict[str, list[float]]
    charts: list[Chart]
    recalled: dict[str, float]

    def facts(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Return the result as lines of text."""
        rows = [f"{'':<12} {'parameters':>11} {'rate':>7} {'held-out loss':>16} {'recalled':>9}"]
        for name, losses in self.losses.items():
            spread = f" ± {statistics.stdev(losses):.4f}" if len(losses) > 1 else ""
            loss = f"{statistics.mean(losses):.4f}{spread}"
            rows.append(
                f"{name:<12} {self.parameters[name]:>11,} {self.rates[name]:>7g} {loss:>16} {self.recalled[name]:>9.1%}"
            )
        return [*rows, "", *(line for chart in self.charts for line in (chart_text(chart), ""))]

    def svg(self) -> str:
        """Return all charts as one SVG."""
        return charts_svg(self.charts)


def compare(
    folder: Path, text: Path | None, seeds: int, note: Callable[[str], None], step_fraction: float = 1.0
) -> Comparison:
    """Train both networks, and compare them.

    Args:
        folder: folder for texts and tokens.
        text: text file to learn; None: generated stories.
        seeds: number of seeds for the loss on text; their mean and standard deviation are reported.
        note: function that receives progress messages.
        step_fraction: fraction of the training steps to take; tests use a smaller fraction.

    Raises:
        GlassError: the text cannot be read or is too short.
    """
    trainer = LabTrainer(nullcontext, folder, step_fraction)
    source = {} if text is None else {"source": str(text)}
    rates: dict[str, float] = {}
    losses: dict[str, list[float]] = {}
    learned: dict[str, Trained] = {}
    recalled: dict[str, dict[int, list[bool]]] = {}

    def trained_on_text(name: str, rate: float, seed: int) -> Trained:
        train = {**TEXT["train"], "learning_rate": rate, "seed": seed}
        settings = {**TEXT, "data": {**TEXT["data"], **source}, "train": train}
        result = trainer.train(settings, TEXT_STEPS, alteration=alteration(name, seed))
        note(f"{name}, rate {rate:g}, seed {seed}: held-out loss {result.validation[-1][1]:.4f}")
        return result

    pairs = "\n".join(PAIRS.documents(LINES, seed=0))
    with threads(1):
        for name in (TRANSFORMER, LSTM):
            tried = [trained_on_text(name, rate, 0) for rate in RATES]
            learned[name] = min(tried, key=lambda each: each.validation[-1][1])
            rates[name] = learned[name].config.train.learning_rate
            best = [learned[name], *(trained_on_text(name, rates[name], seed) for seed in range(1, seeds))]
            losses[name] = [each.validation[-1][1] for each in best]
            on_pairs = trainer.train(RECALL, RECALL_STEPS, files={"source": pairs}, alteration=alteration(name, 0))
            recalled[name] = recall_by_distance(on_pairs)
            note(f"{name}: {_share(recalled[name]):.1%} of the values recalled")
        note("measuring the time of training steps")
        seconds = {name: list(step_seconds(learned[name], LENGTHS)) for name in learned}
    charts = [
        Chart("training loss", "step", "nats per token", {name: averaged(learned[name].losses) for name in learned}),
        Chart("time of training", "tokens per row", "microseconds per token", seconds),
        Chart(
            "dependence on earlier tokens",
            "distance in tokens",
            "log10 of the gradient's norm",
            {name: gradient_by_distance(learned[name]) for name in learned},
        ),
        Chart(
            "recall",
            "characters between the value and its recall",
            "fraction recalled",
            {
                name: [(at, statistics.mean(hits)) for at, hits in sorted(found.items())]
                for name, found in recalled.items()
            },
        ),
    ]
    counts = {name: sum(each.numel() for each in learned[name].model.parameters()) for name in learned}
    return Comparison(counts, rates, losses, charts, {name: _share(found) for name, found in recalled.items()})


def _share(found: dict[int, list[bool]]) -> float:
    return statistics.mean(hit for hits in found.values() for hit in hits)


def step_seconds(trained: Trained, lengths: Sequence[int]) -> Iterator[Point]:
    """Yield (length T, microseconds per token of a forward and backward pass), for `STEP_TOKENS` random tokens.

    The fastest of three passes counts, after a warm-up. The context is raised; rotary positions allow every length.
    """
    decoder = trained.decoder
    decoder.stack.context = max(lengths)
    for length in lengths:
        tokens = torch.randint(decoder.vocab_size, (STEP_TOKENS // length, length))  # (B, T)
        times = []
        for _ in range(4):
            began = time.perf_counter()
            decoder(tokens).logsumexp(dim=-1).sum().backward()
            times.append(time.perf_counter() - began)
        yield length, 1e6 * min(times[1:]) / STEP_TOKENS


def gradient_by_distance(trained: Trained) -> list[Point]:
    """Return (distance, log10 of the mean norm of the gradient of the last token's loss by an earlier embedding).

    The norm is that of the gradient with respect to the input vector of the token at that distance before the last
    input token, averaged over `WINDOWS` held-out windows.
    """
    decoder = trained.decoder.eval()
    inputs: list[Tensor] = []
    hook = decoder.embedding.register_forward_hook(lambda module, given, x: inputs.append(x))
    norms = []
    for row in trained.task.held_out(None)[:WINDOWS]:
        batch = Batch.from_rows([row])
        logits = decoder(batch.inputs)  # (1, T, V)
        loss = nn.functional.cross_entropy(logits[0, -1], batch.targets[0, -1])  # ()
        (gradient,) = torch.autograd.grad(loss, inputs.pop())  # (1, T, D)
        norms.append(gradient[0].norm(dim=-1).flip(0))  # (T)
    hook.remove()
    mean = torch.stack([each for each in norms if len(each) == len(norms[0])]).mean(dim=0)  # (T)
    return [(distance, float(value.log10())) for distance, value in enumerate(mean)]


def recall_by_distance(trained: Trained, lines: int = 400) -> dict[int, list[bool]]:
    """Return whether each value of new lines is predicted after its key, by the characters since it was last seen."""
    found: dict[int, list[bool]] = {}
    for line in PAIRS.documents(lines, seed=1):
        match = LINE.fullmatch(line)
        assert match is not None
        given, asked = match.groups()
        ids = torch.tensor([trained.tokenizer.encode(line)])  # (1, T): a character is a token
        with torch.no_grad():
            predicted = trained.decoder(ids)[0].argmax(dim=-1)  # (T)
        for pair in re.finditer("..", asked):
            value = match.start(2) + pair.start() + 1
            distance = value - (given.index(pair.group()) + 1)
            found.setdefault(distance, []).append(bool(predicted[value - 1] == ids[0, value]))
    return found
