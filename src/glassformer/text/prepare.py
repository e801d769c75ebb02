"""Turn a source into a tokenizer and two token stores, made once and cached until text or settings change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.base.config import DataConfig, TokenizerConfig
from glassformer.base.errors import MALFORMED, GlassError
from glassformer.base.files import clear_disk_errors, no_empty_folders, write_text
from glassformer.base.wording import counted
from glassformer.text.cache import building, check_store, folder_of, reusable
from glassformer.text.documents import Survey, kept_pieces, survey
from glassformer.text.encode import Encoder, Meter
from glassformer.text.reading import Source, open_source
from glassformer.text.split import NEAR_ENOUGH, Side, SidedPiece, Split, plan_split, sided
from glassformer.text.store import DamagedStoreError, StoreWriter, TokenStore
from glassformer.text.tables import ONLY_TABLES
from glassformer.text.tokenizers import Tokenizer, train_tokenizer

VERSION = 1  # of the whole procedure: a change in what it writes makes older results unusable
MATTERS = (
    "column",
    "encoding",
    "document",
    "min_words",
    "max_words",
    "split",
    "validation_fraction",
    "validation_limit",
)
"""Settings of `data` that decide, with `seed` and those of `NEWER`, what the stores hold."""
NEWER = {"clean": False, "duplicates": "keep"} | dict.fromkeys(ONLY_TABLES, "auto")
"""More of them, which older results were made without: the values that change nothing."""
SIDES: tuple[Side, Side] = ("train", "validation")


@dataclass(frozen=True)
class Prepared:
    """A prepared text for training.

    Attributes:
        tokenizer: trained on the training part only.
        train, validation: the two token stores.
        folder: where all of it lies; `open_prepared(folder)` opens it again without the source.
        text_hash: sha256 over the source's content.
        reused: nothing had to be made.
        notes: what a person should know: encoding, documents left out, the split, tokens per character, unknown share.
    """

    tokenizer: Tokenizer
    train: TokenStore
    validation: TokenStore
    folder: Path
    text_hash: str
    reused: bool
    notes: list[str]


def _silent(message: str) -> None:
    """Progress that nobody reads."""


@dataclass(frozen=True)
class Vocabulary:
    """The origin of the tokenizer: `file`, or training by `config`, with a mask token for the task "masked"."""

    config: TokenizerConfig
    mask: bool = False
    file: Path | None = None

    def tokenizer(self, texts: Iterable[str]) -> Tokenizer:
        """The tokenizer of the file, or one trained on the texts."""
        if self.file is None:
            return train_tokenizer(self.config, texts, self.mask)
        found = Tokenizer.load(self.file)
        if self.mask and found.mask_id is None:
            raise GlassError(f"{self.file} has no mask token", "Give the tokenizer of a masked run, or train one.")
        return found


def prepare(
    data: DataConfig,
    tokenizer: TokenizerConfig,
    cache: Path,
    progress: Callable[[str], None] = _silent,
    mask: bool = False,
) -> Prepared:
    """Read, split, train the tokenizer, encode; or reuse what an earlier call made of the same text and settings.

    Args:
        cache: a folder for results; each lies in a subfolder named by a hash of the text and the settings.
        progress: told in words how far the work is.
        mask: the tokenizer shall have a mask token, for the task "masked".

    Raises:
        GlassError: the source cannot be read or split, the disk is full, no permission; nothing half-made is left.
    """
    with no_empty_folders(cache), open_source(data, cache) as source:
        return prepare_source(source, data, tokenizer, cache, progress, mask)


def prepare_source(
    source: Source,
    data: DataConfig,
    tokenizer: TokenizerConfig,
    cache: Path,
    progress: Callable[[str], None] = _silent,
    mask: bool = False,
) -> Prepared:
    """Prepare a source that is already open, as `prepare` does."""
    folder = folder_of(cache, _everything(source, data, tokenizer, mask))
    if found := reusable(folder, _checked):
        return found
    with building(cache, folder, _checked) as temporary:
        make(source, data, Vocabulary(tokenizer, mask), temporary, progress)
    return _open(folder, reused=False)


def open_prepared(folder: Path) -> Prepared:
    """Open what `prepare` made, without its source.

    Raises:
        DamagedStoreError: something in the folder is missing, cut short or altered.
    """
    return _checked(folder)


def _everything(source: Source, data: DataConfig, tokenizer: TokenizerConfig, mask: bool) -> dict[str, Any]:
    """All that the result depends on. `windows` matters only when rows are cut, later."""
    matters: dict[str, Any] = data.model_dump(include=set(MATTERS))
    matters["seed"] = data.seed if data.split == "random" else None
    matters |= {name: value for name, value in data.model_dump(include=set(NEWER)).items() if value != NEWER[name]}
    everything = {"version": VERSION, "source": source.digest, "data": matters, "tokenizer": tokenizer.model_dump()}
    if source.readings:
        everything["tables"] = source.readings
    if mask:
        everything["mask"] = True
    return everything


def _checked(folder: Path) -> Prepared:
    """Open the content of the folder, and compare its bytes with their sums unless they are very many."""
    found = _open(folder, reused=True)
    for store in (found.train, found.validation):
        check_store(store)
    return found


@dataclass(frozen=True)
class TrainingTexts:
    """The training part as strings, read anew each time it is iterated over."""

    sides: Callable[[], Iterable[SidedPiece]]

    def __iter__(self) -> Iterator[str]:
        for side, text, _ in self.sides():
            if side == "train":
                yield text


def sides(source: Source, data: DataConfig, found: Survey, split: Split) -> Iterator[SidedPiece]:
    """The whole source once more, each piece with its side."""
    return sided(kept_pieces(source, data, found, marks=split.bucket >= 0), split)


def make(
    source: Source,
    data: DataConfig,
    vocabulary: Vocabulary,
    folder: Path,
    progress: Callable[[str], None],
) -> None:
    """Fill an empty folder with all that `open_prepared` reads."""
    progress("counting documents")
    found = survey(source, data)
    split = plan_split(found, data)
    if vocabulary.file is None:
        progress(f"training the tokenizer ({vocabulary.config.kind})")
    tokenizer = vocabulary.tokenizer(TrainingTexts(lambda: sides(source, data, found, split)))
    tokenizer.save(folder / "tokenizer.json")
    writers = {side: StoreWriter(folder / side, tokenizer) for side in SIDES}
    encoder = Encoder(tokenizer, writers, Meter("encoding", found.characters, progress))
    try:
        encoder.encode(sides(source, data, found, split))
        for writer in writers.values():
            writer.close()
    finally:
        for writer in writers.values():
            writer.abandon()
    notes = [*source.notes, *survey_notes(found), *split_notes(found, split, data, writers)]
    notes += token_notes(tokenizer, writers, encoder.forced_cuts)
    write_facts(folder, source, data, vocabulary, tokenizer, notes)


def write_facts(
    folder: Path, source: Source, data: DataConfig, vocabulary: Vocabulary, tokenizer: Tokenizer, notes: list[str]
) -> None:
    """Write what is known of the stores in a folder beside them; `settings` is what a training run takes over."""
    settings: dict[str, dict[str, Any]] = {"data": data.model_dump(include={*MATTERS, *NEWER, "seed"})}
    settings["tokenizer"] = vocabulary.config.model_dump()
    if vocabulary.file is not None:
        own = {name: getattr(tokenizer, name) for name in ("kind", "vocab_size", "normalization", "lowercase")}
        settings["tokenizer"] = TokenizerConfig(**own).model_dump()
    facts = {
        "version": VERSION,
        "source": source.name,
        "text_hash": source.digest,
        "tokenizer": tokenizer.digest,
        "settings": settings,
        "notes": notes,
    }
    write_text(folder / "prepared.json", json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


def survey_notes(found: Survey) -> list[str]:
    """Return notes on the number of documents, and on those left out."""
    notes = [f"{counted(found.documents, 'documents')}, {counted(found.characters, 'characters')}"]
    return notes + found.tally.notes()


def split_notes(found: Survey, split: Split, data: DataConfig, writers: dict[Side, StoreWriter]) -> list[str]:
    """Return notes on the part that is held out, and on documents that both parts share."""
    train = writers["train"]
    held = writers["validation"]
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
    if found.documents > 1 and (repeated := len(marks) - len(np.unique(marks))):
        most = "at least " if found.documents > len(marks) else ""
        notes.append(f"{most}{counted(repeated, 'documents repeat', 'document repeats')} another")
        both = int(np.isin(marks[train.documents :], marks[: train.documents]).sum())
        if split.bucket < 0 and both:
            stand = counted(both, "validation documents also stand", "validation document also stands")
            notes.append(f"{stand} in the training part; data.split = random keeps them apart")
    return notes


def token_notes(tokenizer: Tokenizer, writers: dict[Side, StoreWriter], forced_cuts: int) -> list[str]:
    """Describe in words the tokenizer, and what it made of the two parts."""
    notes = [tokenizer.description()]
    for side, writer in writers.items():
        tokens = writer.tokens - writer.documents
        characters = max(writer.characters, 1)
        unknown = f", {writer.unknown / max(tokens, 1):.3%} unknown" if tokenizer.unknown_id is not None else ""
        notes.append(f"{side}: {writer.tokens:,} tokens, {tokens / characters:.3f} per character{unknown}")
    if forced_cuts:
        notes.append(f"{counted(forced_cuts, 'cuts')} in very long words may have changed a token each")
    return notes


def _open(folder: Path, reused: bool) -> Prepared:
    path = folder / "prepared.json"
    with clear_disk_errors(folder):
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            saved = (folder / "tokenizer.json").read_bytes()
            text_hash = facts["text_hash"]
            digest = facts["tokenizer"]
            notes = list(facts["notes"])
            version = facts["version"]
        except FileNotFoundError as error:
            raise _damaged(folder, f"{Path(error.filename).name} is missing") from None
        except MALFORMED:
            raise _damaged(folder, f"{path.name} is not usable") from None
        train = TokenStore.open(folder / "train")
        validation = TokenStore.open(folder / "validation")
        if version != VERSION or hashlib.sha256(saved).hexdigest() != digest:
            raise _damaged(folder, "tokenizer.json was altered, or another version wrote it")
        if {train.tokenizer_digest, validation.tokenizer_digest} != {digest}:
            raise _damaged(folder, "its stores were written with another tokenizer")
        tokenizer = Tokenizer.load(folder / "tokenizer.json")
        return Prepared(tokenizer, train, validation, folder, text_hash, reused, notes)


def _damaged(folder: Path, why: str) -> DamagedStoreError:
    return DamagedStoreError(
        f"the prepared text in {folder} is damaged: {why}", "Prepare the text again from its source."
    )
