"""Fonts for labels in any script: select the needed installed fonts, and list characters without a font.

matplotlib 3.11 shapes text with HarfBuzz, so Bangla conjuncts and vowel signs, joined Arabic and right-to-left text are
drawn correctly if a font for them is installed. Without such a font, matplotlib would draw a box and warn; here, the
token's id is shown instead.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

import regex

BASE = "DejaVu Sans"
"""Font family that is included in matplotlib."""
WITHOUT_OUTLINES = ("Last Resort", "Adobe Blank", "Color Emoji")
"""Parts of the names of fonts without usable outlines: placeholder boxes, blanks, or colour pictures."""
LONGEST = 16
"""Maximum number of grapheme clusters of a label, including an ellipsis."""
JOINERS = "\u200c\u200d"
"""Invisible joiners, which change the shape of adjacent characters."""


@dataclass(frozen=True)
class Fonts:
    """Fonts for a set of texts.

    Attributes:
        families: font families for matplotlib; each character uses the first family that has it.
        missing: characters that no installed font has.
    """

    families: tuple[str, ...] = (BASE,)
    missing: frozenset[str] = frozenset()

    def label(self, text: str, id: int) -> str:
        """Return the axis label of a token: its text, cut to `LONGEST` clusters, or "#" and its id.

        The id is used if the text is invisible, or contains a character that no installed font has.
        """
        text = _visible(text)
        if not text.strip() or not self.missing.isdisjoint(text):
            return f"#{id}"
        letters = regex.findall(r"\X", text)
        return text if len(letters) <= LONGEST else "".join(letters[: LONGEST - 1]) + "…"

    def labels(self, texts: Iterable[str], ids: Iterable[int]) -> list[str]:
        """Return the labels of many tokens."""
        return [self.label(text, id) for text, id in zip(texts, ids, strict=True)]

    def message(self) -> str | None:
        """Return a one-line message on missing characters, or None if there are none."""
        if not self.missing:
            return None
        sample = " ".join(sorted(self.missing)[:20])
        return (
            f"no installed font has {sample}: tokens with these characters are shown as ids (install a font for them)"
        )


def find_fonts(texts: Iterable[str]) -> Fonts:
    """Select installed fonts that cover the characters of the texts, greedily, beginning with `BASE`."""
    from matplotlib.font_manager import fontManager

    missing = set("".join(map(_visible, texts)))
    faces: dict[str, list[tuple[bool, int, str]]] = {}
    for entry in fontManager.ttflist:
        if not any(part in entry.name for part in WITHOUT_OUTLINES):
            weight = entry.weight if isinstance(entry.weight, int) else 400
            faces.setdefault(entry.name, []).append((entry.style != "normal", abs(weight - 400), entry.fname))
    regular = {name: min(candidates)[2] for name, candidates in faces.items()}
    families = [BASE]
    missing -= _covered(regular.pop(BASE), missing)
    while missing:
        covered = {name: _covered(path, missing) for name, path in regular.items()}
        best = min(
            covered, key=lambda name: (-len(covered[name]), not name.startswith("Noto Sans"), name), default=None
        )
        if best is None or not covered[best]:
            break
        families.append(best)
        missing -= covered[best]
    return Fonts(tuple(families), frozenset(missing))


def _covered(path: str, characters: Iterable[str]) -> set[str]:
    """Return the characters that a font can draw as outlines."""
    from matplotlib.ft2font import FT2Font

    try:
        font = FT2Font(path)
    except (OSError, RuntimeError):  # FreeType cannot read it
        return set()
    return {letter for letter in characters if font.scalable and font.get_char_index(ord(letter))}


def _visible(text: str) -> str:
    """Remove invisible characters, such as direction marks and variation selectors, but not joiners."""
    return "".join(
        letter
        for letter in text
        if letter in JOINERS or (unicodedata.category(letter) != "Cf" and not "\ufe00" <= letter <= "\ufe0f")
    )
