"""The trainer: steps, evaluations, checkpoints, and the reasons to stop. One for all tasks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from glassformer.config import PAIRS, Config
from glassformer.errors import GlassError
from glassformer.model.device import autocast
from glassformer.model.transformer import Model
from glassformer.runs import Run
from glassformer.training.checkpoint import TrainState, load_checkpoint, point_to, step_name
from glassformer.training.clock import RunClock, Seconds, since
from glassformer.training.diagnosis import first_bad_tensor, worst
from glassformer.training.journal import Journal
from glassformer.training.legs import end_leg
from glassformer.training.pace import Pace, evenly
from glassformer.training.parallel.processes import Processes
from glassformer.training.reporting import Reporter, Status
from glassformer.training.schedules import rate_factor
from glassformer.training.stepping import Gradients, Stepper
from glassformer.training.tasks import Task
from glassformer.training.threads import ThreadChoice
from glassformer.training.validation import LossEstimate, validation_loss
from glassformer.training.verdicts import verdict
from glassformer.wording import counted, quoted

WATCHED_EVALUATIONS = 3
"""So many first evaluations look for what may be wrong with the data."""
SHORT_SAMPLE = 16
"""Tokens of the sample that tells, before the first step, how long a whole one takes."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        step: the step that was kept: the best on validation, or the last one if none was evaluated.
        validation: its loss over the whole validation split, or the share of it that `validation_share` names.
        bits_per_byte: the same in bits per byte of text; None where that has no meaning.
        unknown_share: the share of the validation tokens that are the unknown token.
        unit: what the loss is the mean over.
        reason: why training stopped.
        verdict: what the curve says.
        floor: the true entropy of that text in nats per token, where it is known.
        last_step: steps done.
        train_seconds: training time alone.
        validation_share: share of the validation rows that `validation` measured; below 1 only in a run limited by
            minutes, of which the whole split would take more than a tenth.
    """

    step: int
    validation: LossEstimate
    bits_per_byte: float | None
    unknown_share: float
    unit: str
    reason: str
    verdict: str
    floor: float | None
    last_step: int
    train_seconds: float
    validation_share: float = 1.0


class Observer(Protocol):
    """Looks on while a model learns. It leaves the model, its mode and all random numbers as they are."""

    def look(self, model: Model, step: int, last: bool) -> None:
        """Before the first step, and after each one, before its checkpoint is saved; `last`: the run ends here."""

    def forget_after(self, step: int) -> None:
        """The run goes on from this step: what a killed process kept of later ones does not count."""


class Trainer:
    """Trains one model into one run folder.

    `observer` and `threads` may be set before `train`.

    Args:
        run: where everything is written.
        config: all settings.
        model: freshly built; `resume` fills it.
        task: what is learnt, from which text.
        reporter: is told what happens.
        floor: the text's true entropy in nats per token, where it is known; drawn into the picture.
        processes: those that train this run together; this one alone, unless they are given.
        seconds: wall time of this leg, which only a run limited by minutes reads; since now, unless it is given.
    """

    def __init__(
        self, run: Run, config: Config, model: Model, task: Task, reporter: Reporter, floor: float | None = None,
        processes: Processes | None = None, seconds: Seconds | None = None,
    ) -> None:  # fmt: skip
        self.run, self.config, self.task, self.reporter, self.floor = run, config, task, reporter, floor
        self.stepper = Stepper(model, task, config, processes)
        self.processes = self.stepper.processes
        self.model, self.optimizers = self.stepper.model, self.stepper.optimizers
        self.state = TrainState()
        self.stop_requested = False
        self.observer: Observer | None = None
        self.threads: ThreadChoice | None = None
        self.pace = self._pace_of(seconds or since())
        self._stopping = False  # what all processes agreed on
        self._journal = Journal(run, floor)
        self._whole_estimate: tuple[int, LossEstimate] | None = None  # a step evaluated on the whole validation split

    def _pace_of(self, seconds: Seconds) -> Pace | None:
        """Return what keeps to the minutes; None where they limit nothing."""
        train = self.config.train
        if train.minutes is None:
            return None
        wanted = len(self.task.held_out(train.evaluate_tokens))
        pace = Pace(train.minutes, RunClock(seconds, self.processes), wanted, len(self.task.held_out(None)))
        pace.follow(self.state)
        return pace

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
        self.stepper.oom_retries = self.state.oom_retries
        if self.pace is not None:
            self.pace.follow(self.state)
        best = self.run.checkpoints / step_name(self.state.best_step)
        if self.state.best_loss is not None and best not in whole:
            self.reporter.note(
                f"the best checkpoint, {best}, is lost: {newest.name} is the best until the next evaluation"
            )
            self.state.best_step = self.state.step
            self.state.best_loss = None
        self.processes.from_first(lambda: point_to(self.run, self.state))

    def _forget_later_steps(self) -> None:
        """Drop what a killed process logged after the checkpoint that is resumed."""
        logged = self.state.step - len(self.state.recent_losses)
        if note := self._journal.forget_after(self.state.step, logged):
            self.reporter.note(note)
        if self.observer is not None:
            self.observer.forget_after(self.state.step)

    def train(self) -> Outcome | None:
        """Train until a limit ends the run, then measure the best checkpoint on the whole validation split.

        The first process holds the run's lock. Returns None, with everything saved, if `stop_requested` was set
        meanwhile. A stop changes nothing that a run without minutes computes: a resumed run evaluates at the same
        steps as one that never stopped.
        """
        self.processes.from_first(self._forget_later_steps)
        if self.state.step == 0 and not self.processes.from_first(self.run.whole_checkpoints):
            self._show(last=False)
            self._save()
        ended = self.reason_to_end()
        self._agree_to_stop()
        if ended is not None and not self._stopping:
            self._end_without_a_step(ended)
        elif not self._stopping:
            self._measure_costs()
        while ended is None and not self._stopping:
            ended = self._step_and_look()
        return None if self._stopping or ended is None else self._finish(ended)

    def _end_without_a_step(self, reason: str) -> None:
        """Note that there is nothing to do; evaluate the last step if an uninterrupted run would have done so."""
        self.reporter.note(f"nothing left to train: {reason}. To train longer, raise that limit: {self._longer()}")
        if self.state.step == self.config.train.steps and not self._evaluated():
            self._evaluate({})
            self._show(last=True)
            self._save()

    def _measure_costs(self) -> None:
        """Measure what evaluations and samples take, where minutes limit the run."""
        if self.pace is not None:
            rows = self.task.held_out(None)
            self.pace.measure(
                lambda count: self._loss_of(self.model, evenly(rows, count), self.processes), self._try_sample
            )

    def _try_sample(self) -> float:
        """Write a short sample that nobody sees; return how many times as long a whole one is."""
        whole = self.config.sample
        short = whole.replace(tokens=min(SHORT_SAMPLE, whole.tokens))
        task = replace(cast(Any, self.task), config=self.config.replace(sample=short.model_dump()))
        model = self.processes.whole(self.model)
        self.processes.from_first(lambda: task.sample(model) and None)
        return whole.tokens / short.tokens if self.config.train.task in ("lm", *PAIRS) else 1.0

    def _longer(self) -> str:
        """Return a command that gives a finished run a longer limit."""
        train = self.config.train
        state = self.state
        if train.steps is not None and state.step >= train.steps:
            limit = f"--steps {2 * state.step}"
        elif train.minutes is not None and self.pace is not None and self.pace.over():
            limit = f"--minutes {2 * train.minutes:g}"
        elif train.until_loss is not None and state.evaluations[-1][1] <= train.until_loss:
            limit = f"--until-loss {0.9 * state.evaluations[-1][1]:.4g}"
        else:
            limit = f"--set train.patience={2 * state.waited}"
        return f"glass train --resume --out {quoted(self.run.folder)} {limit}"

    def _step_and_look(self) -> str | None:
        """Take one step, and evaluate, log and save where that is due; return the reason to end."""
        record = self._step()
        every = self.config.train
        step = self.state.step
        ended = self.reason_to_end()
        improved = False
        if ended is not None or (step % every.evaluate_every == 0 and self._worth_evaluating()):
            improved = self._evaluate(record)
            ended = ended or self.reason_to_end()  # an evaluation may be the reason
        if "validation_loss" in record or step % every.log_every == 0:
            self._log(record)
        self._show(last=ended is not None)
        self._agree_to_stop()
        if improved or ended is not None or self._stopping or step % every.save_every == 0:
            self._save(last=ended is not None)
        return ended

    def _worth_evaluating(self) -> bool:
        """Return whether an evaluation that is due is made: always, unless it would take too much of the minutes."""
        return self.pace is None or self.pace.allows_evaluation()

    def _agree_to_stop(self) -> None:
        """Stop all processes together if one of them was asked to."""
        self._stopping = self.processes.most(self.stop_requested) > 0

    def _save(self, last: bool = False) -> None:
        self.processes.from_first(self._journal.sync)
        if self.pace is not None:
            self.pace.saving(last)
        self.processes.save(self.run, self.model, self.optimizers, self.state, self.config)
        if self.pace is not None:
            self.pace.saved()

    def _show(self, last: bool) -> None:
        if self.observer is not None:
            self.observer.look(self.model, self.state.step, last)

    def _evaluated(self) -> bool:
        """Whether the weights of this very step were measured."""
        return bool(self.state.evaluations) and self.state.evaluations[-1][0] == self.state.step

    def _step(self) -> dict[str, Any]:
        """Take one optimizer step; return its line for `metrics.jsonl`."""
        train = self.config.train
        state = self.state
        started = time.perf_counter()
        gradients = self.stepper.gradients(state.step)
        if self.stepper.oom_retries > state.oom_retries:
            state.oom_retries = self.stepper.oom_retries
            self.reporter.note(
                f"step {state.step + 1:>6}  out of memory: micro-batch is now {len(gradients.batches[0].inputs):,} "
                "(global batch unchanged)"
            )
        if not gradients.finite:
            self._stop_before_harm(gradients)
        factor = rate_factor(train, state.step, self._share() or 0.0, state.plateau.factor)
        self.stepper.update(gradients, factor)
        state.step += 1
        state.tokens += gradients.targets
        state.train_seconds += self.processes.most(time.perf_counter() - started)
        state.recent_losses.append(gradients.loss)
        if self.pace is not None:
            took = self.pace.stepped()
            if self.threads is not None:
                self.threads.stepped(took, self.pace.clock.now)
        return {
            "step": state.step,
            "tokens": state.tokens,
            "train_seconds": round(state.train_seconds, 4),
            "loss": gradients.loss,
            "learning_rate": train.learning_rate * factor,
            "gradient_norm": float(gradients.norm),
        }

    def _stop_before_harm(self, gradients: Gradients) -> None:
        """A loss or gradient is not finite: nothing is stepped, and the first bad tensor is named."""
        step, kept = self.state.step + 1, self.processes.from_first(self.run.whole_checkpoints)[-1].name
        device, dtype = self.stepper.device, self.stepper.dtype
        with autocast(device, dtype):
            own = first_bad_tensor(self.model, (batch.to(device) for batch in gradients.batches))
        culprit = worst(self.processes.gather(own))
        error = GlassError(
            f"step {step} was not taken: the loss is {gradients.loss}, and the first bad tensor is {culprit}",
            f"Checkpoint {kept} is intact. Lower "
            "train.learning_rate, lengthen train.warmup or set train.clip = 1, and start again.",
        )
        raise self.processes.alike(error)

    def _evaluate(self, record: dict[str, Any]) -> bool:
        """Validation loss and a sample; returns whether this is the best so far."""
        state = self.state
        rows = self.task.held_out(self.config.train.evaluate_tokens)
        if self.pace is not None:
            rows = evenly(rows, self.pace.rows)
        estimate = self._loss_of(self.model, rows, self.processes)
        if self.pace is not None:
            self.pace.evaluated(len(rows))
        if len(rows) == len(self.task.held_out(None)):
            self._whole_estimate = (state.step, estimate)
        record["validation_loss"] = estimate.loss
        state.evaluations.append((state.step, estimate.loss))
        state.plateau = state.plateau.after(estimate.loss, self.config.train)
        improved = state.best_loss is None or estimate.loss < state.best_loss
        if improved:
            state.best_loss, state.best_step, state.waited = estimate.loss, state.step, 0
        else:
            state.waited += 1
        model = self.processes.whole(self.model)
        self.processes.from_first(lambda: self._look_closer(model))
        if self.pace is not None:
            self.pace.sampled()
        return improved

    def _loss_of(self, model: Model, rows: Sequence[Any], processes: Processes | None = None) -> LossEstimate:
        device, dtype = self.stepper.device, self.stepper.dtype
        return validation_loss(model, rows, device, dtype, collate=self.task.collate, processes=processes)

    def _look_closer(self, model: Model | None) -> None:
        """A sample, and during the first evaluations what a person should know early; in the first process."""
        assert model is not None
        self._sample(model)
        if len(self.state.evaluations) <= WATCHED_EVALUATIONS:
            for concern in self.task.concerns(model, lambda rows: self._loss_of(model, rows).loss):
                self.reporter.note(f"step {self.state.step:>6}  {concern}")

    def _sample(self, model: Model) -> None:
        prompt, text = self.task.sample(model)
        continues = self.config.train.task == "lm"
        parted = f"{prompt}{text}" if continues else f"{prompt}\n=> {text}"
        self._journal.add_sample(self.state.step, parted)
        shown = parted if continues else f"{_beginning(prompt, 60)} => {text}"
        self.reporter.note(f"step {self.state.step:>6}  writes: {_beginning(shown, 160)}")

    def _log(self, record: dict[str, Any]) -> None:
        record["loss"] = float(np.mean(self.state.recent_losses))
        self.state.recent_losses.clear()
        self.processes.from_first(lambda: self._write(record))

    def _write(self, record: dict[str, Any]) -> None:
        """Add a line to `metrics.jsonl`, and say how it goes."""
        self._journal.add(record)
        state = self.state
        share = self._share()
        left = self._seconds_left(share)
        seen = state.evaluations[-1][1] if state.evaluations else None
        speed = state.tokens / max(1e-9, state.train_seconds)
        self.reporter.status(Status(state.step, share, record["loss"], seen, record["learning_rate"], speed, left))
        if "validation_loss" in record:
            self._journal.draw(self.state.evaluations)

    def _share(self) -> float | None:
        """How much of the run is over, by steps or by time, whichever is further."""
        train, state = self.config.train, self.state
        shares = [state.step / train.steps] if train.steps else []
        shares += [self.pace.share()] if self.pace is not None else []
        return min(1.0, max(shares)) if shares else None

    def _seconds_left(self, share: float | None) -> float | None:
        """Return the seconds to the end of the run, of which a share is over; None where nothing says."""
        by_share = self.state.train_seconds * (1 - share) / share if share else None
        if self.pace is None:
            return by_share
        by_clock = self.pace.seconds_left()
        return by_clock if self.config.train.steps is None or by_share is None else min(by_share, by_clock)

    def reason_to_end(self) -> str | None:
        """Return why the run is at its end: a limit of its settings; None while there are steps to take."""
        train = self.config.train
        state = self.state
        if train.steps is not None and state.step > train.steps:
            return f"{counted(state.step, 'steps')} are done, and train.steps is {train.steps}"
        if train.steps is not None and state.step == train.steps:
            return f"all {train.steps} steps are done" if train.steps > 1 else "its one step is done"
        if train.minutes is not None and self.pace is not None and self.pace.over():
            return f"the {train.minutes:g} minutes are over" if train.minutes != 1 else "the minute is over"
        if train.until_loss is not None and state.evaluations and state.evaluations[-1][1] <= train.until_loss:
            return f"the validation loss reached {train.until_loss:g}"
        if train.patience is not None and state.waited >= train.patience:
            return f"{counted(state.waited, 'evaluations')} brought no improvement"
        return None

    def _finish(self, reason: str) -> Outcome:
        state = self.state
        step, _ = state.kept_steps
        self.processes.load(self.model, self.processes.from_first(lambda: self.run.checkpoint("best")))
        if self._whole_estimate is not None and self._whole_estimate[0] == step:
            estimate = self._whole_estimate[1]  # the same weights on the same rows
            share = 1.0
        else:
            estimate, share = self._final_loss()
        if self.pace is not None:
            self._end_on_time(self.pace, share)
        judged = verdict(state.evaluations, self.task.choices)
        return Outcome(
            step=step,
            validation=estimate,
            bits_per_byte=estimate.bits_per_byte(self.task.validation_bytes, share),
            unknown_share=self.task.unknown_share,
            unit=self.task.unit,
            reason=reason,
            verdict=judged,
            floor=self.floor,
            last_step=state.step,
            train_seconds=state.train_seconds,
            validation_share=share,
        )

    def _end_on_time(self, pace: Pace, share: float) -> None:
        """Record how long a run limited by minutes took; say so if that is longer than it should."""
        if note := pace.overrun():
            self.reporter.note(note)
        ending: dict[str, Any] = {"wall_seconds": round(pace.clock.now, 3), "validation_share": share}
        if self.threads is not None:
            ending["threads"] = self.threads.now
        self.processes.from_first(lambda: end_leg(self.run, ending))

    def _final_loss(self) -> tuple[LossEstimate, float]:
        """Return the loss over the validation part, and the share of its rows that was measured: all if time allows."""
        rows = self.task.held_out(None)
        if self.pace is None:
            return self._loss_of(self.model, rows, self.processes), 1.0
        if self.state.times.final_rows is None:  # an older version, or a signal, ended the leg before
            self._measure_costs()
        part = evenly(rows, self.pace.final_rows())
        share = len(part) / len(rows)
        if share < 1:
            self.reporter.note(
                "the whole validation part would take more than a tenth of the minutes: measuring "
                f"{len(part):,} of its {len(rows):,} rows, evenly spaced; "
                f"glass evaluate {quoted(self.run.folder)} measures all"
            )
        return self._loss_of(self.model, part, self.processes), share


def _beginning(text: str, most: int) -> str:
    """The first characters of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
