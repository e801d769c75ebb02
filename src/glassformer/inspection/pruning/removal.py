"""Taking heads out of a model for good: their rows of queries, keys and values, and their columns of the output.

A key and value head goes when the last query head that it served goes. Everything is exact: the smaller model gives the
logits that the whole one gives with these heads' gates at 0. Output biases stay.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor
from torch.optim import Optimizer

from glassformer.base.config import ModelConfig
from glassformer.base.errors import GlassError
from glassformer.inspection.sites import attentions, find_head
from glassformer.model.attention import Attention
from glassformer.model.build import build_model
from glassformer.model.pruned_attention import head_numbers, kv_index
from glassformer.model.transformer import Classifier, EncoderDecoder, Model

Cut = tuple[int, Tensor]
"""A dimension of a tensor, and which of its indices stay."""


def refuse_unprunable(config: ModelConfig) -> None:
    """Raise a `GlassError` if no head can be taken out of such a model without changing the others."""
    if config.qk_norm == "whole":
        raise GlassError(
            "model.qk_norm = whole normalises the queries of all heads as one vector: without one head the others "
            "would not be what they were",
            "Give a run with model.qk_norm = none, or head.",
        )


def without(model: Model, names: Collection[str]) -> Model:
    """The same model, in evaluation mode, with fewer heads; the given one is left as it is.

    Args:
        model: any of the families; heads may be missing already.
        names: of heads that it has, such as `dec.0.self.3`.

    Raises:
        GlassError: there is no such head, or `refuse_unprunable`.
    """
    refuse_unprunable(model.config)
    for name in names:
        find_head(model, name)
    config = model.config.replace(removed_heads=(*model.config.removed_heads, *names))
    smaller = _empty(model, config)
    cuts = parameter_cuts(model, smaller)
    before = model.state_dict()
    with torch.no_grad():
        for name, value in smaller.state_dict().items():
            value.copy_(_cut(before[name], cuts.get(name)))
    first = next(model.parameters())
    return smaller.to(first.device, first.dtype).eval()


def _empty(model: Model, config: ModelConfig) -> Model:
    """A model of that shape with as many tokens and classes, in the precision of the given one."""
    source = model.source_embedding if isinstance(model, EncoderDecoder) else None
    classes = model.head.out_features if isinstance(model, Classifier) else None
    own = None if source is None else source.tokens.num_embeddings
    smaller = build_model(config, model.vocab_size, source_vocab_size=own, classes=classes)
    return smaller.to(next(model.parameters()).dtype)


def parameter_cuts(before: Model, after: Model) -> dict[str, Cut]:
    """What of each parameter of an attention stays, by the parameter's name; the others stay whole."""
    paths = {id(module): path for path, module in before.named_modules()}
    smaller = attentions(after)
    found: dict[str, Cut] = {}
    for site, layer in attentions(before).items():
        path = paths[id(layer)]
        numbers = head_numbers(layer)
        served_by = kv_index(layer)
        heads = [numbers.index(number) for number in head_numbers(smaller[site])]
        queries = _rows(heads, layer)
        keys = _rows(sorted({served_by[head] for head in heads}), layer)
        for part in ("weight", "bias"):
            found |= {f"{path}.query.{part}": (0, queries)}
            found |= {f"{path}.{name}.{part}": (0, keys) for name in ("key", "value")}
        found[f"{path}.output.weight"] = (1, queries)
    return found


def _rows(heads: list[int], layer: Attention) -> Tensor:
    """The rows (heads K) of some heads."""
    K = layer.head_width
    return (torch.tensor(heads, dtype=torch.long)[:, None] * K + torch.arange(K)).flatten()  # (heads K)


def _cut(value: Tensor, cut: Cut | None) -> Tensor:
    return value if cut is None else value.index_select(cut[0], cut[1].to(value.device))


def fold_gates(model: Model, gates: Mapping[str, Tensor]) -> None:
    """Multiply the gates (H) of each attention, by its site, into its output projection, in place."""
    with torch.no_grad():
        for site, layer in attentions(model).items():
            gate = gates[str(site)].to(layer.output.weight).repeat_interleave(layer.head_width)  # (H K)
            layer.output.weight.mul_(gate)  # (D, H K)


def cut_optimizers(before: list[Optimizer], after: list[Optimizer], larger: Model, smaller: Model) -> None:
    """Give the smaller model's optimizers what those of the larger one know of the parameters that are left.

    AdamW's moments and Muon's momentum have the shape of their parameter and treat each element by itself before they
    are used, so what stays is what an optimizer would hold that had never seen the removed rows. A matrix of which
    nothing is left goes from Muon to AdamW, which knows nothing of it.
    """
    names = {id(parameter): name for name, parameter in larger.named_parameters()}
    known = {
        (type(optimizer).__name__, names[id(parameter)]): state
        for optimizer in before
        for parameter, state in optimizer.state.items()
    }
    cuts = parameter_cuts(larger, smaller)
    own = {id(p): name for name, p in smaller.named_parameters()}
    shapes = {name: parameter.shape for name, parameter in larger.named_parameters()}
    for optimizer in after:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                name = own[id(parameter)]
                state = known.get((type(optimizer).__name__, name), {})
                if state:
                    optimizer.state[parameter] = {
                        key: _cut_state(value, shapes[name], cuts.get(name)) for key, value in state.items()
                    }


def _cut_state(value: object, shape: torch.Size, cut: Cut | None) -> object:
    """A moment is cut as its parameter is; a count of steps is copied."""
    if not isinstance(value, Tensor):
        return value
    return _cut(value, cut if value.shape == shape else None).clone()
