"""Access to the server: hosts, origins, tokens, bodies, and the headers of every answer."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import anyio
import pytest
from starlette.types import Message, Receive, Scope, Send

from glassformer.app.server.access import HEADERS, MOST_BYTES, Access, AccessMiddleware, new_token

TOKEN = "the-token-of-this-start"
BEARER = {"authorization": f"Bearer {TOKEN}"}
ACCESS = Access(TOKEN, 8600)


class Answer(NamedTuple):
    """A response of the server."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        return dict(json.loads(self.body)["error"])


async def inner(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the length of the body, as the app behind the access middleware."""
    if scope["path"] == "/api/fault":
        raise KeyError("inner")
    message = await receive()
    length = str(len(message["body"])).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-frame", b"1")]})
    await send({"type": "http.response.body", "body": length})


def ask(
    path: str = "/api/runs",
    headers: dict[str, str] | None = None,
    *,
    method: str = "GET",
    query: str = "",
    chunks: Iterable[bytes] = (b"",),
    access: Access = ACCESS,
) -> Answer:
    """Send one request through the access middleware; the host is valid unless the headers change it."""
    given = {"host": "127.0.0.1:8600", **(headers or {})}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "http_version": "1.1",
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in given.items()],
    }
    coming = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    coming[-1]["more_body"] = False
    messages = iter(coming)
    sent = list[Message]()

    async def receive() -> Message:
        return next(messages, {"type": "http.disconnect"})

    async def send(message: Message) -> None:
        sent.append(message)

    anyio.run(AccessMiddleware(inner, access), scope, receive, send)
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Answer(sent[0]["status"], found, b"".join(message.get("body", b"") for message in sent))


@pytest.mark.parametrize("host", ["127.0.0.1:8600", "localhost", "LOCALHOST:1", "[::1]:8600", "[::1]"])
def test_own_hosts_are_accepted(host: str) -> None:
    assert ask(headers={"host": host, **BEARER}).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:8600", "192.168.0.7:8600", "", ":8600", "[::2]"]
)
def test_foreign_hosts_are_refused(host: str) -> None:
    answer = ask(headers={"host": host, **BEARER})
    assert answer.status == 421
    assert "answers to" in answer.error["what"]


def test_an_open_server_accepts_any_host() -> None:
    opened = Access(TOKEN, 8600, hosts=None)
    assert ask(headers={"host": "mine.example", **BEARER}, access=opened).status == 200
    assert ask(headers={"host": "mine.example"}, access=opened).status == 401


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1:9999", "http://localhost:8600", "http://[", ""]
)
def test_foreign_origins_are_refused(origin: str) -> None:
    assert ask(headers={"origin": origin, **BEARER}).status == 403
    assert ask("/", headers={"origin": origin}).status == 403


def test_the_servers_own_origin_is_accepted() -> None:
    assert ask(headers={"origin": "http://127.0.0.1:8600", **BEARER}).status == 200


@pytest.mark.parametrize("path", ["/api/runs", "/v1/models", "/metrics", "/openapi.json", "/else"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer other"},
        {"authorization": "Bearer"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": f"Bearer {TOKEN[:-1]}"},
        {"authorization": f"Bearer {TOKEN[:-1]}T"},
        {"cookie": f"glass-8600={TOKEN[:-1]}T"},
        {"cookie": f"glass-8601={TOKEN}"},
        {"cookie": "glass-8600=é"},
    ],
)
def test_requests_without_the_token_are_refused(path: str, headers: dict[str, str]) -> None:
    answer = ask(path, headers)
    assert answer.status == 401
    assert TOKEN.encode() not in answer.body


def test_the_token_is_accepted_in_header_or_cookie() -> None:
    assert ask(headers=BEARER).status == 200
    assert ask(headers={"authorization": f"bearer  {TOKEN}"}).status == 200
    assert ask(headers={"cookie": f"a=b; glass-8600={TOKEN}"}).status == 200


@pytest.mark.parametrize("path", ["/", "/health", "/assets/index-abcdefgh.js"])
def test_the_page_is_served_without_a_token(path: str) -> None:
    assert ask(path).status == 200
    assert ask(path, method="POST").status == 401


def test_the_url_with_the_token_sets_a_cookie_and_redirects() -> None:
    answer = ask("/", query=f"token={TOKEN}&run=a%20b")
    assert (answer.status, answer.headers["location"]) == (303, "/?run=a+b")
    name, _, rest = answer.headers["set-cookie"].partition("=")
    assert name == "glass-8600"
    assert rest == f"{TOKEN}; Path=/; HttpOnly; SameSite=Strict"
    assert ask("/", query=f"token={TOKEN}").headers["location"] == "/"


def test_a_wrong_token_in_the_url_sets_no_cookie() -> None:
    answer = ask("/", query="token=other")
    assert answer.status == 401
    assert "set-cookie" not in answer.headers
    assert len(answer.body.decode().strip().splitlines()) == 2


@pytest.mark.parametrize("chunks", [[b"x" * (MOST_BYTES + 1)], [b"x" * 4096] * 257, [b"", b"x" * MOST_BYTES, b"x"]])
def test_bodies_that_are_too_large_are_refused(chunks: list[bytes]) -> None:
    assert sum(map(len, chunks)) > MOST_BYTES
    assert ask(headers=BEARER, method="POST", chunks=chunks).status == 413


def test_an_announced_body_that_is_too_large_is_not_read() -> None:
    answer = ask(headers={**BEARER, "content-length": str(MOST_BYTES + 1)}, method="POST", chunks=[b"x"])
    assert (answer.status, answer.headers["connection"]) == (413, "close")


def test_chunked_bodies_reach_the_app_completely() -> None:
    assert ask(headers=BEARER, method="POST", chunks=[b"ab", b"", b"cde"]).body == b"5"
    assert ask(headers=BEARER, method="POST", chunks=[b"x" * MOST_BYTES]).body == str(MOST_BYTES).encode()


def test_every_response_has_the_security_headers() -> None:
    answers = [ask("/"), ask(), ask(headers=BEARER), ask("/", query=f"token={TOKEN}"), ask(headers={"host": "x"})]
    for answer in answers:
        assert answer.headers.items() >= HEADERS.items()
        assert answer.headers["cache-control"] == "no-store"
    policy = HEADERS["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


def test_an_internal_error_is_reported_to_client_and_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    answer = ask("/api/fault", BEARER)
    assert answer.status == 500
    assert answer.error["what"] == "unexpected: KeyError: 'inner'"
    assert answer.headers.items() >= HEADERS.items()
    assert "KeyError" in capsys.readouterr().err


def test_tokens_are_long_and_new() -> None:
    assert len({new_token() for _ in range(9)}) == 9
    assert len(new_token()) >= 43


def test_sockets_are_closed() -> None:
    sent = list[Message]()

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    anyio.run(AccessMiddleware(inner, ACCESS), {"type": "websocket", "path": "/", "headers": []}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]
