"""Blank-out: how much less likely an answer becomes when one token of the text is replaced by another, stated one.

This is a cause, not a weight: the model reads the text again, each time with one token replaced. What it means depends
on the replacement, which the model has to know: a token for unknown words where there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glassformer.inspection.attribution.case import AttributionCase, Output

MOST_LOGITS = 1 << 23
"""Most logits of one forward pass."""


@dataclass(frozen=True, eq=False)
class Blanking:
    """The loss of P answers without each token, in nats: ln p(answer) of the text, less that without the token.

    Attributes:
        outputs: (P).
        replacement: the token that stands in for each.
        before: (P) float64, ln p(answer) of the text as it is.
        own: (P, T) float64, without each token of the row; 0 for tokens that the output cannot see.
        source: (P, S) without each token of the source, of an encoder-decoder; else None.
    """

    outputs: tuple[Output, ...]
    replacement: int
    before: Tensor
    own: Tensor
    source: Tensor | None

    def facts(self, name: Callable[[int], str] = str) -> dict[str, Any]:
        """Return the results as a JSON-serializable dict; `name` maps the id of a token or class to its text."""
        return {
            "replacement": self.replacement,
            "outputs": [
                {**vars(output), "text": name(output.answer), "log_probability": log_p}
                for output, log_p in zip(self.outputs, self.before.tolist(), strict=True)
            ],
            "own": self.own.tolist(),
            "source": None if self.source is None else self.source.tolist(),
        }


def blank(case: AttributionCase, replacement: int, source_replacement: int | None = None) -> Blanking:
    """Blank each token of a text, one at a time.

    Args:
        case: the text and its answers, which stay what they are.
        replacement: stands in for each token of the row.
        source_replacement: for each of the source, of an encoder-decoder with two vocabularies; None: the same one.
    """
    before = _log_p(case, case.tokens, case.target)[0]  # (P)
    row = case.row.shape[1]
    if case.target is None:
        own = before - _each(case, _blanked(case.tokens, replacement), None)  # (T, P)
        return Blanking(case.outputs, replacement, before, _seen(case, own.T), None)
    other = replacement if source_replacement is None else source_replacement
    rows = _blanked(case.tokens, other)  # (S, S)
    source = before - _each(case, rows, case.target.expand(len(rows), -1))  # (S, P)
    own = before - _each(case, case.tokens.expand(row, -1), _blanked(case.target, replacement))  # (T, P)
    return Blanking(case.outputs, replacement, before, _seen(case, own.T), source.T)


def _seen(case: AttributionCase, own: Tensor) -> Tensor:
    """(P, T) without the rounding that batches of another size leave at tokens that are ahead of a causal output."""
    if case.model.config.family == "encoder":
        return own
    places = torch.tensor([output.place for output in case.outputs])  # (P)
    return own.masked_fill(torch.arange(own.shape[1]) > places[:, None], 0.0)  # (P, T)


def _blanked(row: Tensor, replacement: int) -> Tensor:
    """(1, T) -> (T, T): in row j token j is replaced."""
    copies = row.repeat(row.shape[1], 1)  # (T, T)
    return copies.fill_diagonal_(replacement)


def _each(case: AttributionCase, tokens: Tensor, target: Tensor | None) -> Tensor:
    """ln p of the answers for many rows: (B, P), a few rows at a time."""
    size = max(1, MOST_LOGITS // (case.row.shape[1] * case.model.vocab_size))
    return torch.cat(
        [
            _log_p(case, tokens[n : n + size], None if target is None else target[n : n + size])
            for n in range(0, len(tokens), size)
        ]
    )


def _log_p(case: AttributionCase, tokens: Tensor, target: Tensor | None) -> Tensor:
    """ln p of the answers: (B, P) float64."""
    answers = torch.tensor([output.answer for output in case.outputs])  # (P)
    log_p = case.logits(tokens, target).double().log_softmax(dim=-1)  # (B, P, V)
    return log_p.gather(-1, answers.expand(len(log_p), -1)[..., None])[..., 0]  # (B, P)
