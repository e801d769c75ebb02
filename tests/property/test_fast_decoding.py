"""`FastDecoder` and the model give equal logits for the next token on the same cache, for every kind of block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pytest
import torch
from torch import nn

from glassformer.base.config import Activation, SampleConfig
from glassformer.generation import fast
from glassformer.generation.decoding import generate
from glassformer.generation.fast import FastDecoder, fast_decoder, reordering_pays_off
from glassformer.generation.logit_readers import CachedReader, next_logits
from glassformer.generation.slot_cache import SlotCache
from glassformer.model.cache import Cache
from glassformer.model.evaluation_mode import inference
from glassformer.model.transformer import Decoder, EncoderDecoder
from tests.property.models import VOCAB, decoder, encoder_decoder, kinds, named, tiny, tokens

ALL_BIASES = {"attention_bias": True, "feedforward_bias": True, "norm_bias": True, "head_bias": True}
ACTIVATIONS: list[dict[str, Any]] = [{"activation": name} for name in get_args(Activation)]
BIASES: list[dict[str, Any]] = [{"activation": name, **ALL_BIASES} for name in ("relu2", "gelu_tanh", "swiglu")]
NORM_ORDERS: list[dict[str, Any]] = [
    *({"norm_order": order, **ALL_BIASES, "kv_heads": 2} for order in ("pre", "post", "output")),
    *({"norm_order": order, "norm": "rmsnorm", "kv_heads": 1} for order in ("pre", "post", "output")),
]
CHOICES: list[dict[str, Any]] = [
    *ACTIVATIONS,
    *BIASES,
    *NORM_ORDERS,
    {"norm": "none", "tied": False, "window": 5},
    {"window": 7, "positions": "rotary", "kv_heads": 3, "qk_norm": "head"},
    {"window": 4, "positions": "alibi", "kv_heads": 2},
    {"window": 6, "positions": "relative", "embedding_scale": True, "embedding_norm": True},
]
EVEN = [11, 11, 11]
RAGGED = [11, 7, 1]


def steps_of_both(
    model: Decoder | EncoderDecoder, layout: bool, ragged: bool
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the logits of the fast decoder and of the model, each with a separate cache; rows are reordered twice.

    With `ragged`, the prompts or sources have different lengths; `layout` is passed to the fast decoder.
    """
    given = tokens(3, 20)
    weight = model.embedding.tokens.weight
    lengths = RAGGED if ragged else EVEN
    memory = None
    memory_mask = None
    stack = model.stack if isinstance(model, Decoder) else model.decoder
    if isinstance(model, EncoderDecoder):
        memory_mask = torch.arange(11) < torch.tensor(lengths)[:, None]
        memory = model.encode(tokens(3, 11, seed=3), memory_mask)
    own = FastDecoder(model.embedding, stack, model.head, layout)
    caches = [SlotCache(model.config, weight.device, kind) for kind in (own.cache_type, weight.dtype)]
    for cache in caches:
        prompts = Cache(model.config, 3, 11, weight.device, weight.dtype)
        stack(given[:, :11], model.embedding, None, memory, memory_mask, prompts)
        cache.add(lengths if memory is None else EVEN, 20, lengths if memory is not None else ())
        cache.fill([0, 1, 2], prompts)
    rows = [0, 1, 2]
    for place in range(11, 20):
        if place == 14:
            rows = [0, 0, 1, 1] if memory is None else [0, 0, 2, 2]
            for cache in caches:
                cache.select(rows)
        if place == 17:
            for cache in caches:
                cache.select([1, 0, 3, 3])
        new = given[[*range(len(rows))] if len(rows) == 3 else [0, 1, 2, 0], place]
        empty = None if memory is None else weight.new_empty(len(rows), 0, weight.shape[1])
        with caches[1].memory_of_each_slot() as mask:
            whole = stack(new[:, None], model.embedding, None, empty, mask, caches[1])
        yield own(new, caches[0], caches[0].memory_mask), model.head(whole, model.embedding)[:, 0]


@pytest.mark.thorough
@pytest.mark.parametrize("layout", [False, True], ids=["plain", "laid-out"])
@pytest.mark.parametrize("ragged", [False, True], ids=["even", "ragged"])
@pytest.mark.parametrize("changes", [*kinds("decoder"), *CHOICES], ids=named)
def test_decoder_steps_equal_the_models(changes: dict[str, Any], ragged: bool, layout: bool) -> None:
    model = decoder(tiny(**changes))
    with inference(model):
        for ours, expected in steps_of_both(model, layout, ragged):
            assert expected.std() > 0.1
            assert (ours - expected).abs().max() <= 1e-5


@pytest.mark.parametrize("layout", [False, True], ids=["plain", "laid-out"])
@pytest.mark.parametrize("ragged", [False, True], ids=["even", "ragged"])
@pytest.mark.parametrize("changes", [*kinds("encoder-decoder"), *BIASES, *NORM_ORDERS], ids=named)
def test_translation_steps_equal_the_models(changes: dict[str, Any], ragged: bool, layout: bool) -> None:
    """Several rows share a source, and one source is dropped."""
    model = encoder_decoder(**changes)
    with inference(model):
        for ours, expected in steps_of_both(model, layout, ragged):
            assert expected.std() > 0.1
            assert (ours - expected).abs().max() <= 1e-5


SHARED_KEYS: dict[str, Any] = {"positions": "alibi", "heads": 4, "kv_heads": 2, "window": 5}


@pytest.mark.parametrize("ragged", [False, True], ids=["even", "ragged"])
@pytest.mark.parametrize("family", ["decoder", "encoder-decoder"])
@pytest.mark.parametrize("changes", [{}, SHARED_KEYS], ids=named)
def test_batched_matrix_products_attend_as_the_model_does(
    changes: dict[str, Any], family: str, ragged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast, "BATCHED_ROWS", 1)  # whatever the number of rows
    model = decoder(tiny(**changes)) if family == "decoder" else encoder_decoder(**changes)
    with inference(model):
        for ours, expected in steps_of_both(model, layout=False, ragged=ragged):
            assert expected.std() > 0.1
            assert (ours - expected).abs().max() <= 1e-5


@pytest.mark.parametrize("layout", [False, True], ids=["plain", "laid-out"])
@pytest.mark.parametrize("changes", [{}, {"positions": "rotary", "kv_heads": 2, "activation": "swiglu"}], ids=named)
def test_bfloat16_steps_are_as_close_to_float32_as_the_models(changes: dict[str, Any], layout: bool) -> None:
    if layout and not reordering_pays_off(torch.empty(1, dtype=torch.bfloat16), 100):
        layout = False
    exact = decoder(tiny(**changes))
    model = decoder(tiny(**changes)).to(torch.bfloat16)
    with inference(model):
        pairs = list(steps_of_both(model, layout, ragged=False))
        wide = [expected for _, expected in steps_of_both(exact, layout=False, ragged=False)]
    ours, models = (torch.cat([pair[which] for pair in pairs]).float() for which in (0, 1))
    right = torch.cat(wide)
    assert (ours - right).abs().mean() <= 1.1 * (models - right).abs().mean()


@pytest.mark.thorough
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_generated_texts_are_the_same_without_the_fast_decoder(
    temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare texts past the context limit, with prompts of several lengths and enough steps to reorder the weights."""
    model = decoder(tiny())
    settings = SampleConfig(tokens=40, temperature=temperature)
    prompts = [tokens(1, length, seed=length)[0].tolist() for length in (3, 17, 28, 9, 29)]
    own = [step.tokens for step in generate(model, prompts, settings)]
    pairs = encoder_decoder()
    sources = [prompt[:13] for prompt in prompts]
    translated = [step.tokens for step in generate(pairs, sources, settings, 0)]
    used = []
    monkeypatch.setattr(fast.FastDecoder, "applies", lambda self: bool(used.append(self)))
    assert [step.tokens for step in generate(model, prompts, settings)] == own
    assert [step.tokens for step in generate(pairs, sources, settings, 0)] == translated
    assert used


def test_hooks_are_called() -> None:
    """A hook that is registered during decoding is called; after its removal, the fast path is used again."""
    model = decoder(tiny())
    heard = []
    part = model.stack.blocks[1].feedforward.up
    reader = CachedReader(model, steps=24)
    prompts = tokens(2, 5).tolist()
    reader.add()
    reader.add()

    def read() -> int:
        heard.clear()
        with inference(model):
            cached = reader.read(prompts).logits
            assert len(heard) in (0, 1)
            count = len(heard)
            assert (cached - next_logits(model, prompts)).abs().max() <= 1e-5
        for row in prompts:
            row.append(3)
        return count

    read()
    assert reader.fast is not None
    assert read() == 0
    handle = part.register_forward_hook(lambda module, args, output: heard.append(module))
    assert read() == 1
    assert fast_decoder(model, 9) is None
    handle.remove()
    assert read() == 0
    handle = part.register_forward_pre_hook(lambda module, args: heard.append(module))
    assert read() == 1
    handle.remove()
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, args, output: heard.append(module) if module is part else None
    )
    try:
        assert read() == 1
    finally:
        handle.remove()


def test_custom_modules_use_the_model() -> None:
    class Louder(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    model = decoder(tiny())
    assert fast_decoder(model, 9) is not None
    model.stack.blocks[2].feedforward.down.__class__ = Louder
    assert fast_decoder(model, 9) is None
    reader = CachedReader(model, steps=24)
    prompts = tokens(2, 5).tolist()
    reader.add()
    reader.add()
    with inference(model):
        reader.read(prompts)
        prompts = [[*row, 4] for row in prompts]
        assert (reader.read(prompts).logits - next_logits(model, prompts)).abs().max() <= 1e-5


def test_under_autocast_the_model_itself_runs() -> None:
    model = decoder(tiny())
    with torch.autocast("cpu", torch.bfloat16):
        assert fast_decoder(model, 9) is None


def test_weights_are_reordered_only_where_it_pays_off() -> None:
    weight = torch.empty(VOCAB, 22)
    assert reordering_pays_off(weight, steps=200) == torch.backends.mkldnn.is_available()
    assert not reordering_pays_off(weight, steps=3)
    assert not reordering_pays_off(weight.double(), steps=200)


def test_without_private_kernels_weights_are_not_reordered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast, "KERNELS", (*fast.KERNELS, "_renamed"))
    assert not reordering_pays_off(torch.empty(VOCAB, 22), steps=200)
    assert not reordering_pays_off(torch.empty(VOCAB, 22, dtype=torch.bfloat16), steps=200)
