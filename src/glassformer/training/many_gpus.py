"""Needs of a model on many GPUs, on paper: memory of each, traffic, tokens a second. Nothing is measured here.

The way of training is FSDP2 with every block a unit (as `--shard` does it): each process keeps its rows of every
weight, gradient and moment in float32; a unit's weights are gathered in bfloat16 before it runs, and its gradients are
added up in float32. Formulas stand in the docstrings, with their sources:

* Rajbhandari, Rasley, Ruwase and He 2020, "ZeRO": sections 3 and 5 (16 bytes a parameter, divided), 7 (traffic).
* Kaplan et al. 2020, "Scaling laws for neural language models": section 2.1 (6 FLOPs a parameter and token).
* Chowdhery et al. 2022, "PaLM": appendix B (attention's share, and how use of the peak is counted).
* Korthikanti et al. 2022, "Reducing activation recomputation in large transformer models": section 4.
* Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms": what a ring must move.
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

FLOAT = 4
"""Bytes of a number in float32."""
HALF = 2
"""Bytes of a number in bfloat16."""
ROOM = 0.9
"""Share of a GPU's memory that is planned with: the rest is for the allocator's gaps and the libraries."""
MOST_ROWS = 64


@dataclass(frozen=True)
class Gpu:
    """One device, by its maker's data sheet.

    Attributes:
        peak: FLOP/s of dense bfloat16 matrix products.
        memory: bytes.
        bandwidth: bytes/s of that memory.
        link: bytes/s to the others in its node, one way.
        network: bytes/s to other nodes, one way, of each GPU's network card.
        node: GPUs of a node.
        source: where the figures stand.
    """

    peak: float
    memory: float
    bandwidth: float
    link: float
    network: float
    node: int
    source: str


GPUS = {
    "a100": Gpu(312e12, 80e9, 2.039e12, 300e9, 25e9, 8, "NVIDIA A100 80 GB SXM data sheet; DGX A100: 200 Gb/s a GPU"),
    "h100": Gpu(989e12, 80e9, 3.35e12, 450e9, 50e9, 8, "NVIDIA H100 SXM data sheet; DGX H100: 400 Gb/s a GPU"),
    "h200": Gpu(989e12, 141e9, 4.8e12, 450e9, 50e9, 8, "NVIDIA H200 SXM data sheet; DGX H200: 400 Gb/s a GPU"),
    "b200": Gpu(2250e12, 180e9, 8e12, 900e9, 50e9, 8, "NVIDIA DGX B200 data sheet, an eighth of it: 400 Gb/s a GPU"),
}


@dataclass(frozen=True)
class ModelSize:
    """A model as these formulas see it.

    Attributes:
        shapes: of every parameter.
        blocks: parameters of each block.
        rest: parameters outside the blocks: embeddings, last norm, head.
        forward_flops: of one token's forward pass with the whole context before it (`count_model`).
        kept: bytes that one token's pass through one block leaves for the backward pass.
        context, layers, width, vocab_size: of the model.
    """

    shapes: tuple[tuple[int, ...], ...]
    blocks: tuple[int, ...]
    rest: int
    forward_flops: int
    kept: int
    context: int
    layers: int
    width: int
    vocab_size: int

    @property
    def parameters(self) -> int:
        """Return the number of all parameters."""
        return sum(self.blocks) + self.rest


@dataclass(frozen=True)
class ShardedBytes:
    """Bytes that one process keeps all the time."""

    weights: int
    gradients: int
    state: int


@dataclass(frozen=True)
class Estimate:
    """One training step on so many GPUs, in bytes of one GPU and seconds.

    Attributes:
        kept: weights, gradients and optimizer state of this GPU's rows.
        gathered: whole weights of the units at work.
        whole_gradients: of the largest unit, before they are added up and divided, and of the head's matrix.
        activations: of all rows at once.
        recomputed: blocks run again in the backward pass, because without that not even one row fits.
        rows: at once on each GPU, a power of two.
        fits: whether one row does.
        traffic: bytes that a GPU sends in a step.
        compute, communication, update: seconds.
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
        """Bytes of everything on one GPU."""
        kept = self.kept.weights + self.kept.gradients + self.kept.state
        return kept + self.gathered + self.whole_gradients + self.activations

    @property
    def best(self) -> float:
        """Tokens/s of all GPUs where communication hides behind arithmetic as far as it can."""
        return self.tokens_per_step / (max(self.compute, self.communication) + self.update)

    @property
    def worst(self) -> float:
        """Tokens/s where none of it hides."""
        return self.tokens_per_step / (self.compute + self.communication + self.update)

    def facts(self) -> dict[str, Any]:
        """Return the estimate as JSON."""
        return {**asdict(self), "memory": self.memory, "best": self.best, "worst": self.worst}


def size_of(config: ModelConfig, vocab_size: int | None = None, classes: int | None = None) -> ModelSize:
    """The model that these settings build; nothing is allocated."""
    with shapes_only():
        model = build_model(config, vocab_size, classes=classes)
    blocks = [sum(p.numel() for p in unit.parameters()) for unit in model.modules() if isinstance(unit, Block)]
    shapes = tuple(tuple(parameter.shape) for parameter in model.parameters())
    return ModelSize(
        shapes=shapes,
        blocks=tuple(blocks),
        rest=sum(map(math.prod, shapes)) - sum(blocks),
        forward_flops=sum(part.flops for part in count_model(config, vocab_size, classes=classes)),
        kept=kept_of_block(config),
        context=config.context,
        layers=len(blocks),
        width=config.width,
        vocab_size=model.vocab_size,
    )


def sharded(shapes: Sequence[tuple[int, ...]], processes: int, rank: int = 0) -> ShardedBytes:
    """Return the share of a model under AdamW that process `rank` keeps, to the byte.

    FSDP2 divides each parameter by its rows: of R rows, each of n processes has ceil(R / n), the last ones fewer or
    none. Weight, gradient and two moments are float32: 16 bytes a parameter (ZeRO, section 3.1, has the same sum with
    2 + 2 + 12), divided by n (section 5). AdamW's count of steps, one number for each parameter, is not divided.
    """
    numbers = 0
    for rows, *others in shapes:
        each = -(-rows // processes)
        numbers += max(0, min(each, rows - rank * each)) * math.prod(others)
    return ShardedBytes(FLOAT * numbers, FLOAT * numbers, 2 * FLOAT * numbers + FLOAT * len(shapes))


def kept_of_block(config: ModelConfig) -> int:
    """Bytes that one token leaves in one block for the backward pass, in bfloat16.

    The inputs of both norms and of what follows them, 4 D; queries and mixed values, 2 H K; keys and values, 2 G K;
    what stands before and after the activation, 2 F, or 4 F where it is gated. With H K = G K = D and F = 4 D this is
    32 D bytes: Korthikanti et al., equation 2, without their dropout masks (2 D) and without attention weights, which
    fused attention does not keep.
    """
    hidden = (4 if config.activation in GATED else 2) * config.F
    return HALF * (4 * config.width + 2 * (config.heads + config.G) * config.K + hidden)


def activation_bytes(size: ModelSize, tokens: int, recomputed: bool) -> int:
    """Return the bytes of activations of one forward and backward pass over so many tokens.

    All blocks' `kept`; or, recomputed, the input of each block and all of one (Korthikanti et al., section 4.2). And
    at the end the head's input and its gradient, and the logits that the loss makes at once: these and their gradient
    in bfloat16 and in float32, and their logarithms of probabilities, 16 bytes each (see `tasks.losses`).
    """
    blocks = size.layers * HALF * size.width + size.kept if recomputed else size.layers * size.kept
    logits = min(tokens * size.vocab_size, MOST_LOSS_LOGITS)
    return tokens * (blocks + 2 * HALF * size.width) + (2 * HALF + 3 * FLOAT) * logits


def flops_per_token(size: ModelSize, recomputed: bool) -> int:
    """Return FLOPs of training: one forward, two backward (Kaplan et al.: 6 a parameter), one more if recomputed.

    Attention is counted as if every token saw the whole context, as PaLM's appendix B does.
    """
    return (4 if recomputed else 3) * size.forward_flops


def traffic(size: ModelSize, gpus: int) -> float:
    """Bytes that each GPU sends in a step.

    A ring moves (n - 1) / n of a tensor to gather it, and as much to add it up and divide it (Patarasuk and Yuan).
    Blocks are gathered twice, for the forward and for the backward pass, the rest once; gradients go once, in float32.
    With everything in one precision this is ZeRO's 3 times the parameters (section 7.2).
    """
    numbers = HALF * (2 * sum(size.blocks) + size.rest) + FLOAT * size.parameters
    return (gpus - 1) / gpus * numbers


def ring_speed(gpu: Gpu, gpus: int) -> float:
    """Bytes/s that each GPU sends to its neighbours in the rings, all of them together.

    Within a node that is `link`. Over several, each ring leaves a node by one GPU's network card and there are as many
    rings as a node has GPUs: all its cards together carry what one GPU sends, unless `link` is slower still.
    """
    nodes = -(-gpus // gpu.node)
    return gpu.link if nodes == 1 else min(gpu.link, gpu.network * (gpus // nodes))


def estimate(size: ModelSize, gpu: Gpu, gpus: int, reach: float, rows: int | None = None) -> Estimate:
    """Estimate one training step.

    Args:
        size: of the model.
        gpu: what each device is.
        gpus: how many.
        reach: share of the peak that the arithmetic reaches while it is not waiting.
        rows: of `context` tokens on each GPU; unset: as many as fit, at most 64.
    """
    whole = max((*size.blocks, size.rest))
    kept = sharded(size.shapes, gpus)
    gathered = HALF * (size.rest + 2 * max(size.blocks, default=0))  # the next block comes while one runs
    gradients = (HALF + FLOAT) * whole  # as they come, and the float32 copy that is sent
    gradients += FLOAT * size.vocab_size * size.width  # of the head's matrix, which the loss adds up
    fixed = kept.weights + kept.gradients + kept.state + gathered + gradients
    room = ROOM * gpu.memory - fixed
    recomputed = activation_bytes(size, (rows or 1) * size.context, recomputed=False) > room
    at_once = rows or MOST_ROWS
    while rows is None and at_once > 1 and activation_bytes(size, at_once * size.context, recomputed) > room:
        at_once //= 2
    tokens = at_once * size.context
    flops = flops_per_token(size, recomputed)
    sent = traffic(size, gpus)
    return Estimate(
        gpus=gpus,
        parameters=size.parameters,
        kept=kept,
        gathered=gathered,
        whole_gradients=gradients,
        activations=activation_bytes(size, tokens, recomputed),
        recomputed=recomputed,
        rows=at_once,
        fits=activation_bytes(size, tokens, recomputed) <= room,
        tokens_per_step=tokens * gpus,
        flops_per_token=flops,
        traffic=sent,
        compute=tokens * flops / (reach * gpu.peak),
        communication=sent / ring_speed(gpu, gpus),
        update=28 * math.ceil(size.parameters / gpus) / gpu.bandwidth,  # 16 bytes read and 12 written a parameter
    )
