"""Turn a source into tokenizers and two record stores, made once and cached until the data or the settings change."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from glassformer.base.config import DataConfig, TokenizerConfig
from glassformer.base.errors import MALFORMED, GlassError
from glassformer.base.files import convert_os_errors, no_empty_folders, sha256, write_text
from glassformer.text.cache import CHECKED_IN_FULL, building, check_store, folder_of, reusable
from glassformer.text.data_notes import (
    document_split_notes,
    label_notes,
    overlap_notes,
    record_split_note,
    survey_notes,
    token_notes,
    unknown_share,
)
from glassformer.text.encode import Meter, RecordWriter
from glassformer.text.record_store import RecordStore, damaged
from glassformer.text.records import END_MARK, START_MARK, RecordKind
from glassformer.text.source import Source, hash_of_sources, open_sources, with_names
from glassformer.text.split import SPLITS, DocumentSplit, Split, SplitName, SplitPiece, split_documents, split_records
from glassformer.text.survey import Survey, kept_pieces, kept_records, survey
from glassformer.text.tables import ONLY_TABLES
from glassformer.text.tokenizers import Tokenizer, number_tokenizer_json, train_tokenizer

RUNNING_TEXT_SETTINGS = (
    "column",
    "encoding",
    "document",
    "min_words",
    "max_words",
    "split",
    "validation_fraction",
    "validation_limit",
    "min_characters",
    "clean",
    "duplicates",
    *ONLY_TABLES,
)
"""Settings of `data` that determine the stores of running text, together with `seed`."""
EXAMPLE_SETTINGS = ("column", "target_column", "label_column", "encoding", "min_words", "max_words")
"""Settings of `data` that determine the stores of other records, together with `SPLIT_SETTINGS`, `seed` and, for chat,
`chat_template`."""
SPLIT_SETTINGS = ("split", "validation_fraction", "validation_limit")
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """Prepared data for training.

    Attributes:
        kind: the kind of records.
        tokenizers: tokenizer of each role, trained on the training split only, unless it was given; roles that share a
            vocabulary have the same object.
        train, validation: the stores of the two splits.
        labels: the names of the labels, sorted; label `i` is `labels[i]`. Empty for records without labels.
        folder: folder of all files; `open_prepared(kind, folder)` opens it again without the source.
        text_hash: hash of the sources (see `hash_of_sources`).
        reused: whether an earlier result was reused.
        notes: notes for the user: encoding, columns, records left out, the split, repeats, tokens, unknown tokens.
    """

    kind: RecordKind
    tokenizers: Mapping[str, Tokenizer]
    train: RecordStore
    validation: RecordStore
    labels: tuple[str, ...]
    folder: Path
    text_hash: str
    reused: bool
    notes: list[str]

    @property
    def source_tokenizer(self) -> Tokenizer:
        """Return the tokenizer of the first text of each record, which the model reads."""
        return self.tokenizers[self.kind.roles[0]]

    @property
    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer of the last text of each record: the target of a pair, else the only text."""
        return self.tokenizers[self.kind.roles[-1]]


def silent(message: str) -> None:
    """Ignore a progress message."""


@dataclass(frozen=True)
class TokenizerOrigin:
    """The origin of the tokenizers: given tokenizers, a file, or training.

    Attributes:
        config: settings for training tokenizers.
        file: file of one tokenizer for all roles.
        existing_tokenizers: tokenizers to use unchanged: one for all roles, or one for each role.
    """

    config: TokenizerConfig
    file: Path | None = None
    existing_tokenizers: tuple[Tokenizer, ...] = ()

    def tokenizers(self, kind: RecordKind, texts: Callable[..., Iterable[str]]) -> dict[str, Tokenizer]:
        """Return the tokenizer of each role: given, loaded from the file, or trained on the texts.

        Args:
            kind: the kind of records.
            texts: function that receives roles and returns the texts of the training split in these roles.
        """
        if self.existing_tokenizers:
            role_tokenizers = (
                self.existing_tokenizers
                if len(self.existing_tokenizers) > 1
                else self.existing_tokenizers * len(kind.roles)
            )
            return dict(zip(kind.roles, role_tokenizers, strict=True))
        if len(kind.roles) == 1 or self.config.joint:
            return dict.fromkeys(kind.roles, self.tokenizer(kind, texts(*kind.roles)))
        return {role: self.tokenizer(kind, texts(role)) for role in kind.roles}

    def tokenizer(self, kind: RecordKind, texts: Iterable[str]) -> Tokenizer:
        """Load the tokenizer from `file`, or train a tokenizer on the texts if `file` is None.

        Raises:
            GlassError: the tokenizer cannot be loaded or trained, or it lacks the mask token that `kind` needs.
        """
        if self.file is None:
            return train_tokenizer(self.config, texts, kind.mask_token)
        tokenizer = Tokenizer.load(self.file)
        if kind.mask_token and tokenizer.mask_id is None:
            raise GlassError(
                f"{self.file} has no mask token",
                "Give --tokenizer the tokenizer.json of a run with train.task = masked, or leave --tokenizer out.",
            )
        return tokenizer


def prepare(
    kind: RecordKind,
    data: DataConfig,
    tokenizer: TokenizerConfig,
    cache: Path,
    progress: Progress = silent,
    existing_tokenizers: tuple[Tokenizer, ...] = (),
) -> Prepared:
    """Read, split and encode data, and train the tokenizers; or reuse the result for the same data and settings.

    Args:
        kind: the kind of records that the task learns from.
        data: the source and how to read and split it.
        tokenizer: settings of the tokenizers.
        cache: a folder for results; each result is in a subfolder named by a hash of the data and the settings.
        progress: function that receives progress messages.
        existing_tokenizers: tokenizers to use unchanged, see `TokenizerOrigin`; empty: train them.

    Raises:
        GlassError: the source cannot be read or split, a classifier cannot learn from the labels, the tokenizers cannot
            be trained, or the disk is full; no incomplete result is left.
    """
    existing_tokenizers = existing_tokenizers or corpus_tokenizers(data.source)
    with no_empty_folders(cache), open_sources(kind, data, cache) as (source, validation_source):
        if existing_tokenizers:
            source = with_names(source, existing_tokenizers[0])
            validation_source = with_names(validation_source, existing_tokenizers[0]) if validation_source else None
        return prepare_source(source, validation_source, tokenizer, cache, progress, existing_tokenizers)


def corpus_tokenizers(source: str) -> tuple[Tokenizer, ...]:
    """Return the tokenizer of a generated corpus that has its own; empty for all other sources."""
    from glassformer.corpora import CORPORA
    from glassformer.corpora.numbers import Numbers

    corpus = CORPORA.get(source)
    return (Tokenizer(number_tokenizer_json(*corpus.tokenizer())),) if isinstance(corpus, Numbers) else ()


def prepare_source(
    source: Source,
    validation_source: Source | None,
    tokenizer: TokenizerConfig,
    cache: Path,
    progress: Progress = silent,
    existing_tokenizers: tuple[Tokenizer, ...] = (),
) -> Prepared:
    """Prepare open sources, as `prepare` does; `validation_source` is the separate validation source, or None."""
    kind = source.kind
    folder = folder_of(cache, _cache_inputs(source, validation_source, tokenizer, existing_tokenizers))
    if prepared := reusable(folder, lambda folder: open_prepared(kind, folder)):
        return _with_current_names(prepared, source, validation_source)
    with building(cache, folder, lambda folder: open_prepared(kind, folder)) as temporary:
        write_prepared(
            source,
            validation_source,
            TokenizerOrigin(tokenizer, existing_tokenizers=existing_tokenizers),
            temporary,
            progress,
        )
    return _open_folder(kind, folder, reused=False)


def open_prepared(kind: RecordKind, folder: Path) -> Prepared:
    """Open a result of `prepare` without its source. Checksums are verified, except for very large files.

    Raises:
        DamagedStoreError: a file in the folder is missing, cut short or altered, or another version wrote it.
    """
    prepared = _open_folder(kind, folder, reused=True)
    for store in (prepared.train, prepared.validation):
        for tokens in store.tokens.values():
            check_store(tokens)
    for name, (size, digest) in _read_facts(folder).get("sums", {}).items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != size:
            raise damaged(folder, f"{name} is missing or cut short")
        if size <= CHECKED_IN_FULL and sha256(path) != digest:
            raise damaged(folder, f"{name} was altered")
    return prepared


def _cache_inputs(
    source: Source,
    validation_source: Source | None,
    tokenizer: TokenizerConfig,
    existing_tokenizers: tuple[Tokenizer, ...],
) -> dict[str, Any]:
    """Return all inputs that determine the result.

    The settings `windows` and `too_long` are not included, because they only affect how rows are made later.
    """
    kind = source.kind
    data = source.data
    inputs: dict[str, Any] = {"version": kind.version, "tokenizer": tokenizer.model_dump()}
    if existing_tokenizers:
        inputs["tokenizer"] = [each.digest for each in existing_tokenizers]
    readings = [*source.readings, *(validation_source.readings if validation_source else [])]
    if kind.running_text:
        settings = data.model_dump(include=set(RUNNING_TEXT_SETTINGS))
        settings["seed"] = data.seed if data.split == "random" else None
        return inputs | {"source": source.digest, "data": settings, "tables": readings, "mask": kind.mask_token}
    settings = data.model_dump(include=set(EXAMPLE_SETTINGS))
    if validation_source is None:
        settings |= data.model_dump(
            include={*SPLIT_SETTINGS, "seed"} if data.split == "random" else set(SPLIT_SETTINGS)
        )
    if kind.loss_spans:
        settings["chat_template"] = data.chat_template
    return inputs | {
        "task": kind.task,
        "sources": [source.digest, validation_source.digest if validation_source else None],
        "data": settings,
        "tables": readings,
    }


@dataclass(frozen=True)
class RecordPlan:
    """The records of a source and their split; each iteration reads the source again.

    Attributes:
        source: the source.
        validation_source: the separate validation source, or None.
        source_survey, validation_survey: the survey of each source.
        split: the split.
    """

    source: Source
    validation_source: Source | None
    source_survey: Survey
    validation_survey: Survey | None
    split: Split

    @property
    def labels(self) -> Mapping[str, int] | None:
        """Return the index of each label by name; None for records without labels."""
        return None if isinstance(self.split, DocumentSplit) else self.split.labels

    @property
    def characters(self) -> int:
        """Return the number of characters in all texts."""
        surveys = [self.source_survey, self.validation_survey] if self.validation_survey else [self.source_survey]
        return sum(each.characters + each.other_characters for each in surveys)

    def split_pieces(self) -> Iterator[SplitPiece]:
        """Return the records of both splits, each in the order of its source."""
        split = self.split
        if isinstance(split, DocumentSplit):
            return split.split_pieces(kept_pieces(self.source, self.source_survey, marks=split.bucket >= 0))
        validation_pieces = (
            split.validation(kept_records(self.validation_source)) if self.validation_source else iter(())
        )
        return chain(split.split_pieces(kept_records(self.source)), validation_pieces)

    def training_texts(self, *roles: str) -> Iterable[str]:
        """Return the texts of the training split in these roles; each iteration reads the source again."""
        return TrainingTexts(self.split_pieces, [self.source.kind.roles.index(role) for role in roles])


@dataclass(frozen=True)
class TrainingTexts:
    """The texts of the training split in some roles; each iteration reads the source again."""

    split_pieces: Callable[[], Iterable[SplitPiece]]
    roles: list[int]

    def __iter__(self) -> Iterator[str]:
        for split, texts, _, _, _ in self.split_pieces():
            if split == "train":
                for role in self.roles:
                    yield from re.split(f"[{END_MARK}{START_MARK}]", texts[role])


def plan_records(source: Source, validation_source: Source | None = None) -> RecordPlan:
    """Survey the sources and choose the records to hold out.

    Raises:
        GlassError: no record is kept, the records cannot be split, or a classifier cannot learn from their labels.
    """
    source_survey = survey(source)
    validation_survey = survey(validation_source, source.data.seed) if validation_source else None
    if source.kind.running_text:
        return RecordPlan(
            source, validation_source, source_survey, validation_survey, split_documents(source_survey, source.data)
        )
    return RecordPlan(
        source,
        validation_source,
        source_survey,
        validation_survey,
        split_records(source_survey, source.data, source.name, validation_source is not None),
    )


def write_prepared(
    source: Source,
    validation_source: Source | None,
    tokenizer_origin: TokenizerOrigin,
    folder: Path,
    progress: Progress,
) -> None:
    """Fill an empty folder with all files that `open_prepared` reads."""
    kind = source.kind
    progress(f"counting {'documents' if kind.running_text else 'examples'}")
    plan = plan_records(source, validation_source)
    if tokenizer_origin.file is None and not tokenizer_origin.existing_tokenizers:
        progress(f"training the tokenizer ({tokenizer_origin.config.kind})")
    tokenizers = tokenizer_origin.tokenizers(kind, plan.training_texts)
    if kind.loss_spans and not tokenizer_origin.existing_tokenizers:
        _refuse_special_names(source.data.chat_template, tokenizers[kind.roles[0]])
    save_tokenizers(folder, kind, tokenizers)
    writers = _write_stores(plan, tokenizers, folder, Meter("encoding", plan.characters, progress))
    stores = {split: writer.stores for split, writer in writers.items()}
    encoding_notes = token_notes(kind, tokenizers, stores, sum(writer.forced_cuts for writer in writers.values()))
    if isinstance(plan.split, DocumentSplit):
        notes = [*source.notes, *survey_notes(plan.source_survey)]
        notes += document_split_notes(plan.source_survey, plan.split, source.data, stores)
        write_text_facts(folder, source, tokenizer_origin, tokenizers[kind.roles[0]], [*notes, *encoding_notes])
        return
    source_notes = _source_notes(source, validation_source, writers["train"].records, writers["validation"].records)
    write_facts(
        folder,
        {
            "version": kind.version,
            "text_hash": hash_of_sources(source, validation_source),
            "tokenizers": [tokenizers[kind.roles[0]].digest, tokenizers[kind.roles[-1]].digest],  # one role: twice
            "labels": list(plan.labels or ()),
            "notes": {
                "source": source_notes["source"],
                "found": survey_notes(plan.source_survey),
                "own": source_notes["own"],
                "own_found": survey_notes(plan.validation_survey) if plan.validation_survey else [],
                "split": source_notes["split"],
                "labels": label_notes(plan.source_survey, plan.validation_survey, plan.labels),
                "overlap": overlap_notes(plan.source_survey, plan.validation_survey, plan.split.held_out),
                "tokens": encoding_notes,
            },
            "unknown_share": unknown_share(stores["train"]),
            "sums": writers["train"].sums | writers["validation"].sums,
        },
    )


def _write_stores(
    plan: RecordPlan, tokenizers: Mapping[str, Tokenizer], folder: Path, meter: Meter
) -> dict[SplitName, RecordWriter]:
    with ExitStack() as stack:
        writers: dict[SplitName, RecordWriter] = {}
        for split in SPLITS:
            writers[split] = RecordWriter(plan.source.kind, folder / split, tokenizers, plan.labels, meter)
            stack.callback(writers[split].abandon)
        for split, texts, labels, last, loss_spans in plan.split_pieces():
            writers[split].add(texts, labels, last, loss_spans)
        for writer in writers.values():
            writer.close()
        if plan.labels is not None and not writers["validation"].records:
            raise GlassError(
                "no validation example has a label that is in the training split",
                "Set data.split to random, or set data.validation to data with the same labels.",
            )
        return writers


def _refuse_special_names(template: str, tokenizer: Tokenizer) -> None:
    """Raise a `GlassError` if a chat template contains the name of a special token of the newly trained tokenizer."""
    for id in sorted(tokenizer.special):
        name = tokenizer.token_text(id)
        if name in template:
            raise GlassError(
                f"data.chat_template writes {name}, a special token of the tokenizer, which would be read as text",
                "In --chat-template FILE, write {{ eos_token }} where a message ends, and plain words elsewhere.",
            )


def save_tokenizers(folder: Path, kind: RecordKind, tokenizers: Mapping[str, Tokenizer]) -> None:
    """Save the tokenizers of all roles.

    The tokenizer of the last role is saved as tokenizer.json. If another role has a different tokenizer, that tokenizer
    is saved as ROLE_tokenizer.json.
    """
    for role, tokenizer in tokenizers.items():
        if role == kind.roles[-1]:
            tokenizer.save(folder / "tokenizer.json")
        elif tokenizer is not tokenizers[kind.roles[-1]]:
            tokenizer.save(folder / f"{role}_tokenizer.json")


def write_text_facts(
    folder: Path, source: Source, tokenizer_origin: TokenizerOrigin, tokenizer: Tokenizer, notes: list[str]
) -> None:
    """Write the metadata of running text beside its stores; a training run adopts its `settings`."""
    data = source.data.model_dump(include={*RUNNING_TEXT_SETTINGS, "seed"})
    settings: dict[str, dict[str, Any]] = {"data": data, "tokenizer": tokenizer_origin.config.model_dump()}
    if tokenizer_origin.file is not None:
        tokenizer_settings = {
            name: getattr(tokenizer, name) for name in ("kind", "vocab_size", "normalization", "lowercase")
        }
        settings["tokenizer"] = TokenizerConfig(**tokenizer_settings).model_dump()
    write_facts(
        folder,
        {
            "version": source.kind.version,
            "source": source.name,
            "text_hash": source.digest,
            "tokenizer": tokenizer.digest,
            "settings": settings,
            "notes": notes,
        },
    )


def write_facts(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write the metadata of prepared stores to `prepared.json` in their folder."""
    write_text(folder / "prepared.json", json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


def _source_notes(
    source: Source, validation_source: Source | None, train: int, validation: int
) -> dict[str, list[str]]:
    """Return the groups of notes that name files, and so differ if the same data is in another location."""
    split = record_split_note(source, validation_source, train, validation)
    return {
        "source": list(source.notes),
        "own": list(validation_source.notes) if validation_source else [],
        "split": [split],
    }


def _with_current_names(prepared: Prepared, source: Source, validation_source: Source | None) -> Prepared:
    """Return reused data with the current names of its files in its notes, if the notes are stored by group."""
    groups = _read_facts(prepared.folder)["notes"]
    if isinstance(groups, list):
        return prepared
    # Each group keeps its position.
    groups |= _source_notes(source, validation_source, len(prepared.train), len(prepared.validation))
    return replace(prepared, notes=list(chain.from_iterable(groups.values())))


def _read_facts(folder: Path) -> dict[str, Any]:
    path = folder / "prepared.json"
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(facts, dict):
            raise TypeError
    except FileNotFoundError:
        raise damaged(folder, f"{path.name} is missing") from None
    except MALFORMED:
        raise damaged(folder, f"{path.name} is not valid") from None
    return facts


def _open_folder(kind: RecordKind, folder: Path, reused: bool) -> Prepared:
    with convert_os_errors(folder):
        facts = _read_facts(folder)
        try:
            digests = [facts["tokenizer"]] if kind.running_text else list(facts["tokenizers"])
            labels = tuple(facts.get("labels", ()))
            groups = facts["notes"]
            notes = list(groups if kind.running_text else chain.from_iterable(groups.values()))
            text_hash = facts["text_hash"]
            version = facts["version"]
        except MALFORMED:
            raise damaged(folder, "prepared.json is not valid") from None
        if version != kind.version:
            raise damaged(folder, "another version of glassformer wrote it")
        tokenizers = _open_tokenizers(kind, folder, digests)
        stores = {split: RecordStore.open(kind, folder / split) for split in SPLITS}
        for role, tokenizer in tokenizers.items():
            if any(store.tokens[role].tokenizer_digest != tokenizer.digest for store in stores.values()):
                raise damaged(folder, "its stores were written with other tokenizers")
        return Prepared(
            kind, tokenizers, stores["train"], stores["validation"], labels, folder, text_hash, reused, notes
        )


def _open_tokenizers(kind: RecordKind, folder: Path, digests: list[str]) -> dict[str, Tokenizer]:
    """Load the tokenizer of each role; the files must have these digests."""
    tokenizers: dict[str, Tokenizer] = {}
    for role, digest in zip(kind.roles, digests, strict=False):  # labelled texts have one role, and two equal digests
        own_file = role != kind.roles[-1] and digest != digests[-1]
        path = folder / (f"{role}_tokenizer.json" if own_file else "tokenizer.json")
        if not path.is_file() or sha256(path) != digest:
            raise damaged(folder, f"{path.name} is missing or was altered")
        same = [tokenizer for tokenizer in tokenizers.values() if tokenizer.digest == digest]
        tokenizers[role] = same[0] if same else Tokenizer.load(path)
    return tokenizers
