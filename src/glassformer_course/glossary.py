"""The glossary: the terms of this field in plain words, with where each is shown."""

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
    """One term.

    Attributes:
        term: its name here.
        text: one to three sentences.
        also: its other names.
        ordinary: of all these names, those that mean other things too: the book never links them by itself.
        see: related terms, by their names here.
        page: where it is shown: a page below `docs/` without its ending, and perhaps `#` and a section.
    """

    term: str
    text: str
    page: str
    also: tuple[str, ...] = ()
    ordinary: tuple[str, ...] = ()
    see: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The term and its other names."""
        return self.term, *self.also

    @property
    def file(self) -> str:
        """Its page as a file of the repository, such as docs/book/03-attention.md."""
        page, hash, section = self.page.partition("#")
        return f"docs/{page}.md{hash}{section}"

    def said(self) -> str:
        """All of it in a few lines."""
        also = f" ({', '.join(self.also)})" if self.also else ""
        see = f"\nsee also: {', '.join(self.see)}" if self.see else ""
        return f"{self.term}{also}\n{self.text}{see}\nshown in: {self.file}"

    def facts(self) -> dict[str, Any]:
        """Return the entry as a dictionary for JSON, with its page as a file of the repository."""
        return {**asdict(self), "page": self.file}


@cache
def entries() -> tuple[Entry, ...]:
    """All terms in the order of the alphabet."""
    text = resources.files("glassformer_course").joinpath("glossary.toml").read_text(encoding="utf-8")
    return tuple(
        Entry(
            term, fields["text"], fields["page"], *(tuple(fields.get(key, ())) for key in ("also", "ordinary", "see"))
        )
        for term, fields in tomllib.loads(text).items()
    )


def look_up(word: str) -> Entry:
    """The entry of a word, by any of its names; case, hyphens and a plural do not matter.

    Raises:
        GlassError: it is not there; the nearest name is given.
    """
    names = _names()
    plain = _plain(word)
    for form in (plain, plain.removesuffix("s"), plain.removesuffix("es")):
        if form in names:
            return names[form][1]
    close = difflib.get_close_matches(plain, names, n=1, cutoff=0.6)
    remedy = f"Did you mean {names[close[0]][0]}?" if close else "All terms: glass learn glossary"
    raise GlassError(f"the glossary has no {word!r}", remedy)


@cache
def _names() -> dict[str, tuple[str, Entry]]:
    """Each name as it is compared -> the name, and its entry."""
    return {_plain(name): (name, entry) for entry in entries() for name in entry.names}


def _plain(name: str) -> str:
    """A name as it is compared: `Multi-head attention` and `multihead attention` are one."""
    return re.sub(r"[\s_-]+", "", name.casefold())
