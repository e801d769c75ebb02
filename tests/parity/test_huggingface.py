"""Hugging Face models with random weights are imported and exported, for all classes except those for whole texts."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from glassformer.base.config import ModelConfig
from glassformer.base.errors import GlassError
from glassformer.interop.atomic_output import write_atomically
from glassformer.interop.export_report import Comparison
from glassformer.interop.huggingface import compare
from glassformer.interop.huggingface.choosing import ARCHITECTURES, choose
from glassformer.interop.huggingface.compare import compare_logits
from glassformer.interop.huggingface.equivalent_forms import EXPORT_FORMS, apply_forms
from glassformer.interop.huggingface.read_model import read_model
from glassformer.interop.huggingface.writing import to_huggingface
from glassformer.interop.output_comparison import largest_difference
from glassformer.model.build import build_model
from glassformer.model.transformer import Model
from glassformer.model.weights import save_tensors
from tests.parity.hugging_face import (
    CASES,
    V,
    change_config,
    new_model,
    our_logits,
    save,
    their_logits,
    their_model,
    transformers,
)
from tests.property.models import as_if_trained, tiny

IMPORT = 1e-5
EXPORT = 1e-6
REGROUPED = ("bert-masked", "roberta-masked")
"""Classes whose exports are compared in float64 if weights are large.

The segment embedding is added to the position embeddings, so the same terms are added in another order; in float32 the
logits then differ by up to 1.5e-6.
"""
OF_THEIR_TOKENIZER = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_eos_token_id")
NOT_THEIRS = ("normalize_before", "normalize_embedding", "add_final_layer_norm")
"""Fields for CTranslate2's converter, which transformers does not write into `config.json`."""
NOT_OURS = ("dtype", "transformers_version", "architectures", "_name_or_path", *NOT_THEIRS)


def test_every_class_is_tested() -> None:
    """Classes for whole texts, which give no logits of tokens, are tested in `test_pipelines`."""
    assert {name.partition(",")[0] for name in CASES} | {"bert-mean", "deberta-v2", "esm-mean"} == set(ARCHITECTURES)


@pytest.mark.parametrize("name", CASES)
def test_a_new_model_of_theirs_is_the_same_here_and_when_it_is_written_again(name: str, tmp_path: Path) -> None:
    theirs = new_model(name)
    theirs.save_pretrained(tmp_path / "theirs")
    ours, back = there_and_back(name, theirs, tmp_path)
    assert (our_logits(ours) - their_logits(theirs)).abs().max() <= IMPORT
    assert (their_logits(back) - their_logits(theirs)).abs().max() <= EXPORT


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_models_with_large_weights_survive_import_and_export(name: str, tmp_path: Path) -> None:
    theirs = save(name, tmp_path / "theirs")
    wanted = their_logits(theirs)
    assert wanted.std() > 0.3
    ours, back = there_and_back(name, theirs, tmp_path)
    assert (our_logits(ours) - wanted).abs().max() <= IMPORT
    if name.split(",")[0] in REGROUPED:
        theirs = theirs.double()
        back = back.double()
    assert (their_logits(back) - their_logits(theirs)).abs().max() <= EXPORT
    before = theirs.config.to_dict()
    after = back.config.to_dict()
    assert {key: v for key, v in before.items() if key not in NOT_OURS} == {
        key: v for key, v in after.items() if key not in NOT_OURS
    }


def there_and_back(name: str, theirs: Any, folder: Path) -> tuple[Model, Any]:
    """Return our model imported from `folder / "theirs"`, and the Hugging Face model loaded from its export."""
    found = read_model(folder / "theirs")
    values, tensors = to_huggingface(found.architecture, found.model, found.task)
    kept = {key: v for key in (*OF_THEIR_TOKENIZER, "id2label", "label2id") if (v := getattr(theirs.config, key, None))}
    again = folder / "again"
    again.mkdir()
    (again / "config.json").write_text(json.dumps({**values, **kept}), encoding="utf-8")
    save_tensors(tensors, again / "model.safetensors", {"format": "pt"})
    return found.model, getattr(transformers, CASES[name][0]).from_pretrained(again).eval()


PLANTED: dict[str, dict[str, Any]] = {
    "llama": {"rope_parameters": {"rope_type": "default", "rope_theta": 770.0}},
    "gpt2": {"activation_function": "gelu"},
    "qwen3": {"rms_norm_eps": 1e-2},
    "bert": {"layer_norm_eps": 1e-2},
    "bart": {"scale_embedding": False},
    "qwen2, window": {"sliding_window": 6},
    "t5": {"relative_attention_max_distance": 24},
    "olmo2": {"rms_norm_eps": 1e-2},
    "bert-masked": {"hidden_act": "gelu"},
    "roberta-masked": {"layer_norm_eps": 1e-2},
    "esm-masked": {"layer_norm_eps": 1e-2},
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_error_moves_the_logits(name: str, tmp_path: Path) -> None:
    wanted = their_logits(save(name, tmp_path))
    change_config(tmp_path, **PLANTED[name])
    found = read_model(tmp_path)
    assert (our_logits(found.model) - wanted).abs().max() > 10 * IMPORT
    padding = found.architecture.needs_padding
    assert compare_logits(tmp_path, CASES[name][0], found.model, padding).ok  # they say the same of the changed model


FORMS: dict[str, dict[str, Any]] = {
    "sinusoids_as_table": {"positions": "sinusoidal"},
    "scale_inside": {"embedding_scale": True},
    "untied_head": {},
    "same_biases": {"attention_bias": True},
    "two_embeddings": {"family": "encoder-decoder", "embedding_norm": True},
    "centred_stream": {"positions": "rotary", "activation": "swiglu", "attention_bias": True, "feedforward_bias": True},
    "sines_first": {
        "family": "encoder-decoder",
        "positions": "none",
        "qk_norm": "head",
        "norm_bias": True,
        "attention_bias": True,
        "feedforward_bias": True,
        "head_bias": True,
    },
}


@pytest.mark.parametrize("name", EXPORT_FORMS)
def test_another_form_of_a_model_computes_the_same(name: str) -> None:
    """For `sines_first` the model has no positions: that form reorders only sinusoids, so nothing changes here."""
    config = tiny(**FORMS[name])
    model = as_if_trained(config)
    form, tensors = apply_forms([EXPORT_FORMS[name]], config.replace(vocab_size=V), dict(model.state_dict()))
    assert set(tensors) != set(model.state_dict()) or form != config.replace(vocab_size=V) or name == "sines_first"
    other = build_model(form, source_vocab_size=None if form.shared_embedding else V)
    other.load_state_dict(tensors)
    assert (our_logits(other.eval()) - our_logits(model)).abs().max() <= IMPORT


def chosen(wanted: str | None = None, task: Any = "lm", **changes: Any) -> str:
    config = tiny(**{"width": 60, "heads": 6, "head_width": 10, **changes}).replace(vocab_size=V)
    return choose(config, dict(build_model(config).state_dict()), task, wanted, None).name


def test_the_class_that_fits_is_chosen() -> None:
    llama = {"positions": "rotary", "norm": "rmsnorm", "activation": "swiglu"}
    assert chosen() == "gpt2"
    assert chosen(**llama) == "llama"
    assert chosen(**llama, qk_norm="head") == "qwen3"
    assert chosen(**llama, window=5) == "qwen2"
    assert chosen(**llama, window=5, attention_bias=True) == "qwen2"  # its output biases are zero
    assert chosen(**{**llama, "activation": "relu2"}) == "arcee"
    assert chosen(**{**llama, "norm": "layernorm"}) == "llama"  # the mean is taken out of the residual stream
    assert chosen(**{**llama, "norm": "layernorm", "norm_bias": True}) == "stablelm"
    assert chosen(**{**llama, "norm": "layernorm", "activation": "gelu"}) == "starcoder2"
    assert chosen("qwen2", **llama, attention_bias=True) == "qwen2"
    assert chosen(**llama, norm_order="output", qk_norm="whole") == "olmo2"
    encoder = {"task": "masked", "family": "encoder", "norm_order": "post", "embedding_norm": True}
    assert chosen(**encoder) == "bert"
    assert chosen(**encoder, head_transform=True) == "bert-masked"


REFUSED: dict[str, tuple[str | None, dict[str, Any], str, str]] = {
    "alibi": (None, {"positions": "alibi"}, "model.positions = alibi", "model.positions=rotary"),
    "norm": ("gpt2", {"norm": "rmsnorm"}, "model.norm = rmsnorm", "model.norm=layernorm"),
    "heads": ("gpt2", {"kv_heads": 3}, "model.kv_heads = 3", "model.kv_heads=unset"),
    "order": ("gpt2", {"norm_order": "post"}, "model.norm_order = post", "model.norm_order=pre"),
    "bias": (
        "llama",
        {"positions": "rotary", "norm": "rmsnorm", "activation": "swiglu", "head_bias": True},
        "model.head_bias = True",
        "model.head_bias=false",
    ),
    "family": ("bert", {}, "model.family = decoder", "Choose one of: arcee, gpt2"),
    "olmo2": (
        "olmo2",
        {"positions": "rotary", "norm": "rmsnorm", "activation": "swiglu", "qk_norm": "whole"},
        "model.norm_order = pre",
        "model.norm_order=output",
    ),
    "olmo3": ("olmo3", {}, "olmo3", "olmo2"),
    "padding": (
        "roberta",
        {"task": "masked", "family": "encoder", "norm_order": "post", "embedding_norm": True},
        "padding token",
        "--architecture bert",
    ),
    "nonsense": ("lama", {}, "'lama'", "llama"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_setting_that_a_class_lacks_is_named_with_an_alternative(name: str) -> None:
    wanted, changes, problem, remedy = REFUSED[name]
    with pytest.raises(GlassError) as error:
        chosen(wanted, **changes)
    assert problem in error.value.problem
    assert remedy in error.value.remedy


def test_nonzero_output_biases_are_not_dropped() -> None:
    llama = {"positions": "rotary", "norm": "rmsnorm", "activation": "swiglu", "attention_bias": True, "window": 5}
    config: ModelConfig = tiny(width=60, head_width=10, **llama).replace(vocab_size=V)
    ours = dict(build_model(config).state_dict())
    ours["stack.blocks.1.attention.output.bias"] = torch.ones(60)
    with pytest.raises(GlassError, match=r"blocks\.1\.attention\.output\.bias"):
        choose(config, ours, "lm", "qwen2", None)


def test_no_folder_is_written_if_a_comparison_fails(tmp_path: Path) -> None:
    def fill(folder: Path) -> list[Comparison]:
        folder.mkdir()
        (folder / "config.json").write_text("{}", encoding="utf-8")
        return [Comparison("logits", 0.5, 1e-3, "all")]

    with pytest.raises(GlassError, match=r"'logits', the difference is 0\.5"):
        write_atomically("hf", tmp_path / "deep" / "out", fill)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_created_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    def fill(partial: Path) -> list[Comparison]:
        partial.write_text("new", encoding="utf-8")
        (tmp_path / "out").write_text("mine", encoding="utf-8")
        return []

    with pytest.raises(GlassError, match="already exists"):
        write_atomically("gguf", tmp_path / "out", fill)
    assert [(path.name, path.read_text(encoding="utf-8")) for path in tmp_path.iterdir()] == [("out", "mine")]


def test_a_broken_link_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "gone")
    with pytest.raises(GlassError, match="already exists"):
        write_atomically("onnx", tmp_path / "out", lambda _: [])
    assert (tmp_path / "out").is_symlink()


OLD_FIELDS: dict[str, dict[str, Any]] = {  # what files of older versions say besides
    "bart": {"normalize_before": False, "add_final_layer_norm": False, "normalize_embedding": True},
    "mbart": {"normalize_before": True, "add_final_layer_norm": True, "static_position_embeddings": False},
    "marian": {"normalize_before": False, "normalize_embedding": False, "static_position_embeddings": True},
    "pegasus": {"normalize_before": True, "normalize_embedding": False, "static_position_embeddings": True},
    "blenderbot": {"normalize_before": True, "add_final_layer_norm": True, "normalize_embedding": False},
}


@pytest.mark.parametrize("name", OLD_FIELDS)
def test_older_config_fields_must_agree_with_the_class(name: str, tmp_path: Path) -> None:
    wanted = their_logits(save(name, tmp_path))
    said = {**OLD_FIELDS[name], "num_hidden_layers": 2}
    change_config(tmp_path, **said)
    assert (our_logits(read_model(tmp_path).model) - wanted).abs().max() <= IMPORT
    for field, value in said.items():
        change_config(tmp_path, **{**said, field: 5 if field == "num_hidden_layers" else not value})
        with pytest.raises(GlassError, match=field):
            read_model(tmp_path)


def test_differing_greedy_tokens_are_counted(tmp_path: Path) -> None:
    save("gpt2", tmp_path)
    found = read_model(tmp_path)
    theirs = their_model("gpt2")
    same = compare._greedy_comparison(theirs, found.model, 0)
    assert same is not None
    assert (same.value, same.compared) == (0, "21 tokens for each of 3 prompts")
    with torch.no_grad():
        theirs.lm_head.weight.add_(torch.randn(theirs.lm_head.weight.shape, generator=torch.Generator().manual_seed(1)))
    other = compare._greedy_comparison(theirs, found.model, 0)
    assert other is not None
    assert other.value > 9


def test_a_context_of_one_token_allows_no_generation(tmp_path: Path) -> None:
    save("gpt2", tmp_path, n_positions=1)
    assert compare._greedy_comparison(their_model("gpt2", n_positions=1), read_model(tmp_path).model, 0) is None


def test_a_sinusoid_table_is_not_allocated_for_the_whole_context(tmp_path: Path) -> None:
    save("marian", tmp_path)
    change_config(tmp_path, max_position_embeddings=10**11)
    assert read_model(tmp_path).config.context == 10**11  # at once, and in no memory


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_non_finite_value_is_an_infinite_difference(at: int, value: float) -> None:
    ours = [np.zeros(4) for _ in range(3)]
    theirs = [np.full(4, 0.5) for _ in range(3)]
    assert largest_difference(ours, theirs) == 0.5
    theirs[at][2] = value
    assert largest_difference(ours, theirs) == math.inf


@pytest.mark.parametrize("before", [None, "0", "1"])
def test_the_setting_for_offline_use_is_restored(before: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    if before is not None:
        monkeypatch.setenv("HF_HUB_OFFLINE", before)
    with compare.quiet():
        assert os.environ["HF_HUB_OFFLINE"] == "1"
    assert os.environ.get("HF_HUB_OFFLINE") == before
