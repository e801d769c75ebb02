"""Turn pairs or labelled texts into tokenizers and two example stores, made once and cached until anything changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np

from glassformer.base.config import PAIRS, DataConfig, Task, TokenizerConfig
from glassformer.base.errors import MALFORMED, GlassError
from glassformer.base.files import clear_disk_errors, no_empty_folders, sha256, write_text
from glassformer.text.cache import CHECKED_IN_FULL, building, check_store, folder_of, reusable
from glassformer.text.encode import Meter
from glassformer.text.example_notes import label_notes, overlap_notes, source_notes, split_note, token_notes
from glassformer.text.example_source import ExampleSource, open_examples
from glassformer.text.example_split import ExampleSurvey, Side, hold_out, refuse_useless_labels, survey_examples
from glassformer.text.examples import ExampleStore, ExampleWriter, PreparedExamples, damaged
from glassformer.text.hashing import hash_of_examples
from glassformer.text.tally import Tally
from glassformer.text.tokenizers import Tokenizer, train_tokenizer

VERSION = 2  # of the whole procedure: a change in what it writes makes older results unusable
Which = Literal["train", "validation"]
Example = tuple[str, str]
Tokenizers = tuple[Tokenizer, Tokenizer]


def _silent(message: str) -> None:
    """Progress that nobody reads."""


def prepare_examples(
    task: Task,
    data: DataConfig,
    tokenizer: TokenizerConfig,
    cache: Path,
    progress: Callable[[str], None] = _silent,
) -> PreparedExamples:
    """Read, split, train the tokenizers, encode; or reuse what an earlier call made of the same data and settings.

    Args:
        task: "translate" or "summarize" (pairs), or "classify" (labelled texts).
        cache: a folder for results; each lies in a subfolder named by a hash of the data and the settings.
        progress: told in words how far the work is.

    Raises:
        GlassError: the data cannot be read or split, the labels are none, the disk is full; nothing half-made is left.
    """
    with no_empty_folders(cache), ExitStack() as stack:
        source = stack.enter_context(open_examples(task, data, cache))
        own = stack.enter_context(open_examples(task, data, cache, validation=True)) if data.validation else None
        return prepare_sources(source, own, tokenizer, cache, progress)


def prepare_sources(
    source: ExampleSource,
    own: ExampleSource | None,
    tokenizer: TokenizerConfig,
    cache: Path,
    progress: Callable[[str], None] = _silent,
) -> PreparedExamples:
    """Prepare sources that are already open; `own` is the validation source, if there is one."""
    folder = folder_of(cache, _everything(source.task, source, own, tokenizer))
    if found := reusable(folder, open_prepared_examples):
        return _named_again(found, source, own)
    with building(cache, folder, open_prepared_examples) as temporary:
        _make(source, own, tokenizer, temporary, progress)
    return _open(folder, reused=False)


def open_prepared_examples(folder: Path) -> PreparedExamples:
    """Open what `prepare_examples` made, without its source; bytes are compared with their sums unless very many.

    Raises:
        DamagedStoreError: something in the folder is missing, cut short or altered.
    """
    found = _open(folder, reused=True)
    sums = json.loads((folder / "prepared.json").read_text(encoding="utf-8"))["sums"]
    for side in (found.train, found.validation):
        for store in (side.sources, side.targets):
            if store is not None:
                check_store(store)
    for name, (size, digest) in sums.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != size:
            raise damaged(folder, f"{name} is missing or cut short")
        if size <= CHECKED_IN_FULL and sha256(path) != digest:
            raise damaged(folder, f"{name} was altered")
    return found


def _everything(
    task: Task, source: ExampleSource, own: ExampleSource | None, tokenizer: TokenizerConfig
) -> dict[str, Any]:
    """All that the result depends on. `too_long` matters only when examples are cut, later."""
    matters: dict[str, Any] = source.data.model_dump(
        include={"column", "target_column", "label_column", "encoding", "min_words", "max_words"}
    )
    if own is None:
        names = {"split", "validation_fraction", "validation_limit"}
        matters |= source.data.model_dump(include={*names, "seed"} if source.data.split == "random" else names)
    digests = [source.digest, own.digest if own else None]
    readings = [*source.readings, *(own.readings if own else [])]
    if readings:
        matters["tables"] = readings
    facts = {"data": matters, "tokenizer": tokenizer.model_dump()}
    return {"version": VERSION, "task": task, "sources": digests, **facts}


@dataclass(frozen=True)
class Plan:
    """Every example and its side; read anew each time.

    Attributes:
        own: the source of the validation part, where it has one.
        found, own_found: what was counted in each.
        held: (examples of the source,) True: validation.
        labels: index by name, of those that stand in the training part; None for pairs.
    """

    source: ExampleSource
    own: ExampleSource | None
    found: ExampleSurvey
    own_found: ExampleSurvey | None
    held: Side
    labels: dict[str, int] | None

    def train(self) -> Iterator[Example]:
        """The examples to learn from."""
        return (example for side, example in self.all() if side == "train")

    def all(self) -> Iterator[tuple[Which, Example]]:
        """Both sides, each in the order of its source; validation examples with a label never seen are left out."""
        for number, example in enumerate(self.source.examples(Tally())):
            if number >= len(self.held):
                raise GlassError(f"{self.source.name} changed while it was read", "Run the same command again.")
            if not self.held[number] or self.known(example):
                yield "validation" if self.held[number] else "train", example
        if self.own is not None:
            yield from (("validation", example) for example in self.own.examples(Tally()) if self.known(example))

    def known(self, example: Example) -> bool:
        """Return whether its label stands in the training part."""
        return self.labels is None or example[1] in self.labels

    @property
    def characters(self) -> int:
        """Return the characters of all texts."""
        surveys = [self.found, self.own_found] if self.own_found else [self.found]
        return sum(int(np.sum(found.characters)) + found.answer_characters for found in surveys)


def _planned(source: ExampleSource, own: ExampleSource | None) -> Plan:
    data = source.data
    labelled = source.task not in PAIRS
    found = survey_examples(source, data, labelled)
    if labelled:
        refuse_useless_labels(found, source.name)
    own_found = survey_examples(own, data, labelled) if own else None
    held = np.zeros(len(found), dtype=np.bool_) if own else hold_out(found, data)
    if not labelled:
        return Plan(source, own, found, own_found, held, None)
    seen = set(np.unique(np.frombuffer(found.numbers, dtype=np.int32)[~held]).tolist())
    names = sorted(name for name, number in found.names.items() if number in seen)
    if len(names) < 2:
        raise GlassError(
            f"the training part of {source.name} has one label only: {names[0]!r}",
            "Set data.split to random: the file is sorted by its labels.",
        )
    return Plan(source, own, found, own_found, held, {name: index for index, name in enumerate(names)})


@dataclass(frozen=True)
class TrainingTexts:
    """The texts of the training part, read anew each time it is iterated over; `sides`: 0 sources, 1 targets."""

    plan: Plan
    sides: tuple[int, ...]

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable([example[side] for side in self.sides] for example in self.plan.train())


def _tokenizers(plan: Plan, config: TokenizerConfig, folder: Path) -> Tokenizers:
    if plan.labels is not None or config.joint:
        sides = (0,) if plan.labels is not None else (0, 1)
        both = train_tokenizer(config, TrainingTexts(plan, sides))
        both.save(folder / "tokenizer.json")
        return both, both
    source, target = (train_tokenizer(config, TrainingTexts(plan, (side,))) for side in (0, 1))
    source.save(folder / "source_tokenizer.json")
    target.save(folder / "tokenizer.json")
    return source, target


def _make(
    source: ExampleSource,
    own: ExampleSource | None,
    config: TokenizerConfig,
    folder: Path,
    progress: Callable[[str], None],
) -> None:
    progress("counting examples")
    plan = _planned(source, own)
    progress(f"training the tokenizer ({config.kind})")
    tokenizers = _tokenizers(plan, config, folder)
    writers = _written(plan, tokenizers, folder, Meter("encoding", plan.characters, progress))
    train = writers["train"]
    validation = writers["validation"]
    named = _named_notes(source, own, len(train), len(validation))
    notes = {
        "source": named["source"],
        "found": source_notes(source, plan.found, plan.labels),
        "own": named["own"],
        "own_found": source_notes(own, plan.own_found, plan.labels) if own and plan.own_found else [],
        "split": named["split"],
        "labels": label_notes(plan.found, plan.own_found, plan.labels),
        "overlap": overlap_notes(plan.found, plan.own_found, plan.held, plan.labels is None),
        "tokens": token_notes(train, validation, tokenizers),
    }
    facts = {
        "version": VERSION,
        "text_hash": hash_of_examples(source, own),
        "tokenizers": [tokenizer.digest for tokenizer in tokenizers],
        "labels": list(plan.labels) if plan.labels is not None else [],
        "notes": notes,
        "unknown_share": train.unknown_share,
        "sums": train.sums | validation.sums,
    }
    write_text(folder / "prepared.json", json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


def _named_notes(source: ExampleSource, own: ExampleSource | None, train: int, validation: int) -> dict[str, list[str]]:
    """The groups of notes that name files: equal data from elsewhere has other ones."""
    split = split_note(source, own, train, validation)
    return {"source": list(source.notes), "own": list(own.notes) if own else [], "split": [split]}


def _named_again(found: PreparedExamples, source: ExampleSource, own: ExampleSource | None) -> PreparedExamples:
    """Return the examples made of equal data, with the names that its files have now."""
    groups = json.loads((found.folder / "prepared.json").read_text(encoding="utf-8"))["notes"]
    groups |= _named_notes(source, own, len(found.train), len(found.validation))  # in their old places
    return replace(found, notes=list(chain.from_iterable(groups.values())))


def _written(plan: Plan, tokenizers: Tokenizers, folder: Path, meter: Meter) -> dict[Which, ExampleWriter]:
    with ExitStack() as stack:
        writers: dict[Which, ExampleWriter] = {}
        for side in ("train", "validation"):
            writers[side] = ExampleWriter(folder / side, tokenizers, plan.labels)
            stack.callback(writers[side].abandon)
        done = 0
        for side, (source, target) in plan.all():
            writers[side].add(source, target)
            done += len(source) + (len(target) if plan.labels is None else 0)
            meter(done)
        if not len(writers["validation"]):
            raise GlassError(
                "no validation example has a label that stands in the training part",
                "Set data.split to random, or give a data.validation with the same labels.",
            )
        for writer in writers.values():
            writer.close()
        return writers


def _open(folder: Path, reused: bool) -> PreparedExamples:
    path = folder / "prepared.json"
    with clear_disk_errors(folder):
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            version = facts["version"]
            digests = list(facts["tokenizers"])
            told = (tuple(facts["labels"]), folder, facts["text_hash"], reused)
            notes = list(chain.from_iterable(facts["notes"].values()))
            unknown_share = float(facts["unknown_share"])
            facts["sums"].items()
        except FileNotFoundError:
            raise damaged(folder, f"{path.name} is missing") from None
        except MALFORMED:
            raise damaged(folder, f"{path.name} is not usable") from None
        names = ["source_tokenizer.json" if len(set(digests)) > 1 else "tokenizer.json", "tokenizer.json"]
        for name, digest in zip(names, digests, strict=True):
            if not (folder / name).is_file() or sha256(folder / name) != digest or version != VERSION:
                raise damaged(folder, f"{name} is missing or was altered, or another version wrote it")
        target = Tokenizer.load(folder / "tokenizer.json")
        source = target if names[0] == names[1] else Tokenizer.load(folder / names[0])
        train = ExampleStore.open(folder / "train")
        validation = ExampleStore.open(folder / "validation")
        for side in (train, validation):
            if [side.sources.tokenizer_digest, (side.targets or side.sources).tokenizer_digest] != digests:
                raise damaged(folder, "its stores were written with other tokenizers")
        return PreparedExamples(target, source, train, validation, *told, notes, unknown_share)
