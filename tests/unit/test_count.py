"""The counts of `glass count` equal those of the model itself and of PyTorch's counter."""

from __future__ import annotations

import json

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from glassformer.app.cli.main import main
from glassformer.base.config import ModelConfig
from glassformer.base.recipes import load_recipe
from glassformer.model.build import build_model
from glassformer.model.count import count_model, embedding_rows
from tests.property.models import VOCAB, tiny


def test_published_embedding_sizes_are_reproduced() -> None:
    assert [(w, n, f"{mib:.2f}") for w, n, mib in embedding_rows(32_100)] == [
        (128, 4_108_800, "15.67"),
        (256, 8_217_600, "31.35"),
        (512, 16_435_200, "62.70"),
        (1024, 32_870_400, "125.39"),
    ]


def test_a_published_encoder_decoder_size_is_reproduced() -> None:
    recipe = load_recipe("tutorial-d7")
    components = {part.name: part.parameters for part in count_model(ModelConfig(**recipe.settings["model"]))}
    total = sum(components.values())
    assert recipe.published["total"] == 68_554_752 == sum(recipe.published["parts"].values())
    assert total == 74_858_496
    assert total - 68_554_752 == components["cross-attention"] == 6 * 4 * (512 * 512 + 512)
    published = recipe.published["parts"]["feed-forward"]
    assert components["feed-forward"] == 12 * (8 * 512**2 + 5 * 512) == 25_196_544  # the published formula
    assert published == 12 * (2_101_760 + 5 * 512)  # with a wrong product
    biases = 12 * 4 * 512
    assert components["self-attention"] - recipe.published["parts"]["self-attention"] == biases
    assert published - components["feed-forward"] == biases + components["norms"]  # a coincidence
    for figure in ("6,303,744", "30,720", "24,576", "25,196,544", "2,097,152", "2,101,760", "55,296"):
        assert figure in recipe.published["note"]


def test_torch_layers_have_the_same_number_of_parameters() -> None:
    config = ModelConfig(
        family="encoder-decoder",
        layers=2,
        width=24,
        heads=4,
        hidden=40,
        norm_order="post",
        attention_bias=True,
        feedforward_bias=True,
        norm_bias=True,
        tied=True,
    )
    theirs = sum(
        parameter.numel()
        for layer in (torch.nn.TransformerEncoderLayer(24, 4, 40), torch.nn.TransformerDecoderLayer(24, 4, 40))
        for parameter in layer.parameters()
    )
    ours = sum(part.parameters for part in count_model(config, VOCAB) if part.name.find("embedding") < 0)
    assert ours == 2 * theirs


@pytest.mark.parametrize("changes", [{}, {"kv_heads": 2, "activation": "swiglu"}, {"tied": False, "qk_norm": "head"}])
def test_flops_equal_torchs_count(changes: dict[str, object]) -> None:
    config = tiny(**changes)
    model = build_model(config, VOCAB)
    tokens = torch.zeros(1, config.context, dtype=torch.long)
    # torch does not count its fused CPU kernel; the plain one does the same matrix multiplications.
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        model(tokens)
    per_token = sum(part.flops for part in count_model(config, VOCAB))
    assert counter.get_total_flops() == per_token * config.context


def test_parameters_and_cache_equal_those_of_the_model() -> None:
    config = tiny(kv_heads=2, positions="relative", head_bias=True)
    components = count_model(config, VOCAB)
    model = build_model(config, VOCAB)
    assert sum(part.parameters for part in components) == sum(p.numel() for p in model.parameters())
    assert sum(part.cache_bytes for part in components) == 3 * 2 * 2 * 10 * 4


@pytest.mark.parametrize("classes", [None, 5])
def test_an_encoder_has_no_cache(classes: int | None) -> None:
    assert {part.cache_bytes for part in count_model(tiny(family="encoder"), VOCAB, classes=classes)} == {0}


@pytest.mark.parametrize(
    ("words", "vocab_size", "parameters"),
    [
        (["shakespeare-nano"], 67, 804_352),
        (["shakespeare-nano", "--tokenizer.kind", "bytes"], 257, 828_672),
        (["shakespeare-nano", "--tokenizer.kind", "bpe", "--tokenizer.vocab_size", "500"], 500, 859_776),
        (["bangla-slm"], 32_100, 41_704_448),
    ],
)
def test_recipes_are_counted_with_their_training_vocabulary(
    words: list[str], vocab_size: int, parameters: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["count", *words, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["vocab_size"], facts["parameters"]) == (vocab_size, parameters)
