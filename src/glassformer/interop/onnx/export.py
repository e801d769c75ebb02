"""`glass export RUN --to onnx`: a folder with the graph, the tokenizers, and a JSON file that describes their use.

The folder appears only after onnxruntime has loaded the graph and computed the same logits as the run, and the same
greedy tokens if the model generates text.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from glassformer.base.config import PAIRS
from glassformer.base.errors import GlassError
from glassformer.base.files import refuse_taken, write_text
from glassformer.base.packages import require_packages, version_of
from glassformer.base.version import __version__
from glassformer.interop.atomic_output import write_atomically
from glassformer.interop.export_report import Comparison, ExportReport, ExportRequest
from glassformer.interop.huggingface.tokenizer_files import write_tokenizer_json
from glassformer.interop.onnx.graph import OPSET, inputs_of, output_of, write_graph
from glassformer.interop.onnx.session import Session, check_logits
from glassformer.interop.output_comparison import check_greedy
from glassformer.model.transformer import Decoder, EncoderDecoder
from glassformer.runs.opening import OpenedRun
from glassformer.text.tokenizers import frame_of

GRAPH = "model.onnx"
FACTS = "glassformer.json"
SOURCE = "source_tokenizer.json"
NO_CACHE = "the graph has no key-value cache: generating n tokens takes n forward passes over the whole text"


def export(request: ExportRequest) -> ExportReport:
    """Export a run of any family as an ONNX graph, and compare it with the run through onnxruntime.

    Raises:
        GlassError: `request.architecture` is set, `request.dtype` is not float32, a package is missing, `request.out`
            exists, the run cannot be read, or the graph does not match the run. In each case, nothing is written.
    """
    out = request.out
    if request.architecture or request.dtype not in (None, "float32", "f32"):
        option = f"--architecture {request.architecture}" if request.architecture else f"--dtype {request.dtype}"
        raise GlassError(
            f"{option} cannot be used with --to onnx",
            "Leave that option out: an ONNX export has the run's own architecture, in float32.",
        )
    refuse_taken(out)
    require_packages("export to ONNX", "onnx", "onnxscript", "onnxruntime")
    opened = OpenedRun.load(request.folder, request.which, device="cpu")
    run = opened.files

    def fill(folder: Path) -> list[Comparison]:
        folder.mkdir()
        request.note("tracing the model into a graph")
        write_graph(opened.model, folder / GRAPH)
        request.note("comparing with onnxruntime")
        comparisons = compare(opened, folder / GRAPH)
        if opened.config.two_vocabularies:
            opened.tokenizer.save(folder / "tokenizer.json")
            write_tokenizer_json(folder / SOURCE, run.source_tokenizer_file, opened.source_tokenizer, opened.config)
        else:
            write_tokenizer_json(folder / "tokenizer.json", run.tokenizer_file, opened.tokenizer, opened.config)
        write_text(folder / FACTS, json.dumps(facts(opened, comparisons), ensure_ascii=False, indent=1) + "\n")
        return comparisons

    comparisons = write_atomically("ONNX", out, fill)
    size = sum(path.stat().st_size for path in out.iterdir())
    notes = (NO_CACHE,) if isinstance(opened.model, Decoder | EncoderDecoder) else ()
    path = json.dumps(str(out / GRAPH), ensure_ascii=False)
    use = f"onnxruntime.InferenceSession({path}); inputs and output: {out / FACTS}"
    checked_by = version_of("onnxruntime")
    return ExportReport("onnx", type(opened.model).__name__, out, size, comparisons, checked_by, notes, use)


def compare(opened: OpenedRun, graph: Path) -> list[Comparison]:
    """Compare logits at several batch sizes and lengths, with padding, and greedy tokens if text is generated."""
    session = Session(graph, opened.model)
    comparisons = [check_logits(opened.model, session)]
    if isinstance(opened.model, Decoder | EncoderDecoder):
        comparisons.append(check_greedy(opened, session.next_logits, "by onnxruntime without a cache"))
    return comparisons


def facts(opened: OpenedRun, comparisons: list[Comparison]) -> dict[str, Any]:
    """Return the contents of `glassformer.json`, which describes the graph to other programs."""
    config = opened.config
    model = opened.model
    inputs = [
        {
            "name": each.name,
            "type": "bool" if each.mask else "int64",
            "shape": [each.rows, each.length],
            "meaning": each.meaning,
        }
        for each in inputs_of(model)
    ]
    frame = frame_of(opened.source_tokenizer, config)
    return {
        "glassformer": __version__,
        "task": config.train.task,
        "family": config.model.family,
        "inputs": inputs,
        "output": {"name": "logits", "type": "float32", "meaning": output_of(model)},
        "longest": config.model.context,
        "vocabulary": model.vocab_size,
        "end_id": opened.tokenizer.end_id,
        "mask_id": opened.tokenizer.mask_id,
        "special": sorted(opened.tokenizer.special),
        "before": list(frame.before),
        "after": list(frame.after),
        "target_start": list(opened.tokenizer.target_start) if config.train.task in PAIRS else [],
        "labels": list(opened.labels),
        "opset": OPSET,
        "cache": False,
        "compared": [{**asdict(each), "ok": each.ok} for each in comparisons],
    }
