"""From a model to an ONNX graph: its inputs, and PyTorch's exporter.

The graph is the model's own forward pass, traced once. Rows and lengths stay open: they are symbols in the graph. The
padding mask is an input, so one graph serves single texts and padded batches. A text beyond the context is refused by
every graph, not only where positions are a table: the run never reads so much at once.
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
        name: also that of the argument of `forward`.
        rows, length: what its two axes are called.
        mask: which places are real (bool), or token ids (int64).
        meaning: for people.
    """

    name: str
    length: str
    mask: bool
    meaning: str
    rows: str = "batch"


def inputs_of(model: Model) -> list[Input]:
    """The inputs of a model's graph, in the order of `forward`'s arguments."""
    if isinstance(model, EncoderDecoder):
        return [
            Input("source", "source_length", False, "ids of what is read, the end token last"),
            Input("target", "length", False, "the end token, then the ids written so far; padding stands last"),
            Input("real_source", "source_length", True, "true for tokens of the source, false for padding"),
        ]
    return [
        Input("tokens", "length", False, "token ids"),
        Input("real", "length", True, "true for tokens, false for padding, which may stand on either side"),
    ]


def output_of(model: Model) -> str:
    """Return a description of the graph's one output, `logits`: its shape and meaning."""
    if isinstance(model, Classifier):
        return "(batch, classes): a score for each label, before the softmax"
    if isinstance(model, Encoder):
        return "(batch, length, vocabulary): of the token at each place, before the softmax"
    return "(batch, length, vocabulary): of the token after each, before the softmax"


class Bounded(nn.Module):
    """A model that fails on more tokens than its context, once it is a graph.

    Args:
        model: with any kind of positions.
        masks: of each input, whether it is a mask.
    """

    def __init__(self, model: Model, masks: Sequence[bool]) -> None:
        super().__init__()
        self.model = model
        self.masks = tuple(masks)
        self.zeros = nn.Buffer(torch.zeros(model.config.context, dtype=torch.int64), persistent=False)  # (C)

    def forward(self, *inputs: Tensor) -> Tensor:
        """As the model's; to ids (B, T) T entries of the table of zeros are added, and it has no more than C."""
        bounded = [
            each if mask else each + self.zeros[torch.arange(each.shape[1])]  # (B, T)
            for each, mask in zip(inputs, self.masks, strict=True)
        ]
        found: Tensor = self.model(*bounded)
        return found


def write_graph(model: Model, path: Path) -> None:
    """Write `model.onnx`. Weights beyond the 2 GB that one such file may have go into a second one beside it."""
    wanted = inputs_of(model)
    sizes = {"length": _example_length(model, 7), "source_length": _example_length(model, 5)}
    shapes = tuple({0: each.rows, 1: each.length} for each in wanted)
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            Bounded(model, [each.mask for each in wanted]).eval(),
            tuple(_example(each, sizes[each.length]) for each in wanted),
            dynamo=True,
            input_names=[each.name for each in wanted],
            output_names=["logits"],
            dynamic_shapes=(shapes,),
            opset_version=OPSET,
            verbose=False,
        )
    if program is None:
        raise AssertionError("torch.onnx.export gave no program")
    program.save(path)


def _example_length(model: Model, wanted: int) -> int:
    """Longer than a sliding window where the context allows it, so that the window's mask is part of the trace."""
    return min(model.config.context, max(wanted, (model.config.window or 0) + 1))


def _example(each: Input, length: int) -> Tensor:
    """Return an example input to trace the model with, (2, length)."""
    if not each.mask:
        return torch.zeros(2, length, dtype=torch.int64)
    real = torch.ones(2, length, dtype=torch.bool)
    real[0, -1] = length == 1  # a longer row ends in padding
    return real


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out the exporter's remarks on its own parts, on torchvision and on names of axes that are used twice."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
