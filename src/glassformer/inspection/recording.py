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

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.base.errors import GlassError
from glassformer.generation.context import reading
from glassformer.inspection.catalogue import INSIDE, Entry, batch_sizes, chosen, current_name
from glassformer.inspection.sites import attentions, parts, stacks
from glassformer.inspection.trace import check_given, head_outputs
from glassformer.model.attention import Attention
from glassformer.model.pruned_attention import head_numbers
from glassformer.model.transformer import EncoderDecoder, FeedForward, Model

BUDGET = 256 * 10**6
"""Bytes that a recording may take, unless told otherwise."""


class NotRecordedError(GlassError, KeyError):
    """A name that a recording does not hold."""

    __str__ = Exception.__str__


class Recording(Mapping[str, Tensor]):
    """What was kept of one forward pass, by name. Every look gives a fresh copy: writing to it changes nothing here.

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
        wanted = whole if head and head[0] in numbers else name
        raise NotRecordedError(f"{name} was not recorded", f"Keep it: keep=({wanted!r},).")

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
    with reading(model), watching(model, keep, rows, dtype, budget) as passes:
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
    sizes = {e.name: batch_sizes(model, e, batch, length, target, rows, padded) for e in chosen(model, keep)}
    return sum(entry.bytes(sizes[entry.name], each) for entry in chosen(model, keep))


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
    taker = _Taker(model, rows, dtype, budget)
    with ExitStack() as hooks:
        taker.install({entry.name: entry for entry in chosen(model, keep)}, hooks)
        yield taker.passes


class _Taker:
    """Puts copies of what hooks see into recordings."""

    def __init__(self, model: Model, rows: slice | None, dtype: torch.dtype | None, budget: int) -> None:
        self.model = model
        self.rows = rows
        self.budget = budget
        self.dtype = dtype or model.embedding.tokens.weight.dtype
        self.heads = {str(site): tuple(head_numbers(layer)) for site, layer in attentions(model).items()}
        self.passes: list[Recording] = []
        self.values: dict[str, Tensor] = {}  # of the present pass
        self.ran: set[str] = set()  # stacks in it
        self.running = ""
        self.taken = 0

    def install(self, wanted: dict[str, Entry], hooks: ExitStack) -> None:
        """Hooks on the parts that the wanted values need, and on no others."""

        def leaving(module: nn.Module, name: str, stack: str | None = None) -> None:
            if name in wanted:
                take = self._leaving(wanted[name], stack)
                hooks.callback(module.register_forward_hook(take).remove)

        def entering(module: nn.Module, name: str) -> None:
            if name in wanted:
                hooks.callback(module.register_forward_pre_hook(self._entering(wanted[name])).remove)

        def written(layer: Attention, name: str) -> None:
            if name in wanted:
                hooks.callback(layer.hook_z.register_forward_hook(self._written(wanted[name], layer)).remove)

        model = self.model
        for name, stack in stacks(model).items():
            hooks.callback(stack.register_forward_pre_hook(self._begin(name)).remove)
            own = getattr(model, "source_embedding", None) if name == "enc" else None
            embedding = own or model.embedding
            leaving(embedding, f"{name}.embedding", name)
            if embedding.positions is not None:
                leaving(embedding.positions, f"{name}.positions", name)
            for layer, block in enumerate(stack.blocks):
                entering(block, f"{name}.{layer}.resid")
            leaving(stack.blocks[-1], f"{name}.{len(stack.blocks)}.resid")
            leaving(stack, f"{name}.final")
        for site, part in parts(model):
            leaving(part, str(site))
            if isinstance(part, FeedForward):
                entering(part.down, f"{site}.hidden")
            if isinstance(part, Attention):
                for thing in INSIDE:
                    if thing == "head_output":
                        written(part, f"{site}.head_output")
                    else:
                        leaving(getattr(part, f"hook_{thing}"), f"{site}.{thing}")
        leaving(model.head, "logits")

    def _begin(self, name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            if name == "enc" or name in self.ran or not self.passes:
                self.values = {}
                self.ran = set()
                self.passes.append(Recording(self.values, self.heads))
            self.ran.add(name)
            self.running = name

        return hook

    def _leaving(self, entry: Entry, stack: str | None) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            if stack in (None, self.running):  # source and target may share an embedding
                self._take(entry.name, entry.dims, output)

        return hook

    def _entering(self, entry: Entry) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...]) -> None:
            self._take(entry.name, entry.dims, args[0])

        return hook

    def _written(self, entry: Entry, layer: Attention) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            with torch.no_grad():
                self._take(entry.name, entry.dims, head_outputs(layer, output))

        return hook

    def _take(self, name: str, dims: str, value: Tensor) -> None:
        """A copy of the rows that are wanted, as a plain tensor, of use beside gradients too."""
        if self.rows is not None and "T" in dims:
            value = value[(slice(None),) * dims.index("T") + (self.rows,)]
        self.taken += value.numel() * self.dtype.itemsize
        if self.taken > self.budget:
            raise GlassError(
                f"the recording of {len(self.passes)} passes is over its budget of {_size(self.budget)}",
                "Keep less, record fewer passes, or raise the budget.",
            )
        with torch.inference_mode(False), torch.no_grad():
            self.values[name] = value.detach().to("cpu", self.dtype, copy=True)
