"""Reports of comparisons: a table for the terminal, a Markdown file, and a self-contained HTML file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glassformer.base.files import write_text
from glassformer.base.pages import render_page
from glassformer.experiments.grid import Grid, format_setting, shared_settings
from glassformer.experiments.statistics import CLAIM, CellResult, ResultTable, warnings_of

ROWS = ("model.context", "train.batch", "train.batch_tokens", "train.mask_share", "train.task")
"""Settings outside of `data` and `tokenizer` that change the rows of a training step."""


@dataclass(frozen=True)
class StudyReport:
    """Report of a comparison or of a cost measurement: a table with plots and notes.

    Attributes:
        folder: folder of the report files.
        fields: fields of the JSON object, besides the file names.
        title: title of the page.
        paragraphs: paragraphs before the table.
        header, rows: cells of the table.
        pictures: file name -> SVG.
        notes: list of notes after the plots.
        texts: (heading, preformatted text) sections at the end.
    """

    folder: Path
    fields: Mapping[str, Any]
    title: str
    paragraphs: Sequence[str]
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    pictures: Mapping[str, str]
    notes: Sequence[str] = ()
    texts: Sequence[tuple[str, str]] = field(default=())

    def markdown(self) -> str:
        """Return the report as Markdown that links to the plot files."""
        parts = [f"# {self.title}", *self.paragraphs, "\n".join(self._markdown_table())]
        parts += [f"![{Path(name).stem}]({name})" for name in self.pictures]
        parts += ["\n".join(f"- {note}" for note in self.notes)] if self.notes else []
        for heading, content in self.texts:
            parts += [f"## {heading}", "\n".join(f"    {line}" for line in content.splitlines())]
        return "\n\n".join(parts) + "\n"

    def _markdown_table(self) -> list[str]:
        rows = [[cell.replace("|", "\\|") for cell in row] for row in (self.header, *self.rows)]
        ruler = ["---", *["---:"] * (len(self.header) - 1)]
        return ["| " + " | ".join(row) + " |" for row in (rows[0], ruler, *rows[1:])]

    def html(self) -> str:
        """Return the report as an HTML page with embedded plots."""
        return render_page("glassformer.experiments", "report.html", report=self)

    @property
    def page(self) -> Path:
        """Return the path of the HTML file."""
        return self.folder / "report.html"

    def facts(self) -> dict[str, Any]:
        """Return the fields of the JSON object."""
        return {"folder": str(self.folder), "report": str(self.page), **self.fields}

    def text(self) -> str:
        """Format the table and the notes as text."""
        widths = [max(map(len, column)) for column in zip(self.header, *self.rows, strict=True)]
        lines = [
            "  ".join(
                f"{cell:<{width}}" if number == 0 else f"{cell:>{width}}"
                for number, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in (self.header, *self.rows)
        ]
        return "\n".join([*lines, *self.notes])

    def write(self) -> None:
        """Write `report.md`, `report.html` and the plots, each atomically."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, picture in self.pictures.items():
            write_text(self.folder / name, picture)
        write_text(self.folder / "report.md", self.markdown())
        write_text(self.page, self.html())


def comparison_report(grid: Grid, table: ResultTable, pictures: Mapping[str, str], folder: Path) -> StudyReport:
    """Return the report of a grid's results, to be written to `folder`."""
    measure = table.title
    baseline = table.rows[table.baseline]
    header = ["cell", f"{measure} (mean ± sd)", "seeds", "delta", "delta / sd", "against the baseline"]
    removals = any(row.writing.values for row in table.rows)
    header += ["when generating", "restored"] if removals else []
    header += ["seconds", "parameters"]
    rows = [_row_cells(row, removals) for row in table.rows]
    notes = [
        f"Baseline: {baseline.name}. A difference below {CLAIM:g} times the larger standard deviation (sd) counts as "
        "no clear difference."
    ]
    if table.measure == "loss" and table.entropy is not None:
        notes.append(f"The true entropy of the text is {table.entropy:.4f}: no causal model can do better on average.")
    if removals:
        notes.append("When generating: the loss of the token after each window, which is not in the model's input.")
        notes.append("Restored: the loss of the same weights in the complete model.")
        notes += (
            [f"Loss if all tokens are equally likely: ln V = {math.log(table.choices):.4f}."] if table.choices else []
        )
    notes += [*warnings_of(grid), *table.warnings]
    notes += [f"{run} failed: {error}" for row in table.rows for run, error in row.failures]
    paragraphs = [text for text in (grid.question, grid.hint) if text]
    measured = f"{measure.capitalize()} on the validation split, at the best checkpoint of each run."
    same_rows = " All cells of one seed see the same rows in the same order."
    paragraphs.append(measured + ("" if any(map(_changes_rows, grid.varied)) else same_rows))
    settings = "\n".join(f"{key} = {format_setting(value)}" for key, value in shared_settings(grid).items())
    texts = [("Shared settings", settings)] if settings else []
    if removals:
        texts += [(f"Sample of {row.name}", row.writes[:400]) for row in table.rows if row.writes]
    title = "Comparison of " + " and ".join(grid.varied)
    return StudyReport(folder, _report_fields(grid, table), title, paragraphs, header, rows, pictures, notes, texts)


def _changes_rows(key: str) -> bool:
    """Return whether cells that differ in this setting are trained on different rows."""
    return key.startswith(("data.", "tokenizer.")) or key in ROWS


def _row_cells(row: CellResult, removals: bool) -> list[str]:
    contrast = row.contrast
    delta = "" if contrast is None or contrast.delta is None else f"{contrast.delta:+.4f}"
    ratio = "" if contrast is None or contrast.ratio is None else f"{contrast.ratio:.1f}"
    return [
        row.name,
        row.measured,
        str(len(row.spread.values)),
        delta,
        ratio,
        "baseline" if contrast is None else contrast.finding,
        *([str(row.writing), str(row.restored) if row.restored.values else ""] if removals else []),
        "" if row.seconds is None else f"{row.seconds:.1f}",
        "" if row.parameters is None else f"{row.parameters:,}",
    ]


def _report_fields(grid: Grid, table: ResultTable) -> dict[str, Any]:
    return {
        "question": grid.question or None,
        "measure": table.measure,
        "unit": table.unit,
        "baseline": table.rows[table.baseline].name,
        "seeds": grid.seeds,
        "vocabulary": table.choices,
        "entropy": table.entropy,
        "cells": [_row_fields(row) for row in table.rows],
        "warnings": [*warnings_of(grid), *table.warnings],
    }


def _row_fields(row: CellResult) -> dict[str, Any]:
    contrast = row.contrast
    return {
        "cell": row.name,
        "values": dict(row.values),
        "mean": row.spread.mean,
        "sd": row.spread.sd,
        "of_each_seed": list(row.spread.values),
        "delta": contrast.delta if contrast else None,
        "delta_over_sd": _finite(contrast.ratio) if contrast else None,
        "finding": contrast.finding if contrast else "baseline",
        "writing_loss": row.writing.mean,
        "writing_loss_sd": row.writing.sd,
        "restored_loss": row.restored.mean,
        "restored_loss_sd": row.restored.sd,
        "train_seconds": row.seconds,
        "parameters": row.parameters,
        "failed": [{"run": run, "problem": error} for run, error in row.failures],
    }


def _finite(value: float | None) -> float | None:
    """Return None instead of infinity, which JSON cannot represent."""
    return None if value is None or math.isinf(value) else value
