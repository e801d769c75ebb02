"""Models with every setting, far from their initial weights, for comparison with the NumPy reference."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from glassformer.base.config import Activation, ModelConfig
from glassformer.model.build import build_model
from glassformer.model.transformer import EncoderDecoder, Model
from glassformer.numpy_reference import Inputs
from glassformer.numpy_reference.arrays import Array
from tests.property.models import POSITIONS, VOCAB, some_heads, tiny

SOURCE_VOCAB = 37
CLASSES = 5
ROWS = 7
T = 11
S = 13
FAMILIES = ("decoder", "encoder", "classifier", "encoder-decoder")
NORMS = [(norm, order) for norm in ("layernorm", "rmsnorm") for order in ("pre", "post", "output")] + [("none", "pre")]
SOME: dict[str, Any] = {"removed_heads": "some"}
"""Placeholder for the removed heads that `some_heads` returns for the family."""
ACTIVATIONS: tuple[str, ...] = get_args(Activation)
GROW_FASTER = ("relu2", "swiglu", "geglu")
"""Activations that grow like x²: without a norm, values would grow from layer to layer."""
GROW_LIKE_X = tuple(each for each in ACTIVATIONS if each not in GROW_FASTER)
OTHERS: list[dict[str, Any]] = [
    {"kv_heads": 1},
    {"kv_heads": 2},
    {"kv_heads": 3, "qk_norm": "head", "positions": "rotary"},
    {"window": 1},
    {"window": 3},
    {"window": 4, "positions": "rotary"},
    {"window": 4, "positions": "relative"},
    {"qk_norm": "head"},
    {"qk_norm": "head", "norm_eps": 0.1},
    {"qk_norm": "whole", "norm_eps": 0.1},
    {"qk_norm": "whole", "kv_heads": 2, "positions": "rotary"},
    {"norm_bias": True, "norm_order": "output"},
    {**SOME, "attention_bias": True},
    {**SOME, "kv_heads": 1, "positions": "alibi"},
    {**SOME, "kv_heads": 2, "positions": "relative"},
    {**SOME, "kv_heads": 3, "positions": "rotary", "qk_norm": "head"},
    {"attention_bias": True},
    {"feedforward_bias": True},
    {"feedforward_bias": True, "activation": "swiglu"},
    {"norm_bias": True},
    {"norm_bias": True, "norm_order": "post"},
    {"head_bias": True},
    {"head_bias": True, "tied": False},
    {"tied": False},
    {"embedding_scale": True},
    {"embedding_norm": True},
    {"embedding_norm": True, "norm_bias": True, "norm_order": "post"},
    {"embedding_norm": True, "norm": "rmsnorm"},
    {"norm_eps": 0.1},
    {"norm": "rmsnorm", "norm_eps": 0.1},
    {"hidden": None},
    {"hidden": None, "activation": "geglu"},
    {"head_width": None, "width": 18},
    {"value_width": 7},
    {"value_width": 13, "kv_heads": 3, "positions": "rotary", "qk_norm": "whole"},
    {"heads": 2, "value_width": 11, "output_projection": False},
    {**SOME, "width": 24, "kv_heads": 2, "value_width": 4, "output_projection": False, "attention_bias": True},
    {"layers": 1},
    {"positions": "rotary", "rotary_base": 50.0},
    {"heads": 7, "positions": "alibi"},
    {"context": 41},
    {"positions": "relative", "relative_buckets": 4},
    {"positions": "relative", "relative_max_distance": 8},
]
OF_TOKENS: list[dict[str, Any]] = [
    {"head_transform": True},
    {"head_transform": True, "tied": False, "head_bias": True, "activation": "swiglu"},
    {"head_transform": True, "norm": "none"},
    {"head_transform": True, "norm_order": "post", "norm_bias": True},
]
"""Settings of all families except classifiers."""
OF_CLASSIFIERS: list[dict[str, Any]] = [{"pooling": "first"}, {"pooling": "mean", "tied": False, "head_bias": True}]
OF_PAIRS: list[dict[str, Any]] = [
    {"shared_embedding": False, "embedding_scale": True},
    {"shared_embedding": False, "tied": False},
    {"encoder_layers": 2},
    {"encoder_layers": 5, "positions": "relative"},
]
NOT_IN_A_FORWARD_PASS = {
    "vocab_size",
    "source_vocab_size",
    "dropout_embedding",
    "dropout_attention",
    "dropout_residual",
    "zero_output",
    "initialization",
    "initialization_skip",
}
"""Settings that do not change a forward pass: vocabulary sizes, dropout (only in training) and initialization."""


@dataclass(frozen=True)
class Case:
    """A kind of model, and its settings that differ from those of `tiny`."""

    kind: str
    changes: dict[str, Any]

    def __str__(self) -> str:
        return "-".join([self.kind, *(f"{name}={value}" for name, value in self.changes.items())])


DIFFERENTIATED = [
    Case(
        "decoder", {"positions": "rotary", "norm": "rmsnorm", "activation": "swiglu", "kv_heads": 2, "qk_norm": "head"}
    ),
    Case("decoder", {"positions": "relative", "norm_order": "post", "norm_bias": True, "window": 4}),
    Case("encoder", {"positions": "learned", "activation": "gelu_tanh", "attention_bias": True, "head_bias": True}),
    Case("classifier", {"positions": "sinusoidal", "activation": "relu2", "embedding_norm": True}),
    Case("encoder-decoder", {"positions": "alibi", "activation": "geglu", "shared_embedding": False, "tied": False}),
    Case("encoder-decoder", {"positions": "relative", "feedforward_bias": True, "embedding_scale": True}),
]
"""Cases whose gradients are compared with finite differences."""


def one_choice_each() -> list[Case]:
    """Return cases of all families: one for each position encoding, norm and activation, and for each other setting."""
    changes: list[dict[str, Any]] = [{"positions": name} for name in POSITIONS]
    changes += [{"norm": norm, "norm_order": order} for norm, order in NORMS]
    changes += [{"activation": name} for name in ACTIVATIONS] + OTHERS
    cases = [Case(kind, each) for kind in FAMILIES for each in changes]
    cases += [Case(kind, each) for kind in FAMILIES if kind != "classifier" for each in OF_TOKENS]
    cases += [Case("classifier", each) for each in OF_CLASSIFIERS]
    return cases + [Case("encoder-decoder", each) for each in OF_PAIRS]


def many_choices_at_once(count: int) -> list[Case]:
    """Return cases with all settings chosen at random, the same cases each time.

    Activations that grow like x² are used only with a norm.
    """
    draw = random.Random(0)
    cases = []
    for _ in range(count):
        norm, order = draw.choice(NORMS)
        kind = draw.choice(FAMILIES)
        qk_norm = draw.choice(["none", "head", "whole"])
        flags = [
            "attention_bias",
            "feedforward_bias",
            "head_bias",
            "tied",
            "shared_embedding",
            "embedding_scale",
        ]
        flags += [] if kind == "classifier" else ["head_transform"]
        flags += ["norm_bias"] if norm == "layernorm" else []
        flags += ["embedding_norm"] if norm != "none" else []
        changes: dict[str, Any] = {name: draw.random() < 0.5 for name in flags}
        changes |= {"norm": norm, "norm_order": order, "positions": draw.choice(POSITIONS)}
        changes |= {
            "activation": draw.choice(ACTIVATIONS if norm != "none" else GROW_LIKE_X),
            "kv_heads": draw.choice([1, 2, 3, 6]),
        }
        changes |= {"window": draw.choice([None, 2, 5, 9]), "pooling": draw.choice(["mean", "first"])}
        changes |= {"qk_norm": qk_norm, **(SOME if qk_norm != "whole" and draw.random() < 0.5 else {})}
        cases.append(Case(kind, changes))
    return cases


def config_of(case: Case) -> ModelConfig:
    """Return the case's settings, complete for `build_model`."""
    shape = {"classifier": {"classes": CLASSES}, "encoder-decoder": {"source_vocab_size": SOURCE_VOCAB}}
    family = "encoder" if case.kind == "classifier" else case.kind
    removed = {"removed_heads": some_heads(family)} if "removed_heads" in case.changes else {}
    config = tiny(family=family, vocab_size=VOCAB, **{**case.changes, **removed})
    return config.replace(**shape.get(case.kind, {}))


def grown_model(config: ModelConfig) -> Model:
    """Return a model with all weights far from their initial values, but less far without a norm.

    Without a norm, values would grow from layer to layer.
    """
    far = 0.1 if config.norm == "none" else 0.4
    model = build_model(config, seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * far)
    return model


def weights_of(model: Model) -> dict[str, Array]:
    """Return a copy of the model's weights as NumPy arrays, by name."""
    return {name: value.detach().numpy().copy() for name, value in model.state_dict().items()}


def ragged(rows: int, length: int) -> Tensor:
    """Return a mask of real tokens, (rows, length), for seven rows with different padding.

    In order, the rows have no padding, padding on the right, on the left, on both sides and in the middle, one real
    token, and no real token.
    """
    real = torch.ones(rows, length, dtype=torch.bool)
    real[1, 6:] = False
    real[2, :4] = False
    real[3, :2] = False
    real[3, 9:] = False
    real[4, 3:6] = False
    real[5, :8] = False
    real[5, 9:] = False
    real[6] = False
    return real


def inputs_for(config: ModelConfig, padded: bool = True) -> Inputs:
    """Return random ids with every kind of padding in `ragged`, or without a mask."""
    draw = np.random.default_rng(3)
    tokens = draw.integers(0, VOCAB, (ROWS, T))
    if config.family != "encoder-decoder":
        return Inputs(tokens, ragged(ROWS, T).numpy() if padded else None)
    source = draw.integers(0, VOCAB if config.shared_embedding else SOURCE_VOCAB, (ROWS, S))
    return Inputs(tokens, None, source, ragged(ROWS, S).numpy() if padded else None)


def say(model: Model, inputs: Inputs) -> Tensor:
    """Return the PyTorch model's logits for the inputs of the NumPy reference."""
    read = {name: torch.from_numpy(value) for name, value in vars(inputs).items() if value is not None}
    if isinstance(model, EncoderDecoder):
        return model(read["source"], read["tokens"], read.get("source_attention_mask"))
    return model(read["tokens"], read.get("attention_mask"))


def furthest(ours: dict[str, Array], theirs: dict[str, Array]) -> tuple[float, str]:
    """Return the largest relative difference between gradients, and the name of the weight.

    The difference is relative to the largest entry of the weight's gradient. Some gradients are mathematically 0 (a key
    bias adds the same to all scores of a query), so that both sides contain only rounding errors; the divisor is
    therefore at least 1e-6 of the largest entry of all gradients.
    """
    assert ours.keys() == theirs.keys()
    least = 1e-6 * max(np.abs(value).max() for value in theirs.values() if value.size)
    return max(
        (float(np.abs(ours[name] - value).max() / max(np.abs(value).max(), least)), name)
        for name, value in theirs.items()
        if value.size
    )
