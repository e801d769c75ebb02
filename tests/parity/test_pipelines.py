"""transformers' pipelines and defaults work with exported folders: labels, padding, gradients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from glassformer.base.config import SampleConfig
from glassformer.base.errors import GlassError
from glassformer.interop.export_report import ExportRequest
from glassformer.interop.huggingface.export import export
from glassformer.interop.huggingface.importing import import_model
from glassformer.runs.opening import OpenedRun
from glassformer.tasks import TextClassifier
from tests.parity.hugging_face import transformers
from tests.parity.written_runs import LABELS, make_run

pytestmark = pytest.mark.thorough

POST: dict[str, Any] = {"family": "encoder", "norm_order": "post", "embedding_norm": True}
TEXTS = ["the old dog", "it's 7", "sleeps near the river; the old dog sleeps near it", "আমি বাংলায়", "!", "Größe"]
ROTARY: dict[str, Any] = {"family": "encoder", "positions": "rotary", "norm_order": "pre", "pooling": "mean"}
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "first": ("DebertaV2ForSequenceClassification", {**POST, "pooling": "first"}),
    "mean": ("BertMeanForSequenceClassification", {**POST, "pooling": "mean"}),
    "pre-norm": ("EsmMeanForSequenceClassification", {**ROTARY, "embedding_norm": True}),
    "pre-norm, no norm of embeddings": ("EsmMeanForSequenceClassification", ROTARY),
}


def classifier(folder: Path, shape: str, kind: str = "bpe", **settings: Any) -> TextClassifier:
    """Make a run that classifies, export it to `out`, and return its model."""
    name, model = SHAPES[shape]
    run = make_run(folder / "run", "classify", {"kind": kind}, **model, **settings)
    report = export(ExportRequest(run, folder / "out"))
    assert report.architecture == name
    found = OpenedRun.load(run, device="cpu").text_model
    assert isinstance(found, TextClassifier)
    return found


@pytest.fixture(autouse=True)
def _no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make transformers copy code from model folders into `tmp_path` instead of the home folder."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))


@pytest.mark.parametrize(
    ("shape", "kind"),
    [("first", "bpe"), ("mean", "wordpiece"), ("pre-norm", "bpe"), ("pre-norm, no norm of embeddings", "words")],
)
def test_the_pipeline_gives_the_labels_of_the_run(shape: str, kind: str, tmp_path: Path) -> None:
    """Classify texts one by one, and in one padded batch."""
    ours = classifier(tmp_path, shape, kind, attention_bias=shape in ("mean", "pre-norm"))
    right = ours.probabilities(TEXTS)  # (texts, labels)
    pipe = transformers.pipeline(
        "text-classification", model=str(tmp_path / "out"), top_k=None, device="cpu", trust_remote_code=True
    )
    for size in (1, len(TEXTS)):
        found = [{each["label"]: each["score"] for each in row} for row in pipe(TEXTS, batch_size=size)]
        theirs = np.array([[row[label] for label in LABELS] for row in found])
        assert np.abs(theirs - right).max() <= 1e-6
    assert [max(row, key=row.get) for row in found] == [each.label for each in ours.classify(TEXTS)]
    assert np.ptp(right, axis=0).max() > 0.2  # labels of a new head would be nearly the same for all texts


@pytest.mark.parametrize("shape", SHAPES)
def test_an_exported_classifier_can_be_imported(shape: str, tmp_path: Path) -> None:
    ours = classifier(tmp_path, shape)
    import_model(tmp_path / "out", tmp_path / "back", lambda _: None)
    back = OpenedRun.load(tmp_path / "back", device="cpu").text_model
    assert isinstance(back, TextClassifier)
    assert back.labels == ours.labels
    assert back.config.model.pooling == SHAPES[shape][1]["pooling"]
    assert np.abs(back.probabilities(TEXTS) - ours.probabilities(TEXTS)).max() <= 1e-6


@pytest.mark.parametrize(
    ("shape", "asked", "offered"),
    [("mean", "bert", "BertMeanForSequenceClassification"), ("pre-norm", "esm", "EsmMeanForSequenceClassification")],
)
def test_a_class_for_tokens_names_the_class_for_whole_texts(
    shape: str, asked: str, offered: str, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", "classify", **SHAPES[shape][1])
    report = export(ExportRequest(run, tmp_path / "out", architecture=asked))
    assert any("with an untrained head" in note for note in report.notes)
    assert any(offered in note for note in report.notes)


def test_a_class_for_whole_texts_is_offered_only_where_one_fits(tmp_path: Path) -> None:
    """A pre-norm rotary encoder with pooling "first": no class for whole texts has these settings."""
    settings = {**SHAPES["pre-norm"][1], "pooling": "first"}
    run = make_run(tmp_path / "run", "classify", **settings)
    report = export(ExportRequest(run, tmp_path / "out", architecture="esm"))
    assert any("with an untrained head" in note for note in report.notes)
    assert not any("without --architecture" in note for note in report.notes)
    with pytest.raises(GlassError, match="no Hugging Face class fits"):
        export(ExportRequest(run, tmp_path / "other"))


def test_code_in_a_folder_is_not_run_unless_it_is_trusted(tmp_path: Path) -> None:
    """transformers raises an error instead of creating an untrained head."""
    classifier(tmp_path, "mean")
    with pytest.raises(ValueError, match="trust_remote_code"):
        transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out", trust_remote_code=False)


def test_a_deberta_with_a_pooler_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    classifier(tmp_path, "first")
    path = tmp_path / "out" / "model.safetensors"
    tensors = load_file(path)
    tensors["pooler.dense.weight"][2, 3] = 0.5
    save_file(tensors, path, {"format": "pt"})
    with pytest.raises(GlassError, match=r"pooler.dense.weight is not the identity"):
        import_model(tmp_path / "out", tmp_path / "back", lambda _: None)
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize("task", ["masked", "classify", "lm"])
def test_no_row_of_the_embedding_is_frozen(task: str, tmp_path: Path) -> None:
    """transformers' embedding never trains the row of `pad_token_id`, which is 0 by default for BERT."""
    settings: dict[str, Any] = {"positions": "rotary", "norm": "rmsnorm", "activation": "swiglu", "tied": False}
    settings = settings if task == "lm" else {**POST, "pooling": "first"} if task == "classify" else POST
    run = make_run(tmp_path / "run", task, data={"windows": "documents"} if task == "lm" else None, **settings)
    export(ExportRequest(run, tmp_path / "out"))
    automatic = {"lm": "CausalLM", "masked": "TokenClassification", "classify": "SequenceClassification"}[task]
    model = getattr(transformers, f"AutoModelFor{automatic}").from_pretrained(tmp_path / "out")
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    rows = torch.tensor([[words.pad_token_id, 0, 5, 0, words.pad_token_id]])  # (1, T)
    model(rows).logits.square().sum().backward()
    gradient = model.get_input_embeddings().weight.grad  # (V, D)
    assert [bool(gradient[id].any()) for id in (0, 5, words.pad_token_id)] == [True, True, True]


DECODERS: dict[str, dict[str, Any]] = {
    "llama": {"positions": "rotary", "norm": "rmsnorm", "activation": "swiglu", "kv_heads": 1},
    "gpt2": {"positions": "learned", "activation": "gelu"},
    "starcoder2": {"positions": "rotary", "activation": "gelu_tanh"},
    "qwen3": {"positions": "rotary", "norm": "rmsnorm", "activation": "swiglu", "qk_norm": "head"},
}


@pytest.mark.parametrize(
    ("name", "windows"),
    [
        ("llama", "documents"),
        ("gpt2", "stream"),
        ("gpt2", "documents"),
        ("starcoder2", "stream"),
        ("qwen3", "documents"),
    ],
)
def test_batched_prompts_are_continued_as_single_ones(name: str, windows: str, tmp_path: Path) -> None:
    """Use the defaults of `AutoTokenizer` and `AutoModelForCausalLM`, without further settings."""
    run = make_run(tmp_path / "run", data={"windows": windows}, **DECODERS[name])
    export(ExportRequest(run, tmp_path / "out"))
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    prompts = ["the old dog sleeps", "it's", "the river; the"]

    def continued(batch: list[str]) -> list[str]:
        read = words(batch, return_tensors="pt", padding=True)
        found = model.generate(**read, max_new_tokens=12, do_sample=False)[:, read["input_ids"].shape[1] :]
        return words.batch_decode(found, skip_special_tokens=True)

    ours = OpenedRun.load(run, device="cpu").writer.generate(prompts, SampleConfig(tokens=12, temperature=0.0))
    alone = [continued([prompt])[0] for prompt in prompts]
    assert continued(prompts) == alone
    assert [text.rstrip("�") for text in alone] == [
        each.text.rstrip("�") for each in ours
    ]  # half a character at the end
    facts = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert facts["padding_side"] == "left"
