"""Choose the sizes that a run's settings leave unset, and forecast its time, memory and loss before it starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from glassformer.base.config import Config
from glassformer.evaluation.simple_predictors import fast_baselines
from glassformer.launch.request import RunRequest
from glassformer.model.device import choose_device
from glassformer.model.precision import resolve_precision
from glassformer.runs.folder import refuse_existing
from glassformer.runs.run_text import prepare_run_text
from glassformer.runs.text_location import token_cache
from glassformer.training.auto_sizes import size_run
from glassformer.training.clock import since
from glassformer.training.forecast import loss_band
from glassformer.training.parallel.joining import is_rank_zero, job
from glassformer.training.parent_text import ParentText, text_of_parent
from glassformer.training.plan import plan_run
from glassformer.training.plan_file import RunForecast
from glassformer.training.step_measurement import Probe, ProbeError, probe

SHARE = 1 / 40
"""Maximum fraction of `train.minutes` for the training steps of each measurement, unless two steps take longer."""
LONGEST = 3.0
"""Maximum seconds for the training steps of each measurement, unless two steps take longer."""


def forecast_run(request: RunRequest, note: Callable[[str], None], began: float) -> tuple[Config, RunForecast | None]:
    """Time some training steps before a run starts; return the final settings of the run and its forecast.

    Call this only if `RunRequest.is_forecast` returns True. Under torchrun nothing is measured and the forecast is
    None, because a single process cannot measure the speed and memory of all processes.

    Args:
        request: the run.
        note: function that prints a note.
        began: value of `time.monotonic` from which `train.minutes` is counted.

    Raises:
        GlassError: the run already exists, its text or device cannot be used, or a measurement for choosing sizes
            failed.
    """
    config = request.config
    minutes = config.train.minutes
    is_open = request.leaves_sizes_open()
    if job() is not None:
        if is_open and is_rank_zero():
            note(
                "torchrun: sizes are not chosen for the text and the machine; the settings and their defaults apply. "
                "glass plan (without torchrun) suggests sizes"
            )
        return config, None
    refuse_existing(request.folder)
    choose_device(config.train.device)
    seconds = LONGEST if minutes is None else min(LONGEST, 60 * minutes * SHARE)
    spent = since(began)
    probe_result: Probe | None
    if is_open:
        sized = size_run(config, request.named_settings(), request.folder, seconds, note, spent)
        config = sized.config
        data = sized.data
        probe_result = sized.probe
        chosen = sized.chosen
        why = sized.why
    else:
        config = resolve_precision(config)
        parent = request.parent
        data = prepare_run_text(config, token_cache(request.folder), note, () if parent is None else parent.tokenizers)
        parent_text = text_of_parent(parent, request.folder, config, data)
        probe_result = _try_probe(config, data.folder, seconds, note, parent_text)
        chosen = {}
        why = ()
    baselines = fast_baselines(config, data)
    plan = plan_run(config, data, probe_result, spent())
    band = loss_band(plan, baselines) if request.begin_from is None else None  # fitted to runs from random weights
    forecast = RunForecast(data, plan, band, chosen, why)
    for line in forecast.lines():
        note(line)
    return config, forecast


def _try_probe(
    config: Config, tokens: Path, seconds: float, note: Callable[[str], None], parent_text: ParentText | None
) -> Probe | None:
    """Measure training steps with these settings; if this fails, print a note and return None."""
    note(f"measuring for about {seconds:g} seconds, to forecast time and memory")
    try:
        return probe(config, tokens, seconds, parent_text)
    except ProbeError as error:
        note(f"the measurement failed: {error.problem}. {error.remedy}")
        return None
