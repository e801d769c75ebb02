"""Rows that join and leave a token loop at any time give the same results as alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.base.config import SampleConfig
from glassformer.base.errors import GlassError
from glassformer.generation.decoding import TokenLoop
from glassformer.generation.logit_readers import CachedReader, PlainReader
from glassformer.model.transformer import Decoder, EncoderDecoder
from tests.property.guests import END, agree, guests, play, some_guests
from tests.property.models import VOCAB, decoder, encoder_decoder, kinds, named, tiny

PLAIN = {"tied": False, "head_bias": True, "embedding_scale": True}  # greedy text does not repeat one token


def loop_of(model: Decoder | EncoderDecoder, end: int | None = END, limit: int | None = 512) -> TokenLoop:
    """Return a loop like that of the server."""
    return TokenLoop(CachedReader(model, steps=16, limit=limit), end, [END] if end is None else ())


MODELS: dict[str, list[dict[str, Any]]] = {
    "decoder": [*kinds("decoder"), {"window": 5, "kv_heads": 2, "positions": "alibi"}, {"window": 7, "kv_heads": 1}],
    "encoder-decoder": [*kinds("encoder-decoder"), {"window": 5, "kv_heads": 2, "positions": "rotary"}],
}
CASES = [(family, kind) for family, each in MODELS.items() for kind in each]


@pytest.mark.thorough
@pytest.mark.parametrize(("family", "kind"), CASES, ids=[f"{family}-{named(kind)}" for family, kind in CASES])
@settings(max_examples=3)
@given(data=st.data())
def test_a_row_equals_the_same_row_decoded_alone(family: str, kind: dict[str, Any], data: st.DataObject) -> None:
    """Other rows join and leave; texts grow beyond the context limit, and prompts may be read in chunks."""
    changes = {"layers": 2, **PLAIN, **kind} if "removed_heads" not in kind else {**PLAIN, **kind}
    model = decoder(tiny(**changes)) if family == "decoder" else encoder_decoder(**changes)
    visitors = data.draw(guests(45 if family == "decoder" else 29))
    play(loop_of(model, limit=data.draw(st.sampled_from([1, 16, 64, 1000, None]))), visitors)
    for guest in visitors:
        agree(model, guest)


@pytest.mark.parametrize("family", ["decoder", "encoder-decoder"])
def test_with_a_hook_the_model_itself_runs(family: str) -> None:
    """With a hook on a module, the model itself must run."""
    model = decoder(tiny(layers=2, **PLAIN)) if family == "decoder" else encoder_decoder(layers=2, **PLAIN)
    seen: list[int] = []
    stack = model.stack if isinstance(model, Decoder) else model.decoder
    visitors = some_guests(29)
    with_hook = stack.blocks[0].register_forward_hook(lambda *_: seen.append(1))
    play(loop_of(model), visitors)
    with_hook.remove()
    assert len(seen) > 20
    for guest in visitors:
        agree(model, guest)


@pytest.mark.parametrize("family", ["decoder", "encoder-decoder"])
def test_the_plain_reader_supports_joining_and_leaving(family: str) -> None:
    """The plain reader, the reference of all tests, also handles targets of unequal lengths and separate windows."""
    model = decoder(tiny(layers=2, **PLAIN)) if family == "decoder" else encoder_decoder(layers=2, **PLAIN)
    visitors = some_guests(29)
    play(TokenLoop(PlainReader(model), END), visitors)
    for guest in visitors:
        agree(model, guest)


@pytest.mark.parametrize("family", ["decoder", "encoder-decoder"])
def test_nothing_remains_of_rows_that_left(family: str) -> None:
    """The cache shrinks, memory is freed when no row is left, and removing an unknown row is not an error."""
    model = decoder(tiny(layers=1)) if family == "decoder" else encoder_decoder(layers=1)
    reader = CachedReader(model, steps=16, limit=512)
    loop = TokenLoop(reader, None, [END])
    for _ in range(3):
        numbers = [loop.join([3, 1, 2], SampleConfig(tokens=20)) for _ in range(4)]
        loop.step()
        assert reader.cache.layers[0].keys.shape[0] == 4
        loop.leave(numbers[0])
        loop.step()
        assert reader.cache.layers[0].keys.shape[0] == 3
        for number in [*numbers, 10_000]:
            loop.leave(number)
        assert (len(loop), loop.rows, reader.states, reader.slots, reader.waiting) == (0, [], [], [], [])
        assert all(
            room.numel() == 0 for layer in reader.cache.slots for room in [*layer.allocated, *layer.allocated_memory]
        )


def test_a_long_prompt_is_read_in_chunks_while_others_generate() -> None:
    loop = loop_of(decoder(tiny(layers=1)), None, limit=4)
    first = loop.join([1], SampleConfig(tokens=50, temperature=0))
    loop.step()
    second = loop.join(list(range(18)), SampleConfig(tokens=2, temperature=0))
    found = [loop.step().rows for _ in range(6)]
    assert found == [(first,)] * 4 + [(first, second)] * 2


def test_rows_that_shift_their_window_go_first_and_wait_within_the_limit() -> None:
    """Three rows exceed a context of 29 at once, and one window of 16 tokens is read per step."""
    loop = loop_of(decoder(tiny(layers=1)), None, limit=16)
    for _ in range(3):
        loop.join([1], SampleConfig(tokens=60, temperature=0))
    found = [loop.step().rows for _ in range(29)]
    assert found == [(0, 1, 2)] * 29
    late = loop.join([2], SampleConfig(tokens=60, temperature=0))
    assert [loop.step().rows for _ in range(4)] == [(0,), (0, 1), (0, 1, 2), (0, 1, 2, late)]


def test_invalid_input_is_refused_and_damaged_weights_are_detected() -> None:
    loop = loop_of(decoder(tiny(layers=1)), None)
    for prompt in ([], [VOCAB], [-1]):
        with pytest.raises(GlassError, match=r"empty|outside"):
            loop.join(prompt, SampleConfig())
    with pytest.raises(GlassError, match="reads at most 29"):
        loop_of(encoder_decoder(layers=1)).join([1] * 30, SampleConfig())
    with pytest.raises(GlassError, match="needs a start token"):
        TokenLoop(PlainReader(encoder_decoder(layers=1)), None)
    assert len(loop) == 0
    loop.model.embedding.tokens.weight.fill_(torch.nan)
    loop.join([1], SampleConfig())
    with pytest.raises(GlassError, match="not finite"):
        loop.step()


@pytest.mark.parametrize("family", ["decoder", "encoder-decoder"])
def test_a_bfloat16_model_generates_in_a_batch(family: str) -> None:
    model = decoder(tiny(layers=1)) if family == "decoder" else encoder_decoder(layers=1)
    visitors = some_guests(29)
    play(loop_of(model.to(torch.bfloat16)), visitors)
    assert all(guest.ended in ("end", "length") for guest in visitors)
