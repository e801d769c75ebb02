"""A Jinja environment in which a template can neither run for long nor fill the memory.

A chat template may come from a stranger's run or model. Jinja's sandbox keeps it from reading files and attributes, but
limits only `range`. Here, a template has only the filters, tests and methods that published chat templates use, and
each operation spends the size of its operands, and the size of its result if that can be larger, from the `Work` that
is allowed to one rendering: loops, macros, comparisons and items by calls added to the parsed template; calls, filters,
operators and output by the methods of `BoundedEnvironment`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import update_wrapper
from typing import Any

from jinja2 import Undefined, nodes, pass_context
from jinja2.ext import Extension
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, _PassArg
from jinja2.visitor import NodeTransformer


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


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
"""Maximum size of an integer in arithmetic."""
GLOBALS = ("dict", "namespace", "range")
LIGHT_FILTERS = _names("count d default first items last length list map reject rejectattr reverse select selectattr")
"""Filters that do not read the parts of their value."""
FILTERS = LIGHT_FILTERS | _names(
    "abs capitalize dictsort e escape float indent int join lower max min replace safe sort string title trim unique "
    "upper"
)
LIGHT_TESTS = _names(
    "boolean defined false float integer iterable mapping none number sameas sequence string true undefined"
)
COMPARISONS = _names("!= < <= == > >= eq equalto ge greaterthan gt in le lessthan lt ne")
NUMBER_TESTS: Mapping[str, Callable[..., bool]] = {
    "divisibleby": lambda number, divisor: int(number) % int(divisor) == 0,
    "even": lambda number: int(number) % 2 == 0,
    "odd": lambda number: int(number) % 2 == 1,
}
"""Tests of numbers; Jinja's own apply `%` to any value, and so format a text."""
METHODS = _names(
    "capitalize count endswith find get index isalnum isalpha isdigit isspace items join keys lower lstrip partition "
    "removeprefix removesuffix replace rfind rindex rpartition rsplit rstrip split splitlines startswith strip title "
    "upper values"
)
"""Methods of texts, dictionaries, lists and tuples."""


class TooMuchWorkError(Exception):
    """Raised if a template needs more work, memory or time than is allowed."""

    def __init__(self) -> None:
        super().__init__("it needs too many steps or too long texts for this conversation")


class NotAllowedError(Exception):
    """Raised if a template calls a function or method, or uses an operator, that is not available."""


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

    def cost(self, value: object) -> int:
        """Return the work of making a value from values that exist: its characters, or its parts."""
        if isinstance(value, str):
            return len(value)
        return PART * len(value) if isinstance(value, list | tuple | dict) else PART

    def size(self, *values: object) -> int:
        """Return the work of printing values; a part that they contain twice counts twice."""
        total = 0
        remaining: list[object] = list(values)
        while remaining and total <= self._left:
            value = remaining.pop()
            total += PART
            if isinstance(value, str):
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

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

    def __init__(self, extensions: Sequence[Any]) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=extensions, finalize=_spend_output)
        self.globals = {name: self.globals[name] for name in GLOBALS}
        self.filters = {name: _bounded(name, self.filters[name]) for name in FILTERS}
        tests: dict[str, Any] = self.tests
        comparisons = {name: _bounded(name, tests[name]) for name in COMPARISONS}
        self.tests = {**{name: tests[name] for name in LIGHT_TESTS}, **comparisons, **NUMBER_TESTS}

    def add_filter(self, name: str, apply: Callable[..., Any]) -> None:
        """Add a filter."""
        self.filters[name] = _bounded(name, apply)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        _Instrumentation().visit(tree)
        return tree

    def tick(self, amount: int) -> bool:
        """Return True; the parsed template calls this method in each iteration, and `call` spends `amount`."""
        return amount > 0

    def timed(self, value: object) -> object:
        """Return a value; `call` checks the time before it is used."""
        return value

    def value(self, value: object) -> object:
        """Return a list, tuple, dictionary or slice that the template makes, whose size `call` spends."""
        return value

    def joined(self, *values: object) -> str:
        """Return values joined as text (operator `~`)."""
        return "".join(map(str, values))

    def call(self, context: Context, called: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a function, method or macro, and spend the size of its arguments and its result."""
        work = work_of(context)
        if called == self.tick or called == self.timed:
            work.spend(args[0] if called == self.tick else PART)
            return args[0]
        owner = getattr(called, "__self__", None)
        name = getattr(called, "__name__", type(called).__name__)
        if isinstance(owner, str | dict | list | tuple):
            allowed = name in METHODS
        else:
            allowed = isinstance(called, Macro | LoopContext | Undefined) or any(
                called is known for known in self.globals.values()
            )
            allowed = allowed or isinstance(owner, LoopContext | Extension | BoundedEnvironment)
        if not allowed:
            raise NotAllowedError(f"{name} is not available in a chat template")
        if name == "join":
            args = tuple(map(list, args))
        work.spend(work.size(*args, *kwargs.values()))
        if isinstance(owner, str):
            _spend_growth(work, name, owner, args, kwargs)
        result = super().call(context, called, *args, **kwargs)
        work.spend(work.size(result))
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Apply an operator, and spend the size of its operands and its result."""
        work = work_of(context)
        numbers = [value for value in (left, right) if isinstance(value, int)]
        bits = [number.bit_length() for number in numbers]
        if operator == "%" and isinstance(left, str):
            raise NotAllowedError("the operator % for texts is not available in a chat template")
        if operator == "**" and len(numbers) == 2:
            bits = [bits[0] * abs(right)]
        if sum(bits) > MOST_BITS:
            raise TooMuchWorkError
        sequences = [value for value in (left, right) if isinstance(value, str | list | tuple)]
        times = max([0, *numbers]) if operator == "*" else 1
        work.spend(PART + sum(map(work.cost, sequences)) * times)
        return super().call_binop(context, operator, left, right)


def _bounded(name: str, apply: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter or test that spends the size of its arguments and its result."""
    passed = _PassArg.from_obj(apply)

    def bounded(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        work = work_of(context)
        if name == "join":
            value = list(value)
        work.spend(PART if name in LIGHT_FILTERS else work.size(value, *args, *kwargs.values()))
        _spend_growth(work, name, value, args, kwargs)
        before = {
            None: (),
            _PassArg.context: (context,),
            _PassArg.eval_context: (context.eval_ctx,),
            _PassArg.environment: (context.environment,),
        }[passed]
        result = apply(*before, value, *args, **kwargs)
        if isinstance(result, Iterator):
            result = list(result)
        work.spend(work.cost(result))
        return result

    return pass_context(update_wrapper(bounded, apply))


def _spend_growth(work: Work, name: str, value: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Spend the size by which the result of a filter or a method of a text may exceed its arguments."""
    arguments = (*args, *kwargs.values())
    if name == "join":  # of the method of a separator, or the filter of a list
        separator, parts = (value, arguments[0]) if isinstance(value, str) else (arguments[:1], value)
        work.spend(len(parts) * work.size(separator))
    elif name == "replace":
        old = str(kwargs.get("old", "".join(map(str, args[:1]))))
        new = str(kwargs.get("new", "".join(map(str, args[1:2]))))
        work.spend(str(value).count(old) * len(new))
    elif name == "indent":
        width = kwargs.get("width", next(iter(args), 4))
        work.spend((len(str(value).splitlines()) + 1) * (width if isinstance(width, int) else len(str(width))))


class _Instrumentation(NodeTransformer):
    """Adds the calls that spend work to a parsed template."""

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        self.generic_visit(node)
        if isinstance(node, nodes.For) and node.test is not None:
            node.test = nodes.And(_tick(()), node.test)
        if isinstance(node, nodes.For | nodes.Macro | nodes.CallBlock | nodes.Block):
            node.body.insert(0, nodes.ExprStmt(_tick(node.body)))
        elif isinstance(node, nodes.Concat):
            return _call("joined", node.nodes)
        elif isinstance(node, nodes.List | nodes.Dict) or (isinstance(node, nodes.Tuple) and node.ctx != "store"):
            return _call("value", [node])
        elif isinstance(node, nodes.Getitem):
            return _call("value" if isinstance(node.arg, nodes.Slice) else "timed", [node])
        elif isinstance(node, nodes.Operand):
            node.expr = _call("timed", [node.expr])
        return node


def _tick(body: Sequence[nodes.Node]) -> nodes.Call:
    """Return a call of `BoundedEnvironment.tick` for one pass through the statements of a body."""
    written = sum(len(text.data) for node in body for text in node.find_all(nodes.TemplateData))
    return _call("tick", [nodes.Const(ITERATION + written)])


def _call(method: str, arguments: list[nodes.Expr]) -> nodes.Call:
    """Return a call of a method of `BoundedEnvironment`."""
    return nodes.Call(nodes.EnvironmentAttribute(method), arguments, [], None, None)
