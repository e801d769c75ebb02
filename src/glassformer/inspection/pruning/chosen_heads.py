"""A new run without heads that somebody chose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from glassformer.base.errors import GlassError
from glassformer.inspection.pruning.new_run import open_for_pruning, pruned, write_pruned
from glassformer.runs.folder import Folder, Which, refuse_existing


@dataclass(frozen=True)
class ByHand:
    """Result of removing chosen heads from a run.

    Attributes:
        folder: of the new run.
        checkpoint: of the run that it was made from, such as "step-000850".
        removed: the heads that it lacks.
        parameters: of the run, and of the new one.
    """

    folder: Path
    checkpoint: str
    removed: tuple[str, ...]
    parameters: tuple[int, int]


def prune_by_hand(
    folder: Folder,
    out: Path,
    heads: Sequence[str],
    which: Which = "best",
    device: str = "auto",
    checkpoint: str | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> ByHand:
    """Write a run without these heads; it gives what the run gives with zero in their place, exactly.

    Args:
        folder: of the run.
        out: of the new one; must be free.
        heads: names such as `dec.0.self.3`, at least one.
        which, device: of the model.
        checkpoint: the one that is meant; None: whichever it is now.
        note: is told what a person should know.

    Raises:
        GlassError: there is no such run or head, heads cannot be taken out of it, its text is gone, `out` is taken, or
            the run has another checkpoint by now.
    """
    if not heads:
        raise GlassError("no head is named that shall go", "Name one, such as dec.0.self.0.")
    refuse_existing(out)
    opened = open_for_pruning(Path(folder), which, device, note)
    if checkpoint not in (None, opened.checkpoint.name):
        raise GlassError(
            f"{folder} has gone on from {checkpoint} to {opened.checkpoint.name}",
            "Look at the new one, then try again.",
        )
    before = sum(parameter.numel() for parameter in opened.model.parameters())
    found = pruned(opened, heads)
    write_pruned(out, opened, found, {"by": "hand"})
    after = sum(parameter.numel() for parameter in found.model.parameters())
    return ByHand(out, opened.checkpoint.name, found.names, (before, after))
