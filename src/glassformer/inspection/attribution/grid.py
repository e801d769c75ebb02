"""Activation patching: find the layers and positions, or heads, that decide between two answers.

A clean and a corrupt text have the same number of tokens. In the forward pass of the corrupt text, one activation is
replaced by its value for the clean text. Let LD be the logit of the clean text's answer minus the logit of the corrupt
text's answer. Then the recovered fraction is

    (LD patched - LD corrupt) / (LD clean - LD corrupt)

At 0, the patch recovers nothing; at 1, it recovers the whole logit difference. As Zhang and Nanda (2024) recommend, the
measure is a logit difference, and the corrupt input is a real text rather than one with noise. An activation with a
high fraction is sufficient for the answer, but other activations may be sufficient, too.
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
from glassformer.inspection.sites import attentions
from glassformer.model.pruned_attention import head_numbers
from glassformer.model.transformer import Model

PARTS = ("resid", "self", "cross", "feedforward", "heads")


@dataclass(frozen=True)
class PatchingInputs:
    """Two inputs of equal shape, and the two answers to compare.

    Attributes:
        clean, corrupt: input ids, (1, T); for an encoder-decoder the source ids, (1, S).
        position: position of the answer's logits in the row; 0 for a classifier.
        token, against: answers to the clean and to the corrupt input, a token or a class each.
        target, corrupt_target: target ids of an encoder-decoder, (1, T); if `corrupt_target` is None, `target` is used.
    """

    clean: Tensor
    corrupt: Tensor
    position: int
    token: int
    against: int
    target: Tensor | None = None
    corrupt_target: Tensor | None = None


@dataclass(frozen=True, eq=False)
class PatchGrid:
    """Recovered fractions of the logit difference for the activations of one stack, layer by layer.

    Attributes:
        stack: "enc" or "dec".
        part: one of `PARTS`.
        sites: (N) names of the patched activations, such as `dec.1.resid`.
        columns: (N, C) position, or head number, of each value.
        values: (N, C) recovered fractions: 0 as in the corrupt pass, 1 as in the clean pass.
        nothing: (N) recovered fraction with nothing patched; 0, up to rounding.
        everything: (N) recovered fraction with all columns patched; 1, up to rounding, for the residual stream of a
            model with one stack.
        clean, corrupt: logit differences of the two inputs.
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


def patch_grids(model: Model, inputs: PatchingInputs, part: str = "resid") -> list[PatchGrid]:
    """Patch each position, or each head, of each layer, and measure the recovered fraction of the logit difference.

    The patched copies of the corrupt input for one layer are the rows of one batch; a large batch is split.

    Args:
        model: a model of any family, with any `norm_order`.
        inputs: the inputs and answers to compare.
        part: `resid` (the residual stream before each block and after the last), `self`, `cross` or `feedforward` (the
            output of that layer), or `heads` (each head at all positions).

    Returns:
        One grid for each stack that has such a part.

    Raises:
        GlassError: the part is unknown or the model has none, the shapes differ, the ids do not fit the model, the
            logits are not finite, both inputs have the same logit difference, or the recorded activations exceed the
            memory budget of a recording.
    """
    check_part(part)
    check_shapes(inputs)
    clean = _difference(run_model(model, inputs.clean, inputs.target), inputs)[0]  # ()
    corrupt = _difference(run_model(model, inputs.corrupt, _corrupt_target(inputs)), inputs)[0]  # ()
    if clean == corrupt:
        raise GlassError(
            "both texts have the same logit difference: there is nothing to restore",
            "Give two other texts, or two other answers.",
        )
    scale = Scale(float(clean), float(corrupt))
    candidates = [_grid(model, name, inputs, part, scale) for name in model.stacks]
    grids = [grid for grid in candidates if grid is not None]
    if not grids:
        others = ", ".join(each for each in PARTS if each != part)
        raise GlassError(f"this model has no {part}", f"Choose another part: {others}.")
    return grids


def check_part(part: str) -> None:
    """Raise a `GlassError` unless `part` is one of `PARTS`."""
    if part not in PARTS:
        raise GlassError(f"there is no part {part!r}", nearest(part, PARTS))


def check_shapes(inputs: PatchingInputs) -> None:
    """Raise a `GlassError` unless both texts, and both targets, have equal length."""
    pairs = [("texts", inputs.clean, inputs.corrupt)]
    if inputs.target is not None and inputs.corrupt_target is not None:
        pairs.append(("targets", inputs.target, inputs.corrupt_target))
    for what, one, other in pairs:
        if one.shape != other.shape:
            raise GlassError(
                f"the {what} have {one.shape[1]} and {other.shape[1]} tokens: their positions do not correspond",
                f"Give two {what} with the same number of tokens.",
            )


@dataclass(frozen=True)
class Scale:
    """Linear map of logit differences: `corrupt` to 0, `clean` to 1."""

    clean: float
    corrupt: float

    def recovered_fractions(self, differences: Tensor) -> list[float]:
        """Return the scaled logit differences, as a list of B floats; `differences` is (B)."""
        fractions: list[float] = ((differences - self.corrupt) / (self.clean - self.corrupt)).tolist()
        return fractions


def _grid(model: Model, name: str, inputs: PatchingInputs, part: str, scale: Scale) -> PatchGrid | None:
    sites = _sites(model, name, part)
    if not sites:
        return None
    recorded_names = [f"{site}.z" if part == "heads" else site for site in sites]
    recording = record(model, inputs.clean, inputs.target, keep=recorded_names)
    row = inputs.clean if name == "enc" or inputs.target is None else inputs.target
    columns = []
    values = []
    nothing = []
    everything = []
    for site, recorded_name in zip(sites, recorded_names, strict=True):
        heads = sites[site]
        width = row.shape[1] if heads is None else len(heads)
        patched = torch.cat([torch.eye(width), torch.zeros(1, width), torch.ones(1, width)]).bool()  # (C + 2, C)
        if heads is None:
            differences = _patched_differences(model, inputs, patched, {site: recording[recorded_name]})
        else:
            head_values = {f"{site}.{head}": recording[f"{site}.{head}"] for head in heads}
            differences = _patched_differences(model, inputs, patched, head_values)
        *fractions, unpatched, all_patched = scale.recovered_fractions(differences)
        columns.append(tuple(range(width)) if heads is None else tuple(heads))
        values.append(tuple(fractions))
        nothing.append(unpatched)
        everything.append(all_patched)
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
    """Return the sites of a stack to patch, in order, each with its head numbers for "heads", otherwise with None."""
    if part == "resid":
        return {f"{name}.{layer}.resid": None for layer in range(len(model.stacks[name].blocks) + 1)}
    if part == "feedforward":
        return {f"{name}.{layer}.feedforward": None for layer in range(len(model.stacks[name].blocks))}
    stack_layers = {str(site): layer for site, layer in attentions(model).items() if site.stack == name}
    if part == "heads":
        return {site: head_numbers(layer) for site, layer in stack_layers.items() if layer.heads}
    return {site: None for site in stack_layers if site.endswith(part)}


def _patched_differences(model: Model, inputs: PatchingInputs, patched: Tensor, clean: Mapping[str, Tensor]) -> Tensor:
    """Return the logit differences (B) of B patched copies of the corrupt input.

    Args:
        patched: (B, C) bool, True at the columns to patch in each copy. If `clean` has one activation, the columns are
            positions, or a single column for all positions. Otherwise, each column is one of the activations, which is
            patched at all positions.
        clean: activations of the clean pass by name, (1, T, D), or (1, T, K) for a head.
    """
    target = _corrupt_target(inputs)
    copies_per_pass = max(
        1, MOST_LOGITS // ((inputs.corrupt if target is None else target).shape[1] * model.vocab_size)
    )
    differences = []
    for batch in patched.split(copies_per_pass):  # (b, C)
        masks = [batch] if len(clean) == 1 else list(batch.split(1, dim=1))
        patches = {name: Value(value, where=where) for (name, value), where in zip(clean.items(), masks, strict=True)}
        with patch(model, patches):
            rows = inputs.corrupt.expand(len(batch), -1)  # (b, T)
            logits = run_model(model, rows, None if target is None else target.expand(len(batch), -1))
        differences.append(_difference(logits, inputs))
    return torch.cat(differences)


def _corrupt_target(inputs: PatchingInputs) -> Tensor | None:
    return inputs.target if inputs.corrupt_target is None else inputs.corrupt_target


def _difference(logits: Tensor, inputs: PatchingInputs) -> Tensor:
    """Return the logit differences (B) float64 from logits (B, T, V), or (B, C) of a classifier."""
    answer_logits = logits if logits.dim() == 2 else logits[:, inputs.position]  # (B, V)
    return answer_logits[:, inputs.token].double() - answer_logits[:, inputs.against].double()
