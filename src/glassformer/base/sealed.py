"""JSON files that record the SHA-256 of their own contents, so that an edited or truncated file is detected."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glassformer.base.errors import MALFORMED, GlassError
from glassformer.base.files import write_text

SEAL = "sha256"
"""Name of the entry with the SHA-256 of all other entries."""


def write_sealed(path: Path, facts: Mapping[str, Any]) -> None:
    """Write JSON values and the SHA-256 of these values atomically."""
    sealed = {**facts, SEAL: _digest(facts)}
    write_text(path, json.dumps(sealed, indent=1, ensure_ascii=False) + "\n")


def read_sealed(path: Path, remedy: str) -> dict[str, Any]:
    """Return the values in a file that `write_sealed` wrote, without their SHA-256.

    Args:
        path: path of the file.
        remedy: second line of the errors.

    Raises:
        GlassError: the file is missing, damaged or edited.
    """
    try:
        facts = dict(json.loads(path.read_text(encoding="utf-8")))
        digest = facts.pop(SEAL, None)
        is_unaltered = digest == _digest(facts)
    except FileNotFoundError:
        raise GlassError(f"{path} is missing", remedy) from None
    except (OSError, *MALFORMED):
        raise GlassError(f"{path} is damaged or cannot be read", remedy) from None
    if digest is None:
        raise GlassError(f"{path} does not record its own SHA-256: it was edited, or another version wrote it", remedy)
    if not is_unaltered:
        raise GlassError(f"{path} was edited: its contents do not have the SHA-256 that it records", remedy)
    return facts


def _digest(facts: Mapping[str, Any]) -> str:
    values = json.loads(json.dumps({name: value for name, value in facts.items() if name != SEAL}))
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode("utf-8")).hexdigest()
