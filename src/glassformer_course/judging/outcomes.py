"""What came of a question, and when two outcomes are the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from glassformer_course.judging.showing import described, shown

TOLERANCES = {"float32": (1e-5, 1e-6), "float16": (1e-2, 1e-3)}
PRECISE = (1e-7, 1e-9)  # relative and absolute, for float64 and Python's own numbers


@dataclass(frozen=True)
class Fault:
    """A question that no value came of.

    Args:
        kind: "raised", or "changed" (an argument was changed).
        words: one line for people.
        sign: what makes two faults the same one: the exception's type, or the argument's place.
    """

    kind: Literal["raised", "changed"]
    words: str
    sign: str


@dataclass(frozen=True)
class Outcome:
    """A value, or a fault."""

    value: Any = None
    fault: Fault | None = None


@dataclass(frozen=True)
class Difference:
    """How a value is not what was expected.

    Args:
        words: one line: what differs, and where first.
        expected, got: the two, shown.
        extent: for arrays, how many places differ and by how much at most; else empty.
    """

    words: str
    expected: str
    got: str
    extent: str = ""


def difference(got: Any, want: Any, relative: float | None = None, absolute: float | None = None) -> Difference | None:
    """The first difference, or None. Types and shapes count: a float32 array is no float64 one, a tuple is no list."""
    if got is None and want is not None:
        return Difference("nothing came back, as from a function without return", described(want), "None")
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
        return Difference("the result is of another kind", described(want), described(got))
    if isinstance(want, (list, tuple)):
        return _of_sequences(got, want, relative, absolute)
    if isinstance(want, dict):
        if missing := [key for key in want if key not in got]:
            return Difference(f"the key {missing[0]!r} is missing", shown(list(want)), shown(list(got)))
        if extra := [key for key in got if key not in want]:
            return Difference(f"there is a key too many: {extra[0]!r}", shown(list(want)), shown(list(got)))
        return _first({f"[{key!r}]": (got[key], want[key]) for key in want}, relative, absolute)
    if isinstance(want, (float, np.floating)):
        close = bool(_close(np.asarray(got), np.asarray(want), relative, absolute))
    else:
        close = bool(got == want)
    return None if close else Difference("the result differs", shown(want), shown(got))


def same(a: Outcome, b: Outcome, relative: float | None = None, absolute: float | None = None) -> bool:
    """Whether two outcomes are one: the same fault, or the same value, NaN equal to NaN."""
    if a.fault or b.fault:
        return bool(a.fault and b.fault and (a.fault.kind, a.fault.sign) == (b.fault.kind, b.fault.sign))
    return difference(a.value, b.value, relative, absolute) is None


def _first(pairs: dict[str, tuple[Any, Any]], relative: float | None, absolute: float | None) -> Difference | None:
    for place, (got, want) in pairs.items():
        found = difference(got, want, relative, absolute)
        if found:
            return Difference(f"{place}: {found.words}", found.expected, found.got, found.extent)
    return None


def _of_sequences(got: Any, want: Any, relative: float | None, absolute: float | None) -> Difference | None:
    found = _first({f"[{i}]": pair for i, pair in enumerate(zip(got, want, strict=False))}, relative, absolute)
    if found is None and len(got) != len(want):
        return Difference("the length differs", f"{len(want)}: {shown(want)}", f"{len(got)}: {shown(got)}")
    return found


def _of_arrays(got: Any, want: Any, relative: float | None, absolute: float | None) -> Difference | None:
    if not isinstance(got, np.ndarray):
        return Difference("the result is no array", described(want), described(got))
    if got.shape != want.shape:
        return Difference("the shape differs", str(want.shape), str(got.shape))
    if got.dtype != want.dtype:
        return Difference("the type of the numbers differs", str(want.dtype), str(got.dtype))
    wrong = ~_close(got, want, relative, absolute)
    if not wrong.any():
        return None
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    where = f"first wrong at [{', '.join(map(str, place))}]" if place else "the number differs"
    with np.errstate(all="ignore"):
        gaps = np.abs(got[wrong].astype(np.float64) - want[wrong].astype(np.float64))
    finite = gaps[np.isfinite(gaps)]
    extent = f"{int(wrong.sum()):,} of {got.size:,} numbers differ"
    extent += f", by {finite.max():.3g} at most" if finite.size else ""
    if not np.isfinite(got[np.isfinite(want)]).all():
        extent += "; some are not finite"
    return Difference(where, shown(want[place].item()), shown(got[place].item()), extent)


def _close(got: Any, want: Any, relative: float | None, absolute: float | None) -> Any:
    """Where numbers agree. Zeros that are expected exactly, as behind a mask, still have the absolute tolerance."""
    if want.dtype.kind in "biu":
        return got == want
    usual = TOLERANCES.get(str(want.dtype), PRECISE)
    relative = usual[0] if relative is None else relative
    absolute = usual[1] if absolute is None else absolute
    with np.errstate(all="ignore"):
        return np.isclose(got, want, rtol=relative, atol=absolute, equal_nan=True)
