"""Decide whether row 1 of a table contains the names of its columns."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Literal


def _word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


MESSAGES_NAMES = _word_set("messages conversations conversation dialogue dialog turns")
SOURCE_NAMES = _word_set(
    "source src input question prompt instruction query document article text story পাঠ্য লেখা पाठ टेक्स्ट ข้อความ"
)
TARGET_NAMES = _word_set("target tgt output answer response completion summary translation highlights title")
LABEL_NAMES = _word_set("label labels class category target topic sentiment intent y লেবেল শ্রেণি लेबल वर्ग श्रेणी ป้ายกำกับ")
OTHER_NAMES = _word_set(
    "id index no date sentence sentence1 sentence2 review comment message body content description headline name "
    "english french german spanish italian portuguese dutch russian polish turkish arabic hindi bangla bengali urdu "
    "tamil chinese japanese korean vietnamese indonesian dialogue abstract tweet sms email query prompt response "
    "completion context system system_prompt reference lang language score rating url"
)
USUAL_NAMES = MESSAGES_NAMES | SOURCE_NAMES | TARGET_NAMES | LABEL_NAMES | OTHER_NAMES
LANGUAGES = _word_set(
    "af am ar as az be bg bn bs ca cs cy da de el en eo es et eu fa fi fr ga gl gu ha he hi hr hu hy id ig is it ja "
    "ka kk km kn ko ky lo lt lv mk ml mn mr ms mt my nb ne nl nn no or pa pl ps pt ro ru sd si sk sl so sq sr sv sw "
    "ta te tg th tl tr uk ur uz vi xh yo zh zu ben deu eng fra hin ita jpn nld por rus spa zho"
)
LONGEST_NAME = 40  # characters
MOST_WORDS = 3  # in a column name
FEW = 20  # minimum number of rows for repeated values to be evidence of labels
LEAST = 3  # minimum number of rows for numbers or texts below a word to be evidence of a header
NUMBER = re.compile(r"[+-]?\d+([.,]\d+)*([eE][+-]?\d+)?%?")
WITHOUT_SPACES = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]|[\U00020000-\U0003ffff]"
)
"""Characters of scripts without spaces between words: Thai, Lao, Burmese, Khmer, Japanese and Chinese."""
MISSING = frozenset(("na", "n/a", "nan", "null", "none", "unknown"))
SENTENCE_ENDS = (".", "!", "?", "।", "。", "！", "？", "…", '."', '!"', '?"')  # no name ends like this
JOINERS = "\u200c\u200d"  # they occur inside words of Persian, Hindi, Bangla and other languages
Verdict = Literal["names", "doubtful", "row"]


def usual_names(cells: Sequence[str]) -> bool:
    """Return whether each cell is a usual column name or a language code."""
    return all(
        cell.lower() in USUAL_NAMES or (cell in (cell.lower(), cell.upper()) and cell.lower() in LANGUAGES)
        for cell in map(str.strip, cells)
    )


def reads_like_text(cell: str) -> bool:
    """Return whether a cell has at least three words, or at least 20 characters, among them a letter and a space.

    In scripts without spaces between words, ten characters are enough.
    """
    if len(cell.split()) >= 3 or (len(cell) >= 20 and any(c.isalpha() for c in cell) and " " in cell):
        return True
    return len(WITHOUT_SPACES.findall(cell)) >= 10


def judge_row_1(rows: Sequence[Sequence[str]]) -> Verdict:
    """Return "names" if row 1 contains column names, "row" if it contains data, and "doubtful" if that is not clear.

    A data row of short texts looks like column names, and would be lost if it were read as a header. Row 1 is therefore
    a header only if its names are usual, or if it differs from the rows below in more than the length of its cells. A
    header of several usual names may be repeated below, as in joined files; a single name that is repeated is doubtful.
    """
    cells = [cell.strip() for cell in rows[0]]
    names = [cell for cell in cells if cell]
    if usual_names(names) and len(set(names)) > 1:
        rows = [rows[0], *(row for row in rows[1:] if row != rows[0])]
    if len(rows) < 2 or not names or not all(map(_could_be_a_name, names)):
        return "row"
    columns = [
        [value for row in rows[1:] if index < len(row) and (value := row[index].strip())] for index in range(len(cells))
    ]
    if any(cell and values.count(cell) > 1 for cell, values in zip(cells, columns, strict=True)):
        return "doubtful" if usual_names(names) else "row"
    if any(not cell and values and not _are_numbers(values) for cell, values in zip(cells, columns, strict=True)):
        return "row"
    if usual_names(names):
        return "names"
    if len(set(names)) == len(names) and _differs(cells, columns):
        return "names"
    return "doubtful"


def _could_be_a_name(cell: str) -> bool:
    """Return whether a cell may be a column name.

    Names are short, and consist of letters, digits and a few symbols. Numbers and words such as "n/a" are not names.
    """
    if len(cell) > LONGEST_NAME or len(cell.split()) > MOST_WORDS or cell[-1] in ".:":
        return False
    first = cell[0].isalnum() or cell[0] in "_#"
    others = all(
        c.isalnum() or c in " _-./()#:" or c in JOINERS or unicodedata.category(c).startswith("M") for c in cell
    )
    return first and others and not cell.replace(".", "").isdecimal() and cell.lower() not in MISSING


def _differs(cells: Sequence[str], columns: Sequence[Sequence[str]]) -> bool:
    """Return whether row 1, whose cells are all different, is unlike the rows below."""
    pairs = [(cell, values) for cell, values in zip(cells, columns, strict=True) if cell]
    if any(len(values) >= LEAST and _are_numbers(values) for _, values in pairs):
        return True
    if max((len(value) for values in columns for value in values), default=0) <= max(map(len, cells)):
        return False
    if len(cells) > 2 and any(cell.lower() in USUAL_NAMES for cell in cells):
        return True
    if any(cell not in set(values) and len(values) >= FEW and _repeat(values) for cell, values in pairs):
        return True
    if any(len(values) >= LEAST and all(value.endswith(SENTENCE_ENDS) for value in values) for _, values in pairs):
        return True
    if all(len(cell) == 1 and cell.isalpha() for cell, _ in pairs):  # columns called a and b, or x and y
        return all(len(value) > 1 for _, values in pairs for value in values)
    return _is_word_above_texts(pairs)


def _are_numbers(values: Sequence[str]) -> bool:
    return all(map(NUMBER.fullmatch, values))


def _repeat(values: Sequence[str]) -> bool:
    """Return whether at most a quarter of a column's values are distinct, as in a label column."""
    return len(set(values)) <= len(values) // 4


def _is_word_above_texts(pairs: Sequence[tuple[str, Sequence[str]]]) -> bool:
    """Return whether row 1 has a single word above the only column of texts.

    With two columns of texts, row 1 may be a pair of short texts, as in many collections of sentence pairs.
    """
    texts = [
        (cell, values)
        for cell, values in pairs
        if len(values) >= LEAST and sum(map(reads_like_text, values)) >= 0.5 * len(values)
    ]
    if len(texts) != 1 or any(character.isdecimal() for cell, _ in pairs for character in cell):
        return False
    cell, values = texts[0]
    return len(cell.split()) == 1 and all(map(reads_like_text, values))
