"""A trace shows all numbers of the model itself, for every family and setting, and leaves nothing behind."""

from __future__ import annotations

import math
from itertools import product
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn

from glassformer.base.config import Activation
from glassformer.base.errors import GlassError
from glassformer.inspection import trace as module
from glassformer.inspection.trace import AttentionTrace, BlockTrace, StackTrace, Trace, trace
from glassformer.model.attention import Attention
from glassformer.model.transformer import Model, activate
from tests.property.models import POSITIONS, VOCAB, tokens
from tests.property.traced_models import FAMILIES, PAD, inputs, logits_of, model_of, observed_logits_of, stacks, state

BIASES = {"attention_bias": True, "feedforward_bias": True, "norm_bias": True, "head_bias": True}
CHOICES: list[dict[str, Any]] = [
    *({"positions": name, "norm_order": order} for name, order in product(POSITIONS, ("pre", "post", "output"))),
    *({"activation": activation} for activation in get_args(Activation)),
    {"norm": "rmsnorm"},
    {"norm": "rmsnorm", "norm_order": "post"},
    {"norm": "none"},
    {"kv_heads": 2, "positions": "rotary", "qk_norm": "head"},
    {"kv_heads": 1},
    {"value_width": 7, "kv_heads": 2, "attention_bias": True},
    {"width": 24, "value_width": 4, "output_projection": False},
    {"qk_norm": "head"},
    {"norm": "rmsnorm", "norm_order": "output"},
    {"kv_heads": 3, "qk_norm": "whole", "positions": "rotary"},
    {"removed_heads": "some"},
    {"removed_heads": "some", "kv_heads": 2, "positions": "rotary", "qk_norm": "head"},
    {"removed_heads": "some", "kv_heads": 3, "positions": "relative"},
    {"removed_heads": "some", "kv_heads": 1},
    {"window": 3},
    {"window": 3, "positions": "relative"},
    {**BIASES, "embedding_scale": True, "tied": False},
    {"dropout_embedding": 0.3, "dropout_attention": 0.3, "dropout_residual": 0.3, "pooling": "first"},
]
EVERY = [pytest.param(f, c, id=f"{f} {' '.join(f'{k}={v}' for k, v in c.items())}") for f in FAMILIES for c in CHOICES]


def blocks(found: Trace) -> list[BlockTrace]:
    return [block for stack in stacks(found) for block in stack.blocks]


def attentions(found: Trace) -> list[AttentionTrace]:
    every = [part for block in blocks(found) for part in (block.attention, block.cross)]
    return [part for part in every if part is not None]


def close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize(("family", "choice"), EVERY)
def test_everything_in_a_trace_follows_from_the_rest(family: str, choice: dict[str, Any]) -> None:
    """With and without padding: logits equal those of an observed pass bit for bit; the steps agree with each other."""
    model = model_of(family, **choice)
    for real in (None, PAD):
        given = inputs(family, real)
        found = trace(model, **given)  # type: ignore[arg-type]
        assert torch.equal(found.logits, observed_logits_of(model, given))
        torch.testing.assert_close(found.logits, logits_of(model, given), atol=1e-4, rtol=0)
        assert found.logits.std() > 0.05
        assert (found.source is not None) == (family == "encoder-decoder")
        for stack in stacks(found):
            check_stack(stack)
        for block in blocks(found):
            check_block(block)
        for attention in attentions(found):
            check_attention(attention)
        check_ends(model, found)
        torch.testing.assert_close(found.probabilities.sum(-1), torch.ones(found.logits.shape[:-1]).double())


def check_stack(stack: StackTrace) -> None:
    assert len(stack.blocks) == 3
    whole = stack.token_vectors if stack.position_vectors is None else stack.token_vectors + stack.position_vectors
    assert torch.equal(stack.embedded, whole)
    assert torch.equal(stack.blocks[0].before, stack.embedded)
    for before, after in zip(stack.blocks[:-1], stack.blocks[1:], strict=True):
        assert torch.equal(before.after, after.before)
    if stack.blocks[0].order == "post":
        assert torch.equal(stack.final, stack.blocks[-1].after)


def check_block(block: BlockTrace) -> None:
    """Check the residual sums in the order of the block."""
    steps = [(block.attention_norm, block.attention.input, block.attention.output, block.after_attention)]
    if block.cross is not None:
        assert block.cross_norm is not None
        assert block.after_cross is not None
        steps.append((block.cross_norm, block.cross.input, block.cross.output, block.after_cross))
    steps.append((block.feedforward_norm, block.feedforward.input, block.feedforward.output, block.after))
    x = block.before
    for norm, read, wrote, after in steps:
        if block.order == "pre":
            assert torch.equal(read, norm)
            assert torch.equal(after, x + wrote)
        elif block.order == "output":
            assert torch.equal(read, x)
            assert torch.equal(after, x + norm)
            assert not torch.equal(norm, wrote)
        else:
            assert torch.equal(read, x)
            assert torch.equal(after, norm)
        x = after
    ff = block.feedforward
    close(ff.hidden, ff.activated if ff.gate is None else ff.activated * ff.up)


def check_attention(part: AttentionTrace) -> None:
    H = part.q.shape[1]
    G = part.k.shape[1]
    K = part.q.shape[-1]
    assert len(part.heads) == len(part.kv_index) == H
    if H == 6:
        assert part.heads == tuple(range(6))
        assert part.kv_index == tuple(head // (6 // G) for head in range(6))
    assert set(part.kv_index) == set(range(G))
    if not H:
        assert torch.equal(part.output, torch.zeros_like(part.output) + (part.output_bias or 0.0))
        return
    keys = torch.stack([part.k[:, asked] for asked in part.kv_index], dim=1)  # (B, H, S, K)
    values = torch.stack([part.v[:, asked] for asked in part.kv_index], dim=1)  # (B, H, S, K)
    close(part.scores, torch.einsum("bhtk,bhsk->bhts", part.q, keys))
    close(part.scaled, part.scores / math.sqrt(K))
    shown = part.scaled if part.bias is None else part.scaled + part.bias
    assert torch.equal(part.masked, shown.masked_fill(~part.allowed, -math.inf))
    weights = part.masked.softmax(-1).nan_to_num(0.0)  # (B, H, T, S)
    close(part.pattern, weights)
    assert (part.pattern[~part.allowed.expand_as(part.pattern)] == 0).all()
    alive = part.allowed.any(-1).expand(part.pattern.shape[:-1])  # (B, H, T)
    close(part.pattern.sum(-1), alive.float())
    close(part.z, part.pattern @ values)
    assert len({part.scores.shape, part.scaled.shape, part.pattern.shape}) == 1
    added = 0.0 if part.output_bias is None else part.output_bias
    close(part.head_outputs.sum(dim=1), part.output - added)
    assert (part.rotation is None) == torch.equal(part.q, part.q_unrotated)
    close(part.q.norm(dim=-1), part.q_unrotated.norm(dim=-1))  # a rotation preserves lengths


def check_ends(model: Model, found: Trace) -> None:
    """Check the token vectors, the step from the last vectors to the logits, and some projections of block 1."""
    if found.pooled is not None:
        assert isinstance(model.head, nn.Linear)
        assert torch.equal(model.head(found.pooled), found.logits)
    else:
        assert torch.equal(model.head(found.stack.final, model.embedding), found.logits)
        assert found.transformed is None
    vectors = model.embedding.tokens.weight[found.stack.ids] * model.embedding.scale
    assert torch.equal(found.stack.token_vectors, vectors)
    block = found.stack.blocks[1]
    layer = list(model.modules())
    own = next(stack for stack in layer if isinstance(stack, module.Stack) and stack.causal == is_causal(model))
    attention = own.blocks[1].attention
    ff = own.blocks[1].feedforward
    assert isinstance(attention, Attention)
    plain = attention.query(block.attention.input).unflatten(-1, (attention.heads, 10)).transpose(1, 2)  # (B, H, T, K)
    assert torch.equal(plain, block.attention.q_projected)
    assert torch.equal(ff.up(block.feedforward.input), block.feedforward.up)
    gate = block.feedforward.up if ff.gate is None else ff.gate(block.feedforward.input)
    assert torch.equal(activate(gate, ff.activation), block.feedforward.activated)


@pytest.mark.parametrize("family", ["decoder", "encoder", "encoder-decoder"])
@pytest.mark.parametrize("norm", ["layernorm", "none"])
def test_a_transform_is_in_the_trace(family: str, norm: str) -> None:
    model = model_of(family, head_transform=True, tied=False, norm=norm, activation="relu")
    found = trace(model, **inputs(family, None))  # type: ignore[arg-type]
    assert torch.equal(found.logits, observed_logits_of(model, inputs(family, None)))
    assert found.transformed is not None
    close(found.transformed @ model.head.weight.T, found.logits)  # type: ignore[union-attr]
    assert not torch.equal(found.transformed, found.stack.final)


def is_causal(model: Model) -> bool:
    return type(model).__name__ in ("Decoder", "EncoderDecoder")


@pytest.mark.parametrize("family", ["decoder", "encoder", "encoder-decoder"])
def test_a_row_of_only_padding_attends_to_nothing(family: str) -> None:
    real = torch.tensor([[True] * 13, [False] * 13])
    found = trace(model_of(family), **inputs(family, real))  # type: ignore[arg-type]
    for attention in attentions(found):
        check_attention(attention)
    padded = (found.source or found.stack).blocks[0].attention
    assert not padded.allowed[1].any()
    assert not padded.pattern[1].any()


def test_the_causal_mask_and_the_window_are_in_the_trace() -> None:
    found = trace(model_of("decoder", window=3), tokens(1, 13)).stack.blocks[0].attention
    distance = torch.arange(13)[:, None] - torch.arange(13)
    assert torch.equal(found.allowed[0, 0], (distance >= 0) & (distance < 3))
    plain = trace(model_of("decoder"), tokens(1, 13)).stack.blocks[0].attention
    assert torch.equal(plain.allowed[0, 0], distance >= 0)


def test_shared_embeddings_of_source_and_target_are_distinguished() -> None:
    given = inputs("encoder-decoder", None)
    found = trace(model_of("encoder-decoder"), **given)  # type: ignore[arg-type]
    assert found.source is not None
    assert torch.equal(found.source.ids, given["tokens"])  # type: ignore[arg-type]
    assert torch.equal(found.stack.ids, given["target"])  # type: ignore[arg-type]
    assert found.stack.blocks[0].cross is not None
    assert torch.equal(found.stack.blocks[0].cross.source, found.source.final)


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_left_behind(family: str) -> None:
    """The trace removes only its own hooks, and restores the mode of each module and the gradient setting."""
    model = model_of(family, dropout_residual=0.3).train().requires_grad_(True)
    model.embedding.eval()
    seen: list[int] = []
    theirs = model.head.register_forward_hook(lambda *_: seen.append(1))
    before = state(model)
    given = inputs(family, None)
    found = trace(model, **given)  # type: ignore[arg-type]
    again = trace(model, **given)
    assert state(model) == before
    assert (len(seen), torch.is_grad_enabled(), found.logits.requires_grad) == (2, True, False)
    assert torch.equal(found.logits, again.logits)  # no dropout
    theirs.remove()
    (found.stack.final @ model.embedding.tokens.weight.T).sum().backward()  # plain tensors: of use beside gradients


@pytest.mark.parametrize("family", FAMILIES)
def test_an_exception_leaves_no_hook(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(family).train()
    before = state(model)
    given = inputs(family, None)
    monkeypatch.setattr(model.head, "forward", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        trace(model, **given)  # type: ignore[arg-type]
    assert state(model) == before


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("family", FAMILIES)
def test_other_precisions(family: str, dtype: torch.dtype) -> None:
    model = model_of(family, positions="rotary", qk_norm="head").to(dtype)
    given = inputs(family, PAD)
    found = trace(model, **given)  # type: ignore[arg-type]
    assert torch.equal(found.logits, observed_logits_of(model, given))
    assert found.stack.blocks[2].after.dtype == dtype


def test_what_cannot_be_traced_is_refused() -> None:
    model = model_of("decoder")
    for given, words in (
        ((tokens(1, 5), tokens(1, 5)), "a target was given to the model, which is of type Decoder"),
        ((tokens(1, 5) + VOCAB,), "outside the vocabulary"),
        ((-tokens(1, 5),), "outside the vocabulary"),
        ((tokens(1, 30),), "context of 29"),
        ((tokens(1, 0),), "shape"),
        ((tokens(1, 5)[0],), "shape"),
        ((tokens(1, 5), None, torch.ones(1, 3).bool()), r"`real` of shape \(1, 3\)"),
        ((tokens(1, 5), None, torch.ones(1, 5)), r"type torch.float32"),
    ):
        with pytest.raises(GlassError, match=words):
            trace(model, *given)
    with pytest.raises(GlassError, match="no target"):
        trace(model_of("encoder-decoder"), tokens(1, 5))
    with torch.no_grad():
        model.embedding.tokens.weight[3] = math.nan
    with pytest.raises(GlassError, match="not finite"):
        trace(model, torch.tensor([[3, 4]]))
