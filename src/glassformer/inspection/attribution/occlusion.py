"""Occlusion: the drop of ln p(answer) when one token of the text is replaced.

Unlike attention weights, occlusion measures a causal effect: the model reads the text again for each replaced token.
The result depends on the replacement. Choose a token that occurred in the training text, because the model has not
learned to read other tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glassformer.inspection.attribution.case import AttributionCase, Output
from glassformer.inspection.sites import last_stack

MOST_LOGITS = 1 << 23
"""Maximum number of logits in one forward pass, unless a single row has more; larger batches are split."""


@dataclass(frozen=True, eq=False)
class Occlusion:
    """Drop of ln p(answer), in nats, for each of P outputs and each replaced token.

    Attributes:
        outputs: the P outputs.
        replacement: id of the token that replaces a token of the row.
        before: (P) float64, ln p(answer) for the unmodified text.
        row: (P, T) float64, the drop for each token of the row; exactly 0 for tokens after the output, unless the model
            is an encoder.
        source: (P, S) float64, the drop for each source token of an encoder-decoder; otherwise None.
    """

    outputs: tuple[Output, ...]
    replacement: int
    before: Tensor
    row: Tensor
    source: Tensor | None

    def facts(self, name: Callable[[int], str] = str) -> dict[str, Any]:
        """Return the results as a JSON-serializable dict; `name` maps the id of a token or class to its text."""
        return {
            "replacement": self.replacement,
            "outputs": [
                {**vars(output), "text": name(output.answer), "log_probability": log_p}
                for output, log_p in zip(self.outputs, self.before.tolist(), strict=True)
            ],
            "own": self.row.tolist(),
            "source": None if self.source is None else self.source.tolist(),
        }


def occlude(case: AttributionCase, replacement: int, source_replacement: int | None = None) -> Occlusion:
    """Replace each token of a text, one at a time, and measure the drop of ln p(answer).

    Args:
        case: the text and its outputs; the answers stay the same.
        replacement: id of the token that replaces a token of the row.
        source_replacement: id of the token that replaces a source token, if source and target have separate
            vocabularies; None: `replacement`.

    Raises:
        GlassError: a replacement is outside the vocabulary, or the logits are not finite.
    """
    before = _log_p(case, case.tokens, case.target)[0]  # (P)
    length = case.row.shape[1]
    if case.target is None:
        effects = before - _log_p_in_batches(case, _blanked(case.tokens, replacement), None)  # (T, P)
        return Occlusion(case.outputs, replacement, before, _zero_later_tokens(case, effects.T), None)
    source_id = replacement if source_replacement is None else source_replacement
    blanked_source = _blanked(case.tokens, source_id)  # (S, S)
    source = before - _log_p_in_batches(case, blanked_source, case.target.expand(len(blanked_source), -1))  # (S, P)
    effects = before - _log_p_in_batches(
        case, case.tokens.expand(length, -1), _blanked(case.target, replacement)
    )  # (T, P)
    return Occlusion(case.outputs, replacement, before, _zero_later_tokens(case, effects.T), source.T)


def _zero_later_tokens(case: AttributionCase, effects: Tensor) -> Tensor:
    """Set the effects (P, T) of tokens after a causal output to exactly 0, removing rounding errors of batching."""
    if not last_stack(case.model).causal:
        return effects
    positions = torch.tensor([output.place for output in case.outputs])  # (P)
    return effects.masked_fill(torch.arange(effects.shape[1]) > positions[:, None], 0.0)  # (P, T)


def _blanked(row: Tensor, replacement: int) -> Tensor:
    """Return T copies of a row, (1, T) -> (T, T), with token j replaced in row j."""
    copies = row.repeat(row.shape[1], 1)  # (T, T)
    return copies.fill_diagonal_(replacement)


def _log_p_in_batches(case: AttributionCase, tokens: Tensor, target: Tensor | None) -> Tensor:
    """Return ln p of the answers, (B, P), for B rows; batches have at most `MOST_LOGITS` logits, or a single row."""
    rows_per_pass = max(1, MOST_LOGITS // (case.row.shape[1] * case.model.vocab_size))
    return torch.cat(
        [
            _log_p(
                case,
                tokens[start : start + rows_per_pass],
                None if target is None else target[start : start + rows_per_pass],
            )
            for start in range(0, len(tokens), rows_per_pass)
        ]
    )


def _log_p(case: AttributionCase, tokens: Tensor, target: Tensor | None) -> Tensor:
    """Return ln p of the answers, (B, P) float64."""
    answers = torch.tensor([output.answer for output in case.outputs])  # (P)
    log_p = case.logits(tokens, target).double().log_softmax(dim=-1)  # (B, P, V)
    return log_p.gather(-1, answers.expand(len(log_p), -1)[..., None])[..., 0]  # (B, P)
