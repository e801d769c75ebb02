"""One fit: texts in memory become what the trainer learns from, in a folder that is gone afterwards."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from glassformer.base.config import PAIRS, Config
from glassformer.base.errors import GlassError
from glassformer.interop.sklearn.settings import with_steps
from glassformer.model.build import build_model
from glassformer.model.precision import settled
from glassformer.model.transformer import Model
from glassformer.runs.folder import create_run
from glassformer.tasks.example_tasks import length_notes
from glassformer.tasks.make import make_task
from glassformer.text.documents import mark_of
from glassformer.text.example_split import ExampleSurvey, hold_out
from glassformer.text.examples import ExampleStore, ExampleWriter, PreparedExamples
from glassformer.text.prepare import Prepared
from glassformer.text.store import StoreWriter, TokenStore
from glassformer.text.tokenizers import Tokenizer, train_tokenizer
from glassformer.training.clock import Seconds, since
from glassformer.training.loop import train
from glassformer.training.reporting import Reporter, Silent, choose_reporter
from glassformer.training.setup import set_threads
from glassformer.training.threads import torch_state_restored
from glassformer.training.trainer import Trainer, TrainingOutcome

Data = Prepared | PreparedExamples


@dataclass(frozen=True)
class FitJob:
    """What is to be learnt.

    Attributes:
        config: all settings but the number of steps.
        settings: those that a person gave by name, which stay.
        epochs: passes over the texts; None: as many steps as the settings say.
        sources: the texts.
        answers: a target, or the name of a label, for each; None of running text.
        labels: the names of all labels, in the order of their indices; none without.
        vocabulary: what the tokenizer is trained on; None: the texts that are learnt from.
        held_out: whether a part of the texts is held out; otherwise all are learnt from, and the last weights kept.
        verbose: whether a person is told what happens.
    """

    config: Config
    settings: dict[str, Any] | None
    epochs: float | None
    sources: Sequence[str]
    answers: Sequence[str] | None = None
    labels: tuple[str, ...] = ()
    vocabulary: Sequence[str] | None = None
    held_out: bool = True
    verbose: bool = False


@dataclass(frozen=True)
class Fitted:
    """What a fit made: the kept weights in `model`, and all that they need to read and write text."""

    config: Config
    model: Model
    tokenizer: Tokenizer
    source_tokenizer: Tokenizer
    labels: tuple[str, ...]
    outcome: TrainingOutcome


def fit(job: FitJob) -> Fitted:
    """Train with the one trainer; global random numbers and the number of threads are afterwards as before.

    Raises:
        GlassError: a setting does not go with the texts, or training cannot go on.
    """
    seconds = since()
    reporter = choose_reporter() if job.verbose else Silent()
    with tempfile.TemporaryDirectory(prefix="glass-fit-", ignore_cleanup_errors=True) as folder, torch_state_restored():
        set_threads(job.config)
        try:
            return _fit(job, Path(folder), reporter, seconds)
        finally:
            reporter.close()


def _fit(job: FitJob, folder: Path, reporter: Reporter, seconds: Seconds) -> Fitted:
    data = _documents(job, folder) if job.answers is None else _examples(job, folder)
    config = with_steps(settled(job.config), job.settings, make_task(job.config, data).steps_per_epoch, job.epochs)
    if not job.held_out:  # one evaluation, after the last step: what is kept is the last
        config = config.replace(train={**config.train.model_dump(), "evaluate_every": config.train.steps or 10**12})
    if isinstance(data, PreparedExamples):
        say_what_is_cut(data.train, config, "what is learnt from")
    labels = data.labels if isinstance(data, PreparedExamples) else ()
    source = data.source_tokenizer if isinstance(data, PreparedExamples) else data.tokenizer
    own_source = None if config.model.shared_embedding else source.vocab_size
    model = build_model(
        config.model, data.tokenizer.vocab_size, config.train.seed, own_source, len(labels) if labels else None
    )
    # Nobody reads the samples that are drawn while training, unless they are shown.
    sample = config.sample if job.verbose else config.sample.replace(tokens=1, beams=1)
    quiet = config.replace(sample=sample)
    run = create_run(folder / "fit", config, {})
    outcome = train(Trainer(run, quiet, model, make_task(quiet, data), reporter, seconds=seconds))
    assert outcome is not None  # nobody asked it to stop
    return Fitted(config, model.eval(), data.tokenizer, source, labels, outcome)


def say_what_is_cut(store: ExampleStore, config: Config, what: str) -> None:
    """Warn of texts that are longer than the context, or refuse them, as the settings say."""
    for note in length_notes(store, config, what):
        warnings.warn(note, stacklevel=2)


def _held(job: FitJob) -> npt.NDArray[np.bool_]:
    """(texts,) True: held out. Equal texts stay together; labels are drawn in like shares, and all are learnt."""
    if not job.held_out:
        return np.zeros(len(job.sources), dtype=np.bool_)
    found = ExampleSurvey()
    for number, text in enumerate(job.sources):
        found.sources.append(mark_of(text, job.config.data.seed))
        found.characters.append(len(text))
        if job.labels and job.answers is not None:
            label = job.answers[number]
            found.numbers.append(found.names.setdefault(label, len(found.names)))
    try:
        return hold_out(found, job.config.data)
    except GlassError as error:
        raise GlassError(error.problem, "Give more texts, or set validation_fraction = 0 to learn from all.") from error


def _documents(job: FitJob, folder: Path) -> Prepared:
    held = _held(job)
    sides = [[job.sources[index] for index in np.flatnonzero(held == side).tolist()] for side in (False, True)]
    tokenizer = train_tokenizer(job.config.tokenizer, sides[0])
    train = encoded(sides[0], tokenizer, folder / "train")
    validation = encoded(sides[1], tokenizer, folder / "validation") if job.held_out else train
    return Prepared(tokenizer, train, validation, folder, train.text_hash, False, [])


def encoded(texts: Sequence[str], tokenizer: Tokenizer, prefix: Path) -> TokenStore:
    """Texts as a token store, one document each."""
    writer = StoreWriter(prefix, tokenizer)
    try:
        writer.add(texts, tokenizer.encode_many(list(texts)), [True] * len(texts))
        writer.close()
    finally:
        writer.abandon()
    return TokenStore.open(prefix)


def _examples(job: FitJob, folder: Path) -> PreparedExamples:
    held = _held(job)
    tokenizers = _tokenizers(job, np.flatnonzero(~held).tolist())
    assert job.answers is not None
    stores = []
    for name, wanted in (("train", ~held), ("validation", held)) if job.held_out else (("train", ~held),):
        chosen = np.flatnonzero(wanted).tolist()
        sources, answers = ([texts[index] for index in chosen] for texts in (job.sources, job.answers))
        stores.append(example_store(sources, answers, tokenizers, job.labels, folder / name))
    (train, unknown), (validation, _) = stores[0], stores[-1]
    return PreparedExamples(
        tokenizers[1], tokenizers[0], train, validation, job.labels, folder, train.sources.text_hash, False, [], unknown
    )


def example_store(
    sources: Sequence[str],
    answers: Sequence[str],
    tokenizers: tuple[Tokenizer, Tokenizer],
    labels: Sequence[str],
    prefix: Path,
) -> tuple[ExampleStore, float]:
    """Texts with their answers as a store, in the order given, empty ones as well; and the share of unknown tokens."""
    writer = ExampleWriter(prefix, tokenizers, {name: index for index, name in enumerate(labels)} if labels else None)
    try:
        for source, answer in zip(sources, answers, strict=True):
            writer.add(source, answer)
        writer.close()
    finally:
        writer.abandon()
    return ExampleStore.open(prefix), writer.unknown_share


def _tokenizers(job: FitJob, learnt: list[int]) -> tuple[Tokenizer, Tokenizer]:
    """Of the sources and of the targets, trained on the texts that are learnt from."""
    config, answers = job.config.tokenizer, job.answers
    assert answers is not None
    texts: Callable[[Sequence[str]], list[str]] = lambda side: [side[index] for index in learnt]  # noqa: E731
    if job.vocabulary is not None or job.config.train.task not in PAIRS:
        one = train_tokenizer(config, texts(job.sources) if job.vocabulary is None else job.vocabulary)
        return one, one
    if config.joint:
        both = train_tokenizer(config, [text for index in learnt for text in (job.sources[index], answers[index])])
        return both, both
    return train_tokenizer(config, texts(job.sources)), train_tokenizer(config, texts(answers))
