"""Checks an answer again whenever its file is saved, and goes on to the next exercise when it is right."""

from __future__ import annotations

import time
from collections.abc import Callable

from glassformer.base.errors import GlassError
from glassformer_course.checking import check_source
from glassformer_course.exercise import Exercise
from glassformer_course.folder import CourseFolder
from glassformer_course.judging.verdict import Verdict
from glassformer_course.reading import read_answer

PAUSE = 0.3  # seconds between two looks at the file


def watch(
    folder: CourseFolder,
    say_start: Callable[[Exercise], None],
    say_verdict: Callable[[Verdict], None],
    say_trouble: Callable[[GlassError], None],
    seed: int | None = None,
) -> None:
    """Go through what is left of the course; returns when all is done.

    Args:
        folder: the learner's.
        say_start: is told each exercise that begins.
        say_verdict: is told each check's result.
        say_trouble: is told why a file cannot be read.
        seed: as for `check_source`.
    """
    while (exercise := folder.current()) is not None:
        path = folder.start(exercise)
        say_start(exercise)
        seen = None
        while not folder.record(exercise).done:
            try:
                saved = path.stat().st_mtime_ns
            except OSError:
                saved = None  # some editors take a file away for a moment
            if saved is None or saved == seen:
                time.sleep(PAUSE)
                continue
            seen = saved
            try:
                source = read_answer(path, exercise)
            except GlassError as error:
                say_trouble(error)
                continue
            verdict = check_source(exercise, source, seed, folder.text())
            folder.note(verdict)
            say_verdict(verdict)
