"""The glossary: terms of the field explained in plain words, each with the page that shows it."""

from __future__ import annotations

import difflib
import re
import tomllib
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import Any

from glassformer.base.errors import GlassError


@dataclass(frozen=True)
class Entry:
    """One term of the glossary.

    Attributes:
        term: name of the entry.
        text: explanation in one to four sentences.
        also: other words under which the entry is listed: synonyms, variants, and contrasts that its text explains.
        ordinary: names that are also ordinary words; the book does not link them automatically.
        see: names of related entries.
        page: page below `docs/` that shows the term, without its extension; `#` and a section may follow.
    """

    term: str
    text: str
    page: str
    also: tuple[str, ...] = ()
    ordinary: tuple[str, ...] = ()
    see: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The term and the other words under which the entry is listed."""
        return self.term, *self.also

    @property
    def file(self) -> str:
        """Path of the page in the repository, such as docs/book/03-attention.md; `#` and a section may follow."""
        page, hash, section = self.page.partition("#")
        return f"docs/{page}.md{hash}{section}"

    def as_text(self) -> str:
        """Return the entry as text: term, explanation, other words, related terms and page."""
        also = f"\nalso listed under: {', '.join(self.also)}" if self.also else ""
        see = f"\nsee also: {', '.join(self.see)}" if self.see else ""
        return f"{self.term}\n{self.text}{also}{see}\nshown in: {self.file}"

    def facts(self) -> dict[str, Any]:
        """Return the entry as a dictionary for JSON; `page` is a path in the repository."""
        return {**asdict(self), "page": self.file}


@cache
def entries() -> tuple[Entry, ...]:
    """Return all entries in alphabetical order."""
    text = resources.files("glassformer_course").joinpath("glossary.toml").read_text(encoding="utf-8")
    return tuple(
        Entry(
            term, fields["text"], fields["page"], *(tuple(fields.get(key, ())) for key in ("also", "ordinary", "see"))
        )
        for term, fields in tomllib.loads(text).items()
    )


def look_up(name: str) -> Entry:
    """Return the entry that has this name; case, spaces, hyphens and a plural "s" or "es" do not matter.

    Raises:
        GlassError: there is no such entry; the error suggests the closest name, if one is similar.
    """
    names = _entries_by_name()
    normalized = _normalized(name)
    for candidate in (normalized, normalized.removesuffix("s"), normalized.removesuffix("es")):
        if candidate in names:
            return names[candidate][1]
    similar_names = difflib.get_close_matches(normalized, names, n=1, cutoff=0.6)
    remedy = f"Did you mean {names[similar_names[0]][0]}?" if similar_names else "All terms: glass learn glossary"
    raise GlassError(f"the glossary has no entry {name!r}", remedy)


@cache
def _entries_by_name() -> dict[str, tuple[str, Entry]]:
    """Return a dictionary from each normalized name to the name and its entry."""
    return {_normalized(name): (name, entry) for entry in entries() for name in entry.names}


def _normalized(name: str) -> str:
    """Normalize a name: `Multi-head attention` and `multihead attention` become equal."""
    return re.sub(r"[\s_-]+", "", name.casefold())
