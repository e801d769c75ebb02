"""Plots of a comparison as SVG: loss curves, bars with standard deviations, and costs on logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.experiments.grid import Grid
from glassformer.experiments.statistics import ResultTable
from glassformer.inspection.plots.charts import COLOURS
from glassformer.inspection.plots.saving import svg_text
from glassformer.runs.folder import Run
from glassformer.training.journal import read_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLES = ("-", "--", ":", "-.")
Curve = list[tuple[int, float]]


def curves_picture(folder: Path, grid: Grid) -> str:
    """Plot validation loss over steps: the mean of each cell over its seeds, with a band from minimum to maximum."""
    figure, axes = _figure(8.0, 4.5)
    for number, cell in enumerate(grid.cells):
        runs = [validation_curve(folder / "runs" / grid.job(number, seed).name) for seed in range(grid.seeds)]
        steps, low, mean, high = band([run for run in runs if run])
        if steps:
            colour = COLOURS[number % len(COLOURS)]
            style = STYLES[number // len(COLOURS) % len(STYLES)]
            axes.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
            axes.plot(steps, mean, style, color=colour, marker="o", markersize=3, label=cell.name)
    axes.set_xlabel("step")
    axes.set_ylabel("validation loss")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize="small", frameon=False)
    return svg_text(figure)


def bars_picture(table: ResultTable) -> str:
    """Plot the measure of each cell: a bar for the mean, a whisker for one standard deviation, a dot for each seed."""
    figure, axes = _figure(8.0, 1.2 + 0.36 * len(table.rows))
    for number, row in enumerate(table.rows):
        if row.spread.mean is not None:
            colour = COLOURS[0] if number == table.baseline else "#8fb3d9"
            axes.barh(number, row.spread.mean, xerr=row.spread.sd or 0.0, color=colour, capsize=3)
            axes.plot(row.spread.values, [number] * len(row.spread.values), "o", color="#111", markersize=3)
    means = [row.spread.mean for row in table.rows if row.spread.mean is not None]
    if means and table.measure == "loss" and table.entropy:
        axes.axvline(table.entropy, color="#009e73", linestyle="--", label="true entropy of the text")
        axes.legend(fontsize="small", frameon=False)
    axes.set_yticks(range(len(table.rows)), [row.name for row in table.rows])
    axes.invert_yaxis()
    axes.set_xlabel(table.title)
    axes.grid(axis="x", alpha=0.3)
    return svg_text(figure)


def lines_picture(
    lines: Sequence[tuple[str, Sequence[float], Sequence[float], Sequence[float]]], x: str, y: str
) -> str:
    """Plot measured points and fitted lines on logarithmic axes; `lines` are (name, sizes, measured, fitted or NaN)."""
    figure, axes = _figure(5.5, 4.0)
    for number, (name, sizes, measured, fitted) in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(sizes, measured, "o", color=colour, markersize=4, label=name)
        axes.plot(sizes, fitted, "-", color=colour, linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", frameon=False)
    return svg_text(figure)


def validation_curve(run: Path) -> Curve:
    """Return the (step, validation loss) points of a run so far, without losses that are not finite."""
    measured = [record for record in read_metrics(Run(run)) if math.isfinite(record.get("validation_loss", math.inf))]
    return [(record["step"], float(record["validation_loss"])) for record in measured]


def band(runs: Sequence[Curve]) -> tuple[list[int], list[float], list[float], list[float]]:
    """Return the steps that all curves share, and the minimum, mean and maximum at each step."""
    if not runs:
        return [], [], [], []
    tables = [dict(run) for run in runs]
    steps = [step for step, _ in runs[0] if all(step in table for table in tables)]
    values = [[table[step] for table in tables] for step in steps]
    return steps, list(map(min, values)), [math.fsum(each) / len(each) for each in values], list(map(max, values))


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()
