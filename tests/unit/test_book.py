"""The chapters of the book as a whole: pictures, names of runs, and citations with an entry in the bibliography."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CHAPTERS = sorted((DOCS / "book").glob("*.md"))
CITING = sorted([*DOCS.glob("*.md"), *CHAPTERS, *(ROOT / "src" / "glassformer_course" / "exercises").glob("*/page.md")])
DRAWS = re.compile(r"^(?:figure = )?(?:draw_\w+\(|SVG\(|figure, .* = plt\.subplots)", flags=re.MULTILINE)
NAME = r"(?:Team |Sparck )?[A-Z][\w’'-]+"
CITATION = re.compile(rf"\b({NAME}(?: et al\.| and {NAME})?),? \(?((?:19|20)\d\d)\b")


def entries() -> dict[str, str]:
    """Return a dictionary from citation, such as "Vaswani et al. 2017", to the BibTeX entry, which is one line."""
    lines = [
        line for line in (DOCS / "references.bib").read_text(encoding="utf-8").splitlines() if line.startswith("@")
    ]
    labels = []
    for line in lines:
        names = re.search(r"author = \{((?:[^{}]|\{[^{}]*\})*)\}", line)[1].split(" and ")  # type: ignore[index]
        last = [name[name.index("{") :].strip("{}") if "{" in name else name.split()[-1] for name in names]
        shown = f"{last[0]} et al." if len(last) > 2 or last[-1] == "others" else " and ".join(last)
        labels.append(f"{shown} {re.search(r'year = {(....)}', line)[1]}")  # type: ignore[index]
    assert len(set(labels)) == len(lines)
    return dict(zip(labels, lines, strict=True))


def text_of(path: Path) -> str:
    """Return a page without its code blocks, in one line."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return " ".join(text.split())


@pytest.mark.parametrize("path", CITING, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_citation_of_a_page_is_in_the_bibliography(path: Path) -> None:
    known = entries()
    cited = {f"{names} {year}" for names, year in CITATION.findall(text_of(path))}
    assert {each for each in cited if not each.startswith("Try ")} <= set(known)


@pytest.mark.thorough
def test_every_citation_of_a_docstring_is_in_the_bibliography() -> None:
    """The book shows most docstrings, so a citation without an entry would fail its build."""
    known = entries()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                cited = {f"{names} {year}" for names, year in CITATION.findall(" ".join(node.value.value.split()))}
                assert cited <= set(known), f"{path.name}: {cited - set(known)}; add it to docs/references.bib"


@pytest.mark.thorough
def test_every_entry_is_cited_and_has_a_link() -> None:
    sources = [*CITING, *(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.toml")]
    joined = " ".join(re.sub(r'"?\n\s*(?:#\s*|")?', " ", path.read_text(encoding="utf-8")) for path in sources)
    cited = {f"{names} {year}" for names, year in CITATION.findall(" ".join(joined.split()))}
    for name, entry in entries().items():
        assert name in cited, f"{name} is cited nowhere"
        assert re.search(r"url = \{https://[^ {}]+\}\}$", entry), name


def test_chapters_that_run_one_after_the_other_write_different_runs() -> None:
    runs = [
        (name, path.name) for path in CHAPTERS for name in set(re.findall(r"--out ([a-z][\w-]*)", path.read_text()))
    ]
    shared = [name for name, count in Counter(name for name, _ in runs).items() if count > 1]
    assert not shared, runs
    assert len(runs) >= 8


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_every_chapter_has_a_picture_that_its_code_draws(path: Path) -> None:
    blocks = re.findall(
        r"^```\{code-cell\} python\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    drawing = [block for block in blocks if DRAWS.search(block)]
    assert drawing
    assert all("alt:" in block for block in drawing)
