"""Invariants of decoding targets: cached equals uncached, and a target depends only on its own source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from glassformer.base.config import SampleConfig
from glassformer.base.errors import GlassError
from glassformer.generation.decoding import TokenStep, candidates, generate
from glassformer.generation.length_batches import batches_by_length
from glassformer.generation.logit_readers import CachedReader, PlainReader
from glassformer.generation.slot_cache import _sources_of
from glassformer.model.build import build_model
from glassformer.model.evaluation_mode import inference
from glassformer.model.transformer import EncoderDecoder
from tests.property.models import POSITIONS, VOCAB, encoder_decoder, kinds, named, tiny, tokens

END = 5
GREEDY = SampleConfig(temperature=0, tokens=100)
SAMPLED = SampleConfig(temperature=1.0, top_k=20, top_p=0.95, repetition_penalty=1.1, tokens=23, seed=7)
RAGGED = (3, 29, 1, 17, 11)
SHAPES = [  # every position kind, and each other setting at least twice
    (positions, heads, window, shared, order)
    for i, positions in enumerate(POSITIONS)
    for heads, window, shared, order in [
        ((6, 2, 1)[i % 3], (None, 5)[i % 2], bool(i % 2), "pre"),
        ((1, 6, 2)[i % 3], (5, None)[i % 2], bool(i % 2), "post"),
        ((2, 1, 6)[i % 3], None, not i % 2, ("post", "pre")[i % 2]),
    ]
]


def small(end: float = 0.5, **changes: Any) -> EncoderDecoder:
    """Return a model with an untied output matrix and large embeddings, so that greedy targets do not repeat one token.

    `end` is the bias of the end token's logit.
    """
    model = encoder_decoder(**{"layers": 2, "tied": False, "head_bias": True, "embedding_scale": True, **changes})
    assert model.head.bias is not None
    model.head.bias[END] = end
    return model


def sources(lengths: Iterable[int]) -> list[list[int]]:
    return [tokens(1, length, seed=length)[0].tolist() for length in lengths]


def written(count: int, steps: Sequence[TokenStep]) -> list[list[int]]:
    """Return each generated target without its start token."""
    rows: list[list[int]] = [[] for _ in range(count)]
    for step in steps:
        for row, token in zip(step.rows, step.tokens, strict=True):
            rows[row].append(token)
    return rows


def logits_by_row(steps: Sequence[TokenStep]) -> dict[int, Tensor]:
    result: dict[int, list[Tensor]] = defaultdict(list)
    for step in steps:
        for row, logits in zip(step.rows, step.logits, strict=True):
            result[row].append(logits)
    return {row: torch.stack(each) for row, each in result.items()}


@pytest.mark.parametrize(("positions", "heads", "window", "shared", "order"), SHAPES)
def test_cached_equals_one_forward_pass_over_the_whole_target(
    positions: str, heads: int, window: int | None, shared: bool, order: str
) -> None:
    """All logits of a ragged batch up to the context limit, and all tokens of greedy decoding, agree."""
    model = small(-9.0, positions=positions, kv_heads=heads, window=window, shared_embedding=shared, norm_order=order)
    check_cached(model)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", kinds("encoder-decoder"), ids=named)
def test_cached_equals_one_forward_pass_for_every_kind_of_block(kind: dict[str, Any]) -> None:
    heads = {"removed_heads": [head for head in kind.get("removed_heads", ()) if ".2." not in head]}  # of two layers
    check_cached(small(-9.0, **{**kind, **heads}))


def check_cached(model: EncoderDecoder) -> None:
    given_ = sources(RAGGED)
    steps = list(generate(model, given_, GREEDY, END))
    rows = written(len(given_), steps)
    cached = logits_by_row(steps)
    assert len(steps) == model.config.context == 29
    for index, (source, row) in enumerate(zip(given_, rows, strict=True)):
        expected = model(torch.tensor([source]), torch.tensor([[END, *row[:-1]]]))[0]  # (T, V)
        assert expected[:, END + 1 :].std() > 0.3
        assert (cached[index] - expected).abs().max() <= 1e-5
        assert row == expected.argmax(dim=-1).tolist()
    assert len({tuple(row) for row in rows}) > 1  # the source matters
    plain = list(generate(model, given_, GREEDY, END, cached=False))
    assert written(len(given_), plain) == rows
    assert [step.ended for step in plain] == [step.ended for step in steps]


@pytest.mark.thorough
@pytest.mark.parametrize("positions", POSITIONS)
def test_a_target_depends_only_on_its_source_and_seed(positions: str) -> None:
    """The tokens are the same alone and at several positions of several batches, in which some rows end early."""
    model = small(positions=positions, kv_heads=2)
    given_ = sources((8, 29, 1, 13, 8))
    seeds = [1, 2, 3, 4, 5]
    alone = [
        written(1, list(generate(model, [source], SAMPLED, END, seeds=[seed])))[0]
        for source, seed in zip(given_, seeds, strict=True)
    ]
    assert len({len(row) for row in alone}) > 1  # some rows end early
    for order in ([0, 1, 2, 3, 4], [4, 2, 0, 3, 1], [3, 0]):
        mixed = [given_[i] for i in order]
        for cached in (True, False):
            steps = generate(model, mixed, SAMPLED, END, seeds=[seeds[i] for i in order], cached=cached)
            assert written(len(order), list(steps)) == [alone[i] for i in order]


@pytest.mark.thorough
@settings(max_examples=20)
@given(data=st.data(), positions=st.sampled_from(POSITIONS), per_source=st.integers(1, 4))
def test_a_reader_treats_each_row_as_if_alone_for_any_selection(
    data: st.DataObject, positions: str, per_source: int
) -> None:
    """Sources are dropped and reordered; rows are duplicated, exchanged and replaced."""
    model = small(positions=positions, kv_heads=3, shared_embedding=False, source_vocab_size=37)
    given_ = sources(data.draw(st.lists(st.integers(1, 29), min_size=1, max_size=4)))
    rows = [[END] for _ in given_]
    held = 1
    cached = CachedReader(model, steps=12)
    plain = PlainReader(model)
    for source in given_:
        cached.add(source, longest=13)
        plain.add(source)
    fresh = torch.Generator().manual_seed(5)
    with inference(model):
        for _ in range(12):
            assert (cached.read(rows).logits - plain.read(rows).logits).abs().max() <= 1e-5
            stay = data.draw(st.lists(st.integers(0, len(rows) // held - 1), min_size=1, max_size=4, unique=True))
            chosen = [s * held + data.draw(st.integers(0, held - 1)) for s in stay for _ in range(per_source)]
            rows = [[*rows[row], int(torch.randint(0, VOCAB, (), generator=fresh))] for row in chosen]
            cached.select(chosen)
            plain.select(chosen)
            held = per_source


@settings(max_examples=50)
@given(stay=st.lists(st.integers(0, 9), min_size=1, unique=True), per_source=st.integers(1, 5), data=st.data())
def test_sources_of_rows(stay: list[int], per_source: int, data: st.DataObject) -> None:
    rows = [s * per_source + data.draw(st.integers(0, per_source - 1)) for s in stay for _ in range(3)]
    assert _sources_of(rows, per_source) == stay


@settings(max_examples=50)
@given(lengths=st.lists(st.integers(0, 20), max_size=40), rows=st.integers(1, 7))
def test_batches_by_length_contain_everything_once(lengths: list[int], rows: int) -> None:
    batches = batches_by_length(lengths, rows)
    places = [place for batch in batches for place in batch]
    assert sorted(places) == list(range(len(lengths)))
    assert [lengths[place] for place in places] == sorted(lengths, reverse=True)
    assert [len(batch) for batch in batches[:-1]] == [rows] * (len(batches) - 1)
    assert all(1 <= len(batch) <= rows for batch in batches)


@settings(max_examples=50)
@given(lengths=st.lists(st.integers(0, 20), max_size=40), rows=st.integers(1, 7), tokens=st.integers(1, 60))
def test_batches_by_length_respect_the_token_limit(lengths: list[int], rows: int, tokens: int) -> None:
    batches = batches_by_length(lengths, rows, tokens)
    assert sorted(place for batch in batches for place in batch) == list(range(len(lengths)))
    for batch, following in zip(batches, [*batches, []][1:], strict=True):
        longest = max(lengths[batch[0]], 1)
        assert len(batch) == 1 or len(batch) * longest <= tokens
        assert len(batch) <= rows
        assert not following or len(batch) == rows or (len(batch) + 1) * longest > tokens, "one more had room"


def test_targets_end_by_end_token_stop_and_length() -> None:
    model = small(0.0, positions="sinusoidal", kv_heads=2)
    given_ = sources(RAGGED)
    seen: list[tuple[int, list[int]]] = []

    def stop(row: int, new: list[int]) -> bool:
        seen.append((row, new))
        return row == 1 and len(new) == 3

    free = written(5, list(generate(model, given_, SAMPLED, END, seeds=[1, 2, 3, 4, 5])))
    steps = list(generate(model, given_, SAMPLED, END, stop, seeds=[1, 2, 3, 4, 5]))
    rows = written(5, steps)
    reasons = {row: reason for step in steps for row, reason in step.ended.items()}
    assert rows[1] == free[1][:3]
    assert reasons[1] == "stop"
    assert set(reasons.values()) == {"end", "stop", "length"}
    for index in (0, 2, 3, 4):
        assert rows[index] == free[index]
        assert reasons[index] == ("end" if free[index][-1] == END else "length")
        assert END not in rows[index][:-1]
        assert len(rows[index]) == SAMPLED.tokens or reasons[index] == "end"
    assert all(new == free[row][: len(new)] for row, new in seen)  # the generated tokens, without the first one


@pytest.mark.parametrize("tokens_", [1, 2, 28, 29, 30, 1000])
def test_generation_respects_context_and_settings(tokens_: int) -> None:
    model = small(-100.0, positions="learned")
    steps = list(generate(model, sources((4,)), SampleConfig(temperature=0, tokens=tokens_), END))
    assert len(steps) == min(tokens_, 29)
    assert steps[-1].ended == {0: "length"}


def test_the_repetition_penalty_ignores_the_start_token() -> None:
    """The start token also ends the target; if it were counted, every target would be longer."""
    model = small(20.0)
    [step] = list(generate(model, sources((4,)), SampleConfig(temperature=0, repetition_penalty=100, tokens=9), END))
    assert step.tokens == (END,)


def test_mode_gradients_and_random_state_are_unchanged() -> None:
    model = small(dropout_attention=0.5, dropout_residual=0.5, dropout_embedding=0.5)
    given_ = sources((6, 2))
    quiet = written(2, list(generate(model, given_, SAMPLED, END)))
    model.train()
    model.decoder.blocks[1].eval()
    modes = [part.training for part in model.modules()]
    random = torch.get_rng_state()
    assert written(2, list(generate(model, given_, SAMPLED, END))) == quiet
    stream = generate(model, given_, SAMPLED, END)
    next(stream)
    assert [part.training for part in model.modules()] == modes
    assert not torch.is_inference_mode_enabled()
    assert torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), random)
    stream.close()  # type: ignore[attr-defined]
    model.embedding.tokens.weight.fill_(torch.nan)
    with pytest.raises(GlassError, match="not finite"):
        list(generate(model, given_, SAMPLED, END))
    assert [part.training for part in model.modules()] == modes


@pytest.mark.parametrize(
    ("given_", "seeds", "message"),
    [
        ([[1], []], None, "source 1 is empty"),
        ([[37]], None, "source 0 contains the token 37"),
        ([[1] * 30], None, "source 0 has 30 tokens, but the model reads at most 29"),
        ([[1]], [1, 2], "2 seeds"),
    ],
)
def test_invalid_sources_are_refused_at_once(given_: Any, seeds: Any, message: str) -> None:
    model = small(shared_embedding=False, source_vocab_size=37)
    list(generate(model, [[36]], GREEDY, END))  # the vocabulary of the source counts
    with pytest.raises(GlassError, match=message):
        generate(model, given_, GREEDY, END, seeds=seeds)


def test_candidates_need_a_start_token() -> None:
    model = small()
    assert len(candidates(model, [1, 2], 3, [END])) == 3
    with pytest.raises(GlassError, match="needs a start token"):
        candidates(model, [1, 2], 3)


def test_without_sources_there_are_no_steps() -> None:
    assert list(generate(small(), [], GREEDY, END)) == []


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_bfloat16_model_translates(positions: str) -> None:
    shape = tiny(family="encoder-decoder", positions=positions, qk_norm="head")
    model = build_model(shape, VOCAB).to(torch.bfloat16)
    assert isinstance(model, EncoderDecoder)
    assert len(list(generate(model, [[1, 2], [3]], SampleConfig(tokens=7), end_id=0))) <= 7
