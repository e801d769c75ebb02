"""Forward passes of a model on probe sequences, one batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from glassformer.inspection.heads.attention_arrays import AttentionArrays, Bools, Floats, Ids, make_attention_arrays
from glassformer.inspection.heads.copying import no_direct_path, raised_logits
from glassformer.inspection.heads.probes import HeadProbe, batch
from glassformer.inspection.sites import Site
from glassformer.inspection.trace import StackTrace, trace
from glassformer.model.transformer import Decoder, EncoderDecoder, Model

MEMORY = 128 << 20
"""Maximum number of bytes for the attention arrays of one forward pass, unless two sequences alone need more."""
MOST_ROWS = 8
"""Maximum number of sequences in one forward pass."""


@dataclass(frozen=True, eq=False)
class ProbedLayer:
    """Attention layer in one forward pass.

    Attributes:
        site: name of the layer.
        arrays: attention weights and tokens of the layer.
        raised: (N, H, T, S) from `copying.raised_logits`; None if the layer has no direct path to the logits, or if
            tokens may repeat in the probe (see `HeadProbe.distinct`).
        gold: relation -> (N, T, S), for probes with gold relations; otherwise empty.
        aligned: (N, T, S) source tokens of each query's prediction, for cross-attention; None if not known.
    """

    site: Site
    arrays: AttentionArrays
    raised: Floats | None
    gold: dict[str, Bools]
    aligned: Bools | None = None


@dataclass(frozen=True, eq=False)
class _StackInputs:
    """Input sequences of one stack."""

    ids: Ids  # (N, T)
    real: Bools  # (N, T)
    special: frozenset[int]


def passes(
    model: Model, probe: HeadProbe, special: frozenset[int], source_special: frozenset[int] = frozenset()
) -> Iterator[ProbedLayer]:
    """Run a model on a probe and yield each attention layer for each batch of sequences.

    Args:
        model: a model of any family; it is not modified.
        probe: the input sequences, with targets for an encoder-decoder.
        special: ids of special tokens that are not text; for an encoder-decoder those of the target.
        source_special: ids of special tokens of the source of an encoder-decoder.
    """
    for rows in _batches(model, probe):
        model_inputs = _stack_inputs([probe.rows[row] for row in rows], special)
        if isinstance(model, EncoderDecoder):
            assert probe.targets is not None
            source = _StackInputs(model_inputs.ids, model_inputs.real, source_special)
            target = _stack_inputs([probe.targets[row] for row in rows], special)
            model_trace = trace(model, torch.from_numpy(source.ids), torch.from_numpy(target.ids), _padding(source))
            assert model_trace.source is not None
            stack_traces = [("enc", model_trace.source, source, None), ("dec", model_trace.stack, target, source)]
        else:
            model_trace = trace(model, torch.from_numpy(model_inputs.ids), None, _padding(model_inputs))
            stack_traces = [("dec" if isinstance(model, Decoder) else "enc", model_trace.stack, model_inputs, None)]
        for name, stack, inputs, memory in stack_traces:
            yield from _probed_layers(model, name, stack, inputs, memory, probe, rows)


def _stack_inputs(rows: list[Ids], special: frozenset[int]) -> _StackInputs:
    ids, real = batch(rows)  # (N, T) each
    return _StackInputs(ids, real, special)


def _padding(inputs: _StackInputs) -> torch.Tensor | None:
    return None if inputs.real.all() else torch.from_numpy(inputs.real)


def _batches(model: Model, probe: HeadProbe) -> Iterator[list[int]]:
    """Return the row indices of each pass: as many rows as fit in `MEMORY`, but at least two and at most `MOST_ROWS`.

    The last pass has the remaining rows, which may be a single one.
    """
    longest = max(map(len, [*probe.rows, *(probe.targets or ())]))
    layers = sum(len(stack.blocks) for stack in model.stacks.values()) * (2 if probe.targets else 1)
    row_bytes = layers * model.config.heads * longest**2 * 3 * 4  # scores, scaled scores and weights, 4 bytes each
    size = max(2, min(MOST_ROWS, MEMORY // row_bytes))
    return (list(range(start, min(start + size, len(probe.rows)))) for start in range(0, len(probe.rows), size))


def _probed_layers(
    model: Model,
    name: str,
    stack: StackTrace,
    inputs: _StackInputs,
    memory_inputs: _StackInputs | None,
    probe: HeadProbe,
    rows: list[int],
) -> Iterator[ProbedLayer]:
    for layer, block in enumerate(stack.blocks):
        for part, attention in (("self", block.attention), ("cross", block.cross)):
            if attention is None:
                continue
            key_inputs = memory_inputs if part == "cross" else None
            arrays = make_attention_arrays(
                attention.pattern,
                inputs.ids,
                None if key_inputs is None else key_inputs.ids,
                allowed=attention.allowed,
                query_mask=inputs.real,
                key_mask=None if key_inputs is None else key_inputs.real,
                special=(key_inputs or inputs).special,
            )
            raised = None
            if probe.distinct and no_direct_path(model, name, part) is None:
                raised = raised_logits(model, attention, torch.from_numpy(arrays.keys))  # (N, H, T, S)
            gold = {
                key: _batched_patterns([patterns[row] for row in rows], arrays) for key, patterns in probe.gold.items()
            }
            aligned = None
            if part == "cross" and probe.aligned:
                aligned = _batched_patterns([probe.aligned[row] for row in rows], arrays)
            yield ProbedLayer(Site(name, layer, part), arrays, raised, gold, aligned)


def _batched_patterns(patterns: list[Bools], arrays: AttentionArrays) -> Bools:
    """Combine patterns (T, T) or (T, S) of sequences of different lengths into one array (N, T, S)."""
    batched = np.zeros(arrays.allowed.shape, dtype=np.bool_)  # (N, T, S)
    for number, pattern in enumerate(patterns):
        batched[number, : pattern.shape[0], : pattern.shape[1]] = pattern
    return batched
