"""A run while it trains: what the training loop asks and tells it. One for all tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np

from glassformer.base.config import WRITERS, Config
from glassformer.base.errors import GlassError
from glassformer.base.wording import counted, quoted
from glassformer.model.device import autocast
from glassformer.model.transformer import Model
from glassformer.runs.folder import Run
from glassformer.tasks.task import Task
from glassformer.training.checkpoint import TrainState, load_checkpoint, point_to, step_name
from glassformer.training.clock import RunClock, Seconds, since
from glassformer.training.first_nonfinite import earliest, first_bad_tensor
from glassformer.training.journal import Journal
from glassformer.training.legs import end_leg
from glassformer.training.pace import Pace, Untimed, evenly
from glassformer.training.parallel.processes import Processes
from glassformer.training.parent_text import ParentText
from glassformer.training.reporting import Reporter, Status
from glassformer.training.schedules import rate_factor
from glassformer.training.stepping import Gradients, Stepper
from glassformer.training.stopwatch import Stopwatch
from glassformer.training.thread_choice import ThreadChoice
from glassformer.training.validation import LossEstimate, validation_loss
from glassformer.training.verdicts import verdict

WATCHED_EVALUATIONS = 3
"""First evaluations that look for what may be wrong with the data."""
SHORT_SAMPLE = 16
"""Tokens of the sample that tells, before the first step, how long a whole one takes."""


@dataclass(frozen=True)
class TrainingOutcome:
    """The result of a run.

    Attributes:
        step: the step that was kept: the best on validation, or the last one if none was evaluated.
        validation: its loss over the whole validation split, or the share of it that `validation_share` names.
        bits_per_byte: the same in bits per byte of text; None where that has no meaning.
        unknown_share: the share of the validation tokens that are the unknown token.
        unit: what the loss is the mean over.
        reason: why training stopped.
        verdict: what the curve says.
        entropy: the true entropy of that text in nats per token, where it is known.
        last_step: steps done.
        train_seconds: training time alone.
        validation_share: share of the validation rows that `validation` measured; below 1 only in a run limited by
            minutes, of which the whole split would take more than a tenth.
        first_loss: of a run that began from a parent, the validation loss before the first step, over the rows of an
            evaluation while training.
        parent_losses: of such a run, the loss on the parent's held-out text before the first step and of `step`; None:
            not at hand.
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
    """Looks on while a model learns. It leaves the model, its mode and all random numbers as they are."""

    def look(self, model: Model, step: int, last: bool) -> None:
        """Called before the first step and before each step is saved; `last`: the run ends here."""

    def forget_after(self, step: int) -> None:
        """Delete data of steps after the checkpoint being resumed, which a killed process left."""


class Trainer:
    """Training state of one run, driven by `loop.train`: its progress, due actions and outputs.

    `observer`, `threads` and `parent_text` may be set before training.

    Attributes:
        state: the progress, as checkpoints save it.
        stopwatch: measures the steps.
        pace: keeps to the minutes, if they limit the run.
        record: the line of `metrics.jsonl` of the last step.
        reason: why the run is at its end; None while there are steps to take.
        stop_requested: set by a signal in this process: training stops after the step.
        stopping: whether all processes stop, because one of them was asked to.

    Args:
        run: where everything is written.
        config: all settings.
        model: freshly built; `resume` fills it.
        task: what is learnt, from which text.
        reporter: is told what happens.
        entropy: the text's true entropy in nats per token, where it is known; drawn into the picture.
        processes: the processes that train this run together; None: this one alone.
        seconds: wall time of this leg, which only a run limited by minutes reads; since now, unless it is given.
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
        self.pace = self._pace_of(seconds or since())
        self.observer: Observer | None = None
        self.threads: ThreadChoice | None = None
        self.parent_text: ParentText | None = None
        self.record: dict[str, Any] = {}
        self.reason: str | None = None
        self.stop_requested = False
        self.stopping = False
        self._journal = Journal(run, entropy)
        self._whole_estimate: tuple[int, LossEstimate] | None = None  # a step evaluated on the whole validation split

    def _pace_of(self, seconds: Seconds) -> Pace | Untimed:
        """Return what keeps to the minutes, if they limit the run."""
        train = self.config.train
        if train.minutes is None:
            return Untimed()
        wanted = len(self.task.held_out(train.evaluate_tokens))
        pace = Pace(train.minutes, RunClock(seconds, self.processes), wanted, len(self.task.held_out(None)))
        pace.follow(self.state)
        return pace

    # --- before the first step -----------------------------------------------------------------------------------

    def resume(self, whole: Sequence[Path]) -> None:
        """Go back to the newest complete checkpoint, and delete all but it and the best.

        The first process holds the run's lock.

        Args:
            whole: the complete checkpoints, oldest first. If there are none, the run begins at step 0.
        """
        if not whole:
            return
        newest = whole[-1]
        self.state = load_checkpoint(newest, self.model, self.optimizers)
        if self.stepper.average is not None:
            self.stepper.average.exchange()  # the checkpoint's weights are the average
        self.stepper.oom_retries.count = self.state.oom_retries
        self.pace.follow(self.state)
        best = self.run.checkpoints / step_name(self.state.best_step)
        if self.state.best_loss is not None and best not in whole:
            self.reporter.note(
                f"the best checkpoint, {best}, is lost: {newest.name} is the best until the next evaluation"
            )
            self.state.best_step = self.state.step
            self.state.best_loss = None
        self.processes.on_rank_zero(lambda: point_to(self.run, self.state))

    def begin(self) -> None:
        """Make logs and checkpoints ready for the first step of this leg; find out whether there is one to take.

        The first process holds the run's lock.
        """
        self.processes.on_rank_zero(self._forget_later_steps)
        if self.state.step == 0 and not self.processes.on_rank_zero(self.run.whole_checkpoints):
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
            self._measure_beginning(self.parent_text)
            self.reason = self.reason_to_end()

    def _forget_later_steps(self) -> None:
        """Drop metrics and observations of steps after the checkpoint being resumed."""
        logged = self.state.step - len(self.state.recent_losses)
        if note := self._journal.forget_after(self.state.step, logged):
            self.reporter.note(note)
        if self.observer is not None:
            self.observer.forget_after(self.state.step)

    def _end_without_a_step(self, reason: str) -> None:
        """Note that there is nothing to do; evaluate the last step if an uninterrupted run would have done so."""
        self.reporter.note(f"nothing left to train: {reason}. To train longer, raise that limit: {self._longer()}")
        if self.state.step == self.config.train.steps and not self._is_evaluated:
            self.evaluate()
            self.write_sample()
            self.observe(last=True)
            self.save_checkpoint()

    def _longer(self) -> str:
        """Return a command that gives a finished run a longer limit."""
        train = self.config.train
        state = self.state
        if train.steps is not None and state.step >= train.steps:
            limit = f"--steps {2 * state.step}"
        elif train.minutes is not None and self.pace.over():
            limit = f"--minutes {2 * train.minutes:g}"
        elif train.until_loss is not None and state.evaluations[-1][1] <= train.until_loss:
            limit = f"--until-loss {0.9 * state.evaluations[-1][1]:.4g}"
        else:
            limit = f"--set train.patience={2 * state.waited}"
        return f"glass train --resume --out {quoted(self.run.folder)} {limit}"

    def _measure_costs(self) -> None:
        """Measure what evaluations and samples take, where minutes limit the run."""
        rows = self.task.held_out(None)
        self.pace.measure(
            lambda count: self._loss_of(self.model, evenly(rows, count), self.processes), self._try_sample
        )

    def _measure_beginning(self, parent_text: ParentText) -> None:
        """Measure a model that begins with a parent's weights: on the text to learn, and on the parent's."""
        self.evaluate()
        if parent_text.task is not None:
            self.state.parent_rows = len(self.pace.part(self._parents_rows(parent_text.task)))
            self.state.parent_loss = self._loss_on_parents_text(parent_text.task)
        self.pace.training_begins()

    def _reserve_for_parents_text(self, parent_text: ParentText) -> None:
        """Let a resumed leg keep time for the loss on the parent's text, which is measured after training."""
        if parent_text.task is None or self.state.parent_loss is None:
            return
        rows = self._rows_of_parents_text(parent_text.task)
        self.pace.reserve_for_parents_text(
            lambda count: self._loss_of(self.model, evenly(rows, count), self.processes), len(rows)
        )

    def _parents_rows(self, task: Task) -> Sequence[Any]:
        return task.held_out(self.config.train.evaluate_tokens)

    def _rows_of_parents_text(self, task: Task) -> Sequence[Any]:
        """Return the rows of the parent's held-out text that this run measures."""
        return evenly(self._parents_rows(task), self.state.parent_rows)

    def _loss_on_parents_text(self, task: Task) -> float:
        """Return the loss on the held-out text of the parent, on the same rows before and after training."""
        rows = self._rows_of_parents_text(task)
        loss = self._loss_of(self.model, rows, self.processes).loss
        self.pace.parents_text_measured()
        return loss

    def _try_sample(self) -> float:
        """Write a short sample that nobody sees; return how many times as long a whole one is."""
        whole = self.config.sample
        short = whole.replace(tokens=min(SHORT_SAMPLE, whole.tokens))
        model = self.processes.whole(self.model)

        def write() -> None:
            assert model is not None  # in the first process
            self.task.sample(model, short)

        self.processes.on_rank_zero(write)
        return whole.tokens / short.tokens if self.config.train.task in WRITERS else 1.0

    # --- each step -----------------------------------------------------------------------------------------------

    def rate_factor(self) -> float:
        """Return the factor on the peak learning rates for the next step, by the schedule."""
        return rate_factor(self.config.train, self.state.step, self._share() or 0.0, self.state.plateau.factor)

    def _share(self) -> float | None:
        """Return how much of the run is over, by steps or by time, whichever is further."""
        by_steps = self.state.step / self.config.train.steps if self.config.train.steps else None
        shares = [share for share in (by_steps, self.pace.share()) if share is not None]
        return min(1.0, max(shares)) if shares else None

    def stop_before_harm(self, gradients: Gradients) -> NoReturn:
        """Raise an error in all processes that names the first tensor that is not finite. The weights are as before.

        Raises:
            GlassError: always.
        """
        self._note_oom_retries(gradients)
        step = self.state.step + 1
        kept = self.processes.on_rank_zero(self.run.whole_checkpoints)[-1].name
        with autocast(self.stepper.device, self.stepper.dtype):
            own = first_bad_tensor(self.model, (batch.to(self.stepper.device) for batch in gradients.batches))
        culprit = earliest(self.processes.gather(own))
        error = GlassError(
            f"step {step} was not taken: the loss is {gradients.loss}, and the first bad tensor is {culprit}",
            f"Checkpoint {kept} is intact. Lower "
            "train.learning_rate, lengthen train.warmup or set train.clip = 1, and start again.",
        )
        self.processes.raise_on_all(error)

    def _note_oom_retries(self, gradients: Gradients) -> None:
        """Note a micro-batch that was halved in this step, and keep its size for a resumed run."""
        count = self.stepper.oom_retries.count
        if count > self.state.oom_retries:
            self.state.oom_retries = count
            self.reporter.note(
                f"step {self.state.step + 1:>6}  out of memory: micro-batch is now "
                f"{len(gradients.batches[0].inputs):,} (global batch unchanged)"
            )

    def count_step(self, gradients: Gradients, factor: float) -> None:
        """Count a step whose weights are updated, and begin its line of `metrics.jsonl`.

        Args:
            gradients: of the step.
            factor: of its learning rates.
        """
        self._note_oom_retries(gradients)
        state = self.state
        state.step += 1
        state.tokens += gradients.targets
        state.train_seconds += self.stopwatch.seconds()
        state.recent_losses.append(gradients.loss)
        took = self.pace.stepped()
        if self.threads is not None:
            self.threads.stepped(took, self.pace.now)
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
        """Return whether a limit of the settings is reached."""
        return self.reason is not None

    def check_limits(self) -> None:
        """Note why the run is at its end, if a limit is reached now."""
        self.reason = self.reason or self.reason_to_end()

    def reason_to_end(self) -> str | None:
        """Return why the run is at its end: a limit of its settings; None while there are steps to take."""
        train = self.config.train
        state = self.state
        if train.steps is not None and state.step > train.steps:
            return f"{counted(state.step, 'steps')} are done, and train.steps is {train.steps}"
        if train.steps is not None and state.step == train.steps:
            return f"all {train.steps} steps are done" if train.steps > 1 else "its one step is done"
        if train.minutes is not None and self.pace.over():
            return f"the {train.minutes:g} minutes are over" if train.minutes != 1 else "the minute is over"
        if train.until_loss is not None and state.evaluations and state.evaluations[-1][1] <= train.until_loss:
            return f"the validation loss reached {train.until_loss:g}"
        if train.patience is not None and state.waited >= train.patience:
            return f"{counted(state.waited, 'evaluations')} brought no improvement"
        return None

    def agree_to_stop(self) -> None:
        """Stop all processes together if one of them was asked to."""
        self.stopping = self.processes.all_reduce_max(self.stop_requested) > 0

    # --- evaluation and sample -----------------------------------------------------------------------------------

    def evaluation_is_due(self) -> bool:
        """Return whether this step is evaluated: the last one always, others only if the minutes allow it."""
        if self.ended:
            return True
        return self.state.step % self.config.train.evaluate_every == 0 and self.pace.allows_evaluation()

    @property
    def _is_evaluated(self) -> bool:
        """Return whether the weights of this very step were measured."""
        return bool(self.state.evaluations) and self.state.evaluations[-1][0] == self.state.step

    def evaluate(self) -> None:
        """Measure the validation loss, and whether it is the best so far."""
        state = self.state
        rows = self.pace.part(self.task.held_out(self.config.train.evaluate_tokens))
        with self.stepper.averaged():
            estimate = self._loss_of(self.model, rows, self.processes)
        self.pace.evaluated(len(rows))
        if len(rows) == len(self.task.held_out(None)):
            self._whole_estimate = (state.step, estimate)
        self.record["validation_loss"] = estimate.loss
        state.evaluations.append((state.step, estimate.loss))
        state.plateau = state.plateau.after(estimate.loss, self.config.train)
        if state.best_loss is None or estimate.loss < state.best_loss:
            state.best_loss = estimate.loss
            state.best_step = state.step
            state.waited = 0
        else:
            state.waited += 1

    def _loss_of(self, model: Model, rows: Sequence[Any], processes: Processes | None = None) -> LossEstimate:
        """Return the loss over validation rows."""
        device = self.stepper.device
        dtype = self.stepper.dtype
        return validation_loss(model, rows, device, dtype, processes=processes)

    def write_sample(self) -> None:
        """Add what the model writes now to `samples.txt`; note what may be wrong with the data."""
        with self.stepper.averaged():
            model = self.processes.whole(self.model)
            self.processes.on_rank_zero(lambda: self._look_closer(model))
        self.pace.sampled()

    def _look_closer(self, model: Model | None) -> None:
        """Write a sample, and in the first evaluations note the task's concerns; in the first process."""
        assert model is not None
        self._sample(model)
        if len(self.state.evaluations) <= WATCHED_EVALUATIONS:
            for concern in self.task.concerns(model, lambda rows: self._loss_of(model, rows).loss):
                self.reporter.note(f"step {self.state.step:>6}  {concern}")

    def _sample(self, model: Model) -> None:
        prompt, text = self.task.sample(model, self.config.sample)
        continues = self.config.train.task == "lm"
        parted = f"{prompt}{text}" if continues else f"{prompt}\n=> {text}"
        self._journal.add_sample(self.state.step, parted)
        shown = parted if continues else f"{_beginning(prompt, 60)} => {text}"
        self.reporter.note(f"step {self.state.step:>6}  writes: {_beginning(shown, 160)}")

    # --- log and checkpoint --------------------------------------------------------------------------------------

    def log_is_due(self) -> bool:
        """Return whether this step has a line in `metrics.jsonl`: every evaluated one has."""
        return self._is_evaluated or self.state.step % self.config.train.log_every == 0

    def log(self) -> None:
        """Add the line of this step to `metrics.jsonl`, with the mean loss since the last line; report the progress."""
        self.record["loss"] = float(np.mean(self.state.recent_losses))
        self.state.recent_losses.clear()
        self.processes.on_rank_zero(self._write_record)

    def _write_record(self) -> None:
        """Write the line of this step, report the progress, and draw the curve after an evaluation."""
        record = self.record
        state = self.state
        self._journal.add(record)
        share = self._share()
        left = self._seconds_left(share)
        seen = state.evaluations[-1][1] if state.evaluations else None
        speed = state.tokens / max(1e-9, state.train_seconds)
        self.reporter.status(Status(state.step, share, record["loss"], seen, record["learning_rate"], speed, left))
        if "validation_loss" in record:
            self._journal.draw(self.state.evaluations)

    def _seconds_left(self, share: float | None) -> float | None:
        """Return the seconds to the end of the run, of which a share is over; None where nothing says."""
        by_share = self.state.train_seconds * (1 - share) / share if share else None
        by_clock = self.pace.seconds_left()
        if by_clock is None:
            return by_share
        return by_clock if self.config.train.steps is None or by_share is None else min(by_share, by_clock)

    def observe(self, last: bool = False) -> None:
        """Show the observer, if there is one, the model of this step."""
        if self.observer is not None:
            with self.stepper.averaged():
                self.observer.look(self.model, self.state.step, last)

    def checkpoint_is_due(self) -> bool:
        """Return whether this step is saved: the best so far, the last one, one to stop after, or every so many."""
        is_best = self._is_evaluated and self.state.best_step == self.state.step
        return is_best or self.ended or self.stopping or self.state.step % self.config.train.save_every == 0

    def save_checkpoint(self, last: bool = False) -> None:
        """Save this step, whole or not at all; `best` and `last` name the checkpoints that they should."""
        self.processes.on_rank_zero(self._journal.sync)
        self.pace.saving(last)
        with self.stepper.averaged():
            self.processes.save(self.run, self.model, self.optimizers, self.state, self.config)
        self.pace.saved()

    # --- after the last step -------------------------------------------------------------------------------------

    def finish(self) -> TrainingOutcome:
        """Measure the checkpoint that is kept, and return how the run ended."""
        assert self.reason is not None
        state = self.state
        step, _ = state.kept_steps
        self.processes.load(self.model, self.processes.on_rank_zero(lambda: self.run.checkpoint("best")))
        if self._whole_estimate is not None and self._whole_estimate[0] == step:
            estimate = self._whole_estimate[1]  # the same weights on the same rows
            share = 1.0
        else:
            estimate, share = self._final_loss()
        first_loss, parent_losses = self._forgetting()
        if isinstance(self.pace, Pace):
            self._end_on_time(self.pace, share)
        return TrainingOutcome(
            step=step,
            validation=estimate,
            bits_per_byte=estimate.bits_per_byte(self.task.validation_bytes, share),
            unknown_share=self.task.unknown_share,
            unit=self.task.unit,
            reason=self.reason,
            verdict=verdict(state.evaluations, self.task.choices),
            entropy=self.entropy,
            last_step=state.step,
            train_seconds=state.train_seconds,
            validation_share=share,
            first_loss=first_loss,
            parent_losses=parent_losses,
        )

    def _forgetting(self) -> tuple[float | None, tuple[float, float] | None]:
        """Return the first validation loss of a child, and its losses on the parent's text before and after."""
        if self.parent_text is None:
            return None, None
        first_loss = self.state.evaluations[0][1]
        before = self.state.parent_loss
        if self.parent_text.task is None or before is None:
            return first_loss, None
        return first_loss, (before, self._loss_on_parents_text(self.parent_text.task))

    def _final_loss(self) -> tuple[LossEstimate, float]:
        """Return the loss over the validation part, and the share of its rows that was measured: all if time allows."""
        rows = self.task.held_out(None)
        if not self.pace.is_final_part_known:
            self._measure_costs()
        part = self.pace.final_part(rows)
        share = 1.0 if len(part) == len(rows) else len(part) / len(rows)
        if share < 1:
            self.reporter.note(
                "the whole validation part would take more than a tenth of the minutes: measuring "
                f"{len(part):,} of its {len(rows):,} rows, evenly spaced; "
                f"glass evaluate {quoted(self.run.folder)} measures all"
            )
        return self._loss_of(self.model, part, self.processes), share

    def _end_on_time(self, pace: Pace, share: float) -> None:
        """Record how long a run limited by minutes took; say so if that is longer than it should."""
        if note := pace.overrun():
            self.reporter.note(note)
        ending: dict[str, Any] = {"wall_seconds": round(pace.now, 3), "validation_share": share}
        if self.threads is not None:
            ending["threads"] = self.threads.now
        self.processes.on_rank_zero(lambda: end_leg(self.run, ending))


def _beginning(text: str, most: int) -> str:
    """Return the first characters of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
