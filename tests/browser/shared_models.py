"""Tiny models with many combinations of settings, as in a shared file, and the library's results for their weights."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from itertools import cycle, product
from typing import Any

import numpy as np
import torch

from glassformer.app.share.package import settings_of
from glassformer.app.share.quantize import Bits, pack, unpack
from glassformer.base.config import Config
from glassformer.inspection.sites import attentions
from glassformer.model.build import build_model
from glassformer.model.pruned_attention import head_numbers
from glassformer.numpy_reference import Inputs, forward

V = 11
SHAPE = {"layers": 2, "width": 12, "head_width": 4, "hidden": 7, "heads": 4, "context": 16}
IDS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 10]
SOURCE = [2, 7, 1, 8, 2, 8, 1]
TASKS = ("lm", "masked", "classify", "translate")
GRID: dict[str, tuple[Any, ...]] = {
    "positions": ("learned", "sinusoidal", "rotary", "alibi", "relative", "none"),
    "norm": ("layernorm", "rmsnorm", "none"),
    "activation": ("relu", "gelu", "gelu_tanh", "relu2", "swiglu", "geglu"),
    "kv_heads": (None, 2, 1),
    "window": (None, 4),
}
"""Every combination of these values is one case; the cases use the tasks in turn."""
BESIDE: dict[str, tuple[Any, ...]] = {  # lengths that share no factor with those of `GRID`
    "norm_order": ("pre", "post", "output", "pre", "output"),
    "qk_norm": ("none", "head", "none", "whole", "none", "head", "none"),
    "tied": (True, False, True, False, False),
    "attention_bias": (False, True, True, False, True, False, True),
    "feedforward_bias": (True, False, False, True, False),
    "norm_bias": (False, True, True, False, True),
    "head_bias": (True, False, True, False, False, True, False),
    "embedding_scale": (False, True, False, True, True),
    "embedding_norm": (False, False, True, False, True, True, False),
    "head_transform": (False, True, False, False, True),
    "shared_embedding": (True, False, True, False, True),
    "removed_heads": ((), ("1",), (), (), ("0", "1"), (), ()),
    "pooling": ("mean", "first", "mean", "first", "mean"),
}
"""Further settings of the cases, which use the values of each setting in turn."""


@dataclass(frozen=True)
class Case:
    """One model.

    Attributes:
        name: task and settings.
        page: input of the page's JavaScript: settings, tensors, data, ids and source.
        logits: (T, V) or (1, C) logits of the NumPy reference, in float64.
        torch: logits of the PyTorch model for the same inputs, in float32.
        weights: (H, T, S) attention weights of the NumPy reference, by site.
    """

    name: str
    page: dict[str, Any]
    logits: np.ndarray
    torch: np.ndarray
    weights: dict[str, np.ndarray]


def cases(bits: Bits = 32, every: int = 1) -> list[Case]:
    """Return the models of all combinations in `GRID`, or of every `every`-th combination."""
    rounds = {name: cycle(values) for name, values in BESIDE.items()}
    found = []
    for number, values in enumerate(list(product(*GRID.values()))[::every]):
        chosen = dict(zip(GRID, values, strict=True)) | {name: next(each) for name, each in rounds.items()}
        found.append(_case(TASKS[number % len(TASKS)], chosen, bits, number))
    return found


def _possible(task: str, chosen: dict[str, Any]) -> dict[str, Any]:
    """Return the settings, changed where they are incompatible."""
    model = {**SHAPE, **chosen}
    if model["norm"] == "none":
        model |= {"norm_order": "pre", "embedding_norm": False}
    model["norm_bias"] = model["norm_bias"] and model["norm"] == "layernorm"
    if task != "translate":
        del model["shared_embedding"]
    if task != "classify":
        del model["pooling"]
    else:
        model["head_transform"] = False
    stack = "dec" if task in ("lm", "translate") else "enc"
    whole = model["qk_norm"] == "whole"
    model["removed_heads"] = () if whole else tuple(f"{stack}.1.self.{head}" for head in model["removed_heads"])
    return model


def _case(task: str, chosen: dict[str, Any], bits: Bits, seed: int) -> Case:
    model_settings = _possible(task, chosen)
    config = Config.from_dict(
        {
            "model": model_settings,
            "train": {"task": task},
            "tokenizer": {"joint": model_settings.get("shared_embedding", True)},
        }
    )
    model = build_model(
        config.model, V, seed, None if config.model.shared_embedding else V + 2, 3 if task == "classify" else None
    ).eval()
    generator = torch.Generator().manual_seed(seed)
    size = 0.02 if config.model.norm == "none" else 0.2  # without norms, numbers grow from layer to layer
    with torch.no_grad():
        for parameter in model.parameters():  # also gains and biases, whose initial values would hide errors
            parameter.add_(torch.randn(parameter.shape, generator=generator) * size)
    tensors, data = pack({name: value.numpy() for name, value in model.state_dict().items()}, bits)
    rounded = unpack(tensors, data)
    model.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in rounded.items()})
    source = SOURCE if task == "translate" else None
    inputs = [torch.tensor([source]), torch.tensor([IDS])] if source else [torch.tensor([IDS])]
    with torch.inference_mode():
        own = model(*inputs)[0].numpy()
    settings = config.model.replace(classes=3 if task == "classify" else None)
    given = Inputs(np.array([IDS]), source=None if source is None else np.array([source]))
    logits, kept = forward(settings, rounded, given)
    heads = {str(site): head_numbers(layer) for site, layer in attentions(model).items()}
    page = {
        "settings": settings_of(config, heads),
        "tensors": [each.facts() for each in tensors],
        "data": base64.b64encode(data).decode(),
        "ids": IDS,
        "source": source,
    }
    return Case(f"{task} {model_settings}", page, np.atleast_2d(logits[0]), np.atleast_2d(own), _weights(kept))


def _weights(kept: Any) -> dict[str, np.ndarray]:
    """Return the attention weights of each site, from values that the NumPy reference saves for its backward pass."""
    stacks = {"enc": kept.encoder, "dec": kept.decoder} if hasattr(kept, "encoder") else {"": kept.stack}
    return {
        f"{name}.{layer}.{'cross' if residual.name == 'cross' else 'self'}": residual.part.attend.weights[0]
        for name, stack in stacks.items()
        for layer, block in enumerate(stack.blocks)
        for residual in block.residuals
        if residual.name != "feedforward"
    }
