"""The engine of a run: a bounded queue, a running batch, and the thread that steps it."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from glassformer.app.server.engine.jobs import Job, Order, Piece
from glassformer.app.server.engine.metrics import Metrics
from glassformer.app.server.refusing import SHORTER, RefusedRequestError
from glassformer.app.server.registry import ModelRegistry
from glassformer.base.errors import GlassError, clear_memory_errors

if TYPE_CHECKING:
    from glassformer.app.server.engine.loaded import Loaded
    from glassformer.generation.continuous import Batch

ROWS = 64
"""Texts that are written at once."""
MEMORY = 2 << 30
"""Bytes of their keys and values: of large models fewer texts are written at once."""
WAITING = 256
"""Texts that may wait for a place among them."""
PATIENCE = 5.0
"""Seconds in which a thread must have ended when the server stops."""


class BusyError(RefusedRequestError):
    """The queue is full: ask again after `seconds`."""

    def __init__(self, name: str, waiting: int, seconds: int) -> None:
        super().__init__(f"{waiting} texts wait for {name} already", f"Ask again in {seconds} s.", 429)
        self.seconds = seconds


class _Crew:
    """The rows of one checkpoint."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.batch: Batch = loaded.batch()
        self.jobs: dict[int, Job] = {}

    def join(self, job: Job) -> None:
        self.jobs[self.batch.join(job.ids, job.settings)] = job

    def drop(self, number: int) -> None:
        self.batch.leave(number)
        self.jobs.pop(number, None)


class Engine:
    """Writes what is ordered of one run, all texts at once.

    A newer checkpoint of a run that is training serves the orders that come after it; what has begun is written to its
    end by the older one, beside it. An error of one text ends that text; an error of a step, such as memory that is
    short, ends all texts of its batch, and the next order begins a new one.

    Args:
        name: of the run.
        registry: where it is.
        metrics: what is counted.
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
        self.name, self._registry, self._metrics = name, registry, metrics
        self._most_rows, self._most_waiting, self._memory = rows, waiting, memory
        self._queue: deque[Job] = deque()
        self._crews: list[_Crew] = []
        self._newest: Loaded | None = None
        self._loading, self._awake, self._closed = threading.Lock(), threading.Condition(), False
        self._rate = metrics.watch(name, lambda: len(self._queue), lambda: self.rows)
        self._thread = threading.Thread(target=self._work, name=f"engine of {name}", daemon=True)
        self._thread.start()

    @property
    def rows(self) -> int:
        """Texts that are being written."""
        return sum(len(crew.jobs) for crew in list(self._crews))

    @property
    def waiting(self) -> int:
        """Texts in the queue."""
        return len(self._queue)

    def load(self) -> Loaded:
        """The run's best checkpoint, to make jobs for. It may take its time: not for the event loop.

        Raises:
            GlassError: there is no checkpoint, it is not whole, or it writes no text.
        """
        from glassformer.app.server.engine.loaded import Loaded

        opened = self._registry.open(self.name)
        with self._loading:
            if self._newest is None or self._newest.version != opened.version:
                self._newest = Loaded(opened)
            return self._newest

    def submit(self, jobs: Sequence[Job]) -> None:
        """Put jobs into the queue: all, or none where there is no room.

        Raises:
            BusyError: there is none.
            GlassError: the server is stopping.
        """
        with self._awake:
            if self._closed:
                raise RefusedRequestError("the server is stopping", "Start it again.", 503)
            if len(self._queue) + len(jobs) > self._most_waiting:
                self._metrics.refused.labels(self.name).inc()
                raise BusyError(self.name, len(self._queue), self._wait())
            self._queue.extend(jobs)
            self._awake.notify()
        self._metrics.prompt.labels(self.name).inc(sum(len(job.ids) for job in jobs))

    def count(self, jobs: Sequence[Job]) -> None:
        """Count texts that were found by a search, beside the batch."""
        self._metrics.prompt.labels(self.name).inc(sum(len(job.ids) for job in jobs))
        self._metrics.generated.labels(self.name).inc(sum(job.count for job in jobs))

    def close(self) -> None:
        """End the thread, and with an error whatever it has not written."""
        with self._awake:
            self._closed = True
            self._awake.notify()
        self._thread.join(PATIENCE)

    def _wait(self) -> int:
        """Seconds after which it makes sense to ask again: what the queue may take at the present speed."""
        tokens = sum(job.settings.tokens for job in self._queue)
        return round(min(60.0, max(1.0, tokens / max(1.0, self._rate.a_second()))))

    def _work(self) -> None:
        while self._admit():
            for crew in [*self._crews]:
                try:
                    self._step(crew)
                except Exception as error:  # whatever it is, others must be served
                    self._give_up(crew, error)
            self._crews = [crew for crew in self._crews if crew.jobs or crew.loaded is self._newest]
        stopped = RefusedRequestError("the server is stopping", "Start it again, and ask again.", 503)
        left = [*self._queue, *(job for crew in self._crews for job in crew.jobs.values())]
        _hand_over([(job, Piece(job.choice, error=stopped)) for job in left])
        self._crews = []

    def _admit(self) -> bool:
        """Wait until there is something to do, and take in whom there is room for; False: it is over."""
        with self._awake:
            while not self._closed and not self._queue and not self.rows:
                self._awake.wait()
            if self._closed:
                return False
            self._queue = deque(job for job in self._queue if not job.order.cancelled)
            new = [self._queue.popleft() for _ in range(min(self._room(), len(self._queue)))]
        for job in new:
            try:
                self._crew_of(job.loaded).join(job)
            except Exception as error:
                _hand_over([(job, Piece(job.choice, error=_as_glass_error(error)))])
        return True

    def _room(self) -> int:
        """How many more texts may be written now; one at least, where none is."""
        jobs = [job for crew in self._crews for job in crew.jobs.values()]
        each = max((job.loaded.row_bytes for job in (*jobs, *self._queue)), default=1)
        return min(self._most_rows, max(1, self._memory // each)) - self.rows

    def _crew_of(self, loaded: Loaded) -> _Crew:
        for crew in self._crews:
            if crew.loaded is loaded:
                return crew
        self._crews.append(_Crew(loaded))
        return self._crews[-1]

    def _step(self, crew: _Crew) -> None:
        """One more token for each row, handed to whoever ordered it."""
        for number in [number for number, job in crew.jobs.items() if job.order.cancelled]:
            crew.drop(number)
        if not crew.jobs:
            return
        with clear_memory_errors(SHORTER):
            step, done = crew.batch.step(), list[tuple[Job, Piece]]()
        now = time.monotonic()
        for number, token, logits in zip(step.rows, step.tokens, step.logits, strict=True):
            job = crew.jobs[number]
            if not job.count:
                self._metrics.first.labels(self.name).observe(now - job.order.born)
            try:
                piece = job.take(token, logits, step.ended.get(number))
            except Exception as error:
                piece = Piece(job.choice, error=_as_glass_error(error))
            if piece.last:
                crew.drop(number)
            done.append((job, piece))
        self._metrics.generated.labels(self.name).inc(len(done))
        self._rate.add(len(done))
        _hand_over(done)

    def _give_up(self, crew: _Crew, error: Exception) -> None:
        """End all texts of a batch whose step failed."""
        said = _as_glass_error(error)
        _hand_over([(job, Piece(job.choice, error=said)) for job in crew.jobs.values()])
        crew.jobs.clear()
        self._crews.remove(crew)


def _as_glass_error(error: Exception) -> GlassError:
    """The error to be told; one that is a fault of ours is shown in the terminal, too."""
    if isinstance(error, GlassError):
        return error
    traceback.print_exception(error, file=sys.stderr)
    return RefusedRequestError(
        f"unexpected: {type(error).__name__}: {str(error)[:300]}",
        "This is a fault in glassformer: the terminal of glass serve shows where. Please report it.",
        500,
    )


def _hand_over(done: Sequence[tuple[Job, Piece]]) -> None:
    """Give pieces to their orders, in their event loops."""
    for loop in {job.order.loop for job, _ in done}:
        pieces = [(job.order, piece) for job, piece in done if job.order.loop is loop]
        try:
            loop.call_soon_threadsafe(_put, pieces)
        except RuntimeError:  # the loop has ended, and all who waited with it
            for order, _ in pieces:
                order.cancelled = True


def _put(pieces: Sequence[tuple[Order, Piece]]) -> None:
    for order, piece in pieces:
        order.put(piece)


class Engines:
    """The engines of a registry: each begins when it is first asked for.

    Args:
        registry: the runs.
        rows, waiting: of each engine.
    """

    def __init__(self, registry: ModelRegistry, rows: int = ROWS, waiting: int = WAITING) -> None:
        self.metrics = Metrics()
        self._registry, self._rows, self._waiting = registry, rows, waiting
        self._engines: dict[str, Engine] = {}
        self._lock = threading.Lock()

    def engine(self, name: str) -> Engine:
        """The engine of a run.

        Raises:
            GlassError: there is no such run.
        """
        self._registry.run(name)
        with self._lock:
            if name not in self._engines:
                self._engines[name] = Engine(name, self._registry, self.metrics, self._rows, self._waiting)
            return self._engines[name]

    def close(self) -> None:
        """End all threads."""
        with self._lock:
            for engine in self._engines.values():
                engine.close()
