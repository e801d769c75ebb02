"""Find the course: exercises, a bug lab and a glossary, in a package of its own that imports this one.

Nothing here knows that package by name. Its distribution declares entry points in the group `glassformer.course`:
`command` is the module of `glass learn`, `notebook` the module with `check` and `hint`.
"""

from __future__ import annotations

from types import ModuleType

from glassformer.base.errors import GlassError

GROUP = "glassformer.course"
INSTALL = "Install glassformer again, which brings it: pip install -c constraints.txt -e ."


def course_module(name: str) -> ModuleType:
    """Import a module of the course.

    Args:
        name: of the entry point, `command` or `notebook`.

    Raises:
        GlassError: no installed package declares this entry point, or the declared package is missing.
    """
    from importlib.metadata import entry_points  # reads every installed package's list: only where it is needed

    for entry in entry_points(group=GROUP, name=name):
        try:
            module: ModuleType = entry.load()
        except ModuleNotFoundError as error:
            package = entry.module.partition(".")[0]
            if error.name != package:
                raise
            raise GlassError(f"the course is not installed: there is no package {package}", INSTALL) from None
        return module
    raise GlassError(f"the course is not installed: no package declares {GROUP}", INSTALL)
