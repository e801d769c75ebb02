"""Models of every family with their inputs, for the tests of traces, recordings, gates and patches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from glassformer.inspection.trace import StackTrace, Trace
from glassformer.model.attention import Attention
from glassformer.model.transformer import Model
from tests.property.models import as_if_trained, some_heads, tiny, tokens

FAMILIES = ("decoder", "encoder", "classifier", "encoder-decoder")
PAD = torch.tensor([[True] * 11 + [False] * 2, [True] * 7 + [False] * 6])


def model_of(family: str, **changes: Any) -> Model:
    """Return a tiny model of a family as if trained; `removed_heads="some"` removes some of its heads."""
    own: dict[str, Any] = {"family": "encoder", "classes": 5} if family == "classifier" else {"family": family}
    if "removed_heads" in changes:
        changes["removed_heads"] = some_heads(own["family"])
    return as_if_trained(tiny(**own, **changes))


def inputs(family: str, real: Tensor | None) -> dict[str, Tensor | None]:
    """Return random tokens for a family by argument name: 2 rows of 13, and targets if the family takes them."""
    both = {"target": tokens(2, 7, seed=1)} if family == "encoder-decoder" else {}
    return {"tokens": tokens(2, 13), "real": real, **both}


def logits_of(model: Model, given: dict[str, Tensor | None]) -> Tensor:
    """Return the model's logits for inputs in the format of `inputs`."""
    order = [given[name] for name in ("tokens", "target", "real") if name in given]
    return model(*order)


def observed_logits_of(model: Model, given: dict[str, Tensor | None]) -> Tensor:
    """Return the logits of a pass in which hooks make every attention layer compute its weights."""
    layers = [part for part in model.modules() if isinstance(part, Attention)]
    handles = [layer.hook_pattern.register_forward_hook(lambda *_: None) for layer in layers]
    try:
        return logits_of(model, given)
    finally:
        for handle in handles:
            handle.remove()


def stacks(found: Trace) -> list[StackTrace]:
    """Return the traced stacks: the source's first, if there is one."""
    return [found.stack] if found.source is None else [found.source, found.stack]


def state(model: Model) -> tuple[list[int], list[bool], list[bool]]:
    """Return the state that tracing could change: numbers of hooks, modes, and parameters that need gradients."""
    parts = list(model.modules())
    gradients = [parameter.requires_grad for parameter in model.parameters()]
    return [len(part._forward_hooks) for part in parts], [part.training for part in parts], gradients


def full_state(model: nn.Module) -> tuple[object, ...]:
    """Return the state that a context manager could change: all hooks, attributes, and `state`."""
    every = list(model.modules())
    hooks = [(len(part._forward_hooks), len(part._forward_pre_hooks)) for part in every]
    return hooks, [sorted(vars(part)) for part in every], state(model)  # type: ignore[arg-type]
