"""Snapshots of a run's attention heads, taken during training or recomputed from its weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from shutil import rmtree

import numpy as np

from glassformer.base.config import Config
from glassformer.base.files import hidden_folders
from glassformer.inspection.heads.of_run import probes_for
from glassformer.inspection.replay.head_arrays import mapped_texts, measure_heads
from glassformer.inspection.replay.history import History
from glassformer.inspection.replay.schedule import snapshot_steps, thinned
from glassformer.inspection.replay.snapshot import Numbers, Snapshot, snapshot_files, write_snapshot
from glassformer.model.evaluation_mode import inference
from glassformer.model.transformer import Model
from glassformer.runs.folder import Run
from glassformer.runs.opening import OpenedRun
from glassformer.runs.run_text import find_or_encode_text
from glassformer.tasks.losses import logits_of, token_losses
from glassformer.tasks.task import Task
from glassformer.tasks.task_rows import TaskRows
from glassformer.text.prepare import Prepared
from glassformer.text.rows import Row
from glassformer.training.trainer import Trainer

LOSSES = 2000
"""Approximate number of validation tokens whose losses are stored."""


class SnapshotTaker:
    """Object that takes snapshots of a run's model on fixed texts, so that equal weights give equal snapshots.

    Args:
        config: configuration of the run.
        task: task of the run.
        data: prepared training data of the run.
        model: a model of the run with any weights.
    """

    def __init__(self, config: Config, task: Task, data: Prepared, model: Model) -> None:
        self.task = task
        self.sampling = config.sample
        tokenizer = data.tokenizer
        source_tokenizer = data.source_tokenizer
        self.probes, self.token_facts = probes_for(model, config, source_tokenizer, tokenizer, data)
        self.texts = mapped_texts(model, self.probes, source_tokenizer, tokenizer)
        self.rows = task.held_out(LOSSES)
        repeated = [Row.of_text(row) for probe in self.probes if probe.name == "repeated" for row in probe.rows]
        self.repeated = repeated if config.train.task == "lm" else []

    def snapshot(self, model: Model, step: int) -> Snapshot:
        """Take a snapshot of the model, without modifying it or using the random state of training."""
        arrays = measure_heads(model, self.probes, self.token_facts, self.texts)
        prompt, sample = self.task.sample(model, self.sampling)
        return Snapshot(
            step=step,
            labels=arrays.labels,
            scores=arrays.scores,
            reached=arrays.reached,
            statistics=arrays.numbers,
            maps=arrays.maps,
            losses=self._losses(model, self.rows),
            repeated=self._losses(model, self.repeated),
            prompt=prompt,
            sample=sample,
        )

    def _losses(self, model: Model, rows: Sequence[Row]) -> Numbers:
        """Return the loss at each position in nats, (rows, T); NaN where nothing is predicted."""
        task_rows = TaskRows(self.task, rows, model.embedding.tokens.weight.device)
        parts = []
        with inference(model):
            for _, group in task_rows.groups(model):
                batch = task_rows.batch(group)
                losses = token_losses(logits_of(model, batch), batch)  # (B, T)
                parts.append(losses.masked_fill(~batch.loss_mask, np.nan).float().cpu().numpy())
        longest = max((part.shape[1] for part in parts), default=0)
        padded = np.full((len(rows) if parts else 0, longest), np.nan, dtype=np.float32)  # (rows, T)
        start = 0
        for part in parts:
            padded[start : start + len(part), : part.shape[1]] = part
            start += len(part)
        return padded


class Recorder:
    """Training observer that writes snapshots to the run folder at scheduled steps (`train.snapshots`) and at the end.

    Each snapshot is a file, written atomically before the checkpoint of the same step: a killed run resumes from a
    checkpoint and takes the later snapshots again, with equal results.

    Args:
        trainer: trainer of the run, at any step.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.folder = trainer.run.snapshots_folder
        train = trainer.config.train
        self.steps = frozenset(snapshot_steps(train.snapshots, train.steps))
        data = find_or_encode_text(trainer.run, trainer.config, trainer.reporter.note)
        self.snapshot_taker = SnapshotTaker(trainer.config, trainer.task, data, trainer.model)

    def observe(self, model: Model, step: int, last: bool) -> None:
        """Take a snapshot if it is due or this is the last step.

        If there are then too many snapshots, delete intermediate ones.
        """
        if last or step in self.steps:
            self.folder.mkdir(exist_ok=True)
            write_snapshot(self.snapshot_taker.snapshot(model, step), self.folder)
            files = snapshot_files(self.folder)
            for step in files.keys() - thinned(files):
                files[step].unlink()

    def forget_after(self, step: int) -> None:
        """Delete the snapshots of steps after `step`, and the hidden folders of a killed process."""
        for snapshot_step, path in snapshot_files(self.folder).items():
            if snapshot_step > step:
                path.unlink()
        for hidden in hidden_folders(self.folder, "step-*.npz"):
            rmtree(hidden, ignore_errors=True)


@dataclass(frozen=True)
class SnapshotAgreement:
    """Largest differences between a stored snapshot and one recomputed from the weights of the same step.

    Attributes:
        step: step of both snapshots.
        maps: largest difference of attention weights, which snapshots store in steps of 1/255.
        scores: largest difference of role scores.
        losses: largest difference of losses, in nats.
    """

    step: int
    maps: float
    scores: float
    losses: float


def agreement(
    run: Run, history: History, device: str = "auto", note: Callable[[str], None] = lambda text: None
) -> SnapshotAgreement | None:
    """Recompute the snapshot of the last checkpoint from its weights, and compare it with the stored one.

    Args:
        run: the run; its training data must be available.
        history: snapshots of the run.
        device: device for computing, as in `train.device`.
        note: function that receives messages for the user.

    Returns:
        The largest differences, or None if the step of the last checkpoint has no snapshot, as in a run that is still
        training.

    Raises:
        GlassError: the run has no checkpoint, or its training data is missing.
    """
    opened = OpenedRun.load(run.folder, "last", device, note=note)
    step = opened.step
    stored = next((snapshot for snapshot in history.snapshots if snapshot.step == step), None)
    if stored is None:
        return None
    recomputed = SnapshotTaker(opened.config, opened.task, opened.data, opened.model).snapshot(opened.model, step)
    maps = max(
        int(np.abs(recomputed.maps[key].astype(int) - stored_map.astype(int)).max())
        for key, stored_map in stored.maps.items()
    )
    return SnapshotAgreement(
        step, maps / 255, _difference(recomputed.scores, stored.scores), _difference(recomputed.losses, stored.losses)
    )


def _difference(recomputed: Numbers, stored: Numbers) -> float:
    """Return the largest absolute difference, ignoring NaN."""
    return float(np.nan_to_num(np.abs(recomputed.astype(np.float64) - stored), nan=0.0).max(initial=0.0))
