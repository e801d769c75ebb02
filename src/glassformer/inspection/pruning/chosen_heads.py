"""Pruning of heads that the user chooses: write a new run without these heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from glassformer.base.errors import GlassError
from glassformer.inspection.pruning.new_run import open_for_pruning, prune_model, read_training_state, write_pruned
from glassformer.runs.folder import Folder, Which, refuse_existing


@dataclass(frozen=True)
class ManualPruningReport:
    """Result of `prune_chosen_heads`.

    Attributes:
        folder: folder of the new run.
        checkpoint: checkpoint of the original run that was pruned, such as "step-000850".
        removed: names of the removed heads.
        parameters: numbers of parameters of the original run and of the new run.
    """

    folder: Path
    checkpoint: str
    removed: tuple[str, ...]
    parameters: tuple[int, int]


def prune_chosen_heads(
    folder: Folder,
    out: Path,
    heads: Sequence[str],
    which: Which = "best",
    device: str = "auto",
    version: str | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> ManualPruningReport:
    """Write a new run without the named heads.

    Up to rounding, the new model computes the same logits as the original model with these heads' z set to zero.

    Args:
        folder: folder of the run.
        out: folder of the new run; missing or empty.
        heads: names of the heads, such as `dec.0.self.3`, at least one.
        which: checkpoint to prune, "best" or "last".
        device: device of the model.
        version: version that this checkpoint must have (see `OpenedRun.version`); None: any version.
        note: function that receives messages for the user.

    Raises:
        GlassError: `heads` is empty, the run or a head does not exist, the run's heads cannot be removed, its data is
            missing, `out` is not empty, or the checkpoint's version is not `version`.
    """
    if not heads:
        raise GlassError("no heads to remove were named", "Name at least one head, such as dec.0.self.0.")
    refuse_existing(out)
    trained = read_training_state(open_for_pruning(Path(folder), which, device, note), which)
    opened = trained.opened
    if version not in (None, opened.version):
        raise GlassError(
            f"the checkpoint of {folder} is now {opened.version} instead of {version}",
            "Inspect the new checkpoint, then try again.",
        )
    parameters_before = sum(parameter.numel() for parameter in opened.model.parameters())
    pruned_model = prune_model(trained, heads)
    write_pruned(out, opened, pruned_model, {"by": "hand"})
    parameters_after = sum(parameter.numel() for parameter in pruned_model.model.parameters())
    return ManualPruningReport(out, opened.checkpoint.name, pruned_model.names, (parameters_before, parameters_after))
