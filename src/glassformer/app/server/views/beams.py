"""Beam tree: all hypotheses that beam search considered, step by step.

The response::

    {"nodes": [{"parent": 0 | null, "token": 17 | null, "text": " the", "tokens": 1, "log_probability": -0.5,
                "score": -0.5, "fate": "ran on" | "ended" | "dropped", "rank": 0 | null}],
     "found": [{"text": …, "tokens": 7, "log_probability": -2.1, "score": -1.6, "ended": "end" | "length"}]}

The first node is the root. `found` lists the results of the search, best first; a node's `rank` is its index in
`found`. A score is the log-probability, divided by ((5 + tokens) / 6) to the power of the length penalty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field

from glassformer.app.server.registry import ServedModel
from glassformer.app.server.view import PageView, Text, ViewQuestion, script
from glassformer.base.config import SampleConfig
from glassformer.base.errors import GlassError
from glassformer.generation.beam import BeamStep, Hypothesis, beam_search, penalty
from glassformer.tasks import ChatModel, TextModel, Translator
from glassformer.tasks.written_text import decode_until_stop

Fate = Literal["ran on", "ended", "dropped"]


@dataclass(frozen=True)
class BeamNode:
    """Hypothesis that beam search considered.

    Attributes:
        parent: index of the node with all tokens but the last; None for the root, which has no token.
        token: id of the last token; None for the root.
        tokens: number of tokens.
        log_probability: sum of the natural logarithms of the probabilities of the tokens.
        score: `log_probability` divided by ((5 + tokens) / 6) to the power of the length penalty.
        fate: "ran on": kept for the next step, or until the end of the search; "ended": a result of the
            search whose last token is an end token; "dropped": every other hypothesis.
        rank: index among the results of the search, from 0; None: not a result.
    """

    parent: int | None
    token: int | None
    tokens: int
    log_probability: float
    score: float
    fate: Fate
    rank: int | None = None


def tree_of(steps: Sequence[BeamStep], hypotheses: Sequence[Hypothesis], length_penalty: float) -> tuple[BeamNode, ...]:
    """Return the tree of the search for one text: its nodes, parents before their children, and the root first.

    Args:
        steps: steps of the search, as its argument `watch` receives them.
        hypotheses: results of the search.
        length_penalty: length penalty of the search.
    """
    nodes = [BeamNode(None, None, 0, 0.0, 0.0, "ran on")]
    node_of: dict[tuple[int, ...], int] = {(): 0}
    for step in steps:
        surviving = set(step.after)
        for child in step.children:
            prefix = step.before[child.parent]
            tokens = (*prefix, child.token)
            score = child.log_probability / penalty(len(tokens), length_penalty)
            fate: Fate = "ran on" if tokens in surviving else "dropped"
            node_of[tokens] = len(nodes)
            nodes.append(BeamNode(node_of[prefix], child.token, len(tokens), child.log_probability, score, fate))
    for rank, hypothesis in enumerate(hypotheses):
        node = node_of[hypothesis.tokens]
        fate = "ended" if hypothesis.ended == "end" else "ran on"
        nodes[node] = replace(nodes[node], rank=rank, fate=fate)
    return tuple(nodes)


class BeamQuestion(ViewQuestion):
    """Request for the beam tree of a text.

    Attributes:
        text: text to continue, translate or summarize.
        beams, tokens, length_penalty: as in the settings of `sample`, with bounds that keep the tree small.
    """

    text: Text
    beams: Annotated[int, Field(ge=1, le=8)] = 3
    tokens: Annotated[int, Field(ge=1, le=24)] = 8
    length_penalty: Annotated[float, Field(ge=0, le=10)] = 0.6

    def read_texts(self) -> tuple[list[str], list[str | None]]:
        """Return the text that the beams continue or translate, and no target."""
        return [self.text], []


def answer(opened: ServedModel, question: BeamQuestion) -> dict[str, Any]:
    """Return the nodes of the tree, and the results of the search."""
    model = opened.model
    if not isinstance(model, TextModel | Translator):
        raise GlassError(
            f"{opened.name} was trained with train.task = {model.config.train.task}: it does not generate text",
            "Choose a run that continues text, translates or summarizes.",
        )
    steps: list[BeamStep] = []
    hypotheses = _search(model, question, steps)
    tokenizer = model.tokenizer
    context_ids = model.ids_before_text(model.prompt_ids(question.text))
    return {
        "nodes": [
            {**asdict(node), "text": "" if node.token is None else tokenizer.token_text(node.token)}
            for node in tree_of(steps, hypotheses, question.length_penalty)
        ],
        "found": [
            {
                "text": decode_until_stop(tokenizer, context_ids, each.text_tokens, ())[0],
                "tokens": len(each.tokens),
                "log_probability": each.log_probability,
                "score": each.score,
                "ended": each.ended,
            }
            for each in hypotheses
        ],
    }


def _search(model: TextModel | Translator, question: BeamQuestion, steps: list[BeamStep]) -> list[Hypothesis]:
    settings = SampleConfig(beams=question.beams, tokens=question.tokens, length_penalty=question.length_penalty)
    ids = model.prompt_ids(question.text)
    (hypotheses,) = beam_search(
        model.model,
        [ids],
        settings,
        model.tokenizer.end_id,
        start=model.tokenizer.target_start,
        watch=steps.append,
        extra_end_ids=model.extra_end_ids,
    )
    return hypotheses


def python(opened: ServedModel, question: BeamQuestion) -> str:
    """Return a script that prints the results of the search, and the tree."""
    extra_arguments = ""
    if isinstance(opened.model, Translator):
        extra_arguments = ", start=model.tokenizer.target_start"
    if isinstance(opened.model, ChatModel):
        extra_arguments = ", extra_end_ids=model.extra_end_ids"
    sample_settings = f"beams={question.beams}, tokens={question.tokens}, length_penalty={question.length_penalty!r}"
    return script(
        opened,
        f"settings = SampleConfig({sample_settings})",
        f"ids, steps = model.prompt_ids({question.text!r}), []",
        "end = model.tokenizer.end_id",
        f"found = beam_search(model.model, [ids], settings, end{extra_arguments}, watch=steps.append)[0]",
        "for each in found:",
        "    print(each.score, each.log_probability, repr(model.tokenizer.decode(each.text_tokens)))",
        "for node in tree_of(steps, found, settings.length_penalty):",
        "    print(node.parent, node.token, node.score, node.fate)",
        imports=[
            "from glassformer.base.config import SampleConfig",
            "from glassformer.generation.beam import beam_search",
            "from glassformer.app.server.views.beams import tree_of",
        ],
    )


VIEW = PageView(BeamQuestion, answer, python)
