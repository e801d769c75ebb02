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
            layers.N means layer N of the encoder and of the decoder, or only of the deeper stack if the other stack has
            no layer N.
        model: settings of the model.

    Raises:
        ValueError: a model with these settings has no such component.
    """
    stack_depths = {"stack": model.layers}
    stacks = {model.family: "stack"}
    if model.family == "encoder-decoder":
        stack_depths = {"encoder": model.encoder_layers or model.layers, "decoder": model.layers}
        stacks = {"encoder": "encoder", "decoder": "decoder"}
    prefixes_of = {"embedding": ("embedding.", "source_embedding."), "head": ("head.",)}
    prefixes_of |= {name: (f"{stack}.",) for name, stack in stacks.items()}
    last_layer = max(stack_depths.values()) - 1
    prefixes: list[str] = []
    for part in parts:
        layers = LAYERS.fullmatch(part)
        if part in prefixes_of:
            prefixes += prefixes_of[part]
        elif layers and int(layers[1]) <= int(layers[2] or layers[1]) <= last_layer:
            numbers = range(int(layers[1]), int(layers[2] or layers[1]) + 1)
            for stack, count in stack_depths.items():
                prefixes += [f"{stack}.blocks.{number}." for number in numbers if number < count]
        else:
            raise impossible(
                f"train.freeze = {part}, but this model has no such component",
                f"Give {', '.join(prefixes_of)}, {span('layers.0', f'layers.{last_layer}')}, "
                "or layers.A-B for several layers.",
            )
    return tuple(prefixes)
