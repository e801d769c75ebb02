"""Write notes for the user on prepared data: records read, left out, held out, repeated and encoded."""

from __future__ import annotations

import difflib
import re
import unicodedata
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt
import regex

from glassformer.base.config import DataConfig
from glassformer.base.wording import counted, listed
from glassformer.text.record_store import RecordStore
from glassformer.text.records import RecordKind
from glassformer.text.source import Source
from glassformer.text.split import NEAR_ENOUGH, DocumentSplit, HeldOutMask, SplitName
from glassformer.text.store import StoreWriter
from glassformer.text.survey import Survey, hash_text
from glassformer.text.tokenizers import Tokenizer

SHOWN_LABELS = 12
AT_ONCE = 65_536  # number of training records whose hashes are compared together
INVISIBLE = regex.compile(r"[\p{Cf}\p{Default_Ignorable_Code_Point}]|(?!\s)\p{Cc}")
DASH = regex.compile(r"\p{Pd}")
APOSTROPHE = re.compile("[\u2018\u2019\u02bc]")
NUMBER = re.compile(r"[+-]?\d+(\.\d*)?")
UNINTENDED = ("left out", " not read", " is read as data", " is read as Windows-1252", " two byte order marks")
"""Words of notes on data that is left out or that is probably not as intended."""
Stores = Mapping[SplitName, Mapping[str, StoreWriter]]
Marks = npt.NDArray[np.uint64]


def survey_notes(survey: Survey) -> list[str]:
    """Return notes on the number and size of the records, on records left out or changed, and on the labels."""
    kind = survey.kind
    characters = counted(survey.characters, "characters")
    if not kind.running_text:
        characters = f"{survey.characters:,} characters of {kind.roles[0]}"
    if len(kind.roles) > 1:
        characters += f", {survey.other_characters:,} of {kind.roles[-1]}"
    notes = [f"{counted(survey.records, kind.noun)}, {characters}", *survey.tally.notes()]
    if kind.labels != "none":
        counts = survey.label_counts()
        labels = sorted(survey.label_names, key=lambda name: (-counts[survey.label_names[name]], name))
        listing = listed([f"{name} ({counts[survey.label_names[name]]:,})" for name in labels], SHOWN_LABELS)
        notes.append(f"{counted(len(labels), 'labels')}: {listing}")
        notes += alike_notes({name: int(counts[number]) for name, number in survey.label_names.items()})
    return notes


def alike_notes(counts: Mapping[str, int]) -> list[str]:
    """Return a note on each group of labels that look alike, given the number of examples of each label."""
    groups: dict[str, list[str]] = {}
    for name in sorted(counts):
        groups.setdefault(_look(name), []).append(name)
    listings = [
        " and ".join(f"{name!a} ({counts[name]:,})" for name in names) for names in groups.values() if names[1:]
    ]
    return [f"labels that look alike are different labels: {listed(listings, SHOWN_LABELS)}"] if listings else []


def _look(label: str) -> str:
    """Return what labels that look alike share.

    Case, composition, width, invisible characters, the kind of dash and the kind of apostrophe do not count.
    """
    visible = INVISIBLE.sub("", unicodedata.normalize("NFKC", label.casefold()))
    return " ".join(APOSTROPHE.sub("'", DASH.sub("-", visible)).split())


def must_be_seen(note: str) -> bool:
    """Return whether a note is on data that is left out or that is probably not as intended."""
    return note.startswith("labels that look alike ") or any(words in note for words in UNINTENDED)


def document_split_notes(survey: Survey, split: DocumentSplit, data: DataConfig, stores: Stores) -> list[str]:
    """Return notes on the validation split of a running text, on duplicates, and on documents in both splits."""
    if split.both:
        return [split.note]
    train = stores["train"]["text"]
    validation = stores["validation"]["text"]
    fraction = validation.characters / max(train.characters + validation.characters, 1)
    size = f"{counted(validation.documents, 'documents')}, {counted(validation.characters, 'characters')}"
    notes = [f"{split.note} ({size}, {fraction:.1%})"]
    if abs(fraction - data.validation_fraction) > NEAR_ENOUGH * data.validation_fraction:
        notes.append(
            f"{fraction:.1%} of the characters are held out, with data.validation_fraction = "
            f"{data.validation_fraction:g} and data.validation_limit = {data.validation_limit:,} characters"
        )
    if unused := survey.characters - train.characters - validation.characters:
        notes.append(
            f"{counted(unused, 'characters are', 'character is')} in neither split, "
            "because the held-out text is longer than data.validation_limit"
        )
    text_hashes = np.frombuffer(survey.marks, dtype=np.uint64)
    if survey.records > 1 and (repeated := len(text_hashes) - len(np.unique(text_hashes))):
        at_least = "at least " if survey.records > len(text_hashes) else ""
        notes.append(f"{at_least}{counted(repeated, 'documents are duplicates', 'document is a duplicate')}")
        shared = int(np.isin(text_hashes[train.documents :], text_hashes[: train.documents]).sum())
        if split.bucket < 0 and shared:
            subject = counted(shared, "validation documents also occur", "validation document also occurs")
            notes.append(f"{subject} in the training split; data.split = random prevents this")
    return notes


def record_split_note(source: Source, validation_source: Source | None, train: int, validation: int) -> str:
    """Return a note on how the validation split was chosen, and on its number of records."""
    labelled = source.kind.labels != "none"
    noun = "texts" if labelled else source.kind.noun
    if validation_source is not None:
        training = f"training: all of {source.name} ({counted(train, noun)})"
        return f"validation: {validation_source.name} ({counted(validation, noun)}); {training}"
    method = "the last ones"
    if source.data.split == "random":
        constraint = "stratified by label" if labelled else "equal sources in the same split"
        constraint = f"equal {noun} in the same split" if source.kind.loss_spans else constraint
        method = f"drawn at random, {constraint}, seed {source.data.seed}"
    fraction = validation / max(1, train + validation)
    return f"validation: {validation:,} of {train + validation:,} {noun} ({fraction:.1%}), {method}"


def label_notes(survey: Survey, validation_survey: Survey | None, labels: Mapping[str, int] | None) -> list[str]:
    """Return notes on unusual labels: numbers, labels that occur only once, and labels outside the training split."""
    if labels is None:
        return []
    notes = []
    if all(map(NUMBER.fullmatch, survey.label_names)):
        notes.append("the labels look like numbers, but are used as names: 1, 01 and 1.0 would be three labels")
    counts = survey.label_counts()
    if single_labels := sorted(name for name, number in survey.label_names.items() if counts[number] == 1):
        names = listed(single_labels, SHOWN_LABELS)
        notes.append(f"{counted(len(single_labels), 'labels occur', 'label occurs')} only once: {names}")
    unseen = {name: int(counts[number]) for name, number in survey.label_names.items() if name not in labels}
    if unseen:  # these labels occur only in the held-out end of the source
        notes += [*unseen_notes(unseen, list(labels)), "data.split = random puts texts of each label in both splits"]
    if validation_survey is not None:
        validation_counts = validation_survey.label_counts()
        unseen = {
            name: int(validation_counts[number])
            for name, number in validation_survey.label_names.items()
            if name not in labels
        }
        notes += unseen_notes(unseen, list(labels))
    return notes


def unseen_notes(unseen: Mapping[str, int], labels: Sequence[str]) -> list[str]:
    """Return a note on labels outside the training split; no note if `unseen` is empty.

    The note has the number of examples of each unseen label (at most `SHOWN_LABELS` labels, the most frequent first),
    and the training label nearest to the most frequent unseen label. If no training label is near, the note lists
    training labels instead.

    Args:
        unseen: number of examples of each label outside the training split.
        labels: labels of the training split.
    """
    if not unseen:
        return []
    by_frequency = sorted(unseen, key=lambda name: (-unseen[name], name))
    listing = listed([f"{name} ({unseen[name]:,})" for name in by_frequency], SHOWN_LABELS)
    count = sum(unseen.values())
    matches = difflib.get_close_matches(by_frequency[0], labels, n=1, cutoff=0.6)
    name = by_frequency[0]
    alike = [label for label in labels if _look(label) == _look(name) and label.casefold() != name.casefold()]
    hint = (
        f"{name!a} looks like the known label {alike[0]!a}, but has other characters"
        if alike
        else f"the known label nearest to {by_frequency[0]} is {matches[0]}"
        if matches
        else f"known labels: {listed(list(labels), SHOWN_LABELS)}"
    )
    return [f"left out {counted(count, 'texts')} with labels that the training split does not have: {listing}; {hint}"]


def overlap_notes(survey: Survey, validation_survey: Survey | None, held_out: HeldOutMask) -> list[str]:
    """Return notes on repeated examples, sources with several answers, and texts that are in both splits."""
    text_hashes, record_hashes = _hashes_of(survey)
    is_pairs = survey.kind.labels == "none"
    record_noun, text_noun, answer_noun = (
        ("pairs", "sources", "targets") if is_pairs else ("examples", "texts", "labels")
    )
    if survey.kind.loss_spans:  # the text is the whole record, so only repeats can be counted
        record_noun = text_noun = survey.kind.noun
    notes = []
    distinct, first = np.unique(record_hashes, return_index=True)
    if repeated := len(record_hashes) - len(distinct):
        notes.append(f"{counted(repeated, f'{record_noun} are duplicates', f'{record_noun[:-1]} is a duplicate')}")
    if with_several_answers := int((np.unique(text_hashes[first], return_counts=True)[1] > 1).sum()):
        notes.append(
            f"{counted(with_several_answers, f'{text_noun} have', f'{text_noun[:-1]} has')} several {answer_noun}"
        )
    train = ~held_out
    validation_text_hashes, validation_record_hashes = (
        _hashes_of(validation_survey) if validation_survey else (text_hashes[held_out], record_hashes[held_out])
    )
    repeated_records = int(np.isin(validation_record_hashes, record_hashes[train]).sum())
    repeated_texts = int(np.isin(validation_text_hashes, text_hashes[train]).sum()) - repeated_records
    hint = "" if validation_survey else "; data.split = random prevents this"
    if repeated_records:
        subject = f"of {counted(len(validation_record_hashes), f'validation {record_noun}')} also occur"
        notes.append(f"{counted(repeated_records, subject, f'{subject}s')} in the training split{hint}")
    if repeated_texts > 0:
        subject = counted(repeated_texts, f"validation {text_noun} occur", f"validation {text_noun[:-1]} occurs")
        notes.append(f"{subject} in the training split, with other {answer_noun}{hint}")
    return notes


def overlap_note(store: RecordStore, train: RecordStore) -> str | None:
    """Return a note on the records of `store` that also occur, with equal labels, in `train`; None if there are none.

    Memory use is a few tens of bytes per record of `store`; it does not depend on the length of the texts or on the
    size of `train`.

    Raises:
        ValueError: one of the stores was made without its texts.
    """
    record_hashes = np.fromiter(_record_hashes(store), dtype=np.uint64)
    distinct, counts = np.unique(record_hashes, return_counts=True)
    in_training = np.zeros(len(distinct), dtype=np.bool_)
    training_hashes = _record_hashes(train)
    while chunk := array("Q", islice(training_hashes, AT_ONCE)):
        in_training |= np.isin(distinct, np.frombuffer(chunk, dtype=np.uint64))
    if not in_training.any():
        return None
    subject = f"of {counted(len(record_hashes), store.kind.noun)} also occur"
    return f"{counted(int(counts[in_training].sum()), subject, f'{subject}s')} in the training split"


def _record_hashes(store: RecordStore) -> Iterator[int]:
    return (hash_text("\0".join(parts), 0) for parts in store.texts())


def _hashes_of(survey: Survey) -> tuple[Marks, Marks]:
    """Return the hash of the first text of each record, and the hash of each whole record."""
    return np.frombuffer(survey.marks, dtype=np.uint64), np.frombuffer(survey.whole_marks, dtype=np.uint64)


def token_notes(kind: RecordKind, tokenizers: Mapping[str, Tokenizer], stores: Stores, forced_cuts: int) -> list[str]:
    """Return notes on the tokenizers, and on the number of tokens in each split."""
    distinct = set(map(id, tokenizers.values()))
    notes = [
        f"{role}: {tokenizer.description()}" if len(distinct) > 1 else tokenizer.description()
        for role, tokenizer in list(tokenizers.items())[: len(distinct)]
    ]
    has_unknown = any(tokenizer.unknown_id is not None for tokenizer in tokenizers.values())
    for split, by_role in stores.items():
        unknown = f", {unknown_share(by_role):.3%} unknown" if has_unknown else ""
        notes.append(f"{split}: {_token_counts(kind, by_role)}{unknown}")
    if forced_cuts:
        notes.append(f"{counted(forced_cuts, 'cuts')} in very long words may have changed a token each")
    return notes


def _token_counts(kind: RecordKind, stores: Mapping[str, StoreWriter]) -> str:
    if kind.running_text:
        store = stores["text"]
        per_character = (store.tokens - store.documents) / max(store.characters, 1)
        return f"{store.tokens:,} tokens, {per_character:.3f} per character"
    counts = [
        f"{store.tokens - store.documents:,} {f'{role} ' if len(stores) > 1 else ''}tokens"
        for role, store in stores.items()
    ]
    return ", ".join(counts)


def unknown_share(stores: Mapping[str, StoreWriter]) -> float:
    """Return the fraction of tokens that are unknown, over all texts; end tokens are not counted."""
    tokens = sum(store.tokens - store.documents for store in stores.values())
    return sum(store.unknown for store in stores.values()) / max(1, tokens)
