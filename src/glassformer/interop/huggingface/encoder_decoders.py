"""Encoder-decoder architectures: BART and its relatives, which differ in norm order and positions, and T5."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from glassformer.base.config import GATED, ModelConfig
from glassformer.interop.huggingface.architecture import Architecture
from glassformer.interop.huggingface.attention_fields import HeadFields
from glassformer.interop.huggingface.decoders import PLAIN
from glassformer.interop.huggingface.fields import (
    ChoiceField,
    ConfigReader,
    Field,
    FixedSetting,
    NumberField,
    Refusal,
    RestrictedField,
)
from glassformer.interop.huggingface.weights import (
    ONE_ROW,
    SAME,
    SHRUNK,
    UNSCALED,
    Change,
    Implied,
    Rule,
    Sinusoids,
    rows_before,
    weight,
)

_BART_FIELDS: tuple[Field, ...] = (
    NumberField("vocab_size", "vocab_size"),
    NumberField("d_model", "width"),
    NumberField("decoder_layers", "layers"),
    NumberField("encoder_layers", "encoder_layers"),
    NumberField(("encoder_ffn_dim", "decoder_ffn_dim"), "hidden"),
    NumberField(("encoder_attention_heads", "decoder_attention_heads"), "heads"),
    NumberField("max_position_embeddings", "context"),
    HeadFields("encoder_attention_heads", width="d_model"),
    ChoiceField("activation_function", "activation", {"gelu": "gelu", **PLAIN}, "gelu"),
    NumberField("scale_embedding", "embedding_scale", bool, False),
    NumberField("dropout", "dropout_embedding", float, 0.1),
    NumberField("dropout", "dropout_residual", float, 0.1),
    NumberField("attention_dropout", "dropout_attention", float, 0.0),
    RestrictedField("tie_word_embeddings", (True,), True),
    RestrictedField("is_decoder", (False,), False),
    FixedSetting("tied", (True,)),
    FixedSetting("norm", ("layernorm",)),
    FixedSetting("norm_eps", (1e-5,)),
    FixedSetting("norm_bias", (True, False)),
    FixedSetting("attention_bias", (True, False)),
    FixedSetting("feedforward_bias", (True, False)),
    FixedSetting("head_bias", (True, False)),
    FixedSetting("window", (None,)),
    FixedSetting("qk_norm", ("none",)),
    FixedSetting("head_transform", (False,)),
)
_EMBEDDING_COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
_EMBEDDING_ALIASES = dict.fromkeys(
    (*(f"model.{name}" for name in _EMBEDDING_COPIES), "lm_head.weight"), "model.shared.weight"
)


def _bart_rules(positions: Change | None, embedding_norm: bool, last_norm: bool) -> tuple[Rule, ...]:
    rules: list[Rule] = [
        weight("embedding.tokens.weight", "model.shared.weight"),
        weight("head.bias", "final_logits_bias", ONE_ROW, always=True),
        Implied("source_embedding.tokens.weight", equals="embedding.tokens.weight"),
    ]
    for stack, table in (("encoder", "source_embedding"), ("decoder", "embedding")):
        our_block = f"{stack}.blocks.{{i}}"
        their_block = f"model.{stack}.layers.{{i}}"
        parts = {
            "feedforward.up": "fc1",
            "feedforward.down": "fc2",
            "attention_norm": "self_attn_layer_norm",
            "feedforward_norm": "final_layer_norm",
            "attention.query": "self_attn.q_proj",
            "attention.key": "self_attn.k_proj",
            "attention.value": "self_attn.v_proj",
            "attention.output": "self_attn.out_proj",
        }
        if stack == "decoder":
            cross = {
                name.replace("attention.", "cross."): theirs.replace("self_attn", "encoder_attn")
                for name, theirs in parts.items()
                if name.startswith("attention.")
            }
            parts = {**parts, **cross, "cross_norm": "encoder_attn_layer_norm"}
        names = {f"{our_block}.{ours}": f"{their_block}.{theirs}" for ours, theirs in parts.items()}
        names |= {f"{table}.norm": f"model.{stack}.layernorm_embedding"} if embedding_norm else {}
        names |= {f"{stack}.norm": f"model.{stack}.layer_norm"} if last_norm else {}
        for ours, theirs in names.items():
            rules.append(weight(f"{ours}.weight", f"{theirs}.weight"))
            rules.append(weight(f"{ours}.bias", f"{theirs}.bias", always=True))
        if positions is None:
            rules.append(Sinusoids(f"model.{stack}.embed_positions.weight"))
        else:
            rules.append(weight(f"{table}.positions.table.weight", f"model.{stack}.embed_positions.weight", positions))
    return tuple(rules)


def _vocab_size(theirs: ConfigReader) -> int:
    return int(theirs.number("vocab_size", int))


_MARIAN_FIELDS: tuple[Field, ...] = (
    RestrictedField("share_encoder_decoder_embeddings", (True,), True),
    NumberField("decoder_vocab_size", "vocab_size", otherwise=_vocab_size),
)


@dataclass(frozen=True)
class _RedundantFields:
    """Optional fields that repeat properties of the class, and must agree with them."""

    order: str
    sinusoidal: bool
    embedding_norm: bool

    def read(self, theirs: ConfigReader) -> dict[str, Any]:
        """Check that the optional fields agree with the class, and return no settings."""
        theirs.same("num_hidden_layers", theirs.number("encoder_layers", int))
        theirs.same("normalize_before", self.order == "pre")
        theirs.same("add_final_layer_norm", self.order == "pre")
        theirs.same("static_position_embeddings", self.sinusoidal)
        theirs.same("normalize_embedding", self.embedding_norm)
        return {}

    def write(self, config: ModelConfig) -> dict[str, Any]:
        """Return the fields that CTranslate2's converter requires, although the class implies them in transformers."""
        return {
            "normalize_before": self.order == "pre",
            "add_final_layer_norm": self.order == "pre",
            "normalize_embedding": self.embedding_norm,
        }

    def refusals(self, config: ModelConfig) -> list[Refusal]:
        return []


def _bart_like(name: str, kind: str, order: str, positions: Change | None, embedding_norm: bool) -> Architecture:
    sinusoidal = positions is None
    return Architecture(
        name=name,
        classes={"translate": kind, "summarize": kind},
        family="encoder-decoder",
        fields=(
            *_BART_FIELDS,
            _RedundantFields(order, sinusoidal, embedding_norm),
            FixedSetting("positions", ("sinusoidal" if sinusoidal else "learned",)),
            FixedSetting("norm_order", (order,)),
            FixedSetting("embedding_norm", (embedding_norm,)),
            FixedSetting("shared_embedding", (False,)),
            *(_MARIAN_FIELDS if name == "marian" else ()),
        ),
        rules=_bart_rules(positions, embedding_norm, order == "pre"),
        aliases=_EMBEDDING_ALIASES,
        rewrites=("two_embeddings", *(("sines_first",) if sinusoidal else ("sinusoids_as_table",))),
    )


BART = _bart_like("bart", "BartForConditionalGeneration", "post", rows_before(2), True)
MBART = _bart_like("mbart", "MBartForConditionalGeneration", "pre", rows_before(2), True)
MARIAN = _bart_like("marian", "MarianMTModel", "post", None, False)
BLENDERBOT = _bart_like("blenderbot", "BlenderbotForConditionalGeneration", "pre", SAME, False)
PEGASUS = _bart_like("pegasus", "PegasusForConditionalGeneration", "pre", None, False)


def _gated(config: ModelConfig) -> bool:
    return config.activation in GATED


def _plain(config: ModelConfig) -> bool:
    return config.activation not in GATED


def _t5_rules() -> tuple[Rule, ...]:
    rules: list[Rule] = [weight("embedding.tokens.weight", "shared.weight")]
    for stack in ("encoder", "decoder"):
        our_block = f"{stack}.blocks.{{i}}"
        layer = f"{stack}.block.{{i}}.layer"
        attentions = [("attention", f"{layer}.0.SelfAttention", f"{layer}.0.layer_norm")]
        if stack == "decoder":
            attentions.append(("cross", f"{layer}.1.EncDecAttention", f"{layer}.1.layer_norm"))
        last = len(attentions)
        for part, theirs, norm in attentions:
            rules += [
                weight(f"{our_block}.{part}.query.weight", f"{theirs}.q.weight", UNSCALED),
                weight(f"{our_block}.{part}.key.weight", f"{theirs}.k.weight"),
                weight(f"{our_block}.{part}.value.weight", f"{theirs}.v.weight"),
                weight(f"{our_block}.{part}.output.weight", f"{theirs}.o.weight"),
                weight(f"{our_block}.{part}_norm.weight", f"{norm}.weight"),
            ]
        dense = f"{layer}.{last}.DenseReluDense"
        rules += [
            weight(f"{our_block}.feedforward_norm.weight", f"{layer}.{last}.layer_norm.weight"),
            weight(f"{our_block}.feedforward.down.weight", f"{dense}.wo.weight"),
            weight(f"{our_block}.feedforward.up.weight", f"{dense}.wi_1.weight", when=_gated),
            weight(f"{our_block}.feedforward.up.weight", f"{dense}.wi.weight", when=_plain),
            weight(f"{our_block}.feedforward.gate.weight", f"{dense}.wi_0.weight"),
            weight(
                f"{stack}.score_positions.table.weight",
                f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
            ),
            weight(f"{stack}.norm.weight", f"{stack}.final_layer_norm.weight", SHRUNK if stack == "decoder" else SAME),
        ]
    return tuple(rules)


def _encoder_layers(theirs: ConfigReader) -> int:
    return int(theirs.number("num_layers", int))


_T5_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "relu2": "relu2",
    "gated-silu": "swiglu",
    "gated-gelu_python": "geglu",
}
"""T5's name of an activation -> our name. The name gated-gelu is missing, because this activation uses the
tanh approximation, unlike our geglu; gated-gelu_python is exact."""


class _FeedForwardField(ChoiceField):
    """T5's feed-forward activation, which newer files repeat in derived fields."""

    def read(self, theirs: ConfigReader) -> dict[str, Any]:
        """Return the activation, and check the fields that newer files derive from it."""
        activation = str(theirs.get(self.theirs, self.default))
        for name, expected in (
            ("dense_act_fn", activation.removeprefix("gated-")),
            ("is_gated_act", activation.startswith("gated")),
        ):
            if theirs.get(name, expected) != expected:
                raise theirs.refuse(name, theirs.get(name), f"{self.theirs} = {activation} implies {expected}.")
        return super().read(theirs)


T5 = Architecture(
    name="t5",
    classes={"translate": "T5ForConditionalGeneration", "summarize": "T5ForConditionalGeneration"},
    family="encoder-decoder",
    fields=(
        NumberField("vocab_size", "vocab_size"),
        NumberField("d_model", "width"),
        NumberField("d_ff", "hidden"),
        NumberField("num_layers", "encoder_layers"),
        NumberField("num_decoder_layers", "layers", otherwise=_encoder_layers),
        NumberField("n_positions", "context", default=512),
        HeadFields("num_heads", head_width="d_kv", default_width=64, width="d_model"),
        NumberField("relative_attention_num_buckets", "relative_buckets", default=32),
        NumberField("relative_attention_max_distance", "relative_max_distance", default=128),
        _FeedForwardField("feed_forward_proj", "activation", _T5_ACTIVATIONS, "relu"),
        NumberField("layer_norm_epsilon", "norm_eps", float, 1e-6),
        NumberField("dropout_rate", "dropout_embedding", float, 0.1),
        NumberField("dropout_rate", "dropout_residual", float, 0.1),
        NumberField("dropout_rate", "dropout_attention", float, 0.1),
        RestrictedField("tie_word_embeddings", (True,), True),
        RestrictedField("scale_decoder_outputs", (True,), True, written=False),
        RestrictedField("is_decoder", (False,), False),
        FixedSetting("positions", ("relative",)),
        FixedSetting("norm", ("rmsnorm",)),
        FixedSetting("norm_order", ("pre",)),
        FixedSetting("tied", (True,)),
        FixedSetting("shared_embedding", (True,)),
        FixedSetting("embedding_norm", (False,)),
        FixedSetting("embedding_scale", (False,)),
        FixedSetting("norm_bias", (False,)),
        FixedSetting("attention_bias", (False,)),
        FixedSetting("feedforward_bias", (False,)),
        FixedSetting("head_bias", (False,)),
        FixedSetting("window", (None,)),
        FixedSetting("qk_norm", ("none",)),
        FixedSetting("head_transform", (False,)),
    ),
    rules=_t5_rules(),
    prefix="",
    aliases=dict.fromkeys((*_EMBEDDING_COPIES, "lm_head.weight"), "shared.weight"),
    ignored=("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",),
)
