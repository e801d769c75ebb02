"""Pairs and labelled texts from what people have: two parallel files, tables, a folder per label, generated corpora."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice, zip_longest
from pathlib import Path

from glassformer.base.config import PAIRS, DataConfig, Task
from glassformer.base.errors import GlassError
from glassformer.base.wording import counted
from glassformer.text.columns import Chosen, choose_labelled, choose_pair, label_text
from glassformer.text.delimited import text_lines
from glassformer.text.locating import Located, listed, located
from glassformer.text.reading import (
    Source,
    SourceFile,
    format_of,
    readings_of,
    refuse_plain_json,
    scan_files,
    table_notes,
    tables_of,
    with_table,
)
from glassformer.text.tables import Table, refuse_idle_settings
from glassformer.text.tally import Tally

SHOWN_CHARACTERS = 40  # of a line, in an error
_REMEDIES = {
    True: "Give the file with its targets in data.target, or a table (.csv, .tsv, .jsonl) that has both.",
    False: "Give a table (.csv, .tsv, .jsonl) with a column for the label, or a folder with one folder per label.",
}


@dataclass(frozen=True)
class ExampleSource:
    """A source of examples; read as often as needed.

    Attributes:
        files: two parallel ones, or tables, or texts in folders named by their label; none for a generated corpus.
        parallel: line n of the second answers line n of the first.
        digest: a hash of all their content.
    """

    task: Task
    data: DataConfig
    name: str
    files: tuple[SourceFile, ...]
    parallel: bool
    corpus: str | None
    digest: str
    notes: tuple[str, ...]

    @property
    def readings(self) -> list[list[object]]:
        """Return how each table is read; together with `digest`, the examples depend on nothing else."""
        return readings_of(self.files)

    def examples(self, tally: Tally) -> Iterator[tuple[str, str]]:
        """Yield (source, target) or (text, label) of each usable example, in order; the others are counted."""
        pairs = self.task in PAIRS
        data = self.data
        counting = data.min_words > 0 or data.max_words is not None
        for source, target, place in self._raw(tally):
            if not pairs:
                label = target.strip()
                if label and label != target:
                    tally.remark("labels with spaces around them, which are removed", place)
                target = label
            reason = _why_empty(source, target, pairs)
            if reason:
                tally.leave_out(reason, place)
                continue
            if counting:
                words = len(source.split())
                if words < data.min_words:
                    tally.leave_out(f"examples with fewer than {data.min_words} words", place)
                    continue
                if data.max_words is not None and words > data.max_words:
                    tally.leave_out(f"examples with more than {data.max_words} words", place)
                    continue
            yield source, target

    def _raw(self, tally: Tally) -> Iterator[tuple[str, str, str]]:
        """Yield source, target and position in the data of each candidate example."""
        if self.corpus is not None:
            for number, (source, target) in enumerate(_generated(self.task, self.corpus, self.data), start=1):
                yield source, target, f"example {number} of {self.corpus}"
        elif self.parallel:
            yield from _line_by_line(self.files[0], self.files[1], tally)
        else:
            for file in self.files:
                if file.table is None:
                    yield "".join(file.text()), _label_of(file), file.name
                else:
                    yield from (_pairs if self.task in PAIRS else _labelled)(file, tally)


def _label_of(file: SourceFile) -> str:
    """The label of a text in a folder: the first part of its name."""
    return file.name.partition("/")[0]


def _why_empty(source: str, target: str, pairs: bool) -> str:
    if source.strip() and target.strip():
        return ""
    if not pairs:
        return "rows with an empty text" if target.strip() else "rows without a label"
    if source.strip() or target.strip():
        return f"pairs with an empty {'target' if source.strip() else 'source'}"
    return "pairs with both sides empty"


def _generated(task: Task, corpus: str, data: DataConfig) -> Iterator[tuple[str, str]]:
    from glassformer.corpora import find_labelled_corpus, find_pair_corpus

    if task in PAIRS:
        return find_pair_corpus(corpus).pairs(data.size, data.seed)
    return find_labelled_corpus(corpus).labelled(data.size, data.seed)


def _line_by_line(first: SourceFile, second: SourceFile, tally: Tally) -> Iterator[tuple[str, str, str]]:
    """Yield line n of both files and its position; blank lines at the end of only one file are left out.

    Only `\\n` ends a line here (with a `\\r` before it), as in every tool for parallel files.
    """
    lines = [text_lines(file.text(), file.name) for file in (first, second)]
    for number, (source, target) in enumerate(zip_longest(*lines), start=1):
        if source is None or target is None:
            longer = 0 if target is None else 1
            rest = chain([source or target or ""], lines[longer])
            _refuse_unequal((first.name, second.name), longer, number, rest, tally)
            return
        yield _without_end(source), _without_end(target), f"line {number} of {first.name} and {second.name}"


def _refuse_unequal(names: tuple[str, str], longer: int, number: int, rest: Iterator[str], tally: Tally) -> None:
    """Raise a `GlassError` if the longer of two files has a text from line `number` on; count its blank lines."""
    lines = blank = 0
    shown = ""
    for line in rest:
        lines += 1
        blank += not line.strip()
        shown = shown or line.strip()[:SHOWN_CHARACTERS]
    if lines == blank:
        remark = f"blank lines at the end of {names[longer]}, where the other file has none"
        tally.remarks[remark] = blank
        return
    counts = [number - 1, number - 1]
    counts[longer] += lines
    raise GlassError(
        f"{names[0]} has {counted(counts[0], 'lines')}, {names[1]} {counts[1]:,}: they cannot be parallel",
        f"{names[1 - longer]} ends before line {number:,} of {names[longer]} ({shown!r}): line n of one "
        "must answer line n of the other.",
    )


def _without_end(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


def _pairs(file: SourceFile, tally: Tally) -> Iterator[tuple[str, str, str]]:
    for line, (source, target) in file.rows(tally):
        place = f"line {line} of {file.name}"
        if isinstance(source, str) and isinstance(target, str):
            yield source, target, place
        else:
            tally.leave_out("rows without text in both columns", place)


def _labelled(file: SourceFile, tally: Tally) -> Iterator[tuple[str, str, str]]:
    """Yield text, label and position of each row; several text columns are joined by line ends, empty ones left out."""
    for line, (label, *texts) in file.rows(tally):
        place = f"line {line} of {file.name}"
        name = label_text(label)
        if name is None:
            tally.leave_out("rows without a label", place)
        else:
            yield "\n".join(text for text in texts if isinstance(text, str) and text.strip()), name, place


@contextmanager
def open_examples(task: Task, data: DataConfig, cache: Path, validation: bool = False) -> Iterator[ExampleSource]:
    """Locate, check and describe what `data` names; every byte is read once here.

    Args:
        cache: the folder in which standard input is kept until the block ends.
        validation: what `data.validation` names, not what `data.source` does.

    Raises:
        GlassError: missing, empty, binary, in an unknown encoding; settings that do not go together; or a table whose
            columns are not clear.
    """
    what, target = (data.validation, data.validation_target) if validation else (data.source, data.target)
    assert what is not None
    _refuse_misplaced(task, data)
    with ExitStack() as stack:
        found = stack.enter_context(located(what, cache))
        if found.corpus:
            # Other ones than were learnt from, if that was the same corpus.
            own = data.model_copy(update={"seed": data.seed + 1}) if validation else data
            source = _from_corpus(task, own, found, target)
            said = ("the seed of a generated validation part is data.seed + 1",) if validation else ()
            yield replace(source, notes=(*source.notes, *said))
        elif target is not None:
            yield _parallel(task, data, [(what, found), (target, stack.enter_context(located(target, cache)))])
        else:
            source = _from_tables(task, data, what, found)
            if not validation:  # it may be another kind of source
                refuse_idle_settings(tables_of(source.files), data, what)
            yield source


def _refuse_misplaced(task: Task, data: DataConfig) -> None:
    fields = ("target", "target_column") if task not in PAIRS else ("label_column",)
    if data.target is not None:
        fields = (*fields, "column", "target_column")
    for name in fields:
        if getattr(data, name) is not None:
            why = "data.target" if task in PAIRS and name != "label_column" else f"train.task = {task}"
            raise GlassError(f"data.{name} does not go with {why}", "Leave one of the two out.")


def _from_corpus(task: Task, data: DataConfig, found: Located, target: str | None) -> ExampleSource:
    name = found.corpus
    assert name is not None
    for setting, value in (("target", target), ("column", data.column), ("label_column", data.label_column)):
        if value is not None:
            raise GlassError(f"data.{setting} does not go with the generated corpus {name}", "Leave it out.")
    first = [text for example in islice(_generated(task, name, data), 50) for text in example]
    refuse_idle_settings((), data, name)
    digest = _digest([name, str(data.size), str(data.seed), *first])
    notes = (*found.notes, f"{name}: generated corpus, {data.size:,} examples, seed {data.seed}")
    return ExampleSource(task, data, name, (), False, name, digest, notes)


def _digest(parts: list[str]) -> str:
    # A folder's name may hold bytes that are no UTF-8, which Python reads as lone surrogates.
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _parallel(task: Task, data: DataConfig, wanted: list[tuple[str, Located]]) -> ExampleSource:
    sources: list[Source] = []
    for what, found in wanted:
        if found.corpus or found.folder:
            kind = "a folder" if found.folder else "a generated corpus"
            raise GlassError(f"{what} is {kind}, and one of two parallel files was expected", "Give a file of lines.")
        source = scan_files(what, data.encoding, found, tables_wanted=False)
        if source.files[0].format != "text":
            raise GlassError(
                f"{source.files[0].name} is a table, and data.target asks for two parallel files of lines",
                "Leave data.target out to read both columns of one table, or give plain text files.",
            )
        sources.append(source)
    files = tuple(source.files[0] for source in sources)
    refuse_idle_settings((), data, " and ".join(file.name for file in files))
    digest = hashlib.sha256(" ".join(source.digest for source in sources).encode("ascii")).hexdigest()
    notes = tuple(note for source in sources for note in source.notes)
    if files[0].scan.digest == files[1].scan.digest:
        notes += (f"{files[0].name} and {files[1].name} are the same text: the model learns to copy",)
    return ExampleSource(task, data, f"{files[0].name}, {files[1].name}", files, True, None, digest, notes)


def _from_tables(task: Task, data: DataConfig, what: str, found: Located) -> ExampleSource:
    has_tables = any(format_of(name) != "text" for _, name in found.files)
    by_folder = task not in PAIRS and found.folder and not has_tables and any("/" in name for _, name in found.files)
    if found.folder and not has_tables and not by_folder:
        raise GlassError(f"the folder {what} holds no table (.csv, .tsv, .jsonl)", _REMEDIES[task in PAIRS])
    if by_folder and (data.column, data.label_column) != (None, None):
        raise GlassError(
            f"the folder {what} holds no table, and data.column or data.label_column is set", "Leave them out."
        )
    if by_folder:
        found = _without_unlabelled(found)
    source = scan_files(what, data.encoding, found, tables_wanted=not by_folder)
    if by_folder:
        notes = (*source.notes, "label: the folder that a file lies in; text: the whole file")
        digest = _digest([source.digest, *map(_label_of, source.files)])
        return ExampleSource(task, data, what, source.files, False, None, digest, notes)
    refuse_plain_json(source.files, found)
    files = tuple(
        with_table(_table(task, file), data, lambda table: _choose(task, data, table)) for file in source.files
    )
    notes = (*source.notes, *table_notes(files))
    return ExampleSource(task, data, source.name, files, False, None, source.digest, notes)


def _without_unlabelled(found: Located) -> Located:
    """Leave out the files that are not in a label's folder, such as a README."""
    labelled = tuple((path, name) for path, name in found.files if "/" in name)
    others = [f"{name} (not in a label folder)" for _, name in found.files if "/" not in name]
    if not others:
        return found
    told = f"left out {len(others)} of {len(found.files)} files: {listed(others)}"
    return replace(found, files=labelled, notes=[*found.notes, told])


def _table(task: Task, file: SourceFile) -> SourceFile:
    """The file as a table; one whose name does not say so is TSV if its first line has a tab."""
    if file.format != "text":
        return file
    first = next(text_lines(file.text(), file.name), "")
    if "\t" in first:
        return replace(file, format="tsv")
    what = "targets" if task in PAIRS else "labels"
    raise GlassError(f"{file.name} is plain text: it holds no {what}", _REMEDIES[task in PAIRS])


def _choose(task: Task, data: DataConfig, table: Table) -> Chosen:
    if task in PAIRS:
        return choose_pair(table, data.column, data.target_column)
    return choose_labelled(table, data.label_column, data.column)
