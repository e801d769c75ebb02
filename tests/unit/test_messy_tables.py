"""Real-world tables: every row is read correctly, refused with its line number, or counted."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.base.config import DataConfig, Task, TokenizerConfig
from glassformer.base.errors import GlassError
from glassformer.text.data_notes import must_be_seen, survey_notes
from glassformer.text.left_out import Tally
from glassformer.text.prepare import prepare
from glassformer.text.records import RECORD_KINDS
from glassformer.text.source import open_source
from glassformer.text.survey import kept_pieces, survey
from glassformer.text.tables import open_table, read_rows
from tests.unit.example_files import CHARACTERS, PAIRS, Write, encoded, jsonl, lines, made, notes, texts, tsv, writer

LM = RECORD_KINDS["lm"]
TASKS: tuple[Task, ...] = ("lm", "classify", "translate")
ROWS = [("spam" if n % 3 == 0 else "ham", f"message number {n} of many") for n in range(300)]
HEADER = "label,text\n"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    return writer(tmp_path)


def with_commas(rows: Sequence[Sequence[str]]) -> str:
    """Join rows with commas, without quotes."""
    return lines(",".join(row) for row in rows)


def running_text(source: str, cache: Path, **settings: Any) -> tuple[list[str], str]:
    """Return the documents that a language model is trained on, and all notes on them."""
    data = DataConfig(source=source, **settings)
    with open_source(LM, data, cache) as opened:
        found = survey(opened)
        documents = [piece.texts[0] for piece in kept_pieces(opened, found, marks=False)]
        return documents, "\n".join([*opened.notes, *survey_notes(found)])


def rows_read(task: Task, source: str, folder: Path, **settings: Any) -> tuple[list[tuple[str, ...]], str]:
    """Return the rows of a table of labels and texts in file order, as the task reads them, and the notes."""
    if task == "lm":
        documents, said = running_text(source, folder, **{"column": "2", **settings})
        return [(text,) for text in documents], said
    columns = {"label_column": "1", "column": "2"} if task == "classify" else {"column": "1", "target_column": "2"}
    found = made(folder, task, source=source, split="end", **{**columns, **settings})
    rows = texts(found)
    return [(label, text) for text, label in rows] if task == "classify" else list(rows), notes(found)


def meant(task: Task, rows: Sequence[tuple[str, str]]) -> list[tuple[str, ...]]:
    """Return the expected result of `rows_read` for these rows."""
    return [row[1:] if task == "lm" else row for row in rows]


def refusal(task: Task, source: str, folder: Path, **settings: Any) -> GlassError:
    """Return the error that refuses a table."""
    with pytest.raises(GlassError) as caught:
        rows_read(task, source, folder, **settings)
    return caught.value


# Stray quotes


def with_stray_quotes(*changed: tuple[int, str]) -> str:
    """Return a table with a header in which some lines (counted from 1) have another text."""
    rows = [list(row) for row in ROWS]
    for line, text in changed:
        rows[line - 2][1] = text
    return HEADER + with_commas(rows)


@pytest.mark.parametrize("task", TASKS)
def test_a_quote_that_is_never_closed_is_refused_with_its_line(task: Task, write: Write, tmp_path: Path) -> None:
    source = write("t.csv", with_stray_quotes((11, '"hello there')))
    error = refusal(task, source, tmp_path)
    assert error.problem == "line 11 of t.csv: a quote is never closed"
    assert "data.quoting" in error.remedy
    assert '""' in error.remedy


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    ("closing", "problem"),
    [
        ('what a 17"', "lines 11 to 200 of t.csv are one quoted cell, and 189 of its lines look like rows"),
        ('she said "yes" to it', "lines 11 to 200 of t.csv: text follows the quote that closes a cell"),
    ],
)
def test_rows_between_two_stray_quotes_are_not_lost(
    task: Task, closing: str, problem: str, write: Write, tmp_path: Path
) -> None:
    source = write("t.csv", with_stray_quotes((11, '"hello there'), (200, closing)))
    error = refusal(task, source, tmp_path)
    assert problem in error.problem
    assert "200" in error.problem
    assert "data.quoting" in error.remedy


@pytest.mark.parametrize(
    ("header", "row"), [("text,label,note", "{1},{0},"), ("text, label", "{1}, {0}"), ("text,label,note", "{1},,x")]
)
def test_rows_with_an_empty_cell_or_spaces_are_not_lost_between_stray_quotes(
    header: str, row: str, write: Write, tmp_path: Path
) -> None:
    rows = [row.format(*cells) for cells in ROWS]
    rows[10] = f'"{rows[10]}'
    rows[199] = rows[199].replace(",", '",', 1)
    error = refusal("lm", write("t.csv", lines([header, *rows])), tmp_path, column="text")
    assert "lines 12 to 201 of t.csv are one quoted cell, and 18" in error.problem
    assert "data.quoting" in error.remedy


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("quoting", ["line", "none"])
def test_stray_quotes_are_characters_on_request(task: Task, quoting: str, write: Write, tmp_path: Path) -> None:
    source = write("t.csv", with_stray_quotes((11, '"hello there'), (200, 'what a 17"'), (250, '"go" she said')))
    expected = list(ROWS)
    for line, text in ((11, '"hello there'), (200, 'what a 17"'), (250, '"go" she said')):
        expected[line - 2] = (ROWS[line - 2][0], text)
    assert rows_read(task, source, tmp_path, quoting=quoting)[0] == meant(task, expected)


def test_quotes_of_cells_are_removed_unless_quoting_is_off(write: Write, tmp_path: Path) -> None:
    source = write("t.csv", 'text\n"one, and ""two"" of it"\n"three, four" of it\nfive and six more\n')
    documents, _ = running_text(source, tmp_path, quoting="line", extra_fields="join")
    assert documents == ['one, and "two" of it', '"three, four" of it', "five and six more"]
    documents, _ = running_text(source, tmp_path, quoting="none", extra_fields="join")
    assert documents == ['"one, and ""two"" of it"', '"three, four" of it', "five and six more"]


def test_a_text_after_the_closing_quote_is_refused_with_its_line(write: Write, tmp_path: Path) -> None:
    source = write("t.csv", HEADER + with_commas(ROWS[:4]) + 'spam,"Free" entry to all\n')
    error = refusal("classify", source, tmp_path)
    assert error.problem == "line 6 of t.csv: text follows the quote that closes a cell"


@pytest.mark.parametrize("task", TASKS)
def test_line_breaks_in_quotes_are_read_and_the_longest_is_named(task: Task, write: Write, tmp_path: Path) -> None:
    expected = [*ROWS[:4], ("ham", "two\nlines"), ("spam", "Dear all,\n\nhello, you\nbest, Bob"), *ROWS[4:]]
    content = (
        HEADER
        + with_commas(ROWS[:4])
        + 'ham,"two\nlines"\nspam,"Dear all,\n\nhello, you\nbest, Bob"\n'
        + with_commas(ROWS[4:])
    )
    rows, said = rows_read(task, write("t.csv", content), tmp_path)
    assert rows == meant(task, expected)
    assert "2 rows with line breaks in quotes" in said
    assert "rows with line breaks in quotes: for example lines 8 to 11 of t.csv" in said


def test_a_cell_that_contains_rows_is_read_on_request(write: Write, tmp_path: Path) -> None:
    inside = "a table:\n" + with_commas(ROWS[:5])
    source = write("t.csv", HEADER + with_commas(ROWS[:9]) + f'ham,"{inside}"\n' + with_commas(ROWS[9:20]))
    assert "lines 11 to 17 of t.csv are one quoted cell" in refusal("lm", source, tmp_path).problem
    documents, _ = running_text(source, tmp_path, column="text", quoting="standard")
    assert documents[9] == inside
    assert len(documents) == 21


# Fields beyond those of row 1


@pytest.mark.parametrize("task", TASKS)
def test_an_unquoted_comma_is_refused_joined_or_truncated_with_a_note(task: Task, write: Write, tmp_path: Path) -> None:
    rows = [*ROWS[:5], ("ham", "well, how are you, friend"), *ROWS[5:9]]
    source = write("t.csv", HEADER + with_commas(rows))
    error = refusal(task, source, tmp_path)
    assert error.problem == "line 7 of t.csv has 4 fields, but the table has 2: the first extra field is ' how are you'"
    assert "data.extra_fields" in error.remedy
    found, said = rows_read(task, source, tmp_path, extra_fields="join")
    assert found == meant(task, rows)
    assert "1 row with more fields than the table has columns (the extra fields are joined to the last column)" in said
    assert "for example line 7 of t.csv" in said
    rows[5] = ("ham", "well")
    found, said = rows_read(task, source, tmp_path, extra_fields="cut")
    assert found == meant(task, rows)
    assert "1 row with more fields than the table has columns (the extra fields are not read)" in said
    assert "for example line 7 of t.csv" in said


def test_trailing_delimiters_are_not_fields(write: Write, tmp_path: Path) -> None:
    source = write("t.csv", "label,text\n" + lines(f"{a},{b},," for a, b in ROWS[:30]))
    rows, said = rows_read("classify", source, tmp_path)
    assert rows == ROWS[:30]
    assert "30 rows with extra fields that are empty (these fields are dropped)" in said
    source = write("u.csv", "label,text,,\n" + lines(f"{a},{b},," for a, b in ROWS[:30]))
    assert rows_read("classify", source, tmp_path, label_column="label", column="text")[0] == ROWS[:30]


def test_a_header_without_a_name_for_the_first_column_is_refused(write: Write, tmp_path: Path) -> None:
    source = write("t.tsv", "label\ttext\n" + tsv((str(n), *row) for n, row in enumerate(ROWS)))
    error = refusal("classify", source, tmp_path)
    assert "300 of the first 300 rows of t.tsv have more fields than its 2 columns" in error.problem
    assert "first column" in error.remedy


def test_a_first_row_with_an_extra_comma_does_not_set_the_columns(write: Write, tmp_path: Path) -> None:
    rows = [("ham", "well, hello you there"), *ROWS]
    source = write("t.csv", with_commas(rows))
    assert refusal("classify", source, tmp_path).problem.startswith("line 1 of t.csv has 3 fields")
    assert rows_read("classify", source, tmp_path, extra_fields="join")[0] == rows


def test_short_rows_are_counted_for_every_task(write: Write, tmp_path: Path) -> None:
    source = write("t.csv", HEADER + with_commas(ROWS[:9]) + "spam\n" + with_commas(ROWS[9:20]))
    for task in TASKS:
        rows, said = rows_read(task, source, tmp_path)
        assert rows == meant(task, ROWS[:20])
        assert "left out 1 row with too few fields" in said
        assert "rows with too few fields: for example line 11 of t.csv" in said


# The header


def test_running_text_keeps_a_first_row_that_is_a_text(write: Write, tmp_path: Path) -> None:
    rows = ["good morning", "how are you today my friend", "I am fine and you"]
    documents, said = running_text(write("t.csv", lines(rows)), tmp_path)
    assert documents == rows
    assert "t.csv: row 1 (good morning) is read as data; data.header = yes reads it as column names" in said
    documents, said = running_text(write("t.csv", lines(rows)), tmp_path, header="yes")
    assert documents == rows[1:]
    assert "(row 1 contains the names good morning)" in said


@pytest.mark.parametrize("rows", [["Go", "Run", "Hi"], ["Go", "Run to the old house over there", "Hi"]])
def test_running_text_does_not_learn_a_header_above_short_rows(rows: list[str], write: Write, tmp_path: Path) -> None:
    documents, said = running_text(write("t.csv", lines(["text", *rows])), tmp_path)
    assert documents == rows
    assert "t.csv: column 'text' is read, the only one that reads like text (row 1 contains the names text)" in said
    documents, _ = running_text(write("t.csv", lines(["text", *rows])), tmp_path, header="no")
    assert documents == ["text", *rows]


def test_a_labelled_table_without_a_header_loses_no_row_of_running_text(write: Write, tmp_path: Path) -> None:
    rows = [("pos", "Great"), *(("pos" if n % 2 else "neg", f"a film of {n} hours, no more") for n in range(30))]
    source = write("t.tsv", tsv(rows))
    assert running_text(source, tmp_path)[0] == [text for _, text in rows]


def test_every_task_reports_a_header(write: Write, tmp_path: Path) -> None:
    source = write("t.csv", HEADER + with_commas(ROWS))
    for task in TASKS:
        assert "(row 1 contains the names label, text)" in rows_read(task, source, tmp_path)[1]


NAMES = {
    "Bangla": ("লেবেল", "পাঠ্য"),
    "Hindi": ("लेबल", "हिन्दी पाठ"),
    "Thai": ("ป้ายกำกับ", "ข้อความที่นี่"),
    "Urdu, with a joiner": ("لیبل", "متن\u200cها"),
}


@pytest.mark.parametrize("script", NAMES)
@pytest.mark.parametrize("task", ["lm", "classify"])
def test_names_with_combining_marks_are_a_header(task: Task, script: str, write: Write, tmp_path: Path) -> None:
    label, text = NAMES[script]
    source = write("t.csv", f"{label},{text}\n" + with_commas(ROWS[:60]))
    rows, said = rows_read(task, source, tmp_path)
    assert rows == meant(task, ROWS[:60])
    assert f"(row 1 contains the names {label}, {text})" in said


def test_headers_in_other_scripts_are_found_in_short_tables(write: Write, tmp_path: Path) -> None:
    for label, text in (("লেবেল", "পাঠ্য"), ("लेबल", "पाठ"), ("ป้ายกำกับ", "ข้อความ")):
        source = write("t.csv", f"{label},{text}\nb,w1\na,w2\nb,w3\na,w4\n")
        found = made(tmp_path, "classify", source=source)
        assert found.labels == ("a", "b")
        assert f"label: column {label}, text: column {text}" in notes(found)


def test_a_header_that_is_repeated_below_is_left_out(write: Write, tmp_path: Path) -> None:
    part = HEADER + with_commas(ROWS[:20])
    for task in TASKS:
        rows, said = rows_read(task, write("t.csv", part * 3), tmp_path)
        assert rows == meant(task, ROWS[:20] * 3)
        assert "left out 2 rows with the names of row 1" in said
    source = write("u.csv", ("text\n" + lines(text for _, text in ROWS[:20])) * 3)
    documents, said = running_text(source, tmp_path)
    assert len(documents) == 63
    assert "u.csv: row 1 (text) is read as data; data.header = yes reads it as column names" in said
    assert running_text(source, tmp_path, header="yes")[0] == [text for _, text in ROWS[:20]] * 3


def test_a_repeated_column_name_is_still_a_name(write: Write, tmp_path: Path) -> None:
    source = write("t.csv", "label,text,text\n" + lines(f"{a},title of it all,{b}" for a, b in ROWS[:40]))
    found = made(tmp_path, "classify", source=source, split="end", column="text.2")
    assert [(label, text) for text, label in texts(found)] == ROWS[:40]
    assert "t.csv: row 1 names two columns text; the second is called text.2" in notes(found)
    both = made(tmp_path, "classify", source=source, split="end")
    assert texts(both)[0] == (f"title of it all\n{ROWS[0][1]}", ROWS[0][0])


@pytest.mark.parametrize("header", ["auto", "yes"])
def test_a_column_without_a_name_is_reported_by_number(header: str, write: Write, tmp_path: Path) -> None:
    source = write("t.csv", ",label,text\n" + lines(f"{n},{a},{b}" for n, (a, b) in enumerate(ROWS[:40])))
    found = made(tmp_path, "classify", source=source, split="end", header=header)
    assert [(label, text) for text, label in texts(found)] == ROWS[:40]
    assert "(row 1 contains the names 1, label, text)" in notes(found)


def test_names_above_numbers_are_a_header(write: Write, tmp_path: Path) -> None:
    rows = [(str(n), f"das ist der Satz {n} von vielen") for n in range(9)]
    documents, said = running_text(write("t.csv", "nr,Satz\n" + with_commas(rows)), tmp_path)
    assert documents == [text for _, text in rows]
    assert "(row 1 contains the names nr, Satz)" in said


def test_names_above_whole_sentences_are_a_header(write: Write, tmp_path: Path) -> None:
    rows = [(f"That is sentence {n}.", f"Das ist der Satz {n}.") for n in range(9)]
    source = write("t.tsv", tsv([("englisch", "deutsch"), *rows]))
    assert texts(made(tmp_path, "translate", source=source, split="end")) == rows
    assert running_text(source, tmp_path, column="2")[0] == [german for _, german in rows]


@pytest.mark.parametrize("content", ["label,text\n", "label,text", "\n\nlabel,text\n\n"])
@pytest.mark.parametrize("task", TASKS)
def test_a_header_alone_is_refused(task: Task, content: str, write: Write, tmp_path: Path) -> None:
    error = refusal(task, write("t.csv", content), tmp_path)
    assert error.problem == "t.csv has no rows below the names label, text"
    assert "data.header = no" in error.remedy


def test_the_header_setting_is_respected(write: Write, tmp_path: Path) -> None:
    source = write("t.tsv", tsv([("englisch", "deutsch"), ("Go", "Los"), ("Run", "Lauf"), ("Hi", "Hallo")]))
    found = made(tmp_path, "translate", source=source, split="end")
    assert texts(found)[0] == ("englisch", "deutsch")
    assert "t.tsv: row 1 (englisch, deutsch) is read as data; data.header = yes reads it as column names" in notes(
        found
    )
    found = made(tmp_path, "translate", source=source, split="end", header="yes")
    assert texts(found) == [("Go", "Los"), ("Run", "Lauf"), ("Hi", "Hallo")]
    with pytest.raises(GlassError, match="no column 'englisch'"):
        made(tmp_path, "translate", source=source, header="no", column="englisch")


# Columns of text


WITHOUT_SPACES = {
    "Thai": "ฉันกินข้าวทุกวันที่บ้านของเรา",
    "Chinese": "去年雨很多今天我们回家了",
    "Japanese": "きょうはいい天気ですね",
    "Khmer": "ខ្ញុំបាយរាល់ថ្ងៃនៅផ្ទះ",
}


@pytest.mark.parametrize("script", WITHOUT_SPACES)
def test_scripts_without_spaces_are_text(script: str, write: Write, tmp_path: Path) -> None:
    texts_in_script = [f"{WITHOUT_SPACES[script]}{n}" for n in range(30)]
    for name, content in (
        ("t.csv", "id,text\n" + lines(f"{n},{text}" for n, text in enumerate(texts_in_script))),
        ("t.jsonl", jsonl({"id": n, "text": text} for n, text in enumerate(texts_in_script))),
    ):
        assert running_text(write(name, content), tmp_path)[0] == texts_in_script
    remarks = lines(f"{n},{text},a remark of four words" for n, text in enumerate(texts_in_script))
    with pytest.raises(GlassError, match="columns body, remark all contain text"):
        running_text(write("u.csv", "id,body,remark\n" + remarks), tmp_path)
    pairs = lines(f"{text},the text number {n},a remark of four words" for n, text in enumerate(texts_in_script))
    with pytest.raises(GlassError, match="the source and target are not clear"):
        made(tmp_path, "translate", source=write("p.csv", "here,there,comment\n" + pairs))
    labelled = lines(f"{'ab'[n % 2]},{text},12" for n, text in enumerate(texts_in_script))
    assert texts(made(tmp_path, "classify", source=write("l.csv", "label,body,n\n" + labelled), split="end"))[0] == (
        texts_in_script[0],
        "a",
    )


def test_a_column_called_text_is_not_passed_over(write: Write, tmp_path: Path) -> None:
    source = write("t.csv", "id,text\n" + lines(f"{n},短い{n}" for n in range(30)))
    assert running_text(source, tmp_path)[0] == [f"短い{n}" for n in range(30)]
    source = write("u.csv", "id,text,remark\n" + lines(f"{n},短い{n},a remark of four words" for n in range(30)))
    with pytest.raises(GlassError, match="columns text, remark all contain text"):
        running_text(source, tmp_path)


# Delimiters, quotes and other conventions of programs


def test_tsv_of_pandas_loses_its_quotes_and_keeps_its_line_breaks(write: Write, tmp_path: Path) -> None:
    odd = [("ham", 'she said "go"'), ("spam", "two\nlines"), ("ham", "a\ttab")]
    written = 'ham\t"she said ""go"""\nspam\t"two\nlines"\nham\t"a\ttab"\n'
    content = "label\ttext\n" + tsv(ROWS[:250]) + written + tsv(ROWS[250:])
    for task in TASKS:
        rows, said = rows_read(task, write("t.tsv", content), tmp_path)
        assert rows == meant(task, [*ROWS[:250], *odd, *ROWS[250:]])
        assert "t.tsv: the quotes around cells are removed; data.quoting = none keeps them" in said


def test_tsv_of_excel_loses_its_quotes(write: Write, tmp_path: Path) -> None:
    content = "label\ttext\n" + tsv(ROWS[:20]) + 'ham\t"well, hello"\nspam\t"now, ""free"""\n' + tsv(ROWS[20:])
    rows, _ = rows_read("classify", write("t.tsv", content), tmp_path)
    assert rows[20:22] == [("ham", "well, hello"), ("spam", 'now, "free"')]


def test_tsv_with_quotes_around_every_text_loses_them(write: Write, tmp_path: Path) -> None:
    content = '"label"\t"text"\t"n"\n' + lines(f'"{a}"\t"{b}"\t{n}' for n, (a, b) in enumerate(ROWS[:30]))
    rows, _ = rows_read("classify", write("t.tsv", content), tmp_path)
    assert rows == ROWS[:30]


@pytest.mark.parametrize(
    "spoken",
    ['"Yes, sir."', '"Go!" he said.', 'He said "go".', '"Where is he?" "I do not know."', '"No'],
)
def test_literal_quotes_in_tsv_are_kept(spoken: str, write: Write, tmp_path: Path) -> None:
    rows = [*ROWS[:20], ("ham", spoken), ("spam", "well, that is it"), *ROWS[20:40], ("ham", '"and more'), *ROWS[40:]]
    found, said = rows_read("translate", write("t.tsv", tsv(rows)), tmp_path)
    assert found == rows
    if spoken.startswith('"'):
        assert "line 21 of t.tsv begins with a quote, which is not removed; data.quoting = standard" in said


def test_a_sep_line_of_excel_sets_the_delimiter(write: Write, tmp_path: Path) -> None:
    for delimiter in (";", "|", "\t"):
        content = f"sep={delimiter}\r\nlabel{delimiter}text\r\n" + "".join(f"{a}{delimiter}{b}\r\n" for a, b in ROWS)
        for task in TASKS:
            rows, said = rows_read(task, write("t.csv", content), tmp_path)
            assert rows == meant(task, ROWS)
            assert "(row 1 contains the names label, text)" in said


def test_spaces_around_the_delimiter_are_not_part_of_quoted_cells(write: Write, tmp_path: Path) -> None:
    rows = [*ROWS[:30], ("ham", 'well, "you"'), ("spam", "two\nlines")]
    quoted = lines('"{}" , "{}"'.format(a, b.replace('"', '""')) for a, b in rows)
    for task in TASKS:
        found, said = rows_read(task, write("t.csv", '"label" , "text"\n' + quoted), tmp_path)
        assert found == meant(task, rows)
        assert "(row 1 contains the names label, text)" in said
    broken = write("u.csv", '"label" , "text"\n' + quoted + '"ham" , "never closed\n')
    assert "line 35 of u.csv: a quote is never closed" in refusal("lm", broken, tmp_path).problem


@settings(max_examples=150)
@given(
    rows=st.lists(
        st.lists(st.text(st.sampled_from('ab ,;"\t\n#é'), max_size=8), min_size=2, max_size=2), min_size=1, max_size=9
    ),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    size=st.integers(1, 9),
)
def test_tables_written_by_csv_programs_are_read_exactly(rows: list[list[str]], quoting: Any, size: int) -> None:
    written = io.StringIO(newline="")
    csv.writer(written, quoting=quoting).writerows([["label", "text"], *rows])
    text = written.getvalue()

    def chunks() -> Iterator[str]:
        return (text[start : start + size] for start in range(0, len(text), size))

    table = open_table(chunks, "csv", "t.csv", DataConfig(delimiter="comma"))
    assert table.header
    assert [values for _, values in read_rows(chunks(), table, (0, 1), Tally())] == rows


def test_spaces_before_quotes_below_a_header_without_spaces(write: Write, tmp_path: Path) -> None:
    rows = [*ROWS[:30], ("ham", "well, you")]
    source = write("t.csv", "label, text\n" + lines(f'{a}, "{b}"' for a, b in rows))
    for task in TASKS:
        assert rows_read(task, source, tmp_path)[0] == meant(task, rows)
    source = write("u.csv", "label, text\n" + lines(f'{a},"{b}, ""so"" , he said"' for a, b in rows) + "ham, kept\n")
    assert running_text(source, tmp_path, column="text")[0][-1] == " kept"


def test_sentences_with_commas_are_not_columns(write: Write, tmp_path: Path) -> None:
    rows = ["Hello, you and me", "Good day, all, and so on", "so it is"]
    source = write("t.csv", lines(rows))
    with pytest.raises(
        GlassError, match=r"the rows of t\.csv have 1 to 3 fields, and a space after each ','"
    ) as caught:
        running_text(source, tmp_path)
    assert ".txt" in caught.value.remedy
    assert running_text(source, tmp_path, delimiter="pipe")[0] == rows


@pytest.mark.parametrize(
    ("rows", "tasks"),
    [
        (["Hello, my world is big", "Bye, my world is small"], ("lm",)),
        ([f"In {1950 + n}, the house number {n} was old" for n in range(50)], ("lm",)),
        ([f"Yes; and the dog number {n} sleeps" for n in range(50)], ("lm",)),
        ([f"{'pos' if n % 2 else 'neg'},a film of {n} hours, no more" for n in range(50)], TASKS),
    ],
)
@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
def test_sentences_with_equally_many_commas_are_not_columns(
    name: str, rows: list[str], tasks: tuple[str, ...], write: Write, tmp_path: Path
) -> None:
    source = write(name, lines(rows))
    for task in tasks:
        with pytest.raises(GlassError, match="as sentences do") as caught:
            made(tmp_path, task, source=source) if task != "lm" else running_text(source, tmp_path)
        assert ".txt" in caught.value.remedy
        assert "data.delimiter" in caught.value.remedy
    assert running_text(source, tmp_path, column="2")[0][0] == rows[0].replace(";", ",").split(",")[1]
    assert running_text(source, tmp_path, delimiter="pipe")[0] == rows


def test_labels_with_a_space_after_the_comma_are_labels(write: Write, tmp_path: Path) -> None:
    rows = [("pos" if n % 2 else "neg", f" a film of {n} hours") for n in range(50)]
    source = write("t.csv", lines(",".join(row) for row in rows))
    assert sorted(made(tmp_path, "classify", source=source).labels) == ["neg", "pos"]


@pytest.mark.parametrize(("name", "delimiter"), [("pipe", "|"), ("tab", "\t"), ("semicolon", ";")])
def test_other_delimiters_are_found(name: str, delimiter: str, write: Write, tmp_path: Path) -> None:
    rows = [(a, f"{b}, and more, or less") for a, b in ROWS]
    source = write("t.csv", lines(delimiter.join(row) for row in rows))
    for task in TASKS:
        found, said = rows_read(task, source, tmp_path)
        assert found == meant(task, rows)
        assert f"t.csv: the delimiter is a {name}" in said


@pytest.mark.parametrize(("name", "delimiter"), [("pipe", "|"), ("tab", "\t"), ("semicolon", ";")])
@pytest.mark.parametrize("every", [1, 2])
def test_line_breaks_in_quotes_do_not_hide_the_delimiter(
    name: str, delimiter: str, every: int, write: Write, tmp_path: Path
) -> None:
    rows = [(a, f"{b}\n\nand, more" if n % every == 0 else b) for n, (a, b) in enumerate(ROWS)]
    content = f"label{delimiter}text\n" + lines(
        f'{a}{delimiter}"{b}"' if "\n" in b else f"{a}{delimiter}{b}" for a, b in rows
    )
    source = write("t.csv", content)
    for task in TASKS:
        found, said = rows_read(task, source, tmp_path)
        assert found == meant(task, rows)
        assert f"t.csv: the delimiter is a {name}" in said


def test_the_delimiter_setting_is_respected(write: Write, tmp_path: Path) -> None:
    source = write("t.csv", "ham,hello|you there\nspam,win now|and here\nham,more of|it all\nspam,we all|win\n")
    assert rows_read("classify", source, tmp_path, delimiter="comma")[0][0] == ("ham", "hello|you there")
    found = made(tmp_path, "translate", source=source, split="end", delimiter="pipe")
    assert texts(found)[0] == ("ham,hello", "you there")


def test_comment_lines_above_a_table_are_skipped_and_reported(write: Write, tmp_path: Path) -> None:
    source = write("t.csv", "# collected by hand\n# in May\n" + HEADER + with_commas(ROWS))
    for task in TASKS:
        rows, said = rows_read(task, source, tmp_path)
        assert rows == meant(task, ROWS)
        assert "t.csv: lines 1 to 2 begin with # and are left out" in said
    tweets = [("#love of the game", "ham"), *((text, label) for label, text in ROWS)]
    found = made(tmp_path, "classify", source=write("tweets.tsv", tsv(tweets)), split="end")
    assert texts(found) == tweets


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("Messages of May\n" + HEADER + with_commas(ROWS), "line 1 is above the table and is left out"),
        ("go,los\nrun,lauf\nhi,hallo\n", "row 1 (go, los) is read as data"),
        ((HEADER + with_commas([("ham", "ein Café im Süden"), *ROWS])).encode("cp1252"), "is read as Windows-1252"),
        ("\ufeff\ufeff" + HEADER + with_commas(ROWS), "begins with two byte order marks"),
        (HEADER + with_commas(ROWS[:9]) + "ham\n", "left out 1 row with too few fields"),
    ],
)
def test_what_is_probably_not_as_intended_must_be_seen(
    content: str | bytes, words: str, write: Write, tmp_path: Path
) -> None:
    _, said = running_text(write("t.csv", content), tmp_path, column="2")
    assert [note for note in said.split("\n") if words in note and must_be_seen(note)]


def test_a_title_above_a_table_is_skipped_and_reported(write: Write, tmp_path: Path) -> None:
    for delimiter in (",", ";"):
        table = (HEADER + with_commas(ROWS)).replace(",", delimiter)
        source = write("t.csv", f"Messages of May\n\n{table}")
        for task in TASKS:
            rows, said = rows_read(task, source, tmp_path)
            assert rows == meant(task, ROWS)
            assert "t.csv: lines 1 to 2 are above the table and are left out" in said
    source = write("u.csv", '"first\nlabel",text\n' + with_commas(ROWS))  # not a title: row 1 has a line break
    assert rows_read("classify", source, tmp_path, header="yes")[0] == ROWS


@pytest.mark.parametrize("above", ["# in May, by hand\n# more\n", "Messages, 2024\n\n", "Made by X\nDate, May\n,\n"])
def test_lines_as_wide_as_the_table_above_it_are_skipped_and_reported(above: str, write: Write, tmp_path: Path) -> None:
    source = write("t.csv", above + HEADER + with_commas(ROWS))
    for task in TASKS:
        rows, said = rows_read(task, source, tmp_path)
        assert rows == meant(task, ROWS)
        assert "left out" in said
        assert "(row 1 contains the names label, text)" in said
    rows_of_data = [("my query", "it"), ("it", "es"), *ROWS]
    assert rows_read("translate", write("u.csv", with_commas(rows_of_data)), tmp_path, header="no")[0] == rows_of_data


def test_a_row_with_an_extra_delimiter_does_not_hide_the_delimiter(write: Write, tmp_path: Path) -> None:
    rows = [("ham", "well; hello you, there"), *ROWS]
    source = write("t.csv", lines(f"{label};{text}" for label, text in rows))
    assert rows_read("classify", source, tmp_path, extra_fields="join")[0] == rows


def test_lines_ending_only_in_carriage_returns_are_refused_with_advice(write: Write, tmp_path: Path) -> None:
    for name, content in (
        ("t.csv", HEADER + with_commas(ROWS)),
        ("t.jsonl", jsonl({"text": text} for _, text in ROWS)),
    ):
        error = refusal("lm", write(name, content.replace("\n", "\r")), tmp_path, column="text")
        assert f"the lines of {name} end with carriage returns alone" in error.problem
        assert "tr '\\r' '\\n'" in error.remedy
    error = refusal("lm", write("u.csv", HEADER + with_commas(ROWS[:2]) + "ham,a\rb\n"), tmp_path)
    assert error.problem == "line 4 of u.csv has a carriage return in a cell without quotes"


def test_table_settings_are_refused_without_a_table(write: Write, tmp_path: Path) -> None:
    book = write("book.txt", "a text\n" * 9)
    rows = write("t.jsonl", jsonl({"text": f"text {n}"} for n in range(9)))
    for name, value in {"header": "no", "delimiter": "tab", "quoting": "none", "extra_fields": "join"}.items():
        for source in (book, rows, "stories"):
            with pytest.raises(GlassError, match=rf"data\.{name} = {value} was given, but .* no CSV or TSV table"):
                running_text(source, tmp_path, **{name: value})
    with pytest.raises(GlassError, match=r"data\.header = no was given"):
        made(tmp_path, "translate", source=book, target=book, header="no")


# JSON


def test_a_column_that_is_filled_late_is_found(write: Write, tmp_path: Path) -> None:
    late = [*({"id": n} for n in range(3000)), *({"id": n, "text": f"message number {n}"} for n in range(30))]
    documents, said = running_text(write("t.jsonl", jsonl(late)), tmp_path, column="text")
    assert documents == [f"message number {n}" for n in range(30)]
    assert "left out 3,000 rows without text in that column" in said
    rows = [*({"label": "x"} for _ in range(3000)), *({"label": label, "body": text} for label, text in ROWS)]
    found = made(tmp_path, "classify", source=write("l.jsonl", jsonl(rows)), column="body", split="end")
    assert len(texts(found)) == 300
    with pytest.raises(GlassError, match="no column 'txet'; it has id, text"):
        running_text(write("t.jsonl", jsonl(late)), tmp_path, column="txet")


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_nan_is_not_a_label(constant: str, write: Write, tmp_path: Path) -> None:
    rows = jsonl({"label": label, "text": text} for label, text in ROWS)
    broken = f'{{"label": {constant}, "text": "no label at all"}}\n' * 2
    found = made(tmp_path, "classify", source=write("t.jsonl", rows + broken))
    assert found.labels == ("ham", "spam")
    assert "left out 2 rows without a label" in found.notes
    assert "rows without a label: for example line 301 of t.jsonl" in found.notes


def test_a_key_that_occurs_twice_is_refused_with_its_line(write: Write, tmp_path: Path) -> None:
    for line in ('{"text": "one two three", "text": "four five"}', '{"text": "one", "more": {"a": 1, "b": 2, "b": 3}}'):
        source = write("t.jsonl", '{"text": "zero"}\n' + line + "\n")
        with pytest.raises(GlassError, match=r"line 2 of t\.jsonl is not JSON: an object has the key '(text|b)' twice"):
            running_text(source, tmp_path)


def test_json_without_lines_is_refused_with_advice(write: Write, tmp_path: Path) -> None:
    array = json.dumps([{"label": label, "text": text} for label, text in ROWS], indent=1)
    source = write("t.json", array)
    for task in TASKS:
        error = refusal(task, source, tmp_path) if task != "lm" else None
        if error is None:
            with pytest.raises(GlassError) as caught:
                running_text(source, tmp_path)
            error = caught.value
        assert "t.json contains JSON" in error.problem
        assert ".jsonl" in error.remedy
    assert running_text(write("t.json", "plain words, and no JSON\n"), tmp_path)[0] == ["plain words, and no JSON\n"]


# Two parallel files


def test_blank_lines_at_the_end_of_one_of_two_files_are_left_out(write: Write, tmp_path: Path) -> None:
    one = write("a.en", "one\ntwo\nthree\n")
    other = write("a.de", "eins\nzwei\ndrei\n\n \n")
    for source, target in ((one, other), (other, one)):
        found = made(tmp_path, "translate", source=source, target=target, split="end")
        assert len(texts(found)) == 3
        assert "2 blank lines at the end of a.de, where the other file has none" in notes(found)
    with pytest.raises(GlassError, match=r"b\.en has 1 line and b\.de has 2, so they are not parallel"):
        made(tmp_path, "translate", source=write("b.en", "one\n"), target=write("b.de", "eins\nzwei\n"))


def test_the_same_file_as_source_and_target_is_reported(write: Write, tmp_path: Path) -> None:
    source = write("a.en", "one\ntwo\nthree\n")
    assert "a.en and a.en are the same text: the model learns to copy" in notes(
        made(tmp_path, "translate", source=source, target=source, split="end")
    )


def test_an_error_about_a_single_example_uses_the_singular(write: Write, tmp_path: Path) -> None:
    with pytest.raises(GlassError, match=r"the only example of .*t\.tsv has the label 'ham'"):
        made(tmp_path, "classify", source=write("t.tsv", "ham\tone of them\n"), label_column="1", column="2")


# Consequences of other reading settings


def test_other_reading_settings_give_a_separate_store(write: Write, tmp_path: Path) -> None:
    source = write("t.csv", "text\n" + lines(f"row {n} of them, and more" for n in range(40)))
    config = TokenizerConfig(kind="bytes")
    readings = [{"extra_fields": "join"}, {"extra_fields": "cut"}, {"extra_fields": "join", "header": "no"}]
    readings += [{"delimiter": "pipe"}, {"delimiter": "pipe", "quoting": "none"}]
    folders = {prepare(LM, DataConfig(source=source, **each), config, tmp_path / "cache").folder for each in readings}
    assert len(folders) == len(readings)
    table = write("e.tsv", tsv([("englisch", "deutsch"), *PAIRS]))
    pairs = [made(tmp_path, "translate", source=table, header=header).folder for header in ("auto", "yes")]
    assert pairs[0] != pairs[1]


def test_evaluation_tables_are_read_in_the_same_way(write: Write, tmp_path: Path) -> None:
    tokenizer = made(tmp_path, "classify", CHARACTERS, source=write("t.csv", HEADER + with_commas(ROWS))).tokenizer
    data = DataConfig(source=write("u.csv", HEADER + 'ham,"never closed\n' + with_commas(ROWS)))
    with pytest.raises(GlassError, match=r"line 2 of u\.csv: a quote is never closed"):
        encoded("classify", data, (tokenizer, tokenizer), ("ham", "spam"), tmp_path)


LATE = {"chat": {"input": "red tree", "system": "be old"}, "classify": {"title": "a title of some words"}}


@pytest.mark.parametrize("task", LATE)
def test_keys_that_first_occur_far_below_are_named(task: Task, write: Write, tmp_path: Path) -> None:
    usual = {
        "chat": {"instruction": "the old dog", "output": "sleeps"},
        "classify": {"label": "a", "text": "the old dog"},
    }
    rows = [usual[task]] * 2000 + [usual[task] | LATE[task]] * 10
    kind = RECORD_KINDS[task]
    with open_source(kind, DataConfig(source=write("late.jsonl", jsonl(rows))), tmp_path) as source:
        said = [note for note in survey_notes(survey(source)) if must_be_seen(note)]
    remark = "rows with keys that do not occur in the first 2,000 rows and are not read"
    assert said == [f"10 {remark}", f"{remark}: for example {', '.join(LATE[task])} in line 2001 of late.jsonl"]
    with open_source(kind, DataConfig(source=write("soon.jsonl", jsonl([rows[-1], *rows]))), tmp_path) as source:
        assert not [note for note in survey_notes(survey(source)) if must_be_seen(note)]
