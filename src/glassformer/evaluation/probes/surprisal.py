"""Surprisal: -ln P of each token of a text, by place in the row, by frequency, and by whether it was to be looked up.

Of a run that continues text, the mean is the loss that `glass evaluate` gives: the same rows, the same weights. A token
is a *hit* if it and the token before it stand next to each other earlier in its row, so that it could be looked up
("AR hits": Arora et al. 2023, "Zoology").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from glassformer.evaluation.probes.row_probabilities import Readable, read_after
from glassformer.text.tokenizers import Tokenizer

LISTED = 10_000
"""Tokens of a given text that are listed one by one for programs, at most."""
SHOWN = 60
"""Tokens of a given text that are listed one by one for people, at most."""
TENS = (0, 1, 10, 100, 1_000, 10_000, 100_000)


@dataclass(frozen=True)
class Part:
    """Some of the tokens.

    Attributes:
        name: which.
        tokens: how many.
        nats: their mean surprisal.
        share: of all nats of the text.
    """

    name: str
    tokens: int
    nats: float
    share: float

    def facts(self) -> dict[str, Any]:
        """Return the part as JSON."""
        return {"group": self.name, "tokens": self.tokens, "nats": self.nats, "share_of_nats": self.share}


class Listed(NamedTuple):
    """One token.

    Attributes:
        token: its text.
        nats: its surprisal.
        place: in its row, from 1 on.
        times: how often it was learnt from, or stands in this text; the table's title says which.
        hit: whether it could be looked up.
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
        about: what was measured, in words.
        mean: nats per token.
        tokens: how many.
        parts: the tokens grouped in three ways: "place in the row", "times in ...", "seen earlier".
        learning: mean surprisal at place `ends[1]` less that at place `ends[0]`: below 0 where more text before a token
            helps (Olsson et al. 2022); None where rows are too short.
        ends: a tenth of the way, and the last place that half of all rows reach.
        notes: what a person should know.
        each: the first tokens one by one; none unless they were asked for.
        before: the text of the token before the first one, which nothing predicts.
    """

    about: str
    mean: float
    tokens: int
    parts: dict[str, list[Part]]
    learning: float | None
    ends: tuple[int, int]
    notes: Sequence[str] = ()
    each: Sequence[Listed] = ()
    before: str = ""
    name: str = "surprisal"

    def facts(self) -> dict[str, Any]:
        """Return the results as a JSON-serializable dict."""
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
        """Return a plain-text report: mean, surprisal by groups of tokens, and in-context learning."""
        lines = [f"{self.name}: {self.about}", *self.notes, f"mean: {self.mean:.4f} nats over {self.tokens:,} tokens"]
        if len(self.each) == self.tokens <= SHOWN:
            lines += [f"{listed.nats:>9.4f}  {listed.token}" for listed in self.each]
        for title, parts in self.parts.items():
            width = max(20, len(title))
            lines.append(f"{title:<{width}}{'nats':>9}{'of all nats':>13}{'tokens':>12}")
            for part in parts:
                share = f"{100 * part.share:.1f} %"
                lines.append(f"  {part.name:<{width - 2}}{part.nats:>9.4f}{share:>13}{part.tokens:>12,}")
        if self.learning is not None:
            early, late = self.ends
            lines.append(f"in-context learning, token {late} less token {early}: {self.learning:+.4f} nats")
        return "\n".join(lines)


def surprisal(
    model: Readable,
    rows: Sequence[npt.NDArray[np.integer]],
    counts: npt.NDArray[np.int64],
    counted_in: str,
    about: str,
    notes: Sequence[str] = (),
    listed: int = 0,
) -> SurprisalResult:
    """Measure a text.

    Args:
        model: the run.
        rows, counts, counted_in, about, notes, listed: as of `grouped`.
    """
    nats = [read.nats for read in read_after(model, rows)]
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
    """Summarize the surprisal of each token by groups of tokens.

    Args:
        nats: of each row, (T,) each.
        rows: T+1 ids each, of which all but the first count.
        tokenizer: that wrote them.
        counts: (V,) how often each token is in `counted_in`.
        counted_in: "training" or "this text".
        about, notes: as in the result.
        listed: so many tokens are given one by one.
    """
    joined = np.concatenate(nats)  # (N,)
    places = np.concatenate([np.arange(1, len(part) + 1) for part in nats])  # (N,)
    tokens = np.concatenate([row[1:] for row in rows]).astype(np.int64)  # (N,)
    times = counts[tokens]  # (N,)
    hits = np.concatenate([seen_earlier(row) for row in rows])  # (N,)
    powers = [2**power for power in range(int(places.max()).bit_length() + 1)]
    parts = {
        "place in the row": _between(joined, places, powers, powers[-1]),
        f"times in {counted_in}": _between(joined, times, TENS, None),
        "seen earlier in its row": [
            _part(name, joined, hits == hit)
            for name, hit in (("hits", True), ("other tokens", False))
            if np.any(hits == hit)
        ],
    }
    late = int(np.median([len(part) for part in nats]))
    early = max(1, late // 10)
    learning = None
    if late > early:
        learning = float(joined[places == late].mean() - joined[places == early].mean())
    texts = [tokenizer.token_text(token) for token in tokens[:listed].tolist()]
    columns = (joined, places, times, hits)
    each = [
        Listed(text, *row) for text, *row in zip(texts, *(column[:listed].tolist() for column in columns), strict=True)
    ]
    before = tokenizer.token_text(int(rows[0][0]))
    return SurprisalResult(
        about, float(joined.mean()), len(joined), parts, learning, (early, late), notes, each, before
    )


def seen_earlier(row: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    """(T,): whether each token but the first stands after the same token earlier in the row.

    >>> seen_earlier(np.array([5, 1, 2, 1, 2, 1])).tolist()
    [False, False, False, True, True]
    """
    pairs = list(zip(row[:-1].tolist(), row[1:].tolist(), strict=True))
    first = {pair: place for place, pair in reversed(list(enumerate(pairs)))}
    return np.array([first[pair] < place for place, pair in enumerate(pairs)], dtype=np.bool_)


def _between(
    nats: npt.NDArray[np.float64], values: npt.NDArray[np.int64], edges: Sequence[int], end: int | None
) -> list[Part]:
    """By ranges of a value, each from one edge up to the next; those that have tokens."""
    parts = []
    for low, high in zip(edges, (*edges[1:], end), strict=True):
        chosen = (values >= low) & (values < (np.inf if high is None else high))
        if chosen.any():
            name = f"{low:,}"
            if high is None:
                name += " or more"
            elif high - 1 > low:
                name += f" to {high - 1:,}"
            parts.append(_part(name, nats, chosen))
    return parts


def _part(name: str, nats: npt.NDArray[np.float64], chosen: npt.NDArray[np.bool_]) -> Part:
    return Part(name, int(chosen.sum()), float(nats[chosen].mean()), float(nats[chosen].sum() / nats.sum()))
