"""Exports to ONNX: the results of onnxruntime equal those of the run, or no file is written."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from glassformer.base.errors import GlassError
from glassformer.base.recipes import load_recipe
from glassformer.interop.export_report import ExportReport, ExportRequest
from glassformer.interop.onnx import export as onnx_export
from glassformer.runs.opening import OpenedRun
from tests.parity.written_runs import LABELS, make_run

pytestmark = pytest.mark.thorough

pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")

SMALL = {"layers": 1, "width": 66, "heads": 1, "hidden": 50, "context": 37}
RUNS: dict[str, dict[str, Any]] = {
    "decoder": {**load_recipe("serve").settings["model"], **SMALL},  # the recipe that exports everywhere
    "encoder": {
        "task": "masked",
        "positions": "alibi",
        "activation": "relu2",
        "qk_norm": "head",
        "norm_order": "post",
        "layers": 2,
        "window": 5,
        "heads": 4,
        "kv_heads": 2,
        "head_transform": True,
        "removed_heads": ["enc.0.self.1", *(f"enc.1.self.{head}" for head in range(4))],
    },
    "classifier": {"task": "classify", "positions": "sinusoidal", "pooling": "first", "norm": "none", "layers": 1},
    "pair": {
        "task": "translate",
        "positions": "relative",
        "tokenizer": {"joint": False},
        "shared_embedding": False,
        "embedding_scale": True,
        "layers": 1,
        "encoder_layers": 1,
        "norm_order": "output",
        "qk_norm": "whole",
    },
}


@pytest.fixture(scope="module", params=RUNS)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ExportReport]:
    """Return a run of one kind, and the report of its export."""
    folder = tmp_path_factory.mktemp(request.param)
    run = make_run(folder / "run", **RUNS[request.param])
    return run, onnx_export.export(ExportRequest(run, folder / "out"))


def test_the_graph_computes_what_the_run_computes(exported: tuple[Path, ExportReport]) -> None:
    """Use input shapes that the export does not check, and the input names in `glassformer.json`."""
    run, report = exported
    model = OpenedRun.load(run, device="cpu").model
    facts = json.loads((report.out / "glassformer.json").read_text(encoding="utf-8"))
    random = np.random.default_rng(3)
    inputs = {}
    sizes = {"batch": 4, "length": 13, "source_length": 17}
    for each in facts["inputs"]:
        shape = tuple(sizes[axis] for axis in each["shape"])
        ids = random.integers(0, 280, shape)
        inputs[each["name"]] = ids if each["type"] == "int64" else np.arange(shape[1]) < random.integers(3, 13, (4, 1))
    session = onnxruntime.InferenceSession(report.out / "model.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run([facts["output"]["name"]], inputs)
    with torch.inference_mode():
        right = model(*(torch.from_numpy(value) for value in inputs.values())).numpy()
    assert found.shape == right.shape
    assert np.abs(right).max() > 0.5
    assert np.abs(found - right).max() < 1e-4


def test_the_report_contains_the_measurements(exported: tuple[Path, ExportReport]) -> None:
    _, report = exported
    assert report.checked_by == f"onnxruntime {onnxruntime.__version__}"
    writes = report.architecture in ("Decoder", "EncoderDecoder")
    assert [each.name for each in report.measured] == ["logits", "greedy tokens"][: 2 if writes else 1]
    assert 0 < report.measured[0].value < 1e-4
    assert all(each.value == 0 for each in report.measured[1:])
    assert all(each.ok for each in report.measured)
    assert ("n forward passes" in report.text()) == writes
    facts = json.loads((report.out / "glassformer.json").read_text(encoding="utf-8"))
    assert facts["longest"] == 37
    assert facts["labels"] == (list(LABELS) if report.architecture == "Classifier" else [])
    tokenizers = {"tokenizer.json"} | ({"source_tokenizer.json"} if report.architecture == "EncoderDecoder" else set())
    assert {path.name for path in report.out.iterdir()} == {
        "model.onnx",
        "glassformer.json",
    } | tokenizers


def test_a_graph_with_a_wrong_weight_is_refused_and_leaves_nothing(
    exported: tuple[Path, ExportReport], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Multiply one matrix of a feed-forward layer by 1.05."""
    import onnx
    from onnx import numpy_helper

    run, report = exported

    def wrong(model: object, path: Path) -> None:
        graph = onnx.load(report.out / "model.onnx")
        matrix = next(each for each in graph.graph.initializer if sorted(each.dims) == [50, 66])
        matrix.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(matrix) * np.float32(1.05), matrix.name))
        onnx.save(graph, path)

    monkeypatch.setattr(onnx_export, "write_graph", wrong)
    with pytest.raises(GlassError, match="the ONNX export does not match the run: in the comparison 'logits', the"):
        onnx_export.export(ExportRequest(run, tmp_path / "new" / "out"))
    assert not any(tmp_path.rglob("*.onnx"))


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(GlassError, match="already exists"):
        onnx_export.export(ExportRequest(tmp_path, tmp_path / "out"))
    with pytest.raises(GlassError, match="--dtype f16 cannot be used with --to onnx"):
        onnx_export.export(ExportRequest(tmp_path, tmp_path / "new", dtype="f16"))
    with pytest.raises(GlassError, match="--architecture llama cannot be used with --to onnx"):
        onnx_export.export(ExportRequest(tmp_path, tmp_path / "new", architecture="llama"))


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_package_is_reported_before_any_work(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run")
    said = list[str]()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(GlassError, match=rf"needs the package {package}\n") as refused:
        onnx_export.export(ExportRequest(run, tmp_path / "deep" / "out", note=said.append))
    assert "[export]" in refused.value.remedy
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]
    assert said == []
