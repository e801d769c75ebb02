"""Attention maps equal the model's weights except at masked positions, in every family; the model is unchanged."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from glassformer.base.config import ModelConfig
from glassformer.base.errors import GlassError
from glassformer.inspection.explain import Subject
from glassformer.inspection.plots import draw_attention, facts, find_site, record_attention_maps
from glassformer.inspection.plots.attention import largest_weights
from glassformer.inspection.plots.run_maps import AttentionMaps
from glassformer.inspection.sites import HeadSite, Site, find_head
from glassformer.inspection.trace import trace
from glassformer.model.build import build_model
from glassformer.model.transformer import Model

V = 53


def made(family: str, **more: object) -> Model:
    torch.manual_seed(3)
    settings = {"family": family, "layers": 2, "heads": 4, "width": 32, "context": 64, **more}
    if family == "classifier":
        settings |= {"family": "encoder", "classes": 3}
    return build_model(ModelConfig(**settings), vocab_size=V).eval()  # type: ignore[arg-type]


def subject(model: Model, length: int, target: int | None = None) -> Subject:
    """Return a subject whose token labels are ids with the prefix s (text or source) or t (target)."""
    source, written = (
        tuple(int(id) for id in np.random.default_rng(size).integers(V, size=size)) for size in (length, target or 0)
    )
    labels = tuple(f"s{id}" for id in source)
    if target is None:
        return Subject("a test", model, "text", source, labels, (), str)
    names = tuple(f"t{id}" for id in written)
    return Subject("a test", model, "text", source, labels, (), str, "target", written, names)


@pytest.mark.parametrize("family", ["decoder", "encoder", "classifier", "encoder-decoder"])
def test_maps_equal_the_attention_weights(family: str) -> None:
    model = made(family)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    what = subject(model, 13, 7 if family == "encoder-decoder" else None)
    found = record_attention_maps(what)
    whole = what.trace()
    stacks = {"dec" if family in ("decoder", "encoder-decoder") else "enc": whole.stack}
    if whole.source is not None:
        stacks["enc"] = whole.source
    assert found.block == 1
    seen = 0
    for name, stack in stacks.items():
        for layer, block in enumerate(stack.blocks):
            for part, attention in (("self", block.attention), ("cross", block.cross)):
                if attention is None:
                    continue
                allowed = attention.allowed.expand(attention.pattern.shape)[0].numpy()  # (H, T, S)
                for head in range(4):
                    cells = found.maps[HeadSite(Site(name, layer, part), head)]
                    np.testing.assert_allclose(np.nan_to_num(cells), attention.pattern[0, head].numpy(), atol=1e-6)
                    np.testing.assert_array_equal(np.isnan(cells), ~allowed[head])
                    seen += 1
    assert seen == len(found.maps)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_columns_are_sources_and_rows_are_targets() -> None:
    model = made("encoder-decoder")
    found = record_attention_maps(subject(model, 13, 7), find_site(model, "dec.1.cross"))
    assert {cells.shape for cells in found.maps.values()} == {(7, 13)}
    axes = draw_attention(found).axes[0]
    assert {label.get_text()[0] for label in axes.get_yticklabels()} == {"t"}
    assert {label.get_text()[0] for label in axes.get_xticklabels()} == {"s"}
    assert (
        record_attention_maps(subject(model, 13, 7), find_site(model, "enc.0.self")).tokens(Site("enc", 0, "self"))[0][
            0
        ][1]
        < V
    )


def test_one_head_can_be_recorded_beside_removed_heads() -> None:
    model = made("decoder", removed_heads=("dec.0.self.1", *(f"dec.1.self.{head}" for head in range(4))))
    what = subject(model, 11)
    every = record_attention_maps(what)
    assert [str(head) for head in every.maps] == ["dec.0.self.0", "dec.0.self.2", "dec.0.self.3"]
    one = record_attention_maps(what, find_head(model, "dec.0.self.2"))
    weights = trace(model, torch.tensor([what.ids])).stack.blocks[0].attention.pattern[0, 1]  # the second that is left
    (cells,) = one.maps.values()
    np.testing.assert_allclose(np.nan_to_num(cells), weights.numpy(), atol=1e-6)
    assert "dec.0.self.2" in {text.get_text().split(":")[0] for text in draw_attention(one).texts}
    draw_attention(every)
    with pytest.raises(GlassError, match=r"all heads of dec\.1\.self were removed"):
        record_attention_maps(what, find_site(model, "dec.1.self"))
    with pytest.raises(GlassError, match="there is no attention"):
        find_site(model, "dec.2.self")


def test_numbers_equal_the_picture_and_masked_cells_are_null() -> None:
    model = made("decoder", window=3)
    found = facts(record_attention_maps(subject(model, 11), find_site(model, "dec.0.self")))
    assert [head["name"] for head in found["heads"]] == [f"dec.0.self.{n}" for n in range(4)]
    for head in found["heads"]:
        for row, weights in enumerate(head["weights"]):
            assert [weight is None for weight in weights] == [not row - 3 < column <= row for column in range(11)]
            assert sum(weight or 0.0 for weight in weights) == pytest.approx(1, abs=1e-5)


def test_the_list_omits_weights_that_round_to_zero_except_the_largest() -> None:
    what = subject(made("decoder"), 4)
    head = HeadSite(Site("dec", 1, "self"), 2)
    masked = np.nan
    cells = np.array(
        [[1, masked, masked, masked], [0.996, 0.004, masked, masked], [0.2, 0.3, 0.5, masked], [0.004] * 4]
    )
    title, *lines = largest_weights(AttentionMaps(what, 1, {head: cells}))
    assert title.startswith(str(head))
    first, second, third, _ = what.labels
    assert [line.partition("->  ")[2] for line in lines] == [
        f"{first!r} 0 1.00",
        f"{first!r} 0 1.00",
        f"{third!r} 2 0.50, {second!r} 1 0.30, {first!r} 0 0.20",
        f"{first!r} 0 0.00",
    ]


def test_maps_of_a_thousand_tokens_are_pooled() -> None:
    model = made("decoder", context=1024)
    what = subject(model, 1024)
    every = record_attention_maps(what)
    one = record_attention_maps(what, find_head(model, "dec.1.self.3"))
    assert (every.block, one.block) == (16, 4)
    assert {cells.shape for cells in every.maps.values()} == {(64, 64)}
    (cells,) = one.maps.values()
    assert cells.shape == (256, 256)
    assert np.nanmax(cells) == np.nanmax(every.maps[find_head(model, "dec.1.self.3")])
    figure = draw_attention(every)
    assert any("each cell is the maximum of 16 x 16" in text.get_text() for text in figure.texts)
    assert [round(axes.get_window_extent().width, 6) for axes in figure.axes[:8]] == [64] * 8
