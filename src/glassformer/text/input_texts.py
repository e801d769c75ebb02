"""Read the texts of a table that a trained model is applied to: one text for each row, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from glassformer.base.config import DataConfig
from glassformer.base.errors import GlassError
from glassformer.base.wording import counted
from glassformer.text.columns import choose_input, choose_pair, plain_text
from glassformer.text.left_out import Tally
from glassformer.text.records import RecordKind
from glassformer.text.tables import Format, open_table, read_rows


def texts_of_table(
    open_text: Callable[[], Iterable[str]],
    format: Format,
    name: str,
    kind: RecordKind,
    data: DataConfig,
    column: str | None,
    targets: bool = False,
) -> tuple[list[str], list[str]]:
    """Return one text for each row of a table, so that results stay aligned with the rows, and notes for the user.

    Args:
        open_text: function that opens the decoded text of the file again.
        format: format of the file.
        name: the file's name, for messages.
        kind: the kind of records that the model learned from.
        data: how to read the table; the names of columns are those of the training data.
        column: name or number of the column, or None (see `choose_input`).
        targets: for pairs, whether to append each row's target after a tab.

    Raises:
        GlassError: the table or a row cannot be read, the choice of the column is not clear, or a value is a list or an
            object.
    """
    table = open_table(open_text, format, name, data if column is None else data.model_copy(update={"column": column}))
    if targets:
        chosen = choose_pair(table, column, data.target_column if data.target_column in table.names else None)
    else:
        chosen = choose_input(table, kind, data, column)
    tally = Tally()
    texts: list[str] = []
    missing = 0
    for line, values in read_rows(open_text(), table, chosen.indices, tally):
        if any(isinstance(value, list | dict) for value in values):
            raise GlassError(
                f"line {line} of {name} has a list or an object instead of a text",
                "Name a column of texts with --data.column.",
            )
        parts = [plain_text(value) or "" for value in values]
        missing += not any(map(str.strip, parts))
        if targets:
            texts.append("\t".join(part.replace("\t", " ") for part in parts))
        else:
            texts.append("\n".join(part for part in parts if part.strip()))
    if tally.left_out:
        reason, count = next(iter(tally.left_out.items()))
        raise GlassError(
            f"{name} has {counted(count, reason)}, for example {tally.example_positions[reason][1]}",
            "Complete these rows, so that each row has a text.",
        )
    notes = [*table.notes, chosen.note, *tally.notes()]
    if missing:
        notes.append(f"{name}: {counted(missing, 'rows without a text', 'row without a text')}, read as an empty text")
    return texts, notes
