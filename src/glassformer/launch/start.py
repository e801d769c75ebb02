"""Start or resume a run: yield a trainer that is ready to take steps, in one process or in each torchrun process."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from glassformer.base.config import Config
from glassformer.base.wording import quoted
from glassformer.launch.request import RunRequest
from glassformer.runs.folder import open_run
from glassformer.runs.parent import Parent
from glassformer.training.clock import since
from glassformer.training.memory import configure_allocator, limit_shape_caches, reset_peak_memory
from glassformer.training.parallel.joining import begun_by_this_job, joined, report_errors_once
from glassformer.training.parallel.processes import Processes
from glassformer.training.plan_file import RunForecast
from glassformer.training.reporting import OnlyWarnings, PlainLines, Reporter, Silent, choose_reporter
from glassformer.training.setup import new_training, newest_run, resume_training
from glassformer.training.trainer import Trainer


@contextmanager
def start_requested(request: RunRequest, began: float, quiet: bool = False) -> Iterator[Trainer]:
    """Choose the settings that a request leaves unset, and yield the trainer of the new run.

    Args:
        request: the run.
        began: value of `time.monotonic` from which `train.minutes` is counted.
        quiet: whether to suppress progress and notes, and issue Python warnings instead of the notes that must be seen;
            messages about Ctrl-C and SIGTERM are still printed.

    Raises:
        GlassError: a setting is not allowed, the run already exists, or its text cannot be used.
    """
    with report_errors_once():
        limit_shape_caches(request.config)
        config = request.config
        forecast = None
        if request.is_forecast():
            from glassformer.launch.forecasting import forecast_run

            config, forecast = forecast_run(request, (Silent() if quiet else PlainLines()).note, began)
    with start_run(config, request.folder, began, forecast, quiet, request.parent) as trainer:
        yield trainer


@contextmanager
def start_run(
    config: Config,
    folder: Path,
    began: float,
    forecast: RunForecast | None = None,
    quiet: bool = False,
    parent: Parent | None = None,
) -> Iterator[Trainer]:
    """Yield the trainer of a new run; inside the block, Ctrl-C and SIGTERM stop training after the current step.

    If torchrun has restarted its processes, resume the run that they created before.

    Args:
        config: all settings.
        folder: the run folder.
        began: value of `time.monotonic` from which `train.minutes` is counted.
        forecast: the forecast to save in the folder; None: there is no forecast.
        quiet: whether to suppress progress and notes, and issue Python warnings instead of the notes that must be seen;
            messages about Ctrl-C and SIGTERM are still printed.
        parent: the run to start from; None: random weights.

    Raises:
        GlassError: see `new_training`; after a restart by torchrun, see `resume_training`.
    """

    @contextmanager
    def open_new(reporter: Reporter, processes: Processes) -> Iterator[Trainer]:
        if processes.on_rank_zero(lambda: begun_by_this_job(folder, config)):
            with resume_training(folder, {}, reporter, processes=processes, seconds=since(began)) as trainer:
                yield trainer
            return
        data = forecast.data if forecast is not None else None
        with new_training(
            config, folder, reporter, processes=processes, data=data, seconds=since(began), parent=parent
        ) as trainer:
            if forecast is not None:
                forecast.write(trainer.run)
            yield trainer

    facts = {"--out": str(folder.absolute()), "--resume": "not given"}
    with _in_all_processes(config, facts, open_new, quiet) as trainer:
        yield trainer


@contextmanager
def resume_run(
    folder: Path | None, changes: dict[str, str], named_paths: Mapping[str, str], began: float
) -> Iterator[Trainer]:
    """Yield the trainer of an existing run, loaded from its newest checkpoint.

    Args:
        folder: the run folder; None: the most recently used run in `runs`.
        changes: SECTION.FIELD -> value as text.
        named_paths: new `source` and `target` of `data`, if the text was moved.
        began: value of `time.monotonic` from which the time of this leg (see `glassformer.training.legs`) is counted.

    Raises:
        GlassError: there is no run, or it cannot be resumed; see `resume_training`.
    """
    with report_errors_once():
        run = folder or newest_run(Path("runs"))
        config = open_run(run).config().with_changes(changes)

    def open_resumed(reporter: Reporter, processes: Processes) -> AbstractContextManager[Trainer]:
        return resume_training(
            run, changes, reporter, processes=processes, named_paths=named_paths, seconds=since(began)
        )

    facts = {"--out": str(run.absolute()), "--resume": "given"} | {f"the {k} file": v for k, v in named_paths.items()}
    with _in_all_processes(config, facts, open_resumed) as trainer:
        yield trainer


@contextmanager
def _in_all_processes(
    config: Config,
    facts: Mapping[str, str],
    open_trainer: Callable[[Reporter, Processes], AbstractContextManager[Trainer]],
    quiet: bool = False,
) -> Iterator[Trainer]:
    """Connect the processes of torchrun, and yield the trainer that `open_trainer` creates; see `joined` for `facts`.

    Only rank 0 reports progress, unless `quiet` is True. Inside the block, Ctrl-C and SIGTERM stop training after the
    current step, and snapshots are recorded if `train.snapshots` is above 0.
    """
    limit_shape_caches(config)
    with joined(config, facts) as processes:
        if not processes.is_rank_zero:
            reporter: Reporter = Silent()
        else:
            reporter = OnlyWarnings() if quiet else choose_reporter()
        try:
            with open_trainer(reporter, processes) as trainer:
                configure_allocator(trainer.config)
                reset_peak_memory(trainer.stepper.device)
                if trainer.config.train.snapshots and processes.is_rank_zero:
                    from glassformer.inspection.replay.of_run import Recorder

                    trainer.observer = Recorder(trainer)
                with _stopped_by_signals(trainer):
                    yield trainer
        finally:
            reporter.close()


@contextmanager
def _stopped_by_signals(trainer: Trainer) -> Iterator[None]:
    """Let Ctrl-C or SIGTERM stop training after the current step and save everything; a second signal stops at once.

    In a thread other than the main thread this does nothing, because Python lets only the main thread set a signal
    handler.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def print_on_rank_zero(text: str) -> None:
        if trainer.processes.is_rank_zero:
            print(text, file=sys.stderr)

    def stop(number: int, frame: object) -> None:
        if trainer.stop_requested:
            raise KeyboardInterrupt
        trainer.stop_requested = True
        with suppress(RuntimeError):  # the signal interrupted a write to standard error, which is not reentrant
            print_on_rank_zero("stopping after this step (press Ctrl-C again to stop at once)")

    previous_handlers = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
    if trainer.stopping:
        print_on_rank_zero(f"stopped after step {trainer.state.step}; everything is saved")
        if trainer.state.best_loss is None:
            print_on_rank_zero("no evaluation yet: the last checkpoint counts as the best until the first evaluation")
        print_on_rank_zero(f"Resume with: glass train --resume --out {quoted(trainer.run.folder)}")
