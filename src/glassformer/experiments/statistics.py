"""Compute means and standard deviations over seeds, and differences between cells."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from glassformer.experiments.grid import REMOVE, Grid

CLAIM = 2.0
"""Minimum difference between cells, in standard deviations over seeds, that counts as a finding."""


@dataclass(frozen=True)
class SeedStatistics:
    """Mean and standard deviation of one cell over its seeds.

    Attributes:
        values: value of each finished seed that has one.
    """

    values: tuple[float, ...]

    @property
    def mean(self) -> float | None:
        """Return the mean of the values; None if there are none."""
        return math.fsum(self.values) / len(self.values) if self.values else None

    @property
    def sd(self) -> float | None:
        """Return the sample standard deviation, with n - 1 in the denominator; None for fewer than two values."""
        if len(self.values) < 2:
            return None
        mean = math.fsum(self.values) / len(self.values)
        return math.sqrt(math.fsum((value - mean) ** 2 for value in self.values) / (len(self.values) - 1))

    def __str__(self) -> str:
        if self.mean is None:
            return "none finished"
        return f"{self.mean:.4f}" if self.sd is None else f"{self.mean:.4f} ± {self.sd:.4f}"


@dataclass(frozen=True)
class Contrast:
    """Difference between a cell and the baseline.

    Attributes:
        delta: difference of the means; None if a mean is missing.
        sd: the larger of the two standard deviations; None if a standard deviation is missing.
    """

    delta: float | None
    sd: float | None

    @classmethod
    def of(cls, cell: SeedStatistics, baseline: SeedStatistics) -> Contrast:
        """Return the contrast `cell` minus `baseline`."""
        means = (cell.mean, baseline.mean)
        delta = None if means[0] is None or means[1] is None else means[0] - means[1]
        return cls(delta, None if cell.sd is None or baseline.sd is None else max(cell.sd, baseline.sd))

    @property
    def ratio(self) -> float | None:
        """Return |delta| / sd; None if delta or sd is missing."""
        if self.delta is None or self.sd is None:
            return None
        return abs(self.delta) / self.sd if self.sd else (math.inf if self.delta else 0.0)

    @property
    def finding(self) -> str:
        """Return the difference in words.

        This is "unknown" if delta or sd is missing, "no clear difference" if |delta| < `CLAIM` sd, and otherwise
        "lower" or "higher".
        """
        if self.ratio is None or self.delta is None:
            return "unknown"
        return "no clear difference" if self.ratio < CLAIM else "lower" if self.delta < 0 else "higher"


@dataclass(frozen=True)
class CellResult:
    """Results of one cell of a grid.

    Attributes:
        name: name of the cell.
        values: the value of each varied setting (or of `remove`) in this cell.
        spread: mean and standard deviation of `ResultTable.measure` over seeds.
        contrast: difference from the baseline; None for the baseline itself.
        writing: loss when generating (see `worker.writing_loss`); empty if not measured.
        restored: loss with all components restored (see `worker.restored_loss`); empty if not measured.
        seconds: mean training time in seconds; None if no seed has finished.
        parameters: number of parameters of the model; None if no seed has finished.
        failures: (run, error message) of each run that failed or has no result.
        writes: last sample of the first finished seed, including the prompt; empty if no seed has finished.
    """

    name: str
    values: Mapping[str, str]
    spread: SeedStatistics
    contrast: Contrast | None
    writing: SeedStatistics
    restored: SeedStatistics
    seconds: float | None
    parameters: int | None
    failures: tuple[tuple[str, str], ...]
    writes: str

    @property
    def measured(self) -> str:
        """Return the mean and the standard deviation as text, or a note that there is no value."""
        finished_without = not self.spread.values and self.seconds is not None
        return "not available" if finished_without else str(self.spread)


@dataclass(frozen=True)
class ResultTable:
    """Results of a grid, with one row for each cell.

    Attributes:
        measure: "loss" in nats, or "bits_per_byte" if cells have different tokenizers and at least one result
            has bits per byte.
        unit: unit of prediction of the loss, such as "token".
        rows: one row for each cell, in the grid's order.
        baseline: index of the baseline cell.
        choices: number of possible outcomes of a prediction (vocabulary size V or number of labels) if all cells
            have the same number, otherwise None.
        entropy: true entropy of the text if it is known and the same for all cells, otherwise None.
        warnings: warnings about the interpretation of the results.
    """

    measure: str
    unit: str
    rows: tuple[CellResult, ...]
    baseline: int
    choices: int | None
    entropy: float | None
    warnings: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Return the unit of the measure in words, such as "nats per token"."""
        return "bits per byte" if self.measure == "bits_per_byte" else f"nats per {self.unit}"


def tabulate(grid: Grid, results: Mapping[str, Mapping[str, Any]], baseline: int = 0) -> ResultTable:
    """Collect the results of the runs by cell.

    Args:
        grid: the grid that was trained.
        results: results by run name, as `run_grid` returns them.
        baseline: index of the cell that the other cells are compared with.
    """
    results_by_cell = [[results.get(name, {}) for name in names] for names in _jobs_by_cell(grid)]
    finished = [result for cell_results in results_by_cell for result in cell_results if "loss" in result]
    # A cell with unknown tokens has no bits per byte; nats per token are not comparable across tokenizers.
    bytes_known = any(result["bits_per_byte"] is not None for result in finished)
    by_byte = bytes_known and any(key.startswith("tokenizer.") for key in grid.varied)
    measure = "bits_per_byte" if by_byte else "loss"
    spreads = [SeedStatistics(_values(cell_results, measure)) for cell_results in results_by_cell]
    rows = []
    for number, (cell, cell_results, spread) in enumerate(zip(grid.cells, results_by_cell, spreads, strict=True)):
        seconds = _values(cell_results, "train_seconds")
        failures = [
            (grid.job(number, seed).name, result.get("failed", "its result is missing or damaged"))
            for seed, result in enumerate(cell_results)
            if "loss" not in result
        ]
        rows.append(
            CellResult(
                name=cell.name,
                values=cell.values,
                spread=spread,
                contrast=None if number == baseline else Contrast.of(spread, spreads[baseline]),
                writing=SeedStatistics(_values(cell_results, "writing_loss")),
                restored=SeedStatistics(_values(cell_results, "restored_loss")),
                seconds=math.fsum(seconds) / len(seconds) if seconds else None,
                parameters=next((result["parameters"] for result in cell_results if "loss" in result), None),
                failures=tuple(failures),
                writes=next((result["writes"] for result in cell_results if "loss" in result), ""),
            )
        )
    units = {result["unit"] for result in finished}
    return ResultTable(
        measure=measure,
        unit=units.pop() if len(units) == 1 else "prediction",
        rows=tuple(rows),
        baseline=baseline,
        choices=_shared_value(finished, "choices"),
        entropy=_shared_value(finished, "entropy"),
        warnings=tuple(_unknown_warnings(grid, results)),
    )


def _unknown_warnings(grid: Grid, results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a warning for each cell that unknown tokens exclude from a comparison of tokenizers."""
    if not any(key.startswith("tokenizer.") for key in grid.varied):
        return
    for cell, jobs in zip(grid.cells, _jobs_by_cell(grid), strict=True):
        fraction = max((results.get(name, {}).get("unknown_share", 0.0) for name in jobs), default=0.0)
        if fraction:
            yield (
                f"{cell.name}: {fraction:.3%} of the validation tokens are unknown, so it has no bits per byte; "
                "nats per token are not comparable across tokenizers."
            )


def _jobs_by_cell(grid: Grid) -> list[list[str]]:
    """Return the names of the runs of each cell, one for each seed."""
    return [[grid.job(number, seed).name for seed in range(grid.seeds)] for number in range(len(grid.cells))]


def warnings_of(grid: Grid) -> list[str]:
    """Return warnings about the number of seeds and the varied settings, for readers of the table."""
    warnings = []
    if grid.seeds < 2:
        warnings.append(
            "With one seed there is no standard deviation, so no difference can be claimed. Give --seeds 3."
        )
    elif grid.seeds < 3:
        warnings.append("A standard deviation from two seeds is very uncertain. Give --seeds 3 or more.")
    if any(key.startswith("data.") for key in grid.varied):
        warnings.append("The cells are trained and measured on different data.")
    if "model.context" in grid.varied:
        warnings.append(
            "The cells are trained and measured with different contexts: with a longer context, a prediction can use "
            "more text."
        )
    if REMOVE in grid.varied:
        warnings.append("Only glass compare can open a run whose model lacks a part; other commands refuse it.")
    return warnings


def _values(results: Sequence[Mapping[str, Any]], key: str) -> tuple[float, ...]:
    return tuple(float(result[key]) for result in results if result.get(key) is not None and "loss" in result)


def _shared_value(results: Sequence[Mapping[str, Any]], key: str) -> Any:
    """Return the value that is the same in all results; None if the values differ or there are no results."""
    values = {result[key] for result in results}
    return values.pop() if len(values) == 1 else None
