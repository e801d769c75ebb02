"""Outcomes of test cases, and their comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from glassformer_course.judging.showing import described, shown

TOLERANCES = {"float32": (1e-5, 1e-6), "float16": (1e-2, 1e-3)}
PRECISE = (1e-7, 1e-9)  # relative and absolute tolerance for float64 and Python floats


@dataclass(frozen=True)
class Fault:
    """A call that failed or changed an argument.

    Args:
        kind: "raised" (an exception), or "changed" (an argument was changed).
        words: description in one line.
        sign: identifies the fault by the exception's type, or by the indices of the changed arguments.
    """

    kind: Literal["raised", "changed"]
    words: str
    sign: str


@dataclass(frozen=True)
class Outcome:
    """The result of a case, or the fault that ended it."""

    value: Any = None
    fault: Fault | None = None


@dataclass(frozen=True)
class Difference:
    """Difference between the expected value and the value received.

    Args:
        words: description in one line, with the index of the first wrong element.
        expected, got: the two values as text.
        extent: for arrays, the number of wrong elements and the largest difference; else empty.
    """

    words: str
    expected: str
    got: str
    extent: str = ""


def difference(got: Any, want: Any, relative: float | None = None, absolute: float | None = None) -> Difference | None:
    """Return the first difference, or None if there is none.

    Types and shapes must match too: a float32 array differs from a float64 array, and a tuple from a list.
    """
    if got is None and want is not None:
        return Difference("the function returned None (is a return missing?)", described(want), "None")
    if isinstance(want, np.ndarray):
        return _of_arrays(got, want, relative, absolute)
    if isinstance(want, (bool, np.bool_)):
        same_kind = isinstance(got, (bool, np.bool_))
    elif isinstance(want, (int, np.integer)):
        same_kind = isinstance(got, (int, np.integer)) and not isinstance(got, bool)
    elif isinstance(want, (float, np.floating)):
        same_kind = isinstance(got, (float, np.floating))
    else:
        same_kind = type(got) is type(want)
    if not same_kind:
        return Difference("the result has the wrong type", described(want), described(got))
    if isinstance(want, (list, tuple)):
        return _of_sequences(got, want, relative, absolute)
    if isinstance(want, dict):
        if missing := [key for key in want if key not in got]:
            return Difference(f"the key {missing[0]!r} is missing", shown(list(want)), shown(list(got)))
        if extra := [key for key in got if key not in want]:
            return Difference(f"the key {extra[0]!r} is unexpected", shown(list(want)), shown(list(got)))
        return _first({f"[{key!r}]": (got[key], want[key]) for key in want}, relative, absolute)
    if isinstance(want, (float, np.floating)):
        close = bool(_close(np.asarray(got), np.asarray(want), relative, absolute))
    else:
        close = bool(got == want)
    return None if close else Difference("the result differs", shown(want), shown(got))


def same(a: Outcome, b: Outcome, relative: float | None = None, absolute: float | None = None) -> bool:
    """Return whether two outcomes are the same fault or the same value; NaN equals NaN."""
    if a.fault or b.fault:
        return bool(a.fault and b.fault and (a.fault.kind, a.fault.sign) == (b.fault.kind, b.fault.sign))
    return difference(a.value, b.value, relative, absolute) is None


def _first(pairs: dict[str, tuple[Any, Any]], relative: float | None, absolute: float | None) -> Difference | None:
    for index, (got, want) in pairs.items():
        found = difference(got, want, relative, absolute)
        if found:
            return Difference(f"{index}: {found.words}", found.expected, found.got, found.extent)
    return None


def _of_sequences(got: Any, want: Any, relative: float | None, absolute: float | None) -> Difference | None:
    found = _first({f"[{i}]": pair for i, pair in enumerate(zip(got, want, strict=False))}, relative, absolute)
    if found is None and len(got) != len(want):
        return Difference("the length differs", f"{len(want)} in {shown(want)}", f"{len(got)} in {shown(got)}")
    return found


def _of_arrays(got: Any, want: Any, relative: float | None, absolute: float | None) -> Difference | None:
    if not isinstance(got, np.ndarray):
        return Difference("the result is not an array", described(want), described(got))
    if got.shape != want.shape:
        return Difference("the shape differs", str(want.shape), str(got.shape))
    if got.dtype != want.dtype:
        return Difference("the dtype differs", str(want.dtype), str(got.dtype))
    wrong = ~_close(got, want, relative, absolute)
    if not wrong.any():
        return None
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    where = f"first difference at [{', '.join(map(str, index))}]" if index else "the number differs"
    with np.errstate(all="ignore"):
        gaps = np.abs(got[wrong].astype(np.float64) - want[wrong].astype(np.float64))
    finite = gaps[np.isfinite(gaps)]
    extent = f"{int(wrong.sum()):,} of {got.size:,} numbers differ"
    extent += f", by {finite.max():.3g} at most" if finite.size else ""
    if not np.isfinite(got[np.isfinite(want)]).all():
        extent += "; some are not finite"
    return Difference(where, shown(want[index].item()), shown(got[index].item()), extent)


def _close(got: Any, want: Any, relative: float | None, absolute: float | None) -> Any:
    """Return an array of booleans: True where the numbers agree within the tolerances."""
    if want.dtype.kind in "biu":
        return got == want
    usual = TOLERANCES.get(str(want.dtype), PRECISE)
    relative = usual[0] if relative is None else relative
    absolute = usual[1] if absolute is None else absolute
    with np.errstate(all="ignore"):
        return np.isclose(got, want, rtol=relative, atol=absolute, equal_nan=True)
