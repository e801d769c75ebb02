"""Stop training at random and resume it until it ends: the result must equal that of an uninterrupted run bit for bit.

For each configuration, an uninterrupted run is trained first. Each round starts the same run again, stops it up to
three times (by SIGKILL, SIGTERM or SIGINT; at a random moment, before a random file operation, or before the first
evaluation), resumes it until it ends, and compares the two folders: weights, optimizer state, metrics, samples, state,
pointers. Times are ignored; of the run's manifest, only the text hash and the tokenizers are compared.

  python -m tests.campaigns.kills --rounds 500 --seed 7
  python -m tests.campaigns.kills --rounds 20 --only lm-plateau-dropout,translate-plateau-muon
  python -m tests.campaigns.kills --stops "SIGTERM before the first evaluation" --rounds 16

A round depends only on its configuration, kind of stop and seed; round N of seed S, counted from 0, has the seed S + N.
For each round that differs, the command that repeats it is printed. A stop before a file operation is reproducible; a
stop at a random moment depends on the speed of the machine.

Exit code: 0 if no round differs, 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.campaigns.comparing import differences
from tests.campaigns.configurations import CONFIGURATIONS, Configuration, write_texts
from tests.campaigns.processes import Process, load
from tests.campaigns.stopping import Stop

RANDOM_MOMENT = "at a random moment"
ANY_OPERATION = "before a file operation"
EARLY = "before the first evaluation"
STOPS = tuple(
    f"{name} {when}" for when in (ANY_OPERATION, EARLY, RANDOM_MOMENT) for name in ("SIGKILL", "SIGTERM", "SIGINT")
)
REPORTED = ("step", "loss", "perplexity", "bits_per_byte", "steps_done", "stopped_because")
"""Fields of the last command's JSON output that must equal those of the uninterrupted run."""


@dataclass(frozen=True)
class Straight:
    """An uninterrupted run.

    Attributes:
        home: folder that contains the run as `run`.
        seconds: duration of the command.
        operations: file operations of each process, in order.
        report: JSON output of the command.
    """

    home: Path
    seconds: float
    operations: list[list[str]]
    report: dict[str, object]


@dataclass
class Round:
    """Result of one round.

    Attributes:
        seed: seed with which the round can be repeated.
        configuration, stop: names of the configuration and of the kind of stop.
        stopped: descriptions of where each process was stopped; processes that ended earlier are left out.
        found: differences from the uninterrupted run, and other problems.
    """

    seed: int
    configuration: str
    stop: str
    stopped: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)


class Campaign:
    """Rounds in one folder; the uninterrupted run of a configuration is trained when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.texts = folder / "texts"
        self._straight: dict[str, Straight] = {}
        write_texts(self.texts)

    def straight(self, configuration: Configuration) -> Straight:
        """Return the uninterrupted run of a configuration."""
        if configuration.name not in self._straight:
            home = self.folder / configuration.name
            home.mkdir()
            log = self.folder / f"{configuration.name}.log"
            stop = Stop(str(home), f"{log}.operations")
            began = time.monotonic()
            words = configuration.arguments(self.texts)
            process = Process(words, home, log, stop, configuration.several)
            if process.wait() != 0:
                process.send(signal.SIGKILL)
                raise SystemExit(f"{configuration.name} does not train: {process.code}\n{process.complaint()}")
            seconds = time.monotonic() - began
            operations = [_operations(log, rank) for rank in range(1 + configuration.several)]
            report = json.loads(process.said())
            self._straight[configuration.name] = Straight(home, seconds, operations, report)
        return self._straight[configuration.name]

    def round(self, configuration: Configuration, stop: str, seed: int) -> Round:
        """Stop and resume a run until it ends, and compare it with the uninterrupted run.

        The run is stopped up to three times.
        """
        straight = self.straight(configuration)
        draw = random.Random(seed)
        done = Round(seed, configuration.name, stop)
        place = self.folder / f"round-{seed}"
        home = place / "home"
        home.mkdir(parents=True)
        stops = 1 + (draw.random() < 0.5) + (draw.random() < 0.25)
        for leg in range(stops + 1):
            log = place / f"leg-{leg}"
            plan = _plan(stop, leg, straight, draw, home, log) if leg < stops else None
            begun = (home / "run" / "config.toml").exists()
            words = ["train", "--resume", "--out", "run", "--json"] if begun else configuration.arguments(self.texts)
            process = Process(words, home, log, plan.stop if plan else None, configuration.several)
            if plan is not None and plan.moment is not None and process.wait(plan.moment) is None:
                process.send(plan.signal)
            if process.wait() is None:
                process.send(signal.SIGKILL)
                done.found.append(f"leg {leg} did not end")
            if process.code == 0:
                done.found += _compare(process, straight, home)
                break
            if plan is None or not plan.explains(process.code, log, configuration.several):
                said = " / ".join(process.last_words())
                done.found.append(f"leg {leg} ({' '.join(words[:2])}) ended with {process.code}: {said}")
                break
            done.stopped.append(plan.where(log, process.code))
        if not done.found:
            shutil.rmtree(place)
        return done


@dataclass(frozen=True)
class Plan:
    """When and how to stop one process.

    Attributes:
        signal: number of the signal.
        stop: file operation before which to stop; None to stop at a moment.
        moment: seconds after the start; None to stop before a file operation.
    """

    signal: int
    stop: Stop | None = None
    moment: float | None = None

    def explains(self, code: int | None, log: Path, several: bool) -> bool:
        """Return whether the stop explains an exit code: killed by the signal, or 130 after handling the signal.

        With two processes, any exit code is accepted once the stop was reached, or if it was planned for a moment,
        because torchrun ends the other process.
        """
        if several:
            return self.stop is None or len(_operations(log, self.stop.rank)) >= (self.stop.before or 0)
        return code == -self.signal or (code == 130 and self.signal != signal.SIGKILL)

    def where(self, log: Path, code: int | None) -> str:
        """Describe where the process stopped."""
        if self.stop is None:
            return f"after {self.moment:.3f} s (exit {code})"
        number = self.stop.before or 0
        operations = _operations(log, self.stop.rank)
        return f"before operation {number}, {operations[number - 1]} (exit {code})"


def _operations(log: Path, rank: int) -> list[str]:
    """Return the file operations that a process logged; `rank` selects one of several processes."""
    own = Path(f"{log}.operations.{rank}")
    path = own if own.exists() else Path(f"{log}.operations")
    return path.read_text(encoding="utf-8").splitlines()


def _plan(stop: str, leg: int, straight: Straight, draw: random.Random, home: Path, log: Path) -> Plan:
    """Choose how to stop process number `leg` of a round."""
    name, _, when = stop.partition(" ")
    number = int(signal.Signals[name])
    if when == RANDOM_MOMENT:
        return Plan(number, moment=draw.random() * straight.seconds)
    sizes = [len(operations) for operations in straight.operations]
    rank = draw.choices(range(len(sizes)), sizes)[0] if when == ANY_OPERATION else 0
    operations = straight.operations[rank]
    first = 1
    last = len(operations)
    if when == EARLY:
        last = 1 + next(place for place, each in enumerate(operations) if each == "open run/samples.txt")
        if number != signal.SIGKILL:  # signals are handled from the first step on
            first = 1 + next(place for place, each in enumerate(operations) if each == "open run/lock")
    if leg > 0:  # a resumed run has fewer operations
        first = 1
        last = 20 if when == EARLY else max(1, len(operations) // 2)
    before = draw.randint(first, last)
    return Plan(number, Stop(str(home), f"{log}.operations", before, number, rank))


def _compare(process: Process, straight: Straight, home: Path) -> list[str]:
    """Return the differences between a finished run and the uninterrupted one, in their folders and reports."""
    report = json.loads(process.said())
    told = [
        f"it reports {name} = {report[name]}, not {straight.report[name]}"
        for name in REPORTED
        if report[name] != straight.report[name]
    ]
    return [*differences(straight.home / "run", home / "run"), *told]


def run(campaign: Campaign, chosen: Sequence[Configuration], stops: Sequence[str], seeds: range) -> list[Round]:
    """Run a round for each seed, and cycle through the configurations and the kinds of stop."""
    rounds: list[Round] = []
    for seed in seeds:
        configuration = chosen[seed % len(chosen)]
        stop = stops[(seed % len(chosen) + seed // len(chosen)) % len(stops)]
        rounds.append(campaign.round(configuration, stop, seed))
        for problem in rounds[-1].found:
            print(f"seed {seed}: {configuration.name}, {stop}: {problem}", file=sys.stderr)
            print(f"    stopped {'; '.join(rounds[-1].stopped) or 'nowhere'}", file=sys.stderr)
        if sys.stderr.isatty():
            print(f"\r{len(rounds)} of {len(seeds)} rounds", end="", file=sys.stderr)
    return rounds


def table(rounds: Sequence[Round]) -> str:
    """Return a table that counts rounds, stopped processes and differing rounds by configuration and kind of stop."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for each in rounds:
        count = counts.setdefault((each.configuration, each.stop), Counter())
        count.update(rounds=1, stopped=len(each.stopped), differing=bool(each.found))
    lines = [f"{'configuration':<28} {'stop':<36} {'rounds':>6} {'stops':>6} {'differ':>6}"]
    for (configuration, stop), count in sorted(counts.items()):
        numbers = " ".join(f"{count[name]:>6}" for name in ("rounds", "stopped", "differing"))
        lines.append(f"{configuration:<28} {stop:<36} {numbers}")
    total = Counter[str]()
    for count in counts.values():
        total.update(count)
    numbers = " ".join(f"{total[name]:>6}" for name in ("rounds", "stopped", "differing"))
    return "\n".join([*lines, f"{'all':<28} {'':<36} {numbers}"])


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    names = ", ".join(each.name for each in CONFIGURATIONS)
    found = argparse.ArgumentParser(
        prog="python -m tests.campaigns.kills",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("--rounds", type=int, default=16, metavar="N", help="how many rounds (default: 16)")
    found.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the first round (default: 0)")
    found.add_argument("--only", metavar="NAMES", help=f"configurations, with commas between: {names}")
    found.add_argument("--stops", metavar="KINDS", help=f"kinds of stop, with commas between: {', '.join(STOPS)}")
    found.add_argument("--json", type=Path, metavar="FILE", help="write every round to this file")
    found.add_argument("--keep", type=Path, metavar="FOLDER", help="work here, and keep the rounds that differ")
    return found


def chosen_of(given: str | None, known: Sequence[str], option: str) -> list[str]:
    """Return the names given for an option, or all known names if none are given; exit if a name is unknown."""
    names = given.split(",") if given else list(known)
    for name in names:
        if name not in known:
            raise SystemExit(f"{option} {name!r} is unknown\nChoose from: {', '.join(known)}")
    return names


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign, print its table, and return 1 if a round differed, 0 otherwise."""
    given = parser().parse_args(arguments)
    by_name = {each.name: each for each in CONFIGURATIONS}
    chosen = [by_name[name] for name in chosen_of(given.only, list(by_name), "--only")]
    stops = chosen_of(given.stops, STOPS, "--stops")
    load()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="glass-kills-", ignore_cleanup_errors=True) as temporary:
        folder = given.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        rounds = run(Campaign(folder.resolve()), chosen, stops, range(given.seed, given.seed + given.rounds))
    print(table(rounds))
    differing = [each for each in rounds if each.found]
    print(f"{len(differing)} of {len(rounds)} rounds differ; {time.monotonic() - began:.0f} s")
    if given.json is not None:
        facts = {"seed": given.seed, "rounds": [asdict(each) for each in rounds], "differing": len(differing)}
        given.json.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    for each in differing:
        named = f'--only {each.configuration} --stops "{each.stop}"'
        print(f"repeat: python -m tests.campaigns.kills --rounds 1 --seed {each.seed} {named}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
