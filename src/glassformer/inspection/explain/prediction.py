"""The end of the walk: from the last vectors to logits, to probabilities, to candidates."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from glassformer.generation.sampling import ranked
from glassformer.inspection.explain.sections import Matrix, Section, Table, numbers
from glassformer.inspection.explain.subject import Subject
from glassformer.inspection.trace import Trace
from glassformer.model.families import Classifier

SEVERAL = 3  # places with a full ranking each; of more, only the last has one


def prediction(subject: Subject, found: Trace, top: int) -> list[Section]:
    """Pooling of a classifier, logits, and the softmax with its likeliest outputs."""
    sections, model = [], subject.model
    if isinstance(model, Classifier):
        assert found.pooled is not None
        how = "the mean of all rows" if model.config.pooling == "mean" else "the first row"
        sections.append(Section("pooling", "One vector for the text", (
            Matrix("p", f"{how} above", numbers(found.pooled[0]), ("text",)),
        )))  # fmt: skip
    sections.append(_logits(subject, found))
    return [*sections, _probabilities(subject, found, top)]


def _places(subject: Subject) -> dict[int, str]:
    """The rows of the logits that count, with their tokens."""
    labels = subject.labels if subject.target_labels is None else subject.target_labels
    return {place: labels[place] for place in subject.places} if subject.places else {0: "text"}


def _rows(subject: Subject, found: Trace) -> Tensor:
    """Their logits, (places, V) or (1, C)."""
    return found.logits[0, list(subject.places)] if subject.places else found.logits


def _logits(subject: Subject, found: Trace) -> Section:
    model, rows = subject.model, tuple(_places(subject).values())
    logits = _rows(subject, found)  # (places, V)
    tied = not isinstance(model, Classifier) and model.head.weight is None
    own, bias = model.embedding.tokens.weight if tied else model.head.weight, model.head.bias
    assert own is not None
    names = tuple(subject.name(index) for index in range(logits.shape[-1]))
    letter = "Eᵀ" if tied else "W_L"
    formula = f"{'p' if isinstance(model, Classifier) else 'last vectors'} {letter}"
    matrices = [Matrix(letter, "", numbers(own.T), (), names, "parameters")]
    if bias is not None:
        matrices.append(Matrix("b_L", "", numbers(bias), ("bias",), names, "parameters"))
        formula += " + b_L"
    matrices.append(Matrix("logits", formula, numbers(logits), rows, names))
    notes = ("The output matrix is the embedding matrix, turned on its side (tied).",) if tied else ()
    return Section("logits", "Logits", tuple(matrices), notes=notes)


def _probabilities(subject: Subject, found: Trace, top: int) -> Section:
    places, logits = _places(subject), _rows(subject, found)  # (places, V)
    if subject.candidates is not None:
        special = torch.arange(logits.shape[-1], device=logits.device) >= subject.candidates  # (V)
        logits = logits.masked_fill(special, -math.inf)  # (places, V)
    of = list(zip(places.items(), logits, strict=True))
    full = of if len(of) <= SEVERAL else of[-1:]
    tables = [_ranking(subject, place, token, row, top) for (place, token), row in full]
    if len(of) > SEVERAL:
        tables.insert(0, Table(
            "the likeliest after each token",
            ("place", "after", "likeliest", "probability", "second", "probability"),
            tuple(_best_two(subject, place, token, row) for (place, token), row in of),
        ))  # fmt: skip
    size = logits.shape[-1] if subject.candidates is None else subject.candidates
    what = "classes" if isinstance(subject.model, Classifier) else "tokens"
    left_out = "; special tokens are no candidates" if subject.candidates is not None else ""
    notes = (f"The probabilities of all {size:,} {what} add up to 1{left_out}.",)
    return Section("probabilities", "Probabilities", tables=tuple(tables), notes=notes)


def _ranking(subject: Subject, place: int, token: str, row: Tensor, top: int) -> Table:
    name = "the likeliest classes"
    if subject.places:
        filled = subject.candidates is not None
        name = f"the likeliest at place {place}" if filled else f"the likeliest after {token} (place {place})"
    rows = tuple(
        (rank, subject.name(id), id, float(row[id]), share)
        for rank, (id, share) in enumerate(ranked(row, top), start=1)
    )
    output = "token" if subject.places else "class"
    return Table(name, ("rank", output, "id", "logit", "probability"), rows)


def _best_two(subject: Subject, place: int, token: str, row: Tensor) -> tuple[int, str, str, float, str, float]:
    (first, p), (second, q) = ranked(row, 2)
    return place, token, subject.name(first), p, subject.name(second), q
