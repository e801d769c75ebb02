"""The shape of the transformer."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from glassformer.config.kinds import Count, Probability
from glassformer.settings import Settings, impossible

Family = Literal["decoder", "encoder", "encoder-decoder"]
Positions = Literal["learned", "sinusoidal", "rotary", "alibi", "relative", "none"]
Norm = Literal["layernorm", "rmsnorm", "none"]
Activation = Literal["relu", "gelu", "gelu_tanh", "relu2", "swiglu", "geglu"]
GATED: tuple[Activation, ...] = ("swiglu", "geglu")


class ModelConfig(Settings):
    """The shape of the transformer. The letters in brackets are those of `glassformer.shapes`."""

    family: Family = Field("decoder", description="which of the three families; what train.task asks for, if not given")
    vocab_size: Count | None = Field(None, description="V: distinct tokens; unset: the tokenizer's size")
    source_vocab_size: Count | None = Field(
        None, description="distinct tokens of the source where it has a vocabulary of its own; unset: its tokenizer's"
    )
    classes: Count | None = Field(None, description="of a classifier; unset: the labels of the data")
    context: Count = Field(256, description="most tokens that one forward pass may see")
    layers: Count = Field(4, description="L: blocks (of the decoder, and of the encoder where there is one)")
    encoder_layers: Count | None = Field(
        None, description="encoder-decoder: blocks of the encoder; unset: as many as layers"
    )
    width: Count = Field(128, description="D: width of the residual stream")
    heads: Count = Field(4, description="H: query heads")
    kv_heads: Count | None = Field(
        None,
        description="G: key and value heads; unset: as many as heads; 1: multi-query; between: grouped-query",
    )
    head_width: Count | None = Field(None, description="K: width of one head; unset: width / heads")
    hidden: Count | None = Field(
        None,
        description="F: feed-forward width; unset: 4 x width, or 8/3 x width rounded up to 32 when gated",
    )
    positions: Positions = Field("learned", description="how a token knows its place")
    norm: Norm = Field("layernorm", description="normalisation")
    norm_eps: float | None = Field(
        None, gt=0, lt=1, description="added to the variance in every norm; unset: 1e-5 in LayerNorm, 1e-6 in RMSNorm"
    )
    norm_order: Literal["pre", "post"] = Field("pre", description="x + part(norm(x)), or norm(x + part(x))")
    activation: Activation = Field("gelu", description="feed-forward activation; swiglu and geglu are gated")
    window: Count | None = Field(None, description="tokens each token may look back on, itself included; unset: all")
    qk_norm: bool = Field(False, description="normalise queries and keys per head before their product")
    attention_bias: bool = Field(False, description="biases in the query, key, value and output projections")
    feedforward_bias: bool = Field(False, description="biases in the feed-forward layer")
    norm_bias: bool = Field(False, description="a bias in LayerNorm (RMSNorm has none)")
    head_bias: bool = Field(False, description="a bias on the output logits")
    tied: bool = Field(True, description="the output layer uses the embedding matrix (of the target)")
    shared_embedding: bool = Field(
        True, description="encoder-decoder: source and target have one embedding matrix, and one vocabulary"
    )
    pooling: Literal["mean", "first"] = Field(
        "mean", description="classify: the head reads the mean of all tokens, or the first one"
    )
    embedding_scale: bool = Field(
        False, description="multiply embeddings by sqrt(width) (Vaswani et al. 2017, section 3.4)"
    )
    embedding_norm: bool = Field(
        False, description="normalise embeddings before the first block, as BERT (Devlin et al. 2019) and BART do"
    )
    dropout_embedding: Probability = Field(0.0, description="dropout after embeddings and positions are added")
    dropout_attention: Probability = Field(0.0, description="dropout on the attention weights")
    dropout_residual: Probability = Field(0.0, description="dropout on what each part adds to the residual stream")
    rotary_base: float = Field(10_000.0, gt=1, description="rotary positions: longest wavelength / 2 pi")
    relative_buckets: int = Field(32, ge=4, description="relative positions: learned distances per head (T5)")
    relative_max_distance: int = Field(128, ge=8, description="relative positions: distances beyond it are one (T5)")

    @property
    def G(self) -> int:  # noqa: N802
        """Key and value heads, resolved."""
        return self.kv_heads or self.heads

    @property
    def K(self) -> int:  # noqa: N802
        """Width of one head, resolved."""
        return self.head_width or self.width // self.heads

    @property
    def F(self) -> int:  # noqa: N802
        """Feed-forward width, resolved."""
        if self.hidden:
            return self.hidden
        return -(-8 * self.width // 3 // 32) * 32 if self.activation in GATED else 4 * self.width

    @property
    def eps(self) -> float:
        """What norms over the width add to the variance, resolved."""
        return self.norm_eps or (1e-5 if self.norm == "layernorm" else 1e-6)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.head_width is None and self.width % self.heads:
            near = _nearest_divisor(self.width, self.heads)
            raise impossible(
                f"heads = {self.heads} does not divide width = {self.width}",
                f"Set heads to {near}, or give head_width.",
            )
        if self.heads % self.G:
            near = _nearest_divisor(self.heads, self.G)
            raise impossible(f"kv_heads = {self.G} does not divide heads = {self.heads}", f"Set kv_heads to {near}.")
        if self.positions == "rotary" and self.K % 2:
            raise impossible(f"rotary positions with an odd head width {self.K}", "Make head_width even.")
        if self.positions == "sinusoidal" and self.width % 2:
            raise impossible(f"sinusoidal positions with an odd width {self.width}", "Make width even.")
        if self.window is not None and self.window > self.context:
            raise impossible(
                f"window = {self.window} is longer than context = {self.context}",
                "Lower window, or leave it unset.",
            )
        if self.norm_bias and self.norm != "layernorm":
            raise impossible(f"norm_bias with norm = {self.norm}", "Only layernorm has a bias: set norm_bias = false.")
        if self.norm == "none" and self.norm_order == "post":
            raise impossible("norm_order = post with norm = none", "Set norm_order = pre, or choose a norm.")
        if self.norm == "none" and (self.embedding_norm or self.norm_eps is not None):
            name = "embedding_norm" if self.embedding_norm else "norm_eps"
            raise impossible(f"{name} with norm = none", f"Leave {name} out, or choose a norm.")
        if self.relative_max_distance <= self.relative_buckets // 2:
            raise impossible(
                f"relative_max_distance = {self.relative_max_distance} with {self.relative_buckets} buckets",
                "Make relative_max_distance more than half of relative_buckets.",
            )
        return self


def _nearest_divisor(number: int, wanted: int) -> int:
    return min((d for d in range(1, number + 1) if number % d == 0), key=lambda d: abs(d - wanted))
