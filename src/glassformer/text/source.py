"""Open sources of running text, pairs, labelled texts or conversations: files, folders, tables, generated corpora."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain, count, islice, zip_longest
from pathlib import Path

from glassformer.base.config import DataConfig
from glassformer.base.errors import GlassError
from glassformer.base.wording import counted, listed
from glassformer.text.chat_template import NO_NAMES, ChatTemplate
from glassformer.text.cleaning import cleaned
from glassformer.text.columns import (
    ChosenColumns,
    choose_conversation,
    choose_labelled,
    choose_pair,
    choose_text,
    label_texts,
    plain_text,
)
from glassformer.text.conversations import CHAT_COLUMNS, conversation_records
from glassformer.text.dataset_folders import Part, with_split, without_split
from glassformer.text.delimited import text_lines
from glassformer.text.documents import documents
from glassformer.text.left_out import Tally
from glassformer.text.locating import SHOWN_NAMES, Located, located
from glassformer.text.reading import (
    SourceFile,
    describe_tables,
    formats_of,
    is_table,
    readings_of,
    refuse_plain_json,
    scan_files,
    tables_of,
    with_table,
)
from glassformer.text.records import RecordKind, RecordPiece
from glassformer.text.special_names import SpecialNames
from glassformer.text.tables import Table, refuse_idle_settings
from glassformer.text.tokenizers import Tokenizer

SHOWN_CHARACTERS = 40  # of a line, in an error
NOT_A_TEXT = "rows with a list or an object instead of a text"
FIRST = 50  # number of records hashed for a generated corpus, so that a change of its generator changes the digest
_REMEDIES = {
    "none": "Set data.target to the file of targets, or give a table (.csv, .tsv, .jsonl) of sources and targets.",
    "one": "Give a table (.csv, .tsv, .jsonl) with a label column, or a folder with one subfolder per label.",
    "several": "Give a .jsonl file whose label field contains a list.",
}
_CONVERSATION_REMEDY = "Give a .jsonl file with a list of messages in each line, or a table of questions and answers."


@dataclass(frozen=True)
class Source:
    """A source of records, which can be read repeatedly.

    Attributes:
        kind: the kind of records.
        data: the settings for reading the source.
        name: name of the source for messages.
        files: two parallel files, or tables, or texts (labelled texts are in folders named after their labels); empty
            for a generated corpus.
        corpus: the name of a generated corpus; None for files.
        digest: a hash of all the content; for a generated corpus, of its name, size and seed and of its first records.
        notes: notes for the user on how the source is read.
        parallel: whether line n of the second file is the target of line n of the first.
        names: names of the special tokens that a chat template may write.
        split: the split that is read, if the source is a folder with several.
    """

    kind: RecordKind
    data: DataConfig
    name: str
    files: tuple[SourceFile, ...]
    corpus: str | None
    digest: str
    notes: tuple[str, ...]
    parallel: bool = False
    names: SpecialNames = NO_NAMES
    split: str | None = None

    @property
    def size(self) -> int:
        """Return the size of all files in bytes, unpacked (0 for a generated corpus)."""
        return sum(file.scan.size for file in self.files)

    @property
    def readings(self) -> list[list[object]]:
        """Return the settings used to read each table; together with `digest`, they identify the records."""
        return readings_of(self.files)

    def records(self, tally: Tally) -> Iterator[RecordPiece]:
        """Yield all records in order, before any filter; rows that are not records are counted in `tally`."""
        return self._running_text(tally) if self.kind.running_text else self._examples(tally)

    def _running_text(self, tally: Tally) -> Iterator[RecordPiece]:
        """Yield files, paragraphs or lines of plain text, rows of tables, or documents of a generated corpus."""
        number = 0
        for texts in self._texts(tally):
            first = True
            if self.data.clean:
                texts = cleaned(texts)
            for text, last in texts:
                yield RecordPiece(number, (text,), (), "", first, last)
                first = last
                number += last

    def _texts(self, tally: Tally) -> Iterator[Iterator[tuple[str, bool]]]:
        if self.corpus is not None:
            yield ((text, True) for (text,), _ in _generated_records(self.kind, self.corpus, self.data))
        for file in self.files:
            if file.format == "text":
                yield from documents(file.text(), self.data.document)
            else:
                yield ((row.texts[0], True) for row in _table_rows(self.kind, file, count(), tally))

    def _examples(self, tally: Tally) -> Iterator[RecordPiece]:
        numbers = count()
        if self.kind.loss_spans:
            template = ChatTemplate(self.data.chat_template)
            yield from conversation_records(self._conversations(tally), template, tally, self.names)
        elif self.corpus is not None:
            for number, (texts, labels) in enumerate(_generated_records(self.kind, self.corpus, self.data)):
                position = f"example {number + 1} of {self.corpus}"
                names = tuple(_label(label, position, tally) for label in labels)
                yield RecordPiece(number, texts, names, position)
        elif self.parallel:
            yield from _line_by_line(self.files[0], self.files[1], tally)
        else:
            for file in self.files:
                if file.table is None:
                    label = _label(_label_of(file), file.name, tally)
                    yield RecordPiece(next(numbers), ("".join(file.text()),), (label,), file.name)
                elif self.kind.labels == "none":
                    yield from _table_rows(self.kind, file, numbers, tally)
                else:
                    yield from _labelled_rows(self.kind, file, numbers, tally)

    def _conversations(self, tally: Tally) -> Iterator[tuple[str, CHAT_COLUMNS]]:
        """Yield the position of each conversation, and the values of its row by their use."""
        if self.corpus is not None:
            from glassformer.corpora import find_conversation_corpus

            conversations = find_conversation_corpus(self.corpus).conversations(self.data.size, self.data.seed)
            for number, messages in enumerate(conversations, start=1):
                yield f"conversation {number} of {self.corpus}", {"messages": [messages]}
        for file in self.files:
            assert file.chosen is not None
            for line, values in file.rows(tally):
                position = f"line {line} of {file.name}"
                used = zip(file.chosen.uses, values, strict=True)
                given = [(use, value) for use, value in used if value is not None or use not in ("context", "system")]
                written = [value for use, value in given if use != "messages"]
                texts = _texts_of(written, "rows without a conversation", position, tally)
                if texts is None:
                    continue
                by_use: dict[str, list[object]] = {}
                remaining = iter(texts)
                for use, value in given:
                    by_use.setdefault(use, []).append(value if use == "messages" else next(remaining))
                yield position, by_use


def _label(label: str, position: str, tally: Tally) -> str:
    """Return a label without the spaces around it."""
    name = label.strip()
    if name and name != label:
        tally.remark("labels with spaces around them, which are removed", position)
    return name


def _label_of(file: SourceFile) -> str:
    """Return the label of a text in a folder: the first component of its relative path."""
    return file.name.partition("/")[0]


def _generated_records(
    kind: RecordKind, corpus: str, data: DataConfig
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield the texts and labels of each record that a generated corpus makes."""
    from glassformer.corpora import (
        find_conversation_corpus,
        find_labelled_corpus,
        find_pair_corpus,
        find_text_corpus,
    )

    if kind.running_text:
        return (((text,), ()) for text in find_text_corpus(corpus).documents(data.size, data.seed))
    if kind.loss_spans:
        conversations = find_conversation_corpus(corpus).conversations(data.size, data.seed)
        return ((tuple(message["content"] for message in messages), ()) for messages in conversations)
    if kind.labels == "none":
        return ((pair, ()) for pair in find_pair_corpus(corpus).pairs(data.size, data.seed))
    return (((text,), (label,)) for text, label in find_labelled_corpus(corpus).labelled(data.size, data.seed))


def _line_by_line(first: SourceFile, second: SourceFile, tally: Tally) -> Iterator[RecordPiece]:
    """Yield a record for each line number of two parallel files; blank lines at the end of only one file are left out.

    Only `\\n` or `\\r\\n` ends a line, as in the usual tools for parallel files.
    """
    lines = [text_lines(file.text(), file.name) for file in (first, second)]
    for number, (source, target) in enumerate(zip_longest(*lines), start=1):
        if source is None or target is None:
            longer_index = 0 if target is None else 1
            remaining_lines = chain([source or target or ""], lines[longer_index])
            _refuse_unequal((first.name, second.name), longer_index, number, remaining_lines, tally)
            return
        position = f"line {number} of {first.name} and {second.name}"
        yield RecordPiece(number - 1, (_without_line_end(source), _without_line_end(target)), (), position)


def _refuse_unequal(
    names: tuple[str, str], longer_index: int, number: int, remaining_lines: Iterator[str], tally: Tally
) -> None:
    """Raise a `GlassError` if the longer of two files has text from line `number` on; else count its blank lines."""
    line_count = blank_count = 0
    first_text = ""
    for line in remaining_lines:
        line_count += 1
        blank_count += not line.strip()
        first_text = first_text or line.strip()[:SHOWN_CHARACTERS]
    if line_count == blank_count:
        remark = f"blank lines at the end of {names[longer_index]}, where the other file has none"
        tally.remarks[remark] = blank_count
        return
    line_counts = [number - 1, number - 1]
    line_counts[longer_index] += line_count
    raise GlassError(
        f"{names[0]} has {counted(line_counts[0], 'lines')} and {names[1]} has {line_counts[1]:,}, so they are not "
        "parallel",
        f"Make line n of one file match line n of the other: {names[1 - longer_index]} ends before line {number:,} of "
        f"{names[longer_index]} (next text: {first_text!r}).",
    )


def _without_line_end(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


def _table_rows(kind: RecordKind, file: SourceFile, numbers: Iterator[int], tally: Tally) -> Iterator[RecordPiece]:
    """Yield a record for each row of a table; count and leave out rows that lack a text in a column."""
    reason = "rows without text in " + ("that column" if len(kind.roles) == 1 else "both columns")
    for line, values in file.rows(tally):
        position = f"line {line} of {file.name}"
        texts = _texts_of(values, reason, position, tally)
        if texts is not None:
            yield RecordPiece(next(numbers), tuple(texts), (), position)


def _texts_of(values: list[object], reason: str, position: str, tally: Tally) -> list[str] | None:
    """Return the values of a row as texts; count the row and return None if a value is not a text."""
    texts = [text for value in values if (text := plain_text(value)) is not None]
    if len(texts) < len(values):
        tally.leave_out(NOT_A_TEXT if any(isinstance(value, list | dict) for value in values) else reason, position)
        return None
    if not all(isinstance(value, str) for value in values):
        tally.remark("rows with a number, true or false that is read as text", position)
    return texts


def _labelled_rows(kind: RecordKind, file: SourceFile, numbers: Iterator[int], tally: Tally) -> Iterator[RecordPiece]:
    """Yield a record for each row of a table; count and leave out rows without a label.

    The texts of several columns are joined by newlines; empty texts are left out.
    """
    for line, (value, *columns) in file.rows(tally):
        position = f"line {line} of {file.name}"
        labels = label_texts(value, kind)
        if labels is None:
            nested = isinstance(value, list | dict)
            tally.leave_out("rows with a list or an object as label" if nested else "rows without a label", position)
            continue
        texts = _texts_of([column for column in columns if column is not None], "", position, tally)
        if texts is not None:
            text = "\n".join(text for text in texts if text.strip())
            names = tuple(_label(label, position, tally) for label in labels)
            yield RecordPiece(next(numbers), (text,), names, position)


@contextmanager
def open_source(kind: RecordKind, data: DataConfig, cache: Path, part: Part = "train") -> Iterator[Source]:
    """Locate the source that `data` names, read every byte to check it, and describe the source.

    Args:
        kind: the kind of records to read.
        data: the source and how to read it.
        cache: the folder for a copy of standard input or a pipe, which is deleted at the end of the `with` block.
        part: the use of the source, by which a split of a folder is chosen; "validation": open `data.validation`, or
            without it the split for validation of the folder `data.source`.

    Raises:
        GlassError: the source is missing, empty, binary or in an unknown encoding; a setting cannot be combined with
            the task or with another setting; or the columns of a table are not clear.
    """
    source_name, target = data.source, data.target
    if part == "validation" and data.validation is not None:
        source_name, target = data.validation, data.validation_target
    _refuse_misplaced_settings(kind, data)
    with ExitStack() as stack:
        located_source = stack.enter_context(located(source_name, cache))
        location = with_split(located_source, part, held_out=not kind.running_text and data.validation is None)
        if location.corpus:
            # Another seed, so that validation and training records differ if both come from the same corpus.
            validation = part == "validation"
            corpus_data = data.model_copy(update={"seed": data.seed + 1}) if validation else data
            source = _from_corpus(kind, corpus_data, location, "validation_target" if validation else "target", target)
            seed_notes = ("the seed of a generated validation split is data.seed + 1",) if validation else ()
            yield replace(source, notes=(*source.notes, *seed_notes))
        elif target is not None:
            yield _from_parallel_files(
                kind, data, [(source_name, location), (target, stack.enter_context(located(target, cache)))]
            )
        else:
            source = (_from_texts if kind.running_text else _from_examples)(kind, data, source_name, location)
            if part != "validation":  # data.validation may have another format than data.source
                refuse_idle_settings(tables_of(source.files), data, source_name)
            yield replace(source, split=location.split)


@contextmanager
def open_sources(kind: RecordKind, data: DataConfig, cache: Path) -> Iterator[tuple[Source, Source | None]]:
    """Open the source, and the separate validation source: `data.validation`, or a split of the folder `data.source`.

    Running text has no separate validation source: a part of the text is held out.
    """
    with ExitStack() as stack:
        source = stack.enter_context(open_source(kind, data, cache))
        separate = data.validation is not None or (source.split is not None and not kind.running_text)
        yield source, stack.enter_context(open_source(kind, data, cache, "validation")) if separate else None


def with_names(source: Source, tokenizer: Tokenizer) -> Source:
    """Return a source whose chat template may write the special tokens of a tokenizer by name.

    A source whose records are not conversations is returned unchanged.
    """
    return replace(source, names=SpecialNames.of(tokenizer)) if source.kind.loss_spans else source


def hash_of_sources(source: Source, validation_source: Source | None) -> str:
    """Return a hash of a source's content and, except for running text, of a separate validation source's content."""
    if source.kind.running_text:
        return source.digest
    return hashlib.sha256(
        f"{source.digest} {validation_source.digest if validation_source else ''}".encode("ascii")
    ).hexdigest()


def _refuse_misplaced_settings(kind: RecordKind, data: DataConfig) -> None:
    if kind.running_text:
        for name, tasks in (
            ("target", "translate or summarize"),
            ("target_column", "translate, summarize or chat"),
            ("label_column", "classify"),
        ):
            if getattr(data, name) is not None:
                raise GlassError(
                    f"data.{name} was given, but train.task = {kind.task} reads running text",
                    f"Leave data.{name} out, or set train.task to {tasks}.",
                )
        return
    pairs = "target" in kind.roles
    fields: tuple[str, ...] = ("label_column",) if pairs else ("target", "target_column")
    if kind.loss_spans:
        fields = ("label_column", "target")
    if data.target is not None:
        fields = (*fields, "column", "target_column")
    for name in fields:
        if getattr(data, name) is not None:
            why = "data.target" if pairs and name != "label_column" else f"train.task = {kind.task}"
            raise GlassError(f"data.{name} cannot be combined with {why}", f"Leave data.{name} out.")


def _from_corpus(
    kind: RecordKind, data: DataConfig, location: Located, target_setting: str, target: str | None
) -> Source:
    name = location.corpus
    assert name is not None
    settings = (
        (target_setting, target),
        ("column", data.column),
        ("target_column", data.target_column),
        ("label_column", data.label_column),
    )
    for setting, value in settings:
        if value is not None:
            raise GlassError(
                f"data.{setting} cannot be combined with the generated corpus {name}", f"Leave data.{setting} out."
            )
    refuse_idle_settings((), data, name)
    first_texts = [
        part for record in islice(_generated_records(kind, name, data), FIRST) for parts in record for part in parts
    ]
    digest = _digest([name, str(data.size), str(data.seed), *first_texts])
    noun = "documents" if kind.running_text else "examples"
    notes = (*location.notes, f"{name}: generated corpus, {data.size:,} {noun}, seed {data.seed}")
    return Source(kind, data, name, (), name, digest, notes)


def _digest(parts: list[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8")).hexdigest()


def _from_parallel_files(kind: RecordKind, data: DataConfig, sources: list[tuple[str, Located]]) -> Source:
    scanned = []
    for source_name, location in sources:
        if location.corpus or location.folder:
            noun = "a folder" if location.folder else "a generated corpus"
            raise GlassError(
                f"{source_name} is {noun}, but must be one of two parallel files", "Give a plain text file."
            )
        scanned.append(scan_files(source_name, data.encoding, location, read_tables=False))
        first = scanned[-1].files[0]
        if is_table(first):
            raise GlassError(
                f"{first.name} is a table, but data.target needs two parallel text files",
                "Leave data.target out to read both columns of one table, or give plain text files.",
            )
    files = tuple(scan.files[0] for scan in scanned)
    refuse_idle_settings((), data, " and ".join(file.name for file in files))
    digest = hashlib.sha256(" ".join(scan.digest for scan in scanned).encode("ascii")).hexdigest()
    notes = tuple(note for scan in scanned for note in scan.notes)
    if files[0].scan.digest == files[1].scan.digest:
        notes += (f"{files[0].name} and {files[1].name} are the same text: the model learns to copy",)
    return Source(kind, data, f"{files[0].name}, {files[1].name}", files, None, digest, notes, parallel=True)


def _from_texts(kind: RecordKind, data: DataConfig, source_name: str, location: Located) -> Source:
    """Open plain text, or one column of tables."""
    scanned = scan_files(source_name, data.encoding, location, read_tables=data.column is not None)
    refuse_plain_json(scanned.files, location)
    for file in scanned.files:
        if not is_table(file) and data.column is not None:
            raise GlassError(
                f"data.column is {data.column!r}, but {file.name} is plain text",
                "Leave data.column out, or give a file that ends in .csv, .tsv or .jsonl (.gz too).",
            )

    def choose(table: Table) -> ChosenColumns:
        return choose_text(table, data.column)

    files = tuple(with_table(file, data, choose) if is_table(file) else file for file in scanned.files)
    return Source(kind, data, source_name, files, None, scanned.digest, (*scanned.notes, *describe_tables(files)))


def _from_examples(kind: RecordKind, data: DataConfig, source_name: str, location: Located) -> Source:
    """Open tables with a column for each text or label; or, for labelled texts, a folder with a subfolder per label."""
    remedy = _remedy(kind)
    has_tables = any(format != "text" for format in formats_of(location))
    nested = any("/" in name for _, name in location.files)
    by_folder = kind.labels == "one" and location.folder and not has_tables and nested
    if location.folder and not has_tables and not by_folder:
        raise GlassError(f"the folder {source_name} contains no table (.csv, .tsv, .jsonl)", remedy)
    columns = {"data.column": data.column, "data.label_column": data.label_column}
    if by_folder and (set_columns := {name: column for name, column in columns.items() if column is not None}):
        values = " and ".join(f"{name} = {column!r}" for name, column in set_columns.items())
        raise GlassError(
            f"the folder {source_name} contains no table, but {values} was given",
            f"Leave {' and '.join(set_columns)} out.",
        )
    if by_folder:
        if location.split:
            location = replace(location, files=tuple((path, without_split(name)) for path, name in location.files))
        location = _without_unlabelled(location)
    scanned = scan_files(source_name, data.encoding, location, read_tables=not by_folder)
    if by_folder:
        notes = (*scanned.notes, "label: the first subfolder in the path of a file; text: the whole file")
        digest = _digest([scanned.digest, *map(_label_of, scanned.files)])
        return Source(kind, data, source_name, scanned.files, None, digest, notes)
    refuse_plain_json(scanned.files, location)
    files = tuple(
        with_table(_as_table(kind, file), data, lambda table: _choose_columns(kind, data, table))
        for file in scanned.files
    )
    return Source(kind, data, source_name, files, None, scanned.digest, (*scanned.notes, *describe_tables(files)))


def _without_unlabelled(location: Located) -> Located:
    """Return the location without the files that are not in a label's folder, such as a README."""
    labelled = tuple((path, name) for path, name in location.files if "/" in name)
    others = [f"{name} (not in a label folder)" for _, name in location.files if "/" not in name]
    if not others:
        return location
    note = f"left out {len(others)} of {len(location.files)} files: {listed(others, SHOWN_NAMES)}"
    return replace(location, files=labelled, notes=[*location.notes, note])


def _as_table(kind: RecordKind, file: SourceFile) -> SourceFile:
    """Return a file as a table. A file without a table's suffix is read as TSV if its first line has a tab."""
    if is_table(file):
        return file
    first = next(text_lines(file.text(), file.name), "")
    if "\t" in first:
        return replace(file, format="tsv")
    missing = "targets" if kind.labels == "none" else "labels"
    if kind.loss_spans:
        missing = kind.noun
    raise GlassError(f"{file.name} is plain text and has no {missing}", _remedy(kind))


def _remedy(kind: RecordKind) -> str:
    """Return the next step to suggest if a source has no records of this kind."""
    return _CONVERSATION_REMEDY if kind.loss_spans else _REMEDIES[kind.labels]


def _choose_columns(kind: RecordKind, data: DataConfig, table: Table) -> ChosenColumns:
    if kind.loss_spans:
        return choose_conversation(table, data.column, data.target_column)
    if kind.labels == "none":
        return choose_pair(table, data.column, data.target_column)
    return choose_labelled(table, data.label_column, data.column)
