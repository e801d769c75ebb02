"""The ONNX example in the documentation, tested on runs of every family, gives the run's answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassformer.base.config import SampleConfig
from glassformer.interop.export_report import ExportRequest
from glassformer.interop.onnx.export import export
from glassformer.runs.opening import OpenedRun
from glassformer.tasks import MaskFiller, TextClassifier, TextModel, Translator
from tests.journey.pages import ROOT, blocks
from tests.parity.written_runs import make_run

pytestmark = pytest.mark.thorough

pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")

TEXTS = ("the old dog", "it's 7 o'clock", "sleeps near the river; the", "গান")
DOCUMENTS = {"windows": "documents"}
ROTARY = {"positions": "rotary", "norm": "rmsnorm", "activation": "swiglu"}
RUNS: dict[str, dict[str, Any]] = {
    "stream": {"positions": "learned"},
    "documents": {**ROTARY, "data": DOCUMENTS},
    "documents of characters": {"positions": "learned", "data": DOCUMENTS, "tokenizer": {"kind": "characters"}},
    "masked": {"task": "masked"},
    "masked in documents": {"task": "masked", "data": DOCUMENTS, "tokenizer": {"kind": "wordpiece"}},
    "classify": {"task": "classify"},
    "classify by the first token": {"task": "classify", "pooling": "first", **ROTARY, "tokenizer": {"kind": "unigram"}},
    "translate": {"task": "translate"},
    "two vocabularies": {"task": "translate", "tokenizer": {"joint": False}, "shared_embedding": False},
}


@pytest.fixture(scope="module")
def answer() -> Any:
    """Return the function `answer` of the documentation page."""
    code = next(each.code for each in blocks(ROOT / "docs" / "export.md") if "def answer" in each.code)
    names: dict[str, Any] = {}
    exec(compile(code.partition("\nprint(")[0], "export.md", "exec"), names)
    return names["answer"]


@pytest.mark.parametrize("name", RUNS)
def test_the_example_gives_the_runs_answers(name: str, answer: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", **RUNS[name])
    export(ExportRequest(run, tmp_path / "out"))
    model = OpenedRun.load(run, device="cpu").text_model
    said = []
    for text in (*TEXTS, *"bdfgjlnt") if isinstance(model, TextClassifier) else TEXTS:
        if isinstance(model, TextClassifier):
            said.append(model.classify([text])[0].label)
            assert answer(tmp_path / "out", text) == said[-1]
        elif isinstance(model, MaskFiller):
            holes = f"[MASK] {text} [MASK]"
            said.append(str([candidates[0].text for candidates in model.fill(holes, 1)]))
            assert str([each.removeprefix("##") for each in answer(tmp_path / "out", holes)]) == said[-1]
        else:
            assert isinstance(model, TextModel | Translator)
            sample = model.generate([text], SampleConfig(tokens=8, temperature=0.0, beams=1))[0]
            said.append(sample.text.rstrip("�"))  # half a character at the end
            assert answer(tmp_path / "out", text).rstrip("�") == said[-1]
    assert len(set(said)) > 1


@pytest.mark.parametrize(
    "settings",
    [ROTARY, {"positions": "alibi"}, {"positions": "learned"}, {"task": "translate", "positions": "relative"}],
)
def test_a_graph_reads_no_more_than_the_context(settings: dict[str, Any], tmp_path: Path) -> None:
    report = export(ExportRequest(make_run(tmp_path / "run", **settings), tmp_path / "out"))
    graph = onnxruntime.InferenceSession(report.out / "model.onnx", providers=["CPUExecutionProvider"])
    names = [each.name for each in graph.get_inputs()]

    def read(length: int) -> Any:
        ids = np.full((1, length), 5)
        return graph.run(["logits"], {name: ids == 5 if "real" in name else ids for name in names})[0]

    assert read(37).shape[1] == 37
    with pytest.raises(Exception, match=r"invalid index|out of data bounds"):
        read(38)
