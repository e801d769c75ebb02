"""Settings of training, and of generating text."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from glassformer.base.config.numbers import Count, Probability, Rate, Seed
from glassformer.base.config.tasks import Task
from glassformer.base.settings import BaseSettings, impossible

Precision = Literal["auto", "fp32", "bf16"]


class TrainConfig(BaseSettings):
    """Settings of training: the task, device, limits, batches, optimizer, schedule and evaluation."""

    task: Task = Field(
        "lm", description="continue text, fill in masked tokens, name a text's label, or write a text for a text"
    )
    seed: Seed = Field(0, description="initial weights, order of samples and dropout all follow from it")
    device: str = Field("auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$", description="auto, cpu, cuda, cuda:N or mps")
    precision: Precision = Field(
        "auto",
        description="of matrix multiplications; weights stay fp32; auto: bf16 if it is clearly faster on this machine, "
        "else fp32; decided when the run is created",
    )
    compile: bool = Field(False, description="let torch.compile make the steps of training; for GPUs and long runs")
    threads: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="CPU threads; unset: all cores, and with minutes all or one, whichever is faster when tried",
    )
    shard: bool = Field(
        False, description="several processes: each keeps a part of every weight (FSDP2), not all of them (DDP)"
    )
    steps: Count | None = Field(2000, description="optimizer steps; unset: until another limit stops the run")
    minutes: float | None = Field(
        None,
        gt=0,
        description="wall time of the whole run, from its start to its end, evaluation and saving included; schedules "
        "end when training does",
    )
    until_loss: float | None = Field(None, gt=0, description="stop once the validation loss is this low")
    batch: Count = Field(32, description="rows per optimizer step")
    batch_tokens: Count | None = Field(
        None,
        description="classify, translate, summarize: tokens per optimizer step, padding included, in rows of like "
        "length; unset: `batch` rows of any length",
    )
    micro_batch: Count | None = Field(
        None, description="rows per forward pass, gradients accumulated; unset: all, on a CPU up to 3,072 tokens"
    )
    checkpoint_blocks: bool = Field(
        False,
        description="keep only what enters each block and compute the rest again in the backward pass: less memory, "
        "about half as much time again, the same numbers (Chen et al. 2016)",
    )
    optimizer: Literal["adamw", "muon"] = Field("adamw", description="muon: for hidden matrices, AdamW for the rest")
    learning_rate: Rate = Field(1e-3, description="peak, of AdamW")
    muon_learning_rate: Rate = Field(0.02, description="peak, of Muon")
    muon_momentum: Probability = Field(0.95, description="of Muon")
    muon_precision: Precision = Field("auto", description="in which Muon orthogonalizes; auto: as for train.precision")
    beta1: Probability = Field(0.9, description="of AdamW")
    beta2: Probability = Field(0.99, description="of AdamW")
    epsilon: Rate = Field(1e-8, description="of AdamW")
    weight_decay: float = Field(0.1, ge=0, le=1e6, description="on matrices and tables; never on biases and gains")
    average: Literal["none", "ema", "last"] = Field(
        "none",
        description="evaluate and keep an average of the weights: ema: exponential moving; last: of all steps, the "
        "last ones weighing most, however long the run is (Shamir and Zhang 2013)",
    )
    average_decay: Probability = Field(
        0.999, description="ema: share of the average that step t keeps; (1 + t) / (10 + t) while that is smaller"
    )
    label_smoothing: Probability = Field(
        0.0,
        description="share of the target's probability spread evenly over all tokens while training; "
        "the training loss that is logged includes it",
    )
    mask_share: float = Field(
        0.15,
        gt=0,
        lt=1,
        description="masked: share of tokens to predict; of them 80 % are hidden, 10 % replaced, 10 % shown",
    )
    clip: float | None = Field(1.0, gt=0, description="largest gradient norm; unset: no clipping")
    freeze: tuple[str, ...] = Field(
        (), description="parts whose weights stay as they are: embedding, layers.0-3, layers.5, encoder, decoder, head"
    )
    schedule: Literal["constant", "linear", "cosine", "wsd", "noam", "plateau"] = Field(
        "cosine", description="how the learning rate goes down after warm-up"
    )
    warmup: int = Field(100, ge=0, description="steps of linear warm-up; at most a tenth of the run")
    final_rate: float = Field(0.1, ge=0, le=1, description="linear, cosine, wsd: last rate as a share of the peak")
    decay_share: float = Field(0.2, gt=0, le=1, description="wsd: share of the run that is decay")
    plateau_factor: float = Field(0.5, gt=0, lt=1, description="plateau: what the rate is multiplied by")
    plateau_patience: int = Field(5, ge=0, description="plateau: evaluations without improvement that are tolerated")
    patience: Count | None = Field(None, description="stop early after this many evaluations without improvement")
    evaluate_every: Count = Field(
        200, description="steps between evaluations; with minutes, some are left out so that they take at most a fifth"
    )
    evaluate_tokens: Count | None = Field(
        200_000,
        description="validation tokens per evaluation while training, fewer if that takes a twentieth of the minutes; "
        "unset: all (the last one takes all)",
    )
    save_every: Count = Field(500, description="steps between checkpoints; one is also kept at each best evaluation")
    log_every: Count = Field(10, description="steps between lines of metrics.jsonl")
    snapshots: int = Field(
        0, ge=0, le=64, description="of what the attention heads do, for glass heads --history; dense early; 0: none"
    )

    @field_validator("freeze", mode="before")
    @classmethod
    def _from_one_text(cls, value: Any) -> Any:
        """A command line names the parts with commas between them."""
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.steps is None and self.minutes is None and self.until_loss is None and self.patience is None:
            raise impossible("nothing ends this run", "Give steps, minutes, until_loss or patience.")
        if self.steps is None and self.minutes is None and self.schedule in ("linear", "cosine", "wsd"):
            raise impossible(f"schedule = {self.schedule} needs to know how long the run is", "Give steps or minutes.")
        if self.micro_batch is not None and self.micro_batch > self.batch and self.batch_tokens is None:
            raise impossible(
                f"micro_batch = {self.micro_batch} is more than batch = {self.batch}",
                "Lower micro_batch or leave it out.",
            )
        if self.shard and self.snapshots:
            raise impossible(
                f"shard = true with snapshots = {self.snapshots}: no process has the whole model after every step",
                "Leave one of them out.",
            )
        if self.schedule == "noam" and self.warmup == 0:
            raise impossible("schedule = noam with warmup = 0", "Give at least one step of warm-up.")
        return self


class SampleConfig(BaseSettings):
    """Settings of generating text, for `glass generate` and for the samples during training."""

    prompt: str = Field("", description="what the samples during training begin with")
    tokens: Count = Field(200, description="tokens to generate")
    beams: Count = Field(
        1, description="above 1: beam search for the likeliest text with so many hypotheses; nothing is drawn then"
    )
    length_penalty: float = Field(
        0.6, ge=0, le=10, description="beam search: log p is divided by ((5 + tokens) / 6) to this power (Wu 2016)"
    )
    temperature: float = Field(0.8, ge=0, description="0: always the likeliest token")
    top_k: Count | None = Field(None, description="draw from the k likeliest tokens only")
    top_p: float | None = Field(None, gt=0, le=1, description="draw from the likeliest tokens that hold this share")
    min_p: float | None = Field(
        None, gt=0, le=1, description="draw from tokens that are at least this share as likely as the likeliest"
    )
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
