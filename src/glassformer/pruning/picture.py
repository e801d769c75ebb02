"""The curves of a report as a picture: loss over heads removed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from glassformer.errors import GlassError
from glassformer.files import clear_disk_errors, refuse_no_folder
from glassformer.pruning.order import Point

COLOURS = {"importance": "#0072b2", "ablation": "#009e73", "reverse": "#d55e00", "random": "#666666"}
"""Told apart by people of all kinds of colour vision (Okabe and Ito 2008)."""
FORMATS = (".png", ".svg", ".pdf")


def refuse_no_picture(path: Path) -> None:
    """Known before the work is done: no matplotlib, another format, or no folder.

    Raises:
        GlassError: the picture could not be written.
    """
    if path.suffix.lower() not in FORMATS:
        raise GlassError(f"--plot {path} is no picture's name", f"Let it end in {', '.join(FORMATS)}.")
    refuse_no_folder(path)
    if importlib.util.find_spec("matplotlib") is None:
        raise GlassError("a picture needs matplotlib", 'Install it: pip install -e ".[plots]"')


def draw(curves: dict[str, list[list[Point]]], path: Path) -> None:
    """Write the picture: a line for each order; of several curves the mean, and a band around all."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for name, several in curves.items():
        heads = [point.removed for point in several[0]]
        losses = list(zip(*([point.loss for point in points] for points in several), strict=True))
        mean = [sum(each) / len(each) for each in losses]
        if len(several) > 1:
            low, high = list(map(min, losses)), list(map(max, losses))
            axes.fill_between(heads, low, high, color=COLOURS[name], alpha=0.15, linewidth=0)
        label = f"{name}, mean of {len(several)}" if len(several) > 1 else name
        axes.plot(heads, mean, "o-", color=COLOURS[name], markersize=3, label=label)
    axes.set_xlabel("heads removed")
    axes.set_ylabel("validation loss (nats)")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    partial = path.with_name(path.name + ".partial")
    with clear_disk_errors(path):
        try:
            figure.savefig(partial, format=path.suffix[1:].lower())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
