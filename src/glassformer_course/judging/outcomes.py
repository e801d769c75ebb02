"""Outcomes of test cases, and their comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from glassformer.base.wording import counted
from glassformer_course.judging.showing import describe_type, format_value

TOLERANCES = {"float32": (1e-5, 1e-6), "float16": (1e-2, 1e-3)}
PRECISE = (1e-7, 1e-9)  # relative and absolute tolerance for float64 and Python floats


@dataclass(frozen=True)
class Fault:
    """A call that failed or changed an argument.

    Args:
        kind: "raised" (an exception), or "changed" (an argument was changed).
        message: description in one line.
        sign: identifies the fault by the exception's type, or by the indices of the changed arguments.
    """

    kind: Literal["raised", "changed"]
    message: str
    sign: str


@dataclass(frozen=True)
class Outcome:
    """The result of a case, or the fault that ended it."""

    value: Any = None
    fault: Fault | None = None

    @property
    def unwritten(self) -> bool:
        """Whether a function that the learner has not written yet ended the case."""
        return self.fault is not None and self.fault.sign == "NotImplementedError"


@dataclass(frozen=True)
class Difference:
    """Difference between the expected value and the value received.

    Args:
        message: description in one line, with the index of the first wrong element.
        expected, actual: the two values as text.
        extent: for arrays, the number of wrong elements and the largest difference; else empty.
    """

    message: str
    expected: str
    actual: str
    extent: str = ""


def difference(
    actual: Any, expected: Any, relative: float | None = None, absolute: float | None = None
) -> Difference | None:
    """Return the first difference, or None if there is none.

    Types and shapes must match too: a float32 array differs from a float64 array, and a tuple from a list. But a NumPy
    scalar matches a Python bool, int or float of the same kind.
    """
    if actual is None and expected is not None:
        return Difference("the result is None (is a return missing?)", describe_type(expected), "None")
    if isinstance(expected, np.ndarray):
        return _array_difference(actual, expected, relative, absolute)
    if isinstance(expected, (bool, np.bool_)):
        same_type = isinstance(actual, (bool, np.bool_))
    elif isinstance(expected, (int, np.integer)):
        same_type = isinstance(actual, (int, np.integer)) and not isinstance(actual, bool)
    elif isinstance(expected, (float, np.floating)):
        same_type = isinstance(actual, (float, np.floating))
    else:
        same_type = type(actual) is type(expected)
    if not same_type:
        return Difference("the result has the wrong type", describe_type(expected), describe_type(actual))
    if isinstance(expected, (list, tuple)):
        return _sequence_difference(actual, expected, relative, absolute)
    if isinstance(expected, dict):
        if missing := [key for key in expected if key not in actual]:
            return Difference(
                f"the key {missing[0]!r} is missing", format_value(list(expected)), format_value(list(actual))
            )
        if extra := [key for key in actual if key not in expected]:
            return Difference(
                f"the key {extra[0]!r} is unexpected", format_value(list(expected)), format_value(list(actual))
            )
        return _first_difference({f"[{key!r}]": (actual[key], expected[key]) for key in expected}, relative, absolute)
    if isinstance(expected, (float, np.floating)):
        close = bool(_close(np.asarray(actual), np.asarray(expected), relative, absolute))
    else:
        close = bool(actual == expected)
    return None if close else Difference("the result differs", format_value(expected), format_value(actual))


def same(a: Outcome, b: Outcome, relative: float | None = None, absolute: float | None = None) -> bool:
    """Return whether two outcomes are the same fault or the same value; NaN equals NaN."""
    if a.fault or b.fault:
        return bool(a.fault and b.fault and (a.fault.kind, a.fault.sign) == (b.fault.kind, b.fault.sign))
    return difference(a.value, b.value, relative, absolute) is None


def _first_difference(
    pairs: dict[str, tuple[Any, Any]], relative: float | None, absolute: float | None
) -> Difference | None:
    for index, (actual, expected) in pairs.items():
        item_difference = difference(actual, expected, relative, absolute)
        if item_difference:
            return Difference(
                f"{index}: {item_difference.message}",
                item_difference.expected,
                item_difference.actual,
                item_difference.extent,
            )
    return None


def _sequence_difference(
    actual: Any, expected: Any, relative: float | None, absolute: float | None
) -> Difference | None:
    item_difference = _first_difference(
        {f"[{i}]": pair for i, pair in enumerate(zip(actual, expected, strict=False))}, relative, absolute
    )
    if item_difference is None and len(actual) != len(expected):
        return Difference(
            "the length differs",
            f"{counted(len(expected), 'items')}: {format_value(expected)}",
            f"{counted(len(actual), 'items')}: {format_value(actual)}",
        )
    return item_difference


def _array_difference(actual: Any, expected: Any, relative: float | None, absolute: float | None) -> Difference | None:
    if not isinstance(actual, np.ndarray):
        return Difference("the result is not an array", describe_type(expected), describe_type(actual))
    if actual.shape != expected.shape:
        return Difference("the shape differs", str(expected.shape), str(actual.shape))
    if actual.dtype != expected.dtype:
        return Difference("the dtype differs", str(expected.dtype), str(actual.dtype))
    wrong = ~_close(actual, expected, relative, absolute)
    if not wrong.any():
        return None
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    description = f"first difference at [{', '.join(map(str, index))}]" if index else "the number differs"
    with np.errstate(all="ignore"):
        gaps = np.abs(actual[wrong].astype(np.float64) - expected[wrong].astype(np.float64))
    finite = gaps[np.isfinite(gaps)]
    count = int(wrong.sum())
    extent = f"{count:,} of {actual.size:,} elements {'differs' if count == 1 else 'differ'}"
    if finite.size and actual.dtype != np.bool_:
        extent += f", by at most {finite.max():.3g}" + (" where both are finite" if finite.size < count else "")
    if not np.isfinite(actual[np.isfinite(expected)]).all():
        extent += "; some results are NaN or infinite"
    return Difference(description, format_value(expected[index].item()), format_value(actual[index].item()), extent)


def _close(actual: Any, expected: Any, relative: float | None, absolute: float | None) -> Any:
    """Return an array of booleans: True where the numbers agree within the tolerances."""
    if expected.dtype.kind in "biu":
        return actual == expected
    default_tolerances = TOLERANCES.get(str(expected.dtype), PRECISE)
    relative = default_tolerances[0] if relative is None else relative
    absolute = default_tolerances[1] if absolute is None else absolute
    with np.errstate(all="ignore"):
        return np.isclose(actual, expected, rtol=relative, atol=absolute, equal_nan=True)
