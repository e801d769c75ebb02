"""Checks of training: the loss is correct, gradients of micro-batches add up, and resuming gives the same result."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer.base.config import Config, SampleConfig
from glassformer.model.evaluation_mode import inference
from glassformer.model.precision import bfloat16_is_faster
from glassformer.model.transformer import Classifier, Encoder, EncoderDecoder, Model
from glassformer.model.weights import load_tensors
from glassformer.runs.folder import Run, create_run
from glassformer.tasks.losses import TrainingLoss
from glassformer.text.rows import Ids, Row
from glassformer.training import loop
from glassformer.training.reporting import Silent, Status
from glassformer.training.stepping import Stepper
from glassformer.training.trainer import Trainer
from glassformer.training.validation import validation_loss
from glassformer.verification.check import Check, Finding
from glassformer.verification.verified_run import VerifiedRun

LOSS = 1e-5  # limit for the loss in float32
GRADIENTS = 1e-6  # limit for gradients in float64; a classifier's loss is in float32
STEPS = 3  # number of training steps
SAVED = 2  # the step after which a checkpoint is saved


@dataclass(frozen=True)
class FewRows:
    """The run's task on a few rows; each step uses all rows, in rotated order, and one of them twice."""

    all_rows: Sequence[Row]
    choices: int
    unit: str = "token"
    validation_bytes: None = None
    unknown_share: float = 0.0
    steps_per_epoch: float = 1.0

    def rows(self, step: int) -> Sequence[Row]:
        """Return all rows, rotated by `step`, followed by the first of the rotated rows again."""
        offset = step % len(self.all_rows)
        return [*self.all_rows[offset:], *self.all_rows[: offset + 1]]

    def held_out(self, limit: int | None) -> Sequence[Row]:
        """Return all rows without rotation; ignore `limit`."""
        return self.all_rows

    def sample(self, model: Model, settings: SampleConfig) -> tuple[str, str]:
        """Return two empty strings."""
        return "", ""

    def concerns(self, model: Model, loss: Callable[[Sequence[Row]], float]) -> Iterator[str]:
        """Yield nothing, because a check does not report concerns."""
        return iter(())


def loss_by_hand(subject: VerifiedRun) -> Finding:
    """Compare the training and validation loss with the mean of -log p, computed row by row without `Batch`.

    A change of target ids at positions outside the loss mask must not change the loss.
    """
    model = subject.model
    batch = subject.batch
    rows = subject.rows
    with inference(model):
        sums = [_row_nats(model, row) for row in rows]
        targets = sum(target_count for _, target_count in sums)
        expected_loss = sum(nats for nats, _ in sums) / targets
        validation = validation_loss(model, rows, torch.device("cpu"))
        changed = replace(batch, targets=torch.where(batch.loss_mask, batch.targets, (batch.targets + 1) % 2))
        loss = TrainingLoss(model)
        masked_difference = float(loss(changed) - loss(batch))
    training, training_targets = loop.accumulate_gradients(_stepper(subject, subject.model), [batch])
    if (training_targets, validation.tokens) != (targets, targets):
        note = (
            f"the loss has {training_targets} targets in training and {validation.tokens} in validation "
            f"instead of {targets}"
        )
        return Finding(float("inf"), note)
    difference = max(abs(training - expected_loss), abs(validation.loss - expected_loss), abs(masked_difference)) / max(
        1.0, expected_loss
    )
    return Finding(difference, f"{expected_loss:.4f} nats, mean over {targets} targets")


def _row_nats(model: Model, row: Row) -> tuple[float, int]:
    """Return the sum of -log p over the targets of a row in nats (float64), and the number of targets."""
    if isinstance(model, EncoderDecoder):
        assert row.source is not None
        memory = model.encode(_id_tensor(row.source))  # (1, S, D)
        logits = model.decode(_id_tensor(row.inputs), memory)[0]  # (T, V)
        targets = _id_tensor(row.targets)[0]  # (T)
    elif isinstance(model, Classifier):
        logits = model(_id_tensor(row.inputs))  # (1, C)
        targets = _id_tensor(row.targets)[0]  # (1)
    elif isinstance(model, Encoder):
        assert row.loss_mask is not None
        masked = torch.from_numpy(row.loss_mask)  # (T)
        logits = model(_id_tensor(row.inputs))[0][masked]  # (holes, V)
        targets = _id_tensor(row.targets)[0][masked]  # (holes)
    else:
        logits = model(_id_tensor(row.inputs))[0]  # (T, V)
        targets = _id_tensor(row.targets)[0]  # (T)
    log_probabilities = logits.double().log_softmax(dim=-1)  # (targets, V)
    return -float(log_probabilities.gather(1, targets[:, None]).sum()), len(targets)


def _id_tensor(ids: Ids) -> Tensor:
    return torch.tensor([ids.tolist()])  # (1, T)


def accumulation(subject: VerifiedRun) -> Finding:
    """Compare the gradients of one batch with those of the same rows in micro-batches of 1.

    The gradients are in float64, because the gradients of a model with a loss near 0 are as small as float32 rounding
    errors.
    """
    rows = subject.rows
    gradients = list[Tensor]()
    for micro_batch in (None, 1):
        stepper = _stepper(subject, subject.float64_model, micro_batch)
        batches = stepper.batches(rows)
        loop.accumulate_gradients(stepper, batches)
        parameters = stepper.model.parameters()
        gradients.append(torch.cat([p.grad.double().flatten() for p in parameters if p.grad is not None]))
    difference = float((gradients[1] - gradients[0]).norm() / gradients[0].norm())
    difference = difference if difference == difference else float("inf")
    return Finding(difference, f"{len(rows)} rows at once and in {len(batches)} micro-batches, in float64")


def _stepper(subject: VerifiedRun, model: Model, micro_batch: int | None = None) -> Stepper:
    """Return a stepper for a copy of the model on the CPU, without dropout."""
    config = _settings(subject.config, micro_batch=micro_batch, precision="fp32", label_smoothing=0.0)
    return Stepper(copy.deepcopy(model).eval(), _task(subject), config)


def _task(subject: VerifiedRun) -> FewRows:
    model = subject.model
    return FewRows(subject.rows, model.vocab_size)


def _settings(config: Config, **changes: Any) -> Config:
    """Return the run's settings, adapted to a few steps on the CPU."""
    overrides = {
        "steps": STEPS,
        "minutes": None,
        "until_loss": None,
        "patience": None,
        "device": "cpu",
        "micro_batch": None,
        "batch": 64,
        "evaluate_every": SAVED,
        "save_every": SAVED,
        "log_every": 1,
        "threads": None,
        "compile": False,
    }
    return config.replace(train={**config.train.model_dump(), **overrides, **changes})


class _InterruptedError(Exception):
    """Exception that ends training between two checkpoints, as if the process were killed."""


class _Interrupter(Silent):
    def status(self, status: Status) -> None:
        """Raise an exception after the last step, before its checkpoint is saved."""
        if status.step == STEPS:
            raise _InterruptedError


def resume(subject: VerifiedRun) -> Finding:
    """Compare uninterrupted training with training that is killed and resumed."""
    with tempfile.TemporaryDirectory(prefix="glass-verify-", ignore_cleanup_errors=True) as temporary:
        uninterrupted = _trainer(subject, Path(temporary) / "straight", Silent())
        loop.train(uninterrupted)
        with suppress(_InterruptedError):
            loop.train(_trainer(subject, Path(temporary) / "stopped", _Interrupter()))
        resumed = _trainer(subject, Path(temporary) / "stopped", Silent(), fresh=False)
        resumed.resume(resumed.run.complete_checkpoints())
        loop.train(resumed)
        expected = _saved_state(uninterrupted.run)
        actual = _saved_state(resumed.run)
    differing = [name for name in expected.keys() | actual.keys() if not _equal(expected.get(name), actual.get(name))]
    example = f"; {min(differing)} differs" if differing else ""
    note = f"{STEPS} steps on {subject.rows_source}, killed after the checkpoint at step {SAVED}"
    return Finding(len(differing), f"{note}; {len(expected)} tensors and numbers{example}")


def _trainer(subject: VerifiedRun, folder: Path, reporter: Silent, fresh: bool = True) -> Trainer:
    """Return a trainer for a new run folder or, unless `fresh`, for an existing one.

    In a new folder, training starts from the verified run's weights; otherwise, all weights are 0 until training is
    resumed. The trainer computes in float32 if bfloat16 is slow, because resuming does not depend on the precision.
    """
    precision = {} if bfloat16_is_faster(torch.device("cpu")) else {"precision": "fp32", "muon_precision": "fp32"}
    config = _settings(subject.config, micro_batch=2, **precision)
    run = create_run(folder, config, {}) if fresh else Run(folder)
    model = subject.copy().requires_grad_(True)
    if not fresh:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
    return Trainer(run, config, model, _task(subject), reporter)


def _saved_state(run: Run) -> dict[str, Any]:
    """Return the contents of the last checkpoint and of the log by name, without times."""
    last = run.checkpoint("last")
    contents: dict[str, Any] = {}
    for file in ("model", "optimizer"):
        tensors = load_tensors(last / f"{file}.safetensors")
        contents |= {f"{file} {name}": value.clone() for name, value in tensors.items()}
    state = json.loads((last / "state.json").read_text(encoding="utf-8"))["progress"]
    lines = [json.loads(line) for line in run.metrics_file.read_text(encoding="utf-8").splitlines()]
    for number, record in enumerate((state, *lines)):
        contents |= {f"line {number} {name}": value for name, value in record.items() if name != "train_seconds"}
    return contents


def _equal(a: Any, b: Any) -> bool:
    """Return whether two values are equal; tensors must be equal in shape and in every element."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return torch.equal(a, b)
    return not isinstance(a, Tensor) and not isinstance(b, Tensor) and bool(a == b)


CHECKS = (
    Check(
        "loss",
        "the loss is the mean of -log p of the targets only",
        LOSS,
        "of the loss",
        loss_by_hand,
    ),
    Check(
        "accumulation",
        "gradients of micro-batches add up to those of the batch",
        GRADIENTS,
        "of the gradients' norm",
        accumulation,
    ),
    Check(
        "resume",
        "a killed and resumed run is bit-identical to an uninterrupted one",
        0,
        "tensors and numbers that differ",
        resume,
    ),
)
