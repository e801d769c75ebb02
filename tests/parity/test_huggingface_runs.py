"""Other programs load exported runs with removed heads, and exported runs that fill in masks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer.interop.export_report import ExportRequest
from glassformer.interop.gguf.export import export as export_gguf
from glassformer.interop.huggingface.choosing import ARCHITECTURES, closest_form
from glassformer.interop.huggingface.compare import random_batch
from glassformer.interop.huggingface.export import export
from glassformer.interop.huggingface.importing import import_model
from glassformer.interop.onnx.export import export as export_onnx
from glassformer.model.build import build_model
from glassformer.model.evaluation_mode import inference
from glassformer.model.transformer import EncoderDecoder, Model
from glassformer.runs.opening import OpenedRun
from glassformer.tasks import MaskFiller
from tests.parity.hugging_face import transformers
from tests.parity.written_runs import make_run
from tests.property.models import as_if_trained, tiny

POST: dict[str, Any] = {"family": "encoder", "norm_order": "post", "embedding_norm": True}
LLAMA: dict[str, Any] = {"positions": "rotary", "norm": "rmsnorm", "activation": "swiglu"}
PRUNED: dict[str, tuple[str, str, dict[str, Any]]] = {  # the class it goes through -> its task and settings
    "gpt2": ("gpt2", "lm", {"attention_bias": True, "removed_heads": ("dec.0.self.1", "dec.1.self.0", "dec.1.self.2")}),
    "groups": (
        "llama",
        "lm",
        {
            **LLAMA,
            "heads": 6,
            "kv_heads": 3,
            "removed_heads": ("dec.0.self.0", "dec.0.self.1", "dec.0.self.4", "dec.1.self.5"),
        },
    ),
    "normed heads, and a layer without any": (
        "qwen3",
        "lm",
        {**LLAMA, "qk_norm": "head", "removed_heads": ("dec.0.self.0", "dec.0.self.1", "dec.0.self.2", "dec.1.self.1")},
    ),
    "encoder": ("bert", "masked", {**POST, "removed_heads": ("enc.1.self.0",)}),
    "pair": (
        "blenderbot",
        "translate",
        {
            "family": "encoder-decoder",
            "removed_heads": ("dec.0.cross.2", "dec.1.cross.0", "dec.1.self.1", "enc.0.self.0"),
        },
    ),
    "relative": (
        "t5",
        "translate",
        {
            "family": "encoder-decoder",
            "positions": "relative",
            "norm": "rmsnorm",
            "removed_heads": ("dec.0.self.0", "dec.1.cross.0", "enc.1.self.2"),
        },
    ),
}


def logits(model: Model) -> torch.Tensor:
    tokens, real = random_batch(model)
    with inference(model):
        if isinstance(model, EncoderDecoder):
            return model(tokens, random_batch(model, seed=1)[0], real)
        return model(tokens, real)[real]


@pytest.mark.parametrize("name", PRUNED)
def test_removed_heads_become_zeros_and_nothing_else_changes(name: str) -> None:
    architecture, _, settings = PRUNED[name]
    model = as_if_trained(tiny(**{"layers": 2, "heads": 3, "width": 30, "head_width": 10, **settings})).double()
    config = model.config.replace(vocab_size=model.vocab_size)
    form, tensors = closest_form(ARCHITECTURES[architecture], config, dict(model.state_dict()))
    assert form.removed_heads == ()
    assert sum(t.numel() for t in tensors.values()) > sum(t.numel() for t in model.state_dict().values())
    whole = build_model(form).double()
    whole.load_state_dict(tensors)
    assert (logits(whole.eval()) - logits(model)).abs().max() <= 1e-12


@pytest.mark.thorough
@pytest.mark.parametrize("name", PRUNED)
def test_a_run_with_removed_heads_is_exported_to_hugging_face(name: str, tmp_path: Path) -> None:
    architecture, task, settings = PRUNED[name]
    run = make_run(tmp_path / "run", task, **settings)
    report = export(ExportRequest(run, tmp_path / "out", architecture=architecture))
    assert {each.name: each.value for each in report.measured}["logits"] <= 2e-5
    import_model(tmp_path / "out", tmp_path / "back", lambda _: None)
    first = OpenedRun.load(run).model
    back = OpenedRun.load(tmp_path / "back").model
    assert (logits(back) - logits(first)).abs().max() <= 2e-5


@pytest.mark.thorough
def test_a_run_with_removed_heads_is_exported_to_onnx(tmp_path: Path) -> None:
    report = export_onnx(ExportRequest(make_run(tmp_path / "run", **PRUNED["groups"][2]), tmp_path / "out"))
    assert {each.name: each.value for each in report.measured}["logits"] <= 2e-5


def test_a_run_with_removed_heads_is_exported_to_gguf(tmp_path: Path) -> None:
    report = export_gguf(ExportRequest(make_run(tmp_path / "run", **PRUNED["groups"][2]), tmp_path / "one.gguf"))
    assert {each.name: each.value for each in report.measured}["by rules"] <= 2e-5


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "characters", "unigram"])
def test_a_typed_mask_is_one_token_and_is_filled_by_the_pipeline(kind: str, tmp_path: Path) -> None:
    settings = {**POST, "head_transform": True, "tied": True}
    run = make_run(tmp_path / "run", "masked", {"kind": kind, "vocab_size": 300}, {"windows": "documents"}, **settings)
    report = export(ExportRequest(run, tmp_path / "out"))
    assert (report.architecture, report.notes) == ("BertForMaskedLM", ())
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    filler = OpenedRun.load(run).text_model
    assert isinstance(filler, MaskFiller)
    text = "the [MASK] dog [MASK]."
    assert (words.mask_token, words.mask_token_id) == ("[MASK]", filler.mask_id)
    assert words(text)["input_ids"] == filler.ids(text)
    pipe = transformers.pipeline("fill-mask", model=str(tmp_path / "out"), top_k=3, device="cpu")
    for theirs, ours in zip(pipe(text), filler.fill(text, 3), strict=True):
        tokens = [each["token"] for each in theirs if each["token"] not in filler.tokenizer.special]
        assert tokens == [each.token for each in ours][: len(tokens)]
    import_model(tmp_path / "out", tmp_path / "back", lambda _: None)
    assert OpenedRun.load(tmp_path / "back").tokenizer.digest == filler.tokenizer.digest
