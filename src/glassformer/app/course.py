"""Find the course (exercises, a bug lab and a glossary), which is a separate package that imports this one.

The course is found by its entry points, not by its name. Its distribution declares them in the group
`glassformer.course`: `command` is the module of `glass learn`, and `notebook` is the module with `check` and `hint`.
"""

from __future__ import annotations

from types import ModuleType

from glassformer.base.errors import GlassError
from glassformer.base.packages import install_command

GROUP = "glassformer.course"


def course_module(name: str) -> ModuleType:
    """Import a module of the course.

    Args:
        name: name of the entry point, `command` or `notebook`.

    Raises:
        GlassError: no installed package declares this entry point, or the declared package is missing.
    """
    from importlib.metadata import entry_points  # slow: it reads the entry points of all installed packages

    remedy = f"Reinstall glassformer, which includes the course: {install_command()}"
    for entry in entry_points(group=GROUP, name=name):
        try:
            module: ModuleType = entry.load()
        except ModuleNotFoundError as error:
            package = entry.module.partition(".")[0]
            if error.name != package:
                raise
            raise GlassError(f"the course is not installed: there is no package {package}", remedy) from None
        return module
    raise GlassError(f"the course is not installed: no package declares {GROUP}", remedy)
