"""Views of `glass attribute`: each returns a dictionary for JSON and lines for the terminal."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from glassformer.app.cli.attribute_pictures import plot_lens, plot_rollout
from glassformer.base.errors import GlassError
from glassformer.base.wording import listed

if TYPE_CHECKING:
    from glassformer.inspection.attribution import AttributionCase, Output
    from glassformer.inspection.explain.subject import Subject
    from glassformer.tasks import AnyTextModel

TOP = 8
"""Default of `--top` in the view logits: the number of parts or neurons to list."""


@dataclass(frozen=True)
class AttributionRequest:
    """Inputs of a view.

    Attributes:
        arguments: arguments of the command.
        model: model of the run, with the methods for its task.
        subject: the model's input, with the names of tokens and labels.
        case: the input as tensors, and the answers to explain.
        row: tokens of the target of an encoder-decoder, or of the text.
        source: tokens of the source of an encoder-decoder; empty for other models.
    """

    arguments: argparse.Namespace
    model: AnyTextModel
    subject: Subject
    case: AttributionCase
    row: tuple[str, ...]
    source: tuple[str, ...]

    @property
    def output(self) -> Output:
        """Answer at `--position`, or the last answer.

        Raises:
            GlassError: there is no answer at that position.
        """
        position = self.arguments.position
        matches = [output for output in self.case.outputs if position in (None, output.place)]
        if not matches:
            positions = listed([str(output.place) for output in self.case.outputs], 8)
            raise GlassError(f"there is no answer at position {position}", f"Choose one of: {positions}.")
        return matches[-1]

    @property
    def against(self) -> int | None:
        """Token id or label number of `--against`; None if the option is not given."""
        against = self.arguments.against
        return None if against is None else self.model.output_id(against)


ViewResult = tuple[dict[str, Any], Iterator[str]]
"""Dictionary for JSON, and lines for the terminal."""


def logits_view(request: AttributionRequest) -> ViewResult:
    """Show the contribution of each part to each logit, or to one logit.

    For one logit, `--layer` shows the contributions of the neurons of a feed-forward layer instead, and `--head` the
    contribution of one head, split by source token.
    """
    from glassformer.inspection.attribution import split_neurons, split_output, split_outputs, tables
    from glassformer.inspection.receipt.parts import refuse_inexact
    from glassformer.inspection.sites import find_head

    arguments = request.arguments
    name = request.subject.name
    refuse_inexact(request.case.model)
    head = None if arguments.head is None else find_head(request.case.model, arguments.head)
    trace = request.case.trace()
    top = arguments.top or TOP
    if (arguments.position, arguments.layer, head) == (None, None, None) and len(request.case.outputs) > 1:
        contributions = split_outputs(request.case.model, trace, request.case.outputs, request.against)
        return contributions.facts(name), tables.split_grid_lines(contributions, request.row, name)
    output = request.output
    title = f"{_answer_text(request, output)}: contributions to its logit"
    if arguments.layer is not None:
        neurons = split_neurons(request.case.model, trace, output, arguments.layer, request.against)
        return neurons.facts(), _with_title(title, tables.neuron_lines(neurons, top))
    parts = split_output(request.case.model, trace, output, request.against)
    if head is None:
        contributions = split_outputs(request.case.model, trace, [output], request.against)
        facts = contributions.facts(name)
        for each, part in zip(facts["parts"], parts, strict=True):
            each["sources"] = part.sources
        return facts, _with_title(title, tables.split_position_lines(parts, request.row, request.source, top))
    if head.site.stack == "enc" and request.source:
        raise GlassError(
            f"{head} writes to the encoder's residual stream, not to a logit", "Name a head of the decoder."
        )
    kind = "cross head" if head.site.part == "cross" else "head"
    part = next(each for each in parts if (each.kind, each.layer, each.head) == (kind, head.site.layer, head.head))
    import torch

    labels = request.source if kind == "cross head" else request.row
    lines = tables.token_lines({"contributed": torch.tensor(part.sources)}, labels, "+9.4f")
    facts = {"head": str(head), "value": part.value, "sources": part.sources}
    title = f"{_answer_text(request, output)}: {head} contributed {part.value:+.4f}, split by source token"
    return facts, _with_title(title, lines)


def lens_view(request: AttributionRequest) -> ViewResult:
    """Show the likeliest answers after each layer (logit lens); draw them with `--plot`."""
    from glassformer.inspection.attribution import lens, tables

    case = request.case
    name = request.subject.name
    outputs = case.outputs if request.arguments.position is None else [request.output]
    lens_result = lens(case.model, case.tokens, outputs, case.target, request.arguments.top or 3)
    if request.arguments.plot is not None:
        plot_lens(lens_result, request.subject, request.row, request.arguments.plot)
    if request.arguments.position is None:
        return lens_result.facts(name), tables.lens_grid_lines(lens_result, request.row, name)
    return lens_result.facts(name), _with_title(
        _answer_text(request, request.output), tables.lens_position_lines(lens_result, 0, name)
    )


def rollout_view(request: AttributionRequest) -> ViewResult:
    """Show the attention rollout from the answer to each token; draw it with `--plot`."""
    from glassformer.inspection.attribution import rollout
    from glassformer.inspection.attribution.rollout import read_by
    from glassformer.inspection.attribution.tables import token_lines

    trace = request.case.trace()
    reads = [request.output.reads]
    layer = _layer(request)
    rollout_result = rollout(trace)
    uniform_result = rollout(trace, uniform=True)
    if request.arguments.plot is not None:
        plot_rollout(rollout_result, layer, request.subject, request.arguments.plot)
    columns = {
        "rollout": read_by(rollout_result.row[layer], reads)[0],
        "uniform": read_by(uniform_result.row[layer], reads)[0],
    }  # (T)
    lines = [
        f"{_attention_title(request)}, by attention rollout; uniform: with uniform attention",
        *token_lines(columns, request.row),
    ]
    if rollout_result.source is not None and uniform_result.source is not None:
        columns = {
            "rollout": read_by(rollout_result.source[layer], reads)[0],
            "uniform": read_by(uniform_result.source[layer], reads)[0],
        }
        lines += ["from the source, through cross-attention and the encoder", *token_lines(columns, request.source)]
    facts = {"reads": list(reads[0]), "layer": layer, **rollout_result.facts(), "uniform": uniform_result.facts()}
    return facts, iter(lines)


def flow_view(request: AttributionRequest) -> ViewResult:
    """Show the maximum attention flow from each token to the answer, next to attention rollout."""
    from glassformer.inspection.attribution import flow, rollout
    from glassformer.inspection.attribution.rollout import read_by
    from glassformer.inspection.attribution.tables import token_lines

    trace = request.case.trace()
    reads = request.output.reads
    layer = _layer(request)
    flow_result = flow(trace, reads, layer + 1)
    rollout_result = rollout(trace)
    columns = {"flow": flow_result.row, "rollout": read_by(rollout_result.row[layer], [reads])[0]}  # (T)
    lines = [f"{_attention_title(request)}, by attention flow", *token_lines(columns, request.row)]
    if flow_result.source is not None and rollout_result.source is not None:
        columns = {"flow": flow_result.source, "rollout": read_by(rollout_result.source[layer], [reads])[0]}  # (S)
        lines += ["from the source, through cross-attention and the encoder", *token_lines(columns, request.source)]
    return flow_result.facts(), iter(lines)


def occlusion_view(request: AttributionRequest) -> ViewResult:
    """Show the occlusion of each token: the drop in the answer's log-probability, in nats, if the token is replaced."""
    from glassformer.inspection.attribution import occlude
    from glassformer.inspection.attribution.tables import token_lines

    output = request.output
    replacement, replacement_id, source_replacement_id = _replacements(request)
    occlusion = occlude(request.case, replacement_id, source_replacement_id)
    column = request.case.outputs.index(output)
    lines = [
        f"{_answer_text(request, output)}: ln p = {float(occlusion.before[column]):.4f}; drop in ln p, in nats, "
        f"when a token is replaced by {replacement}",
        *token_lines({"drop": occlusion.row[column]}, request.row, "+9.4f"),
    ]
    if occlusion.source is not None:
        lines += ["tokens of the source", *token_lines({"drop": occlusion.source[column]}, request.source, "+9.4f")]
    return occlusion.facts(request.subject.name), iter(lines)


def agreement_view(request: AttributionRequest) -> ViewResult:
    """Show the rank correlations of attention, rollout and occlusion."""
    from glassformer.inspection.attribution import agreement, occlude
    from glassformer.inspection.attribution.tables import agreement_lines

    replacement, replacement_id, source_replacement_id = _replacements(request)
    agreement_result = agreement(
        request.case.model, request.case.trace(), occlude(request.case, replacement_id, source_replacement_id)
    )
    return {"replacement": replacement_id, **agreement_result.facts()}, _with_title(
        f"occlusion: tokens are replaced by {replacement}", agreement_lines(agreement_result)
    )


def patching_view(request: AttributionRequest) -> ViewResult:
    """Show the effect of patching activations of the clean text into the forward pass of the corrupt text.

    The effect is the recovered fraction of the logit difference, for each layer and position or, with `--part heads`,
    for each head of each layer.
    """
    from glassformer.inspection.attribution import PatchingInputs, case_of, patch_grids
    from glassformer.inspection.attribution.grid import check_part, check_shapes
    from glassformer.inspection.attribution.tables import grid_lines
    from glassformer.inspection.explain import unshortened_subject_of

    arguments = request.arguments
    case = request.case
    target = request.subject.target
    check_part(arguments.part or "resid")
    corrupt_subject = unshortened_subject_of(request.model, arguments.corrupt, target, "--corrupt")
    corrupt_case = case_of(corrupt_subject)
    inputs = PatchingInputs(case.tokens, corrupt_case.tokens, 0, 0, 0, case.target, corrupt_case.target)
    check_shapes(inputs)
    if corrupt_subject.ids == request.subject.ids:
        raise GlassError("--corrupt is the same as the text: there is nothing to restore", "Give a different text.")
    clean_answers = case.logits()[0].argmax(dim=-1)  # (P)
    corrupt_answers = corrupt_case.logits()[0].argmax(dim=-1)  # (P)
    output = request.output
    differing = (clean_answers != corrupt_answers).nonzero()
    if arguments.position is None and case.target is not None and len(differing):
        output = case.outputs[int(differing[0])]
    column = case.outputs.index(output)
    token = int(clean_answers[column]) if arguments.token is None else output.answer
    against = int(corrupt_answers[column]) if request.against is None else request.against
    if token == against:
        raise GlassError(
            f"the two answers to compare are the same: {request.subject.name(token)}",
            "Name two different answers with --token and --against.",
        )
    inputs = PatchingInputs(
        case.tokens, corrupt_case.tokens, output.place, token, against, case.target, corrupt_case.target
    )
    grids = patch_grids(case.model, inputs, arguments.part or "resid")
    name = request.subject.name
    first = grids[0]
    lines = [
        f"{name(token)} against {name(against)}, {_position_text(request, output)}: logit difference "
        f"{first.clean:+.4f} clean, {first.corrupt:+.4f} corrupt; 0: no effect, 1: the clean difference is restored",
    ]
    for grid in grids:
        is_encoder = bool(request.source) and grid.stack == "enc"
        lines += grid_lines(grid, request.source if is_encoder else request.row, _labels(corrupt_subject, is_encoder))
    answers = {"token": {"id": token, "text": name(token)}, "against": {"id": against, "text": name(against)}}
    return {**answers, "place": output.place, "grids": [grid.facts() for grid in grids]}, iter(lines)


def _labels(subject: Subject, source: bool) -> tuple[str, ...]:
    return subject.labels if source or subject.target_labels is None else subject.target_labels


def _layer(request: AttributionRequest) -> int:
    """Return the layer number given by `--layer`, or the number of the last layer."""
    from glassformer.inspection.attribution.case import check_number
    from glassformer.inspection.sites import last_stack

    count = len(last_stack(request.case.model).blocks)
    layer = request.arguments.layer
    return count - 1 if layer is None else check_number("layer", layer, count)


def _replacements(request: AttributionRequest) -> tuple[str, int, int | None]:
    """Return the token that replaces an occluded token: `--replace`, or else the unknown, mask or end token.

    Returns:
        Text and id of the token, and its id in the source vocabulary (None if there is only one vocabulary).
    """
    tokenizer = request.model.tokenizer
    source = request.model.source_tokenizer
    replacement = request.arguments.replace
    if replacement is not None:
        from glassformer.tasks.naming import token_named

        token_id = token_named(tokenizer, replacement)
        source_token_id = token_named(source, replacement)
    else:
        token_id, source_token_id = (
            next(id for id in (each.unknown_id, each.mask_id, each.end_id) if id is not None)
            for each in (tokenizer, source)
        )
    return f"{tokenizer.token_text(token_id)} ({token_id})", token_id, None if source is tokenizer else source_token_id


def _position_text(request: AttributionRequest, output: Output) -> str:
    from glassformer.inspection.sites import last_stack

    if len(output.reads) > 1:
        return "from all positions"
    after = "after" if last_stack(request.case.model).causal else "from"
    return f"{after} {request.row[output.place]} at {output.place}"


def _attention_title(request: AttributionRequest) -> str:
    """Return the title of a rollout or flow view, which names the answer."""
    return f"attention of the answer {_position_text(request, request.output)} to each token"


def _answer_text(request: AttributionRequest, output: Output) -> str:
    against = "" if request.against is None else f" against {request.subject.name(request.against)}"
    return f"answer {request.subject.name(output.answer)}{against} {_position_text(request, output)}"


def _with_title(title: str, lines: Iterator[str]) -> Iterator[str]:
    yield title
    yield from lines


VIEWS: dict[str, Callable[[AttributionRequest], ViewResult]] = {
    "logits": logits_view,
    "lens": lens_view,
    "rollout": rollout_view,
    "flow": flow_view,
    "occlusion": occlusion_view,
    "agreement": agreement_view,
    "patching": patching_view,
}
"""Views by name."""
