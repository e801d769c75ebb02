"""Pairs and labelled texts from what people have: two parallel files, tables, a folder per label, generated corpora."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice, zip_longest
from pathlib import Path

from glassformer.config import PAIRS, DataConfig, Task
from glassformer.data.columns import choose_labelled, choose_pair, holds_names, label_text, usual_names
from glassformer.data.locating import Located, located
from glassformer.data.reading import SHOWN_NAMES, Source, SourceFile, format_of, scan_files
from glassformer.data.tables import describe, read_cells, text_lines
from glassformer.errors import GlassError
from glassformer.wording import counted

LOOKED_AT = 2000  # rows, to find the column of the label: files are often sorted by it
SHOWN_CHARACTERS = 40  # of a line, in an error
_REMEDIES = {
    True: "Give the file with its targets in data.target, or a table (.csv, .tsv, .jsonl) that has both.",
    False: "Give a table (.csv, .tsv, .jsonl) with a column for the label, or a folder with one folder per label.",
}


@dataclass
class Tally:
    """What reading noticed: examples that were left out, by reason, and rows that were used all the same."""

    left_out: Counter[str] = field(default_factory=Counter)
    remarks: Counter[str] = field(default_factory=Counter)

    def nothing(self, name: str) -> GlassError:
        """The error where no example of the source called `name` was left."""
        reasons = ", ".join(counted(count, reason) for reason, count in sorted(self.left_out.items()))
        return GlassError(
            f"{name} holds no example that can be used" + (f": left out {reasons}" if reasons else ""),
            "Give a text, and its target or label, in each row.",
        )


@dataclass(frozen=True)
class ExampleSource:
    """Where examples come from; read as often as needed.

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

    def examples(self, tally: Tally) -> Iterator[tuple[str, str]]:
        """(source, target) or (text, label) of each usable example, in order; the others are counted."""
        pairs, data = self.task in PAIRS, self.data
        counting = data.min_words > 0 or data.max_words is not None
        for source, target in self._raw(tally):
            if not pairs and target != (stripped := target.strip()):
                tally.remarks["labels with spaces around, left off"] += bool(stripped)
                target = stripped
            if reason := _why_empty(source, target, pairs):
                tally.left_out[reason] += 1
                continue
            if counting:
                words = len(source.split())
                if words < data.min_words:
                    tally.left_out[f"examples with fewer than {data.min_words} words"] += 1
                    continue
                if data.max_words is not None and words > data.max_words:
                    tally.left_out[f"examples with more than {data.max_words} words"] += 1
                    continue
            yield source, target

    def _raw(self, tally: Tally) -> Iterator[tuple[str, str]]:
        if self.corpus is not None:
            yield from _generated(self.task, self.corpus, self.data)
        elif self.parallel:
            yield from _line_by_line(*self.files)
        else:
            for file in self.files:
                if file.table is None:
                    yield "".join(file.text()), _label_of(file)
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
    from glassformer.data.corpora import find_labelled_corpus, find_pair_corpus

    if task in PAIRS:
        return find_pair_corpus(corpus).pairs(data.size, data.seed)
    return find_labelled_corpus(corpus).labelled(data.size, data.seed)


def _line_by_line(first: SourceFile, second: SourceFile) -> Iterator[tuple[str, str]]:
    """Only `\\n` ends a line here (with a `\\r` before it), as in every tool for parallel files."""
    lines = [text_lines(file.text(), file.name) for file in (first, second)]
    for count, (source, target) in enumerate(zip_longest(*lines)):
        if source is None or target is None:
            longer = 0 if target is None else 1
            counts = [count, count]
            counts[longer] += 1 + sum(1 for _ in lines[longer])
            shown = (source or target or "").strip()[:SHOWN_CHARACTERS]
            names = (first.name, second.name)
            raise GlassError(
                f"{names[0]} has {counts[0]:,} lines, {names[1]} {counts[1]:,}: they cannot be parallel",
                f"{names[1 - longer]} ends before line {count + 1:,} of {names[longer]} ({shown!r}): line n of one "
                "must answer line n of the other.",
            )
        yield _without_end(source), _without_end(target)


def _without_end(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


def _cells(file: SourceFile, tally: Tally) -> Iterator[list[object]]:
    """The chosen cells of each row that has them all; in JSONL of every row."""
    assert file.table is not None
    assert file.chosen is not None
    if file.table.format == "jsonl":
        yield from file.cells()
        return
    beyond = len(file.table.names)
    for *values, more in read_cells(file.text(), file.table, (*file.chosen.indices, beyond)):
        if more is not None:
            tally.remarks["rows with more fields than row 1, which are not read"] += 1
        if None in values:
            tally.left_out["rows with too few fields"] += 1
        else:
            yield values


def _pairs(file: SourceFile, tally: Tally) -> Iterator[tuple[str, str]]:
    for source, target in _cells(file, tally):
        if isinstance(source, str) and isinstance(target, str):
            yield source, target
        else:
            tally.left_out["rows without text in both columns"] += 1


def _labelled(file: SourceFile, tally: Tally) -> Iterator[tuple[str, str]]:
    """Several text columns are joined by line ends, without those that are empty."""
    for label, *texts in _cells(file, tally):
        name = label_text(label)
        if name is None:
            tally.left_out["rows without a label"] += 1
        else:
            yield "\n".join(text for text in texts if isinstance(text, str) and text.strip()), name


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
            yield _from_tables(task, data, what, found)


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
    digest = hashlib.sha256(" ".join(source.digest for source in sources).encode("ascii")).hexdigest()
    notes = tuple(note for source in sources for note in source.notes)
    return ExampleSource(task, data, f"{files[0].name}, {files[1].name}", files, True, None, digest, notes)


def _from_tables(task: Task, data: DataConfig, what: str, found: Located) -> ExampleSource:
    has_tables = any(format_of(name) != "text" for _, name in found.files)
    by_folder = task not in PAIRS and found.folder and not has_tables and all("/" in name for _, name in found.files)
    if found.folder and not has_tables and not by_folder:
        raise GlassError(f"the folder {what} holds no table (.csv, .tsv, .jsonl)", _REMEDIES[task in PAIRS])
    if by_folder and (data.column, data.label_column) != (None, None):
        raise GlassError(
            f"the folder {what} holds no table, and data.column or data.label_column is set", "Leave them out."
        )
    source = scan_files(what, data.encoding, found, tables_wanted=not by_folder)
    if by_folder:
        notes = (*source.notes, "label: the folder that a file lies in; text: the whole file")
        digest = _digest([source.digest, *map(_label_of, source.files)])
        return ExampleSource(task, data, what, source.files, False, None, digest, notes)
    files = tuple(_with_columns(task, data, _table(task, file)) for file in source.files)
    chosen = tuple(file.chosen.note for file in files[:SHOWN_NAMES] if file.chosen)
    return ExampleSource(task, data, source.name, files, False, None, source.digest, (*source.notes, *chosen))


def _table(task: Task, file: SourceFile) -> SourceFile:
    """The file as a table; one whose name does not say so is TSV if its first line has a tab."""
    if file.format != "text":
        return file
    first = next(text_lines(file.text(), file.name), "")
    if "\t" in first:
        return replace(file, format="tsv")
    what = "targets" if task in PAIRS else "labels"
    raise GlassError(f"{file.name} is plain text: it holds no {what}", _REMEDIES[task in PAIRS])


def _with_columns(task: Task, data: DataConfig, file: SourceFile) -> SourceFile:
    assert file.format != "text"
    texts = [part.strip() for part in data.column.split(",")] if data.column is not None else []
    asked = [name for name in (data.column, *texts, data.target_column, data.label_column) if name is not None]
    table = describe(file.text(), file.format, asked, file.name, LOOKED_AT, holds_names, usual_names)
    if task in PAIRS:
        return replace(file, table=table, chosen=choose_pair(table, data.column, data.target_column))
    return replace(file, table=table, chosen=choose_labelled(table, data.label_column, data.column))
