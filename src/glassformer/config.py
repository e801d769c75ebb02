"""Every setting: documented under its field, validated when made, frozen afterwards; TOML in and out.

A `Config` is what `config.toml` in a run folder holds, what a recipe fills in, and what `--set SECTION.FIELD=VALUE`
changes. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

import tomli_w
from pydantic import Field, model_validator

from glassformer.errors import GlassError, nearest
from glassformer.settings import UNSET, Settings, impossible, parse_value, read_toml, validated

Positions = Literal["learned", "sinusoidal", "rotary", "alibi", "relative", "none"]
Norm = Literal["layernorm", "rmsnorm", "none"]
Activation = Literal["relu", "gelu", "gelu_tanh", "relu2", "swiglu", "geglu"]
GATED: tuple[Activation, ...] = ("swiglu", "geglu")
TokenizerKind = Literal["characters", "graphemes", "bytes", "words", "bpe", "wordpiece", "unigram"]
TOKENIZER_KINDS: tuple[str, ...] = get_args(TokenizerKind)
Probability = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1, le=10**12)]
Seed = Annotated[int, Field(ge=0, lt=2**64)]
Rate = Annotated[float, Field(gt=0, le=1e6)]


class ModelConfig(Settings):
    """The shape of the transformer. The letters in brackets are those of `glassformer.shapes`."""

    family: Literal["decoder", "encoder", "encoder-decoder"] = Field(
        "decoder", description="which of the three families; `lm` training needs a decoder"
    )
    vocab_size: Count | None = Field(None, description="V: distinct tokens; unset: the tokenizer's size")
    context: Count = Field(256, description="most tokens that one forward pass may see")
    layers: Count = Field(4, description="L: blocks (of the decoder, and of the encoder where there is one)")
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
    norm_order: Literal["pre", "post"] = Field("pre", description="x + part(norm(x)), or norm(x + part(x))")
    activation: Activation = Field("gelu", description="feed-forward activation; swiglu and geglu are gated")
    window: Count | None = Field(None, description="tokens each token may look back on, itself included; unset: all")
    qk_norm: bool = Field(False, description="normalise queries and keys per head before their product")
    attention_bias: bool = Field(False, description="biases in the query, key, value and output projections")
    feedforward_bias: bool = Field(False, description="biases in the feed-forward layer")
    norm_bias: bool = Field(False, description="a bias in LayerNorm (RMSNorm has none)")
    head_bias: bool = Field(False, description="a bias on the output logits")
    tied: bool = Field(True, description="the output layer uses the embedding matrix")
    embedding_scale: bool = Field(
        False, description="multiply embeddings by sqrt(width) (Vaswani et al. 2017, section 3.4)"
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
        if self.relative_max_distance <= self.relative_buckets // 2:
            raise impossible(
                f"relative_max_distance = {self.relative_max_distance} with {self.relative_buckets} buckets",
                "Make relative_max_distance more than half of relative_buckets.",
            )
        return self


class TokenizerConfig(Settings):
    """How text becomes tokens."""

    kind: TokenizerKind = Field("bpe", description="the scheme")
    vocab_size: Count = Field(
        2048, description="most tokens a trained vocabulary may have (bytes: always 256 + special)"
    )
    normalization: Literal["none", "nfc", "nfd", "nfkc", "nfkd"] = Field(
        "none",
        description="Unicode form applied before training and encoding; all but none give up the exact round trip",
    )
    lowercase: bool = Field(False, description="lower-case the text first; gives up the exact round trip")
    min_count: Count = Field(1, description="characters, graphemes, words: symbols seen fewer times become unknown")
    sample_bytes: int = Field(
        24_000_000,
        ge=1000,
        description="training sees at most this many bytes (unigram: a third), drawn evenly from the whole text; "
        "it takes some twelve times as much memory",
    )
    seed: Seed = Field(0, description="of that draw")


class DataConfig(Settings):
    """What text, and how it is split and cut."""

    source: str = Field("stories", description="a file, a folder, - for standard input, or a generated corpus")
    column: str | None = Field(None, description="the text column of CSV, TSV and JSONL sources")
    encoding: Literal["auto", "utf-8", "utf-16", "windows-1252"] = Field("auto", description="of the source's bytes")
    document: Literal["file", "paragraph", "line"] = Field(
        "file", description="what counts as one document in plain text (rows are documents in tables)"
    )
    min_words: int = Field(0, ge=0, description="leave out documents with fewer words")
    max_words: int | None = Field(None, ge=1, description="leave out documents with more words")
    split: Literal["tail", "random"] = Field(
        "tail", description="validation is the end of the text, or a random draw of documents"
    )
    validation_fraction: float = Field(0.1, gt=0, lt=1, description="share of the text (or of the documents) held out")
    validation_limit: Count = Field(2_000_000, description="hold out at most this many characters")
    windows: Literal["stream", "documents"] = Field(
        "stream", description="rows are cut anywhere from the joined text, or are one document each, padded"
    )
    size: Count = Field(20_000, description="documents to make, for a generated corpus")
    seed: Seed = Field(0, description="of the random split and of generated corpora")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.max_words is not None and self.max_words < self.min_words:
            raise impossible(
                f"max_words = {self.max_words} is less than min_words = {self.min_words}",
                "Exchange them.",
            )
        return self


class TrainConfig(Settings):
    """How the model is trained."""

    seed: Seed = Field(0, description="initial weights, order of samples and dropout all follow from it")
    device: str = Field("auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$", description="auto, cpu, cuda, cuda:N or mps")
    precision: Literal["auto", "fp32", "bf16"] = Field("auto", description="of matrix products; weights stay fp32")
    threads: int | None = Field(None, ge=1, le=1024, description="CPU threads; unset: all cores")
    steps: Count | None = Field(2000, description="optimizer steps; unset: until another limit stops the run")
    minutes: float | None = Field(None, gt=0, description="stop after this much training time; schedules end there")
    until_loss: float | None = Field(None, gt=0, description="stop once the validation loss is this low")
    batch: Count = Field(32, description="rows per optimizer step")
    micro_batch: Count | None = Field(
        None, description="rows per forward pass, gradients accumulated; unset: all, on a CPU up to 4 million logits"
    )
    optimizer: Literal["adamw", "muon"] = Field("adamw", description="muon: for hidden matrices, AdamW for the rest")
    learning_rate: Rate = Field(1e-3, description="peak, of AdamW")
    muon_learning_rate: Rate = Field(0.02, description="peak, of Muon")
    muon_momentum: Probability = Field(0.95, description="of Muon")
    beta1: Probability = Field(0.9, description="of AdamW")
    beta2: Probability = Field(0.99, description="of AdamW")
    epsilon: Rate = Field(1e-8, description="of AdamW")
    weight_decay: float = Field(0.1, ge=0, le=1e6, description="on matrices and tables; never on biases and gains")
    clip: float | None = Field(1.0, gt=0, description="largest gradient norm; unset: no clipping")
    schedule: Literal["constant", "linear", "cosine", "wsd", "noam", "plateau"] = Field(
        "cosine", description="how the learning rate goes down after warm-up"
    )
    warmup: int = Field(100, ge=0, description="steps of linear warm-up; at most a tenth of the run")
    final_rate: float = Field(0.1, ge=0, le=1, description="linear, cosine, wsd: last rate as a share of the peak")
    decay_share: float = Field(0.2, gt=0, le=1, description="wsd: share of the run that is decay")
    plateau_factor: float = Field(0.5, gt=0, lt=1, description="plateau: what the rate is multiplied by")
    plateau_patience: int = Field(5, ge=0, description="plateau: evaluations without improvement that are tolerated")
    patience: Count | None = Field(None, description="stop early after this many evaluations without improvement")
    evaluate_every: Count = Field(200, description="steps between evaluations")
    evaluate_tokens: Count | None = Field(
        200_000,
        description="validation tokens per evaluation while training; unset: all (the last one takes all)",
    )
    save_every: Count = Field(500, description="steps between checkpoints; one is also kept at each best evaluation")
    log_every: Count = Field(10, description="steps between lines of metrics.jsonl")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.steps is None and self.minutes is None and self.until_loss is None and self.patience is None:
            raise impossible("nothing ends this run", "Give steps, minutes, until_loss or patience.")
        if self.steps is None and self.minutes is None and self.schedule in ("linear", "cosine", "wsd"):
            raise impossible(f"schedule = {self.schedule} needs to know how long the run is", "Give steps or minutes.")
        if self.micro_batch is not None and self.micro_batch > self.batch:
            raise impossible(
                f"micro_batch = {self.micro_batch} is more than batch = {self.batch}",
                "Lower micro_batch or leave it out.",
            )
        if self.schedule == "noam" and self.warmup == 0:
            raise impossible("schedule = noam with warmup = 0", "Give at least one step of warm-up.")
        return self


class SampleConfig(Settings):
    """How text is drawn from the model, by `glass generate` and during training."""

    prompt: str = Field("", description="what the samples during training begin with")
    tokens: Count = Field(200, description="tokens to generate")
    temperature: float = Field(0.8, ge=0, description="0: always the likeliest token")
    top_k: Count | None = Field(None, description="draw from the k likeliest tokens only")
    top_p: float | None = Field(None, gt=0, le=1, description="draw from the likeliest tokens that hold this share")
    repetition_penalty: float = Field(
        1.0,
        ge=1,
        description="of tokens already present: their logits divided by it, or multiplied if negative (Keskar 2019)",
    )
    stop: tuple[str, ...] = Field((), description="end when one of these texts appears; it is left out")
    seed: Seed = Field(0, description="of the draw")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if "" in self.stop:
            raise impossible("a stop text is empty, and would end every text before it begins", "Leave it out.")
        return self


class Config(Settings):
    """One run: all sections together."""

    model: ModelConfig = Field(default_factory=ModelConfig, description="the shape of the transformer")
    tokenizer: TokenizerConfig = Field(default_factory=TokenizerConfig, description="how text becomes tokens")
    data: DataConfig = Field(default_factory=DataConfig, description="what text, and how it is split and cut")
    train: TrainConfig = Field(default_factory=TrainConfig, description="how the model is trained")
    sample: SampleConfig = Field(default_factory=SampleConfig, description="how text is drawn from the model")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "the settings") -> Config:
        """Validate nested `values`; unknown keys and bad values raise a `GlassError` that names `where`."""
        return validated(cls, values, where)

    @classmethod
    def read(cls, path: Path) -> Config:
        """Read a TOML file."""
        return cls.from_dict(read_toml(path), where=str(path))

    def to_toml(self) -> str:
        """All settings as TOML; `from_dict` of it gives an equal Config."""
        sections = self.model_dump(mode="json")
        return tomli_w.dumps(
            {name: {k: UNSET if v is None else v for k, v in section.items()} for name, section in sections.items()}
        )

    def with_changes(self, changes: Mapping[str, str]) -> Config:
        """A copy with `SECTION.FIELD` -> text changes, as `--set` gives them (`unset`: no value)."""
        values: dict[str, Any] = self.model_dump()
        for section, fields in parse_changes(changes).items():
            values[section].update(fields)
        return validated(Config, values, "")


def parse_changes(changes: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """`SECTION.FIELD` -> text as tables of sections; an unknown name is refused with the nearest."""
    known = Config().model_dump()
    tables: dict[str, dict[str, Any]] = {}
    for key, text in changes.items():
        section, dot, field = key.partition(".")
        if not dot:
            full = [f"{name}.{key}" for name in known if key in known[name]]
            remedy = f"Write {' or '.join(full)}." if full else "Write SECTION.FIELD, such as model.layers."
            raise GlassError(f"the setting {key!r} names no section", remedy)
        if section not in known:
            raise GlassError(f"there is no section {section!r} in the setting {key!r}", nearest(section, known))
        if field not in known[section]:
            raise GlassError(f"there is no setting {key!r}", nearest(field, known[section]))
        tables.setdefault(section, {})[field] = _parsed(key, text, Config.model_fields[section].annotation)
    return tables


def _parsed(key: str, text: str, section: Any) -> Any:
    """A value from the command line: a number is a text where a text is wanted (`data.column = 2`)."""
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise GlassError(
            f"{key} = {text!r} is not valid Unicode", "Leave that character out; rename a file that has it in its name."
        )
    value = parse_value(text)
    annotation = section.model_fields[key.partition(".")[2]].annotation
    wants_text = annotation in (str, str | None)
    return text if wants_text and not isinstance(value, str) else value


def _nearest_divisor(number: int, wanted: int) -> int:
    return min((d for d in range(1, number + 1) if number % d == 0), key=lambda d: abs(d - wanted))
