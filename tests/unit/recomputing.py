"""Recompute every step of a walk in NumPy, from the displayed names, formulas and numbers."""

from __future__ import annotations

import re
from math import sqrt
from typing import Any, get_args

import numpy as np

from glassformer.base.config import Activation
from glassformer.inspection.explain import Matrix, Section, Walk
from glassformer.inspection.explain.operations import Numbers
from glassformer.numpy_reference.activations import activate

NAMES = {**{name: name for name in get_args(Activation)}, "silu": "swiglu"}
"""Name of an activation in formulas -> its name in the NumPy reference."""


class Bench:
    """Recomputation of every step from the displayed names, formulas and numbers."""

    def __init__(self, causal: bool, window: int | None) -> None:
        self.known: dict[str, Numbers] = {}
        self.done: set[str] = set()
        self.causal = causal
        self.window = window

    def section(self, section: Section) -> None:
        if section.key in ("encoder", "decoder"):
            self.causal = section.key == "decoder"
        if section.key == "decoder":
            self.known = {"memory": self.known["Y"] if "Y" in self.known else self.known["X"]}
        for matrix in section.matrices:
            self.matrix(matrix)
        for child in section.children:
            self.section(child)
        if section.key == "layer":  # the next step names the output of this one X
            self.known["X"] = self.known[max(name for name in self.known if re.fullmatch(r"X\d", name))]
            self.known = {name: value for name, value in self.known.items() if not re.fullmatch(r"X\d|N\d|O\d?", name)}

    def matrix(self, matrix: Matrix) -> None:
        again = self.again(matrix.formula)
        if again is not None:
            self.done.add(matrix.name)
            assert np.allclose(matrix.values, again, atol=3e-4, rtol=3e-4), (matrix.name, matrix.formula)
        self.known[matrix.name] = matrix.values

    def again(self, formula: str) -> Numbers | None:
        """Return the value of a formula; None for parameters, embeddings, biases, rotated vectors and sums of all
        heads."""
        looked_up = ("rows of", "position vectors", "rotated", "by distance", "slope")
        if not formula or any(words in formula for words in looked_up):
            return None
        if formula.endswith(", -inf where masked"):
            shown = self.value(formula.split(",")[0])
            return np.where(self.hidden(shown.shape), -np.inf, shown)
        if found := re.fullmatch(r"softmax\((.*)\), row by row", formula):
            powers = np.exp(self.value(found[1]))
            return powers / powers.sum(axis=1, keepdims=True)
        if formula.startswith("zeros"):
            return np.zeros(1)
        if "all heads" in formula:  # only one head is known
            return None
        if found := re.fullmatch(r"(\w+) / (r_\w) · (\w+)", formula):
            return self.known[found[1]] / self.known[found[2]] * self.known[found[3]]
        if found := re.fullmatch(r"(\w+) / √(\d+)", formula):
            return self.known[found[1]] / sqrt(int(found[2]))
        if found := re.fullmatch(r"\(?(\w+)(?: - mean\))? / √\((variance|mean square) \+ (\S+)\)(.*)", formula):
            return self.norm(*found.groups())
        if (found := re.fullmatch(r"(\w+)\((\w)\)", formula)) and found[1] in NAMES:
            return activate(self.known[found[2]], NAMES[found[1]])
        if found := re.fullmatch(r"the (mean of all rows|first row) above", formula):
            last = self.known.get("Y", self.known["X"])
            return last.mean(axis=0, keepdims=True) if "mean" in found[1] else last[:1]
        return self.value(formula)

    def hidden(self, shape: tuple[int, ...]) -> Any:
        """Return a boolean matrix (T, S), True where the causal mask or the window masks a key."""
        back = np.arange(shape[0])[:, None] - np.arange(shape[1])
        return ((back < 0) & self.causal) | (abs(back) >= (self.window or shape[1]))

    def norm(self, x: str, kind: str, eps: str, rest: str) -> Numbers:
        value = self.known[x]
        if kind == "variance":
            value = value - value.mean(axis=1, keepdims=True)
        value = value / np.sqrt((value**2).mean(axis=1, keepdims=True) + float(eps))
        for sign, name in re.findall(r" ([·+]) (\w+)", rest):
            value = value * self.known[name] if sign == "·" else value + self.known[name]
        return value

    def value(self, formula: str) -> Numbers:
        """Evaluate sums of products, such as `X W_Q + b_Q`, `O0 + … + O5` or `a(G) · U`."""
        if "…" in formula:  # O0 + … + O5, possibly with a bias
            heads = sum(value for name, value in self.known.items() if re.fullmatch(r"O\d+", name))
            return heads + self.known.get("b_O", np.zeros(1))
        total = np.zeros(1)
        for term in formula.split(" + "):
            left, _, right = term.partition(" · " if " · " in term else " ")
            if term.startswith("last hidden states"):
                left = "last"
                right = term.removeprefix("last hidden states ")
                self.known["last"] = self.known.get("Y", self.known["X"])
            one = self.known[left]
            if " · " in term:
                one = one * self.known[right]
            elif right:
                one = one @ (self.known["K"].T if right == "Kᵀ" else self.known[right])
            total = total + one
        return total


def recompute(walk: Walk, places: tuple[int, ...], window: int | None = None) -> Bench:
    bench = Bench(walk.facts["family"] == "decoder", window)
    first = "transform" if any(section.key == "transform" for section in walk.sections) else "logits"
    for section in walk.sections:
        if section.key == first and places:  # shown for the relevant positions
            bench.known["Y" if "Y" in bench.known else "X"] = bench.known.get("Y", bench.known["X"])[list(places)]
        bench.section(section)
    return bench
