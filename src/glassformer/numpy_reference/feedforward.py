"""The feed-forward layer: each token by itself. Vaswani et al. 2017, section 3.3; gated: Shazeer 2020."""

from __future__ import annotations

from typing import NamedTuple

from glassformer.numpy_reference.activations import activate, activate_backward
from glassformer.numpy_reference.arrays import Array, Weights, placed, under
from glassformer.numpy_reference.linear import Linear, linear, linear_backward
from glassformer.numpy_reference.settings import GATED


class NumpyFeedForward(NamedTuple):
    """Values saved by `feedforward` for the backward pass."""

    activation: str
    raised: Array  # (B, T, F) x W_upᵀ
    opened: Array | None  # (B, T, F) x W_gateᵀ
    up: Linear
    gate: Linear | None
    down: Linear


def feedforward(x: Array, weights: Weights, activation: str) -> tuple[Array, NumpyFeedForward]:
    """y = W_down f(W_up x), or gated W_down (f(W_gate x) · W_up x).

    Vaswani et al. 2017, equation 2, and Shazeer 2020, equation 6.

    x: (B, T, D) -> y: (B, T, D).
    """
    raised, up = linear(x, under("up", weights))  # (B, T, F)
    opened = None
    gate = None
    if activation in GATED:
        opened, gate = linear(x, under("gate", weights))  # (B, T, F)
        hidden = activate(opened, activation) * raised  # (B, T, F)
    else:
        hidden = activate(raised, activation)  # (B, T, F)
    y, down = linear(hidden, under("down", weights))  # (B, T, D)
    return y, NumpyFeedForward(activation, raised, opened, up, gate, down)


def feedforward_backward(dy: Array, kept: NumpyFeedForward) -> tuple[Array, dict[str, Array]]:
    """dx, (B, T, D), and the gradients of the weights.

    The product rule for the gated kinds: of h = f(g) u, du = f(g) dh and dg = u f'(g) dh; x feeds both, so dx adds.
    """
    dhidden, down = linear_backward(dy, kept.down)  # (B, T, F)
    gradients = placed("down", down)
    if kept.gate is None or kept.opened is None:
        draised = activate_backward(dhidden, kept.raised, kept.activation)  # (B, T, F)
        dx, up = linear_backward(draised, kept.up)  # (B, T, D)
        return dx, gradients | placed("up", up)
    draised = dhidden * activate(kept.opened, kept.activation)  # (B, T, F)
    dopened = activate_backward(dhidden * kept.raised, kept.opened, kept.activation)  # (B, T, F)
    dx, up = linear_backward(draised, kept.up)  # (B, T, D)
    dx_gate, gate = linear_backward(dopened, kept.gate)  # (B, T, D)
    return dx + dx_gate, gradients | placed("up", up) | placed("gate", gate)
