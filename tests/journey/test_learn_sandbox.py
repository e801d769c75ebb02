"""What an answer cannot do: reach other files, processes, the network, ctypes, the environment or its judge."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from glassformer.base.errors import GlassError
from glassformer_course.checking import check_source
from glassformer_course.course import find
from glassformer_course.judging import confine, sandbox, worker

SOFTMAX = find("softmax")
REFERENCE = str(files("glassformer_course") / "exercises" / "softmax" / "check.py")
ESCAPES = r"""
import gc, importlib, importlib.machinery, importlib.util, os, resource, shutil, socket, subprocess, sys, threading
from pathlib import Path

def load(name, path):
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    return importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))

def compiled_copy():
    shutil.copyfile("MATH", "own.so")
    return load("math", os.path.abspath("own.so"))

def through_a_link():
    os.symlink("OUTSIDE", "link")
    return open("link").read()

def forget_the_hooks():
    sys.meta_path[:] = [each for each in sys.meta_path if "Import" not in type(each).__name__]
    sys.modules.pop("ctypes", None)
    import ctypes

def judge():
    names = [each.__module__ for each in gc.get_objects() if callable(each) and hasattr(each, "__module__")]
    frame = sys._getframe()
    while frame is not None:
        names.append(frame.f_globals.get("__name__"))
        frame = frame.f_back
    if not any(str(name).startswith("glassformer") for name in names):
        raise PermissionError("nothing of the judge is here")

ESCAPES = {
    "ctypes": lambda: importlib.import_module("ctypes"),
    "_ctypes": lambda: importlib.import_module("_ctypes"),
    "ctypes from its file": lambda: load("_ctypes", "CTYPES"),
    "ctypes by another name": lambda: load("other._ctypes", "CTYPES"),
    "a compiled module": compiled_copy,
    "torch": lambda: importlib.import_module("torch"),
    "another package": lambda: importlib.import_module("rich"),
    "the library": lambda: importlib.import_module("glassformer.numpy_reference.attention"),
    "the reference": lambda: importlib.import_module("glassformer_course.exercises.softmax.check"),
    "the source of the reference": lambda: open("REFERENCE").read(),
    "the reference by its descriptor": lambda: os.open("REFERENCE", os.O_RDONLY),
    "another file": lambda: open("OUTSIDE").read(),
    "a link to another file": through_a_link,
    "a file of the system": lambda: open("/etc/passwd").read(),
    "its own memory": lambda: open("/proc/self/mem", "rb"),
    "its parent's memory": lambda: open(f"/proc/{os.getppid()}/mem", "rb"),
    "the environment of its parent": lambda: open(f"/proc/{os.getppid()}/environ").read(),
    "a command": lambda: subprocess.run(["true"]),
    "a shell": lambda: os.system("true"),
    "a process": os.fork,
    "a spawned process": lambda: os.posix_spawn("/bin/true", ["true"], {}),
    "another program": lambda: os.execv(sys.executable, ["python", "-c", "0"]),
    "a signal": lambda: os.kill(os.getppid(), 0),
    "a connection": lambda: socket.create_connection(("127.0.0.1", 9), timeout=1),
    "a socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
    "a pair of sockets": socket.socketpair,
    "a written file": lambda: Path("HERE/made").touch(),
    "an overwritten file": lambda: open("OUTSIDE", "w"),
    "a removed folder": lambda: shutil.rmtree("HERE"),
    "a renamed folder": lambda: os.rename("HERE", "HERE.old"),
    "other permissions": lambda: os.chmod("HERE", 0),
    "a higher limit": lambda: resource.setrlimit(resource.RLIMIT_CPU, (100, 100)),
    "the judge": judge,
    "no import hook": forget_the_hooks,
}

def softmax(x):
    escaped = []
    for name, escape in ESCAPES.items():
        try:
            escape()
        except (PermissionError, ImportError):
            continue
        except BaseException as error:
            name += f" ({error!r})"
        escaped.append(name)
    with open("own.txt", "w") as file:
        file.write("mine")
    os.rename("own.txt", "other.txt")
    thread = threading.Thread(target=os.remove, args=("other.txt",))
    thread.start()
    thread.join()
    raise ValueError(f"escaped: {escaped}; left: {os.listdir()}")
"""
KERNEL = r"""
import sys
sys.path.append(sys.argv[1])
import ctypes, importlib, os, socket, subprocess, threading
import numpy as np

libc = ctypes.CDLL(None, use_errno=True)

def call(number, *arguments):
    if libc.syscall(number, *arguments) == -1:
        raise OSError(ctypes.get_errno(), "")

NUMBERS = {"x86_64": (425, 101, 310, 319, 272, 434, 41), "aarch64": (425, 117, 270, 279, 97, 434, 198)}
io_uring_setup, ptrace, read_memory, memfd, unshare, pidfd_open, socket_call = NUMBERS[os.uname().machine]
ESCAPES = {
    "file": lambda: open("/etc/passwd").read(),
    "reference": lambda: open("REFERENCE").read(),
    "package": lambda: importlib.import_module("rich"),
    "memory": lambda: open("/proc/self/mem", "rb"),
    "memory of the parent": lambda: open(f"/proc/{os.getppid()}/mem", "rb"),
    "memory by a call": lambda: call(read_memory, os.getppid(), None, 0, None, 0, 0),
    "trace": lambda: call(ptrace, 16, os.getppid(), None, None),
    "environment": lambda: open(f"/proc/{os.getppid()}/environ").read(),
    "listing": lambda: os.listdir("/etc"),
    "write": lambda: open("OUTSIDE", "w"),
    "truncate": lambda: os.truncate("OUTSIDE", 0),
    "permissions": lambda: os.chmod("OUTSIDE", 0),
    "remove": lambda: os.remove("OUTSIDE"),
    "link": lambda: os.link("OUTSIDE", "link"),
    "socket": lambda: socket.socket(),
    "socket by number": lambda: call(socket_call, 2, 1, 0),
    "local socket": lambda: socket.socket(socket.AF_UNIX),
    "ring": lambda: call(io_uring_setup, 1, None),
    "memory file": lambda: call(memfd, b"a", 0),
    "namespace": lambda: call(unshare, 0x10000000),
    "other process": lambda: call(pidfd_open, os.getppid(), 0),
    "signal": lambda: os.kill(os.getppid(), 0),
    "fork": os.fork,
    "command": lambda: subprocess.run(["true"]),
    "program": lambda: os.execv("/bin/true", ["true"]),
}
escaped = []
for name, escape in ESCAPES.items():
    try:
        escape()
    except OSError:
        continue
    escaped.append(name)
done = []
thread = threading.Thread(target=lambda: done.append(np.random.default_rng(0).normal()))
thread.start()
thread.join()
open("own.txt", "w").write(str(np.linalg.svd(np.eye(3))[1].sum() + np.fft.fft(np.ones(2))[1].real))
print(escaped, libc.system(b"true") != 0, len(done), open("own.txt").read(), sep="|")
"""


def hooks_alone() -> GlassError:
    return GlassError("this system has no Landlock", "Use another.")


def confined() -> None:
    """Skip a test where the kernel or its libraries are missing."""
    missing = sandbox.missing_confinement()
    if missing is not None:
        pytest.skip(
            f"this system cannot confine: {missing.problem}" if "package" not in missing.problem else str(missing)
        )


def filled(source: str, here: Path) -> str:
    """Put paths into a source: of the reference, of a file outside the answer's folder, and of compiled modules."""
    outside = here / "outside.txt"
    outside.write_text("secret", encoding="utf-8")
    paths = {"REFERENCE": REFERENCE, "OUTSIDE": str(outside), "HERE": str(here)}
    for name, module in (("CTYPES", "_ctypes"), ("MATH", "math")):
        spec = find_spec(module)
        assert spec is not None
        paths[name] = str(spec.origin)
    for name, path in paths.items():
        source = source.replace(f'"{name}', f'"{path}')
    return source


@pytest.mark.thorough
@pytest.mark.parametrize("by_the_kernel", [True, False])
def test_no_escape_succeeds(by_the_kernel: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if by_the_kernel:
        confined()
    else:
        monkeypatch.setattr(sandbox, "missing_confinement", hooks_alone)
    words = check_source(SOFTMAX, filled(ESCAPES, tmp_path), seed=0).text()
    assert "raised ValueError: escaped: []; left: [" in words, words
    assert "txt" not in words.partition("left: ")[2]
    assert [path.name for path in tmp_path.iterdir()] == ["outside.txt"]
    assert (tmp_path / "outside.txt").read_text(encoding="utf-8") == "secret"


def test_the_kernel_refuses_what_code_without_the_hooks_tries(tmp_path: Path) -> None:
    """This program imports ctypes and has no audit hook, as after a corruption of Python's memory."""
    confined()
    program = tmp_path / "program.py"
    program.write_text(filled(KERNEL, tmp_path), encoding="utf-8")
    folder = tmp_path / "answer"
    folder.mkdir()
    packages = str(Path(np.__file__).parents[1])
    command = [sys.executable, "-I", "-S", str(program), packages, str(find_spec("_ctypes").origin)]  # type: ignore[union-attr]
    done = subprocess.run(
        [sys.executable, "-P", confine.__file__, str(folder), packages, *command],
        cwd=folder,
        env={"OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "[]|True|1|3.0", done.stdout + done.stderr
    assert (tmp_path / "outside.txt").read_text(encoding="utf-8") == "secret"


EVADING = """
import importlib, os

os.path.realpath = lambda path: os.getcwd()  # every file now seems to be in the answer's own folder

def softmax(x):
    read = []
    for path in ("/etc/passwd", "REFERENCE", "OUTSIDE", "CTYPES"):
        try:
            open(path, "rb").read()
        except PermissionError as error:
            assert error.errno, "refused by Python"
        else:
            read.append(path)
    raise ValueError(f"read: {read}")
"""


def test_the_kernel_stops_an_answer_that_deceives_the_hooks(tmp_path: Path) -> None:
    confined()
    words = check_source(SOFTMAX, filled(EVADING, tmp_path), seed=0).text()
    assert "raised ValueError: read: []" in words, words


def test_the_environment_of_the_judge_stays_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "secret")
    source = "import os\ndef softmax(x):\n    raise ValueError(sorted(os.environ))\n"
    words = check_source(SOFTMAX, source, seed=0).text()
    assert "'TMPDIR'" in words
    assert not any(name in words for name in ("API_KEY", "HOME", "PATH'"))


FORGED = {
    "deep": b'{"gave": ' + b"[" * 100_000 + b"]" * 100_000 + b', "changed": []}',
    "array of an impossible size": b'{"gave": {"array": ["<f8", [%d], ""]}, "changed": []}' % 10**30,
    "other types": b'{"raised": 1, "message": [], "line": "x"}',
    "not a list": b'{"ready": 5}',
}


@pytest.mark.parametrize("when", ["loaded", "called"])
@pytest.mark.parametrize("name", FORGED)
def test_forged_messages_stop_the_check_and_not_the_checker(name: str, when: str, tmp_path: Path) -> None:
    forge = (
        "import os\n"
        "def forge():\n"
        "    for place in range(3, 9):\n"
        "        try:\n"
        f"            os.write(place, {FORGED[name][:200]!r} + {FORGED[name][200:]!r} + b'\\n')\n"
        "        except OSError:\n"
        "            pass\n"
    )
    source = forge + (
        "forge()\ndef softmax(x):\n    return x\n" if when == "loaded" else "def softmax(x):\n    forge()\n"
    )
    verdict = check_source(SOFTMAX, source, seed=0)
    assert verdict.result in ("stopped", "broken"), verdict
    assert not verdict.passed


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("    import time\n    time.sleep(100)\n", "did not finish within 1 second"),
        (
            "    from threading import Event, Thread\n    while True:\n        Thread(target=Event().wait).start()\n",
            "did not finish|raised RuntimeError|needed more than|MemoryError",
        ),
        (
            "    from numpy.lib.stride_tricks import as_strided\n"
            "    return as_strided(x, shape=(1 << 40,), strides=(1 << 20,)).sum()\n",
            "killed by SIG|MemoryError",
        ),
    ],
)
def test_bombs_and_wild_pointers_stop_only_the_answer(body: str, words: str) -> None:
    verdict = check_source(SOFTMAX, f"def softmax(x):\n{body}", seed=0, seconds=1, megabytes=300)
    assert not verdict.passed
    assert any(word in verdict.text() for word in words.split("|")), verdict.text()


def test_a_sandbox_says_why_python_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "__file__", os.devnull + "/worker.py")
    verdict = check_source(SOFTMAX, SOFTMAX.solution, seed=0)
    assert verdict.result == "stopped"
    assert "Python did not start for the answer: " in verdict.text()
    assert "worker.py" in verdict.text()


@pytest.mark.parametrize(
    ("platform", "modules", "said"),
    [
        (
            "darwin",
            {},
            "glassformer confines answers only on Linux, not on darwin\nRun untrusted answers in a container",
        ),
        ("linux", {"landlockpy": None}, "the package landlockpy is not installed\npip install "),
        ("linux", {"pyseccomp": None}, "the package pyseccomp is not installed\npip install "),
    ],
)
def test_what_is_missing_for_confinement_is_named(
    platform: str, modules: dict[str, None], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    for name in modules:
        monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]
    sandbox.missing_confinement.cache_clear()
    try:
        assert str(sandbox.missing_confinement()).startswith(said)
    finally:
        monkeypatch.undo()
        sandbox.missing_confinement.cache_clear()
