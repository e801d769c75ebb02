"""Build SVG elements as strings, to draw pictures without a plotting library."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape


def element(name: str, *children: str, **attributes: str | float) -> str:
    """Return an SVG element.

    Args:
        name: name of the element.
        children: elements or escaped text.
        attributes: attributes by name; `_` becomes `-`, and a trailing `_` is dropped: `text_anchor`, `class_`.

    >>> element("path", d="M0 0", class_="grid", stroke_width=2.0)
    '<path d="M0 0" class="grid" stroke-width="2"/>'
    """
    tag_parts = [name]
    for key, value in attributes.items():
        formatted = f"{value:g}" if isinstance(value, float) else str(value)
        tag_parts.append(f'{key.rstrip("_").replace("_", "-")}="{escape(formatted)}"')
    opening = " ".join(tag_parts)
    return f"<{opening}>{''.join(children)}</{name}>" if children else f"<{opening}/>"


def text(content: str, **attributes: str | float) -> str:
    """Return a text element; pass its position as `x` and `y`, or as `transform`."""
    return element("text", escape(content), **attributes)


def line(points: Iterable[tuple[float, float]], **attributes: str | float) -> str:
    """Return a path of straight lines through points, whose coordinates are in pixels."""
    return element("path", d="M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points), **attributes)


def document(width: float, height: float, title: str, /, *children: str, **attributes: str | float) -> str:
    """Return an SVG document of this size in pixels, with a title for screen readers."""
    box = {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {width:g} {height:g}"}
    return element("svg", *children, **box, role="img", aria_label=title, **attributes)


def ticks(low: float, high: float) -> list[float]:
    """Return two to six round numbers, evenly spaced, between `low` and `high`; `high` - `low` must be at least 1e-9.

    >>> ticks(0, 9)
    [0.0, 2.0, 4.0, 6.0, 8.0]
    """
    rough = max(high - low, 1e-9) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
