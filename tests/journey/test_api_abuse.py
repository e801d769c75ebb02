"""Neither requests generated from the OpenAPI document nor ill-behaved clients cause a server error."""

from __future__ import annotations

import contextlib
import gc
import http.client
import json
import shutil
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import schemathesis
import torch
from hypothesis import HealthCheck, settings

from glassformer.app.server import connections, events
from glassformer.app.server.bundle import PAGE
from glassformer.app.server.openai.document import document
from glassformer.base.files import write_folder
from glassformer.base.locks import folder_lock
from glassformer.model.weights import save_tensors
from glassformer.runs.folder import CHAT_TEMPLATE_FILE, Run
from glassformer.runs.opening import OpenedRun
from tests.journey.api_server import TOKEN, Served, serving
from tests.parity.written_runs import make_run

AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve a small model that never writes the end token, and one that always writes it first."""
    folder = tmp_path_factory.mktemp("abused")
    book, brief = (make_run(folder / name, tied=False, head_bias=True) for name in ("book", "brief"))
    (brief / CHAT_TEMPLATE_FILE).write_text("{% for m in messages %}{{ m.content }}\n{% endfor %}", encoding="utf-8")
    with_end_token(brief, 1e4)
    with_end_token(book, -1e4)
    with serving([book, brief]) as found:
        yield found


def with_end_token(folder: Path, logit: float) -> None:
    """Add a checkpoint with another bias for the end token, so that the model always or never writes it."""
    run = Run(folder)
    model = OpenedRun.load(folder, device="cpu").writer
    bias = model.model.head.bias
    assert bias is not None
    with torch.no_grad():
        bias[model.tokenizer.end_id] = logit

    def fill(place: Path) -> None:
        save_tensors(dict(model.model.state_dict()), place / "model.safetensors")
        shutil.copyfile(run.checkpoint() / "state.json", place / "state.json")

    write_folder(run.checkpoints_folder / "step-000002", fill)
    run.point("best", run.checkpoints_folder / "step-000002")


def document_of(model: str) -> dict[str, Any]:
    """Return the OpenAPI document with two model names: a served run, and one that does not exist."""
    found: dict[str, Any] = json.loads(json.dumps(document()))
    for name in ("CompletionBody", "ChatBody"):
        found["components"]["schemas"][name]["properties"]["model"] = {"enum": [model, "nobody"]}
    return found


schema = schemathesis.openapi.from_dict(document_of("brief"))
schema.config.checks.negative_data_rejection.expected_statuses += ["413"]
OF_THE_RUN = [schemathesis.checks.CHECKS.get_one("positive_data_acceptance")]
"""Checks to leave out: the document cannot contain limits of a run, such as the length of prompts or valid ids."""


@schema.parametrize()
@settings(max_examples=3, suppress_health_check=list(HealthCheck))
def test_every_response_conforms_to_the_openapi_document(case: schemathesis.Case, served: Served) -> None:
    """Check status, media type and schema, for bodies that fit the document and for bodies that do not."""
    case.call_and_validate(base_url=served.url, headers=AUTHORIZED, excluded_checks=OF_THE_RUN)


def post(served: Served, body: bytes, path: str = "/v1/completions") -> httpx.Response:
    return served.http.post(path, content=body)


ODD: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"{model: book}",
    "half": b'{"model": "book", "prompt": "a',
    "bad UTF-8": b'{"model": "book", "prompt": "\xff\xfe\xc3"}',
    "lone surrogate": b'{"model": "book", "prompt": "\\ud800"}',
    "surrogate as name": b'{"model": "\\udfff", "prompt": "a"}',
    "surrogate as parameter": b'{"model": "book", "\\ud800": 1}',
    "nul": b'{"model": "book\\u0000", "prompt": "\\u0000"}',
    "deep lists": b'{"model": "book", "prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep objects": b'{"model": "book", "metadata": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    "not a number": b'{"model": "book", "prompt": "a", "temperature": NaN}',
    "infinite": b'{"model": "book", "prompt": "a", "temperature": 1e999}',
    "large number": b'{"model": "book", "prompt": "a", "seed": ' + b"9" * 5000 + b"}",
    "a list": b"[]",
    "a word": b'"book"',
    "wrong types": b'{"model": ["book"], "prompt": {"a": 1}, "n": "2", "stop": 3, "stream": "yes"}',
    "true as number": b'{"model": "book", "prompt": "a", "n": true}',
    "path as model": b'{"model": "../book", "prompt": "a"}',
    "large ids": b'{"model": "book", "prompt": [99999999999999999999]}',
    "negative ids": b'{"model": "book", "prompt": [-1]}',
    "mixed prompts": b'{"model": "book", "prompt": ["a", [1]]}',
    "many prompts": b'{"model": "book", "prompt": [' + b'"a",' * 5000 + b'"a"]}',
    "many names": b"{" + b",".join(b'"x%d": 1' % n for n in range(50_000)) + b"}",
    "a byte order mark": b'\xef\xbb\xbf{"model": "book"}',
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_odd_bodies_are_refused_in_two_lines(served: Served, path: str, name: str) -> None:
    answer = post(served, ODD[name], path)
    assert answer.status_code in (400, 404)
    assert len(answer.json()["error"]["message"].splitlines()) == 2
    assert len(answer.content) < 2000


def test_large_bodies_are_refused_before_they_are_stored(served: Served) -> None:
    body = b'{"model": "book", "prompt": "' + b"a" * 10_000_000 + b'"}'
    for content in (body, (body[start : start + 100_000] for start in range(0, len(body), 100_000))):
        with contextlib.suppress(httpx.WriteError):  # the server may hang up while the rest is still being sent
            assert served.http.post("/v1/completions", content=content).status_code == 413
    assert alive(served)


def alive(served: Served) -> bool:
    body = {"model": "book", "prompt": "the", "max_tokens": 2}
    return served.http.post("/v1/completions", json=body).status_code == 200


def raw(served: Served, **body: Any) -> bytes:
    """Return a completion request as the bytes that are sent."""
    data = json.dumps({"model": "book", "prompt": "the", **body}).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


def idle(served: Served) -> bool:
    """Return whether the server stops writing texts within ten seconds."""
    engine = served.engines.engine("book")
    end = time.monotonic() + 10
    while engine.rows or engine.waiting:
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def test_slow_and_half_closed_clients_do_not_block_others(served: Served) -> None:
    """Clients send byte by byte, never read, disconnect at once, or close one half of the connection."""
    slow = socket.create_connection(("127.0.0.1", served.port))
    for byte in raw(served)[:40]:
        slow.send(bytes([byte]))
    deaf = socket.create_connection(("127.0.0.1", served.port))
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.sendall(raw(served, stream=True, max_tokens=4096, n=8))
    gone = socket.create_connection(("127.0.0.1", served.port))
    gone.sendall(raw(served, stream=True, max_tokens=4096))
    gone.close()
    half = socket.create_connection(("127.0.0.1", served.port))
    half.sendall(raw(served, max_tokens=5))
    half.shutdown(socket.SHUT_WR)
    half.settimeout(20)
    half.recv(100)  # an answer, or an end
    assert alive(served)
    for each in (slow, deaf, half):
        each.close()
    assert idle(served)


def test_a_client_that_disconnects_early_causes_no_error(served: Served, capfd: pytest.CaptureFixture[str]) -> None:
    for settings_ in ({"n": 2}, {"stream": True}):
        going = socket.create_connection(("127.0.0.1", served.port))
        going.sendall(raw(served, max_tokens=4096, **settings_))
        while not served.engines.engine("book").rows:
            time.sleep(0.01)
        going.close()
        assert idle(served)
    assert alive(served)
    assert capfd.readouterr().err == ""


@pytest.mark.thorough
def test_memory_does_not_grow(served: Served) -> None:
    """Requests are refused, cancelled and answered repeatedly; memory and the number of objects hardly grow."""

    def round_() -> None:
        for name in ("bad UTF-8", "wrong types", "path as model"):
            post(served, ODD[name])
        for _ in range(4):
            going = socket.create_connection(("127.0.0.1", served.port))
            going.sendall(raw(served, stream=True, max_tokens=4096))
            going.recv(10)
            going.close()
        assert alive(served)

    for _ in range(15):
        round_()
    assert idle(served)
    gc.collect()
    objects = len(gc.get_objects())
    before = psutil.Process().memory_info().rss
    for _ in range(15):
        round_()
    assert idle(served)
    gc.collect()
    assert psutil.Process().memory_info().rss - before < 16 * 2**20
    assert len(gc.get_objects()) - objects < 300  # sixty orders, if they stayed, would be more


SPARED = {
    "nothing": b"",
    "half a head": b"GET / HTTP/1.1\r\nHost: ",
    "half a body": b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{",
    "kept alive": b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "pages not read": 50 * b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
}
"""What clients without a token send over a connection that makes room for others."""


@pytest.fixture
def narrow(served: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """Serve with room for six connections."""
    monkeypatch.setattr(connections, "CONNECTIONS", 6)
    monkeypatch.setattr(connections, "NEW", 1)
    with serving([served.registry.run("book").folder]) as found:
        yield found


def opened(served: Served, sent: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", served.port), timeout=20)
    connection.sendall(sent)
    return connection


def ends(connection: socket.socket) -> bool:
    """Return True after the server has closed the connection."""
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(2**16):
            pass
    return True


def models(connection: http.client.HTTPConnection) -> int:
    """Return the status of a request with a token."""
    connection.request("GET", "/v1/models", headers=AUTHORIZED)
    response = connection.getresponse()
    response.read()
    return response.status


@pytest.mark.thorough
@pytest.mark.parametrize("kind", SPARED)
def test_connections_without_a_token_make_room(narrow: Served, kind: str) -> None:
    """A user is served over new connections, and over one that is kept alive, while others come again and again."""
    kept = http.client.HTTPConnection("127.0.0.1", narrow.port, timeout=20)
    assert models(kept) == 200
    port = kept.sock.getsockname()[1]
    others = [opened(narrow, SPARED[kind]) for _ in range(20)]
    with httpx.Client(base_url=narrow.url, headers=AUTHORIZED, timeout=60) as user:
        assert user.get("/v1/models").status_code == 200
    assert models(kept) == 200
    assert kept.sock.getsockname()[1] == port
    assert ends(others[0])
    for each in (*others, kept):
        each.close()


@pytest.mark.thorough
def test_requests_that_are_being_answered_are_not_cut_off(narrow: Served) -> None:
    """If no connection can be spared, the new request gets status 503."""
    writing = [opened(narrow, raw(narrow, stream=True, max_tokens=4096)) for _ in range(6)]
    assert all(each.recv(100).startswith(b"HTTP/1.1 200") for each in writing)
    with httpx.Client(base_url=narrow.url, headers=AUTHORIZED, timeout=60) as user:
        assert user.get("/v1/models").status_code == 503
    assert all(each.recv(100) for each in writing)
    for each in writing:
        each.close()


@pytest.mark.thorough
def test_event_streams_that_begin_together_are_limited(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "EVENT_STREAMS", 3)
    head = f"GET /api/runs/book/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    with folder_lock(served.registry.run("book").folder):  # so that the run counts as training
        for _ in range(2):  # the first streams no longer count after they have ended
            streams = [opened(served, head) for _ in range(12)]
            assert Counter(each.recv(12) for each in streams) == {b"HTTP/1.1 200": 3, b"HTTP/1.1 429": 9}
            for each in streams:
                each.close()
            time.sleep(0.5)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["half a head", "half a body", "kept alive"])
def test_a_client_that_sends_byte_by_byte_is_disconnected(
    served: Served, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Single bytes do not prolong the time for a request."""
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.3)
    slow = opened(served, SPARED[kind])
    for _ in range(100):
        try:
            slow.sendall(b"G")
        except OSError:
            return
        time.sleep(0.1)
    pytest.fail("the connection is still open")


@pytest.mark.thorough
def test_a_client_that_does_not_read_is_disconnected(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "READ_SECONDS", 0.3)
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.connect(("127.0.0.1", served.port))
    deaf.settimeout(20)
    largest = max(PAGE.glob("assets/*"), key=lambda path: path.stat().st_size)
    deaf.sendall(30 * f"GET /assets/{largest.name} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    assert ends(deaf)
    assert alive(served)
