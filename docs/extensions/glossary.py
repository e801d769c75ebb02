"""Generate the page of the glossary, and link the first use of each term on every other page to it."""

from __future__ import annotations

import re

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

from glassformer_course.glossary import Entry, entries

SKIPPED = (
    nodes.literal,
    nodes.FixedTextElement,
    nodes.reference,
    nodes.target,
    nodes.title,
    nodes.math,
    nodes.math_block,
    nodes.raw,
    nodes.table,
    nodes.term,
    nodes.caption,
    nodes.rubric,
    nodes.figure,
    nodes.footnote_reference,
    addnodes.pending_xref,
    addnodes.toctree,
    addnodes.download_reference,
    addnodes.desc,
    addnodes.glossary,
)
"""Nodes in which no term is linked."""
UNLINKED = ("index", "glossary", "settings", "commands", "library", "made/commands/", "made/library/")
"""Beginnings of the names of pages without links, because they name very many terms."""


def pages() -> dict[str, str]:
    """Return the text that docs/glossary.md includes: a `glossary` directive, in which `{term}` finds every name."""
    found = entries()
    lines = []
    for entry in found:
        see = "" if not entry.see else " See " + ", ".join(f"{{term}}`{name}`" for name in entry.see) + "."
        page, hash, section = entry.page.partition("#")
        where = "" if page == "glossary" else f" Shown in <project:{page}.md{hash}{section}>."
        lines += [*entry.names, f"  {' '.join(entry.text.split())}{see}{where}", ""]
    text = f"{len(found)} terms.\n\n:::{{glossary}}\n" + "\n".join(lines) + ":::\n"
    return {"parts/glossary.md": text}


def pattern() -> tuple[re.Pattern[str], dict[str, Entry]]:
    """Return a pattern of all linked names, and the entries by lower-case name.

    The pattern prefers longer names, and accepts a plural s. The first letter may be upper or lower case, unless the
    rest of the name contains a capital, as in BPE; such names are matched only as they are written.
    """
    names = {name: entry for entry in entries() for name in entry.names if name not in entry.ordinary}
    forms = []
    for name in sorted(names, key=len, reverse=True):
        first = f"[{name[0].lower()}{name[0].upper()}]" if name[1:].islower() else re.escape(name[0])
        forms.append(first + re.escape(name[1:]).replace(r"\ ", r"\s"))
    found = re.compile(rf"(?<![\w-])({'|'.join(forms)})s?(?![\w-])")
    return found, {name.lower(): entry for name, entry in names.items()}


class LinkTerms(SphinxTransform):
    """Link the first use of each glossary term in the running text of a page."""

    default_priority = 880

    def apply(self) -> None:
        """Link terms in the text nodes of the page, in order."""
        docname = self.env.current_document.docname
        if docname.startswith(UNLINKED):
            return
        names, of = pattern()
        seen = {str(node["reftarget"]) for node in self.document.findall(addnodes.pending_xref) if is_term(node)}
        for text in list(self.document.findall(nodes.Text)):
            if running(text):
                parts = list(linked(str(text), names, of, seen, docname))
                if len(parts) > 1:
                    text.parent.replace(text, parts)


def is_term(node: addnodes.pending_xref) -> bool:
    """Return whether a reference is a `{term}` role."""
    return node.get("refdomain") == "std" and node.get("reftype") == "term"


def running(text: nodes.Text) -> bool:
    """Return whether a text is in a paragraph, and not in a notebook cell or one of `SKIPPED`."""
    node = text.parent
    paragraph = False
    while node is not None:
        if isinstance(node, SKIPPED) or "cell" in node.get("classes", []):
            return False
        paragraph = paragraph or isinstance(node, nodes.paragraph)
        node = node.parent
    return paragraph


def linked(text: str, names: re.Pattern[str], of: dict[str, Entry], seen: set[str], docname: str) -> list[nodes.Node]:
    """Split a text into plain parts and links.

    Args:
        text: the text.
        names: pattern of the names, from `pattern`.
        of: entries by lower-case name.
        seen: terms already linked on this page; terms that are linked here are added.
        docname: name of the page.
    """
    parts: list[nodes.Node] = []
    at = 0
    for found in names.finditer(text):
        entry = of[re.sub(r"\s", " ", found[1]).lower()]
        if entry.term in seen:
            continue
        seen.add(entry.term)
        shown = nodes.inline(found[0], found[0], classes=["xref", "std", "std-term"])
        link = addnodes.pending_xref(
            "",
            shown,
            refdomain="std",
            reftype="term",
            reftarget=entry.term,
            refexplicit=True,
            refwarn=True,
            refdoc=docname,
        )
        parts += [nodes.Text(text[at : found.start()]), link]
        at = found.end()
    return [*parts, nodes.Text(text[at:])]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transform with Sphinx."""
    app.add_transform(LinkTerms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
