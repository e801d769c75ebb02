"""Components of a model that `train.freeze` can name, and their parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable

from glassformer.base.config.model import ModelConfig
from glassformer.base.settings import impossible
from glassformer.base.wording import span

LAYERS = re.compile(r"layers\.(\d+)(?:-(\d+))?")
"""Pattern of one layer or a range of layers, such as layers.5 or layers.0-3."""


def frozen_names(parts: Iterable[str], model: ModelConfig) -> tuple[str, ...]:
    """Return the name prefixes of all parameters in these components.

    >>> frozen_names(["embedding", "layers.0-1"], ModelConfig(layers=4))
    ('embedding.', 'source_embedding.', 'stack.blocks.0.', 'stack.blocks.1.')

    Args:
        parts: names of components: embedding, head, encoder, decoder, layers.N, or layers.A-B. In an encoder-decoder,
            layers.N is a layer of both stacks.
        model: settings of the model.

    Raises:
        ValueError: a model with these settings has no such component.
    """
    depth = {"stack": model.layers}
    stacks = {model.family: "stack"}
    if model.family == "encoder-decoder":
        depth = {"encoder": model.encoder_layers or model.layers, "decoder": model.layers}
        stacks = {"encoder": "encoder", "decoder": "decoder"}
    named = {"embedding": ("embedding.", "source_embedding."), "head": ("head.",)}
    named |= {name: (f"{stack}.",) for name, stack in stacks.items()}
    deepest = max(depth.values()) - 1
    found: list[str] = []
    for part in parts:
        layers = LAYERS.fullmatch(part)
        if part in named:
            found += named[part]
        elif layers and int(layers[1]) <= int(layers[2] or layers[1]) <= deepest:
            numbers = range(int(layers[1]), int(layers[2] or layers[1]) + 1)
            for stack, count in depth.items():
                found += [f"{stack}.blocks.{number}." for number in numbers if number < count]
        else:
            raise impossible(
                f"train.freeze = {part}, but this model has no such component",
                f"Give {', '.join(named)}, {span('layers.0', f'layers.{deepest}')}, or layers.A-B for several layers.",
            )
    return tuple(found)
