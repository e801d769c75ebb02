"""Settings of a resumed run: refuse changes that are not allowed, and report the others."""

from __future__ import annotations

from collections.abc import Iterable

from glassformer.base.config import Config
from glassformer.base.errors import GlassError
from glassformer.base.settings import setting_text

LIMITS = (
    "steps",
    "minutes",
    "until_loss",
    "patience",
    "evaluate_every",
    "save_every",
    "log_every",
    "threads",
    "device",
    "compile",
    "shard",
    "checkpoint_blocks",
)
"""Settings of `train` that a resumed run may change: how long and where it trains, how it computes steps, and how often
it evaluates, saves and logs."""
PRECISIONS = ("precision", "muon_precision")
"""Settings of `train` that a resumed run may change although they affect the results, because a precision can be
hundreds of times slower on another machine."""
CHANGEABLE = tuple(f"train.{name}" for name in (*LIMITS, *PRECISIONS))
"""Settings that the command line may change when a run is resumed, besides those in section [sample]."""


def refuse_changes(changes: Iterable[str]) -> None:
    """Raise an error if a change on the command line is not allowed in a resumed run.

    Raises:
        GlassError: a changed setting is neither in `CHANGEABLE` nor in section [sample].
    """
    for key in changes:
        if key not in CHANGEABLE and not key.startswith("sample."):
            raise GlassError(
                f"{key} cannot change when a run is resumed",
                f"Change only {', '.join(CHANGEABLE)} and [sample]; for other changes start a new run.",
            )


def note_of_changes(recorded: Config, config: Config) -> str | None:
    """Return one line that lists the settings that differ between two configurations; None if there are none."""
    changes = [
        f"{section}.{name}: {setting_text(old)} -> {setting_text(new)}"
        for section, values in recorded.model_dump(mode="json").items()
        for name, old in values.items()
        if (new := config.model_dump(mode="json")[section][name]) != old
    ]
    return f"settings changed: {', '.join(changes)}" if changes else None
