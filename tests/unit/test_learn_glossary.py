"""The glossary: every term is found by all its names, and all its links resolve."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from glassformer.base.errors import GlassError
from glassformer_course.glossary import Entry, entries, look_up

DOCS = Path(__file__).parents[2] / "docs"
TERMS = entries()
NAMES = sorted(name for entry in TERMS for name in entry.names)


def sections(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as code forges and the book generate them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


def test_there_are_many_entries_in_alphabetical_order() -> None:
    assert len(TERMS) >= 120
    assert [entry.term for entry in TERMS] == sorted((entry.term for entry in TERMS), key=str.casefold)


@pytest.mark.parametrize("entry", TERMS, ids=lambda entry: entry.term)
def test_an_entry_is_complete_and_its_links_resolve(entry: Entry) -> None:
    assert 1 <= len(re.findall(r"[.)](?= |$)", entry.text)) <= 4
    assert entry.text.endswith((".", ".)"))
    assert set(entry.ordinary) <= set(entry.names)
    terms = {other.term for other in TERMS}
    assert set(entry.see) <= terms - {entry.term}
    file, _, section = entry.page.partition("#")
    page = DOCS / f"{file}.md"
    assert page.is_file()
    assert not section or file == "settings" or section in sections(page)


def test_no_two_entries_share_a_name() -> None:
    plain = Counter(re.sub(r"[\s_-]+", "", name.casefold()) for name in NAMES)
    assert [name for name, uses in plain.items() if uses > 1] == []


def test_names_are_found_in_any_case_hyphenation_or_number() -> None:
    for entry in TERMS:
        for name in entry.names:
            assert look_up(name) == look_up(f"  {name.upper()} ") == look_up(name.replace(" ", "-")) == entry
            assert look_up(name + "s") == entry or name + "s" in NAMES


def test_an_answer_has_text_names_and_page() -> None:
    said = look_up("RoPE").as_text()
    assert said.startswith("rotary positions\n")
    assert "also listed under: RoPE, " in said
    assert "see also: position encoding" in said
    assert said.endswith(f"shown in: {look_up('rope').file}")
    assert look_up("rope").facts()["also"][0] == "RoPE"


@pytest.mark.parametrize(
    ("word", "remedy"),
    [
        ("atention", "Did you mean attention?"),
        ("zebra", "All terms: glass learn glossary"),
        ("", "All terms: glass learn glossary"),
        ("a\nb", "All terms: glass learn glossary"),
    ],
)
def test_an_unknown_word_gets_a_two_line_error(word: str, remedy: str) -> None:
    with pytest.raises(GlassError) as caught:
        look_up(word)
    assert str(caught.value).splitlines() == [f"the glossary has no entry {word!r}", remedy]
