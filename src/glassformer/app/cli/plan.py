"""Plan a run before training: the data, the size of the model, time, memory, and the baselines to beat.

  glass plan book.txt
  glass plan book.txt --minutes 20
  glass plan text.en text.de --task translate --steps 5000
  glass plan mails.csv --task classify --set model.layers=6
  glass plan book.txt --recipe auto --minutes 20
  glass plan letters.txt --from runs/book

glass plan takes the arguments of glass train, except --resume, and writes no run folder. It prepares the text where
glass train with the same --out will look for it. Then, unless --probe is 0, it times a few steps, an evaluation, a
sample and a checkpoint with these settings, and discards their results. With recipes such as auto, the default for your
own text, these measurements also choose the sizes for the text, the minutes and this machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.app.cli.run_arguments import add_from_argument, add_run_arguments, request_from
from glassformer.base.errors import GlassError
from glassformer.base.report import SimpleReport, emit
from glassformer.base.wording import counted, format_value
from glassformer.corpora import CORPORA

if TYPE_CHECKING:
    from glassformer.base.config import Config
    from glassformer.evaluation.simple_predictors import FastBaseline
    from glassformer.launch.request import RunRequest
    from glassformer.text.prepare import Prepared
    from glassformer.training.auto_sizes import Sized
    from glassformer.training.forecast import Band
    from glassformer.training.plan import RunPlan
    from glassformer.training.step_measurement import Probe

LONGEST_PROBE = 600
"""Maximum of `--probe`, in seconds."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `glass plan`."""
    parser.add_argument(
        "--probe",
        type=float,
        default=6.0,
        metavar="SECONDS",
        help="seconds to spend on measuring training steps (default: 6; 0: no measurement)",
    )
    add_run_arguments(parser, out_type=Path)  # the folder is not written
    add_from_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the plan, with measurements of a few steps unless `--probe` is 0."""
    if not 0 <= arguments.probe <= LONGEST_PROBE:
        raise GlassError(
            f"--probe {arguments.probe:g} is not allowed", f"Give a number of seconds from 0 to {LONGEST_PROBE}."
        )
    request = request_from(arguments)
    config = request.config
    out = request.folder
    is_open = request.leaves_sizes_open()
    from glassformer.evaluation.simple_predictors import fast_baselines
    from glassformer.model.precision import resolve_precision
    from glassformer.training.auto_sizes import size_run
    from glassformer.training.forecast import loss_band
    from glassformer.training.plan import plan_run
    from glassformer.training.setup import text_of_run

    sized = None
    if arguments.probe and is_open:
        sized = size_run(config, request.named_settings(), out, arguments.probe, _note)
    config = sized.config if sized else resolve_precision(config)
    data = text_of_run(config, out, _note, sized.data if sized else None, request.parent)
    probe, warnings = (sized.probe, []) if sized else _run_probe(request, config, data, arguments.probe)
    plan = plan_run(config, data, probe)
    warnings += plan.warnings()
    if is_open and not sized:
        warnings.append("the sizes come from the recipe: choosing sizes needs a measurement (--probe above 0)")
    baselines = fast_baselines(config, data)
    band = loss_band(plan, baselines) if request.begin_from is None else None
    facts = {
        **plan.facts(),
        "baselines": [asdict(baseline) for baseline in baselines],
        "loss_band": band and band.facts(),
        "chosen": sized.chosen if sized else {},
        "warnings": warnings,
    }
    lines = chain(
        _chosen_size_lines(sized) if sized else (),
        _plan_lines(plan),
        _baseline_lines(config.train.task, baselines),
        _band_lines(plan, band, baselines) if request.begin_from is None else (),
        (f"note: {warning}" for warning in warnings),
    )
    emit(SimpleReport(facts, lines), arguments.json)
    return 0


def _note(text: str) -> None:
    print(text, file=sys.stderr)


def _chosen_size_lines(sized: Sized) -> Iterator[str]:
    for sentence in sized.why:
        yield f"chosen   {sentence}"
    for name, value in sized.chosen.items():
        yield f"         {name} = {format_value(value)}"


def _band_lines(plan: RunPlan, band: Band | None, baselines: Sequence[FastBaseline]) -> Iterator[str]:
    """Yield the expected range of the loss, or the reason why there is none."""
    if band is not None:
        yield f"  {'expected':<14}{band.low:8.4f} to {band.high:.4f}   85 % of runs on other texts ended in this range"
    elif (task := plan.config.train.task) != "lm":
        yield f"no loss is predicted for train.task = {task}: the prediction was fitted to runs of task lm only"
    else:
        yield f"no loss is predicted: {_no_band_reason(plan, baselines)}"


def _no_band_reason(plan: RunPlan, baselines: Sequence[FastBaseline]) -> str:
    """Return the reason why `loss_band` predicts no loss for a run of task lm."""
    losses = {baseline.name: baseline.loss for baseline in baselines}
    unigram = losses.get("unigram")
    ngram = losses.get("5-gram")
    if plan.config.data.source in CORPORA:
        return "the text is generated, but the prediction was fitted to other texts"
    if plan.steps is None:
        return "the number of steps is not known in advance"
    if unigram is None or ngram is None:
        return "the unigram and 5-gram baselines were not measured"
    if ngram >= unigram:
        return "a 5-gram model is not better than a unigram model on this text"
    return "the run is far larger than the runs to which the prediction was fitted"


def _run_probe(request: RunRequest, config: Config, data: Prepared, seconds: float) -> tuple[Probe | None, list[str]]:
    """Return the measurements of the probe (None if it failed or was not requested), and a warning if it failed."""
    from glassformer.training.parent_text import text_of_parent
    from glassformer.training.step_measurement import ProbeError, probe

    if not seconds:
        return None, []
    parent_text = text_of_parent(request.parent, request.folder, config, data)
    print(f"measuring for about {seconds:g} s", file=sys.stderr)
    try:
        return probe(config, data.folder, seconds, parent_text), []
    except ProbeError as error:
        return None, [f"the measurement failed: {error.problem}. {error.remedy}"]


def _plan_lines(plan: RunPlan) -> Iterator[str]:
    """Yield the plan except for the baselines: model, steps, speed, time, memory and disk."""
    from glassformer.model.count import MIB
    from glassformer.training.plan import CHECKPOINTS

    model = plan.config.model
    yield (
        f"model    {model.family}, {counted(model.layers, 'layers')}, {model.width} wide, "
        f"vocabulary of {plan.vocab_size:,} tokens: {plan.parameters:,} parameters, "
        f"{4 * plan.parameters / MIB:,.1f} MiB"
    )
    parts = [f"{part.name} {part.parameters / plan.parameters:.0%}" for part in plan.components if part.parameters]
    yield f"         {', '.join(parts)}"
    yield f"a step   {_float_counted(plan.rows_per_step, '.4g', 'rows')}, {plan.tokens_per_step:,.0f} tokens"
    yield f"an epoch {plan.steps_per_epoch:,.1f} steps, {plan.training_tokens:,} tokens"
    if plan.steps is None or plan.epochs is None:
        yield "the run  the number of steps is not known in advance"
    else:
        yield f"the run  {counted(plan.steps, 'steps')}, {_float_counted(plan.epochs, '.3g', 'epochs')}"
    if plan.probe is not None:
        yield from _measurement_lines(plan, plan.probe)
    yield f"disk     {plan.checkpoint_bytes / MIB:,.1f} MiB per checkpoint, at most {CHECKPOINTS} at a time"


def _float_counted(number: float, precision: str, several: str) -> str:
    """Return a number with a noun, in the singular if the number is printed as 1."""
    text = f"{number:,{precision}}"
    return f"{text} {several.removesuffix('s') if text == '1' else several}"


def _measurement_lines(plan: RunPlan, probe: Probe) -> Iterator[str]:
    from glassformer.model.count import MIB
    from glassformer.training.memory import memory_kind
    from glassformer.training.reporting import duration

    threads = f", {counted(probe.threads, 'threads')}" if probe.device == "cpu" else ""
    conditions = f"{probe.device}{threads}, {probe.dtype} (mean of {probe.steps:,})"
    yield f"speed    {probe.seconds_per_step:.3g} s per step on {conditions}"
    if plan.train_seconds is not None and plan.whole_seconds is not None:
        yield (
            f"time     {duration(plan.train_seconds)} of training, "
            f"{duration(plan.whole_seconds)} with evaluations and samples"
        )
    if probe.peak_bytes is not None:
        free = "" if probe.free_bytes is None else f"; {probe.free_bytes / MIB:,.0f} MiB are free"
        kind = memory_kind(probe.device)
        yield f"memory   {probe.peak_bytes / MIB:,.0f} MiB at the peak of the probe ({kind}){free}"


def _baseline_lines(task: str, baselines: Sequence[FastBaseline]) -> Iterator[str]:
    """Yield the baselines to beat, the uniform distribution first."""
    if not baselines:
        return
    yield f"\nbaselines on the validation split, in nats per {'text' if task == 'classify' else 'token'}:"
    for baseline in baselines:
        loss = " " * 8 if baseline.loss is None else f"{baseline.loss:8.4f}"
        accuracy = "" if baseline.accuracy is None else f"  accuracy {baseline.accuracy:.1%}"
        yield f"  {baseline.name:<14}{loss}{accuracy}   {baseline.note}"
