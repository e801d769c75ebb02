"""Rank correlation of attention and rollout with occlusion (Jain and Wallace 2019; Abnar and Zuidema 2020).

For each output, the visible tokens are ranked by occlusion (the absolute change of ln p(answer) when a token is
replaced), by the attention weights of each layer (mean over heads), and by the rollout up to each layer. Spearman's
correlation of the occlusion ranking with the attention ranking, and with the rollout ranking, is averaged over the
outputs. Outputs with fewer than `LEAST` visible tokens, or with equal values for all tokens in one of the two measures,
are skipped.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from glassformer.inspection.attribution.occlusion import Occlusion
from glassformer.inspection.attribution.rollout import read_by, rollout
from glassformer.inspection.ranks import spearman
from glassformer.inspection.sites import last_stack
from glassformer.inspection.trace import Trace
from glassformer.inspection.traced import AttentionTrace
from glassformer.model.transformer import Model

LEAST = 4
"""Minimum number of visible tokens for a rank correlation; outputs with fewer are skipped."""


@dataclass(frozen=True)
class MeasureAgreement:
    """Rank correlation of one measure with occlusion.

    Attributes:
        layer: layer number, from 0.
        measure: "attention" (mean over heads) or "rollout" (up to that layer).
        side: "own" for the tokens of the row, "source" for those of the source.
        correlation: Spearman's correlation, mean over outputs; None if the layer has no heads (attention only), or if
            each output has fewer than `LEAST` visible tokens or gives all of them the same value in one measure.
        outputs: number of outputs in the mean.
    """

    layer: int
    measure: str
    side: str
    correlation: float | None
    outputs: int


@dataclass(frozen=True)
class RankAgreement:
    """Rank correlations of all layers and measures.

    Attributes:
        rows: correlation of each layer and measure with occlusion.
        attention_and_rollout: side -> correlation of the last layer's attention with the rollout, mean over outputs;
            None in the same cases as `MeasureAgreement.correlation`.
    """

    rows: tuple[MeasureAgreement, ...]
    attention_and_rollout: dict[str, float | None]

    def facts(self) -> dict[str, Any]:
        """Return the results as a JSON-serializable dict."""
        return {
            "rows": [asdict(row) for row in self.rows],
            "attention_and_rollout": self.attention_and_rollout,
            "least_tokens": LEAST,
        }


def agreement(model: Model, trace: Trace, occlusion: Occlusion) -> RankAgreement:
    """Compute the rank correlations of attention and rollout with occlusion.

    Args:
        model: a model of any family.
        trace: forward pass of the unmodified text.
        occlusion: effects of replacing each token of that text.
    """
    reads = [output.reads for output in occlusion.outputs]
    causal = last_stack(model).causal
    rolled = rollout(trace)
    rows: list[MeasureAgreement] = []
    attention_and_rollout: dict[str, float | None] = {}
    comparisons = [("own", occlusion.row, rolled.row)]
    if occlusion.source is not None and rolled.source is not None:
        comparisons.append(("source", occlusion.source, rolled.source))
    for side, effects, rollouts in comparisons:
        counts = [read[-1] + 1 if causal and side == "own" else effects.shape[1] for read in reads]
        for layer, block in enumerate(trace.stack.blocks):
            attention_trace = block.attention if side == "own" else block.cross
            weights = (
                None
                if attention_trace is None or not attention_trace.heads
                else read_by(_mean_weights(attention_trace), reads)
            )  # (P, S)
            layer_rollout = read_by(rollouts[layer], reads)  # (P, S)
            for measure, values in (("attention", weights), ("rollout", layer_rollout)):
                correlations = [] if values is None else _correlations(values, effects.abs(), counts)
                rows.append(MeasureAgreement(layer, measure, side, _average(correlations), len(correlations)))
        attention_and_rollout[side] = (
            None if weights is None else _average(_correlations(weights, layer_rollout, counts))
        )
    return RankAgreement(tuple(rows), attention_and_rollout)


def _correlations(a: Tensor, b: Tensor, counts: list[int]) -> list[float]:
    """Return the rank correlation of `a` and `b`, (P, S) each, for each output over its first `count` tokens.

    Outputs with fewer than `LEAST` tokens, or with equal values for all tokens in `a` or in `b`, are left out.
    """
    rows = zip(a.numpy(), b.numpy(), counts, strict=True)
    correlations = [spearman(x[:count], y[:count]) for x, y, count in rows if count >= LEAST]
    return [correlation for correlation in correlations if correlation is not None]


def _average(correlations: list[float]) -> float | None:
    return sum(correlations) / len(correlations) if correlations else None


def _mean_weights(attention_trace: AttentionTrace) -> Tensor:
    """Return the attention weights of the first row, mean over heads, (T, S) float64."""
    return attention_trace.pattern[0].cpu().double().mean(dim=0)
