"""Two runs on one text: what each token costs them, what they answer, and where their heads look.

Tokens can be compared one by one only where both tokenizers cut the text alike. Where they do not, the text is cut at
the characters at which a token of both ends: the nats of a stretch are those of its tokens together, -ln P of the same
characters, whichever tokens spell them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.base.errors import GlassError
from glassformer.evaluation.token_losses import Outlook, Surprisals
from glassformer.inspection.explain.subject import Subject
from glassformer.inspection.recording import record
from glassformer.inspection.sites import find_head


@dataclass(frozen=True)
class Stretch:
    """A part of the text that begins and ends where tokens of both runs do.

    Attributes:
        text: its characters.
        start, end: of the text, in characters.
        one, other: -ln P of it for each run; None where a run gives a part of it no probability.
    """

    text: str
    start: int
    end: int
    one: float | None
    other: float | None


def stretches(one: Surprisals, other: Surprisals) -> list[Stretch]:
    """The text cut where tokens of both runs end; tokens without characters, such as end tokens, are left out.

    Raises:
        GlassError: the tokens of the two runs do not stand for the same characters.
    """
    if one.text != other.text:
        raise GlassError(
            "the tokens of the two runs do not stand for the same characters: what is unknown to one, or is normalised "
            "by it, cannot be compared",
            "Give a text that both can write.",
        )
    sums = [_by_end(each) for each in (one, other)]
    ends = sorted(set(sums[0]) & set(sums[1]))
    found = []
    start = 0
    for end in ends:
        nats = [_between(each, start, end) for each in sums]
        found.append(Stretch(one.text[start:end], start, end, nats[0], nats[1]))
        start = end
    return found


def _by_end(costs: Surprisals) -> dict[int, list[float | None]]:
    """Return for each character at which a token ends the nats of the tokens that end there."""
    found: dict[int, list[float | None]] = {}
    for end, nats, writes in zip(costs.ends, costs.nats, costs.writes, strict=True):
        if writes:
            found.setdefault(end, []).append(nats)
    return found


def _between(sums: dict[int, list[float | None]], start: int, end: int) -> float | None:
    """The nats of all tokens that end after one character and not after another; None where one has none."""
    parts = [nats for place, each in sums.items() if start < place <= end for nats in each]
    known = [nats for nats in parts if nats is not None]
    return sum(known) if len(known) == len(parts) else None


@dataclass(frozen=True)
class Bar:
    """An answer that both runs may give.

    Attributes:
        name: its text.
        one, other: its probability; None where a run has no such answer.
    """

    name: str
    one: float | None
    other: float | None


def bars(one: Outlook, other: Outlook, n: int) -> list[Bar]:
    """The n likeliest answers of each run with the probability that both give them; by text, likeliest first."""
    shares = [_by_name(each) for each in (one, other)]
    names = dict.fromkeys(outlook.name(id) for outlook in (one, other) for id in outlook.best(n))
    found = [Bar(name, shares[0].get(name), shares[1].get(name)) for name in names]
    return sorted(found, key=lambda bar: -max(bar.one or 0.0, bar.other or 0.0))


def _by_name(outlook: Outlook) -> dict[str, float]:
    """The probability of each text; of several tokens with one text, together."""
    found: dict[str, float] = {}
    for id, share in enumerate(outlook.shares.tolist()):
        name = outlook.name(id)
        found[name] = found.get(name, 0.0) + share
    return found


def weights_of(subject: Subject, head: str, last: int | None = None) -> Tensor:
    """(T, S) the attention weights of a head; NaN where it may not look.

    Args:
        subject: what its model reads.
        head: its name.
        last: of a long text, so many of the last places on both sides; None: all.

    Raises:
        GlassError: there is no such head.
    """
    site = str(find_head(subject.model, head).site)
    target = None if subject.target_ids is None else torch.tensor([subject.target_ids])
    rows = None if last is None else slice(max(0, len(sides(subject, head)[0]) - last), None)
    keep = (f"{site}.pattern", f"{site}.scores")
    kept = record(subject.model, torch.tensor([subject.ids]), target, keep=keep, rows=rows)
    weights = kept[f"{head}.pattern"][0].masked_fill(kept[f"{head}.scores"][0] == -torch.inf, torch.nan)  # (T, S)
    return weights if last is None else weights[:, -last:]


def sides(subject: Subject, head: str) -> tuple[Sequence[str], Sequence[str]]:
    """The tokens that look, and those that are looked at."""
    decodes = head.startswith("dec.") and subject.target_labels is not None
    queries = subject.target_labels if decodes else subject.labels
    assert queries is not None
    return queries, subject.labels if ".cross." in head else queries


def refuse_unlike(one: tuple[Subject, str], other: tuple[Subject, str]) -> None:
    """Raise a `GlassError` where the tokens of two heads differ, so that no cell of one map is a cell of the other."""
    if sides(*one) != sides(*other):
        raise GlassError(
            "the two heads do not look from the same tokens at the same tokens: there is no difference of the maps",
            "Compare runs with one tokenizer, and heads of one kind.",
        )


def difference(one: tuple[Subject, str], other: tuple[Subject, str], last: int | None = None) -> Tensor:
    """(T, S) the other head's weights less those of the first one.

    Args:
        one, other: a subject, and a head of its model.
        last: as of `weights_of`.

    Raises:
        GlassError: `refuse_unlike`.
    """
    refuse_unlike(one, other)
    return weights_of(*other, last) - weights_of(*one, last)
