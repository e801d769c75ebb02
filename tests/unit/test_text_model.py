"""Text generation: whole characters, stop strings, the end token, prompts, and unsupported text."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.base.config import TOKENIZER_KINDS, Config, ModelConfig, SampleConfig, TokenizerConfig
from glassformer.base.errors import GlassError
from glassformer.model.build import build_model
from glassformer.model.transformer import Decoder
from glassformer.tasks import Sample, TextModel, unknown_symbols
from glassformer.tasks.written_text import StopFilter, TextStreamer
from glassformer.text.tokenizers import Tokenizer, train_tokenizer

TEXT = "abcdefghij. The cat sat on the mat; the dog sat on the log.\nআমার সোনার বাংলা, আমি তোমায় ভালোবাসি। 🙂 é\n" * 3
BANGLA = "আমি তোমায় ভালোবাসি। 🙂"


def trained(kind: str) -> Tokenizer:
    sizes = {"bpe": 300, "unigram": 400, "wordpiece": 200}
    return train_tokenizer(TokenizerConfig.model_validate({"kind": kind, "vocab_size": sizes.get(kind, 200)}), [TEXT])


def text_model(kind: str, windows: str = "stream", seed: int = 0) -> TextModel:
    tokenizer = trained(kind)
    config = Config.from_dict(
        {"model": {"layers": 1, "heads": 2, "width": 16, "context": 24}, "data": {"windows": windows}}
    )
    model = build_model(config.model, tokenizer.vocab_size, seed=seed)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return TextModel(model, tokenizer, config)


def chain(text: str) -> TextModel:
    """Return a model that generates `text` in a loop: each of its distinct characters is followed by the next one."""
    tokenizer = train_tokenizer(TokenizerConfig(kind="characters"), [text])
    V = tokenizer.vocab_size
    shape = ModelConfig(layers=1, heads=1, width=V, context=16, positions="none", norm="none", tied=False)
    model = build_model(shape, V)
    assert isinstance(model, Decoder)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embedding.tokens.weight.copy_(torch.eye(V))
        ids = tokenizer.encode(text)
        for now, after in zip(ids, [*ids[1:], ids[0]], strict=True):
            assert model.head.weight is not None
            model.head.weight[after, now] = 50.0
    return TextModel(model, tokenizer, Config())


def run(stream: Iterator[str]) -> tuple[list[str], Sample]:
    """Return all pieces, and the return value of the generator."""
    pieces: list[str] = []
    while True:
        try:
            pieces.append(next(stream))
        except StopIteration as end:
            return pieces, end.value


@pytest.mark.thorough
@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_a_stream_is_the_same_text_as_a_batch_and_no_character_is_broken(kind: str) -> None:
    model = text_model(kind)
    prompts = ["The cat", BANGLA, "", "the dog sat on the log. The cat sat"]
    config = SampleConfig(temperature=1.5, tokens=40, stop=("th", "।"), seed=2)
    samples = model.generate(prompts, config)
    for prompt, sample in zip(prompts, samples, strict=True):
        pieces, streamed = run(model.stream(prompt, config))
        assert streamed == sample
        assert "".join(pieces) == sample.text
        assert all(pieces)
        sample.text.encode("utf-8")  # no half of a surrogate pair
        assert not any(stop in sample.text for stop in config.stop)
        assert sample.ended != "length" or sample.tokens == 40


@pytest.mark.parametrize("kind", ["bytes", "bpe", "characters", "unigram"])
def test_every_beginning_of_a_bangla_text_is_whole_characters(kind: str) -> None:
    """Wherever the tokens end, the generated text is a prefix of the text, at most one character short."""
    tokenizer = trained(kind)
    ids = tokenizer.encode(BANGLA)
    for end in range(len(ids) + 1):
        writer = TextStreamer(tokenizer, tokenizer.encode("The"), ())
        pieces = [writer.take(last=False) for id in ids[:end] if not writer.add(id)]
        pieces.append(writer.take(last=True))
        written = "".join(pieces)
        assert BANGLA.startswith(written)
        assert len(written.encode()) > sum(len(tokenizer.token_bytes(id)) for id in ids[:end]) - 4


@pytest.mark.parametrize("kind", ["words", "wordpiece", "bpe", "unigram"])
def test_generated_text_keeps_the_space_after_the_prompt(kind: str) -> None:
    tokenizer = trained(kind)
    whole = tokenizer.encode("The cat sat")
    head = tokenizer.encode("The cat")
    assert whole[: len(head)] == head
    writer = TextStreamer(tokenizer, head, ())
    for id in whole[len(head) :]:
        writer.add(id)
    assert writer.take(last=True) == " sat"


def test_a_stop_text_ends_the_text_and_is_left_out() -> None:
    model = chain("abcdefghij")
    pieces, sample = run(model.stream("ab", SampleConfig(temperature=0, tokens=50, stop=("fgx", "ghi"))))
    assert sample == Sample("ab", "cdef", tokens=7, ended="stop")
    assert pieces == ["c", "d", "e", "f"]  # f waits for g, which is not x: both stop strings are distinguished in time
    _, sample = run(model.stream("ab", SampleConfig(temperature=0, tokens=5, stop=("fghz",))))
    assert sample == Sample("ab", "cdefg", tokens=5, ended="length")  # held-back text comes at the end


def test_a_stop_text_in_the_prompt_does_not_count() -> None:
    sample = chain("abcdefghij").generate(["fgh"], SampleConfig(temperature=0, tokens=4, stop=("hi",)))[0]
    assert sample == Sample("fgh", "ijab", tokens=4, ended="length")


def test_the_end_token_ends_the_text_and_is_left_out() -> None:
    model = chain("abcdef")
    assert model.model.head.weight is not None
    with torch.no_grad():
        model.model.head.weight[model.tokenizer.end_id, model.tokenizer.encode("d")[0]] = 99.0
    sample = model.generate(["a"], SampleConfig(temperature=0, tokens=50))[0]
    assert sample == Sample("a", "bcd", tokens=4, ended="end")


def test_more_prompts_than_a_batch_with_separate_seeds() -> None:
    model = text_model("characters")
    config = SampleConfig(temperature=1.0, tokens=9, seed=5)
    prompts = ["The cat"[: 1 + i % 7] for i in range(70)]
    seeds = [i % 3 for i in range(70)]
    samples = model.generate(prompts, config, seeds)
    assert [sample.prompt for sample in samples] == prompts
    for i in (0, 33, 69):
        assert samples[i] == model.generate([prompts[i]], config.replace(seed=seeds[i]))[0]
    with pytest.raises(GlassError, match="2 seeds"):
        model.generate(["a"], config, [1, 2])


def test_prompts_begin_like_training_rows() -> None:
    stream = text_model("characters")
    documents = text_model("characters", windows="documents")
    end = stream.tokenizer.end_id
    ids = stream.tokenizer.encode("The")
    assert stream.prompt_ids("The") == ids
    assert documents.prompt_ids("The") == [end, *ids]
    assert stream.prompt_ids("") == documents.prompt_ids("") == [end]


def test_candidates_have_printable_text_and_sum_to_one() -> None:
    model = text_model("bytes")
    best = model.candidates("The c", model.tokenizer.vocab_size)
    assert abs(sum(probability for _, _, probability in best) - 1) < 1e-9
    assert all(text == model.tokenizer.token_text(id) and text.isprintable() for id, text, _ in best)
    assert model.candidates("The c", 3) == best[:3]


@pytest.mark.parametrize(
    ("kind", "prompt", "expected"),
    [
        ("characters", "The żart żal", ["ż", "r"]),
        ("graphemes", "ক্ষ The ক্ষ", ["ক্ষ"]),
        ("words", "zebra sat, zebra", ["zebra"]),
        ("wordpiece", "The żart, sat", ["żart"]),
        ("characters", "The cat", []),
        ("bytes", "żżż", []),
        ("bpe", "żżż", []),
    ],
)
def test_unsupported_characters_are_named(kind: str, prompt: str, expected: list[str]) -> None:
    assert unknown_symbols(text_model(kind).tokenizer, prompt) == expected


def test_a_model_and_a_tokenizer_that_do_not_belong_together_are_refused() -> None:
    one = text_model("bytes")
    other = text_model("bpe")
    with pytest.raises(GlassError, match="257 tokens"):
        TextModel(one.model, other.tokenizer, one.config)
    config = Config.from_dict({"train": {"task": "masked"}})
    with pytest.raises(GlassError, match="fill in masked tokens, not to continue text"):
        TextModel(build_model(config.model, 257), one.tokenizer, config)


PIECES = st.lists(st.text("ab", max_size=4), max_size=12)


@settings(max_examples=300)
@given(pieces=PIECES, stop=st.lists(st.text("ab", min_size=1, max_size=5), max_size=3))
def test_the_stop_filter_passes_everything_before_the_first_stop_text(pieces: list[str], stop: list[str]) -> None:
    text = "".join(pieces)
    one_by_one = StopFilter(stop)
    out = ""
    for piece in pieces:
        out += one_by_one.feed(piece)
        assert text.startswith(out)
    out += one_by_one.finish()
    ends = [n for n in range(len(text) + 1) if text[:n].endswith(tuple(stop))] if stop else []
    assert one_by_one.found == bool(ends)
    if not ends:
        assert out == text
    else:
        first = ends[0]
        assert out == text[: first - max(len(each) for each in stop if text[:first].endswith(each))]


@settings(max_examples=100)
@given(text=st.text("ab", max_size=20), stop=st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=3))
def test_the_stop_filter_holds_back_as_little_as_possible(text: str, stop: list[str]) -> None:
    one_by_one = StopFilter(stop)
    out = ""
    for end, letter in enumerate(text, start=1):
        out += one_by_one.feed(letter)
        if not one_by_one.found and len(out) < end:
            assert any(each.startswith(text[len(out) : end]) for each in stop)


def test_an_empty_stop_text_is_refused() -> None:
    with pytest.raises(GlassError, match="stop string is empty"):
        Config().sample.replace(stop=("a", ""))
    with pytest.raises(GlassError, match="stop string is empty"):
        StopFilter(("a", ""))
