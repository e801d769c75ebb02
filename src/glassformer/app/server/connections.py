"""Limits of connections: their number, the time to send a request, and the time without reading a response.

When `CONNECTIONS` are open, one of them makes room for a new one: first the oldest without a token in its last request,
then the oldest that waits for a request or for a client that does not read. Clients that open many connections and send
nothing, or send slowly, therefore do not keep others out.
"""

from __future__ import annotations

import asyncio
from typing import cast

from uvicorn.protocols.http.flow_control import service_unavailable
from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS = 512
"""Maximum number of open connections; if all have a token and are being answered, further requests get status 503."""
NEW = CONNECTIONS // 8
"""Number of connections without a token that are kept even if others with a token wait: requests with a token are among
them, but not yet read."""
ACCEPTED = 128
"""Maximum number of connections that are accepted before the requests of the accepted ones are read."""
QUEUED = 2048
"""Maximum number of connections that wait to be accepted."""
REQUEST_SECONDS = 10.0
"""Maximum time between the opening of a connection, or the end of a response, and the end of the next request's head.
The limit for a connection without any bytes after a response is uvicorn's `timeout_keep_alive`, 5 seconds."""
BODY_SECONDS = 30.0
"""Maximum time to receive the body of a request."""
READ_SECONDS = 10.0
"""Maximum time for which a client may accept nothing of a response."""
EVENT_STREAMS = 32
"""Maximum number of parallel streams of events; see `events`."""


class Connection(H11Protocol):
    """HTTP connection of uvicorn that can be closed before its time."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection; if there are too many, close another one."""
        super().connection_made(transport)
        self._free_since = self.loop.time()
        self._read_at = self.loop.time()
        self._unsent = 0
        if len(self.connections) > CONNECTIONS:
            self._close_another()

    def on_response_complete(self) -> None:
        """Let the time for the next request begin."""
        self._free_since = self.loop.time()
        super().on_response_complete()

    @property
    def _is_free(self) -> bool:
        """Whether there is no request, or its response is complete."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def _is_trusted(self) -> bool:
        """Whether the last request had a valid token."""
        return self.cycle is not None and "authorized" in self.cycle.scope["state"]

    def _close_another(self) -> None:
        """Close the connection that can best be spared; if there is none, answer on this one with status 503."""
        others = [cast(Connection, each) for each in self.connections if each is not self]
        untrusted = [each for each in others if not each._is_trusted]
        waiting = [each for each in others if each._is_free or each.cycle.more_body or each.flow.write_paused]
        if spared := untrusted if len(untrusted) > NEW else waiting:
            closed = min(spared, key=lambda each: each._free_since)
            self.connections.discard(closed)  # now, as its place is taken
            closed.transport.abort()
        else:
            self.app = service_unavailable

    def enforce_limits(self) -> None:
        """Close the connection if its client has sent no request, or accepted nothing of a response, for too long."""
        now = self.loop.time()
        unsent = self.transport.get_write_buffer_size()
        is_fixed = self._is_free or self.flow.write_paused  # the response does not add to the unsent bytes
        if not is_fixed or not unsent or unsent < self._unsent:
            self._read_at = now
        self._unsent = unsent
        if now - self._read_at > READ_SECONDS:
            self.transport.abort()
        elif self._is_free and now - self._free_since > REQUEST_SECONDS:
            self.transport.close()
