"""The source of an answer: from a `.py` file, a notebook, or functions in memory."""

from __future__ import annotations

import ast
import inspect
import json
import linecache
from pathlib import Path

from glassformer.errors import GlassError, nearest_file
from glassformer.learn.cases import Function
from glassformer.learn.exercise import Exercise

LARGEST = 4_000_000  # bytes of a file
ANSWER = "answer"  # the tag of a notebook's cell


def read_answer(path: Path, exercise: Exercise) -> str:
    """The source in a file.

    Raises:
        GlassError: there is no such file, or it is no Python and no notebook.
    """
    if not path.is_file():
        start = f"glass learn start {exercise.number} writes one."
        raise GlassError(f"there is no file {path}", nearest_file(path, start) if path.parent.is_dir() else start)
    with path.open("rb") as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise GlassError(f"{path} has more than {LARGEST:,} bytes", "An answer is a page of Python: is it this file?")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise GlassError(f"{path} is no UTF-8 text: {error.reason}", "Save it as UTF-8.") from None
    return _of_notebook(path, text, exercise) if path.suffix == ".ipynb" else text


def source_of(functions: tuple[Function, ...]) -> str:
    """The source of functions in memory: of each, the whole cell or file that it was defined in.

    Raises:
        GlassError: one of them has no source that can be found, as those typed at Python's own prompt.
    """
    sources: dict[str, str] = {}
    for function in functions:
        code = getattr(inspect.unwrap(function), "__code__", None)
        lines = linecache.getlines(code.co_filename) if code else []
        if code is None or not lines:
            name = getattr(function, "__name__", repr(function))
            raise GlassError(f"the source of {name} cannot be found", "Define it in a cell of a notebook or in a file.")
        sources.setdefault(
            code.co_filename, "".join(line for line in lines if not line.lstrip().startswith(("%", "!")))
        )
    return "\n\n".join(sources.values())


def _of_notebook(path: Path, text: str, exercise: Exercise) -> str:
    """The cells that are tagged as the answer; where the tags were lost, those that define its functions, or import."""
    try:
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        sources = [("".join(cell["source"]), cell.get("metadata", {}).get("tags", [])) for cell in cells]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise GlassError(f"{path} is no notebook", "Write a new one beside it: glass learn notebook.") from None
    tagged = [source for source, tags in sources if ANSWER in tags]
    found = tagged or [source for source, _ in sources if _belongs(source, exercise)]
    if not found:
        names = ", ".join(exercise.functions)
        raise GlassError(f"{path} has no cell that defines {names}", "Write the functions under these names.")
    return "\n\n".join(found)


def _belongs(source: str, exercise: Exercise) -> bool:
    try:
        body = ast.parse(source).body
    except SyntaxError:
        return any(f"def {name}" in source for name in exercise.functions)
    if any(isinstance(node, ast.ImportFrom) and (node.module or "").startswith("glassformer") for node in body):
        return False
    imports = bool(body) and all(isinstance(node, ast.Import | ast.ImportFrom) for node in body)
    return imports or any(isinstance(node, ast.FunctionDef) and node.name in exercise.functions for node in body)
