"""The API with the official OpenAI client and a real server: every answer equals the library's."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import openai
import pytest
import torch

from glassformer.app.server.engine.engine import Engine
from glassformer.app.server.engine.jobs import TextJob
from glassformer.app.server.engine.metrics import Metrics
from glassformer.app.server.openai.request_bodies import MOST_TOKENS
from glassformer.base.config import SampleConfig
from glassformer.base.errors import GlassError
from glassformer.base.files import write_folder
from glassformer.generation.decoding import TokenLoop
from glassformer.model.cache import Cache
from glassformer.model.weights import save_tensors
from glassformer.runs.folder import CHAT_TEMPLATE_FILE, Run
from glassformer.runs.opening import OpenedRun
from glassformer.tasks import TextModel, Translator
from glassformer.tasks.chatting import TokenizedTemplate
from glassformer.text.chat_template import ChatTemplate
from tests.journey.api_server import TOKEN, Served, serving
from tests.parity.written_runs import make_run

CHAT = (
    "{% for m in messages %}{{ m.content }}{{ {'system': '!', 'user': ';', 'assistant': ' '}[m.role] }}{% endfor %}"
    "{% if add_generation_prompt %}it: {% endif %}"
)
"""A chat template in which an answer ends with a space."""
PROMPTS = ["the old dog", "আমি বাংলায়", ""]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make four runs that generate text, two of them with a chat template, and two runs that do not generate text."""
    folder = tmp_path_factory.mktemp("served")
    for name, task, shape in [
        ("book", "lm", {"tied": False}),
        ("chat", "lm", {"positions": "rotary", "tied": False}),
        ("en-de", "translate", {"family": "encoder-decoder"}),
        ("mails", "classify", {"family": "encoder"}),
        ("holes", "masked", {"family": "encoder"}),
    ]:
        make_run(folder / name, task, **shape)
    make_run(folder / "story", data={"windows": "documents"}, positions="rotary", tied=False)
    for name in ("chat", "story"):
        (folder / name / CHAT_TEMPLATE_FILE).write_text(CHAT, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def served(runs: Path) -> Iterator[Served]:
    with serving(sorted(runs.iterdir())) as found:
        yield found


@pytest.fixture(scope="module")
def client(served: Served) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key=TOKEN, max_retries=0)


@pytest.fixture(scope="module")
def book(runs: Path) -> TextModel:
    return OpenedRun.load(runs / "book", device="cpu").writer


def until(holds: Any, seconds: float = 10.0) -> None:
    """Wait until `holds()` is true; fail after `seconds`."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_runs_that_generate_text_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["book", "chat", "en-de", "story"]
    assert client.models.retrieve("book").owned_by == "glassformer"
    for name in ("mails", "nobody"):
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve(name)


WAYS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"seed": 5, "temperature": 0.9, "top_p": 0.9, "stop": ["th", "গা"]},
    {"seed": -1, "extra_body": {"top_k": 20, "repetition_penalty": 1.2}},
]


def as_settings(tokens: int, way: dict[str, Any], choice: int = 0) -> SampleConfig:
    """Return the library's settings for the parameters of a request."""
    own = {"temperature": 1.0, **way, **way.get("extra_body", {})}
    own.pop("extra_body", None)
    seed = (own.pop("seed", 0) + choice) % 2**64
    return SampleConfig(tokens=tokens, seed=seed, **{**own, "stop": tuple(own.get("stop", ()))})


@pytest.mark.thorough
@pytest.mark.parametrize("way", WAYS, ids=["greedy", "drawn", "penalized"])
def test_completions_equal_the_librarys_texts(client: openai.OpenAI, book: TextModel, way: dict[str, Any]) -> None:
    """Request two texts of up to 42 tokens for each prompt, with and without streaming; the context has 37 tokens."""
    options = {"model": "book", "prompt": PROMPTS, "max_tokens": 42, "n": 2, **way}
    found = client.completions.create(**options)
    expected = [book.generate([prompt], as_settings(42, way, choice))[0] for prompt in PROMPTS for choice in (0, 1)]
    assert [choice.text for choice in found.choices] == [sample.text for sample in expected]
    reasons = {"end": "stop", "stop": "stop", "length": "length"}
    assert [choice.finish_reason for choice in found.choices] == [reasons[sample.ended] for sample in expected]
    read = sum(len(book.prompt_ids(prompt)) for prompt in PROMPTS)
    assert found.usage is not None
    assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (read, sum(each.tokens for each in expected))
    texts = [""] * 6
    ended = dict[int, str]()
    for chunk in client.completions.create(**options, stream=True, stream_options={"include_usage": True}):
        for choice in chunk.choices:
            assert choice.index not in ended
            texts[choice.index] += choice.text
            if choice.finish_reason:
                ended[choice.index] = choice.finish_reason
        assert chunk.choices or chunk.usage == found.usage
    assert texts == [sample.text for sample in expected]
    assert [ended[index] for index in range(6)] == [choice.finish_reason for choice in found.choices]


def test_prompts_may_be_token_ids_and_may_be_echoed(client: openai.OpenAI, book: TextModel) -> None:
    ids = book.prompt_ids("the old dog")
    options: dict[str, Any] = {"model": "book", "max_tokens": 12, "temperature": 0, "echo": True}
    text = client.completions.create(prompt="the old dog", **options).choices[0].text
    assert text.startswith("the old dog")
    assert client.completions.create(prompt=ids, **options).choices[0].text == text
    found = client.completions.create(prompt=[ids, ids], **options, stream=True)
    texts = ["", ""]
    for chunk in found:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [text, text]


def test_log_probabilities_equal_the_models(client: openai.OpenAI, book: TextModel) -> None:
    """Log-probabilities equal those of a forward pass over the text so far; temperature does not change them."""
    options: dict[str, Any] = {"model": "book", "prompt": "the", "max_tokens": 20, "seed": 3, "temperature": 0.5}
    choice = client.completions.create(**options, logprobs=4).choices[0]
    scores = choice.logprobs
    assert scores is not None
    ids = book.prompt_ids("the")
    texts = dict[str, int]()
    for id in range(book.tokenizer.vocab_size):
        data = book.tokenizer.token_bytes(id)
        try:
            texts[data.decode() or book.tokenizer.token_text(id)] = id
        except UnicodeDecodeError:
            texts["bytes:" + "".join(f"\\x{byte:02x}" for byte in data)] = id
    for token, value, likeliest, place in zip(
        scores.tokens, scores.token_logprobs, scores.top_logprobs, scores.text_offset, strict=True
    ):
        with torch.no_grad():
            shares = book.model(torch.tensor([ids]))[0, -1].double().log_softmax(-1)
        assert value == pytest.approx(shares[texts[token]].item(), abs=1e-5)
        best = shares.topk(4).values.tolist()
        assert sorted(likeliest.values(), reverse=True) == pytest.approx(best, abs=1e-5)
        ids.append(texts[token])
        if not token.startswith("bytes:"):  # after half a character, the sign of that comes first
            assert choice.text[place:].lstrip("\ufffd").startswith(token)
    streamed = [
        value
        for chunk in client.completions.create(**options, logprobs=4, stream=True)
        for value in chunk.choices[0].logprobs.token_logprobs
    ]
    assert streamed == pytest.approx(scores.token_logprobs, abs=1e-5)


def test_translations_are_completions_of_a_source(client: openai.OpenAI, runs: Path) -> None:
    model = OpenedRun.load(runs / "en-de", device="cpu").text_model
    assert isinstance(model, Translator)
    sources = ["the old dog", "sleeps", "near the river; it"]
    found = client.completions.create(model="en-de", prompt=sources, max_tokens=30, seed=2, temperature=0.8)
    expected = model.generate(sources, SampleConfig(tokens=30, seed=2, temperature=0.8))
    assert [choice.text for choice in found.choices] == [sample.text for sample in expected]
    with pytest.raises(openai.BadRequestError, match="does not support conversations"):
        client.chat.completions.create(model="en-de", messages=[{"role": "user", "content": "x"}])


def test_translation_uses_beam_search_unless_sampling_is_requested(client: openai.OpenAI, runs: Path) -> None:
    """The default is beam search with the run's settings; `temperature` or `beams: 1` in a request turns it off."""
    model = OpenedRun.load(runs / "en-de", device="cpu").text_model
    assert isinstance(model, Translator)
    own = model.config.sample
    assert own.beams == 4
    sources = ["the old dog", "sleeps", "near the river; it"]
    found = client.completions.create(model="en-de", prompt=sources)
    expected = model.generate(sources, own)
    assert [choice.text for choice in found.choices] == [sample.text for sample in expected]
    assert found.usage is not None
    assert found.usage.completion_tokens == sum(sample.tokens for sample in expected)
    parts = list(client.completions.create(model="en-de", prompt=sources[0], stream=True))
    assert "".join(part.choices[0].text for part in parts) == expected[0].text
    assert parts[-1].choices[0].finish_reason == {"end": "stop", "length": "length"}[expected[0].ended]
    greedy = client.completions.create(model="en-de", prompt=sources[0], temperature=0).choices[0].text
    assert greedy == model.generate(sources[:1], own.replace(beams=1, temperature=0.0))[0].text
    one = client.completions.create(model="en-de", prompt=sources[0], extra_body={"beams": 1}).choices[0].text
    assert one == greedy


@pytest.mark.parametrize("name", ["en-de", "book"])
def test_beams_find_the_likeliest_texts(name: str, client: openai.OpenAI, runs: Path) -> None:
    """Prompts are given as texts and as ids."""
    model = OpenedRun.load(runs / name, device="cpu").text_model
    assert isinstance(model, Translator | TextModel)
    settings = SampleConfig(beams=3, temperature=0.0, tokens=9, length_penalty=0.5, stop=("z",))
    expected = [sample.text for row in model.n_best(["the old dog", "it"], settings, 2) for sample in row]
    options: dict[str, Any] = {"max_tokens": 9, "n": 2, "stop": "z", "extra_body": {"beams": 3, "length_penalty": 0.5}}
    found = client.completions.create(model=name, prompt=["the old dog", "it"], **options)
    assert [choice.text for choice in found.choices] == expected
    ids = [model.prompt_ids(prompt) for prompt in ("the old dog", "it")]
    found = client.completions.create(model=name, prompt=ids, **options)
    assert [choice.text for choice in found.choices] == expected


@pytest.mark.parametrize(
    ("name", "asked", "words"),
    [
        ("book", {"beams": 2, "temperature": 0.5}, "beam search does not sample"),
        ("en-de", {"n": 5}, "give beams = 5"),
        ("en-de", {"logprobs": 2}, "beam search does not return log-probabilities"),
        ("book", {"length_penalty": 1.0}, "it needs beams above 1"),
        ("book", {"beams": 17}, "beams"),
    ],
)
def test_options_without_effect_on_beam_search_are_refused(
    name: str, asked: dict[str, Any], words: str, client: openai.OpenAI
) -> None:
    with pytest.raises(openai.BadRequestError, match=words):
        client.completions.create(model=name, prompt="the", extra_body=asked)


@pytest.mark.parametrize("name", ["book", "story"])
@pytest.mark.parametrize("as_ids", [False, True])
def test_echo_with_logprobs_scores_the_prompt(client: openai.OpenAI, runs: Path, name: str, as_ids: bool) -> None:
    """Scores equal the model's own, after the start token if the rows of training began with one."""
    model = OpenedRun.load(runs / name, device="cpu").writer
    text = "the old dog, sleeps"
    own = model.tokenizer.encode(text)
    read = own if as_ids else model.prompt_ids(text)
    prompt: Any = own if as_ids else text
    options: dict[str, Any] = {"model": name, "prompt": prompt, "echo": True, "logprobs": 3, "temperature": 0}
    found = client.completions.create(**options, max_tokens=2).choices[0]
    assert found.logprobs is not None
    scores = found.logprobs.token_logprobs
    assert scores is not None
    with torch.no_grad():
        expected = model.model(torch.tensor([read]))[0].double().log_softmax(dim=-1)  # (T, V)
    known = [None] if read == own else []
    known += [float(expected[place, read[place + 1]]) for place in range(len(read) - 1)]
    assert scores[: len(own)] == [value if value is None else pytest.approx(value, abs=1e-5) for value in known]
    assert len(scores) == len(own) + 2
    tops = found.logprobs.top_logprobs
    assert tops is not None
    assert [top is None for top in tops[: len(own)]] == [value is None for value in known]
    assert all(
        max(top.values()) == pytest.approx(float(expected[place + len(read) - len(own) - 1].max()), abs=1e-5)
        for place, top in enumerate(tops[: len(own)])
        if top is not None
    )
    offsets = found.logprobs.text_offset
    assert offsets is not None
    assert offsets == sorted(offsets)
    nothing = client.completions.create(**options, max_tokens=0)
    assert nothing.choices[0].text == text
    assert nothing.choices[0].finish_reason == "length"
    assert nothing.choices[0].logprobs is not None
    assert nothing.choices[0].logprobs.token_logprobs == scores[: len(own)]
    assert nothing.usage is not None
    assert nothing.usage.completion_tokens == 0
    chunks = list(client.completions.create(**options, max_tokens=2, stream=True))
    streamed = [
        value
        for chunk in chunks
        if chunk.choices[0].logprobs
        for value in chunk.choices[0].logprobs.token_logprobs or []
    ]
    assert streamed == scores


def test_log_probabilities_of_sources_are_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="its prompts are sources"):
        client.completions.create(model="en-de", prompt="the dog", echo=True, logprobs=1, temperature=0)


def test_a_chat_begins_with_the_start_token_as_a_completion_does(client: openai.OpenAI, runs: Path) -> None:
    model = OpenedRun.load(runs / "story", device="cpu").writer
    expected = model.generate(["hi;it: "], SampleConfig(tokens=30, temperature=0.0, stop=(" ",)))[0].text
    messages: Any = [{"role": "user", "content": "hi"}]
    found = client.chat.completions.create(model="story", messages=messages, max_tokens=30, temperature=0)
    assert found.choices[0].message.content == expected
    assert found.usage is not None
    assert found.usage.prompt_tokens == len(model.prompt_ids("hi;it: ")) == 1 + len(model.tokenizer.encode("hi;it: "))
    (runs / "story" / CHAT_TEMPLATE_FILE).write_text("{{ bos_token }}" + CHAT, encoding="utf-8")
    again = client.chat.completions.create(model="story", messages=messages, max_tokens=30, temperature=0)
    assert again.usage == found.usage  # a template that writes it does not get a second one


def test_a_chat_follows_its_template_and_ends_where_the_template_does(client: openai.OpenAI, runs: Path) -> None:
    model = OpenedRun.load(runs / "chat", device="cpu").writer
    messages: Any = [{"role": "system", "content": "be"}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    expected = model.generate(["be!hi;it: "], SampleConfig(tokens=40, stop=(" ", "n"), seed=8, temperature=1))[0]
    options: dict[str, Any] = {
        "model": "chat",
        "messages": messages,
        "max_completion_tokens": 40,
        "seed": 8,
        "stop": "n",
    }
    found = client.chat.completions.create(**options, logprobs=True, top_logprobs=2)
    choice = found.choices[0]
    assert (choice.message.content, choice.message.role) == (expected.text, "assistant")
    assert expected.ended == "stop"
    assert choice.finish_reason == "stop"
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert len(choice.logprobs.content) == expected.tokens == found.usage.completion_tokens
    data = b"".join(bytes(each.bytes or []) for each in choice.logprobs.content)
    assert data.decode("utf-8", "replace").startswith(expected.text)
    assert all(len(each.top_logprobs) == 2 for each in choice.logprobs.content)
    chunks = list(client.chat.completions.create(**options, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == expected.text
    assert chunks[-1].choices[0].finish_reason == "stop"
    with pytest.raises(openai.BadRequestError, match="no chat template") as refused:
        client.chat.completions.create(model="book", messages=messages)
    assert "chat_template.jinja" in str(refused.value)
    options["messages"] = [*messages, {"role": "assistant", "content": "ho"}]
    with pytest.raises(openai.BadRequestError, match="the conversation ends with a message of the assistant"):
        client.chat.completions.create(**options)


def test_a_message_that_the_template_does_not_write_is_refused(client: openai.OpenAI, runs: Path) -> None:
    template = "{{ messages[-1].role }}: {{ messages[-1].content }}"
    (runs / "story" / CHAT_TEMPLATE_FILE).write_text(template, encoding="utf-8")
    asked: Any = [{"role": "user", "content": "hi"}]
    assert client.chat.completions.create(model="story", messages=asked, max_tokens=2).choices
    with pytest.raises(openai.BadRequestError, match="does not write this message of the role system"):
        client.chat.completions.create(model="story", messages=[{"role": "system", "content": "be old"}, *asked])
    (runs / "story" / CHAT_TEMPLATE_FILE).write_text(CHAT, encoding="utf-8")


def test_the_end_of_an_answer_is_derived_from_the_template(book: TextModel) -> None:
    tokenizer = book.tokenizer
    end = tokenizer.token_text(tokenizer.end_id)

    def tokenized(source: str) -> TokenizedTemplate:
        return TokenizedTemplate(ChatTemplate(source), tokenizer)

    assert tokenized(CHAT).ending == ((" ",), frozenset())
    turns = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}\n{% endfor %}"
    assert tokenized(turns).ending == ((), frozenset({tokenizer.end_id}))
    lines = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    assert tokenized(lines).ending == (("\nuser:",), frozenset())
    assert tokenized("{{ messages[0].content }}").ending == ((), frozenset())
    ids = tokenized(turns).ids([{"role": "user", "content": f"a{end}b"}])
    assert ids.count(tokenizer.end_id) == 1  # what a person writes is text
    assert tokenizer.decode(ids) == f"<user>a{end}b\n"


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.append(1) }}",
        "{{ x.y }}{% if",
        "{{ raise_exception('no') }}",
        "{{ 1/0 }}",
        "{{ cycler.__init__.__globals__ }}",
    ],
)
def test_chat_templates_run_in_a_sandbox(book: TextModel, source: str) -> None:
    with pytest.raises(GlassError, match="template"):
        TokenizedTemplate(ChatTemplate(source), book.tokenizer).ids([{"role": "user", "content": "x"}])


def test_validation_errors_refer_to_the_given_type(served: Served) -> None:
    """The error for five stop texts says that there are too many, not that `stop` should be one text."""
    body = {"model": "book", "prompt": "the", "stop": ["a"] * 5}
    said = served.http.post("/v1/completions", json=body).json()["error"]["message"]
    assert said.startswith("stop: List should have at most 4 items")


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"presence_penalty": 0.5}, "presence_penalty"),
    ({"frequency_penalty": -1}, "frequency_penalty"),
    ({"logit_bias": {"5": 1}}, "logit_bias"),
    ({"suffix": "x"}, "suffix"),
    ({"best_of": 3}, "best_of"),
    ({"n": 17}, "n"),
    ({"n": 16, "prompt": ["a"] * 5}, "prompt"),
    ({"max_tokens": MOST_TOKENS + 1}, "max_tokens"),
    ({"temperature": 2.1}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"stop": ["a"] * 5}, "stop"),
    ({"stop": ""}, "stop"),
    ({"logprobs": 21}, "logprobs"),
    ({"logprobs": 20, "n": 16, "max_tokens": 1000}, "logprobs"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [99999]}, "prompt"),
    ({"prompt": "the old dog " * 20}, "prompt"),
    ({"guided_json": {}}, "guided_json"),
]


@pytest.mark.parametrize(("change", "parameter"), REFUSED, ids=[str(name) for _, name in REFUSED])
def test_unsupported_parameters_are_refused_by_name(served: Served, change: dict[str, Any], parameter: str) -> None:
    answer = served.http.post("/v1/completions", json={"model": "book", "prompt": "the", "max_tokens": 2, **change})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", parameter)
    assert len(error["message"].splitlines()) == 2


def test_neutral_values_and_harmless_parameters_are_accepted(served: Served) -> None:
    harmless = {
        "presence_penalty": 0,
        "frequency_penalty": 0.0,
        "logit_bias": {},
        "best_of": 1,
        "user": "me",
        "n": None,
        "metadata": {"a": "b"},
        "suffix": None,
        "logprobs": None,
        "stop": None,
        "seed": None,
    }
    assert served.http.post(
        "/v1/completions", json={"model": "book", "prompt": "a", "max_tokens": 2, **harmless}
    ).is_success


def test_runs_that_do_not_generate_text_are_refused(client: openai.OpenAI) -> None:
    for name in ("mails", "holes"):
        with pytest.raises(openai.BadRequestError, match="does not generate text"):
            client.completions.create(model=name, prompt="x")


def test_concurrent_requests_give_the_same_texts_as_single_ones(served: Served, book: TextModel) -> None:
    prompts = [PROMPTS[number % 3] for number in range(24)]

    async def ask(client: openai.AsyncOpenAI, number: int) -> str:
        await asyncio.sleep(0.01 * (number % 5))
        options: dict[str, Any] = {"model": "book", "prompt": prompts[number], "max_tokens": 45, "seed": number}
        if number % 3:
            return (await client.completions.create(**options)).choices[0].text
        stream = await client.completions.create(**options, stream=True)
        return "".join([chunk.choices[0].text async for chunk in stream])

    async def all_() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key=TOKEN, max_retries=0) as client:
            return await asyncio.gather(*(ask(client, number) for number in range(24)))

    expected = book.generate(prompts, SampleConfig(tokens=45, temperature=1), seeds=range(24))
    assert asyncio.run(all_()) == [sample.text for sample in expected]


LONG = {"model": "book", "prompt": "the", "max_tokens": MOST_TOKENS, "temperature": 0, "stream": True}


def test_generation_stops_when_the_client_disconnects(served: Served, client: openai.OpenAI) -> None:
    engine = served.engines.engine("book")
    stream: Any = client.completions.create(**LONG)
    next(iter(stream))
    assert engine.rows == 1
    stream.close()
    until(lambda: engine.rows == 0)
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.3).completions.create(**{**LONG, "stream": False})
    until(lambda: engine.rows == 0)


def test_a_full_queue_reports_when_to_retry(runs: Path) -> None:
    with serving([runs / "book"], rows=1, waiting=1) as small:
        client = openai.OpenAI(base_url=f"{small.url}/v1", api_key=TOKEN, max_retries=0)
        engine = small.engines.engine("book")
        first: Any = client.completions.create(**LONG)
        next(iter(first))
        second: Any = client.completions.create(**LONG)
        until(lambda: engine.waiting == 1)
        with pytest.raises(openai.RateLimitError) as refused:
            client.completions.create(**LONG)
        assert 1 <= int(refused.value.response.headers["retry-after"]) <= 60
        first.close()
        assert next(iter(second)).choices[0].text
        second.close()
        until(lambda: engine.rows == 0)
        with pytest.raises(openai.RateLimitError):
            client.completions.create(model="book", prompt=["a", "b"])  # both, or none


def test_large_models_generate_fewer_texts_at_once(served: Served, book: TextModel) -> None:
    loaded = served.engines.engine("book").load()
    cache = Cache(book.model.config, 1, loaded.context, torch.device("cpu"), torch.float32)
    config = book.config.model
    assert loaded.row_bytes == sum(each.keys.nbytes + each.values.nbytes for each in cache.layers) > config.context
    for memory, most in [(3 * loaded.row_bytes, 3), (1, 1), (1 << 40, 5)]:
        engine = Engine("book", served.registry, Metrics(), rows=5, memory=memory)
        try:
            with engine._awake:  # its thread waits meanwhile
                engine._queue.extend(cast(TextJob, SimpleNamespace(loaded=loaded)) for _ in range(7))
                assert engine._free_rows() == most
                engine._queue.clear()
        finally:
            engine.close()


@pytest.mark.thorough
def test_later_requests_use_a_newer_checkpoint(runs: Path, tmp_path: Path) -> None:
    run = Run(make_run(tmp_path / "growing", tied=False))
    with serving([run.folder]) as small:
        client = openai.OpenAI(base_url=f"{small.url}/v1", api_key=TOKEN, max_retries=0)
        options: dict[str, Any] = {**LONG, "model": "growing", "max_tokens": 600}
        stream = iter(client.completions.create(**options))
        text = next(stream).choices[0].text
        old = OpenedRun.load(run.folder, device="cpu").writer
        new = OpenedRun.load(run.folder, device="cpu").writer
        with torch.no_grad():
            for parameter in new.model.parameters():
                parameter.mul_(1.3)

        def fill(folder: Path) -> None:
            save_tensors(dict(new.model.state_dict()), folder / "model.safetensors")
            shutil.copyfile(run.checkpoint() / "state.json", folder / "state.json")

        write_folder(run.checkpoints_folder / "step-000002", fill)
        run.point("best", run.checkpoints_folder / "step-000002")
        after = client.completions.create(model="growing", prompt="the", max_tokens=30, temperature=0).choices[0].text
        assert after == new.generate(["the"], SampleConfig(tokens=30, temperature=0))[0].text
        assert after != old.generate(["the"], SampleConfig(tokens=30, temperature=0))[0].text
        text += "".join(chunk.choices[0].text for chunk in stream)
        assert text == old.generate(["the"], SampleConfig(tokens=600, temperature=0))[0].text


def test_an_error_in_one_text_does_not_affect_others(client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    take = TextJob.take

    def sometimes(self: TextJob, *rest: Any) -> Any:
        if self.settings.seed == 13 and self.count == 2:
            raise RuntimeError("on purpose")
        return take(self, *rest)

    expected = client.completions.create(**{**LONG, "stream": False, "max_tokens": 300}).choices[0].text
    stream = client.completions.create(**{**LONG, "max_tokens": 300})
    monkeypatch.setattr(TextJob, "take", sometimes)
    with pytest.raises(openai.InternalServerError, match="on purpose"):
        client.completions.create(model="book", prompt="a", seed=13)
    with pytest.raises(openai.APIError, match="on purpose"):
        list(client.completions.create(model="book", prompt="a", seed=13, stream=True))
    assert "".join(chunk.choices[0].text for chunk in stream) == expected


def test_requests_are_served_after_a_failed_step(client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(TokenLoop, "step", lambda self: 1 / 0)
        with pytest.raises(openai.InternalServerError, match="division"):
            client.completions.create(model="book", prompt="a")
    assert client.completions.create(model="book", prompt="a").choices[0].text


def test_metrics_count_requests_and_tokens(served: Served, client: openai.OpenAI) -> None:
    def numbers() -> dict[str, float]:
        text = served.http.get("/metrics").text
        return {
            name: float(value)
            for line in text.splitlines()
            if not line.startswith("#")
            for name, _, value in [line.rpartition(" ")]
        }

    client.completions.create(model="chat", prompt="the", max_tokens=1)
    before = numbers()
    usage = client.completions.create(model="chat", prompt="the old dog", max_tokens=11, temperature=0).usage
    after = numbers()
    assert usage is not None
    grown = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
    assert grown['glass_generated_tokens_total{run="chat"}'] == usage.completion_tokens
    assert grown['glass_prompt_tokens_total{run="chat"}'] == usage.prompt_tokens
    assert grown['glass_time_to_first_token_seconds_count{run="chat"}'] == 1
    assert grown['glass_requests_total{route="/v1/completions",status="200"}'] == 1
    assert (after['glass_queue_length{run="chat"}'], after['glass_batch_rows{run="chat"}']) == (0, 0)
    assert served.http.get("/health").json() == {"status": "ok", "runs": 6}


def test_server_sent_events_follow_the_standard(served: Served) -> None:
    answer = served.http.post("/v1/completions", json={**LONG, "max_tokens": 3})
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = answer.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert all(json.loads(event.removeprefix("data: "))["object"] == "text_completion" for event in events[:-2])
