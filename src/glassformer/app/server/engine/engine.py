"""Engine of a run: a bounded queue, a token loop for each checkpoint, and the thread that runs their steps."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from glassformer.app.server.engine.jobs import GenerationRequest, TextJob, TextPiece
from glassformer.app.server.engine.metrics import Metrics
from glassformer.app.server.registry import ModelRegistry
from glassformer.app.server.request_errors import MEMORY_REMEDY, RefusedRequestError
from glassformer.base.errors import GlassError, convert_memory_errors
from glassformer.base.wording import counted

if TYPE_CHECKING:
    from glassformer.app.server.engine.loaded import LoadedCheckpoint
    from glassformer.generation.decoding import TokenLoop

ROWS = 64
"""Maximum number of texts that an engine generates at once."""
MEMORY = 2 << 30
"""Maximum size in bytes of the key/value caches of the texts that an engine generates at once. A large model therefore
generates fewer than `ROWS` texts at once, but at least one."""
WAITING = 256
"""Maximum number of texts in the queue of an engine."""
STOP_SECONDS = 5.0
"""Seconds to wait for a thread to end when the server stops."""


class BusyError(RefusedRequestError):
    """Error if the queue has no room for a request; clients may try again after `seconds`."""

    def __init__(self, name: str, texts: int, waiting: int, most: int, seconds: int) -> None:
        room = f"there is no room for {counted(texts, 'more texts')}"
        super().__init__(
            f"the queue of {name} is full: {room} ({waiting} of at most {most} are waiting)",
            f"Try again in {seconds} s.",
            429,
        )
        self.seconds = seconds


class _CheckpointLoop:
    """The token loop of one checkpoint, with the job of each of its rows."""

    def __init__(self, loaded: LoadedCheckpoint) -> None:
        from glassformer.model.threads import set_threads_here  # imported here because it imports torch

        self.loaded = loaded
        self.loop: TokenLoop = loaded.token_loop()
        if self.loop.reader.torch_threads is not None:
            set_threads_here(self.loop.reader.torch_threads)
        self.jobs: dict[int, TextJob] = {}

    def join(self, job: TextJob) -> None:
        self.jobs[self.loop.join(job.ids, job.settings)] = job

    def drop(self, row: int) -> None:
        self.loop.leave(row)
        self.jobs.pop(row, None)


class Engine:
    """Engine that generates the requested texts of one run together, in one batch for each checkpoint.

    While the run is training, new requests use its newest best checkpoint; the texts of earlier requests are finished
    with the checkpoint that was loaded for them. An error in one text ends that text; an error in a step, such as lack
    of memory, ends all texts of its loop, and the next request starts a new loop.

    Args:
        name: name of the run.
        registry: registry with the run.
        metrics: metrics of the server, which count the texts and tokens.
        rows, waiting, memory: see `ROWS`, `WAITING` and `MEMORY`.
    """

    def __init__(
        self,
        name: str,
        registry: ModelRegistry,
        metrics: Metrics,
        rows: int = ROWS,
        waiting: int = WAITING,
        memory: int = MEMORY,
    ) -> None:
        self.name = name
        self._registry = registry
        self._metrics = metrics
        self._max_rows = rows
        self._max_waiting = waiting
        self._memory = memory
        self._queue: deque[TextJob] = deque()
        self._loops: list[_CheckpointLoop] = []
        self._newest: LoadedCheckpoint | None = None
        self._load_lock = threading.Lock()
        self._awake = threading.Condition()
        self._closed = False
        self._rate = metrics.watch(name, lambda: len(self._queue), lambda: self.rows)
        self._thread = threading.Thread(target=self._run, name=f"engine of {name}", daemon=True)
        self._thread.start()

    @property
    def rows(self) -> int:
        """Number of texts that are being generated."""
        return sum(len(checkpoint_loop.jobs) for checkpoint_loop in list(self._loops))

    @property
    def waiting(self) -> int:
        """Number of texts in the queue."""
        return len(self._queue)

    def load(self) -> LoadedCheckpoint:
        """Return the run's best checkpoint, prepared to generate text.

        Loading may take long, so do not call this in the event loop.

        Raises:
            GlassError: there is no checkpoint, it is incomplete, the run's task does not generate text, or the backend
                cannot run the model.
        """
        from glassformer.app.server.engine.loaded import LoadedCheckpoint

        opened = self._registry.open(self.name)
        with self._load_lock:
            if self._newest is None or self._newest.version != opened.version:
                self._newest = LoadedCheckpoint(opened, self._registry.backend)
            return self._newest

    def notes(self) -> list[str]:
        """Return the note that an older checkpoint is served, if the best one could not be loaded."""
        warning = self._registry.warning(self.name)
        return [] if warning is None else [warning.problem]

    def submit(self, jobs: Sequence[TextJob]) -> None:
        """Add all jobs to the queue, or none if there is not enough room.

        Raises:
            BusyError: there is not enough room in the queue.
            GlassError: the server is stopping.
        """
        with self._awake:
            if self._closed:
                raise RefusedRequestError("the server is stopping", "Start the server again.", 503)
            if len(self._queue) + len(jobs) > self._max_waiting:
                self._metrics.refused_requests.labels(self.name).inc()
                raise BusyError(self.name, len(jobs), len(self._queue), self._max_waiting, self._retry_seconds())
            self._queue.extend(jobs)
            self._awake.notify()
        self._metrics.prompt_tokens.labels(self.name).inc(sum(len(job.ids) for job in jobs))

    def count(self, jobs: Sequence[TextJob]) -> None:
        """Count the tokens of texts that the token loop did not generate, such as results of beam search."""
        self._metrics.prompt_tokens.labels(self.name).inc(sum(len(job.ids) for job in jobs))
        self._metrics.generated_tokens.labels(self.name).inc(sum(job.count for job in jobs))

    def close(self) -> None:
        """Stop the thread; unfinished texts end with an error."""
        with self._awake:
            self._closed = True
            self._awake.notify()
        self._thread.join(STOP_SECONDS)

    def _retry_seconds(self) -> int:
        """Return the seconds until a retry, 1 to 60: the time to generate the queued texts at the current speed.

        Each text is assumed to have its maximum number of tokens.
        """
        tokens = sum(job.settings.tokens for job in self._queue)
        return round(min(60.0, max(1.0, tokens / max(1.0, self._rate.per_second()))))

    def _run(self) -> None:
        while self._admit():
            for checkpoint_loop in [*self._loops]:
                try:
                    self._step(checkpoint_loop)
                except Exception as error:  # other texts must still be served
                    self._abort(checkpoint_loop, error)
            self._loops = [
                checkpoint_loop
                for checkpoint_loop in self._loops
                if checkpoint_loop.jobs or checkpoint_loop.loaded is self._newest
            ]
        stopped = RefusedRequestError("the server is stopping", "Start the server again, then repeat the request.", 503)
        unfinished = [*self._queue, *(job for checkpoint_loop in self._loops for job in checkpoint_loop.jobs.values())]
        _send_pieces([(job, TextPiece(job.choice, error=stopped)) for job in unfinished])
        self._loops = []

    def _admit(self) -> bool:
        """Start as many queued jobs as there is room for; return False if the engine is closed.

        If no text is being generated, wait until a job is in the queue.
        """
        with self._awake:
            while not self._closed and not self._queue and not self.rows:
                self._awake.wait()
            if self._closed:
                return False
            self._queue = deque(job for job in self._queue if not job.generation.cancelled)
            new_jobs = [self._queue.popleft() for _ in range(min(self._free_rows(), len(self._queue)))]
        for job in new_jobs:
            try:
                self._loop_of(job.loaded).join(job)
            except Exception as error:
                _send_pieces([(job, TextPiece(job.choice, error=_as_glass_error(error)))])
        return True

    def _free_rows(self) -> int:
        """Return the number of texts that may start now; at least one if no text is being generated."""
        jobs = [job for checkpoint_loop in self._loops for job in checkpoint_loop.jobs.values()]
        row_bytes = max((job.loaded.row_bytes for job in (*jobs, *self._queue)), default=1)
        return min(self._max_rows, max(1, self._memory // row_bytes)) - self.rows

    def _loop_of(self, loaded: LoadedCheckpoint) -> _CheckpointLoop:
        for checkpoint_loop in self._loops:
            if checkpoint_loop.loaded is loaded:
                return checkpoint_loop
        self._loops.append(_CheckpointLoop(loaded))
        return self._loops[-1]

    def _step(self, checkpoint_loop: _CheckpointLoop) -> None:
        """Generate one more token for each row, and send it to its request."""
        for row in [row for row, job in checkpoint_loop.jobs.items() if job.generation.cancelled]:
            checkpoint_loop.drop(row)
        if not checkpoint_loop.jobs:
            return
        with convert_memory_errors(MEMORY_REMEDY):
            step = checkpoint_loop.loop.step()
        job_pieces: list[tuple[TextJob, TextPiece]] = []
        now = time.monotonic()
        for row, token, logits in zip(step.rows, step.tokens, step.logits, strict=True):
            job = checkpoint_loop.jobs[row]
            if not job.count:
                self._metrics.time_to_first_token.labels(self.name).observe(now - job.generation.created)
            try:
                piece = job.take(token, logits, step.ended.get(row))
            except Exception as error:
                piece = TextPiece(job.choice, error=_as_glass_error(error))
            if piece.last:
                checkpoint_loop.drop(row)
            job_pieces.append((job, piece))
        self._metrics.generated_tokens.labels(self.name).inc(len(job_pieces))
        self._rate.add(len(job_pieces))
        _send_pieces(job_pieces)

    def _abort(self, checkpoint_loop: _CheckpointLoop, error: Exception) -> None:
        """End all texts of a loop after an error in a step."""
        glass_error = _as_glass_error(error)
        _send_pieces([(job, TextPiece(job.choice, error=glass_error)) for job in checkpoint_loop.jobs.values()])
        checkpoint_loop.jobs.clear()
        self._loops.remove(checkpoint_loop)


def _as_glass_error(error: Exception) -> GlassError:
    """Return the error to report; if it is not a `GlassError`, print its traceback in the terminal."""
    if isinstance(error, GlassError):
        return error
    traceback.print_exception(error, file=sys.stderr)
    return RefusedRequestError(
        f"unexpected: {type(error).__name__}: {str(error)[:300]}",
        "This is a bug in glassformer: the terminal of glass serve shows the traceback. Please report it.",
        500,
    )


def _send_pieces(job_pieces: Sequence[tuple[TextJob, TextPiece]]) -> None:
    """Send pieces to their requests, in the event loop of each request."""
    for loop in {job.generation.loop for job, _ in job_pieces}:
        pieces = [(job.generation, piece) for job, piece in job_pieces if job.generation.loop is loop]
        try:
            loop.call_soon_threadsafe(_put_pieces, pieces)
        except RuntimeError:  # the event loop and its requests have ended
            for generation, _ in pieces:
                generation.cancelled = True


def _put_pieces(pieces: Sequence[tuple[GenerationRequest, TextPiece]]) -> None:
    for generation, piece in pieces:
        generation.put(piece)


class Engines:
    """Engines of the runs of a registry; each starts at its first request.

    Args:
        registry: served runs.
        rows, waiting: see `ROWS` and `WAITING`.
    """

    def __init__(self, registry: ModelRegistry, rows: int = ROWS, waiting: int = WAITING) -> None:
        self.metrics = Metrics()
        self._registry = registry
        self._rows = rows
        self._waiting = waiting
        self._engines: dict[str, Engine] = {}
        self._lock = threading.Lock()

    def engine(self, name: str) -> Engine:
        """Return the engine of a run.

        Raises:
            GlassError: there is no such run.
        """
        self._registry.run(name)
        with self._lock:
            if name not in self._engines:
                self._engines[name] = Engine(name, self._registry, self.metrics, self._rows, self._waiting)
            return self._engines[name]

    def close(self) -> None:
        """Close all engines; unfinished texts end with an error."""
        with self._lock:
            for engine in self._engines.values():
                engine.close()
