"""The exercises in the order of the course."""

from __future__ import annotations

from glassformer.base.errors import GlassError, nearest
from glassformer_course.exercise import Exercise

COURSE = (
    "matmul",
    "softmax",
    "cross_entropy",
    "byte_pairs",
    "bigram",
    "embedding",
    "attention",
    "causal_mask",
    "multi_head",
    "sinusoids",
    "rotary",
    "norms",
    "norms_backward",
    "block",
    "attention_backward",
    "adamw",
    "schedule",
    "tying",
    "training_loop",
    "cache",
    "sampling",
    "padding",
    "masked_lm",
    "cross_attention",
    "beam",
    "logit_attribution",
    "induction",
    "pruning",
    "answer_mask",
    "weight_average",
)


def numbers() -> range:
    """Return the exercise numbers, from 1."""
    return range(1, len(COURSE) + 1)


def find(which: str | int) -> Exercise:
    """Return an exercise by its number, its name, or the name of its file (`02_softmax.py`).

    Raises:
        GlassError: unknown exercise.
    """
    text = str(which).strip().removesuffix(".py").removesuffix(".ipynb").lower()
    head, _, tail = text.partition("_")
    if head.isdecimal() and tail:
        text = tail
    if text.isdecimal():
        if int(text) not in numbers():
            raise GlassError(
                f"there is no exercise {which}",
                f"Choose an exercise from 1 to {len(COURSE)}; glass learn list shows them.",
            )
        return Exercise(COURSE[int(text) - 1], int(text))
    if text not in COURSE:
        raise GlassError(f"there is no exercise {which!r}", nearest(text, COURSE))
    return Exercise(text, COURSE.index(text) + 1)


def all_exercises() -> list[Exercise]:
    """Return the exercises of the course, in order."""
    return [Exercise(name, number) for number, name in enumerate(COURSE, start=1)]
