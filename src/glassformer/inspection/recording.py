"""Recordings: copies of selected tensors of one or several forward passes, by name, within a memory budget.

    recording = record(model, tokens, keep=("pattern", "dec.1.resid"))
    recording["dec.0.self.pattern"]  # (B, H, T, S)

    with record_passes(model, keep=("pattern",)) as passes:
        for step in generate(model, prompts, settings):
            passes[-1]["dec.0.self.pattern"]  # (rows, H, T, S) for the prompt, then (rows, H, 1, S) per new token

`glassformer.inspection.catalogue.TENSOR_KINDS` lists the tensors that can be recorded, and `HOOK_POINTS` in the same
module lists where they are recorded. Each value is a tensor of the model's forward pass, copied by a hook, except
`head_output`, which the hook computes from `z`. Layers with recorded scores or patterns compute attention step by step
instead of by the fused kernel, so the logits differ by up to 1e-4 (in float32) from those of an unobserved pass.
Otherwise, the logits are bit-equal, except in generation: rounding may differ there, because the faster implementation
of a step (`glassformer.generation.fast`) is not used while hooks are registered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches

import torch
from torch import Tensor

from glassformer.base.errors import GlassError
from glassformer.base.wording import counted
from glassformer.inspection.catalogue import Recordable, batch_sizes, select_entries
from glassformer.inspection.hooks import Tap, tapped
from glassformer.inspection.sites import attentions
from glassformer.inspection.trace import check_inputs, head_outputs
from glassformer.model.evaluation_mode import inference
from glassformer.model.pruned_attention import head_numbers
from glassformer.model.transformer import Model

BUDGET = 256 * 10**6
"""Default memory budget of a recording, in bytes."""


class NotRecordedError(GlassError, KeyError):
    """Error for a name that a recording does not contain."""

    __str__ = Exception.__str__


class Recording(Mapping[str, Tensor]):
    """Tensors of one forward pass by name. Each access returns a copy, so the recording cannot be modified.

    Single heads have names, too: `dec.1.self.2` is the head's slice of `z`, `dec.1.self.2.pattern` its slice of
    `pattern`, and so on, except `k` and `v`, which several heads may share.

    Args:
        values: tensors by name, on the CPU.
        heads: numbers of the heads of each attention site.
    """

    def __init__(self, values: dict[str, Tensor], heads: Mapping[str, Sequence[int]]) -> None:
        self._values = values
        self._heads = heads

    def __getitem__(self, name: str) -> Tensor:
        if name in self._values:
            return self._values[name].clone()
        components = name.split(".")
        site = ".".join(components[:3])
        head = components[3:4]
        kind = ".".join(components[4:]) or "z"
        numbers = [str(number) for number in self._heads.get(site, ())]
        tensor_name = f"{site}.{kind}"
        if head and head[0] in numbers and tensor_name in self._values:
            if kind in ("k", "v"):
                raise NotRecordedError(
                    f"{name} is not a tensor: heads may share keys and values", f"Use {tensor_name}."
                )
            return self._values[tensor_name][:, numbers.index(head[0])].clone()
        if head and head[0] in numbers:
            raise NotRecordedError(
                f"{name} was not recorded", f"Record it, if the model has it: keep=({tensor_name!r},)."
            )
        matches = get_close_matches(name, self._values, n=1)
        question = f"Did you mean {matches[0]}? Or record it" if matches else "Record it"
        raise NotRecordedError(f"{name} was not recorded", f"{question}, if the model has it: keep=({name!r},).")

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        width = max(map(len, self._values), default=0)
        lines = [f"  {name:<{width}}  {tuple(value.shape)}" for name, value in self._values.items()]
        return "\n".join([f"Recording of {counted(len(self), 'tensors')}, {_size(self.nbytes)}", *lines])

    @property
    def nbytes(self) -> int:
        """Memory of all tensors, in bytes."""
        return sum(value.nbytes for value in self._values.values())


def record(
    model: Model,
    tokens: Tensor,
    target: Tensor | None = None,
    real: Tensor | None = None,
    *,
    keep: Sequence[str] = ("pattern",),
    rows: slice | None = None,
    dtype: torch.dtype | None = None,
    budget: int = BUDGET,
) -> Recording:
    """Run one forward pass without dropout and gradients, and record selected tensors; the model is not modified.

    Args:
        model: a model of any family, on any device.
        tokens, target, real: as for `trace`.
        keep: kinds, such as `pattern`, for all layers, or names, such as `dec.1.self.pattern`.
        rows: positions along T to record; None: all. Keys and values are always recorded at all positions.
        dtype: dtype of the recorded tensors; None: that of the model.
        budget: maximum number of bytes of the recording.

    Raises:
        GlassError: the ids, `target` or `real` do not fit the model; `keep` is empty or a string; the model has no
            tensor of the given kinds or names; or the budget is too small. The error for a small budget suggests a
            selection that fits, if there is one.
    """
    inputs = check_inputs(model, tokens, target, real)
    B, T = tokens.shape
    target_length = None if target is None else target.shape[1]
    _check_budget(model, keep, budget, (B, T, target_length, rows, dtype, real is not None))
    with inference(model), record_passes(model, keep, rows, dtype, budget) as passes:
        model.run(inputs)
    return passes[0]


def estimate(
    model: Model,
    keep: Sequence[str],
    batch: int,
    length: int,
    target: int | None = None,
    rows: slice | None = None,
    dtype: torch.dtype | None = None,
    padded: bool = False,
) -> int:
    """Return the exact number of bytes that `record` would store, without a forward pass.

    Args:
        model, keep, rows, dtype: as for `record`.
        batch, length: number of rows and of tokens; for an encoder-decoder, of source tokens.
        target: number of target tokens of an encoder-decoder.
        padded: whether `record` is called with `real`.
    """
    itemsize = (dtype or model.embedding.tokens.weight.dtype).itemsize
    return sum(
        entry.nbytes(batch_sizes(model, entry, batch, length, target, rows, padded), itemsize)
        for entry in select_entries(model, keep)
    )


EstimateArguments = tuple[int, int, int | None, slice | None, torch.dtype | None, bool]


def _check_budget(model: Model, keep: Sequence[str], budget: int, estimate_arguments: EstimateArguments) -> None:
    needed = estimate(model, keep, *estimate_arguments)
    if needed <= budget:
        return
    names = [entry.name for entry in select_entries(model, keep)]
    smaller = [name for name in keep if estimate(model, [name], *estimate_arguments) <= budget]
    while smaller and estimate(model, smaller, *estimate_arguments) > budget:  # drop the largest kinds first
        smaller.remove(max(smaller, key=lambda name: estimate(model, [name], *estimate_arguments)))
    smaller = smaller or [name for name in names if estimate(model, [name], *estimate_arguments) <= budget][:1]
    advice = (
        f"Record less, such as keep={tuple(smaller)}" if smaller else "Give fewer tokens, or fewer positions in `rows`"
    )
    raise GlassError(
        f"the recording would take {_size(needed)}, but the budget is {_size(budget)}",
        f"{advice}, or raise the budget.",
    )


def _size(count: int) -> str:
    """Format a number of bytes."""
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count:,} bytes"


@contextmanager
def record_passes(
    model: Model,
    keep: Sequence[str] = ("pattern",),
    rows: slice | None = None,
    dtype: torch.dtype | None = None,
    budget: int = BUDGET,
) -> Iterator[list[Recording]]:
    """Record all forward passes until the context ends, such as those of generation, beam search or training.

    When the context ends, normally or with an exception, the hooks are removed; the recordings stay valid. Patched
    values are recorded only if the patch is the outer context: `with patch(...), record_passes(...)`. If the patch is
    the inner context, the recording has the original value, and only later tensors show the effect of the patch.

    Args:
        model, keep, rows, dtype: as for `record`. With a cache, a forward pass has only the new positions.
        budget: maximum number of bytes of all recordings together.

    Yields:
        A list with one recording per forward pass. A new recording begins when an encoder runs and when a decoder runs
        again, so an encoder's pass and the first decoder pass after it share a recording.

    Raises:
        GlassError: `keep` is empty or a string, the model has no tensor of the given kinds or names, or the budget is
            exceeded during a forward pass.
    """
    recorder = _PassRecorder(model, rows, dtype, budget)
    with recorder.attached(select_entries(model, keep)):
        yield recorder.passes


class _PassRecorder:
    """Recorder that copies tensors of forward passes into recordings."""

    def __init__(self, model: Model, rows: slice | None, dtype: torch.dtype | None, budget: int) -> None:
        self.model = model
        self.rows = rows
        self.budget = budget
        self.dtype = dtype or model.embedding.tokens.weight.dtype
        self.layers = {str(site): layer for site, layer in attentions(model).items()}
        self.heads = {site: tuple(head_numbers(layer)) for site, layer in self.layers.items()}
        self.entries: dict[str, Recordable] = {}
        self.passes: list[Recording] = []
        self.values: dict[str, Tensor] = {}  # tensors of the current pass
        self.stacks_in_pass: set[str] = set()  # stacks that ran in the current pass
        self.current_stack = ""
        self.recorded_bytes = 0

    @contextmanager
    def attached(self, entries: Sequence[Recordable]) -> Iterator[None]:
        """Record these entries until the context ends, with hooks on their modules and on the stacks."""
        stack_taps = {name: Tap(stack, "input") for name, stack in self.model.stacks.items()}
        self.entries = {entry.name: entry for entry in entries}
        with (
            tapped(stack_taps, self._begin_stack),
            tapped({entry.name: entry.tap for entry in entries}, self._record_value),
        ):
            yield

    def _begin_stack(self, stack: str, ids: Tensor) -> None:
        """Begin a new recording if an encoder runs or a decoder runs again."""
        if stack == "enc" or stack in self.stacks_in_pass or not self.passes:
            self.values = {}
            self.stacks_in_pass = set()
            self.passes.append(Recording(self.values, self.heads))
        self.stacks_in_pass.add(stack)
        self.current_stack = stack

    def _record_value(self, name: str, value: Tensor) -> None:
        """Store a copy of a tensor, restricted to the recorded positions.

        The copy is made outside inference mode, so that autograd can use it.
        """
        entry = self.entries[name]
        if entry.kind in ("embedding", "positions") and entry.stack != self.current_stack:
            return  # the other stack called the shared embedding
        with torch.inference_mode(False), torch.no_grad():
            if entry.kind == "head_output":
                value = head_outputs(self.layers[name.removesuffix(".head_output")], value)  # (B, H, T, D)
            if self.rows is not None and "T" in entry.dims:
                value = value[(slice(None),) * entry.dims.index("T") + (self.rows,)]
            self.recorded_bytes += value.numel() * self.dtype.itemsize
            if self.recorded_bytes > self.budget:
                raise GlassError(
                    f"the recording exceeds its budget of {_size(self.budget)} in forward pass {len(self.passes)}",
                    "Record less, record fewer passes, or raise the budget.",
                )
            self.values[name] = value.detach().to("cpu", self.dtype, copy=True)
