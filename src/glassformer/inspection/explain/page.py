"""The walk as one HTML file that needs nothing else: no network, no other file."""

from __future__ import annotations

import math
from html import escape
from importlib import resources
from pathlib import Path
from string import Template

from glassformer.base.errors import GlassError
from glassformer.base.files import clear_disk_errors, refuse_no_folder, write_text
from glassformer.base.wording import LEVELS, Level
from glassformer.inspection.explain.sections import (
    Cell,
    Matrix,
    Section,
    SectionTable,
    Walk,
    edges,
    line_of,
    write_number,
)
from glassformer.inspection.explain.wording import wordings

MARK = '<meta name="generator" content="glass explain">'
WHOLE = 16  # rows and columns of a matrix that is shown whole; larger ones are shortened to CORNER
CORNER = 9
LABELS: dict[Level, str] = {
    "school": "a school child",
    "student": "a student",
    "practitioner": "a practitioner",
    "engineer": "an engineer",
    "researcher": "a researcher",
}


def write_page(walk: Walk, level: Level, path: Path) -> None:
    """Write the page whole or not at all.

    Raises:
        GlassError: `path` cannot be written, or is a file that is not such a page.
    """
    check_writable(path)
    write_text(path, make_page(walk, level))


def check_writable(path: Path) -> None:
    """Refuse a place that cannot hold a page, and a file that something else wrote."""
    if path.is_dir():
        raise GlassError(f"{path} is a folder", "Give the name of a file, such as explained.html.")
    refuse_no_folder(path)
    if path.exists():
        with clear_disk_errors(path), path.open("rb") as file:
            ours = MARK.encode() in file.read(2000)
        if not ours:
            raise GlassError(f"{path} exists and is no page of glass explain", "Choose another name, or delete it.")


def make_page(walk: Walk, level: Level) -> str:
    """The page's text; `level` is the one that is shown first, a reader can change it."""
    template = resources.files("glassformer.inspection.explain").joinpath("page.html").read_text(encoding="utf-8")
    what = "text" if walk.target is None else "source"
    texts = [f'<div class="soft">{what}</div><blockquote>{escape(walk.text)}</blockquote>']
    if walk.target is not None:
        texts.append(f'<div class="soft">target</div><blockquote>{escape(walk.target)}</blockquote>')
    told: set[str] = set()
    return Template(template).substitute(
        title=escape(walk.title),
        texts="\n".join(texts),
        facts="".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in walk.facts.items()),
        predictions="".join(map(_table, walk.predictions)),
        switch="\n".join(f"body:has(#to-{each}:checked) .{each} {{ display: inline !important; }}" for each in LEVELS),
        levels="".join(
            f'<label><input type="radio" name="level" id="to-{each}"{" checked" if each == level else ""}> '
            f"{LABELS[each]}</label>"
            for each in LEVELS
        ),
        sections="\n".join(_section(section, told, wordings(), 2) for section in walk.sections),
    )


def _section(section: Section, told: set[str], texts: dict[str, dict[Level, str]], rank: int) -> str:
    """One step; the first of its kind is open and has the words, others refer to them."""
    first = section.key not in told
    told.add(section.key)
    notes = section.notes
    line = f"<h{rank}>{escape(section.title)}</h{rank}>"
    if section.key == "head":
        line = f'{line} <span class="soft">{escape(notes[0])}</span>'
        notes = notes[1:]
    words = f'<p class="note"><a href="#about-{section.key}">What is this?</a></p>'
    if first:
        spans = "".join(f'<span class="{each}">{escape(text)}</span>' for each, text in texts[section.key].items())
        words = f'<p class="words" id="about-{section.key}">{spans}</p>'
    inside = [
        words,
        *(f'<p class="note">{escape(note)}</p>' for note in notes),
        '<div class="flow">' + "".join([*map(_matrix, section.matrices), *map(_table, section.tables)]) + "</div>",
        *(_section(child, told, texts, min(rank + 1, 4)) for child in section.children),
    ]
    return f"<details{' open' if first else ''}><summary>{line}</summary>\n" + "\n".join(inside) + "\n</details>"


def _matrix(matrix: Matrix) -> str:
    rows, columns = matrix.shape
    formula = f" = {escape(matrix.formula)}" if matrix.formula else ""
    large = rows > WHOLE or columns > WHOLE
    size = line_of(matrix.statistics(), matrix.shape) if large else f"{rows} × {columns}"
    caption = f"<figcaption><b>{escape(matrix.name)}{formula}</b> <span>({size})</span></figcaption>"
    if large and matrix.role == "parameters":
        return f"<figure>{caption}</figure>"
    down = edges(rows, WHOLE if rows <= WHOLE else CORNER)
    across = edges(columns, WHOLE if columns <= WHOLE else CORNER)
    form = matrix.format()
    focus = ' tabindex="0"' if len(across) > CORNER else ""  # wide ones scroll, by keys too
    head = "".join("<th>…</th>" if at is None else f"<th>{escape(matrix.column_name(at))}</th>" for at in across)
    body = "".join(
        f"<tr><th>{'…' if row is None else escape(matrix.row_name(row))}</th>"
        + "".join(_value(matrix, row, at, form) for at in across)
        + "</tr>"
        for row in down
    )
    return (
        f'<figure>{caption}<div class="scroll"{focus}><table><thead><tr><th></th>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div></figure>"
    )


def _value(matrix: Matrix, row: int | None, column: int | None, form: str) -> str:
    if row is None or column is None:
        return "<td>…</td>"
    value = float(matrix.values[row, column])
    kind = ' class="x"' if not math.isfinite(value) else ""
    if matrix.role == "weights":
        kind = f' class="w" style="--w:{value:.2f}"' if value else ' class="x"'
    return f"<td{kind}>{value:{form}}</td>"


def _table(table: SectionTable) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in table.header)
    shown = [None if at is None else table.rows[at] for at in edges(len(table.rows), 40)]
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(cell)}</td>" for cell in (row or ["…"] * len(table.header))) + "</tr>"
        for row in shown
    )
    return (
        f'<figure><figcaption>{escape(table.name)}</figcaption><div class="scroll"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></figure>"
    )


def _cell(value: Cell) -> str:
    return escape(write_number(value))
