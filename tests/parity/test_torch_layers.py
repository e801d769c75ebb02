"""`Block` equals PyTorch's transformer layers with the same weights: outputs and all gradients."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor, nn

from glassformer.base.config import ModelConfig
from glassformer.model.attention import Attention, Mask, self_attention_mask
from glassformer.model.transformer import BLOCKS, Block

HEADS = 3
WIDTH = 21
HIDDEN = 37
LIMIT = 1e-5
CASES = list(product(["pre", "post"], ["relu", "gelu"], [False, True]))


def shape(order: str, activation: str) -> ModelConfig:
    """Return the configuration of a block as PyTorch builds it: LayerNorm, biases everywhere."""
    return ModelConfig.model_validate(
        {
            "layers": 1,
            "heads": HEADS,
            "width": WIDTH,
            "hidden": HIDDEN,
            "context": 13,
            "positions": "none",
            "norm": "layernorm",
            "norm_order": order,
            "activation": activation,
            "norm_bias": True,
            "attention_bias": True,
            "feedforward_bias": True,
        }
    )


def attention_pairs(ours: Attention, theirs: nn.MultiheadAttention) -> list[tuple[str, Tensor, str, slice]]:
    """Return (our name, our parameter, PyTorch's name, rows of PyTorch's parameter) for each parameter.

    PyTorch stores queries, keys and values in one matrix.
    """
    pairs = []
    for i, name in enumerate(("query", "key", "value")):
        rows = slice(i * WIDTH, (i + 1) * WIDTH)
        linear = getattr(ours, name)
        pairs += [(f"{name}.weight", linear.weight, "in_proj_weight", rows)]
        pairs += [(f"{name}.bias", linear.bias, "in_proj_bias", rows)]
    everything = slice(None)
    pairs += [("output.weight", ours.output.weight, "out_proj.weight", everything)]
    pairs += [("output.bias", ours.output.bias, "out_proj.bias", everything)]
    return pairs


def pairs_of(block: Block, layer: nn.Module) -> list[tuple[str, Tensor, Tensor, slice]]:
    """Return (name, our parameter, PyTorch's parameter, rows of PyTorch's parameter) for each parameter of a block."""
    cross = block.cross is not None
    found = []
    for part, theirs in [("attention", "self_attn"), *([("cross", "multihead_attn")] if cross else [])]:
        module = getattr(layer, theirs)
        for name, ours, their_name, rows in attention_pairs(getattr(block, part), module):
            found.append((f"{part}.{name}", ours, module.get_parameter(their_name), rows))
    norms = ["attention_norm", "cross_norm", "feedforward_norm"] if cross else ["attention_norm", "feedforward_norm"]
    modules = [(name, f"norm{i}") for i, name in enumerate(norms, start=1)]
    modules += [("feedforward.up", "linear1"), ("feedforward.down", "linear2")]
    for ours_name, their_name in modules:
        for kind in ("weight", "bias"):
            mine = block.get_parameter(f"{ours_name}.{kind}")
            found.append((f"{ours_name}.{kind}", mine, layer.get_parameter(f"{their_name}.{kind}"), slice(None)))
    assert len(found) == len(list(block.parameters()))
    return found


def copied(order: str, activation: str, cross: bool) -> tuple[Block, nn.Module]:
    """Return a block and a PyTorch layer with the same random weights."""
    torch.manual_seed(3)
    kind = nn.TransformerDecoderLayer if cross else nn.TransformerEncoderLayer
    layer = kind(WIDTH, HEADS, HIDDEN, dropout=0.0, activation=activation, batch_first=True, norm_first=order == "pre")
    block = BLOCKS[order](shape(order, activation), cross)
    with torch.no_grad():
        for _, ours, theirs, rows in pairs_of(block, layer):
            theirs[rows] += 0.3 * torch.randn_like(theirs[rows])  # biases and gains away from 0 and 1
            ours.copy_(theirs[rows])
    return block.train(), layer.train()  # in training mode PyTorch takes no shortcut; there is no dropout


def compare(
    ours: Tensor, theirs: Tensor, real: Tensor, inputs: list[tuple[Tensor, Tensor]], block: Block, layer: nn.Module
) -> None:
    """Assert that outputs at real positions and gradients of inputs and parameters differ by at most `LIMIT`."""
    assert ours.std() > 0.3
    torch.testing.assert_close(ours[real], theirs[real], atol=LIMIT, rtol=0)
    pull = torch.randn(ours[real].shape, generator=torch.Generator().manual_seed(5)) / 8
    (ours[real] * pull).sum().backward()
    (theirs[real] * pull).sum().backward()
    for mine, other in inputs:
        assert mine.grad is not None
        assert mine.grad.abs().max() > 1e-3
        torch.testing.assert_close(mine.grad, other.grad, atol=LIMIT, rtol=0)
    for name, mine, other, rows in pairs_of(block, layer):
        assert mine.grad is not None, name
        assert other.grad is not None, name
        torch.testing.assert_close(mine.grad, other.grad[rows], atol=LIMIT, rtol=0, msg=lambda m, n=name: f"{n}: {m}")


def twice(*size: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return the same random vectors twice, as separate leaf tensors with gradients."""
    values = torch.randn(*size, generator=torch.Generator().manual_seed(seed))
    return values.clone().requires_grad_(), values.clone().requires_grad_()


def ragged(length: int, padding: bool) -> Tensor:
    """Return a mask of real positions, (3, length): all real, or rows of three lengths."""
    real = torch.ones(3, length, dtype=torch.bool)
    if padding:
        real[1, length - 4 :] = False
        real[2, 1:] = False
    return real


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("order", "activation", "padding"), CASES)
def test_a_block_is_a_transformer_encoder_layer(order: str, activation: str, padding: bool, causal: bool) -> None:
    block, layer = copied(order, activation, cross=False)
    x, same_x = twice(3, 11, WIDTH, seed=1)
    real = ragged(11, padding)
    places = torch.arange(11)[None]
    ours = block(x, self_attention_mask(places, places, real if padding else None, causal, window=None))
    hidden = torch.ones(11, 11, dtype=torch.bool).triu(1) if causal else None  # theirs: True may not be seen
    theirs = layer(same_x, src_mask=hidden, src_key_padding_mask=~real if padding else None)
    compare(ours, theirs, real, [(x, same_x)], block, layer)


@pytest.mark.parametrize(("order", "activation", "padding"), CASES)
def test_a_block_with_a_memory_equals_a_transformer_decoder_layer(order: str, activation: str, padding: bool) -> None:
    block, layer = copied(order, activation, cross=True)
    x, same_x = twice(3, 7, WIDTH, seed=1)
    memory, same_memory = twice(3, 11, WIDTH, seed=2)
    real = ragged(7, padding)
    real_memory = ragged(11, padding)
    places = torch.arange(7)[None]
    mask = self_attention_mask(places, places, real if padding else None, causal=True, window=None)
    seen = Mask.of(real_memory[:, None, None, :]) if padding else Mask()
    ours = block(x, mask, memory=memory, memory_mask=seen)
    hidden = torch.ones(7, 7, dtype=torch.bool).triu(1)
    theirs = layer(
        same_x,
        same_memory,
        tgt_mask=hidden,
        tgt_key_padding_mask=~real if padding else None,
        memory_key_padding_mask=~real_memory if padding else None,
    )
    compare(ours, theirs, real, [(x, same_x), (memory, same_memory)], block, layer)


def test_a_wrong_norm_order_is_detected() -> None:
    """The comparison can fail: pre-norm weights in a post-norm block give different outputs."""
    _, layer = copied("pre", "relu", cross=False)
    block = BLOCKS["post"](shape("post", "relu"))
    with torch.no_grad():
        for _, ours, theirs, rows in pairs_of(block, layer):
            ours.copy_(theirs[rows])
    x = torch.randn(1, 5, WIDTH)
    places = torch.arange(5)[None]
    assert (block(x, self_attention_mask(places, places, None, False, None)) - layer(x)).abs().max() > 0.1
