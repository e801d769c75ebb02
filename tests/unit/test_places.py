"""Maps of embeddings, position curves, shuffling and three importance measures, compared with NumPy and the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from glassformer.base.errors import GlassError
from glassformer.inspection.attribution import AttributionCase, Output, agreement, occlude
from glassformer.inspection.attribution.importance import PAIRS, importance, occlusion_flops
from glassformer.inspection.embeddings import components, neighbours, table_named, tables
from glassformer.inspection.position_curves import (
    bias_by_distance,
    by_distance,
    distances_of,
    embedding_of,
    position_vectors,
    rotary_effect_by_distance,
    shuffle_test,
)
from glassformer.inspection.trace import trace
from glassformer.model.positions import rotate
from tests.property.models import POSITIONS, decoder, encoder, encoder_decoder, tiny, tokens

VECTORS = torch.randn(31, 7, generator=torch.Generator().manual_seed(3)) * torch.arange(1, 8)


def test_components_equal_a_singular_value_decomposition() -> None:
    found = components(VECTORS)
    x = VECTORS.double().numpy()
    _, sizes, axes = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    assert np.allclose(found.explained_variance_ratio, sizes**2 / (sizes**2).sum(), atol=1e-12)
    assert np.isclose(float(found.explained_variance_ratio.sum()), 1)
    assert np.allclose(np.abs(found.axes.numpy() @ axes.T), np.eye(7), atol=1e-9)
    assert (found.axes.gather(1, found.axes.abs().argmax(dim=1, keepdim=True)) > 0).all()
    points = found.transform(VECTORS)
    assert np.allclose(points @ found.axes + found.mean, x, atol=1e-9)
    assert components(VECTORS, 2).axes.equal(found.axes[:2])


def test_neighbours_have_the_largest_cosines() -> None:
    x = VECTORS.double().numpy()
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    cosines = unit @ unit[4]
    order = [int(row) for row in np.argsort(-cosines, kind="stable") if row != 4]
    found = neighbours(VECTORS, 4, 5)
    assert [row for row, _ in found] == order[:5]
    assert np.allclose([cosine for _, cosine in found], cosines[order[:5]], atol=1e-12)
    with pytest.raises(GlassError, match="no vector 31"):
        neighbours(VECTORS, 31, 5)


def test_embedding_tables_are_those_of_the_model() -> None:
    two = encoder_decoder(positions="learned", shared_embedding=False)
    assert list(tables(two)) == ["tokens", "positions", "source tokens", "source positions"]
    assert list(tables(encoder(positions="rotary"))) == ["tokens"]
    with pytest.raises(GlassError, match="no table of positions"):
        table_named(encoder(positions="rotary"), "positions")


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("family", ["decoder", "encoder"])
def test_position_curves_equal_the_models_values(positions: str, family: str) -> None:
    model: Any = decoder(tiny(positions=positions)) if family == "decoder" else encoder(positions=positions)
    stack, embedding = embedding_of(model, "dec" if family == "decoder" else "enc")
    made = trace(model, tokens(1, 11))
    distances = distances_of(stack, 1000)
    assert int(distances[0]) == (0 if family == "decoder" else -28)
    vectors = position_vectors(embedding, 11)
    bias = bias_by_distance(stack, distances)
    turn = rotary_effect_by_distance(stack, distances)
    added = made.stack.position_vectors
    assert (vectors is None) == (added is None)
    if vectors is not None and added is not None:
        assert torch.equal(vectors, added[0].double())
        dot, cosine = by_distance(vectors)
        assert np.isclose(float(dot[3]), np.mean([float(vectors[n] @ vectors[n + 3]) for n in range(8)]))
        assert np.isclose(float(cosine[0]), 1)
    own = made.stack.blocks[0].attention
    zero = int((distances == 0).nonzero())
    assert (bias is None) == (own.bias is None)
    if bias is not None and own.bias is not None:
        for key in range(8 if family == "decoder" else 11):
            assert torch.allclose(own.bias[0, :, 7, key].double(), bias[:, zero + 7 - key], atol=1e-6)
    assert (turn is None) == (own.rotation is None)
    if turn is not None and own.rotation is not None:
        alike = torch.ones(1, 1, 11, 10)
        turned = rotate(alike, own.rotation)[0, 0].double()
        assert np.isclose(float(turned[9] @ turned[4]) / 10, float(turn.mean[zero + 5]), atol=1e-5)


def case_of(family: str, **changes: Any) -> AttributionCase:
    """Return a tiny model with random tokens, and an output at the last position (decoder) or at position 2."""
    if family == "encoder-decoder":
        return AttributionCase(
            encoder_decoder(**changes), tokens(1, 9), tokens(1, 6, seed=1), (Output(2, (2,), 5, True),)
        )
    model: Any = decoder(tiny(**changes)) if family == "decoder" else encoder(**changes)
    place = 8 if family == "decoder" else 2
    return AttributionCase(model, tokens(1, 9), None, (Output(place, (place,), 5, True),))


@pytest.mark.parametrize(("family", "layers"), [("decoder", 1), ("encoder-decoder", 2)])
def test_without_positions_the_order_of_attended_tokens_does_not_matter(family: str, layers: int) -> None:
    """Without positions, one causal layer and an encoder do not see the order; with positions, both do."""
    blind = shuffle_test(case_of(family, positions="none", layers=layers), 0)
    assert float(blind.divergence.abs().max()) < 1e-6
    assert float((blind.after - blind.before).abs().max()) < 1e-5
    assert bool(blind.same.all())
    seeing = shuffle_test(case_of(family, positions="learned", layers=layers), 0)
    assert float(seeing.divergence.min()) > 1e-6


@pytest.mark.parametrize("family", ["decoder", "encoder", "encoder-decoder"])
def test_the_shuffle_test_is_a_plain_pass_over_moved_tokens(family: str) -> None:
    case = case_of(family, positions="rotary")
    fixed = (int(tokens(1, 9)[0, 3]),)
    found = shuffle_test(case, 0, fixed, times=3, seed=7)
    assert 3 not in found.moved
    assert max(found.moved) == (7 if family == "decoder" else 8)
    row = case.tokens.clone()
    row[0, list(found.moved)] = case.tokens[0, found.orders[2]]
    assert sorted(row[0].tolist()) == sorted(case.tokens[0].tolist())
    log_p = case.logits(row)[0, 0].double().log_softmax(dim=-1)
    plain = case.logits()[0, 0].double().log_softmax(dim=-1)
    assert abs(float(log_p[5] - found.after[2])) < 1e-6
    assert abs(float(plain[5]) - found.before) < 1e-6
    assert abs(float((plain.exp() * (plain - log_p)).sum() - found.divergence[2])) < 1e-6
    assert bool(found.same[2]) == (int(log_p.argmax()) == int(plain.argmax()))


def test_one_token_cannot_be_shuffled() -> None:
    case = case_of("decoder")
    with pytest.raises(GlassError, match="1 token can be moved"):
        shuffle_test(AttributionCase(case.model, case.tokens[:, :2], None, (Output(1, (1,), 5, True),)), 0)


@pytest.mark.parametrize("family", ["decoder", "encoder-decoder"])
def test_importance_of_all_outputs_agrees_with_agreement(family: str) -> None:
    one = case_of(family)
    outputs = tuple(Output(place, (place,), (3 * place + 1) % 31, True) for place in range(one.row.shape[1]))
    case = AttributionCase(one.model, one.tokens, one.target, outputs)
    made = case.trace()
    occlusion = occlude(case, 4)
    each = [importance(case.model, made, occlusion, 1, column) for column in range(len(outputs))]
    rows = agreement(case.model, made, occlusion).rows
    for side in range(len(each[0])):
        for measure in ("attention", "rollout"):
            values = [found[side].spearman[PAIRS.index((measure, "blank-out"))] for found in each]
            known = [value for value in values if value is not None]
            name = each[0][side].side
            row = next(row for row in rows if (row.layer, row.measure, row.side) == (1, measure, name))
            assert row.correlation is not None
            assert (len(known), abs(np.mean(known) - row.correlation) < 1e-12) == (row.outputs, True)
    part = made.stack.blocks[1].attention.pattern[0].double().mean(dim=0)
    assert each[3][0].attention is not None
    assert torch.equal(each[3][0].attention, part[3])
    assert torch.equal(each[3][0].blanked, occlusion.row[3])


def test_the_cost_of_occlusion_grows_with_the_text() -> None:
    model = decoder(tiny())
    two = encoder_decoder()
    weights = sum(parameter.numel() for parameter in model.parameters())
    assert occlusion_flops(model, 9) == 9 * (2 * weights * 9 + 3 * 6 * 81 * (4 * 10 + 64))
    assert occlusion_flops(two, 9, 6) < occlusion_flops(two, 9, 7) < occlusion_flops(two, 10, 7)
