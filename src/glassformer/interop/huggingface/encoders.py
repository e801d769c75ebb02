"""The encoders. BERT and RoBERTa have a head of one matrix in one class only: the one that labels tokens.

Their heads for hidden words, and for whole texts, have another layer inside (a matrix with GELU and a norm, a matrix
with tanh), which our models do not have. `…ForTokenClassification` has none: with the vocabulary as its labels it is
our encoder for hidden words; with a classifier's labels, each token's scores are what the classifier makes of that
token, so a text's scores are those of its first token, or the mean over its tokens, as `summary_type` says.
"""

from __future__ import annotations

from glassformer.interop.huggingface.architecture import Architecture
from glassformer.interop.huggingface.attention_fields import Heads
from glassformer.interop.huggingface.decoders import PLAIN, SIZES
from glassformer.interop.huggingface.fields import Always, Field, Must, Number, Word
from glassformer.interop.huggingface.weights import SAME, Change, Folded, Rule, rows_before, weight

_FIELDS: tuple[Field, ...] = (
    *SIZES[:-1],
    Heads("num_attention_heads"),
    Word("hidden_act", "activation", {"gelu": "gelu", **PLAIN}, "gelu"),
    Number("layer_norm_eps", "norm_eps", float, 1e-12),
    Number("hidden_dropout_prob", "dropout_embedding", float, 0.1),
    Number("hidden_dropout_prob", "dropout_residual", float, 0.1),
    Number("attention_probs_dropout_prob", "dropout_attention", float, 0.1),
    Must("position_embedding_type", ("absolute",), "absolute", said=False),
    Must("tie_word_embeddings", (True, False), True),
    Must("is_decoder", (False,), False),
    Always("positions", ("learned",)),
    Always("norm", ("layernorm",)),
    Always("norm_order", ("post",)),
    Always("embedding_norm", (True,)),
    Always("norm_bias", (True, False)),
    Always("attention_bias", (True, False)),
    Always("feedforward_bias", (True, False)),
    Always("head_bias", (True, False)),
    Always("tied", (False,)),
    Always("embedding_scale", (False,)),
    Always("window", (None,)),
    Always("qk_norm", (False,)),
)


def _rules(prefix: str, places: Change, types: int) -> tuple[Rule, ...]:
    layer, own = f"{prefix}.encoder.layer.{{i}}", "stack.blocks.{i}"
    matrices = {
        f"{own}.attention.query": f"{layer}.attention.self.query",
        f"{own}.attention.key": f"{layer}.attention.self.key",
        f"{own}.attention.value": f"{layer}.attention.self.value",
        f"{own}.attention.output": f"{layer}.attention.output.dense",
        f"{own}.attention_norm": f"{layer}.attention.output.LayerNorm",
        f"{own}.feedforward.up": f"{layer}.intermediate.dense",
        f"{own}.feedforward.down": f"{layer}.output.dense",
        f"{own}.feedforward_norm": f"{layer}.output.LayerNorm",
        "embedding.norm": f"{prefix}.embeddings.LayerNorm",
        "head": "classifier",
    }
    table = f"{prefix}.embeddings.word_embeddings.weight"
    rules: list[Rule] = [
        weight("embedding.tokens.weight", table),
        weight("embedding.positions.table.weight", f"{prefix}.embeddings.position_embeddings.weight", places),
        Folded(f"{prefix}.embeddings.token_type_embeddings.weight", types, table),
    ]
    for ours, theirs in matrices.items():
        rules += [weight(f"{ours}.weight", f"{theirs}.weight"), weight(f"{ours}.bias", f"{theirs}.bias", always=True)]
    return tuple(rules)


BERT = Architecture(
    name="bert",
    classes={"masked": "BertForTokenClassification", "classify": "BertForTokenClassification"},
    family="encoder",
    fields=(*_FIELDS, SIZES[-1], Must("type_vocab_size", (2,), 2)),
    rules=_rules("bert", SAME, 2),
    prefix="bert.",
    ignored=(".embeddings.position_ids",),
    rewrites=("sinusoids_as_table", "own_head"),
)
ROBERTA = Architecture(
    name="roberta",
    classes={"masked": "RobertaForTokenClassification", "classify": "RobertaForTokenClassification"},
    family="encoder",
    fields=(
        *_FIELDS,
        Number("max_position_embeddings", "context", less=2),
        Must("type_vocab_size", (1,), 2),
        Must("pad_token_id", (1,), 1),  # places are counted from the padding token's number on
    ),
    rules=_rules("roberta", rows_before(2), 1),
    prefix="roberta.",
    ignored=(".embeddings.position_ids",),
    rewrites=("sinusoids_as_table", "own_head"),
    needs_padding=1,
)
