"""Choose the columns of a table to read: the text, the source and target, the label and text, or the messages."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass

from glassformer.base.config import DataConfig
from glassformer.base.errors import GlassError, nearest
from glassformer.base.wording import listed, span
from glassformer.text.column_names import (
    LABEL_NAMES,
    MESSAGES_NAMES,
    NUMBER,
    SOURCE_NAMES,
    TARGET_NAMES,
    reads_like_text,
)
from glassformer.text.conversations import JSON_MESSAGES
from glassformer.text.records import RecordKind
from glassformer.text.tables import Table, begin_with_spaces, sentences

QUESTION_NAMES = frozenset(("instruction", "question", "prompt", "query"))
CONTEXT_NAMES = frozenset(("input", "context"))
"""Columns whose text follows the question, as in the data of Alpaca and Dolly."""
ANSWER_NAMES = frozenset(("output", "response", "answer", "completion"))
SYSTEM_NAMES = frozenset(("system", "system_prompt"))
TEXT_NAMES = frozenset(("text",))
SHOWN_COLUMNS = 10
"""Maximum number of columns in a note."""
LONGEST_LABEL = 40  # characters; applies only to a label column that is found by its values


@dataclass(frozen=True)
class ChosenColumns:
    """The columns to read, by index from 0, and a note on the choice.

    `indices` is (text,) for text, (source, target) for pairs, and (label, text, ...) for labelled texts. For
    conversations, `uses` has the use of each column: messages, question, context, answer or system.
    """

    indices: tuple[int, ...]
    note: str
    uses: tuple[str, ...] = ()


def choose_text(table: Table, column: str | None) -> ChosenColumns:
    """Choose the column with the name `column` or, in CSV and TSV, with the number `column`, counted from 1.

    If `column` is None, choose the only column of text.

    Raises:
        GlassError: there is no such column, or the choice is not clear; the error names the columns.
    """
    if column is None:
        spaced = begin_with_spaces(table.columns[1:])
        if not table.header and table.dialect is not None and table.extra_fields == "refuse" and spaced and all(spaced):
            raise sentences(table.name, [len(table.names)], table.dialect.delimiter, "each")
        index = _only_text(table)
        others = [name for name in table.names if name != table.names[index]]
        unread = f"; columns that are not read: {listed(others, SHOWN_COLUMNS)}" if others else ""
        note = f"{table.name}: column {table.names[index]!r} is read, the only one that reads like text{unread}"
        return ChosenColumns((index,), note + _header_note(table))
    index = _column_index(table, column)
    which = f"column {column!r}" if column == table.names[index] else f"column number {column}"
    return ChosenColumns((index,), f"{table.name}: {which} is read" + _header_note(table))


def choose_pair(table: Table, source: str | None, target: str | None, conversations: bool = False) -> ChosenColumns:
    """Choose the source and target columns.

    The candidates for columns that are not named are both columns of a table with two columns; else, the columns with
    strings in JSONL, or, if these are too few, also the columns of numbers with a usual name; and the columns that read
    like text in other CSV and TSV files. There must be as many candidates, not counting a named column, as columns to
    choose. The first of two candidates is the source, unless
    their names show the opposite order (such as target and source, or summary and text). With `conversations`, error
    messages call the columns question and answer.

    Raises:
        GlassError: there is no such column, both are the same, or the choice is not clear.
    """
    named = [_column_index(table, column) if column is not None else None for column in (source, target)]
    first, second = named
    if first is None or second is None:
        candidates = [index for index in _pair_candidates(table) if index not in named]
        if len(candidates) != named.count(None):
            names = ("question", "answer") if conversations else ("source", "target")
            several = " (or to several columns, separated by commas)" if conversations else ""
            unclear = (
                "the question and answer are not clear" if conversations else "the source and target are not clear"
            )
            raise GlassError(
                f"{table.name} has {_columns_of(table)}; {unclear}",
                f"Set data.column to the {names[0]} column{several} and data.target_column to the {names[1]} column."
                if len(table.names) > 1
                else f"Give a table with one column for the {names[0]} and one for the {names[1]}.",
            )
        if len(candidates) == 2 and (
            _has_name(table, candidates[0], TARGET_NAMES) and _has_name(table, candidates[1], SOURCE_NAMES)
        ):
            candidates.reverse()
        first = candidates.pop(0) if first is None else first
        second = candidates.pop(0) if second is None else second
    if first == second:
        raise GlassError(
            f"data.column and data.target_column are the same column of {table.name}: {table.names[first]}",
            f"Set data.column and data.target_column to two of: {', '.join(table.names)}.",
        )
    note = f"{table.name}: source: column {table.names[first]}, target: column {table.names[second]}"
    return ChosenColumns((first, second), note + _header_note(table))


def choose_conversation(table: Table, column: str | None, answer: str | None) -> ChosenColumns:
    """Choose the messages column (lists in JSONL, or texts with a JSON list), or else the questions and answers.

    Columns that are not named are found by their usual names, such as instruction, input and output, or else as
    `choose_pair` does. A column with the name system is read too: it contains system messages.

    Args:
        table: the table to choose from.
        column: name of the messages column or the question column, or names of several question columns, separated by
            commas; None: chosen automatically.
        answer: name of the answer column; None: read messages if a column has them, else choose the answer column
            automatically.

    Raises:
        GlassError: there is no such column, both are the same, or the choice is not clear.
    """
    columns = _message_columns(table, column) if answer is None else []
    if not columns:
        columns = _question_columns(table, column, answer)
    indices = [index for index, _ in columns]
    columns += [(index, "system") for index in _with_name(table, SYSTEM_NAMES) if index not in indices][:1]
    indices = [index for index, _ in columns]
    uses = tuple(use for _, use in columns)
    unread = [name for index, name in enumerate(table.names) if index not in indices]
    what = ", ".join(f"{use}: column {table.names[index]}" for index, use in columns)
    not_read = f"; columns that are not read: {listed(unread, SHOWN_COLUMNS)}" if unread else ""
    return ChosenColumns(tuple(indices), f"{table.name}: {what}{not_read}{_header_note(table)}", uses)


def _message_columns(table: Table, column: str | None) -> list[tuple[int, str]]:
    """Return the messages column of a table and its use; an empty list if there is none."""
    indices = _with_name(table, MESSAGES_NAMES) if column is None else _column_indices(table, column)
    list_columns = [index for index in indices if _holds_lists(table, index) or _holds_json(table, index)]
    return [(index, "messages") for index in list_columns[:1]]


def _question_columns(table: Table, column: str | None, answer: str | None) -> list[tuple[int, str]]:
    """Return the columns of questions and answers, each with its use."""
    questions = _column_indices(table, column) if column is not None else _with_name(table, QUESTION_NAMES)
    contexts = _with_name(table, CONTEXT_NAMES) if column is None else []
    if column is None and not questions:  # input and output, without an instruction
        questions, contexts = contexts, []
    answers = [_column_index(table, answer)] if answer is not None else _with_name(table, ANSWER_NAMES)
    if (column is None and len(questions) != 1) or len(contexts) > 1 or len(answers) != 1:
        pair = choose_pair(table, None if column is None else table.names[questions[0]], answer, conversations=True)
        questions = questions if column is not None else [pair.indices[0]]
        contexts, answers = [], [pair.indices[1]]
        if answer is None and _has_name(table, answers[0], CONTEXT_NAMES | SYSTEM_NAMES):
            raise GlassError(
                f"{table.name} has {_columns_of(table)}; the answer is not clear: "
                f"column {table.names[answers[0]]} belongs to the question",
                "Set data.target_column to the answer column, which must contain texts.",
            )
    if answers[0] in questions:
        raise GlassError(
            f"data.column and data.target_column are the same column of {table.name}: {table.names[answers[0]]}",
            f"Set data.column and data.target_column to two of: {', '.join(table.names)}.",
        )
    uses = (("question", questions), ("context", contexts), ("answer", answers))
    return [(index, use) for use, indices in uses for index in indices]


def _with_name(table: Table, names: frozenset[str]) -> list[int]:
    return [index for index in range(len(table.names)) if _has_name(table, index, names)]


def _holds_lists(table: Table, index: int) -> bool:
    """Return whether most values of a JSONL column are None: lists, objects or missing values."""
    values = table.columns[index]
    return table.format == "jsonl" and 2 * sum(value is not None for value in values) < len(values)


def _holds_json(table: Table, index: int) -> bool:
    """Return whether most texts of a column begin like a JSON list of messages."""
    texts = [value for value in table.columns[index] if isinstance(value, str) and value.strip()]
    return 2 * sum(JSON_MESSAGES.match(text) is not None for text in texts) > len(texts)


def choose_labelled(table: Table, label: str | None, text: str | None) -> ChosenColumns:
    """Choose the label column and the text columns.

    A label column that is not named is found by its usual name, or by its short values that repeat; text columns that
    are not named are found by their values, which read like text. `text` may name several columns, separated by commas.

    Raises:
        GlassError: there is no such column, one column is both label and text, or the choice is not clear.
    """
    text_indices = _column_indices(table, text) if text is not None else None
    label_index = _column_index(table, label) if label is not None else _label_index(table, text_indices or [])
    if text_indices is None:
        others = [index for index in range(len(table.names)) if index != label_index]
        text_indices = [index for index in others if _text_fraction(table, index) >= 0.5]
        if not text_indices and len(others) == 1:
            text_indices = others
    if not text_indices:
        raise GlassError(
            f"{table.name} has {_columns_of(table)}; none except the label reads like text",
            "Set data.column to the column of texts to classify."
            if len(table.names) > 1
            else "Give a table with a column of texts and a column of labels.",
        )
    if label_index in text_indices:
        raise GlassError(
            f"column {table.names[label_index]!r} of {table.name} is both the label and the text",
            "Set data.label_column and data.column to different columns.",
        )
    text_names = ", ".join(table.names[index] for index in text_indices)
    plural = "s" * (len(text_indices) > 1)
    note = f"{table.name}: label: column {table.names[label_index]}, text: column{plural} {text_names}"
    return ChosenColumns((label_index, *text_indices), note + _header_note(table))


def choose_input(table: Table, kind: RecordKind, data: DataConfig, column: str | None) -> ChosenColumns:
    """Choose the columns that a trained model reads, as in training; labels, targets and answers may be missing.

    Args:
        table: the table to choose from.
        kind: the kind of records that the model learned from.
        data: the settings of its training data; its `column` is the choice if the table has this column.
        column: name or number of the column; for texts to classify and questions, several are separated by commas.
            None: the choice of `data`, or else an automatic choice.

    Raises:
        GlassError: there is no such column, or the choice is not clear.
    """
    indices: list[int] | None = None
    if column is not None:
        several = kind.labels != "none" or kind.loss_spans
        indices = _column_indices(table, column) if several else [_column_index(table, column)]
    elif data.column is not None:
        with suppress(GlassError):  # the table need not have the columns of the training data
            indices = _column_indices(table, data.column)
    if indices is None and not kind.running_text:
        with suppress(GlassError):  # no labels or no targets
            if kind.labels != "none":
                indices = list(choose_labelled(table, _name_in(table, data.label_column), None).indices[1:])
            elif kind.loss_spans:
                indices = _asked_columns(table, _name_in(table, data.target_column))
            else:
                indices = list(choose_pair(table, None, _name_in(table, data.target_column)).indices[:1])
        if indices is not None and all(_holds_numbers(table, index) for index in indices):  # such as an id
            indices = None
    if indices is None:
        return choose_text(table, None)
    if kind.loss_spans and _has_name(table, indices[0], MESSAGES_NAMES) and _holds_json(table, indices[0]):
        raise GlassError(
            f"column {table.names[indices[0]]} of {table.name} has conversations, not questions",
            "Name a column of questions with --data.column.",
        )
    names = ", ".join(table.names[index] for index in indices)
    plural = "columns" if len(indices) > 1 else "column"
    systems = _with_name(table, SYSTEM_NAMES) if kind.loss_spans else []
    unread = ", ".join(table.names[index] for index in systems if index not in indices)
    not_read = f"; columns that are not read: {unread}" if unread else ""
    return ChosenColumns(tuple(indices), f"{table.name}: {plural} {names} read as input{not_read}{_header_note(table)}")


def _asked_columns(table: Table, answer: str | None) -> list[int]:
    """Return the columns that form a question in training; without an answer column, those with the usual names.

    Raises:
        GlassError: the choice is not clear.
    """
    questions = _with_name(table, QUESTION_NAMES)
    contexts = _with_name(table, CONTEXT_NAMES)
    if answer is None and not _with_name(table, ANSWER_NAMES) and len(questions) == 1 and len(contexts) <= 1:
        return [*questions, *contexts]
    chosen = choose_conversation(table, None, answer)
    return [index for index, use in zip(chosen.indices, chosen.uses, strict=True) if use not in ("answer", "system")]


def _holds_numbers(table: Table, index: int) -> bool:
    """Return whether all nonempty values of a column are numbers."""
    texts = [text for value in table.columns[index] if (text := (plain_text(value) or "").strip())]
    return bool(texts) and all(map(NUMBER.fullmatch, texts))


def _name_in(table: Table, column: str | None) -> str | None:
    """Return the name of a column if the table has it."""
    return column if column in table.names else None


def plain_text(value: object) -> str | None:
    """Return a value as text. Numbers, true and false are written as in JSON; null, lists and objects give None."""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return value if isinstance(value, str) else None


def label_texts(value: object, kind: RecordKind) -> tuple[str, ...] | None:
    """Return the labels of a record as text (several labels are in a list), or None if a value is not a label."""
    if isinstance(value, list) and kind.labels == "several":
        labels = tuple(text for each in value if (text := plain_text(each)) is not None)
        return labels if len(labels) == len(value) else None
    label = plain_text(value)
    return None if label is None else (label,)


def _columns_of(table: Table) -> str:
    return f"{'the columns' if len(table.names) > 1 else 'only the column'} {', '.join(table.names)}"


def _header_note(table: Table) -> str:
    return f" (row 1 contains the names {', '.join(table.names)})" if table.header else ""


def _column_index(table: Table, column: str) -> int:
    if column in table.names:
        return table.names.index(column)
    if table.format != "jsonl" and column.isdecimal() and 1 <= int(column) <= len(table.names):
        return int(column) - 1
    if table.header or table.format == "jsonl":
        names = ", ".join(table.names)
        raise GlassError(f"{table.name} has no column {column!r}; it has {names}", nearest(column, table.names))
    first = ", ".join(f"{number + 1}: {cell[:20]!r}" for number, cell in enumerate(table.first))
    raise GlassError(
        f"{table.name} has no column {column!r}; its first row does not look like column names ({first})",
        f"Give a column number: {span(1, len(table.names))}.",
    )


def _column_indices(table: Table, columns: str) -> list[int]:
    if columns in table.names:
        return [table.names.index(columns)]
    indices = [_column_index(table, part.strip()) for part in columns.split(",")]
    if len(set(indices)) != len(indices):
        raise GlassError(f"data.column = {columns!r} names a column twice", "Name each column once.")
    return indices


def _has_name(table: Table, index: int, names: frozenset[str]) -> bool:
    return table.names[index].lower() in names


def _text_fraction(table: Table, index: int) -> float:
    """Return the fraction of a column's nonempty values that read like text."""
    filled = [value for value in table.columns[index] if isinstance(value, str) and value.strip()]
    return sum(map(reads_like_text, filled)) / len(filled) if filled else 0.0


def _only_text(table: Table) -> int:
    """Return the index of the only column that has mostly text or is called text, or of a table's single column.

    Raises:
        GlassError: no column, or more than one, has mostly text.
    """
    if len(table.names) == 1:
        return 0
    plausible = [
        index
        for index in range(len(table.names))
        if _has_name(table, index, TEXT_NAMES) or _text_fraction(table, index) >= 0.5
    ]
    if len(plausible) == 1:
        return plausible[0]
    problem = f"columns {', '.join(table.names[index] for index in plausible)} all contain text"
    raise GlassError(
        f"{table.name} has several columns ({', '.join(table.names)}) and "
        f"{problem if plausible else 'no column reads like text'}",
        "Set data.column to the name of the column to read.",
    )


def _pair_candidates(table: Table) -> list[int]:
    indices = list(range(len(table.names)))
    if table.format != "jsonl":
        return indices if len(indices) == 2 else [index for index in indices if _text_fraction(table, index) >= 0.5]
    strings = [i for i in indices if any(isinstance(v, str) for v in table.columns[i])]
    if len(strings) >= 2:
        return strings
    scalars = [i for i in indices if any(plain_text(v) is not None for v in table.columns[i])]
    usual = [i for i in scalars if i in strings or _has_name(table, i, SOURCE_NAMES | TARGET_NAMES)]
    return scalars if len(scalars) == 2 else usual


def _label_index(table: Table, text_indices: list[int]) -> int:
    """Return the index of the only column with a usual label name, or else with short values that repeat."""
    label_columns = [i for i in range(len(table.names)) if i not in text_indices and _has_name(table, i, LABEL_NAMES)]
    if len(label_columns) == 1:
        return label_columns[0]
    distinct: dict[int, int] = {}
    for index, values in enumerate(table.columns):
        labels = [text for value in values if (text := (plain_text(value) or "").strip())]
        count = len(set(labels))
        max_distinct = max(min(len(labels) // 2, 10), len(labels) // 4)
        if index not in text_indices and count and count <= max_distinct and max(map(len, labels)) <= LONGEST_LABEL:
            distinct[index] = count
    candidates = [index for index, count in distinct.items() if count > 1] or list(distinct)
    candidates = [index for index in candidates if _text_fraction(table, index) < 0.5] or candidates
    by_name = [index for index in candidates if _has_name(table, index, LABEL_NAMES)]
    for choice in (candidates, by_name):
        if len(choice) == 1:
            return choice[0]
    detail = f"columns {', '.join(table.names[i] for i in candidates)} could be the label" if candidates else ""
    raise GlassError(
        f"{table.name} has {_columns_of(table)}; {detail or 'none has a few short values that repeat'}",
        "Set data.label_column to the label column."
        if len(table.names) > 1
        else "Give a table with a column of texts and a column of labels.",
    )
