"""Head gates: a factor on each head's output, whose gradient measures the head's importance.

The gate ξ of a head multiplies its z, before the output projection (Michel et al. 2019, section 2.2; Voita et al. 2019,
section 3); a gate of 0 removes the head. If each row of the batch has separate gates, one backward pass of the summed
loss yields the gradient of each row, so that absolute values can be taken before the mean, as in the importance of
Michel et al.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.base.errors import GlassError, nearest
from glassformer.base.wording import counted
from glassformer.inspection.sites import attentions
from glassformer.model.thread_hooks import register
from glassformer.model.transformer import Model


@contextmanager
def gated(model: Model, values: Mapping[str, Tensor] | None = None) -> Iterator[Mapping[str, Tensor]]:
    """Multiply the outputs of heads by gates in the forward passes of the calling thread until the context ends.

    ::

        with gated(model) as gates:
            losses = loss_of_each_row(model(tokens))  # (B)
            losses.sum().backward()
        importance = gates["dec.0.self"].grad.abs().mean(dim=0)  # (H)

    Args:
        model: a model of any family, in any mode; its parameters need not require gradients.
        values: gates by attention site, (H) or (B, H) each; other attention layers have no gates. None: each forward
            pass creates gates of 1 that require gradients, (B, H), for each attention layer. H counts the remaining
            heads, in order.

    Yields:
        The gates by attention site: `values` if given, otherwise the gates of the last forward pass.

    Raises:
        GlassError: an attention site is unknown, or the shape of a gate does not match the heads or the rows.
    """
    sites = {str(site): layer for site, layer in attentions(model).items()}
    gates: dict[str, Tensor] = {}
    for name, value in (values or {}).items():
        if name not in sites:
            raise GlassError(f"there is no attention layer {name!r} in this model", nearest(name, sites))
        if value.dim() not in (1, 2) or value.shape[-1] != sites[name].heads:
            raise GlassError(
                f"gates of shape {tuple(value.shape)} were given for {name}",
                f"It has {counted(sites[name].heads, 'heads')}: give a shape of ({sites[name].heads}) or "
                f"(rows, {sites[name].heads}).",
            )
        gates[name] = value
    with ExitStack() as hooks:
        for name, layer in sites.items():
            if values is None or name in values:
                gate = partial(_gate, gates, name, values is None)
                hooks.callback(register(layer.hook_z.register_forward_hook, gate).remove)
        yield gates


def _gate(
    gates: dict[str, Tensor], name: str, create: bool, module: nn.Module, args: tuple[Any, ...], z: Tensor
) -> Tensor:
    """Multiply z (B, H, T, K) by the gates of this attention layer, as a forward hook."""
    B, H = z.shape[:2]
    if create:
        dtype = torch.promote_types(z.dtype, torch.float32)
        gates[name] = torch.ones(B, H, device=z.device, dtype=dtype, requires_grad=True)
    gate = gates[name]  # (H) or (B, H)
    if gate.dim() == 2 and len(gate) != B:
        raise GlassError(
            f"gates for {counted(len(gate), 'rows')} were given for {name}, but the batch has {counted(B, 'rows')}",
            "Give one row of gates for each row of the batch.",
        )
    return z * gate.to(z)[..., None, None]  # (B, H, T, K)
