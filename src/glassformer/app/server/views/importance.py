"""Token importance by attention, attention rollout and occlusion, and the rank correlations of these measures.

The response::

    {"row": [tokens], "source": [tokens] | null, "layers": 4, "layer": 3, "places": [3, 4], "place": 4,
     "token": {"id", "text", "known"}, "log_probability": -1.2, "replacement": {"own": "<end>", "source": null},
     "least": 4,                              minimum number of tokens for a correlation
     "sides": [{"side": "own", "seen": 5, "attention": [0.2, …] | null, "rollout": […], "blanked": […],
                "spearman": [{"between": ["attention", "rollout"], "value": 0.7 | null}]}],
     "layers_agree": [{"layer": 0, "measure": "attention", "side": "own", "correlation": 0.4 | null, "outputs": 20}]}

`blanked` is the occlusion: the decrease of ln p(answer), in nats, when the token is replaced by `replacement`; each
token takes a forward pass. `spearman` has the rank correlation of each pair of the three measures, over the tokens that
the answer can attend to; occlusion is ranked by its absolute value. `attention` is null if the layer has no heads.
`layers_agree` has, for each layer, the mean correlation of attention and of rollout with occlusion, over the answers
that can attend to at least `least` tokens.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from glassformer.app.server.registry import ServedModel
from glassformer.app.server.view import PageView, TextQuestion
from glassformer.app.server.views.text_case import case_at, case_script, column_at, labels_of, refuse_long
from glassformer.base.errors import GlassError
from glassformer.inspection.attribution import AttributionCase, Occlusion, RankAgreement, agreement, occlude
from glassformer.inspection.attribution.agreement import LEAST
from glassformer.inspection.attribution.importance import importance, occlusion_flops
from glassformer.inspection.sites import last_stack
from glassformer.inspection.trace import Trace
from glassformer.tasks import AnyTextModel
from glassformer.text.tokenizers import Tokenizer

MAX_FLOPS = 6e11
"""Maximum FLOPs of occluding all tokens in turn: about half a minute on a laptop."""


class ImportanceQuestion(TextQuestion):
    """Request for the token importance of a text.

    Attributes:
        place: position of the answer; None: the last one.
        layer: layer of the attention, and last layer of the rollout; None: the last layer.
    """

    place: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    layer: Annotated[int, Field(ge=0, le=100_000)] | None = None


def answer(opened: ServedModel, question: ImportanceQuestion) -> dict[str, Any]:
    """Return the attention, rollout and occlusion of each token, and their rank correlations."""
    subject = opened.subject(question.text, question.target)
    refuse_long(subject)
    key = "importance", question.text, question.target
    case, trace, occlusion, agreed = opened.cached(key, lambda: _compute(opened, question), _nbytes)
    column = column_at(case, question.place)
    layers = len(last_stack(case.model).blocks)
    layer = layers - 1 if question.layer is None else question.layer
    sides = importance(case.model, trace, occlusion, layer, column)
    output = case.outputs[column]
    token_id, source_token_id = replacements(opened.model)
    texts = {"own": opened.model.tokenizer.token_text(token_id), "source": None}
    if source_token_id is not None:
        texts["source"] = opened.model.source_tokenizer.token_text(source_token_id)
    return {
        **labels_of(subject),
        "layers": layers,
        "layer": layer,
        "places": [each.place for each in case.outputs],
        "place": output.place,
        "token": {"id": output.answer, "text": subject.name(output.answer), "known": output.known},
        "log_probability": float(occlusion.before[column]),
        "replacement": texts,
        "least": LEAST,
        "sides": [each.facts() for each in sides],
        "layers_agree": agreed.facts()["rows"],
    }


def _compute(
    opened: ServedModel, question: ImportanceQuestion
) -> tuple[AttributionCase, Trace, Occlusion, RankAgreement]:
    case = case_at(opened, question)
    tokens = case.tokens.shape[1]
    target = None if case.target is None else case.target.shape[1]
    if (flops := occlusion_flops(case.model, tokens, target)) > MAX_FLOPS:
        longest = max(tokens, target or 0)
        texts = "a text" if target is None else "a text and a target"
        raise GlassError(
            f"occlusion of each of {tokens + (target or 0):,} tokens would take {flops:.1e} FLOPs, "
            f"but at most {MAX_FLOPS:.1e} are allowed",
            f"Give {texts} of at most about {int(longest * (MAX_FLOPS / flops) ** 0.5):,} tokens.",
        )
    trace = case.trace()
    occlusion = occlude(case, *replacements(opened.model))
    return case, trace, occlusion, agreement(case.model, trace, occlusion)


def _nbytes(cached: tuple[AttributionCase, Trace, Occlusion, RankAgreement]) -> int:
    """Return the approximate size of a cached result in bytes, mostly of scores, scaled scores and weights."""
    trace = cached[1]
    occlusion = cached[2]
    stacks = [trace.stack, *([] if trace.source is None else [trace.source])]
    attentions = [part for stack in stacks for block in stack.blocks for part in (block.attention, block.cross)]
    return 4 * sum(part.scores.nbytes for part in attentions if part is not None) + 2 * occlusion.row.nbytes


def replacements(model: AnyTextModel) -> tuple[int, int | None]:
    """Return the id that replaces an occluded token, and the id for a source with a separate vocabulary (else None)."""

    def replacement_id(tokenizer: Tokenizer) -> int:
        candidates = (tokenizer.unknown_id, tokenizer.mask_id, tokenizer.end_id)
        return next(id for id in candidates if id is not None)

    source = model.source_tokenizer
    return replacement_id(model.tokenizer), None if source is model.tokenizer else replacement_id(source)


def python(opened: ServedModel, question: ImportanceQuestion) -> str:
    """Return a script that prints the three measures of the answer, their correlations, and the mean correlations."""
    token_id, source_token_id = replacements(opened.model)
    position = "None" if question.place is None else str(question.place)
    layer = "-1" if question.layer is None else str(question.layer)
    return case_script(
        opened,
        question,
        "from glassformer.inspection.attribution import agreement, occlude",
        "from glassformer.inspection.attribution.importance import importance",
        "",
        f"places, place, layer = [output.place for output in case.outputs], {position}, {layer}",
        "column = len(places) - 1 if place is None else places.index(place)",
        f"trace, occlusion = case.trace(), occlude(case, {token_id}, {source_token_id})",
        "layer = len(trace.stack.blocks) - 1 if layer < 0 else layer",
        "for side in importance(case.model, trace, occlusion, layer, column):",
        "    print(side.facts())",
        "print(agreement(case.model, trace, occlusion).facts())",
    )


VIEW = PageView(ImportanceQuestion, answer, python)
