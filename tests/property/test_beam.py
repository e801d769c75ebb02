"""Beam search equals exhaustive search with a wide enough beam, and greedy decoding with one beam."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from glassformer.base.config import ModelConfig, SampleConfig
from glassformer.base.errors import GlassError
from glassformer.generation import logit_readers
from glassformer.generation.beam import Hypothesis, beam_search, likeliest
from glassformer.generation.context_window import window_start
from glassformer.generation.decoding import generate
from glassformer.model.build import build_model
from glassformer.model.transformer import Decoder, EncoderDecoder
from tests.property.models import POSITIONS, VOCAB, decoder, encoder_decoder, tiny, tokens

Scorer = Callable[[Sequence[Sequence[int]]], Tensor]  # what was generated, rows of one length -> log p (rows, V)
END = 1
LENGTHS = (3, 29, 1, 17)


def lively(model: nn.Module, end: float = 0.0) -> Any:
    """Return the model with larger logits, and `end` added to the logit of the end token."""
    head = model.head
    assert isinstance(head, nn.Module)
    head.weight.mul_(2)  # type: ignore[operator, union-attr]
    head.bias[END] += end  # type: ignore[index, operator]
    return model


def writer(end: float = 0.0, **changes: Any) -> Decoder:
    own = {"layers": 2, "tied": False, "head_bias": True, "embedding_scale": True}
    return lively(decoder(tiny(**{**own, **changes})), end)


def translator(end: float = 0.0, **changes: Any) -> EncoderDecoder:
    own = {"layers": 2, "tied": False, "head_bias": True, "embedding_scale": True}
    return lively(encoder_decoder(**{**own, **changes}), end)


def ids(lengths: Sequence[int]) -> list[list[int]]:
    return [tokens(1, length, seed=length)[0].tolist() for length in lengths]


def of_prompt(model: Decoder, prompt: list[int]) -> Scorer:
    """Return a scorer that makes plain forward passes over the visible part of the rows, without cache or padding."""

    def score(rows: Sequence[Sequence[int]]) -> Tensor:
        whole = torch.tensor([[*prompt, *row] for row in rows])
        seen = whole[:, window_start(whole.shape[1], model.config.context) :]
        return model(seen)[:, -1].double().log_softmax(dim=-1)

    return score


def of_source(model: EncoderDecoder, source: list[int]) -> Scorer:
    """Return a scorer of targets of one source, which makes plain forward passes."""

    def score(rows: Sequence[Sequence[int]]) -> Tensor:
        target = torch.tensor([[END, *row] for row in rows])
        return model(torch.tensor([source] * len(rows)), target)[:, -1].double().log_softmax(dim=-1)

    return score


def ends(row: tuple[int, ...], end: int | Sequence[int] | None) -> bool:
    return row[-1] in end if isinstance(end, Sequence) else row[-1] == end


def hypothesis(
    row: tuple[int, ...], log_probability: float, alpha: float, end: int | Sequence[int] | None
) -> Hypothesis:
    score = log_probability / ((5 + len(row)) / 6) ** alpha
    return Hypothesis(row, log_probability, score, "end" if ends(row, end) else "length")


def by_hand(
    score: Scorer, beams: int, alpha: float, end: int | Sequence[int] | None, most: int, wanted: int | None = None
) -> list[Hypothesis]:
    """Compute beam search for one prompt or source by its definition, in plain Python."""
    wanted = wanted or beams
    running: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    pool: list[Hypothesis] = []
    for _ in range(most):
        shares = score([row for row, _ in running]).tolist()
        found = [
            ((*row, id), total + p)
            for (row, total), each in zip(running, shares, strict=True)
            for id, p in enumerate(each)
        ]
        found = sorted(found, key=lambda each: -each[1])
        pool += [hypothesis(row, total, alpha, end) for row, total in found[:beams] if ends(row, end)]
        pool = sorted(pool, key=lambda each: -each.score)[:wanted]
        running = [each for each in found if not ends(each[0], end)][:beams]
        best = [hypothesis(row, total, alpha, end) for row, total in running]
        if not best or (len(pool) == wanted and best[0].score <= pool[-1].score):
            return pool
    return sorted(pool + best, key=lambda each: -each.score)[:wanted]


def everything(score: Scorer, V: int, alpha: float, end: int | None, most: int) -> list[Hypothesis]:
    """Return all texts of up to `most` tokens: ended texts, and unended texts of `most` tokens."""
    result = []
    open_ = [((), 0.0)]
    for n in range(1, most + 1):
        shares = score([row for row, _ in open_]).tolist() if open_ else []
        longer = [
            ((*row, id), total + each[id]) for (row, total), each in zip(open_, shares, strict=True) for id in range(V)
        ]
        result += [hypothesis(row, total, alpha, end) for row, total in longer if row[-1] == end or n == most]
        open_ = [each for each in longer if each[0][-1] != end]
    return sorted(result, key=lambda each: -each.score)


def assert_same(found: list[Hypothesis], expected: list[Hypothesis], limit: float = 1e-5) -> None:
    """Assert equal texts, and log-probabilities and scores that differ by at most `limit` per token."""
    assert [each.tokens for each in found] == [each.tokens for each in expected]
    assert [each.ended for each in found] == [each.ended for each in expected]
    for one, other in zip(found, expected, strict=True):
        assert abs(one.log_probability - other.log_probability) <= limit * len(one.tokens)
        assert abs(one.score - other.score) <= limit * len(one.tokens)


# ---- against exhaustive search


def prime(family: str, V: int, seed: int) -> Any:
    """Return a model with mostly prime sizes and a vocabulary of V tokens."""
    shape: dict[str, Any] = {"layers": 2, "heads": 3, "kv_heads": 1, "head_width": 2, "width": 7, "hidden": 11}
    config = ModelConfig(family=family, context=13, positions="rotary", tied=False, **shape)  # type: ignore[arg-type]
    model = build_model(config, V, seed=seed).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.5)
    return model.double()


@pytest.mark.thorough
@pytest.mark.parametrize(("V", "n"), [(2, 5), (3, 4), (5, 3), (7, 2), (11, 1)])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("family", ["decoder", "encoder-decoder"])
def test_a_beam_of_all_texts_is_an_exhaustive_search(family: str, alpha: float, V: int, n: int) -> None:
    model = prime(family, V, seed=V)
    given_ = [[0], [1, 0, 1, 1, 0], [V - 1] * 3]
    config = SampleConfig(tokens=n, beams=V**n, length_penalty=alpha)
    for cached in (True, False):
        found = beam_search(model, given_, config, END, cached)
        score_of = of_prompt if family == "decoder" else of_source
        scorers = [score_of(model, ids) for ids in given_]
        for each, score in zip(found, scorers, strict=True):
            assert_same(each, everything(score, V, alpha, END, n), 1e-12)


def test_without_an_end_token_a_beam_of_all_texts_is_an_exhaustive_search() -> None:
    model = prime("decoder", 3, seed=2)
    [found] = beam_search(model, [[2, 1]], SampleConfig(tokens=4, beams=81))
    assert len(found) == 81
    assert_same(found, everything(of_prompt(model, [2, 1]), 3, 0.6, None, 4), 1e-12)


# ---- against the rules in plain Python


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("positions", "window", "alpha"),
    [
        (p, w, a)
        for i, p in enumerate(POSITIONS)
        for w, a in [((None, 5)[i % 2], (0.0, 0.6, 1.0)[i % 3]), ((5, None)[i % 2], (1.0, 0.0, 2.0)[i % 3])]
    ],
)
def test_prompts_that_grow_past_the_context(positions: str, window: int | None, alpha: float) -> None:
    """Batched, ragged and cached search equals the rules applied to each prompt alone, without a cache."""
    model = writer(1.0, positions=positions, kv_heads=(6, 2, 1)[len(positions) % 3], window=window)
    starts = ids((3, 40, 17, 29))
    config = SampleConfig(tokens=31, beams=4, length_penalty=alpha)
    found = beam_search(model, starts, config, END)
    for each, start in zip(found, starts, strict=True):
        assert_same(each, by_hand(of_prompt(model, start), 4, alpha, END, 31))
    free = beam_search(model, starts, config.model_copy(update={"beams": 2}))
    assert all(len(each.tokens) == 31 for each in free[0])
    assert_same(free[1], by_hand(of_prompt(model, starts[1]), 2, alpha, None, 31))


SHAPES = [
    (positions, heads, window, shared, order)
    for i, positions in enumerate(POSITIONS)
    for heads, window, shared, order in [
        ((6, 2, 1)[i % 3], (None, 5)[i % 2], bool(i % 2), "pre"),
        ((1, 6, 2)[i % 3], (5, None)[i % 2], bool(i % 2), "post"),
        ((2, 1, 6)[i % 3], None, not i % 2, ("post", "pre")[i % 2]),
    ]
]


@pytest.mark.thorough
@pytest.mark.parametrize(("positions", "heads", "window", "shared", "order"), SHAPES)
def test_targets_of_a_ragged_batch(positions: str, heads: int, window: int | None, shared: bool, order: str) -> None:
    """Encoder-decoders follow the same rules, up to the context limit; uncached decoding gives the same results."""
    model = translator(
        1.0, positions=positions, kv_heads=heads, window=window, shared_embedding=shared, norm_order=order
    )
    sources = ids(LENGTHS)
    config = SampleConfig(tokens=100, beams=4, length_penalty=0.6)
    found = beam_search(model, sources, config, END)
    for each, source in zip(found, sources, strict=True):
        assert_same(each, by_hand(of_source(model, source), 4, 0.6, END, model.config.context))
    for each, plain in zip(found, beam_search(model, sources, config, END, cached=False), strict=True):
        assert_same(each, plain)
    assert len({tuple(one.tokens for one in each) for each in found}) > 1  # the source matters


@pytest.mark.parametrize("beams", [1, 2, 4])
def test_several_tokens_may_end_a_text(beams: int) -> None:
    """As many hypotheses continue as there are beams, even if most of the likeliest continuations end."""
    model = writer(end=1.0)
    model.head.bias[[2, 3, 4]] += 1.0  # type: ignore[index, operator, union-attr]
    starts = ids([3, 9, 5, 4])
    config = SampleConfig(tokens=9, beams=beams, length_penalty=0.6)
    found = beam_search(model, starts, config, END, extra_end_ids=(2, 3, 4))
    for each, start in zip(found, starts, strict=True):
        assert_same(each, by_hand(of_prompt(model, start), beams, 0.6, (END, 2, 3, 4), 9))
        assert {one.tokens[-1] for one in each if one.ended == "end"} <= {END, 2, 3, 4}
    assert len({one.tokens[-1] for each in found for one in each if one.ended == "end"}) > 1


@pytest.mark.thorough
@pytest.mark.parametrize("end", [-50.0, 1.0, 2.0])
def test_targets_of_every_length(end: float) -> None:
    """Test targets that never end, that end at once, and that end at various lengths."""
    model = translator(end, positions="rotary").double()
    sources = ids((5, 8, 2, 13, 21))
    for beams, alpha in ((1, 0.6), (3, 0.0), (5, 2.0), (40, 1.0)):
        found = beam_search(model, sources, SampleConfig(tokens=17, beams=beams, length_penalty=alpha), END)
        for each, source in zip(found, sources, strict=True):
            assert_same(each, by_hand(of_source(model, source), beams, alpha, END, 17), 1e-12)


# ---- consequences of the rules


@pytest.mark.thorough
@settings(max_examples=15)
@given(seed=st.integers(0, 1000), end=st.sampled_from([None, 3, 1]), alpha=st.sampled_from([0.0, 0.6, 3.0]))
def test_one_beam_is_greedy_decoding(seed: int, end: int | None, alpha: float) -> None:
    """Beam search with one beam equals greedy decoding, even past the context limit."""
    starts = [tokens(1, n, seed=seed + n)[0].tolist() for n in (4, 13, 1)]
    greedy = SampleConfig(tokens=19, temperature=0)
    narrow = SampleConfig(tokens=19, beams=1, length_penalty=alpha)
    model = writer(1.0, context=13)
    found = beam_search(model, starts, narrow, end)
    other = translator(1.0, positions="alibi", context=19)
    translated = beam_search(other, starts, narrow, 3)
    for results, steps in (
        (found, generate(model, starts, greedy, end)),
        (translated, generate(other, starts, greedy, 3)),
    ):
        rows: list[list[int]] = [[] for _ in starts]
        for step in steps:
            for row, token in zip(step.rows, step.tokens, strict=True):
                rows[row].append(token)
        assert [[list(each.tokens) for each in result] for result in results] == [[row] for row in rows]


@pytest.mark.thorough
@settings(max_examples=10)
@given(
    lengths=st.lists(st.integers(1, 29), min_size=1, max_size=5),
    positions=st.sampled_from(POSITIONS),
    beams=st.integers(1, 6),
    alpha=st.sampled_from([0.0, 0.6, 1.0]),
)
def test_results_are_sorted_independent_and_have_the_models_probabilities(
    lengths: list[int], positions: str, beams: int, alpha: float
) -> None:
    """Results are the same alone and in a batch; scores equal those of one forward pass over the whole text."""
    model = translator(1.0, positions=positions, kv_heads=2)
    sources = ids(lengths)
    config = SampleConfig(tokens=23, beams=beams, length_penalty=alpha)
    found = beam_search(model, sources, config, END)
    for each, source in zip(found, sources, strict=True):
        assert_same(beam_search(model, [source], config, END)[0], each)
        assert len({one.tokens for one in each}) == len(each) == beams
        assert [one.score for one in each] == sorted((one.score for one in each), reverse=True)
        for one in each:
            target = torch.tensor([[END, *one.tokens[:-1]]])
            shares = model(torch.tensor([source]), target)[0].double().log_softmax(dim=-1)  # (T, V)
            total = shares.gather(1, torch.tensor(one.tokens)[:, None]).sum().item()
            assert abs(one.log_probability - total) <= 1e-5 * len(one.tokens)
            assert one.score == pytest.approx(one.log_probability / ((5 + len(one.tokens)) / 6) ** alpha, rel=1e-12)
            assert one.ended == ("end" if one.tokens[-1] == END else "length")
            assert END not in one.tokens[:-1]


@pytest.mark.thorough
@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_fewer_requested_hypotheses_end_sooner(alpha: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a length penalty, a single requested result is the first result of a larger request."""
    model = translator(1.0, positions="rotary").double()
    sources = ids((5, 8, 2, 13, 21))
    config = SampleConfig(tokens=17, beams=4, length_penalty=alpha)
    reads = []
    read = logit_readers.CachedReader.read
    monkeypatch.setattr(logit_readers.CachedReader, "read", lambda *given: reads.append(len(given[1])) or read(*given))
    found = {}
    costs = []
    for wanted in (1, 2, 4):
        found[wanted] = beam_search(model, sources, config, END, wanted=wanted)
        costs.append(sum(reads))
        reads.clear()
        for each, source in zip(found[wanted], sources, strict=True):
            assert_same(each, by_hand(of_source(model, source), 4, alpha, END, 17, wanted), 1e-12)
            assert len(each) == wanted
    assert sorted(costs) == costs
    assert costs[0] < costs[2]
    if alpha == 0:
        assert [each[:1] for each in found[4]] == [each[:1] for each in found[2]] == found[1]
    assert beam_search(model, sources, config, END, wanted=9) == found[4]


def test_a_prompt_does_not_depend_on_its_batch() -> None:
    model = writer(1.0, positions="learned", kv_heads=2)
    starts = ids((8, 29, 1, 33, 8))
    config = SampleConfig(tokens=25, beams=3)
    alone = [beam_search(model, [start], config, END)[0] for start in starts]
    assert len({len(each[0].tokens) for each in alone}) > 1  # some rows finish early
    for order in ([0, 1, 2, 3, 4], [4, 2, 0, 3, 1], [3, 0]):
        for each, index in zip(beam_search(model, [starts[i] for i in order], config, END), order, strict=True):
            assert_same(each, alone[index])


def test_a_wider_beam_finds_a_better_text_than_greedy_decoding() -> None:
    """Compare sums over all sources: for a single source, a wider beam may find a worse text."""
    model = translator(-50.0, positions="sinusoidal")
    sources = ids(range(1, 12))
    best = [
        [each[0].log_probability for each in beam_search(model, sources, SampleConfig(tokens=12, beams=n), END)]
        for n in (1, 2, 8)
    ]
    totals = [sum(each) for each in best]
    assert totals[0] < totals[1] < totals[2]


# ---- ties, small vocabularies, and errors


def test_ties_go_to_the_lower_row_then_to_the_lower_id() -> None:
    model = writer()
    for parameter in (model.head.weight, model.head.bias):
        assert parameter is not None
        parameter.zero_()
    config = SampleConfig(tokens=3, beams=4)
    rows = [[each.tokens for each in found] for found in beam_search(model, [[5], [7, 8]], config, end_id=2)]
    assert rows == [[(2,), (0, 2), (0, 0, 2), (0, 0, 0)]] * 2  # ended texts before unended ones
    free = beam_search(model, [[5]], config)
    assert [each.tokens for each in free[0]] == [(0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 0, 3)]


@settings(max_examples=100)
@given(data=st.data(), V=st.integers(1, 40), n=st.integers(1, 12), rows=st.integers(1, 4))
def test_the_likeliest_tokens_are_those_of_a_stable_sort(data: st.DataObject, V: int, n: int, rows: int) -> None:
    """There are many ties, because the logits have at most eight distinct values."""
    values = data.draw(st.lists(st.integers(0, 7), min_size=rows * V, max_size=rows * V))
    logits = torch.tensor(values, dtype=torch.float32).reshape(rows, V)
    assert torch.equal(likeliest(logits, n), logits.sort(dim=-1, descending=True, stable=True).indices[:, :n])


def test_a_vocabulary_of_only_the_end_token() -> None:
    model = prime("decoder", 1, seed=0)
    [[only]] = beam_search(model, [[0]], SampleConfig(tokens=9, beams=3), end_id=0)
    assert (only.tokens, only.ended) == ((0,), "end")
    assert only.log_probability == pytest.approx(0)


def test_mode_gradients_and_random_state_are_unchanged() -> None:
    dropout = {"dropout_attention": 0.5, "dropout_residual": 0.5, "dropout_embedding": 0.5}
    config = SampleConfig(tokens=9, beams=3)
    for model, search in ((writer(**dropout), beam_search), (translator(**dropout), beam_search)):
        quiet = search(model, [[3, 4], [5]], config, END)  # type: ignore[operator]
        model.train()
        next(part for part in model.modules() if isinstance(part, nn.Dropout)).eval()
        modes = [part.training for part in model.modules()]
        random = torch.get_rng_state()
        assert search(model, [[3, 4], [5]], config, END) == quiet  # type: ignore[operator]
        assert [part.training for part in model.modules()] == modes
        assert torch.equal(torch.get_rng_state(), random)
        assert torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()
        model.embedding.tokens.weight.fill_(torch.nan)
        with pytest.raises(GlassError, match="not finite"):
            search(model, [[3, 4]], config, END)  # type: ignore[operator]
        assert [part.training for part in model.modules()] == modes


def test_impossible_prompts_and_sources_are_refused() -> None:
    config = SampleConfig(tokens=9, beams=3)
    for bad, message in (([[1], []], "1 is empty"), ([[VOCAB]], "outside the vocabulary")):
        with pytest.raises(GlassError, match=f"prompt.*{message}" if bad[0] == [1] else message):
            beam_search(writer(), bad, config, END)
        with pytest.raises(GlassError, match=message):
            beam_search(translator(), bad, config, END)
    with pytest.raises(GlassError, match="30 tokens"):
        beam_search(translator(), [[1] * 30], config, END)
    assert beam_search(writer(), [], config, END) == []
    assert beam_search(translator(), [], config, END) == []


@pytest.mark.parametrize("make", [writer, translator])
def test_a_bfloat16_model_searches(make: Callable[[], Any]) -> None:
    model = make().to(torch.bfloat16)
    found = beam_search(model, [[1, 2], [3]], SampleConfig(tokens=9, beams=3), END)
    assert [len(each) for each in found] == [3, 3]
