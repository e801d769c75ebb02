"""Validate the inputs of estimators: texts in any one-dimensional container."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any

from glassformer.base.errors import GlassError
from glassformer.base.wording import counted
from glassformer.text.tokenizers.pieces import utf8


class RefusedError(GlassError, ValueError):
    """A `GlassError` that is also a `ValueError`, as scikit-learn and its users expect."""


@contextmanager
def refused() -> Iterator[None]:
    """Turn every `GlassError` raised in the block into a `RefusedError`."""
    try:
        yield
    except RefusedError:
        raise
    except GlassError as error:
        raise RefusedError(error.problem, error.remedy) from error


def as_texts(X: Any, name: str = "X") -> list[str]:
    """Return the texts of a list, a tuple, a one-dimensional array or a pandas Series as plain strings.

    Raises:
        RefusedError: X is not such a container or is empty, or an element is not a string of valid Unicode.
    """
    if isinstance(X, str | bytes):
        kind = "text" if isinstance(X, str) else "bytes object"
        raise RefusedError(f"{name} is a single {kind}, not a list of texts", f'Give a list: {name} = ["...", "..."].')
    shape = getattr(X, "shape", None)
    if shape is not None and len(shape) != 1:
        raise RefusedError(
            f"{name} has shape {tuple(shape)}, not one text for each example",
            f"Give one dimension: one column, such as {name}[:, 0], or a Series of a DataFrame.",
        )
    if isinstance(X, Mapping | Set) or not (hasattr(X, "__len__") and hasattr(X, "__iter__")):
        raise RefusedError(
            f"{name} has type {type(X).__name__}, but must be a sequence of texts",
            "Give a list, a tuple, a one-dimensional array or a pandas Series of strings.",
        )
    texts = [_text(value, f"{name}[{index}]") for index, value in enumerate(X)]
    if not texts:
        raise RefusedError(f"{name} has 0 texts", "Give at least one text.")
    return texts


def _text(value: Any, name: str) -> str:
    if isinstance(value, str):
        text = str(value)
        if not text.isascii():
            with refused():
                utf8(text)
        return text
    if isinstance(value, bytes):
        raise RefusedError(f"{name} is bytes, not a string", 'Decode it, for example with value.decode("utf-8").')
    not_a_number = isinstance(value, float) and math.isnan(value)
    if value is None or not_a_number or type(value).__name__ in ("NAType", "NaTType"):  # pandas' own
        raise RefusedError(f"{name} is missing ({value})", "Leave that example out, or give an empty string.")
    description = f"{value!r:.40} (type {type(value).__name__})"
    raise RefusedError(
        f"{name} is {description}, not a string", "Give a string for each example, for example str(value)."
    )


def same_number(X: Sequence[str], y: Any, name: str = "y") -> None:
    """Raise a `RefusedError` unless X and y have the same length."""
    if len(X) != len(y):
        raise RefusedError(
            f"X has {counted(len(X), 'texts')}, but {name} has {len(y):,}",
            f"Give X and {name} the same number of elements.",
        )
