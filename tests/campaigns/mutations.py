"""Find small changes to single lines of a Python or TOML file that introduce faults."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
}
NOT_NUMBERS = (ast.JoinedStr, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp)
"""Operands whose operator is not changed: `-` instead of `+` raises an error, so all tests that run the line fail."""
TOML_NUMBER = re.compile(r"^\w+ = (-?[0-9][0-9_]*(?:\.[0-9]+)?(?:e-?[0-9]+)?)\s*(?:#.*)?$")


@dataclass(frozen=True)
class Fault:
    """One changed line of one file.

    Attributes:
        path: path of the file, relative to the tree.
        line: line number, from 1, in the tree that was searched.
        old: the original line; no other line of the file equals it.
        new: the line with the fault.
        kind: the kind of change, in words.
    """

    path: str
    line: int
    old: str
    new: str
    kind: str

    def write(self, tree: Path) -> None:
        """Make the change in a tree."""
        lines = read_lines(tree / self.path)
        lines[lines.index(self.old)] = self.new
        (tree / self.path).write_text("\n".join(lines), encoding="utf-8")


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file without line ends; joined by newlines, they are the text of the file."""
    return path.read_text(encoding="utf-8").split("\n")


def faults_of(path: str, tree: Path, other: Path) -> list[Fault]:
    """Return all possible faults on lines that occur exactly once in the file in both trees."""
    if not (tree / path).is_file() or not (other / path).is_file():
        return []
    lines = read_lines(tree / path)
    other_lines = read_lines(other / path)
    found = toml_faults(path, lines) if path.endswith(".toml") else python_faults(path, lines)
    unique = (fault for fault in found if lines.count(fault.old) == 1 and other_lines.count(fault.old) == 1)
    return list(dict.fromkeys(unique))


def toml_faults(path: str, lines: list[str]) -> Iterator[Fault]:
    """Yield a fault for each number that is the whole value of a key: 1 is added to integers, floats are doubled."""
    for number, line in enumerate(lines, start=1):
        match = TOML_NUMBER.match(line)
        if match is None:
            continue
        value = match[1]
        whole = re.fullmatch(r"-?[0-9_]+", value)
        changed = str(int(value) + 1) if whole else repr(float(value) * 2)
        kind = "add 1 to a number" if whole else "double a number"
        yield Fault(path, number, line, line[: match.start(1)] + changed + line[match.end(1) :], kind)


def python_faults(path: str, lines: list[str]) -> Iterator[Fault]:
    """Yield the faults of all single-line expressions and statements inside functions."""
    for node in nodes_in_functions(ast.parse("\n".join(lines))):
        for kind, changed, replacement in changes_of(node):
            if changed.lineno != changed.end_lineno:
                continue
            old = lines[changed.lineno - 1]
            encoded = old.encode("utf-8")  # the positions that `ast` gives count bytes
            before = encoded[: changed.col_offset].decode("utf-8")
            after = encoded[changed.end_col_offset :].decode("utf-8")
            new = before + replacement + after
            if parses([*lines[: changed.lineno - 1], new, *lines[changed.lineno :]]):
                yield Fault(path, changed.lineno, old, new, kind)


def parses(lines: list[str]) -> bool:
    """Return whether lines are valid Python source."""
    try:
        ast.parse("\n".join(lines))
    except SyntaxError:
        return False
    return True


def nodes_in_functions(module: ast.Module) -> Iterator[ast.AST]:
    """Yield all nodes in function bodies except annotations and f-strings.

    In Python 3.11, the positions of nodes inside f-strings are wrong.
    """
    seen = set[ast.AST]()
    for function in ast.walk(module):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            waiting: list[ast.AST] = list(function.body)
            while waiting:
                node = waiting.pop()
                if node in seen or isinstance(node, (ast.JoinedStr, ast.arg)):
                    continue
                seen.add(node)
                yield node
                hidden = {getattr(node, "annotation", None), getattr(node, "returns", None)}
                waiting += [child for child in ast.iter_child_nodes(node) if child not in hidden]


def changes_of(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """Yield the changes of one node: the kind, the node whose text is replaced, and the new text."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in COMPARISONS:
            flipped = ast.Compare(node.left, [COMPARISONS[type(operator)]()], node.comparators)
            yield "flip a comparison", node, ast.unparse(flipped)
        case ast.BoolOp():
            swapped = ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
            yield "swap `and` and `or`", node, f"({ast.unparse(swapped)})"
        case ast.UnaryOp(op=ast.Not()):
            yield "drop a `not`", node, ast.unparse(node.operand)
        case ast.BinOp() if type(node.op) in ARITHMETIC and is_arithmetic(node):
            other = ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
            yield "change an operator", node, f"({ast.unparse(other)})"
        case ast.AugAssign() if type(node.op) in ARITHMETIC and not isinstance(node.value, NOT_NUMBERS):
            changed = ast.AugAssign(node.target, ARITHMETIC[type(node.op)](), node.value)
            yield "change an operator", node, ast.unparse(changed)
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            yield "add 1 to a constant", node, str(value + 1)
        case ast.If() | ast.IfExp():
            yield "negate a condition", node.test, f"not ({ast.unparse(node.test)})"
        case ast.Expr(value=ast.Call()):
            yield "return early", node, "return"
            yield "leave out a call", node, "pass"


def is_arithmetic(node: ast.BinOp) -> bool:
    """Return whether neither operand is a string literal, an f-string, a collection or a list comprehension."""
    return not any(
        isinstance(side, NOT_NUMBERS) or (isinstance(side, ast.Constant) and isinstance(side.value, (str, bytes)))
        for side in (node.left, node.right)
    )
