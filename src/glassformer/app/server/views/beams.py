"""The beam tree: every hypothesis that beam search looked at, step by step.

The answer::

    {"nodes": [{"parent": 0 | null, "token": 17 | null, "text": " the", "tokens": 1, "log_probability": -0.5,
                "score": -0.5, "fate": "ran on" | "ended" | "dropped", "rank": 0 | null}],
     "found": [{"text": …, "tokens": 7, "log_probability": -2.1, "score": -1.6, "ended": "end" | "length"}]}

The first node is the root. `found` is what the search gives, best first; a node's `rank` is its place there.
A score is the log-probability, divided by ((5 + tokens) / 6) to the power of the length penalty.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from pydantic import Field

from glassformer.app.server.registry import ServedModel
from glassformer.app.server.view import PageView, Text, ViewQuestion, script
from glassformer.base.config import SampleConfig
from glassformer.base.errors import GlassError
from glassformer.generation.beam import Hypothesis, Look, beam_search, beam_translate
from glassformer.generation.beam_tree import tree_of
from glassformer.tasks import TextModel, Translator
from glassformer.tasks.writing import written


class BeamQuestion(ViewQuestion):
    """What is asked.

    Attributes:
        text: to go on after, or to translate.
        beams, tokens, length_penalty: as in settings of `sample`; so few that the tree can be drawn.
    """

    text: Text
    beams: Annotated[int, Field(ge=1, le=8)] = 3
    tokens: Annotated[int, Field(ge=1, le=24)] = 8
    length_penalty: Annotated[float, Field(ge=0, le=10)] = 0.6


def answer(opened: ServedModel, question: BeamQuestion) -> dict[str, Any]:
    """See the module."""
    model = opened.model
    if not isinstance(model, TextModel | Translator):
        raise GlassError(
            f"{opened.name} learnt train.task = {model.config.train.task}: it writes no text",
            "Choose a run that continues text, translates or summarizes.",
        )
    looks: list[Look] = []
    found = _search(model, question, looks)
    tokenizer = model.tokenizer
    before = () if isinstance(model, Translator) else model.prompt_ids(question.text)
    return {
        "nodes": [
            {**asdict(node), "text": "" if node.token is None else tokenizer.token_text(node.token)}
            for node in tree_of(looks, found, question.length_penalty)
        ],
        "found": [
            {
                "text": written(tokenizer, before, each.tokens, ())[0], "tokens": len(each.tokens),
                "log_probability": each.log_probability, "score": each.score, "ended": each.ended,
            }
            for each in found
        ],
    }  # fmt: skip


def _search(model: TextModel | Translator, question: BeamQuestion, looks: list[Look]) -> list[Hypothesis]:
    settings = SampleConfig(beams=question.beams, tokens=question.tokens, length_penalty=question.length_penalty)
    ids, tokenizer = model.prompt_ids(question.text), model.tokenizer
    if isinstance(model, Translator):
        start = tokenizer.target_start
        return beam_translate(model.model, [ids], settings, tokenizer.end_id, start=start, watch=looks.append)[0]
    return beam_search(model.model, [ids], settings, tokenizer.end_id, watch=looks.append)[0]


def python(opened: ServedModel, question: BeamQuestion) -> str:
    """What the search finds, and the tree."""
    pair = isinstance(opened.model, Translator)
    name, start = ("beam_translate", ", start=model.tokenizer.target_start") if pair else ("beam_search", "")
    given = f"beams={question.beams}, tokens={question.tokens}, length_penalty={question.length_penalty!r}"
    return script(
        opened,
        f"settings = SampleConfig({given})",
        f"ids, looks = model.prompt_ids({question.text!r}), []",
        "end = model.tokenizer.end_id",
        f"found = {name}(model.model, [ids], settings, end{start}, watch=looks.append)[0]",
        "for each in found:",
        "    print(each.score, each.log_probability, repr(model.tokenizer.decode(each.tokens)))",
        "for node in tree_of(looks, found, settings.length_penalty):",
        "    print(node.parent, node.token, node.score, node.fate)",
        imports=[
            "from glassformer.base.config import SampleConfig",
            f"from glassformer.generation.beam import {name}",
            "from glassformer.generation.beam_tree import tree_of",
        ],
    )


VIEW = PageView(BeamQuestion, answer, python)
