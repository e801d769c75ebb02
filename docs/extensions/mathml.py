"""Convert formulas to MathML at build time, so that pages show them without scripts, fonts or a network."""

from __future__ import annotations

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

INSTEAD = {r"\!": "", r"\dots": r"\ldots"}
"""LaTeX commands that docutils lacks, each with its replacement; the first only removes a little space."""


def mathml(formula: str, node: nodes.Element, block: bool) -> str:
    """Convert a LaTeX formula to MathML; a formula that cannot be converted is shown as code, with a warning."""
    try:
        for command, known in INSTEAD.items():
            formula = formula.replace(command, known)
        return str(tex2mathml(formula, as_block=block))
    except MathError as error:
        logging.getLogger(__name__).warning("formula %r: %s", formula, error, location=node)
        return f"<code>{nodes.Text(formula).astext()}</code>"


def visit_inline(translator: HTML5Translator, node: nodes.math) -> None:
    """Write an inline formula, `$...$`."""
    translator.body.append(mathml(node.astext(), node, block=False))
    raise nodes.SkipNode


def visit_block(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Write a displayed formula, `$$...$$`."""
    translator.body.append(translator.starttag(node, "div", CLASS="math"))
    translator.body.append(mathml(node.astext(), node, block=True))
    translator.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the writer that `html_math_renderer = "mathml"` names."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
