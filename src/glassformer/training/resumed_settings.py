"""Settings of a resumed run: refuse changes that are not allowed, and report edits since the newest checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from glassformer.base.config import Config
from glassformer.base.errors import GlassError
from glassformer.base.settings import setting_text
from glassformer.training.checkpoint import recorded_settings

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
"""Settings that the command line may change when a run is resumed."""
TEXT_FILES = ("data.source", "data.target", "data.validation", "data.validation_target")
"""Settings with paths of text files, which may change; the text itself is compared by its hash."""
FREE = (*CHANGEABLE, *TEXT_FILES)
"""Settings that may differ from those of the checkpoint, in addition to the section [sample]."""


def refuse_changes(changes: Iterable[str]) -> None:
    """Raise an error if a change on the command line is not allowed in a resumed run.

    Raises:
        GlassError: a changed setting is not in `CHANGEABLE`.
    """
    for key in changes:
        if key not in CHANGEABLE:
            raise GlassError(
                f"{key} cannot change when a run is resumed",
                f"Change only {', '.join(CHANGEABLE)}; for other changes start a new run.",
            )


def note_of_edits(config: Config, file: Path, checkpoint: Path) -> str | None:
    """Return one line that lists the settings that differ from those of a checkpoint; None if there are none.

    For a checkpoint of an older version, which contains no settings, return None.

    Args:
        config: settings to resume with.
        file: path of the settings file, for the message.
        checkpoint: checkpoint to resume from.

    Raises:
        GlassError: a setting that must not change in a resumed run differs.
    """
    saved_settings = recorded_settings(checkpoint)
    if saved_settings is None:
        return None
    current_settings = config.model_dump(mode="json")
    edits = {
        f"{section}.{name}": f"{setting_text(saved_settings[section][name])} -> {setting_text(value)}"
        for section, values in current_settings.items()
        for name, value in values.items()
        if name in saved_settings.get(section, {}) and saved_settings[section][name] != value
    }
    refused = [f"{key}: {edit}" for key, edit in edits.items() if key not in FREE and not key.startswith("sample.")]
    if refused:
        raise GlassError(
            f"{file} was edited since {checkpoint.name} was saved ({', '.join(refused)})",
            f"Restore those settings. Only {', '.join(CHANGEABLE)} and [sample] can change in a resumed run; "
            "for other changes start a new run.",
        )
    changes = ", ".join(f"{key}: {edit}" for key, edit in edits.items())
    return f"settings changed since {checkpoint.name}: {changes}" if changes else None
