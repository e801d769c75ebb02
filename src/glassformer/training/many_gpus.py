"""Estimate training on many GPUs from formulas, without measurements: memory, communication, tokens per second.

Training uses FSDP2 as with `--shard`: every block is a unit, and all other parameters are one more unit. Each process
stores its rows of every weight, gradient and moment in float32; a unit's weights are gathered in bfloat16 before the
unit runs, and its gradients are summed in float32. The formulas are in the docstrings, with their sources:

* Rajbhandari et al. 2020, "ZeRO": sections 3 and 5 (sharding of 16 bytes per parameter), 7 (traffic).
* Kaplan et al. 2020, "Scaling laws for neural language models": section 2.1 (6 FLOPs per parameter and token).
* Chowdhery et al. 2022, "PaLM": appendix B (FLOPs of attention, and model FLOPs utilization).
* Korthikanti et al. 2022, "Reducing activation recomputation in large transformer models": sections 4 and 5.
* Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms": traffic of a ring.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from glassformer.base.config import GATED, ModelConfig
from glassformer.model.build import build_model
from glassformer.model.count import count_model
from glassformer.model.shapes_only import shapes_only
from glassformer.model.transformer import Block
from glassformer.tasks.losses import MOST_LOSS_LOGITS

FLOAT32_BYTES = 4
"""Bytes of a number in float32."""
BFLOAT16_BYTES = 2
"""Bytes of a number in bfloat16."""
USABLE_MEMORY = 0.9
"""Fraction of a GPU's memory that the estimate uses; fragmentation and libraries need the rest."""
MOST_ROWS = 64


@dataclass(frozen=True)
class Gpu:
    """A GPU model, with the figures from its data sheet.

    Attributes:
        peak: FLOP/s of dense bfloat16 matrix multiplications.
        memory: memory in bytes.
        bandwidth: memory bandwidth in bytes/s.
        link: bytes/s from a GPU to other GPUs of its node, in one direction.
        network: bytes/s of each GPU's network card to other nodes, in one direction.
        node: number of GPUs per node.
        source: source of the figures.
    """

    peak: float
    memory: float
    bandwidth: float
    link: float
    network: float
    node: int
    source: str


GPUS = {
    "a100": Gpu(312e12, 80e9, 2.039e12, 300e9, 25e9, 8, "NVIDIA A100 80 GB SXM data sheet; DGX A100: 200 Gb/s per GPU"),
    "h100": Gpu(989e12, 80e9, 3.35e12, 450e9, 50e9, 8, "NVIDIA H100 SXM data sheet; DGX H100: 400 Gb/s per GPU"),
    "h200": Gpu(989e12, 141e9, 4.8e12, 450e9, 50e9, 8, "NVIDIA H200 SXM data sheet; DGX H200: 400 Gb/s per GPU"),
    "b200": Gpu(
        2250e12, 180e9, 8e12, 900e9, 50e9, 8, "NVIDIA DGX B200 data sheet, divided by 8 GPUs; network: 400 Gb/s per GPU"
    ),
}


@dataclass(frozen=True)
class ModelSize:
    """Sizes of a model that the formulas need.

    Attributes:
        shapes: shape of every parameter.
        blocks: number of parameters of each block.
        parameters_outside_blocks: number of parameters outside the blocks, such as embeddings, last norm and head.
        forward_flops: FLOPs of one token's forward pass at the end of a full context (`count_model`).
        activation_bytes_per_token: bytes of activations that one block stores per token for the backward pass.
        context, width: as in the model's settings.
        layers: number of blocks, of encoder and decoder together.
        vocab_size: V, of the target if there are two vocabularies.
    """

    shapes: tuple[tuple[int, ...], ...]
    blocks: tuple[int, ...]
    parameters_outside_blocks: int
    forward_flops: int
    activation_bytes_per_token: int
    context: int
    layers: int
    width: int
    vocab_size: int

    @property
    def parameters(self) -> int:
        """Return the total number of parameters."""
        return sum(self.blocks) + self.parameters_outside_blocks


@dataclass(frozen=True)
class ShardedBytes:
    """Bytes of weights, gradients and optimizer state in one process."""

    weights: int
    gradients: int
    state: int


@dataclass(frozen=True)
class Estimate:
    """Estimate of one training step on `gpus` GPUs; sizes are bytes on one GPU, times are seconds.

    Attributes:
        gpus, parameters: number of GPUs, and number of parameters of the model.
        kept: bytes of the shards of weights, gradients and optimizer state on one GPU.
        gathered: gathered weights of the units in use.
        whole_gradients: gradients of the largest unit before they are reduced and sharded, and of the head's matrix.
        activations: activations of all rows on the GPU.
        recomputed: whether blocks are recomputed in the backward pass, because otherwise the given rows, or even one
            row, would not fit into memory.
        rows: number of rows on each GPU; a power of two unless the caller gave the number.
        fits: whether training with these rows fits into memory.
        tokens_per_step: number of tokens in a step on all GPUs together.
        flops_per_token: training FLOPs per token, recomputation included.
        traffic: bytes that a GPU sends per step.
        compute, communication, update: seconds of computation, of communication, and of the optimizer's update.
    """

    gpus: int
    parameters: int
    kept: ShardedBytes
    gathered: int
    whole_gradients: int
    activations: int
    recomputed: bool
    rows: int
    fits: bool
    tokens_per_step: int
    flops_per_token: int
    traffic: float
    compute: float
    communication: float
    update: float

    @property
    def memory(self) -> int:
        """Total memory on one GPU in bytes."""
        state_bytes = self.kept.weights + self.kept.gradients + self.kept.state
        return state_bytes + self.gathered + self.whole_gradients + self.activations

    @property
    def best(self) -> float:
        """Tokens/s of all GPUs if communication overlaps with computation as far as possible."""
        return self.tokens_per_step / (max(self.compute, self.communication) + self.update)

    @property
    def worst(self) -> float:
        """Tokens/s of all GPUs if communication does not overlap with computation."""
        return self.tokens_per_step / (self.compute + self.communication + self.update)

    def facts(self) -> dict[str, Any]:
        """Return the estimate as JSON values."""
        return {**asdict(self), "memory": self.memory, "best": self.best, "worst": self.worst}


def size_of(config: ModelConfig, vocab_size: int | None = None, classes: int | None = None) -> ModelSize:
    """Return the sizes of the model with these settings, without allocating its memory."""
    with shapes_only():
        model = build_model(config, vocab_size, classes=classes)
    blocks = [sum(p.numel() for p in unit.parameters()) for unit in model.modules() if isinstance(unit, Block)]
    shapes = tuple(tuple(parameter.shape) for parameter in model.parameters())
    return ModelSize(
        shapes=shapes,
        blocks=tuple(blocks),
        parameters_outside_blocks=sum(map(math.prod, shapes)) - sum(blocks),
        forward_flops=sum(part.flops for part in count_model(config, vocab_size, classes=classes)),
        activation_bytes_per_token=block_activation_bytes(config),
        context=config.context,
        layers=len(blocks),
        width=config.width,
        vocab_size=model.vocab_size,
    )


def sharded(shapes: Sequence[tuple[int, ...]], processes: int, rank: int = 0) -> ShardedBytes:
    """Return the exact bytes of weights, gradients and AdamW's state that process `rank` stores.

    FSDP2 shards each parameter by rows: of R rows, each of n processes has ceil(R / n), and the last ones fewer or
    none. Weight, gradient and two moments are float32: 16 bytes per parameter (ZeRO, section 3.1, has the same sum as
    2 + 2 + 12), divided by n (section 5). AdamW's step count, one number per parameter tensor, is not sharded.
    """
    elements = 0
    for rows, *other_sizes in shapes:
        rows_per_process = -(-rows // processes)
        elements += max(0, min(rows_per_process, rows - rank * rows_per_process)) * math.prod(other_sizes)
    return ShardedBytes(
        FLOAT32_BYTES * elements, FLOAT32_BYTES * elements, 2 * FLOAT32_BYTES * elements + FLOAT32_BYTES * len(shapes)
    )


def block_activation_bytes(config: ModelConfig) -> int:
    """Return the bytes of bfloat16 activations that one block stores per token for the backward pass.

    Inputs of both norms and of the layers after them, 4 D; queries and z, H (K + U); keys and values, G (K + U); inputs
    and outputs of the activation, 2 F, or 4 F if gated. With H K = G K = D, U = K and F = 4 D this is 32 D bytes:
    Korthikanti et al., equation 1, without their dropout masks (2 D) and without attention weights, which fused
    attention does not store. Cross-attention is not counted.
    """
    hidden = (4 if config.activation in GATED else 2) * config.F
    return BFLOAT16_BYTES * (4 * config.width + (config.heads + config.G) * (config.K + config.U) + hidden)


def activation_bytes(size: ModelSize, tokens: int, recomputed: bool) -> int:
    """Return the bytes of activations of one forward and backward pass over `tokens` tokens.

    Blocks: the stored activations of all blocks (`block_activation_bytes`); or, if recomputed, the input of each block
    and the stored activations of one block (Korthikanti et al., section 5). Head: its input and the gradient of this
    input; and for one chunk of logits (see `tasks.losses`) 16 bytes per logit, enough for logits and their gradients in
    bfloat16 and float32, and for log-probabilities.
    """
    blocks = (
        size.layers * BFLOAT16_BYTES * size.width + size.activation_bytes_per_token
        if recomputed
        else size.layers * size.activation_bytes_per_token
    )
    logits = min(tokens * size.vocab_size, MOST_LOSS_LOGITS)
    return tokens * (blocks + 2 * BFLOAT16_BYTES * size.width) + (2 * BFLOAT16_BYTES + 3 * FLOAT32_BYTES) * logits


def flops_per_token(size: ModelSize, recomputed: bool) -> int:
    """Return the training FLOPs per token: 1 forward + 2 backward (Kaplan et al.: 6 per parameter) + 1 if recomputed.

    Attention is counted as if every token attended to the whole context, as in PaLM's appendix B, or to a whole window.
    """
    return (4 if recomputed else 3) * size.forward_flops


def traffic(size: ModelSize, gpus: int) -> float:
    """Return the bytes that each GPU sends per step.

    A ring moves (n - 1) / n of a tensor for an all-gather, and the same for a reduce-scatter (Patarasuk and Yuan).
    Blocks are gathered twice, for the forward and the backward pass, all other weights once; gradients are reduced
    once, in float32. If all were sent in the same precision, this would be nearly ZeRO's 3 times the parameters
    (section 7.2).
    """
    tensor_bytes = (
        BFLOAT16_BYTES * (2 * sum(size.blocks) + size.parameters_outside_blocks) + FLOAT32_BYTES * size.parameters
    )
    return (gpus - 1) / gpus * tensor_bytes


def ring_speed(gpu: Gpu, gpus: int) -> float:
    """Return the bytes/s that each GPU sends to its neighbours, summed over all rings.

    Within a node, this is `link`. With several nodes, there are as many rings as GPUs per node, and each ring leaves a
    node through the network card of a different GPU, so a GPU sends as fast as all network cards of its node together,
    at most `link`.
    """
    nodes = -(-gpus // gpu.node)
    return gpu.link if nodes == 1 else min(gpu.link, gpu.network * (gpus // nodes))


def estimate(size: ModelSize, gpu: Gpu, gpus: int, reach: float, rows: int | None = None) -> Estimate:
    """Estimate one training step.

    Args:
        size: sizes of the model.
        gpu: type of the GPUs.
        gpus: number of GPUs.
        reach: fraction of the peak FLOP/s that computation reaches while it is not waiting for communication.
        rows: number of rows of `context` tokens on each GPU; None: the largest power of two that fits, from 1 to
            `MOST_ROWS`.
    """
    largest_unit = max((*size.blocks, size.parameters_outside_blocks))
    shards = sharded(size.shapes, gpus)
    gathered = BFLOAT16_BYTES * (
        size.parameters_outside_blocks + 2 * max(size.blocks, default=0)
    )  # the next block is gathered while one runs
    gradients = (BFLOAT16_BYTES + FLOAT32_BYTES) * largest_unit  # bfloat16 gradients, and the float32 copy that is sent
    gradients += FLOAT32_BYTES * size.vocab_size * size.width  # for the head's matrix, accumulated by the loss
    fixed_bytes = shards.weights + shards.gradients + shards.state + gathered + gradients
    available_bytes = USABLE_MEMORY * gpu.memory - fixed_bytes
    recomputed = activation_bytes(size, (rows or 1) * size.context, recomputed=False) > available_bytes
    rows_per_gpu = rows or MOST_ROWS
    while (
        rows is None
        and rows_per_gpu > 1
        and activation_bytes(size, rows_per_gpu * size.context, recomputed) > available_bytes
    ):
        rows_per_gpu //= 2
    tokens = rows_per_gpu * size.context
    flops = flops_per_token(size, recomputed)
    bytes_sent = traffic(size, gpus)
    return Estimate(
        gpus=gpus,
        parameters=size.parameters,
        kept=shards,
        gathered=gathered,
        whole_gradients=gradients,
        activations=activation_bytes(size, tokens, recomputed),
        recomputed=recomputed,
        rows=rows_per_gpu,
        fits=activation_bytes(size, tokens, recomputed) <= available_bytes,
        tokens_per_step=tokens * gpus,
        flops_per_token=flops,
        traffic=bytes_sent,
        compute=tokens * flops / (reach * gpu.peak),
        communication=bytes_sent / ring_speed(gpu, gpus),
        update=28 * math.ceil(size.parameters / gpus) / gpu.bandwidth,  # per parameter 16 bytes read, 12 written
    )
