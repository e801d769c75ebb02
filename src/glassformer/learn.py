"""Keep `from glassformer.learn import check, hint` working in old notebooks of the course.

The course is now a separate package (CHANGELOG.md, "Moved import paths"). Notebooks written before that change import
`check` and `hint` from here in their last cells.
"""

from __future__ import annotations

from typing import Any

NAMES = ("check", "hint")


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: it provides only check and hint")
    from glassformer.app.course import course_module

    return getattr(course_module("notebook"), name)
