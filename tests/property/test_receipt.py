"""Direct logit attribution (receipt): parts add up to the logit, each is correct, and the sampling is reproduced."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from glassformer.base.config import Config, ModelConfig, SampleConfig, TokenizerConfig
from glassformer.base.errors import GlassError
from glassformer.generation.decoding import generate
from glassformer.generation.logit_readers import next_logits
from glassformer.generation.sampling import probabilities
from glassformer.inspection.receipt import LogitPart, split_logit, write_receipt
from glassformer.inspection.receipt.draw import explain_draw
from glassformer.inspection.receipt.parts import total
from glassformer.inspection.receipt.receipt import table
from glassformer.inspection.trace import trace
from glassformer.inspection.traced import Trace
from glassformer.model.build import build_model
from glassformer.model.transformer import Classifier, Decoder, EncoderDecoder, Model
from glassformer.tasks import TextClassifier, TextModel
from glassformer.tasks.naming import label_named, token_named
from glassformer.text.tokenizers import Tokenizer, train_tokenizer
from tests.property.models import (
    POSITIONS,
    VOCAB,
    as_if_trained,
    decoder,
    encoder,
    encoder_decoder,
    some_heads,
    tiny,
    tokens,
)

LENGTH = 17
SOURCE = 13
PLACE = 11
TOKEN = 5
OTHER = 23
NORMS: tuple[dict[str, Any], ...] = (
    {"norm": "layernorm", "norm_bias": True},
    {"norm": "layernorm"},
    {"norm": "rmsnorm"},
    {"norm": "none"},
    {"norm": "layernorm", "norm_bias": True, "norm_order": "output"},
    {"norm": "rmsnorm", "norm_order": "output"},
)
BIASES = {"attention_bias": True, "feedforward_bias": True, "head_bias": True}
CHOICES: tuple[dict[str, Any], ...] = (
    {"width": 24, "value_width": 4, "output_projection": False},
    {"kv_heads": 2, "qk_norm": "head", "value_width": 7, **BIASES},
    {"kv_heads": 1, "tied": False, "embedding_scale": True, "activation": "swiglu"},
    {"tied": False, "window": 5, "activation": "gelu_tanh", **BIASES},
    {"embedding_norm": True, "norm_eps": 0.3},
    {"qk_norm": "whole", "kv_heads": 3, "attention_bias": True},
)
SOME: tuple[dict[str, Any], ...] = (
    {"kv_heads": 2, **BIASES},
    {"kv_heads": 3, "norm_order": "output", "qk_norm": "head"},
)
"""Settings of models with some heads removed."""
LIMITS = {torch.float64: 1e-10, torch.float32: 1e-4}
"""Largest allowed difference between the sum of all parts and the logit."""


def classifier(**changes: Any) -> Classifier:
    """Return a classifier with 7 classes and all parameters moved away from their initial values."""
    model = build_model(tiny(family="encoder", **changes), VOCAB, seed=1, classes=7)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    assert isinstance(model, Classifier)
    return model.eval().requires_grad_(False)


def seen(model: Model) -> tuple[Trace, list[int], Tensor]:
    """Return a trace, the positions that the head reads, and all logits there."""
    if isinstance(model, EncoderDecoder):
        made = trace(model, tokens(1, SOURCE, seed=1), tokens(1, LENGTH))
    else:
        made = trace(model, tokens(1, LENGTH))
    if isinstance(model, Classifier):
        return made, [0] if model.config.pooling == "first" else list(range(LENGTH)), made.logits[0]
    return made, [PLACE], made.logits[0, PLACE]


def assert_adds_up(model: Model, token: int = TOKEN, against: int = OTHER) -> None:
    for dtype, limit in LIMITS.items():
        made, places, logits = seen(model.to(dtype))
        parts = split_logit(model, made, places, token)
        assert abs(total(parts) - float(logits[token])) <= limit
        contrast = split_logit(model, made, places, token, against)
        assert abs(total(contrast) - float(logits[token].double() - logits[against].double())) <= limit
        for part in [*parts, *contrast]:
            if part.sources is not None:
                assert sum(part.sources) == pytest.approx(part.value, abs=1e-12)


@pytest.mark.thorough
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: "-".join(map(str, norm.values())))
def test_the_parts_of_a_decoder_add_up(positions: str, norm: dict[str, Any]) -> None:
    for choice in CHOICES:
        if norm["norm"] == "none":  # a gate squares values that no norm bounds: float32 cannot give 1e-4 of thousands
            choice = {**choice, "activation": "relu", "embedding_norm": False, "norm_eps": None}
        assert_adds_up(decoder(tiny(positions=positions, **norm, **choice)))


@pytest.mark.thorough
@pytest.mark.parametrize("positions", POSITIONS)
def test_the_parts_of_every_other_family_add_up(positions: str) -> None:
    for norm, choice in zip(NORMS, CHOICES, strict=True):
        both: dict[str, Any] = {"positions": positions, "layers": 2, **norm, **choice}
        assert_adds_up(encoder(**both))
        assert_adds_up(encoder_decoder(**both))
        assert_adds_up(classifier(pooling="mean", **both), token=5, against=2)
        assert_adds_up(classifier(pooling="first", **both), token=5, against=2)


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: "-".join(map(str, norm.values())))
def test_each_part_is_its_vector_mapped_through_the_fixed_norm(norm: dict[str, Any]) -> None:
    """Compare with an independent computation: autograd through norms with fixed scales, head by head."""
    normed = norm["norm"] != "none"
    model = encoder_decoder(positions="learned", kv_heads=2, embedding_norm=normed, **norm, **BIASES).double()
    made, _, _ = seen(model)
    u = held_gradient(model.decoder.norm, made.stack.blocks[-1].after[0, PLACE], model.embedding.tokens.weight[TOKEN])
    found = {part.name: part for part in split_logit(model, made, [PLACE], TOKEN)}
    assert made.stack.position_vectors is not None
    token = made.stack.token_vectors[0, PLACE]  # (D)
    position = made.stack.position_vectors[0, PLACE]  # (D)
    below = held_gradient(model.embedding.norm, token + position, u)  # (D)
    expected = {"token embedding": token @ below, "position embedding": position @ below}
    outputs = norm.get("norm_order") == "output"
    for layer, (block, own) in enumerate(zip(made.stack.blocks, model.decoder.blocks, strict=True)):
        assert block.cross is not None
        written = block.feedforward.output[0, PLACE]
        last = own.feedforward_norm
        expected[f"layer {layer} feed-forward"] = written @ (held_gradient(last, written, u) if outputs else u)
        if outputs and norm.get("norm_bias"):
            expected[f"layer {layer} feed-forward norm bias"] = last.bias @ u
        for kind, each, last in (
            ("", block.attention, own.attention_norm),
            ("cross-attention ", block.cross, own.cross_norm),
        ):
            assert each.output_bias is not None
            through = held_gradient(last, each.output[0, PLACE], u) if outputs else u
            expected[f"layer {layer} {kind or 'attention '}bias"] = each.output_bias @ through
            if outputs and norm.get("norm_bias"):
                expected[f"layer {layer} {kind or 'attention '}norm bias"] = last.bias @ u
            for head in range(6):
                expected[f"layer {layer} {kind}head {head}"] = each.head_outputs[0, head, PLACE] @ through
    if norm.get("norm_bias"):
        expected["embedding norm bias"] = model.embedding.norm.bias @ u
        expected["final norm bias"] = model.decoder.norm.bias @ model.embedding.tokens.weight[TOKEN]
    assert model.head.bias is not None
    expected["head bias"] = model.head.bias[TOKEN]
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].value == pytest.approx(float(value), abs=1e-12), name


def held_gradient(norm: nn.Module, x: Tensor, w: Tensor) -> Tensor:
    """Return d logit / d x by autograd with the scale of the norm held constant: (D), (D) -> (D)."""
    x = x.clone().requires_grad_()
    centred = x - x.mean() if isinstance(norm, nn.LayerNorm) else x
    scale = torch.ones(())
    if not isinstance(norm, nn.Identity):
        scale = (centred.square().mean() + norm.eps).sqrt().detach()
        centred = centred * norm.weight
    return torch.autograd.grad(centred / scale @ w, x)[0]


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
def test_a_head_is_split_by_source_token(kv_heads: int) -> None:
    """Each term is attention weight × value × the head's columns of the output matrix × the token's output vector."""
    model = encoder_decoder(positions="rotary", norm="none", kv_heads=kv_heads, tied=False).double()
    made, _, _ = seen(model)
    assert model.head.weight is not None
    parts = {part.name: part for part in split_logit(model, made, [PLACE], TOKEN)}
    for layer, head in itertools.product(range(3), range(6)):
        block = model.decoder.blocks[layer]
        for name, module, each in (
            ("head", block.attention, made.stack.blocks[layer].attention),
            ("cross-attention head", block.cross, made.stack.blocks[layer].cross),
        ):
            columns = module.output.weight[:, 10 * head : 10 * head + 10]  # type: ignore[union-attr, index]
            assert each is not None
            sources = parts[f"layer {layer} {name} {head}"].sources
            assert sources is not None
            assert len(sources) == (LENGTH if name == "head" else SOURCE)
            for place, value in enumerate(sources):
                v = each.v[0, head * kv_heads // 6, place]  # (K)
                term = each.pattern[0, head, PLACE, place] * (columns @ v) @ model.head.weight[TOKEN]
                assert value == pytest.approx(float(term), abs=1e-12)
            if name == "head":
                assert set(sources[PLACE + 1 :]) == {0.0}, "from tokens that cannot be seen"


def test_removing_a_part_changes_the_logit_by_its_value() -> None:
    """Without norms and the last feed-forward layer, nothing follows the last heads before the logit."""
    model = decoder(tiny(norm="none", tied=False)).double()
    made, _, logits = seen(model)
    parts = {part.name: part.value for part in split_logit(model, made, [PLACE], TOKEN)}
    with torch.no_grad():
        model.stack.blocks[-1].feedforward.down.weight.zero_()  # type: ignore[union-attr, operator]
        before = trace(model, tokens(1, LENGTH)).logits[0, PLACE, TOKEN]
        model.stack.blocks[-1].attention.output.weight[:, 20:30] = 0.0  # type: ignore[union-attr, index]
        after = trace(model, tokens(1, LENGTH)).logits[0, PLACE, TOKEN]
    assert float(logits[TOKEN] - before) == pytest.approx(parts["layer 2 feed-forward"], abs=1e-12)
    assert float(before - after) == pytest.approx(parts["layer 2 head 2"], abs=1e-12)


@pytest.mark.parametrize("choice", SOME, ids=lambda choice: str(choice["kv_heads"]))
def test_the_parts_add_up_with_removed_heads(choice: dict[str, Any]) -> None:
    """Each remaining head keeps its name."""
    model = encoder_decoder(removed_heads=some_heads("encoder-decoder"), **choice)
    assert_adds_up(model)
    assert_adds_up(encoder(removed_heads=some_heads("encoder"), **choice))
    found = {part.name for part in split_logit(model, seen(model)[0], [PLACE], TOKEN)}
    first = {name for name in found if name.startswith("layer 0") and "head" in name}
    assert first == {
        *(f"layer 0 head {n}" for n in (1, 2, 3)),
        *(f"layer 0 cross-attention head {n}" for n in (0, 2, 3)),
    }
    assert not any(name.startswith("layer 1 head") for name in found)


@pytest.mark.parametrize(
    ("choice", "words"),
    [({"norm_order": "post"}, "norms of all later layers"), ({"head_transform": True}, "an activation lies between")],
)
def test_a_model_without_an_exact_sum_is_refused_with_the_reason(choice: dict[str, Any], words: str) -> None:
    model = decoder(tiny(**choice))
    with pytest.raises(GlassError, match=words) as caught:
        split_logit(model, seen(model)[0], [PLACE], TOKEN)
    assert len(str(caught.value).splitlines()) == 2


# ---- sampling

RANDOM_SETTINGS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.3, 1.0, 1.7]),
        "top_k": st.sampled_from([None, 1, 4, 31]),
        "top_p": st.sampled_from([None, 0.05, 0.6, 1.0]),
        "repetition_penalty": st.sampled_from([1.0, 1.6]),
        "seed": st.integers(0, 2**31),
    }
)


def wide() -> Decoder:
    """Return a decoder whose logits differ widely, so that every filter has an effect."""
    return decoder(tiny(layers=1, tied=False, head_bias=True))


def assert_explains(steps: Sequence[tuple[Tensor, int]], how: SampleConfig, counted: list[int]) -> None:
    """Check every generated token from its logits alone."""
    for number, (logits, token) in enumerate(steps, start=1):
        draw = explain_draw(logits, how, counted, number)
        assert draw.token == token
        assert torch.equal(draw.stages[-1].probabilities, probabilities(logits, how, counted))
        assert [float(stage.probabilities.sum()) for stage in draw.stages] == pytest.approx([1.0] * len(draw.stages))
        assert (draw.how == "likeliest") == (how.temperature == 0)
        if draw.runners:
            winner = draw.runners[0]
            arrivals = [runner.arrival for runner in draw.runners]
            assert winner.token == token
            assert arrivals == sorted(arrivals)
            assert len(arrivals) == draw.stages[-1].left
            assert winner.arrival == winner.number / winner.probability
        counted = [*counted, token]


@settings(max_examples=30)
@given(RANDOM_SETTINGS)
def test_sampling_is_explained_as_in_generate(given_settings: dict[str, Any]) -> None:
    how = SampleConfig(tokens=6, **given_settings)
    prompt = tokens(1, 4)[0].tolist()
    made = [(step.logits[0], step.tokens[0]) for step in generate(wide(), [prompt], how)]
    assert_explains(made, how, prompt)


@settings(max_examples=10)
@given(RANDOM_SETTINGS)
def test_sampling_is_explained_as_in_translation(given_settings: dict[str, Any]) -> None:
    how = SampleConfig(tokens=6, **given_settings)
    model = encoder_decoder(layers=1, tied=False)
    made = [(step.logits[0], step.tokens[0]) for step in generate(model, [[3, 4, 5]], how, end_id=0)]
    assert_explains(made, how, [])


def test_filters_have_separate_stages_in_their_order() -> None:
    logits = torch.tensor([2.0, 1.0, 0.5, -1.0, -3.0], dtype=torch.float64)
    how = SampleConfig(temperature=0.5, top_k=3, top_p=0.9, repetition_penalty=2.0)
    stages = explain_draw(logits, how, [0], 1).stages
    assert [stage.filter for stage in stages] == [None, "repetition_penalty", "temperature", "top_k", "top_p"]
    assert [stage.left for stage in stages] == [5, 5, 5, 3, 3]
    penalized = torch.tensor([1.0, 1.0, 0.5, -1.0, -3.0], dtype=torch.float64)
    assert torch.allclose(stages[0].probabilities, logits.softmax(0))
    assert torch.allclose(stages[1].probabilities, penalized.softmax(0))
    assert torch.allclose(stages[2].probabilities, (penalized / 0.5).softmax(0))
    assert torch.allclose(stages[3].probabilities[:3], (penalized[:3] / 0.5).softmax(0))


# ---- from a text

ALPHABET = "abcdefghijklmnopqrstuvwxyz ."


def characters() -> Tokenizer:
    return train_tokenizer(TokenizerConfig(kind="characters"), [ALPHABET])


def text_model(**changes: Any) -> TextModel:
    tokenizer = characters()
    shape = ModelConfig(layers=2, heads=2, width=22, context=13, tied=False, **changes)
    model = build_model(shape, tokenizer.vocab_size, seed=4)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    return TextModel(model.eval(), tokenizer, Config(model=shape, sample=SampleConfig(tokens=5)))


def test_the_backslash_of_a_byte_is_shown_once() -> None:
    tokenizer = train_tokenizer(TokenizerConfig(kind="bytes"), ["né"])
    shape = ModelConfig(layers=1, heads=1, width=22, context=13)
    model = build_model(shape, tokenizer.vocab_size, seed=4).eval()
    assert isinstance(model, Decoder)
    shown = table(write_receipt(TextModel(model, tokenizer, Config(model=shape)), "né\n", token="195"))
    assert r"token '\xc3' (195)" in shown
    assert r"'\xa9' at 2" in shown
    assert r"'\n' at 3" in shown
    assert "\\\\" not in shown


def test_a_text_longer_than_the_context_is_read_as_generate_reads_it() -> None:
    model = text_model()
    text = "the quick brown fox jumps over the lazy dog."
    ids = model.prompt_ids(text)
    for length in (5, 12, 13, 14, 19, 20, 44):
        receipt = write_receipt(model, text[:length])
        with torch.no_grad():
            logits = next_logits(model.model, [ids[:length]])[0]  # (V)
        assert abs(receipt.total - float(logits[receipt.token])) <= 1e-4
        assert receipt.prediction.unread + len(receipt.prediction.read) == length
        assert list(receipt.prediction.read) == ids[receipt.prediction.unread : length]
        assert ("not read" in table(receipt)) == (length > 13)


@pytest.mark.thorough
@pytest.mark.parametrize("beams", [1, 3])
def test_receipts_of_all_steps_give_the_generated_text(beams: int) -> None:
    model = text_model()
    how = SampleConfig(temperature=1.3, top_p=0.9, seed=8, tokens=20, beams=beams, repetition_penalty=4.0)
    receipts = [write_receipt(model, "once", settings=how, step=step) for step in range(1, 21)]
    written = model.generate(["once"], how)[0]
    assert model.tokenizer.decode([receipt.token for receipt in receipts]) == written.text
    assert all(abs(receipt.total - receipt.logit) <= 1e-4 for receipt in receipts)
    assert {receipt.prediction.draw.how for receipt in receipts} == {"beam search" if beams > 1 else "drawn"}


def test_a_step_after_the_end_is_refused() -> None:
    model = text_model()
    stops = model.config.sample.replace(temperature=0.0)
    first = write_receipt(model, "once", settings=stops)
    stops = stops.replace(stop=(model.tokenizer.decode([first.token]),))
    assert write_receipt(model, "once", settings=stops).token == first.token
    with pytest.raises(GlassError, match=r"has 1 token \(ended by a stop string\)"):
        write_receipt(model, "once", settings=stops, step=2)


def test_receipts_of_two_tokens_and_of_their_contrast_agree() -> None:
    model = text_model()
    a = write_receipt(model, "once", "a")
    b = write_receipt(model, "once", "b")
    both = write_receipt(model, "once", "a", "b")
    assert both.total == pytest.approx(a.total - b.total, abs=1e-9)
    assert both.logit == pytest.approx(a.logit - b.logit, abs=1e-12)
    chosen = write_receipt(model, "once")
    assert chosen.token == a.prediction.draw.token
    assert a.token == model.tokenizer.encode("a")[0]
    assert "the model itself chooses" in table(a) or a.token == chosen.token


@pytest.mark.parametrize("step", [1, 3])
def test_the_repetition_penalty_counts_prompt_and_generated_tokens(step: int) -> None:
    model = text_model()
    how = SampleConfig(temperature=1.0, repetition_penalty=4.0)
    receipt = write_receipt(model, "once", settings=how, step=step)
    counted = receipt.prediction.read  # no token is outside the context yet
    assert counted[:4] == tuple(model.prompt_ids("once"))
    assert len(counted) == 3 + step
    expected = probabilities(receipt.prediction.logits, how, counted)
    assert torch.equal(receipt.prediction.draw.stages[-1].probabilities, expected)
    assert not torch.equal(expected, probabilities(receipt.prediction.logits, how, counted[4:]))


def test_source_contributions_add_up() -> None:
    receipt = write_receipt(text_model(attention_bias=True), "once upon")
    through = sum(part.value for part in receipt.parts if part.sources is not None)
    assert sum(receipt.by_source()) == pytest.approx(through, abs=1e-12)
    assert len(receipt.by_source()) == len(receipt.read) == 9
    shares = [share for _, share in receipt.ranked()]
    assert sum(shares) == pytest.approx(1)
    assert shares == sorted(shares, reverse=True)


def test_a_classifier_is_explained_by_its_labels() -> None:
    tokenizer = characters()
    labels = ("ham", "spam", "work")
    shape = ModelConfig(family="encoder", layers=2, heads=2, width=22, context=13)
    model = build_model(shape, tokenizer.vocab_size, classes=3)
    config = Config.from_dict({"model": shape.model_dump(), "train": {"task": "classify"}})
    texts = TextClassifier(model, tokenizer, labels, config)
    for text in ("a", "buy now", "a text that is longer than the context"):
        receipt = write_receipt(texts, text, against="ham" if texts.classify([text])[0].label != "ham" else "work")
        assert labels[receipt.token] == texts.classify([text])[0].label
        assert abs(receipt.total - receipt.logit) <= 1e-4
        assert receipt.prediction.unread == texts.unread_tokens(text)
        assert "label" in table(receipt)


# ---- token names


def test_a_token_is_named_by_its_text_or_its_id() -> None:
    tokenizer = train_tokenizer(TokenizerConfig(kind="words"), ["the cat sat on 7 mats, the cat sat. cat"])
    (cat,) = tokenizer.encode(" cat")
    assert token_named(tokenizer, " cat") == token_named(tokenizer, str(cat)) == token_named(tokenizer, cat) == cat
    assert token_named(tokenizer, '" 7"') == tokenizer.encode(" 7")[0]
    assert token_named(tokenizer, "<|end|>") == tokenizer.end_id
    assert token_named(tokenizer, "0") == 0


@pytest.mark.parametrize(
    ("name", "problem", "remedy"),
    [
        ("", "names no token", "or its id"),
        ("9999", "token 9999 is outside the vocabulary", "Give an id from 0 to"),
        (9999, "token 9999 is outside the vocabulary", "Give an id from 0 to"),
        (-1, "token -1 is outside the vocabulary", "Give an id from 0 to"),
        (" cat sat", r"' cat sat' is 2 tokens, not one: ' cat' \(\d+\), ' sat' \(\d+\)", "Name one token"),
        ("sat", "'sat' is not in the vocabulary", "Did you mean ' sat', which is one token?"),
        ("zebra", "'zebra' is not in the vocabulary", "Name one token"),
        ("\ud800", "not valid Unicode", ""),
    ],
)
def test_unknown_token_names_are_refused(name: str | int, problem: str, remedy: str) -> None:
    tokenizer = train_tokenizer(TokenizerConfig(kind="words"), ["the cat sat on 7 mats, the cat sat. cat"])
    with pytest.raises(GlassError, match=problem) as caught:
        token_named(tokenizer, name)
    assert remedy in caught.value.remedy


def test_a_label_is_named_by_its_name_or_its_number() -> None:
    assert label_named(("1", "0"), "0") == 1, "a name comes first"
    assert label_named(("ham", "spam"), "1") == label_named(("ham", "spam"), 1) == 1
    with pytest.raises(GlassError, match="no label '2'"):
        label_named(("ham", "spam"), 2)
    with pytest.raises(GlassError, match="no label 'span'") as caught:
        label_named(("ham", "spam"), "span")
    assert caught.value.remedy == "Did you mean spam?"


def test_an_empty_text_and_a_contrast_with_itself_are_refused() -> None:
    with pytest.raises(GlassError, match="the text is empty"):
        write_receipt(text_model(), "")
    with pytest.raises(GlassError, match="nothing to compare"):
        write_receipt(text_model(), "once", "a", "a")


def test_parts_have_readable_names() -> None:
    assert LogitPart("cross head", 1.0, layer=2, head=3).name == "layer 2 cross-attention head 3"
    assert LogitPart("head bias", 1.0).name == "head bias"
    assert as_if_trained(tiny()).config.norm_order == "pre"
