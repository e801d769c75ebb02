"""Measure a run by its task, on its own validation part or on another source."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from glassformer.config import EXAMPLES, Config, DataConfig
from glassformer.data.batches import Batch
from glassformer.data.corpora import CORPORA
from glassformer.data.examples import ExampleStore, PreparedExamples
from glassformer.data.prepare import Prepared
from glassformer.data.whole import encode_examples, encode_whole
from glassformer.errors import GlassError
from glassformer.evaluation.labels import LabelReport, label_report
from glassformer.evaluation.language import LanguageReport, language_report
from glassformer.evaluation.masked import MaskedReport, masked_report
from glassformer.evaluation.pairs import PairReport, pair_report
from glassformer.model.device import choose_precision
from glassformer.runs import Which, open_run
from glassformer.text_model import AnyTextModel, MaskFiller, TextClassifier, TextModel, Translator, load_text_model
from glassformer.training.example_tasks import labelled_rows, length_notes, pair_rows
from glassformer.training.setup import encoded_text
from glassformer.training.tasks import MaskedTask
from glassformer.training.validation import LossEstimate, validation_loss

Report = LanguageReport | MaskedReport | PairReport | LabelReport


@dataclass(frozen=True)
class Request:
    """What to measure, and how.

    Attributes:
        folder: of the run.
        source, target: another text (of two parallel files both); None: the run's own validation part.
        which: the checkpoint.
        device: where to compute.
        precision: of matrix products; None: as in training, so that the figures are the same.
        seed: of the sample that the copy meter looks at; None: the run's own.
        changes: settings of `data` for reading `source`, and of `sample` for writing, as text.
        examples: translate, summarize: for at most so many sources a text is written, evenly drawn; None: for all.
        against: another run of the same task to compare with, on the same examples.
        note: is told what a person should know.
    """

    folder: Path
    source: str | None = None
    target: str | None = None
    which: Which = "best"
    device: str = "auto"
    precision: str | None = None
    seed: int | None = None
    changes: Mapping[str, str] = field(default_factory=dict)
    examples: int | None = 2000
    against: Path | None = None
    note: Callable[[str], None] = lambda text: None


def evaluate_run(request: Request) -> Report:
    """Measure a run.

    Raises:
        GlassError: there is no such run, its text is gone, or the other source does not fit its task.
    """
    model = load_text_model(request.folder, request.which, request.device)
    config = model.config
    writing = {key: value for key, value in request.changes.items() if key.startswith("sample.")}
    if request.seed is not None:
        writing["sample.seed"] = str(request.seed)
    model.config = config.with_changes(writing)
    if request.against is not None and config.train.task not in EXAMPLES:
        raise GlassError(
            f"--against compares runs that classify, translate or summarize, not train.task = {config.train.task}",
            "Evaluate both runs, and compare bits per byte or the intervals.",
        )
    with tempfile.TemporaryDirectory(prefix="glass-evaluate-", ignore_cleanup_errors=True) as temporary:
        if isinstance(model, TextModel | MaskFiller):
            return _of_text(request, model, Path(temporary))
        return _of_examples(request, model, Path(temporary))


def _of_text(request: Request, model: TextModel | MaskFiller, folder: Path) -> Report:
    """Of runs that learn from running text."""
    config, own = model.config, _own(request, model.config)
    if request.source is None:
        assert isinstance(own, Prepared)
        text, store = "the validation split", own.validation
    else:
        store, notes = encode_whole(_reading(config, request), model.tokenizer, folder)
        text = request.source
        for note in notes:
            request.note(note)
        if len(store) < 2:
            raise GlassError(f"{text} has {len(store)} tokens", "Give a longer text.")
    train = own.train if isinstance(own, Prepared) else None
    precision = request.precision or config.train.precision
    if isinstance(model, TextModel):
        corpus = _corpus(request, config)
        return language_report(model, text, store, train, corpus, precision, config.sample)
    device = next(model.model.parameters()).device
    task = MaskedTask(config, model.tokenizer, store if train is None else train, store)
    return masked_report(model.model, task, text, device, choose_precision(precision, device))


def _of_examples(request: Request, model: AnyTextModel, folder: Path) -> Report:
    """Of runs that learn from examples."""
    config, own = model.config, _own(request, model.config)
    assert isinstance(model, Translator | TextClassifier)
    if request.source is None:
        assert isinstance(own, PreparedExamples)
        text, store = "the validation part", own.validation
    else:
        text = request.source if request.target is None else f"{request.source} and {request.target}"
        labels = model.labels if isinstance(model, TextClassifier) else ()
        source = model.source_tokenizer if isinstance(model, Translator) else model.tokenizer
        reading = _reading(config, request)
        store, notes = encode_examples(config.train.task, reading, (source, model.tokenizer), labels, folder)
        for note in notes:
            request.note(note)
    for note in length_notes(store, config, text):
        request.note(note)
    train = own.train if isinstance(own, PreparedExamples) else None
    other = _other(request, config)
    estimate = _loss(request, model, store)
    if isinstance(model, TextClassifier):
        assert other is None or isinstance(other, TextClassifier)
        return label_report(model, text, list(store.texts()), estimate, train, _corpus(request, config), other)
    assert other is None or isinstance(other, Translator)
    chosen = _evenly(store, request.examples)
    return pair_report(model, text, chosen, (estimate, store.target_bytes), train, other, request.note)


def _loss(request: Request, model: Translator | TextClassifier, store: ExampleStore) -> LossEstimate:
    """Over all examples."""
    device = next(model.model.parameters()).device
    dtype = choose_precision(request.precision or model.config.train.precision, device)
    if isinstance(model, Translator):
        return validation_loss(model.model, pair_rows(store, model.config), device, dtype, collate=Batch.from_pairs)
    return validation_loss(model.model, labelled_rows(store, model.config), device, dtype, collate=Batch.from_labelled)


def _other(request: Request, config: Config) -> AnyTextModel | None:
    """The run to compare with."""
    if request.against is None:
        return None
    other = load_text_model(request.against, request.which, request.device)
    if other.config.train.task != config.train.task:
        raise GlassError(
            f"{request.against} learnt train.task = {other.config.train.task}, {request.folder} {config.train.task}",
            "Compare runs of one task.",
        )
    return other


def _evenly(store: ExampleStore, limit: int | None) -> Sequence[tuple[str, str]]:
    """Source and reference of all examples, or of so many, evenly drawn."""
    total = len(store)
    wanted = total if limit is None else min(total, limit)
    places = {number * total // wanted for number in range(wanted)}
    return [texts for place, texts in enumerate(islice(store.texts(), total)) if place in places]


def _own(request: Request, config: Config) -> Prepared | PreparedExamples | None:
    """The run's own text; where another one is measured, it may have been left behind."""
    try:
        return encoded_text(open_run(request.folder), config, request.note)
    except GlassError:
        if request.source is None:
            raise
        return None


def _reading(config: Config, request: Request) -> DataConfig:
    """How another text is read: its rows are cut as in training; what its file looks like is its own affair."""
    own, task = config.data, config.train.task
    fresh = DataConfig(
        source=request.source or "", windows=own.windows, document=own.document, seed=own.seed + 1, size=1000
    )
    if task in EXAMPLES:
        fresh = fresh.replace(target=request.target, too_long=own.too_long)
    given = {key: value for key, value in request.changes.items() if key.startswith("data.")}
    return config.replace(data=fresh.model_dump()).with_changes(given).data


def _corpus(request: Request, config: Config) -> str | None:
    """The generated corpus that is measured on, if it is one."""
    name = config.data.source if request.source is None else request.source
    return name if name in CORPORA else None
