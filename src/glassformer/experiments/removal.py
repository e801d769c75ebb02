"""Parts of the model that no setting can take away, taken away to see what they were for.

A removal changes a model that was built as always: the first weights are those of the whole model. The runs that
result are marked in their manifest, and only an experiment opens them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MappingProxyType

import torch
from torch import Tensor, nn

from glassformer.experiments.grid import REMOVABLE
from glassformer.inspection.sites import stacks
from glassformer.model.block import Block
from glassformer.model.families import Model
from glassformer.training.setup import Alteration


class BareBlock(Block):
    """A block whose parts replace the stream where they would be added to it."""

    def __init__(self, block: Block) -> None:
        nn.Module.__init__(self)
        vars(self).update(vars(block))  # the same parts, under the same names

    def _add(self, part: Callable[[Tensor], Tensor], norm: nn.Module, x: Tensor) -> Tensor:
        """What a part makes of the stream x (B, T, D), in its place."""
        match self.order:
            case "pre":
                return self.dropout(part(norm(x)))  # (B, T, D)
            case "post":
                return norm(self.dropout(part(x)))  # (B, T, D)
            case "output":
                return self.dropout(norm(part(x)))  # (B, T, D)


class Nothing(nn.Module):
    """In the place of a part: adds nothing to the residual stream."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> zeros (B, T, D)."""
        return torch.zeros_like(x)


def _see_everything(model: Model) -> None:
    """Without the causal mask: a token sees those that come after it, the one that it has to predict among them."""
    for stack in stacks(model).values():
        stack.causal = False


def _add_nothing_up(model: Model) -> None:
    """Without residual connections."""
    for stack in stacks(model).values():
        stack.blocks = nn.ModuleList(BareBlock(block) for block in _blocks(stack.blocks))


def _attend_only(model: Model) -> None:
    """Without feed-forward layers."""
    for stack in stacks(model).values():
        for block in _blocks(stack.blocks):
            block.feedforward = Nothing()  # type: ignore[assignment]


def _blocks(blocks: nn.ModuleList) -> Iterator[Block]:
    for block in blocks:
        assert isinstance(block, Block)
        yield block


ALTERATIONS = MappingProxyType(
    {
        name: Alteration(REMOVABLE[name], change)
        for name, change in {
            "causal-mask": _see_everything,
            "residuals": _add_nothing_up,
            "feedforward": _attend_only,
        }.items()
    }
)
"""What `--vary remove=...` can name, besides `nothing`."""
