"""From settings to a trainer that is ready to go, for a new run or an interrupted one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from glassformer.config import EXAMPLES, PAIRS, Config
from glassformer.data.corpora import CORPORA
from glassformer.data.corpora.truth import true_nats
from glassformer.data.encoded import open_encoded
from glassformer.data.examples import PreparedExamples
from glassformer.data.locating import is_encoded
from glassformer.data.prepare import Prepared, open_prepared, prepare
from glassformer.data.prepare_examples import open_prepared_examples, prepare_examples
from glassformer.data.store import DamagedStoreError
from glassformer.errors import GlassError
from glassformer.files import write_text
from glassformer.model.build import build_model
from glassformer.model.device import choose_device
from glassformer.model.families import Model
from glassformer.runs import Run, create_run, list_runs, open_run, refuse_existing
from glassformer.tokenizers import Tokenizer
from glassformer.training.compiling import refuse_without_compiler
from glassformer.training.example_tasks import ClassTask, PairTask, length_notes
from glassformer.training.parallel.joining import job
from glassformer.training.parallel.processes import OneProcess, Processes
from glassformer.training.reporting import Reporter
from glassformer.training.tasks import LanguageTask, MaskedTask, Task
from glassformer.training.trainer import Trainer
from glassformer.wording import quoted

LIMITS = (
    "steps",
    "minutes",
    "until_loss",
    "patience",
    "evaluate_every",
    "save_every",
    "log_every",
    "threads",
    "device",
    "compile",
    "shard",
)
"""Settings of `train` that a resumed run may change: they say how long and where, not what."""


@dataclass(frozen=True)
class Alteration:
    """A change to the model that no setting makes, for experiments. Its runs are marked: `open_run` refuses them.

    Attributes:
        name: what the model then has: "no causal mask".
        apply: makes the change, in place and without drawing numbers.
    """

    name: str
    apply: Callable[[Model], None]


def new_training(
    config: Config,
    folder: Path,
    reporter: Reporter,
    alteration: Alteration | None = None,
    processes: Processes | None = None,
    data: Prepared | PreparedExamples | None = None,
) -> Trainer:
    """Read and encode the text, build the model, make the run folder.

    Args:
        config: all settings.
        folder: of the run; must not hold one yet.
        reporter: is told what happens.
        alteration: of the model, in an experiment.
        processes: those that train this run together; this one alone, unless they are given.
        data: the text, where it was prepared before; standard input cannot be read twice.
    """
    processes = processes or OneProcess()
    processes.from_first(lambda: refuse_existing(folder))
    set_threads(config)
    text = _read_once(processes, config, lambda: text_of_run(config, folder, reporter.note, data))
    model = fresh_model(config, text, alteration)
    source = {"source": config.data.source, "text_hash": text.text_hash, "tokens": str(text.folder.resolve())}
    mark = {"altered": alteration.name} if alteration else {}
    mark |= {"job": name} if (name := job()) else {}
    facts = {"data": source, "tokenizers": _digests(config, text), **mark}

    def create() -> Run:
        run = create_run(folder, config, facts)
        _save_vocabulary(run, config, text)
        return run

    run = processes.from_first(create)
    return Trainer(run, config, model, make_task(config, text), reporter, _floor(config, text), processes)


def _read_once(
    processes: Processes, config: Config, read: Callable[[], Prepared | PreparedExamples]
) -> Prepared | PreparedExamples:
    """What the first process reads; the others open what it has made, on the disk that they share."""
    here: list[Prepared | PreparedExamples] = []

    def first() -> Path:
        here.append(read())
        return here[0].folder

    folder = processes.from_first(first)
    return here[0] if here else open_text(config, folder)


def text_of_run(
    config: Config, folder: Path, note: Callable[[str], None], data: Prepared | PreparedExamples | None = None
) -> Prepared | PreparedExamples:
    """The text that a run in `folder` would learn from, prepared, with all that a person should know of it told.

    `data`: what was prepared before; it is only told about.

    Raises:
        GlassError: it cannot be read, or does not fit the model, or the machine lacks the device or the compiler.
    """
    device = choose_device(config.train.device)
    if config.train.compile:
        refuse_without_compiler(device)
    data = data or prepare_for(config, token_cache(folder), note)
    for text in (*data.notes, *_fit(data, config)):
        note(text)
    return data


def prepare_for(config: Config, cache: Path, note: Callable[[str], None]) -> Prepared | PreparedExamples:
    """The text that a run learns from, read, split and encoded as its task needs it."""
    task = config.train.task
    if task in EXAMPLES:
        return prepare_examples(task, config.data, config.tokenizer, cache, note)
    if is_encoded(Path(config.data.source).expanduser()):
        return open_encoded(config.data, config.tokenizer, mask=task == "masked")
    return prepare(config.data, config.tokenizer, cache, note, mask=task == "masked")


def make_task(config: Config, data: Prepared | PreparedExamples) -> Task:
    """What is learnt from a prepared text."""
    if isinstance(data, PreparedExamples):
        return PairTask(config, data) if config.train.task in PAIRS else ClassTask(config, data)
    kind = MaskedTask if config.train.task == "masked" else LanguageTask
    return kind(config, data.tokenizer, data.train, data.validation)


def resume_training(
    folder: Path,
    changes: dict[str, str],
    reporter: Reporter,
    alteration: Alteration | None = None,
    processes: Processes | None = None,
) -> Trainer:
    """Take up an interrupted run where its newest whole checkpoint left it.

    Args:
        folder: of the run.
        changes: `train.…` limits to change, as text; nothing else of a run may change.
        reporter: is told what happens.
        alteration: the one with which it began.
        processes: those that go on together, as many as may be; this one alone, unless they are given.
    """
    processes = processes or OneProcess()
    run = processes.from_first(lambda: _run_to_resume(folder, changes, alteration))
    config = run.config().with_changes(changes)
    set_threads(config)
    data = _read_once(processes, config, lambda: encoded_text(run, config, reporter.note))
    model = fresh_model(config, data, alteration)
    trainer = Trainer(run, config, model, make_task(config, data), reporter, _floor(config, data), processes)
    trainer.resume()

    def write() -> None:
        _save_vocabulary(run, config, data)  # the run may have been killed before it was written
        if changes:
            write_text(run.folder / "config.toml", config.to_toml())

    processes.from_first(write)
    reporter.note(f"going on with {folder} after step {trainer.state.step}")
    return trainer


def _run_to_resume(folder: Path, changes: dict[str, str], alteration: Alteration | None) -> Run:
    """The run in a folder, if all changes are ones that it may have."""
    run = open_run(folder, alteration.name if alteration else None)
    for key in changes:
        if key not in {f"train.{name}" for name in LIMITS}:
            raise GlassError(
                f"{key} cannot change when a run is resumed",
                f"Only {', '.join('train.' + name for name in LIMITS)} can; for the rest start a new run.",
            )
    return run


def token_cache(folder: Path) -> Path:
    """Where encoded texts lie: beside the runs, so that runs share them and a run can be moved without them."""
    return folder.resolve().parent / ".tokens"


def newest_run(parent: Path) -> Path:
    """The run that was used last, for `--resume` without a name."""
    runs = list_runs(parent)
    if not runs:
        raise GlassError(f"there is no run to resume in {parent}", "Name one: glass train --resume --out RUN")
    return runs[-1].folder


def open_text(config: Config, stored: Path) -> Prepared | PreparedExamples:
    """A text that was prepared for these settings, from the folder where it lies in the token cache."""
    return open_prepared_examples(stored) if config.train.task in EXAMPLES else open_prepared(stored)


def stored_text(run: Run, config: Config) -> Prepared | PreparedExamples:
    """The encoded text that the run began with, where it lies; a `DamagedStoreError` if it is gone or not whole."""
    if "imported" in run.manifest():
        raise GlassError(
            f"{run.folder} was imported: the text that it learnt from is not here",
            f"Name a text of yours: glass evaluate {quoted(run.folder)} DATA. It cannot be resumed.",
        )
    stored = Path(run.manifest()["data"]["tokens"])
    try:
        return open_text(config, stored)
    except DamagedStoreError as error:
        problem = error.problem if stored.is_dir() else f"{stored} is gone"
        raise DamagedStoreError(problem, f"glass evaluate {quoted(run.folder)} encodes the text again.") from None


def encoded_text(run: Run, config: Config, note: Callable[[str], None]) -> Prepared | PreparedExamples:
    """The encoded text that the run began with; encoded again if it is gone, refused if it is another text now."""
    try:
        return stored_text(run, config)
    except DamagedStoreError as error:
        problem = error.problem
        if config.data.source not in CORPORA and not Path(config.data.source).expanduser().exists():
            raise GlassError(
                f"{problem}, and so is {config.data.source}, the text that {run.folder} began with",
                "Put it back where it was, or run the command in the folder where the run began.",
            ) from None
        note(f"{problem}: reading {config.data.source} again")
    data = prepare_for(config, token_cache(run.folder), note)
    if data.text_hash != run.manifest()["data"]["text_hash"]:
        raise GlassError(
            f"{config.data.source} is not the text that {run.folder} began with: its hash differs",
            "Restore the text, or start a new run.",
        )
    same = data.tokenizer.digest == Tokenizer.load(run.tokenizer_file).digest
    if isinstance(data, PreparedExamples) and config.two_vocabularies:
        same &= data.source_tokenizer.digest == Tokenizer.load(run.source_tokenizer_file).digest
    if not same:
        raise GlassError(
            f"training the tokenizer again did not give that of {run.folder}: another version of a library does it now",
            "Install the versions that the run's manifest.json names, or give evaluate a text of its own.",
        )
    if isinstance(data, PreparedExamples) and data.labels != run.labels():
        raise GlassError(
            f"splitting {config.data.source} again did not give the labels of {run.folder}: {', '.join(run.labels())}",
            "Restore the run's labels.json, or start a new run.",
        )
    return data


def fresh_model(config: Config, data: Prepared | PreparedExamples, alteration: Alteration | None = None) -> Model:
    """Freshly initialised, with as many tokens and classes as the text has; then altered, in an experiment."""
    vocabulary, source, classes = sizes(config, data)
    model = build_model(config.model, vocabulary, config.train.seed, source, classes)
    if alteration is not None:
        alteration.apply(model)
    return model


def sizes(config: Config, data: Prepared | PreparedExamples) -> tuple[int, int | None, int | None]:
    """What the model takes from the text: its tokens, those of sources with an embedding of their own, its classes."""
    if not isinstance(data, PreparedExamples):
        return data.tokenizer.vocab_size, None, None
    source = None if config.model.shared_embedding else data.source_tokenizer.vocab_size
    return data.tokenizer.vocab_size, source, len(data.labels) or None


def _save_vocabulary(run: Run, config: Config, data: Prepared | PreparedExamples) -> None:
    """What the run needs to read and write without its text: tokenizers and the names of labels."""
    data.tokenizer.save(run.tokenizer_file)
    if isinstance(data, PreparedExamples):
        if config.two_vocabularies:
            data.source_tokenizer.save(run.source_tokenizer_file)
        if data.labels:
            run.save_labels(data.labels)


def _digests(config: Config, data: Prepared | PreparedExamples) -> dict[str, str]:
    """SHA-256 of the tokenizers, by their files, so that another one in its place does not go unnoticed."""
    found = {"tokenizer.json": data.tokenizer.digest}
    if isinstance(data, PreparedExamples) and config.two_vocabularies:
        found["source_tokenizer.json"] = data.source_tokenizer.digest
    return found


def _fit(data: Prepared | PreparedExamples, config: Config) -> Iterator[str]:
    """Refuse, in numbers, a text that cannot fill one window, before anything is written; say which are too long."""
    if isinstance(data, PreparedExamples):
        yield from length_notes(data.train, config, "training")
        yield from length_notes(data.validation, config, "validation")
        return
    tokens = len(data.train.tokens)
    if config.data.windows == "stream" and tokens <= config.model.context:
        raise GlassError(
            f"the training part has {tokens:,} tokens, but one window needs {config.model.context + 1:,}",
            f"Give a longer text, or --set model.context={max(1, tokens // 4)}",
        )


def _floor(config: Config, data: Prepared | PreparedExamples) -> float | None:
    """The true entropy of the validation part in nats per predicted token, where the text is generated."""
    if config.data.source not in CORPORA or config.train.task != "lm" or isinstance(data, PreparedExamples):
        return None
    truth = true_nats(data.validation, data.tokenizer, config.data.source)
    predicted = len(data.validation) - (config.data.windows == "stream")
    return truth[0] / predicted if truth is not None else None


def set_threads(config: Config) -> None:
    """Use the threads that the settings name; torch's own choice otherwise."""
    if config.train.threads is not None:
        torch.set_num_threads(config.train.threads)
