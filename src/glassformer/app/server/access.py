"""Access control: checks of a request's host, origin, token, and the size and duration of its body.

A page in a browser can send requests to 127.0.0.1 from any site, and a name of a foreign site can be made to point
there (DNS rebinding). So the `Host` must be one of this machine's names, an `Origin` must be the server's own, and
everything but the page itself needs a token, which only the person who started the server has seen.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import traceback
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from glassformer.app.server.request_errors import RefusedRequestError, as_json

LOCAL = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""The names that this machine has for itself."""
OPEN = frozenset({"/", "/health", "/favicon.ico", "/favicon.svg", "/robots.txt"})
"""What needs no token, with `ASSETS`: it holds nothing of a run."""
ASSETS = "/assets/"
MOST_BYTES = 2**20
"""Of a request's body."""
SECONDS = 30.0
"""In which the whole body must have come."""
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "font-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""The page may load nothing from elsewhere, send nothing elsewhere, and stand in no other page."""
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


def new_token() -> str:
    """A token for one start: 256 random bits."""
    return secrets.token_urlsafe(32)


@dataclass(frozen=True)
class Access:
    """Access rules of a server: the token, the port and the allowed hosts.

    Attributes:
        token: of this start, or the one that was given.
        port: that the server listens on; the cookie is named by it, as cookies do not tell ports apart.
        hosts: names under which the server may be asked, without the port; None: all, because it is open to others.
    """

    token: str
    port: int
    hosts: frozenset[str] | None = LOCAL

    @property
    def cookie(self) -> str:
        """The name of the cookie that holds the token."""
        return f"glass-{self.port}"

    def same(self, token: str) -> bool:
        """Return True if `token` is the token of the server; compare in constant time."""
        return secrets.compare_digest(token.encode("utf-8", "replace"), self.token.encode("utf-8"))


class Guard:
    """The middleware: refuses, or passes on with the body read and the headers of safety added.

    Args:
        app: what is guarded.
        access: who may ask.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app = app
        self.access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection, as ASGI has it."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        send = _with_headers(send)
        try:
            self._check(scope)
            if (location := self._letting_in(scope)) is not None:
                cookie = f"{self.access.cookie}={self.access.token}; Path=/; HttpOnly; SameSite=Strict"
                await _respond(send, 303, b"", {"location": location, "set-cookie": cookie})
                return
            body = await _whole_body(scope, receive)
        except RefusedRequestError as error:
            await refuse(scope, send, error)
            return
        if body is not None:  # None: whoever asked has gone
            await _run(self.app, scope, _again(body, receive), send)

    def _check(self, scope: Scope) -> None:
        """Raise a `RefusedRequestError` if the host, the origin or the token is not right."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        origin = headers.get("origin")
        if self.access.hosts is not None and _without_port(host) not in self.access.hosts:
            raise RefusedRequestError(
                f"this server was asked as {host[:100]!r}, and answers to {', '.join(sorted(self.access.hosts))} only",
                "Open the address that glass serve printed; to be reached from elsewhere it needs --host and --token.",
                421,
            )
        if origin is not None and not _is_of(origin, host):
            raise RefusedRequestError(
                f"a page of {origin[:100]!r} asked", "Only the server's own page may: open the address it printed.", 403
            )
        if not _is_open(scope) and not any(self.access.same(token) for token in self._tokens(headers)):
            raise RefusedRequestError(
                "the token of this server is missing or is another one",
                "Open the address that glass serve printed, or send the header Authorization: Bearer TOKEN.",
                401,
            )

    def _tokens(self, headers: Headers) -> list[str]:
        """The tokens that a request brings."""
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        cookie = cookie_parser(headers.get("cookie", "")).get(self.access.cookie)
        return [*([bearer.strip()] if kind.lower() == "bearer" else []), *([] if cookie is None else [cookie])]

    def _letting_in(self, scope: Scope) -> str | None:
        """Return the redirect target of a request for `/?token=…`; None for all other requests.

        Raises:
            RefusedRequestError: the token is wrong.
        """
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        tokens = [value for name, value in query if name == "token"]
        if scope["path"] != "/" or not tokens:
            return None
        if not self.access.same(tokens[0]):
            raise RefusedRequestError(
                "the token in this address is not that of this server", "Open the address that it printed last.", 401
            )
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        return f"/?{rest}" if rest else "/"


def _is_open(scope: Scope) -> bool:
    """Return True if a request needs no token."""
    return scope["method"] in ("GET", "HEAD") and (scope["path"] in OPEN or scope["path"].startswith(ASSETS))


def _without_port(host: str) -> str:
    """The name in a `Host` header."""
    name, _, port = host.rpartition(":")
    return (name if name and port.isdecimal() else host).lower()


def _is_of(origin: str, host: str) -> bool:
    """Return True if an `Origin` header has the same host and port as the `Host` header."""
    try:
        return bool(host) and urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:  # no address at all
        return False


async def _whole_body(scope: Scope, receive: Receive) -> bytes | None:
    """The body, which may come in chunks of any size; None if the one who asks went away."""
    too_large = RefusedRequestError(
        f"the body is larger than {MOST_BYTES:,} bytes", "Send less at once: no question needs more.", 413
    )
    announced = Headers(scope=scope).get("content-length", "")
    if announced.isdecimal() and int(announced) > MOST_BYTES:
        raise too_large
    chunks = []
    size = 0
    more = True
    try:
        with anyio.fail_after(SECONDS):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                chunks.append(message.get("body", b""))
                size = size + len(chunks[-1])
                more = message.get("more_body", False)
                if size > MOST_BYTES:
                    raise too_large
    except TimeoutError:
        raise RefusedRequestError(
            f"the body did not come within {SECONDS:.0f} seconds", "Send it again.", 408
        ) from None
    return b"".join(chunks)


def _again(body: bytes, receive: Receive) -> Receive:
    """`receive` for an app behind one that has read the body."""
    given = False

    async def once_more() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return once_more


async def _run(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Run the app; a fault of ours is answered as such, if nothing is on its way, and told in the terminal."""
    started = False

    async def noting(message: Message) -> None:
        nonlocal started
        started = True
        await send(message)

    try:
        await app(scope, receive, noting)
    except asyncio.CancelledError:  # uvicorn stops, and has waited long enough; it would print where it was
        if not started:
            await refuse(
                scope, send, RefusedRequestError("the server is stopping", "Start it again, and ask again.", 503)
            )
    except Exception as error:
        if started:
            raise
        traceback.print_exception(error, file=sys.stderr)
        problem = f"unexpected: {type(error).__name__}: {str(error)[:300]}"
        remedy = "This is a fault in glassformer: the terminal of glass serve shows where. Please report it."
        await refuse(scope, send, RefusedRequestError(problem, remedy, 500))


def _with_headers(send: Send) -> Send:
    """`send` that adds the headers of safety, and keeps answers out of caches unless they say otherwise."""

    async def safely(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("cache-control", "no-store")
        await send(message)

    return safely


async def refuse(scope: Scope, send: Send, error: RefusedRequestError) -> None:
    """Answer with an error: JSON to programs, the two lines to people."""
    more = {"connection": "close"} if error.status in (408, 413) else {}
    if scope["path"].startswith(("/api/", "/v1/")):
        body = json.dumps(as_json(error), ensure_ascii=False).encode("utf-8", "backslashreplace")
        await _respond(send, error.status, body, {"content-type": "application/json", **more})
    else:
        body = f"{error}\n".encode("utf-8", "backslashreplace")
        await _respond(send, error.status, body, {"content-type": "text/plain; charset=utf-8", **more})


async def _respond(send: Send, status: int, body: bytes, headers: dict[str, str]) -> None:
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    pairs.append((b"content-length", str(len(body)).encode("latin-1")))
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
