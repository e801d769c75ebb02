"""Position-wise feed-forward layer, plain (Vaswani et al. 2017, section 3.3) or gated (Shazeer 2020)."""

from __future__ import annotations

from typing import NamedTuple

from glassformer.numpy_reference.activations import GATED, activate, activate_backward
from glassformer.numpy_reference.arrays import Array, Weights, under, with_prefix
from glassformer.numpy_reference.linear import Linear, linear, linear_backward


class NumpyFeedForward(NamedTuple):
    """Values saved by `feedforward` for the backward pass."""

    activation: str
    projected: Array  # (B, T, F) x W_upᵀ
    gate_input: Array | None  # (B, T, F) x W_gateᵀ
    up: Linear
    gate: Linear | None
    down: Linear


def feedforward(x: Array, weights: Weights, activation: str) -> tuple[Array, NumpyFeedForward]:
    """Return y = W_down f(W_up x), or, if gated, W_down (f(W_gate x) · W_up x).

    Vaswani et al. 2017, equation 2, and Shazeer 2020, equation 6. Each matrix W may have a bias.

    x: (B, T, D) -> y: (B, T, D).
    """
    projected, up = linear(x, under("up", weights))  # (B, T, F)
    gate_input = None
    gate = None
    if activation in GATED:
        gate_input, gate = linear(x, under("gate", weights))  # (B, T, F)
        hidden = activate(gate_input, activation) * projected  # (B, T, F)
    else:
        hidden = activate(projected, activation)  # (B, T, F)
    y, down = linear(hidden, under("down", weights))  # (B, T, D)
    return y, NumpyFeedForward(activation, projected, gate_input, up, gate, down)


def feedforward_backward(dy: Array, saved: NumpyFeedForward) -> tuple[Array, dict[str, Array]]:
    """Return dx (B, T, D) and the gradients of the weights.

    In a gated layer, h = f(g) u gives du = f(g) dh and dg = u f'(g) dh; dx is the sum of the gradients through g and u.
    """
    dhidden, down = linear_backward(dy, saved.down)  # (B, T, F)
    gradients = with_prefix("down", down)
    if saved.gate is None or saved.gate_input is None:
        dprojected = activate_backward(dhidden, saved.projected, saved.activation)  # (B, T, F)
        dx, up = linear_backward(dprojected, saved.up)  # (B, T, D)
        return dx, gradients | with_prefix("up", up)
    dprojected = dhidden * activate(saved.gate_input, saved.activation)  # (B, T, F)
    dgate_input = activate_backward(dhidden * saved.projected, saved.gate_input, saved.activation)  # (B, T, F)
    dx, up = linear_backward(dprojected, saved.up)  # (B, T, D)
    dx_gate, gate = linear_backward(dgate_input, saved.gate)  # (B, T, D)
    return dx + dx_gate, gradients | with_prefix("up", up) | with_prefix("gate", gate)
