"""Train a grid of models that differ in a few settings, with several seeds each, and report differences beyond noise.

  glass compare book.txt --vary model.positions=learned,rotary,none --out runs/positions --steps 500
  glass compare book.txt --vary model.heads=1,4 --vary train.learning_rate=1e-3,3e-3 --seeds 5 --out runs/grid
  glass compare stories --vary remove=nothing,causal-mask --out runs/mask
  glass compare --list
  glass compare --study heads --out runs/heads
  glass compare --study cost --out runs/cost

Each combination of values is a cell, and each cell is trained once with each seed, in parallel processes with one
thread each (unless train.threads is set). The first cell is the baseline, unless --baseline names another cell. A
difference counts if it is at least twice the larger standard deviation over the seeds of the two cells. The --out
folder receives a report with pictures, and a run folder for each run. The same command, given again, trains only the
missing runs; a larger --seeds adds runs.

`remove` is not a setting: it removes a part of the model (causal-mask, residuals or feedforward) to measure its effect.
A study is a built-in grid, except for cost, which measures models without training them. With DATA, a grid trains on
that text and drops the data and tokenizer settings of the study.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from glassformer.app.cli.run_arguments import add_run_arguments, given_settings
from glassformer.base.config import Config
from glassformer.base.errors import GlassError, nearest
from glassformer.base.report import SimpleReport, emit
from glassformer.experiments.grid import Cell, Grid, make_grid, parse_variations
from glassformer.experiments.study import COST, COST_QUESTION, Study, load_study, study_names
from glassformer.launch.request import merge_settings

if TYPE_CHECKING:
    from glassformer.experiments.report import StudyReport

SEEDS = 3
"""Default number of seeds per cell."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `glass compare`."""
    add_run_arguments(parser, "folder for the runs and the report")
    parser.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="SETTING=VALUE,VALUE",
        help="a setting and its values in the grid; may be repeated",
    )
    parser.add_argument("--study", metavar="NAME", help="name of a built-in grid; --list shows all")
    parser.add_argument("--list", action="store_true", help="list the studies and their questions")
    parser.add_argument(
        "--seeds", type=int, metavar="N", help=f"number of runs of each cell, each with its own seed (default: {SEEDS})"
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="number of parallel runs (default: one for each core)")
    parser.add_argument("--baseline", metavar="CELL", help="the cell to compare with (default: the first)")


def run(arguments: argparse.Namespace) -> int:
    """Train the runs that are still missing, write the report and print its table."""
    if arguments.list:
        return _list_studies(arguments.json)
    if arguments.out is None:
        raise GlassError("glass compare was given without --out", "Add --out DIR.")
    if arguments.study == COST:
        return _measure_cost(arguments)
    grid = _chosen_grid(arguments)
    baseline = _baseline(grid.cells, arguments.baseline)
    from glassformer.experiments.pictures import bars_picture, curves_picture
    from glassformer.experiments.report import comparison_report
    from glassformer.experiments.runner import run_grid
    from glassformer.experiments.statistics import tabulate

    try:
        results = run_grid(arguments.out, grid, _usable_cores() if arguments.jobs is None else arguments.jobs, _note)
    except KeyboardInterrupt:
        _note("stopped: finished runs are kept; run the same command again to continue")
        raise
    if all("loss" not in result for result in results.values()):
        failed = next(iter(results.values()))
        raise GlassError(f"every run failed; the first error: {failed['failed']}", failed["remedy"])
    table = tabulate(grid, results, baseline)
    pictures = {"curves.svg": curves_picture(arguments.out, grid), "bars.svg": bars_picture(table)}
    return _write_and_print(comparison_report(grid, table, pictures, arguments.out), arguments.json)


def _chosen_grid(arguments: argparse.Namespace) -> Grid:
    """Return the grid of `--study` or `--vary`, with the settings that all cells share."""
    vary = parse_variations(arguments.vary)
    changes = given_settings(arguments)
    study = None
    if arguments.study is not None:
        study = load_study(arguments.study)
        for name in ("vary", "recipe", "config"):
            if getattr(arguments, name):
                raise GlassError(
                    f"--study {study.name} was given with --{name}",
                    f"Remove --{name}: a study has its own settings; change single settings with --set.",
                )
        vary = dict(study.vary)
        changes = _study_settings(study, changes)
    for key in vary:
        if key in changes:
            varied = f"Remove --vary {key}=..., or the single value."
            raise GlassError(
                f"{key} is varied and also set to {changes[key]}",
                varied if study is None else f"Remove the single value: study {study.name} varies {key}.",
            )

    def settings(values: dict[str, str]) -> Config:
        config = merge_settings(arguments.recipe, arguments.config, changes | values)
        if config.train.threads is not None:
            return config
        return config.replace(train=config.train.replace(threads=1).model_dump())

    seeds = SEEDS if arguments.seeds is None else arguments.seeds
    return Grid(make_grid(vary, seeds, settings), seeds, study.question if study else "", study.hint if study else "")


def _study_settings(study: Study, changes: dict[str, str]) -> dict[str, str]:
    """Return the settings of a study, overridden by `changes`.

    If `changes` name another text, the study's data and tokenizer settings are omitted; if they set a time limit, the
    study's number of steps is omitted.
    """
    settings = dict(study.settings)
    if "data.source" in changes:
        settings = {key: value for key, value in settings.items() if not key.startswith(("data.", "tokenizer."))}
    if "train.minutes" in changes:
        settings.pop("train.steps", None)
    return settings | changes


def _baseline(cells: tuple[Cell, ...], name: str | None) -> int:
    names = [cell.name for cell in cells]
    if name is None:
        return 0
    if name not in names:
        raise GlassError(f"unknown baseline cell {name!r}", nearest(name, names))
    return names.index(name)


def _list_studies(as_json: bool) -> int:
    questions = {name: load_study(name).question for name in study_names()} | {COST: COST_QUESTION}
    lines = [f"{name:<20} {question}" for name, question in questions.items()]
    emit(SimpleReport({"studies": questions}, lines), as_json)
    return 0


def _measure_cost(arguments: argparse.Namespace) -> int:
    from glassformer.experiments.cost import SIZES, cost_report, measure_costs, refuse_used_folder

    grid_arguments = (
        arguments.data,
        arguments.target,
        arguments.vary,
        arguments.recipe,
        arguments.config,
        arguments.baseline,
    )
    if any(grid_arguments) or given_settings(arguments):
        raise GlassError(
            "--study cost takes no DATA, settings, recipe, config file, --vary or --baseline: its sizes are fixed",
            "Keep only --study and --out.",
        )
    for name in ("seeds", "jobs"):
        if getattr(arguments, name) is not None:
            raise GlassError(
                f"--study cost was given with --{name}: it measures one model at a time, without training",
                f"Remove --{name}.",
            )
    refuse_used_folder(arguments.out)
    laws = measure_costs(SIZES, _note)
    return _write_and_print(cost_report(laws, arguments.out), arguments.json)


def _write_and_print(report: StudyReport, as_json: bool) -> int:
    """Write the files of the report and print it."""
    report.write()
    emit(report, as_json)
    _note(f"report: {report.page}")
    return 0


def _usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
