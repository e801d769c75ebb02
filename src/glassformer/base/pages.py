"""HTML pages from Jinja2 templates: files beside the module that fills them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

NO_DELIMITERS: Mapping[str, Any] = MappingProxyType({})


def render_page(package: str, template: str, delimiters: Mapping[str, Any] = NO_DELIMITERS, **values: Any) -> str:
    """Fill a template of a package; text is escaped, and a name without a value is an error.

    Args:
        package: such as "glassformer.inspection.explain".
        template: name of a file in it.
        delimiters: in place of Jinja's own, by the names that `jinja2.Environment` has for them.
        values: by name; `name | tojson` writes JSON that a <script> element can hold.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(package, ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **delimiters,
    )
    environment.policies["json.dumps_kwargs"] = {
        "ensure_ascii": False,
        "allow_nan": False,
        "separators": (",", ":"),
    }
    return environment.get_template(template).render(values)
