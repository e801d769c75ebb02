"""Order in models without positions: unknown to an encoder and to one causal layer, known to two causal layers."""

from __future__ import annotations

import pytest
import torch

from tests.property.models import POSITIONS, as_if_trained, encoder, tiny, tokens

LENGTH = 23


def shuffled_prefix(seed: int) -> torch.Tensor:
    """Return the positions (T,) with all but the last shuffled."""
    order = torch.randperm(LENGTH - 1, generator=torch.Generator().manual_seed(seed))
    return torch.cat([order, torch.tensor([LENGTH - 1])])


def largest_change_of_the_last(layers: int, positions: str = "none", **changes: object) -> float:
    """Return the largest change of the last position's logits when the prefix is shuffled, in float64.

    Of five shuffles, return the largest value for one layer and the smallest for more layers.
    """
    model = as_if_trained(tiny(layers=layers, positions=positions, **changes)).double()
    ids = tokens(5, LENGTH)
    before = model(ids)[:, -1]  # (B, V)
    found = [float((model(ids[:, shuffled_prefix(seed)])[:, -1] - before).abs().amax()) for seed in range(5)]
    return max(found) if layers == 1 else min(found)


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("changes", [{}, {"norm": "rmsnorm", "activation": "swiglu", "kv_heads": 2, "qk_norm": "head"}])
def test_an_encoder_without_positions_is_permutation_equivariant(layers: int, changes: dict[str, object]) -> None:
    if "qk_norm" in changes and type(tiny().qk_norm) is bool:
        changes = {**changes, "qk_norm": "head"}
    model = encoder(layers=layers, positions="none", **changes).double()
    ids = tokens(5, LENGTH)
    order = torch.randperm(LENGTH, generator=torch.Generator().manual_seed(3))
    moved = model(ids)[:, order]  # (B, T, V)
    assert moved.std() > 0.3
    assert (model(ids[:, order]) - moved).abs().amax() <= 1e-12


def test_without_positions_two_masks_get_the_same_prediction() -> None:
    model = encoder(positions="none").double()
    ids = tokens(1, LENGTH)
    ids[0, 4] = ids[0, 17] = 30
    logits = model(ids)  # (B, T, V)
    assert (logits[0, 4] - logits[0, 17]).abs().amax() <= 1e-12


@pytest.mark.parametrize("positions", [kind for kind in POSITIONS if kind != "none"])
def test_with_positions_an_encoder_depends_on_the_order(positions: str) -> None:
    model = encoder(positions=positions).double()
    ids = tokens(5, LENGTH)
    order = torch.randperm(LENGTH, generator=torch.Generator().manual_seed(3))
    assert (model(ids[:, order]) - model(ids)[:, order]).abs().amax() > 1e-3
    ids[:, 4] = ids[:, 17] = 30
    logits = model(ids)  # (B, T, V)
    assert (logits[:, 4] - logits[:, 17]).abs().amax() > 1e-3


@pytest.mark.parametrize("changes", [{}, {"norm": "rmsnorm", "activation": "swiglu", "kv_heads": 2}])
def test_one_causal_layer_without_positions_ignores_the_prefix_order(changes: dict[str, object]) -> None:
    assert largest_change_of_the_last(layers=1, **changes) <= 1e-12


@pytest.mark.parametrize("layers", [2, 3])
def test_two_causal_layers_without_positions_depend_on_the_prefix_order(layers: int) -> None:
    assert largest_change_of_the_last(layers=layers) > 1e-3


def test_one_causal_layer_with_positions_depends_on_the_prefix_order() -> None:
    assert largest_change_of_the_last(layers=1, positions="rotary") > 1e-3
