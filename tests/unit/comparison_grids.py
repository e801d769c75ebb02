"""Small grids of a comparison, with made-up results of their cells; nothing is trained."""

from __future__ import annotations

from typing import Any

from glassformer.base.config import Config, settings_of
from glassformer.experiments.grid import Grid, make_grid, parse_variations

VARY = ["model.positions=learned, rotary,none", "train.learning_rate=1e-3,3e-3"]


def settings(changes: dict[str, str]) -> Config:
    """Return the settings of one cell."""
    return settings_of([], {"train.seed": "7", "model.width": "24", **changes})


def grid_of(*vary: str, seeds: int = 3) -> Grid:
    """Return the grid of these variations."""
    return Grid(make_grid(parse_variations(vary or VARY), seeds, settings), seeds, "Which one?", "Look closely.")


def result(loss: float, **more: Any) -> dict[str, Any]:
    """Return a result in the format that a cell reports."""
    return {
        "loss": loss,
        "bits_per_byte": loss / 3,
        "unit": "token",
        "train_seconds": 2.0,
        "parameters": 11,
        "choices": 5,
        "entropy": None,
        "writes": "words",
        **more,
    }
