"""Tokens that matter to one answer, by raw attention, rollout and blank-out, and how far the three agree.

Attention and rollout are weights that the model used; blank-out is what the answer loses when the token is gone. Where
the three rank the tokens differently, the weights do not tell what the answer depends on (Jain & Wallace 2019).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

from torch import Tensor

from glassformer.inspection.attribution.agreement import LEAST
from glassformer.inspection.attribution.case import check_number
from glassformer.inspection.attribution.occlusion import Blanking
from glassformer.inspection.attribution.rollout import read_by, rollout
from glassformer.inspection.ranks import spearman
from glassformer.inspection.trace import Trace
from glassformer.inspection.traced import AttentionTrace
from glassformer.model.transformer import Model

MEASURES = ("attention", "rollout", "blank-out")
PAIRS = tuple(combinations(MEASURES, 2))
"""Which measures are compared."""
SCORE = 64
"""Cost of one score beside its products, in multiplications: it is masked, raised, summed, divided."""


@dataclass(frozen=True, eq=False)
class Importance:
    """One answer's tokens.

    Attributes:
        side: "own" tokens of the row, or those of the "source".
        attention: (S) float64, the mean over heads of one layer; None where that layer has no head left.
        rollout: (S), up to that layer.
        blanked: (S) nats of ln p(answer) that are lost without the token.
        seen: how many tokens the answer can see: the first ones.
        spearman: for each of `PAIRS` the rank correlation over the tokens seen, of blank-out by its size; None where
            they are fewer than `LEAST`, or all ranks are equal.
    """

    side: str
    attention: Tensor | None
    rollout: Tensor
    blanked: Tensor
    seen: int
    spearman: tuple[float | None, ...]

    def facts(self) -> dict[str, Any]:
        """Return the results as a JSON-serializable dict."""
        return {
            "side": self.side,
            "seen": self.seen,
            "attention": None if self.attention is None else self.attention.tolist(),
            "rollout": self.rollout.tolist(),
            "blanked": self.blanked.tolist(),
            "spearman": [{"between": pair, "value": value} for pair, value in zip(PAIRS, self.spearman, strict=True)],
        }


def importance(model: Model, trace: Trace, blanking: Blanking, layer: int, column: int) -> list[Importance]:
    """The three measures of one answer: of the row's own tokens, and of the source's where there is one.

    Args:
        model: of any family.
        trace: of the text that was blanked.
        blanking: its effects.
        layer: of the stack whose vectors become logits.
        column: which of the P outputs of `blanking`.

    Raises:
        GlassError: there is no such layer, or no such output.
    """
    output = blanking.outputs[check_number("output", column, len(blanking.outputs))]
    block = trace.stack.blocks[check_number("layer", layer, len(trace.stack.blocks))]
    rolled = rollout(trace)
    reads = [output.reads]
    length = output.reads[-1] + 1 if model.config.family != "encoder" else blanking.own.shape[1]
    found = [_measured("own", block.attention, rolled.own[layer], blanking.own[column], reads, length)]
    if blanking.source is not None and rolled.source is not None and block.cross is not None:
        effects = blanking.source[column]  # (S)
        found.append(_measured("source", block.cross, rolled.source[layer], effects, reads, len(effects)))
    return found


def _measured(
    side: str, made: AttentionTrace, shares: Tensor, effects: Tensor, reads: list[tuple[int, ...]], seen: int
) -> Importance:
    weights = read_by(made.weights[0].cpu().double().mean(dim=0), reads)[0] if made.heads else None  # (S)
    share = read_by(shares, reads)[0]  # (S)
    ranked = dict(zip(MEASURES, (weights, share, effects.abs()), strict=True))
    return Importance(
        side, weights, share, effects, seen, tuple(_correlation(ranked[a], ranked[b], seen) for a, b in PAIRS)
    )


def _correlation(first: Tensor | None, second: Tensor | None, seen: int) -> float | None:
    if first is None or second is None or seen < LEAST:
        return None
    return spearman(first[:seen].numpy(), second[:seen].numpy())


def blanking_work(model: Model, tokens: int, target: int | None = None) -> float:
    """About how many multiplications and additions it takes to blank each token of a text once; see `pass_work`."""
    return (tokens + (target or 0)) * pass_work(model, tokens, target)


def pass_work(model: Model, tokens: int, target: int | None = None) -> float:
    """About how many multiplications and additions one forward pass takes.

    Args:
        model: of any family.
        tokens: of the text, or of the source.
        target: tokens of the target of an encoder-decoder.
    """
    config = model.config
    T = tokens if target is None else target
    scores = config.layers * T * T
    if target is not None:
        scores += config.layers * T * tokens + (config.encoder_layers or config.layers) * tokens * tokens
    weights = sum(parameter.numel() for parameter in model.parameters())
    return 2.0 * weights * (tokens + (target or 0)) + config.heads * scores * (4.0 * config.K + SCORE)
