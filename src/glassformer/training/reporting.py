"""Report progress to a person: a live bar on a terminal, plain lines elsewhere, nothing in a library."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn


@dataclass(frozen=True)
class Status:
    """One moment of a run.

    Attributes:
        step: optimizer steps done.
        share: of the run that is over, 0 to 1; None where nothing says how long it will be.
        loss: mean training loss since the last line, nats per token.
        validation_loss: the newest, or None.
        learning_rate: of AdamW.
        tokens_per_second: targets per second of training time.
        seconds_left: estimated; None where nothing says how long it will be.
    """

    step: int
    share: float | None
    loss: float
    validation_loss: float | None
    learning_rate: float
    tokens_per_second: float
    seconds_left: float | None

    def __str__(self) -> str:
        seen = "" if self.validation_loss is None else f"  validation {self.validation_loss:.4f}"
        left = "" if self.seconds_left is None else f"  {duration(self.seconds_left)} left"
        return (
            f"step {self.step:>6}  loss {self.loss:.4f}{seen}  rate {self.learning_rate:.2e}  "
            f"{self.tokens_per_second:,.0f} tokens/s{left}"
        )

    def short(self) -> str:
        """Return the part that fits beside a bar on a terminal of 80 columns; on a narrower one the end is cut off."""
        seen = "" if self.validation_loss is None else f"  validation {self.validation_loss:.3f}"
        left = "" if self.seconds_left is None else f"{duration(self.seconds_left)} left  "
        return f"{left}step {self.step}  loss {self.loss:.3f}{seen}  {self.tokens_per_second:,.0f} tokens/s"


class Reporter(Protocol):
    """Listens to a run; nothing that it does can change the run."""

    def status(self, status: Status) -> None:
        """Called at each logged step and after each evaluation."""

    def note(self, text: str) -> None:
        """A sentence to the person."""

    def close(self) -> None:
        """The run has ended."""


class Silent:
    """Says nothing."""

    def status(self, status: Status) -> None:
        """Ignored."""

    def note(self, text: str) -> None:
        """Ignored."""

    def close(self) -> None:
        """Nothing to close."""


class PlainLines:
    """A line per evaluation and per tenth of the run, on standard error."""

    def __init__(self) -> None:
        self._shown_share = -1.0
        self._shown_validation: float | None = None

    def status(self, status: Status) -> None:
        """A line, unless the last one was very near."""
        share = 0.0 if status.share is None else status.share
        fresh = status.validation_loss != self._shown_validation
        if fresh or share - self._shown_share >= 0.1:
            self._shown_share = share
            self._shown_validation = status.validation_loss
            self.note(str(status))

    def note(self, text: str) -> None:
        """Write one line on standard error."""
        print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Nothing to close."""


class LiveBar:
    """A bar that moves, with the notes above it."""

    def __init__(self) -> None:
        self._progress = Progress(
            BarColumn(bar_width=7), TextColumn("{task.description}"), console=Console(stderr=True), transient=True
        )
        self._task = self._progress.add_task("starting", total=1.0)
        self._progress.start()

    def status(self, status: Status) -> None:
        """Move the bar."""
        self._progress.update(self._task, description=status.short(), completed=status.share or 0.0)

    def note(self, text: str) -> None:
        """A line above the bar."""
        self._progress.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        """Take the bar away."""
        self._progress.stop()


def choose_reporter() -> Reporter:
    """A live bar where standard error is a terminal, plain lines elsewhere."""
    return LiveBar() if sys.stderr.isatty() else PlainLines()


def duration(seconds: float) -> str:
    """Seconds in words.

    >>> duration(75), duration(3700)
    ('1m 15s', '1h 2m')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    return f"{whole // 60}m {whole % 60}s" if whole < 3600 else f"{whole // 3600}h {whole % 3600 // 60}m"
