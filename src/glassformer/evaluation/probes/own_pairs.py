"""User-provided minimal pairs, from a JSON Lines file in BLiMP's format.

{"sentence_good": "The cats sleep.", "sentence_bad": "The cats sleeps.", "field": "syntax", "UID": "plural_subject"}

Only the two sentences are required. Results are grouped by UID, or by `field` if no line has a UID. The other fields of
BLiMP (Warstadt et al. 2020, "BLiMP: The Benchmark of Linguistic Minimal Pairs for English") are ignored.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from glassformer.base.errors import GlassError, nearest_file
from glassformer.corpora import MinimalPair

SENTENCES = ("sentence_good", "sentence_bad")
GROUPS = ("UID", "field")
LAYOUT = 'Write one JSON object per line: {"sentence_good": "...", "sentence_bad": "...", "UID": "..."}.'


def read_pairs(path: Path) -> list[MinimalPair]:
    """Read minimal pairs from a file; all tokens of both sentences are scored.

    Raises:
        GlassError: the file does not exist, cannot be read or has no pairs, or a line is not a pair (the error gives
            its number).
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise GlassError(f"{path} does not exist", nearest_file(path, "Give a .jsonl file of minimal pairs.")) from None
    except OSError as error:
        raise GlassError(f"{path} cannot be read: {error.strerror}", "Give a .jsonl file of minimal pairs.") from None
    except UnicodeDecodeError as error:
        raise GlassError(f"{path} is not UTF-8 at byte {error.start}", "Save it as UTF-8.") from None
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise GlassError(f"{path} has no pairs", LAYOUT)
    rows = [_row(line, f"{path}, line {number}") for number, line in lines]
    key = next((key for key in GROUPS if any(key in row for row in rows)), "")
    return [
        MinimalPair(
            row[SENTENCES[0]], row[SENTENCES[1]], scored_from=0, cell=str(row.get(key, "")), attractors=0, twin=number
        )
        for number, row in enumerate(rows)
    ]


def _row(line: str, location: str) -> dict[str, Any]:
    """Parse one line, and check that it is a pair."""
    try:
        row = json.loads(line)
    except ValueError as error:
        raise GlassError(f"{location} is not JSON: {error}", LAYOUT) from None
    if not isinstance(row, dict):
        raise GlassError(f"{location} contains {json.dumps(row)[:60]}, which is not an object", LAYOUT)
    for name in SENTENCES:
        if name not in row:
            raise GlassError(f"{location} has no {name}", LAYOUT)
        if not isinstance(row[name], str) or not row[name].strip():
            raise GlassError(f"{location}: {name} is {json.dumps(row[name])[:60]}", "Give a text that is not empty.")
    if row[SENTENCES[0]] == row[SENTENCES[1]]:
        raise GlassError(f"{location}: both sentences are {row[SENTENCES[0]][:60]!r}", "Write two different sentences.")
    return row
