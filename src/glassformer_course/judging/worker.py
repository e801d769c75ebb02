"""Worker process that runs an answer, with Python and NumPy but without access to the reference solution.

This file is run by its path, with the folder that contains NumPy as its argument, so it does not import the package. In
the parent process, other modules import `encode`, `decode` and `call_function` from it. Messages are lines of JSON: the
first line contains the source and the limits, and each later line contains a call. Output that the answer prints goes
to standard error, with a marker before each call.
"""

from __future__ import annotations

import base64
import copy
import importlib.abc
import json
import linecache
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any, NoReturn

if __name__ == "__main__":
    sys.path.append(sys.argv[1])
    sys.modules["ctypes"] = None  # type: ignore[assignment]  # NumPy would load it, but does not need it

import numpy as np

FOREIGN = ("ctypes", "_ctypes")  # modules of the standard library that call functions in other languages
OUT_OF_MEMORY = 77  # exit code
CALL = b"\0"  # marker in standard error before the output of each call
DEEPEST = 50  # maximum nesting of lists
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
PROCESSES = (
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.kill",
    "os.killpg",
    "os.posix_spawn",
    "os.spawn",
    "os.startfile",
    "os.system",
    "subprocess.Popen",
)
CHANGES = (
    "os.chmod",
    "os.chown",
    "os.link",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.symlink",
    "os.truncate",
    "os.utime",
    "shutil.move",
    "shutil.rmtree",
)


class Other:
    """Placeholder for a value of a type that no exercise uses; only the name of the type is sent."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        return f"<{self.kind}>"


def encode(value: Any, depth: int = 0) -> Any:
    """Encode a value as JSON: None, bool, number, string, bytes, array, or a list, tuple or dictionary of these.

    For any other value, only a description of its type is encoded.
    """
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is bytes:
        return {"bytes": base64.b64encode(value).decode()}
    if (kind is np.ndarray or isinstance(value, np.generic)) and value.dtype.kind in "biufc":
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"array" if kind is np.ndarray else "scalar": [value.dtype.str, list(value.shape), data]}
    if kind is np.ndarray:
        return {"other": f"array of {value.dtype}"}
    if depth > DEEPEST:
        return {"other": f"{kind.__name__} too deep"}
    if kind is list:
        return [encode(each, depth + 1) for each in value]
    if kind is tuple:
        return {"tuple": [encode(each, depth + 1) for each in value]}
    if kind is dict:
        return {"dict": [[encode(key, depth + 1), encode(each, depth + 1)] for key, each in value.items()]}
    return {"other": kind.__name__}


def decode(value: Any) -> Any:
    """Decode a value that `encode` returned.

    Raises:
        ValueError, TypeError, KeyError: the value was not returned by `encode`.
    """
    if isinstance(value, list):
        return [decode(each) for each in value]
    if not isinstance(value, dict):
        return value
    [(kind, content)] = value.items()
    if kind in ("array", "scalar"):
        dtype, shape, data = content
        array = np.frombuffer(base64.b64decode(data), np.dtype(dtype)).reshape(shape).copy()
        return array if kind == "array" else array[()]
    if kind == "bytes":
        return base64.b64decode(content)
    if kind == "tuple":
        return tuple(decode(each) for each in content)
    if kind == "dict":
        return {decode(key): decode(each) for key, each in content}
    return Other(str(content))


def call_function(
    function: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """Call a function on copies of the arguments.

    Returns:
        {"gave": result, "changed": indices of the arguments that the function changed}, or the dictionary of `raised`.
    """
    copies = copy.deepcopy([*arguments, *keywords.values()])
    before = [json.dumps(encode(each)) for each in copies]
    try:
        with np.errstate(all="ignore"):
            value = function(*copies[: len(arguments)], **dict(zip(keywords, copies[len(arguments) :], strict=True)))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit in an answer must not end the worker
        return raised(error)
    changed = [index for index, each in enumerate(copies) if json.dumps(encode(each)) != before[index]]
    return {"gave": value, "changed": changed}


def raised(error: BaseException) -> dict[str, Any]:
    """Return an exception as a dictionary.

    The keys are `raised`, the name of its type; `message`, of at most 300 characters; and `line`, the number of the
    answer's line that raised it, or None.
    """
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "answer"]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    try:
        message = error.msg if isinstance(error, SyntaxError) else str(error)
    except Exception:  # the answer defines an exception whose __str__ fails
        message = ""
    name = " ".join(type(error).__name__.split())
    return {"raised": name, "message": " ".join(message[:300].split()), "line": line}


class _ImportFilter(importlib.abc.MetaPathFinder):
    """Import hook that admits only the standard library without ctypes, and NumPy."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        package = name.partition(".")[0]
        if package in FOREIGN or (package not in sys.stdlib_module_names and package != "numpy"):
            raise ImportError(f"{name} cannot be imported here: write your own answer, in Python and NumPy")


def _install_audit_hook() -> None:
    """Install an audit hook, which cannot be removed.

    An answer may not start or end processes, use the network or ctypes, raise its limits, read files other than those
    of Python and NumPy, or write files outside its temporary folder.
    """
    folder = os.path.realpath(".")
    numpy = [os.path.realpath(os.path.join(sys.path[-1], name)) for name in ("numpy", "numpy.libs")]  # noqa: PTH118
    python = [os.path.realpath(path) for path in sys.path[:-1] if path]
    others = [os.path.join(path, name) for path in python for name in ("site-packages", "dist-packages")]  # noqa: PTH118

    def inside(path: str, *folders: str) -> bool:
        return any(path == each or path.startswith(each + os.sep) for each in folders)

    def readable(path: str) -> bool:
        return inside(path, folder, *numpy) or (inside(path, *python) and not inside(path, *others))

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event in PROCESSES:
            raise PermissionError("an answer may not start or end processes")
        if event.startswith("socket."):
            raise PermissionError("an answer may not use the network")
        if event == "import" and arguments[1] and inside(os.path.realpath(arguments[1]), folder):
            raise ImportError("a compiled module cannot be imported here: write your own answer, in Python and NumPy")
        if event.startswith("ctypes.") or (event == "import" and arguments[0].rpartition(".")[2] in FOREIGN):
            raise ImportError("ctypes cannot be imported here: write your own answer, in Python and NumPy")
        if event in ("resource.setrlimit", "resource.prlimit"):
            raise PermissionError("an answer may not change its limits")
        if event == "open":
            paths = arguments[:1]
            writes = bool(arguments[2] & WRITING)
        elif event in CHANGES:
            paths = arguments[:2]
            writes = True
        else:
            return
        for path in paths:
            if isinstance(path, (str, bytes, os.PathLike)) and path != os.devnull:
                real_path = os.path.realpath(os.fsdecode(path))
                if writes and not inside(real_path, folder):
                    raise PermissionError("an answer may write files only in its temporary folder")
                if not readable(real_path):
                    raise PermissionError("an answer may read only its own files and those of Python and NumPy")

    sys.addaudithook(refuse)


def _set_limits(megabytes: int, seconds: float) -> None:
    """Limit memory, processor time and the size of written files, on Linux and macOS; Windows has no such limits."""
    try:
        import resource
    except ImportError:
        return

    def set_limit(limit: int, soft: int, hard: int) -> None:
        current_hard = resource.getrlimit(limit)[1]  # an unprivileged process cannot raise it
        new_hard = hard if current_hard == resource.RLIM_INFINITY else min(hard, current_hard)
        resource.setrlimit(limit, (min(soft, new_hard), new_hard))

    set_limit(resource.RLIMIT_CORE, 0, 0)
    set_limit(resource.RLIMIT_FSIZE, 1 << 20, 1 << 20)
    cpu_seconds = int(time.process_time() + seconds) + 1
    set_limit(resource.RLIMIT_CPU, cpu_seconds, cpu_seconds + 1)
    allowed_bytes = megabytes << 20
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - pathlib is slow to import
            used_bytes = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        set_limit(resource.RLIMIT_AS, used_bytes + allowed_bytes, used_bytes + allowed_bytes)
    except OSError:  # macOS does not enforce RLIMIT_AS: poll every 20 ms
        unit = 1 if sys.platform == "darwin" else 1024

        def watch() -> None:
            while resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit < allowed_bytes:
                time.sleep(0.02)
            os._exit(OUT_OF_MEMORY)

        threading.Thread(target=watch, daemon=True).start()


def _load(source: str) -> dict[str, Any]:
    """Run the source of the answer and return its global names."""
    linecache.cache["answer"] = (len(source), None, source.splitlines(keepends=True), "answer")
    module = ModuleType("answer")
    sys.modules["answer"] = module  # dataclasses look up their module here
    with np.errstate(all="ignore"):
        exec(compile(source, "answer", "exec"), module.__dict__)
    return module.__dict__


def serve() -> NoReturn:
    """Load the answer, then handle calls until the parent process closes the pipe."""
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)  # input() raises EOFError

    def reply(message: dict[str, Any]) -> None:
        replies.write(json.dumps(message).encode() + b"\n")
        replies.flush()

    reply({"started": True})
    first = json.loads(requests.readline())
    _set_limits(first["megabytes"], first["seconds"])
    _install_audit_hook()
    sys.meta_path.insert(0, _ImportFilter())
    try:
        names = _load(first["source"])
        reply({"ready": [name for name, value in names.items() if callable(value)]})
    except BaseException as error:
        reply(raised(error))
        os._exit(0)
    for line in requests:
        request = json.loads(line)
        with suppress(OSError):
            os.write(2, CALL)
        try:
            result = call_function(names[request["call"]], decode(request["arguments"]), dict(decode(request["named"])))
            if "gave" in result:
                result["gave"] = encode(result["gave"])
            reply(result)
        except BaseException as error:  # KeyboardInterrupt, or a result that cannot be encoded
            reply(raised(error))
    os._exit(0)  # without waiting for threads that the answer started


if __name__ == "__main__":
    serve()
