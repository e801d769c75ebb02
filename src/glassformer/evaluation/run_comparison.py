"""Compare two runs on one text: their surprisal of each token, their predictions, and the attention of their heads.

Tokens can be compared one by one only if both tokenizers split the text in the same way. Otherwise the text is split
into spans at the characters where tokens of both runs end. The nats of a span are the sum over its tokens, except
special tokens and unknown tokens, so both runs give -ln P of the same characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.base.errors import GlassError
from glassformer.evaluation.token_losses import Prediction, Surprisals
from glassformer.inspection.explain.subject import Subject
from glassformer.inspection.recording import record
from glassformer.inspection.sites import find_head


@dataclass(frozen=True)
class SharedSpan:
    """A span of text between two token boundaries that both runs share.

    Attributes:
        text: the characters of the span.
        start, end: bounds in the whole text, in characters.
        one, other: -ln P of the span for each run, in nats; None if one of its tokens has no probability.
    """

    text: str
    start: int
    end: int
    one: float | None
    other: float | None


def shared_spans(one: Surprisals, other: Surprisals) -> list[SharedSpan]:
    """Split the text where tokens of both runs end; special tokens and unknown tokens are ignored.

    Raises:
        GlassError: the tokens of the two runs do not represent the same characters.
    """
    if one.text != other.text:
        raise GlassError(
            "the tokens of the two runs do not represent the same characters, because one tokenizer does not know some "
            "characters or normalizes them",
            "Give a text that both tokenizers can represent.",
        )
    nats_by_run = [_by_end(each) for each in (one, other)]
    ends = sorted(set(nats_by_run[0]) & set(nats_by_run[1]))
    spans = []
    start = 0
    for end in ends:
        nats = [_nats_between(nats_by_end, start, end) for nats_by_end in nats_by_run]
        spans.append(SharedSpan(one.text[start:end], start, end, nats[0], nats[1]))
        start = end
    return spans


def _by_end(surprisals: Surprisals) -> dict[int, list[float | None]]:
    """Return the nats of the tokens that end at each position of the text, by position."""
    nats_by_end: dict[int, list[float | None]] = {}
    for end, nats, writes in zip(surprisals.ends, surprisals.nats, surprisals.writes, strict=True):
        if writes:
            nats_by_end.setdefault(end, []).append(nats)
    return nats_by_end


def _nats_between(nats_by_end: dict[int, list[float | None]], start: int, end: int) -> float | None:
    """Return the total nats of the tokens that end in (start, end]; None if a token has no probability."""
    span_nats = [nats for position, token_nats in nats_by_end.items() if start < position <= end for nats in token_nats]
    defined = [nats for nats in span_nats if nats is not None]
    return sum(defined) if len(defined) == len(span_nats) else None


@dataclass(frozen=True)
class ComparedPrediction:
    """A token or class with its probability in both runs.

    Attributes:
        name: text of the token, or name of the class.
        one, other: probability in each run; None if the run has no such token or class.
    """

    name: str
    one: float | None
    other: float | None


def compare_predictions(one: Prediction, other: Prediction, n: int) -> list[ComparedPrediction]:
    """Return the n most probable tokens or classes of each run with both probabilities, sorted by the higher one."""
    first_probabilities = _by_name(one)
    second_probabilities = _by_name(other)
    names = dict.fromkeys(prediction.name(id) for prediction in (one, other) for id in prediction.best(n))
    compared = [
        ComparedPrediction(name, first_probabilities.get(name), second_probabilities.get(name)) for name in names
    ]
    return sorted(compared, key=lambda prediction: -max(prediction.one or 0.0, prediction.other or 0.0))


def _by_name(prediction: Prediction) -> dict[str, float]:
    """Return the probability of each text, summed over tokens with the same text."""
    probabilities: dict[str, float] = {}
    for id, probability in enumerate(prediction.probabilities.tolist()):
        name = prediction.name(id)
        probabilities[name] = probabilities.get(name, 0.0) + probability
    return probabilities


def attention_weights(subject: Subject, head: str, last: int | None = None) -> Tensor:
    """Return the (T, S) attention weights of a head; NaN where the mask forbids attention.

    Args:
        subject: a model and its input.
        head: name of the head.
        last: number of positions to keep on each axis, counted from the end; None: all.

    Raises:
        GlassError: there is no such head.
    """
    site = str(find_head(subject.model, head).site)
    target = None if subject.target_ids is None else torch.tensor([subject.target_ids])
    rows = None if last is None else slice(max(0, len(head_labels(subject, head)[0]) - last), None)
    keep = (f"{site}.pattern", f"{site}.scores")
    recording = record(subject.model, torch.tensor([subject.ids]), target, keep=keep, rows=rows)
    weights = recording[f"{head}.pattern"][0].masked_fill(
        recording[f"{head}.scores"][0] == -torch.inf, torch.nan
    )  # (T, S)
    return weights if last is None else weights[:, -last:]


def head_labels(subject: Subject, head: str) -> tuple[Sequence[str], Sequence[str]]:
    """Return the labels of the query tokens and of the key tokens of a head."""
    in_decoder = head.startswith("dec.") and subject.target_labels is not None
    queries = subject.target_labels if in_decoder else subject.labels
    assert queries is not None
    return queries, subject.labels if ".cross." in head else queries


def check_same_tokens(one: tuple[Subject, str], other: tuple[Subject, str]) -> None:
    """Raise a `GlassError` if two heads have different query or key tokens, so that their maps cannot be compared."""
    if head_labels(*one) != head_labels(*other):
        raise GlassError(
            "the two heads have different query or key tokens, so their attention maps cannot be subtracted",
            "Compare runs with the same tokenizer, and heads of the same type.",
        )


def attention_difference(one: tuple[Subject, str], other: tuple[Subject, str], last: int | None = None) -> Tensor:
    """Return the (T, S) attention weights of the first head minus those of the other head.

    Args:
        one, other: a subject, and the name of a head of its model.
        last: as in `attention_weights`.

    Raises:
        GlassError: the heads have different query or key tokens, or there is no such head.
    """
    check_same_tokens(one, other)
    return attention_weights(*one, last) - attention_weights(*other, last)
