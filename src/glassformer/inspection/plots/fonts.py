"""Fonts for labels in any script: which of those on this machine are needed, and what none of them can draw.

matplotlib 3.11 shapes text with HarfBuzz: Bangla conjuncts and vowel signs, joined Arabic and right-to-left lines come
out as they are written, wherever a font for them exists. A character without a font would become a box and a warning;
here its token is shown by its id instead.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

import regex

BASE = "DejaVu Sans"
"""Comes with matplotlib."""
WITHOUT_OUTLINES = ("Last Resort", "Adobe Blank", "Color Emoji")
"""Fonts that claim characters and draw boxes, nothing, or pictures that matplotlib cannot draw."""
LONGEST = 16
"""Letters of a label, as people count them."""
JOINERS = "\u200c\u200d"
"""They are invisible, and shape what is beside them."""


@dataclass(frozen=True)
class Fonts:
    """Fonts for some texts.

    Attributes:
        families: for matplotlib; a character is taken from the first one that has it.
        missing: characters that no font here has.
    """

    families: tuple[str, ...] = (BASE,)
    missing: frozenset[str] = frozenset()

    def label(self, text: str, id: int) -> str:
        """A token for an axis: its text, shortened, or its id where that could not be drawn or seen."""
        text = _visible(text)
        if not text.strip() or not self.missing.isdisjoint(text):
            return f"#{id}"
        letters = regex.findall(r"\X", text)
        return text if len(letters) <= LONGEST else "".join(letters[: LONGEST - 1]) + "…"

    def labels(self, texts: Iterable[str], ids: Iterable[int]) -> list[str]:
        """Return the labels of many tokens."""
        return [self.label(text, id) for text, id in zip(texts, ids, strict=True)]

    def message(self) -> str | None:
        """Return a message for a person, in one line; None where nothing is missing."""
        if not self.missing:
            return None
        some = " ".join(sorted(self.missing)[:20])
        return f"no font on this machine has {some}: tokens with them are shown by their ids (install a font for them)"


def find_fonts(texts: Iterable[str]) -> Fonts:
    """The fewest fonts of this machine that have the characters of the texts; others are searched only if needed."""
    from matplotlib.font_manager import fontManager

    missing = set("".join(map(_visible, texts)))
    paths: dict[str, list[tuple[bool, int, str]]] = {}
    for entry in fontManager.ttflist:
        if not any(words in entry.name for words in WITHOUT_OUTLINES):
            weight = entry.weight if isinstance(entry.weight, int) else 400
            paths.setdefault(entry.name, []).append((entry.style != "normal", abs(weight - 400), entry.fname))
    regular = {name: min(found)[2] for name, found in paths.items()}
    families = [BASE]
    missing -= _covered(regular.pop(BASE), missing)
    while missing:
        has = {name: _covered(path, missing) for name, path in regular.items()}
        best = min(has, key=lambda name: (-len(has[name]), not name.startswith("Noto Sans"), name), default=None)
        if best is None or not has[best]:
            break
        families.append(best)
        missing -= has[best]
    return Fonts(tuple(families), frozenset(missing))


def _covered(path: str, characters: Iterable[str]) -> set[str]:
    """Return the characters that a font has as outlines."""
    from matplotlib.ft2font import FT2Font

    try:
        font = FT2Font(path)
    except (OSError, RuntimeError):  # FreeType cannot read it
        return set()
    return {letter for letter in characters if font.scalable and font.get_char_index(ord(letter))}


def _visible(text: str) -> str:
    """Remove invisible marks that shape nothing: direction marks, variation selectors."""
    return "".join(
        letter
        for letter in text
        if letter in JOINERS or (unicodedata.category(letter) != "Cf" and not "\ufe00" <= letter <= "\ufe0f")
    )
