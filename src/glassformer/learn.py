"""`check` and `hint` for notebooks that were written when the course was part of this package.

The course is a package of its own now (CHANGELOG.md, "Moved import paths"). The last cells of a notebook written before
say `from glassformer.learn import check, hint`; that import keeps working as long as such notebooks may be in use.
"""

from __future__ import annotations

from typing import Any

NAMES = ("check", "hint")


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: the course is a package of its own")
    from glassformer.app.course import course_module

    return getattr(course_module("notebook"), name)
