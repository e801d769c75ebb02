"""Access control: checks of the host, origin and token of a request, and of the size and duration of its body.

Any web page in a browser can send requests to 127.0.0.1, and another site can make its domain name resolve to 127.0.0.1
(DNS rebinding). Therefore the `Host` header must be a name of this machine (unless the server is open to the network),
an `Origin` header must be the origin of the server itself, and a request must contain the token, which other sites do
not know. GET and HEAD requests for `PATHS_WITHOUT_TOKEN` and for paths below `ASSETS` need no token.
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

from glassformer.app.server.connections import BODY_SECONDS
from glassformer.app.server.request_errors import RefusedRequestError, as_json

LOCAL = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""Host names of a server that only this machine can reach."""
PATHS_WITHOUT_TOKEN = frozenset({"/", "/health", "/favicon.ico", "/favicon.svg", "/robots.txt"})
"""Paths that, like those below `ASSETS`, can be read without a token, because they contain no data of a run."""
ASSETS = "/assets/"
MOST_BYTES = 2**20
"""Maximum size of a request body, in bytes."""
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
"""Content security policy: the page may exchange data only with its own server; no page may embed it."""
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


def new_token() -> str:
    """Return a new random token of 256 bits."""
    return secrets.token_urlsafe(32)


@dataclass(frozen=True)
class Access:
    """Access rules of a server: the token, the port and the allowed hosts.

    Attributes:
        token: access token.
        port: port of the server; it is part of the cookie's name, because cookies are shared by all ports of a host.
        hosts: allowed host names without the port; None: all, because the server is open to the network.
    """

    token: str
    port: int
    hosts: frozenset[str] | None = LOCAL

    @property
    def cookie(self) -> str:
        """Name of the cookie that contains the token."""
        return f"glass-{self.port}"

    def is_valid_token(self, token: str) -> bool:
        """Return whether `token` is the token of the server; the comparison takes constant time."""
        return secrets.compare_digest(token.encode("utf-8", "replace"), self.token.encode("utf-8"))


class AccessMiddleware:
    """ASGI middleware that checks each request, reads its body and adds security headers to the response.

    Args:
        app: ASGI application to protect.
        access: access rules.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app = app
        self.access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection, as ASGI requires."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        send = _with_headers(send)
        try:
            self._check(scope)
            if (location := self._redirect_target(scope)) is not None:
                cookie = f"{self.access.cookie}={self.access.token}; Path=/; HttpOnly; SameSite=Strict"
                await _respond(send, 303, b"", {"location": location, "set-cookie": cookie})
                return
            body = await _read_body(scope, receive)
        except RefusedRequestError as error:
            await refuse(scope, send, error)
            return
        if body is not None:  # None: the client has disconnected
            await _run(self.app, scope, _replay_body(body, receive), send)

    def _check(self, scope: Scope) -> None:
        """Raise a `RefusedRequestError` if the host, the origin or the token is wrong."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        origin = headers.get("origin")
        if self.access.hosts is not None and _without_port(host) not in self.access.hosts:
            raise RefusedRequestError(
                f"the host {host[:100]!r} is not allowed: the server answers to {', '.join(sorted(self.access.hosts))}",
                "Open the address that glass serve printed; access from other machines needs --host and --token.",
                421,
            )
        if origin is not None and not _is_same_origin(origin, host):
            raise RefusedRequestError(
                f"the request came from a page of {origin[:100]!r}",
                "Open the address that glass serve printed: only the server's own page is allowed.",
                403,
            )
        if any(self.access.is_valid_token(token) for token in self._tokens(headers)):
            scope.setdefault("state", {})["authorized"] = True  # for `Connection`
        elif not _is_open(scope):
            raise RefusedRequestError(
                "the token is missing or wrong",
                "Open the address that glass serve printed, or send the header Authorization: Bearer TOKEN.",
                401,
            )

    def _tokens(self, headers: Headers) -> list[str]:
        """Return the tokens in the `Authorization` and `Cookie` headers of a request."""
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        cookie = cookie_parser(headers.get("cookie", "")).get(self.access.cookie)
        return [*([bearer.strip()] if kind.lower() == "bearer" else []), *([] if cookie is None else [cookie])]

    def _redirect_target(self, scope: Scope) -> str | None:
        """Return the redirect target of a request for `/?token=…`: the same address without the token.

        For all other requests, return None.

        Raises:
            RefusedRequestError: the token is wrong.
        """
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        tokens = [value for name, value in query if name == "token"]
        if scope["path"] != "/" or not tokens:
            return None
        if not self.access.is_valid_token(tokens[0]):
            raise RefusedRequestError(
                "the token in the address is wrong", "Open the address that glass serve printed last.", 401
            )
        remaining_query = urlencode([(name, value) for name, value in query if name != "token"])
        return f"/?{remaining_query}" if remaining_query else "/"


def _is_open(scope: Scope) -> bool:
    """Return whether a request needs no token."""
    return scope["method"] in ("GET", "HEAD") and (
        scope["path"] in PATHS_WITHOUT_TOKEN or scope["path"].startswith(ASSETS)
    )


def _without_port(host: str) -> str:
    """Return the host name of a `Host` header, in lower case."""
    name, _, port = host.rpartition(":")
    return (name if name and port.isdecimal() else host).lower()


def _is_same_origin(origin: str, host: str) -> bool:
    """Return whether an `Origin` header has the same host and port as the `Host` header."""
    try:
        return bool(host) and urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:  # not a URL
        return False


async def _read_body(scope: Scope, receive: Receive) -> bytes | None:
    """Return the whole body of a request; None if the client disconnected.

    Raises:
        RefusedRequestError: the body is larger than `MOST_BYTES`, or took longer than `BODY_SECONDS`.
    """
    too_large = RefusedRequestError(f"the body is larger than {MOST_BYTES:,} bytes", "Send a smaller body.", 413)
    content_length = Headers(scope=scope).get("content-length", "")
    if content_length.isdecimal() and int(content_length) > MOST_BYTES:
        raise too_large
    chunks = []
    size = 0
    has_more = True
    try:
        with anyio.fail_after(BODY_SECONDS):
            while has_more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                chunks.append(message.get("body", b""))
                size = size + len(chunks[-1])
                has_more = message.get("more_body", False)
                if size > MOST_BYTES:
                    raise too_large
    except TimeoutError:
        raise RefusedRequestError(
            f"the body did not arrive within {BODY_SECONDS:.0f} seconds", "Send the request again.", 408
        ) from None
    return b"".join(chunks)


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that first returns the body that was already read."""
    body_sent = False

    async def replay() -> Message:
        nonlocal body_sent
        if body_sent:
            return await receive()
        body_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _run(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Run the app; if it fails before its response starts, print the traceback and send status 500.

    If the app is cancelled before its response starts, send status 503.
    """
    started = False

    async def recording_send(message: Message) -> None:
        nonlocal started
        started = True
        await send(message)

    try:
        await app(scope, receive, recording_send)
    except asyncio.CancelledError:  # uvicorn cancels requests when it stops, and would print a traceback
        if not started:
            await refuse(
                scope,
                send,
                RefusedRequestError("the server is stopping", "Start the server again, then repeat the request.", 503),
            )
    except Exception as error:
        if started:
            raise
        traceback.print_exception(error, file=sys.stderr)
        problem = f"unexpected: {type(error).__name__}: {str(error)[:300]}"
        remedy = "This is a bug in glassformer: the terminal of glass serve shows the traceback. Please report it."
        await refuse(scope, send, RefusedRequestError(problem, remedy, 500))


def _with_headers(send: Send) -> Send:
    """Return a `send` that adds the security headers, and `no-store` if a response has no cache header."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("cache-control", "no-store")
        await send(message)

    return send_with_headers


async def refuse(scope: Scope, send: Send, error: RefusedRequestError) -> None:
    """Send an error response: JSON for the APIs, otherwise plain text."""
    extra_headers = {"connection": "close"} if error.status in (408, 413) else {}
    if scope["path"].startswith(("/api/", "/v1/")):
        body = json.dumps(as_json(error), ensure_ascii=False).encode("utf-8", "backslashreplace")
        await _respond(send, error.status, body, {"content-type": "application/json", **extra_headers})
    else:
        body = f"{error}\n".encode("utf-8", "backslashreplace")
        await _respond(send, error.status, body, {"content-type": "text/plain; charset=utf-8", **extra_headers})


async def _respond(send: Send, status: int, body: bytes, headers: dict[str, str]) -> None:
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    pairs.append((b"content-length", str(len(body)).encode("latin-1")))
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
