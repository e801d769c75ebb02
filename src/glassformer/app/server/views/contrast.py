"""Contrast: attention maps of one head from each of two runs on the same text, and the difference if it is defined.

The response is binary: float32, NaN where masked. Its header::

    {"heads": ["dec.0.self.1", "dec.1.self.0"], "shapes": [[9, 9], [9, 9]], "difference": true, "why": null | "…",
     "labels": [{"queries": […], "keys": […]}, …], "cut": 0, "largest": [0.9, 0.8, 0.5]}

The data are the two maps, row by row, and then the first run's weights minus the other run's, if `difference` is true;
`why` is the reason if it is false. For a long text, only the last `MOST` positions are returned; `cut` is the number of
positions before them, on the longest axis of the two maps. `largest` has the largest absolute value of each of these
matrices.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from glassformer.app.server.registry import ServedModel
from glassformer.app.server.view import Binary, Name, PageView, TextQuestion, script
from glassformer.app.server.views.compare import targets_of
from glassformer.base.errors import GlassError
from glassformer.evaluation.run_comparison import attention_weights, check_same_tokens, head_labels

MOST = 256
"""Maximum number of positions on each axis of a map."""


class ContrastQuestion(TextQuestion):
    """Request to compare an attention head of this run with a head of another run.

    Attributes:
        other: name of the other run.
        head, other_head: names of the head of this run and of the other run.
    """

    other: Name
    head: Name
    other_head: Name


def answer(opened: ServedModel, question: ContrastQuestion, other: ServedModel) -> Binary:
    """Return the attention maps of both heads, and their difference if both maps are over the same tokens."""
    targets = targets_of((opened, other), question)
    subjects = [each.subject(question.text, target) for each, target in zip((opened, other), targets, strict=True)]
    pairs = list(zip(subjects, (question.head, question.other_head), strict=True))
    maps = [attention_weights(*pair, MOST) for pair in pairs]
    why = None
    labels = [head_labels(*pair) for pair in pairs]
    try:
        check_same_tokens(pairs[0], pairs[1])
        maps.append(maps[0] - maps[1])
    except GlassError as error:
        why = error.problem
    cut = max(0, max(len(tokens) for each in labels for tokens in each) - MOST)
    float_maps = [each.contiguous().float() for each in maps]
    return Binary(
        {
            "heads": [question.head, question.other_head],
            "shapes": [list(each.shape) for each in float_maps[:2]],
            "difference": why is None,
            "why": why,
            "cut": cut,
            "largest": list(map(_largest, float_maps)),
            "labels": [{"queries": list(rows[-MOST:]), "keys": list(keys[-MOST:])} for rows, keys in labels],
        },
        b"".join(each.numpy().astype("<f4").tobytes() for each in float_maps),
    )


def _largest(weights: Tensor) -> float:
    return float(torch.nan_to_num(weights).abs().max()) if weights.numel() else 0.0


def python(opened: ServedModel, question: ContrastQuestion, other: ServedModel) -> str:
    """Return a script that prints both attention maps, and their difference if both maps are over the same tokens."""
    one, two = targets_of((opened, other), question)
    lines: list[Any] = [
        f"other = OpenedRun.load({str(other.folder)!r}).text_model",
        f"one = subject_of(model, {question.text!r}, {one!r}), {question.head!r}",
        f"two = subject_of(other, {question.text!r}, {two!r}), {question.other_head!r}",
        f"print(attention_weights(*one, {MOST}))",
        f"print(attention_weights(*two, {MOST}))",
        "if head_labels(*one) == head_labels(*two):",
        f"    print(attention_difference(one, two, {MOST}))",
    ]
    return script(
        opened,
        *lines,
        imports=[
            "from glassformer.evaluation.run_comparison import attention_difference, attention_weights, head_labels",
            "from glassformer.inspection.explain import subject_of",
        ],
    )


VIEW = PageView(ContrastQuestion, answer, python, others=lambda question: [question.other])
