"""Gates on heads: 1 changes nothing, 0 removes a head, and gradients are correct for each row separately."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from glassformer.base.config import SampleConfig
from glassformer.base.errors import GlassError
from glassformer.generation.beam import beam_search
from glassformer.inspection.head_gates import gated
from glassformer.inspection.patching import Zero, patch
from glassformer.inspection.sites import attentions
from glassformer.model.attention import Attention
from glassformer.model.pruned_attention import head_numbers
from glassformer.model.transformer import EncoderDecoder, Model
from tests.property.models import as_if_trained, encoder_decoder, tiny
from tests.property.traced_models import FAMILIES, PAD, full_state, inputs, logits_of, model_of

CASES = [(family, choice) for family in FAMILIES for choice in ({}, {"kv_heads": 2, "norm_order": "post"})]


def losses(model: Model, given: dict[str, Tensor | None]) -> Tensor:
    """Return one number for each row, (B), with a different weight for every logit."""
    logits = logits_of(model, given)
    weights = torch.linspace(-1, 1, logits[0].numel(), dtype=logits.dtype).reshape(logits.shape[1:])
    return (logits * weights).flatten(1).sum(dim=1) + logits.square().flatten(1).mean(dim=1)


@pytest.mark.thorough
@pytest.mark.parametrize("real", [None, PAD], ids=["whole", "padded"])
@pytest.mark.parametrize(("family", "choice"), CASES)
def test_gradients_are_correct_for_each_row(family: str, choice: dict[str, Any], real: Tensor | None) -> None:
    """Gradients of the summed loss equal Σ z · dL/dz and the finite differences of each row's loss."""
    model = model_of(family, **choice).double()
    given = inputs(family, real)
    kept: dict[str, Tensor] = {}

    def keep(name: str, module: nn.Module, args: tuple[Any, ...], z: Tensor) -> None:
        kept[name] = z
        z.retain_grad()

    with gated(model) as gates:
        hooks = [
            layer.hook_z.register_forward_hook(partial(keep, str(site))) for site, layer in attentions(model).items()
        ]
        losses(model, given).sum().backward()
        for hook in hooks:
            hook.remove()
    assert list(gates) == [str(site) for site in attentions(model)]
    for name, gate in gates.items():
        assert gate.shape == (2, 6)
        assert gate.grad is not None
        assert kept[name].grad is not None
        torch.testing.assert_close(gate.grad, (kept[name] * kept[name].grad).sum(dim=(2, 3)), atol=1e-10, rtol=1e-10)
        assert gate.grad.abs().min() > 1e-7
    for name in list(gates)[:: max(1, len(gates) // 3)]:
        check_differences(model, given, name, gates[name])


def check_differences(model: Model, given: dict[str, Tensor | None], name: str, gate: Tensor) -> None:
    """Compare gradients with finite differences, for both rows at once: a row's loss depends only on its own gate."""
    step = 1e-5
    for head in range(6):
        moved = []
        for sign in (1, -1):
            value = torch.ones(6, dtype=torch.float64)
            value[head] += sign * step
            with gated(model, {name: value}):
                moved.append(losses(model, given))
        slope = (moved[0] - moved[1]) / (2 * step)  # (B)
        assert gate.grad is not None
        torch.testing.assert_close(gate.grad[:, head], slope, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("family", FAMILIES)
def test_gates_of_one_change_nothing_and_gates_of_zero_remove_a_head(family: str) -> None:
    model = model_of(family, kv_heads=2)
    given = inputs(family, PAD)
    plain = logits_of(model, given)
    with gated(model):
        assert torch.equal(logits_of(model, given), plain)
    for site in attentions(model):
        value = torch.ones(2, 6)
        value[1, 4] = 0  # in one row only
        with gated(model, {str(site): value}):
            found = logits_of(model, given)
        with patch(model, {f"{site}.4": Zero()}):
            gone = logits_of(model, given)
        torch.testing.assert_close(found, torch.stack([plain[0], gone[1]]), atol=1e-6, rtol=1e-6)
        assert (found - plain)[1].abs().max() > 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_gates_of_zero_equal_removed_heads(family: str) -> None:
    """The logits equal those of a model without these heads, even with gates on the remaining heads."""
    changes: dict[str, Any] = {"kv_heads": 2, "attention_bias": True, "positions": "alibi"}
    model = model_of(family, **changes).double()
    given = inputs(family, PAD)
    sites = [str(site) for site in attentions(model)]
    gone = {site: [1, 4] if number % 2 else [0, 1, 2, 5] for number, site in enumerate(sites)}  # 0-2: a whole key head
    removed = tuple(f"{site}.{head}" for site in sites for head in gone[site])
    own = {"family": "encoder", "classes": 5} if family == "classifier" else {"family": family}
    small = as_if_trained(tiny(**own, **changes, removed_heads=removed)).double()
    weights = dict(model.state_dict())
    for site, (path, layer) in zip(sites, named(model), strict=True):
        kept = head_numbers(dict(named(small))[path])
        queries = [row for head in kept for row in range(head * 10, head * 10 + 10)]
        keys = [row for head in sorted({head // 3 for head in kept}) for row in range(head * 10, head * 10 + 10)]
        for part, rows in (("query", queries), ("key", keys), ("value", keys)):
            for kind in ("weight", "bias"):
                weights[f"{path}.{part}.{kind}"] = weights[f"{path}.{part}.{kind}"][rows]
        weights[f"{path}.output.weight"] = layer.output.weight[:, queries]
        assert len(kept) == 6 - len(gone[site])
    small.load_state_dict(weights)
    values = {site: torch.tensor([float(head not in gone[site]) for head in range(6)]) for site in sites}
    with gated(model, values):
        closed = logits_of(model, given)
    torch.testing.assert_close(closed, logits_of(small, given), atol=1e-12, rtol=1e-12)
    with gated(small) as gates:
        torch.testing.assert_close(logits_of(small, given), closed, atol=1e-12, rtol=1e-12)
    assert [gate.shape[1] for gate in gates.values()] == [6 - len(gone[site]) for site in sites]


def named(model: nn.Module) -> list[tuple[str, Attention]]:
    return [(path, part) for path, part in model.named_modules() if isinstance(part, Attention)]


def test_beams_that_share_a_source_have_separate_gates() -> None:
    """Hypotheses have separate rows in the decoder, but share one row of the source.

    With gates, every row attends to a separate copy of the source; without gates, rows share one copy. The same terms
    are then added in another order, so scores may differ by rounding.
    """
    model = encoder_decoder()
    settings = SampleConfig(beams=3, tokens=2)
    source = [[3, 5, 7, 11], [2, 4, 6, 8, 10]]
    plain = beam_search(model, source, settings, end_id=0)
    with gated(model) as gates:
        found = beam_search(model, source, settings, end_id=0)
    for hypotheses, expected in zip(found, plain, strict=True):
        assert [each.tokens for each in hypotheses] == [each.tokens for each in expected]
        for each, other in zip(hypotheses, expected, strict=True):
            assert each.log_probability == pytest.approx(other.log_probability, abs=1e-6)
    assert {name: len(gate) for name, gate in gates.items() if ".0." in name} == {
        "enc.0.self": 2,
        "dec.0.self": 6,
        "dec.0.cross": 6,
    }
    memory = model.encode(torch.tensor([[3, 5, 7, 11]]))
    target = torch.tensor([[0, 1], [0, 2], [0, 3]])
    value = torch.rand(3, 6)
    with gated(model, {"dec.1.cross": value}):
        together = model.decode(target, memory)
    for row in range(3):
        with gated(model, {"dec.1.cross": value[row]}):
            alone = model.decode(target[row : row + 1], memory)
        torch.testing.assert_close(together[row], alone[0], atol=1e-5, rtol=1e-5)


def test_given_gates_can_be_trained_in_lower_precision() -> None:
    """A gate that is a parameter gets a gradient; gates are float32 even in a bfloat16 model."""
    model = model_of("decoder").bfloat16()
    given = inputs("decoder", None)
    gate = nn.Parameter(torch.full((6,), 0.5))
    with gated(model, {"dec.2.self": gate}):
        logits_of(model, given).float().square().sum().backward()
    assert gate.grad is not None
    assert gate.grad.dtype == torch.float32
    assert (gate.grad != 0).all()
    with gated(model) as gates:
        logits_of(model, given).float().square().sum().backward()
    assert gates["dec.0.self"].dtype == torch.float32


def test_every_forward_pass_has_separate_gates() -> None:
    """Gradients of two batches are not added up."""
    model = model_of("decoder")
    given = inputs("decoder", None)
    with gated(model) as gates:
        losses(model, given).sum().backward()
        first = gates["dec.1.self"]
        losses(model, {**given, "tokens": given["tokens"][:1]}).sum().backward()  # type: ignore[index]
        assert len(gates["dec.1.self"]) == 1
        torch.testing.assert_close(gates["dec.1.self"].grad[0], first.grad[0])  # type: ignore[index]


def test_invalid_gates_are_refused_and_nothing_remains() -> None:
    model = model_of("encoder-decoder").train()
    given = inputs("encoder-decoder", None)
    before = full_state(model)
    for values, words in (
        ({"dec.9.self": torch.ones(6)}, r"no attention layer 'dec.9.self'(.|\n)*Did you mean dec"),
        ({"dec.0.cross": torch.ones(5)}, r"shape \(5,\) were given for dec.0.cross\nIt has 6 heads"),
        ({"dec.0.cross": torch.ones(3, 6)}, "gates for 3 rows were given for dec.0.cross, but the batch has 2 rows"),
    ):
        with pytest.raises(GlassError, match=words), gated(model, values):
            logits_of(model, given)
        assert full_state(model) == before
    with pytest.raises(ZeroDivisionError), gated(model) as gates:
        assert logits_of(model, given).numel() / len(gates.get("dec.9.self", ()))
    assert full_state(model) == before
    assert isinstance(model, EncoderDecoder)
