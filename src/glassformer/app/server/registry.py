"""Registry of the served runs, which requests address by name and never by path. A run is loaded at its first request.

The registry reads the version of a run's best checkpoint (see `Run.checkpoint_version`) at every request for the run,
which is cheap. When it changes, as happens while a run is training, or when a run is deleted and trained again, the new
checkpoint is loaded as a new `ServedModel`. Requests that already use the older checkpoint can continue to use it.
"""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cachetools import LRUCache

from glassformer.app.server.background import BackgroundTask, OnResult, in_background
from glassformer.app.server.request_errors import RefusedRequestError
from glassformer.base.backends import BackendName
from glassformer.base.errors import GlassError, nearest
from glassformer.base.locks import is_held
from glassformer.runs.folder import Folder, Run, find_run

if TYPE_CHECKING:
    from glassformer.inspection.explain import Subject
    from glassformer.runs.opening import OpenedRun
    from glassformer.tasks import AnyTextModel

T = TypeVar("T")

MAX_CACHED_SUBJECTS = 16
"""Maximum number of texts of one checkpoint whose tokens and generated targets are cached."""
CACHE_BYTES = 768 * 2**20
"""Maximum size in bytes of the cached view results of one checkpoint, such as queries and keys of recent texts."""


class ServedModel:
    """Loaded checkpoint of a run.

    Attributes:
        name: name of the run in the registry.
        run: the opened run.
        folder: path of the run folder, as it was given.
        model: the model, with the methods for the run's task. Views may hook and patch its modules while they hold
            `lock`.
        version: string that identifies the contents of the checkpoint, such as "step-000850.0123456789abcdef".
        run_id: id of the run (see `Run.id`).
        lock: lock that a view holds while the view runs.
        background_lock: lock that a background task holds while the task runs; shared by all runs of a registry.
    """

    def __init__(self, name: str, run: OpenedRun, background_lock: threading.Lock | None = None) -> None:
        self.name = name
        self.run = run
        self.folder = run.folder
        self.model: AnyTextModel = run.text_model
        self.version = run.version
        self.run_id = run.files.id
        self.lock = threading.RLock()
        self.background_lock = background_lock or threading.Lock()
        self._subjects: LRUCache[tuple[str, str | None], Subject] = LRUCache(MAX_CACHED_SUBJECTS)
        self._cache: LRUCache[Hashable, tuple[Any, int]] = LRUCache(CACHE_BYTES, getsizeof=lambda entry: entry[1])
        self._futures: dict[str, Future[Any]] = {}
        self._tasks: dict[str, BackgroundTask] = {}

    def cached(self, key: Hashable, make: Callable[[], T], size: Callable[[T], int]) -> T:
        """Return the cached value of a key; if it is missing, compute and cache it. The caller must hold `lock`.

        Args:
            key: everything that the value depends on, including the name of the view.
            make: function that computes the value.
            size: function that returns the size of the value in bytes. A full cache drops the least recently used
                values; a value above `CACHE_BYTES` is not cached.
        """
        if key in self._cache:
            cached_value: T = self._cache[key][0]
            return cached_value
        value = make()
        value_bytes = size(value)
        if value_bytes <= self._cache.maxsize:
            self._cache[key] = value, value_bytes
        return value

    def subject(self, text: str, target: str | None = None) -> Subject:
        """Return the model's input for a text, with tokens and target; cached. The caller must hold `lock`.

        Args:
            text: input text, with [MASK] for a run of task masked.
            target: target for a run that translates or summarizes; None: the model's greedy output.

        Raises:
            GlassError: the text does not fit the task, or is longer than the context.
        """
        from glassformer.inspection.explain import unshortened_subject_of

        key = text, target
        if key not in self._subjects:
            self._subjects[key] = unshortened_subject_of(self.model, text, target, self.name)
        return self._subjects[key]

    def copy(self) -> OpenedRun:
        """Return the run with a copy of the model that shares the weight tensors but has separate modules."""
        model = self.run.model
        with self.lock:
            tensors = [*model.parameters(), *model.buffers()]
            return replace(self.run, model=copy.deepcopy(model, {id(tensor): tensor for tensor in tensors}))

    def later(self, name: str, make: Callable[[], Any]) -> Any | None:
        """Return the result of `make`, which is computed once in the background; None until it is ready.

        `make` must not use `model`, which views use at the same time; it can use `copy()`.

        Raises:
            GlassError: `make` raised this error.
        """
        with self.lock:
            if name not in self._futures:
                self._futures[name] = in_background(make)
            future = self._futures[name]
        return future.result() if future.done() else None

    def task(self, name: str, do: Callable[[OnResult], Any] | None = None) -> BackgroundTask | None:
        """Return the background task called `name`; None if it was never started.

        Args:
            name: name of the task.
            do: function of a new task, which is started unless a task of this name is waiting or running; None: no task
                is started.
        """
        with self.lock:
            current = self._tasks.get(name)
            if do is not None and (current is None or current.finished):
                self._tasks[name] = BackgroundTask(do, self.background_lock)
            return self._tasks.get(name)


class ModelRegistry:
    """Registry of the served runs.

    Args:
        folders: run folders; the name of a run is the name of its folder, with the suffix -2 and so on for duplicates.
        device: device, as in `train.device`.
        backend: backend that generates text.

    Attributes:
        device, backend: the arguments with these names.

    Raises:
        GlassError: a folder is not a run, or is given twice.
    """

    def __init__(self, folders: Sequence[Folder], device: str = "auto", backend: BackendName = "torch") -> None:
        self._folders: dict[str, Path] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._add_lock = threading.Lock()
        for folder in folders:
            self.add(folder)
        self.device = device
        self.backend = backend
        self._opened: dict[str, ServedModel] = {}
        self._unreadable: dict[str, tuple[str | None, GlassError]] = {}  # by name: version and warning
        self._background_lock = threading.Lock()

    def add(self, folder: Folder) -> str:
        """Add a run to the registry, and return its name.

        Raises:
            GlassError: the folder is not a run, or is already served.
        """
        run = find_run(folder)
        with self._add_lock:
            if any(run.folder.resolve() == other.resolve() for other in self._folders.values()):
                raise GlassError(f"{folder} is given twice", "Name each run once.")
            name = _free_name(run.folder.resolve().name, self._folders)
            self._locks[name] = threading.Lock()
            self._folders[name] = run.folder  # last, so that each name in `_folders` has a lock
        return name

    def names(self) -> list[str]:
        """Return the names of the runs, in the order in which they were added."""
        return list(self._folders)

    def run(self, name: str) -> Run:
        """Return the files of a run.

        Raises:
            GlassError: there is no run with that name.
        """
        if name not in self._folders:
            raise RefusedRequestError(f"no run with the name {name!r} is served", nearest(name, self._folders), 404)
        return Run(self._folders[name])

    def training(self, name: str) -> bool:
        """Return whether a process is training the run."""
        return is_held(self.run(name).folder)

    def version(self, name: str) -> str | None:
        """Return the version of the run's current best checkpoint; None if there is none yet."""
        return self.run(name).checkpoint_version("best")

    def open(self, name: str) -> ServedModel:
        """Return the run's best checkpoint, loaded at the first call.

        Later calls return the same object until there is a new best checkpoint. If the new checkpoint cannot be loaded,
        the previous one of the same run is returned, and a warning is printed once; see `warning`.

        Raises:
            GlassError: there is no such run, it has no checkpoint yet, or its files are incomplete and no older
                checkpoint is loaded.
        """
        run = self.run(name)
        version = self.version(name)
        with self._locks[name]:
            loaded = self._opened.get(name)
            if loaded is not None and loaded.run_id != run.id:  # the run was deleted, and maybe trained again
                loaded = self._opened.pop(name) and None
            if loaded is not None and (version == loaded.version or self.warning(name) is not None):
                return loaded
            if version is None and is_held(run.folder) and loaded is None:
                raise RefusedRequestError(
                    f"{name} has just started training: it has no checkpoint yet",
                    "Try again in a moment: the first checkpoint is saved at step 0, before the first training step.",
                    409,
                )
            try:
                from glassformer.runs.opening import OpenedRun

                self._opened[name] = ServedModel(
                    name, OpenedRun.load(run.folder, "best", self.device), self._background_lock
                )
            except GlassError as error:
                if loaded is None:
                    raise
                warning = GlassError(
                    f"the best checkpoint of {name} cannot be loaded, so {loaded.run.checkpoint.name} is still served: "
                    f"{error.problem}",
                    f"{error.remedy.rstrip('.')}. After a repair, restart the server.",
                )
                self._unreadable[name] = version, warning
                print(warning, file=sys.stderr)
                return loaded  # the older checkpoint is still usable if the newer one cannot be loaded
            self._unreadable.pop(name, None)
            return self._opened[name]

    def warning(self, name: str) -> GlassError | None:
        """Return why an older checkpoint of the run is served; None unless its best checkpoint could not be loaded."""
        version, warning = self._unreadable.get(name, (None, None))
        return warning if version == self.version(name) else None


def _free_name(name: str, taken: Iterable[str]) -> str:
    """Return `name`, or the first of `name-2`, `name-3` … that is not taken."""
    free_name = name
    number = 1
    while free_name in taken:
        number += 1
        free_name = f"{name}-{number}"
    return free_name
