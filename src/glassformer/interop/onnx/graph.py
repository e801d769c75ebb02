"""Convert a model to an ONNX graph with PyTorch's exporter.

The graph is the model's forward pass, traced once. Batch size and lengths are dynamic axes. The padding mask is an
input, so one graph serves single texts and padded batches. Every graph fails on a text longer than the context, even
without a position table, because the run itself never reads more tokens at once.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from glassformer.model.transformer import Classifier, Encoder, EncoderDecoder, Model

OPSET = 20


@dataclass(frozen=True)
class Input:
    """One input of a graph.

    Attributes:
        name: name of the input.
        length: name of the axis of positions.
        mask: whether the input is a padding mask (bool); otherwise token ids (int64).
        meaning: description for users.
        rows: name of the batch axis.
    """

    name: str
    length: str
    mask: bool
    meaning: str
    rows: str = "batch"


def inputs_of(model: Model) -> list[Input]:
    """Return the inputs of a model's graph, in the order of the arguments of `forward`."""
    if isinstance(model, EncoderDecoder):
        return [
            Input("source", "source_length", False, "token ids of the source, between the ids of `before` and `after`"),
            Input(
                "target", "length", False, "the ids of `target_start`, then the ids generated so far; padding is last"
            ),
            Input("real_source", "source_length", True, "true for tokens of the source, false for padding"),
        ]
    return [
        Input("tokens", "length", False, "token ids"),
        Input("real", "length", True, "true for tokens, false for padding, which may be on either side"),
    ]


def output_of(model: Model) -> str:
    """Return a description of the graph's only output, `logits`: its shape and meaning."""
    if isinstance(model, Classifier):
        return "(batch, classes): a score for each label, before the softmax"
    if isinstance(model, Encoder):
        return "(batch, length, vocabulary): logits of the token at each position, before the softmax"
    return "(batch, length, vocabulary): logits of the next token at each position, before the softmax"


class Bounded(nn.Module):
    """A model whose graph fails on more tokens than the context.

    Args:
        model: the model, with any kind of positions.
        masks: for each input, whether it is a mask.
    """

    def __init__(self, model: Model, masks: Sequence[bool]) -> None:
        super().__init__()
        self.model = model
        self.masks = tuple(masks)
        self.zeros = nn.Buffer(torch.zeros(model.config.context, dtype=torch.int64), persistent=False)  # (C)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Run the model on ids (B, T); fail if T is larger than the context C.

        The first T elements of a tensor of C zeros are added to the ids; if T > C, an index is out of range.
        """
        bounded = [
            each if mask else each + self.zeros[torch.arange(each.shape[1])]  # (B, T)
            for each, mask in zip(inputs, self.masks, strict=True)
        ]
        output: Tensor = self.model(*bounded)
        return output


def write_graph(model: Model, path: Path) -> None:
    """Write the graph to `path`; if it exceeds the 2 GB limit of an ONNX file, put the weights in a second file."""
    inputs = inputs_of(model)
    sizes = {"length": _example_length(model, 7), "source_length": _example_length(model, 5)}
    shapes = tuple({0: each.rows, 1: each.length} for each in inputs)
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            Bounded(model, [each.mask for each in inputs]).eval(),
            tuple(_example(each, sizes[each.length]) for each in inputs),
            dynamo=True,
            input_names=[each.name for each in inputs],
            output_names=["logits"],
            dynamic_shapes=(shapes,),
            opset_version=OPSET,
            verbose=False,
        )
    if program is None:
        raise AssertionError("torch.onnx.export gave no program")
    program.save(path)


def _example_length(model: Model, length: int) -> int:
    """Return a length above the sliding window if the context allows it, so that the trace includes the window mask."""
    return min(model.config.context, max(length, (model.config.window or 0) + 1))


def _example(graph_input: Input, length: int) -> Tensor:
    """Return an example input to trace the model with, (2, length)."""
    if not graph_input.mask:
        return torch.zeros(2, length, dtype=torch.int64)
    mask = torch.ones(2, length, dtype=torch.bool)
    mask[0, -1] = length == 1  # a longer row ends in padding
    return mask


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the exporter's warnings about its internals, torchvision and reused names of axes."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
