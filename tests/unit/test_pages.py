"""Pages from templates: escaped text, JSON that is safe in a script element, and an error for missing names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jinja2
import pytest

from glassformer.base.pages import render_page

REPORT = "glassformer.experiments", "report.html"
REPLAY = "glassformer.inspection.replay", "page.html"


def test_json_in_a_script_element_cannot_end_it_and_reads_back_the_same() -> None:
    data = {"text": "</script><!-- & 'বাংলা'", "numbers": [0.1, -1e-30]}
    page = render_page(*REPLAY, title="<b>&", data=data)
    assert "<title>&lt;b&gt;&amp;</title>" in page
    written = re.findall(r'id="data">(.*?)</script>', page)
    assert json.loads(written[0]) == data
    assert "<" not in written[0]
    assert "বাংলা" in written[0]


def test_missing_values_and_non_json_numbers_are_errors() -> None:
    with pytest.raises(jinja2.UndefinedError, match="report"):
        render_page(*REPORT)
    with pytest.raises(ValueError, match="JSON"):
        render_page(*REPLAY, title="", data=[float("nan")])


def test_python_files_contain_no_html_or_svg() -> None:
    source = Path(__file__).parents[2] / "src"
    tags = re.compile(r"(?<!\?P)<(html|body|table|div|span|path|rect|circle)\b")
    found = {str(path.relative_to(source)) for path in source.rglob("*.py") if tags.search(path.read_text("utf-8"))}
    assert found == {"glassformer/base/svg.py"}
