"""Head roles in real models: heads are scored in all families, and a head with weights set by hand is found."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from glassformer.base.config import ModelConfig
from glassformer.inspection.heads import HeadProbe, TokenFacts, copying, passes, probes, survey
from glassformer.inspection.heads.report import table_lines
from glassformer.inspection.pruning.removal import without_heads
from glassformer.inspection.sites import attentions, heads
from glassformer.inspection.trace import trace
from glassformer.model.build import build_model
from glassformer.model.transformer import Block, Decoder, Model
from tests.property.models import VOCAB, as_if_trained, decoder, encoder, encoder_decoder, tiny, tokens

BEGIN = VOCAB - 1
KNOWN = TokenFacts(frozenset({BEGIN}), frozenset({BEGIN}), frozenset({3}), None)
WORDS = probes.TokenPool(np.arange(VOCAB - 1), BEGIN, BEGIN)
FAMILIES = {
    "decoder": lambda: decoder(tiny()),
    "grouped": lambda: decoder(tiny(kv_heads=2)),
    "rotary": lambda: decoder(tiny(positions="rotary", kv_heads=1, norm="rmsnorm")),
    "window": lambda: decoder(tiny(window=5)),
    "encoder": encoder,
    "encoder-decoder": encoder_decoder,
}


def text(model: Model) -> HeadProbe:
    """Return a text probe: rows of random ids with unequal lengths."""
    ids = tokens(5, 23).numpy() % (VOCAB - 1)
    rows = [row[: 17 + number] for number, row in enumerate(ids)]
    targets = [np.insert(row[3:], 0, BEGIN) for row in rows] if hasattr(model, "decoder") else None
    return HeadProbe("text", "random", [np.append(row, BEGIN) for row in rows], targets)


@pytest.mark.thorough
@pytest.mark.parametrize("name", FAMILIES)
def test_every_head_of_every_family_is_scored(name: str) -> None:
    model = FAMILIES[name]()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    report = survey(model, [text(model), *probes.random_probes(model, WORDS, WORDS)], KNOWN)
    assert [found.head for found in report.heads] == heads(model)
    parts = {"encoder": ["enc.self"], "encoder-decoder": ["enc.self", "dec.self", "dec.cross"]}.get(name, ["dec.self"])
    for found in report.heads:
        part = f"{found.head.site.stack}.{found.head.site.part}"
        assert part in parts
        wanted = {"monotone", "end_sink"} if part == "dec.cross" else {"previous", "self", "first", "positional"}
        assert wanted <= set(found.roles)
        assert ("next" in found.roles) == ("delimiter" in found.roles) == (part == "enc.self")
        assert found.statistics["hidden_weight"] == 0.0
        assert 0 < found.statistics["entropy_share"] <= 1
        assert all(-1 <= scored.score <= 1 for scored in found.roles.values())
    assert {each.part for each in report.left_out} <= set(parts)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert report.facts() == survey(model, report.probes, KNOWN).facts()


def test_heads_of_a_pruned_model_keep_their_numbers_and_scores() -> None:
    whole = decoder(tiny())
    pruned = without_heads(whole, ["dec.0.self.0", "dec.0.self.2"])
    scores = {str(each.head): each.roles["previous"].score for each in survey(whole, [text(whole)], KNOWN).heads}
    reports = survey(pruned, [text(pruned)], KNOWN).heads
    assert [each.head for each in reports] == heads(pruned)
    found = {str(each.head): each.roles["previous"].score for each in reports}
    # The input of layer 0 does not depend on the removed heads.
    for name in ("dec.0.self.1", "dec.0.self.3", "dec.0.self.5"):
        assert found[name] == pytest.approx(scores[name], abs=1e-6)


def test_importance_is_included_in_reports() -> None:
    model = encoder()
    report = survey(model, [text(model)], KNOWN)
    assert "importance" not in next(table_lines(report, report.heads))
    ranked = report.with_importance({"enc.2.self.4": 0.1234})
    assert [found.importance for found in ranked.heads] == [None] * 16 + [0.1234, None]
    lines = list(table_lines(ranked, ranked.heads))
    assert "importance" in lines[0]
    assert "0.1234" in lines[17]
    assert ranked.facts()["heads"][16]["importance"] == 0.1234


def looking_back() -> Decoder:
    """Return a model: head 0.0 attends to the previous token, head 0.1 to the same token, and layer 1 uniformly."""
    C = 29
    K = 29
    model = build_model(
        ModelConfig(layers=2, heads=2, head_width=K, width=C + 8, hidden=13, context=C, norm="none"), VOCAB, seed=1
    )
    assert isinstance(model, Decoder)
    first, second = model.stack.blocks
    assert isinstance(first, Block)
    assert isinstance(second, Block)
    with torch.no_grad():
        model.embedding.tokens.weight[:, :C] = 0
        assert model.embedding.positions is not None
        model.get_parameter("embedding.positions.table.weight").copy_(torch.eye(C, C + 8))
        for block in (first, second):
            block.attention.query.weight.zero_()
            block.attention.key.weight.zero_()
        for head in range(2):
            rows = slice(head * K, (head + 1) * K)
            first.attention.query.weight[rows, :C] = 400 * torch.eye(C)  # position i queries i
            first.attention.key.weight[rows, :C] = torch.eye(C) if head else torch.eye(C).roll(1, 0)  # j is j + 1
    return model.eval().requires_grad_(False)


def test_a_constructed_previous_token_head_is_found() -> None:
    model = looking_back()
    report = survey(model, [text(model), *probes.random_probes(model, WORDS, WORDS)], KNOWN)
    back, own, *rest = report.heads
    assert set(back.names) - {"copying", "copying_by_weights"} == {"previous", "positional"}
    assert back.roles["previous"].score > 0.99
    assert back.roles["positional"].detail == {"offset": -1.0}
    assert set(own.names) - {"copying", "copying_by_weights"} == {"self", "positional"}
    assert own.roles["positional"].detail == {"offset": 0.0}
    for even in rest:  # uniform attention of a real model scores at chance
        for role in ("previous", "self", "first", "duplicate", "induction", "positional"):
            scored = even.roles[role]
            assert scored.score == pytest.approx(scored.chance, abs=1e-6)
            assert not scored.earned
        assert even.statistics["entropy_share"] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm", "none"])
@pytest.mark.parametrize("kv_heads", [6, 2])
def test_copying_scores_equal_those_of_the_whole_matrix(norm: str, kv_heads: int) -> None:
    model = decoder(tiny(norm=norm, kv_heads=kv_heads, tied=kv_heads == 6))
    block = model.stack.blocks[1]
    assert isinstance(block, Block)
    found = copying.copying_by_weights(model, block)
    K = 10
    W = {name: value.double() for name, value in model.named_parameters()}
    embedded = W["embedding.tokens.weight"]  # (V, D)
    read = embedded if model.head.weight is None else W["head.weight"]  # (V, D)
    for head in range(6):
        group = head * kv_heads // 6
        value = W["stack.blocks.1.attention.value.weight"][group * K : (group + 1) * K]  # (K, D)
        output = W["stack.blocks.1.attention.output.weight"][:, head * K : (head + 1) * K]  # (D, K)
        D = embedded.shape[1]
        centre = torch.eye(D, dtype=torch.float64) - (1 / D if norm == "layernorm" else 0.0)  # (D, D)
        inside = W.get("stack.blocks.1.attention_norm.weight", torch.ones(D)).double().diag() @ centre  # (D, D)
        final = W.get("stack.norm.weight", torch.ones(D)).double().diag() @ centre  # (D, D)
        whole = read @ final @ output @ value @ inside @ embedded.T  # (V, V)
        values = torch.linalg.eigvals(whole)
        assert found[head] == pytest.approx(float(values.real.sum() / values.abs().sum()), abs=1e-6)


def test_raised_logits_equal_the_heads_contribution() -> None:
    """Without norms, removing a head of the last layer changes the centred logits by the raised logits."""
    model = decoder(tiny(norm="none"))
    ids = tokens(2, 11)
    head = 4
    made = trace(model, ids)
    raised = copying.raised_logits(model, made.stack.blocks[2].attention, ids)  # (N, H, T, S)
    block = model.stack.blocks[2]
    assert isinstance(block, Block)
    with torch.no_grad():
        block.feedforward.down.weight.zero_()
        whole = model(ids).double()  # (N, T, V)
        block.attention.output.weight[:, head * 10 : (head + 1) * 10] = 0
        gone = (whole - model(ids).double()).numpy()  # (N, T, V)
    gone -= gone.mean(axis=-1, keepdims=True)
    wanted = np.take_along_axis(gone, np.repeat(ids.numpy()[:, None], 11, axis=1), axis=-1)  # (N, T, S)
    assert np.abs(raised[:, head] - wanted).max() < 1e-5


def test_copying_is_omitted_with_a_reason_where_it_is_meaningless() -> None:
    for family, changes, part, words in (
        ("decoder", {"norm_order": "post"}, "dec.self", "model.norm_order = post"),
        ("encoder-decoder", {"shared_embedding": False}, "dec.cross", "separate embeddings"),
        ("encoder-decoder", {}, "enc.self", "reaches no logit directly"),
    ):
        model = as_if_trained(tiny(family=family, **changes))
        report = survey(model, [text(model), *probes.random_probes(model, WORDS, WORDS)], KNOWN)
        (reason,) = [each.reason for each in report.left_out if (each.part, each.role) == (part, "copying")]
        assert words in reason


def test_padding_and_batches_have_no_effect() -> None:
    """Single rows and padded batches give the same attention weights."""
    model = decoder(tiny(kv_heads=2))
    probe = text(model)
    together = [passed.arrays for passed in passes.passes(model, probe, frozenset({BEGIN}))]
    assert len(together) == 3  # one batch, three layers
    for number, row in enumerate(probe.rows):
        alone = passes.passes(model, HeadProbe("text", "", [row]), frozenset({BEGIN}))
        for layer, passed in enumerate(alone):
            size = len(row)
            whole = together[layer]
            assert np.array_equal(passed.arrays.rows[0], whole.rows[number, :size])
            assert not whole.rows[number, size:].any()
            near = whole.weights[number, :, :size, :size] - passed.arrays.weights[0]
            assert np.abs(near).max() < 1e-6


def test_every_attention_part_is_measured() -> None:
    model = encoder_decoder(kv_heads=3)
    sites = [str(passed.site) for passed in passes.passes(model, text(model), frozenset(), frozenset({BEGIN}))]
    assert sites == [str(site) for site in attentions(model)]
