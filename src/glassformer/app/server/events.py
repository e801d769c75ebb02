"""Server-sent events of a run that is training, until training ends or the client disconnects.

::

    event: metrics       data: a line of metrics.jsonl        id: its step
    event: checkpoint    data: {"best": "step-000850", "last": "step-000900"}   sent once there is a checkpoint, and at
                                                                            each change; null: no checkpoint yet
    event: end           data: {}                             training has ended

`?after=STEP` first sends the existing lines of later steps; without it, only new lines are sent. A browser that lost
the connection sends the last step (header `Last-Event-ID`) when it reconnects. If the run is not training, the status
is 204, after which a browser does not reconnect.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
from anyio import to_thread
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from glassformer.app.server.connections import EVENT_STREAMS
from glassformer.app.server.registry import ModelRegistry
from glassformer.app.server.request_errors import RefusedRequestError
from glassformer.runs.folder import Run

SECONDS = 0.5
"""Seconds between two reads of the run's files."""
MOST_LINES = 2_000
"""Maximum number of lines per read; the next read continues after them."""


class Follower:
    """Reader of the new metrics and checkpoints of a run that is training.

    Args:
        run: files of the run.
        after: return the lines of steps after this step; None: return only lines written after the creation of this
            object.

    Raises:
        GlassError: existing lines are requested, and lines written before the newest checkpoint were altered.
    """

    def __init__(self, run: Run, after: int | None) -> None:
        self.run = run
        self._after = after
        self._offset = 0
        self._versions: dict[str, str | None] = {}
        if after is None:
            self._offset = _size(run)
        else:
            run.check_logs(run.metrics_file.name)

    def new_events(self) -> list[ServerSentEvent]:
        """Return the events since the last call, from at most `MOST_LINES` lines of metrics."""
        return [*self._lines(), *self._checkpoint()]

    def _lines(self) -> list[ServerSentEvent]:
        if _size(self.run) < self._offset:  # a resumed run removes the lines after its checkpoint
            self._offset = 0
        try:
            with self.run.metrics_file.open("rb") as file:
                file.seek(self._offset)
                lines = file.readlines()[:MOST_LINES]
        except FileNotFoundError:
            return []
        events = []
        for line in lines:
            if not line.endswith(b"\n"):  # incomplete: the next read has the whole line
                break
            self._offset += len(line)
            record = _parse_metrics(line)
            if record is not None and (self._after is None or record["step"] > self._after):
                self._after = record["step"]
                events.append(ServerSentEvent(json.dumps(record), event="metrics", id=str(record["step"])))
        return events

    def _checkpoint(self) -> list[ServerSentEvent]:
        versions = {"best": self.run.checkpoint_version("best"), "last": self.run.checkpoint_version("last")}
        if versions == self._versions or not any(versions.values()):
            return []
        self._versions = versions
        checkpoints = {which: version and version.partition(".")[0] for which, version in versions.items()}
        return [ServerSentEvent(json.dumps(checkpoints), event="checkpoint")]


async def events_of(request: Request, registry: ModelRegistry, name: str) -> Response:
    """Return the event stream of a run, or a response with status 204 if the run is not training.

    Raises:
        GlassError: there is no such run, `after` is not a step, or there are too many streams.
    """
    run = registry.run(name)
    if not await to_thread.run_sync(registry.training, name):
        return Response(status_code=204)
    after = request.headers.get("last-event-id") or request.query_params.get("after")
    if after is not None and not (after.isascii() and after.isdecimal() and len(after) < 16):
        raise RefusedRequestError(f"after = {after[:40]!r} is not a step", "Give a whole number, or remove `after`.")
    follower = await to_thread.run_sync(Follower, run, None if after is None else int(after))

    async def stream() -> AsyncIterator[ServerSentEvent]:
        training = True
        while training:
            training = await to_thread.run_sync(registry.training, name)  # before the read, so that nothing is missed
            for event in await to_thread.run_sync(follower.new_events):
                yield event
            await anyio.sleep(SECONDS if training else 0)
        yield ServerSentEvent("{}", event="end")

    if getattr(request.app.state, "streams", 0) >= EVENT_STREAMS:  # without an await before `_EventStream` counts
        raise RefusedRequestError(
            f"there are already {EVENT_STREAMS} event streams", "Close another page of this server.", 429
        )
    return _EventStream(stream())


class _EventStream(EventSourceResponse):
    """Event stream that is counted in the state of the application while it is open."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = scope["app"].state
        state.streams = getattr(state, "streams", 0) + 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            state.streams -= 1


def _parse_metrics(line: bytes) -> dict[str, Any] | None:
    """Parse a line of metrics, with NaN and infinity as None; return None if the line is not valid."""
    try:
        record = json.loads(line, parse_constant=lambda name: None)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("step"), int) else None


def _size(run: Run) -> int:
    return run.metrics_file.stat().st_size if run.metrics_file.exists() else 0
