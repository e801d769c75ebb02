"""Choose the columns of a table to read: the text, the source and target, the label and text, or the messages."""

from __future__ import annotations

import json
from dataclasses import dataclass

from glassformer.base.errors import GlassError, nearest
from glassformer.base.wording import span
from glassformer.text.column_names import (
    LABEL_NAMES,
    MESSAGES_NAMES,
    SOURCE_NAMES,
    TARGET_NAMES,
    reads_like_text,
)
from glassformer.text.records import RecordKind
from glassformer.text.tables import Table

LONGEST_LABEL = 40  # characters; does not apply if a setting names the label column


@dataclass(frozen=True)
class ChosenColumns:
    """The columns to read, by index from 0, and a note on the choice.

    `indices` is (text,) for text, (source, target) for pairs, (label, text, ...) for labelled texts, and (messages,) or
    (question, answer) for conversations.
    """

    indices: tuple[int, ...]
    note: str


def choose_text(table: Table, wanted: str | None) -> ChosenColumns:
    """Choose the column with the name `wanted` or, in CSV and TSV, the number from 1; None: the only column of text.

    Raises:
        GlassError: there is no such column, or the choice is not clear; the error names the columns.
    """
    if wanted is None:
        index = _only_text(table)
        note = f"{table.name}: column {table.names[index]!r} is read, the only one with text"
        return ChosenColumns((index,), note + _header_note(table))
    index = _find(table, wanted)
    which = f"column {wanted!r}" if wanted == table.names[index] else f"column number {wanted}"
    return ChosenColumns((index,), f"{table.name}: {which} is read" + _header_note(table))


def choose_pair(table: Table, source: str | None, target: str | None) -> ChosenColumns:
    """Choose the source and target columns.

    Columns that are not named must be the only candidates left: all columns of CSV and TSV with two columns, the
    columns that read like text if there are more, and the columns with strings in JSONL. The first of two candidates is
    the source, unless their names say the opposite (target and source, summary and text, ...).

    Raises:
        GlassError: there is no such column, both are the same, or the choice is not clear.
    """
    named = [_find(table, wanted) if wanted is not None else None for wanted in (source, target)]
    first, second = named
    if first is None or second is None:
        rest = [index for index in _pair_candidates(table) if index not in named]
        if len(rest) != named.count(None):
            raise GlassError(
                f"{table.name} has the columns {', '.join(table.names)}; the source and target are not clear",
                "Set data.column to the source column and data.target_column to the target column.",
            )
        if len(rest) == 2 and (_means(table, rest[0], TARGET_NAMES) and _means(table, rest[1], SOURCE_NAMES)):
            rest.reverse()
        first = rest.pop(0) if first is None else first
        second = rest.pop(0) if second is None else second
    if first == second:
        raise GlassError(
            f"data.column and data.target_column are the same column of {table.name}: {table.names[first]}",
            f"Set data.column and data.target_column to two of: {', '.join(table.names)}.",
        )
    note = f"{table.name}: source: column {table.names[first]}, target: column {table.names[second]}"
    return ChosenColumns((first, second), note + _header_note(table))


def choose_conversation(table: Table, column: str | None, answer: str | None) -> ChosenColumns:
    """Choose the messages column (in JSONL), or else the question and answer columns as `choose_pair` does.

    Args:
        table: the table to choose from.
        column: name of the messages column or the question column; None: find it.
        answer: name of the answer column; None: read messages if a column has them, else find it.

    Raises:
        GlassError: there is no such column, both are the same, or the choice is not clear.
    """
    if table.format == "jsonl" and answer is None:
        lists = [index for index in range(len(table.names)) if _holds_lists(table, index)]
        if column is not None and _find(table, column) in lists:
            lists = [_find(table, column)]
        elif column is None:
            lists = [index for index in lists if _means(table, index, MESSAGES_NAMES)]
        else:
            lists = []
        if lists:
            return ChosenColumns((lists[0],), f"{table.name}: conversations: {table.names[lists[0]]}")
    return choose_pair(table, column, answer)


def _holds_lists(table: Table, index: int) -> bool:
    """Return whether most values of a column are None. A table stores lists and objects as None."""
    values = table.columns[index]
    return 2 * sum(value is not None for value in values) < len(values)


def choose_labelled(table: Table, label: str | None, text: str | None) -> ChosenColumns:
    """Choose the label column and the text columns.

    A label column that is not named is found by its usual name, or by its short values that repeat; text columns that
    are not named are found by their values, which read like text. `text` may name several columns, separated by commas.

    Raises:
        GlassError: there is no such column, one column is both label and text, or the choice is not clear.
    """
    texts = _find_several(table, text) if text is not None else None
    found = _find(table, label) if label is not None else _label(table, texts or [])
    if texts is None:
        others = [index for index in range(len(table.names)) if index != found]
        texts = [index for index in others if _share_of_text(table, index) >= 0.5]
        if not texts and len(others) == 1:
            texts = others
    if not texts:
        raise GlassError(
            f"{table.name} has the columns {', '.join(table.names)}; none except the label reads like text",
            "Set data.column to the column of texts to classify.",
        )
    if found in texts:
        raise GlassError(
            f"column {table.names[found]!r} of {table.name} is both the label and the text",
            "Set data.label_column and data.column to different columns.",
        )
    shown = ", ".join(table.names[index] for index in texts)
    note = f"{table.name}: label: column {table.names[found]}, text: column{'s' * (len(texts) > 1)} {shown}"
    return ChosenColumns((found, *texts), note + _header_note(table))


def label_text(value: object) -> str | None:
    """Return a label as text. Numbers, true and false are written as in JSON; null, lists and objects give None."""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return value if isinstance(value, str) else None


def label_texts(value: object, kind: RecordKind) -> tuple[str, ...] | None:
    """Return the labels of a record as text (several: from a list), or None if a value is not a label."""
    if isinstance(value, list) and kind.labels == "several":
        labels = tuple(text for each in value if (text := label_text(each)) is not None)
        return labels if len(labels) == len(value) else None
    label = label_text(value)
    return None if label is None else (label,)


def _header_note(table: Table) -> str:
    return f" (row 1 holds the names {', '.join(table.names)})" if table.header else ""


def _find(table: Table, wanted: str) -> int:
    if wanted in table.names:
        return table.names.index(wanted)
    if table.format != "jsonl" and wanted.isdecimal() and 1 <= int(wanted) <= len(table.names):
        return int(wanted) - 1
    if table.header or table.format == "jsonl":
        shown = ", ".join(table.names)
        raise GlassError(f"{table.name} has no column {wanted!r}; it has {shown}", nearest(wanted, table.names))
    first = ", ".join(f"{number + 1}: {cell[:20]!r}" for number, cell in enumerate(table.first))
    raise GlassError(
        f"{table.name} has no column {wanted!r}; its first row does not look like column names ({first})",
        f"Give a column number: {span(1, len(table.names))}.",
    )


def _find_several(table: Table, wanted: str) -> list[int]:
    if wanted in table.names:
        return [table.names.index(wanted)]
    found = [_find(table, part.strip()) for part in wanted.split(",")]
    if len(set(found)) != len(found):
        raise GlassError(f"data.column = {wanted!r} names a column twice", "Name each column once.")
    return found


def _means(table: Table, index: int, names: frozenset[str]) -> bool:
    return table.names[index].lower() in names


def _share_of_text(table: Table, index: int) -> float:
    """Return the fraction of a column's nonempty values that read like text."""
    filled = [value for value in table.columns[index] if isinstance(value, str) and value.strip()]
    return sum(map(reads_like_text, filled)) / len(filled) if filled else 0.0


def _only_text(table: Table) -> int:
    """Return the index of the only column with mostly text, or of a table's single column.

    Raises:
        GlassError: no column, or more than one, has mostly text.
    """
    if len(table.names) == 1:
        return 0
    plausible = [index for index in range(len(table.names)) if _share_of_text(table, index) >= 0.5]
    if len(plausible) == 1:
        return plausible[0]
    several = f"columns {', '.join(table.names[index] for index in plausible)} all hold text"
    raise GlassError(
        f"{table.name} has several columns ({', '.join(table.names)}) and "
        f"{several if plausible else 'no column reads like text'}",
        "Set data.column to the name of the column to read.",
    )


def _pair_candidates(table: Table) -> list[int]:
    every = list(range(len(table.names)))
    if table.format == "jsonl":
        return [i for i in every if any(isinstance(v, str) for v in table.columns[i])]
    return every if len(every) == 2 else [index for index in every if _share_of_text(table, index) >= 0.5]


def _label(table: Table, texts: list[int]) -> int:
    """Return the index of the only column with a usual label name, else of the only one with short, repeated values."""
    usual = [i for i in range(len(table.names)) if i not in texts and _means(table, i, LABEL_NAMES)]
    if len(usual) == 1:
        return usual[0]
    distinct: dict[int, int] = {}
    for index, values in enumerate(table.columns):
        labels = [text for value in values if (text := (label_text(value) or "").strip())]
        count = len(set(labels))
        few = max(min(len(labels) // 2, 10), len(labels) // 4)
        if index not in texts and count and count <= few and max(map(len, labels)) <= LONGEST_LABEL:
            distinct[index] = count
    several = [index for index, count in distinct.items() if count > 1] or list(distinct)
    several = [index for index in several if _share_of_text(table, index) < 0.5] or several
    by_name = [index for index in several if _means(table, index, LABEL_NAMES)]
    for choice in (several, by_name):
        if len(choice) == 1:
            return choice[0]
    some = f"columns {', '.join(table.names[i] for i in several)} could be the label" if several else ""
    raise GlassError(
        f"{table.name} has the columns {', '.join(table.names)}; {some or 'none has a few short values that repeat'}",
        "Set data.label_column to the label column.",
    )
