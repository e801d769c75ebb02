"""Remove components of the model that no setting can remove, to measure their effect.

A component is removed after the model is built as usual, so that the initial weights are those of the complete model.
Such runs are marked in their manifest, and only experiments open them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import MappingProxyType

import torch
from torch import Tensor, nn

from glassformer.experiments.grid import REMOVABLE
from glassformer.model.attention import EVERY_KEY, Mask
from glassformer.model.cache import LayerCache
from glassformer.model.positions import Rotation
from glassformer.model.transformer import Block, Model
from glassformer.training.setup import Alteration


class BareBlock(Block):
    """A block without residual connections: the output of each sublayer replaces the residual stream."""

    def __init__(self, block: Block) -> None:
        nn.Module.__init__(self)
        vars(self).update(vars(block))  # share the submodules under the same names
        self.norm_order = block.norm_order

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        rotation: Rotation | None = None,
        memory: Tensor | None = None,
        memory_mask: Mask = EVERY_KEY,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """Apply the sublayers without adding their inputs: (B, T, D) -> (B, T, D)."""
        attention = partial(self.attention, mask=mask, rotation=rotation, cache=cache)
        x = self._apply_sublayer(attention, self.attention_norm, x)  # (B, T, D)
        if self.cross is not None and self.cross_norm is not None:
            cross = partial(self.cross, mask=memory_mask, memory=memory, cache=cache)
            x = self._apply_sublayer(cross, self.cross_norm, x)  # (B, T, D)
        return self._apply_sublayer(self.feedforward, self.feedforward_norm, x)  # (B, T, D)

    def _apply_sublayer(self, part: Callable[[Tensor], Tensor], norm: nn.Module, x: Tensor) -> Tensor:
        """Return the output of a sublayer for the stream x (B, T, D), with norm and dropout, without adding x."""
        match self.norm_order:
            case "pre":
                return self.dropout(part(norm(x)))  # (B, T, D)
            case "post":
                return norm(self.dropout(part(x)))  # (B, T, D)
            case "output":
                return self.dropout(norm(part(x)))  # (B, T, D)


class ZeroOutput(nn.Module):
    """Replacement for a sublayer; it returns zeros, so that nothing is added to the residual stream."""

    def forward(self, x: Tensor) -> Tensor:
        """Return zeros: (B, T, D) -> (B, T, D)."""
        return torch.zeros_like(x)


def _remove_causal_mask(model: Model) -> None:
    """Remove the causal mask: each token attends to later tokens, including the token that it has to predict."""
    for stack in model.stacks.values():
        stack.causal = False


def _remove_residuals(model: Model) -> None:
    for stack in model.stacks.values():
        stack.blocks = nn.ModuleList(BareBlock(block) for block in _blocks(stack.blocks))


def _remove_feedforward(model: Model) -> None:
    for stack in model.stacks.values():
        for block in _blocks(stack.blocks):
            block.feedforward = ZeroOutput()  # type: ignore[assignment]


def _blocks(blocks: nn.ModuleList) -> Iterator[Block]:
    for block in blocks:
        assert isinstance(block, Block)
        yield block


ALTERATIONS = MappingProxyType(
    {
        name: Alteration(REMOVABLE[name], change)
        for name, change in {
            "causal-mask": _remove_causal_mask,
            "residuals": _remove_residuals,
            "feedforward": _remove_feedforward,
        }.items()
    }
)
"""Value of `--vary remove=...`, except `nothing` -> alteration of the model."""
