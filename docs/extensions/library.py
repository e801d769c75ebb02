"""The library's reference: a page for each room, made by autodoc from the docstrings."""

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
    "api": "The front door: one import",
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
    "app.share": "One file to share",
    "base": "Settings, recipes, errors, files and letters for shapes",
}
"""Packages and modules of `glassformer`, in the order of the book, and what they are called there."""
COURSE = "glassformer_course"
"""The package beside the library."""
LEFT_OUT = (f"{COURSE}.exercises.", f"{COURSE}.lab.cases.", f"{COURSE}.commands", "glassformer.app.server.page")
"""Answers, and what is no library."""
OWN = ("glassformer.", COURSE)
"""How the names of our own modules begin."""
OPTIONS = "   :members:\n   :ignore-module-all:\n"
"""What is passed on from another module stands there."""


def pages() -> dict[str, str]:
    """A page for each room, one for the course, and the list of them."""
    made = {f"library/{room}.rst": page(f"glassformer.{room}", title) for room, title in ROOMS.items()}
    made["library/course.rst"] = page(COURSE, "The course: exercises, lab and glossary")
    tree = "\n".join(f"made/library/{name}" for name in (*ROOMS, "course"))
    return made | {"parts/library.md": f":::{{toctree}}\n:maxdepth: 1\n\n{tree}\n:::\n"}


def page(package: str, title: str) -> str:
    """One package or module: its modules in order, each with all that has a docstring."""
    parts = [heading(title, "=")]
    for module in modules(package):
        parts += [heading(f"``{module}``", "-"), f".. automodule:: {module}\n{OPTIONS}"]
    return "\n".join(parts)


def modules(name: str) -> Iterator[str]:
    """A module, or a package with all that is in it; without those that hold nothing but a docstring of a few words."""
    package = importlib.import_module(name)
    if package.__doc__:
        yield name
    for found in pkgutil.walk_packages(getattr(package, "__path__", []), f"{name}."):
        hidden = found.name.rpartition(".")[2].startswith("_")
        if not found.name.startswith(LEFT_OUT) and not hidden:
            yield found.name


def heading(text: str, line: str) -> str:
    """A title in reStructuredText."""
    return f"{text}\n{line * len(text)}\n"


class ResolveNames(SphinxTransform):
    """Types in signatures link to what the name means in its module; names of other libraries are no links.

    Sphinx by itself would take any name that ends alike: the type `bytes` for an attribute of that name.
    """

    default_priority = 880

    def apply(self) -> None:
        """Go through the names of a page of the library."""
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
    """Where a name of a module was defined, if that is in this library; a full name is itself."""
    if name.startswith(OWN):
        return name
    found: Any = importlib.import_module(module) if module.startswith("glassformer") else None
    for part in name.split("."):
        found = getattr(found, part, None)
    home = getattr(found, "__module__", None)
    own = getattr(found, "__qualname__", None)
    return f"{home}.{own}" if own and str(home).startswith(OWN) else None


def keep_bars(app: Sphinx, what: str, name: str, member: object, options: object, lines: list[str]) -> None:
    """Bars in a docstring are those of an absolute value, |x|; reStructuredText would take them for a substitution."""
    for at, line in enumerate(lines):
        parts = re.split(r"(`[^`]*`)", line)
        lines[at] = "".join(part if part.startswith("`") else part.replace("|", r"\|") for part in parts)


def leave_out(app: Sphinx, what: str, name: str, member: object, skip: bool, options: object) -> bool | None:
    """What scikit-learn adds to every estimator is documented there."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Register all of these."""
    app.setup_extension("sphinx.ext.autodoc")
    app.add_transform(ResolveNames)
    app.connect("autodoc-skip-member", leave_out)
    app.connect("autodoc-process-docstring", keep_bars)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
