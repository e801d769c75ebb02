"""Freeze the parts of a model that `train.freeze` names: they get no gradients, no optimizer state and no updates."""

from __future__ import annotations

from torch import nn

from glassformer.base.config import Config
from glassformer.base.config.freezing import frozen_names
from glassformer.base.errors import GlassError


def freeze(model: nn.Module, config: Config) -> None:
    """Freeze the parts that `train.freeze` names, in place.

    A tied output matrix is the embedding, and frozen with it.

    Raises:
        GlassError: no parameter would be left to train.
    """
    names = frozen_names(config.train.freeze, config.model)
    if not names:
        return
    for name, parameter in model.named_parameters():
        if name.startswith(names):
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise GlassError(
            f"train.freeze = {', '.join(config.train.freeze)} leaves no parameter to train", "Freeze fewer parts."
        )
