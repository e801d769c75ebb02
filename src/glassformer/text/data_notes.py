"""Write notes for the user on prepared data: records read, left out, held out, repeated and encoded."""

from __future__ import annotations

import difflib
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt

from glassformer.base.config import DataConfig
from glassformer.base.wording import counted
from glassformer.text.record_store import RecordStore
from glassformer.text.records import RecordKind
from glassformer.text.source import Source
from glassformer.text.split import NEAR_ENOUGH, DocumentSplit, Held, SplitName
from glassformer.text.store import StoreWriter
from glassformer.text.survey import Survey, mark_of
from glassformer.text.tokenizers import Tokenizer

SHOWN_LABELS = 12
AT_ONCE = 65_536  # number of training records whose hashes are compared together
NUMBER = re.compile(r"[+-]?\d+(\.\d*)?")
Stores = Mapping[SplitName, Mapping[str, StoreWriter]]
Marks = npt.NDArray[np.uint64]


def survey_notes(found: Survey) -> list[str]:
    """Return notes on the number and size of the records, on records left out or changed, and on the labels."""
    kind = found.kind
    characters = counted(found.characters, "characters")
    if not kind.running_text:
        characters = f"{found.characters:,} characters of {kind.roles[0]}"
    if len(kind.roles) > 1:
        characters += f", {found.other_characters:,} of {kind.roles[-1]}"
    notes = [f"{counted(found.records, kind.noun)}, {characters}", *found.tally.notes()]
    if kind.labels != "none":
        counts = found.label_counts()
        each = sorted(found.label_names, key=lambda name: (-counts[found.label_names[name]], name))
        shown = listed([f"{name} ({counts[found.label_names[name]]:,})" for name in each])
        notes.append(f"{counted(len(each), 'labels')}: {shown}")
    return notes


def listed(names: list[str]) -> str:
    """Return up to `SHOWN_LABELS` names, separated by commas, and the number of further names."""
    more = f" and {len(names) - SHOWN_LABELS:,} more" if len(names) > SHOWN_LABELS else ""
    return ", ".join(names[:SHOWN_LABELS]) + more


def document_split_notes(found: Survey, split: DocumentSplit, data: DataConfig, stores: Stores) -> list[str]:
    """Return notes on the validation split of a running text, and on documents that are in both splits."""
    train = stores["train"]["text"]
    held = stores["validation"]["text"]
    share = held.characters / max(train.characters + held.characters, 1)
    size = f"{counted(held.documents, 'documents')}, {counted(held.characters, 'characters')}"
    notes = [f"{split.note} ({size}, {share:.1%})"]
    if abs(share - data.validation_fraction) > NEAR_ENOUGH * data.validation_fraction:
        notes.append(
            f"{share:.1%} of the characters are held out, with data.validation_fraction = "
            f"{data.validation_fraction:g} and data.validation_limit = {data.validation_limit:,} characters"
        )
    if unused := found.characters - train.characters - held.characters:
        notes.append(
            f"{counted(unused, 'characters are', 'character is')} in neither part: "
            "data.validation_limit is shorter than the document held out"
        )
    marks = np.frombuffer(found.marks, dtype=np.uint64)
    if found.records > 1 and (repeated := len(marks) - len(np.unique(marks))):
        most = "at least " if found.records > len(marks) else ""
        notes.append(f"{most}{counted(repeated, 'documents repeat', 'document repeats')} another")
        both = int(np.isin(marks[train.documents :], marks[: train.documents]).sum())
        if split.bucket < 0 and both:
            stand = counted(both, "validation documents also stand", "validation document also stands")
            notes.append(f"{stand} in the training part; data.split = random keeps them apart")
    return notes


def record_split_note(source: Source, own: Source | None, train: int, validation: int) -> str:
    """Return a note on how the validation split was chosen, and how many records it has."""
    labelled = source.kind.labels != "none"
    noun = "texts" if labelled else source.kind.noun
    if own is not None:
        training = f"all of {source.name} is learnt from ({counted(train, noun)})"
        return f"validation: {own.name} ({counted(validation, noun)}); {training}"
    how = "the last ones"
    if source.data.split == "random":
        constraint = "the same share of each label" if labelled else "equal sources together"
        constraint = "equal ones together" if source.kind.loss_spans else constraint
        how = f"drawn at random, {constraint}, seed {source.data.seed}"
    share = validation / max(1, train + validation)
    return f"validation: {validation:,} of {train + validation:,} {noun} ({share:.1%}), {how}"


def label_notes(found: Survey, own: Survey | None, labels: Mapping[str, int] | None) -> list[str]:
    """Return notes on unusual labels: numbers as names, labels seen once, and labels outside the training split."""
    if labels is None:
        return []
    notes = []
    if all(map(NUMBER.fullmatch, found.label_names)):
        notes.append("the labels look like numbers: each is a name (1, 01 and 1.0 would be three)")
    counts = found.label_counts()
    if once := sorted(name for name, number in found.label_names.items() if counts[number] == 1):
        notes.append(f"{counted(len(once), 'labels are', 'label is')} seen once only: {listed(once)}")
    unseen = {name: int(counts[number]) for name, number in found.label_names.items() if name not in labels}
    if unseen:  # these labels occur only in the held-out end of the source
        notes += [*unseen_notes(unseen, list(labels)), "data.split = random keeps some of each label in both parts"]
    if own is not None:
        own_counts = own.label_counts()
        unseen = {name: int(own_counts[number]) for name, number in own.label_names.items() if name not in labels}
        notes += unseen_notes(unseen, list(labels))
    return notes


def unseen_notes(unseen: Mapping[str, int], labels: Sequence[str]) -> list[str]:
    """Return a note on labels outside the training split; no note if `unseen` is empty.

    The note has the number of examples of each label, and the label nearest to the most frequent one, or the known
    labels if none is near.

    Args:
        unseen: number of examples of each label outside the training split.
        labels: labels of the training split.
    """
    if not unseen:
        return []
    most = sorted(unseen, key=lambda name: (-unseen[name], name))
    shown = listed([f"{name} ({unseen[name]:,})" for name in most])
    count = sum(unseen.values())
    close = difflib.get_close_matches(most[0], labels, n=1, cutoff=0.6)
    known = f"nearest to {most[0]} is {close[0]}" if close else f"known are {listed(list(labels))}"
    return [f"left out {counted(count, 'texts')} whose label was never learnt: {shown}; {known}"]


def overlap_notes(found: Survey, own: Survey | None, held: Held) -> list[str]:
    """Return notes on repeated examples, sources with several answers, and texts that are in both splits."""
    sources, both = _marks_of(found)
    pairs = found.kind.labels == "none"
    kind, text, answers = ("pairs", "sources", "targets") if pairs else ("examples", "texts", "labels")
    if found.kind.loss_spans:  # the text is the whole record, so only repeats can be counted
        kind = text = found.kind.noun
    notes = []
    distinct, first = np.unique(both, return_index=True)
    if repeated := len(both) - len(distinct):
        notes.append(f"{counted(repeated, f'{kind} repeat', f'{kind[:-1]} repeats')} another")
    if several := int((np.unique(sources[first], return_counts=True)[1] > 1).sum()):
        notes.append(f"{counted(several, f'{text} have', f'{text[:-1]} has')} several {answers}")
    train = ~held
    held_sources, held_both = _marks_of(own) if own else (sources[held], both[held])
    seen = int(np.isin(held_both, both[train]).sum())
    known = int(np.isin(held_sources, sources[train]).sum()) - seen
    apart = "" if own else "; data.split = random keeps them apart"
    if seen:
        of = f"of {counted(len(held_both), f'validation {kind}')} also stand"
        notes.append(f"{counted(seen, of, f'{of}s')} in the training part{apart}")
    if known > 0:
        more = counted(known, f"more validation {text} stand", f"more validation {text[:-1]} stands")
        notes.append(f"{more} in the training part, with other {answers}{apart}")
    return notes


def overlap_note(store: RecordStore, train: RecordStore) -> str | None:
    """Return a note on the records of `store` that are also in `train`, with equal texts and labels; None if none is.

    Memory: some tens of bytes for each record of `store`, for any length of the texts and any size of `train`.

    Raises:
        ValueError: one of the stores was made without its texts.
    """
    marks = np.fromiter(_whole_marks(store), dtype=np.uint64)
    distinct, counts = np.unique(marks, return_counts=True)
    learnt = np.zeros(len(distinct), dtype=np.bool_)
    known = _whole_marks(train)
    while some := array("Q", islice(known, AT_ONCE)):
        learnt |= np.isin(distinct, np.frombuffer(some, dtype=np.uint64))
    if not learnt.any():
        return None
    of = f"of {counted(len(marks), store.kind.noun)} also stand"
    return f"{counted(int(counts[learnt].sum()), of, f'{of}s')} in the training part"


def _whole_marks(store: RecordStore) -> Iterator[int]:
    return (mark_of("\0".join(parts), 0) for parts in store.texts())


def _marks_of(found: Survey) -> tuple[Marks, Marks]:
    """Return the hashes of the first texts, and of the whole records."""
    return np.frombuffer(found.marks, dtype=np.uint64), np.frombuffer(found.whole_marks, dtype=np.uint64)


def token_notes(kind: RecordKind, tokenizers: Mapping[str, Tokenizer], stores: Stores, forced_cuts: int) -> list[str]:
    """Return notes on the tokenizers, and on the number of tokens in each split."""
    distinct = set(map(id, tokenizers.values()))
    notes = [
        f"{role}: {tokenizer.description()}" if len(distinct) > 1 else tokenizer.description()
        for role, tokenizer in list(tokenizers.items())[: len(distinct)]
    ]
    has_unknown = any(tokenizer.unknown_id is not None for tokenizer in tokenizers.values())
    for side, by_role in stores.items():
        unknown = f", {unknown_share(by_role):.3%} unknown" if has_unknown else ""
        notes.append(f"{side}: {_token_counts(kind, by_role)}{unknown}")
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
