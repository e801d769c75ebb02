"""CTranslate2 converts exported encoder-decoders and writes the tokens that the run finds likeliest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ctranslate2")
pytest.importorskip("transformers")

from glassformer.interop.export_report import ExportRequest
from glassformer.interop.huggingface import export as hf_export
from tests.parity.ctranslate2_runs import unlikely_translations
from tests.parity.written_runs import make_run

pytestmark = pytest.mark.thorough

SHARED: dict[str, Any] = {"tied": True, "shared_embedding": True}
BIASES = {"attention_bias": True, "feedforward_bias": True, "norm_bias": True}
CLASSES: dict[str, dict[str, Any]] = {
    "mbart": {"positions": "learned", "embedding_norm": True, "activation": "gelu"},
    "bart": {"positions": "learned", "embedding_norm": True, "norm_order": "post", "activation": "relu"},
    "pegasus": {"positions": "sinusoidal", "activation": "gelu_tanh"},
    "t5": {"positions": "relative", "norm": "rmsnorm", "activation": "relu"},
}
"""Settings with which `glass export` chooses each class.

Marian is left out: CTranslate2 removes the last token of the vocabulary, which is <pad> in the models that Marian's
authors publish.
"""


@pytest.mark.parametrize("biases", [False, True], ids=["plain", "biases"])
@pytest.mark.parametrize("name", CLASSES)
def test_ctranslate2_translates_as_the_run_does(name: str, biases: bool, tmp_path: Path) -> None:
    settings = {**CLASSES[name], **SHARED, **(BIASES if biases and name != "t5" else {})}
    make_run(tmp_path / "run", "translate", tokenizer={"joint": True}, **settings)
    report = hf_export.export(ExportRequest(tmp_path / "run", tmp_path / "hf"))
    assert report.architecture.lower().startswith(name)
    assert unlikely_translations(tmp_path / "run", tmp_path / "hf") == 0
