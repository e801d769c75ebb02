"""Settings of training and of text generation."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from glassformer.base.config.numbers import Count, Probability, Rate, Seed
from glassformer.base.config.tasks import Task
from glassformer.base.settings import BaseSettings, impossible

Precision = Literal["auto", "fp32", "bf16"]


class TrainConfig(BaseSettings):
    """Settings of training: task, device, limits, batches, optimizer, schedule and evaluation."""

    task: Task = Field(
        "lm",
        description="language model, masked language model, classification, translation, summarization or chat",
    )
    seed: Seed = Field(0, description="seed of the initial weights, the order of rows, masks and dropout")
    device: str = Field("auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$", description="auto, cpu, cuda, cuda:N or mps")
    precision: Precision = Field(
        "auto",
        description="dtype of matrix multiplications (weights stay in fp32); auto: bf16 if it is clearly faster on "
        "the device, otherwise fp32, decided when the run is created",
    )
    compile: bool = Field(False, description="use torch.compile for training steps; worthwhile on GPUs in long runs")
    threads: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="number of CPU threads; unset: PyTorch's default (usually one per core), or in CPU training "
        "with minutes, one thread if that is faster",
    )
    shard: bool = Field(
        False,
        description="with several processes, each stores a shard of every weight (FSDP2) instead of all weights (DDP)",
    )
    steps: Count | None = Field(2000, description="number of optimizer steps; unset: until another limit stops the run")
    minutes: float | None = Field(
        None,
        gt=0,
        description="time limit in minutes for the whole run, including evaluations; the learning-rate schedule ends "
        "with training",
    )
    until_loss: float | None = Field(None, gt=0, description="stop when the validation loss is at most this")
    batch: Count = Field(32, description="rows per optimizer step; given without batch_tokens, it unsets batch_tokens")
    batch_tokens: Count | None = Field(
        None,
        description="classify, translate, summarize, chat: maximum number of tokens per optimizer step, padding "
        "included, in rows of similar length; unset: `batch` rows of any length",
    )
    micro_batch: Count | None = Field(
        None,
        description="rows per forward pass, with gradient accumulation; unset: all rows, or on a CPU at most 3,072 "
        "tokens (at least one row)",
    )
    checkpoint_blocks: bool = Field(
        False,
        description="gradient checkpointing (Chen et al. 2016): store only the inputs of blocks, recompute the rest "
        "in the backward pass; needs less memory, takes about 1.5 times as long, gives the same gradients",
    )
    optimizer: Literal["adamw", "muon"] = Field(
        "adamw", description="muon: Muon for hidden matrices, AdamW for all other weights"
    )
    learning_rate: Rate = Field(1e-3, description="peak learning rate of AdamW")
    muon_learning_rate: Rate = Field(0.02, description="peak learning rate of Muon")
    muon_momentum: Probability = Field(0.95, description="momentum of Muon")
    muon_precision: Precision = Field(
        "auto", description="dtype in which Muon orthogonalizes; auto: decided as for train.precision"
    )
    beta1: Probability = Field(0.9, description="decay rate of AdamW's average of gradients")
    beta2: Probability = Field(0.99, description="decay rate of AdamW's average of squared gradients")
    epsilon: Rate = Field(1e-8, description="epsilon of AdamW")
    weight_decay: float = Field(
        0.1, ge=0, le=1e6, description="weight decay of matrices and embeddings, not of biases and gains"
    )
    average: Literal["none", "ema", "last"] = Field(
        "none",
        description="evaluate and save an average of the weights; ema: exponential moving average; last: average of "
        "all steps that favors the last steps, however long the run is (Shamir and Zhang 2013)",
    )
    average_decay: Probability = Field(
        0.999, description="ema: decay of the average; at step t, (1 + t) / (10 + t) if that is smaller"
    )
    label_smoothing: Probability = Field(
        0.0,
        description="fraction of the target's probability to spread evenly over all tokens or labels in training; the "
        "logged training loss includes it",
    )
    mask_share: float = Field(
        0.15,
        gt=0,
        lt=1,
        description="masked: fraction of tokens to predict; of these, 80 % are masked, 10 % become random tokens, "
        "10 % stay unchanged",
    )
    clip: float | None = Field(1.0, gt=0, description="clip gradients to this norm; unset: no clipping")
    freeze: tuple[str, ...] = Field(
        (), description="components to freeze, such as embedding, layers.0-3, layers.5, encoder, decoder, head"
    )
    schedule: Literal["constant", "linear", "cosine", "wsd", "noam", "plateau"] = Field(
        "cosine", description="schedule of the learning rate after warm-up"
    )
    warmup: int = Field(
        100,
        ge=0,
        description="number of linear warm-up steps; except with noam, at most a tenth of the run, if its "
        "length is known",
    )
    final_rate: float = Field(
        0.1, ge=0, le=1, description="linear, cosine, wsd: final learning rate as a fraction of the peak"
    )
    decay_share: float = Field(0.2, gt=0, le=1, description="wsd: fraction of the run for the decay phase")
    plateau_factor: float = Field(0.5, gt=0, lt=1, description="plateau: factor that lowers the learning rate")
    plateau_patience: int = Field(
        5,
        ge=0,
        description="plateau: number of evaluations without improvement to tolerate; the next one lowers the learning "
        "rate",
    )
    patience: Count | None = Field(None, description="stop early after this many evaluations without improvement")
    evaluate_every: Count = Field(
        200,
        description="steps between evaluations; the last step is always evaluated; if minutes is set, earlier ones may "
        "be skipped, so that evaluations take at most a tenth of the time",
    )
    evaluate_tokens: Count | None = Field(
        200_000,
        description="validation tokens per evaluation during training; if minutes is set, fewer if needed to take at "
        "most a two-hundredth of the time; unset: all. The final evaluation uses all, or with minutes as many as fit "
        "into a tenth of the time",
    )
    save_every: Count = Field(
        500, description="steps between checkpoints; step 0, each best evaluation and the last step are saved too"
    )
    log_every: Count = Field(10, description="steps between lines of metrics.jsonl; each evaluated step has a line too")
    snapshots: int = Field(
        0,
        ge=0,
        le=64,
        description="number of snapshots of attention heads for glass heads --history, most of them early in training",
    )

    @field_validator("freeze", mode="before")
    @classmethod
    def _split_names(cls, value: Any) -> Any:
        """Split a comma-separated list, as given on the command line."""
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if self.steps is None and self.minutes is None and self.until_loss is None and self.patience is None:
            raise impossible("the run has no limit", "Give steps, minutes, until_loss or patience.")
        if self.steps is None and self.minutes is None and self.schedule in ("linear", "cosine", "wsd"):
            raise impossible(f"schedule = {self.schedule} needs the length of the run", "Give steps or minutes.")
        if self.micro_batch is not None and self.micro_batch > self.batch and self.batch_tokens is None:
            raise impossible(
                f"micro_batch = {self.micro_batch} is more than batch = {self.batch}",
                "Lower micro_batch or leave it out.",
            )
        if self.shard and self.snapshots:
            raise impossible(
                f"snapshots = {self.snapshots}, but with shard = true no process has the whole model",
                "Leave out shard or snapshots.",
            )
        if self.schedule == "noam" and self.warmup == 0:
            raise impossible("schedule = noam needs warm-up, but warmup = 0", "Give at least one step of warm-up.")
        return self


class SampleConfig(BaseSettings):
    """Settings of text generation, for `glass generate` and for the samples during training."""

    prompt: str = Field(
        "", description="prompt of the samples during training, and of glass generate if no prompt is given"
    )
    tokens: Count = Field(200, description="maximum number of tokens to generate")
    beams: Count = Field(1, description="above 1: beam search with this many hypotheses instead of sampling")
    length_penalty: float = Field(
        0.6,
        ge=0,
        le=10,
        description="beam search: log p is divided by ((5 + tokens) / 6) to this power (Wu et al. 2016)",
    )
    temperature: float = Field(0.8, ge=0, description="divisor of the logits; 0: always the likeliest token")
    top_k: Count | None = Field(None, description="sample only from the k likeliest tokens")
    top_p: float | None = Field(
        None,
        gt=0,
        le=1,
        description="sample only from the fewest likeliest tokens whose probabilities sum to at least this",
    )
    min_p: float | None = Field(
        None, gt=0, le=1, description="sample only from tokens with at least this fraction of the largest probability"
    )
    repetition_penalty: float = Field(
        1.0,
        ge=1,
        description="divide positive logits of earlier tokens by this, and multiply negative logits by it (Keskar et "
        "al. 2019); earlier tokens are those of the prompt and the generated text, not those of a source",
    )
    stop: tuple[str, ...] = Field((), description="stop strings: end the text before the first of these")
    seed: Seed = Field(0, description="seed of the sampling")

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if "" in self.stop:
            raise impossible("a stop string is empty, which would end every text at its start", "Leave it out.")
        return self
