"""Walk through one forward pass, from the text to the prediction, with numbers from the trace and the weights."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from torch import Tensor, nn

from glassformer.base.errors import GlassError
from glassformer.base.wording import counted, span
from glassformer.inspection.explain.arithmetic import Activated, Gated, Sum, projection, sum_of
from glassformer.inspection.explain.attention import AttentionCaptions, Labels, attention_sections
from glassformer.inspection.explain.lookups import EmbeddingRows, PositionVectors
from glassformer.inspection.explain.norm import norm_section
from glassformer.inspection.explain.prediction import prediction
from glassformer.inspection.explain.sections import Matrix, Section, SectionTable, Walk, numbers, parameters
from glassformer.inspection.explain.subject import Subject
from glassformer.inspection.traced import BlockTrace, FeedForwardTrace, StackTrace
from glassformer.model.pruned_attention import head_numbers
from glassformer.model.transformer import Block, Embedding, EncoderDecoder, FeedForward, Stack

POSITION_NOTES = {
    "learned": "A learned vector for each position is added.",
    "sinusoidal": "A fixed vector for each position is added: sines at even and cosines at odd channels (sinusoidal).",
    "rotary": "Nothing is added here: self-attention rotates queries and keys by their positions (rotary).",
    "alibi": "Nothing is added here: self-attention lowers each score in proportion to the key's distance (ALiBi).",
    "relative": "Nothing is added here: self-attention adds to each score a learned bias for the distance (relative).",
    "none": "Nothing is added, here or later: this model has no position encoding.",
}
OTHER_POSITIONS = "The position method is {positions}."
"""Note for position methods without an entry in `POSITION_NOTES`."""


def make_walk(
    subject: Subject, layers: Collection[int] | None = None, heads: Collection[int] | None = None, top: int = 10
) -> Walk:
    """Run one forward pass and return its walk.

    Args:
        subject: the model and its input.
        layers, heads: numbers of the layers and heads to show, from 0; None: all.
        top: maximum number of candidates in each prediction.

    Raises:
        GlassError: a layer or head does not exist, all chosen heads were removed, a feed-forward layer is not a
            `FeedForward`, or the model cannot be traced.
    """
    model = subject.model
    config = subject.model.config
    stacks = [part for part in model.modules() if isinstance(part, Stack)]
    _check_numbers(layers, max(len(stack.blocks) for stack in stacks), "layer")
    _check_numbers(heads, config.heads, "head")
    _check_heads_left(heads, _heads_left(stacks, layers))
    trace = subject.trace()
    selection = WalkSelection(layers, heads, config.positions)
    sections = [_tokens(subject)]
    if isinstance(model, EncoderDecoder):
        assert trace.source is not None
        assert subject.target_labels is not None
        embedding = model.source_embedding or model.embedding
        children = _stack(trace.source, model.encoder, embedding, subject.labels, len(subject.labels) - 1, selection)
        sections.append(Section("encoder", "Encoder: the source is read", children=tuple(children)))
        labels = subject.target_labels
        position = len(subject.target_labels) - 1
        children = _stack(trace.stack, model.decoder, model.embedding, labels, position, selection, subject.labels)
        sections.append(Section("decoder", "Decoder: the target is predicted", children=tuple(children)))
    else:
        position = subject.positions[0] if subject.positions else 0
        sections += _stack(trace.stack, model.stack, model.embedding, subject.labels, position, selection)
    prediction_sections = prediction(subject, trace, top)
    facts = {
        "family": config.family if subject.positions else "encoder, classifier",
        "layers": str(config.layers),
        "heads": str(config.heads),
        "width": str(config.width),
        "head width": str(config.K) if config.U == config.K else f"{config.K}, values {config.U}",
        "feed-forward width": str(config.F),
        "vocabulary": f"{model.vocab_size:,}",
        "positions": config.positions,
        "norm": f"{config.norm}, {config.norm_order}" if config.norm != "none" else "none",
        "activation": config.activation,
        "parameters": f"{sum(p.numel() for p in model.parameters()):,}",
    }
    tables = tuple(table for section in prediction_sections for table in section.tables)
    return Walk(subject.title, subject.text, subject.target, facts, (*sections, *prediction_sections), tables)


class WalkSelection:
    """Layers and heads to show, and the note on the model's position method."""

    def __init__(self, layers: Collection[int] | None, heads: Collection[int] | None, positions: str) -> None:
        self.layers = layers
        self.heads = heads
        self.position_note = POSITION_NOTES.get(positions, OTHER_POSITIONS.format(positions=positions))
        self.positions = positions


def _check_numbers(numbers: Collection[int] | None, count: int, what: str) -> None:
    for number in numbers or ():
        if not 0 <= number < count:
            problem = f"there is no {what} {number}: the model has {counted(count, what + 's')}"
            raise GlassError(problem, f"Give {span(0, count - 1)}.")


def _heads_left(stacks: Sequence[Stack], layers: Collection[int] | None) -> set[int]:
    """Return the numbers of all remaining heads in `layers`, or in all layers if `layers` is None."""
    remaining: set[int] = set()
    for number, block in (each for stack in stacks for each in enumerate(stack.blocks)):
        assert isinstance(block, Block)
        if layers is None or number in layers:
            remaining |= {
                head for part in (block.attention, block.cross) if part is not None for head in head_numbers(part)
            }
    return remaining


def _check_heads_left(heads: Collection[int] | None, remaining: set[int]) -> None:
    if heads and not remaining & set(heads):
        listed = " and ".join(map(str, heads))
        removed = f"heads {listed} were removed" if len(heads) > 1 else f"head {listed} was removed"
        raise GlassError(
            f"{removed}: model.removed_heads lists the removed heads",
            f"Give one of {', '.join(map(str, sorted(remaining)))}."
            if remaining
            else "Leave out --head: all heads of these layers were removed.",
        )


def _tokens(subject: Subject) -> Section:
    def table(name: str, ids: tuple[int, ...], labels: Labels) -> SectionTable:
        rows = tuple((position, label, id) for position, (label, id) in enumerate(zip(labels, ids, strict=True)))
        return SectionTable(name, ("position", "token", "id"), rows)

    tables = [table("text" if subject.target_ids is None else "source", subject.ids, subject.labels)]
    if subject.target_ids is not None and subject.target_labels is not None:
        tables.append(table("target", subject.target_ids, subject.target_labels))
    return Section("tokens", "Tokens", tables=tuple(tables), notes=subject.notes)


def _stack(
    trace: StackTrace,
    stack: Stack,
    embedding: Embedding,
    labels: Labels,
    position: int,
    selection: WalkSelection,
    source: Labels | None = None,
) -> list[Section]:
    """Return the sections on the embedding, layers and final norm of a stack; heads have notes on query `position`."""
    sections = _embedding(trace, embedding, labels, selection.position_note)
    for number, (block, module) in enumerate(zip(trace.blocks, stack.blocks, strict=True)):
        if selection.layers is None or number in selection.layers:
            assert isinstance(module, Block)
            captions = AttentionCaptions(
                labels, labels, position, "X", "X", number, selection.heads, selection.positions
            )
            sections.append(_layer(block, module, captions, source))
    if not isinstance(stack.norm, nn.Identity):
        sections.append(
            norm_section("final_norm", "Final norm", stack.norm, "X", "Y", trace.blocks[-1].after, trace.final, labels)
        )
    return sections


def _embedding(trace: StackTrace, embedding: Embedding, labels: Labels, note: str) -> list[Section]:
    rows = EmbeddingRows(embedding.scale)
    added = trace.position_vectors
    without_norm = isinstance(embedding.norm, nn.Identity)
    sum_name = "X" if without_norm else "R"
    norm_input = trace.token_vectors if added is None else trace.token_vectors + added
    vectors = Matrix(sum_name if added is None else "E", rows, numbers(trace.token_vectors[0]), labels)
    matrices: tuple[Matrix, ...] = ()
    if added is not None:
        matrices = (
            Matrix("P", PositionVectors(), numbers(added[0]), tuple(map(str, trace.positions[0].tolist()))),
            Matrix(sum_name, sum_of("E", "P"), numbers(norm_input[0]), labels),
        )
    sections = [
        Section("embedding", "Embedding", (vectors,)),
        Section("positions", "Positions", matrices, notes=(note,)),
    ]
    if not without_norm:
        sections.append(norm_section("norm", "Norm", embedding.norm, "R", "X", norm_input, trace.embedded, labels))
    return sections


def _layer(block: BlockTrace, module: Block, captions: AttentionCaptions, source: Labels | None) -> Section:
    """Return the section on a block, with its parts in order of execution.

    X is the residual stream before the block; X1, X2 and, with cross-attention, X3 are the streams after its parts.
    """
    steps = []
    names = iter(("X1", "X2", "X3"))
    parts: list[tuple[str, nn.Module, Tensor, Tensor]] = [
        ("attention", module.attention_norm, block.attention_norm, block.after_attention)
    ]
    if module.cross_norm is not None and block.cross_norm is not None and block.after_cross is not None:
        parts.append(("cross", module.cross_norm, block.cross_norm, block.after_cross))
    parts.append(("feedforward", module.feedforward_norm, block.feedforward_norm, block.after))
    stream_name = "X"
    before = block.before
    for kind, norm, normed, after in parts:
        new_name = next(names)
        without_norm = isinstance(norm, nn.Identity)
        input_name = stream_name
        if block.order == "pre" and not without_norm:
            input_name = f"N{new_name[1:]}"
            steps.append(norm_section("norm", "Norm", norm, stream_name, input_name, before, normed, captions.queries))
        part_sections, output, output_name = _part(kind, block, module, captions, input_name, source)
        steps += part_sections
        if block.order == "pre":
            steps.append(_residual(sum_of(stream_name, output_name), new_name, after, captions.queries))
        elif block.order == "output":
            steps.append(norm_section("norm", "Norm", norm, output_name, "R", output, normed, captions.queries))
            steps.append(_residual(sum_of(stream_name, "R"), new_name, after, captions.queries))
        else:
            norm_input = before + output  # (B, T, D) input of the norm
            steps.append(_residual(sum_of(stream_name, output_name), "R", norm_input, captions.queries))
            steps.append(norm_section("norm", "Norm", norm, "R", new_name, norm_input, normed, captions.queries))
        stream_name = new_name
        before = after
    children = tuple(_in_layer(step, captions.layer) for step in steps)
    return Section("layer", f"Layer {captions.layer}", children=children, layer=captions.layer, output=stream_name)


def _part(
    kind: str, block: BlockTrace, module: Block, captions: AttentionCaptions, input_name: str, source: Labels | None
) -> tuple[list[Section], Tensor, str]:
    """Return the sections on one part, its output (B, T, D), and the name of the output."""
    if kind == "attention":
        part_captions = AttentionCaptions(
            captions.queries,
            captions.keys,
            captions.position,
            input_name,
            input_name,
            captions.layer,
            captions.heads,
            captions.positions,
        )
        return attention_sections(block.attention, module.attention, part_captions), block.attention.output, "O"
    if kind == "cross" and block.cross is not None and module.cross is not None and source is not None:
        part_captions = AttentionCaptions(
            captions.queries, source, captions.position, input_name, "memory", captions.layer, captions.heads, ""
        )
        sections = attention_sections(block.cross, module.cross, part_captions)
        return (
            [Section("cross", "Cross-attention to the source", children=tuple(sections))],
            block.cross.output,
            "O",
        )
    return (
        [_feedforward(block.feedforward, module.feedforward, input_name, captions)],
        block.feedforward.output,
        "F",
    )


def _in_layer(step: Section, layer: int) -> Section:
    children = tuple(_in_layer(child, layer) for child in step.children)
    return replace(step, children=children, layer=layer)


def _residual(operation: Sum, name: str, after: Tensor, labels: Labels) -> Section:
    return Section("residual", "Residual stream", (Matrix(name, operation, numbers(after[0]), labels),))


def _feedforward(trace: FeedForwardTrace, layer: FeedForward, input_name: str, captions: AttentionCaptions) -> Section:
    if trace.up is None or trace.activated is None or trace.hidden is None:
        raise GlassError(
            f"layer {captions.layer} has a feed-forward layer of the type {type(layer).__name__}, "
            "whose operations are not known",
            "Give the numbers of other layers, or a model whose feed-forward layers are of the type FeedForward.",
        )
    labels = captions.queries
    matrices: list[Matrix] = []

    def project(name: str, linear: nn.Linear, x_name: str, values: Tensor, subscript: str) -> None:
        matrices.append(Matrix(f"W_{subscript}", None, parameters(linear.weight.T), role="parameters"))
        bias = None
        if linear.bias is not None:
            bias = f"b_{subscript}"
            matrices.append(Matrix(bias, None, parameters(linear.bias), ("bias",), role="parameters"))
        matrices.append(Matrix(name, projection(x_name, f"W_{subscript}", bias), numbers(values[0]), labels))

    activation = {"swiglu": "silu", "geglu": "gelu"}.get(layer.activation, layer.activation)
    project("U", layer.up, input_name, trace.up, "1")
    if layer.gate is not None and trace.gate is not None:
        project("G", layer.gate, input_name, trace.gate, "g")
        matrices.append(Matrix("a(G)", Activated(activation, "G"), numbers(trace.activated[0]), labels))
        matrices.append(Matrix("h", Gated("a(G)", "U"), numbers(trace.hidden[0]), labels))
    else:
        matrices.append(Matrix("h", Activated(activation, "U"), numbers(trace.hidden[0]), labels))
    project("F", layer.down, "h", trace.output, "2")
    hidden = numbers(trace.activated[0])  # (T, F)
    note = f"{(hidden > 0).mean():.1%} of the {hidden.size:,} activated values are above 0."
    return Section("feedforward", "Feed-forward layer", tuple(matrices), notes=(note,))
