"""Time to check each exercise of the course: the shipped solution, checked as a learner's answer.

Writes a table with the size of each exercise and the processor time of a check (median of several), which includes the
start of the answer's process. Processor time depends less than wall time on other programs that run at the same time.

    python benchmarks/exercises.py --out benchmarks/results/exercises.md
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from pathlib import Path

import numpy as np
from peers.machine import describe

from glassformer_course.checking import check_source
from glassformer_course.course import all_exercises
from glassformer_course.exercise import Exercise
from glassformer_course.judging.sandbox import missing_confinement


def seconds_of_check(exercise: Exercise) -> float:
    """Return the processor time of one check in seconds, in this process and in that of the answer."""
    before = time.process_time() + sum(children_times())
    assert check_source(exercise, exercise.solution, seed=0).passed
    return time.process_time() + sum(children_times()) - before


def children_times() -> tuple[float, float]:
    """Return the user and system time of all child processes that have ended."""
    import resource

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime, used.ru_stime


def main() -> None:
    """Measure all exercises and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    options = parser.parse_args()
    rows = ["| | exercise | functions | lines | words of task | cases | check (s) |", "|---|---|---|---|---|---|---|"]
    for each in all_exercises():
        seconds = statistics.median(seconds_of_check(each) for _ in range(options.repeats))
        cases = sum(1 for _ in each.cases(0))
        rows.append(
            f"| {each.number} | {each.title} | {len(each.functions)} | {each.lines} | {each.words} | {cases} "
            f"| {seconds:.2f} |"
        )
    confined = "confined by the kernel" if missing_confinement() is None else "not confined by the kernel"
    head = (
        f"Processor time of a check of the shipped solution, median of {options.repeats}; answers {confined}.\n"
        f"{describe(1)['processor']}, {platform.system()}, Python {platform.python_version()}, NumPy {np.__version__}."
    )
    options.out.write_text(f"# Exercises of the course\n\n{head}\n\n" + "\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
