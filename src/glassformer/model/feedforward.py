"""The feed-forward layer: each token by itself. Vaswani et al. 2017, section 3.3; gated: Shazeer 2020."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.config import GATED, Activation, ModelConfig


def activate(x: Tensor, name: Activation) -> Tensor:
    """The activation, for any shape; a gated kind names the activation of its gate."""
    match name:
        case "relu":
            return F.relu(x)
        case "relu2":  # So et al. 2021
            return F.relu(x).square()
        case "gelu" | "geglu":  # Hendrycks and Gimpel 2016
            return F.gelu(x)
        case "gelu_tanh":
            return F.gelu(x, approximate="tanh")
        case "swiglu":
            return F.silu(x)


class FeedForward(nn.Module):
    """D -> F -> D, with an activation between, or with an activated gate times a second projection."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.activation = config.activation
        self.up = nn.Linear(config.width, config.F, config.feedforward_bias)
        self.gate = nn.Linear(config.width, config.F, config.feedforward_bias) if config.activation in GATED else None
        self.down = nn.Linear(config.F, config.width, config.feedforward_bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        up = self.up(x)  # (B, T, F)
        hidden = activate(up if self.gate is None else self.gate(x), self.activation)  # (B, T, F)
        return self.down(hidden if self.gate is None else hidden * up)  # (B, T, D)
