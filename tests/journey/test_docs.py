"""Run the commands and the Python code of most pages of `docs/`: each page in order, in a separate folder.

The folder contains only the small files that the page names. Settings for small runs are inserted before the page's
own options, and runs end after a few steps. Python and most commands run in this process; `glass serve` and `torchrun`
run in separate ones. `test_readme.py` runs the README. Pages that are not in `TASKS` have separate tests
(`scikit-learn.md`, `benchmarks.md`), no commands, or only commands of the README.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from glassformer.app.cli.main import COMMANDS
from glassformer.base.config import Config
from tests.journey.pages import ROOT, Block, blocks, lines_of, quick, quick_python, served, with_torchrun
from tests.journey.task_files import write_all

pytestmark = pytest.mark.thorough

DOCS = ROOT / "docs"
EXERCISES = ROOT / "src" / "glassformer_course" / "exercises"
PAGES = sorted(path.name for path in DOCS.glob("*.md"))
LISTS = ("README.md", "index.md", "bibliography.md", "commands.md", "glossary.md", "library.md", "settings.md")
"""Pages that only link to others, or are filled in when the book is built."""
TASKS = [page for page in PAGES if page not in (*LISTS, "benchmarks.md", "growth.md", "peers.md", "scikit-learn.md")]
SMALL = tuple(
    word
    for setting in (
        "model.layers=1",
        "model.width=32",
        "model.heads=2",
        "train.batch=8",
        "train.evaluate_every=10",
        "train.threads=1",
        "train.steps=20",
        "data.size=300",
        "sample.tokens=12",
    )
    for word in ("--set", setting)
)
LENGTH = re.compile(r"--(minutes|steps) [\d.]+")
PROBE = re.compile(r"--probe [\d.]+")
NEEDS = {
    "translate.md": "sacrebleu",
    "summarize.md": "sacrebleu",
    "data.md": "datatrove",
    "serve.md": "openai",
}
"""Optional package that each of these pages needs."""
FILES = ("train.en", "train.de", "model.safetensors", "tokenizer.json")
PROMISES = {
    "train": r"runs/\S+ is ready: glass (generate|classify|fill|chat) runs/",
    "evaluate": r"loss \d+\.\d{4} .*nats per",
    "classify": r"^ *\d+\.\d\d%  |^\w+\t0\.\d{4}\t",
    "fill": r"^\[MASK\] 1: ",
    "count": r"^all +[\d,]+",
    "plan": r"^model +(de|en)coder",
    "serve": r"http://127\.0\.0\.1:\d+/\?token=",
    "probe": r"^ *right  95 %|^mean: \d",
}
"""Pattern that must occur in the output of each command, whatever the model has learnt."""


def without_blocks(path: Path) -> str:
    """Return the text of a page without its code blocks."""
    return re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def spans(page: str) -> list[str]:
    """Return the `code` spans of a page, outside its blocks."""
    return re.findall(r"`([^`\n]+)`", without_blocks(DOCS / page))


def follow(block: Block, folder: Path) -> list[str]:
    """Run a block, and return the output of each of its commands."""
    if block.kind == "python":
        return [quick_python(block.code, folder)]
    shown = []
    for line in lines_of(block):
        program = line.split()[0]
        name = re.search(r"(?:^glass|-m glassformer) (\S+)", line)[1]
        settings = SMALL if name in ("train", "plan", "compare") and "--resume" not in line else ()
        run = with_torchrun if program == "torchrun" else served if name == "serve" else quick
        shown.append(run(PROBE.sub("--probe 0.2", LENGTH.sub("--steps 20", line)), folder, settings).replace("\\", "/"))
        assert re.search(PROMISES.get(name, ""), shown[-1], flags=re.MULTILINE), f"{line}\n{shown[-1]}"
    return shown


def fields(text: str) -> set[str]:
    """Return the names before the numbers of a report."""
    found = re.findall(r"^([A-Za-z][\w+, -]*?)(?=  +[-\d.]| \d+\.\d{4} ± )", text, flags=re.MULTILINE)
    return {name.strip() for name in found}


@pytest.mark.parametrize("page", TASKS)
def test_all_code_of_a_page_runs_and_prints_the_documented_fields(page: str, tmp_path: Path) -> None:
    if page in NEEDS and importlib.util.find_spec(NEEDS[page]) is None:
        pytest.skip(f"{page} is about a library that is not installed: {NEEDS[page]}")
    write_all(tmp_path)
    text = (DOCS / page).read_text(encoding="utf-8")
    for file in tmp_path.iterdir():
        if file.name not in text:
            file.unlink()
    reports: list[str] = []
    for block in blocks(DOCS / page):
        if block.kind in ("sh", "python"):
            reports += follow(block, tmp_path)
        elif named := fields(block.code):
            assert any(named <= fields(report) for report in reports), (named, [fields(each) for each in reports])


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_one_title_and_every_block_is_of_a_known_kind(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert {block.kind for block in blocks(DOCS / page)} <= {"sh", "python", "text", "toml", "json"}
    bare = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert len(re.findall(r"^# ", bare, flags=re.MULTILINE)) == 1
    for target in re.findall(r"\]\(([^)#:]+)\)", bare):
        assert (DOCS / target).exists(), target


@pytest.mark.parametrize("page", PAGES)
def test_every_named_setting_and_command_exists(page: str) -> None:
    known = {f"{name}.{field}" for name, section in Config().model_dump().items() for field in section}
    for span in spans(page):
        for setting in re.findall(r"\b((?:model|tokenizer|data|train|sample)\.[a-z]\w*)", span):
            assert setting in known or setting in FILES, span
        if span.startswith("glass "):
            assert span.split()[1] in COMMANDS, span


@pytest.mark.parametrize("page", TASKS)
def test_every_quoted_message_is_in_the_source(page: str) -> None:
    """The page's table of messages writes `…` for numbers and names."""
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    code = re.sub(r'"\s*\n\s*f?"', "", code)
    text = (DOCS / page).read_text(encoding="utf-8")
    table = re.search(r"^\| message \|.*?(?=\n\n)", text, flags=re.MULTILINE | re.DOTALL)
    assert table
    messages = re.findall(r"^\| `([^`]+)` \|", table.group(), flags=re.MULTILINE)
    assert messages
    for message in messages:
        for part in message.replace("[MASK]", "…").split("…"):
            assert part.strip() in code, part


def test_no_line_of_text_begins_with_a_percent_sign() -> None:
    """MyST, which builds the book, reads such a line as a comment and leaves it out."""
    pages = [*DOCS.glob("*.md"), *(DOCS / "book").glob("*.md"), *EXERCISES.glob("*/page.md")]
    assert len(pages) > 80
    found = [f"{path.name}: {line}" for path in pages for line in re.findall(r"(?m)^ *%.*", without_blocks(path))]
    assert found == []


def test_the_index_names_every_page() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    assert all(f"]({page})" in index for page in PAGES if page not in ("README.md", "index.md"))
