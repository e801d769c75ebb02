"""Positions: position vectors, biases and rotations by distance, and the model's answer to texts with shuffled tokens.

With `shuffle` false, the response is binary: this header and, for position vectors, their float32 matrix (`rows` ×
`width`)::

    {"stacks": ["enc", "dec"], "stack": "dec", "kind": "learned", "context": 256, "width": 64, "heads": 4,
     "rows": [0, 1, …], "causal": true, "distances": [0, 1, …],
     "dot": […] | null, "cosine": […] | null, "bias": [[…] of each head] | null,
     "turn": {"frequencies": […], "mean": […], "pairs": [[…]], "shown": [0, 4, …]} | null}

`rows` are the positions whose vectors are sent, evenly spaced if there are many. All curves are over `distances`; a
negative distance means a later position, which occurs only in a stack without a causal mask. `dot` and `cosine` are the
mean dot product and the mean cosine of the vectors of two positions at each distance. `turn` describes rotary
positions: the frequency of each pair of channels in radians per position, and the cosine of its angle by distance, for
the pairs `shown` and as the mean over all pairs. With `shuffle` true::

    {"row": …, "source": …, "place": 5, "token": {"id", "text", "known"}, "times": 16, "moved": [0, 1],
     "before": -1.2, "after": [-2.3, …], "divergence": […], "same": [true, …],
     "drop": 1.1, "mean_divergence": 0.9, "share_same": 0.25, "example": [tokens of the first order]}

`moved` are the shuffled positions, and `times` is the number of shuffled orders. `before` and `after` are ln p(answer)
for the original and the shuffled texts, and `drop` is `before` minus the mean of `after`, in nats. `divergence` is the
KL divergence from the original output distribution to that of each shuffled text, in nats, and `same` is true if the
likeliest answer is unchanged.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from glassformer.app.server.registry import ServedModel
from glassformer.app.server.view import Binary, PageView, Text, TextQuestion, ViewQuestion, script
from glassformer.app.server.views.text_case import case_at, case_lines, column_at, labels_of
from glassformer.base.errors import GlassError
from glassformer.inspection.attribution.importance import estimate_forward_flops
from glassformer.inspection.position_curves import (
    bias_by_distance,
    by_distance,
    distances_of,
    embedding_of,
    evenly_spaced,
    position_vectors,
    rotary_effect_by_distance,
    shuffle_test,
)

CELLS = 1 << 17
"""Maximum number of values of the matrix."""
PLACES = 1_024
"""Maximum number of rows of the matrix."""
DISTANCES = 257
"""Maximum number of distances of a curve, in each direction."""
PAIRS = 6
"""Maximum number of rotary pairs with a curve."""
MAX_FLOPS = 3e11
"""Maximum FLOPs of a shuffle test; for long texts, fewer orders are tested."""


class PositionsQuestion(ViewQuestion):
    """Request for the position curves of a stack, or for the shuffle test of a text.

    Attributes:
        stack: "enc" or "dec"; None: the stack before the output head.
        shuffle: whether to return the result of the shuffle test.
        text, target: text and target of the test.
        place: position of the answer; None: the last one.
        times, seed: maximum number of shuffled orders (see `times_of`), and their seed.
    """

    stack: Literal["enc", "dec"] | None = None
    shuffle: bool = False
    text: Text | None = None
    target: Text | None = None
    place: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    times: Annotated[int, Field(ge=1, le=64)] = 16
    seed: Annotated[int, Field(ge=0, le=2**31)] = 0

    def read_texts(self) -> tuple[list[str], list[str | None]]:
        """Return the text of the shuffle test and its target."""
        return ([self.text], [self.target]) if self.text is not None else ([], [])


def answer(opened: ServedModel, question: PositionsQuestion) -> dict[str, Any] | Binary:
    """Return the position curves of a stack, or the result of the shuffle test."""
    return _shuffle_result(opened, question) if question.shuffle else _curves(opened, question)


def _curves(opened: ServedModel, question: PositionsQuestion) -> Binary:
    model = opened.model.model
    names = list(model.stacks)
    stack_name = question.stack or names[-1]
    stack, embedding = embedding_of(model, stack_name)
    vectors = position_vectors(embedding, stack.context)
    distances = distances_of(stack, DISTANCES)
    bias = bias_by_distance(stack, distances)
    rotary = rotary_effect_by_distance(stack, distances)
    similarities = None if vectors is None else by_distance(vectors)
    rows = [] if vectors is None else evenly_spaced(stack.context, min(PLACES, CELLS // vectors.shape[1]))
    header = {
        "stacks": names,
        "stack": stack_name,
        "kind": model.config.positions,
        "context": stack.context,
        "width": model.config.width,
        "heads": model.config.heads,
        "rows": rows,
        "causal": stack.causal,
        "distances": distances.tolist(),
        "dot": None if similarities is None else similarities[0][distances.abs()].tolist(),
        "cosine": None if similarities is None else similarities[1][distances.abs()].tolist(),
        "bias": None if bias is None else bias.tolist(),
        "turn": None,
    }
    if rotary is not None:
        pairs = evenly_spaced(len(rotary.frequencies), PAIRS)
        header["turn"] = {
            "frequencies": rotary.frequencies.tolist(),
            "mean": rotary.mean.tolist(),
            "shown": pairs,
            "pairs": rotary.pairs[pairs].tolist(),
        }
    data = np.zeros(0, "<f4") if vectors is None else vectors[rows].numpy().astype("<f4")
    return Binary(header, data.tobytes())


def _shuffle_result(opened: ServedModel, question: PositionsQuestion) -> dict[str, Any]:
    text_question = _text_question(question)
    subject = opened.subject(text_question.text, text_question.target)
    case = case_at(opened, text_question)
    column = column_at(case, question.place)
    result = shuffle_test(case, column, fixed_of(opened), times_of(opened, question), question.seed)
    example = [subject.labels[position] for position in range(len(subject.ids))]
    for position, source in zip(result.moved, result.orders[0].tolist(), strict=True):
        example[position] = subject.labels[source]
    output = case.outputs[column]
    return {
        **labels_of(subject),
        "place": output.place,
        "times": len(result.after),
        "moved": list(result.moved),
        "token": {"id": output.answer, "text": subject.name(output.answer), "known": output.known},
        "before": result.before,
        "after": result.after.tolist(),
        "divergence": result.divergence.tolist(),
        "same": result.same.tolist(),
        "drop": result.before - float(result.after.mean()),
        "mean_divergence": float(result.divergence.mean()),
        "share_same": float(result.same.double().mean()),
        "example": example,
    }


def times_of(opened: ServedModel, question: PositionsQuestion) -> int:
    """Return the number of orders to test: `times`, or fewer to stay below `MAX_FLOPS`, but at least one."""
    subject = opened.subject(_text_question(question).text, question.target)
    target = None if subject.target_ids is None else len(subject.target_ids)
    flops = estimate_forward_flops(subject.model, len(subject.ids), target)
    return max(1, min(question.times, int(MAX_FLOPS / flops)))


def fixed_of(opened: ServedModel) -> tuple[int, ...]:
    """Return the ids of the special tokens, such as start tokens and masks, which the shuffle does not move."""
    model = opened.model
    tokenizer = model.source_tokenizer
    return tuple(sorted(tokenizer.special))


def _text_question(question: PositionsQuestion) -> TextQuestion:
    if question.text is None:
        raise GlassError("the shuffle test was requested without a text", "Give a text.")
    return TextQuestion(text=question.text, target=question.target)


def python(opened: ServedModel, question: PositionsQuestion) -> str:
    """Return a script that prints the position curves, or the result of the shuffle test."""
    if question.shuffle:
        text_question = _text_question(question)
        column = "len(places) - 1" if question.place is None else f"places.index({question.place})"
        orders = f"times={times_of(opened, question)}, seed={question.seed}"
        return script(
            opened,
            *case_lines(opened, text_question),
            "from glassformer.inspection.position_curves import shuffle_test",
            "",
            "places = [output.place for output in case.outputs]",
            f"found = shuffle_test(case, {column}, {fixed_of(opened)!r}, {orders})",
            "print(found.before, found.after.tolist())",
            "print(found.divergence.tolist(), found.same.tolist())",
        )
    stack_name = question.stack or list(opened.model.model.stacks)[-1]
    return script(
        opened,
        "from glassformer.inspection.position_curves import *",
        "",
        f"stack, embedding = embedding_of(model.model, {stack_name!r})",
        f"vectors, distances = position_vectors(embedding, stack.context), distances_of(stack, {DISTANCES})",
        "if vectors is not None:",
        "    print(vectors.tolist(), *(curve[distances.abs()].tolist() for curve in by_distance(vectors)))",
        "bias, turn = bias_by_distance(stack, distances), rotary_effect_by_distance(stack, distances)",
        "if bias is not None:",
        "    print(bias.tolist())",
        "if turn is not None:",
        "    print(turn.frequencies.tolist(), turn.mean.tolist(), turn.pairs.tolist())",
    )


VIEW = PageView(PositionsQuestion, answer, python)
