"""Recordings: chosen values of one forward pass or of many, by name, as copies, within a budget of memory.

    found = record(model, tokens, keep=("pattern", "dec.1.resid"))
    found["dec.0.self.pattern"]  # (B, H, T, S)

    with watching(model, keep=("pattern",)) as passes:
        for step in generate(model, prompts, settings):
            passes[-1]["dec.0.self.pattern"]  # (rows, H, 1, S): what the newest tokens look at

What can be kept is listed in `glassformer.inspection.catalogue.THINGS`, and where it is taken from in `HOOK_POINTS`
there: every value is a tensor of the model's own pass, copied by a forward hook. Where scores or patterns are kept,
those layers compute attention step by step instead of by the fused kernel, and the logits stay within 1e-4 of those of
an unobserved pass; otherwise they are bit-equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches

import torch
from torch import Tensor

from glassformer.base.errors import GlassError
from glassformer.inspection.catalogue import Recordable, batch_sizes, chosen, current_name
from glassformer.inspection.hooks import Tap, tapped
from glassformer.inspection.sites import attentions, stacks
from glassformer.inspection.trace import check_given, head_outputs
from glassformer.model.evaluation_mode import inference
from glassformer.model.pruned_attention import head_numbers
from glassformer.model.transformer import EncoderDecoder, Model

BUDGET = 256 * 10**6
"""Bytes that a recording may take, unless told otherwise."""


class NotRecordedError(GlassError, KeyError):
    """A name that a recording does not hold."""

    __str__ = Exception.__str__


class Recording(Mapping[str, Tensor]):
    """Tensors of one forward pass by name. Each access returns a copy; writing to it changes nothing here.

    One head's part has a name, too: `dec.1.self.2` of `z`, `dec.1.self.2.pattern` of `pattern`, and so on. `mixed` is
    an older name of `z` and gives the same.

    Args:
        values: by name; on the CPU.
        heads: the numbers of the heads of each attention.
    """

    def __init__(self, values: dict[str, Tensor], heads: Mapping[str, Sequence[int]]) -> None:
        self._values = values
        self._heads = heads

    def __getitem__(self, name: str) -> Tensor:
        name = current_name(name)
        if name in self._values:
            return self._values[name].clone()
        words = name.split(".")
        site = ".".join(words[:3])
        head = words[3:4]
        thing = ".".join(words[4:]) or "z"
        numbers = [str(number) for number in self._heads.get(site, ())]
        whole = f"{site}.{thing}"
        if head and head[0] in numbers and whole in self._values and thing not in ("k", "v"):
            return self._values[whole][:, numbers.index(head[0])].clone()
        if head and head[0] in numbers:
            raise NotRecordedError(f"{name} was not recorded", f"Keep it, if the model has it: keep=({whole!r},).")
        near = get_close_matches(name, self._values, n=1)
        question = f"Did you mean {near[0]}? Or keep it" if near else "Keep it"
        raise NotRecordedError(f"{name} was not recorded", f"{question}, if the model has it: keep=({name!r},).")

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        width = max(map(len, self._values), default=0)
        lines = [f"  {name:<{width}}  {tuple(value.shape)}" for name, value in self._values.items()]
        return "\n".join([f"Recording of {len(self)} tensors, {_size(self.nbytes)}", *lines])

    @property
    def nbytes(self) -> int:
        """The memory that the values take."""
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
    """One forward pass, without dropout and gradients, of which some is kept; nothing about the model changes.

    Args:
        model: any of the families, on any device.
        tokens, target, real: as for `trace`.
        keep: kinds, such as `pattern`, for all layers, or names, such as `dec.1.self.pattern`.
        rows: which places (queries) to keep; None: all. Keys and values are always kept whole.
        dtype: of what is kept; None: the model's own.
        budget: bytes that the recording may take.

    Raises:
        GlassError: the ids do not fit the model, there is no such kind or name, or the budget is too small; the error
            then names what would fit.
    """
    tokens, target, real = check_given(model, tokens, target, real)
    B, T = tokens.shape
    length = None if target is None else target.shape[1]
    _check_budget(model, keep, budget, (B, T, length, rows, dtype, real is not None))
    with inference(model), watching(model, keep, rows, dtype, budget) as passes:
        if isinstance(model, EncoderDecoder):
            assert target is not None
            model(tokens, target, real)
        else:
            model(tokens, real)
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
    """The bytes that `record` would keep: exact, and nothing is run.

    Args:
        model, keep, rows, dtype: as for `record`.
        batch, length: of the tokens; of an encoder-decoder, of the source.
        target: the target's length, of an encoder-decoder.
        padded: with `real`.
    """
    each = (dtype or model.embedding.tokens.weight.dtype).itemsize
    return sum(
        entry.bytes(batch_sizes(model, entry, batch, length, target, rows, padded), each)
        for entry in chosen(model, keep)
    )


Asked = tuple[int, int, int | None, slice | None, torch.dtype | None, bool]


def _check_budget(model: Model, keep: Sequence[str], budget: int, asked: Asked) -> None:
    needed = estimate(model, keep, *asked)
    if needed <= budget:
        return
    names = [entry.name for entry in chosen(model, keep)]
    smaller = [name for name in keep if estimate(model, [name], *asked) <= budget]
    while smaller and estimate(model, smaller, *asked) > budget:  # the largest go first
        smaller.remove(max(smaller, key=lambda name: estimate(model, [name], *asked)))
    smaller = smaller or [name for name in names if estimate(model, [name], *asked) <= budget][:1]
    advice = f"Keep less, such as keep={tuple(smaller)}" if smaller else "Give fewer tokens, or few places by `rows`"
    raise GlassError(
        f"the recording would take {_size(needed)}, and the budget is {_size(budget)}",
        f"{advice}, or raise the budget.",
    )


def _size(count: int) -> str:
    """Bytes as people read them."""
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count:,} bytes"


@contextmanager
def watching(
    model: Model,
    keep: Sequence[str] = ("pattern",),
    rows: slice | None = None,
    dtype: torch.dtype | None = None,
    budget: int = BUDGET,
) -> Iterator[list[Recording]]:
    """Record every forward pass inside: of generation, translation, beam search or training.

    Afterwards, also after an exception, no hook is left; the recordings stay. What a patch puts in is recorded as such
    if the patch was there first: `with patch(...), watching(...)`. Of one that is put on inside, only what follows from
    it is seen.

    Args:
        model, keep, rows, dtype: as for `record`. With a cache, a pass has only the new places.
        budget: bytes that all passes together may take.

    Yields:
        One recording for each pass; a new one begins with an encoder, and when a decoder runs again, so that an
        encoder's pass and the decoder's first one are together.

    Raises:
        GlassError: there is no such kind or name, or (while passes run) the budget is used up.
    """
    recorder = _PassRecorder(model, rows, dtype, budget)
    with recorder.attached(chosen(model, keep)):
        yield recorder.passes


class _PassRecorder:
    """Puts copies of the values of forward passes into recordings."""

    def __init__(self, model: Model, rows: slice | None, dtype: torch.dtype | None, budget: int) -> None:
        self.model = model
        self.rows = rows
        self.budget = budget
        self.dtype = dtype or model.embedding.tokens.weight.dtype
        self.layers = {str(site): layer for site, layer in attentions(model).items()}
        self.heads = {site: tuple(head_numbers(layer)) for site, layer in self.layers.items()}
        self.entries: dict[str, Recordable] = {}
        self.passes: list[Recording] = []
        self.values: dict[str, Tensor] = {}  # of the present pass
        self.ran: set[str] = set()  # stacks in it
        self.running = ""
        self.taken = 0

    @contextmanager
    def attached(self, entries: Sequence[Recordable]) -> Iterator[None]:
        """Record these entries inside, by hooks on the modules that they need and on no others."""
        begins = {name: Tap(stack, "input") for name, stack in stacks(self.model).items()}
        self.entries = {entry.name: entry for entry in entries}
        with tapped(begins, self._begin), tapped({entry.name: entry.tap for entry in entries}, self._take):
            yield

    def _begin(self, stack: str, ids: Tensor) -> None:
        """Begin a recording with an encoder, and with a decoder that runs again."""
        if stack == "enc" or stack in self.ran or not self.passes:
            self.values = {}
            self.ran = set()
            self.passes.append(Recording(self.values, self.heads))
        self.ran.add(stack)
        self.running = stack

    def _take(self, name: str, value: Tensor) -> None:
        """Copy the wanted rows, as a plain tensor that can be used beside gradients."""
        entry = self.entries[name]
        if entry.thing in ("embedding", "positions") and entry.stack != self.running:
            return  # source and target share an embedding
        with torch.inference_mode(False), torch.no_grad():
            if entry.thing == "head_output":
                value = head_outputs(self.layers[name.removesuffix(".head_output")], value)  # (B, H, T, D)
            if self.rows is not None and "T" in entry.dims:
                value = value[(slice(None),) * entry.dims.index("T") + (self.rows,)]
            self.taken += value.numel() * self.dtype.itemsize
            if self.taken > self.budget:
                raise GlassError(
                    f"the recording of {len(self.passes)} passes is over its budget of {_size(self.budget)}",
                    "Keep less, record fewer passes, or raise the budget.",
                )
            self.values[name] = value.detach().to("cpu", self.dtype, copy=True)
