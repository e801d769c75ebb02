"""Gradient checkpointing: recompute the blocks of a model in the backward pass to save memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from glassformer.model.transformer import Block


def recompute_blocks(model: nn.Module) -> None:
    """Change a model in place: store only the input of each block, and recompute the block in the backward pass.

    This is gradient checkpointing (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"). The
    recomputation uses the same dropout masks, so gradients are equal bit for bit. Nothing is recomputed when gradients
    are off.
    """
    for part in model.modules():
        if isinstance(part, Block):
            _recompute(part)


def _recompute(block: Block) -> None:
    original_forward = block.forward

    def forward(*inputs: Any, **options: Any) -> Any:
        if not torch.is_grad_enabled():
            return original_forward(*inputs, **options)
        return checkpoint(original_forward, *inputs, use_reentrant=False, **options)

    block.forward = forward
