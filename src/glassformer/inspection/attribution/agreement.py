"""Do attention weights say what matters? Rank correlations with blank-out. Jain & Wallace 2019; Abnar & Zuidema 2020.

For each output the tokens that it can see are ranked by what its answer loses without them, in size; and by attention
of each layer, and by rollout up to it. Spearman's correlation of the two rankings is averaged over outputs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from glassformer.inspection.attribution.occlusion import Blanking
from glassformer.inspection.attribution.rollout import read_by, rollout
from glassformer.inspection.ranks import spearman
from glassformer.inspection.trace import Trace
from glassformer.inspection.traced import AttentionTrace
from glassformer.model.transformer import Model

LEAST = 4
"""Tokens that an output has to see: fewer have no ranking to speak of."""


@dataclass(frozen=True)
class Agreed:
    """The ranking of tokens by one measure, compared with the ranking by blank-out.

    Attributes:
        layer: from 0.
        measure: "attention", the heads' mean, or "rollout" up to that layer.
        side: "own" tokens of the row, or those of the "source".
        correlation: Spearman's, the mean over outputs; None where no output has enough tokens, or all ranks are equal.
        outputs: how many it is the mean of.
    """

    layer: int
    measure: str
    side: str
    correlation: float | None
    outputs: int


@dataclass(frozen=True)
class RankAgreement:
    """All layers and measures beside blank-out, and the last layer's attention beside the rollout."""

    rows: tuple[Agreed, ...]
    attention_and_rollout: dict[str, float | None]

    def facts(self) -> dict[str, Any]:
        """Return the results as a JSON-serializable dict."""
        return {
            "rows": [asdict(row) for row in self.rows],
            "attention_and_rollout": self.attention_and_rollout,
            "least_tokens": LEAST,
        }


def agreement(model: Model, trace: Trace, blanking: Blanking) -> RankAgreement:
    """Compare.

    Args:
        model: of any family.
        trace: of the text that was blanked.
        blanking: its effects.
    """
    reads = [output.reads for output in blanking.outputs]
    causal = model.config.family != "encoder"
    rolled = rollout(trace)
    rows: list[Agreed] = []
    between: dict[str, float | None] = {}
    sides = [("own", blanking.own, rolled.own)]
    if blanking.source is not None and rolled.source is not None:
        sides.append(("source", blanking.source, rolled.source))
    for side, effects, shares in sides:
        counts = [read[-1] + 1 if causal and side == "own" else effects.shape[1] for read in reads]
        for layer, block in enumerate(trace.stack.blocks):
            made = block.attention if side == "own" else block.cross
            weights = None if made is None or not made.heads else read_by(_mean(made), reads)  # (P, S)
            share = read_by(shares[layer], reads)  # (P, S)
            for measure, values in (("attention", weights), ("rollout", share)):
                found = [] if values is None else _correlations(values, effects.abs(), counts)
                rows.append(Agreed(layer, measure, side, _average(found), len(found)))
        between[side] = None if weights is None else _average(_correlations(weights, share, counts))
    return RankAgreement(tuple(rows), between)


def _correlations(a: Tensor, b: Tensor, counts: list[int]) -> list[float]:
    """Return the rank correlation of each output, over the first tokens that it sees; (P, S) both."""
    rows = zip(a.numpy(), b.numpy(), counts, strict=True)
    found = [spearman(x[:count], y[:count]) for x, y, count in rows if count >= LEAST]
    return [each for each in found if each is not None]


def _average(found: list[float]) -> float | None:
    return sum(found) / len(found) if found else None


def _mean(made: AttentionTrace) -> Tensor:
    """The mean weights over heads, of the first row: (T, S) float64."""
    return made.weights[0].cpu().double().mean(dim=0)
