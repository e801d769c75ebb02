"""The training loop: from the learning rate of a step to its checkpoint.

`train` is the loop of a run. `compute_gradients` and `accumulate_gradients` are the forward and backward passes of one
step; code that takes steps outside of a run (such as `step_measurement`, pruning and verification) calls them too.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from glassformer.model.device import autocast
from glassformer.text.batches import Batch
from glassformer.training.optimizers import set_rate
from glassformer.training.stepping import Gradients, Stepper
from glassformer.training.trainer import Trainer, TrainingOutcome


def train(trainer: Trainer) -> TrainingOutcome | None:
    """Train until a limit ends the run, then evaluate the best checkpoint; return None if a signal stopped the run.

    In both cases everything is saved. Without a time limit, a run that is stopped and then resumed on the same machine,
    with the same settings and number of processes, ends with the same weights as an uninterrupted run. With
    `train.compile`, this holds only if all batches have the same shape (see `compiling.compiled`).
    """
    trainer.begin()
    while not (trainer.ended or trainer.stopping):
        trainer.stopwatch.start()
        factor = trainer.rate_factor()
        set_rate(trainer.optimizers, factor)
        gradients = compute_gradients(trainer.stepper, trainer.state.step)
        if not gradients.finite:
            trainer.raise_non_finite(gradients)
        trainer.stepper.clip(gradients.norm)
        for optimizer in trainer.optimizers:
            optimizer.step()
        trainer.count_step(gradients, factor)
        trainer.check_limits()
        if trainer.evaluation_is_due():
            trainer.evaluate()
            trainer.write_sample()
            trainer.check_limits()
        if trainer.log_is_due():
            trainer.log()
        trainer.observe(last=trainer.ended)
        trainer.agree_to_stop()
        if trainer.checkpoint_is_due():
            trainer.save_checkpoint(last=trainer.ended)
    return None if trainer.stopping else trainer.finish()


def compute_gradients(stepper: Stepper, step: int) -> Gradients:
    """Compute the gradients of one step. A single process retries with smaller micro-batches if memory runs out.

    The rows and the seed of dropout depend only on the settings, `step`, and the rank and number of processes.
    """
    stepper.model.train()
    rows = stepper.task.rows(step)
    for _ in stepper.oom_retries.attempts():
        batches = stepper.batches(rows)
        with stepper.seeded(step), stepper.oom_retries.watch(batches):
            loss, targets = accumulate_gradients(stepper, batches)
    return Gradients(loss, stepper.gradient_norm(), targets, batches)


def accumulate_gradients(stepper: Stepper, batches: Sequence[Batch]) -> tuple[float, int]:
    """Accumulate the gradients of the mean loss over all targets of a step; return the loss and the target count."""
    processes = stepper.processes
    targets = max(1, int(processes.all_reduce_sum(sum(batch.n_targets for batch in batches))))
    for optimizer in stepper.optimizers:
        optimizer.zero_grad(set_to_none=True)
    total = torch.zeros((), device=stepper.device)
    for number, micro_batch in enumerate(batches, start=1):
        batch = micro_batch.to(stepper.device)
        with processes.no_sync(last=number == len(batches)):
            with autocast(stepper.device, stepper.dtype):
                loss = stepper.loss(batch, targets)  # ()
            loss.backward()
        total += loss.detach()
    return processes.all_reduce_sum(float(total)), targets
