"""Run the benchmark against other libraries as its page describes, on tiny sizes. No test asserts a time."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.journey.commands import environment
from tests.journey.pages import ROOT, blocks

pytestmark = pytest.mark.thorough


def test_the_quick_benchmark_of_the_page_runs(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    program, script, *words = shlex.split(blocks(ROOT / "docs" / "benchmarks.md", "text")[0].code)
    assert program == "python"
    done = subprocess.run(
        [sys.executable, ROOT / script, *words],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "look" / "results.json").read_text(encoding="utf-8"))
    masked, row = found["results"]
    # bfloat16 is measured only on a processor that multiplies faster in it
    precisions = ("bf16", "fp32") if "Hugging Face bf16" in masked["ratio"] else ("fp32",)
    assert set(masked["ratio"]) == {f"Hugging Face {precision}" for precision in precisions}
    peers = {f"{name} {precision}" for name in ("Hugging Face", "nn.Transformer") for precision in precisions}
    assert set(row["ratio"]) == peers
    assert set(row["median"]) == peers | {f"ours {precision}" for precision in precisions}
    for name, turns in row["turns"].items():
        assert len(turns) == found["settings"]["repeats"]
        assert min(turns) > 0
        assert row["share_of_peak"][name] > 0
    ratio = row["ratio"]["nn.Transformer fp32"]
    turns = row["turns"]
    pairs = zip(turns[f"ours {precisions[0]}"], turns["nn.Transformer fp32"], strict=True)
    assert all(ratio["lowest"] <= 1.01 * own / other and 0.99 * own / other <= ratio["highest"] for own, other in pairs)
    table = (tmp_path / "look" / "results.md").read_text(encoding="utf-8")
    assert f"nn.Transformer {precisions[0]} |" in table
    assert str(tmp_path) not in json.dumps(found)
    assert str(tmp_path) not in table
