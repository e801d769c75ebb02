"""Compare an exported graph in onnxruntime with the model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer.interop.export_report import Comparison
from glassformer.interop.onnx.graph import inputs_of
from glassformer.interop.output_comparison import Logits, largest_difference, logits_limit, random_rows
from glassformer.model.transformer import EncoderDecoder, Model

SHAPES = ((1, 1), (1, 7), (2, 3), (3, 19), (5, 11))
"""Batch sizes and lengths to compare, in addition to one row as long as the context."""


class Session:
    """An ONNX graph loaded in onnxruntime.

    Args:
        path: the graph file; a second file with weights is found by its name.
        model: the exported model, for the names of the inputs.
    """

    def __init__(self, path: Path, model: Model) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        self._session: Any = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._names = [each.name for each in inputs_of(model)]

    def logits(self, inputs: Sequence[Tensor]) -> Logits:
        """Return the output of the graph; shapes as in `Model.forward`."""
        named = {name: value.numpy() for name, value in zip(self._names, inputs, strict=True)}
        logits: Logits = self._session.run(["logits"], named)[0]
        return logits

    def next_logits(self, source: Sequence[int], tokens: Sequence[int]) -> Logits:
        """Return the logits (V) of the next token, without a cache; see `output_comparison.NextLogitsFunction`."""
        ids = torch.tensor([list(tokens)])  # (1, T)
        if len(self._names) == 3:
            source_ids = torch.tensor([list(source)])  # (1, S)
            inputs = [source_ids, ids, torch.ones_like(source_ids, dtype=torch.bool)]
        else:
            inputs = [ids, torch.ones_like(ids, dtype=torch.bool)]
        last: Logits = self.logits(inputs)[0, -1]  # (V)
        return last


def check_logits(model: Model, session: Session) -> Comparison:
    """Measure the largest difference between logits, for `SHAPES` cut to the context and for a full context."""
    context = model.config.context
    shapes = dict.fromkeys([(rows, min(length, context)) for rows, length in SHAPES] + [(1, context)])
    batches = [_random_inputs(model, rows, length) for rows, length in shapes]
    with torch.inference_mode():
        run_logits = [model(*inputs).numpy() for inputs in batches]
    difference = largest_difference([session.logits(inputs) for inputs in batches], run_logits)
    shapes_text = ", ".join(f"{rows} x {length}" for rows, length in shapes)
    return Comparison("logits", difference, logits_limit(run_logits), f"rows x tokens {shapes_text}, some padded")


def _random_inputs(model: Model, rows: int, length: int) -> list[Tensor]:
    """Return random ids and a mask. Of several rows, the first is padded at the end, the second at the beginning."""
    source = min(length + 2, model.config.context)
    source_embedding = model.source_embedding if isinstance(model, EncoderDecoder) else None
    source_vocab_size = model.vocab_size if source_embedding is None else source_embedding.tokens.num_embeddings
    lengths = {"length": length, "source_length": source}
    inputs = []
    for each in inputs_of(model):
        axis_length = lengths[each.length]
        if each.mask:
            mask = torch.ones(rows, axis_length, dtype=torch.bool)
            if rows > 1:
                mask[0, axis_length - axis_length // 3 :] = False
                mask[1, : axis_length // 4] = False
            inputs.append(mask)
        else:
            inputs.append(
                torch.tensor(
                    random_rows(rows, axis_length, source_vocab_size if each.name == "source" else model.vocab_size)
                )
            )
    return inputs
