"""Sampling: the distribution of the next token over the vocabulary after each filter, and the sampled token.

The response::

    {"vocabulary": 1000, "after": "…the text's last tokens", "step": 1,
     "stages": [{"filter": null | "temperature" | …, "setting": 0.8 | null, "sum": 1.0, "left": 1000, "cut": 0,
                 "cut_share": 0.0, "entropy": 3.2, "largest": 0.3}],
     "tokens": [{"id": 17, "text": " the", "shares": [0.2, 0.25, 0.3], "number": 0.7 | null, "arrival": 2.1 | null}],
     "curve": {"ranks": [1, 2, 3, 5, …], "shares": [[…], […]], "held": [[…], […]]},
     "draw": {"how": "drawn" | "likeliest", "token": 17, "text": " the", "seed": 0, "step": 1,
              "race": [{"id": 17, "text": " the", "probability": 0.3, "number": 0.7, "arrival": 2.1}]}}

The stages are those of `inspection.receipt.draw`: the model's own distribution, then one for each active setting. `sum`
is the sum over the vocabulary, and `left` the number of tokens with a probability above 0; the filter removed `cut`
tokens, whose total probability was `cut_share` in the previous stage. `tokens` are the likeliest tokens of the first
and of the last stage, with their probability in each stage as `shares`. `curve` has the probabilities by rank
(`shares`) and their cumulative sums (`held`), for the first and the last stage. `race` has the tokens with the earliest
arrival in the exponential race that samples the token: the arrival is the random number divided by the probability.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from glassformer.app.server.registry import ServedModel
from glassformer.app.server.view import PageView, TextQuestion, script
from glassformer.base.config import SampleConfig
from glassformer.base.errors import GlassError
from glassformer.evaluation.token_losses import next_logits
from glassformer.inspection.receipt.draw import Draw, SamplingStage, explain_draw
from glassformer.tasks import TextModel, Translator

RANKS = 160
"""Maximum number of ranks in `curve`."""
RACE_TOKENS = 12
"""Maximum number of tokens in `race`."""
LAST = 12
"""Maximum number of tokens in `after`."""


class SamplingQuestion(TextQuestion):
    """Request for the next token of a text or, for a run that translates or summarizes, of a target (None: empty).

    Attributes:
        temperature, top_k, top_p, min_p, repetition_penalty, seed: as in the settings of `sample`.
        top: number of likeliest tokens of the first and of the last stage to list.
    """

    temperature: Annotated[float, Field(ge=0, le=10)] = 1.0
    top_k: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    min_p: Annotated[float, Field(gt=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(ge=1, le=10)] = 1.0
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    top: Annotated[int, Field(ge=1, le=200)] = 20


def answer(opened: ServedModel, question: SamplingQuestion) -> dict[str, Any]:
    """Return the next-token distribution after each filter, and the sampled token."""
    model = opened.model
    if not isinstance(model, TextModel | Translator):
        raise GlassError(
            f"{opened.name} was trained with train.task = {model.config.train.task}: it does not sample tokens",
            "Choose a run that continues text, translates or summarizes.",
        )
    key = "sampling", question.text, question.target
    context = opened.cached(
        key, lambda: next_logits(model, question.text, question.target), lambda cached: 4 * len(cached.logits)
    )
    draw = explain_draw(context.logits, settings_of(question), context.previous, context.step)
    name = model.tokenizer.token_text
    return {
        "vocabulary": len(context.logits),
        "after": model.tokenizer.decode(list(context.read[-LAST:])),
        "step": context.step,
        "stages": [_stage(stage, previous) for stage, previous in zip(draw.stages, (None, *draw.stages), strict=False)],
        "tokens": _tokens(draw, question.top, name),
        "curve": _curve(draw),
        "draw": _draw(draw, name),
    }


def settings_of(question: SamplingQuestion) -> SampleConfig:
    """Return the sampling settings of a request."""
    return SampleConfig(
        temperature=question.temperature,
        top_k=question.top_k,
        top_p=question.top_p,
        min_p=question.min_p,
        repetition_penalty=question.repetition_penalty,
        seed=question.seed,
    )


def _stage(stage: SamplingStage, previous: SamplingStage | None) -> dict[str, Any]:
    probabilities = stage.probabilities  # (V)
    removed = (
        torch.zeros_like(probabilities, dtype=torch.bool)
        if previous is None
        else (probabilities == 0) & (previous.probabilities > 0)
    )
    positive = probabilities[probabilities > 0]
    return {
        "filter": stage.filter,
        "setting": stage.setting,
        "sum": float(probabilities.sum()),
        "left": stage.left,
        "cut": int(removed.sum()),
        "cut_share": 0.0 if previous is None else float(previous.probabilities[removed].sum()),
        "entropy": float(-(positive * positive.log()).sum()),
        "largest": float(probabilities.max()),
    }


def _tokens(draw: Draw, top: int, name: Any) -> list[dict[str, Any]]:
    ids = {id: None for stage in (draw.stages[-1], draw.stages[0]) for id in _best(stage.probabilities, top)}
    entries = []
    for id in sorted(ids, key=lambda each: -float(draw.stages[0].probabilities[each])):
        runner = draw.runner(id)
        entries.append(
            {
                "id": id,
                "text": name(id),
                "shares": [float(stage.probabilities[id]) for stage in draw.stages],
                "number": None if runner is None else runner.number,
                "arrival": None if runner is None else runner.arrival,
            }
        )
    return entries


def _best(probabilities: Tensor, n: int) -> list[int]:
    return probabilities.sort(descending=True, stable=True).indices[:n].tolist()


def _curve(draw: Draw) -> dict[str, Any]:
    """Return probabilities by rank; for a large vocabulary, at ranks evenly spaced on a logarithmic scale."""
    V = len(draw.stages[0].probabilities)
    ranks = sorted({int(rank) for rank in np.geomspace(1, V, min(V, RANKS)).round()})
    indices = torch.tensor(ranks) - 1
    ordered = [
        stage.probabilities.sort(descending=True).values for stage in (draw.stages[0], draw.stages[-1])
    ]  # (V) each
    return {
        "ranks": ranks,
        "shares": [probabilities[indices].tolist() for probabilities in ordered],
        "held": [probabilities.cumsum(0)[indices].tolist() for probabilities in ordered],
    }


def _draw(draw: Draw, name: Any) -> dict[str, Any]:
    return {
        "how": draw.how,
        "token": draw.token,
        "text": name(draw.token),
        "seed": draw.seed,
        "step": draw.step,
        "race": [
            {
                "id": each.token,
                "text": name(each.token),
                "probability": each.probability,
                "number": each.number,
                "arrival": each.arrival,
            }
            for each in draw.runners[:RACE_TOKENS]
        ],
    }


def python(opened: ServedModel, question: SamplingQuestion) -> str:
    """Return a script that prints the stages and the sampled token."""
    arguments = f"temperature={question.temperature!r}, top_k={question.top_k!r}, top_p={question.top_p!r}"
    return script(
        opened,
        f"after = next_logits(model, {question.text!r}, {question.target!r})",
        f"settings = SampleConfig({arguments},",
        f"    min_p={question.min_p!r}, repetition_penalty={question.repetition_penalty!r}, seed={question.seed!r})",
        "found = explain_draw(after.logits, settings, after.previous, after.step)",
        "for stage in found.stages:",
        "    print(stage.filter, float(stage.probabilities.sum()), stage.left, float(stage.probabilities.max()))",
        "print(found.how, found.token, repr(model.tokenizer.token_text(found.token)))",
        imports=[
            "from glassformer.base.config import SampleConfig",
            "from glassformer.evaluation.token_losses import next_logits",
            "from glassformer.inspection.receipt.draw import explain_draw",
        ],
    )


VIEW = PageView(SamplingQuestion, answer, python)
