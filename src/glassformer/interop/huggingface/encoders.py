"""Encoder architectures: BERT, RoBERTa, DeBERTa and ESM, in the classes whose heads our models can express.

`…ForMaskedLM` has a linear layer, an activation and a norm before the output layer: our `head_transform`.
`…ForTokenClassification` has only a linear layer. With the vocabulary as labels, it is our masked language model
without the transform. With a classifier's labels, it scores each token; `summary_type` states whether the scores of a
text are those of its first token or the mean over its tokens.

`BertForSequenceClassification` has a linear layer and tanh before the output layer, which our models lack. DeBERTa
without relative positions is BERT, and its pooling layer can be the identity without an activation, so it can express a
classifier that reads the first token. For BERT and ESM, transformers has no classifier that averages over all tokens;
`bert_mean.py` and `esm_mean.py` define such classes.

ESM (Lin et al. 2023), made for proteins, is a plain pre-norm encoder with rotary positions.
"""

from __future__ import annotations

from glassformer.base.config import ModelConfig
from glassformer.interop.huggingface.architecture import Architecture
from glassformer.interop.huggingface.attention_fields import HeadFields
from glassformer.interop.huggingface.decoders import PLAIN, SIZES
from glassformer.interop.huggingface.fields import (
    ChoiceField,
    ConfigReader,
    Field,
    FixedSetting,
    NumberField,
    RestrictedField,
)
from glassformer.interop.huggingface.weights import SAME, Change, Folded, Neutral, Rule, Unused, rows_before, weight

_SHARED_FIELDS: tuple[Field, ...] = (
    *SIZES[:-1],
    HeadFields("num_attention_heads"),
    NumberField("layer_norm_eps", "norm_eps", float, 1e-12),
    NumberField("hidden_dropout_prob", "dropout_embedding", float, 0.1),
    NumberField("hidden_dropout_prob", "dropout_residual", float, 0.1),
    NumberField("attention_probs_dropout_prob", "dropout_attention", float, 0.1),
    RestrictedField("is_decoder", (False,), False),
    FixedSetting("norm", ("layernorm",)),
    FixedSetting("norm_bias", (True, False)),
    FixedSetting("attention_bias", (True, False)),
    FixedSetting("feedforward_bias", (True, False)),
    FixedSetting("head_bias", (True, False)),
    FixedSetting("embedding_scale", (False,)),
    FixedSetting("window", (None,)),
    FixedSetting("qk_norm", ("none",)),
)
_POST_NORM_FIELDS: tuple[Field, ...] = (
    *_SHARED_FIELDS,
    ChoiceField("hidden_act", "activation", {"gelu": "gelu", **PLAIN}, "gelu"),
    RestrictedField("position_embedding_type", ("absolute",), "absolute", written=False),
    FixedSetting("positions", ("learned",)),
    FixedSetting("norm_order", ("post",)),
    FixedSetting("embedding_norm", (True,)),
)
_LINEAR_HEAD_FIELDS: tuple[Field, ...] = (
    NumberField("tie_word_embeddings", "tied", bool, True),
    FixedSetting("head_transform", (False,)),
)
_LABEL_HEAD_FIELDS: tuple[Field, ...] = (
    RestrictedField("tie_word_embeddings", (True, False), True),
    FixedSetting("tied", (False,)),
    FixedSetting("head_transform", (False,)),
)
_MASKED_HEAD_FIELDS: tuple[Field, ...] = (
    NumberField("tie_word_embeddings", "tied", bool, True),
    FixedSetting("head_transform", (True,)),
)
_BERT_FIELDS: tuple[Field, ...] = (SIZES[-1], RestrictedField("type_vocab_size", (2,), 2))
_ROBERTA_FIELDS: tuple[Field, ...] = (
    NumberField("max_position_embeddings", "context", less=2),
    RestrictedField("type_vocab_size", (1,), 2),
    RestrictedField("pad_token_id", (1,), 1),  # positions start after the id of the padding token
)


def _hidden_size(theirs: ConfigReader) -> int:
    return int(theirs.number("hidden_size", int))


_OLD_NORM_SUFFIXES = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
"""Suffixes of norm names, each with the corresponding suffix in files from 2019."""


def _bert_rules(
    prefix: str, positions: Change, token_types: int, head: dict[str, str], suffix: str = ""
) -> tuple[Rule, ...]:
    """Return the rules of a BERT-like class.

    `head` maps the layers of our head to those of the class; `suffix` is appended to the names of the query, key and
    value layers.
    """
    their_block = f"{prefix}.encoder.layer.{{i}}"
    our_block = "stack.blocks.{i}"
    matrices = {
        f"{our_block}.attention.query": f"{their_block}.attention.self.query{suffix}",
        f"{our_block}.attention.key": f"{their_block}.attention.self.key{suffix}",
        f"{our_block}.attention.value": f"{their_block}.attention.self.value{suffix}",
        f"{our_block}.attention.output": f"{their_block}.attention.output.dense",
        f"{our_block}.attention_norm": f"{their_block}.attention.output.LayerNorm",
        f"{our_block}.feedforward.up": f"{their_block}.intermediate.dense",
        f"{our_block}.feedforward.down": f"{their_block}.output.dense",
        f"{our_block}.feedforward_norm": f"{their_block}.output.LayerNorm",
        "embedding.norm": f"{prefix}.embeddings.LayerNorm",
        **head,
    }
    token_embedding = f"{prefix}.embeddings.word_embeddings.weight"
    position_embedding = f"{prefix}.embeddings.position_embeddings.weight"
    tied = "head.transform" in head  # then the token embedding is also the matrix of the head
    rules: list[Rule] = [
        weight("embedding.tokens.weight", token_embedding),
        weight("embedding.positions.table.weight", position_embedding, positions),
    ]
    if token_types:
        rules.append(
            Folded(
                f"{prefix}.embeddings.token_type_embeddings.weight",
                token_types,
                position_embedding if tied else token_embedding,
            )
        )
    for ours, theirs in matrices.items():
        rules += [weight(f"{ours}.weight", f"{theirs}.weight"), weight(f"{ours}.bias", f"{theirs}.bias", always=True)]
    return tuple(rules)


def _masked_rules(
    prefix: str, positions: Change, token_types: int, head: str, transform: dict[str, str]
) -> tuple[Rule, ...]:
    """Return the rules of a class with a head for masked tokens.

    The bias of the output layer has two names; if a file has both, `.decoder.bias` is used.
    """
    head_layers = {"head.transform": transform["linear"], "head.norm": transform["norm"], "head": f"{head}.decoder"}
    return (weight("head.bias", f"{head}.bias", always=True), *_bert_rules(prefix, positions, token_types, head_layers))


def _masked_aliases(prefix: str, head: str) -> dict[str, str]:
    """Return the additional names of the tied embedding and of the bias; see `Architecture.aliases`."""
    return {
        f"{head}.decoder.weight": f"{prefix}.embeddings.word_embeddings.weight",
        f"{head}.bias": f"{head}.decoder.bias",
        f"{head}.decoder.bias": f"{head}.bias",
    }


BERT = Architecture(
    name="bert",
    classes={"masked": "BertForTokenClassification", "classify": "BertForTokenClassification"},
    family="encoder",
    fields=(*_POST_NORM_FIELDS, *_LABEL_HEAD_FIELDS, *_BERT_FIELDS),
    rules=_bert_rules("bert", SAME, 2, {"head": "classifier"}),
    prefix="bert.",
    ignored=(".embeddings.position_ids", "bert.pooler.dense.weight", "bert.pooler.dense.bias"),
    renamed=_OLD_NORM_SUFFIXES,
    rewrites=("sinusoids_as_table", "untied_head"),
)
_BERT_MEAN_AUTO_MAP = {
    "AutoConfig": "bert_mean.BertMeanConfig",
    "AutoModelForSequenceClassification": "bert_mean.BertMeanForSequenceClassification",
}
BERT_MEAN = Architecture(
    name="bert-mean",
    classes={"classify": "BertMeanForSequenceClassification"},
    family="encoder",
    fields=(
        *_POST_NORM_FIELDS,
        *_LINEAR_HEAD_FIELDS,
        *_BERT_FIELDS,
        FixedSetting("pooling", ("mean",)),
        RestrictedField("auto_map", (_BERT_MEAN_AUTO_MAP,), _BERT_MEAN_AUTO_MAP),
    ),
    rules=_bert_rules("bert", SAME, 2, {"head": "classifier"}),
    prefix="bert.",
    ignored=BERT.ignored,
    rewrites=("sinusoids_as_table",),
    own_code="bert_mean",
)
"""The class defined in `bert_mean.py`."""
DEBERTA = Architecture(
    name="deberta-v2",
    classes={"classify": "DebertaV2ForSequenceClassification"},
    family="encoder",
    fields=(
        *_POST_NORM_FIELDS,
        *_LINEAR_HEAD_FIELDS,
        SIZES[-1],
        RestrictedField("type_vocab_size", (0,), 0),
        RestrictedField("relative_attention", (False,), False),
        RestrictedField("position_biased_input", (True,), True),
        RestrictedField("pos_att_type", (None, []), None),
        RestrictedField("max_relative_positions", (-1,), -1),
        RestrictedField("pooler_hidden_act", ("linear",), "gelu"),
        RestrictedField("pooler_dropout", (0.0,), 0.0),
        RestrictedField("legacy", (True, False), True),
        RestrictedField("norm_rel_ebd", ("none",), "none", written=False),
        NumberField("pooler_hidden_size", "width", otherwise=_hidden_size),
        FixedSetting("pooling", ("first",)),
    ),
    rules=(
        *_bert_rules("deberta", SAME, 0, {"head": "classifier"}, "_proj"),
        Neutral("pooler.dense.weight", matrix=True),
        Neutral("pooler.dense.bias", matrix=False),
    ),
    prefix="deberta.",
    ignored=(".embeddings.position_ids",),
    rewrites=("sinusoids_as_table",),
)
BERT_MASKED = Architecture(
    name="bert-masked",
    classes={"masked": "BertForMaskedLM"},
    family="encoder",
    fields=(*_POST_NORM_FIELDS, *_MASKED_HEAD_FIELDS, *_BERT_FIELDS),
    rules=_masked_rules(
        "bert",
        SAME,
        2,
        "cls.predictions",
        {"linear": "cls.predictions.transform.dense", "norm": "cls.predictions.transform.LayerNorm"},
    ),
    prefix="bert.",
    aliases=_masked_aliases("bert", "cls.predictions"),
    ignored=(*BERT.ignored, "cls.seq_relationship.weight", "cls.seq_relationship.bias"),
    renamed=_OLD_NORM_SUFFIXES,
    rewrites=("sinusoids_as_table",),
)
ROBERTA = Architecture(
    name="roberta",
    classes={"masked": "RobertaForTokenClassification", "classify": "RobertaForTokenClassification"},
    family="encoder",
    fields=(*_POST_NORM_FIELDS, *_LABEL_HEAD_FIELDS, *_ROBERTA_FIELDS),
    rules=_bert_rules("roberta", rows_before(2), 1, {"head": "classifier"}),
    prefix="roberta.",
    ignored=(".embeddings.position_ids", "roberta.pooler.dense.weight", "roberta.pooler.dense.bias"),
    rewrites=("sinusoids_as_table", "untied_head"),
    needs_padding=1,
)
ROBERTA_MASKED = Architecture(
    name="roberta-masked",
    classes={"masked": "RobertaForMaskedLM"},
    family="encoder",
    fields=(
        *_POST_NORM_FIELDS,
        *_MASKED_HEAD_FIELDS,
        *_ROBERTA_FIELDS,
        FixedSetting("activation", ("gelu",)),
    ),  # the activation in the head, which does not depend on hidden_act
    rules=_masked_rules(
        "roberta", rows_before(2), 1, "lm_head", {"linear": "lm_head.dense", "norm": "lm_head.layer_norm"}
    ),
    prefix="roberta.",
    aliases=_masked_aliases("roberta", "lm_head"),
    ignored=ROBERTA.ignored,
    rewrites=("sinusoids_as_table",),
    needs_padding=1,
)


def _false(theirs: ConfigReader) -> bool:
    return False


_ESM_FIELDS: tuple[Field, ...] = (
    *_SHARED_FIELDS,
    SIZES[-1],
    RestrictedField("position_embedding_type", ("rotary",), "absolute"),
    RestrictedField("token_dropout", (False,), False),
    RestrictedField("is_folding_model", (False,), False),
    RestrictedField("esmfold_config", (None,), None),
    RestrictedField("vocab_list", (None,), None),
    NumberField("emb_layer_norm_before", "embedding_norm", bool, otherwise=_false),
    NumberField("rope_theta", "rotary_base", float, 10_000.0),
    FixedSetting("positions", ("rotary",)),
    FixedSetting("norm_order", ("pre",)),
    FixedSetting("activation", ("gelu",)),
)


def _esm_rules(head: dict[str, str]) -> tuple[Rule, ...]:
    """Return the rules of an ESM class. `head` maps the layers of our head to those of the class."""
    our_block = "stack.blocks.{i}"
    their_block = "esm.encoder.layer.{i}"
    names = {
        "embedding.norm": "esm.embeddings.layer_norm",
        f"{our_block}.attention_norm": f"{their_block}.attention.LayerNorm",
        f"{our_block}.attention.query": f"{their_block}.attention.self.query",
        f"{our_block}.attention.key": f"{their_block}.attention.self.key",
        f"{our_block}.attention.value": f"{their_block}.attention.self.value",
        f"{our_block}.attention.output": f"{their_block}.attention.output.dense",
        f"{our_block}.feedforward_norm": f"{their_block}.LayerNorm",
        f"{our_block}.feedforward.up": f"{their_block}.intermediate.dense",
        f"{our_block}.feedforward.down": f"{their_block}.output.dense",
        "stack.norm": "esm.encoder.emb_layer_norm_after",
        **head,
    }
    rules: list[Rule] = [weight("embedding.tokens.weight", "esm.embeddings.word_embeddings.weight")]
    for ours, theirs in names.items():
        when = _has_embedding_norm if ours == "embedding.norm" else None
        rules.append(weight(f"{ours}.weight", f"{theirs}.weight", when=when))
        rules.append(weight(f"{ours}.bias", f"{theirs}.bias", always=True, when=when))
    return (
        *rules,
        Unused("esm.contact_head.regression.weight", _contact_weight_shape),
        Unused(_CONTACT_BIAS, _contact_bias_shape),
    )


def _has_embedding_norm(config: ModelConfig) -> bool:
    return config.embedding_norm


def _contact_weight_shape(config: ModelConfig) -> tuple[int, ...]:
    return (1, config.layers * config.heads)


def _contact_bias_shape(config: ModelConfig) -> tuple[int, ...]:
    return (1,)


_CONTACT_BIAS = "esm.contact_head.regression.bias"
_ESM_IGNORED = (".rotary_embeddings.inv_freq", "esm.pooler.dense.weight", "esm.pooler.dense.bias")
ESM = Architecture(
    name="esm",
    classes={"masked": "EsmForTokenClassification", "classify": "EsmForTokenClassification"},
    family="encoder",
    fields=(*_ESM_FIELDS, *_LABEL_HEAD_FIELDS),
    rules=_esm_rules({"head": "classifier"}),
    prefix="esm.",
    ignored=_ESM_IGNORED,
    renamed=_OLD_NORM_SUFFIXES,
    rewrites=("untied_head",),
    pads_with_end=True,
)
ESM_MASKED = Architecture(
    name="esm-masked",
    classes={"masked": "EsmForMaskedLM"},
    family="encoder",
    fields=(*_ESM_FIELDS, *_MASKED_HEAD_FIELDS),
    rules=(
        *_esm_rules({"head.transform": "lm_head.dense", "head.norm": "lm_head.layer_norm"}),
        weight("head.weight", "lm_head.decoder.weight"),
        weight("head.bias", "lm_head.bias", always=True),
    ),
    prefix="esm.",
    aliases={"lm_head.decoder.weight": "esm.embeddings.word_embeddings.weight"},
    ignored=_ESM_IGNORED,
    renamed=_OLD_NORM_SUFFIXES,
    pads_with_end=True,
)
_ESM_MEAN_AUTO_MAP = {
    "AutoConfig": "esm_mean.EsmMeanConfig",
    "AutoModelForSequenceClassification": "esm_mean.EsmMeanForSequenceClassification",
}
ESM_MEAN = Architecture(
    name="esm-mean",
    classes={"classify": "EsmMeanForSequenceClassification"},
    family="encoder",
    fields=(
        *_ESM_FIELDS,
        *_LINEAR_HEAD_FIELDS,
        FixedSetting("pooling", ("mean",)),
        RestrictedField("auto_map", (_ESM_MEAN_AUTO_MAP,), _ESM_MEAN_AUTO_MAP),
    ),
    rules=_esm_rules({"head": "classifier"}),
    prefix="esm.",
    ignored=_ESM_IGNORED,
    renamed=_OLD_NORM_SUFFIXES,
    own_code="esm_mean",
)
"""The class defined in `esm_mean.py`."""
