"""Every setting of the model changes the output or the parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from glassformer.base.config import ModelConfig
from glassformer.model.build import build_model
from tests.property.models import VOCAB, tiny, tokens

CHANGES: dict[str, tuple[dict[str, Any], Any]] = {
    "family": ({}, "encoder"),
    "vocab_size": ({}, VOCAB),
    "source_vocab_size": ({"family": "encoder-decoder", "shared_embedding": False}, 37),
    "classes": ({"family": "encoder"}, 5),
    "context": ({}, 31),
    "layers": ({}, 2),
    "encoder_layers": ({"family": "encoder-decoder"}, 2),
    "width": ({}, 24),
    "heads": ({}, 5),
    "kv_heads": ({}, 3),
    "head_width": ({}, 8),
    "value_width": ({}, 5),
    "output_projection": ({"heads": 2, "value_width": 11}, False),
    "hidden": ({}, 41),
    "positions": ({}, "rotary"),
    "norm": ({}, "rmsnorm"),
    "norm_eps": ({}, 0.1),
    "norm_order": ({}, "post"),
    "activation": ({}, "relu"),
    "window": ({}, 3),
    "qk_norm": ({}, "whole"),
    "attention_bias": ({}, True),
    "feedforward_bias": ({}, True),
    "norm_bias": ({}, True),
    "head_bias": ({}, True),
    "head_transform": ({}, True),
    "tied": ({}, False),
    "shared_embedding": ({"family": "encoder-decoder"}, False),
    "pooling": ({"family": "encoder", "classes": 5}, "first"),
    "embedding_scale": ({}, True),
    "embedding_norm": ({}, True),
    "dropout_embedding": ({}, 0.5),
    "dropout_attention": ({}, 0.5),
    "dropout_residual": ({}, 0.5),
    "zero_output": ({}, True),
    "initialization": ({}, "torch"),
    "initialization_skip": ({"initialization": "torch"}, 80),
    "rotary_base": ({"positions": "rotary"}, 100.0),
    "relative_buckets": ({"positions": "relative"}, 6),
    "relative_max_distance": ({"positions": "relative"}, 12),
    "removed_heads": ({}, ["dec.1.self.4"]),
}


def logits(config: ModelConfig) -> torch.Tensor:
    """Return the logits of a model in training mode, with all parameters moved away from their initial values."""
    model = build_model(config, VOCAB, seed=1).train()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    torch.manual_seed(0)
    both = (tokens(2, 19, seed=3), tokens(2, 23)) if config.family == "encoder-decoder" else (tokens(2, 23),)
    result: torch.Tensor = model(*both)
    return result


def test_all_settings_are_tested() -> None:
    assert set(CHANGES) == set(ModelConfig.model_fields)


@pytest.mark.parametrize(
    "name", [name for name in CHANGES if name not in ("vocab_size", "source_vocab_size", "context")]
)
def test_the_setting_changes_the_output(name: str) -> None:
    base, value = CHANGES[name]
    before = logits(tiny(**base))
    after = logits(tiny(**{**base, name: value}))
    assert before.shape != after.shape or not torch.allclose(before, after)


def test_context_and_vocabulary_set_shapes_and_limits() -> None:
    assert build_model(tiny(context=31), VOCAB).state_dict()["embedding.positions.table.weight"].shape[0] == 31
    assert build_model(tiny(vocab_size=43)).state_dict()["embedding.tokens.weight"].shape[0] == 43
    two = tiny(family="encoder-decoder", shared_embedding=False, source_vocab_size=37, vocab_size=43)
    assert build_model(two).state_dict()["source_embedding.tokens.weight"].shape[0] == 37


@pytest.mark.parametrize(("name", "one", "other"), [("qk_norm", "head", "whole"), ("norm_order", "post", "output")])
def test_the_other_choices_of_a_setting_differ(name: str, one: str, other: str) -> None:
    assert not torch.allclose(logits(tiny(**{name: one})), logits(tiny(**{name: other})))
