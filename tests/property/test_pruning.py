"""Importance is a gradient, effects are differences of losses, and a removed head equals a head with gate 0."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from glassformer.base.config import TrainConfig
from glassformer.base.errors import GlassError
from glassformer.inspection.ablation import HEAD_KINDS, ablation_effects
from glassformer.inspection.head_gates import gated
from glassformer.inspection.hooks import Tap, last_values
from glassformer.inspection.patching import Zero, patch
from glassformer.inspection.pruning.direct_effects import direct_effects
from glassformer.inspection.pruning.importance import head_importance, per_layer
from glassformer.inspection.pruning.order import Point, area, attention_effects, choose_by, curve
from glassformer.inspection.pruning.removal import cut_optimizers, fold_gates, without_heads
from glassformer.inspection.sites import attentions, heads
from glassformer.model.pruned_attention import head_numbers
from glassformer.model.transformer import Model
from glassformer.tasks.losses import logits_of
from glassformer.tasks.task_rows import TaskRows, row_losses
from glassformer.training.optimizers import make_optimizers
from tests.property.family_rows import data
from tests.property.models import named, some_heads
from tests.property.traced_models import FAMILIES, model_of

SHAPES: list[dict[str, Any]] = [
    {},
    {"kv_heads": 2, "positions": "rotary", "qk_norm": "head", "norm": "rmsnorm"},
    {"kv_heads": 1, "positions": "alibi", "norm_order": "output", "norm_bias": True},
    {"value_width": 7, "kv_heads": 2, "attention_bias": True},
    {"width": 24, "value_width": 4, "output_projection": False},
    {"kv_heads": 3, "positions": "relative", "norm_order": "post", "attention_bias": True},
]
CASES = [(family, shape) for family in FAMILIES for shape in SHAPES]


def loss(model: Model, rows: TaskRows) -> float:
    """Return the mean loss over all targets, in the model's own precision."""
    batches = [rows.batch([row]) for row in rows.rows]
    with torch.no_grad():
        return sum(float(row_losses(model, each).sum()) for each in batches) / sum(each.n_targets for each in batches)


@pytest.mark.parametrize("family", FAMILIES)
def test_importance_is_the_mean_absolute_gradient(family: str) -> None:
    """Compare with finite differences of each row's loss; the absolute value of their sum is smaller if signs
    differ."""
    model = model_of(family, kv_heads=2).double()
    rows = data(family)
    found = head_importance(model, rows)
    targets = sum(rows.batch([row]).n_targets for row in rows.rows)
    below = 0
    assert list(found) == list(map(str, heads(model)))
    for head in heads(model)[::4]:
        slopes = []
        step = 1e-5
        for row in rows.rows:
            batch = rows.batch([row])
            moved = []
            for sign in (1, -1):
                gate = torch.ones(6, dtype=torch.float64)
                gate[head.head] += sign * step
                with gated(model, {str(head.site): gate}), torch.no_grad():
                    moved.append(float(row_losses(model, batch)))
            slopes.append((moved[0] - moved[1]) / (2 * step))
        assert found[str(head)] == pytest.approx(sum(map(abs, slopes)) / targets, rel=1e-6)
        below += abs(sum(slopes)) / targets < 0.9 * found[str(head)]
    assert below
    assert all(parameter.grad is None for parameter in model.parameters())


def test_importance_does_not_depend_on_how_rows_are_grouped(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("decoder").double()
    rows = data("decoder")
    whole = head_importance(model, rows)
    monkeypatch.setattr("glassformer.tasks.task_rows.MOST_TOKENS", 1)
    assert head_importance(model, rows) == pytest.approx(whole, rel=1e-12)


def test_importance_per_layer_has_length_one() -> None:
    found = per_layer({"dec.0.self.0": 3.0, "dec.0.self.1": 4.0, "dec.1.self.0": 0.0})
    assert found == {"dec.0.self.0": 0.6, "dec.0.self.1": 0.8, "dec.1.self.0": 0.0}


@pytest.mark.parametrize("kind", HEAD_KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_an_ablation_effect_is_a_difference_of_losses(family: str, kind: Any) -> None:
    """Compare with the loss without a head, computed row by row with replacement values from single rows."""
    model = model_of(family, removed_heads=tuple(removable(family)))
    rows = data(family)
    model = model.double()
    found = ablation_effects(model, rows, kind)
    whole = loss(model, rows)
    assert list(found) == list(map(str, heads(model)))
    for head in heads(model)[::3]:
        assert found[str(head)] == pytest.approx(_one(model, rows, head, kind) - whole, rel=1e-6, abs=1e-9)
    assert max(map(abs, found.values())) > 1e-3


def _one(model: Model, rows: TaskRows, head: Any, kind: str) -> float:
    """Return the mean loss over all targets without one head."""
    index = head_numbers(attentions(model)[head.site]).index(head.head)
    values = []
    for row in rows.rows:
        with last_values({head.site: Tap(attentions(model)[head.site].hook_z)}) as mixed, torch.no_grad():
            row_losses(model, rows.batch([row]))
        values.append(mixed[head.site][0, index])  # (T, K)
    mean = torch.cat(values).mean(dim=0)
    total = 0.0
    targets = 0
    for number, row in enumerate(rows.rows):
        batch = rows.batch([row])
        T = len(values[number])
        other = values[(number + 1) % len(values)]
        other = torch.cat([other, other[-1:].expand(T, -1)])[:T]  # (T, K)
        by = {"zero": torch.zeros_like(other), "mean": mean.expand_as(other), "resample": other}[kind]
        with _Put(model, head.site, index, by), torch.no_grad():
            total += float(row_losses(model, batch))
        targets += batch.n_targets
    return total / targets


class _Put:
    """A hook that replaces the output z of one head."""

    def __init__(self, model: Model, site: Any, index: int, values: Tensor) -> None:
        self.layer = attentions(model)[site]
        self.index = index
        self.values = values

    def __enter__(self) -> None:
        K = self.layer.head_width

        def hook(module: Any, args: Any) -> Any:
            x = args[0].clone()  # (1, T, H K)
            x[..., self.index * K : (self.index + 1) * K] = self.values
            return (x,)

        self.handle = self.layer.output.register_forward_pre_hook(hook)

    def __exit__(self, *error: object) -> None:
        self.handle.remove()


def test_resampling_one_row_is_refused() -> None:
    with pytest.raises(GlassError, match="at least 2 rows"):
        ablation_effects(model_of("decoder"), data("decoder", (7,)), "resample")


@pytest.mark.parametrize("shape", [{"norm": "none"}, {"norm": "none", "kv_heads": 2, "tied": False}])
@pytest.mark.parametrize("family", FAMILIES)
def test_for_the_last_attention_the_direct_effect_is_the_total_effect(family: str, shape: dict[str, Any]) -> None:
    """Compare for the last attention layer, which is followed by a feed-forward layer that returns 0 and no norm."""
    model = model_of(family, **shape).double()
    rows = data(family)
    last = list(attentions(model))[-1]
    block = (model.decoder if family == "encoder-decoder" else model.stack).blocks[-1]  # type: ignore[union-attr]
    for parameter in block.feedforward.down.parameters():  # type: ignore[union-attr]
        parameter.data.zero_()
    direct = direct_effects(model, rows)
    total = ablation_effects(model, rows, "zero")
    for head in heads(model):
        if head.site == last:
            assert direct[str(head)] == pytest.approx(total[str(head)], rel=1e-6, abs=1e-10)
    earlier = [str(head) for head in heads(model) if head.site != last and str(head) in direct]
    assert any(abs(direct[name] - total[name]) > 1e-4 for name in earlier)
    assert any(name.startswith("enc") for name in direct) == (family in ("encoder", "classifier"))


@pytest.mark.parametrize(
    "shape", [{}, {"norm": "rmsnorm"}, {"norm_order": "output"}, {"norm_order": "output", "norm": "rmsnorm"}]
)
def test_direct_effects_keep_the_scale_of_every_norm(shape: dict[str, Any]) -> None:
    """A norm with a fixed scale is linear: here norms are replaced by that linear map, and the head is removed."""
    model = model_of("decoder", **shape, layers=1).double()
    rows = data("decoder", (11,))
    block = model.stack.blocks[0]  # type: ignore[union-attr]
    block.feedforward.down.weight.data.zero_()  # type: ignore[union-attr]
    found = direct_effects(model, rows)
    batch = rows.batch(rows.rows)
    given: dict[Any, Tensor] = {}
    norms = [model.stack.norm, block.attention_norm]  # type: ignore[union-attr]
    hooks = [norm.register_forward_pre_hook(lambda m, a: given.__setitem__(m, a[0])) for norm in norms]
    with torch.no_grad():
        whole = float(row_losses(model, batch))
    for hook in hooks:
        hook.remove()

    def held(norm: Any, args: Any, output: Tensor) -> Tensor:
        x = given[norm]
        centre = isinstance(norm, torch.nn.LayerNorm)
        square = (x - x.mean(-1, keepdim=True)).square() if centre else x.square()
        now = args[0] - args[0].mean(-1, keepdim=True) if centre else args[0]
        bias = getattr(norm, "bias", None)
        return now / (square.mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight + (0 if bias is None else bias)

    after = norms if model.config.norm_order == "output" else norms[:1]
    hooks = [norm.register_forward_hook(held) for norm in after]
    for name, effect in found.items():
        with patch(model, {name: Zero()}), torch.no_grad():
            assert effect == pytest.approx((float(row_losses(model, batch)) - whole) / batch.n_targets, rel=1e-6)
    for hook in hooks:
        hook.remove()


def test_direct_effects_are_empty_where_undefined() -> None:
    assert direct_effects(model_of("decoder", norm_order="post"), data("decoder")) == {}
    assert direct_effects(model_of("encoder", head_transform=True), data("encoder")) == {}


def removable(family: str) -> list[str]:
    """Return the names of the heads that the tests remove from a model of this family."""
    return list(some_heads("encoder" if family == "classifier" else family))


def at_zero(model: Model, names: list[str]) -> dict[str, Tensor]:
    """Return gates of 0 for these heads and 1 for all others."""
    gates = {str(site): torch.ones(6, dtype=torch.float64) for site in attentions(model)}
    for name in names:
        site, _, number = name.rpartition(".")
        gates[site][int(number)] = 0
    return gates


@pytest.mark.thorough
@pytest.mark.parametrize(("family", "shape"), CASES, ids=named)
def test_a_gate_of_zero_equals_a_removed_head(family: str, shape: dict[str, Any]) -> None:
    """Cases: unequal groups, a key head without queries, an attention layer without heads, and removal in two steps."""
    model = model_of(family, **shape).double()
    rows = data(family)
    names = removable(family)
    gates = at_zero(model, names)
    half = len(names) // 2
    smaller = without_heads(without_heads(model, names[:half]), names[half:])
    assert set(smaller.config.removed_heads) == set(names)
    assert smaller.config == without_heads(model, names).config
    batch = rows.batch(rows.rows)
    with torch.no_grad():
        with gated(model, gates):
            wanted = logits_of(model, batch)
        found = logits_of(smaller, batch)
        assert (found - logits_of(model, batch)).abs().max() > 1e-2
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=1e-12)
    count = [sum(parameter.numel() for parameter in each.parameters()) for each in (model, smaller)]
    assert count[1] <= count[0] - 2 * len(names) * 10 * 22  # the queries and outputs of each head, keys where all go
    kept = {parameter.data_ptr() for parameter in model.parameters()}
    assert all(parameter.data_ptr() not in kept for parameter in smaller.parameters() if parameter.numel())


def test_gates_are_folded_into_the_weights() -> None:
    model = model_of("encoder-decoder", kv_heads=2)
    rows = data("encoder-decoder")
    gates = {str(site): torch.linspace(0, 1, 6) for site in attentions(model)}
    batch = rows.batch(rows.rows)
    with torch.no_grad(), gated(model, gates):
        wanted = row_losses(model, batch)
    fold_gates(model, gates)
    torch.testing.assert_close(row_losses(model, batch), wanted, atol=1e-5, rtol=1e-6)
    smaller = without_heads(model, [f"{site}.0" for site in attentions(model)])
    torch.testing.assert_close(row_losses(smaller, batch), wanted, atol=1e-5, rtol=1e-6)


def test_invalid_removals_are_refused_in_two_lines() -> None:
    for shape, names, words in (
        ({}, ["dec.0.self.6"], "no head"),
        ({}, ["dec.0.self.1", "dec.0.self.1"], "twice"),
        ({"qk_norm": "whole"}, ["dec.0.self.1"], "qk_norm"),
    ):
        with pytest.raises(GlassError, match=words):
            without_heads(model_of("decoder", **shape), names)


def steps(model: Model, optimizers: list[Any], rows: TaskRows, frozen: dict[str, Tensor] | None, count: int) -> None:
    """Take `count` training steps, with the gates in `frozen` if it is given."""
    batch = rows.batch(rows.rows)
    for _ in range(count):
        with gated(model, frozen or {}):
            row_losses(model, batch).sum().div(batch.n_targets).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_optimizers_keep_their_state_of_remaining_weights(name: Any) -> None:
    """With AdamW, the losses of the model with gates of 0 and of the pruned model agree after two more steps."""
    rows = data("encoder-decoder")
    config = TrainConfig(task="translate", optimizer=name, learning_rate=0.01)
    model = model_of("encoder-decoder", kv_heads=2).requires_grad_(True)
    names = removable("encoder-decoder")
    gates = at_zero(model, names)
    optimizers = make_optimizers(model, config)
    steps(model, optimizers, rows, None, 2)
    smaller = without_heads(model, names).requires_grad_(True)
    own = make_optimizers(smaller, config)
    cut_optimizers(optimizers, own, model, smaller)
    held = {id(p): each for optimizer in own for p, each in optimizer.state.items()}
    left = [parameter for parameter in smaller.parameters() if parameter.numel()]
    assert len(held) >= len(left)
    for parameter in left:
        moments = [value for value in held[id(parameter)].values() if isinstance(value, Tensor) and value.dim()]
        assert moments
        assert all(value.shape == parameter.shape for value in moments)
    if name == "muon":  # it orthogonalizes a whole matrix, so its step depends on the removed rows
        return
    steps(model, optimizers, rows, gates, 2)
    steps(smaller, own, rows, None, 2)
    batch = rows.batch(rows.rows)
    with gated(model, gates), torch.no_grad():
        wanted = row_losses(model, batch)
    torch.testing.assert_close(row_losses(smaller, batch).detach(), wanted, atol=2e-4, rtol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("order", ["importance", "ablation", "random", "reverse"])
def test_curves_end_without_heads(order: Any) -> None:
    model = model_of("encoder-decoder", kv_heads=2)
    rows = data("encoder-decoder")
    points = curve(model, choose_by(order, rows, seed=4), rows, 17)
    assert [point.removed for point in points] == [0, 17, 34, 51, 54]
    gone = [name for point in points for name in point.names]
    assert sorted(gone) == sorted(map(str, heads(model)))
    for point in points:
        part = without_heads(model, gone[: point.removed])
        assert point.loss == pytest.approx(loss(part, rows), rel=1e-5)
    scores = head_importance(model, rows) if order in ("importance", "reverse") else ablation_effects(model, rows)
    first = sorted(scores, key=lambda name: scores[name], reverse=order == "reverse")[:17]
    assert (set(points[1].names) == set(first)) == (order != "random")


def test_random_orders_depend_on_the_seed() -> None:
    model = model_of("decoder")
    rows = data("decoder")
    found = [tuple(choose_by("random", rows, seed=seed)(model, 9)) for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]


def test_the_area_is_the_mean_loss_along_the_curve() -> None:
    points = [Point(0, 1.0, None, ()), Point(2, 2.0, None, ("a", "b")), Point(3, 4.0, None, ("c",))]
    assert area(points) == pytest.approx((2 * 1.5 + 1 * 3.0) / 3)
    assert area(points[:1]) == 1.0


def test_attention_effects_remove_all_heads_of_one_attention() -> None:
    model = model_of("encoder-decoder")
    rows = data("encoder-decoder")
    found = attention_effects(model, rows)
    assert list(found) == [str(site) for site in attentions(model)]
    with gated(model, {"dec.1.cross": torch.zeros(6)}):
        gone = loss(model, rows)
    assert found["dec.1.cross"] == pytest.approx(gone - loss(model, rows), rel=1e-4)


def test_optimizer_states_are_separate_after_an_attention_lost_all_heads() -> None:
    config = TrainConfig(optimizer="muon")
    model = model_of("decoder").requires_grad_(True)
    names = [str(head) for head in heads(model) if str(head).startswith("dec.0.self.")]
    optimizers = make_optimizers(model, config)
    steps(model, optimizers, data("decoder"), None, 1)
    smaller = without_heads(model, names).requires_grad_(True)
    own = make_optimizers(smaller, config)
    cut_optimizers(optimizers, own, model, smaller)
    for optimizer, kind in zip(own, ("exp_avg", "momentum_buffer"), strict=True):
        assert optimizer.state
        assert all(kind in state for state in optimizer.state.values())
        optimizer.load_state_dict(optimizer.state_dict())
    steps(smaller, own, data("decoder"), None, 1)
