"""`glass serve`: the command, the list of runs, views over HTTP, runs still training, and shutdown."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import httpx
import numpy as np
import pytest

from glassformer.app.cli.serve import MIN_TOKEN_CHARACTERS
from glassformer.app.server.access import MOST_BYTES, Access
from glassformer.app.server.app import make_app
from glassformer.app.server.listing import Listing
from glassformer.app.server.registry import ModelRegistry, ServedModel
from glassformer.app.server.view import Binary, PageView, TextQuestion
from glassformer.app.server.views import VIEWS
from glassformer.base.errors import GlassError
from glassformer.base.files import sha256
from glassformer.base.locks import folder_lock
from glassformer.runs.folder import Run
from tests.journey.api_server import TOKEN, Served, serving
from tests.journey.commands import ended, start
from tests.journey.task_runs import refused
from tests.parity.written_runs import LABELS, make_run
from tests.property.trainers import change_manifest

BEARER = {"authorization": f"Bearer {TOKEN}"}
TEXT = "আমি বাংলায় গান গাই; the old dog sleeps."


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two runs of the same name, a classifier, and a translator."""
    folder = tmp_path_factory.mktemp("serve")
    make_run(folder / "book", positions="rotary")
    make_run(folder / "more" / "book")
    make_run(folder / "mails", "classify")
    make_run(folder / "en-bn", "translate")
    return folder


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[Served]:
    with serving([home / "book", home / "more" / "book", home / "mails", home / "en-bn"]) as found:
        yield found


def ask(server: Served, run: str, view: str, **question: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/api/runs/{run}/{view}", json=question, headers=BEARER, timeout=60)


def error_of(answer: httpx.Response) -> tuple[int, str]:
    """Return the status and the first line of an error, which must also have a remedy."""
    error = answer.json()["error"]
    assert error["remedy"]
    return answer.status_code, error["what"]


def test_runs_are_listed_by_name(server: Served) -> None:
    runs = httpx.get(f"{server.url}/api/runs", headers=BEARER, timeout=60).json()["runs"]
    assert [run["name"] for run in runs] == ["book", "book-2", "mails", "en-bn"]
    book, _, mails, pairs = runs
    assert (book["task"], book["family"], book["step"], book["training"]) == ("lm", "decoder", 1, False)
    assert (book["layers"], book["heads"], book["context"], book["tokenizer"]) == (2, 3, 37, "bpe")
    model = server.registry.open("book").model
    assert book["parameters"] == sum(parameter.numel() for parameter in model.model.parameters())
    assert book["vocabulary"] == model.tokenizer.vocab_size
    assert book["attentions"] == {"dec.0.self": [0, 1, 2], "dec.1.self": [0, 1, 2]}
    assert mails["labels"] == list(LABELS)
    assert list(pairs["attentions"])[2:4] == ["dec.0.self", "dec.0.cross"]
    assert all(run["prompt"] and run["error"] is None and run["parent"] is None for run in runs)
    assert str(Path(server.registry.run("book").folder)) not in json.dumps(runs)


def test_parents_are_identified_by_their_weights(home: Path, tmp_path: Path) -> None:
    """Names and locations of folders do not matter; a sibling with the parent's weights does not count as a parent."""
    parent = make_run(tmp_path / "moved" / "renamed", positions="rotary")
    child = make_run(tmp_path / "child")
    sibling = make_run(tmp_path / "sibling", positions="rotary")
    record = {
        "run": str(child),
        "task": "lm",
        "checkpoint": "step-000001",
        "weights_sha256": sha256(parent / "checkpoints/step-000001/model.safetensors"),
        "data": {"source": "none", "text_hash": "0", "tokens": "none"},
        "data_settings": {},
    }
    for run in (child, sibling):
        change_manifest(run, lambda manifest: manifest.update(parent=record))

    def parents(*folders: Path) -> dict[str, str | None]:
        return {run["name"]: run["parent"] for run in Listing(ModelRegistry(folders, "cpu")).all()}

    served = parents(home / "mails", sibling, child, parent)
    assert served == {"mails": None, "sibling": "renamed", "child": "renamed", "renamed": None}
    assert parents(home / "mails", sibling, child) == {"mails": None, "sibling": None, "child": None}
    damaged = parent / "checkpoints/step-000001/manifest.json"
    damaged.write_text('{"files": []}', encoding="utf-8")
    for wrong in (7, [], {"weights_sha256": 7}, {**record, "weights_sha256": []}, {**record, "weights_sha256": 7}):
        change_manifest(child, lambda manifest, wrong=wrong: manifest.update(parent=wrong))
        assert parents(child, sibling, parent) == {"child": None, "sibling": None, "renamed": None}, wrong


def test_a_view_gives_the_librarys_numbers(server: Served) -> None:
    opened = server.registry.open("book")
    tokens = ask(server, "book", "tokens", text=TEXT).json()
    ids = opened.model.tokenizer.encode(TEXT)
    (side,) = tokens["sides"]
    assert [token["id"] for token in side["tokens"]] == ids
    assert b"".join(bytes(token["bytes"]) for token in side["tokens"]).decode() == TEXT
    assert (side["round_trip"], tokens["run"], tokens["version"][:12]) == (True, "book", "step-000001.")
    answer = ask(server, "book", "attention", text=TEXT, head="dec.0.self.1", form="float32")
    assert answer.headers["content-type"] == "application/octet-stream"
    found = Binary.unpacked(answer.content)
    cells = np.frombuffer(found.data, "<f4").reshape(found.header["shape"])
    real = opened.subject(TEXT).trace().stack.blocks[0].attention.pattern[0, 1].numpy()
    np.testing.assert_allclose(np.nan_to_num(cells), real, atol=1e-6)


def test_both_sides_of_a_translation_have_tokens(server: Served) -> None:
    sides = ask(server, "en-bn", "tokens", text=TEXT, target="গান").json()["sides"]
    tokenizer = server.registry.open("en-bn").model.tokenizer
    assert [side["name"] for side in sides] == ["source", "target"]
    assert [token["id"] for token in sides[0]["tokens"]] == [*tokenizer.encode(TEXT), tokenizer.end_id]
    assert [token["id"] for token in sides[1]["tokens"]] == [tokenizer.end_id, *tokenizer.encode("গান")]
    assert [side["decoded"] for side in sides] == [TEXT, "গান"]


def test_invalid_requests_get_two_line_errors(server: Served) -> None:
    status, what = error_of(ask(server, "boook", "tokens", text="a"))
    assert (status, what) == (404, "no run with the name 'boook' is served")
    assert error_of(ask(server, "book", "token", text="a"))[0] == 404
    assert error_of(ask(server, "book", "tokens", text="", more=1)) == (
        422,
        "text: String should have at least 1 character (and 1 more problem)",
    )
    assert error_of(ask(server, "book", "attention", text="dog " * 99, head="dec.0.self.0"))[0] == 400
    assert error_of(ask(server, "..%2Fbook", "tokens", text="a"))[0] == 404
    url = f"{server.url}/api/runs/book/tokens"
    for body in (b'{"text": "\xff"}', b"[1", b'{"text": "\\ud800"}', b"null", b""):
        assert error_of(httpx.post(url, content=body, headers=BEARER))[0] == 422
    assert error_of(httpx.get(url, headers=BEARER))[0] == 405
    assert error_of(httpx.get(f"{server.url}/api/nothing", headers=BEARER))[0] == 404
    chunks = (b"x" * 65536 for _ in range(MOST_BYTES // 65536 + 1))
    assert error_of(httpx.post(url, content=chunks, headers=BEARER))[0] == 413
    assert error_of(httpx.get(f"{server.url}/api/runs"))[0] == 401
    assert error_of(httpx.get(f"{server.url}/api/runs", headers={**BEARER, "host": "evil.example"}))[0] == 421
    assert httpx.get(f"{server.url}/health").status_code == 200


def test_concurrent_requests_are_all_answered(server: Served) -> None:
    heads = [f"dec.{layer}.self.{head}" for layer in range(2) for head in range(3)] * 3
    answers: dict[int, Binary] = {}

    def one(number: int) -> None:
        answers[number] = Binary.unpacked(ask(server, "book", "attention", text=TEXT, head=heads[number]).content)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(len(heads))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [answers[number].header["head"] for number in range(len(heads))] == heads
    assert all(answers[number].data == answers[number % 6].data for number in answers)


@pytest.mark.thorough
def test_requests_of_disconnected_clients_are_not_computed(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    worked: list[str] = []

    def answer(opened: ServedModel, question: TextQuestion) -> dict[str, Any]:
        worked.append(question.text)
        return {}

    monkeypatch.setitem(VIEWS, "slow", PageView(TextQuestion, answer, lambda opened, question: ""))
    with server.registry.open("book").lock:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{server.url}/api/runs/book/slow", json={"text": "gone"}, headers=BEARER, timeout=0.5)
        waiting = threading.Thread(target=ask, args=(server, "book", "slow"), kwargs={"text": "here"})
        waiting.start()
        time.sleep(0.3)
    waiting.join(60)
    assert ask(server, "book", "slow", text="later").status_code == 200
    assert worked == ["here", "later"]


def test_the_page_and_its_assets_are_served(home: Path, tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<title>glass</title>", encoding="utf-8")
    (tmp_path / "assets" / "index-Ab3_x-9Z.js").write_text("1", encoding="utf-8")
    (tmp_path.parent / "secret.txt").write_text("secret", encoding="utf-8")
    registry = ModelRegistry([home / "book"])
    access = Access(TOKEN, 80)

    async def get(path: str, page: Path = tmp_path) -> httpx.Response:
        transport = httpx.ASGITransport(make_app(registry, access, page))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get(path, headers=BEARER)

    index = anyio.run(get, "/")
    assert (index.status_code, index.text) == (200, "<title>glass</title>")
    assert index.headers["cache-control"] == "no-cache"
    assert index.headers["content-security-policy"].startswith("default-src 'none'")
    asset = anyio.run(get, "/assets/index-Ab3_x-9Z.js")
    assert asset.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert "javascript" in asset.headers["content-type"]
    for path in ("/assets/none.js", "/../secret.txt", "/assets/..%2f..%2fsecret.txt", "/%2e%2e/secret.txt"):
        assert anyio.run(get, path).status_code == 404
    missing = anyio.run(get, "/", tmp_path / "nowhere")
    assert missing.status_code == 503
    assert len(missing.text.strip().splitlines()) == 2


def new_checkpoint(run: Run, step: int, best: bool = True) -> None:
    """Add a copy of the run's first checkpoint, and point `last` to it; with `best=True`, point `best` to it too."""
    folder = run.checkpoints_folder / f"step-{step:06}"
    shutil.copytree(run.checkpoints_folder / "step-000001", folder)
    for which in ("best", "last") if best else ("last",):
        run.point(which, folder)  # type: ignore[arg-type]


def test_a_training_run_is_reloaded(tmp_path: Path) -> None:
    run = Run(make_run(tmp_path / "book"))
    registry = ModelRegistry([run.folder], "cpu")
    (run.folder / "best").rename(run.folder / "later")
    with folder_lock(run.folder):
        assert registry.training("book")
        with pytest.raises(GlassError, match="has just started training"):
            registry.open("book")
        (run.folder / "later").rename(run.folder / "best")
        first = registry.open("book")
        assert registry.open("book") is first
        new_checkpoint(run, 20, best=False)
        assert registry.open("book") is first
        new_checkpoint(run, 30)
        second = registry.open("book")
        assert (first.version[:12], second.version[:12]) == ("step-000001.", "step-000030.")
        assert second is not first
        new_checkpoint(run, 40)
        (run.checkpoints_folder / "step-000040" / "model.safetensors").write_bytes(b"half")
        assert registry.open("book") is second
        assert registry.open("book") is second
        new_checkpoint(run, 50)
        assert registry.open("book").version[:12] == "step-000050."
    assert not registry.training("book")


@pytest.mark.thorough
def test_events_of_a_training_run_are_sent(tmp_path: Path) -> None:
    run = Run(make_run(tmp_path / "book"))
    lines = [json.dumps({"step": step, "loss": 1 / step}) + "\n" for step in range(1, 6)]
    run.metrics_file.write_text("".join(lines[:3]), encoding="utf-8")
    with serving([run.folder]) as server:
        url = f"{server.url}/api/runs/book/events"
        assert httpx.get(url, headers=BEARER).status_code == 204

        found: list[tuple[str, Any]] = []
        with ExitStack() as training:
            training.enter_context(folder_lock(run.folder))
            assert error_of(httpx.get(f"{url}?after=x", headers=BEARER))[0] == 400
            with httpx.stream("GET", f"{url}?after=1", headers=BEARER, timeout=60) as stream:
                assert stream.headers["content-type"].startswith("text/event-stream")
                for name, data in events(stream):
                    found.append((name, data.get("step", data.get("best"))))
                    if found[-1] == ("checkpoint", "step-000001"):
                        append(run.metrics_file, lines[3] + lines[4][:9])  # half a line waits for its other half
                    elif found[-1] == ("metrics", 4):
                        new_checkpoint(run, 4)
                    elif found[-1] == ("checkpoint", "step-000004"):
                        append(run.metrics_file, lines[4][9:])
                    elif found[-1] == ("metrics", 5):
                        training.close()
    assert found == [
        ("metrics", 2),
        ("metrics", 3),
        ("checkpoint", "step-000001"),
        ("metrics", 4),
        ("checkpoint", "step-000004"),
        ("metrics", 5),
        ("end", None),
    ]


def append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def events(stream: httpx.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the data of each event of a stream."""
    fields: dict[str, str] = {}
    for line in stream.iter_lines():
        name, _, value = line.partition(": ")
        fields[name] = value
        if not line and "data" in fields:
            yield fields["event"], json.loads(fields["data"])
        if not line:
            fields = {}


def test_a_copied_model_shares_weights_but_not_modules(home: Path) -> None:
    opened = ModelRegistry([home / "book"], "cpu").open("book")
    copy = opened.copy()
    assert not {id(module) for module in copy.model.modules()} & {id(module) for module in opened.model.model.modules()}
    for mine, theirs in zip(copy.model.parameters(), opened.model.model.parameters(), strict=True):
        assert mine is theirs
    handle = opened.model.model.register_forward_hook(lambda *_: pytest.fail("a hook of a view was called"))
    text = opened.model.tokenizer.encode(TEXT)
    import torch

    with torch.inference_mode():
        copy.model(torch.tensor([text]))
    handle.remove()


def test_errors_at_the_start_have_two_lines(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert refused("serve", "book", "--port", str(port), folder=home) == (
            f"cannot listen at 127.0.0.1, port {port}: Address already in use",
            "Choose another port, or give --port 0 to use any free port; --host must be an address of this machine.",
        )
    short = MIN_TOKEN_CHARACTERS - 1
    for token, given in (
        ([], "no --token was given"),
        (["--token", "x" * short], f"--token has only {short} characters"),
    ):
        problem, remedy = refused("serve", "book", "--host", "0.0.0.0", *token, folder=home)
        assert problem == f"--host 0.0.0.0 opens the server to everybody who can reach this machine, but {given}"
        assert "--token" in remedy
    assert refused("serve", "book", "--port", "70000", folder=home)[0] == "--port 70000 is not a port"
    assert refused("serve", "book", "--token", "a b", folder=home)[0].startswith("--token has characters")
    assert refused("serve", "book", "book", folder=home)[0] == "book is given twice"
    assert "no run at nothing" in refused("serve", "nothing", folder=home)[0]


@pytest.mark.thorough
def test_the_server_prints_its_address_and_stops_cleanly(home: Path) -> None:
    """SIGINT (Ctrl-C) ends the server here; `test_docs.py` ends servers with SIGTERM."""
    process = start("serve", "book", "en-bn", "--port", "0", "--no-open", "--json", folder=home)
    assert process.stdout is not None
    said = json.loads(process.stdout.readline())
    assert (said["runs"], set(said)) == (["book", "en-bn"], {"url", "token", "runs", "backend"})
    with httpx.Client(base_url=said["url"].partition("?")[0], timeout=60) as browser:
        welcome = browser.get(said["url"])
        assert (welcome.status_code, welcome.headers["location"]) == (303, "/")
        assert [run["name"] for run in browser.get("/api/runs").json()["runs"]] == said["runs"]
        assert browser.post("/api/runs/en-bn/tokens", json={"text": "a"}).status_code == 200
    process.send_signal(signal.SIGINT)
    done = ended(process)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
