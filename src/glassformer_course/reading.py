"""Read the source of an answer from a `.py` file, a notebook, or functions in memory."""

from __future__ import annotations

import ast
import inspect
import json
import linecache
import re
from pathlib import Path

from glassformer.base.errors import GlassError, nearest_file
from glassformer_course.cases import Function
from glassformer_course.exercise import ANSWER, Exercise

LARGEST = 4_000_000  # bytes of a file


def read_answer(path: Path, exercise: Exercise) -> str:
    """Return the source of an answer in a `.py` file or a notebook.

    Raises:
        GlassError: the file is missing, too large or not UTF-8, or a notebook is damaged or has no cell with
            the answer.
    """
    if path.exists() and not path.is_file():
        raise GlassError(f"{path} is not a file", f"Move it away. To write a new one: {_start_command(path, exercise)}")
    if not path.is_file():
        start = f"To create it: {_start_command(path, exercise)}"
        misnamed = path.stem != exercise.file_name and path.parent.is_dir()
        raise GlassError(f"there is no file {path}", nearest_file(path, start) if misnamed else start)
    with path.open("rb") as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise GlassError(
            f"{path} has more than {LARGEST:,} bytes",
            "An answer has about a page of Python: check that this is the right file.",
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise GlassError(f"{path} is not UTF-8 text: {error.reason}", "Save it as UTF-8.") from None
    return _notebook_source(path, text, exercise) if path.suffix == ".ipynb" else text


def _start_command(path: Path, exercise: Exercise) -> str:
    """Return the command that writes the file of an exercise, as a script or a notebook, into the folder of `path`."""
    from glassformer_course.folder import folder_option

    action = "notebook" if path.suffix == ".ipynb" else "start"
    return f"glass learn {action} {exercise.number}{folder_option(path.parent)}"


def source_of(functions: tuple[Function, ...]) -> str:
    """Return the source of functions in memory: for each, the whole cell or file that defines it.

    Raises:
        GlassError: the source of a function cannot be found, for example if it was typed at Python's prompt.
    """
    sources: dict[str, str] = {}
    for function in functions:
        code = getattr(inspect.unwrap(function), "__code__", None)
        lines = linecache.getlines(code.co_filename) if code else []
        if code is None or not lines:
            name = getattr(function, "__name__", repr(function))
            remedy = "Define it in a file, or in a notebook cell that does not begin with %%."
            raise GlassError(f"the source of {name} cannot be found", remedy)
        sources.setdefault(code.co_filename, _without_commands("".join(lines)))
    return "\n\n".join(sources.values())


def _without_commands(source: str) -> str:
    """Return the source of a cell without statements that only a notebook needs; line numbers do not change.

    See `_is_notebook_statement`.
    """
    lines = source.splitlines()
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):
        lines = [re.sub(r"^( *)[%!].*", r"\1pass", line) for line in lines]
        try:
            body = ast.parse("\n".join(lines)).body
        except (SyntaxError, ValueError):
            return source  # the sandbox reports the syntax error
    for node in body:
        if _is_notebook_statement(node):
            lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or node.lineno) - node.lineno + 1)
    return "\n".join(lines) + "\n"


def _is_notebook_statement(node: ast.stmt) -> bool:
    """Return whether a statement is an IPython command, imports the check, or calls `check` or `hint`."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "glassformer_course"
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return False
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    return name in ("check", "hint") or ast.unparse(call).startswith("get_ipython()")


def _notebook_source(path: Path, text: str, exercise: Exercise) -> str:
    """Return the source of the answer in a notebook.

    The source consists of the cells tagged as the answer (if none is tagged, the cells that define the exercise's
    functions), plus other cells that contain only imports and definitions.
    """
    try:
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        sources = [
            (_without_commands("".join(cell["source"])), cell.get("metadata", {}).get("tags", [])) for cell in cells
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise GlassError(
            f"{path} is not a notebook", f"Move it away. To write a new one: {_start_command(path, exercise)}"
        ) from None
    tagged = any(ANSWER in tags for _, tags in sources)
    answer_flags = [ANSWER in tags if tagged else _defines(source, exercise) for source, tags in sources]
    selected = [
        source
        for (source, _), is_answer in zip(sources, answer_flags, strict=True)
        if is_answer or (any(answer_flags) and not _defines(source, exercise) and _only_defines(source))
    ]
    if not selected:
        names = " or ".join(exercise.functions)
        raise GlassError(f"{path} has no cell that defines {names}", "Use the function names of the task.")
    return "\n\n".join(selected)


def _defines(source: str, exercise: Exercise) -> bool:
    """Return whether a cell defines a function of the exercise."""
    return any(re.search(rf"^(def {name}\(|{name} *=)", source, flags=re.MULTILINE) for name in exercise.functions)


def _only_defines(source: str) -> bool:
    """Return whether a cell contains only imports, functions, classes and constants, which the answer may need."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):
        return False
    kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
    return all(
        isinstance(node, kinds) or (isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant))
        for node in body
    )
