"""Prepare the text of a run and store it beside the run; find the text again after the run was moved."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from glassformer.base.config import Config, DataConfig
from glassformer.base.errors import GlassError
from glassformer.base.wording import quoted
from glassformer.corpora import CORPORA
from glassformer.runs.folder import Run
from glassformer.runs.text_location import SOURCES, candidate_texts, token_cache, token_folders
from glassformer.text.encoded import open_encoded
from glassformer.text.hashing import text_hash
from glassformer.text.locating import is_encoded
from glassformer.text.prepare import Prepared, open_prepared, prepare
from glassformer.text.records import RECORD_KINDS
from glassformer.text.store import DamagedStoreError
from glassformer.text.tokenizers import Tokenizer

MOST_UNKNOWN = 0.05
"""Maximum fraction of unknown tokens in a text that is encoded with the tokenizers of another run."""


def prepare_run_text(
    config: Config, cache: Path, note: Callable[[str], None], tokenizers: tuple[Tokenizer, ...] = ()
) -> Prepared:
    """Read, split and encode the text of a run for its task.

    Args:
        config: all settings.
        cache: the folder of encoded texts.
        note: function that receives each progress message.
        tokenizers: tokenizers to use unchanged, as from `tokenizers_of`; empty: train tokenizers on the text, or, if
            it is already encoded, use the tokenizer that encoded it.

    Raises:
        GlassError: the text cannot be read or split, too many of its tokens are unknown to the given tokenizers, or
            the disk is full.
    """
    kind = RECORD_KINDS[config.train.task]
    if kind.running_text and is_encoded(Path(config.data.source).expanduser()):
        data = open_encoded(kind, config.data, config.tokenizer, tokenizers)
    else:
        data = prepare(kind, config.data, config.tokenizer, cache, note, tokenizers)
    for role, store in data.train.tokens.items() if tokenizers else ():
        if store.unknown_share > MOST_UNKNOWN:
            raise GlassError(
                f"{store.unknown_share:.1%} of the tokens of {config.data.source} ({role}) are unknown to the "
                f"tokenizer of the run to start from: {data.tokenizers[role].description()}",
                "Start from a run whose tokenizer was trained on such texts or encodes any byte (bpe, bytes, unigram), "
                "or leave --from out.",
            )
    return data


def tokenizers_of(run: Run, config: Config) -> tuple[Tokenizer, ...]:
    """Return the tokenizers of a run: one tokenizer, or those of source and target if there are two vocabularies."""
    target = Tokenizer.load(run.tokenizer_file)
    return (Tokenizer.load(run.source_tokenizer_file), target) if config.two_vocabularies else (target,)


def open_text(config: Config, stored: Path) -> Prepared:
    """Open the prepared text in the folder `stored`, usually a folder of the token cache."""
    return open_prepared(RECORD_KINDS[config.train.task], stored)


def stored_text(run: Run, config: Config) -> Prepared:
    """Return the encoded text of a run, from its recorded folder or from the token cache beside the run.

    Raises:
        DamagedStoreError: the encoded text is missing or damaged, or the folder contains another text.
        GlassError: the run was imported or saved by an estimator and has no text, or its manifest is missing or
            damaged.
    """
    manifest = run.manifest()
    is_imported = "imported" in manifest
    if is_imported or not manifest["data"]["text_hash"]:
        raise GlassError(
            f"{run.folder} was {'imported' if is_imported else 'saved by an estimator'} without its training text",
            f"Evaluate it on another text: glass evaluate {quoted(run.folder)} DATA. "
            "Such a run cannot be resumed or pruned.",
        )
    problems: list[str] = []
    for stored in token_folders(run):
        try:
            data = open_text(config, stored)
        except GlassError as error:
            problems.append(error.problem if stored.is_dir() else f"{stored} is gone")
            continue
        vocabulary = {"tokenizer.json": data.tokenizer.digest}
        if config.two_vocabularies:
            vocabulary["source_tokenizer.json"] = data.source_tokenizer.digest
        if data.text_hash != manifest["data"]["text_hash"]:
            problems.append(f"{stored} has another text: its hash differs")
        elif not vocabulary.items() <= manifest["files"].items() or data.labels != run.labels():
            problems.append(f"{stored} was encoded with another tokenizer or other labels")
        else:
            return data
    raise DamagedStoreError(problems[0], f"Encode the text again: glass evaluate {quoted(run.folder)}")


def find_or_encode_text(
    run: Run, config: Config, note: Callable[[str], None], named_paths: Mapping[str, str] | None = None
) -> Prepared:
    """Return the encoded text of a run; if it is missing or paths are given, find the text and encode it again.

    Args:
        run: the run, which may have been moved.
        config: settings of the run.
        note: function that receives a note if the encoded text is missing and is searched for or encoded again.
        named_paths: current `source` and `target` of `data`; None: search for the text.

    Raises:
        GlassError: the text is not found, or its hash, split, tokenizers or labels differ from those of the run.
    """
    problem = ""
    if not named_paths:
        recorded = token_folders(run)[0]
        try:
            data = stored_text(run, config)
        except DamagedStoreError as error:
            problem = error.problem
        else:
            if data.folder != recorded:
                note(f"{recorded} is gone: using {data.folder}")
            return data
    current_config = _locate_text(run, config, named_paths or {}, problem)
    files = " and ".join(filter(None, (current_config.data.source, current_config.data.target)))
    note(f"{problem}: reading {files} again" if problem else f"reading {files}, the text of {run.folder}")
    tokenizers = tokenizers_of(run, config) if run.parent_entry() is not None else ()  # trained on the parent's text
    data = prepare_run_text(current_config, token_cache(run.folder), note, tokenizers)
    if data.text_hash != run.manifest()["data"]["text_hash"]:
        raise GlassError(f"{files} changed while being read", "Run the same command again.")
    if run.manifest()["data"]["parts"] != split_hashes(data):
        raise GlassError(
            f"the training and validation splits of {files} differ from those of {run.folder}",
            "Install the version of glassformer that the run's manifest.json names, or start a new run.",
        )
    is_same = data.tokenizer.digest == Tokenizer.load(run.tokenizer_file).digest
    if config.two_vocabularies:
        is_same &= data.source_tokenizer.digest == Tokenizer.load(run.source_tokenizer_file).digest
    if not is_same:
        raise GlassError(
            f"a tokenizer trained again on {files} differs from that of {run.folder}: a library version may differ",
            "Install the versions that the run's manifest.json names, or give glass evaluate another text.",
        )
    if data.labels != run.labels():
        raise GlassError(
            f"the labels of {config.data.source} differ (in names or order) from those of {run.folder}, "
            f"which are {', '.join(run.labels())}",
            "Restore the run's labels.json, or start a new run.",
        )
    return data


def split_hashes(data: Prepared) -> dict[str, str]:
    """Return a hash of the texts in each split, so that another split of the same text is detected."""
    return {"train": data.train.text_hash, "validation": data.validation.text_hash}


def text_stamp(data: DataConfig) -> str | None:
    """Return a hash of the names, sizes and modification times of a run's text files, without reading them.

    It is None for standard input, generated corpora, and files that cannot be found.
    """
    names = [name for name in (getattr(data, field) for field in SOURCES) if name is not None]
    if "-" in names or not names or names[0] in CORPORA:
        return None
    stamps: list[tuple[str, int, int]] = []
    try:
        for path in (Path(name).expanduser() for name in names):
            for file in sorted(path.rglob("*")) if path.is_dir() else (path,):
                status = file.stat()
                stamps.append((str(file.relative_to(path)), status.st_size, status.st_mtime_ns))
    except OSError:
        return None
    return hashlib.sha256(json.dumps(stamps).encode("utf-8")).hexdigest()


def note_of_changed_text(run: Run, config: Config) -> str | None:
    """Return a note if the text files of a run were changed since the run began; None if they were not, or are missing.

    They are searched for as in `candidate_texts`, and read only if their sizes or modification times differ from those
    in the manifest.
    """
    recorded = run.manifest()["data"]
    note = None
    for data in candidate_texts(run, config.data, {}):
        stamp = text_stamp(data)
        if stamp in (None, recorded["stamp"]):
            return None
        try:
            if text_hash(RECORD_KINDS[config.train.task], data, token_cache(run.folder)) == recorded["text_hash"]:
                return None
        except GlassError as error:
            reason = error.problem
            remedy = ""
        else:
            files = [name for name in (data.source, data.target) if name is not None]
            reason = f"{' and '.join(files)} differs from the text with which this run began"
            remedy = (
                f"; to train on the new text: glass train {' '.join(map(quoted, files))} --from {quoted(run.folder)} "
                "--out NEW"
            )
        note = note or f"{reason}. Training resumes on the text as it was, which is stored encoded{remedy}"
    return note


def _locate_text(run: Run, config: Config, named_paths: Mapping[str, str], problem: str) -> Config:
    """Return the settings with the current location of the run's text, which is found by its hash."""
    if "-" in named_paths.values():
        raise GlassError(
            "standard input cannot be compared with the text of a run", "Save the input to a file, and name the file."
        )
    expected_hash = run.manifest()["data"]["text_hash"]
    other_sources: list[str] = []
    for data in candidate_texts(run, config.data, named_paths):
        if text_hash(RECORD_KINDS[config.train.task], data, token_cache(run.folder)) == expected_hash:
            return config.replace(data=data.model_dump())
        other_sources.append(data.source)
    if other_sources:
        raise GlassError(
            f"{other_sources[0]} is not the text of {run.folder}: its hash differs",
            "Restore the text, or start a new run.",
        )
    files = " and ".join(filter(None, (config.data.source, config.data.target)))
    raise GlassError(
        f"{f'{problem}, and ' if problem else ''}the text of {run.folder} ({files}) was not found",
        f"Restore the text, or name its new location: glass train --resume --out {quoted(run.folder)} DATA; "
        f"glass evaluate {quoted(run.folder)} DATA",
    )
