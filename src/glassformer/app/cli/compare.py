"""Train a grid of models that differ in a few settings, with several seeds each, and say what differs for certain.

  glass compare book.txt --vary model.positions=learned,rotary,none --out runs/positions --steps 500
  glass compare book.txt --vary model.heads=1,4 --vary train.learning_rate=1e-3,3e-3 --seeds 5 --out runs/grid
  glass compare stories --vary remove=nothing,causal-mask --out runs/mask
  glass compare --list
  glass compare --study heads --out runs/heads
  glass compare --study cost --out runs/cost

Every combination of values is a cell, and every cell is trained once with each seed, by processes of one thread side by
side. The first cell is the baseline, unless --baseline names another. A difference counts from two standard deviations
over the seeds on. --out gets a report with pictures, and a run folder for each run. The same command goes on with what
is not done yet; with more --seeds it adds to what is there.

`remove` is no setting: it takes a part out of the model, causal-mask, residuals or feedforward, to see what it was for.
A study is a grid with a name. With DATA it runs on that text, and its other settings stay.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from glassformer.app.cli.run_arguments import add_run_arguments
from glassformer.app.cli.settings import changes_from
from glassformer.base.config import Config
from glassformer.base.errors import GlassError, nearest
from glassformer.base.report import SimpleReport, emit
from glassformer.experiments.grid import Cell, Grid, make_grid, parse_variations
from glassformer.experiments.study import COST, COST_QUESTION, Study, load_study, study_names
from glassformer.launch.request import chosen_settings, named_source

if TYPE_CHECKING:
    from glassformer.experiments.report import StudyReport

SEEDS = 3
"""Of each cell: the fewest that have a standard deviation worth the name."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `glass compare`."""
    add_run_arguments(parser)
    parser.add_argument(
        "--vary", action="append", default=[], metavar="SETTING=VALUE,VALUE", help="what differs; may be repeated"
    )
    parser.add_argument("--study", metavar="NAME", help="a grid that is built in")
    parser.add_argument("--list", action="store_true", help="name the studies, and the questions they answer")
    parser.add_argument("--seeds", type=int, metavar="N", help=f"runs of each cell (default: {SEEDS})")
    parser.add_argument("--jobs", type=int, metavar="N", help="runs at a time (default: one for each core)")
    parser.add_argument("--baseline", metavar="CELL", help="the cell to compare with (default: the first)")


def run(arguments: argparse.Namespace) -> int:
    """Train the runs that are still missing, write the report and print its table."""
    if arguments.list:
        return _list_studies(arguments.json)
    if arguments.out is None:
        raise GlassError("a comparison needs a folder", "Give --out DIR.")
    if arguments.study == COST:
        return _measure_cost(arguments)
    grid = _chosen_grid(arguments)
    baseline = _baseline(grid.cells, arguments.baseline)
    from glassformer.experiments.pictures import bars_picture, curves_picture
    from glassformer.experiments.report import comparison_report
    from glassformer.experiments.runner import run_grid
    from glassformer.experiments.statistics import tabulate
    from glassformer.inspection.plots import refuse_no_matplotlib

    refuse_no_matplotlib()
    try:
        results = run_grid(arguments.out, grid, _cores() if arguments.jobs is None else arguments.jobs, _note)
    except KeyboardInterrupt:
        _note("stopped, all that is trained is kept; the same command goes on")
        raise
    if all("loss" not in result for result in results.values()):
        failed = next(iter(results.values()))
        raise GlassError(f"every run failed, the first so: {failed['failed']}", failed["remedy"])
    table = tabulate(grid, results, baseline)
    pictures = {"curves.svg": curves_picture(arguments.out, grid), "bars.svg": bars_picture(table)}
    return _tell(comparison_report(grid, table, pictures, arguments.out), arguments.json)


def _chosen_grid(arguments: argparse.Namespace) -> Grid:
    """The study that was named, or what `--vary` says, over the settings that all cells share."""
    vary = parse_variations(arguments.vary)
    changes = changes_from(arguments) | named_source(arguments.data, arguments.target)
    study = None
    if arguments.study is not None:
        study = load_study(arguments.study)
        for name in ("vary", "recipe", "config"):
            if getattr(arguments, name):
                raise GlassError(
                    f"--study {study.name} was given with --{name}", "A study has its own; change single ones by --set."
                )
        vary = dict(study.vary)
        changes = _under(study, changes)
    for key in vary:
        if key in changes:
            raise GlassError(f"{key} both varies and is set to {changes[key]}", "Leave one of them out.")

    def settings(values: dict[str, str]) -> Config:
        config = chosen_settings(arguments.recipe, arguments.config, changes | values)
        if config.train.threads is not None:
            return config
        return config.replace(train=config.train.replace(threads=1).model_dump())

    seeds = SEEDS if arguments.seeds is None else arguments.seeds
    return Grid(make_grid(vary, seeds, settings), seeds, study.question if study else "", study.hint if study else "")


def _under(study: Study, changes: dict[str, str]) -> dict[str, str]:
    """A study's settings under those that were given. A text of one's own brings its own data and tokenizer."""
    own = dict(study.settings)
    if "data.source" in changes:
        own = {key: value for key, value in own.items() if not key.startswith(("data.", "tokenizer."))}
    if "train.minutes" in changes:
        own.pop("train.steps", None)
    return own | changes


def _baseline(cells: tuple[Cell, ...], name: str | None) -> int:
    names = [cell.name for cell in cells]
    if name is None:
        return 0
    if name not in names:
        raise GlassError(f"there is no cell {name!r} to compare with", nearest(name, names))
    return names.index(name)


def _list_studies(as_json: bool) -> int:
    questions = {name: load_study(name).question for name in study_names()} | {COST: COST_QUESTION}
    lines = [f"{name:<20} {question}" for name, question in questions.items()]
    emit(SimpleReport({"studies": questions}, lines), as_json)
    return 0


def _measure_cost(arguments: argparse.Namespace) -> int:
    from glassformer.experiments.cost import SIZES, cost_report, measure_costs, refuse_used_folder
    from glassformer.inspection.plots import refuse_no_matplotlib

    given = (arguments.data, arguments.target, arguments.vary, arguments.recipe, arguments.config, arguments.baseline)
    if any(given) or changes_from(arguments):
        raise GlassError("--study cost takes no settings: its sizes are fixed", "Leave all but --out out.")
    for name in ("seeds", "jobs"):
        if getattr(arguments, name) is not None:
            raise GlassError(
                f"--study cost was given with --{name}: it trains nothing, and measures one model at a time",
                f"Leave --{name} out.",
            )
    refuse_no_matplotlib()
    refuse_used_folder(arguments.out)
    laws = measure_costs(SIZES, _note)
    return _tell(cost_report(laws, arguments.out), arguments.json)


def _tell(report: StudyReport, as_json: bool) -> int:
    """Write the report's files and print it."""
    report.write()
    emit(report, as_json)
    _note(f"report: {report.page}")
    return 0


def _cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
