"""Notes for a person on their examples, in words and numbers."""

from __future__ import annotations

import difflib
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from glassformer.base.config import PAIRS
from glassformer.base.wording import counted
from glassformer.text.documents import mark_of
from glassformer.text.example_source import ExampleSource
from glassformer.text.example_split import ExampleSurvey, Side
from glassformer.text.examples import ExampleStore, ExampleWriter
from glassformer.text.tokenizers import Tokenizer

SHOWN_LABELS = 12
AT_ONCE = 65_536  # examples of the training part whose hashes are compared together
NUMBER = re.compile(r"[+-]?\d+(\.\d*)?")


def source_notes(source: ExampleSource, found: ExampleSurvey, labels: Mapping[str, int] | None) -> list[str]:
    """Say how many examples the source has, and what was left out; how it was read is in its own notes."""
    kind = "pairs" if source.task in PAIRS else "labelled texts"
    characters = f"{int(np.sum(found.characters)):,} characters of {'source' if labels is None else 'text'}"
    if labels is None:
        characters += f", {found.answer_characters:,} of target"
    notes = [f"{counted(len(found), kind)}, {characters}", *found.tally.notes()]
    if labels is not None:
        counts = np.bincount(np.frombuffer(found.numbers, dtype=np.int32))
        each = sorted(found.names, key=lambda name: (-counts[found.names[name]], name))
        shown = listed([f"{name} ({counts[found.names[name]]:,})" for name in each])
        notes.append(f"{counted(len(each), 'labels')}: {shown}")
    return notes


def listed(names: list[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - SHOWN_LABELS:,} more" if len(names) > SHOWN_LABELS else ""
    return ", ".join(names[:SHOWN_LABELS]) + more


def split_note(source: ExampleSource, own: ExampleSource | None, train: int, validation: int) -> str:
    """Say how the validation part was chosen, and how large it is."""
    kind = "pairs" if source.task in PAIRS else "texts"
    if own is not None:
        learnt = f"all of {source.name} is learnt from ({counted(train, kind)})"
        return f"validation: {own.name} ({counted(validation, kind)}); {learnt}"
    how = "the last ones"
    if source.data.split == "random":
        drawn = "equal sources together" if source.task in PAIRS else "the same share of each label"
        how = f"drawn at random, {drawn}, seed {source.data.seed}"
    share = validation / max(1, train + validation)
    return f"validation: {validation:,} of {train + validation:,} {kind} ({share:.1%}), {how}"


def label_notes(found: ExampleSurvey, own: ExampleSurvey | None, labels: Mapping[str, int] | None) -> list[str]:
    """Say what is odd about the labels."""
    if labels is None:
        return []
    notes = []
    if all(map(NUMBER.fullmatch, found.names)):
        notes.append("the labels look like numbers: each is a name (1, 01 and 1.0 would be three)")
    numbers = np.frombuffer(found.numbers, dtype=np.int32)
    counts = np.bincount(numbers)
    if once := sorted(name for name, number in found.names.items() if counts[number] == 1):
        notes.append(f"{counted(len(once), 'labels are', 'label is')} seen once only: {listed(once)}")
    unseen = {name: int(counts[number]) for name, number in found.names.items() if name not in labels}
    if unseen:  # only in the end of the source, which is held out
        notes += [*unseen_notes(unseen, list(labels)), "data.split = random keeps some of each label in both parts"]
    if own is not None:
        own_counts = np.bincount(np.frombuffer(own.numbers, dtype=np.int32))
        unseen = {name: int(own_counts[number]) for name, number in own.names.items() if name not in labels}
        notes += unseen_notes(unseen, list(labels))
    return notes


def unseen_notes(unseen: Mapping[str, int], labels: Sequence[str]) -> list[str]:
    """Name labels that were never learnt, with how many examples each, and the known one that is nearest."""
    if not unseen:
        return []
    most = sorted(unseen, key=lambda name: (-unseen[name], name))
    shown = listed([f"{name} ({unseen[name]:,})" for name in most])
    count = sum(unseen.values())
    close = difflib.get_close_matches(most[0], labels, n=1, cutoff=0.6)
    known = f"nearest to {most[0]} is {close[0]}" if close else f"known are {listed(list(labels))}"
    return [f"left out {counted(count, 'texts')} whose label was never learnt: {shown}; {known}"]


def overlap_notes(found: ExampleSurvey, own: ExampleSurvey | None, held: Side, pairs: bool) -> list[str]:
    """Count examples that repeat, sources with several answers, and texts on both sides of the split."""
    sources = found.marks("sources")
    both = found.marks("pairs")
    kind, text, answers = ("pairs", "sources", "targets") if pairs else ("examples", "texts", "labels")
    notes = []
    distinct, first = np.unique(both, return_index=True)
    if repeated := len(both) - len(distinct):
        notes.append(f"{counted(repeated, f'{kind} repeat', f'{kind[:-1]} repeats')} another")
    if several := int((np.unique(sources[first], return_counts=True)[1] > 1).sum()):
        notes.append(f"{counted(several, f'{text} have', f'{text[:-1]} has')} several {answers}")
    train = ~held
    held_sources, held_both = (own.marks("sources"), own.marks("pairs")) if own else (sources[held], both[held])
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


def overlap_note(store: ExampleStore, train: ExampleStore) -> str | None:
    """Count the examples of `store` that stand in `train` too, source and target (or label) both equal; None: no one.

    Memory: some 20 bytes for each example of `store`, whatever the length of the texts and the size of `train`.

    Raises:
        ValueError: one of them was made without its texts.
    """
    marks = np.fromiter(_marks(store), dtype=np.uint64)
    distinct, counts = np.unique(marks, return_counts=True)
    learnt = np.zeros(len(distinct), dtype=np.bool_)
    known = _marks(train)
    while some := array("Q", islice(known, AT_ONCE)):
        learnt |= np.isin(distinct, np.frombuffer(some, dtype=np.uint64))
    if not learnt.any():
        return None
    kind = "pairs" if store.labels is None else "labelled texts"
    of = f"of {counted(len(marks), kind)} also stand"
    return f"{counted(int(counts[learnt].sum()), of, f'{of}s')} in the training part"


def _marks(store: ExampleStore) -> Iterator[int]:
    return (mark_of(f"{source}\0{answer}", 0) for source, answer in store.texts())


def token_notes(train: ExampleWriter, validation: ExampleWriter, tokenizers: tuple[Tokenizer, Tokenizer]) -> list[str]:
    """The tokenizers, and how many tokens each side has."""
    source, target = tokenizers
    notes = [source.description()] if source is target else [f"source: {source.description()}"]
    if source is not target:
        notes.append(f"target: {target.description()}")
    for name, writer in (("train", train), ("validation", validation)):
        stores = [("source ", writer.sources), ("target ", writer.targets)]
        told = ", ".join(
            f"{store.tokens - store.documents:,} {which if writer.targets else ''}tokens"
            for which, store in stores
            if store
        )
        unknown = source.unknown_id is not None or target.unknown_id is not None
        notes.append(f"{name}: {told}" + (f", {writer.unknown_share:.3%} unknown" if unknown else ""))
    return notes
