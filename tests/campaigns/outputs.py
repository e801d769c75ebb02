"""Run two commands with one output at almost the same moment: the output must be the whole result of one of them.

Each round chooses two commands that can write to one path, and starts the second one at a random moment after the
first. Each command must succeed, or be refused with two lines that name the output. The output must equal what one
successful command writes alone. Files of the user with similar names,
such as `out.partial`, must be unchanged, and no other file may be left.

  python -m tests.campaigns.outputs --rounds 300 --seed 7
  python -m tests.campaigns.outputs --rounds 20 --only export-a,import-b

Round N of seed S, counted from 0, has the seed S + N. Exit code: 0 if no round is wrong, 1 otherwise.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.campaigns.comparing import facts
from tests.campaigns.kills import chosen_of
from tests.campaigns.processes import Process, load
from tests.journey.task_files import write_all
from tests.journey.task_runs import TINY

OUT = "OUT"
"""Stands for the path of the output in the arguments of a command."""
SHORT = [*TINY, "--tokenizer.kind=bpe", "--tokenizer.vocab_size=300", "--steps=6", "--train.save_every=2"]
COMMANDS: Mapping[str, tuple[tuple[str, ...], list[str]]] = {
    "export-a": (("", ".html", ".png"), ["export", "a", "--to", "hf", "--out", OUT]),
    "export-b": (("", ".csv"), ["export", "b", "--to", "hf", "--out", OUT]),
    "gguf-a": (("", ".gguf"), ["export", "a", "--to", "gguf", "--out", OUT]),
    "gguf-b": ((".gguf",), ["export", "b", "--to", "gguf", "--out", OUT]),
    "import-a": (("", ".html"), ["import", "hf-a", "--out", OUT]),
    "import-b": (("", ".gguf"), ["import", "hf-b", "--out", OUT]),
    "prune-a": (("", ".png"), ["prune", "a", "--heads", "1", "--tokens", "200", "--out", OUT]),
    "prune-b": (("",), ["prune", "b", "--heads", "1", "--tokens", "200", "--out", OUT]),
    "train": (("", ".csv"), ["train", "book.txt", *SHORT, "--out", OUT]),
    "compare": (
        ("",),
        ["compare", "book.txt", *SHORT, "--vary=model.positions=none,rotary", "--seeds=1", "--out", OUT],
    ),
    "encode": (("", ".py"), ["data", "encode", "book.txt", "--tokenizer.kind=words", "--out", OUT]),
    "encode-jobs": (
        ("",),
        ["data", "encode", "book.txt", "--tokenizer.kind=characters", "--engine", "datatrove", "--out", OUT],
    ),
    "assign": (("", ".html"), ["learn", "assign", "1-2", "--out", OUT]),
    "share-a": ((".html",), ["share", "a", "--out", OUT]),
    "share-b": ((".html",), ["share", "b", "--bits", "16", "--out", OUT]),
    "explain": ((".html",), ["explain", "--html", OUT]),
    "history": ((".html", ".png"), ["heads", "a", "--history", "--out", OUT]),
    "look": ((".png",), ["look", "a", "It was a young day", "--out", OUT]),
    "heads": ((".png",), ["heads", "b", "--plot", OUT]),
    "curve": ((".png",), ["prune", "b", "--curve", "--random-orders", "1", "--tokens", "100", "--plot", OUT]),
    "lens": ((".png",), ["attribute", "a", "It was a young day", "--view", "lens", "--plot", OUT]),
    "grade": ((".csv",), ["learn", "grade", "class", "--assignment", "week", "--out", OUT]),
    "receipt": ((".py",), ["receipt", "a", "It was", "--snippet", OUT]),
}
"""Name of each command -> suffixes of outputs that it can write, and its arguments."""
REFUSED = re.compile(
    r"another glass command is writing|already exists and is not overwritten|already exists$|already contains a run"
    r"|is not empty: it contains|is a folder$|is a file, not a folder|exists and is not a page|another process is"
)
"""First line of an error that says why a command must not write its output."""
LOADED = (
    "filelock",
    "matplotlib.figure",
    "matplotlib.backends.backend_svg",
    "transformers.models.gpt2.modeling_gpt2",
    "transformers.models.llama.modeling_llama",
    "gguf",
    "glassformer.interop.huggingface.importing",
    "glassformer.interop.huggingface.export",
    "glassformer.interop.gguf.export",
    "glassformer.inspection.pruning.prune",
    "glassformer.inspection.plots",
    "glassformer.inspection.attribution",
    "glassformer.experiments.runner",
    "glassformer.app.share.share",
    "glassformer_course.commands.learn",
)
"""Modules to load once, before the first command."""
MINE = (".partial", ".old", ".encoding", ".tmp", ".lock")
"""Suffixes of files of the user beside the output."""


@dataclass(frozen=True)
class Ended:
    """A command that has ended.

    Attributes:
        name: name of the command.
        code: exit code; None if it did not end.
        said: last two lines of standard error.
    """

    name: str
    code: int | None
    said: Sequence[str]


@dataclass
class Round:
    """Result of one round: its seed, the names of the commands, and what was wrong."""

    seed: int
    names: tuple[str, str]
    outcome: str = ""
    found: list[str] = field(default_factory=list)


def judge(both: Sequence[Ended], out: str, written: Any, alone: Mapping[str, Any]) -> list[str]:
    """Return what is wrong after two commands with the output `out` have ended.

    Args:
        both: the commands.
        out: name of the output.
        written: contents of the output, as `contents` returns them.
        alone: name of a command -> contents of its output if it runs alone.
    """
    wrong = []
    for each in both:
        refused = each.code == 2 and len(each.said) == 2 and REFUSED.search(each.said[0]) and out in each.said[0]
        if each.code != 0 and not refused:
            wrong.append(f"{each.name} ended with {each.code}: {' / '.join(each.said)}")
    done = [each.name for each in both if each.code == 0]
    if not done:
        wrong.append("no command succeeded")
    elif written not in [alone[name] for name in done]:
        others = [name for name in alone if written == alone[name]]
        wrong.append(f"the output is not that of {' or '.join(done)}, but of {others or 'no command'}")
    return wrong


def contents(path: Path) -> Any:
    """Return the contents of a file or folder to compare, without times and without the name of the output."""
    if path.is_file():
        return _without_dates(path.read_bytes(), path)
    if not path.is_dir():
        return None
    found = facts(path)
    for file in path.rglob("*"):
        name = file.relative_to(path).as_posix()
        if name in found and isinstance(found[name], str) and file.suffix in (".html", ".json", ".md", ".svg", ".toml"):
            found[name] = _without_dates(file.read_bytes(), path)
    return {name: value for name, value in found.items() if not UNSTABLE.search(name)}


UNSTABLE = re.compile(
    r"worker\.log$|^runs/[^/]+/manifest|loss\.svg$|^results/|^report\.|plan\.json$|/metrics\.jsonl$|state\.json$"
)
"""Files whose contents depend on times."""


def _without_dates(data: bytes, path: Path) -> bytes:
    name = re.escape(path.name.encode())
    data = re.sub(rb'[^"\s]*/' + name + rb"(?![A-Za-z])|\b" + name + rb"(?![A-Za-z])", b"OUT", data)
    if path.suffix == ".csv":
        data = re.sub(rb",\d+\.\d+,", b",SECONDS,", data)
    return re.sub(rb"\d{4}-\d\d-\d\d(T[\d:.+]+)?", b"DATE", data)


class Campaign:
    """Rounds in one folder, which has the runs and files that the commands read."""

    def __init__(self, folder: Path) -> None:
        self.home = folder
        self.alone: dict[str, Any] = {}
        self.seconds: dict[str, float] = {}
        write_all(folder)
        for name, seed in (("a", "1"), ("b", "2")):
            words = ["train", "book.txt", *SHORT, "--train.snapshots=3", "--seed", seed, "--out", name]
            self._must(words)
            self._must(["export", name, "--to", "hf", "--out", f"hf-{name}"])
        self._must(["learn", "assign", "1-2", "--out", "week"])
        shutil.copytree(folder / "week", folder / "class" / "student")

    def _must(self, words: list[str]) -> None:
        process = Process(words, self.home, self.home / "made.log")
        if process.wait() != 0:
            raise SystemExit(f"glass {' '.join(words)} failed\n{process.complaint()}")

    def run_alone(self, name: str, suffix: str) -> None:
        """Run a command alone, and keep the contents of its output."""
        folder = self.home / f"alone-{name}{suffix}"
        folder.mkdir()
        began = time.monotonic()
        self._must(self._words(name, folder / f"out{suffix}"))
        self.seconds[name] = time.monotonic() - began
        self.alone[f"{name}{suffix}"] = contents(folder / f"out{suffix}")

    def _words(self, name: str, out: Path) -> list[str]:
        path = str(out.relative_to(self.home))
        return [path if word == OUT else word for word in COMMANDS[name][1]]

    def round(self, names: Sequence[str], seed: int) -> Round:
        """Run two commands at almost the same moment, and judge the outcome."""
        draw = random.Random(seed)
        first = draw.choice(names)
        suffix = draw.choice(COMMANDS[first][0])
        second = draw.choice([name for name in names if suffix in COMMANDS[name][0]])
        done = Round(seed, (first, second))
        for name in done.names:
            if f"{name}{suffix}" not in self.alone:
                self.run_alone(name, suffix)
        folder = self.home / f"round-{seed}"
        folder.mkdir()
        out = folder / f"out{suffix}"
        mine = {f"out{suffix}{more}" for more in MINE} | {f".out{suffix}.partial"}
        if "encode-jobs" in done.names:
            mine.remove(f"out{suffix}.encoding")
        for name in mine:
            (folder / name).mkdir()
            (folder / name / "mine.txt").write_text("mine", encoding="utf-8")
        linked = folder / "link"
        linked.symlink_to(folder)
        both = [Process(self._words(first, out), self.home, self.home / f"round-{seed}.first")]
        time.sleep(draw.random() * self.seconds[first] * draw.choice((0.05, 1)))
        path = linked / out.name if draw.random() < 0.3 else out
        both.append(Process(self._words(second, path), self.home, self.home / f"round-{seed}.second"))
        for process in both:
            process.wait()
        ended = [
            Ended(name, process.code, process.last_words()) for name, process in zip(done.names, both, strict=True)
        ]
        for process in both:
            with suppress(ProcessLookupError):
                process.send(signal.SIGKILL)
        alone = {name: self.alone[f"{name}{suffix}"] for name in done.names}
        done.outcome = " ".join("refused" if each.code else "done" for each in ended)
        done.found = judge(ended, out.name, contents(out), alone)
        left = {path.name for path in folder.iterdir()} - {out.name, "link", *mine}
        done.found += [f"{name} is left" for name in sorted(left - {".tokens"})]
        done.found += [f"{name} was changed" for name in mine if not (folder / name / "mine.txt").is_file()]
        if not done.found:
            shutil.rmtree(folder)
        return done


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(
        prog="python -m tests.campaigns.outputs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("--rounds", type=int, default=20, metavar="N", help="how many rounds (default: 20)")
    found.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the first round (default: 0)")
    found.add_argument("--only", metavar="NAMES", help=f"commands, with commas between: {', '.join(COMMANDS)}")
    found.add_argument("--json", type=Path, metavar="FILE", help="write every round to this file")
    found.add_argument("--keep", type=Path, metavar="FOLDER", help="work here, and keep the rounds that are wrong")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign, print its counts, and return 1 if a round was wrong, 0 otherwise."""
    given = parser().parse_args(arguments)
    names = chosen_of(given.only, list(COMMANDS), "--only")
    load()
    for name in LOADED:
        importlib.import_module(name)
    gc.freeze()
    began = time.monotonic()
    rounds: list[Round] = []
    with tempfile.TemporaryDirectory(prefix="glass-outputs-", ignore_cleanup_errors=True) as temporary:
        folder = given.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        campaign = Campaign(folder.resolve())
        for seed in range(given.seed, given.seed + given.rounds):
            rounds.append(campaign.round(names, seed))
            for problem in rounds[-1].found:
                print(f"seed {seed}: {' and '.join(rounds[-1].names)}: {problem}", file=sys.stderr, flush=True)
    for outcome, number in Counter(each.outcome for each in rounds).most_common():
        print(f"{outcome:<20} {number:>5}")
    wrong = [each for each in rounds if each.found]
    print(f"{len(wrong)} of {len(rounds)} rounds are wrong; {time.monotonic() - began:.0f} s")
    if given.json is not None:
        given.json.write_text(json.dumps([vars(each) for each in rounds], indent=1) + "\n", encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
