"""Properties of attributions: exact sums, fractions that add up to 1, and flows equal to the minimum cut."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from glassformer.base.errors import GlassError
from glassformer.inspection.attribution import (
    AttributionCase,
    Output,
    PatchingInputs,
    agreement,
    flow,
    lens,
    occlude,
    patch_grids,
    rollout,
    split_neurons,
    split_output,
    split_outputs,
    split_residual,
)
from glassformer.inspection.attribution.case import run_model
from glassformer.inspection.attribution.flow import Network
from glassformer.inspection.attribution.lens import read_stream
from glassformer.inspection.attribution.tables import grid_lines
from glassformer.inspection.patching import Value, patch
from glassformer.inspection.ranks import spearman
from glassformer.inspection.receipt import split_logit
from glassformer.inspection.receipt.parts import split_stream
from glassformer.inspection.recording import record
from glassformer.inspection.sites import last_stack
from glassformer.inspection.trace import trace
from glassformer.model.build import build_model
from glassformer.model.transformer import Model
from glassformer.text.rows import Row
from glassformer.training.validation import validation_loss
from tests.property.models import VOCAB, as_if_trained, decoder, encoder, encoder_decoder, some_heads, tiny, tokens

LENGTH = 11
SOURCE = 7
CLASSES = 5
BIASES = {"attention_bias": True, "feedforward_bias": True, "head_bias": True}
KINDS: tuple[dict[str, Any], ...] = (
    {"norm": "layernorm", "norm_bias": True, "positions": "learned", "embedding_norm": True, **BIASES},
    {"norm": "rmsnorm", "norm_order": "output", "positions": "rotary", "kv_heads": 2, "value_width": 7},
)
FAMILIES = ("decoder", "encoder", "classifier", "encoder-decoder")


def made(family: str, **changes: Any) -> AttributionCase:
    """Return a model of a family, random tokens, and an output at each position (for a classifier, one output)."""
    target = None
    if family == "decoder":
        model: Model = decoder(tiny(**changes))
    elif family == "encoder":
        model = encoder(**changes)
    elif family == "encoder-decoder":
        model = encoder_decoder(**changes)
        target = tokens(1, LENGTH)
    else:
        model = build_model(tiny(family="encoder", pooling="mean", **changes), VOCAB, seed=1, classes=CLASSES).eval()
        with torch.no_grad():
            for number, parameter in enumerate(model.parameters()):
                parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number)) * 0.1)
    row = tokens(1, LENGTH)
    source = tokens(1, SOURCE, seed=1)
    outputs = tuple(Output(place, (place,), (3 * place + 1) % VOCAB, True) for place in range(LENGTH))
    if family == "classifier":
        outputs = (Output(0, tuple(range(LENGTH)), 3, False),)
    return AttributionCase(model, row if target is None else source, target, outputs)


def in_double(case: AttributionCase) -> AttributionCase:
    """Return the same case in float64."""
    return AttributionCase(case.model.double(), case.tokens, case.target, case.outputs)


# ---- sums


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind["norm"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_logit_equals_the_sum_of_its_parts(family: str, kind: dict[str, Any]) -> None:
    case = in_double(made(family, **kind))
    seen = case.trace()
    logits = case.logits()[0]  # (P, V)
    for against in (None, 2):
        found = split_outputs(case.model, seen, case.outputs, against)
        expected = torch.stack([logits[n, o.answer] for n, o in enumerate(case.outputs)])  # (P)
        expected = expected if against is None else expected - logits[:, against]
        assert torch.allclose(found.logits, expected, atol=1e-12, rtol=0)
        assert found.error <= 1e-10
        assert torch.allclose(torch.stack(list(found.grouped().values())).sum(dim=0), expected, atol=1e-10, rtol=0)
        for column in range(0, len(case.outputs), 4):
            output = case.outputs[column]
            one = split_output(case.model, seen, output, against)
            receipt = split_logit(case.model, seen, output.reads, output.answer, against)
            assert [part.name for part in one] == found.names == [part.name for part in receipt]
            values = torch.tensor([part.value for part in one], dtype=torch.float64)
            assert torch.allclose(found.values[:, column], values, atol=1e-12, rtol=0)
            for part, same in zip(one, receipt, strict=True):
                assert part.value == pytest.approx(same.value, abs=1e-12)
                if part.sources is not None:  # the contributions of the sources add up to that of the head
                    assert math.fsum(part.sources) == pytest.approx(part.value, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind["norm"])
@pytest.mark.parametrize("family", FAMILIES)
def test_neurons_add_up_to_their_layer(family: str, kind: dict[str, Any]) -> None:
    case = in_double(made(family, **kind))
    seen = case.trace()
    output = case.outputs[-1]
    for against, layer in itertools.product((None, 2), range(3)):
        parts = {part.name: part.value for part in split_output(case.model, seen, output, against)}
        found = split_neurons(case.model, seen, output, layer, against)
        assert found.values.shape == (37,)
        assert found.total == pytest.approx(parts[f"layer {layer} feed-forward"], abs=1e-10)
        assert (found.bias != 0) == ("feedforward_bias" in kind)


def test_removing_a_neuron_changes_the_logit_by_its_value() -> None:
    """Without norms, the last layer writes directly into the logit."""
    case = in_double(made("decoder", norm="none", tied=False, activation="relu"))
    output = case.outputs[6]
    found = split_neurons(case.model, case.trace(), output, 2)
    neuron = int(found.values.abs().argmax())
    before = float(case.logits()[0, 6, output.answer])
    with torch.no_grad():
        last_stack(case.model).blocks[2].feedforward.down.weight[:, neuron] = 0  # type: ignore[union-attr, index]
    assert before - float(case.logits()[0, 6, output.answer]) == pytest.approx(float(found.values[neuron]), abs=1e-10)
    assert found.values[neuron] != 0


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind["norm"])
def test_the_residual_stream_equals_the_sum_of_its_parts(kind: dict[str, Any]) -> None:
    """The sum is checked along the direction of the residual stream and along some of its axes."""
    case = in_double(made("encoder-decoder", **kind))
    seen = case.trace()
    x = seen.stack.blocks[-1].after[0, 6]  # (D)
    for axis in range(0, 22, 7):
        u = torch.zeros(1, 22, dtype=torch.float64)
        u[0, axis] = 1.0
        total = math.fsum(share.part().value for share in split_stream(case.model, seen, [6], u))
        assert total == pytest.approx(float(x[axis]), abs=1e-10)
    shares = split_residual(case.model, seen, 6)
    assert math.fsum(part.value for part in shares) == pytest.approx(1, abs=1e-12)


# ---- lens


@pytest.mark.parametrize("family", FAMILIES)
def test_the_last_row_of_the_lens_equals_the_model_bit_for_bit(family: str) -> None:
    for kind in ({}, {"head_transform": True, "norm_order": "output"}) if family != "classifier" else ({},):
        case = made(family, **kind)
        name, stack = list(case.model.stacks.items())[-1]
        last = f"{name}.{len(stack.blocks)}.resid"
        stream = record(case.model, case.tokens, case.target, keep=(last,))[last]
        model = run_model(case.model, case.tokens, case.target)
        assert torch.equal(read_stream(case.model, stream, case.tokens, case.target), model)
        found = lens(case.model, case.tokens, case.outputs, case.target)
        logits = case.logits()[0].double()  # (P, V)
        assert torch.equal(found.top[-1, :, 0], logits.argmax(dim=-1))
        own = logits.softmax(dim=-1)
        answers = torch.tensor([output.answer for output in case.outputs])
        assert torch.allclose(found.losses[-1], -own[torch.arange(len(answers)), answers].log(), atol=1e-12)
        assert found.ranks[-1].tolist() == [
            1 + int((row > row[answer]).sum()) for row, answer in zip(logits, answers, strict=True)
        ]
        assert found.settled[-1] == 1.0
        assert found.top.shape == (4, len(case.outputs), 3)


def test_an_early_row_applies_norm_and_head_to_its_stream() -> None:
    case = in_double(made("decoder", norm="layernorm", norm_bias=True))
    seen = case.trace()
    found = lens(case.model, case.tokens, case.outputs)
    norm = last_stack(case.model).norm
    table = case.model.embedding.tokens.weight
    for layer, block in enumerate(seen.stack.blocks):
        x = block.before[0]  # (T, D)
        x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()
        share = ((x * norm.weight + norm.bias) @ table.T).softmax(-1)  # (T, V)
        assert torch.allclose(found.probabilities[layer], share.topk(3).values, atol=1e-12)


def test_the_last_loss_of_the_lens_equals_that_of_evaluation() -> None:
    model = as_if_trained(tiny(positions="rotary"))
    rows = tokens(3, LENGTH + 1, seed=4).numpy()
    curves = []
    for row in rows:
        outputs = [Output(place, (place,), int(row[place + 1]), True) for place in range(LENGTH)]
        curves.append(lens(model, torch.from_numpy(row[None, :-1]), outputs).curve)
    measured = validation_loss(model, [Row.of_text(np.asarray(row)) for row in rows], torch.device("cpu")).loss
    assert np.mean(curves, axis=0)[-1] == pytest.approx(measured, abs=1e-6)


@pytest.mark.parametrize("view", ["lens", "split", "residual", "neurons"])
def test_a_post_norm_model_has_no_residual_stream_views(view: str) -> None:
    case = made("decoder", norm_order="post")
    arrays = {
        "lens": lambda: lens(case.model, case.tokens, case.outputs),
        "split": lambda: split_outputs(case.model, case.trace(), case.outputs),
        "residual": lambda: split_residual(case.model, case.trace(), 1),
        "neurons": lambda: split_neurons(case.model, case.trace(), case.outputs[0], 0),
    }
    with pytest.raises(GlassError, match=r"norm_order = post: .*norm"):
        arrays[view]()


# ---- rollout and flow


@pytest.mark.parametrize("uniform", [False, True])
@pytest.mark.parametrize("family", ["decoder", "encoder", "encoder-decoder"])
def test_the_fractions_of_a_rollout_add_up(family: str, uniform: bool) -> None:
    for kind in ({"norm_order": "post"}, {"removed_heads": some_heads(family), "kv_heads": 2}):
        found = rollout(made(family, **kind).trace(), uniform)
        own = found.row
        source = found.source
        whole = own.sum(dim=-1) + (0 if source is None else source.sum(dim=-1))  # (L, T)
        assert torch.allclose(whole, torch.ones_like(whole), atol=1e-6)
        assert own.min() >= 0
        if family != "encoder":
            assert torch.equal(own, own.tril()), "from tokens that cannot be seen"
        assert (source is not None) == (family == "encoder-decoder")


def test_a_rollout_equals_the_product_of_its_layers() -> None:
    seen = made("encoder-decoder").trace()
    assert seen.source is not None

    def half(weights: Tensor) -> Tensor:
        return weights[0].double().mean(dim=0) / 2

    memory = torch.eye(SOURCE, dtype=torch.float64)
    for block in seen.source.blocks:
        memory = (half(block.attention.pattern) + torch.eye(SOURCE) / 2) @ memory
    whole = torch.cat([torch.zeros(LENGTH, SOURCE), torch.eye(LENGTH)], dim=1).double()  # (T, S + T)
    for block in seen.stack.blocks:
        whole = (half(block.attention.pattern) + torch.eye(LENGTH) / 2) @ whole
        assert block.cross is not None
        from_source = torch.cat([half(block.cross.pattern) @ memory, torch.zeros(LENGTH, LENGTH)], dim=1)
        whole = whole / 2 + from_source
    found = rollout(seen)
    assert found.source is not None
    assert torch.allclose(torch.cat([found.source[-1], found.row[-1]], dim=1), whole, atol=1e-12)


def test_after_one_layer_flow_equals_rollout() -> None:
    seen = made("encoder").trace()
    for place in (0, 5, 10):
        found = flow(seen, (place,), layers=1)
        assert torch.allclose(found.row, rollout(seen).row[0, place], atol=1e-12)
    whole = flow(seen, (4,))
    assert not torch.allclose(whole.row, rollout(seen).row[-1, 4], atol=1e-2)
    assert whole.row.max() <= 1 + 1e-12


def test_a_flow_reaches_the_source_and_no_later_token() -> None:
    found = flow(made("encoder-decoder").trace(), (4,))
    assert found.source is not None
    assert found.source.shape == (SOURCE,)
    assert found.source.min() > 0
    assert found.row[:5].min() > 0
    assert torch.equal(found.row[5:], torch.zeros(LENGTH - 5, dtype=torch.float64))


@settings(max_examples=40)
@given(st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.3, 0.7]), min_size=20, max_size=20))
def test_the_maximum_flow_equals_the_minimum_cut(widths: list[float]) -> None:
    """Max-flow min-cut (Ford and Fulkerson 1956) over all cuts: one source, layers of 2, 3 and 2 nodes, one sink."""
    levels = [range(0, 1), range(1, 3), range(3, 6), range(6, 8), range(8, 9)]
    pipes = {}
    network = Network()
    rest = iter(widths)
    for above, below in itertools.pairwise(levels):
        own = [[next(rest, 0.2) for _ in below] for _ in above]
        network.add_edges(torch.tensor(own, dtype=torch.float64), above, below)
        pipes |= {(a, b): own[n][m] for n, a in enumerate(above) for m, b in enumerate(below)}
    cuts = []
    for chosen in itertools.product((False, True), repeat=7):
        side = (True, *chosen, False)
        cuts.append(sum(width for (a, b), width in pipes.items() if side[a] and not side[b]))
    assert network.max_flow(0, 8) == pytest.approx(min(cuts), abs=1e-12)


def test_invalid_flows_are_refused() -> None:
    seen = made("encoder").trace()
    with pytest.raises(GlassError, match="there is no position 11"):
        flow(seen, (LENGTH,))
    with pytest.raises(GlassError, match="layers is 4"):
        flow(seen, (0,), layers=4)
    model = decoder(tiny(context=61))
    with pytest.raises(GlassError, match="attention flow of 53 tokens takes too long"):
        flow(trace(model, tokens(1, 53)), (0,))


# ---- occlusion and agreement


@pytest.mark.parametrize("family", FAMILIES)
def test_occlusion_equals_passes_over_the_changed_text(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.inspection.attribution.occlusion.MOST_LOGITS", 3 * LENGTH * VOCAB)  # three rows
    case = in_double(made(family))
    found = occlude(case, 9, 4)
    answers = [output.answer for output in case.outputs]
    before = case.logits()[0].log_softmax(dim=-1)[range(len(answers)), answers]  # (P)
    assert torch.allclose(found.before, before, atol=1e-12)
    assert (found.source is not None) == (family == "encoder-decoder")
    sides = [("own", case.row, found.row, 9)]
    if found.source is not None:
        sides.append(("source", case.tokens, found.source, 4))
    for side, row, effects, replacement in sides:
        assert effects.shape == (len(answers), row.shape[1])
        for place in (0, 3, row.shape[1] - 1):
            changed = row.clone()
            changed[0, place] = replacement
            given_ = (changed, case.target) if side == "source" or case.target is None else (case.tokens, changed)
            after = case.logits(*given_)[0].log_softmax(dim=-1)[range(len(answers)), answers]
            assert torch.allclose(effects[:, place], before - after, atol=1e-10)
    if family in ("decoder", "encoder-decoder"):
        assert torch.equal(found.row, found.row.tril())
        assert found.row[5, :6].abs().min() > 0
    assert torch.equal(case.tokens, made(family).tokens), "the text was changed"


@pytest.mark.parametrize("family", FAMILIES)
def test_agreement_has_every_layer_and_measure(family: str) -> None:
    case = made(family)
    seen = case.trace()
    blanked = occlude(case, 9)
    found = agreement(case.model, seen, blanked)
    sides = ["own", "source"] if family == "encoder-decoder" else ["own"]
    assert [(row.side, row.layer, row.measure) for row in found.rows] == list(
        itertools.product(sides, range(3), ("attention", "rollout"))
    )
    causal = family in ("decoder", "encoder-decoder")
    for row in found.rows:
        assert row.outputs == (1 if family == "classifier" else LENGTH - 3 if causal and row.side == "own" else LENGTH)
        assert row.correlation is not None
        assert -1 <= row.correlation <= 1
    first = found.rows[0]
    weights = seen.stack.blocks[0].attention.pattern[0].mean(dim=0)  # (T, T)
    expected = []
    for n, output in enumerate(case.outputs):
        sees = output.reads[-1] + 1 if causal else LENGTH
        own = weights[list(output.reads)].mean(dim=0)[:sees]
        if sees >= 4:
            expected.append(spearman(own.numpy(), blanked.row[n, :sees].abs().numpy()))
    assert first.correlation == pytest.approx(np.mean([each for each in expected if each is not None]), abs=1e-6)


# ---- patching


def question(case: AttributionCase) -> PatchingInputs:
    """Return a text, the same text with one token changed, and two answer tokens."""
    corrupt = case.tokens.clone()
    corrupt[0, 2] = (corrupt[0, 2] + 1) % VOCAB
    return PatchingInputs(case.tokens, corrupt, case.row.shape[1] - 1, 1, 3, case.target, case.target)


@pytest.mark.parametrize("order", ["pre", "post", "output"])
@pytest.mark.parametrize("family", FAMILIES)
def test_patching_everything_restores_all_and_patching_nothing_restores_none(
    family: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glassformer.inspection.attribution.grid.MOST_LOGITS", 5 * LENGTH * VOCAB)  # five rows
    case = in_double(made(family, norm_order=order))
    asked = question(case)
    for grid in patch_grids(case.model, asked):
        assert np.abs(grid.nothing).max() <= 1e-10
        if grid.stack == "dec" and family == "encoder-decoder":  # the target is the same, so the memory decides
            assert grid.everything[0] == pytest.approx(0, abs=1e-10)
            assert grid.everything[-1] == pytest.approx(1, abs=1e-10)
        else:
            assert grid.everything == pytest.approx([1.0] * 4, abs=1e-8)
            changed = [0.0] * len(grid.values[0])
            changed[2] = 1.0  # in the embedding the texts differ at one position
            assert grid.values[0] == pytest.approx(changed, abs=1e-8)
        if family in ("decoder", "encoder") or grid.stack == "dec":
            last = [0.0] * (len(grid.values[-1]) - 1) + [1.0]  # at the end only the position of the answer matters
            assert grid.values[-1] == pytest.approx(last, abs=1e-8)


@pytest.mark.parametrize("part", ["self", "feedforward", "cross", "heads"])
def test_a_patched_part_equals_a_single_patch(part: str) -> None:
    case = in_double(made("encoder-decoder", removed_heads=some_heads("encoder-decoder")))
    asked = question(case)
    for grid in patch_grids(case.model, asked, part):
        for row, site in enumerate(grid.sites):
            column = len(grid.columns[row]) - 1
            name = f"{site}.{grid.columns[row][column]}" if part == "heads" else site
            clean = record(case.model, asked.clean, asked.target, keep=(f"{site}.z" if part == "heads" else site,))
            value = clean[name]  # (1, T, D) or (1, T, K)
            where = torch.zeros(1, value.shape[1], dtype=torch.bool)
            where[0, column] = True
            with patch(case.model, {name: Value(value, where=None if part == "heads" else where)}):
                logits = run_model(case.model, asked.corrupt, asked.target)[0, asked.position]
            found = float(logits[asked.token] - logits[asked.against])
            share = (found - grid.corrupt) / (grid.clean - grid.corrupt)
            assert grid.values[row][column] == pytest.approx(share, abs=1e-8)
    stacks_ = {grid.stack for grid in patch_grids(case.model, asked, part)}
    assert stacks_ == ({"dec"} if part == "cross" else {"enc", "dec"})


def test_all_rows_of_the_head_table_have_the_header_width() -> None:
    case = in_double(made("decoder", removed_heads=["dec.0.self.4", "dec.0.self.5", "dec.1.self.2"]))
    (grid,) = patch_grids(case.model, question(case), "heads")
    header, *rows = (line.split() for line in grid_lines(grid, (), ()))
    assert header == ["head", *"012345"]
    assert [len(row) for row in rows] == [7, 7, 7]
    assert rows[0][5:] == ["-", "-"]
    assert rows[1][3] == "-"


def test_what_cannot_be_patched_is_refused() -> None:
    case = made("decoder")
    asked = question(case)
    with pytest.raises(GlassError, match="the texts have 11 and 7 tokens"):
        patch_grids(case.model, PatchingInputs(asked.clean, tokens(1, 7), 3, 1, 2))
    with pytest.raises(GlassError, match="this model has no cross"):
        patch_grids(case.model, asked, "cross")
    with pytest.raises(GlassError, match="there is no part 'mlp'"):
        patch_grids(case.model, asked, "mlp")
    with pytest.raises(GlassError, match="nothing to restore"):
        patch_grids(case.model, PatchingInputs(asked.clean, asked.clean, 3, 1, 2))
