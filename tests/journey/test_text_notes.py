"""Symbols of a text that a tokenizer does not know, or knows in another Unicode form, are said by every interface."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unicodedata import normalize

import httpx
import pytest
import torch

import glassformer as gf
from glassformer.app.server.view import Binary
from glassformer.base.config import SampleConfig
from glassformer.base.files import write_folder
from glassformer.interop.sklearn import TransformerClassifier, TransformerLanguageModel, TransformerTranslator
from glassformer.model.weights import save_tensors
from glassformer.runs.folder import CHAT_TEMPLATE_FILE, Run
from glassformer.runs.opening import OpenedRun
from glassformer.tasks import TextModel
from tests.journey.api_server import serving
from tests.parity.written_runs import make_run

KNOWN = "Größe too"
WRITTEN = normalize("NFD", KNOWN)
FORM = (
    "the text has another Unicode form than the tokenizer's text, so the model reads other tokens: "
    "U+006F U+0308 for U+00F6"
)
UNKNOWN = "these characters are not in the vocabulary; the model reads each as unknown: \u0308"
NOTES = [FORM, UNKNOWN]
TEMPLATE = "{% for m in messages %}{{ m.content }};{% endfor %}"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make runs of every task whose tokenizer knows the composed form only."""
    folder = tmp_path_factory.mktemp("notes")
    for name, task, shape in [
        ("letters", "lm", {}),
        ("holes", "masked", {"family": "encoder"}),
        ("mails", "classify", {"family": "encoder"}),
        ("en-de", "translate", {"family": "encoder-decoder"}),
    ]:
        make_run(folder / name, task, {"kind": "characters"}, **shape)
    (folder / "letters" / CHAT_TEMPLATE_FILE).write_text(TEMPLATE, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def http(runs: Path) -> Iterator[httpx.Client]:
    """Serve the runs, and return a client."""
    with serving(sorted(runs.iterdir())) as served:
        yield served.http


def test_responses_of_the_api_have_notes(http: httpx.Client) -> None:
    def bodies(path: str, stream: bool, **body: Any) -> list[dict[str, Any]]:
        reply = http.post(path, json={"max_tokens": 2, "stream": stream, "temperature": 0, **body})
        assert reply.status_code == 200, reply.text
        if not stream:
            return [reply.json()]
        return [json.loads(line[6:]) for line in reply.text.split("\n\n") if line.startswith("data: {")]

    for stream in (False, True):
        for model, path in (
            ("letters", "/v1/completions"),
            ("en-de", "/v1/completions"),
            ("letters", "/v1/chat/completions"),
        ):

            def asked(text: str, model: str = model, path: str = path, stream: bool = stream) -> list[dict[str, Any]]:
                chats = "chat" in path
                body = {"messages": [{"role": "user", "content": text}]} if chats else {"prompt": text}
                return bodies(path, stream, model=model, **body)

            first, *others = asked(WRITTEN)
            assert first["notes"] == NOTES
            assert all("notes" not in each for each in (*others, *asked(KNOWN)))
    (body,) = bodies("/v1/completions", False, model="letters", prompt=[KNOWN, WRITTEN, "Ω"])
    assert body["notes"] == [FORM, f"{UNKNOWN} Ω"]
    (body,) = bodies("/v1/completions", False, model="letters", prompt=[1, 2])
    assert "notes" not in body


@pytest.mark.parametrize(
    ("run", "view", "question"),
    [
        ("letters", "tokens", {}),
        ("letters", "write", {"tokens": 2}),
        ("letters", "write", {"written": "", "text": KNOWN}),
        ("letters", "attention", {"head": "dec.0.self.0"}),
        ("letters", "beams", {"tokens": 2}),
        ("letters", "loss", {}),
        ("letters", "positions", {"shuffle": True}),
        ("mails", "write", {}),
        ("holes", "write", {"text": f"{WRITTEN} [MASK]"}),
        ("en-de", "tokens", {"text": "too", "target": WRITTEN}),
    ],
)
def test_views_of_the_page_have_notes(http: httpx.Client, run: str, view: str, question: dict[str, Any]) -> None:
    reply = http.post(f"/api/runs/{run}/{view}", json={"text": WRITTEN, **question})
    assert reply.status_code == 200, reply.text
    binary = reply.headers["content-type"] == "application/octet-stream"
    found = Binary.unpacked(reply.content).header if binary else reply.json()
    assert found["text_notes"] == ([] if question.get("text") == KNOWN else NOTES)


def save_scaled(run: Run, step: int, factor: float) -> tuple[Path, TextModel]:
    """Save a checkpoint with scaled weights, make it the best one, and return its folder and model."""
    model = OpenedRun.load(run.folder, device="cpu").writer
    assert isinstance(model, TextModel)
    with torch.no_grad():
        for parameter in model.model.parameters():
            parameter.mul_(factor)
    state = (run.checkpoint() / "state.json").read_bytes()

    def fill(folder: Path) -> None:
        save_tensors(dict(model.model.state_dict()), folder / "model.safetensors")
        (folder / "state.json").write_bytes(state)

    checkpoint = run.checkpoints_folder / f"step-{step:06}"
    write_folder(checkpoint, fill)
    run.point("best", checkpoint)
    return checkpoint, model


@pytest.mark.parametrize(("damaged", "left"), [("model.safetensors", -9), ("manifest.json", -9), ("manifest.json", 0)])
def test_an_older_checkpoint_in_place_of_a_damaged_one_is_said(
    damaged: str, left: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = Run(make_run(tmp_path / "growing", tied=False))
    settings = SampleConfig(tokens=20, temperature=0)

    def texts(model: TextModel) -> str:
        return model.generate(["the"], settings)[0].text

    with serving([run.folder]) as served:

        def asked() -> tuple[str, list[str]]:
            body = {"model": "growing", "prompt": "the", "max_tokens": 20, "temperature": 0}
            reply = served.http.post("/v1/completions", json=body)
            assert reply.status_code == 200, reply.text
            return reply.json()["choices"][0]["text"], reply.json().get("notes", [])

        def listed() -> dict[str, Any]:
            found: dict[str, Any] = served.http.get("/api/runs").json()["runs"][0]
            return found

        first = OpenedRun.load(run.folder, device="cpu").writer
        assert isinstance(first, TextModel)
        assert asked() == (texts(first), [])
        assert listed()["warning"] is None
        checkpoint, _ = save_scaled(run, 2, 1.3)
        content = (checkpoint / damaged).read_bytes()
        (checkpoint / damaged).write_bytes(content[:left])
        if not left:
            (checkpoint / damaged).unlink()
        capfd.readouterr()
        text, notes = asked()
        assert text == texts(first)
        assert len(notes) == 1
        assert notes[0].startswith("the best checkpoint of growing cannot be loaded, so step-000001 is still served: ")
        assert str(checkpoint) in notes[0]
        assert asked() == (text, notes)
        assert listed()["warning"]["what"] == notes[0]
        printed = capfd.readouterr().err.strip().split("\n")
        assert printed == [notes[0], listed()["warning"]["remedy"]]
        assert printed[1].endswith("After a repair, restart the server.")
        (checkpoint / damaged).write_bytes(content)
        _, third = save_scaled(run, 3, 1.7)
        assert asked() == (texts(third), [])
        assert texts(third) != texts(first)
        assert listed()["warning"] is None
    assert capfd.readouterr().err == ""


def test_a_conversation_of_the_page_has_notes_on_its_earlier_messages(runs: Path, tmp_path: Path) -> None:
    make_run(tmp_path / "talk", "chat", {"kind": "characters"})
    with serving([tmp_path / "talk"]) as served:
        history = [{"role": "user", "content": "o\u0308"}, {"role": "assistant", "content": "a"}]
        body = {"text": "too", "history": history, "written": ""}
        reply = served.http.post("/api/runs/talk/write", json=body)
        assert reply.status_code == 200, reply.text
        assert FORM in reply.json()["text_notes"]


METHODS: dict[str, dict[str, Callable[[gf.Transformer, str], Any]]] = {
    "letters": {
        "tokens": lambda model, text: model.tokens(text),
        "logits": lambda model, text: model.logits(text),
        "loss": lambda model, text: model.loss(text),
        "generate": lambda model, text: model.generate(text, tokens=2),
        "chat": lambda model, text: model.chat(text),
        "attention": lambda model, text: model.attention(text, 0, 0),
        "record": lambda model, text: model.record(text),
        "patch": lambda model, text: model.patch("a" * len(text), "dec.0.self", text),
        "ablate": lambda model, text: model.ablate(text, "dec.0.self"),
        "receipt": lambda model, text: model.receipt(text),
        "heads": lambda model, text: model.heads(text),
    },
    "holes": {"fill": lambda model, text: model.fill(f"{text} [MASK]")},
    "mails": {
        "classify": lambda model, text: model.classify(text),
        "loss": lambda model, text: model.loss(text, "ham"),
    },
    "en-de": {
        "generate": lambda model, text: model.generate(text, tokens=2),
        "loss": lambda model, text: model.loss("too", text),
    },
}


@pytest.mark.parametrize("name", METHODS)
def test_methods_of_python_warn_at_the_callers_line(runs: Path, name: str) -> None:
    model = gf.load(runs / name, device="cpu")
    for method, call in METHODS[name].items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call(model, WRITTEN)
        assert [str(each.message) for each in caught] == NOTES, method
        assert {each.filename for each in caught} == {__file__}, method
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            call(model, KNOWN)


def test_estimators_warn() -> None:
    texts = [KNOWN, "and too", KNOWN, "and"] * 3
    labels = ["big", "other", "big", "other"] * 3
    small = {"tokenizer": "characters", "layers": 1, "width": 8, "heads": 1, "steps": 1}
    classifier = TransformerClassifier(**small).fit(texts, labels)
    writer = TransformerLanguageModel(**small, tokens=1).fit(texts)
    translator = TransformerTranslator(**small, tokens=1, beams=1).fit(texts, labels)
    calls: list[Callable[[list[str]], Any]] = [
        classifier.predict_proba,
        writer.generate,
        writer.score,
        translator.predict,
        lambda texts: translator.score(texts, ["big"]),
    ]
    for call in calls:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call([WRITTEN])
        assert [str(each.message) for each in caught] == NOTES
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            call([KNOWN])
