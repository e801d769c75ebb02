"""Remove heads: their rows in the query, key and value projections, and their columns in the output projection.

A key-value head is removed together with the last query head that uses it. Up to rounding, the smaller model computes
the same logits as the full model with these heads' gates at 0. Output biases stay.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor
from torch.optim import Optimizer

from glassformer.base.config import ModelConfig
from glassformer.base.errors import GlassError
from glassformer.inspection.sites import attentions, find_head
from glassformer.model.build import build_model
from glassformer.model.pruned_attention import head_numbers, kv_index
from glassformer.model.transformer import Classifier, EncoderDecoder, Model

Cut = tuple[int, Tensor]
"""Dimension of a tensor, and the indices to keep."""


def refuse_unprunable(config: ModelConfig) -> None:
    """Raise a `GlassError` if removing a head would change the other heads."""
    if config.qk_norm == "whole":
        raise GlassError(
            "model.qk_norm = whole normalizes the queries of all heads as one vector: removing one head would change "
            "the others",
            "Give a run with model.qk_norm = none or head.",
        )


def without_heads(model: Model, names: Collection[str]) -> Model:
    """Return a copy of the model without some heads, in evaluation mode; the given model is not modified.

    Args:
        model: a model of any family; some heads may already be removed.
        names: names of heads to remove, such as `dec.0.self.3`.

    Raises:
        GlassError: the model has no such head, or its heads cannot be removed (see `refuse_unprunable`).
    """
    refuse_unprunable(model.config)
    for name in names:
        find_head(model, name)
    config = model.config.replace(removed_heads=(*model.config.removed_heads, *names))
    smaller = _build_like(model, config)
    cuts = parameter_cuts(model, smaller)
    weights = model.state_dict()
    with torch.no_grad():
        for name, value in smaller.state_dict().items():
            value.copy_(_cut(weights[name], cuts.get(name)))
    parameter = next(model.parameters())
    return smaller.to(parameter.device, parameter.dtype).eval()


def _build_like(model: Model, config: ModelConfig) -> Model:
    """Build a model from a configuration, with the vocabulary size, number of classes and dtype of `model`."""
    source = model.source_embedding if isinstance(model, EncoderDecoder) else None
    classes = model.head.out_features if isinstance(model, Classifier) else None
    source_vocab_size = None if source is None else source.tokens.num_embeddings
    smaller = build_model(config, model.vocab_size, source_vocab_size=source_vocab_size, classes=classes)
    return smaller.to(next(model.parameters()).dtype)


def parameter_cuts(before: Model, after: Model) -> dict[str, Cut]:
    """Return the indices to keep in the projections of attention layers, by parameter name.

    Parameters without an axis for heads, such as output biases, are not listed.
    """
    module_paths = {id(module): path for path, module in before.named_modules()}
    smaller = attentions(after)
    cuts: dict[str, Cut] = {}
    for site, layer in attentions(before).items():
        path = module_paths[id(layer)]
        numbers = head_numbers(layer)
        kv_heads = kv_index(layer)
        remaining = [numbers.index(number) for number in head_numbers(smaller[site])]
        remaining_kv = sorted({kv_heads[head] for head in remaining})
        for part in ("weight", "bias"):
            cuts[f"{path}.query.{part}"] = (0, _head_rows(remaining, layer.head_width))
            cuts[f"{path}.key.{part}"] = (0, _head_rows(remaining_kv, layer.head_width))
            cuts[f"{path}.value.{part}"] = (0, _head_rows(remaining_kv, layer.value_width))
        cuts[f"{path}.output.weight"] = (1, _head_rows(remaining, layer.value_width))
    return cuts


def _head_rows(heads: list[int], width: int) -> Tensor:
    """Return the row indices (heads width) of some heads in a projection."""
    return (torch.tensor(heads, dtype=torch.long)[:, None] * width + torch.arange(width)).flatten()  # (heads width)


def _cut(value: Tensor, cut: Cut | None) -> Tensor:
    return value if cut is None else value.index_select(cut[0], cut[1].to(value.device))


def fold_gates(model: Model, gates: Mapping[str, Tensor]) -> None:
    """Multiply the gates (H) of each attention site into its output projection, in place."""
    with torch.no_grad():
        for site, layer in attentions(model).items():
            gate = gates[str(site)].to(layer.output.weight).repeat_interleave(layer.value_width)  # (H U)
            layer.output.weight.mul_(gate)  # (D, H U)


def cut_optimizers(before: list[Optimizer], after: list[Optimizer], larger: Model, smaller: Model) -> None:
    """Copy the optimizer state of the remaining parameters to the smaller model's optimizers.

    AdamW's moments and Muon's momentum have the shape of their parameter and are updated elementwise, so the remaining
    elements do not depend on the removed elements. A matrix with no remaining elements moves from Muon to AdamW,
    without state.

    Args:
        before, after: optimizers of the larger and of the smaller model.
        larger, smaller: the models before and after pruning.
    """
    old_names = {id(parameter): name for name, parameter in larger.named_parameters()}
    old_states = {
        (type(optimizer).__name__, old_names[id(parameter)]): state
        for optimizer in before
        for parameter, state in optimizer.state.items()
    }
    cuts = parameter_cuts(larger, smaller)
    new_names = {id(p): name for name, p in smaller.named_parameters()}
    shapes = {name: parameter.shape for name, parameter in larger.named_parameters()}
    for optimizer in after:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                name = new_names[id(parameter)]
                state = old_states.get((type(optimizer).__name__, name), {})
                if state:
                    optimizer.state[parameter] = {
                        key: _cut_state(value, shapes[name], cuts.get(name)) for key, value in state.items()
                    }


def _cut_state(value: object, shape: torch.Size, cut: Cut | None) -> object:
    """Return an optimizer state value for the smaller model: cut moments like the parameter, and copy step counts."""
    if not isinstance(value, Tensor):
        return value
    return _cut(value, cut if value.shape == shape else None).clone()
