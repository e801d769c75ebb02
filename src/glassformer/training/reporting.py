"""Report training progress: as a progress bar on a terminal, as plain lines elsewhere, or not at all (library use)."""

from __future__ import annotations

import html
import sys
import warnings
from dataclasses import dataclass
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn


@dataclass(frozen=True)
class Status:
    """Progress of a run at one step.

    Attributes:
        step: number of completed optimizer steps.
        fraction_done: fraction of the run that is done, 0 to 1; None if its length is not known.
        loss: mean training loss since the last report, in nats per target.
        validation_loss: last validation loss, in nats per target; None before the first evaluation.
        learning_rate: learning rate of AdamW.
        tokens_per_second: mean number of targets per second of training time, since the run began.
        seconds_left: estimated seconds until the run ends; None if its length is not known.
    """

    step: int
    fraction_done: float | None
    loss: float
    validation_loss: float | None
    learning_rate: float
    tokens_per_second: float
    seconds_left: float | None

    def __str__(self) -> str:
        validation = "" if self.validation_loss is None else f"  validation {self.validation_loss:.4f}"
        time_left = "" if self.seconds_left is None else f"  {duration(self.seconds_left)} left"
        return (
            f"step {self.step:>6}  loss {self.loss:.4f}{validation}  rate {self.learning_rate:.2e}  "
            f"{self.tokens_per_second:,.0f} tokens/s{time_left}"
        )

    def short(self) -> str:
        """Return a short text that fits next to the progress bar on a terminal with 80 columns."""
        validation = "" if self.validation_loss is None else f"  validation {self.validation_loss:.3f}"
        time_left = "" if self.seconds_left is None else f"{duration(self.seconds_left)} left  "
        return f"{time_left}step {self.step}  loss {self.loss:.3f}{validation}  {self.tokens_per_second:,.0f} tokens/s"


class Reporter(Protocol):
    """Interface of reporters, which show the progress of a run and do not affect training."""

    def status(self, status: Status) -> None:
        """Report the progress; the trainer calls this after each line that it adds to `metrics.jsonl`."""

    def note(self, text: str) -> None:
        """Report a note of one line."""

    def warn(self, text: str) -> None:
        """Report a note that the user must see even if nothing else is shown."""

    def close(self) -> None:
        """Release the terminal at the end of the run."""


class Silent:
    """Reporter that prints nothing."""

    def status(self, status: Status) -> None: ...

    def note(self, text: str) -> None: ...

    def warn(self, text: str) -> None: ...

    def close(self) -> None: ...


class OnlyWarnings(Silent):
    """Reporter for calls from Python: it issues warnings, and prints nothing else."""

    def warn(self, text: str) -> None:
        """Issue a Python warning."""
        warnings.warn(text, stacklevel=2)


class PlainLines:
    """Reporter that prints lines on standard error.

    The lines are notes, and the progress after each evaluation and each tenth of the run.
    """

    def __init__(self) -> None:
        self._reported_fraction = -1.0
        self._reported_validation_loss: float | None = None

    def status(self, status: Status) -> None:
        """Print a line after a new evaluation, or if at least a tenth of the run was completed since the last line."""
        fraction = 0.0 if status.fraction_done is None else status.fraction_done
        is_new_evaluation = status.validation_loss != self._reported_validation_loss
        if is_new_evaluation or fraction - self._reported_fraction >= 0.1:
            self._reported_fraction = fraction
            self._reported_validation_loss = status.validation_loss
            self.note(str(status))

    def note(self, text: str) -> None:
        """Print one line on standard error."""
        print(text, file=sys.stderr, flush=True)

    def warn(self, text: str) -> None:
        """Print one line on standard error."""
        self.note(text)

    def close(self) -> None:
        """Do nothing: each line is flushed when it is printed."""


class LiveBar:
    """Reporter that shows a progress bar, and prints notes above the bar."""

    def __init__(self) -> None:
        self._progress = Progress(
            BarColumn(bar_width=7), TextColumn("{task.description}"), console=Console(stderr=True), transient=True
        )
        self._task = self._progress.add_task("starting", total=1.0)
        self._progress.start()

    def status(self, status: Status) -> None:
        """Update the progress bar."""
        self._progress.update(self._task, description=status.short(), completed=status.fraction_done or 0.0)

    def note(self, text: str) -> None:
        """Print a line above the progress bar."""
        self._progress.console.print(text, markup=False, highlight=False)

    def warn(self, text: str) -> None:
        """Print a line above the progress bar."""
        self.note(text)

    def close(self) -> None:
        """Remove the progress bar."""
        self._progress.stop()


class NotebookBar(PlainLines):
    """Reporter that shows a progress bar in the output of a notebook's cell, and prints notes on standard error."""

    def __init__(self) -> None:
        from IPython.display import display

        self._handle = display(self._page("starting", 0.0), display_id=True)

    @staticmethod
    def _page(text: str, fraction: float) -> Any:
        from IPython.display import HTML

        return HTML(f'<progress value="{fraction:.4f}" max="1"></progress> <code>{html.escape(text)}</code>')

    def status(self, status: Status) -> None:
        """Update the progress bar."""
        self._handle.update(self._page(status.short(), status.fraction_done or 0.0))


def choose_reporter() -> Reporter:
    """Return a `NotebookBar` in a notebook, a `LiveBar` if standard error is a terminal, otherwise a `PlainLines`.

    If standard error is closed, return an `OnlyWarnings`.
    """
    ipython = sys.modules.get("IPython")
    if ipython is not None and hasattr(ipython.get_ipython(), "kernel"):
        return NotebookBar()
    if sys.stderr is None:
        return OnlyWarnings()
    return LiveBar() if sys.stderr.isatty() else PlainLines()


def duration(seconds: float) -> str:
    """Format seconds as a duration.

    >>> duration(75), duration(3700)
    ('1m 15s', '1h 1m')
    """
    total = round(seconds)
    if total < 60:
        return f"{total}s"
    return f"{total // 60}m {total % 60}s" if total < 3600 else f"{total // 3600}h {total % 3600 // 60}m"
