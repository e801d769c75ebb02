"""Train an estimator: encode texts in memory into a temporary folder, from which the trainer reads."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from glassformer.base.config import Config
from glassformer.base.errors import GlassError
from glassformer.interop.sklearn.settings import with_steps
from glassformer.model.build import build_model
from glassformer.model.precision import resolve_precision
from glassformer.model.threads import set_threads_here
from glassformer.model.transformer import Model
from glassformer.runs.folder import create_run
from glassformer.tasks.example_tasks import length_notes
from glassformer.tasks.make import make_task
from glassformer.text.encode import RecordWriter
from glassformer.text.prepare import Prepared
from glassformer.text.record_store import RecordStore
from glassformer.text.records import RECORD_KINDS, RecordKind
from glassformer.text.split import hold_out
from glassformer.text.survey import Survey, hash_text
from glassformer.text.tokenizers import Tokenizer, train_tokenizer
from glassformer.training.clock import Seconds, since
from glassformer.training.loop import train
from glassformer.training.reporting import Reporter, Silent, choose_reporter
from glassformer.training.thread_choice import thread_count_restored
from glassformer.training.trainer import Trainer, TrainingOutcome


@dataclass(frozen=True)
class FitJob:
    """Settings and training data of one fit.

    Attributes:
        config: all settings; the number of steps is replaced if `epochs` is given.
        settings: settings that the user gave by name, which must not change.
        epochs: passes over the texts; ignored if `settings` contains train.steps. None: keep the number of steps in
            `config`.
        sources: the texts.
        answers: a target or label name for each text; None for running text.
        labels: the names of all labels, in the order of their indices; empty without labels.
        tokenizer_texts: texts to train the tokenizer on; None: the training texts.
        held_out: whether some texts are held out; if not, train on all texts and keep the last weights.
        verbose: whether to print the progress.
    """

    config: Config
    settings: dict[str, Any] | None
    epochs: float | None
    sources: Sequence[str]
    answers: Sequence[str] | None = None
    labels: tuple[str, ...] = ()
    tokenizer_texts: Sequence[str] | None = None
    held_out: bool = True
    verbose: bool = False


@dataclass(frozen=True)
class FitResult:
    """Result of a fit: model, tokenizers and labels. The weights are the best, or the last if nothing was held out."""

    config: Config
    model: Model
    tokenizer: Tokenizer
    source_tokenizer: Tokenizer
    labels: tuple[str, ...]
    outcome: TrainingOutcome


def fit(job: FitJob) -> FitResult:
    """Train a model; PyTorch's number of threads is restored afterwards, and its random state does not change.

    Raises:
        GlassError: a setting is impossible with these texts, or training fails.
    """
    seconds = since()
    reporter = choose_reporter() if job.verbose else Silent()
    with (
        tempfile.TemporaryDirectory(prefix="glass-fit-", ignore_cleanup_errors=True) as folder,
        thread_count_restored(),
    ):
        if job.config.train.threads is not None:
            set_threads_here(job.config.train.threads)
        try:
            return _fit(job, Path(folder), reporter, seconds)
        finally:
            reporter.close()


def _fit(job: FitJob, folder: Path, reporter: Reporter, seconds: Seconds) -> FitResult:
    data = _prepare(job, folder)
    config = with_steps(
        resolve_precision(job.config), job.settings, make_task(job.config, data).steps_per_epoch, job.epochs
    )
    if not job.held_out:  # one evaluation, after the last step, so that the last weights are kept
        config = config.replace(train={**config.train.model_dump(), "evaluate_every": config.train.steps or 10**12})
    if not data.kind.running_text:
        warn_of_cut_texts(data.train, config, "the training texts")
    source_vocab_size = None if config.model.shared_embedding else data.source_tokenizer.vocab_size
    classes = len(data.labels) or None
    model = build_model(config.model, data.tokenizer.vocab_size, config.train.seed, source_vocab_size, classes)
    # Samples during training are only needed if they are shown.
    sample = config.sample if job.verbose else config.sample.replace(tokens=1, beams=1)
    quiet_config = config.replace(sample=sample)
    run = create_run(folder / "fit", config, {})
    outcome = train(Trainer(run, quiet_config, model, make_task(quiet_config, data), reporter, seconds=seconds))
    assert outcome is not None  # nothing requested a stop
    return FitResult(config, model.eval(), data.tokenizer, data.source_tokenizer, data.labels, outcome)


def warn_of_cut_texts(store: RecordStore, config: Config, what: str) -> None:
    """Warn about texts that are longer than the context or, depending on `data.too_long`, raise a `GlassError`."""
    for note in length_notes(store, config, what):
        warnings.warn(note, stacklevel=2)


def _held_out_mask(job: FitJob) -> npt.NDArray[np.bool_]:
    """Return a (texts,) mask of texts to hold out: about the same fraction of each label; equal texts stay together."""
    if not job.held_out:
        return np.zeros(len(job.sources), dtype=np.bool_)
    survey = Survey(RECORD_KINDS[job.config.train.task], records=len(job.sources))
    for number, text in enumerate(job.sources):
        survey.marks.append(hash_text(text, job.config.data.seed))
        survey.lengths.append(len(text))
        if job.labels and job.answers is not None:
            survey.add_labels([job.answers[number]])
    try:
        return hold_out(survey, job.config.data)
    except GlassError as error:
        remedy = "Give more examples, or set validation_fraction = 0 to train on all examples."
        raise GlassError(error.problem, remedy) from error


def _prepare(job: FitJob, folder: Path) -> Prepared:
    """Split and encode the texts, with their targets or labels, into stores in a folder."""
    kind = RECORD_KINDS[job.config.train.task]
    answers = job.answers or ()
    texts = (job.sources,) if len(kind.roles) == 1 else (job.sources, answers)
    labels = answers if kind.labels != "none" else ()
    held_out = _held_out_mask(job)
    tokenizers = _tokenizers(job, kind, [_select(part, ~held_out) for part in texts])
    stores = {}
    for name, mask in (("train", ~held_out), ("validation", held_out)) if job.held_out else (("train", ~held_out),):
        selected = tuple(_select(part, mask) for part in texts)
        stores[name] = record_store(kind, selected, _select(labels, mask), tokenizers, job.labels, folder / name)
    train = stores["train"]
    validation = stores.get("validation", train)
    return Prepared(kind, tokenizers, train, validation, job.labels, folder, train.text_hash, False, [])


def _select(texts: Sequence[str], mask: npt.NDArray[np.bool_]) -> list[str]:
    return [texts[index] for index in np.flatnonzero(mask).tolist()] if texts else []


def record_store(
    kind: RecordKind,
    texts: tuple[Sequence[str], ...],
    answers: Sequence[str],
    tokenizers: Mapping[str, Tokenizer],
    labels: Sequence[str],
    prefix: Path,
) -> RecordStore:
    """Write a store of texts in the given order, empty texts included, and open it.

    Args:
        kind: kind of the records.
        texts: the texts of each role.
        answers: the label of each record; empty for records without labels.
        tokenizers: tokenizers by role.
        labels: the names of all labels, in the order of their indices.
        prefix: path prefix of the store's files.
    """
    label_indices = {name: index for index, name in enumerate(labels)} if kind.labels != "none" else None
    writer = RecordWriter(kind, prefix, tokenizers, label_indices)
    try:
        for number, record in enumerate(zip(*texts, strict=True)):
            writer.add(record, tuple(answers[number : number + 1]))
        writer.close()
    finally:
        writer.abandon()
    return RecordStore.open(kind, prefix)


def _tokenizers(job: FitJob, kind: RecordKind, texts: list[list[str]]) -> dict[str, Tokenizer]:
    """Train the tokenizer of each role on the training texts, or on the job's `tokenizer_texts`."""
    config = job.config.tokenizer
    if job.tokenizer_texts is not None:
        return dict.fromkeys(kind.roles, train_tokenizer(config, job.tokenizer_texts))
    if len(texts) == 1 or config.joint:
        return dict.fromkeys(kind.roles, train_tokenizer(config, chain.from_iterable(zip(*texts, strict=True))))
    return {role: train_tokenizer(config, part) for role, part in zip(kind.roles, texts, strict=True)}
