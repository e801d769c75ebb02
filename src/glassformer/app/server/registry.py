"""The runs that are served, by name and never by path: opened at the first request.

The registry reads a run's `best` file at every request, which is cheap. When the file names another checkpoint, as it
does while a run is training, the run is opened again: a `ServedModel` is one checkpoint and never changes. Holders of
the older one can keep using it.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cachetools import LRUCache

from glassformer.app.server.background import BackgroundTask, Tell, in_background
from glassformer.app.server.request_errors import RefusedRequestError
from glassformer.base.backends import BackendName
from glassformer.base.errors import GlassError, nearest
from glassformer.base.locks import is_held
from glassformer.runs.folder import Folder, Run, open_run

if TYPE_CHECKING:
    from glassformer.inspection.explain import Subject
    from glassformer.runs.opening import OpenedRun
    from glassformer.tasks import AnyTextModel

T = TypeVar("T")

SUBJECTS = 16
"""Texts whose tokens and translations are cached."""
CACHE_BYTES = 768 * 2**20
"""Memory for the cached results of one run's views: queries, keys and the like of the latest texts."""


class ServedModel:
    """One checkpoint of one run, loaded.

    Attributes:
        name: of the run in the registry.
        run: the opened run.
        folder: of the run, as it was given.
        model: does the run's task. Views may hook and patch its modules, one view at a time: see `lock`.
        version: the checkpoint, such as "step-000850".
        lock: held by the view that is at work.
        turns: held by the background task that is running, one for all runs of a registry.
    """

    def __init__(self, name: str, run: OpenedRun, turns: threading.Lock | None = None) -> None:
        self.name = name
        self.run = run
        self.folder = run.folder
        self.model: AnyTextModel = run.text_model
        self.version = run.checkpoint.name
        self.lock = threading.RLock()
        self.turns = turns or threading.Lock()
        self._subjects: LRUCache[tuple[str, str | None], Subject] = LRUCache(SUBJECTS)
        self._cache: LRUCache[Hashable, tuple[Any, int]] = LRUCache(CACHE_BYTES, getsizeof=lambda entry: entry[1])
        self._futures: dict[str, Future[Any]] = {}
        self._tasks: dict[str, BackgroundTask] = {}

    def cached(self, key: Hashable, make: Callable[[], T], size: Callable[[T], int]) -> T:
        """Return the cached value of a key, or make it. To be called under the lock.

        Args:
            key: everything that the value depends on, the name of the view included.
            make: computes the value.
            size: gives its bytes; the least recently used values make room. A value above `CACHE_BYTES` is not cached.
        """
        if key in self._cache:
            found: T = self._cache[key][0]
            return found
        value = make()
        needed = size(value)
        if needed <= self._cache.maxsize:
            self._cache[key] = value, needed
        return value

    def subject(self, text: str, target: str | None = None) -> Subject:
        """Return the model's input for a text: its tokens, and its target, cached. To be called under the lock.

        Args:
            text: what the run's command would be given; of a filler, with [MASK].
            target: of a run that translates or summarizes; None: the model's greedy output.

        Raises:
            GlassError: the text does not fit the task, or is longer than the model reads.
        """
        from glassformer.inspection.explain import whole_subject_of

        key = text, target
        if key not in self._subjects:
            self._subjects[key] = whole_subject_of(self.model, text, target, self.name)
        return self._subjects[key]

    def copy(self) -> OpenedRun:
        """Return the run with separate modules that share its weight tensors and have no hooks of views."""
        model = self.run.model
        with self.lock:
            tensors = [*model.parameters(), *model.buffers()]
            return replace(self.run, model=copy.deepcopy(model, {id(tensor): tensor for tensor in tensors}))

    def later(self, name: str, make: Callable[[], Any]) -> Any | None:
        """Return the result of `make`, computed once in the background; None until it is there.

        `make` must not touch `model`, which others use; `copy()` gives it its own.

        Raises:
            GlassError: `make` raised it.
        """
        with self.lock:
            if name not in self._futures:
                self._futures[name] = in_background(make)
            future = self._futures[name]
        return future.result() if future.done() else None

    def task(self, name: str, do: Callable[[Tell], Any] | None = None) -> BackgroundTask | None:
        """Return the long task of that name, started if `do` is given and it is not running; None: never started."""
        with self.lock:
            held = self._tasks.get(name)
            if do is not None and (held is None or held.ready):
                self._tasks[name] = BackgroundTask(do, self.turns)
            return self._tasks.get(name)


class ModelRegistry:
    """The runs that are served.

    Args:
        folders: of runs; a run's name is its folder's, with -2 and so on where two are alike.
        device: as in `train.device`.
        backend: computes the texts that are written.

    Attributes:
        device, backend: the same.

    Raises:
        GlassError: a folder is no run, or is given twice.
    """

    def __init__(self, folders: Sequence[Folder], device: str = "auto", backend: BackendName = "torch") -> None:
        self._folders: dict[str, Path] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._adding = threading.Lock()
        for folder in folders:
            self.add(folder)
        self.device = device
        self.backend = backend
        self._opened: dict[str, ServedModel] = {}
        self._unreadable: dict[str, str | None] = {}  # a checkpoint that need not be tried again
        self._turns = threading.Lock()

    def add(self, folder: Folder) -> str:
        """Serve one more run, from now on; the name that it has here.

        Raises:
            GlassError: the folder is no run, or is served already.
        """
        run = open_run(folder)
        with self._adding:
            if any(run.folder.resolve() == other.resolve() for other in self._folders.values()):
                raise GlassError(f"{folder} is given twice", "Name each run once.")
            name = _free_name(run.folder.resolve().name, self._folders)
            self._locks[name] = threading.Lock()
            self._folders[name] = run.folder  # last: whoever finds the name finds its lock
        return name

    def names(self) -> list[str]:
        """The names of the runs, in the order in which they were given."""
        return list(self._folders)

    def run(self, name: str) -> Run:
        """The run's files.

        Raises:
            GlassError: there is no run of that name here.
        """
        if name not in self._folders:
            raise RefusedRequestError(f"no run called {name!r} is served here", nearest(name, self._folders), 404)
        return Run(self._folders[name])

    def training(self, name: str) -> bool:
        """Return True if a process is training the run now."""
        return is_held(self.run(name).folder)

    def version(self, name: str) -> str | None:
        """The checkpoint that the run's `best` names now; None: there is none yet."""
        try:
            return (self.run(name).folder / "best").read_text(encoding="utf-8").strip() or None
        except (OSError, UnicodeDecodeError):
            return None

    def open(self, name: str) -> ServedModel:
        """The run's best checkpoint, loaded; the same object until there is a better one.

        Raises:
            GlassError: there is no such run, it has no checkpoint yet, or its files are not whole.
        """
        run = self.run(name)
        version = self.version(name)
        with self._locks[name]:
            held = self._opened.get(name)
            if held is not None and version in (held.version, None, self._unreadable.get(name)):
                return held
            if version is None and is_held(run.folder):
                raise RefusedRequestError(
                    f"{name} has just begun to train: it has no checkpoint yet",
                    "Wait for the first one; train.evaluate_every says when it comes.",
                    409,
                )
            try:
                from glassformer.runs.opening import OpenedRun

                self._opened[name] = ServedModel(name, OpenedRun.load(run.folder, "best", self.device), self._turns)
            except GlassError:
                if held is None:
                    raise
                self._unreadable[name] = version
                return held  # a newer checkpoint that cannot be read takes nothing away from the one that is here
            return self._opened[name]


def _free_name(name: str, taken: Iterable[str]) -> str:
    """`name`, or the first of `name-2`, `name-3` … that is free."""
    found = name
    number = 1
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    return found
