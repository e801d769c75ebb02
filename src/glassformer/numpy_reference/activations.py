"""Element-wise activations and their derivatives."""

from __future__ import annotations

import math

import numpy as np

from glassformer.numpy_reference.arrays import Array

GATED = ("swiglu", "geglu")
TANH_SCALE = math.sqrt(2 / math.pi)
TANH_CUBE = 0.044715


def erf(x: Array) -> Array:
    """Return the error function of each element, computed with `math.erf`, because NumPy has no error function."""
    return np.array([math.erf(value) for value in x.ravel()]).reshape(x.shape)


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + e^-x), computed as (1 + tanh(x / 2)) / 2, which cannot overflow."""
    return 0.5 * (1 + np.tanh(0.5 * x))


def activate(x: Array, name: str) -> Array:
    """Return y = f(x); in a gated layer, f is applied to the gate (Shazeer 2020).

    * relu: max(x, 0)
    * relu2: max(x, 0)² (So et al. 2021, section 4)
    * gelu, geglu: x Φ(x), where Φ is the standard normal distribution function (Hendrycks and Gimpel 2016, section 2)
    * gelu_tanh: x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2 (the same section)
    * swiglu: x σ(x), called SiLU or Swish (Ramachandran et al. 2017)
    """
    match name:
        case "relu":
            return np.maximum(x, 0)
        case "relu2":
            return np.maximum(x, 0) ** 2
        case "gelu" | "geglu":
            return x * 0.5 * (1 + erf(x / math.sqrt(2)))
        case "gelu_tanh":
            return 0.5 * x * (1 + np.tanh(TANH_SCALE * (x + TANH_CUBE * x**3)))
        case "swiglu":
            return x * sigmoid(x)
        case _:
            raise ValueError(f"unknown activation {name!r}")


def activate_backward(dy: Array, x: Array, name: str) -> Array:
    """Return dx = dy f'(x), with f' for each activation:

    * relu: 1 where x > 0, otherwise 0
    * relu2: 2 max(x, 0)
    * gelu, geglu: Φ(x) + x φ(x), where φ = Φ' is the standard normal density
    * gelu_tanh: (1 + tanh u) / 2 + x (1 - tanh² u) u' / 2, where u is the argument of tanh
    * swiglu: σ + x σ (1 - σ), from σ' = σ (1 - σ)
    """
    match name:
        case "relu":
            return dy * (x > 0)
        case "relu2":
            return dy * 2 * np.maximum(x, 0)
        case "gelu" | "geglu":
            density = np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
            return dy * (0.5 * (1 + erf(x / math.sqrt(2))) + x * density)
        case "gelu_tanh":
            tanh = np.tanh(TANH_SCALE * (x + TANH_CUBE * x**3))
            slope = TANH_SCALE * (1 + 3 * TANH_CUBE * x**2)
            return dy * 0.5 * (1 + tanh + x * (1 - tanh**2) * slope)
        case "swiglu":
            gate = sigmoid(x)
            return dy * gate * (1 + x * (1 - gate))
        case _:
            raise ValueError(f"unknown activation {name!r}")
