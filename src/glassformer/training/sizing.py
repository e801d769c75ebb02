"""Choose the model and the steps that suit a text, a time and a machine.

A pure function, and all that it rests on: whoever knows better changes the numbers at the head of this file.

The model: the largest of `SHAPES` that sees enough tokens for each weight in the time that there is, and that has no
more weights than the text can feed (`RULES`). Time is arithmetic by speed, and speed is measured. The batch: as large
as leaves enough steps. Of language models, AdamW's rate falls with the square root of the width.
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
"""Layers, width and context, the smallest first."""
TOKENS_PER_STEP = (512, 65_536)
"""At least and at most."""
EVALUATIONS = 16
HEAD_WIDTH = {64: 16, 192: 32}
"""Width of a head up to that width of a model; `WIDE_HEAD` above."""
WIDE_HEAD = 64
RATES = {"adamw": 3e-3, "muon": 1e-2}
"""Peak of AdamW, alone and beside Muon, at `RATE_WIDTH`."""
MUON_RATE = 0.03
RATE_WIDTH = 128
MATRICES = {"decoder": 12, "encoder": 12, "encoder-decoder": 14}
"""Weights of one layer that a token meets, in squares of the width: attention 4 (twice that with cross-attention, which
half of the tokens meet), feed-forward 8."""
FIRST_SPEED = {"cpu": 5e10, "mps": 1e12, "cuda": 5e13}
"""Operations a second, before anything was measured: decides only what is measured first."""
CONTEXT_STEP = 16
"""A context for rows that are texts of their own is a multiple of this."""
LONGEST_CONTEXT = 1024
"""Longest context of any rows."""
VOCABULARY = (1024, 32768)
"""Tokens of a chosen vocabulary, at least and at most."""
SIZED = (
    "model.layers",
    "model.width",
    "model.heads",
    "model.context",
    "model.dropout_embedding",
    "model.dropout_residual",
    "train.batch",
    "train.batch_tokens",
    "train.steps",
    "train.learning_rate",
    "train.muon_learning_rate",
    "train.evaluate_every",
    "train.save_every",
)
"""The settings that are chosen where a person does not say them."""


@dataclass(frozen=True)
class SizingRules:
    """Limits and defaults that suit a task.

    Attributes:
        tokens_per_weight: that a run shall read at least, repetitions counted.
        weights_per_token: of the data, at most.
        steps: that a run takes at least, where batches are not the smallest already.
        epochs: maximum passes over the data, unless `fewest_steps` needs more.
        fewest_steps: minimum number of steps with the smallest batch, if the time allows; with fewer, a model of a few
            hundred examples is undertrained.
        context: of windows over running text at most, in tokens.
        bytes_per_token: of the training texts, for each token of the vocabulary; None: the vocabulary is the recipe's.
        dropout: rows of (epochs at most, dropout of the embedding, dropout of the residual stream), the first row that
            holds; empty: dropout is the recipe's.
        rates_by_width: learning rates follow from the width; False: they are the recipe's.
    """

    tokens_per_weight: float
    weights_per_token: float
    steps: int
    epochs: float = 40.0
    fewest_steps: int = 0
    context: int = LONGEST_CONTEXT
    bytes_per_token: int | None = None
    dropout: tuple[tuple[float, float, float], ...] = ()
    rates_by_width: bool = False


PAIRS_DROPOUT = ((2.0, 0.0, 0.0), (5.0, 0.1, 0.1), (math.inf, 0.2, 0.2))
LABELS_DROPOUT = ((2.0, 0.1, 0.1), (math.inf, 0.5, 0.3))
RULES = {
    "lm": SizingRules(tokens_per_weight=2.0, weights_per_token=10.0, steps=600, rates_by_width=True),
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
"""By task. Of language models: in 10 seconds and in 3 and 12 minutes, with characters and Muon, the best of those tried
read 1 to 2 tokens for each weight. Of translation: on Multi30k, in 30 minutes. Of labels: on 6,600 news in 3 minutes.
See `benchmarks/results/tried.md`; elsewhere they are a guess."""


def rules_of(task: str) -> SizingRules:
    """Return the rules of a task; one without a line in `RULES` has those of a task with such records."""
    usual = {"text": "lm", "labelled": "classify", "pairs": "translate", "conversations": "lm"}
    return RULES[task if task in RULES else usual[TASK_FACTS[task].records]]


@dataclass(frozen=True)
class SizingCase:
    """Facts that sizes depend on.

    Attributes:
        family: of the model.
        optimizer: adamw or muon.
        text_tokens: of the training part, sources and targets together.
        vocabulary: V.
        row_tokens: mean tokens of a row of its own; None where rows are windows over running text.
        seconds: that the run may last.
        task: what is learnt.
        longest: tokens that hold nearly every row of its own; None where the context is that of the shape.
        like_length: batches are of rows of like length, and counted in tokens.
        predicted: share of the tokens for which logits are made.
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

    @property
    def rules(self) -> SizingRules:
        """Return the rules of the task."""
        return rules_of(self.task)

    @property
    def most_tokens(self) -> float:
        """Return the number of tokens that a run reads at most, repetitions counted."""
        smallest_batch, _ = TOKENS_PER_STEP
        return max(self.rules.epochs * self.text_tokens, self.rules.fewest_steps * smallest_batch)


@dataclass(frozen=True)
class ModelShape:
    """A model, as far as its size goes; `context` in tokens."""

    layers: int
    width: int
    context: int

    def weights(self, family: str) -> int:
        """Return the weights in matrices, without embeddings and output head."""
        return MATRICES[family] * self.layers * self.width**2

    def arithmetic(self, case: SizingCase) -> float:
        """Floating-point operations that one token costs in training: 6 for each weight of a product that it meets.

        Kaplan et al. 2020, section 2.1, with the output head where tokens are predicted; and attention, 2 products with
        half the context.
        """
        attention = self.layers * self.width * self.context
        head = self.width * case.vocabulary * case.predicted
        return 6.0 * (self.weights(case.family) + head + attention)


@dataclass(frozen=True)
class Sizes:
    """The sizes that were chosen.

    Attributes:
        shape: of the model.
        settings: by name, as `model.layers`.
        tokens: that the run will read, padding not counted.
        why: in sentences.
    """

    shape: ModelShape
    settings: dict[str, Any]
    tokens: float
    why: tuple[str, ...]


def choose_sizes(case: SizingCase, speed: float, said: Mapping[str, Any]) -> Sizes:
    """The sizes for one case.

    Args:
        case: text, time and family.
        speed: floating-point operations a second in training, as `Shape.arithmetic` counts them.
        said: settings by name that a person gave; they stay, and the others are chosen around them.
    """
    shapes = list(dict.fromkeys(_around(ModelShape(*row), case, said) for row in SHAPES))
    fitting = [shape for shape in shapes if _suits(shape, case, speed)]
    shape = fitting[-1] if fitting else shapes[0]
    possible = speed * case.seconds / shape.arithmetic(case)
    tokens = min(possible, case.most_tokens)
    row = min(case.row_tokens or shape.context, shape.context)
    chosen: dict[str, Any] = {
        "model.layers": shape.layers,
        "model.width": shape.width,
        "model.context": shape.context,
        "model.heads": _heads(shape.width, said),
    }
    if case.like_length:
        per_step = float(said.get("train.batch_tokens", _power_of_two(_tokens_per_step(tokens, case))))
        chosen["train.batch_tokens"] = int(per_step)
    else:
        batch = int(said.get("train.batch", _power_of_two(_tokens_per_step(tokens, case) / row)))
        per_step = batch * row
        chosen["train.batch"] = batch
    steps = int(said.get("train.steps") or max(1, math.ceil(tokens / per_step)))
    every = max(10, steps // EVALUATIONS)
    chosen["train.evaluate_every"] = every
    chosen["train.save_every"] = every
    if case.rules.dropout:
        epochs = tokens / max(1, case.text_tokens)
        _, embedding, residual = next(row for row in case.rules.dropout if epochs <= row[0])
        chosen["model.dropout_embedding"] = embedding
        chosen["model.dropout_residual"] = residual
    if case.rules.rates_by_width:
        chosen["train.learning_rate"] = _rounded(RATES[case.optimizer] * math.sqrt(RATE_WIDTH / shape.width))
        if case.optimizer == "muon":
            chosen["train.muon_learning_rate"] = MUON_RATE
    if tokens < possible:
        chosen["train.steps"] = steps
    settings = {name: value for name, value in chosen.items() if name not in said}
    return Sizes(shape, settings, steps * per_step, tuple(_why(shape, case, speed, fitting == [], tokens < possible)))


def choose_vocabulary(size: int, task: str) -> int | None:
    """The tokens of a vocabulary for training texts of so many bytes: a power of two; None: the recipe's stays.

    A token should stand in the texts often enough to be learnt: of translations, on 3.7 MB of Multi30k, some 4,000
    served well; words that tell a label need not be written, and a larger vocabulary has more whole ones.
    """
    bytes_per_token = rules_of(task).bytes_per_token
    if bytes_per_token is None:
        return None
    least, most = VOCABULARY
    return min(most, max(least, _power_of_two(size / bytes_per_token)))


def _suits(shape: ModelShape, case: SizingCase, speed: float) -> bool:
    weights = shape.weights(case.family)
    tokens = min(speed * case.seconds / shape.arithmetic(case), case.most_tokens)
    rules = case.rules
    return tokens >= rules.tokens_per_weight * weights and weights <= rules.weights_per_token * case.text_tokens


def _around(shape: ModelShape, case: SizingCase, said: Mapping[str, Any]) -> ModelShape:
    """Return the shape with the sizes given in `said`; unless a context is given, short texts get a short one."""
    own = {name: int(said[f"model.{name}"]) for name in ("layers", "width", "context") if f"model.{name}" in said}
    if "context" not in own and case.longest is not None:
        own["context"] = min(LONGEST_CONTEXT, CONTEXT_STEP * math.ceil(case.longest / CONTEXT_STEP))
    elif "context" not in own and case.row_tokens is None:
        own["context"] = max(1, min(shape.context, case.rules.context, case.text_tokens // 4))
    return replace(shape, **own)


def _tokens_per_step(tokens: float, case: SizingCase) -> float:
    """Return how many tokens a step has, so that the steps are enough, in bounds."""
    least, most = TOKENS_PER_STEP
    return min(most, max(least, tokens / case.rules.steps))


def _power_of_two(number: float) -> int:
    """The nearest one, by ratio; at least 1."""
    return 1 << round(math.log2(max(1.0, number)))


def _heads(width: int, said: Mapping[str, Any]) -> int:
    """Return the number of heads nearest to the usual head width, of those that leave each head an even width."""
    if "model.heads" in said:
        return int(said["model.heads"])
    wanted = next((head for limit, head in HEAD_WIDTH.items() if width <= limit), WIDE_HEAD)
    possible = [heads for heads in range(1, width + 1) if width % heads == 0 and width // heads % 2 == 0] or [1]
    return min(possible, key=lambda heads: abs(math.log(width / heads / wanted)))


def _rounded(rate: float) -> float:
    return float(f"{rate:.2g}")


def _why(shape: ModelShape, case: SizingCase, speed: float, smallest: bool, capped: bool) -> list[str]:
    weights = shape.weights(case.family)
    possible = speed * case.seconds / shape.arithmetic(case)
    found = [
        f"{speed:.2g} operations a second for {case.seconds:,.0f} s are {possible:,.0f} tokens through {weights:,} "
        f"weights, {possible / weights:,.1f} for each"
    ]
    if case.rules.dropout:
        epochs = min(possible, case.most_tokens) / case.text_tokens
        found.append(f"the examples are read {epochs:.1f} times, and dropout is chosen by that")
    if smallest:
        found.append("for this text and this time, that is a large model")
    if capped:
        epochs = case.most_tokens / case.text_tokens
        found.append(f"the text has {case.text_tokens:,} tokens: it is read {epochs:,.0f} times and no more")
    return found
