"""Render HTML pages from Jinja2 templates, which are files beside the modules that use them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

NO_DELIMITERS: Mapping[str, Any] = MappingProxyType({})


def render_page(package: str, template: str, delimiters: Mapping[str, Any] = NO_DELIMITERS, **values: Any) -> str:
    """Render a template from a package; text is escaped, and an undefined name raises an error.

    Args:
        package: the package with the template, such as "glassformer.inspection.explain".
        template: name of a file in the package.
        delimiters: replacements for Jinja's delimiters, by argument name of `jinja2.Environment`.
        values: values by name in the template; `name | tojson` writes JSON that is safe in a <script> element.
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
