"""Names, initial weights and every bit of a forward pass stay fixed, so that saved runs open and resume unchanged.

The pass is compared bit for bit with the same arithmetic written here without modules. Another order of operations
would round differently, and a resumed run would differ from an uninterrupted one.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.base.config import ModelConfig
from glassformer.model.build import build_model, tied_std
from glassformer.model.positions import Rotation, rotate
from glassformer.model.transformer import Decoder
from tests.property.models import VOCAB, as_if_trained, named, tiny, tokens

ATTENTION = ["query", "key", "value", "output"]
CHOICES: list[dict[str, Any]] = [
    {"positions": "learned", "attention_bias": True, "feedforward_bias": True, "norm_bias": True, "head_bias": True},
    {"positions": "rotary", "kv_heads": 2, "qk_norm": "head", "activation": "swiglu", "norm": "rmsnorm"},
    {"positions": "rotary", "kv_heads": 1, "qk_norm": "whole", "window": 5, "tied": False},
    {"positions": "alibi", "kv_heads": 3, "activation": "relu2", "embedding_norm": True, "head_transform": True},
    {"positions": "relative", "window": 4, "activation": "geglu", "embedding_scale": True},
    {"positions": "none", "activation": "gelu_tanh", "norm": "rmsnorm"},
]


def forward(config: ModelConfig, model: Decoder, ids: Tensor, dropout: bool = False) -> Tensor:
    """Return logits (1, T, V) of ids (1, T), computed without the model's modules except rotations and score biases.

    If `dropout` is true, dropout is applied in the same order as in the model, so that the random numbers agree.
    """
    weights = dict(model.named_parameters())
    H = config.heads
    G = config.G
    K = config.K
    T = ids.shape[1]
    positions = torch.arange(T)[None]

    def linear(x: Tensor, name: str) -> Tensor:
        return F.linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))

    def norm(x: Tensor, name: str) -> Tensor:
        if config.norm == "layernorm":
            return F.layer_norm(x, (config.width,), weights[f"{name}.weight"], weights.get(f"{name}.bias"), config.eps)
        return F.rms_norm(x, (config.width,), weights[f"{name}.weight"], config.eps)

    def dropped(x: Tensor, share: float) -> Tensor:
        return F.dropout(x, share, dropout)

    def heads(x: Tensor, count: int, norm_name: str) -> Tensor:
        if norm_name in weights:
            gain = weights[norm_name]
            x = F.rms_norm(x.unflatten(-1, (-1, len(gain))).float(), gain.shape, gain, 1e-6).to(x.dtype).flatten(2)
        return x.unflatten(-1, (count, K)).transpose(1, 2)

    def attention(x: Tensor, name: str) -> Tensor:
        q = heads(linear(x, f"{name}.query"), H, f"{name}.query_norm.weight")
        k = heads(linear(x, f"{name}.key"), G, f"{name}.key_norm.weight")
        v = heads(linear(x, f"{name}.value"), G, "")
        if config.positions == "rotary":
            q = rotate(q, rotation)
            k = rotate(k, rotation)
        share = config.dropout_attention if dropout else 0.0
        if q.dtype == torch.bfloat16:
            k = k.repeat_interleave(H // G, 1)
            v = v.repeat_interleave(H // G, 1)
            scores = q / math.sqrt(K) @ k.transpose(-2, -1)
            added = torch.zeros(()).where(allowed, -math.inf) if bias is None else bias
            z = dropped((scores + added.to(q.dtype)).softmax(dim=-1), share) @ v
        elif bias is not None:
            z = F.scaled_dot_product_attention(q, k, v, bias.to(q.dtype), share, enable_gqa=H != G)
        elif config.window is not None:
            z = F.scaled_dot_product_attention(q, k, v, allowed, share, enable_gqa=H != G)
        else:
            z = F.scaled_dot_product_attention(q, k, v, None, share, is_causal=True, enable_gqa=H != G)
        return linear(z.transpose(1, 2).flatten(2), f"{name}.output")

    def activate(x: Tensor) -> Tensor:
        match config.activation:
            case "relu2":
                return F.relu(x).square()
            case "swiglu":
                return F.silu(x)
            case "relu":
                return F.relu(x)
            case "gelu" | "geglu":
                return F.gelu(x)
            case "gelu_tanh":
                return F.gelu(x, approximate="tanh")
            case other:  # the cases of this file use no other kind
                pytest.fail(f"write {other} here too")

    def feedforward(x: Tensor, name: str) -> Tensor:
        up = linear(x, f"{name}.up")
        gated = f"{name}.gate.weight" in weights
        hidden = activate(linear(x, f"{name}.gate")) * up if gated else activate(up)
        return linear(hidden, f"{name}.down")

    index = torch.arange(T)
    allowed = (index <= index[:, None])[None, None]  # (1, 1, T, T)
    if config.window is not None:
        allowed = allowed & (index > index[:, None] - config.window)
    bias = None
    if model.stack.score_positions is not None:
        bias = model.stack.score_positions(positions, positions).masked_fill(~allowed, -math.inf)
    rotation = Rotation(torch.ones(()), torch.zeros(()))
    if model.stack.rotary is not None:
        rotation = model.stack.rotary(positions)

    x = F.embedding(ids, weights["embedding.tokens.weight"]) * (config.width**0.5 if config.embedding_scale else 1.0)
    if config.positions == "learned":
        x = x + F.embedding(positions, weights["embedding.positions.table.weight"])
    if config.embedding_norm:
        x = norm(x, "embedding.norm")
    x = dropped(x, config.dropout_embedding)
    for layer in range(config.layers):
        for part, compute in (("attention", attention), ("feedforward", feedforward)):
            name = f"stack.blocks.{layer}.{part}"
            if config.norm_order == "pre":
                x = x + dropped(compute(norm(x, f"{name}_norm"), name), config.dropout_residual)
            elif config.norm_order == "post":
                x = norm(x + dropped(compute(x, name), config.dropout_residual), f"{name}_norm")
            else:
                x = x + dropped(norm(compute(x, name).to(x.dtype), f"{name}_norm"), config.dropout_residual)
    if config.norm_order != "post":
        x = norm(x, "stack.norm")
    if config.head_transform:
        x = norm(activate(linear(x, "head.transform")).to(x.dtype), "head.norm")
    matrix = weights["embedding.tokens.weight"] if config.tied else weights["head.weight"]
    return F.linear(x, matrix, weights.get("head.bias"))


@pytest.mark.thorough
@pytest.mark.parametrize("bfloat16", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(("order", "share"), [("pre", 0.0), ("pre", 0.2), ("post", 0.0), ("output", 0.0)])
@pytest.mark.parametrize("choice", CHOICES, ids=named)
def test_a_pass_and_its_gradients_equal_the_explicit_arithmetic(
    choice: dict[str, Any], order: str, share: float, bfloat16: bool
) -> None:
    config = tiny(
        norm_order=order, dropout_attention=share, dropout_residual=share, dropout_embedding=share, layers=2, **choice
    )
    model = as_if_trained(config).requires_grad_().train()
    assert isinstance(model, Decoder)
    ids = tokens(1, 13)
    found = []
    for compute in (lambda: model(ids), lambda: forward(config, model, ids, dropout=True)):
        torch.manual_seed(7)
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            logits = compute()
        gradients = torch.autograd.grad(logits.float().logsumexp(-1).sum(), list(model.parameters()), allow_unused=True)
        found.append([logits, *gradients])
    for mine, right in zip(*found, strict=True):
        assert (mine is None) == (right is None)
        assert mine is None or torch.equal(mine, right)


def test_the_comparison_detects_another_order_of_operations() -> None:
    """The comparison can fail: if queries are scaled by 1/3 and keys by 3, logits differ in the last bits."""
    config = tiny(positions="none")
    model = as_if_trained(config)
    assert isinstance(model, Decoder)
    right = forward(config, model, tokens(1, 13))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("query.weight"):
                weight.mul_(1 / 3)  # another way to scale would give this
            if name.endswith("key.weight"):
                weight.mul_(3)
    other = model(tokens(1, 13))
    torch.testing.assert_close(other, right)
    assert not torch.equal(other, right)


def names_of_block(prefix: str, parts: tuple[str, ...] = ("attention",)) -> list[str]:
    """Return the parameter names of a block without biases, in the order of creation."""
    found = []
    for part in parts:
        found.append(f"{prefix}.{part}_norm.weight")
        found += [f"{prefix}.{part}.{name}.weight" for name in ATTENTION]
    return [
        *found,
        f"{prefix}.feedforward_norm.weight",
        f"{prefix}.feedforward.up.weight",
        f"{prefix}.feedforward.down.weight",
    ]


def test_names_and_their_order_equal_those_of_saved_runs() -> None:
    decoder = build_model(tiny(tied=False), VOCAB)
    assert list(decoder.state_dict()) == [
        "embedding.tokens.weight",
        "embedding.positions.table.weight",
        *(name for layer in range(3) for name in names_of_block(f"stack.blocks.{layer}")),
        "stack.norm.weight",
        "head.weight",
    ]
    pairs = build_model(tiny(family="encoder-decoder", encoder_layers=1, layers=1, shared_embedding=False), VOCAB)
    assert list(pairs.state_dict()) == [
        "embedding.tokens.weight",
        "embedding.positions.table.weight",
        "source_embedding.tokens.weight",
        "source_embedding.positions.table.weight",
        *names_of_block("encoder.blocks.0"),
        "encoder.norm.weight",
        *names_of_block("decoder.blocks.0", ("attention", "cross")),
        "decoder.norm.weight",
    ]
    choices = {"qk_norm": "head", "positions": "relative", "activation": "swiglu", "tied": False, "layers": 1}
    switches = ["attention_bias", "feedforward_bias", "norm_bias", "head_bias", "head_transform", "embedding_norm"]
    full = build_model(tiny(**choices, **dict.fromkeys(switches, True)), VOCAB)
    ours = list(full.state_dict())
    assert ours[:4] == [
        "embedding.tokens.weight",
        "embedding.norm.weight",
        "embedding.norm.bias",
        "stack.score_positions.table.weight",
    ]
    block = [name.removeprefix("stack.blocks.0.") for name in ours if ".blocks.0." in name]
    assert block == [
        *(f"attention_norm.{kind}" for kind in ("weight", "bias")),
        *(f"attention.{name}.{kind}" for name in ATTENTION for kind in ("weight", "bias")),
        *(f"attention.{name}_norm.weight" for name in ("query", "key")),
        *(f"feedforward_norm.{kind}" for kind in ("weight", "bias")),
        *(f"feedforward.{name}.{kind}" for name in ("up", "gate", "down") for kind in ("weight", "bias")),
    ]
    assert ours[-8:] == [
        *(f"stack.norm.{kind}" for kind in ("weight", "bias")),
        *(f"head.{kind}" for kind in ("weight", "bias")),
        *(f"head.transform.{kind}" for kind in ("weight", "bias")),
        *(f"head.norm.{kind}" for kind in ("weight", "bias")),
    ]


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("removed", [(), ("dec.0.self.1", *(f"dec.1.self.{head}" for head in range(6)))])
def test_initial_weights_are_one_stream_of_random_numbers(tied: bool, removed: tuple[str, ...]) -> None:
    """Matrices are drawn in the order of their names: standard normal entries times the standard deviation."""
    config = tiny(tied=tied, removed_heads=removed)
    weights = build_model(config, VOCAB, seed=5).state_dict()
    generator = torch.Generator().manual_seed(5)

    def drawn(name: str, std: float) -> None:
        expected = torch.randn(weights[name].shape, generator=generator) * std
        assert torch.equal(weights[name], expected), name

    std = tied_std(VOCAB, 22) if tied else 22**-0.5
    drawn("embedding.tokens.weight", std)
    drawn("embedding.positions.table.weight", std)
    for layer in range(3):
        prefix = f"stack.blocks.{layer}"
        inputs = 10 * len(config.kept_heads(f"dec.{layer}.self"))
        for name in ("query", "key", "value"):
            drawn(f"{prefix}.attention.{name}.weight", 1 / math.sqrt(22))
        drawn(f"{prefix}.attention.output.weight", 1 / math.sqrt(max(1, inputs)) / math.sqrt(6))
        drawn(f"{prefix}.feedforward.up.weight", 1 / math.sqrt(22))
        drawn(f"{prefix}.feedforward.down.weight", 1 / math.sqrt(37) / math.sqrt(6))
    if not tied:
        drawn("head.weight", 0.1 / math.sqrt(22))
