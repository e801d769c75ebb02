"""Gradient checkpointing: recompute the blocks of a model in the backward pass to save memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from glassformer.model.thread_hooks import hooks_of_thread, thread_of_hooks
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
        return checkpoint(
            original_forward, *inputs, use_reentrant=False, context_fn=lambda: _contexts(block), **options
        )

    block.forward = forward


def _contexts(block: Block) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Return the contexts of the forward pass and of the recomputation of a block.

    The recomputation draws the same dropout masks, and runs the hooks of the thread of the forward pass: on a GPU, it
    takes place in a thread of PyTorch's.
    """
    generator = block.dropout.generator
    state = None if generator is None else generator.get_state()
    return nullcontext(), _recomputing(generator, state, thread_of_hooks())


@contextmanager
def _recomputing(generator: torch.Generator | None, state: torch.Tensor | None, thread: int) -> Iterator[None]:
    if generator is None or state is None:
        with hooks_of_thread(thread):
            yield
        return
    later_state = generator.get_state()
    generator.set_state(state)
    try:
        with hooks_of_thread(thread):
            yield
    finally:
        generator.set_state(later_state)
