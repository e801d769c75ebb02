"""Check an answer each time its file is saved, and continue with the next exercise when it is right."""

from __future__ import annotations

import time
from collections.abc import Callable

from glassformer.base.errors import GlassError
from glassformer_course.checking import check_source
from glassformer_course.exercise import Exercise
from glassformer_course.folder import CourseFolder
from glassformer_course.judging.verdict import Verdict
from glassformer_course.reading import read_answer

PAUSE = 0.3  # seconds between two checks of the modification time


def watch(
    folder: CourseFolder,
    on_start: Callable[[Exercise], None],
    on_verdict: Callable[[Verdict], None],
    on_error: Callable[[GlassError], None],
    seed: int | None = None,
) -> None:
    """Watch the unfinished exercises one after another; return when all are done.

    Args:
        folder: the learner's folder.
        on_start: called with each exercise that starts.
        on_verdict: called with the verdict of each check.
        on_error: called with the error if a file cannot be read.
        seed: seed of the random cases, as for `check_source`.
    """
    while (exercise := folder.current()) is not None:
        path = folder.start(exercise)
        on_start(exercise)
        checked_time = None
        while not folder.record(exercise).done:
            try:
                saved_time = path.stat().st_mtime_ns
            except OSError:
                saved_time = None  # some editors delete the file for a moment while saving
            if saved_time is None or saved_time == checked_time:
                time.sleep(PAUSE)
                continue
            checked_time = saved_time
            try:
                source = read_answer(path, exercise)
            except GlassError as error:
                on_error(error)
                continue
            verdict = check_source(exercise, source, seed, folder.text())
            folder.note(verdict)
            on_verdict(verdict)
