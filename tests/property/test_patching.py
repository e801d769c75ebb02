"""Patches: full sets of patches turn the pass of one input into that of another, and leave nothing behind."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from glassformer.base.config import SampleConfig
from glassformer.base.errors import GlassError
from glassformer.generation.beam import beam_search
from glassformer.generation.decoding import generate
from glassformer.inspection.catalogue import catalogue
from glassformer.inspection.patching import (
    KnockOut,
    Mean,
    Patch,
    Pattern,
    Resample,
    Value,
    Zero,
    patch,
    patchable,
)
from glassformer.inspection.recording import record
from glassformer.inspection.trace import trace
from glassformer.inspection.traced import Trace
from glassformer.model.transformer import Model
from tests.property.models import POSITIONS, decoder, encoder_decoder, tiny, tokens
from tests.property.traced_models import FAMILIES, PAD, full_state, inputs, logits_of, model_of

CHOICES: list[dict[str, Any]] = [
    {},
    {"norm_order": "post", "kv_heads": 2},
    {"value_width": 7, "kv_heads": 2, "attention_bias": True},
    {"width": 24, "value_width": 4, "output_projection": False},
    {"norm_order": "output", "norm": "rmsnorm", "qk_norm": "whole"},
    {"positions": "rotary", "attention_bias": True, "feedforward_bias": True},
]


def values(found: Trace, family: str) -> dict[str, Tensor]:
    """Return all values of a trace by site name."""
    kept: dict[str, Tensor] = {}
    own = {"dec" if "decoder" in family else "enc": found.stack}
    for name, stack in {**({} if found.source is None else {"enc": found.source}), **own}.items():
        kept[f"{name}.embedding"] = stack.embedded
        kept[f"{name}.final"] = stack.final
        if stack.position_vectors is not None:
            kept[f"{name}.positions"] = stack.position_vectors
        for n, block in enumerate(stack.blocks):
            kept[f"{name}.{n}.resid"] = block.before
            kept[f"{name}.{n + 1}.resid"] = block.after
            kept[f"{name}.{n}.feedforward"] = block.feedforward.output
            for part, attention in (("self", block.attention), ("cross", block.cross)):
                if attention is not None:
                    kept[f"{name}.{n}.{part}"] = attention.output
                    kept[f"{name}.{n}.{part}.pattern"] = attention.pattern
                    for head in range(6):
                        kept[f"{name}.{n}.{part}.{head}"] = attention.z[:, head]
                        kept[f"{name}.{n}.{part}.{head}.pattern"] = attention.pattern[:, head]
    return kept


def clean_and_corrupt(family: str, real: Tensor | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    clean = inputs(family, real)
    corrupt = {**clean, "tokens": tokens(2, 13, seed=9)}
    if "target" in clean:
        corrupt["target"] = tokens(2, 7, seed=8)
    return clean, corrupt


@pytest.mark.thorough
@pytest.mark.parametrize(("family", "choice"), list(product(FAMILIES, CHOICES)))
def test_patching_everything_gives_the_clean_pass(family: str, choice: dict[str, Any]) -> None:
    """Patch all heads or attention layers together with feed-forward layers and embeddings, or one residual stream."""
    model = model_of(family, **choice)
    clean, corrupt = clean_and_corrupt(family, PAD)
    unobserved = [name for name in catalogue(model) if name.split(".")[-1] not in ("scores", "pattern")]
    source = record(model, **clean, keep=unobserved)
    wanted = logits_of(model, clean)
    plain = logits_of(model, corrupt)
    with patch(model, {}):
        assert torch.equal(logits_of(model, corrupt), plain)
    assert (plain - wanted).abs().max() > 0.1
    names = patchable(model)
    heads = [name for name in names if name.split(".")[-2] in ("self", "cross")]
    parts = [name for name in names if name.endswith((".self", ".cross"))]
    others = [name for name in names if name.endswith(("feedforward", "embedding"))]
    memory = [name for name in names if name == "enc.final"] if family == "encoder-decoder" else []
    streams = [[*memory, name] for name in names if name.startswith(names[-1][:3]) and name.endswith("resid")]
    for chosen in ([*heads, *others], [*parts, *others], *streams, [*memory, names[-1]]):
        with patch(model, {name: Resample(source) for name in chosen}):
            assert torch.equal(logits_of(model, corrupt), wanted), chosen
    without = [name for name in others if name != f"{names[-1][:3]}.embedding"]
    for chosen in ([*heads, *without], parts):  # not all parts
        with patch(model, {name: Resample(source) for name in chosen}):
            assert not torch.allclose(logits_of(model, corrupt), wanted, atol=1e-3)
    assert torch.equal(logits_of(model, corrupt), plain)


@pytest.mark.thorough
@pytest.mark.parametrize(("family", "real"), list(product(FAMILIES, (None, PAD))))
def test_a_models_own_pattern_changes_nothing_and_a_foreign_one_freezes_it(family: str, real: Tensor | None) -> None:
    model = model_of(family, kv_heads=2, positions="rotary")
    clean, corrupt = clean_and_corrupt(family, real)
    own = values(trace(model, **clean), family)
    attentions = [name.removesuffix(".pattern") for name in own if name.endswith(("self.pattern", "cross.pattern"))]
    plain = logits_of(model, clean)
    for names in (attentions, [f"{name}.{head}" for name in attentions for head in (0, 5)]):
        with patch(model, {name: Pattern(own) for name in names}):
            torch.testing.assert_close(logits_of(model, clean), plain, atol=1e-5, rtol=1e-5)
    frozen = values(trace(model, **corrupt), family)
    for name in attentions[::2]:
        with patch(model, {name: Pattern(frozen)}):
            found = values(trace(model, **clean), family)
            one = f"{name}.4"
        assert not torch.allclose(found[name], own[name], atol=1e-3)
        with patch(model, {one: Pattern(frozen[f"{name}.pattern"][:, 4])}):
            by_head = logits_of(model, clean)
        G = trace(model, **clean).stack.blocks[0].attention.k.shape[1]
        assert G == 2
        seen = values_of(model, clean, name)  # (B, G, S, K)
        value = frozen[f"{name}.pattern"][:, 4] @ seen[:, 4 // 3]  # (B, T, K)
        with patch(model, {one: Value(value)}):
            torch.testing.assert_close(by_head, logits_of(model, clean), atol=1e-5, rtol=1e-5)
    assert torch.equal(logits_of(model, clean), plain)


def values_of(model: Model, given: dict[str, Any], name: str) -> Tensor:
    """Return the values v of an attention layer."""
    found = trace(model, **given)
    stack, layer, part = name.split(".")
    own = found.source if stack == "enc" and found.source is not None else found.stack
    block = own.blocks[int(layer)]
    attention = block.attention if part == "self" else block.cross
    assert attention is not None
    return attention.v


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_are_patched_independently(family: str) -> None:
    """A batch with a different ablated head, or a different patched position, in each row equals single passes."""
    model = model_of(family)
    given = inputs(family, PAD)
    names = [name for name in patchable(model) if name.split(".")[-1].isdigit()][::5][:7]
    copies = {key: None if value is None else value[1:].expand(len(names), -1) for key, value in given.items()}
    one = {key: None if value is None else value[1:] for key, value in given.items()}
    rows = torch.eye(len(names), dtype=torch.bool)
    with patch(model, {name: Zero(where=rows[:, n : n + 1]) for n, name in enumerate(names)}):
        together = logits_of(model, copies)
    for row, name in enumerate(names):
        with patch(model, {name: Zero()}):
            alone = logits_of(model, one)
        torch.testing.assert_close(together[row], alone[0], atol=1e-5, rtol=1e-5)
        assert (logits_of(model, one) - alone).abs().max() > 1e-4
    stack = names[-1][:3]
    places = tokens(2, 7 if stack == "dec" and family == "encoder-decoder" else 13)[:1].shape[1]
    where = torch.eye(places, dtype=torch.bool)
    name = f"{stack}.1.resid"
    copies = {key: None if value is None else value[1:].expand(places, -1) for key, value in given.items()}
    with patch(model, {name: Value(torch.ones(22), where=where)}):
        cells = logits_of(model, copies)
    for place in range(places):
        with patch(model, {name: Value(torch.ones(22), where=where[place])}):
            torch.testing.assert_close(cells[place], logits_of(model, one)[0], atol=1e-5, rtol=1e-5)


def test_means_exclude_padding() -> None:
    model = model_of("encoder")
    given = inputs("encoder", PAD)
    probe = values(trace(model, **given), "encoder")  # type: ignore[arg-type]
    for name, own in (("enc.1.self.3", probe["enc.1.self.3"]), ("enc.1.feedforward", probe["enc.1.feedforward"])):
        by_hand = torch.stack([own[row, place] for row, place in PAD.nonzero().tolist()]).mean(dim=0)
        with patch(model, {name: Mean(probe, PAD)}):
            found = logits_of(model, given)
        with patch(model, {name: Value(by_hand)}):
            torch.testing.assert_close(found, logits_of(model, given), atol=1e-6, rtol=1e-6)
        with patch(model, {name: Mean(probe)}):
            assert (logits_of(model, given) - found).abs().max() > 1e-5


def test_resample_uses_the_given_rows() -> None:
    model = model_of("decoder")
    given = inputs("decoder", None)
    own = values(trace(model, **given), "decoder")  # type: ignore[arg-type]
    with patch(model, {"dec.final": Resample(own, rows=[1, 0])}):
        assert torch.equal(logits_of(model, given), logits_of_rows(model, given, [1, 0]))


def logits_of_rows(model: Model, given: dict[str, Tensor | None], rows: list[int]) -> Tensor:
    return logits_of(model, {key: None if value is None else value[rows] for key, value in given.items()})


def test_attention_can_be_directed_to_the_first_real_token() -> None:
    """With padding on the left, the first token is the first real token."""
    model = decoder(tiny(positions="rotary"))
    ids = tokens(2, 13)
    real = torch.tensor([[True] * 13, [False] * 4 + [True] * 9])
    with patch(model, {"dec.1.self": KnockOut()}):
        found = trace(model, ids, real=real).stack.blocks[1].attention
    first = torch.stack([found.v[0, :, 0], found.v[1, :, 4]])  # (B, H, K)
    assert torch.equal(found.z, first[:, :, None].expand_as(found.z))
    with patch(model, {"dec.1.self.2": KnockOut(where=torch.tensor([[True], [False]]))}):
        one = trace(model, ids, real=real).stack.blocks[1].attention
    assert torch.equal(one.z[0, 2], first[0, 2].expand_as(one.z[0, 2]))
    assert not torch.allclose(one.z[1, 2, 5:], first[1, 2].expand_as(one.z[1, 2, 5:]), atol=1e-3)


@pytest.mark.parametrize("positions", POSITIONS)
def test_positions_and_mask_can_be_removed(positions: str) -> None:
    """Without positions an encoder does not know the order; without a mask a decoder sees later tokens."""
    model = model_of("encoder", positions=positions)
    ids = tokens(2, 13)
    order = torch.randperm(13, generator=torch.Generator().manual_seed(3))
    taken = {"enc.positions": Zero()} if positions != "none" else {}
    with patch(model, taken):
        torch.testing.assert_close(model(ids[:, order]), model(ids)[:, order], atol=1e-5, rtol=1e-5)
    if taken:
        assert not torch.allclose(model(ids[:, order]), model(ids)[:, order], atol=1e-2)
    causal = decoder(tiny(positions=positions))
    changed = ids.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 31
    assert torch.equal(causal(changed)[:, 0], causal(ids)[:, 0])
    with patch(causal, {"dec.mask": Zero()}):
        assert (causal(changed)[:, 0] - causal(ids)[:, 0]).abs().max() > 1e-3
    assert torch.equal(causal(changed)[:, 0], causal(ids)[:, 0])


def test_source_and_target_with_a_shared_embedding_are_patched_separately() -> None:
    model = encoder_decoder(positions="learned")
    given = inputs("encoder-decoder", None)
    plain = values(trace(model, **given), "encoder-decoder")  # type: ignore[arg-type]
    for name, other in (("enc", "dec"), ("dec", "enc")):
        for thing in ("positions", "embedding"):
            with patch(model, {f"{name}.{thing}": Zero()}):
                found = values(trace(model, **given), "encoder-decoder")  # type: ignore[arg-type]
            assert torch.equal(found[f"{other}.embedding"], plain[f"{other}.embedding"])
            zero = found[f"{name}.{thing}"]
            assert torch.equal(zero, torch.zeros_like(zero))


def test_patches_work_with_and_without_a_cache() -> None:
    """Heads, feed-forward layers and attention to the first token are patched, in decoding and in beam search."""
    model = decoder(tiny(kv_heads=2, positions="rotary"))
    settings = SampleConfig(tokens=6, temperature=0)
    patches: dict[str, Patch] = {"dec.0.self.2": Zero(), "dec.1.self": KnockOut(), "dec.2.feedforward": Zero()}
    found = []
    for cached in (True, False):
        with patch(model, patches):
            found.append(torch.cat([step.logits for step in generate(model, [[3, 4, 5]], settings, cached=cached)]))
    torch.testing.assert_close(found[0], found[1], atol=1e-5, rtol=1e-5)
    plain = torch.cat([step.logits for step in generate(model, [[3, 4, 5]], settings)])
    assert (plain[0] - found[0][0]).abs().max() > 1e-2
    both = encoder_decoder(kv_heads=2)
    beams = SampleConfig(beams=3, tokens=5)
    crossed: dict[str, Patch] = {"dec.0.cross": KnockOut(), "dec.1.cross.1": KnockOut(), "enc.1.self.0": Zero()}
    with patch(both, crossed):
        again = [beam_search(both, [[3, 5, 7], [2, 4, 6, 8]], beams, end_id=0, cached=c) for c in (True, False)]
    for one, other in zip(*again, strict=True):
        assert [each.tokens for each in one] == [each.tokens for each in other]


def test_gradients_reach_the_given_values() -> None:
    model = model_of("decoder")
    given = inputs("decoder", None)
    value = torch.zeros(10, requires_grad=True)
    with patch(model, {"dec.1.self.3": Value(value)}):
        logits_of(model, given).square().sum().backward()
    assert value.grad is not None
    assert (value.grad != 0).all()


def test_invalid_patches_are_refused_and_nothing_remains() -> None:
    model = model_of("encoder-decoder").train()
    given = inputs("encoder-decoder", None)
    before = full_state(model)
    cases: list[tuple[dict[str, Patch], str]] = [
        ({"dec.1.slef.2": Zero()}, r"no activation 'dec.1.slef.2' to patch(.|\n)*Did you mean dec.1.self.2"),
        ({"dec.1.self.6": Zero()}, "no activation 'dec.1.self.6'"),
        ({"dec.3.self": Zero()}, "no activation 'dec.3.self'"),
        ({"enc.0.self.1": Value(torch.zeros(2, 11, 10))}, r"enc.0.self.1, which has the shape \(2, 13, 10\) here"),
        ({"dec.0.cross": Pattern(torch.ones(2, 6, 7, 7))}, r"dec.0.cross, which has the shape \(2, 6, 7, 13\) here"),
        ({"dec.0.cross.1": Pattern(torch.ones(2, 7, 7))}, r"which has the shape \(2, 7, 13\) here"),
        (
            {"dec.0.feedforward": Resample(torch.zeros(22))},
            r"which has the shape \(2, 7, 22\) here\nGive a shape of \(2, 7, 22\)",
        ),
        (
            {"dec.0.feedforward": Resample(torch.zeros(2, 7, 22), rows=[0, 2])},
            r"rows is \[0, 2\], but the source has 2 rows",
        ),
        ({"dec.0.self.1": Resample({})}, "no values for dec.0.self.1"),
        ({"dec.0.self.1": Pattern({})}, "no values for dec.0.self.1.pattern"),
        ({"dec.0.feedforward": Mean({})}, "no values for dec.0.feedforward"),
        ({"dec.0.feedforward": Mean(torch.ones(2, 7, 22), PAD)}, r"`real` of shape \(2, 13\)"),
        ({"dec.0.feedforward": Mean(torch.ones(22))}, r"a mean over values of shape \(22,\)"),
        (
            {"dec.0.feedforward": Mean(torch.ones(2, 7, 22), torch.zeros(2, 7).bool())},
            "the mean for dec.0.feedforward has no positions",
        ),
        ({"dec.0.self.1": Zero(where=torch.ones(2, 7))}, r"`where` of type torch.float32 was given for dec.0.self.1"),
        (
            {"dec.0.feedforward": KnockOut()},
            "KnockOut was given for dec.0.feedforward, which is not an attention layer or head\nUse it",
        ),
        ({"dec.mask": Value(torch.zeros(1))}, "Value was given for dec.mask"),
        ({"dec.0.self.1": Zero(where=torch.ones(3, 7) > 0)}, r"`where` of shape \(3, 7\) was given for dec.0.self.1"),
        ({"dec.0.self.1": Zero(where=torch.ones(2, 6) > 0)}, r"2 rows and 7 positions here\nGive a shape of \(2, 7\)"),
    ]
    for patches, words in cases:
        with pytest.raises(GlassError, match=words), patch(model, patches):
            logits_of(model, given)
        assert full_state(model) == before
    rotary = model_of("decoder", positions="rotary")
    with (
        pytest.raises(GlassError, match="not added to the embedding"),
        patch(rotary, {"dec.positions": Value(torch.zeros(1))}),
    ):
        rotary(tokens(1, 5))


def test_nested_patches_of_the_same_site_are_refused() -> None:
    model = model_of("decoder")
    given = inputs("decoder", None)
    before = full_state(model)
    plain = logits_of(model, given)
    with patch(model, {"dec.1.self.2": Zero(), "dec.mask": Zero()}):
        for name in ("dec.1.self.2", "dec.1.self"):
            with pytest.raises(GlassError, match=f"{name} is patched inside a patch of dec.1.self.2"):
                patch(model, {name: Zero()}).__enter__()
        with patch(model, {"dec.1.self.3": Zero()}):
            both = logits_of(model, given)
        with pytest.raises(ZeroDivisionError), patch(model, {"dec.1.feedforward": Zero()}):
            raise ZeroDivisionError
        assert not torch.equal(both, logits_of(model, given))
    assert full_state(model) == before
    assert torch.equal(logits_of(model, given), plain)
