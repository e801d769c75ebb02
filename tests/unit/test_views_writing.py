"""The views of generation and sampling, streaming, saving and the views' scripts, compared with the library."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

from glassformer.app.server import writing
from glassformer.app.server.access import Access
from glassformer.app.server.app import make_app
from glassformer.app.server.engine import Engines
from glassformer.app.server.registry import ModelRegistry
from glassformer.app.server.views.write import WriteQuestion, conversation_of
from glassformer.base.config import SampleConfig
from glassformer.base.errors import GlassError
from glassformer.evaluation.copying import copy_meter
from glassformer.evaluation.token_losses import NOT_LEARNED
from glassformer.evaluation.training_text import held_out_text, training_text
from glassformer.generation.sampling import probabilities
from glassformer.runs.folder import Run
from glassformer.runs.opening import OpenedRun
from glassformer.tasks import ChatModel
from glassformer.training.checkpoint import TrainState, save_checkpoint
from tests.journey.commands import here
from tests.parity.written_runs import make_run
from tests.unit.served_runs import LEARNT, TEXTS, Script, ask, check_scripts, learn, library

WRITES = ("book", "letters", "turn")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which commands run."""
    return learn(tmp_path_factory.mktemp("views"))


@pytest.fixture(scope="module")
def registry(home: Path) -> Iterator[ModelRegistry]:
    """Return a registry with the runs."""
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(home)
        yield ModelRegistry([home / "runs" / name for name in LEARNT], "cpu")


@pytest.fixture(scope="module")
def scripts() -> list[Script]:
    """Return the list of scripts that the tests of this file collect."""
    return []


# write


@pytest.mark.thorough
@pytest.mark.parametrize("run", WRITES)
def test_what_is_written_is_what_generate_writes(registry: ModelRegistry, run: str, scripts: list[Script]) -> None:
    given = {"tokens": 12, "temperature": 0.9, "top_k": 20, "top_p": 0.95, "seed": 3}
    answer = ask(registry, run, "write", **given, least=4)
    model = library(registry.open(run))
    (sample,) = model.generate([TEXTS[run]], model.config.sample.replace(**given, beams=1, length_penalty=0.6))
    assert (answer["text"], answer["tokens"], answer["ended"]) == (sample.text, sample.tokens, sample.ended)
    text = "".join(training_text(registry.open(run).run))
    copied = answer["copied"]
    meter = copy_meter(sample.text, [text], held_out_text(registry.open(run).run), 4)
    assert copied["read"] == len(text)
    assert {name: copied[name] for name in meter.facts()} == meter.facts()
    assert meter.held_out_characters > 0
    assert sum(map(bool, copied["cover"])) == pytest.approx(meter.share * len(sample.text))
    for match in copied["matches"]:
        at = match["position"]
        length = match["length"]
        assert text[at : at + length] == sample.text[match["start"] :][:length]
        assert text[:at].endswith(match["before"])
    figures = [copied["copied"], copied["share"], copied["held_out_share"]]
    scripts.append(
        (answer["python"], figures + [n for m in copied["matches"] for n in (m["start"], m["length"], m["position"])])
    )


def test_given_text_is_measured_and_not_generated_again(registry: ModelRegistry) -> None:
    passage = "".join(training_text(registry.open("book").run))[:400]
    answer = ask(registry, "book", "write", written=passage, least=10)
    assert answer["text"] == passage
    copied = answer["copied"]
    # The lines of this text repeat, so held-out passages are in the training text as well, and nothing counts.
    assert copied["longest"] == len(passage.rstrip())
    assert copied["held_out_longest"] >= copied["longest"]
    assert (copied["matches"], copied["share"], copied["copied"]) == ([], 0.0, 0.0)


@pytest.mark.thorough
def test_labels_and_filled_masks_equal_the_runs(registry: ModelRegistry, scripts: list[Script]) -> None:
    labels = ask(registry, "mails", "write")
    (found,) = library(registry.open("mails")).classify([TEXTS["mails"]])
    assert {each["name"]: each["probability"] for each in labels["labels"]} == pytest.approx(found.probabilities)
    assert sum(each["probability"] for each in labels["labels"]) == pytest.approx(1.0)
    scripts.append((labels["python"], [each["probability"] for each in labels["labels"]]))
    filled = ask(registry, "fill", "write", top=3)
    holes = library(registry.open("fill")).fill(TEXTS["fill"], 3)
    shares = [each["probability"] for hole in filled["holes"] for each in hole]
    assert shares == pytest.approx([each.probability for hole in holes for each in hole], abs=1e-6)
    scripts.append((filled["python"], shares))


def test_a_missing_text_is_reported(registry: ModelRegistry, home: Path) -> None:
    tokens = Path(Run(home / "runs" / "letters").manifest()["data"]["tokens"])
    tokens.rename(tokens.with_name("away")), (home / "book.txt").rename(home / "away.txt")
    try:
        copied = ask(registry, "letters", "write", written="It was a tall day")["copied"]
    finally:
        tokens.with_name("away").rename(tokens), (home / "away.txt").rename(home / "book.txt")
    assert "is gone" in copied["why"]
    assert copied["matches"] == []


# streaming, and saving


@pytest.fixture(scope="module")
def client(registry: ModelRegistry) -> Iterator[TestClient]:
    headers = {"Authorization": "Bearer a-token", "Host": "127.0.0.1:80"}
    with TestClient(
        make_app(registry, Access("a-token", 80)), base_url="http://127.0.0.1:80", headers=headers
    ) as found:
        yield found


def events(client: TestClient, run: str, **question: Any) -> list[dict[str, Any]]:
    """Return the streamed events."""
    reply = client.post(f"/api/runs/{run}/write/stream", json={"text": TEXTS[run], **question})
    assert reply.status_code == 200, reply.text
    return [json.loads(line[5:]) for line in reply.text.splitlines() if line.startswith("data:")]


@pytest.mark.parametrize("run", WRITES)
@pytest.mark.parametrize("beams", [1, 3])
def test_the_stream_is_the_text_of_generate(client: TestClient, registry: ModelRegistry, run: str, beams: int) -> None:
    given = {"tokens": 12, "temperature": 0.9, "seed": 3, "beams": beams}
    *pieces, last = events(client, run, **given)
    model = library(registry.open(run))
    settings = model.config.sample.replace(**given, length_penalty=0.6, stop=())
    (sample,) = model.generate([TEXTS[run]], settings)
    assert "".join(piece["text"] for piece in pieces) == sample.text
    assert (last["ended"], last["tokens"]) == (sample.ended, sample.tokens)
    assert last["score"] == pytest.approx(sample.score)


CONVERSATION = [
    {"role": "user", "content": "the old dog sleeps . what does the dog do ?"},
    {"role": "assistant", "content": "it sleeps ."},
    {"role": "user", "content": "who is it ?"},
]


@pytest.mark.thorough
@pytest.mark.parametrize("beams", [1, 3])
def test_a_question_is_sent_with_the_previous_conversation(
    client: TestClient, registry: ModelRegistry, scripts: list[Script], beams: int
) -> None:
    given: dict[str, Any] = {"tokens": 8, "temperature": 0.9, "seed": 3, "beams": beams}
    asked = {"text": CONVERSATION[-1]["content"], "history": CONVERSATION[:-1], **given}
    *pieces, last = events(client, "talk", **asked)
    model = library(registry.open("talk"))
    assert isinstance(model, ChatModel)
    settings = model.config.sample.replace(**given, length_penalty=0.6, stop=())
    sample = model.answer(CONVERSATION, settings)
    assert "".join(piece["text"] for piece in pieces) == sample.text == "".join(model.reply(CONVERSATION, settings))
    assert (last["ended"], last["tokens"]) == (sample.ended, sample.tokens)
    assert last["score"] == pytest.approx(sample.score)
    answer = ask(registry, "talk", "write", **asked, least=4)
    assert answer["text"] == sample.text
    assert "\ufdd0" not in "".join(match["before"] + match["after"] for match in answer["copied"]["matches"])
    matched = [n for match in answer["copied"]["matches"] for n in (match["start"], match["length"], match["position"])]
    scripts.append((answer["python"], matched))


@pytest.mark.parametrize("beams", [1, 3])
def test_the_oldest_messages_of_a_full_context_are_forgotten(
    client: TestClient, registry: ModelRegistry, beams: int
) -> None:
    history = CONVERSATION[:2] * 4  # 23 tokens each, of a context of 40
    first, *pieces, _ = events(
        client, "talk", text="who is it ?", history=history, tokens=8, temperature=0, beams=beams
    )
    assert first == {"forgotten": 6}
    model = library(registry.open("talk"))
    assert isinstance(model, ChatModel)
    settings = model.config.sample.replace(tokens=8, temperature=0, beams=beams, length_penalty=0.6)
    assert "".join(piece["text"] for piece in pieces) == model.answer(CONVERSATION, settings).text
    system = {"role": "system", "content": "the dog sings ."}
    first, *_ = events(client, "talk", text="who is it ?", history=[system, *history], tokens=2, beams=beams)
    asked = WriteQuestion.model_validate({"text": "who is it ?", "history": [system, *history], "tokens": 2})
    assert conversation_of(model, asked) == [system, *CONVERSATION]
    assert first == {"forgotten": 6}


def test_a_conversation_that_begins_with_an_answer_keeps_its_question(registry: ModelRegistry) -> None:
    model = library(registry.open("talk"))
    assert isinstance(model, ChatModel)
    system = {"role": "system", "content": "the dog sings ."}
    long = {"role": "assistant", "content": "it sleeps . " * 12}
    for first in ([], [system]):
        asked = {"text": "who is it ?", "history": [*first, long], "tokens": 8}
        found = conversation_of(model, WriteQuestion.model_validate(asked))
        assert found == [*first, {"role": "user", "content": "who is it ?"}]


MARKED = "{% for m in messages %}{{ m.content }}{{ '<|unknown|>' if m.role == 'assistant' else eos_token }}{% endfor %}"


@pytest.mark.parametrize("beams", [1, 3])
def test_an_answer_ends_at_the_special_token_of_the_template(tmp_path: Path, beams: int) -> None:
    folder = make_run(
        tmp_path / "marked", "chat", {"kind": "words"}, {"chat_template": MARKED}, tied=False, head_bias=True
    )
    model = OpenedRun.load(folder, device="cpu").text_model
    assert isinstance(model, ChatModel)
    assert model.extra_end_ids == {model.tokenizer.unknown_id}
    bias = model.model.head.bias
    assert isinstance(bias, torch.Tensor)
    with torch.no_grad():
        bias[model.tokenizer.unknown_id] = 1e4

    save_checkpoint(Run(folder), model.model, [], TrainState(step=2), model.config)
    headers = {"Authorization": "Bearer a-token", "Host": "127.0.0.1:80"}
    app = make_app(ModelRegistry([folder], "cpu"), Access("a-token", 80))
    with TestClient(app, base_url="http://127.0.0.1:80", headers=headers) as client:
        reply = client.post("/api/runs/marked/write/stream", json={"text": "dog", "tokens": 5, "beams": beams})
        *pieces, last = [json.loads(line[5:]) for line in reply.text.splitlines() if line.startswith("data:")]
        body = {"model": "marked", "messages": [{"role": "user", "content": "dog"}], "logprobs": True}
        answer = client.post("/v1/chat/completions", json=body).json()
    sample = model.answer([{"role": "user", "content": "dog"}], SampleConfig(tokens=5, beams=beams))
    assert (sample.text, sample.ended, sample.tokens) == ("", "end", 1)
    assert "".join(piece["text"] for piece in pieces) == ""
    assert (last["ended"], last["tokens"]) == ("end", 1)
    choice = answer["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("", "stop")
    assert choice["logprobs"]["content"] == []  # an end token has no text and no score


def test_history_is_only_for_conversations_and_a_question_must_fit(client: TestClient) -> None:
    for run, view in (("book", "write"), ("book", "write/stream"), ("mails", "write")):
        reply = client.post(f"/api/runs/{run}/{view}", json={"text": "It", "history": CONVERSATION[:2]})
        assert reply.status_code == 400, reply.text
        assert "does not answer in conversations" in reply.json()["error"]["what"]
    reply = client.post("/api/runs/talk/write/stream", json={"text": "dog " * 60})
    assert reply.status_code == 400
    assert "the model reads at most 40" in reply.json()["error"]["what"]
    wrong = [{"role": "robot", "content": "it sleeps ."}]
    assert client.post("/api/runs/talk/write/stream", json={"text": "It", "history": wrong}).status_code == 422


@pytest.mark.thorough
def test_tokens_of_a_question_have_no_loss(registry: ModelRegistry, scripts: list[Script]) -> None:
    """A chat run is trained on answers only; its answers are measured like those of other runs."""
    ablated = ask(registry, "talk", "ablation", off=["dec.0.self.0"], write=8, tokens=100)
    assert (ablated["text"]["whole"], ablated["answer"]["what"]) == (None, "the first token of the answer")
    assert ablated["text"]["how"] == NOT_LEARNED
    model = library(registry.open("talk"))
    assert isinstance(model, ChatModel)
    greedy = model.config.sample.replace(temperature=0, beams=1, tokens=8)
    assert ablated["written"]["before"] == model.generate([TEXTS["talk"]], greedy)[0].text
    shares = [bar[when] for bar in ablated["answer"]["bars"] for when in ("before", "after")]
    scripts.append((ablated["python"], [*shares, ablated["validation"]["whole"], ablated["validation"]["off"]]))
    machine = ask(registry, "talk", "machines", at=5)
    assert (machine["guess"], machine["costs"]["mean"]) == (None, None)
    assert machine["writes"] == model.generate([TEXTS["talk"]], greedy.replace(tokens=24))[0].text
    for run, other in (("talk", "book"), ("book", "talk")):
        compared = ask(registry, run, "compare", text=TEXTS["talk"], other=other)
        assert (compared["stretches"], compared["why"]) == (None, NOT_LEARNED)
        side = compared["runs"][0 if run == "talk" else 1]
        assert (side["mean"], side["per_character"], side["how"]) == (None, None, NOT_LEARNED)
        assert compared["bars"]
    shown = [bar[side] for bar in compared["bars"] for side in ("one", "other") if bar[side] is not None]
    scripts.append((compared["python"], shown))
    tree = ask(registry, "talk", "beams", beams=3, tokens=8)
    best = model.n_best([TEXTS["talk"]], greedy.replace(beams=3, length_penalty=0.6))[0]
    assert [each["text"] for each in tree["found"]] == [each.text for each in best]


def test_closing_the_stream_stops_generation(registry: ModelRegistry) -> None:
    """A sampled text leaves the batch of the engine; beam search ends at its next step."""
    engines = Engines(registry)
    question = WriteQuestion(text=TEXTS["book"], tokens=2_000, temperature=2.0)
    engine = engines.engine("book")

    async def stopped() -> int:
        pieces = await writing._sampled_events(engine, engine.load(), question)
        assert await anext(pieces)
        await pieces.aclose()  # type: ignore[attr-defined]
        for _ in range(200):
            if not engine.rows:
                break
            await asyncio.sleep(0.02)
        return engine.rows

    try:
        assert asyncio.run(stopped()) == 0
    finally:
        engines.close()
    ended = Event()
    ended.set()
    assert writing._search(registry, "book", WriteQuestion(text=TEXTS["book"], beams=3), ended) is None


def test_a_run_that_generates_no_text_is_refused(client: TestClient) -> None:
    reply = client.post("/api/runs/mails/write/stream", json={"text": "win"})
    assert reply.status_code == 400
    assert "does not generate text" in reply.json()["error"]["what"]


@pytest.mark.thorough
def test_a_run_saved_without_heads_gives_the_ablated_results(
    client: TestClient, registry: ModelRegistry, home: Path
) -> None:
    seen = ask(registry, "book", "ablation", off=["dec.1.self.0", "dec.0.self.1"], tokens=200)
    assert seen["keep"] == {"heads": ["dec.1.self.0", "dec.0.self.1"], "why": None}
    body = {"heads": seen["keep"]["heads"], "name": "book-small", "version": seen["version"]}
    reply = client.post("/api/runs/book/keep", json=body)
    assert reply.status_code == 200, reply.text
    assert reply.json()["name"] in [run["name"] for run in client.get("/api/runs").json()["runs"]]
    now = ask(registry, "book-small", "ablation", tokens=200)
    assert now["validation"]["whole"] == pytest.approx(seen["validation"]["off"], abs=1e-5)
    assert now["text"]["whole"] == pytest.approx(seen["text"]["off"], abs=1e-5)
    before = {bar["name"]: bar["after"] for bar in seen["answer"]["bars"]}
    after = {bar["name"]: bar["before"] for bar in now["answer"]["bars"]}
    assert [before[name] for name in before if name in after] == pytest.approx(
        [after[name] for name in before if name in after], abs=1e-5
    )
    done = here("verify", "runs/book-small", folder=home)
    assert done.returncode == 0, done.stdout
    assert client.post("/api/runs/book/keep", json=body).status_code == 409


@pytest.mark.thorough
def test_a_pruned_chat_run_keeps_its_template(client: TestClient, home: Path) -> None:
    body = {"heads": ["dec.0.self.0"], "name": "talk-small"}
    reply = client.post("/api/runs/talk/keep", json=body)
    assert reply.status_code == 200, reply.text
    assert Run(home / "runs" / "talk-small").chat_template() == Run(home / "runs" / "talk").chat_template() is not None
    *pieces, _ = events(client, "talk-small", tokens=12, temperature=0)
    small = OpenedRun.load(home / "runs" / "talk-small", device="cpu").text_model
    assert isinstance(small, ChatModel)
    (sample,) = small.generate([TEXTS["talk"]], small.config.sample.replace(tokens=12, temperature=0))
    assert "".join(piece["text"] for piece in pieces) == sample.text != ""


@pytest.mark.parametrize("name", ["../up", "a/b", "", ".hidden", "con", "x" * 65, "a.partial", "a\\b", "ক"])
def test_a_name_that_is_a_path_is_refused(client: TestClient, home: Path, name: str) -> None:
    before = sorted(home.rglob("*"))
    reply = client.post("/api/runs/book/keep", json={"heads": ["dec.0.self.0"], "name": name})
    assert reply.status_code in (400, 422)
    assert sorted(home.rglob("*")) == before


def test_a_body_that_is_not_valid_is_refused_with_its_own_fields(client: TestClient) -> None:
    reply = client.post("/api/runs/book/keep", json={"heads": ["dec.0.self.0"]})
    assert reply.status_code == 422
    assert reply.json()["error"]["what"].startswith("name: ")
    assert reply.json()["error"]["remedy"] == "Give `heads`, `name` and, optionally, `version`."
    reply = client.post("/api/runs/book/ablation", json={"off": 3})
    assert "GET /api/views" in reply.json()["error"]["remedy"]


# sampling


@pytest.mark.thorough
@pytest.mark.parametrize("run", WRITES)
def test_every_stage_is_over_the_whole_vocabulary(registry: ModelRegistry, run: str, scripts: list[Script]) -> None:
    given = {"temperature": 0.7, "top_k": 9, "top_p": 0.8, "min_p": 0.2, "repetition_penalty": 1.3, "seed": 5}
    answer = ask(registry, run, "sampling", **given, top=200)
    model = library(registry.open(run))
    (drawn,) = model.generate([TEXTS[run]], SampleConfig(tokens=1, **given))
    assert answer["vocabulary"] == model.tokenizer.vocab_size
    assert [stage["filter"] for stage in answer["stages"]] == [
        None,
        "repetition_penalty",
        "temperature",
        "top_k",
        "top_p",
        "min_p",
    ]
    assert [stage["sum"] for stage in answer["stages"]] == pytest.approx([1.0] * 6, abs=1e-9)
    assert answer["stages"][3]["left"] == 9
    token = answer["draw"]["token"]
    assert drawn.text.strip() == model.tokenizer.decode([token]).strip()
    race = answer["draw"]["race"]
    assert race[0]["id"] == token
    for runner in race:
        assert runner["arrival"] == pytest.approx(runner["number"] / runner["probability"])
    best = {id: share for id, _, share in model.candidates(TEXTS[run], 5)}
    shown = {each["id"]: each["shares"][0] for each in answer["tokens"]}
    assert [shown[id] for id in best] == pytest.approx(list(best.values()), abs=1e-6)
    assert answer["curve"]["held"][0][-1] == pytest.approx(1.0)
    for before, after in zip(answer["stages"], answer["stages"][1:], strict=False):
        assert after["cut"] == before["left"] - after["left"]
    scripts.append(
        (answer["python"], [s for stage in answer["stages"] for s in (stage["sum"], stage["left"], stage["largest"])])
    )


def test_a_target_prefix_is_continued(registry: ModelRegistry) -> None:
    answer = ask(registry, "turn", "sampling", target="der alte")
    model = library(registry.open("turn"))
    source = model.prompt_ids(TEXTS["turn"])
    target = [*model.tokenizer.target_start, *model.tokenizer.encode("der alte")]
    with torch.no_grad():
        logits = model.model(torch.tensor([source]), torch.tensor([target]))[0, -1]
    assert answer["step"] == len(target)
    shares = probabilities(logits, SampleConfig(temperature=1.0))
    for each in answer["tokens"]:
        assert each["shares"][0] == pytest.approx(float(shares[each["id"]]), abs=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("run", WRITES)
def test_the_tree_contains_the_results_of_the_search(registry: ModelRegistry, run: str, scripts: list[Script]) -> None:
    answer = ask(registry, run, "beams", beams=3, tokens=6, length_penalty=0.8)
    model = library(registry.open(run))
    found = model.n_best([TEXTS[run]], model.config.sample.replace(beams=3, tokens=6, length_penalty=0.8))[0]
    assert [each["text"] for each in answer["found"]] == [each.text for each in found]
    assert [each["score"] for each in answer["found"]] == pytest.approx([each.score for each in found])
    nodes = answer["nodes"]
    ranked = sorted((node for node in nodes if node["rank"] is not None), key=lambda node: node["rank"])
    assert [node["score"] for node in ranked] == [each["score"] for each in answer["found"]]
    for place, node in enumerate(nodes[1:], start=1):
        parent = nodes[node["parent"]]
        assert node["parent"] < place
        assert node["tokens"] == parent["tokens"] + 1
        assert node["log_probability"] <= parent["log_probability"] + 1e-9
        assert node["score"] == pytest.approx(node["log_probability"] / ((5 + node["tokens"]) / 6) ** 0.8)
        assert parent["fate"] == "ran on"
    assert len(nodes) <= 1 + 2 * 3 * 6
    scripts.append((answer["python"], [each["score"] for each in answer["found"]]))


def test_an_encoder_samples_nothing(registry: ModelRegistry) -> None:
    for view in ("sampling", "beams"):
        with pytest.raises(GlassError, match="Choose a run"):
            ask(registry, "fill", view)


@pytest.mark.thorough
def test_the_scripts_print_the_numbers(home: Path, scripts: list[Script]) -> None:
    """This test runs after all other tests of this file."""
    assert len(scripts) >= 8
    check_scripts(scripts, home)
