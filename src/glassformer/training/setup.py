"""Build a trainer that is ready to go from settings, for a new run or an interrupted one."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from glassformer.base.config import CONVERSATIONS, Config
from glassformer.base.config.freezing import frozen_names
from glassformer.base.errors import GlassError
from glassformer.base.files import check_folder, clear_disk_errors, no_empty_folders, write_text
from glassformer.base.locks import only_one
from glassformer.corpora import CORPORA
from glassformer.corpora.truth import true_nats
from glassformer.model.build import build_model
from glassformer.model.device import choose_device
from glassformer.model.precision import as_recorded, precision_in_words, settled, slower_choices
from glassformer.model.transformer import Model
from glassformer.runs.folder import Run, create_run, list_runs, open_run, refuse_existing, step_of
from glassformer.runs.parent import Parent
from glassformer.runs.run_text import encoded_text, open_text, part_hashes, prepare_for
from glassformer.runs.text_location import token_cache
from glassformer.tasks.example_tasks import length_notes
from glassformer.tasks.make import make_task
from glassformer.tasks.task import Task
from glassformer.text.prepare import Prepared
from glassformer.training.clock import Seconds, since
from glassformer.training.compiling import refuse_without_compiler
from glassformer.training.legs import add_leg, describe_leg
from glassformer.training.loop import compute_gradients
from glassformer.training.parallel.joining import job
from glassformer.training.parallel.processes import OneProcess, Processes
from glassformer.training.parent_text import ParentText, find_parent_text
from glassformer.training.reporting import Reporter
from glassformer.training.resumed_settings import PRECISIONS, note_of_edits, refuse_changes
from glassformer.training.stepping import Stepper
from glassformer.training.thread_choice import TRIAL, ThreadChoice, choice_of
from glassformer.training.trainer import Trainer

TRIAL_SHARE = 1 / 60
"""Share of the minutes that are left for which each number of threads is tried, at most."""


@dataclass(frozen=True)
class Alteration:
    """A change to the model that no setting makes, for experiments. Its runs are marked: `open_run` refuses them.

    Attributes:
        name: what the model then has: "no causal mask".
        apply: makes the change, in place and without drawing numbers.
    """

    name: str
    apply: Callable[[Model], None]


@contextmanager
def new_training(
    config: Config,
    folder: Path,
    reporter: Reporter,
    alteration: Alteration | None = None,
    processes: Processes | None = None,
    data: Prepared | None = None,
    seconds: Seconds | None = None,
    parent: Parent | None = None,
) -> Iterator[Trainer]:
    """Read and encode the text, build the model, make the run folder; yield the trainer, with the run's lock held.

    Args:
        config: all settings.
        folder: of the run; must not hold one yet.
        reporter: is told what happens.
        alteration: of the model, in an experiment.
        processes: the processes that train this run together; None: this one alone.
        data: the text, where it was prepared before; standard input cannot be read twice.
        seconds: wall time of the run, which only minutes limit; since now, unless it is given.
        parent: the run to begin from, with its tokenizers and weights; None: from nothing.

    Raises:
        GlassError: the folder holds something, another process makes a run there, the text cannot be used, or the
            parent's tokenizer cannot read it.
    """
    processes = processes or OneProcess()
    seconds = seconds or since()
    processes.on_rank_zero(lambda: refuse_existing(folder))
    set_threads(config)
    asked = config
    config = processes.on_rank_zero(lambda: settled(asked))
    text = _read_once(processes, config, lambda: text_of_run(config, folder, reporter.note, data, parent))
    processes.on_rank_zero(lambda: reporter.note(precision_in_words(config)))
    threads = try_threads(config, text, reporter.note, processes, seconds, 0.0)
    model = fresh_model(config, text, alteration)
    if parent is not None:
        new = parent.fill(model, text.labels)
        _refuse_frozen(new, config)
        kept = f"all but {', '.join(new)}" if new else "all weights"
        processes.on_rank_zero(lambda: reporter.note(f"beginning with {kept} of {parent.checkpoint}"))
    source = {
        "source": config.data.source,
        "text_hash": text.text_hash,
        "parts": part_hashes(text),
        "tokens": str(text.folder.resolve()),
    }
    mark: dict[str, Any] = {"altered": alteration.name} if alteration else {}
    mark |= {"job": name} if (name := job()) else {}
    parent_text = None
    if parent is not None:
        entry = parent.entry()
        mark |= {"parent": entry.facts()}
        parent_text = find_parent_text(entry, folder, config, text, processes)
    facts = {"data": source, "tokenizers": _digests(config, text), **mark}

    def create() -> Run:
        return create_run(folder, config, facts, lambda run: _save_vocabulary(run, config, text))

    with _held(processes, new_folder_lock(folder)):
        run = processes.on_rank_zero(create)
        entropy = _entropy(config, text)
        trainer = Trainer(run, config, model, task_of(config, text, parent_text), reporter, entropy, processes, seconds)
        trainer.threads = threads
        _give_parent_text(trainer, parent_text)
        _begin_leg(trainer)
        with _threads_given_back(trainer):
            yield trainer


def task_of(config: Config, data: Prepared, parent_text: ParentText | None) -> Task:
    """Return the task of a run, with the rows of its parent's text that it repeats."""
    task = make_task(config, data)
    return task if parent_text is None else parent_text.mixed_into(task, config)


def _give_parent_text(trainer: Trainer, parent_text: ParentText | None) -> None:
    """Let a trainer measure what is forgotten; say so if it cannot."""
    trainer.parent_text = parent_text
    if parent_text is not None and parent_text.task is None:
        trainer.reporter.note(f"forgetting is not measured: {parent_text.reason}")


def _refuse_frozen(new: Sequence[str], config: Config) -> None:
    """Raise a `GlassError` if `train.freeze` would freeze tensors that begin with random numbers."""
    for part in config.train.freeze:
        names = frozen_names([part], config.model)
        if any(name.startswith(names) for name in new):
            raise GlassError(
                f"train.freeze = {part}: the parent has no such head, and this one begins with random numbers",
                "Freeze other parts.",
            )


@contextmanager
def new_folder_lock(folder: Path) -> Iterator[None]:
    """Make a folder and hold its lock inside the block; both are removed again if no run was made there.

    Raises:
        GlassError: another process holds the lock, or the folder cannot be made.
    """
    with no_empty_folders(folder):
        with clear_disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with only_one(folder):
            try:
                yield
            finally:
                if not (folder / "config.toml").exists():
                    with suppress(OSError):  # Windows does not remove a file that is open
                        (folder / "lock").unlink()


@contextmanager
def _held(processes: Processes, lock: AbstractContextManager[None]) -> Iterator[None]:
    """Hold a lock in the first process; an error is raised in all of them."""
    with ExitStack() as stack:
        processes.on_rank_zero(lambda: stack.enter_context(lock))
        yield


@contextmanager
def _threads_given_back(trainer: Trainer) -> Iterator[None]:
    """Inside, a run that chooses its threads uses them; afterwards the process has those that it had."""
    try:
        yield
    finally:
        if trainer.threads is not None:
            trainer.threads.give_back()


def _begin_leg(trainer: Trainer) -> None:
    """Add this leg to the manifest, if it has a step to take; note what differs from the leg before."""
    if trainer.reason_to_end() is None:
        leg = describe_leg(trainer.stepper, trainer.state.step)
        if trainer.threads is not None and trainer.threads.tried:
            leg["threads_tried"] = {str(number): took for number, took in trainer.threads.tried.items()}
        note = trainer.processes.on_rank_zero(lambda: add_leg(trainer.run, leg))
        if note is not None:
            trainer.reporter.note(note)


def _read_once(processes: Processes, config: Config, read: Callable[[], Prepared]) -> Prepared:
    """Let the first process read; the others open the files that it made, on the disk that they share."""
    here: list[Prepared] = []

    def first() -> Path:
        here.append(read())
        return here[0].folder

    folder = processes.on_rank_zero(first)
    return here[0] if here else open_text(config, folder)


def text_of_run(
    config: Config,
    folder: Path,
    note: Callable[[str], None],
    data: Prepared | None = None,
    parent: Parent | None = None,
) -> Prepared:
    """Prepare the text of a run in `folder`, and report its notes.

    Args:
        config: all settings.
        folder: the folder of the run; the encoded text is cached beside it.
        note: prints a note.
        data: the text, if it is prepared already; only its notes are reported.
        parent: the run to begin from, whose tokenizers encode the text; None: tokenizers are trained.

    Raises:
        GlassError: it cannot be read, or does not fit the model, or the machine lacks the device or the compiler.
    """
    device = choose_device(config.train.device)
    if config.train.compile:
        refuse_without_compiler(device)
    data = data or prepare_for(config, token_cache(folder), note, () if parent is None else parent.tokenizers)
    for text in (*data.notes, *_fit(data, config)):
        note(text)
    return data


@contextmanager
def resume_training(
    folder: Path,
    changes: dict[str, str],
    reporter: Reporter,
    alteration: Alteration | None = None,
    processes: Processes | None = None,
    named: Mapping[str, str] | None = None,
    seconds: Seconds | None = None,
) -> Iterator[Trainer]:
    """Yield a trainer that resumes from the newest complete checkpoint of a run, with the run's lock held.

    Nothing in the folder changes before the lock is held and settings, text and checkpoint are known to fit, except
    that partial files of a killed process are removed.

    Args:
        folder: of the run.
        changes: SECTION.FIELD -> text; only the settings of `edits.CHANGEABLE` may change.
        reporter: is told what happens.
        alteration: the alteration of the model that the run began with.
        processes: the processes that train this run together, in any number; None: this one alone.
        named: `source` and `target` of `data` where the text is now; None: look where it was, or near the run.
        seconds: wall time of this leg, which only a run limited by minutes reads; since now, unless it is given.

    Raises:
        GlassError: another process trains this run, or the run cannot be resumed.
    """
    processes = processes or OneProcess()
    seconds = seconds or since()
    run = processes.on_rank_zero(lambda: _run_to_resume(folder, changes, alteration))
    with _held(processes, only_one(folder)):
        config, notes = processes.on_rank_zero(lambda: _settings_to_resume(run, changes))
        set_threads(config)
        whole, damage = processes.on_rank_zero(lambda: _checkpoints_to_resume(run, config))
        data = _read_once(processes, config, lambda: encoded_text(run, config, reporter.note, named))
        model = fresh_model(config, data, alteration)
        entropy = _entropy(config, data)
        entry = run.parent_entry()
        parent_text = None if entry is None else find_parent_text(entry, folder, config, data, processes)
        trainer = Trainer(run, config, model, task_of(config, data, parent_text), reporter, entropy, processes, seconds)
        _give_parent_text(trainer, parent_text)
        trainer.resume(whole)

        def write() -> None:
            _save_vocabulary(run, config, data)  # an older version wrote it last, and may have been killed before
            if changes:
                write_text(run.folder / "config.toml", config.to_toml())

        processes.on_rank_zero(write)
        for note in (*notes, *damage):
            reporter.note(note)
        reporter.note(f"resuming {folder} after step {trainer.state.step}")
        if trainer.reason_to_end() is None:
            trainer.threads = try_threads(config, data, reporter.note, processes, seconds, trainer.pace.earlier)
        _begin_leg(trainer)
        with _threads_given_back(trainer):
            yield trainer


def _run_to_resume(folder: Path, changes: dict[str, str], alteration: Alteration | None) -> Run:
    """Return the run in a folder, if all changes are allowed."""
    run = open_run(folder, alteration.name if alteration else None)
    refuse_changes(changes)
    return run


def _settings_to_resume(run: Run, changes: dict[str, str]) -> tuple[Config, list[str]]:
    """Return the recorded settings of a run with the changes, and notes on its precision.

    No precision changes unless a change names it.
    """
    config = run.config().with_changes(changes)
    recorded = as_recorded(run.config(), choose_device(config.train.device))
    config = settled(recorded.with_changes(changes))
    notes: list[str] = []
    for name in PRECISIONS:
        before = getattr(recorded.train, name)
        after = getattr(config.train, name)
        if before != after:
            notes.append(f"train.{name} changed from {before} to {after}: the numbers of the run will differ")
    return config, [*notes, *slower_choices(config)]


def _checkpoints_to_resume(run: Run, config: Config) -> tuple[list[Path], list[str]]:
    """Return the complete checkpoints, oldest first, and notes on damaged ones and on settings that were edited.

    Both lists are empty if the run was stopped before its first checkpoint.

    Raises:
        GlassError: there are checkpoints, but no complete one; or a setting was edited that must not change.
    """
    run.clean_up()
    whole: list[Path] = []
    damage: dict[Path, str] = {}
    for path in run.all_checkpoints():
        try:
            check_folder(path)
            whole.append(path)
        except GlassError as error:
            damage[path] = error.problem
    if not whole and (run.metrics_file.exists() or damage):
        raise GlassError(f"{run.folder} has no whole checkpoint", "Start again with another --out.")
    if not whole:
        return [], []
    newest = whole[-1]
    notes = [
        f"{problem}: resuming from {newest.name} instead"
        for path, problem in damage.items()
        if step_of(path) > step_of(newest)
    ]
    if (edits := note_of_edits(config, run.folder / "config.toml", newest)) is not None:
        notes.append(edits)
    return whole, notes


def newest_run(parent: Path) -> Path:
    """The run that was used last, for `--resume` without a name."""
    runs = list_runs(parent)
    if not runs:
        raise GlassError(f"there is no run to resume in {parent}", "Name one: glass train --resume --out RUN")
    return runs[-1].folder


def fresh_model(config: Config, data: Prepared, alteration: Alteration | None = None) -> Model:
    """Freshly initialised, with as many tokens and classes as the text has; then altered, in an experiment."""
    vocabulary, source, classes = sizes(config, data)
    model = build_model(config.model, vocabulary, config.train.seed, source, classes)
    if alteration is not None:
        alteration.apply(model)
    return model


def sizes(config: Config, data: Prepared) -> tuple[int, int | None, int | None]:
    """Return the sizes that the model takes from the text: tokens, tokens of sources embedded apart, classes."""
    source = None if config.model.shared_embedding else data.source_tokenizer.vocab_size
    return data.tokenizer.vocab_size, source, len(data.labels) or None


def _save_vocabulary(run: Run, config: Config, data: Prepared) -> None:
    """Save the files that the run needs to read and write without its text: tokenizers and the names of labels."""
    data.tokenizer.save(run.tokenizer_file)
    if config.two_vocabularies:
        data.source_tokenizer.save(run.source_tokenizer_file)
    if data.labels:
        run.save_labels(data.labels)
    if config.train.task in CONVERSATIONS:
        run.save_chat_template(config.data.chat_template)


def _digests(config: Config, data: Prepared) -> dict[str, str]:
    """SHA-256 of the tokenizers, by their files, so that another one in its place does not go unnoticed."""
    found = {"tokenizer.json": data.tokenizer.digest}
    if config.two_vocabularies:
        found["source_tokenizer.json"] = data.source_tokenizer.digest
    return found


def _fit(data: Prepared, config: Config) -> Iterator[str]:
    """Refuse, in numbers, a text that cannot fill one window, before anything is written; say which are too long."""
    if not data.kind.running_text:
        yield from length_notes(data.train, config, "training")
        yield from length_notes(data.validation, config, "validation")
        return
    tokens = len(data.train.tokens["text"])
    if config.data.windows == "stream" and tokens <= config.model.context:
        raise GlassError(
            f"the training part has {tokens:,} tokens, but one window needs {config.model.context + 1:,}",
            f"Give a longer text, or --set model.context={max(1, tokens // 4)}",
        )


def _entropy(config: Config, data: Prepared) -> float | None:
    """Return the true entropy of the validation part in nats per predicted token, where the text is generated.

    None where tokens are unknown: the text behind them costs a model nothing, so its loss can be below the entropy.
    """
    if config.data.source not in CORPORA or config.train.task != "lm":
        return None
    validation = data.validation.tokens["text"]
    if validation.unknown:
        return None
    truth = true_nats(validation, data.tokenizer, config.data.source)
    predicted = len(validation) - (config.data.windows == "stream")
    return truth[0] / predicted if truth is not None else None


def try_threads(
    config: Config,
    data: Prepared,
    note: Callable[[str], None],
    processes: Processes,
    seconds: Seconds,
    earlier: float,
) -> ThreadChoice | None:
    """Choose the number of threads by steps of a copy that is thrown away; None where there is no choice.

    Several processes keep their number.

    Args:
        config: all settings.
        data: the prepared text.
        note: is told what is chosen.
        processes: the processes that train the run together.
        seconds: wall time of this leg.
        earlier: wall seconds of the legs before.
    """
    choice = choice_of(config, note) if processes.world == 1 else None
    if choice is None:
        return None
    left = 60 * (config.train.minutes or 0.0) - earlier - seconds()
    if left > 0:
        plain = config.replace(train=config.train.replace(compile=False).model_dump())
        with torch.random.fork_rng(devices=[]):
            stepper = Stepper(fresh_model(plain, data), make_task(plain, data), plain)
            choice.try_all(
                lambda step: stepper.update(compute_gradients(stepper, step), 1.0),
                min(TRIAL, TRIAL_SHARE * left),
                seconds,
            )
            del stepper
        gc.collect()
    return choice


def set_threads(config: Config) -> None:
    """Use the threads that the settings name; torch's own choice otherwise."""
    if config.train.threads is not None:
        torch.set_num_threads(config.train.threads)
