"""Decoder architectures: GPT-2, and architectures with rotary positions."""

from __future__ import annotations

from glassformer.interop.huggingface.architecture import Architecture
from glassformer.interop.huggingface.attention_fields import HeadFields, Rope, Window
from glassformer.interop.huggingface.fields import (
    ChoiceField,
    ConfigReader,
    Field,
    FixedSetting,
    NumberField,
    RestrictedField,
)
from glassformer.interop.huggingface.weights import SAME, TRANSPOSED, Change, Implied, Rule, Weight, weight

PLAIN = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu", "relu": "relu", "relu2": "relu2"}
"""Hugging Face's name of an activation without a gate -> our name."""
GATES = {"silu": "swiglu", "swish": "swiglu", "gelu": "geglu"}
"""Hugging Face's name of an activation with a gate -> our name."""


def _four_widths(theirs: ConfigReader) -> int:
    return 4 * int(theirs.number("n_embd", int))


SIZES: tuple[Field, ...] = (
    NumberField("vocab_size", "vocab_size"),
    NumberField("hidden_size", "width"),
    NumberField("intermediate_size", "hidden"),
    NumberField("num_hidden_layers", "layers"),
    NumberField("max_position_embeddings", "context"),
)
PLAIN_ENDS: tuple[Field, ...] = (
    FixedSetting("head_bias", (False,)),
    FixedSetting("head_transform", (False,)),
    FixedSetting("embedding_norm", (False,)),
    FixedSetting("embedding_scale", (False,)),
)
NO_EXTRAS: tuple[Field, ...] = (FixedSetting("norm_order", ("pre",)), *PLAIN_ENDS)
ATTENTION_DROPOUT = NumberField("attention_dropout", "dropout_attention", float, 0.0)


def _linear(ours: str, theirs: str, change: Change, bias: bool, always: bool) -> list[Rule]:
    rules: list[Rule] = [weight(f"{ours}.weight", f"{theirs}.weight", change)]
    return [*rules, weight(f"{ours}.bias", f"{theirs}.bias", change, always)] if bias else rules


def _block(ours: str, theirs: str, bias: bool = True, always: bool = False) -> list[Rule]:
    """Return the rules of a linear layer or norm in every block, with its bias."""
    return _linear(f"stack.blocks.{{i}}.{ours}", f"model.layers.{{i}}.{theirs}", SAME, bias, always)


def _llama_like(
    up: str = "mlp.up_proj",
    down: str = "mlp.down_proj",
    gate: str | None = "mlp.gate_proj",
    output_bias: bool = True,
    feedforward_bias: bool = True,
    norm_bias: bool = False,
    query_bias: bool = False,
    norms: tuple[str, str] = ("input_layernorm", "post_attention_layernorm"),
) -> tuple[Rule, ...]:
    """Return the rules of a class with rotary positions."""
    rules: list[Rule] = [weight("embedding.tokens.weight", "model.embed_tokens.weight")]
    for ours, theirs in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj")):
        rules += _block(f"attention.{ours}", f"self_attn.{theirs}", always=query_bias)
    rules += _block("attention.output", "self_attn.o_proj", bias=output_bias)
    if not output_bias:
        rules.append(Implied("stack.blocks.{i}.attention.output.bias"))
    for ours, theirs in (("query_norm", "q_norm"), ("key_norm", "k_norm")):
        rules += _block(f"attention.{ours}", f"self_attn.{theirs}", bias=False)
    rules += _block("feedforward.up", up, bias=feedforward_bias)
    rules += _block("feedforward.down", down, bias=feedforward_bias)
    if gate is not None:
        rules += _block("feedforward.gate", gate, bias=feedforward_bias)
    for ours, theirs in zip(("attention_norm", "feedforward_norm"), norms, strict=True):
        rules += _block(ours, theirs, bias=norm_bias, always=norm_bias)
    rules.append(weight("stack.norm.weight", "model.norm.weight"))
    if norm_bias:
        rules.append(weight("stack.norm.bias", "model.norm.bias", always=True))
    return (*rules, weight("head.weight", "lm_head.weight"))


def _gpt2_rules() -> tuple[Rule, ...]:
    our_block = "stack.blocks.{i}"
    their_block = "transformer.h.{i}"
    rules: list[Rule] = [
        weight("embedding.tokens.weight", "transformer.wte.weight"),
        weight("embedding.positions.table.weight", "transformer.wpe.weight"),
    ]
    for kind in ("weight", "bias"):
        joined = tuple(f"{our_block}.attention.{part}.{kind}" for part in ("query", "key", "value"))
        rules.append(Weight(joined, f"{their_block}.attn.c_attn.{kind}", TRANSPOSED, always=kind == "bias"))
    for ours, name in (
        ("attention.output", "attn.c_proj"),
        ("feedforward.up", "mlp.c_fc"),
        ("feedforward.down", "mlp.c_proj"),
    ):
        rules += _linear(f"{our_block}.{ours}", f"{their_block}.{name}", TRANSPOSED, bias=True, always=True)
    for ours, name in (
        (f"{our_block}.attention_norm", f"{their_block}.ln_1"),
        (f"{our_block}.feedforward_norm", f"{their_block}.ln_2"),
        ("stack.norm", "transformer.ln_f"),
    ):
        rules += [weight(f"{ours}.weight", f"{name}.weight"), weight(f"{ours}.bias", f"{name}.bias", always=True)]
    return (*rules, weight("head.weight", "lm_head.weight"))


GPT2 = Architecture(
    name="gpt2",
    classes={"lm": "GPT2LMHeadModel"},
    family="decoder",
    fields=(
        NumberField("vocab_size", "vocab_size"),
        NumberField("n_embd", "width"),
        NumberField("n_layer", "layers"),
        NumberField("n_positions", "context"),
        NumberField("n_inner", "hidden", otherwise=_four_widths),
        HeadFields("n_head", width="n_embd"),
        ChoiceField("activation_function", "activation", PLAIN, "gelu_new"),
        NumberField("layer_norm_epsilon", "norm_eps", float, 1e-5),
        NumberField("tie_word_embeddings", "tied", bool, True),
        NumberField("resid_pdrop", "dropout_residual", float, 0.1),
        NumberField("embd_pdrop", "dropout_embedding", float, 0.1),
        NumberField("attn_pdrop", "dropout_attention", float, 0.1),
        RestrictedField("scale_attn_weights", (True,), True),
        RestrictedField("scale_attn_by_inverse_layer_idx", (False,), False),
        RestrictedField("reorder_and_upcast_attn", (False, True), False),
        FixedSetting("positions", ("learned",)),
        FixedSetting("norm", ("layernorm",)),
        FixedSetting("norm_bias", (True, False)),
        FixedSetting("attention_bias", (True, False)),
        FixedSetting("feedforward_bias", (True, False)),
        FixedSetting("window", (None,)),
        FixedSetting("qk_norm", ("none",)),
        *NO_EXTRAS,
    ),
    rules=_gpt2_rules(),
    prefix="transformer.",
    ignored=(".attn.bias", ".attn.masked_bias"),
    rewrites=("sinusoids_as_table", "scale_inside"),
)
_RMS_FIELDS: tuple[Field, ...] = (FixedSetting("norm", ("rmsnorm",)), FixedSetting("norm_bias", (False,)))
_LLAMA_HEADS = HeadFields("num_attention_heads", "num_key_value_heads", "head_dim")

LLAMA = Architecture(
    name="llama",
    classes={"lm": "LlamaForCausalLM"},
    family="decoder",
    fields=(
        *SIZES,
        _LLAMA_HEADS,
        ChoiceField("hidden_act", "activation", GATES, "silu"),
        NumberField("rms_norm_eps", "norm_eps", float, 1e-6),
        NumberField("tie_word_embeddings", "tied", bool, False),
        NumberField("attention_bias", "attention_bias", bool, False),
        NumberField("mlp_bias", "feedforward_bias", bool, False),
        ATTENTION_DROPOUT,
        Rope(),
        FixedSetting("window", (None,)),
        FixedSetting("qk_norm", ("none",)),
        *_RMS_FIELDS,
        *NO_EXTRAS,
    ),
    rules=_llama_like(),
    ignored=(".rotary_emb.inv_freq",),
    rewrites=("scale_inside", "centred_stream"),
)
QWEN2 = Architecture(
    name="qwen2",
    classes={"lm": "Qwen2ForCausalLM"},
    family="decoder",
    fields=(
        *SIZES,
        HeadFields("num_attention_heads", "num_key_value_heads", default_kv=32),
        ChoiceField("hidden_act", "activation", GATES, "silu"),
        NumberField("rms_norm_eps", "norm_eps", float, 1e-6),
        NumberField("tie_word_embeddings", "tied", bool, False),
        ATTENTION_DROPOUT,
        Rope(),
        Window(mixes=True),
        FixedSetting("attention_bias", (True, False)),  # the output bias, which the class lacks, must be zero
        FixedSetting("feedforward_bias", (False,)),
        FixedSetting("qk_norm", ("none",)),
        *_RMS_FIELDS,
        *NO_EXTRAS,
    ),
    rules=_llama_like(output_bias=False, feedforward_bias=False, query_bias=True),
    rewrites=("scale_inside",),
)
QWEN3 = Architecture(
    name="qwen3",
    classes={"lm": "Qwen3ForCausalLM"},
    family="decoder",
    fields=(
        *SIZES,
        HeadFields("num_attention_heads", "num_key_value_heads", "head_dim", default_kv=32, default_width=128),
        ChoiceField("hidden_act", "activation", GATES, "silu"),
        NumberField("rms_norm_eps", "norm_eps", float, 1e-6),
        NumberField("tie_word_embeddings", "tied", bool, False),
        NumberField("attention_bias", "attention_bias", bool, False),
        ATTENTION_DROPOUT,
        Rope(),
        Window(mixes=True),
        FixedSetting("qk_norm", ("head",)),
        FixedSetting("feedforward_bias", (False,)),
        *_RMS_FIELDS,
        *NO_EXTRAS,
    ),
    rules=_llama_like(feedforward_bias=False),
    rewrites=("scale_inside",),
)
OLMO2 = Architecture(
    name="olmo2",
    classes={"lm": "Olmo2ForCausalLM"},
    family="decoder",
    fields=(
        *SIZES,
        HeadFields("num_attention_heads", "num_key_value_heads"),
        ChoiceField("hidden_act", "activation", GATES, "silu"),
        NumberField("rms_norm_eps", "norm_eps", float, 1e-5),
        NumberField("tie_word_embeddings", "tied", bool, False),
        NumberField("attention_bias", "attention_bias", bool, False),
        ATTENTION_DROPOUT,
        Rope(),
        FixedSetting("window", (None,)),
        FixedSetting("qk_norm", ("whole",)),
        FixedSetting("norm_order", ("output",)),
        FixedSetting("feedforward_bias", (False,)),
        *_RMS_FIELDS,
        *PLAIN_ENDS,
    ),
    rules=_llama_like(feedforward_bias=False, norms=("post_attention_layernorm", "post_feedforward_layernorm")),
    rewrites=("scale_inside",),
)
"""Norms are at the outputs of attention and feed-forward layers, and queries and keys are normalized over all heads
(Team OLMo 2025, section 2)."""
STARCODER2 = Architecture(
    name="starcoder2",
    classes={"lm": "Starcoder2ForCausalLM"},
    family="decoder",
    fields=(
        *SIZES,
        HeadFields("num_attention_heads", "num_key_value_heads", default_kv=2),
        ChoiceField("hidden_act", "activation", {"gelu_pytorch_tanh": "gelu_tanh", **PLAIN}, "gelu_pytorch_tanh"),
        RestrictedField("norm_type", ("layer_norm",), "layer_norm", written=False),
        RestrictedField("mlp_type", ("default",), "default", written=False),
        NumberField("norm_epsilon", "norm_eps", float, 1e-5),
        NumberField("tie_word_embeddings", "tied", bool, True),
        NumberField("use_bias", "attention_bias", bool, True),
        NumberField("use_bias", "feedforward_bias", bool, True),
        ATTENTION_DROPOUT,
        NumberField("residual_dropout", "dropout_residual", float, 0.0),
        NumberField("embedding_dropout", "dropout_embedding", float, 0.0),
        Rope(),
        Window(),
        FixedSetting("norm", ("layernorm",)),
        FixedSetting("norm_bias", (True, False)),
        FixedSetting("qk_norm", ("none",)),
        *NO_EXTRAS,
    ),
    rules=_llama_like("mlp.c_fc", "mlp.c_proj", None, norm_bias=True),
    rewrites=("scale_inside", "same_biases"),
)
STABLELM = Architecture(
    name="stablelm",
    classes={"lm": "StableLmForCausalLM"},
    family="decoder",
    fields=(
        *SIZES,
        HeadFields("num_attention_heads", "num_key_value_heads", default_kv=32),
        ChoiceField("hidden_act", "activation", GATES, "silu"),
        NumberField("layer_norm_eps", "norm_eps", float, 1e-5),
        NumberField("tie_word_embeddings", "tied", bool, False),
        NumberField("use_qkv_bias", "attention_bias", bool, False),
        ATTENTION_DROPOUT,
        NumberField("hidden_dropout", "dropout_residual", float, 0.0),
        Rope(rotary_fraction=0.25, writes_partial=True),
        RestrictedField("qk_layernorm", (False,), False),
        RestrictedField("use_parallel_residual", (False,), False),
        FixedSetting("feedforward_bias", (False,)),
        FixedSetting("window", (None,)),
        FixedSetting("norm", ("layernorm",)),
        FixedSetting("norm_bias", (True, False)),
        FixedSetting("qk_norm", ("none",)),
        *NO_EXTRAS,
    ),
    rules=_llama_like(output_bias=False, feedforward_bias=False, norm_bias=True),
    rewrites=("scale_inside",),
)
ARCEE = Architecture(
    name="arcee",
    classes={"lm": "ArceeForCausalLM"},
    family="decoder",
    fields=(
        *SIZES,
        _LLAMA_HEADS,
        ChoiceField("hidden_act", "activation", {"relu2": "relu2", **PLAIN}, "relu2"),
        NumberField("rms_norm_eps", "norm_eps", float, 1e-5),
        NumberField("tie_word_embeddings", "tied", bool, False),
        NumberField("attention_bias", "attention_bias", bool, False),
        NumberField("mlp_bias", "feedforward_bias", bool, False),
        ATTENTION_DROPOUT,
        Rope(),
        FixedSetting("window", (None,)),
        FixedSetting("qk_norm", ("none",)),
        *_RMS_FIELDS,
        *NO_EXTRAS,
    ),
    rules=_llama_like(gate=None),
    rewrites=("scale_inside",),
)
