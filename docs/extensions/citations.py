"""Link citations, such as "Vaswani et al. 2017", to their entries in the bibliography, which is made from one file.

The pages, which are also read without Sphinx (in an editor, in a terminal, in Python's `help`), cite authors and year
as plain text. The labels of the bibliography have the same form, so they find their entries.
"""

from __future__ import annotations

import re
from calendar import month_name
from collections.abc import Iterable, Iterator
from typing import Any

from docutils import nodes
from pybtex.database import Entry
from pybtex.plugin import register_plugin
from pybtex.style.formatting.unsrt import Style as PlainStyle
from pybtex.style.labels import BaseLabelStyle
from pybtex.style.sorting.author_year_title import SortingStyle
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinxcontrib.bibtex.domain import BibtexDomain

LOGGER = logging.getLogger(__name__)
PAGE = "bibliography"
WORD = r"(?:\b(?:Team\s+|Sparck\s+)?[A-ZÀ-Þ][\w’'-]*\w)"
CITATION = re.compile(rf"({WORD}(?:\s+et\s+al\.|\s+and\s+{WORD})?),?\s+(\()?((?:19|20)\d\d)\b(?(2)\)?)")
"""Pattern of a citation: one or two names, or a name with "et al.", then a year, perhaps after a parenthesis."""
NOT_CITED = ("RFC", "Try", *month_name)
SKIPPED = (nodes.literal, nodes.literal_block, nodes.reference, nodes.raw, nodes.title, nodes.citation, nodes.math)


def label(entry: Entry) -> str:
    """Return the names and the year of an entry, as a text cites it."""
    names = [" ".join([*person.prelast_names, *person.last_names]) for person in entry.persons["author"]]
    if len(names) > 2 or names[-1] == "others":
        names = [f"{names[0]} et al."]
    return f"{' and '.join(names)} {entry.fields['year']}".replace("{", "").replace("}", "")


class AuthorYearLabels(BaseLabelStyle):
    """Labels of the bibliography: the text of the citation."""

    def format_labels(self, sorted_entries: Iterable[Entry]) -> Iterator[str]:
        """Return the label of each entry."""
        return (label(entry) for entry in sorted_entries)


class AuthorYearStyle(PlainStyle):
    """Style of the bibliography: labels of authors and year, sorted by authors and year."""

    default_sorting_style = SortingStyle
    default_label_style = AuthorYearLabels


def link_citations(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Replace the citations in a page by links; warn of a citation that is not in the bibliography."""
    if docname == PAGE:
        return
    domain = app.env.get_domain("cite")
    assert isinstance(domain, BibtexDomain)
    entries = {label(entry): entry for entry in domain.bibdata.data.entries.values()}
    address = app.builder.get_relative_uri(docname, PAGE)
    for text in _joined_texts(doctree):
        inside = _ancestors(text)
        if not any(isinstance(each, SKIPPED) for each in inside) and (
            parts := _linked(str(text), entries, address, text)
        ):
            text.parent.replace(text, parts)


def _joined_texts(doctree: nodes.document) -> list[nodes.Text]:
    """Return the texts of a page; those that only line ends separate are joined."""
    texts: list[nodes.Text] = []
    for parent in list(doctree.findall(nodes.TextElement)):
        for child in list(parent.children):
            if not isinstance(child, nodes.Text):
                continue
            before = texts[-1] if texts else None
            if before is not None and before.parent is parent and parent.index(child) == parent.index(before) + 1:
                joined = nodes.Text(before + child)
                parent.remove(child)
                parent.replace(before, joined)
                texts[-1] = joined
            else:
                texts.append(child)
    return texts


def _ancestors(node: nodes.Node) -> Iterator[nodes.Node]:
    while (parent := node.parent) is not None:
        yield parent
        node = parent


def _linked(text: str, entries: dict[str, Entry], address: str, place: nodes.Node) -> list[nodes.Node]:
    """Return the parts of a text with links in place of citations; empty if it has none."""
    parts: list[nodes.Node] = []
    begin = 0
    for found in CITATION.finditer(text):
        names, year = " ".join(found[1].split()), found[3]
        entry = entries.get(f"{names} {year}")
        if entry is None:
            if names not in NOT_CITED:
                LOGGER.warning("%s %s is not in references.bib", names, year, location=place.parent)
            continue
        title = entry.fields["title"].replace("{", "").replace("}", "")
        parts += [
            nodes.Text(text[begin : found.start()]),
            nodes.reference(
                "", found[0], internal=True, refuri=f"{address}#{nodes.make_id(entry.key)}", reftitle=title
            ),
        ]
        begin = found.end()
    return [*parts, nodes.Text(text[begin:])] if parts else []


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the style of the bibliography, and link the citations of each page."""
    register_plugin("pybtex.style.formatting", "author_year", AuthorYearStyle)
    app.setup_extension("sphinxcontrib.bibtex")
    app.connect("doctree-resolved", link_citations)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
