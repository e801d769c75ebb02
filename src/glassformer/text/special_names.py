"""Special tokens in the text of a conversation: only a template can write them; a message cannot.

In the rendered text, a mark replaces each special token that the template writes, by name (`<|im_end|>`) or as
`eos_token` or `bos_token`. A mark becomes one token; the same name in a message stays text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Self

from glassformer.text.records import END_MARK, NAME_END_MARK, NAME_MARK, START_MARK

if TYPE_CHECKING:
    from glassformer.text.tokenizers import Tokenizer

HIDDEN = ("\ufdd4", "\ufdd5")
"""Marks around the number that replaces a special name in a message while the template is rendered."""
SPACE = r"\s*"
RESERVED = re.compile("[\ufdd0-\ufdd5]")
MARK = re.compile(f"[{END_MARK}{START_MARK}]|{NAME_MARK}[^{NAME_END_MARK}]*{NAME_END_MARK}")
PART = re.compile(f"{MARK.pattern}|[^{END_MARK}{START_MARK}{NAME_MARK}]+")  # marks, and the text between them


@dataclass(frozen=True)
class SpecialNames:
    """Names of special tokens that a chat template may write.

    Attributes:
        marks: the mark of each token, by name.
        space_before, space_after: marks of tokens that absorb the white space before or after them.
        starts: whether rows begin with a start token, so that the start token of the template is left out.
    """

    marks: Mapping[str, str] = field(default_factory=dict)
    space_before: frozenset[str] = frozenset()
    space_after: frozenset[str] = frozenset()
    starts: bool = True

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Self:
        """Return the names of a tokenizer's special tokens."""
        marks = {name: f"{NAME_MARK}{name}{NAME_END_MARK}" for name in tokenizer.special_tokens}
        marks[tokenizer.token_text(tokenizer.start_id)] = START_MARK
        marks[tokenizer.token_text(tokenizer.end_id)] = END_MARK
        before = frozenset(marks[name] for name in tokenizer.takes_space_before if name in marks)
        after = frozenset(marks[name] for name in tokenizer.takes_space_after if name in marks)
        return cls(marks, before, after, tokenizer.frame is None or bool(tokenizer.frame.before))

    @cached_property
    def _message_pattern(self) -> re.Pattern[str]:
        """Return a pattern for the names in a message, the longest names first."""
        return re.compile("|".join(map(re.escape, _longest_first(self.marks))))

    @cached_property
    def _rendered_pattern(self) -> re.Pattern[str]:
        """Return a pattern for names in a rendered text, each in a group, with the space that the token absorbs."""
        marks = {**self.marks, START_MARK: START_MARK, END_MARK: END_MARK}
        return re.compile(
            "|".join(
                f"{SPACE if marks[name] in self.space_before else ''}({re.escape(name)})"
                f"{SPACE if marks[name] in self.space_after else ''}"
                for name in _longest_first(marks)
            )
        )

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.marks)}

    def hide(self, text: str) -> str:
        """Replace marks in a message by U+FFFD, and special names by placeholders; `show` restores the names."""
        cleaned = RESERVED.sub("\ufffd", text)
        if not self.marks:
            return cleaned
        begin, end = HIDDEN
        return self._message_pattern.sub(lambda match: f"{begin}{self._numbers[match.group()]}{end}", cleaned)

    def show(self, text: str) -> str:
        """Restore the names that `hide` replaced."""
        begin, end = HIDDEN
        for name, number in self._numbers.items() if begin in text else ():
            text = text.replace(f"{begin}{number}{end}", name)
        return text

    def mark(self, text: str) -> str:
        """Replace the names in a rendered text by marks."""
        if not self.marks:
            return text
        marked = self._rendered_pattern.sub(lambda match: self._mark_for(match[match.lastindex or 0]), text)
        by_name = marked.startswith(END_MARK) and not text.startswith(END_MARK)
        if by_name and START_MARK not in self.marks.values():  # one token both begins and ends texts
            return START_MARK + marked.removeprefix(END_MARK)
        return marked

    def _mark_for(self, name: str) -> str:
        return self.marks.get(name, name)


def _longest_first(names: Iterable[str]) -> list[str]:
    return sorted(names, key=len, reverse=True)


def id_of_mark(text: str, tokenizer: Tokenizer) -> int | None:
    """Return the id of the token that a mark represents, or None if the text is not a mark."""
    if text == END_MARK:
        return tokenizer.end_id
    if text == START_MARK:
        return tokenizer.start_id
    if text.startswith(NAME_MARK):
        return tokenizer.special_tokens[text[1:-1]]
    return None


def parts_of(text: str) -> list[str]:
    """Split a text into its marks and the texts between the marks."""
    return PART.findall(text)


def marked_ids(text: str, tokenizer: Tokenizer) -> list[int]:
    """Return the token ids of a text with marks."""
    ids: list[int] = []
    for part in parts_of(text):
        id = id_of_mark(part, tokenizer)
        ids += tokenizer.encode(part) if id is None else [id]
    return ids
