"""What is found out before a run begins: its sizes where they are left open, its time, its memory and its loss."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.app.cli.choosing import chosen_run, recipe_of, said_settings
from glassformer.base.recipes import load_recipe

if TYPE_CHECKING:
    from collections.abc import Callable

    from glassformer.base.config import Config
    from glassformer.training.auto import Sized
    from glassformer.training.foresight import Foresight
    from glassformer.training.probe import Probe

WORTH_IT = 1.0
"""Minutes of training from which on a run is foreseen without being asked."""
SHARE = 1 / 40
"""Of the minutes, for each probe."""
LONGEST = 3.0
"""Seconds, of each probe."""


def note(text: str) -> None:
    """A sentence to the person, on standard error."""
    print(text, file=sys.stderr)


def leaves_sizes_open(arguments: argparse.Namespace) -> bool:
    """Whether the recipe leaves sizes open, to be chosen for the text, the time and the machine.

    A recipe chosen by default, without --recipe, counts only in a run of at least `WORTH_IT` minutes.
    """
    recipe = recipe_of(arguments)
    if recipe is None or not load_recipe(recipe).sized:
        return False
    limits = chosen_run(arguments)[0].train
    return arguments.recipe is not None or (limits.steps is None and (limits.minutes or 0) >= WORTH_IT)


def sized(
    arguments: argparse.Namespace, config: Config, out: Path, seconds: float, spent: Callable[[], float] = lambda: 0.0
) -> Sized:
    """The settings with the sizes that were left open; measures, for about so many seconds two or three times.

    Args:
        arguments: of the command line.
        config: all settings.
        out: the folder of the run to be.
        seconds: how long each probe takes steps.
        spent: gives the wall seconds of the run so far, where measuring is a part of it.
    """
    from glassformer.training.auto import size_run

    return size_run(config, said_settings(arguments), out, seconds, note, spent)


def foreseen(arguments: argparse.Namespace, config: Config, out: Path) -> tuple[Config, Foresight | None]:
    """Return the settings to train with, and the forecast; the forecast is None if nothing was measured.

    A run is measured if its recipe leaves sizes open or if minutes limit it, unless there are several processes: the
    needs of one process alone do not say what each of several needs.
    """
    from glassformer.training.parallel.joining import job, speaks

    minutes, is_open = config.train.minutes, leaves_sizes_open(arguments)
    wanted = is_open or (minutes is not None and minutes >= WORTH_IT)
    if not wanted or job() is not None:
        if is_open and speaks():
            note("started by torchrun: sizes are as the recipe has them; glass plan says which suit one process")
        return config, None
    from glassformer.evaluation.ladder import ladder
    from glassformer.model.device import choose_device
    from glassformer.model.precision import settled
    from glassformer.runs.folder import refuse_existing
    from glassformer.runs.run_text import prepare_for
    from glassformer.runs.text_places import token_cache
    from glassformer.training.clock import since
    from glassformer.training.forecast import loss_band
    from glassformer.training.foresight import Foresight
    from glassformer.training.plan import plan_run

    refuse_existing(out)
    choose_device(config.train.device)
    seconds = LONGEST if minutes is None else min(LONGEST, 60 * minutes * SHARE)
    spent = since(arguments.began)
    measured: Probe | None
    if is_open:
        found = sized(arguments, config, out, seconds, spent)
        config = found.config
        data = found.data
        measured = found.probe
        chosen = found.chosen
        why = found.why
    else:
        config = settled(config)
        data = prepare_for(config, token_cache(out), note)
        chosen = {}
        why = ()
        measured = _measured(config, data.folder, seconds)
    rungs = ladder(config, data)
    plan = plan_run(config, data, measured, spent())
    foresight = Foresight(data, plan, loss_band(plan, rungs), chosen, why)
    for line in foresight.lines():
        note(line)
    return config, foresight


def _measured(config: Config, tokens: Path, seconds: float) -> Probe | None:
    """What a probe of these settings finds; a run that nobody asked to measure goes on without."""
    from glassformer.training.probe import ProbeError, probe

    note(f"measuring for about {seconds:g} seconds, to foresee time and memory")
    try:
        return probe(config, tokens, seconds)
    except ProbeError as error:
        note(f"nothing was measured: {error.problem}. {error.remedy}")
        return None
