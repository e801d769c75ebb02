"""Model settings, under the same names as in the PyTorch model's `ModelConfig`."""

from __future__ import annotations

from dataclasses import dataclass, fields

CHOICES = {
    "family": ("decoder", "encoder", "encoder-decoder"),
    "positions": ("learned", "sinusoidal", "rotary", "alibi", "relative", "none"),
    "norm": ("layernorm", "rmsnorm", "none"),
    "norm_order": ("pre", "post", "output"),
    "qk_norm": ("none", "head", "whole"),
    "activation": ("relu", "gelu", "gelu_tanh", "relu2", "swiglu", "geglu"),
    "pooling": ("mean", "first"),
}
GATED = ("swiglu", "geglu")
LAYERNORM_EPSILON = 1e-5
RMSNORM_EPSILON = 1e-6


@dataclass(frozen=True)
class Settings:
    """Settings of a transformer. Comments give the letters that denote the settings in shapes.

    `Settings(**config.model.model_dump())` and `Settings(**tomllib.load(config_file)["model"])` both work: "unset",
    which means no value in a TOML file, is read as None. An encoder with `classes` is a classifier. Vocabulary sizes
    come from the weights. The three dropout settings and the two of the initialization are accepted and ignored.

    Raises:
        ValueError: a setting has a value that is not allowed.
    """

    family: str = "decoder"
    vocab_size: int | None = None  # V
    source_vocab_size: int | None = None
    classes: int | None = None
    context: int = 256
    layers: int = 4  # L
    encoder_layers: int | None = None
    width: int = 128  # D
    heads: int = 4  # H
    kv_heads: int | None = None  # G
    head_width: int | None = None  # K
    value_width: int | None = None  # U
    hidden: int | None = None  # F
    positions: str = "learned"
    norm: str = "layernorm"
    norm_eps: float | None = None
    norm_order: str = "pre"
    activation: str = "gelu"
    window: int | None = None
    qk_norm: str = "none"
    output_projection: bool = True
    attention_bias: bool = False
    feedforward_bias: bool = False
    norm_bias: bool = False
    head_bias: bool = False
    head_transform: bool = False
    tied: bool = True
    shared_embedding: bool = True
    pooling: str = "mean"
    embedding_scale: bool = False
    embedding_norm: bool = False
    dropout_embedding: float = 0.0
    dropout_attention: float = 0.0
    dropout_residual: float = 0.0
    rotary_base: float = 10_000.0
    relative_buckets: int = 32
    relative_max_distance: int = 128
    removed_heads: tuple[str, ...] = ()
    zero_output: bool = False
    initialization: str = "scaled"
    initialization_skip: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) == "unset":
                object.__setattr__(self, field.name, None)
        object.__setattr__(self, "removed_heads", tuple(self.removed_heads))
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} = {getattr(self, name)!r} does not exist: choose one of {', '.join(allowed)}")

    @property
    def G(self) -> int:  # noqa: N802
        """Number of key-value heads; by default the number of heads."""
        return self.kv_heads or self.heads

    def kept_heads(self, site: str) -> list[int]:
        """Return the numbers of the query heads of an attention layer such as `dec.0.self`, without removed heads."""
        return [head for head in range(self.heads) if f"{site}.{head}" not in self.removed_heads]

    def kept_kv_heads(self, site: str) -> list[int]:
        """Return the numbers of the key-value heads of an attention layer that at least one query head uses."""
        return sorted({head * self.G // self.heads for head in self.kept_heads(site)})

    @property
    def K(self) -> int:  # noqa: N802
        """Width of one head; by default width / heads."""
        return self.head_width or self.width // self.heads

    @property
    def U(self) -> int:  # noqa: N802
        """Width of one head's values; by default K."""
        return self.value_width or self.K

    @property
    def F(self) -> int:  # noqa: N802
        """Feed-forward width; by default 4 D, or, if gated, 8/3 D rounded up to a multiple of 32."""
        if self.hidden:
            return self.hidden
        return -(-8 * self.width // 3 // 32) * 32 if self.activation in GATED else 4 * self.width

    @property
    def eps(self) -> float:
        """Epsilon of all norms except QK-norm; by default 1e-5 for LayerNorm and 1e-6 for RMSNorm."""
        return self.norm_eps or (LAYERNORM_EPSILON if self.norm == "layernorm" else RMSNORM_EPSILON)
