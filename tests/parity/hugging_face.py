"""Tiny Hugging Face models with random weights, biases and gains; most dimensions differ in size."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

os.environ["TRANSFORMERS_VERBOSITY"] = "critical"
os.environ["HF_HUB_OFFLINE"] = "1"
transformers = pytest.importorskip("transformers")

V = 31
DECODER: dict[str, Any] = {
    "vocab_size": V,
    "hidden_size": 24,
    "intermediate_size": 37,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 29,
    "tie_word_embeddings": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 777.0},
}
ENCODER: dict[str, Any] = {
    "vocab_size": V,
    "hidden_size": 30,
    "intermediate_size": 37,
    "num_hidden_layers": 3,
    "num_attention_heads": 5,
    "max_position_embeddings": 29,
    "num_labels": V,
}
ESM: dict[str, Any] = {
    "position_embedding_type": "rotary",
    "rope_theta": 777.0,
    "token_dropout": False,
    "pad_token_id": 1,
}
PAIR: dict[str, Any] = {
    "vocab_size": V,
    "d_model": 30,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_ffn_dim": 37,
    "decoder_ffn_dim": 37,
    "encoder_attention_heads": 5,
    "decoder_attention_heads": 5,
    "max_position_embeddings": 29,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
# T5's matrices and ours differ by the factors sqrt(d_kv) and sqrt(d_model). If a number is divided by 4 or 6 and then
# multiplied again, the result is exact (Goldberg 1991, theorem 7); with other factors its last bit may differ.
T5: dict[str, Any] = {
    "vocab_size": V,
    "d_model": 36,
    "d_kv": 16,
    "d_ff": 37,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 6,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 16,
    "n_positions": 29,
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": (
        "GPT2LMHeadModel",
        {
            "vocab_size": V,
            "n_embd": 30,
            "n_layer": 3,
            "n_head": 5,
            "n_positions": 29,
            "n_inner": 37,
            "layer_norm_epsilon": 1e-3,
        },
    ),
    "gpt2, own head": (
        "GPT2LMHeadModel",
        {
            "vocab_size": V,
            "n_embd": 30,
            "n_layer": 3,
            "n_head": 5,
            "n_positions": 29,
            "n_inner": 41,
            "activation_function": "relu",
            "tie_word_embeddings": False,
        },
    ),
    "llama": ("LlamaForCausalLM", {**DECODER, "head_dim": 10, "rms_norm_eps": 1e-5}),
    "llama, biases": (
        "LlamaForCausalLM",
        {**DECODER, "attention_bias": True, "mlp_bias": True, "hidden_act": "gelu", "tie_word_embeddings": True},
    ),
    "qwen2": ("Qwen2ForCausalLM", {**DECODER, "max_window_layers": 3}),
    "qwen2, window": (
        "Qwen2ForCausalLM",
        {**DECODER, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 0},
    ),
    "qwen3": ("Qwen3ForCausalLM", {**DECODER, "head_dim": 10, "max_window_layers": 3, "rms_norm_eps": 1e-4}),
    "starcoder2": ("Starcoder2ForCausalLM", {**DECODER, "sliding_window": 7, "residual_dropout": 0.1}),
    "stablelm": (
        "StableLmForCausalLM",
        {
            **DECODER,
            "use_qkv_bias": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 777.0, "partial_rotary_factor": 1.0},
        },
    ),
    "arcee": ("ArceeForCausalLM", {**DECODER, "head_dim": 10, "attention_bias": True}),
    "olmo2": ("Olmo2ForCausalLM", {**DECODER, "rms_norm_eps": 1e-4}),
    "olmo2, biases": ("Olmo2ForCausalLM", {**DECODER, "attention_bias": True, "tie_word_embeddings": True}),
    "bert": ("BertForTokenClassification", ENCODER),
    "bert-masked": ("BertForMaskedLM", {**ENCODER, "hidden_act": "relu"}),
    "bert-masked, own head": ("BertForMaskedLM", {**ENCODER, "tie_word_embeddings": False}),
    "esm": ("EsmForTokenClassification", {**ENCODER, **ESM, "emb_layer_norm_before": True}),
    "esm-masked": ("EsmForMaskedLM", {**ENCODER, **ESM, "emb_layer_norm_before": True}),
    "esm-masked, own head": (
        "EsmForMaskedLM",
        {**ENCODER, **ESM, "emb_layer_norm_before": False, "tie_word_embeddings": False},
    ),
    "roberta-masked": ("RobertaForMaskedLM", {**ENCODER, "max_position_embeddings": 31, "type_vocab_size": 1}),
    "roberta": ("RobertaForTokenClassification", {**ENCODER, "max_position_embeddings": 31, "type_vocab_size": 1}),
    "bart": ("BartForConditionalGeneration", {**PAIR, "scale_embedding": True}),
    "mbart": ("MBartForConditionalGeneration", {**PAIR, "activation_function": "relu"}),
    "marian": ("MarianMTModel", {**PAIR, "scale_embedding": True}),
    "blenderbot": ("BlenderbotForConditionalGeneration", PAIR),
    "pegasus": ("PegasusForConditionalGeneration", PAIR),
    "t5": ("T5ForConditionalGeneration", T5),
    "t5, gated": ("T5ForConditionalGeneration", {**T5, "feed_forward_proj": "gated-silu"}),
}
"""Class of each case, and the settings that differ from the class's defaults."""


def new_model(name: str, **changes: Any) -> Any:
    """Return the model of one of `CASES`, with transformers' random initial weights."""
    kind, values = CASES[name]
    cls = getattr(transformers, kind)
    torch.manual_seed(0)
    return cls(cls.config_class(**{**values, **changes})).eval()


def their_model(name: str, **changes: Any) -> Any:
    """Return the model of one of `CASES`, with all weights and biases changed at random except tables of sinusoids."""
    model = new_model(name, **changes)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for owner in model.modules():
            if "Sinusoidal" not in type(owner).__name__:
                for tensor in owner.parameters(recurse=False):
                    tensor.add_(torch.randn(tensor.shape, generator=generator) * 0.15)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.copy_(torch.randn(1, V, generator=generator))
    return model


def save(name: str, folder: Path, **changes: Any) -> Any:
    """Save the model of one of `CASES` with `save_pretrained`, and return the model."""
    model = their_model(name, **changes)
    model.save_pretrained(folder)
    return model


def rows() -> tuple[Tensor, Tensor, Tensor]:
    """Return sources (2, 19), the mask of their real tokens (2, 19), and targets (2, 11); padding has the id 1."""
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(3, V, (2, 19), generator=generator)
    real = torch.arange(19) < torch.tensor([[19], [13]])
    return tokens.masked_fill(~real, 1), real, torch.randint(3, V, (2, 11), generator=generator)


@torch.no_grad()
def their_logits(model: Any) -> Tensor:
    """Return the logits (N, V) of a Hugging Face model at the N positions of `rows` that are not padding."""
    tokens, real, target = rows()
    if model.config.is_encoder_decoder:
        found = model(input_ids=tokens, attention_mask=real.long(), decoder_input_ids=target).logits
        return found.flatten(0, 1)
    return model(input_ids=tokens, attention_mask=real.long()).logits[real]


@torch.no_grad()
def our_logits(model: nn.Module) -> Tensor:
    """Return the logits (N, V) of a model of this library at the same positions as `their_logits`."""
    tokens, real, target = rows()
    if hasattr(model, "decode"):
        return model(tokens, target, real).flatten(0, 1)
    return model(tokens, real)[real]


def change_config(folder: Path, **changes: Any) -> None:
    """Change fields of the `config.json` in a folder; the value `...` deletes a field."""
    path = folder / "config.json"
    values = {**json.loads(path.read_text(encoding="utf-8")), **changes}
    path.write_text(json.dumps({key: v for key, v in values.items() if v is not ...}), encoding="utf-8")
