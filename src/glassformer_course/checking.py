"""Check an answer: run its source in a sandbox, and compare its results on the exercise's test cases."""

from __future__ import annotations

import secrets
import time

from glassformer_course.exercise import Exercise
from glassformer_course.judging.marking import Marks, StoppedError, mark
from glassformer_course.judging.sandbox import MEGABYTES, SECONDS, Sandbox
from glassformer_course.judging.verdict import Result, Verdict, explanation_lines


def check_source(
    exercise: Exercise,
    source: str,
    seed: int | None = None,
    text: str | None = None,
    seconds: float = SECONDS,
    megabytes: int = MEGABYTES,
) -> Verdict:
    """Check the source of an answer.

    Args:
        exercise: the exercise to check against.
        source: Python source that defines the functions of the exercise.
        seed: seed of the random cases; None: a new seed each time.
        text: the class's own text, for exercises about text.
        seconds, megabytes: time and memory limits of the answer's process.
    """
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    start = time.perf_counter()
    cases_run = 0
    mistake = ""
    with Sandbox(source, seconds, megabytes) as sandbox:
        try:
            loaded = sandbox.load()
            missing = [name for name in exercise.functions if name not in loaded.get("ready", ())]
            if "raised" in loaded:
                result, lines = _load_failure(loaded)
            elif missing:
                result = "broken"
                lines = (f"The answer has no function {missing[0]}: use the function names of the task.",)
            else:
                marks = mark(sandbox, exercise.reference, exercise.cases(seed, text), exercise.mistakes)
                cases_run = marks.cases_run
                mistake = marks.wrong.mistake.name if marks.wrong and marks.wrong.mistake else ""
                result, lines = _result_of(marks)
        except StoppedError as error:
            result = "stopped"
            lines = (f"The check was stopped: {error}.",)
    return Verdict(
        exercise.number,
        exercise.name,
        exercise.title,
        result,
        cases_run,
        lines,
        mistake,
        time.perf_counter() - start,
        seed,
        sandbox.printed,
    )


def _load_failure(loaded: dict[str, str]) -> tuple[Result, tuple[str, ...]]:
    line = f", line {loaded['line']}" if loaded["line"] else ""
    description = f"{loaded['raised']}{line}: {loaded['message'] or 'no message'}."
    hints = {
        "SystemExit": "An answer only defines functions: remove the call to exit.",
        "MemoryError": "The answer needs more memory than the limit: use smaller arrays.",
        "ModuleNotFoundError": "Use only Python's standard library and NumPy.",
    }
    return "broken", (description, *([hints[loaded["raised"]]] if loaded["raised"] in hints else []))


def _result_of(marks: Marks) -> tuple[Result, tuple[str, ...]]:
    if marks.passed:
        return "right", ()
    fault = marks.wrong.fault if marks.wrong else None
    if fault and fault.sign == "NotImplementedError":
        return "unwritten", (f"{fault.message}.",)
    return "wrong", explanation_lines(marks)
