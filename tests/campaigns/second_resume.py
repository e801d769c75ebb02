"""Resume a run while another process trains it: the second process must be refused and must change nothing.

One process trains and saves at every step. In each round a second `glass train --resume` on the same run is started at
a random moment. When the second process has ended, the first one is halted and the run folder is examined: the first
process must still train, `best` and `last` must name existing checkpoints, and the best checkpoint must be the one with
the lowest validation loss.

  python -m tests.campaigns.second_resume --rounds 300 --seed 7

Exit code: 0 if nothing went wrong and every second process failed with "another process is training", 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

from tests.campaigns.configurations import Configuration, write_texts
from tests.campaigns.processes import Process, load

TRAINING = Configuration(
    "second-resume",
    changes={
        "train": {"schedule": "constant", "steps": 1_000_000, "save_every": 1, "evaluate_every": 3},
        "sample": {"tokens": 2},
        "data": {"validation_fraction": 0.02},
    },
)
LONGEST = 0.06
"""Maximum pause between rounds in seconds: the time of a few saves."""
ROUNDS_A_RUN = 50
"""Number of rounds with the same run; then a new run begins, whose files are still small."""
TOLD = "another process is training"
COUNTS = ("first ended", "pointer names nothing", "best lost", "told")


class Trained:
    """A run that a first process trains; `mend` restarts the process if it has ended.

    Args:
        home: folder that contains the run.
        words: arguments of `glass` that start the run.
    """

    def __init__(self, home: Path, words: list[str]) -> None:
        self.home = home
        self.run = home / "run"
        self.words = words
        self.starts = 0
        home.mkdir(parents=True)
        self.first = self._start()

    def _start(self) -> Process:
        words = ["train", "--resume", "--out", "run"] if (self.run / "config.toml").exists() else self.words
        self.starts += 1
        process = Process(words, self.home, self.home / f"first-{self.starts}")
        before = self._step()
        deadline = time.monotonic() + 60
        while self._step() <= before + 1 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        return process

    def _named(self, which: str) -> str:
        """Return the checkpoint that `best` or `last` names, or an empty string if the pointer does not exist."""
        path = self.run / which
        return path.read_text(encoding="utf-8").split()[0] if path.exists() else ""

    def _step(self) -> int:
        """Return the step that `last` names, or 0 if the pointer does not exist."""
        return int(self._named("last").removeprefix("step-") or 0)

    def second(self) -> Process:
        """Resume the run in a second process, wait until the process ends, and return the process.

        If the first process has ended, the second one may train; it is then killed.
        """
        with mock.patch("tempfile.tempdir", str(self.home)):  # as on another machine: it sees only the run's own lock
            process = Process(["train", "--resume", "--out", "run"], self.home, self.home / "second")
        deadline = time.monotonic() + 60
        while process.wait(0.2) is None and self.first.poll() is None and time.monotonic() < deadline:
            pass
        process.send(signal.SIGKILL)
        process.wait()
        return process

    def examine(self) -> list[str]:
        """Halt the first process while examining the run folder, and return the names of problems, as in `COUNTS`."""
        found = [] if self.first.poll() is None else ["first ended"]
        if not found:
            os.kill(self.first.pid, signal.SIGSTOP)
            os.waitpid(self.first.pid, os.WUNTRACED)
        best = self._named("best")
        checkpoints = {path.name for path in (self.run / "checkpoints").iterdir()}
        if not {best, self._named("last")} <= checkpoints:
            found.append("pointer names nothing")
        if best not in self._best() or best not in checkpoints:
            found.append("best lost")
        if "first ended" not in found:
            os.kill(self.first.pid, signal.SIGCONT)
        return found

    def _best(self) -> list[str]:
        """Return the checkpoints that `best` may name now: a loss is logged before its checkpoint is complete."""
        content = (self.run / "metrics.jsonl").read_text(encoding="utf-8")
        lines = [json.loads(line) for line in content.splitlines(keepends=True) if line.endswith("\n")]
        measured = [(line["validation_loss"], line["step"]) for line in lines if "validation_loss" in line]
        return [f"step-{min(some)[1] if some else 0:06d}" for some in (measured, measured[:-1])]

    def mend(self) -> bool:
        """Restart the first process if it has ended; return whether it is running."""
        if self.first.poll() is not None:
            self.first = self._start()
        return self.first.poll() is None

    def end(self) -> None:
        """Kill the first process."""
        self.first.send(signal.SIGKILL)
        self.first.wait()


def campaign(folder: Path, rounds: int, seed: int) -> Counter[str]:
    """Run the rounds, and return the number of rounds with each of the outcomes in `COUNTS`."""
    texts = folder / "texts"
    write_texts(texts)
    words = TRAINING.arguments(texts)
    draw = random.Random(seed)
    counts = Counter[str]()
    trained: Trained | None = None
    for number in range(rounds):
        if trained is None or number % ROUNDS_A_RUN == 0:
            if trained is not None:
                trained.end()
            trained = Trained(folder / f"run-{number}", words)
        time.sleep(draw.random() * LONGEST)
        second = trained.second()
        told = TOLD in second.complaint() and second.code == 2
        problems = trained.examine()
        counts.update(problems, told=told)
        for problem in problems if told else [*problems, "not told"]:
            print(f"round {number}: {problem}", file=sys.stderr)
            for name, process in (("first", trained.first), ("second", second)):
                said = " / ".join(process.last_words())
                print(f"    {name} (exit {process.code}): {said}", file=sys.stderr)
        if not trained.mend():  # nothing is left to resume
            trained.end()
            trained = None
    if trained is not None:
        trained.end()
    return counts


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(
        prog="python -m tests.campaigns.second_resume",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("--rounds", type=int, default=20, metavar="N", help="second processes (default: 20)")
    found.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the moments (default: 0)")
    found.add_argument("--json", type=Path, metavar="FILE", help="write the counts to this file")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign, print its counts, and return 1 if anything went wrong, 0 otherwise."""
    given = parser().parse_args(arguments)
    load()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="glass-second-", ignore_cleanup_errors=True) as temporary:
        counts = campaign(Path(temporary).resolve(), given.rounds, given.seed)
    facts = {"rounds": given.rounds, **{name: counts[name] for name in COUNTS}}
    print("\n".join(f"{name:<24} {number:>6}" for name, number in facts.items()))
    print(f"{time.monotonic() - began:.0f} s")
    if given.json is not None:
        given.json.write_text(json.dumps({"seed": given.seed, **facts}, indent=1) + "\n", encoding="utf-8")
    wrong = any(counts[name] for name in COUNTS[:-1])
    return 1 if wrong or counts["told"] != given.rounds else 0


if __name__ == "__main__":
    sys.exit(main())
