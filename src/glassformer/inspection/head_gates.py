"""A factor on every head: 1 leaves it as it is, 0 takes it away, and its gradient says how much the head matters.

The gate ξ of a head multiplies its z, before the output projection (Michel et al. 2019, section 2.2;
Voita et al. 2019, section 3). A gate for each row of the batch makes one backward pass of a summed loss give every
row's own gradient, so that its absolute value can be taken before the mean, as Michel et al. define it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.base.errors import GlassError, nearest
from glassformer.inspection.sites import attentions
from glassformer.model.transformer import Model


@contextmanager
def gated(model: Model, values: Mapping[str, Tensor] | None = None) -> Iterator[Mapping[str, Tensor]]:
    """Inside, gates multiply the heads; afterwards, also after an exception, the model is as it was.

    ::

        with gated(model) as gates:
            losses = loss_of_each_row(model(tokens))  # (B)
            losses.sum().backward()
        importance = gates["dec.0.self"].grad.abs().mean(dim=0)  # (H)

    Args:
        model: any of the families, in any mode; its parameters need no gradients.
        values: gates by attention site, (H) or (B, H) each; attentions that are not named get none. None: gates of 1
            that require a gradient for all attentions, made anew by every forward pass with as many rows as it has.
            H counts the heads that are there, in their order.

    Yields:
        The gates by attention site: the given ones, or those of the last forward pass, (B, H) each.

    Raises:
        GlassError: there is no such attention, or a gate does not fit its heads or the rows of a forward pass.
    """
    sites = {str(site): layer for site, layer in attentions(model).items()}
    gates: dict[str, Tensor] = {}
    for name, value in (values or {}).items():
        if name not in sites:
            raise GlassError(f"there is no attention {name!r} in this model", nearest(name, sites))
        if value.dim() not in (1, 2) or value.shape[-1] != sites[name].heads:
            raise GlassError(
                f"gates of shape {tuple(value.shape)} were given for {name}",
                f"It has {sites[name].heads} heads: give ({sites[name].heads}) or (rows, {sites[name].heads}) of them.",
            )
        gates[name] = value
    with ExitStack() as hooks:
        for name, layer in sites.items():
            if values is None or name in values:
                gate = partial(_gate, gates, name, values is None)
                hooks.callback(layer.hook_z.register_forward_hook(gate).remove)
        yield gates


def _gate(
    gates: dict[str, Tensor], name: str, fresh: bool, module: nn.Module, args: tuple[Any, ...], z: Tensor
) -> Tensor:
    """Return z (B, H, T, K) times the gates of this attention: a forward hook."""
    B, H = z.shape[:2]
    if fresh:
        dtype = torch.promote_types(z.dtype, torch.float32)
        gates[name] = torch.ones(B, H, device=z.device, dtype=dtype, requires_grad=True)
    gate = gates[name]  # (H) or (B, H)
    if gate.dim() == 2 and len(gate) != B:
        raise GlassError(
            f"gates for {len(gate)} rows were given for {name}, which has {B} rows here", "Give one row of gates each."
        )
    return z * gate.to(z)[..., None, None]  # (B, H, T, K)
