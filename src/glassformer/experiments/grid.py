"""Grid of settings: every combination of the varied values, each with the same seeds.

This module does not import torch. A grid is stored in `grid.json` in its folder. When a comparison is resumed, the grid
must be the same, except that it may have more seeds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

from glassformer.base.config import Config, parse_changes
from glassformer.base.errors import MALFORMED, GlassError, nearest
from glassformer.base.files import write_text
from glassformer.base.settings import setting_text
from glassformer.base.wording import counted
from glassformer.runs.folder import Folder

FILE = "grid.json"
REMOVE = "remove"
NOTHING = "nothing"
REMOVABLE = MappingProxyType(
    {"causal-mask": "no causal mask", "residuals": "no residual connections", "feedforward": "no feed-forward layers"}
)
"""Component that an experiment can remove, although no setting does -> description of the model without it."""
MAX_RUNS = 1000
"""Maximum number of runs of a grid."""


@dataclass(frozen=True)
class Cell:
    """One combination of the varied values.

    Attributes:
        values: the value of each varied setting (or of `remove`) in this cell, as a string.
        config: all settings, with the first seed.
    """

    values: Mapping[str, str]
    config: Config

    @property
    def name(self) -> str:
        """Return a name made of fields and values, such as `positions=rotary learning_rate=1e-3`."""
        return " ".join(f"{key.rpartition('.')[2]}={value}" for key, value in self.values.items())

    @property
    def removed(self) -> str | None:
        """Return the component that is removed, a key of `REMOVABLE`; None if the model is complete."""
        return None if self.values.get(REMOVE, NOTHING) == NOTHING else self.values[REMOVE]


@dataclass(frozen=True)
class GridJob:
    """One run of a grid: a cell with one seed."""

    name: str
    cell: Cell
    config: Config


@dataclass(frozen=True)
class Grid:
    """A grid of cells with seeds; the first cell is the default baseline.

    Attributes:
        cells: all cells in order.
        seeds: number of seeds per cell; seeds count up from the seed of the settings.
        question: question that the grid answers; may be empty.
        hint: advice on interpreting the results; may be empty.
    """

    cells: tuple[Cell, ...]
    seeds: int
    question: str = ""
    hint: str = ""

    @property
    def varied(self) -> list[str]:
        """Return the names of the settings that vary between cells."""
        return list(self.cells[0].values)

    def jobs(self) -> list[GridJob]:
        """Return all runs, ordered by seed, so that a grid that is stopped early can still be compared."""
        return [self.job(number, seed) for seed in range(self.seeds) for number in range(len(self.cells))]

    def job(self, number: int, seed: int) -> GridJob:
        """Return the run of cell `number` with its `seed`-th seed."""
        cell = self.cells[number]
        name = re.sub(r"[^\w.=-]+", "-", cell.name)[:80]
        changed = cell.config.train.replace(seed=cell.config.train.seed + seed)
        return GridJob(f"{number:02d}-{name}-seed-{seed}", cell, cell.config.replace(train=changed.model_dump()))

    def find(self, name: str) -> GridJob:
        """Return the run with this name."""
        return next(job for job in self.jobs() if job.name == name)

    def write(self, folder: Path) -> None:
        """Write the grid to `grid.json` in a folder."""
        cells = [{"values": dict(cell.values), "config": cell.config.model_dump(mode="json")} for cell in self.cells]
        facts = {"question": self.question, "hint": self.hint, "seeds": self.seeds, "cells": cells}
        write_text(folder / FILE, json.dumps(facts, indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def read(cls, folder: Folder) -> Grid:
        """Load the grid that `write` saved in a folder.

        Raises:
            GlassError: the file is damaged.
        """
        path = Path(folder) / FILE
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            cells = tuple(Cell(each["values"], Config.from_dict(each["config"], str(path))) for each in facts["cells"])
            return cls(cells, facts["seeds"], facts["question"], facts["hint"])
        except MALFORMED:
            raise GlassError(f"{path} is damaged", "Start again with another --out.") from None


def parse_variations(items: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Parse command-line items `SETTING=VALUE,VALUE,...` into a mapping from setting to values.

    Raises:
        GlassError: an item has no =; its setting is unknown, cannot vary, or is given twice; or it has fewer than two
            values, an empty value or a repeated value.
    """
    variations: dict[str, tuple[str, ...]] = {}
    for item in items:
        key, equals, text = item.partition("=")
        key = key.strip()
        values = tuple(value.strip() for value in text.split(","))
        if not equals:
            raise GlassError(f"--vary {item} has no =", "Write --vary SECTION.FIELD=VALUE,VALUE")
        if key in variations:
            raise GlassError(f"--vary {key} was given twice", "Give all its values at once, with commas.")
        if len(values) < 2 or "" in values:
            problem = "fewer than two values" if len(values) < 2 else "an empty value"
            raise GlassError(
                f"--vary {item} has {problem}",
                f"Give at least two values, separated by commas: --vary {key}=VALUE,VALUE",
            )
        _check_variation(key, values)
        variations[key] = values
    return variations


def _check_variation(key: str, values: Sequence[str]) -> None:
    if key == REMOVE:
        for value in values:
            if value != NOTHING and value not in REMOVABLE:
                raise GlassError(
                    f"--vary {REMOVE}={value}: unknown part {value!r}", nearest(value, [NOTHING, *REMOVABLE])
                )
    elif key == "train.seed":
        raise GlassError(
            "train.seed cannot vary: every cell has the same seeds", "Set the number of seeds instead: --seeds 3"
        )
    else:
        parse_changes({key: values[0]})
    if len(set(values)) < len(values):
        repeated = next(value for value in values if values.count(value) > 1)
        raise GlassError(f"--vary {key} has {repeated} twice", "Give each value once.")


def make_grid(
    vary: Mapping[str, Sequence[str]], seeds: int, settings: Callable[[dict[str, str]], Config]
) -> tuple[Cell, ...]:
    """Make the cells of all combinations of values, the last setting changing fastest, and check their settings.

    Args:
        vary: the values of each setting (or of `remove`), as strings.
        seeds: number of runs per cell.
        settings: function from changed settings to all settings of a run.

    Raises:
        GlassError: nothing varies, there are no seeds or too many runs, a combination is impossible, the text is
            standard input, or two cells are equal.
    """
    if not vary:
        raise GlassError("nothing varies", "Give --vary SECTION.FIELD=VALUE,VALUE or --study NAME.")
    if seeds < 1:
        raise GlassError(f"--seeds {seeds} is less than one", "Give at least 1, or 3 to measure differences.")
    combinations = [dict(zip(vary, values, strict=True)) for values in product(*vary.values())]
    if len(combinations) * seeds > MAX_RUNS:
        raise GlassError(
            f"{counted(len(combinations), 'combinations')} x {counted(seeds, 'seeds')} are more than {MAX_RUNS:,} runs",
            "Vary fewer values, or give fewer seeds.",
        )
    cells: list[Cell] = []
    for values in combinations:
        try:
            cell = Cell(values, settings({key: value for key, value in values.items() if key != REMOVE}))
        except GlassError as error:
            raise GlassError(f"{Cell(values, Config()).name}: {error.problem}", error.remedy) from None
        _refuse_unsupported(cell)
        for other in cells:
            if (other.config, other.removed) == (cell.config, cell.removed):
                raise GlassError(f"the cells {other.name} and {cell.name} are the same", "Leave one of the values out.")
        cells.append(cell)
    return tuple(cells)


def _refuse_unsupported(cell: Cell) -> None:
    config = cell.config
    if config.data.source == "-" or "-" in (config.data.target, config.data.validation):
        raise GlassError(
            "a comparison reads its text more than once, but - is standard input", "Save the text in a file."
        )
    if cell.removed == "causal-mask" and config.train.task != "lm":
        raise GlassError(
            f"--vary remove=causal-mask needs a language model, but train.task = {config.train.task}",
            "Give --task lm, or remove causal-mask from --vary.",
        )


def difference(old: Grid, new: Grid) -> str | None:
    """Return a description of the first difference between two grids in cells or settings.

    Return None if cells and settings are equal and `new` has at least as many seeds as `old`.
    """
    if [cell.values for cell in old.cells] != [cell.values for cell in new.cells]:
        names = [", ".join(cell.name for cell in grid.cells) for grid in (old, new)]
        return f"the cells {names[0]}, not {names[1]}"
    for old_cell, new_cell in zip(old.cells, new.cells, strict=True):
        old_settings = _flat_settings(old_cell.config)
        new_settings = _flat_settings(new_cell.config)
        for key in old_settings:
            if old_settings[key] != new_settings[key]:
                return f"{key} = {format_setting(old_settings[key])}, not {format_setting(new_settings[key])}"
    if new.seeds < old.seeds:
        return f"{old.seeds} seeds, not {new.seeds}"
    return None


def shared_settings(grid: Grid) -> dict[str, Any]:
    """Return the settings that all cells share and that differ from the defaults."""
    cell_settings = [_flat_settings(cell.config) for cell in grid.cells]
    defaults = _flat_settings(Config())
    return {
        key: value
        for key, value in cell_settings[0].items()
        if value != defaults[key] and all(settings[key] == value for settings in cell_settings)
    }


def _flat_settings(config: Config) -> dict[str, Any]:
    return {
        f"{section}.{field}": value
        for section, fields in config.model_dump().items()
        for field, value in fields.items()
    }


def format_setting(value: Any) -> str:
    """Return the value of a setting as text."""
    return setting_text(value)
