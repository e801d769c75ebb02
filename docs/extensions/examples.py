"""Run the examples for the pages of commands, in order, each once as people type it and once with `--json`.

`python docs/extensions/examples.py FILE STATE` runs them all and writes their output to FILE; the book does this in a
separate process. A later build uses the file again until the list of examples changes (STATE is its hash) or the file
is deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

LIST = Path(__file__).with_name("examples.toml")
"""The list of examples."""


@dataclass(frozen=True)
class Example:
    """A command and its output.

    Attributes:
        command: the command line.
        output: its standard output.
        json: its output with `--json`.
    """

    command: str
    output: str
    json: Any


def run_all(kept: Path) -> dict[str, list[Example]]:
    """Return the examples by command, from the file `kept` if it was made from the current list; otherwise run them."""
    state = hashlib.sha256(LIST.read_bytes()).hexdigest()
    if not kept.exists() or json.loads(kept.read_text(encoding="utf-8"))["state"] != state:
        kept.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "118"}
        subprocess.run([sys.executable, __file__, str(kept), state], env=environment, check=True)
    found: dict[str, list[Example]] = {}
    for fields in json.loads(kept.read_text(encoding="utf-8"))["examples"]:
        found.setdefault(fields["command"].split()[1], []).append(Example(**fields))
    return found


def run(command: str, folder: Path, *more: str) -> str:
    """Run a `glass` command in a folder and return its standard output.

    Args:
        command: the command line.
        folder: the working folder.
        more: additional arguments.

    Raises:
        SystemExit: the command failed; this ends the build.
    """
    from glassformer.app.cli.main import main

    out = io.StringIO()
    err = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*shlex.split(command)[1:], *more])
    if code:
        raise SystemExit(f"{command} ended with {code}\n{out.getvalue()}\n{err.getvalue()}")
    return out.getvalue()


def main(kept: Path, state: str) -> None:
    """Run all examples in two new folders, without `--json` in one and with it in the other, and write their output.

    Args:
        kept: the file to write.
        state: hash of the list of examples.
    """
    chosen = tomllib.loads(LIST.read_text(encoding="utf-8"))
    done = []
    with tempfile.TemporaryDirectory() as folder:
        people = Path(folder, "people")
        programs = Path(folder, "programs")
        people.mkdir()
        for command in chosen["prepare"]:
            timed(command, people)
        shutil.copytree(people, programs)
        for command in chosen["shown"]:
            output = timed(command, people).replace(str(people), "…")
            done.append(asdict(Example(command, output, json.loads(timed(command, programs, "--json")))))
    beside = kept.with_suffix(f".{os.getpid()}")
    beside.write_text(json.dumps({"state": state, "examples": done}, ensure_ascii=False), encoding="utf-8")
    beside.replace(kept)


def timed(command: str, folder: Path, *more: str) -> str:
    """Run a command, print its duration on standard error, and return its output."""
    begun = time.monotonic()
    output = run(command, folder, *more)
    print(f"{time.monotonic() - begun:6.1f} s  {' '.join([command, *more])}", file=sys.stderr)
    return output


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
