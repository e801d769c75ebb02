"""Surprisal, -ln P of each token of a text: by position in the row, by frequency, and by earlier occurrence.

For the validation split of a language model, the mean is the loss that `glass evaluate` reports, up to rounding,
because both use the same rows and weight the tokens in the same way. A token is a *hit* if its bigram (the previous
token and this token) occurs earlier in the row, so that the token can be recalled ("AR hits": Arora et al. 2023,
"Zoology").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from glassformer.evaluation.probes.row_probabilities import ScorableModel, score_after_first
from glassformer.text.tokenizers import Tokenizer

LISTED = 10_000
"""Maximum number of tokens in a given text that `--json` lists one by one."""
SHOWN = 60
"""Maximum length of a given text, in tokens, for which the text report lists all tokens one by one."""
TENS = (0, 1, 10, 100, 1_000, 10_000, 100_000)


@dataclass(frozen=True)
class SurprisalGroup:
    """The surprisal of a group of tokens.

    Attributes:
        name: name of the group.
        tokens: number of tokens.
        nats: mean surprisal in nats.
        fraction_of_nats: fraction of the total nats of the text.
    """

    name: str
    tokens: int
    nats: float
    fraction_of_nats: float

    def facts(self) -> dict[str, Any]:
        """Return the group as JSON values."""
        return {"group": self.name, "tokens": self.tokens, "nats": self.nats, "share_of_nats": self.fraction_of_nats}


class TokenSurprisal(NamedTuple):
    """The surprisal of one token.

    Attributes:
        token: text of the token.
        nats: surprisal in nats.
        place: position of the token among the scored tokens of its row, from 1.
        times: count of the token in the training text or in this text, as the title of the table says.
        hit: whether the token's bigram occurs earlier in the row.
    """

    token: str
    nats: float
    place: int
    times: int
    hit: bool


@dataclass(frozen=True)
class SurprisalResult:
    """The surprisal of a text.

    Attributes:
        about: description of the measured text.
        mean: mean surprisal in nats per token.
        tokens: number of tokens.
        parts: three groupings of the tokens: "position in the row", "times in ...", "same bigram earlier in the row".
        learning: in-context learning: mean surprisal at position `ends[1]` minus mean surprisal at `ends[0]`, negative
            if more context helps (Olsson et al. 2022); None if rows are too short.
        ends: an early and a late position: the late position is the median row length, the early position a tenth of it
            (at least 1).
        notes: notes for the user.
        each: surprisal of the first tokens one by one; empty unless requested.
        before: text of the token before the first predicted token.
    """

    about: str
    mean: float
    tokens: int
    parts: dict[str, list[SurprisalGroup]]
    learning: float | None
    ends: tuple[int, int]
    notes: Sequence[str] = ()
    each: Sequence[TokenSurprisal] = ()
    before: str = ""
    name: str = "surprisal"

    def facts(self) -> dict[str, Any]:
        """Return the results as JSON values."""
        return {
            "about": self.about,
            "mean": self.mean,
            "tokens": self.tokens,
            "parts": {title: [part.facts() for part in parts] for title, parts in self.parts.items()},
            "in_context_learning": self.learning,
            "in_context_places": list(self.ends),
            "notes": list(self.notes),
            "each": [listed._asdict() for listed in self.each],
        }

    def text(self) -> str:
        """Format the result as text: mean, surprisal by groups of tokens, and in-context learning."""
        lines = [f"{self.name}: {self.about}", *self.notes, f"mean: {self.mean:.4f} nats over {self.tokens:,} tokens"]
        if len(self.each) == self.tokens <= SHOWN:
            lines += [f"{listed.nats:>9.4f}  {listed.token}" for listed in self.each]
        for title, parts in self.parts.items():
            width = max(20, len(title))
            lines.append(f"{title:<{width}}{'nats':>9}{'of all nats':>13}{'tokens':>12}")
            for part in parts:
                fraction = f"{100 * part.fraction_of_nats:.1f} %"
                lines.append(f"  {part.name:<{width - 2}}{part.nats:>9.4f}{fraction:>13}{part.tokens:>12,}")
        if self.learning is not None:
            early, late = self.ends
            positions = f"surprisal at position {late} minus surprisal at position {early}"
            lines.append(f"in-context learning, {positions}: {self.learning:+.4f} nats")
        return "\n".join(lines)


def surprisal(
    model: ScorableModel,
    rows: Sequence[npt.NDArray[np.integer]],
    counts: npt.NDArray[np.int64],
    counted_in: str,
    about: str,
    notes: Sequence[str] = (),
    listed: int = 0,
) -> SurprisalResult:
    """Measure the surprisal of a text, and average it over groups of tokens.

    Args:
        model: the run.
        rows, counts, counted_in, about, notes, listed: as in `grouped`.
    """
    nats = [row_scores.nats for row_scores in score_after_first(model, rows)]
    return grouped(nats, rows, model.tokenizer, counts, counted_in, about, notes, listed)


def grouped(
    nats: Sequence[npt.NDArray[np.float64]],
    rows: Sequence[npt.NDArray[np.integer]],
    tokenizer: Tokenizer,
    counts: npt.NDArray[np.int64],
    counted_in: str,
    about: str,
    notes: Sequence[str] = (),
    listed: int = 0,
) -> SurprisalResult:
    """Average the surprisal of tokens over groups of tokens.

    Args:
        nats: surprisal of the scored tokens of each row, (T,).
        rows: token ids of each row, (T+1,); all except the first are scored.
        tokenizer: tokenizer of the rows.
        counts: count of each token in `counted_in`, (V,).
        counted_in: "training" or "this text".
        about, notes: as in `SurprisalResult`.
        listed: maximum number of tokens to list one by one.
    """
    all_nats = np.concatenate(nats)  # (N,)
    positions = np.concatenate([np.arange(1, len(part) + 1) for part in nats])  # (N,)
    tokens = np.concatenate([row[1:] for row in rows]).astype(np.int64)  # (N,)
    times = counts[tokens]  # (N,)
    hits = np.concatenate([seen_earlier(row) for row in rows])  # (N,)
    powers = [2**power for power in range(int(positions.max()).bit_length() + 1)]
    parts = {
        "position in the row": _group_by_range(all_nats, positions, powers, powers[-1]),
        f"times in {counted_in}": _group_by_range(all_nats, times, TENS, None),
        "same bigram earlier in the row": [
            _make_part(name, all_nats, hits == hit)
            for name, hit in (("hits", True), ("other tokens", False))
            if np.any(hits == hit)
        ],
    }
    late = int(np.median([len(part) for part in nats]))
    early = max(1, late // 10)
    learning = None
    if late > early:
        learning = float(all_nats[positions == late].mean() - all_nats[positions == early].mean())
    texts = [tokenizer.token_text(token) for token in tokens[:listed].tolist()]
    columns = (all_nats, positions, times, hits)
    listed_tokens = [
        TokenSurprisal(text, *row)
        for text, *row in zip(texts, *(column[:listed].tolist() for column in columns), strict=True)
    ]
    before = tokenizer.token_text(int(rows[0][0]))
    return SurprisalResult(
        about, float(all_nats.mean()), len(all_nats), parts, learning, (early, late), notes, listed_tokens, before
    )


def seen_earlier(row: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    """Return, for each token except the first, whether the bigram that ends there occurs earlier in the row; (T,).

    >>> seen_earlier(np.array([5, 1, 2, 1, 2, 1])).tolist()
    [False, False, False, True, True]
    """
    pairs = list(zip(row[:-1].tolist(), row[1:].tolist(), strict=True))
    first = {pair: position for position, pair in reversed(list(enumerate(pairs)))}
    return np.array([first[pair] < position for position, pair in enumerate(pairs)], dtype=np.bool_)


def _group_by_range(
    nats: npt.NDArray[np.float64], values: npt.NDArray[np.int64], edges: Sequence[int], end: int | None
) -> list[SurprisalGroup]:
    """Group tokens by the range that contains their value: edge <= value < next edge; leave out empty ranges."""
    parts = []
    for low, high in zip(edges, (*edges[1:], end), strict=True):
        selected = (values >= low) & (values < (np.inf if high is None else high))
        if selected.any():
            name = f"{low:,}"
            if high is None:
                name += " or more"
            elif high - 1 > low:
                name += f" to {high - 1:,}"
            parts.append(_make_part(name, nats, selected))
    return parts


def _make_part(name: str, nats: npt.NDArray[np.float64], selected: npt.NDArray[np.bool_]) -> SurprisalGroup:
    return SurprisalGroup(
        name, int(selected.sum()), float(nats[selected].mean()), float(nats[selected].sum() / nats.sum())
    )
