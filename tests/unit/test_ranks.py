"""Spearman's rank correlation, compared with its closed form, NumPy, and a value computed by hand."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import glassformer
import glassformer_course
from glassformer.inspection.ranks import spearman


def test_spearman_is_the_correlation_of_ranks() -> None:
    a = np.array([0.1, 0.7, 0.2, 0.9])
    assert spearman(a, np.exp(a)) == pytest.approx(1)
    assert spearman(a, -a) == pytest.approx(-1)
    assert spearman(a, np.ones(4)) is None
    # 1 - 6 Σ d² / (n (n² - 1)) without ties: d = 0, 1, 1, 1, 1 of 5
    x = np.array([1.0, 2, 3, 4, 5])
    y = np.array([1.0, 3, 2, 5, 4])
    assert spearman(x, y) == pytest.approx(1 - 6 * 4 / (5 * 24))


def test_equal_values_share_their_mean_rank() -> None:
    tied = np.array([1.0, 2, 2, 3])
    assert spearman(tied, np.arange(4.0)) == pytest.approx(np.corrcoef([0, 1.5, 1.5, 3], np.arange(4))[0, 1])
    assert spearman(np.arange(5.0), np.array([5.0, 6, 7, 8, 7])) == pytest.approx(0.8207826816681233)


@pytest.mark.thorough
def test_spearman_is_defined_once() -> None:
    """The packages define exactly one function with `spearman` in its name."""
    packages = [Path(str(package.__file__)).parent for package in (glassformer, glassformer_course)]
    files = [path for package in packages for path in package.rglob("*.py")]
    defined = [
        path.name
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and "spearman" in node.name
    ]
    assert defined == ["ranks.py"]
