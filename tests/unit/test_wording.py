"""Numbers and paths in sentences, and suggested commands."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from glassformer.base.config import command_for
from glassformer.base.errors import GlassError
from glassformer.base.wording import counted, quoted, span
from glassformer.runs.folder import Run, refuse_existing


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (counted(0, "tokens"), "0 tokens"),
        (counted(1, "tokens"), "1 token"),
        (counted(12345, "tokens"), "12,345 tokens"),
        (counted(1, "masked tokens"), "1 masked token"),
        (counted(1, "rows with too few fields"), "1 row with too few fields"),
        (counted(1, "texts are cut", "text is cut"), "1 text is cut"),
        (counted(2, "texts are cut", "text is cut"), "2 texts are cut"),
        (span(0, 0), "0"),
        (span(1, 4), "1 to 4"),
    ],
)
def test_a_number_and_its_noun_agree(said: str, wanted: str) -> None:
    assert said == wanted


def test_a_path_with_spaces_stands_in_quotes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.base.wording.os.name", "posix")
    assert quoted("runs/book") == "runs/book"
    for path in ("my runs/book", "it's", "$HOME/book", "runs;ls"):
        assert shlex.split(f"glass generate {quoted(path)}") == ["glass", "generate", path]
    monkeypatch.setattr("glassformer.base.wording.os.name", "nt")
    assert quoted(r"runs\book") == r"runs\book"
    assert quoted(r"my runs\book") == r'"my runs\book"'


@pytest.mark.parametrize("task", ["lm", "masked", "classify", "translate", "summarize"])
def test_every_suggested_command_can_be_pasted(task: str, tmp_path: Path) -> None:
    run = tmp_path / "my runs" / "one"
    assert shlex.split(command_for(run, task))[:3] in (
        [["glass", name, str(run)] for name in ("generate", "fill", "classify")]
    )
    run.mkdir(parents=True)
    with pytest.raises(GlassError) as refused:
        Run(run).checkpoint("best")
    assert shlex.split(refused.value.remedy)[-5:] == ["glass", "train", "--resume", "--out", str(run)]
    (run / "config.toml").write_text("", encoding="utf-8")
    with pytest.raises(GlassError) as refused:
        refuse_existing(run)
    assert quoted(run) in refused.value.remedy
