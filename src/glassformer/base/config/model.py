"""Settings of the model architecture."""

from __future__ import annotations

from itertools import zip_longest
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from glassformer.base.config.numbers import Count, Probability
from glassformer.base.settings import BaseSettings, impossible
from glassformer.base.wording import span

Family = Literal["decoder", "encoder", "encoder-decoder"]
Positions = Literal["learned", "sinusoidal", "rotary", "alibi", "relative", "none"]
Norm = Literal["layernorm", "rmsnorm", "none"]
Activation = Literal["relu", "gelu", "gelu_tanh", "relu2", "swiglu", "geglu"]
GATED: tuple[Activation, ...] = ("swiglu", "geglu")


class ModelConfig(BaseSettings):
    """Settings of the model architecture. `glassformer.base.shapes` explains letters such as D."""

    family: Family = Field("decoder", description="model family, which train.task determines")
    vocab_size: Count | None = Field(None, description="V: vocabulary size; unset: that of the tokenizer")
    source_vocab_size: Count | None = Field(
        None, description="size of the source's vocabulary, if it is separate; unset: that of the source's tokenizer"
    )
    classes: Count | None = Field(None, description="classifier: number of classes; unset: as in the data")
    context: Count = Field(
        256,
        description="maximum number of tokens that the model reads at once (encoder-decoder: in the source, and in the "
        "target)",
    )
    layers: Count = Field(4, description="L: number of blocks; encoder-decoder: number of decoder blocks")
    encoder_layers: Count | None = Field(
        None, description="encoder-decoder: number of encoder blocks; unset: equal to layers"
    )
    width: Count = Field(128, description="D: width of the residual stream")
    heads: Count = Field(4, description="H: number of query heads")
    kv_heads: Count | None = Field(
        None,
        description="G: number of key and value heads; unset: equal to heads; 1: multi-query; between: grouped-query",
    )
    head_width: Count | None = Field(
        None, description="K: width of one head, of its queries and keys; unset: width / heads"
    )
    value_width: Count | None = Field(None, description="U: width of one head's values; unset: the width of one head")
    hidden: Count | None = Field(
        None,
        description="F: feed-forward width; unset: 4 x width, or if gated 8/3 x width rounded up to a multiple of 32",
    )
    positions: Positions = Field("learned", description="type of positional encoding")
    norm: Norm = Field("layernorm", description="type of normalization")
    norm_eps: float | None = Field(
        None, gt=0, lt=1, description="epsilon of every norm; unset: 1e-5 in LayerNorm, 1e-6 in RMSNorm"
    )
    norm_order: Literal["pre", "post", "output"] = Field(
        "pre", description="order in each sublayer f: x + f(norm(x)), norm(x + f(x)), or x + norm(f(x)) as in OLMo 2"
    )
    activation: Activation = Field("gelu", description="feed-forward activation; swiglu and geglu are gated")
    window: Count | None = Field(
        None,
        description="number of tokens that each token attends to on the left (and, in an encoder, on the right), "
        "itself included; unset: no limit",
    )
    qk_norm: Literal["none", "head", "whole"] = Field(
        "none", description="normalize queries and keys before the dot product, each head or all heads as a whole"
    )
    output_projection: bool = Field(
        True,
        description="multiply the concatenated heads by an output matrix (Vaswani et al. 2017, section 3.2.2); without "
        "it, heads x value_width must equal width",
    )
    attention_bias: bool = Field(False, description="biases in the query, key, value and output projections")
    feedforward_bias: bool = Field(False, description="biases in the feed-forward layer")
    norm_bias: bool = Field(False, description="biases in LayerNorm (RMSNorm has none)")
    head_bias: bool = Field(False, description="a bias on the output logits (classifiers always have one)")
    head_transform: bool = Field(
        False, description="linear, activation and norm before the output layer, as in BERT (Devlin et al. 2019)"
    )
    tied: bool = Field(
        True, description="share the (target) embedding matrix with the output layer; no effect in classifiers"
    )
    shared_embedding: bool = Field(
        True, description="encoder-decoder: source and target share one embedding matrix and one vocabulary"
    )
    pooling: Literal["mean", "first"] = Field(
        "mean", description="classify: input of the head, the mean over all tokens or the first token"
    )
    embedding_scale: bool = Field(
        False, description="multiply token embeddings by sqrt(width) (Vaswani et al. 2017, section 3.4)"
    )
    embedding_norm: bool = Field(
        False, description="normalize embeddings before the first block, as BERT (Devlin et al. 2019) and BART do"
    )
    dropout_embedding: Probability = Field(0.0, description="dropout on the embeddings, the input of the first block")
    dropout_attention: Probability = Field(0.0, description="dropout on the attention weights")
    dropout_residual: Probability = Field(
        0.0,
        description="dropout on the output of each sublayer before it is added to the residual stream, and on the "
        "input of a classifier's head",
    )
    zero_output: bool = Field(
        False, description="initialize the output matrix of each sublayer to zero (Goyal et al. 2017, section 5.1)"
    )
    initialization: Literal["scaled", "torch"] = Field(
        "scaled",
        description="initial weights; scaled: an initial loss near ln V; torch: the distributions of PyTorch's layers, "
        "from one generator in the order of the layers",
    )
    initialization_skip: int = Field(
        0,
        ge=0,
        description="initialization = torch: numbers to draw before the first weight, as a script does that draws "
        "random data after torch.manual_seed and before it builds the model",
    )
    rotary_base: float = Field(10_000.0, gt=1, description="rotary positions: base of the frequencies")
    relative_buckets: int = Field(32, ge=4, description="relative positions: number of distance buckets (T5)")
    relative_max_distance: int = Field(
        128, ge=8, description="relative positions: distances of at least this share one bucket (T5)"
    )
    removed_heads: tuple[str, ...] = Field(
        (),
        description="removed query heads, such as dec.0.self.3; key and value heads that no remaining query head uses "
        "are removed too",
    )

    @property
    def G(self) -> int:  # noqa: N802
        """Number of key and value heads: `kv_heads`, or `heads` if unset."""
        return self.kv_heads or self.heads

    @property
    def K(self) -> int:  # noqa: N802
        """Width of one head: `head_width`, or `width` / `heads` if unset."""
        return self.head_width or self.width // self.heads

    @property
    def U(self) -> int:  # noqa: N802
        """Width of one head's values: `value_width`, or K if unset."""
        return self.value_width or self.K

    @property
    def F(self) -> int:  # noqa: N802
        """Feed-forward width: `hidden`; if unset, 4 x width, or if gated 8/3 x width rounded up to a multiple of 32."""
        if self.hidden:
            return self.hidden
        return -(-8 * self.width // 3 // 32) * 32 if self.activation in GATED else 4 * self.width

    @property
    def eps(self) -> float:
        """Epsilon of the norms over the width: `norm_eps`, or the default of `norm` if unset."""
        return self.norm_eps or (1e-5 if self.norm == "layernorm" else 1e-6)

    def kept_heads(self, site: str) -> list[int]:
        """Return the indices of the query heads that remain in the attention layer `site`, such as `dec.0.self`."""
        return [head for head in range(self.heads) if f"{site}.{head}" not in self.removed_heads]

    def kept_kv_heads(self, site: str) -> list[int]:
        """Return the indices of the key and value heads that the query heads in `kept_heads` use.

        Before heads are removed, each key and value head serves heads / G query heads.
        """
        return sorted({head * self.G // self.heads for head in self.kept_heads(site)})

    @field_validator("removed_heads")
    @classmethod
    def _sort_removed_heads(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        """Sort the names, with dec.10 after dec.9, so that the same heads always give equal settings."""
        return tuple(sorted(names, key=lambda name: [(len(part), part) for part in name.split(".")]))

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if self.head_width is None and self.width % self.heads:
            divisor = _nearest_divisor(self.width, self.heads)
            raise impossible(
                f"heads = {self.heads} does not divide width = {self.width}",
                f"Set heads to {divisor}, or give head_width.",
            )
        if self.heads % self.G:
            divisor = _nearest_divisor(self.heads, self.G)
            raise impossible(f"kv_heads = {self.G} does not divide heads = {self.heads}", f"Set kv_heads to {divisor}.")
        if not self.output_projection and self.heads * self.U != self.width:
            raise impossible(
                f"output_projection = false needs heads x value_width = width, got {self.heads} x {self.U} and width = "
                f"{self.width}",
                "Set output_projection = true, or "
                + (
                    f"value_width = {self.width // self.heads}."
                    if self.width % self.heads == 0
                    else "choose a number of heads that divides width."
                ),
            )
        if self.positions == "rotary" and self.K % 2:
            raise impossible(
                f"the head width {self.K} is odd, but positions = rotary needs an even width",
                "Set head_width to an even number.",
            )
        if self.positions == "sinusoidal" and self.width % 2:
            raise impossible(
                f"width = {self.width} is odd, but positions = sinusoidal needs an even width",
                "Set width to an even number.",
            )
        if self.window is not None and self.window > self.context:
            raise impossible(
                f"window = {self.window} is longer than context = {self.context}",
                "Lower window, or leave it unset.",
            )
        if self.norm_bias and self.norm != "layernorm":
            raise impossible(
                f"norm_bias = true, but norm = {self.norm} has no bias", "Set norm_bias = false, or norm = layernorm."
            )
        if self.norm == "none" and self.norm_order != "pre":
            raise impossible(
                f"norm_order = {self.norm_order} needs a norm, but norm = none",
                "Set norm_order = pre, or choose a norm.",
            )
        if self.norm == "none" and (self.embedding_norm or self.norm_eps is not None):
            name = "embedding_norm" if self.embedding_norm else "norm_eps"
            raise impossible(f"{name} needs a norm, but norm = none", f"Leave {name} out, or choose a norm.")
        if self.initialization == "scaled" and self.initialization_skip:
            raise impossible(
                f"initialization_skip = {self.initialization_skip} has no meaning for initialization = scaled",
                "Leave initialization_skip out, or set initialization = torch.",
            )
        if self.initialization == "torch" and self.zero_output:
            raise impossible(
                "zero_output = true, but initialization = torch draws the output matrices",
                "Set zero_output = false, or initialization = scaled.",
            )
        if self.relative_max_distance <= self.relative_buckets // 2:
            raise impossible(
                f"relative_max_distance = {self.relative_max_distance} is too low for {self.relative_buckets} buckets",
                f"Set relative_max_distance to {self.relative_buckets // 2 + 1} or more, or lower relative_buckets.",
            )
        if self.head_transform and self.classes is not None:
            raise impossible(
                "head_transform = true, but a classifier (model.classes) cannot have it",
                "Set head_transform = false.",
            )
        return self

    @model_validator(mode="after")
    def _check_removed_heads(self) -> Self:
        if self.removed_heads and self.qk_norm == "whole":
            raise impossible(
                "removed_heads is set, but qk_norm = whole normalizes the queries of all heads together",
                "Leave removed_heads out: removing one head would change the others.",
            )
        layers = {("enc", "self"): self.layers} if self.family == "encoder" else {("dec", "self"): self.layers}
        if self.family == "encoder-decoder":
            encoder = {("enc", "self"): self.encoder_layers or self.layers}
            layers = encoder | layers | {("dec", "cross"): self.layers}
        for name, after in zip_longest(self.removed_heads, self.removed_heads[1:]):
            stack, layer, part, head = (*name.split("."), "", "", "")[:4]
            count = layers.get((stack, part), 0)
            if name != f"{stack}.{layer}.{part}.{head}" or not (_below(layer, count) and _below(head, self.heads)):
                sites = [span(f"{a}.0.{b}", f"{a}.{count - 1}.{b}") for (a, b), count in layers.items()]
                raise impossible(
                    f"removed_heads has {name!r}, which does not exist",
                    f"Write STACK.LAYER.PART.HEAD, such as {'.0.'.join(next(iter(layers)))}.0; this model has heads "
                    f"{span(0, self.heads - 1)} of {', '.join(sites)}.",
                )
            if name == after:
                raise impossible(f"removed_heads has {name!r} twice", "Name it once.")
        return self


def _below(number: str, count: int) -> bool:
    """Return whether `number` is an integer from 0 to `count` - 1 without leading zeros: "7", not "07"."""
    return number.isdecimal() and str(int(number)) == number and int(number) < count


def _nearest_divisor(number: int, target: int) -> int:
    """Return a divisor of `number` near `target`: the nearest if its distance is below 10,000, otherwise 1."""
    for distance in range(min(target, 10_000)):
        for divisor in (target - distance, target + distance):
            if number % divisor == 0:
                return divisor
    return 1
