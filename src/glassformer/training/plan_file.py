"""Write the forecast of a run, and later its outcome, to `plan.json` in the run's folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from glassformer.base.errors import GlassError
from glassformer.base.sealed import read_sealed, write_sealed
from glassformer.base.wording import counted, format_value
from glassformer.model.count import MIB
from glassformer.runs.folder import Run
from glassformer.text.prepare import Prepared
from glassformer.training.forecast import Band
from glassformer.training.plan import RunPlan
from glassformer.training.reporting import duration
from glassformer.training.trainer import TrainingOutcome

FILE = "plan.json"


@dataclass(frozen=True)
class RunForecast:
    """Forecast of a run before its first step.

    Attributes:
        data: the prepared text.
        plan: size, steps, time and memory of the run.
        band: forecast interval of the validation loss; None if there is no forecast.
        chosen: name -> value of each setting that was chosen for the text, the time limit and the machine.
        why: reasons for the choices, one sentence each.
    """

    data: Prepared
    plan: RunPlan
    band: Band | None
    chosen: dict[str, Any]
    why: Sequence[str]

    def facts(self) -> dict[str, Any]:
        """Return the contents of `plan.json`."""
        return {
            "plan": self.plan.facts(),
            "loss": self.band and self.band.facts(),
            "chosen": self.chosen,
            "why": list(self.why),
        }

    def lines(self) -> Iterator[str]:
        """Yield the forecast as lines of text."""
        yield from self.why
        if self.chosen:
            yield "chosen: " + ", ".join(f"{name} = {format_value(value)}" for name, value in self.chosen.items())
        plan = self.plan
        phrases = []
        if plan.steps is not None:
            epochs = f"{plan.epochs:,.3g}"
            unit = "epoch" if epochs == "1" else "epochs"
            phrases.append(f"{counted(plan.steps, 'steps')} ({epochs} {unit})")
        if plan.whole_seconds is not None:
            phrases.append(f"{duration(plan.whole_seconds)} with evaluations")
        if plan.probe is not None and plan.probe.peak_bytes is not None:
            phrases.append(f"{plan.probe.peak_bytes / MIB:,.0f} MiB of memory")
        if self.band is not None:
            phrases.append(f"validation loss {self.band.low:.3f} to {self.band.high:.3f}")
        if phrases:
            yield f"forecast: {', '.join(phrases)}"

    def write(self, run: Run) -> None:
        """Write the forecast as `plan.json`."""
        write_sealed(run.folder / FILE, self.facts())


def record_outcome(run: Run, outcome: TrainingOutcome, peak: int | None) -> str | None:
    """Add the outcome to `plan.json`, and return a line that compares it with the forecast.

    Return None if there is no `plan.json`, or if no quantity was both forecast and measured. If the file is damaged,
    return a line that says so.

    Args:
        run: a run that has ended.
        outcome: outcome of the run.
        peak: peak memory of training in bytes; None if the system does not report it.
    """
    path = run.folder / FILE
    if not path.exists():
        return None
    try:
        facts = read_sealed(path, "")
    except GlassError as error:
        return f"{error.problem}: the forecast cannot be compared"
    plan = facts["plan"]
    band = facts["loss"]
    forecast = [plan["steps"], plan["train_seconds"], plan["peak_memory_bytes"]]
    measured = [outcome.last_step, outcome.train_seconds, peak]
    facts["outcome"] = {
        "steps": outcome.last_step,
        "train_seconds": outcome.train_seconds,
        "peak_memory_bytes": peak,
        "validation_loss": outcome.validation.loss,
        "validation_share": outcome.validation_share,
        "stopped_because": outcome.reason,
    }
    write_sealed(path, facts)
    comparisons = [
        _format_comparison(*pair) for pair in zip(_FORMATS, forecast, measured, strict=True) if None not in pair
    ]
    if band:
        comparisons.append(f"loss {band['low']:.3f} to {band['high']:.3f} ({outcome.validation.loss:.3f})")
    return f"forecast (measured values in brackets): {', '.join(comparisons)}" if comparisons else None


_FORMATS = {
    "steps": lambda number: f"{number:,}",
    "training": lambda seconds: duration(seconds),
    "memory": lambda size: f"{size / MIB:,.0f} MiB",
}


def _format_comparison(name: str, forecast: Any, measured: Any) -> str:
    format_quantity = _FORMATS[name]
    return f"{name} {format_quantity(forecast)} ({format_quantity(measured)})"
