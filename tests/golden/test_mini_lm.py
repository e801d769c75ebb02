"""Published figures of a two-layer post-norm model, reproduced with weights copied from torch.nn modules."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from glassformer.base.config import ModelConfig
from glassformer.model.build import build_model
from glassformer.model.transformer import Decoder, Encoder

VOCAB = 50
WIDTH = 16
HEADS = 2
LAYERS = 2
HIDDEN = 64


def mini_lm(tied: bool, causal: bool) -> tuple[Decoder | Encoder, torch.Tensor, torch.Tensor]:
    """Return a model with weights drawn with seed 42, its inputs and its targets.

    Inputs and targets are drawn first, then the PyTorch modules in this order: embedding; attention, linear layers and
    norms of each layer; output.
    """
    torch.manual_seed(42)
    inputs = torch.randint(0, VOCAB, (4, 10))
    targets = torch.randint(0, VOCAB, (4, 10))
    embedding = nn.Embedding(VOCAB, WIDTH)
    layers = [
        (
            nn.MultiheadAttention(WIDTH, HEADS, batch_first=True),
            nn.Linear(WIDTH, HIDDEN),
            nn.Linear(HIDDEN, WIDTH),
            nn.LayerNorm(WIDTH),
            nn.LayerNorm(WIDTH),
        )
        for _ in range(LAYERS)
    ]
    output = nn.Linear(WIDTH, VOCAB)
    config = ModelConfig(
        family="decoder" if causal else "encoder",
        layers=LAYERS,
        width=WIDTH,
        heads=HEADS,
        hidden=HIDDEN,
        context=10,
        positions="sinusoidal",
        norm_order="post",
        activation="relu",
        attention_bias=True,
        feedforward_bias=True,
        norm_bias=True,
        head_bias=True,
        tied=tied,
    )
    model = build_model(config, VOCAB)
    assert isinstance(model, Decoder | Encoder)
    weights = {"embedding.tokens.weight": embedding.weight, "head.bias": output.bias}
    if not tied:
        weights["head.weight"] = output.weight
    for index, (attention, up, down, norm1, norm2) in enumerate(layers):
        block = f"stack.blocks.{index}."
        for row, name in enumerate(("query", "key", "value")):
            part = slice(row * WIDTH, (row + 1) * WIDTH)
            weights[f"{block}attention.{name}.weight"] = attention.in_proj_weight[part]
            weights[f"{block}attention.{name}.bias"] = attention.in_proj_bias[part]
        modules = {
            "attention.output": attention.out_proj,
            "feedforward.up": up,
            "feedforward.down": down,
            "attention_norm": norm1,
            "feedforward_norm": norm2,
        }
        for name, module in modules.items():
            weights[f"{block}{name}.weight"] = module.weight
            weights[f"{block}{name}.bias"] = module.bias
    model.load_state_dict({name: value.detach().clone() for name, value in weights.items()})
    return model, inputs, targets


def test_the_first_loss_without_mask_and_with_untied_weights() -> None:
    model, inputs, targets = mini_lm(tied=False, causal=False)
    assert cross_entropy(model(inputs).flatten(0, 1), targets.flatten()).item() == pytest.approx(
        4.222940444946289, abs=5e-7
    )


def test_five_steps_with_mask_and_tied_weights() -> None:
    model, inputs, targets = mini_lm(tied=True, causal=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        losses.append(round(loss.item(), 4))
    assert losses == [12.4078, 8.8194, 6.9047, 5.6511, 4.8191]
    assert model.eval()(inputs)[0].argmax(-1).tolist() == [11, 3, 19, 19, 19, 35, 19, 11, 43, 43]
