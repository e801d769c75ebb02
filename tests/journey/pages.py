"""Read the code blocks of Markdown pages, and run them in a shell or in this process."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.journey.commands import begin, ended, environment, here, start
from tests.journey.commands import glass as run_glass

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block: the word after its opening fence, and its lines."""

    kind: str
    code: str


def blocks(page: Path, kind: str | None = None) -> list[Block]:
    """Return the fenced blocks of a page in order, of one kind or all."""
    found = [Block(*groups) for groups in FENCE.findall(page.read_text(encoding="utf-8"))]
    return [block for block in found if kind is None or block.kind == kind]


def lines_of(block: Block) -> list[str]:
    """Return the commands of a block: its lines that are not empty."""
    return [line for line in block.code.splitlines() if line.strip()]


def add_programs(folder: Path) -> None:
    """Create `programs/glass` in a folder, so that shells find `glass` even if it is not installed."""
    programs = folder / "programs"
    programs.mkdir()
    if os.name == "nt":
        (programs / "glass.bat").write_text(f'@"{sys.executable}" -m glassformer %*\n', encoding="utf-8")
    else:
        script = programs / "glass"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m glassformer "$@"\n', encoding="utf-8")
        script.chmod(0o755)


def shell(command: str, folder: Path) -> str:
    """Run a command that must succeed in a shell that finds `programs/glass`, and return its standard output."""
    path = os.pathsep.join([str(folder / "programs"), os.environ["PATH"]])
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env={**environment(), "PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def quick_shell(command: str, folder: Path) -> str:
    """Run one `glass` command as `shell` does, but in a process that has PyTorch loaded already.

    A shell parses the line and calls a `glass` that only prints its arguments; these arguments are then used, so quotes
    have the same effect as in a shell.
    """
    assert command.startswith("glass ")
    assert not set(command) & set("<>|&;"), f"only a shell can do this: {command}"
    if os.name == "nt":
        return shell(command, folder)
    writer = folder / "words" / "glass"
    writer.parent.mkdir(exist_ok=True)
    writer.write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n", encoding="utf-8")
    writer.chmod(0o755)
    path = os.pathsep.join([str(writer.parent), os.environ["PATH"]])
    read = subprocess.run(["sh", "-c", command], cwd=folder, env={**environment(), "PATH": path}, capture_output=True)
    assert read.returncode == 0, read.stderr
    done = run_glass(*read.stdout.decode("utf-8").split("\0")[:-1], folder=folder)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def python(code: str, folder: Path) -> str:
    """Run Python code in a separate process that must exit with code 0, and return its standard output."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def quick(command: str, folder: Path, settings: tuple[str, ...] = ()) -> str:
    """Run a `glass` command in this process, which saves the time to start a new one.

    `< FILE` at the end of the command names the file that is read as standard input. `settings` come before the
    command's own options, which take precedence. The command must succeed; its standard output and its messages are
    returned.
    """
    command, _, source = command.partition(" < ")
    glass, name, *words = shlex.split(command)
    assert glass == "glass", command
    text = (folder / source.strip()).read_text(encoding="utf-8") if source else ""
    done = here(name, *settings, *words, folder=folder, text=text)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def served(command: str, folder: Path, settings: tuple[str, ...] = ()) -> str:
    """Run a `glass serve` command in a separate process, on a free port, and stop it with SIGTERM when it is ready."""
    glass, *words = shlex.split(command)
    assert glass == "glass", command
    process = start(*words, "--port", "0", "--no-open", folder=folder)
    assert process.stdout is not None
    first = process.stdout.readline()
    process.terminate()
    done = ended(process)
    assert done.returncode == 0, f"{command}\n{first}{done.stdout}\n{done.stderr}"
    return first + done.stdout + done.stderr


def with_torchrun(command: str, folder: Path, settings: tuple[str, ...] = ()) -> str:
    """Run a `torchrun … -m glassformer NAME …` command in separate processes; `settings` are used as in `quick`."""
    torchrun, *words = shlex.split(command)
    assert torchrun == "torchrun", command
    at = words.index("glassformer") + 2
    done = ended(begin("-m", "torch.distributed.run", *words[:at], *settings, *words[at:], folder=folder))
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def quick_python(code: str, folder: Path) -> str:
    """Run Python code in this process, in a new namespace, and return its standard output."""
    out = io.StringIO()
    names = dict[str, Any](__name__="__page__")
    with contextlib.chdir(folder), contextlib.redirect_stdout(out):
        exec(compile(code, "the page", "exec"), names)
    return out.getvalue()
