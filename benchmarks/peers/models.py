"""Language models of the same shape, ours and the peers', and a training step of each on the same ids.

All have a token embedding tied to the output layer, learned positions, pre-norm LayerNorm (BERT: post-norm), GELU and
no dropout. A step uses AdamW, with gradients clipped at 1.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.base.config import Config
from glassformer.model.build import build_model
from glassformer.model.device import autocast, synchronize
from glassformer.text.batches import Batch
from glassformer.text.rows import Row, mask
from glassformer.training.loop import compute_gradients
from glassformer.training.stepping import Stepper

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
Step = Callable[[], object]
Loss = Callable[[Tensor, Tensor], Tensor]  # inputs and targets, (B, T) each -> the mean over targets, ()


@dataclass(frozen=True)
class Shape:
    """Sizes of a model and of its training batch."""

    layers: int
    heads: int
    width: int
    context: int
    batch: int
    vocabulary: int = 65

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.batch * self.context

    @property
    def weights(self) -> int:
        """Number of weights in matrices that every token is multiplied with, including the output layer."""
        return 12 * self.layers * self.width**2 + self.vocabulary * self.width

    @property
    def flops(self) -> int:
        """FLOPs of a step: 6 per weight and token (Kaplan et al. 2020, section 2.1), and 6 T D per layer and token for
        causal attention, which needs only half of the scores."""
        return self.tokens * (6 * self.weights + 6 * self.layers * self.context * self.width)

    def ids(self) -> Tensor:
        """Return random ids (B, T+1), the same for all models."""
        random = torch.Generator().manual_seed(0)
        return torch.randint(0, self.vocabulary, (self.batch, self.context + 1), generator=random)


class _SameRows:
    """A task with the same rows in each step."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows

    def rows(self, step: int) -> Sequence[Any]:
        return self._rows


def our_step(shape: Shape, precision: str, device: str, changes: dict[str, Any]) -> Step:
    """Return the training step of `glass train`, with `changes` to its `train` settings."""
    model = {"layers": shape.layers, "heads": shape.heads, "width": shape.width, "context": shape.context}
    train = {"batch": shape.batch, "precision": precision, "device": device, **changes}
    config = Config.model_validate({"model": {**model, "vocab_size": shape.vocabulary}, "train": train})
    rows = [Row.of_text(row) for row in shape.ids().numpy().astype(np.int64)]
    stepper = Stepper(build_model(config.model), _SameRows(rows), config)
    return lambda: stepper.update(compute_gradients(stepper, 0), 1.0)


def masked_rows(shape: Shape) -> list[Row]:
    """Return rows of ids of which 15 % are masked, the same for all models; id 0 is the mask token."""
    text = np.arange(1, shape.vocabulary)
    ids = shape.ids()[:, :-1].numpy().astype(np.int64)  # (B, T)
    return [mask(np.maximum(row, 1), 0.15, 0, text, (0, number)) for number, row in enumerate(ids)]


def our_masked_step(shape: Shape, precision: str, device: str) -> Step:
    """Return the training step of `glass train --task masked`."""
    model = {"layers": shape.layers, "heads": shape.heads, "width": shape.width, "context": shape.context}
    train = {"task": "masked", "batch": shape.batch, "precision": precision, "device": device}
    config = Config.model_validate(
        {"model": {**model, "family": "encoder", "vocab_size": shape.vocabulary}, "train": train}
    )
    stepper = Stepper(build_model(config.model), _SameRows(masked_rows(shape)), config)
    return lambda: stepper.update(compute_gradients(stepper, 0), 1.0)


def their_masked_step(shape: Shape, precision: str, device: str) -> Step:
    """Return a training step of transformers' BERT, which computes the loss from labels."""
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(
        BertConfig(
            vocab_size=shape.vocabulary,
            hidden_size=shape.width,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            intermediate_size=4 * shape.width,
            max_position_embeddings=shape.context,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )
    batch = Batch.from_rows(masked_rows(shape))
    labels = batch.targets.masked_fill(~batch.loss_mask, -100)  # (B, T)

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        found: Tensor = model(input_ids=inputs, labels=targets).loss
        return found

    return _plain_step(model, loss, batch.inputs, labels, precision, device)


def their_step(model: nn.Module, loss: Loss, shape: Shape, precision: str, device: str) -> Step:
    """Return a training step of a plain loop, as in a script that uses the library."""
    ids = shape.ids()
    return _plain_step(model, loss, ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), precision, device)


def _plain_step(model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor, precision: str, device: str) -> Step:
    model.to(device)
    inputs = inputs.to(device)
    targets = targets.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
    model.train()

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with autocast(torch.device(device), DTYPES[precision]):
            found = loss(inputs, targets)  # ()
        found.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        synchronize(torch.device(device))

    return step


def hugging_face(shape: Shape) -> nn.Module:
    """Return transformers' GPT-2, with its default attention."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=shape.vocabulary,
            n_positions=shape.context,
            n_embd=shape.width,
            n_layer=shape.layers,
            n_head=shape.heads,
            activation_function="gelu",
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=None,
            eos_token_id=None,
        )
    )


class TorchLayers(nn.Module):
    """Language model built from `nn.TransformerEncoder`."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        D = shape.width
        self.tokens = nn.Embedding(shape.vocabulary, D)
        self.positions = nn.Embedding(shape.context, D)
        layer = nn.TransformerEncoderLayer(
            D, shape.heads, 4 * D, dropout=0.0, activation="gelu", batch_first=True, norm_first=True, bias=False
        )
        self.stack = nn.TransformerEncoder(layer, shape.layers, nn.LayerNorm(D), enable_nested_tensor=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(shape.context), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Compute logits: (B, T) -> (B, T, V)."""
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]  # (B, T, D)
        return self.stack(x, self.mask, is_causal=True) @ self.tokens.weight.T  # (B, T, V)


def nanogpt(shape: Shape, checkout: Path) -> nn.Module:
    """Return the model of a local checkout of nanoGPT."""
    spec = importlib.util.spec_from_file_location("nanogpt_model", checkout / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    settings = module.GPTConfig(
        block_size=shape.context,
        vocab_size=shape.vocabulary,
        n_layer=shape.layers,
        n_head=shape.heads,
        n_embd=shape.width,
        dropout=0.0,
        bias=False,
    )
    model: nn.Module = module.GPT(settings)
    return model
