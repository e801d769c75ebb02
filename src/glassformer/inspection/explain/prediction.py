"""Last sections of a walk: pooling, head transform, logits and probabilities."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from glassformer.generation.sampling import ranked
from glassformer.inspection.explain.arithmetic import Activated, projection
from glassformer.inspection.explain.lookups import Pooled
from glassformer.inspection.explain.norm import norm_section
from glassformer.inspection.explain.sections import Matrix, Section, SectionTable, numbers, parameters
from glassformer.inspection.explain.subject import Subject
from glassformer.inspection.trace import Trace
from glassformer.model.transformer import Classifier, activate

MAX_RANKED_POSITIONS = (
    3  # maximum number of positions with a ranking each; if there are more, only the last position has a ranking
)


def prediction(subject: Subject, trace: Trace, top: int) -> list[Section]:
    """Return the sections on pooling (for classifiers), the head's transform, the logits, and the likeliest outputs."""
    sections = []
    model = subject.model
    if isinstance(model, Classifier):
        assert trace.pooled is not None
        pooled = Matrix("p", Pooled(model.config.pooling), numbers(trace.pooled[0]), ("text",))
        sections.append(Section("pooling", "One vector for the text", (pooled,)))
    if trace.transformed is not None:
        sections.append(_transform(subject, trace))
    sections.append(_logits(subject, trace))
    return [*sections, _probabilities(subject, trace, top)]


def _shown_positions(subject: Subject) -> dict[int, str]:
    """Return the positions whose logits are shown, with their tokens."""
    labels = subject.labels if subject.target_labels is None else subject.target_labels
    return {position: labels[position] for position in subject.positions} if subject.positions else {0: "text"}


def _shown_logits(subject: Subject, trace: Trace) -> Tensor:
    """Return the logits at the P shown positions, (P, V), or (1, C) for a classifier."""
    return trace.logits[0, list(subject.positions)] if subject.positions else trace.logits


def _transform(subject: Subject, trace: Trace) -> Section:
    """Return the section on the transform before the output layer: linear layer, activation and norm."""
    model = subject.model
    rows = tuple(_shown_positions(subject).values())
    positions = list(subject.positions)
    assert not isinstance(model, Classifier)
    assert model.head.transform is not None
    assert trace.transformed is not None
    projected = model.head.transform(trace.stack.final)  # (B, T, D)
    activated = activate(projected, model.head.activation)  # (B, T, D)
    name = "Y" if isinstance(model.head.norm, nn.Identity) else "R"
    activation = {"swiglu": "silu", "geglu": "gelu"}.get(model.head.activation, model.head.activation)
    matrices = (
        Matrix("W_T", None, parameters(model.head.transform.weight.T), role="parameters"),
        Matrix("b_T", None, parameters(model.head.transform.bias), ("bias",), role="parameters"),
        Matrix("T", projection("last hidden states", "W_T", "b_T"), numbers(projected[0, positions]), rows),
        Matrix(name, Activated(activation, "T"), numbers(activated[0, positions]), rows),
    )
    children: tuple[Section, ...] = ()
    if name == "R":
        before = activated[:, positions]  # (B, P, D)
        after = trace.transformed[:, positions]  # (B, P, D)
        children = (norm_section("norm", "Norm", model.head.norm, "R", "Y", before, after, rows, positions[-1]),)
    return Section("transform", "Transform before the output layer", matrices, children=children)


def _logits(subject: Subject, trace: Trace) -> Section:
    model = subject.model
    rows = tuple(_shown_positions(subject).values())
    logits = _shown_logits(subject, trace)  # (P, V)
    tied = not isinstance(model, Classifier) and model.head.weight is None
    output_weight = model.embedding.tokens.weight if tied else model.head.weight
    bias = model.head.bias
    assert output_weight is not None
    names = tuple(subject.name(index) for index in range(logits.shape[-1]))
    letter = "Eᵀ" if tied else "W_L"
    if isinstance(model, Classifier):
        input_name = "p"
    elif trace.transformed is None:
        input_name = "last hidden states"
    else:
        input_name = "Y"
    matrices = [Matrix(letter, None, parameters(output_weight.T), (), names, "parameters")]
    if bias is not None:
        matrices.append(Matrix("b_L", None, parameters(bias), ("bias",), names, "parameters"))
    operation = projection(input_name, letter, None if bias is None else "b_L")
    matrices.append(Matrix("logits", operation, numbers(logits), rows, names))
    notes = ("The output matrix is the transposed embedding matrix (tied weights).",) if tied else ()
    return Section("logits", "Logits", tuple(matrices), notes=notes)


def _probabilities(subject: Subject, trace: Trace, top: int) -> Section:
    positions = _shown_positions(subject)
    logits = _shown_logits(subject, trace)  # (P, V)
    if subject.special:
        logits = logits.index_fill(1, torch.tensor(subject.special, device=logits.device), -math.inf)  # (P, V)
    position_logits = list(zip(positions.items(), logits, strict=True))
    ranked_positions = position_logits if len(position_logits) <= MAX_RANKED_POSITIONS else position_logits[-1:]
    tables = [_ranking(subject, position, token, row, top) for (position, token), row in ranked_positions]
    if len(position_logits) > MAX_RANKED_POSITIONS:
        header = ("position", "token", "likeliest", "probability", "second", "probability")
        rows = tuple(_best_two(subject, position, token, row) for (position, token), row in position_logits)
        tables.insert(0, SectionTable("the two likeliest at each position", header, rows))
    n_outputs = logits.shape[-1] - len(subject.special)
    outputs = "classes" if isinstance(subject.model, Classifier) else "tokens"
    left_out = "; special tokens are not candidates" if subject.special else ""
    notes = (f"The probabilities of all {n_outputs:,} {outputs} add up to 1{left_out}.",)
    return Section("probabilities", "Probabilities", tables=tuple(tables), notes=notes)


def _ranking(subject: Subject, position: int, token: str, row: Tensor, top: int) -> SectionTable:
    name = "the likeliest classes"
    if subject.positions:
        where = f"at position {position}"
        name = f"the likeliest {where}" if subject.special else f"the likeliest after {token} (position {position})"
    rows = tuple(
        (rank, subject.name(id), id, float(row[id]), probability)
        for rank, (id, probability) in enumerate(ranked(row, top), start=1)
    )
    output = "token" if subject.positions else "class"
    return SectionTable(name, ("rank", output, "id", "logit", "probability"), rows)


def _best_two(subject: Subject, position: int, token: str, row: Tensor) -> tuple[int, str, str, float, str, float]:
    (first, p), (second, q) = ranked(row, 2)
    return position, token, subject.name(first), p, subject.name(second), q
