"""Parts of the model that no setting can take away, taken away to see what they were for.

A removal changes a model that was built as always: the first weights are those of the whole model. The runs that
result are marked in their manifest, and only an experiment opens them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import MappingProxyType

import torch
from torch import Tensor, nn

from glassformer.experiments.grid import REMOVABLE
from glassformer.inspection.sites import stacks
from glassformer.model.attention import EVERY_KEY, Mask
from glassformer.model.cache import LayerCache
from glassformer.model.positions import Rotation
from glassformer.model.transformer import Block, Model
from glassformer.training.setup import Alteration


class BareBlock(Block):
    """A block whose parts replace the stream where they would be added to it."""

    def __init__(self, block: Block) -> None:
        nn.Module.__init__(self)
        vars(self).update(vars(block))  # the same parts, under the same names
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
        """(B, T, D) -> (B, T, D)."""
        attention = partial(self.attention, mask=mask, rotation=rotation, cache=cache)
        x = self._in_place(attention, self.attention_norm, x)  # (B, T, D)
        if self.cross is not None and self.cross_norm is not None:
            cross = partial(self.cross, mask=memory_mask, memory=memory, cache=cache)
            x = self._in_place(cross, self.cross_norm, x)  # (B, T, D)
        return self._in_place(self.feedforward, self.feedforward_norm, x)  # (B, T, D)

    def _in_place(self, part: Callable[[Tensor], Tensor], norm: nn.Module, x: Tensor) -> Tensor:
        """Return what a part makes of the stream x (B, T, D), which is not added to it."""
        match self.norm_order:
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
