"""A Jinja environment in which a template can neither run for long nor fill the memory.

A chat template may come from a stranger's run or model. Jinja's sandbox keeps it from reading files and attributes, but
limits only `range`. Here, each operation first spends the size of its operands, and the size of its result if that can
be larger, from the `Work` that is allowed to one rendering: loops and macros by instructions added to the parsed
template; calls, filters, operators and output by the methods of `BoundedEnvironment`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import update_wrapper
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, _PassArg
from jinja2.visitor import NodeTransformer

WORK = "the work that is allowed"
"""Key of the `Work` in the variables of a rendering; a template cannot name it, because it has spaces."""
LEAST_WORK = 3_000_000
WORK_PER_CHARACTER = 200
"""Work allowed for each character of the conversation; templates may copy or search it several times."""
MOST_SECONDS = 10.0
ITERATION = 20
"""Work of one iteration or call of a macro, besides the characters of template text that it writes."""
PART = 10
"""Work of looking at one part of a list, tuple or dictionary."""
MOST_BITS = 4096
"""Maximum size of an integer."""
UNUSED_FILTERS = ("forceescape", "pprint", "striptags", "urlize", "wordwrap", "xmlattr")
UNUSED_GLOBALS = ("cycler", "joiner", "lipsum")
GROWING = frozenset(("batch", "center", "expandtabs", "indent", "ljust", "rjust", "slice", "zfill"))
"""Filters and methods of strings that may lengthen a text by a number or text that is their argument."""


class TooMuchWorkError(Exception):
    """Raised if a template needs more work, memory or time than is allowed."""

    def __init__(self) -> None:
        super().__init__("it needs too many steps or too long texts for this conversation")


class Work:
    """Work that is left to one rendering.

    Args:
        characters: length of the conversation.
    """

    def __init__(self, characters: int) -> None:
        self._left = LEAST_WORK + WORK_PER_CHARACTER * characters
        self._end = time.monotonic() + MOST_SECONDS

    def spend(self, amount: int) -> None:
        """Spend work; raise a `TooMuchWorkError` if there is not enough left, or the time is over."""
        self._left -= amount
        if self._left < 0 or time.monotonic() > self._end:
            raise TooMuchWorkError

    def size(self, *values: object) -> int:
        """Return the work of printing values; a part that they contain twice counts twice."""
        total = 0
        remaining: list[object] = list(values)
        while remaining and total <= self._left:
            value = remaining.pop()
            total += PART
            if isinstance(value, str | bytes):
                total += len(value)
            elif isinstance(value, int):
                total += value.bit_length() // 8
            elif isinstance(value, Mapping):
                remaining += value.keys()
                remaining += value.values()
            elif isinstance(value, list | tuple | set | frozenset):
                remaining += value
            elif isinstance(value, Namespace):
                remaining.append(value._Namespace__attrs)
        return total


def work_of(context: Context) -> Work:
    """Return the work that is left to the rendering of a context."""
    work = context.parent[WORK]
    assert isinstance(work, Work)
    return work


@pass_context
def _spend_output(context: Context, value: object) -> object:
    """Spend the size of a value that the template writes, and return the value."""
    work = work_of(context)
    work.spend(work.size(value))
    return value


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Sandboxed environment whose templates need a `Work` with the key `WORK` among their variables.

    Args:
        extensions: extensions of Jinja.
    """

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self, extensions: Sequence[Any]) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=extensions, finalize=_spend_output)
        for name in UNUSED_GLOBALS:
            del self.globals[name]
        self.filters = {
            name: _bounded(name, apply) for name, apply in self.filters.items() if name not in UNUSED_FILTERS
        }

    def add_filter(self, name: str, apply: Callable[..., Any]) -> None:
        """Add or replace a filter."""
        self.filters[name] = _bounded(name, apply)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        _Instrumentation().visit(tree)
        return tree

    def tick(self, amount: int) -> bool:
        """Return True; the parsed template calls this method in each iteration, and `call` spends `amount`."""
        return True

    def value(self, value: object) -> object:
        """Return a list, tuple or dictionary that the template writes, whose size `call` spends."""
        return value

    def joined(self, *values: object) -> str:
        """Return values joined as text (operator `~`)."""
        return "".join(map(str, values))

    def call(self, context: Context, called: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a function, method or macro, and spend the size of its arguments and its result."""
        work = work_of(context)
        if called == self.tick:
            work.spend(args[0])
            return True
        arguments = (*args, *kwargs.values())
        work.spend(work.size(*arguments))
        owner = getattr(called, "__self__", None)
        if isinstance(owner, str | bytes):
            if called.__name__ == "join":
                args = tuple(map(list, args))
            _spend_growth(work, called.__name__, owner, args, kwargs)
        result = super().call(context, called, *args, **kwargs)
        work.spend(work.size(result))
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Apply an operator, and spend the size of its operands and its result."""
        work = work_of(context)
        work.spend(work.size(left, right))
        numbers = [value for value in (left, right) if isinstance(value, int)]
        sequences = [value for value in (left, right) if isinstance(value, str | bytes | list | tuple)]
        if operator == "%" and isinstance(left, str | bytes):
            _spend_growth(work, "%", left, right if isinstance(right, tuple) else (right,), {})
        elif operator == "*" and sequences and numbers:
            text = isinstance(sequences[0], str | bytes)
            work.spend((len(sequences[0]) if text else work.size(sequences[0])) * max(0, *numbers))
        elif operator in ("*", "**") and len(numbers) == 2:
            bits = left.bit_length() * abs(right) if operator == "**" else left.bit_length() + right.bit_length()
            if bits > MOST_BITS:
                raise TooMuchWorkError
        result = super().call_binop(context, operator, left, right)
        work.spend(work.size(result))
        return result

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return a method `format` or `format_map` of a string in the sandbox, which remembers its string."""
        wrapped = super().wrap_str_format(value)
        if wrapped is not None:
            wrapped.__self__ = value.__self__  # type: ignore[attr-defined]  # for `call`
        return wrapped


def _bounded(name: str, apply: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that spends the size of its arguments and its result."""
    passed = _PassArg.from_obj(apply)

    def bounded(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        work = work_of(context)
        arguments = (*args, *kwargs.values())
        if name == "join":
            value = list(value)
        work.spend(work.size(value, *arguments))
        _spend_growth(work, name, value, args, kwargs)
        before = {
            None: (),
            _PassArg.context: (context,),
            _PassArg.eval_context: (context.eval_ctx,),
            _PassArg.environment: (context.environment,),
        }[passed]
        result = apply(*before, value, *args, **kwargs)
        work.spend(work.size(result))
        return result

    return pass_context(update_wrapper(bounded, apply))


def _spend_growth(work: Work, name: str, value: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Spend the size by which the result of a filter, a method of a string or `%` may exceed its arguments."""
    arguments = (*args, *kwargs.values())
    amounts = [
        each if isinstance(each, int) else len(each) for each in arguments if isinstance(each, int | str | bytes)
    ]
    if name == "join":  # of the method of a separator, or the filter of a list
        separator, parts = (value, arguments[0]) if isinstance(value, str | bytes) else (arguments[:1], value)
        work.spend(len(parts) * work.size(separator))
    elif name == "replace":
        old: Any = kwargs.get("old", *args[:1])
        new: Any = kwargs.get("new", *args[1:2])
        work.spend(value.count(old) * work.size(new) if isinstance(value, str | bytes) else 0)
    elif name in ("format", "format_map", "%"):
        pattern = str(value)
        if re.search(r"%[^a-zA-Z%]*\*|\{[^{}]*:[^{}]*\{", pattern):  # a width that is an argument
            raise TooMuchWorkError
        widths = [int(digits) for digits in re.findall(r"\d+", pattern)]
        work.spend((pattern.count("{") + pattern.count("%")) * (max([0, *widths]) + work.size(*arguments)))
    elif name in GROWING:
        lines = value.count("\n") + value.count("\t") + 1 if isinstance(value, str) else 1
        work.spend(lines * max([0, *amounts]))
    elif name == "translate":
        raise TooMuchWorkError


class _Instrumentation(NodeTransformer):
    """Adds the calls that spend work to a parsed template."""

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        self.generic_visit(node)
        if isinstance(node, nodes.For) and node.test is not None:
            node.test = nodes.And(_tick(()), node.test)
        if isinstance(node, nodes.For | nodes.Macro | nodes.CallBlock | nodes.Block):
            node.body.insert(0, nodes.ExprStmt(_tick(node.body)))
        elif isinstance(node, nodes.Concat):
            return nodes.Call(nodes.EnvironmentAttribute("joined"), node.nodes, [], None, None)
        elif isinstance(node, nodes.List | nodes.Dict) or (isinstance(node, nodes.Tuple) and node.ctx != "store"):
            return nodes.Call(nodes.EnvironmentAttribute("value"), [node], [], None, None)
        return node


def _tick(body: Sequence[nodes.Node]) -> nodes.Call:
    """Return a call of `BoundedEnvironment.tick` for one pass through the statements of a body."""
    written = sum(len(text.data) for node in body for text in node.find_all(nodes.TemplateData))
    return nodes.Call(nodes.EnvironmentAttribute("tick"), [nodes.Const(ITERATION + written)], [], None, None)
