"""Generate the reference of the library: a page for each package of `ROOMS`, which autodoc fills from docstrings."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util.nodes import find_pending_xref_condition

ROOMS = {
    "api": "The main interface: one import",
    "model": "Models",
    "generation": "Generation",
    "tasks": "Tasks, and a model with its tokenizer",
    "text": "Text, tokenizers, tokens and batches",
    "corpora": "Generated texts",
    "runs": "Run folders",
    "training": "Training",
    "inspection": "Inspection",
    "evaluation": "Evaluation",
    "launch": "Launching a run",
    "verification": "Verification",
    "experiments": "Experiments",
    "numpy_reference": "The NumPy transformer",
    "interop": "Other programs' formats, and scikit-learn",
    "app.server": "The server and its views",
    "app.share": "Sharing a run as one file",
    "base": "Settings, recipes, errors and files",
}
"""Packages and modules of `glassformer`, in the order of the book, with their titles there."""
COURSE = "glassformer_course"
"""The package of the course."""
LEFT_OUT = (f"{COURSE}.exercises.", f"{COURSE}.lab.cases.", f"{COURSE}.commands", "glassformer.app.server.page")
"""Beginnings of the names of modules that are left out: answers, and modules that are not for import."""
OWN = ("glassformer.", COURSE)
"""Beginnings of the names of our own modules."""
OPTIONS = "   :members:\n   :ignore-module-all:\n"
"""Options of `automodule`; names that a module imports are documented where they are defined."""


def pages() -> dict[str, str]:
    """Return a page for each package of `ROOMS`, a page for the course, and the list that docs/library.md includes."""
    made = {f"library/{room}.rst": page(f"glassformer.{room}", title) for room, title in ROOMS.items()}
    made["library/course.rst"] = page(COURSE, "The course: exercises, lab and glossary")
    tree = "\n".join(f"made/library/{name}" for name in (*ROOMS, "course"))
    return made | {"parts/library.md": f":::{{toctree}}\n:maxdepth: 1\n\n{tree}\n:::\n"}


def page(package: str, title: str) -> str:
    """Return the page of a package or module: one section for each of its modules, in order."""
    parts = [heading(title, "=")]
    for module in modules(package):
        parts += [heading(f"``{module}``", "-"), f".. automodule:: {module}\n{OPTIONS}"]
    return "\n".join(parts)


def modules(name: str) -> Iterator[str]:
    """Yield the name of a module or package, if it has a docstring, and the names of all public modules inside it."""
    package = importlib.import_module(name)
    if package.__doc__:
        yield name
    for found in pkgutil.walk_packages(getattr(package, "__path__", []), f"{name}."):
        hidden = found.name.rpartition(".")[2].startswith("_")
        if not found.name.startswith(LEFT_OUT) and not hidden:
            yield found.name


def heading(text: str, line: str) -> str:
    """Return a reStructuredText title, underlined with the character `line`."""
    return f"{text}\n{line * len(text)}\n"


class ResolveNames(SphinxTransform):
    """Link types in signatures to the objects that their names refer to; names of other libraries get no link.

    By default, Sphinx would link a name to any object whose name ends with it, for example the type `bytes` to an
    attribute `bytes`.
    """

    default_priority = 880

    def apply(self) -> None:
        """Resolve the names on a page of the library."""
        if not self.env.current_document.docname.startswith("made/library/"):
            return
        for node in list(self.document.findall(addnodes.pending_xref)):
            if node.get("refdomain") != "py":
                continue
            full = full_name(str(node.get("py:module")), str(node["reftarget"]))
            if full is None:
                shown = find_pending_xref_condition(node, "resolved") or node
                node.replace_self(shown.children)
            else:
                node["reftarget"] = full
                node["refspecific"] = False


def full_name(module: str, name: str) -> str | None:
    """Return the full name of the object that a module calls `name`; None if it is not in our packages.

    A full name is returned unchanged.
    """
    if name.startswith(OWN):
        return name
    found: Any = importlib.import_module(module) if module.startswith("glassformer") else None
    for part in name.split("."):
        found = getattr(found, part, None)
    home = getattr(found, "__module__", None)
    own = getattr(found, "__qualname__", None)
    return f"{home}.{own}" if own and str(home).startswith(OWN) else None


def keep_bars(app: Sphinx, what: str, name: str, member: object, options: object, lines: list[str]) -> None:
    """Escape bars in a docstring, such as |x|, which reStructuredText would read as a substitution."""
    for at, line in enumerate(lines):
        parts = re.split(r"(`[^`]*`)", line)
        lines[at] = "".join(part if part.startswith("`") else part.replace("|", r"\|") for part in parts)


def leave_out(app: Sphinx, what: str, name: str, member: object, skip: bool, options: object) -> bool | None:
    """Leave out the methods `set_..._request` that scikit-learn adds to every estimator and documents itself."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transform and the handlers with Sphinx."""
    app.setup_extension("sphinx.ext.autodoc")
    app.add_transform(ResolveNames)
    app.connect("autodoc-skip-member", leave_out)
    app.connect("autodoc-process-docstring", keep_bars)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
