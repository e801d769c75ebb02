"""Build a model from settings, with initial weights that give an initial loss near ln V (ln C for a classifier).

With `model.initialization` = torch, the initial weights are those of PyTorch's layers instead.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from glassformer.base.config import ModelConfig
from glassformer.base.errors import GlassError
from glassformer.model.attention import Attention
from glassformer.model.pruned_attention import replace_pruned_attentions
from glassformer.model.transformer import Classifier, Decoder, Encoder, EncoderDecoder, FeedForward, Head, Model


def build_model(
    config: ModelConfig,
    vocab_size: int | None = None,
    seed: int = 0,
    source_vocab_size: int | None = None,
    classes: int | None = None,
) -> Model:
    """Build a model with initial weights that depend only on the arguments.

    Args:
        config: model settings.
        vocab_size: V; not needed if `config.vocab_size` is set.
        seed: seed of the initial weights.
        source_vocab_size: vocabulary size of the source in an encoder-decoder with two vocabularies; not needed if
            `config.source_vocab_size` is set.
        classes: number of classes, which makes an encoder a `Classifier`; not needed if `config.classes` is set.

    Raises:
        GlassError: a size differs from its value in `config`, or neither `vocab_size` nor `config.vocab_size` is set.
    """
    V = _resolve_size("vocab_size", config.vocab_size, vocab_size, "the tokenizer has {} tokens")
    S = _resolve_size(
        "source_vocab_size", config.source_vocab_size, source_vocab_size, "the source's tokenizer has {} tokens"
    )
    C = _resolve_size("classes", config.classes, classes, "the data has {} labels")
    if V is None:
        raise GlassError("the model's vocabulary size is not known", "Set model.vocab_size, or pass vocab_size.")
    model: Model
    with _WithoutRandomNumbers():
        if config.family == "encoder-decoder":
            model = EncoderDecoder(config, V, S)
        elif config.family == "encoder":
            model = Encoder(config, V) if C is None else Classifier(config, V, C)
        else:
            model = Decoder(config, V)
        if config.removed_heads:
            replace_pruned_attentions(model, config)
    if config.initialization == "torch":
        initialize_as_torch(model, config, seed)
    else:
        initialize(model, config, seed)
    return model


class _WithoutRandomNumbers(TorchFunctionMode):
    """Mode in which new modules keep uninitialized matrices, so that nothing is drawn from PyTorch's generator.

    `initialize` fills them; PyTorch's generator belongs to all threads of the process.
    """

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function; skip those that fill a tensor with random numbers."""
        if function in (nn.init.normal_, nn.init.kaiming_uniform_, nn.init.uniform_):
            return kwargs["tensor"] if kwargs and "tensor" in kwargs else args[0]
        return function(*args, **(kwargs or {}))


def _resolve_size(name: str, configured: int | None, measured: int | None, description: str) -> int | None:
    """Return the size from the settings or the data; raise a `GlassError` if the sizes differ."""
    if configured is not None and measured is not None and configured != measured:
        raise GlassError(
            f"model.{name} is {configured}, but {description.format(measured)}",
            f"Set model.{name} = {measured}, or leave it unset.",
        )
    return configured or measured


def initialize(model: nn.Module, config: ModelConfig, seed: int) -> None:
    """Initialize the parameters of a new model in place, with a separate random generator.

    Matrices are normal with standard deviation 1 / sqrt(inputs), which preserves the size of a vector. Matrices that
    write into the residual stream are divided by sqrt(number of such matrices), which preserves the size of the stream
    too (Radford et al. 2019), or are zero with `zero_output`, so that at first every sublayer adds zero (Goyal et al.
    2017, section 5.1). Embeddings have standard deviation 1 / sqrt(D), and the table of relative positions has 0.02.
    The weights of an untied head or of a classifier's head are so small that all logits start near 0. For a tied
    embedding and its positions, see `tied_std`. Without norms, the matrix of the head's transform is divided like the
    matrices that write into the stream. Biases are 0, and gains are 1.
    """
    generator = torch.Generator().manual_seed(seed)
    n_sublayers = sum(isinstance(module, Attention | FeedForward) for module in model.modules())
    writers = {id(module.down) for module in model.modules() if isinstance(module, FeedForward)}
    # Without an output projection, the values are what a layer adds to the residual stream.
    writers |= {
        id(module.output if isinstance(module.output, nn.Linear) else module.value)
        for module in model.modules()
        if isinstance(module, Attention)
    }
    # Without norms, nothing normalizes the output of the head's transform.
    shrunk = writers | ({id(getattr(model.head, "transform", None))} if config.norm == "none" else set())
    tied = config.tied and not isinstance(model, Classifier)
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            std = 1 / math.sqrt(max(1, module.in_features)) / (math.sqrt(n_sublayers) if id(module) in shrunk else 1.0)
            _normal(module.weight, 0.0 if config.zero_output and id(module) in writers else std, generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            std = 1 / math.sqrt(config.width)
            if name.endswith("score_positions.table"):
                std = 0.02
            elif tied and name.startswith("embedding."):
                std = tied_std(model.get_parameter("embedding.tokens.weight").shape[0], config.width)
            _normal(module.weight, std, generator)
    head = getattr(model, "head", None)
    if head is not None and head.weight is not None:
        _normal(head.weight, 0.1 / math.sqrt(config.width), generator)


def initialize_as_torch(model: Model, config: ModelConfig, seed: int) -> None:
    """Initialize the parameters of a new model in place as PyTorch's layers do: `nn.Embedding`, `nn.Linear` and, with
    as many key as query heads of equal widths, `nn.MultiheadAttention`.

    One generator draws the parameters in the order in which these layers would be created: embedding, then the
    attention and the feed-forward layer of each block, then the output layer, whose matrix is drawn even if it is tied.
    After `torch.manual_seed(seed)` and `config.initialization_skip` random numbers, a script that creates them in this
    order gets the same parameters. Biases of attention are 0, and gains are 1.
    """
    if next(model.parameters()).is_meta:
        return
    generator = torch.Generator().manual_seed(seed)
    torch.randint(2, (config.initialization_skip,), generator=generator)  # one draw of the generator for each number
    drawn_with_attention: set[nn.Module] = set()
    for module in model.modules():
        if isinstance(module, Attention):
            inputs = (module.query, module.key, module.value)
            drawn_with_attention.update((*inputs, module.output))
            if isinstance(module.output, nn.Linear):
                _default_linear(module.output.weight, module.output.bias, generator)
            rows = [len(layer.weight) for layer in inputs]
            matrix = torch.empty(sum(rows), config.width)  # (H K + G K + G U, D)
            nn.init.xavier_uniform_(matrix, generator=generator)
            for layer, part in zip(inputs, matrix.split(rows), strict=True):
                layer.weight.data.copy_(part)
            for bias in (module.query.bias, module.key.bias, module.value.bias, module.output.bias):
                if bias is not None:
                    nn.init.zeros_(bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, generator=generator)
        elif isinstance(module, nn.Linear) and module not in drawn_with_attention:
            _default_linear(module.weight, module.bias, generator)
        elif isinstance(module, Head):
            unused = torch.empty(len(model.embedding.tokens.weight), config.width)  # (V, D), of a tied head
            _default_linear(unused if module.weight is None else module.weight, module.bias, generator)


def _default_linear(weight: torch.Tensor, bias: torch.Tensor | None, generator: torch.Generator) -> None:
    """Initialize a matrix (outputs, inputs) and a bias (outputs) as `nn.Linear` does."""
    if weight.numel():  # a layer without heads has an empty matrix
        nn.init.kaiming_uniform_(weight, a=math.sqrt(5), generator=generator)
    if bias is not None:
        bound = 1 / math.sqrt(max(1, weight.shape[1]))
        nn.init.uniform_(bias, -bound, bound, generator=generator)


def tied_std(vocab_size: int, width: int) -> float:
    """Return the standard deviation of an embedding tied to the head: 0.02, or less to keep the initial loss near ln V.

    A token's own vector e reaches the head through the residual stream, where a norm gives it length sqrt(D). Its own
    logit is then about |e| sqrt(D) = std D, so every token predicts itself, which adds about (exp(std D) - 1) / V nats
    to the loss. The returned value limits this to 0.4 % of ln V; the limit requires a smaller value for wider models
    and for smaller vocabularies.
    """
    return min(0.02, math.log1p(0.004 * vocab_size * math.log(vocab_size)) / width)


def _normal(weight: torch.Tensor, std: float, generator: torch.Generator) -> None:
    if weight.is_meta:
        return
    with torch.no_grad():
        weight.copy_(torch.randn(weight.shape, generator=generator) * std)
