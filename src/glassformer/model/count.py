"""Count the parameters, FLOPs and cache bytes of a model by component, without allocating memory for it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from glassformer.base.config import ModelConfig
from glassformer.model.attention import Attention
from glassformer.model.build import build_model
from glassformer.model.shapes_only import shapes_only
from glassformer.model.transformer import Classifier, Model

MIB = 1 << 20
PARTS = {
    "source_embedding.tokens": "source embedding",
    "source_embedding.positions": "source positions",
    "embedding.tokens": "token embedding",
    "embedding.positions": "position embedding",
    "score_positions": "relative positions",
    ".attention.": "self-attention",
    ".cross.": "cross-attention",
    ".feedforward.": "feed-forward",
    "norm": "norms",
    "head": "output head",
}
"""Substring of a parameter's name -> its component; the first match counts."""


@dataclass(frozen=True)
class Component:
    """Counts of one component of a model, summed over all layers.

    Attributes:
        name: name of the component.
        parameters: number of parameters.
        flops: FLOPs of one token's forward pass at full context; an addition and a multiplication count as two.
        cache_bytes: bytes per token in the key-value cache of self-attention, in float32; 0 for other components, and
            for an encoder, which has no cache.
    """

    name: str
    parameters: int
    flops: int = 0
    cache_bytes: int = 0

    @property
    def bytes(self) -> int:
        """Return the size of the parameters in float32, in bytes."""
        return 4 * self.parameters


def count_model(
    config: ModelConfig,
    vocab_size: int | None = None,
    source_vocab_size: int | None = None,
    classes: int | None = None,
) -> list[Component]:
    """Count the parameters, FLOPs and cache bytes of each component of the model that these settings build.

    The parameters are counted in the model itself, built on torch's meta device. Only the FLOPs of matrix
    multiplications, which are nearly all FLOPs, are counted: 2 per weight and token, and in attention 2 x (key width +
    value width) per head and attended token, for a token at the end of a full context. For an encoder-decoder, the
    FLOPs are those of one source token and one target token, with a source as long as the context.
    """
    with shapes_only():
        model = build_model(config, vocab_size, source_vocab_size=source_vocab_size, classes=classes)
    parameters: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        component = next(component for key, component in PARTS.items() if key in f".{name}")
        parameters[component] = parameters.get(component, 0) + parameter.numel()
    if config.tied and not isinstance(model, Classifier):
        parameters.setdefault("output head", 0)
    flops = _flops(model, config)
    kv_heads = 0
    if config.family != "encoder":
        kv_heads = sum(len(config.kept_kv_heads(f"dec.{layer}.self")) for layer in range(config.layers))
    return [
        Component(
            name,
            parameters[name],
            flops.get(name, 0),
            kv_heads * (config.K + config.U) * 4 if name == "self-attention" else 0,
        )
        for name in PARTS.values()
        if name in parameters
    ]


def _flops(model: Model, config: ModelConfig) -> dict[str, int]:
    flops: dict[str, int] = {}
    window = min(config.context, config.window or config.context)
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            component = next(component for key, component in PARTS.items() if key in f".{name}")
            flops[component] = flops.get(component, 0) + 2 * module.weight.numel()
        elif isinstance(module, Attention):
            component, n_keys = (
                ("cross-attention", config.context) if name.endswith(".cross") else ("self-attention", window)
            )
            flops[component] = flops.get(component, 0) + 2 * module.heads * (config.K + config.U) * n_keys
    if not isinstance(model, Classifier):
        flops["output head"] = flops.get("output head", 0) + 2 * model.vocab_size * config.width
    return flops


def embedding_rows(vocab_size: int, widths: tuple[int, ...] = (128, 256, 512, 1024)) -> list[tuple[int, int, float]]:
    """Return the size of the token embedding at several widths: (width, parameters, MiB in float32).

    >>> embedding_rows(32_100)[0]
    (128, 4108800, 15.673828125)
    """
    return [(width, vocab_size * width, 4 * vocab_size * width / MIB) for width in widths]
