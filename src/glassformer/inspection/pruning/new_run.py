"""Run folder of a pruned model; it can be used for generation, resumed, verified and exported like any other run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer

from glassformer.base.config import Config
from glassformer.base.errors import GlassError
from glassformer.base.files import new_output
from glassformer.base.locks import is_held
from glassformer.inspection.pruning.l0 import L0, learn_gates
from glassformer.inspection.pruning.removal import cut_optimizers, fold_gates, refuse_unprunable, without_heads
from glassformer.inspection.sites import heads
from glassformer.model.transformer import Model
from glassformer.runs.folder import Which, create_run, open_run, version_of
from glassformer.runs.opening import OpenedRun
from glassformer.training.checkpoint import TrainState, load_checkpoint, save_checkpoint
from glassformer.training.optimizers import make_optimizers
from glassformer.training.setup import set_threads
from glassformer.training.stepping import Stepper
from glassformer.training.validation import loss_on_rows


def open_for_pruning(folder: Path, which: Which, device: str, note: Callable[[str], None]) -> OpenedRun:
    """Open a run for pruning, and check that its heads can be removed and that its data is available.

    Raises:
        GlassError: the run does not exist, its data is missing, or its heads cannot be removed.
    """
    run = open_run(folder)
    refuse_unprunable(run.config().model)
    if is_held(folder):
        note(f"{folder} is still training: this is its {which} checkpoint so far")
    opened = OpenedRun.load(folder, which, device, note=note)
    _ = opened.task  # raise an error for missing data now, not after minutes of work
    return opened


@dataclass(frozen=True)
class Trained:
    """A run with its training state, all of one checkpoint.

    Attributes:
        opened: the run.
        optimizers: optimizers of its model, with their state.
        state: training state, such as the step.
    """

    opened: OpenedRun
    optimizers: list[Optimizer]
    state: TrainState


def read_training_state(opened: OpenedRun, which: Which) -> Trained:
    """Read a checkpoint again, with its training state, before any work: training may soon replace it.

    The checkpoint may be a later one than that of `opened`.

    Raises:
        GlassError: the run has no training state, or it does not fit the run's settings.
    """
    optimizers = make_optimizers(opened.model, opened.config.train)

    def read(checkpoint: Path) -> tuple[str, TrainState]:
        version = version_of(checkpoint)
        return version, load_checkpoint(checkpoint, opened.model, optimizers)

    checkpoint, (version, state) = opened.files.read_checkpoint(which, read)
    loss = dict(state.evaluations).get(state.step)
    return Trained(replace(opened, checkpoint=checkpoint, version=version, loss=loss), optimizers, state)


@dataclass(frozen=True)
class PrunedModel:
    """Pruned model with its training state.

    Attributes:
        model: the model with fewer heads.
        names: names of the removed heads.
        optimizers: optimizers of the pruned model, with the optimizer state of the remaining weights.
        state: training state, such as the step.
    """

    model: Model
    names: tuple[str, ...]
    optimizers: list[Optimizer]
    state: TrainState


def prune_model(trained: Trained, names: Sequence[str]) -> PrunedModel:
    """Remove the named heads from the checkpoint's model, and return the pruned model with its training state."""
    opened = trained.opened
    return _remove_heads(opened.model, names, trained.optimizers, trained.state, opened.config)


def prune_by_gates(trained: Trained, settings: L0, note: Callable[[str], None]) -> PrunedModel:
    """Train with gates, remove heads whose final gates are 0, and multiply the other gates into the weights.

    Raises:
        GlassError: the run was trained with another loss, averages its weights (`train.average`) or has no output
            projections, or a loss or a gradient is not finite.
    """
    opened = trained.opened
    config = opened.config
    if (loss := opened.files.other_loss()) is not None:
        raise GlassError(
            f"{opened.folder} was trained with another loss: {loss}; gates are trained with the loss of the task",
            "Leave out --l0 and give --heads, --fraction or --max-loss.",
        )
    if not config.model.output_projection:
        raise GlassError(
            "model.output_projection = false: there is no output projection to multiply the gates into",
            "Leave out --l0 and give --heads, --fraction or --max-loss.",
        )
    if config.train.average != "none":
        raise GlassError(
            f"train.average = {config.train.average}: gates cannot be trained on averaged weights",
            "Leave out --l0 and give --heads, --fraction or --max-loss, or give a run with train.average = none.",
        )
    overrides = {"device": str(opened.device), "compile": False}  # gates are hooks, which compiled code ignores
    config = config.replace(train={**config.train.model_dump(), **overrides})
    set_threads(config)
    stepper = Stepper(opened.model, opened.task, config)
    stepper.optimizers = trained.optimizers
    gates, targets = learn_gates(stepper, trained.state.step, settings, note)
    fold_gates(stepper.model, gates)
    names = [
        str(head)
        for head, gate in zip(heads(stepper.model), torch.cat(list(gates.values())).tolist(), strict=True)
        if gate == 0
    ]
    state = trained.state
    state = replace(state, step=state.step + settings.steps, tokens=state.tokens + targets)
    return _remove_heads(stepper.model, names, stepper.optimizers, state, config)


def _remove_heads(
    model: Model, names: Sequence[str], optimizers: list[Optimizer], state: TrainState, config: Config
) -> PrunedModel:
    smaller = without_heads(model, names)
    new_optimizers = make_optimizers(smaller, config.train)
    cut_optimizers(optimizers, new_optimizers, model, smaller)
    return PrunedModel(smaller, tuple(names), new_optimizers, state)


def write_pruned(out: Path, opened: OpenedRun, pruned_model: PrunedModel, facts: Mapping[str, Any]) -> None:
    """Write the run folder of a pruned model atomically; `out` must be missing or empty.

    The training state is that of `pruned_model`, except that the best loss is measured again, earlier losses are
    dropped, and evaluations without improvement are counted from 0.

    Args:
        out: folder of the new run.
        opened: the original run.
        pruned_model: the pruned model.
        facts: JSON values that describe the pruning, for the manifest.
    """
    config = opened.config
    config = config.replace(
        model={**config.model.model_dump(), "removed_heads": pruned_model.model.config.removed_heads}
    )
    loss = loss_on_rows(pruned_model.model, opened.held_out(config.train.evaluate_tokens, "fp32")).loss
    state = replace(
        pruned_model.state,
        best_step=pruned_model.state.step,
        best_loss=loss,
        waited=0,
        recent_losses=[],
        plateau=replace(pruned_model.state.plateau, best=None, waited=0),
        evaluations=[(pruned_model.state.step, loss)],
        logs={},
    )
    manifest = opened.files.manifest()
    inherited: dict[str, Any] = {name: manifest[name] for name in ("data", "parent", "other_loss") if name in manifest}
    origin = {"from": str(opened.folder), "checkpoint": opened.checkpoint.name, "heads": list(pruned_model.names)}
    pruned = {**inherited, "pruned": {**origin, **facts}}
    with new_output(out) as temporary:
        run = create_run(temporary, config, pruned, opened.files.copy_vocabulary)
        save_checkpoint(run, pruned_model.model, pruned_model.optimizers, state, config)
