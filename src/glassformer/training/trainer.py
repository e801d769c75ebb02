"""State of a run during training, and the actions that the training loop calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np

from glassformer.base.config import WRITERS, Config
from glassformer.base.errors import GlassError
from glassformer.base.files import MANIFEST, sha256
from glassformer.base.wording import counted, quoted
from glassformer.model.device import autocast
from glassformer.model.transformer import Model
from glassformer.runs.folder import Run, check_logs
from glassformer.tasks.task import Task
from glassformer.training.checkpoint import TrainState, load_checkpoint, point_to, step_name
from glassformer.training.clock import RunClock, Seconds, since
from glassformer.training.first_nonfinite import earliest, first_bad_tensor
from glassformer.training.journal import OUTPUT_MARK, Journal
from glassformer.training.legs import end_leg, record_fact
from glassformer.training.pace import Pace, Untimed, evenly
from glassformer.training.parallel.processes import Processes
from glassformer.training.parent_text import ParentText
from glassformer.training.reporting import Reporter, Status
from glassformer.training.schedules import rate_factor
from glassformer.training.stepping import Gradients, Stepper
from glassformer.training.stopwatch import Stopwatch
from glassformer.training.thread_choice import ThreadChoice
from glassformer.training.validation import LossEstimate, validation_loss
from glassformer.training.verdicts import NOISE, verdict

WATCHED_EVALUATIONS = 3
"""Number of evaluations at the start of a run that also report the task's concerns about the data."""
RISING_EVALUATIONS = 3
"""Number of evaluations without improvement after which a rising validation loss is reported."""
SHORT_SAMPLE = 16
"""Maximum number of tokens in the samples that are generated only to measure their time."""


@dataclass(frozen=True)
class TrainingOutcome:
    """Result of a run.

    Attributes:
        step: step of the checkpoint with the lowest validation loss; the last step if there was no evaluation.
        validation: loss of this checkpoint on the whole validation split, or on the fraction `validation_share`.
        bits_per_byte: the same loss in bits per byte of text; None if that is not defined.
        unknown_share: fraction of the validation tokens that are the unknown token.
        unit: unit over which the loss is averaged, such as "token".
        reason: reason why training stopped.
        verdict: one sentence on the loss curve.
        entropy: true entropy of the validation text in nats per token; None if not known.
        last_step: number of completed steps.
        train_seconds: training time, without evaluations, samples and checkpoints.
        validation_share: fraction of the validation rows that were measured; below 1 only in a run with a time limit,
            if evaluating the whole split would take more than a tenth of the limit, or more than the remaining time.
        first_loss: for a run with a parent, the validation loss before the first step, on the rows of an evaluation
            during training; otherwise None.
        parent_losses: for a run with a parent, the losses on the parent's held-out text before the first step and at
            `step`; None without a parent, or if the parent's text is not available.
    """

    step: int
    validation: LossEstimate
    bits_per_byte: float | None
    unknown_share: float
    unit: str
    reason: str
    verdict: str
    entropy: float | None
    last_step: int
    train_seconds: float
    validation_share: float = 1.0
    first_loss: float | None = None
    parent_losses: tuple[float, float] | None = None


class Observer(Protocol):
    """Interface of observers of training, which must not change the model, its mode or the random state."""

    def observe(self, model: Model, step: int, last: bool) -> None:
        """Observe the model before the first step and after every step; `last` is True after the last step."""

    def forget_after(self, step: int) -> None:
        """Delete the data recorded after `step`, the step of the checkpoint being resumed."""


class Trainer:
    """Training state of one run: its progress, the actions that are due, and its outputs; used by `loop.train`.

    `observer`, `threads` and `parent_text` may be set before training.

    Attributes:
        state: progress of the run, saved in checkpoints.
        stopwatch: stopwatch that measures the time of steps.
        pace: clock and time budget of a run with a time limit, otherwise `Untimed`.
        record: line of `metrics.jsonl` for the last step.
        reason: reason why the run has ended; None while there are steps to take.
        stop_requested: whether a signal asked this process to stop after the current step.
        stopping: whether all processes stop because a process received a signal.

    Args:
        run: run folder, for all output.
        config: all settings.
        model: initialized model; `resume` loads its weights.
        task: task with its text.
        reporter: reporter of progress and notes.
        entropy: true entropy of the validation split in nats per token, for the loss plot and the outcome; None if not
            known.
        processes: processes that train this run together; None: only this process.
        seconds: function that returns the wall-clock seconds of this leg, for the time limit; None: count from now.
    """

    def __init__(
        self,
        run: Run,
        config: Config,
        model: Model,
        task: Task,
        reporter: Reporter,
        entropy: float | None = None,
        processes: Processes | None = None,
        seconds: Seconds | None = None,
    ) -> None:
        self.run = run
        self.config = config
        self.task = task
        self.reporter = reporter
        self.entropy = entropy
        self.stepper = Stepper(model, task, config, processes)
        self.processes = self.stepper.processes
        self.model = self.stepper.model
        self.optimizers = self.stepper.optimizers
        self.state = TrainState()
        self.stopwatch = Stopwatch(self.stepper.device, self.processes)
        self.pace = self._make_pace(seconds or since())
        self.observer: Observer | None = None
        self.threads: ThreadChoice | None = None
        self.parent_text: ParentText | None = None
        self.record: dict[str, Any] = {}
        self.reason: str | None = None
        self.stop_requested = False
        self.stopping = False
        self._journal = Journal(run, entropy)
        self._full_estimate: tuple[int, LossEstimate] | None = None  # (step, loss on the whole validation split)

    def _make_pace(self, seconds: Seconds) -> Pace | Untimed:
        """Return a `Pace` for a run with a time limit, otherwise `Untimed`."""
        train = self.config.train
        if train.minutes is None:
            return Untimed()
        evaluation_rows = len(self.task.held_out(train.evaluate_tokens))
        pace = Pace(train.minutes, RunClock(seconds, self.processes), evaluation_rows, len(self.task.held_out(None)))
        pace.follow(self.state)
        return pace

    # --- before the first step -----------------------------------------------------------------------------------

    def resume(self, checkpoints: Sequence[Path]) -> None:
        """Load the newest complete checkpoint, and delete all others except the best.

        Process 0 must hold the run's lock.

        Args:
            checkpoints: complete checkpoints, oldest first; if empty, the run starts at step 0.
        """
        if not checkpoints:
            return
        newest = checkpoints[-1]
        self.processes.require_equal({f"the checkpoint {newest}": sha256(newest / MANIFEST)})
        self.state = load_checkpoint(newest, self.model, self.optimizers)
        if self.stepper.average is not None:
            self.stepper.average.exchange()  # the checkpoint's weights are the average
        self.stepper.oom_retries.count = self.state.oom_retries
        self.pace.follow(self.state)
        self.processes.on_rank_zero(lambda: check_logs(self.run.folder, self.state.logs))
        best = self.run.checkpoints_folder / step_name(self.state.best_step)
        if self.state.best_loss is not None and best not in checkpoints:
            self.reporter.note(
                f"the best checkpoint, {best}, is missing or damaged: using {newest.name} until the next evaluation"
            )
            self.state.best_step = self.state.step
            self.state.best_loss = None
        self.processes.on_rank_zero(lambda: point_to(self.run, self.state))

    def begin(self) -> None:
        """Prepare the logs, and save step 0 of a new run; then check whether the run has already ended.

        If it has not, measure the time of evaluations and samples (in a run with a time limit), and compute the losses
        before the first step (in a run with a parent, unless they are already known).

        Process 0 must hold the run's lock.
        """
        self.processes.on_rank_zero(self._record_loss)
        self.processes.on_rank_zero(self._forget_later_steps)
        if self.state.step == 0 and not self.processes.on_rank_zero(self.run.complete_checkpoints):
            self.observe()
            self.save_checkpoint()
        self.reason = self.reason_to_end()
        self.agree_to_stop()
        if self.stopping:
            return
        if self.reason is not None:
            self._end_without_a_step(self.reason)
            return
        self._measure_costs()
        if self.parent_text is None:
            return
        if self.state.evaluations:
            self._reserve_for_parents_text(self.parent_text)
        else:
            self._measure_initial_losses(self.parent_text)
            self.reason = self.reason_to_end()

    def _record_loss(self) -> None:
        """Write the name of a loss other than that of the task to the manifest of a new run.

        Raises:
            GlassError: the run is resumed with another loss than the recorded one.
        """
        loss, recorded = self.stepper.other_loss, self.run.other_loss()
        if loss == recorded:
            return
        if self.state.step > 0:
            raise GlassError(
                f"{self.run.folder} was trained with {recorded or 'the loss of its task'}, not with "
                f"{loss or 'the loss of its task'}",
                "Resume it from Python with the same loss: assign it to trainer.stepper.loss before training.",
            )
        record_fact(self.run, "other_loss", loss)

    def _forget_later_steps(self) -> None:
        """Drop metrics and observations of steps after the checkpoint being resumed."""
        last_logged_step = self.state.step - len(self.state.recent_losses)
        if note := self._journal.forget_after(self.state.logs, last_logged_step):
            self.reporter.note(note)
        if self.observer is not None:
            self.observer.forget_after(self.state.step)

    def _end_without_a_step(self, reason: str) -> None:
        """Report that the run has ended; if step `train.steps` was reached but not evaluated, evaluate it."""
        command = self._command_to_train_longer()
        self.reporter.note(f"nothing left to train: {reason}. To train longer, change this limit: {command}")
        if self.state.step == self.config.train.steps and not self._is_evaluated:
            self.evaluate()
            self.write_sample()
            self.observe(last=True)
            self.save_checkpoint()

    def _command_to_train_longer(self) -> str:
        """Return a command that resumes a finished run after changing the limit that ended it."""
        train = self.config.train
        state = self.state
        if train.steps is not None and state.step >= train.steps:
            limit = f"--steps {2 * state.step}"
        elif train.minutes is not None and self.pace.must_end():
            limit = f"--minutes {2 * train.minutes:g}"
        elif train.until_loss is not None and state.evaluations[-1][1] <= train.until_loss:
            limit = f"--until-loss {0.9 * state.evaluations[-1][1]:.4g}"
        else:
            limit = f"--set train.patience={2 * state.waited}"
        return f"glass train --resume --out {quoted(self.run.folder)} {limit}"

    def _measure_costs(self) -> None:
        """Measure the time of evaluations and samples if the run has a time limit."""
        rows = self.task.held_out(None)
        self.pace.measure(
            lambda count: self._loss_of(self.model, evenly(rows, count), self.processes), self._try_sample
        )

    def _measure_initial_losses(self, parent_text: ParentText) -> None:
        """Compute a fine-tuned run's losses before its first step: on the run's text and on the parent's text."""
        self.evaluate()
        if parent_text.task is not None:
            self.state.parent_rows = len(self.pace.part(self._evaluation_rows_of_parent(parent_text.task)))
            self.state.parent_loss = self._loss_on_parents_text(parent_text.task)
        self.pace.training_begins()

    def _reserve_for_parents_text(self, parent_text: ParentText) -> None:
        """Reserve time in a resumed leg for the loss on the parent's text, which is computed after training."""
        if parent_text.task is None or self.state.parent_loss is None:
            return
        rows = self._rows_of_parents_text(parent_text.task)
        self.pace.reserve_for_parents_text(
            lambda count: self._loss_of(self.model, evenly(rows, count), self.processes), len(rows)
        )

    def _evaluation_rows_of_parent(self, task: Task) -> Sequence[Any]:
        return task.held_out(self.config.train.evaluate_tokens)

    def _rows_of_parents_text(self, task: Task) -> Sequence[Any]:
        """Return the rows of the parent's held-out text on which the loss is computed."""
        return evenly(self._evaluation_rows_of_parent(task), self.state.parent_rows)

    def _loss_on_parents_text(self, task: Task) -> float:
        """Return the loss on the parent's held-out text; the rows are the same before and after training."""
        rows = self._rows_of_parents_text(task)
        loss = self._loss_of(self.model, rows, self.processes).loss
        self.pace.parents_text_measured()
        return loss

    def _try_sample(self) -> float:
        """Generate a short sample without showing it, to measure its time.

        Return the length of a full sample divided by that of the short one; 1 for tasks that generate no text.
        """
        settings = self.config.sample
        short_settings = settings.replace(tokens=min(SHORT_SAMPLE, settings.tokens))
        model = self.processes.full_model(self.model)

        def write() -> None:
            assert model is not None  # in process 0
            self.task.sample(model, short_settings)

        self.processes.on_rank_zero(write)
        return settings.tokens / short_settings.tokens if self.config.train.task in WRITERS else 1.0

    # --- each step -----------------------------------------------------------------------------------------------

    def rate_factor(self) -> float:
        """Return the schedule's factor on the peak learning rates for the next step."""
        return rate_factor(self.config.train, self.state.step, self._fraction_done() or 0.0, self.state.plateau.factor)

    def _fraction_done(self) -> float | None:
        """Return the fraction of the run that is done, by steps or by time, whichever is larger; None if not known."""
        by_steps = self.state.step / self.config.train.steps if self.config.train.steps else None
        fractions = [fraction for fraction in (by_steps, self.pace.fraction_done()) if fraction is not None]
        return min(1.0, max(fractions)) if fractions else None

    def raise_non_finite(self, gradients: Gradients) -> NoReturn:
        """In all processes, raise an error that names the first non-finite tensor; do not update the weights.

        Raises:
            GlassError: always.
        """
        self._note_oom_retries(gradients)
        step = self.state.step + 1
        checkpoint = self.processes.on_rank_zero(self.run.complete_checkpoints)[-1].name
        with autocast(self.stepper.device, self.stepper.dtype):
            bad_tensor = first_bad_tensor(self.model, (batch.to(self.stepper.device) for batch in gradients.batches))
        cause = earliest(self.processes.gather(bad_tensor))
        clip = self.config.train.clip
        muon = " and train.muon_learning_rate" if self.config.train.optimizer == "muon" else ""
        rates = f"a lower train.learning_rate{muon}"
        error = GlassError(
            f"step {step} was not taken: the loss is {gradients.loss}, and the first non-finite tensor is {cause}",
            f"Checkpoint {checkpoint} is intact. Start a new run with {rates}, a longer train.warmup or "
            f"{'train.clip = 1' if clip is None else f'a lower train.clip (now {clip:g})'}.",
        )
        self.processes.raise_on_all(error)

    def _note_oom_retries(self, gradients: Gradients) -> None:
        """Report a micro-batch that was halved in this step, and store the number of retries in `state`."""
        count = self.stepper.oom_retries.count
        if count > self.state.oom_retries:
            self.state.oom_retries = count
            self.reporter.note(
                f"step {self.state.step + 1:>6}  out of memory: micro-batch is now "
                f"{len(gradients.batches[0].inputs):,} (global batch unchanged)"
            )

    def count_step(self, gradients: Gradients, factor: float) -> None:
        """Update the progress after a step, and start its line of `metrics.jsonl`.

        Args:
            gradients: gradients of the step.
            factor: factor on the peak learning rates.
        """
        self._note_oom_retries(gradients)
        state = self.state
        state.step += 1
        state.tokens += gradients.targets
        state.train_seconds += self.stopwatch.seconds()
        state.recent_losses.append(gradients.loss)
        step_seconds = self.pace.stepped()
        if self.threads is not None:
            self.threads.stepped(step_seconds, self.pace.now)
        self.record = {
            "step": state.step,
            "tokens": state.tokens,
            "train_seconds": round(state.train_seconds, 4),
            "loss": gradients.loss,
            "learning_rate": self.config.train.learning_rate * factor,
            "gradient_norm": float(gradients.norm),
        }

    @property
    def ended(self) -> bool:
        """Return whether the run has reached a limit."""
        return self.reason is not None

    def check_limits(self) -> None:
        """Set `reason` if the run has reached a limit."""
        self.reason = self.reason or self.reason_to_end()

    def reason_to_end(self) -> str | None:
        """Return a description of the limit that has ended the run; None while there are steps to take."""
        train = self.config.train
        state = self.state
        if train.steps is not None and state.step > train.steps:
            return f"{counted(state.step, 'steps')} are done, and train.steps is {train.steps:,}"
        if train.steps is not None and state.step == train.steps:
            return f"all {train.steps:,} steps are done" if train.steps > 1 else "the only step is done"
        if train.minutes is not None and self.pace.must_end():
            return f"train.minutes = {train.minutes:g} leaves no time for another step"
        if train.until_loss is not None and state.evaluations and state.evaluations[-1][1] <= train.until_loss:
            return f"the validation loss reached {train.until_loss:g}"
        if train.patience is not None and state.waited >= train.patience:
            return f"{counted(state.waited, 'evaluations')} brought no improvement"
        return None

    def agree_to_stop(self) -> None:
        """Stop all processes together if any process received a signal."""
        self.stopping = self.processes.all_reduce_max(self.stop_requested) > 0

    # --- evaluation and sample -----------------------------------------------------------------------------------

    def evaluation_is_due(self) -> bool:
        """Return whether to evaluate this step.

        The last step is always evaluated; every `train.evaluate_every`-th step is evaluated if there is time.
        """
        if self.ended:
            return True
        return self.state.step % self.config.train.evaluate_every == 0 and self.pace.allows_evaluation()

    @property
    def _is_evaluated(self) -> bool:
        """Return whether this step was evaluated."""
        return bool(self.state.evaluations) and self.state.evaluations[-1][0] == self.state.step

    def evaluate(self) -> None:
        """Measure the validation loss, and update the best step."""
        state = self.state
        rows = self.pace.part(self.task.held_out(self.config.train.evaluate_tokens))
        with self.stepper.averaged():
            estimate = self._loss_of(self.model, rows, self.processes)
        self.pace.evaluated(len(rows))
        if len(rows) == len(self.task.held_out(None)):
            self._full_estimate = (state.step, estimate)
        self.record["validation_loss"] = estimate.loss
        state.evaluations.append((state.step, estimate.loss))
        state.plateau = state.plateau.after(estimate.loss, self.config.train)
        if state.best_loss is None or estimate.loss < state.best_loss:
            state.best_loss = estimate.loss
            state.best_step = state.step
            state.waited = 0
        else:
            state.waited += 1
            self._note_rising_loss(estimate.loss, state.best_loss)

    def _note_rising_loss(self, loss: float, best_loss: float) -> None:
        """Report a rising validation loss, so that the user can stop the run.

        A rising loss is reported at most once after each evaluation with the lowest loss so far.
        """
        if self.state.waited == RISING_EVALUATIONS and loss > best_loss * (1 + NOISE):
            self.reporter.note(
                f"step {self.state.step:>6}  the validation loss has risen since step {self.state.best_step}: more "
                "steps may not help; after Ctrl-C, the best checkpoint can be used"
            )

    def _loss_of(self, model: Model, rows: Sequence[Any], processes: Processes | None = None) -> LossEstimate:
        """Return the loss over validation rows."""
        device = self.stepper.device
        dtype = self.stepper.dtype
        return validation_loss(model, rows, device, dtype, processes=processes)

    def write_sample(self) -> None:
        """Generate a sample and add it to `samples.txt`; in the first evaluations, report the task's concerns."""
        with self.stepper.averaged():
            model = self.processes.full_model(self.model)
            self.processes.on_rank_zero(lambda: self._sample_and_check(model))
        self.pace.sampled()

    def _sample_and_check(self, model: Model | None) -> None:
        """Add a sample, and in the first evaluations report the task's concerns; called in process 0 only."""
        assert model is not None
        self._add_sample(model)
        if len(self.state.evaluations) <= WATCHED_EVALUATIONS:
            for concern in self.task.concerns(model, lambda rows: self._loss_of(model, rows).loss):
                self.reporter.note(f"step {self.state.step:>6}  {concern}")

    def _add_sample(self, model: Model) -> None:
        prompt, text = self.task.sample(model, self.config.sample)
        continues = self.config.train.task == "lm"
        entry = f"{prompt}{text}" if continues else f"{prompt}{OUTPUT_MARK}{text}"
        self._journal.add_sample(self.state.step, entry)
        summary = entry if continues else f"{_shorten(prompt, 60)} => {text}"
        self.reporter.note(f"step {self.state.step:>6}  writes: {_shorten(summary, 160)}")

    # --- log and checkpoint --------------------------------------------------------------------------------------

    def log_is_due(self) -> bool:
        """Return whether to log this step in `metrics.jsonl`.

        Evaluated steps and every `train.log_every`-th step are logged.
        """
        return self._is_evaluated or self.state.step % self.config.train.log_every == 0

    def log(self) -> None:
        """Add this step's line to `metrics.jsonl`, with the mean training loss since the last line; report progress."""
        self.record["loss"] = float(np.mean(self.state.recent_losses))
        self.state.recent_losses.clear()
        self.processes.on_rank_zero(self._write_record)

    def _write_record(self) -> None:
        """Write this step's line, report the progress, and draw the loss plot after an evaluation."""
        record = self.record
        state = self.state
        self._journal.add(record)
        fraction = self._fraction_done()
        seconds_left = self._seconds_left(fraction)
        last_loss = state.evaluations[-1][1] if state.evaluations else None
        speed = state.tokens / max(1e-9, state.train_seconds)
        self.reporter.status(
            Status(state.step, fraction, record["loss"], last_loss, record["learning_rate"], speed, seconds_left)
        )
        if "validation_loss" in record:
            self._journal.draw(self.state.evaluations)

    def _seconds_left(self, fraction: float | None) -> float | None:
        """Return the estimated seconds until the run ends, given its completed fraction; None if not known."""
        by_progress = self.state.train_seconds * (1 - fraction) / fraction if fraction else None
        by_clock = self.pace.seconds_left()
        if by_clock is None:
            return by_progress
        return by_clock if self.config.train.steps is None or by_progress is None else min(by_progress, by_clock)

    def observe(self, last: bool = False) -> None:
        """Call the observer with the model of this step, if there is an observer."""
        if self.observer is not None:
            with self.stepper.averaged():
                self.observer.observe(self.model, self.state.step, last)

    def checkpoint_is_due(self) -> bool:
        """Return whether to save this step.

        The best step, the last step, every `train.save_every`-th step, and a step after which a signal stops the run
        are saved.
        """
        is_best = self._is_evaluated and self.state.best_step == self.state.step
        return is_best or self.ended or self.stopping or self.state.step % self.config.train.save_every == 0

    def save_checkpoint(self, last: bool = False) -> None:
        """Save this step atomically, and update `best` and `last`."""
        self.processes.on_rank_zero(self._finish_logs)
        self.pace.saving(last)
        with self.stepper.averaged():
            self.processes.save(self.run, self.model, self.optimizers, self.state, self.config)
        self.pace.saved()

    def _finish_logs(self) -> None:
        """Flush the logs to the disk, and record their hashes for the checkpoint."""
        self._journal.sync()
        self.state.logs = self._journal.digests()

    # --- after the last step -------------------------------------------------------------------------------------

    def finish(self) -> TrainingOutcome:
        """Evaluate the best checkpoint, and return the outcome of the run."""
        assert self.reason is not None
        state = self.state
        step, _ = state.checkpoint_steps
        self.processes.load(self.model, self.processes.on_rank_zero(lambda: self.run.checkpoint("best")))
        if self._full_estimate is not None and self._full_estimate[0] == step:
            estimate = self._full_estimate[1]  # the same weights on the same rows
            fraction = 1.0
        else:
            estimate, fraction = self._final_loss()
        first_loss, parent_losses = self._forgetting()
        if isinstance(self.pace, Pace):
            self._record_times(self.pace, fraction)
        return TrainingOutcome(
            step=step,
            validation=estimate,
            bits_per_byte=estimate.bits_per_byte(self.task.validation_bytes, fraction),
            unknown_share=self.task.unknown_share,
            unit=self.task.unit,
            reason=self.reason,
            verdict=verdict(state.evaluations, self.task.choices),
            entropy=self.entropy,
            last_step=state.step,
            train_seconds=state.train_seconds,
            validation_share=fraction,
            first_loss=first_loss,
            parent_losses=parent_losses,
        )

    def _forgetting(self) -> tuple[float | None, tuple[float, float] | None]:
        """Return a fine-tuned run's first validation loss, and its losses on the parent's text.

        The losses on the parent's text are those before the first step and at the best checkpoint. All are None without
        a parent; those on the parent's text are None if that text is not available.
        """
        if self.parent_text is None:
            return None, None
        first_loss = self.state.evaluations[0][1]
        before = self.state.parent_loss
        if self.parent_text.task is None or before is None:
            return first_loss, None
        return first_loss, (before, self._loss_on_parents_text(self.parent_text.task))

    def _final_loss(self) -> tuple[LossEstimate, float]:
        """Return the loss on the validation split, and the fraction of its rows that were measured."""
        rows = self.task.held_out(None)
        if not self.pace.is_final_part_known:
            self._measure_costs()
        measured_rows = self.pace.final_part(rows)
        fraction = 1.0 if len(measured_rows) == len(rows) else len(measured_rows) / len(rows)
        if fraction < 1:
            self.reporter.note(
                "train.minutes leaves too little time to evaluate the whole validation split: using "
                f"{len(measured_rows):,} of {len(rows):,} rows, evenly spaced; "
                f"glass evaluate {quoted(self.run.folder)} uses all rows"
            )
        return self._loss_of(self.model, measured_rows, self.processes), fraction

    def _record_times(self, pace: Pace, fraction: float) -> None:
        """Record the time of a run with a time limit; print a note if the run took over 1.1 times the limit."""
        if note := pace.overrun():
            self.reporter.note(note)
        ending: dict[str, Any] = {"wall_seconds": round(pace.now, 3), "validation_share": fraction}
        if self.threads is not None:
            ending["threads"] = self.threads.current
        self.processes.on_rank_zero(lambda: end_leg(self.run, ending))


def _shorten(text: str, max_length: int) -> str:
    """Return a text on one line; if it is longer than `max_length` characters, cut it and end it with an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= max_length else line[: max_length - 1] + "…"
