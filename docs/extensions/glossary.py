"""The glossary's page, and a link to it from the first use of each term on a page."""

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
"""Nothing in these is linked."""
UNLINKED = ("index", "glossary", "settings", "commands", "library", "made/commands/", "made/library/")
"""Pages that name everything."""


def pages() -> dict[str, str]:
    """All terms, for the directive `glossary`; `{term}` finds them by every name."""
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
    """What finds any linked name in a text, longest first, with a plural's s; and the entry of each, in small letters.

    A name with a capital or a digit inside, such as BPE, is found as it is written alone.
    """
    names = {name: entry for entry in entries() for name in entry.names if name not in entry.ordinary}
    forms = []
    for name in sorted(names, key=len, reverse=True):
        first = f"[{name[0].lower()}{name[0].upper()}]" if name[1:].islower() else re.escape(name[0])
        forms.append(first + re.escape(name[1:]).replace(r"\ ", r"\s"))
    found = re.compile(rf"(?<![\w-])({'|'.join(forms)})s?(?![\w-])")
    return found, {name.lower(): entry for name, entry in names.items()}


class LinkTerms(SphinxTransform):
    """Links the first use of each term of the glossary on a page, where it stands in running text."""

    default_priority = 880

    def apply(self) -> None:
        """Go through the texts of the page in order."""
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
    """Whether it is a `{term}` role."""
    return node.get("refdomain") == "std" and node.get("reftype") == "term"


def running(text: nodes.Text) -> bool:
    """Whether it stands in a paragraph, and in nothing that is skipped."""
    node = text.parent
    paragraph = False
    while node is not None:
        if isinstance(node, SKIPPED) or "cell" in node.get("classes", []):
            return False
        paragraph = paragraph or isinstance(node, nodes.paragraph)
        node = node.parent
    return paragraph


def linked(text: str, names: re.Pattern[str], of: dict[str, Entry], seen: set[str], docname: str) -> list[nodes.Node]:
    """The text cut into plain parts and links; what is linked is added to `seen`."""
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
    """Register the transform."""
    app.add_transform(LinkTerms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
