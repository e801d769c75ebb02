"""Choose the model size and the training steps for a text, a time limit and a machine.

`choose_sizes` is a pure function; all its assumptions are constants in this file.

The model is the largest of `SHAPES` that reads enough tokens per weight in the given time and does not have too many
weights per token of the text (`RULES`); if there is none, the smallest. Time is FLOPs divided by the measured speed.
The batch is as large as possible while there are still enough steps. For the tasks lm and chat, AdamW's learning rate
is proportional to 1 / √width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from glassformer.base.config import TASK_FACTS

SHAPES = (
    (2, 64, 64),
    (2, 96, 64),
    (3, 128, 128),
    (4, 192, 256),
    (4, 256, 256),
    (6, 256, 256),
    (6, 384, 256),
    (8, 512, 256),
    (12, 768, 512),
    (16, 1024, 1024),
)
"""(layers, width, context) of each candidate model, smallest first."""
TOKENS_PER_STEP = (512, 65_536)
"""Minimum and maximum number of tokens per step, before the batch is rounded to a power of two."""
EVALUATIONS = 16
"""Approximate number of evaluations in a run."""
HEAD_WIDTH = {64: 16, 192: 32}
"""Maximum model width -> usual head width; `WIDE_HEAD` for wider models."""
WIDE_HEAD = 64
RATES = {"adamw": 3e-3, "muon": 1e-2}
"""Optimizer -> peak learning rate of AdamW at a width of `RATE_WIDTH`; "muon": AdamW for the tensors that Muon
does not update."""
MUON_RATE = 0.03
"""Peak learning rate of Muon, at any width."""
RATE_WIDTH = 128
LARGEST_DECAY = 1.0
"""Largest weight decay that is chosen, for runs of few steps."""
MATRICES = {"decoder": 12, "encoder": 12, "encoder-decoder": 14}
"""Model family -> mean number of weights that a token uses per layer, in units of width². Attention has 4, feed-forward
8; in an encoder-decoder, cross-attention adds 2: key and value of a source token, query and output of a target
token."""
FIRST_SPEED = {
    ("cpu", "fp32"): 3e10,
    ("cpu", "bf16"): 7.5e10,
    ("mps", "fp32"): 1e12,
    ("mps", "bf16"): 1e12,
    ("cuda", "fp32"): 5e13,
    ("cuda", "bf16"): 5e13,
}
"""FLOP/s assumed before the first measurement, on a CPU for each thread; it determines only the first shape to
measure."""
CONTEXT_STEP = 16
"""For rows that are whole examples, the context is a multiple of this number."""
LONGEST_CONTEXT = 1024
"""Largest context that is chosen, in tokens."""
VOCABULARY = (1024, 32768)
"""Smallest and largest vocabulary size that is chosen for examples."""
PIECES = (512, 8192)
"""Smallest and largest vocabulary size that is chosen for running text; a text that is too small for the smallest one
is split into characters."""
SIZED = (
    "model.layers",
    "model.width",
    "model.heads",
    "model.context",
    "model.tied",
    "model.dropout_embedding",
    "model.dropout_residual",
    "train.batch",
    "train.batch_tokens",
    "train.steps",
    "train.learning_rate",
    "train.muon_learning_rate",
    "train.weight_decay",
    "train.evaluate_every",
    "train.save_every",
)
"""Settings that `choose_sizes` may choose, unless they are given."""


@dataclass(frozen=True)
class SizingRules:
    """Limits and defaults for the sizes of a task.

    Attributes:
        tokens_per_weight: minimum number of tokens that a run reads per weight, including repetitions.
        weights_per_token: maximum number of weights per token of the data.
        steps: approximate minimum number of steps, unless the batch is already the smallest.
        epochs: maximum number of passes over the data, unless `fewest_steps` requires more.
        fewest_steps: minimum number of steps with the smallest batch, if there is time. With fewer steps, a model
            trained on a few hundred examples is undertrained.
        context: maximum context in tokens, for windows over running text.
        bytes_per_token: bytes of training text per vocabulary entry; None: use the recipe's vocabulary size.
        vocabulary: smallest and largest vocabulary size.
        dropout: rows of (maximum epochs, dropout of the embedding, dropout of the residual stream); the first row whose
            maximum is not exceeded is used. Empty: use the recipe's dropout.
        rates_by_width: whether learning rates depend on the width; False: use the recipe's learning rates.
        tied_from: smallest vocabulary for which the output layer uses the matrix of the embedding; None: use the
            recipe's setting.
        decay: with Muon, product of its peak learning rate, the weight decay and the number of steps; None: use the
            recipe's weight decay. The weights are a moving average of the latest 1 / (learning rate x weight decay)
            updates (Wang and Aitchison 2025, section 3), which are then a fixed fraction of the run.
    """

    tokens_per_weight: float
    weights_per_token: float
    steps: int
    epochs: float = 40.0
    fewest_steps: int = 0
    context: int = LONGEST_CONTEXT
    bytes_per_token: int | None = None
    vocabulary: tuple[int, int] = VOCABULARY
    dropout: tuple[tuple[float, float, float], ...] = ()
    rates_by_width: bool = False
    tied_from: int | None = None
    decay: float | None = None


TEXT_DROPOUT = ((10.0, 0.0, 0.0), (30.0, 0.1, 0.1), (math.inf, 0.3, 0.3))
PAIRS_DROPOUT = ((2.0, 0.0, 0.0), (5.0, 0.1, 0.1), (math.inf, 0.2, 0.2))
LABELS_DROPOUT = ((2.0, 0.1, 0.1), (math.inf, 0.5, 0.3))
RULES = {
    "lm": SizingRules(
        tokens_per_weight=2.0,
        weights_per_token=10.0,
        steps=1000,
        bytes_per_token=450,
        vocabulary=PIECES,
        dropout=TEXT_DROPOUT,
        rates_by_width=True,
        tied_from=1024,
        decay=12.0,
    ),
    "chat": SizingRules(tokens_per_weight=2.0, weights_per_token=10.0, steps=600, rates_by_width=True),
    "masked": SizingRules(tokens_per_weight=3.0, weights_per_token=10.0, steps=1500, context=128),
    "classify": SizingRules(
        tokens_per_weight=2.0,
        weights_per_token=2.5,
        steps=1000,
        epochs=6.0,
        fewest_steps=1000,
        bytes_per_token=200,
        dropout=LABELS_DROPOUT,
    ),
    "translate": SizingRules(
        tokens_per_weight=4.0, weights_per_token=4.0, steps=1500, bytes_per_token=900, dropout=PAIRS_DROPOUT
    ),
    "summarize": SizingRules(
        tokens_per_weight=4.0, weights_per_token=4.0, steps=1500, bytes_per_token=900, dropout=PAIRS_DROPOUT
    ),
}
"""Task -> rules. Language models were measured in runs of 10 seconds, 3 minutes and 12 minutes, with characters as
tokens and Muon: the best models read 1 to 2 tokens per weight. Their tying and weight decay were measured with 8,192
byte pairs on 4 MB, their dropout where a text is read 4, 23 and 40 times, and their tokenizers on six texts of 0.1 to
20 MB (`benchmarks/results/vocabulary.jsonl`); the limits in between are guesses. Translation was measured on Multi30k
in 30 minutes, and classification on 6,600 news texts in 3 minutes (`benchmarks/results/tried.md`). The other values are
guesses."""


def rules_of(task: str) -> SizingRules:
    """Return the rules of a task; for a task that is not in `RULES`, return those of a task with similar records."""
    usual = {"text": "lm", "labelled": "classify", "pairs": "translate", "conversations": "lm"}
    return RULES[task if task in RULES else usual[TASK_FACTS[task].records]]


@dataclass(frozen=True)
class SizingCase:
    """Properties of a text, a time limit and a task that `choose_sizes` depends on.

    Attributes:
        family: model family.
        optimizer: "adamw" or "muon".
        text_tokens: number of tokens in the training split, including sources and targets.
        vocabulary: vocabulary size V.
        row_tokens: mean number of tokens of a row if rows are examples or documents; None if they are windows over
            running text.
        seconds: seconds for training steps.
        task: task of the run.
        longest: context that fits nearly every example; None for running text.
        like_length: whether each batch contains rows of similar length, and the batch size is given in tokens.
        predicted: fraction of the tokens for which logits are computed.
        kv_heads: number of heads for keys and values, which divides the number of heads; None: as many as heads.
    """

    family: str
    optimizer: str
    text_tokens: int
    vocabulary: int
    row_tokens: float | None
    seconds: float
    task: str = "lm"
    longest: int | None = None
    like_length: bool = False
    predicted: float = 1.0
    kv_heads: int | None = None

    @property
    def rules(self) -> SizingRules:
        """Return the rules of the task."""
        return rules_of(self.task)

    @property
    def most_tokens(self) -> float:
        """Return the maximum number of tokens that a run reads, including repetitions."""
        smallest_batch, _ = TOKENS_PER_STEP
        return max(self.rules.epochs * self.text_tokens, self.rules.fewest_steps * smallest_batch)


@dataclass(frozen=True)
class ModelShape:
    """Number of layers, width, and context length (in tokens) of a model."""

    layers: int
    width: int
    context: int

    def weights(self, family: str) -> int:
        """Return the mean number of weights that a token is multiplied with, without embeddings and output head.

        For a decoder or an encoder, these are the weights in the matrices of all layers.
        """
        return MATRICES[family] * self.layers * self.width**2

    def training_flops_per_token(self, case: SizingCase) -> float:
        """Return the training FLOPs per token: 6 per weight of a matrix multiplication (Kaplan et al. 2020, sec. 2.1).

        These weights include the output head for predicted tokens. Attention adds 2 matrix multiplications over half
        the context: the mean in a decoder, also counted for other families, whose speed is measured in this unit too.
        """
        attention = self.layers * self.width * self.context
        head = self.width * case.vocabulary * case.predicted
        return 6.0 * (self.weights(case.family) + head + attention)


@dataclass(frozen=True)
class Sizes:
    """Chosen sizes of a run.

    Attributes:
        shape: shape of the model.
        settings: chosen settings by name, such as `model.layers`.
        tokens: number of tokens that the run will read; with `train.batch_tokens`, padding is included.
        why: reasons for the choices, one sentence each.
    """

    shape: ModelShape
    settings: dict[str, Any]
    tokens: float
    why: tuple[str, ...]


def choose_sizes(case: SizingCase, speed: float, given_settings: Mapping[str, Any]) -> Sizes:
    """Choose the sizes for a text, a time limit and a training speed.

    Args:
        case: properties of the text, the time limit and the task.
        speed: training speed in FLOP/s, as counted by `ModelShape.training_flops_per_token`.
        given_settings: name -> value of each fixed setting; the other settings are chosen to suit these.
    """
    shapes = list(dict.fromkeys(_with_given_sizes(ModelShape(*row), case, given_settings) for row in SHAPES))
    fitting = [shape for shape in shapes if _suits(shape, case, speed)]
    shape = fitting[-1] if fitting else shapes[0]
    affordable_tokens = speed * case.seconds / shape.training_flops_per_token(case)
    tokens = min(affordable_tokens, case.most_tokens)
    row_tokens = min(case.row_tokens or shape.context, shape.context)
    chosen: dict[str, Any] = {
        "model.layers": shape.layers,
        "model.width": shape.width,
        "model.context": shape.context,
        "model.heads": _heads(shape.width, case, given_settings),
    }
    if case.like_length:
        step_tokens = float(given_settings.get("train.batch_tokens", _power_of_two(_tokens_per_step(tokens, case))))
        chosen["train.batch_tokens"] = int(step_tokens)
    else:
        batch = int(given_settings.get("train.batch", _power_of_two(_tokens_per_step(tokens, case) / row_tokens)))
        step_tokens = batch * row_tokens
        chosen["train.batch"] = batch
    steps = int(given_settings.get("train.steps") or max(1, math.ceil(tokens / step_tokens)))
    epochs = steps * step_tokens / max(1, case.text_tokens)
    interval = max(10, steps // EVALUATIONS)
    chosen["train.evaluate_every"] = interval
    chosen["train.save_every"] = interval
    if case.rules.tied_from is not None:
        chosen["model.tied"] = case.vocabulary >= case.rules.tied_from
    if case.rules.dropout:
        _, embedding, residual = next(row for row in case.rules.dropout if epochs <= row[0])
        chosen["model.dropout_embedding"] = embedding
        chosen["model.dropout_residual"] = residual
    if case.rules.rates_by_width:
        chosen["train.learning_rate"] = _rounded(RATES[case.optimizer] * math.sqrt(RATE_WIDTH / shape.width))
        if case.optimizer == "muon":
            chosen["train.muon_learning_rate"] = MUON_RATE
    if case.rules.decay is not None and case.optimizer == "muon":
        rate = float(given_settings.get("train.muon_learning_rate", MUON_RATE))
        if rate > 0:
            chosen["train.weight_decay"] = min(LARGEST_DECAY, _rounded(case.rules.decay / (rate * steps)))
    if tokens < affordable_tokens:
        chosen["train.steps"] = steps
    settings = {name: value for name, value in chosen.items() if name not in given_settings}
    return Sizes(
        shape,
        settings,
        steps * step_tokens,
        tuple(_reasons(shape, case, speed, epochs, fitting == [], tokens < affordable_tokens)),
    )


def choose_vocabulary(size: int, task: str) -> int | None:
    """Return a power of two as vocabulary size for `size` bytes of training text; None: use the recipe's size.

    Every token should occur often enough to be learned: for translation, about 4,000 tokens worked well on 3.7 MB of
    Multi30k. A classifier does not generate tokens, and benefits from a larger vocabulary with more whole words.
    """
    rules = rules_of(task)
    if rules.bytes_per_token is None:
        return None
    minimum, maximum = rules.vocabulary
    return min(maximum, max(minimum, _power_of_two(size / rules.bytes_per_token)))


def suits_characters(size: int, task: str) -> bool:
    """Return whether running text of `size` bytes is too small for the smallest vocabulary of its task's rules.

    The model then has characters as tokens.
    """
    rules = rules_of(task)
    return rules.bytes_per_token is not None and _power_of_two(size / rules.bytes_per_token) < rules.vocabulary[0]


def _suits(shape: ModelShape, case: SizingCase, speed: float) -> bool:
    weights = shape.weights(case.family)
    tokens = min(speed * case.seconds / shape.training_flops_per_token(case), case.most_tokens)
    rules = case.rules
    return tokens >= rules.tokens_per_weight * weights and weights <= rules.weights_per_token * case.text_tokens


def _with_given_sizes(shape: ModelShape, case: SizingCase, given_settings: Mapping[str, Any]) -> ModelShape:
    """Return the shape with the given sizes; if no context is given, choose the context to suit the data.

    The width gets an even head width, as rotary positions need, with the given number of heads, or else of heads for
    keys and values.

    For examples, the context fits nearly all of them, but is at most `LONGEST_CONTEXT`; for windows over running text,
    it is the context of the shape, but at most `SizingRules.context` and a quarter of the text; for rows of documents,
    it is unchanged.
    """
    sizes = {
        name: int(given_settings[f"model.{name}"])
        for name in ("layers", "width", "context")
        if f"model.{name}" in given_settings
    }
    if "width" not in sizes:
        unit = 2 * int(given_settings.get("model.heads", case.kv_heads or 1))
        sizes["width"] = unit * max(1, round(shape.width / unit))
    if "context" not in sizes and case.longest is not None:
        sizes["context"] = min(LONGEST_CONTEXT, CONTEXT_STEP * math.ceil(case.longest / CONTEXT_STEP))
    elif "context" not in sizes and case.row_tokens is None:
        sizes["context"] = max(1, min(shape.context, case.rules.context, case.text_tokens // 4))
    return replace(shape, **sizes)


def _tokens_per_step(tokens: float, case: SizingCase) -> float:
    """Return the largest number of tokens per step, within `TOKENS_PER_STEP`, that leaves enough steps."""
    minimum, maximum = TOKENS_PER_STEP
    return min(maximum, max(minimum, tokens / case.rules.steps))


def _power_of_two(number: float) -> int:
    """Return the power of two that is nearest to a number by ratio, at least 1."""
    return 1 << round(math.log2(max(1.0, number)))


def _heads(width: int, case: SizingCase, given_settings: Mapping[str, Any]) -> int:
    """Return the given number of heads, or else the number that gives an even head width nearest to the usual one."""
    if "model.heads" in given_settings:
        return int(given_settings["model.heads"])
    usual_width = next((head for limit, head in HEAD_WIDTH.items() if width <= limit), WIDE_HEAD)
    step = case.kv_heads or 1
    candidates = [heads for heads in range(step, width + 1, step) if width % (2 * heads) == 0] or [step]
    return min(candidates, key=lambda heads: abs(math.log(width / heads / usual_width)))


def _rounded(rate: float) -> float:
    return float(f"{rate:.2g}")


def _reasons(
    shape: ModelShape, case: SizingCase, speed: float, epochs: float, smallest: bool, capped: bool
) -> list[str]:
    weights = shape.weights(case.family)
    affordable_tokens = speed * case.seconds / shape.training_flops_per_token(case)
    reasons = [
        f"a model whose layers use {weights:,} weights per token can read {affordable_tokens:,.0f} tokens in "
        f"{case.seconds:,.0f} s at {speed:.2g} FLOP/s, {affordable_tokens / weights:,.1f} per weight"
    ]
    if case.rules.dropout:
        reasons.append(f"the data is read {epochs:.1f} times, which determines the dropout")
    if smallest:
        reasons.append("even the smallest candidate model is large for this text and this time limit")
    if capped:
        most_epochs = case.most_tokens / case.text_tokens
        reasons.append(f"the text has {case.text_tokens:,} tokens: it is read at most {most_epochs:,.0f} times")
    return reasons
