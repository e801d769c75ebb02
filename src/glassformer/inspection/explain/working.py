"""Recompute a cell of a walk from its printed formula and the shown matrices."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Protocol, get_args

from glassformer.base.config import Activation
from glassformer.inspection.explain import arithmetic, lookups
from glassformer.inspection.explain.arithmetic import FormulaContext, Working
from glassformer.inspection.explain.sections import Numbers


class Meaning(Protocol):
    """Parsed formula that can be evaluated."""

    def whole(self) -> Numbers:
        """Return the matrix, or one that broadcasts to it."""
        ...

    def at(self, row: int, column: int) -> Working:
        """Return the derivation of one cell, step by step."""
        ...


RULES: tuple[tuple[str, Callable[..., Any]], ...] = (
    (r"rows of the embedding matrix(?:, times (\S+))?", lookups.embedding_rows),
    (r"one row for each place", lookups.position_vectors),
    (r"(\w+) turned", lookups.rotated),
    (r"-slope · distance \(ALiBi\)|(?:learned, )?by distance \(\w+\)", lookups.distance_bias),
    (r"√\(mean square of all heads' ([QK]) \+ (\S+)\)", lookups.root_mean_square),
    (r"the (mean of all rows|first row) above", lookups.pooled),
    (r"zeros: no head is left", lookups.no_heads),
    (r"(\w+) / (r_\w) · (\w+)", arithmetic.by_row),
    (r"(\w+) / √(\d+)", arithmetic.scaled),
    (r"\(?(\w+)(?: - mean\))? / √\((variance|mean square) \+ (\S+)\)(.*)", arithmetic.normed),
    (rf"({'|'.join(get_args(Activation))}|silu)\((\w)\)", arithmetic.activated),
    (r"(.*), -inf where hidden", arithmetic.hidden),
    (r"softmax\((.*)\), row by row", arithmetic.softmax),
)
"""Patterns of formulas and the functions that parse them; all other formulas are sums of products."""


def read_formula(formula: str, context: FormulaContext) -> Meaning:
    """Parse a formula of a walk in its context."""
    for pattern, make in RULES:
        if found := re.fullmatch(pattern, formula):
            made: Meaning = make(context, *found.groups())
            return made
    return arithmetic.summed(context, formula)
