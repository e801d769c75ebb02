"""The examples in docstrings give the results that they show."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import glassformer
import glassformer_course


def modules_with_examples() -> list[str]:
    """Return the names of all modules that have an example in a docstring."""
    names = []
    for package in (glassformer, glassformer_course):
        folder = Path(str(package.__file__)).parent
        for path in sorted(folder.rglob("*.py")):
            if ">>> " in path.read_text(encoding="utf-8"):
                names.append(".".join([folder.name, *path.relative_to(folder).with_suffix("").parts]))
    return names


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_give_what_they_show(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name.removesuffix(".__init__")), report=True)
    assert results.attempted > 0
    assert results.failed == 0
