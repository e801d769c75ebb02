"""How the book is built: `sphinx-build -W --keep-going -n -b html docs build/book`, without a network."""

import sys
from pathlib import Path

import glassformer

sys.path.insert(0, str(Path(__file__).parent))

project = "glassformer"
author = "the glassformer authors"
copyright = "the glassformer authors. Apache-2.0"
release = version = glassformer.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "extensions.citations",
    "extensions.mathml",
    "extensions.outside",
    "extensions.glossary",
    "extensions.library",
    "extensions.made",
    "extensions.offline",
]
exclude_patterns = ["README.md", "extensions", "made/parts"]

# Pages: Markdown that a forge shows as well; `page.md#section` is a checked link; `:::` fences hold directives.
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "attrs_inline"]
myst_heading_anchors = 4
myst_update_mathjax = False
smartquotes = False  # or --options would become dashes
html_math_renderer = "mathml"

# Cells are executed when the book is built, each page in its own folder; one that fails fails the build.
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_execution_in_temp = True
nb_merge_streams = True

# The bibliography: every entry has an anchor named after its key.
bibtex_bibfiles = ["references.bib"]
bibtex_default_style = "author_year"
bibtex_cite_id = "{key}"

# The library's reference: signatures as they are written; `code` in docstrings; Google's sections.
default_role = "code"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
nitpicky = True
nitpick_ignore_regex = [("py:.*", r".*")]

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["book.css"]
html_title = "glassformer"
html_copy_source = False
html_show_sourcelink = False
