"""Build the trainer of a new or a resumed run from its settings."""

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
from glassformer.base.files import convert_os_errors, no_empty_folders
from glassformer.base.locks import folder_lock
from glassformer.base.wording import counted
from glassformer.corpora import CORPORA
from glassformer.corpora.truth import true_nats
from glassformer.model.build import build_model
from glassformer.model.device import choose_device
from glassformer.model.precision import describe_precision, resolve_precision, slower_choices
from glassformer.model.transformer import Model
from glassformer.runs.folder import Run, create_run, list_runs, open_run, refuse_existing, step_of
from glassformer.runs.opening import model_shapes
from glassformer.runs.parent import Parent
from glassformer.runs.run_text import (
    find_or_encode_text,
    note_of_changed_text,
    open_text,
    prepare_run_text,
    split_hashes,
    text_stamp,
)
from glassformer.runs.text_location import token_cache
from glassformer.tasks.chatting import TokenizedTemplate
from glassformer.tasks.example_tasks import length_notes
from glassformer.tasks.make import make_task
from glassformer.tasks.task import Task
from glassformer.text.chat_template import ChatTemplate
from glassformer.text.data_notes import must_be_seen
from glassformer.text.prepare import Prepared
from glassformer.training.clock import Seconds, since
from glassformer.training.compiling import refuse_without_compiler
from glassformer.training.legs import add_leg, describe_leg
from glassformer.training.loop import compute_gradients
from glassformer.training.parallel.joining import job
from glassformer.training.parallel.processes import OneProcess, Processes
from glassformer.training.parent_text import ParentText, find_parent_text
from glassformer.training.reporting import Reporter
from glassformer.training.resumed_settings import PRECISIONS, note_of_changes, refuse_changes
from glassformer.training.stepping import Stepper
from glassformer.training.thread_choice import TRIAL, ThreadChoice, choice_of
from glassformer.training.trainer import Trainer

TRIAL_SHARE = 1 / 60
"""Maximum fraction of the remaining time for trying each number of threads."""


@dataclass(frozen=True)
class Alteration:
    """Change to the model for an experiment, which cannot be made with settings.

    Runs with such a change are marked, and `open_run` rejects them unless the caller names the change.

    Attributes:
        name: description of the changed model, such as "no causal mask".
        apply: function that changes a model in place without using random numbers.
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
    """Read and encode the text, build the model, create the run folder, and yield the trainer while holding the lock.

    Args:
        config: all settings.
        folder: folder of the run, which must be missing or empty; see `refuse_existing`.
        reporter: reporter of progress and notes.
        alteration: change to the model, in an experiment.
        processes: processes that train this run together; None: only this process.
        data: the text, if it is already prepared (standard input cannot be read twice); None: prepare it.
        seconds: function that returns the wall-clock seconds of the run, for the time limit; None: count from now.
        parent: run to start from, with its tokenizers and weights; None: start from random weights.

    Raises:
        GlassError: the folder is not empty, another process is creating a run there, or the text, the device or the
            parent cannot be used with these settings.
    """
    processes = processes or OneProcess()
    seconds = seconds or since()
    processes.on_rank_zero(lambda: refuse_existing(folder))
    set_threads(config)
    original = config
    config = processes.on_rank_zero(lambda: resolve_precision(original))

    def note(text: str) -> None:
        (reporter.warn if must_be_seen(text) else reporter.note)(text)

    text = _read_once(processes, config, lambda: text_of_run(config, folder, note, data, parent))
    processes.on_rank_zero(lambda: reporter.note(describe_precision(config)))
    threads = try_threads(config, text, reporter.note, processes, seconds, 0.0)
    model = fresh_model(config, text, alteration)
    if parent is not None:
        new_tensors = parent.copy_weights_to(model, text.labels)
        _refuse_frozen(new_tensors, config)
        processes.on_rank_zero(lambda: reporter.note(f"starting from the weights of {parent.checkpoint}"))
        if (label_note := parent.label_note(text.labels)) is not None:
            processes.on_rank_zero(lambda: reporter.warn(label_note))
        if (loss := parent.run.other_loss()) is not None:
            loss_note = f"{parent.run.folder} was trained with another loss: {loss}"
            processes.on_rank_zero(lambda: reporter.warn(loss_note))
    data_facts = {
        "source": config.data.source,
        "text_hash": text.text_hash,
        "parts": split_hashes(text),
        "tokens": str(text.folder.resolve()),
        "stamp": text_stamp(config.data),
    }
    extra_facts: dict[str, Any] = {"altered": alteration.name} if alteration else {}
    extra_facts |= {"job": name} if (name := job()) else {}
    parent_text = None
    if parent is not None:
        entry = parent.entry()
        processes.require_equal({f"the checkpoint {parent.checkpoint}": entry.weights_sha256})
        extra_facts |= {"parent": entry.facts()}
        parent_text = find_parent_text(entry, folder, config, text, processes)
    facts = {"data": data_facts, **extra_facts}

    def create() -> Run:
        return create_run(folder, config, facts, lambda run: _save_vocabulary(run, config, text))

    with _lock_in_process_zero(processes, new_folder_lock(folder)):
        run = processes.on_rank_zero(create)
        entropy = _true_entropy(config, text)
        trainer = Trainer(run, config, model, task_of(config, text, parent_text), reporter, entropy, processes, seconds)
        trainer.threads = threads
        _set_parent_text(trainer, parent_text)
        _begin_leg(trainer)
        with _threads_restored(trainer):
            yield trainer


def task_of(config: Config, data: Prepared, parent_text: ParentText | None) -> Task:
    """Return the task of a run, with rows of its parent's text mixed in if `data.mix` is above 0."""
    task = make_task(config, data)
    return task if parent_text is None else parent_text.mixed_into(task, config)


def _set_parent_text(trainer: Trainer, parent_text: ParentText | None) -> None:
    """Set the text on which the trainer measures forgetting; print a note if the text cannot be used."""
    trainer.parent_text = parent_text
    if parent_text is not None and parent_text.task is None:
        trainer.reporter.note(f"forgetting is not measured: {parent_text.reason}")


def _refuse_frozen(random_tensors: Sequence[str], config: Config) -> None:
    """Raise a `GlassError` if `train.freeze` names tensors with random initial values, such as a new head."""
    for part in config.train.freeze:
        names = frozen_names([part], config.model)
        if any(name.startswith(names) for name in random_tensors):
            raise GlassError(
                f"train.freeze = {part}, but the parent has no {part} for these labels, so the {part} would be random",
                f"Leave {part} out of train.freeze.",
            )


@contextmanager
def new_folder_lock(folder: Path) -> Iterator[None]:
    """Create a folder and hold its lock inside the context.

    Afterwards, if the folder contains no run, remove the lock file, and the folder if it is new and empty.

    Raises:
        GlassError: another process holds the lock, or the folder cannot be created or locked.
    """
    with no_empty_folders(folder):
        with convert_os_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with folder_lock(folder):
            try:
                yield
            finally:
                if not (folder / "config.toml").exists():
                    with suppress(OSError):  # Windows does not delete open files
                        (folder / "lock").unlink()


@contextmanager
def _lock_in_process_zero(processes: Processes, lock: AbstractContextManager[None]) -> Iterator[None]:
    """Hold a lock in process 0 inside the context; if that fails, raise the error in all processes."""
    with ExitStack() as stack:
        processes.on_rank_zero(lambda: stack.enter_context(lock))
        yield


@contextmanager
def _threads_restored(trainer: Trainer) -> Iterator[None]:
    """Return a context that undoes the run's choice of the number of threads, if any, on exit."""
    try:
        yield
    finally:
        if trainer.threads is not None:
            trainer.threads.restore()


def _begin_leg(trainer: Trainer) -> None:
    """Add this leg to the manifest unless the run has ended; print a note on differences from the previous leg."""
    if trainer.reason_to_end() is None:
        leg = describe_leg(trainer.stepper, trainer.state.step)
        if trainer.threads is not None and trainer.threads.tried:
            leg["threads_tried"] = {
                str(number): seconds_per_step for number, seconds_per_step in trainer.threads.tried.items()
            }
        note = trainer.processes.on_rank_zero(lambda: add_leg(trainer.run, leg))
        if note is not None:
            trainer.reporter.note(note)


def _read_once(processes: Processes, config: Config, read: Callable[[], Prepared]) -> Prepared:
    """Read the text in process 0; the other processes open the encoded files on a shared disk."""
    prepared: list[Prepared] = []

    def read_and_locate() -> Path:
        prepared.append(read())
        return prepared[0].folder

    folder = processes.on_rank_zero(read_and_locate)
    data = prepared[0] if prepared else open_text(config, folder)
    processes.require_equal({f"the text in {folder}": data.text_hash})
    return data


def text_of_run(
    config: Config,
    folder: Path,
    note: Callable[[str], None],
    data: Prepared | None = None,
    parent: Parent | None = None,
) -> Prepared:
    """Prepare the text of a run in `folder`, and print its notes.

    Args:
        config: all settings.
        folder: folder of the run; the encoded text is cached next to it.
        note: function that prints a note.
        data: the text, if it is already prepared; then only its notes are printed.
        parent: run to start from, whose tokenizers encode the text; None: train tokenizers.

    Raises:
        GlassError: the text cannot be read or does not fit the model, or the machine lacks the device or a compiler.
    """
    device = choose_device(config.train.device)
    if config.train.compile:
        refuse_without_compiler(device)
    data = data or prepare_run_text(config, token_cache(folder), note, () if parent is None else parent.tokenizers)
    for text in (*data.notes, *_notes_on_rows(data, config)):
        note(text)
    return data


@contextmanager
def resume_training(
    folder: Path,
    changes: dict[str, str],
    reporter: Reporter,
    alteration: Alteration | None = None,
    processes: Processes | None = None,
    named_paths: Mapping[str, str] | None = None,
    seconds: Seconds | None = None,
) -> Iterator[Trainer]:
    """Yield a trainer that resumes from the newest complete checkpoint of a run, while holding the run's lock.

    A run that was stopped before its first checkpoint starts at step 0. Nothing in the folder changes before the lock
    is held and settings, text and checkpoint have been checked, except that files which a killed process left
    incomplete are restored or removed.

    Args:
        folder: folder of the run.
        changes: SECTION.FIELD -> new value as text; only the settings in `resumed_settings.CHANGEABLE` may change.
        reporter: reporter of progress and notes.
        alteration: change to the model with which the run started.
        processes: processes that train this run together; their number may differ from that of earlier legs; None: only
            this process.
        named_paths: `source` and `target` of [data], if the text was moved; None: search at the old path and near the
            run.
        seconds: function that returns the wall-clock seconds of this leg, for the time limit; None: count from now.

    Raises:
        GlassError: another process is training this run, or the run cannot be resumed.
    """
    processes = processes or OneProcess()
    seconds = seconds or since()
    run = processes.on_rank_zero(lambda: _run_to_resume(folder, changes, alteration))
    with _lock_in_process_zero(processes, folder_lock(folder)):
        config, _ = processes.on_rank_zero(lambda: _settings_to_resume(run, changes))
        set_threads(config)
        checkpoints, checkpoint_notes = processes.on_rank_zero(lambda: _checkpoints_to_resume(run))
        data = _read_once(processes, config, lambda: find_or_encode_text(run, config, reporter.note, named_paths))
        if not named_paths and (note := processes.on_rank_zero(lambda: note_of_changed_text(run, config))) is not None:
            reporter.note(note)
        if checkpoints:
            model_shapes(
                config, data.tokenizer, data.source_tokenizer, data.labels, checkpoints[-1] / "model.safetensors"
            )
        model = fresh_model(config, data, alteration)
        entropy = _true_entropy(config, data)
        entry = run.parent_entry()
        parent_text = None if entry is None else find_parent_text(entry, folder, config, data, processes)
        trainer = Trainer(run, config, model, task_of(config, data, parent_text), reporter, entropy, processes, seconds)
        _set_parent_text(trainer, parent_text)
        trainer.resume(checkpoints)

        def store() -> list[str]:
            ended = trainer.reason_to_end() is not None  # nothing is trained with other settings than those of [sample]
            kept = {key: value for key, value in changes.items() if key.startswith("sample.") or not ended}
            stored, notes = _settings_to_resume(run, kept)
            if kept:
                run.replace_config(stored)
            return notes

        for note in (*processes.on_rank_zero(store), *checkpoint_notes):
            reporter.note(note)
        reporter.note(f"resuming {folder} after step {trainer.state.step}")
        if trainer.reason_to_end() is None:
            trainer.threads = try_threads(config, data, reporter.note, processes, seconds, trainer.pace.earlier)
        _begin_leg(trainer)
        with _threads_restored(trainer):
            yield trainer


def _run_to_resume(folder: Path, changes: dict[str, str], alteration: Alteration | None) -> Run:
    """Return the run in a folder; raise a `GlassError` if a change is not allowed."""
    run = open_run(folder, alteration.name if alteration else None)
    refuse_changes(changes)
    return run


def _settings_to_resume(run: Run, changes: dict[str, str]) -> tuple[Config, list[str]]:
    """Return the recorded settings of a run with the changes applied, and notes on precisions.

    Precisions keep their recorded values unless they are in `changes`. The notes list the settings that changed, and
    the precisions that are slow on this machine.
    """
    recorded = run.config()
    config = resolve_precision(recorded.with_changes(changes))
    notes = [note] if (note := note_of_changes(recorded, config)) is not None else []
    for name in PRECISIONS:
        before = getattr(recorded.train, name)
        after = getattr(config.train, name)
        if before != after:
            notes.append(f"train.{name} changed from {before} to {after}: the results of the run will differ")
    return config, [*notes, *slower_choices(config)]


def _checkpoints_to_resume(run: Run) -> tuple[list[Path], list[str]]:
    """Return the complete checkpoints, oldest first, and notes on newer damaged checkpoints.

    Both lists are empty if the run was stopped before its first checkpoint. Incomplete files of a killed process are
    restored or removed first.

    Raises:
        GlassError: training has begun but no checkpoint is complete.
    """
    run.refuse_links()
    run.clean_up()
    complete: list[Path] = []
    problems: dict[Path, str] = {}
    for path in run.all_checkpoints():
        try:
            run.check_checkpoint(path)
            complete.append(path)
        except GlassError as error:
            problems[path] = error.problem
    if not complete and (run.metrics_file.exists() or problems):
        raise GlassError(f"{run.folder} has no complete checkpoint", "Start again with another --out.")
    if not complete:
        return [], []
    newest = complete[-1]
    notes = [
        f"{problem}: resuming from {newest.name} instead"
        for path, problem in problems.items()
        if step_of(path) > step_of(newest)
    ]
    return complete, notes


def newest_run(parent: Path) -> Path:
    """Return the folder of the most recently used run, for `--resume` without a name.

    Raises:
        GlassError: there is no run.
    """
    runs = list_runs(parent)
    if not runs:
        raise GlassError(f"there is no run to resume in {parent}", "Name one: glass train --resume --out RUN")
    return runs[-1].folder


def fresh_model(config: Config, data: Prepared, alteration: Alteration | None = None) -> Model:
    """Return an initialized model with the vocabulary and classes of the text, after applying `alteration` if given."""
    vocabulary, source, classes = vocabulary_sizes_and_classes(config, data)
    model = build_model(config.model, vocabulary, config.train.seed, source, classes)
    if alteration is not None:
        alteration.apply(model)
    return model


def vocabulary_sizes_and_classes(config: Config, data: Prepared) -> tuple[int, int | None, int | None]:
    """Return the vocabulary size, the source's vocabulary size, and the number of classes (None without labels).

    The source's vocabulary size is None if `model.shared_embedding` is set.
    """
    source = None if config.model.shared_embedding else data.source_tokenizer.vocab_size
    return data.tokenizer.vocab_size, source, len(data.labels) or None


def _save_vocabulary(run: Run, config: Config, data: Prepared) -> None:
    """Save the files that make the run usable without its text: tokenizers, labels and the chat template."""
    data.tokenizer.save(run.tokenizer_file)
    if config.two_vocabularies:
        data.source_tokenizer.save(run.source_tokenizer_file)
    if data.labels:
        run.save_labels(data.labels)
    if config.train.task in CONVERSATIONS:
        run.save_chat_template(config.data.chat_template)


def _notes_on_rows(data: Prepared, config: Config) -> Iterator[str]:
    """Yield notes on examples that are longer than the context, and on roles that a chat template does not distinguish.

    Raises:
        GlassError: the training split of a running text is too short for one window, or the settings refuse long
            examples (see `length_notes`).
    """
    if not data.kind.running_text:
        yield from length_notes(data.train, config, "training")
        yield from length_notes(data.validation, config, "validation")
        if data.kind.loss_spans:
            template = TokenizedTemplate(ChatTemplate(config.data.chat_template), data.tokenizer)
            if roles := sorted(template.equal_roles):
                names = " and ".join(roles)
                yield (
                    f"the chat template and the tokenizer write the roles {names} alike: the model learns them only "
                    "from the order of the messages"
                )
        return
    tokens = len(data.train.tokens["text"])
    if config.data.windows == "stream" and tokens <= config.model.context:
        smaller_context = f", or --set model.context={max(1, tokens // 4)}" if tokens > 1 else ""
        raise GlassError(
            f"the training split has {counted(tokens, 'tokens')}, but one window needs {config.model.context + 1:,}",
            f"Give a longer text{smaller_context}",
        )


def _true_entropy(config: Config, data: Prepared) -> float | None:
    """Return the true entropy of the validation split in nats per predicted token; None unless it is known.

    The entropy is known only in task lm, for a generated corpus without unknown tokens. A model need not predict the
    text that an unknown token replaces, so its loss could be below the entropy.
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
    """Choose the number of threads by timing steps of a temporary model; return None if there is nothing to choose.

    With several processes, the number of threads is not changed.

    Args:
        config: all settings.
        data: the prepared text.
        note: function that prints a note on the choice.
        processes: processes that train the run together.
        seconds: function that returns the wall-clock seconds of this leg.
        earlier: wall-clock seconds of earlier legs.
    """
    choice = choice_of(config, note) if processes.world_size == 1 else None
    if choice is None:
        return None
    seconds_left = 60 * (config.train.minutes or 0.0) - earlier - seconds()
    if seconds_left > 0:
        eager_config = config.replace(train=config.train.replace(compile=False).model_dump())
        stepper = Stepper(fresh_model(eager_config, data), make_task(eager_config, data), eager_config)
        choice.try_all(
            lambda step: stepper.update(compute_gradients(stepper, step), 1.0),
            min(TRIAL, TRIAL_SHARE * seconds_left),
            seconds,
        )
        del stepper
        gc.collect()
    return choice


def set_threads(config: Config) -> None:
    """Set torch's number of threads to `train.threads`; if that is unset, torch keeps its default."""
    if config.train.threads is not None:
        torch.set_num_threads(config.train.threads)
