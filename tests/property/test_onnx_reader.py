"""Generation with onnxruntime gives the model's logits, for all settings, even while rows join and leave."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from glassformer.backends.cache_scales import cache_scales
from glassformer.backends.onnx_engine import OnnxEngine
from glassformer.backends.onnx_graph import (
    Precision,
    head_channels,
    padded_head_width,
    padded_query_heads,
    quantized_matrix,
    step_graph,
)
from glassformer.base.config import Activation, SampleConfig
from glassformer.base.errors import GlassError
from glassformer.generation.decoding import TokenLoop
from glassformer.generation.logit_readers import PlainReader, Reader, next_logits
from glassformer.generation.slot_reader import SlotReader
from glassformer.model.cache import Cache
from glassformer.model.evaluation_mode import inference
from glassformer.model.transformer import Decoder, EncoderDecoder, PreNormBlock
from tests.property.guests import Guest, agree, guests, play, some_guests
from tests.property.models import POSITIONS, VOCAB, decoder, encoder_decoder, kinds, named, some_heads, tiny, tokens

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

BIASES = {"attention_bias": True, "feedforward_bias": True, "norm_bias": True, "head_bias": True, "tied": False}
SOME = {"removed_heads": some_heads("decoder")}
SETTINGS: list[dict[str, Any]] = [
    *kinds("decoder"),
    *({"activation": name, **BIASES} for name in get_args(Activation)),
    *({"norm": "rmsnorm", "norm_order": order, "activation": "swiglu"} for order in ("pre", "post", "output")),
    *({"window": 5, "kv_heads": 2, "positions": name} for name in POSITIONS),
    *({"head_width": width, "positions": "rotary", "qk_norm": "head"} for width in (2, 16, 18)),
    *({"head_width": width, "kv_heads": 1, "qk_norm": "whole"} for width in (1, 8, 9)),
    {"norm": "none"},
    {"norm_eps": 0.1},
    {"norm_eps": 0.1, "qk_norm": "head", "norm": "rmsnorm"},
    {"rotary_base": 100.0, "positions": "rotary"},
    {"embedding_norm": True, "embedding_scale": True, "head_transform": True, "head_bias": True},
    {**SOME, **BIASES, "norm_order": "output"},
    {**SOME, **BIASES, "norm_order": "post"},
    {"layers": 1, "removed_heads": tuple(f"dec.0.self.{head}" for head in range(6)), "positions": "alibi"},
    {"layers": 1, "removed_heads": tuple(f"dec.0.self.{head}" for head in range(6)), "positions": "rotary"},
    {"dropout_embedding": 0.5, "dropout_attention": 0.5, "dropout_residual": 0.5},
]
WRITERS = [*kinds("decoder"), {"window": 5, "kv_heads": 2, "positions": "alibi"}, {"window": 7, "kv_heads": 1}]
CLOSE = 5e-5
"""Largest allowed difference of a logit; logits spread by about 1."""
RAGGED = (3, 40, 17, 29, 1)  # with a context of 29
PLAIN = {"tied": False, "head_bias": True, "embedding_scale": True}  # greedy text does not repeat one token


def onnx_reader(
    model: Decoder | EncoderDecoder, threads: int, limit: int | None = None, precision: Precision = "float32"
) -> SlotReader:
    return SlotReader(model, OnnxEngine(model, threads, precision), limit)


def prompts(lengths: tuple[int, ...] = RAGGED) -> list[list[int]]:
    return [tokens(1, length, seed=length)[0].tolist() for length in lengths]


def ready(reader: Reader, rows: list[list[int]], room: int = 0) -> None:
    for row in rows:
        reader.add(longest=len(row) + room)


def grow(rows: list[list[int]], seed: int) -> None:
    """Append a token to each row."""
    for row, token in zip(rows, tokens(1, len(rows), seed)[0].tolist(), strict=True):
        row.append(token)


def difference(model: Decoder, reader: Reader, rows: list[list[int]], steps: int) -> float:
    """Return the largest absolute difference from the model's logits over several reads."""
    worst = 0.0
    with inference(model):
        for step in range(steps):
            found = reader.read(rows)
            assert found.rows == list(range(len(rows)))
            worst = max(worst, (found.logits - next_logits(model, rows)).abs().max().item())
            grow(rows, step)
    return worst


@pytest.mark.parametrize("changes", SETTINGS, ids=[named(each) for each in SETTINGS])
def test_the_logits_equal_the_models(changes: dict[str, Any]) -> None:
    """Rows have several lengths and grow beyond the context; the memory reserved for them is too small at first."""
    model = decoder(tiny(**changes))
    reader = onnx_reader(model, threads=1)
    rows = prompts()
    ready(reader, rows)
    assert difference(model, reader, rows, steps=32) <= CLOSE


@pytest.mark.parametrize("positions", POSITIONS)
def test_greedy_text_equals_the_models(positions: str) -> None:
    model = decoder(tiny(positions=positions, **PLAIN))
    settings = SampleConfig(temperature=0, tokens=70)
    loops = [TokenLoop(reader, None) for reader in (onnx_reader(model, threads=2), PlainReader(model))]
    for loop in loops:
        for row in prompts():
            loop.join(row, settings)
    rows = [[row.tokens for row in loop.rows] for loop in loops]
    for found, expected in zip(loops[0].steps(), loops[1].steps(), strict=True):
        best = expected.logits.topk(2, dim=-1).values  # (rows, 2)
        assert (best[:, 0] - best[:, 1]).min() > 2 * CLOSE  # no two best logits tie
        assert found.tokens == expected.tokens
    assert rows[0] == rows[1]
    assert all(len(set(row[-70:])) > 1 for row in rows[0])  # not the same token forever


@pytest.mark.thorough
@pytest.mark.parametrize("kind", WRITERS, ids=[named(each) for each in WRITERS])
@settings(max_examples=3)
@given(data=st.data())
def test_a_row_equals_the_same_row_decoded_alone(kind: dict[str, Any], data: st.DataObject) -> None:
    """Other rows join and leave; texts grow beyond the context limit, and prompts may be read in chunks."""
    model = decoder(tiny(**{**PLAIN, **kind}))
    visitors = data.draw(guests(45))
    limit = data.draw(st.sampled_from([1, 16, 64, 1000, None]))
    play(TokenLoop(onnx_reader(model, 1, limit), 4), visitors)
    for guest in visitors:
        agree(model, guest, CLOSE)


@pytest.mark.parametrize("limit", [1, 16, None])
@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi"])
def test_rows_join_and_leave_and_long_prompts_are_read_in_chunks(positions: str, limit: int | None) -> None:
    model = decoder(tiny(positions=positions, **PLAIN))
    visitors = [*some_guests(40), Guest(tokens(1, 21)[0].tolist(), SampleConfig(temperature=0, tokens=40), 3, 9)]
    play(TokenLoop(onnx_reader(model, 1, limit), 4), visitors)
    for guest in visitors:
        agree(model, guest, CLOSE)


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "relative"])
def test_rows_are_dropped_permuted_and_duplicated(positions: str) -> None:
    """As in a beam search: 2 rows become 6, are reordered and dropped, and grow past the context."""
    model = decoder(tiny(positions=positions))
    reader = onnx_reader(model, threads=1)
    rows = prompts((11, 11))
    ready(reader, rows)
    assert difference(model, reader, rows, steps=1) <= CLOSE
    for chosen in ([0, 0, 1, 0, 1, 1], [5, 4, 0, 0, 2, 3], [1, 0], [1], [0, 0, 0]):
        with inference(model):
            reader.select(chosen)
        rows = [list(rows[row]) for row in chosen]
        assert difference(model, reader, rows, steps=5) <= CLOSE
    reader.select([])
    rows = prompts((7,))
    ready(reader, rows)
    assert difference(model, reader, rows, steps=2) <= CLOSE


def test_the_cache_of_a_prompt_is_reused_or_copied() -> None:
    """The tensors of one row with room to grow are reused; a second, longer row needs a larger cache."""
    model = decoder(tiny(positions="rotary"))
    reader = onnx_reader(model, threads=1)
    rows = prompts((5,))
    ready(reader, rows, room=20)
    assert difference(model, reader, rows, steps=3) <= CLOSE
    assert reader.cache.layers[0].keys.shape == (1, 6, 25, 16)
    rows.append(prompts((19,))[0])
    ready(reader, rows[1:])
    assert difference(model, reader, rows, steps=3) <= CLOSE


TARGETS: list[dict[str, Any]] = [
    *kinds("encoder-decoder"),
    {"window": 5, "kv_heads": 2, "positions": "alibi"},
    {"head_width": 16, "positions": "rotary", "qk_norm": "head", "kv_heads": 1},
    {**BIASES, "norm_order": "output"},
    {"shared_embedding": False, "activation": "swiglu", "norm": "rmsnorm"},
]
SOURCES = (3, 28, 17, 29, 1)


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("changes", TARGETS, ids=[named(each) for each in TARGETS])
def test_targets_equal_the_models(changes: dict[str, Any], precision: Any) -> None:
    """Sources have several lengths; targets that share a source are copied, dropped and reordered."""
    model = encoder_decoder(**changes)
    reader = onnx_reader(model, 1, precision=precision)
    sources = prompts(SOURCES)
    rows = [[4] for _ in sources]
    for source in sources:
        reader.add(source, longest=9)
    everything = []
    with inference(model):
        for step, chosen in enumerate(
            ([0, 1, 2, 3, 4], [0, 0, 1, 1, 2, 2, 3, 3], [1, 0, 2, 2, 7, 6], [3, 2, 5, 5], [1, 1, 0, 3, 3, 2], [0, 5])
        ):
            if step:
                reader.select(chosen)
                rows = [list(rows[row]) for row in chosen]
                sources = [sources[row] for row in chosen]
            for _ in range(4):
                found = reader.read(rows)
                assert found.rows == list(range(len(rows)))
                everything.append((found.logits - next_logits(model, rows, sources)).abs().max().item())
                grow(rows, len(everything))
    assert max(everything) <= CLOSE if precision == "float32" else 1e-4 < max(everything) < 0.35


@pytest.mark.parametrize("limit", [1, 16, None])
@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi"])
def test_targets_join_and_leave(positions: str, limit: int | None) -> None:
    model = encoder_decoder(positions=positions, **PLAIN)
    visitors = some_guests(29)
    play(TokenLoop(onnx_reader(model, 1, limit), 4), visitors)
    for guest in visitors:
        agree(model, guest, CLOSE)


def test_a_bfloat16_encoder_decoder_generates() -> None:
    """The logits of decoding steps are float32, although PyTorch encodes the sources in bfloat16."""
    model = encoder_decoder(positions="rotary").to(torch.bfloat16)
    visitors = some_guests(29)
    play(TokenLoop(onnx_reader(model, 1, 16), 4), visitors)
    assert all(guest.ended in ("end", "length") for guest in visitors)
    assert {logits.dtype for guest in visitors for logits in guest.logits} == {torch.float32}


def outputs_of(model: Decoder, precision: Any, rows: list[list[int]]) -> Tensor:
    reader = onnx_reader(model, 1, precision=precision)
    ready(reader, rows)
    with inference(model):
        return reader.read(rows).logits


@pytest.mark.parametrize("changes", SETTINGS, ids=[named(each) for each in SETTINGS])
def test_logits_with_8_bits_are_close(changes: dict[str, Any]) -> None:
    model = decoder(tiny(**changes))
    reader = onnx_reader(model, threads=1, precision="int8")
    rows = prompts()
    ready(reader, rows)
    found = difference(model, reader, rows, steps=20)
    with inference(model):
        spread = next_logits(model, rows).std().item()
    assert 1e-4 < found < 0.35 * spread


def test_with_8_bits_a_row_is_independent_of_others() -> None:
    """Other rows change neither scales nor sums, although their vectors are a thousand times as long."""
    model = decoder(tiny(norm="none", layers=1, **PLAIN))
    model.embedding.tokens.weight[30] *= 1000
    alone = outputs_of(model, "int8", [[3, 1, 4]])
    together = outputs_of(model, "int8", [[30, 30, 30], [3, 1, 4], [5]])
    assert (together[1] - alone[0]).abs().max() <= 1e-5


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_logits_of_a_row_are_the_same_alone_and_in_a_batch(precision: Any) -> None:
    """At this width, a processor with AVX-512 may multiply one row and several rows in different ways."""
    model = decoder(tiny(width=256, heads=4, hidden=1024, layers=2))
    rows = prompts((3, 20, 11, 28, 7, 16, 1, 25))
    together = outputs_of(model, precision, rows)
    for row, found in zip(rows, together, strict=True):
        assert (outputs_of(model, precision, [row])[0] - found).abs().max() <= 1e-5


def test_a_row_of_zeros_causes_no_division_by_zero() -> None:
    model = decoder(tiny(norm="none", layers=1, positions="none"))
    model.embedding.tokens.weight[3] = 0
    assert torch.equal(outputs_of(model, "int8", [[3]]), torch.zeros(1, VOCAB))


def test_quantized_weights_differ_by_at_most_half_a_level() -> None:
    """Each block of 64 inputs has its own scale; the last block is padded."""
    weight = torch.randn(5, 70, generator=torch.Generator().manual_seed(0))
    weight[:, 64:] *= 1000
    weight[2] = 0
    levels, scales = quantized_matrix(weight)
    assert levels.dtype == torch.uint8
    assert levels.shape == (5, 2, 64)
    assert scales.min() > 0  # also for an output without weights
    back = (levels.float() - 128) * scales[:, :, None]  # (5, 2, 64)
    wanted = torch.nn.functional.pad(weight, (0, 58)).view(5, 2, 64)
    assert ((back - wanted).abs() <= scales[:, :, None] * 0.5001).all()


@pytest.mark.parametrize("changes", [{"positions": "rotary"}, {"positions": "alibi", "kv_heads": 2}], ids=named)
def test_the_quantized_cache_approximates_keys_and_values(changes: dict[str, Any]) -> None:
    """Compare the first layer, where 8-bit inputs and weights are the only other difference."""
    model = decoder(tiny(**changes))
    row = tokens(1, 20)[0].tolist()
    reader = onnx_reader(model, 1, precision="int8")
    ready(reader, [row])
    with inference(model):
        reader.read([row])
        exact = Cache(model.config, 1, 20, torch.device("cpu"), torch.float32)
        model.stack(torch.tensor([row]), model.embedding, None, cache=exact)
    channels = head_channels(model.config.K, padded_head_width(model.config))
    assert isinstance(reader, SlotReader)
    for read, scales, wanted in zip(
        (reader.cache.layers[0].keys, reader.cache.layers[0].values),
        cache_scales(model)[0],
        (exact.layers[0].keys, exact.layers[0].values),
        strict=True,
    ):
        assert read.dtype == torch.int8
        found = read[:, :, :20, channels] * scales[:, None]  # (1, G, 20, K)
        assert (found - wanted).abs().max() <= 0.03 * wanted.abs().max()


def test_cache_scales_use_no_random_numbers_and_no_dropout() -> None:
    model = decoder(tiny(dropout_embedding=0.5)).train()
    state = torch.get_rng_state()
    first = cache_scales(model)
    assert torch.equal(state, torch.get_rng_state())
    assert model.training
    for found, again in zip(first, cache_scales(model.eval()), strict=True):
        assert torch.equal(found[0], again[0])
        assert torch.equal(found[1], again[1])


def test_an_encoder_decoder_keeps_a_float32_cache() -> None:
    assert step_graph(encoder_decoder(), "int8").cache_type == torch.float32
    assert step_graph(decoder(tiny()), "int8").cache_type == torch.int8
    assert step_graph(decoder(tiny())).cache_type == torch.float32


def test_the_requested_number_of_threads_is_used() -> None:
    reader = onnx_reader(decoder(tiny()), threads=2)
    assert isinstance(reader.engine, OnnxEngine)
    assert reader.engine.session.get_session_options().intra_op_num_threads == 2


def test_weights_are_shared_not_copied() -> None:
    """All weights are shared except those of queries, keys and values, which are multiplied as one matrix."""
    model = decoder(tiny(positions="rotary", head_width=16, width=64, hidden=256))
    graph = step_graph(model)
    shared = {tensor.data_ptr() for tensor in graph.weights.values()}
    for name, parameter in model.named_parameters():
        packed = any(part in name for part in (".query.", ".key.", ".value."))
        assert (parameter.data_ptr() in shared) == (not packed)
    assert len(graph.model) < 20_000


@pytest.mark.parametrize(
    ("positions", "width", "padded"), [("rotary", 10, 16), ("rotary", 32, 32), ("alibi", 9, 16), ("none", 8, 8)]
)
def test_head_widths_of_the_operator(positions: str, width: int, padded: int) -> None:
    assert padded_head_width(tiny(positions=positions, head_width=width)) == padded


def test_query_heads_are_padded_to_equal_groups() -> None:
    """Of heads 0 to 5 with 2 key heads, 0, 4 and 5 are removed: key head 0 serves heads 1 and 2, key head 1 head 3."""
    model = decoder(tiny(kv_heads=2, **SOME))
    block = model.stack.blocks[0]
    assert isinstance(block, PreNormBlock)
    assert padded_query_heads(block.attention) == [0, 1, 2, None]


def test_a_bfloat16_model_is_computed_in_float32() -> None:
    model = decoder(tiny(positions="rotary")).to(torch.bfloat16)
    rows = prompts()
    wide = decoder(tiny(positions="rotary"))
    wide.load_state_dict(model.state_dict())
    reader = onnx_reader(model, threads=1)
    ready(reader, rows)
    assert difference(wide, reader, rows, steps=4) <= CLOSE


class Louder(nn.Linear):
    """A custom part that the exporter does not know."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def test_unsupported_models_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = decoder(tiny())
    with pytest.raises(GlassError, match="on meta"):
        onnx_reader(decoder(tiny()).to("meta"), threads=1)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(GlassError, match="onnx, onnxruntime"):
        onnx_reader(model, threads=1)
    monkeypatch.undo()
    model.stack.blocks[2].feedforward.down.__class__ = Louder  # type: ignore[union-attr, assignment]
    with pytest.raises(GlassError, match="Louder"):
        onnx_reader(model, threads=1)


def test_a_hook_is_refused_before_and_between_reads() -> None:
    model = decoder(tiny())
    reader = onnx_reader(model, threads=1)
    rows = prompts()
    ready(reader, rows)
    assert difference(model, reader, rows, steps=2) <= CLOSE
    handle = model.stack.blocks[1].register_forward_hook(lambda *_: None)
    with pytest.raises(GlassError, match="hook"):
        difference(model, reader, rows, steps=1)
    handle.remove()
