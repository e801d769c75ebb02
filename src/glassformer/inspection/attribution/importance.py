"""Token importance for one answer by attention, rollout and occlusion, with their rank correlations.

Attention and rollout are weights from the forward pass; occlusion is the drop of ln p(answer) when the token is
replaced. If attention and occlusion rank the tokens differently, attention does not show which tokens the answer
depends on (Jain and Wallace 2019).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

from torch import Tensor

from glassformer.inspection.attribution.agreement import LEAST
from glassformer.inspection.attribution.case import check_number
from glassformer.inspection.attribution.occlusion import Occlusion
from glassformer.inspection.attribution.rollout import read_by, rollout
from glassformer.inspection.ranks import spearman
from glassformer.inspection.sites import last_stack
from glassformer.inspection.trace import Trace
from glassformer.inspection.traced import AttentionTrace
from glassformer.model.transformer import Model

MEASURES = ("attention", "rollout", "blank-out")
PAIRS = tuple(combinations(MEASURES, 2))
"""Pairs of measures to compare."""
SCORE = 64
"""Estimated number of floating-point operations of masking and softmax for one attention score."""


@dataclass(frozen=True, eq=False)
class Importance:
    """Importance of each token for one answer.

    Attributes:
        side: "own" for the tokens of the row, "source" for those of the source. S is the number of these tokens.
        attention: (S) float64, the attention weights of one layer, mean over heads; None if the layer has no heads.
        rollout: (S) float64, the rollout up to that layer.
        blanked: (S) float64, the drop of ln p(answer) when the token is replaced, in nats.
        n_visible: number of visible tokens, counted from the first: in a causal model, the tokens of the row up to the
            output's position; otherwise, all tokens.
        spearman: the rank correlation over the visible tokens for each of `PAIRS`; occlusion is ranked by its absolute
            value. None if fewer than `LEAST` tokens are visible, if a measure of the pair has the same value for all of
            them, or if the pair contains attention and `attention` is None.
    """

    side: str
    attention: Tensor | None
    rollout: Tensor
    blanked: Tensor
    n_visible: int
    spearman: tuple[float | None, ...]

    def facts(self) -> dict[str, Any]:
        """Return the results as a JSON-serializable dict."""
        return {
            "side": self.side,
            "seen": self.n_visible,
            "attention": None if self.attention is None else self.attention.tolist(),
            "rollout": self.rollout.tolist(),
            "blanked": self.blanked.tolist(),
            "spearman": [{"between": pair, "value": value} for pair, value in zip(PAIRS, self.spearman, strict=True)],
        }


def importance(model: Model, trace: Trace, occlusion: Occlusion, layer: int, column: int) -> list[Importance]:
    """Return the three measures for one answer, for the tokens of the row and, if there is a source, for its tokens.

    Args:
        model: a model of any family.
        trace: forward pass of the unmodified text.
        occlusion: effects of replacing each token of that text.
        layer: layer number in the stack that yields the logits, from 0.
        column: index of the output in `occlusion.outputs`.

    Raises:
        GlassError: `layer` or `column` is out of range.
    """
    output = occlusion.outputs[check_number("output", column, len(occlusion.outputs))]
    block = trace.stack.blocks[check_number("layer", layer, len(trace.stack.blocks))]
    rolled = rollout(trace)
    reads = [output.reads]
    length = output.reads[-1] + 1 if last_stack(model).causal else occlusion.row.shape[1]
    results = [_importance("own", block.attention, rolled.row[layer], occlusion.row[column], reads, length)]
    if occlusion.source is not None and rolled.source is not None and block.cross is not None:
        effects = occlusion.source[column]  # (S)
        results.append(_importance("source", block.cross, rolled.source[layer], effects, reads, len(effects)))
    return results


def _importance(
    side: str,
    attention_trace: AttentionTrace,
    rollouts: Tensor,
    effects: Tensor,
    reads: list[tuple[int, ...]],
    n_visible: int,
) -> Importance:
    weights = (
        read_by(attention_trace.pattern[0].cpu().double().mean(dim=0), reads)[0] if attention_trace.heads else None
    )  # (S)
    output_rollout = read_by(rollouts, reads)[0]  # (S)
    measures = dict(zip(MEASURES, (weights, output_rollout, effects.abs()), strict=True))
    return Importance(
        side,
        weights,
        output_rollout,
        effects,
        n_visible,
        tuple(_correlation(measures[a], measures[b], n_visible) for a, b in PAIRS),
    )


def _correlation(first: Tensor | None, second: Tensor | None, n_visible: int) -> float | None:
    if first is None or second is None or n_visible < LEAST:
        return None
    return spearman(first[:n_visible].numpy(), second[:n_visible].numpy())


def occlusion_flops(model: Model, tokens: int, target: int | None = None) -> float:
    """Estimate the floating-point operations of replacing each token of a text, and of its target, once.

    For the arguments, see `estimate_forward_flops`.
    """
    return (tokens + (target or 0)) * estimate_forward_flops(model, tokens, target)


def estimate_forward_flops(model: Model, tokens: int, target: int | None = None) -> float:
    """Estimate the floating-point operations of one forward pass.

    Args:
        model: a model of any family.
        tokens: number of tokens of the text, or of the source.
        target: number of target tokens of an encoder-decoder; otherwise None.
    """
    config = model.config
    T = tokens if target is None else target
    scores = config.layers * T * T
    if target is not None:
        scores += config.layers * T * tokens + (config.encoder_layers or config.layers) * tokens * tokens
    weights = sum(parameter.numel() for parameter in model.parameters())
    return 2.0 * weights * (tokens + (target or 0)) + config.heads * scores * (2.0 * (config.K + config.U) + SCORE)
