"""Format values for messages: short, with dtype and shape for arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from glassformer_course.judging.worker import Other

LONGEST = 72  # maximum characters of a value


def format_value(value: Any) -> str:
    """Return a value as text of at most `LONGEST` characters.

    An array is shown as its dtype and shape, with its numbers if it has one axis and they fit.

    >>> import numpy as np
    >>> format_value(3), format_value("ab"), format_value(np.zeros((2, 5))), format_value(np.array([1, 2]))
    ('3', "'ab'", 'float64 (2, 5)', 'int64 (2,) [1 2]')
    """
    if isinstance(value, np.ndarray):
        kind = f"{value.dtype} {value.shape}"
        text = " ".join(str(value).split())
        return f"{kind} {text}" if value.ndim == 1 and len(kind) + len(text) < LONGEST else kind
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return f"{value:.7g}"
    text = repr(value) if not isinstance(value, (list, tuple, dict)) else _format_items(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def describe_type(value: Any) -> str:
    """Return the type of a value, with the shape of an array and the length of a list, tuple or dictionary.

    >>> describe_type(1.5), describe_type([1, 2]), describe_type(None)
    ('float', 'list of 2', 'None')
    """
    if isinstance(value, np.ndarray):
        return f"{value.dtype} array {value.shape}"
    if value is None:
        return "None"
    if isinstance(value, (list, tuple, dict)):
        return f"{type(value).__name__} of {len(value)}"
    if isinstance(value, Other):
        return value.kind
    return type(value).__name__


def _format_items(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {format_value(each)}" for key, each in value.items()) + "}"
    items = ", ".join(format_value(each) for each in value)
    return f"[{items}]" if isinstance(value, list) else f"({items})"
