"""Names of the parts of a model, for all families: `dec.3.cross`, `dec.3.cross.2`, `enc.0.feedforward`.

A decoder has the stack `dec`, an encoder has the stack `enc`, and an encoder-decoder has both. Numbers count from 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import nn

from glassformer.base.errors import GlassError, nearest
from glassformer.base.wording import span
from glassformer.model.attention import Attention
from glassformer.model.pruned_attention import head_numbers
from glassformer.model.transformer import Block, Model, Stack


@dataclass(frozen=True, order=True)
class Site:
    """Name of one part of a block, such as `dec.3.cross`.

    Attributes:
        stack: "enc" or "dec".
        layer: number of the block, from 0.
        part: "self", "cross" or "feedforward".
    """

    stack: str
    layer: int
    part: str

    def __str__(self) -> str:
        return f"{self.stack}.{self.layer}.{self.part}"


@dataclass(frozen=True, order=True)
class HeadSite:
    """Name of one attention head, such as `dec.3.cross.2`.

    Attributes:
        site: attention layer of the head.
        head: number of the head, from 0.
    """

    site: Site
    head: int

    def __str__(self) -> str:
        return f"{self.site}.{self.head}"


def last_stack(model: Model) -> Stack:
    """Return the stack whose output the head reads."""
    return list(model.stacks.values())[-1]


def parts(model: Model) -> Iterator[tuple[Site, nn.Module]]:
    """Yield all attention and feed-forward layers with their sites, in order of execution."""
    for name, stack in model.stacks.items():
        for layer, block in enumerate(stack.blocks):
            assert isinstance(block, Block)
            yield Site(name, layer, "self"), block.attention
            if block.cross is not None:
                yield Site(name, layer, "cross"), block.cross
            yield Site(name, layer, "feedforward"), block.feedforward


def attentions(model: Model) -> dict[Site, Attention]:
    """Return the attention layers of a model by site, in order of execution."""
    return {site: part for site, part in parts(model) if isinstance(part, Attention)}


def heads(model: Model) -> list[HeadSite]:
    """Return all heads of a model, in order of execution."""
    return [HeadSite(site, number) for site, layer in attentions(model).items() for number in head_numbers(layer)]


def find_head(model: Model, name: str) -> HeadSite:
    """Return the head with the given name, such as `dec.0.self.3`.

    Raises:
        GlassError: the model has no such head; the error lists the model's heads.
    """
    for head in heads(model):
        if str(head) == name:
            return head
    layer_heads = [_heads_of(site, head_numbers(layer)) for site, layer in attentions(model).items() if layer.heads]
    raise GlassError(f"there is no head {name!r} in this model", f"It has {', '.join(layer_heads) or 'none'}.")


def advice_on_part(model: Model, name: str, names: Sequence[str]) -> str:
    """Return advice on an unknown name of a part.

    The advice lists the existing layers, residual streams or heads, or suggests the nearest name in `names`, or lists
    all `names` if none is near.
    """
    name = str(name)  # a caller from Python may pass anything
    components = name.split(".")
    stack = model.stacks.get(components[0])
    if stack is None or len(components) < 3 or not components[1].isdigit():
        return nearest(name, names)
    if int(components[1]) >= len(stack.blocks):
        if components[2] == "resid":
            streams = span(0, len(stack.blocks))
            return f"{components[0]} has residual streams {streams}: before each block, and after the last."
        noun = "layers" if len(stack.blocks) > 1 else "layer"
        return f"{components[0]} has {noun} {span(0, len(stack.blocks) - 1)}."
    for site, layer in attentions(model).items():
        if name.startswith(f"{site}.") and layer.heads:
            noun = "heads" if layer.heads > 1 else "head"
            return f"{site} has {noun} {_heads_of(site, head_numbers(layer))}."
    return nearest(name, names)


def _heads_of(site: Site, numbers: list[int]) -> str:
    """Format the names of a site's heads as a list, or as a range if they are consecutive."""
    if numbers == list(range(numbers[0], numbers[-1] + 1)):
        return span(f"{site}.{numbers[0]}", f"{site}.{numbers[-1]}")
    return ", ".join(f"{site}.{number}" for number in numbers)
