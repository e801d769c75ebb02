"""Evaluate a run on its own validation split or on other data, with the metrics of its task."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from glassformer.backends.choosing import choose_engine
from glassformer.base.backends import BackendName
from glassformer.base.config import (
    CONVERSATIONS,
    EXAMPLES,
    PAIRS,
    TASK_FACTS,
    WRITERS,
    Config,
    DataConfig,
    parse_changes,
)
from glassformer.base.errors import GlassError
from glassformer.base.packages import install_command
from glassformer.base.wording import counted
from glassformer.corpora import CORPORA
from glassformer.evaluation.chat_report import chat_report
from glassformer.evaluation.even_sample import evenly_spaced_records, evenly_spaced_texts
from glassformer.evaluation.label_report import LabelReport, label_report
from glassformer.evaluation.language_report import LanguageReport, language_report
from glassformer.evaluation.masked_report import MaskedReport, masked_report
from glassformer.evaluation.pair_report import PairReport, pair_report
from glassformer.evaluation.training_overlap import Reading, TrainingOverlap, count_seen
from glassformer.evaluation.translation import can_score
from glassformer.inspection.ablation import AblationReport, ablation_report, check_ablation
from glassformer.model.precision import choose_precision
from glassformer.runs.folder import Which, open_run
from glassformer.runs.opening import OpenedRun
from glassformer.runs.run_text import find_or_encode_text
from glassformer.runs.text_location import candidate_texts, token_cache
from glassformer.tasks import AnyTextModel, ChatModel, MaskFiller, TextClassifier, TextModel, Translator
from glassformer.tasks.example_tasks import conversation_rows, labelled_rows, length_notes, pair_rows, used_record_mask
from glassformer.tasks.task import LanguageTask, MaskedTask
from glassformer.text.data_notes import overlap_note
from glassformer.text.evaluation_data import EvaluationData, encode_evaluation_data
from glassformer.text.hashing import text_hash
from glassformer.text.prepare import Prepared
from glassformer.text.record_store import RecordStore
from glassformer.text.records import RECORD_KINDS
from glassformer.text.store import TokenStore
from glassformer.training.validation import LossEstimate, validation_loss

ROWS_OF = {"pairs": pair_rows, "labelled": labelled_rows, "conversations": conversation_rows}
"""Type of records -> function that makes their rows."""
Report = LanguageReport | MaskedReport | PairReport | LabelReport | AblationReport


@dataclass(frozen=True)
class EvaluationRequest:
    """A request to evaluate a run.

    Attributes:
        folder: run folder.
        source, target: other data to evaluate on (both for two parallel files); None: the run's own validation split.
        which: checkpoint to evaluate.
        device: device to compute on.
        precision: precision of matrix multiplications when the loss is computed; None: `train.precision` of the run.
        seed: seed for sampling text, such as the sample of the copy meter; None: `sample.seed` of the run.
        changes: setting -> value as text; settings of `data` for reading `source`, of `sample` for generating text.
        examples: for translate, summarize and chat, the maximum number of evenly spaced examples to generate text
            for; None: all.
        against: another run of the same task to compare with, on the same examples; only for tasks with examples, so
            not for lm and masked. None: no comparison.
        ablate: components to ablate, such as dec.1.self.2; then only the loss is measured, with and without them.
            Empty: the usual evaluation.
        instead: kind of ablation, one of `ablation.PART_KINDS`.
        tokens: with `ablate`, approximate number of evenly spaced targets to measure on; None: all.
        note: function that is called with each note for the user.
        moved: "source" or "target" -> current path of this file of the run's training data, if the user gave it.
        backend: backend that generates text.
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
    ablate: tuple[str, ...] = ()
    instead: str = "zero"
    tokens: int | None = None
    note: Callable[[str], None] = lambda text: None
    moved: Mapping[str, str] | None = None
    backend: BackendName = "auto"


def evaluate_run(request: EvaluationRequest) -> Report:
    """Evaluate a run, and return a report for its task.

    If `source` is the training data of the run, only its validation split is evaluated.

    Raises:
        GlassError: there is no such run, its data is missing, the given data does not fit its task, or an option is
            invalid or would have no effect.
    """
    opened = OpenedRun.load(request.folder, request.which, request.device, note=request.note)
    config = opened.config
    _check_request(request, config)
    if _names_own_text(request, config):
        request.note(f"{request.source} is the training data of {request.folder}: evaluating on its validation split")
        locations = {"source": request.source, "target": request.target}
        moved = {name: value for name, value in locations.items() if value is not None}
        request = replace(request, source=None, target=None, moved=moved)
    if request.ablate:
        data = opened.held_out(request.tokens, request.precision)
        rows_description = (
            "the validation split" if request.tokens is None else "evenly spaced rows of the validation split"
        )
        return ablation_report(
            opened.model, data, check_ablation(opened.model, request.ablate, request.instead), rows_description
        )
    model = opened.text_model
    model.config = config.with_changes(_sample_changes(request))
    if request.against is not None and config.train.task not in EXAMPLES:
        raise GlassError(
            f"--against compares runs of {', '.join(EXAMPLES)}, not train.task = {config.train.task}",
            "Evaluate each run separately, and compare bits per byte or the intervals.",
        )
    with tempfile.TemporaryDirectory(prefix="glass-evaluate-", ignore_cleanup_errors=True) as temporary:
        if isinstance(model, TextModel | MaskFiller) and not isinstance(model, ChatModel):
            return _evaluate_text(request, model, Path(temporary))
        return _evaluate_examples(request, model, Path(temporary))


def _check_request(request: EvaluationRequest, config: Config) -> None:
    """Raise a `GlassError` if an option is invalid or would have no effect on the evaluation of this run."""
    _check_ablation(request)
    parse_changes(request.changes)  # report unknown settings first
    for key in request.changes:
        section = key.partition(".")[0]
        if section not in ("data", "sample"):
            raise GlassError(
                f"{key} = {request.changes[key]} cannot be set here: {request.folder} is already trained",
                "Set only data.* (to read DATA) or sample.* (to generate text), or train another run.",
            )
        if section == "data" and request.source is None:
            raise GlassError(
                f"{key} = {request.changes[key]} applies to other data, but no DATA was given",
                "Name the data (glass evaluate RUN DATA): the run's own data is read as in training.",
            )
    if _sample_changes(request) and config.train.task in ("classify", "masked"):
        key, value = next(iter(_sample_changes(request).items()))
        given = f"{key} = {value}" if request.seed is None else f"--seed {request.seed}"
        raise GlassError(
            f"{given} is for text generation, but {request.folder} was trained with train.task = {config.train.task}",
            "Leave it out: this task does not generate text.",
        )
    if request.backend != "auto" and (request.ablate or config.train.task in ("classify", "masked")):
        raise GlassError(
            f"--backend {request.backend} is for text generation, but no text is generated", "Leave it out."
        )
    if request.examples != EvaluationRequest.examples and config.train.task not in (*PAIRS, *CONVERSATIONS):
        raise GlassError(
            f"--examples {request.examples or 0} is for {', '.join((*PAIRS, *CONVERSATIONS))}, but {request.folder} "
            f"was trained with train.task = {config.train.task}",
            "Leave it out: all of the data is evaluated.",
        )
    if request.target is not None and config.train.task not in PAIRS:
        raise GlassError(
            f"{request.folder} was trained with train.task = {config.train.task}, which takes one file, "
            f"but {request.source} and {request.target} were given",
            "Give one file, and evaluate the other one separately.",
        )


def _names_own_text(request: EvaluationRequest, config: Config) -> bool:
    """Return whether DATA has the same hash as the run's training data.

    Return False if settings of `data` change how DATA is read, if DATA is a generated corpus, or if it is not an
    existing file or folder.
    """
    if request.source is None or not Path(request.source).expanduser().exists():
        return False
    if request.source in CORPORA or any(key.startswith("data.") for key in request.changes):
        return False
    locations = {"source": request.source, "target": request.target}
    run = open_run(request.folder)
    for data in candidate_texts(
        run, config.data, {name: value for name, value in locations.items() if value is not None}
    ):
        try:
            source_hash = text_hash(RECORD_KINDS[config.train.task], data, token_cache(run.folder))
        except GlassError:  # not readable with the run's settings, so it is another text
            continue
        if source_hash == run.manifest()["data"]["text_hash"]:
            return True
    return False


def _check_ablation(request: EvaluationRequest) -> None:
    """Raise a `GlassError` if an option requires or does not allow `--ablate`, or if `--tokens` is invalid."""
    options = {
        f"another text, {request.source},": request.source,
        f"--against {request.against}": request.against,
        f"--seed {request.seed}": request.seed,
        **{f"{key} = {value}": value for key, value in request.changes.items()},
    }
    conflict = next((name for name, value in options.items() if value is not None), None)
    if request.ablate and conflict:
        raise GlassError(
            f"--ablate measures the loss on the run's own validation split, but {conflict} was given", "Leave it out."
        )
    if not request.ablate and (request.tokens is not None or request.instead != "zero"):
        name = "--instead" if request.tokens is None else "--tokens"
        raise GlassError(
            f"{name} was given without --ablate",
            "Leave it out, or name components to ablate, such as --ablate dec.0.self.1.",
        )
    if request.tokens is not None and request.tokens < 1:
        raise GlassError(f"--tokens {request.tokens} is less than one", "Give at least 1, or leave it out.")


def _sample_changes(request: EvaluationRequest) -> dict[str, str]:
    """Return the changed settings of `sample`, including the requested seed."""
    changes = {key: value for key, value in request.changes.items() if key.startswith("sample.")}
    return changes if request.seed is None else {**changes, "sample.seed": str(request.seed)}


def _evaluate_text(request: EvaluationRequest, model: TextModel | MaskFiller, folder: Path) -> Report:
    """Evaluate a language model or a masked model on a text."""
    config = model.config
    notes: list[str] = []

    def note(text: str) -> None:
        notes.append(text)
        request.note(text)

    own_data = _own_data(request, config, note)
    train = None if own_data is None else own_data.train.tokens["text"]
    if request.source is None:
        assert own_data is not None
        text = "the validation split"
        evaluated = own_data
        reading = Reading({}, None, notes)
    else:
        kind = RECORD_KINDS[config.train.task]
        tokenizers = {"text": model.tokenizer}
        encoded = encode_evaluation_data(kind, _reading_config(config, request).data, tokenizers, folder)
        train_split = encoded.store if own_data is None else own_data.train
        evaluated = Prepared(
            kind, tokenizers, train_split, encoded.store, (), folder, encoded.text_hash, False, encoded.notes
        )
        text = request.source
        tokens = len(encoded.store.tokens["text"])
        if tokens < 2:
            raise GlassError(
                f"{text} has {counted(tokens, 'tokens')}, but an evaluation needs at least 2", "Give a longer text."
            )
        overlap = _training_overlap(request.folder, encoded, train)
        for remark in (*encoded.notes, *overlap.notes(text)):
            note(remark)
        reading = Reading(encoded.left_out, overlap, notes)
        config = config.replace(data={**config.data.model_dump(), "split": "end"})  # all rows of the other text
    precision = request.precision or config.train.precision
    if isinstance(model, TextModel):
        corpus = _corpus(request, config)
        task = LanguageTask(config, evaluated)
        model.engine = choose_engine(request.backend, model.model, config.sample, 1)
        held_out = None if own_data is None else own_data.validation.tokens["text"]
        return language_report(model, task, text, train, held_out, corpus, precision, config.sample, reading)
    device = next(model.model.parameters()).device
    return masked_report(
        model.model, MaskedTask(config, evaluated), text, train, device, choose_precision(precision, device), reading
    )


def _training_overlap(folder: Path, encoded: EvaluationData, train: TokenStore | None) -> TrainingOverlap:
    """Measure the overlap of a text with the training text of the run in `folder`."""
    manifest = open_run(folder).manifest()
    same_text = manifest["data"]["text_hash"] == encoded.text_hash
    if train is None:
        return TrainingOverlap(same_text, None, None)
    passages, seen_passages = count_seen(encoded.store.tokens["text"], train)
    return TrainingOverlap(same_text, passages, seen_passages)


def _evaluate_examples(request: EvaluationRequest, model: AnyTextModel, folder: Path) -> Report:
    """Evaluate a run that was trained on examples: pairs, labelled texts or conversations."""
    assert isinstance(model, Translator | TextClassifier | ChatModel)
    notes: list[str] = []
    request_note = request.note

    def note(text: str) -> None:
        notes.append(text)
        request_note(text)

    own_data = _own_data(request, model.config, note)
    request = replace(request, note=note)
    other = _comparison_model(request, model)
    text, store, config = _evaluation_examples(request, model, own_data, folder)
    for remark in length_notes(store, config, text):
        note(remark)
    train = None if own_data is None else own_data.train
    if request.source is not None and train is not None and (overlap := overlap_note(store, train)):
        note(overlap)
    estimate = _loss(request, model, store, config)
    used_mask = used_record_mask(store, config)
    if isinstance(model, TextClassifier):
        assert other is None or isinstance(other, TextClassifier)
        examples = list(evenly_spaced_texts(store, None, used_mask))
        corpus = _corpus(request, config)
        unknown_share = store.source.unknown_share
        return label_report(model, text, examples, estimate, unknown_share, train, corpus, other, notes)
    indices = evenly_spaced_records(store, request.examples, used_mask)
    if not can_score():
        note(f"BLEU and chrF++ are left out, because they need sacrebleu: {install_command('metrics')}")
    for text_model in (model, other):
        if isinstance(text_model, Translator | ChatModel):
            text_model.engine = choose_engine(request.backend, text_model.model, text_model.config.sample, len(indices))
    request_note(f"generating {counted(len(indices), 'texts')} ({model.backend}, {model.precision})")
    if isinstance(model, ChatModel):
        assert other is None or isinstance(other, ChatModel)
        return chat_report(model, text, store, indices.tolist(), estimate, train, other, notes)
    assert other is None or isinstance(other, Translator)
    examples = list(evenly_spaced_texts(store, request.examples, used_mask))
    return pair_report(model, text, examples, estimate, store, train, other, notes)


def _evaluation_examples(
    request: EvaluationRequest,
    model: Translator | TextClassifier | ChatModel,
    own_data: Prepared | None,
    folder: Path,
) -> tuple[str, RecordStore, Config]:
    """Return the name of the evaluation data, its examples, and the settings that turn them into rows."""
    config = model.config
    if request.source is None:
        assert own_data is not None
        return "the validation split", own_data.validation, config
    text = request.source if request.target is None else f"{request.source} and {request.target}"
    labels = model.labels if isinstance(model, TextClassifier) else ()
    source = model.source_tokenizer
    config = _reading_config(config, request)
    kind = RECORD_KINDS[config.train.task]
    tokenizers = {kind.roles[-1]: model.tokenizer, kind.roles[0]: source}
    encoded = encode_evaluation_data(kind, config.data, tokenizers, folder, labels)
    for note in encoded.notes:
        request.note(note)
    return text, encoded.store, config


def _loss(
    request: EvaluationRequest, model: Translator | TextClassifier | ChatModel, store: RecordStore, config: Config
) -> LossEstimate:
    """Compute the loss over all examples or, depending on `data.too_long`, over the examples that fit the context."""
    device = next(model.model.parameters()).device
    dtype = choose_precision(request.precision or config.train.precision, device)
    rows_of = ROWS_OF[TASK_FACTS[config.train.task].records]
    return validation_loss(model.model, rows_of(store, config), device, dtype)


def _comparison_model(
    request: EvaluationRequest, model: Translator | TextClassifier | ChatModel
) -> AnyTextModel | None:
    """Load the run to compare with, and apply the request's sample settings; return None if no run is requested."""
    if request.against is None:
        return None
    other = OpenedRun.load(request.against, request.which, request.device).text_model
    task = model.config.train.task
    if other.config.train.task != task:
        raise GlassError(
            f"{request.against} was trained with train.task = {other.config.train.task}, but {request.folder} "
            f"with {task}",
            "Compare runs of the same task.",
        )
    if isinstance(model, ChatModel) and isinstance(other, ChatModel) and not model.reads_same_tokens_as(other):
        raise GlassError(
            f"{request.against} and {request.folder} have different tokenizers or chat templates",
            "Compare runs with the same tokenizer and chat template, or evaluate each run separately.",
        )
    other.config = other.config.with_changes(_sample_changes(request))
    settings = model.config.sample.model_dump()
    other_settings = other.config.sample.model_dump()
    differing = [key for key in settings if settings[key] != other_settings[key] and key != "prompt"]
    if task in WRITERS and differing:
        differences = ", ".join(f"sample.{key} = {settings[key]} and {other_settings[key]}" for key in differing)
        request.note(f"{request.folder} and {request.against} generate with different settings: {differences}")
    return other


def _own_data(request: EvaluationRequest, config: Config, note: Callable[[str], None]) -> Prepared | None:
    """Return the run's own encoded data; if it is missing and other data is evaluated, call `note` and return None."""
    try:
        return find_or_encode_text(open_run(request.folder), config, request.note, request.moved)
    except GlassError as error:
        if request.source is None:
            raise
        note(f"baselines that need the training text are left out: {error.problem}")
        return None


def _reading_config(config: Config, request: EvaluationRequest) -> Config:
    """Return the run's settings, with the section `data` changed for reading the source that `request` names.

    The settings that determine how text is cut into rows are copied from the run. The settings of the file format have
    their defaults, unless the request changes them.
    """
    data_config = config.data
    task = config.train.task
    reading_data = DataConfig(
        source=request.source or "",
        windows=data_config.windows,
        document=data_config.document,
        seed=data_config.seed + 1,
        size=1000,
    )
    if task in EXAMPLES:
        reading_data = reading_data.replace(
            target=request.target, too_long=data_config.too_long, chat_template=data_config.chat_template
        )
    data_changes = {key: value for key, value in request.changes.items() if key.startswith("data.")}
    return config.replace(data=reading_data.model_dump()).with_changes(data_changes)


def _corpus(request: EvaluationRequest, config: Config) -> str | None:
    """Return the name of the generated corpus that the run is evaluated on; None for other data."""
    name = config.data.source if request.source is None else request.source
    return name if name in CORPORA else None
