"""Break the code at random, once in each package or module, and list the tests of two revisions that notice the change.

The campaign compares the tests of an old revision (`--before`) with those of a new one (`--now`). It works on copies of
both source trees in a temporary folder, never on the checkout. The code is divided into rooms: a room is a package or a
module directly under `src/glassformer`; the whole course, `src/glassformer_course`, is one room.

  python -m tests.campaigns.faults --before 9042ce6 --seed 0 --out tests/campaigns/faults.md
  python -m tests.campaigns.faults --before 9042ce6 --rooms tokenizers,reference

For each room:

1. Take the files of the room in random order (in `recipes`: the TOML files).
2. Find the tests that reach the file: in the old tree, run the three test modules nearest to it by imports, at most
   three cases of each test function, and record the lines of the file that each passing test executes (for a TOML file:
   the tests that open it). If no fault of any file of the room is noticed, continue with the next three test modules,
   up to twelve.
3. Change one executed line at random; the line must occur exactly once in the file in both trees. Possible changes:
   flip a comparison, negate a condition, drop a `not`, swap `and` and `or`, change an operator, add 1 to a constant,
   remove a call, return early; in a TOML file, change a number.
4. Make the change in each tree in turn, and run the tests that reach the line, quick ones first, until one fails. In
   the new tree, run the tests of the same names. If none of them notices a fault that the old tests noticed, run all
   tests of the test modules nearest to the file in the new tree. A test that also fails without the fault does not
   count.
5. If no old test notices the fault, list it and try the next one. (If no new test notices it either, the change has no
   effect or the tests have a gap.)

The same seed makes the same faults for the same revisions. A test run that exceeds the time limit is ended; tests that
it did not reach count as not noticing the fault.

Exit code: 0 if every room has a fault that is noticed in both trees; 1 if a fault is noticed in the old tree but not in
the new one, or if a room has no fault that is noticed in both; 2 for bad arguments.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.campaigns import line_recorder
from tests.campaigns.mutations import Fault, faults_of
from tests.campaigns.reaching import ImportGraph

PACKAGE = Path("src/glassformer")
COURSE = Path("src/glassformer_course")
CHECKOUT = Path(__file__).parents[2]
NEAREST = 3
"""Number of test modules that are run at once to find the tests that reach a file."""
FURTHEST = 12
"""Maximum number of test modules that are run for a file."""
CASES = 3
"""Maximum number of cases of a test function that are run to find the tests that reach a file."""
TRIES_IN_FILE = 4
"""Maximum number of faults tried in a file with the same test modules."""


@dataclass(frozen=True)
class Catcher:
    """A test that fails because of a fault.

    Attributes:
        test: pytest's id of the test.
        thorough: whether the quick suite leaves the test out.
    """

    test: str
    thorough: bool


@dataclass(frozen=True)
class Outcome:
    """Result of trying one fault.

    Attributes:
        room: name of the room that contains the changed file.
        fault: the changed line.
        before: the test that noticed the fault in the old tree, or None.
        now: the test that noticed the fault in the new tree, or None.
    """

    room: str
    fault: Fault
    before: Catcher | None
    now: Catcher | None

    @property
    def lost(self) -> bool:
        """Whether a test noticed the fault in the old tree, but no test noticed it in the new tree."""
        return self.before is not None and self.now is None

    @property
    def caught(self) -> bool:
        """Whether a test noticed the fault in both trees."""
        return self.before is not None and self.now is not None


@dataclass
class Tree:
    """A copy of the project at one revision, in which tests are run.

    Attributes:
        root: folder of the copy.
        scratch: a folder for the files of test runs.
        limit: maximum duration of a test run in seconds.
        passing: tests that are known to pass without a fault.
    """

    root: Path
    scratch: Path
    limit: float
    passing: set[str] = field(default_factory=set)

    def run(
        self, modules: Sequence[str], *options: str, ids: Sequence[str] | None = None, leave_out: Sequence[str] = ()
    ) -> list[dict[str, Any]]:
        """Run test modules and return the records of the tests that ended.

        Args:
            modules: paths of test modules; missing ones are ignored.
            options: further options for pytest.
            ids: the tests to run, or None for all.
            leave_out: tests not to run.
        """
        existing = [module for module in modules if (self.root / module).is_file()]
        if not existing:
            return []
        results = self.scratch / "results.jsonl"
        results.write_text("", encoding="utf-8")
        choice = self.scratch / "choice.json"
        choice.write_text(json.dumps({"ids": ids, "leave_out": list(leave_out)}), encoding="utf-8")
        plugin = self.scratch / "plugin"
        plugin.mkdir(exist_ok=True)
        shutil.copy(line_recorder.__file__, plugin)
        command = [
            *(sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "-p", "no:cacheprovider", "-p", "line_recorder"),
            *("--hypothesis-seed=0", f"--basetemp={self.scratch / 'tests'}", f"--results={results}"),
            *(f"--choice={choice}", *options, *existing),
        ]
        environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"},
            "PYTHONPATH": os.pathsep.join([str(self.root / "src"), str(plugin)]),
            "OMP_NUM_THREADS": "1",
            "PYTHONHASHSEED": "0",
            # Two versions of a file with the same size and time would share one compiled file.
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        with (self.scratch / "pytest.log").open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                command, cwd=self.root, env=environment, stdout=log, stderr=log, start_new_session=True
            )
            try:
                process.wait(self.limit)
            except subprocess.TimeoutExpired:
                print(f"    over the limit of {self.limit:g} seconds", flush=True)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # with the servers that tests started
                process.wait()
        return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]

    def catcher(self, fault: Fault, modules: Sequence[str], ids: Sequence[str] | None) -> Catcher | None:
        """Return the first test that fails with the fault in this tree and passes without it; None if there is none.

        A test module that can no longer be imported counts as a failing test.
        """
        wrong: list[str] = []
        while True:
            with self._broken(fault):
                records = self.run(modules, "-x", ids=ids, leave_out=wrong)
            failed = next((record for record in records if record["failed"]), None)
            if failed is None:
                return None
            test = str(failed["id"])
            if "::" not in test or self._passes(test):
                return Catcher(test, failed["thorough"])
            print(f"    {test} fails without the fault too", flush=True)
            wrong.append(test)

    @contextlib.contextmanager
    def _broken(self, fault: Fault) -> Iterator[None]:
        """Make the change on entry to the context, and restore the file on exit."""
        path = self.root / fault.path
        right = path.read_bytes()
        fault.write(self.root)
        try:
            yield
        finally:
            path.write_bytes(right)

    def _passes(self, test: str) -> bool:
        """Return whether a test passes without a fault."""
        if test not in self.passing:
            records = self.run([test.partition("::")[0]], ids=[test])
            self.passing.update(record["id"] for record in records if record["passed"])
        return test in self.passing


class Campaign:
    """Search for faults that the tests of two trees notice.

    Args:
        before: the old tree, whose tests are the reference.
        now: the new tree, whose tests must notice the same faults.
        seed: seed for the choice of files and faults.
    """

    def __init__(self, before: Tree, now: Tree, seed: int) -> None:
        self.before = before
        self.now = now
        self.seed = seed
        self.graphs = {id(tree): ImportGraph(tree.root) for tree in (before, now)}

    def rooms(self) -> list[str]:
        """Return the names of all rooms of the old tree that have a file in which faults can be made."""
        top = self.before.root / PACKAGE
        names = sorted(path.name for path in top.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file())
        names.append(COURSE.name)
        return [name for name in names if any(self._faults(path) for path in self._files(name))]

    def outcomes(self, room: str, count: int) -> Iterator[Outcome]:
        """Yield the results of faults in a room, until tests of the old tree have noticed `count` of them."""
        draw = random.Random(f"{self.seed} {room}")
        files = self._files(room)
        draw.shuffle(files)
        tried = set[Fault]()
        noticed = 0
        for first in range(0, FURTHEST, NEAREST):
            for path in files:
                for outcome in self._outcomes_in_file(room, path, first, tried, draw):
                    yield outcome
                    noticed += outcome.before is not None
                    if noticed == count:
                        return

    def _outcomes_in_file(
        self, room: str, path: str, first: int, tried: set[Fault], draw: random.Random
    ) -> Iterator[Outcome]:
        """Try up to `TRIES_IN_FILE` faults of a file, with the three nearest test modules from index `first`."""
        candidates = [fault for fault in self._faults(path) if fault not in tried]
        modules = self.graphs[id(self.before)].nearest_tests(path)[first : first + NEAREST]
        if not candidates or not modules:
            return
        draw.shuffle(candidates)
        reached = self._reached(path, modules)
        lines = {line for executed in reached.values() for line in executed}
        print(f"  {path}: {len(reached)} tests of {', '.join(modules)} execute {len(lines)} lines", flush=True)
        left = TRIES_IN_FILE
        for fault in candidates:
            place = line_recorder.OPENED if path.endswith(".toml") else self._line_before(fault)
            tests = [test for test, executed in reached.items() if place in executed]
            if tests and left:
                tried.add(fault)
                left -= 1
                yield self._outcome(room, fault, tests, first + NEAREST)

    def _files(self, room: str) -> list[str]:
        """Return the files of a room in which faults are made: Python modules, or TOML files for `recipes`."""
        top = COURSE if room == COURSE.name else PACKAGE / room
        if top.suffix == ".py":
            return [str(top)]
        kind = "*.toml" if room == "recipes" else "*.py"
        return sorted(str(path.relative_to(self.before.root)) for path in (self.before.root / top).rglob(kind))

    def _faults(self, path: str) -> list[Fault]:
        return faults_of(path, self.now.root, self.before.root)

    def _line_before(self, fault: Fault) -> int:
        """Return the number of a fault's line in the old tree."""
        return (self.before.root / fault.path).read_text(encoding="utf-8").split("\n").index(fault.old) + 1

    def _reached(self, path: str, modules: Sequence[str]) -> dict[str, list[int]]:
        """Run test modules in the old tree, and return the lines of a file that each passing test executes."""
        watch = str((self.before.root / path).resolve())
        records = self.before.run(modules, f"--watch={watch}", f"--cases={CASES}")
        passed = [record for record in records if record["passed"]]
        self.before.passing.update(record["id"] for record in passed)
        return {record["id"]: record["lines"] for record in passed if record["lines"]}

    def _outcome(self, room: str, fault: Fault, tests: list[str], nearest: int) -> Outcome:
        """Try a fault in both trees, and return the result.

        If the fault is noticed only in the old tree, run the first `nearest` of the test modules nearest to the file in
        the new tree, too.
        """
        modules = list(dict.fromkeys(test.partition("::")[0] for test in tests))
        before = self.before.catcher(fault, modules, tests)
        now = self.now.catcher(fault, modules, tests)
        if before is not None and now is None:
            now = self.now.catcher(fault, self.graphs[id(self.now)].nearest_tests(fault.path)[:nearest], None)
        return Outcome(room, fault, before, now)


def copy_of(checkout: Path, commit: str, folder: Path, limit: float) -> Tree:
    """Return a tree with the files of a commit, in a new folder."""
    root = folder / "tree"
    scratch = folder / "scratch"
    root.mkdir(parents=True)
    scratch.mkdir()
    archive = folder / "tree.tar"
    subprocess.run(["git", "archive", "--output", str(archive), commit], cwd=checkout, check=True)
    subprocess.run(["tar", "-xf", str(archive), "-C", str(root)], check=True)
    return Tree(root, scratch, limit)


def commit_of(checkout: Path, revision: str) -> str:
    """Return the abbreviated hash of a revision's commit; exit with code 2 if the revision is unknown."""
    found = subprocess.run(
        ["git", "rev-parse", "--short", "--verify", f"{revision}^{{commit}}"],
        cwd=checkout,
        capture_output=True,
        text=True,
    )
    if found.returncode:
        print(f"unknown revision {revision!r}\nGive a commit, tag or branch of {checkout}.", file=sys.stderr)
        raise SystemExit(2)
    return found.stdout.strip()


def report(outcomes: Sequence[Outcome], rooms: Sequence[str], command: str, before: str, now: str) -> str:
    """Return a Markdown report with tables of the faults."""
    caught = [outcome for outcome in outcomes if outcome.caught]
    lost = [outcome for outcome in outcomes if outcome.lost]
    new = [outcome for outcome in outcomes if outcome.before is None and outcome.now is not None]
    neither = [outcome for outcome in outcomes if outcome.before is None and outcome.now is None]
    without = [room for room in rooms if all(outcome.room != room for outcome in caught)]
    thorough = sum(outcome.now is not None and outcome.now.thorough for outcome in caught)
    lines = [
        "# Faults and the tests that notice them",
        "",
        "Each fault is a random change of one line that tests execute. The tests that execute the line are run with",
        f"the fault at two commits: at {before} (before) and at {now} (now). A test notices the fault if it fails. A",
        "room is a package or module of `glassformer`, or the whole course. The docstring of",
        "`tests/campaigns/faults.py` has the rules.",
        "This report was written by",
        "",
        f"    {command}",
        "",
        f"- {len(caught)} faults in {len(rooms) - len(without)} of {len(rooms)} rooms are noticed both before and now:",
        f"  now, {len(caught) - thorough} of them by a quick test and {thorough} by a thorough test.",
        f"- {len(lost)} faults are noticed before, but not now.",
        f"- {len(new)} faults are noticed now, but not before.",
        f"- {len(neither)} faults are noticed neither before nor now by the tests that execute the line.",
        *[f"- No noticed fault in: {', '.join(without)}." for _ in without[:1]],
    ]
    for title, rows in (
        ("Noticed before and not now", lost),
        ("Noticed before and now", caught),
        ("Noticed only now", new),
        ("Not noticed: the change has no effect, or the tests have a gap", neither),
    ):
        if rows:
            lines += ["", f"## {title}", "", "| place | change | before | now |", "|---|---|---|---|", *map(row, rows)]
    return "\n".join(lines) + "\n"


def row(outcome: Outcome) -> str:
    """Return one row of a table."""
    fault = outcome.fault
    change = f"{fault.kind}: {code(fault.old.strip())} → {code(fault.new.strip())}"
    before = "—" if outcome.before is None else code(outcome.before.test)
    suite = "" if outcome.now is None else " (thorough)" if outcome.now.thorough else " (quick)"
    now = "—" if outcome.now is None else code(outcome.now.test) + suite
    path = fault.path.removeprefix("src/").removeprefix("glassformer/")
    return f"| {path}:{fault.line} | {change} | {before} | {now} |"


def code(text: str) -> str:
    """Return text as Markdown inline code for a table cell."""
    marks = "``" if "`" in text else "`"
    space = " " if "`" in text else ""
    return marks + space + text.replace("|", "\\|") + space + marks


def main(words: Sequence[str] | None = None, checkout: Path = CHECKOUT) -> int:
    """Run the campaign on revisions of a checkout and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--before", required=True, help="revision whose tests are the measure")
    parser.add_argument("--now", default="HEAD", help="revision whose tests must notice as much (default: HEAD)")
    parser.add_argument("--seed", type=int, default=0, help="decides which faults are made (default: 0)")
    parser.add_argument("--out", type=Path, help="Markdown file to write; without it the tables are only printed")
    parser.add_argument("--rooms", help="rooms, separated by commas (default: all)")
    parser.add_argument("--count", type=int, default=1, help="faults noticed before to find in each room (default: 1)")
    parser.add_argument("--limit", type=float, default=300, help="seconds after which a test run ends (default: 300)")
    arguments = parser.parse_args(words)
    before_commit = commit_of(checkout, arguments.before)
    now_commit = commit_of(checkout, arguments.now)
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        folder = Path(name).resolve()
        before = copy_of(checkout, before_commit, folder / "before", arguments.limit)
        now = copy_of(checkout, now_commit, folder / "now", arguments.limit)
        campaign = Campaign(before, now, arguments.seed)
        every = campaign.rooms()
        rooms = arguments.rooms.split(",") if arguments.rooms else every
        if unknown := sorted(set(rooms) - set(every)):
            print(f"unknown room {unknown[0]!r}\nChoose from: {', '.join(every)}.", file=sys.stderr)
            return 2
        outcomes = []
        for room in rooms:
            print(room, flush=True)
            started = time.monotonic()
            for outcome in campaign.outcomes(room, arguments.count):
                print(f"  {row(outcome)}", flush=True)
                outcomes.append(outcome)
            print(f"  {time.monotonic() - started:.0f} seconds", flush=True)
    command = f"python -m tests.campaigns.faults --before {arguments.before} --seed {arguments.seed}"
    command += f" --now {arguments.now}" if arguments.now != "HEAD" else ""
    command += f" --rooms {arguments.rooms}" if arguments.rooms else ""
    command += f" --count {arguments.count}" if arguments.count != 1 else ""
    text = report(outcomes, rooms, command, before_commit, now_commit)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text, encoding="utf-8")
    complete = all(any(outcome.caught and outcome.room == room for outcome in outcomes) for room in rooms)
    return 0 if complete and not any(outcome.lost for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
