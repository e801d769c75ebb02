"""Invariants of generation: cached equals uncached, even past the context, and rows do not depend on each other."""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from glassformer.base.config import ModelConfig, SampleConfig
from glassformer.base.errors import GlassError
from glassformer.generation.context_window import hop_length, window_start
from glassformer.generation.decoding import TokenStep, candidates, generate
from glassformer.generation.logit_readers import CachedReader, next_logits
from glassformer.generation.slot_cache import remaining_slots
from glassformer.model.evaluation_mode import inference
from glassformer.model.transformer import Decoder
from tests.property.models import POSITIONS, VOCAB, decoder, tiny, tokens

HEADS = {"multi-head": 6, "grouped-query": 2, "multi-query": 1}
GREEDY = SampleConfig(temperature=0, tokens=256)
RAGGED = (3, 40, 17, 29)  # shorter than, longer than and equal to the context of 29: rows shift at different times


def prompts(lengths: tuple[int, ...], seed: int = 0) -> list[list[int]]:
    return [tokens(1, length, seed=seed + length)[0].tolist() for length in lengths]


def small(**changes: Any) -> Decoder:
    """Return a model with an untied output matrix and large embeddings, so that greedy text does not repeat."""
    return decoder(tiny(layers=2, **{"tied": False, "head_bias": True, "embedding_scale": True, **changes}))


def grown(starts: list[list[int]], steps: list[TokenStep]) -> list[list[int]]:
    """Return the rows after all steps."""
    rows = [list(row) for row in starts]
    for step in steps:
        for row, token in zip(step.rows, step.tokens, strict=True):
            rows[row].append(token)
    return rows


def logits_by_row(steps: list[TokenStep]) -> dict[int, list[Tensor]]:
    result: dict[int, list[Tensor]] = defaultdict(list)
    for step in steps:
        for row, logits in zip(step.rows, step.logits, strict=True):
            result[row].append(logits)
    return result


def whole_logits(model: Decoder, row: list[int], first: int) -> Tensor:
    """Return the logits after row[:first], row[:first + 1], … by plain forward passes over the visible tokens."""
    ends = range(first, len(row))
    context = model.config.context
    by_length: dict[int, list[int]] = defaultdict(list)
    for end in ends:
        by_length[end - window_start(end, context)].append(end)
    result = torch.empty(len(ends), VOCAB)
    for length, places in by_length.items():
        seen = torch.tensor([row[end - length : end] for end in places])
        result[[end - first for end in places]] = model(seen)[:, -1]
    return result


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("positions", "heads", "window", "lengths"), list(product(POSITIONS, HEADS, [None, 5], [(11,), RAGGED]))
)
def test_cached_equals_uncached_for_256_greedy_steps(
    positions: str, heads: str, window: int | None, lengths: tuple[int, ...]
) -> None:
    """All logits agree to 1e-5, and the generated tokens are the argmax of the uncached logits of each prefix."""
    model = small(positions=positions, kv_heads=HEADS[heads], window=window)
    starts = prompts(lengths)
    steps = list(generate(model, starts, GREEDY))
    assert len(steps) == 256
    rows = grown(starts, steps)
    cached = logits_by_row(steps)
    for index, (row, start) in enumerate(zip(rows, starts, strict=True)):
        expected = whole_logits(model, row, len(start))
        assert expected.std() > 0.4
        assert len(set(row[len(start) :])) > 1  # not the same token forever
        assert (torch.stack(cached[index]) - expected).abs().max() <= 1e-5
        assert row[len(start) :] == expected.argmax(dim=-1).tolist()


@pytest.mark.thorough
@pytest.mark.parametrize("context", [1, 2, 3, 29])
@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_the_uncached_path_gives_the_same_rows(positions: str, context: int) -> None:
    model = small(positions=positions, context=context)
    starts = prompts((1, 5, 2))
    config = SampleConfig(temperature=1.0, tokens=80, seed=3)
    cached, plain = (list(generate(model, starts, config, cached=cached)) for cached in (True, False))
    assert grown(starts, cached) == grown(starts, plain)
    assert len(set(grown(starts, cached)[0])) > 10


@settings(max_examples=200)
@given(length=st.integers(0, 5000), context=st.integers(1, 300))
def test_the_window_is_the_longest_that_starts_at_a_multiple_of_the_hop(length: int, context: int) -> None:
    start = window_start(length, context)
    hop = hop_length(context)
    assert start % hop == 0
    assert length - start <= context
    assert start == 0 or length - (start - hop) > context


@pytest.mark.thorough
@settings(max_examples=12)
@given(
    lengths=st.lists(st.integers(1, 45), min_size=1, max_size=5),
    positions=st.sampled_from(POSITIONS),
    drops=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 4)), max_size=4),
    room=st.sampled_from([0, 20, 1000]),
)
def test_a_reader_treats_each_row_as_if_alone_while_rows_leave(
    lengths: list[int], positions: str, drops: list[tuple[int, int]], room: int
) -> None:
    """Rows of any length, rows that leave at any time, and an estimate of the final length that may be too small."""
    model = small(positions=positions, window=7, kv_heads=2)
    rows = prompts(tuple(lengths))
    fresh = torch.Generator().manual_seed(5)
    cached = CachedReader(model, steps=60)
    for row in rows:
        cached.add(longest=len(row) + room)
    with inference(model):
        for count in range(60):
            found = cached.read(rows)
            assert found.rows == list(range(len(rows)))
            assert (found.logits - next_logits(model, rows)).abs().max() <= 1e-5
            for _, slot in (drop for drop in drops if drop[0] == count and drop[1] < len(rows) > 1):
                kept = remaining_slots([each == slot for each in range(len(rows))])
                assert sum(to != origin for to, origin in enumerate(kept)) <= 1
                rows = [rows[slot] for slot in kept]
                cached.select(kept)
            for row in rows:
                row.append(int(torch.randint(0, VOCAB, (), generator=fresh)))


def test_a_row_moved_to_another_slot_keeps_its_window() -> None:
    """The second row is moved to the slot of the first, whose window shifted long ago, and shifts at the next token."""
    model = small(positions="learned")
    rows = prompts((35, 29))
    cached = CachedReader(model, steps=60)
    cached.add()
    cached.add()
    with inference(model):
        cached.read(rows)
        cached.select([1])
        rows = [[*rows[1], 3]]
        assert (cached.read(rows).logits - next_logits(model, rows)).abs().max() <= 1e-5


class SharedHop(CachedReader):
    """A deliberately wrong cache: when one row shifts, all rows are cut to the same window."""

    def read(self, rows: Any) -> Any:
        start = max(window_start(len(row), self.context) for row in rows)
        self.select([])
        for _ in rows:
            self.add()
        return super().read([row[min(start, len(row) - 1) :] for row in rows])


class ForgetfulHop(CachedReader):
    """A deliberately wrong cache: a row that shifts reads the second token of its new window in place of the first."""

    def _unread(self, row: int, tokens: Any) -> Any:
        window = super()._unread(row, tokens)
        return window if len(window) == len(tokens) else [window[1], *window[1:]]


@pytest.mark.parametrize("wrong", [SharedHop, ForgetfulHop])
def test_wrong_window_shifts_are_detected(wrong: type[CachedReader]) -> None:
    """The tests above can fail: a wrong cache changes the logits."""
    model = small(positions="rotary")
    rows = prompts((29, 20))
    other = wrong(model, steps=9)
    other.add()
    other.add()
    with inference(model):
        assert (other.read(rows).logits - next_logits(model, rows)).abs().max() <= 1e-5
        for row in rows:
            row.append(0)
        assert (other.read(rows).logits - next_logits(model, rows)).abs().max() > 1e-3


SAMPLED = SampleConfig(temperature=1.0, top_k=20, top_p=0.95, repetition_penalty=1.1, tokens=50, seed=7)


def test_a_row_depends_only_on_its_prompt_and_seed() -> None:
    """The tokens are the same alone and at several positions of several batches, in which some rows end early."""
    model = small(positions="rotary", kv_heads=2)
    starts = prompts((8, 29, 1, 33, 8))
    seeds = [11, 12, 13, 14, 15]
    alone = [
        grown([start], list(generate(model, [start], SAMPLED, end_id=4, seeds=[seed])))[0]
        for start, seed in zip(starts, seeds, strict=True)
    ]
    assert len({len(row) - len(start) for row, start in zip(alone, starts, strict=True)}) > 1  # some rows end early
    for order in ([0, 1, 2, 3, 4], [4, 2, 0, 3, 1], [3, 0]):
        mixed = [starts[i] for i in order]
        steps = list(generate(model, mixed, SAMPLED, end_id=4, seeds=[seeds[i] for i in order]))
        assert grown(mixed, steps) == [alone[i] for i in order]


def test_equal_prompts_with_equal_seeds_give_equal_rows() -> None:
    model = small()
    start = prompts((6,))[0]
    first, second, third = grown([start] * 3, list(generate(model, [start] * 3, SAMPLED, seeds=[1, 2, 1])))
    assert first == third
    assert first != second
    default = grown([start], list(generate(model, [start], SAMPLED)))[0]
    assert default == grown([start], list(generate(model, [start], SAMPLED, seeds=[SAMPLED.seed])))[0]


def test_the_global_random_state_is_neither_used_nor_changed() -> None:
    model = small()
    start = prompts((6,))
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = grown(start, list(generate(model, start, SAMPLED)))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert grown(start, list(generate(model, start, SAMPLED))) == first


def test_mode_and_gradient_settings_are_unchanged() -> None:
    """Modes are unchanged between steps and after an exception, too; dropout is off during generation."""
    model = small(dropout_attention=0.5, dropout_residual=0.5, dropout_embedding=0.5)
    start = prompts((6,))
    quiet = grown(start, list(generate(model, start, SAMPLED)))
    model.train()
    model.stack.blocks[1].eval()
    modes = [part.training for part in model.modules()]
    assert grown(start, list(generate(model, start, SAMPLED))) == quiet
    stream = generate(model, start, SAMPLED)
    next(stream)
    assert [part.training for part in model.modules()] == modes
    assert not torch.is_inference_mode_enabled()
    assert torch.is_grad_enabled()
    stream.close()  # type: ignore[attr-defined]
    model.embedding.tokens.weight.fill_(torch.nan)
    with pytest.raises(GlassError, match="not finite"):
        list(generate(model, start, SAMPLED))
    assert [part.training for part in model.modules()] == modes


def test_rows_end_by_end_token_stop_and_length() -> None:
    model = small()
    starts = prompts((5, 9, 13))
    free = grown(starts, list(generate(model, starts, SAMPLED)))
    generated = [row[len(start) :] for row, start in zip(free, starts, strict=True)]
    end_id = generated[0][20]
    first = [new.index(end_id) if end_id in new else None for new in generated]
    seen: list[tuple[int, list[int]]] = []

    def stop(row: int, new: list[int]) -> bool:
        seen.append((row, new))
        return row == 1 and len(new) == 3

    steps = list(generate(model, starts, SAMPLED, end_id, stop))
    rows = grown(starts, steps)
    reasons = {row: reason for step in steps for row, reason in step.ended.items()}
    assert first[0] is not None
    assert rows[0] == starts[0] + generated[0][: first[0] + 1]
    assert (reasons[0], reasons[1]) == ("end", "stop")
    assert rows[1] == starts[1] + generated[1][:3]
    assert reasons[2] == ("length" if first[2] is None else "end")
    assert all(new == generated[row][: len(new)] for row, new in seen)  # the stop condition receives the generated text


def test_several_tokens_may_end_a_row() -> None:
    model = small()
    starts = prompts(RAGGED)
    whole = grown(starts, list(generate(model, starts, SAMPLED)))
    generated = [row[len(start) :] for row, start in zip(whole, starts, strict=True)]
    one = generated[0][3]
    other = next(token for token in generated[1] if token not in generated[0][:4])
    cut = []
    for new in generated:
        first = next((index for index, token in enumerate(new) if token in (one, other)), None)
        cut.append(new if first is None else new[: first + 1])
    steps = list(generate(model, starts, SAMPLED, one, extra_end_ids=(other,)))
    rows = grown(starts, steps)
    assert [row[len(start) :] for row, start in zip(rows, starts, strict=True)] == cut
    assert {new[-1] for new in cut} >= {one, other}
    ended = {row: reason for step in steps for row, reason in step.ended.items()}
    assert [ended[row] == "end" for row in range(len(starts))] == [new[-1] in (one, other) for new in cut]


def test_candidates_have_the_models_probabilities() -> None:
    model = small()
    start = prompts((35,))[0]
    best = candidates(model, start, VOCAB)
    shares = model(torch.tensor([start[14:]]))[0, -1].double().softmax(dim=-1)
    assert [id for id, _ in best] == shares.argsort(descending=True).tolist()
    assert all(abs(shares[id].item() - share) < 1e-6 for id, share in best)


@pytest.mark.parametrize(
    ("starts", "seeds", "message"),
    [([[1], []], None, "prompt 1 is empty"), ([[VOCAB]], None, "outside"), ([[1]], [1, 2], "2 seeds")],
)
def test_invalid_prompts_are_refused_at_once(starts: Any, seeds: Any, message: str) -> None:
    with pytest.raises(GlassError, match=message):
        generate(small(), starts, GREEDY, seeds=seeds)


def test_without_prompts_there_are_no_steps() -> None:
    assert list(generate(small(), [], GREEDY)) == []


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_bfloat16_model_generates(positions: str) -> None:
    config = ModelConfig.model_validate(
        {"layers": 1, "heads": 2, "width": 16, "context": 8, "positions": positions, "qk_norm": "head"}
    )
    model = decoder(config).to(torch.bfloat16)
    assert len(list(generate(model, [[1, 2], [3]], SampleConfig(tokens=20)))) == 20
