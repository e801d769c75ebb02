"""Activation patching: where two texts differ in the model, and which of these places decide the answer.

Of two texts of equal length, a clean one and a corrupt one, one value of the clean pass is put into the corrupt pass.
With LD the logit of one answer less that of the other, what comes back is

    (LD patched - LD corrupt) / (LD clean - LD corrupt)

0: nothing; 1: all of it. Zhang and Nanda 2024: differences of logits, and texts that differ in what is asked alone, not
noise. A value that restores the answer is enough for it here; it need not be the only one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glassformer.base.errors import GlassError, nearest
from glassformer.inspection.attribution.case import run_model
from glassformer.inspection.attribution.occlusion import MOST_LOGITS
from glassformer.inspection.patching import Value, patch
from glassformer.inspection.recording import record
from glassformer.inspection.sites import attentions, stacks
from glassformer.model.pruned_attention import head_numbers
from glassformer.model.transformer import Model

PARTS = ("resid", "self", "cross", "feedforward", "heads")


@dataclass(frozen=True)
class Question:
    """Two inputs of one shape, and the answers between which the model decides.

    Attributes:
        clean, corrupt: (1, T), of an encoder-decoder the source's (1, S).
        place: where in the row the answer's logits stand; of a classifier 0.
        token, against: the answer to the clean one and the one to the corrupt one: tokens, or classes.
        target, corrupt_target: (1, T) of an encoder-decoder; the same tensor, or another of its shape.
    """

    clean: Tensor
    corrupt: Tensor
    place: int
    token: int
    against: int
    target: Tensor | None = None
    corrupt_target: Tensor | None = None


@dataclass(frozen=True, eq=False)
class PatchGrid:
    """Recovered logit differences of one stack, layer by layer.

    Attributes:
        stack: "enc" or "dec".
        part: one of `PARTS`.
        sites: (N) what is patched, such as `dec.1.resid`.
        columns: (N, C) of each row which places, or heads, the values are of.
        values: (N) rows of (C) numbers: 0 is corrupt, 1 is clean.
        nothing: (N) the same with nothing patched: 0, but for rounding.
        everything: (N) with all columns patched at once; of the stream, where one stack is all there is, 1.
        clean, corrupt: differences of logits.
    """

    stack: str
    part: str
    sites: tuple[str, ...]
    columns: tuple[tuple[int, ...], ...]
    values: tuple[tuple[float, ...], ...]
    nothing: tuple[float, ...]
    everything: tuple[float, ...]
    clean: float
    corrupt: float

    def facts(self) -> dict[str, Any]:
        """Return the results as a JSON-serializable dict."""
        return dict(vars(self))


def patch_grids(model: Model, question: Question, part: str = "resid") -> list[PatchGrid]:
    """Patch each place, or each head, of each layer: one forward pass for a layer, a patched copy in each of its rows.

    Args:
        model: any of the families, with any order of norms.
        question: what is compared.
        part: `resid`, the stream before each block and after the last; what `self`, `cross` or `feedforward` gives; or
            `heads`, each at all places.

    Returns:
        One grid for each stack that has such a part.

    Raises:
        GlassError: the shapes differ, the texts have the same logits, or the model has no such part.
    """
    check_part(part)
    check_shapes(question)
    clean = _difference(run_model(model, question.clean, question.target), question)[0]  # ()
    corrupt = _difference(run_model(model, question.corrupt, _corrupt_target(question)), question)[0]  # ()
    if clean == corrupt:
        raise GlassError("both texts give the same difference of logits: there is nothing to restore", "Give others.")
    scale = Scale(float(clean), float(corrupt))
    found = [_grid(model, name, question, part, scale) for name in stacks(model)]
    grids = [grid for grid in found if grid is not None]
    if not grids:
        raise GlassError(f"this model has no {part}", "Choose another part.")
    return grids


def check_part(part: str) -> None:
    """Raise a `GlassError` unless there is such a part."""
    if part not in PARTS:
        raise GlassError(f"there is no part {part!r}", nearest(part, PARTS))


def check_shapes(question: Question) -> None:
    """Raise a `GlassError` unless both texts, and both targets, have as many tokens."""
    pairs = [("texts", question.clean, question.corrupt)]
    if question.target is not None and question.corrupt_target is not None:
        pairs.append(("targets", question.target, question.corrupt_target))
    for what, one, other in pairs:
        if one.shape != other.shape:
            raise GlassError(
                f"the {what} have {one.shape[1]} and {other.shape[1]} tokens: no place of one is that of the other",
                "Give two of equal length.",
            )


@dataclass(frozen=True)
class Scale:
    """Map differences of logits to 0 (corrupt) and 1 (clean)."""

    clean: float
    corrupt: float

    def of(self, differences: Tensor) -> list[float]:
        """Return the scaled values of (B) logit differences, as a list of B floats."""
        found: list[float] = ((differences - self.corrupt) / (self.clean - self.corrupt)).tolist()
        return found


def _grid(model: Model, name: str, question: Question, part: str, scale: Scale) -> PatchGrid | None:
    sites = _sites(model, name, part)
    if not sites:
        return None
    keep = [f"{site}.z" if part == "heads" else site for site in sites]
    recorded = record(model, question.clean, question.target, keep=keep)
    row = question.clean if name == "enc" or question.target is None else question.target
    columns = []
    values = []
    nothing = []
    everything = []
    for site, kept in zip(sites, keep, strict=True):
        heads = sites[site]
        width = row.shape[1] if heads is None else len(heads)
        acts = torch.cat([torch.eye(width), torch.zeros(1, width), torch.ones(1, width)]).bool()  # (C + 2, C)
        if heads is None:
            found = _passes(model, question, acts, {site: recorded[kept]})
        else:
            own = {f"{site}.{head}": recorded[f"{site}.{head}"] for head in heads}
            found = _passes(model, question, acts, own)
        *each, none, whole = scale.of(found)
        columns.append(tuple(range(width)) if heads is None else tuple(heads))
        values.append(tuple(each))
        nothing.append(none)
        everything.append(whole)
    return PatchGrid(
        stack=name,
        part=part,
        sites=tuple(sites),
        columns=tuple(columns),
        values=tuple(values),
        nothing=tuple(nothing),
        everything=tuple(everything),
        clean=scale.clean,
        corrupt=scale.corrupt,
    )


def _sites(model: Model, name: str, part: str) -> dict[str, list[int] | None]:
    """Return the sites of a stack to patch, in its order; of heads, which."""
    if part == "resid":
        return {f"{name}.{layer}.resid": None for layer in range(len(stacks(model)[name].blocks) + 1)}
    if part == "feedforward":
        return {f"{name}.{layer}.feedforward": None for layer in range(len(stacks(model)[name].blocks))}
    own = {str(site): layer for site, layer in attentions(model).items() if site.stack == name}
    if part == "heads":
        return {site: head_numbers(layer) for site, layer in own.items() if layer.heads}
    return {site: None for site in own if site.endswith(part)}


def _passes(model: Model, question: Question, acts: Tensor, clean: Mapping[str, Tensor]) -> Tensor:
    """Differences of logits (B) of B copies of the corrupt input.

    Args:
        acts: (B, C) what is patched in each copy: places of the one value in `clean`, or whole values, one a column.
        clean: values by their names; (1, T, D), or of heads (1, T, K).
    """
    target = _corrupt_target(question)
    size = max(1, MOST_LOGITS // ((question.corrupt if target is None else target).shape[1] * model.vocab_size))
    found = []
    for some in acts.split(size):  # (b, C)
        wheres = [some] if len(clean) == 1 else list(some.split(1, dim=1))
        patches = {name: Value(value, where=where) for (name, value), where in zip(clean.items(), wheres, strict=True)}
        with patch(model, patches):
            rows = question.corrupt.expand(len(some), -1)  # (b, T)
            logits = run_model(model, rows, None if target is None else target.expand(len(some), -1))
        found.append(_difference(logits, question))
    return torch.cat(found)


def _corrupt_target(question: Question) -> Tensor | None:
    return question.target if question.corrupt_target is None else question.corrupt_target


def _difference(logits: Tensor, question: Question) -> Tensor:
    """(B, T, V) or (B, C) -> (B) float64."""
    own = logits if logits.dim() == 2 else logits[:, question.place]  # (B, V)
    return own[:, question.token].double() - own[:, question.against].double()
