"""llama.cpp loads GGUF exports of every architecture, and generates the text of `glass generate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("gguf")
pytest.importorskip("transformers")
pytest.importorskip("xllamacpp")

from glassformer.base.config import SampleConfig
from glassformer.base.errors import GlassError
from glassformer.interop.export_report import ExportRequest
from glassformer.interop.gguf import export as gguf_export
from glassformer.interop.gguf import llama_cpp, writing
from glassformer.interop.gguf.llama_cpp import run_llama_cpp
from glassformer.runs.opening import OpenedRun
from tests.journey.commands import here
from tests.parity.written_runs import make_run

LLAMA: dict[str, Any] = {"positions": "rotary", "norm": "rmsnorm", "activation": "swiglu"}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "qwen3": {**LLAMA, "qk_norm": "head", "kv_heads": 1},
    "starcoder2": {"positions": "rotary", "activation": "gelu_tanh", "kv_heads": 1},
    "gpt2": {"positions": "learned", "activation": "gelu_tanh"},
}
ATTENTION = "attention_bias"
FEEDFORWARD = "feedforward_bias"
NORM = "norm_bias"
BIASES: dict[str, list[tuple[str, ...]]] = {
    "llama": [(), (ATTENTION,), (FEEDFORWARD,), (ATTENTION, FEEDFORWARD)],
    "qwen3": [()],
    "starcoder2": [(), (ATTENTION,), (FEEDFORWARD,), (NORM,), (ATTENTION, FEEDFORWARD, NORM)],
    "gpt2": [(), (ATTENTION,), (FEEDFORWARD,), (ATTENTION, FEEDFORWARD, NORM)],
}
"""Combinations of biases that are tested for each architecture."""
PROMPTS = ("the old dog", "it's 7", "আমি")
COUNT = 48
END = 299
CASES = [
    (name, biases, tied, starts)
    for name in ARCHITECTURES
    for biases in BIASES[name]
    for tied in (True, False)
    for starts in (True, False)
    if not biases or tied != starts  # all four pairs where there are no biases, two elsewhere
]


def made(folder: Path, name: str, biases: tuple[str, ...] = (), tied: bool = True, starts: bool = False) -> Path:
    """Make a run of an architecture, with a context of 71 tokens."""
    settings = {**ARCHITECTURES[name], **dict.fromkeys(biases, True), "tied": tied, "context": 71}
    return make_run(folder / "run", data={"windows": "documents"} if starts else None, **settings)


def exported(folder: Path, dtype: str | None = None) -> Any:
    """Export the run in a folder, and return the report."""
    return gguf_export.export(ExportRequest(folder / "run", folder / f"{dtype}.gguf", dtype=dtype))


def written_there(path: Path) -> list[list[int]]:
    """Return the ids that llama.cpp writes greedily after each prompt; llama.cpp also tokenizes the prompts."""
    asked = {"n_predict": COUNT, "temperature": 0, "return_tokens": True}
    answers = run_llama_cpp(path, 71, [{**asked, "prompt": prompt} for prompt in PROMPTS])
    return [[id for id in answer["tokens"] if id != END] for answer in answers]


def written_here(run: Path) -> list[list[int]]:
    """Return the ids that the run's model generates greedily after each prompt."""
    model = OpenedRun.load(run, device="cpu").writer
    settings = SampleConfig(tokens=COUNT, temperature=0.0)
    found = []
    for prompt in PROMPTS:
        steps = model._steps([model.prompt_ids(prompt)], settings, lambda _row, _new: False, None)
        found.append([step.tokens[0] for step in steps if step.tokens[0] != END])
    return found


def apart(run: Path, prompt: str, written: list[int], token: int) -> float:
    """Return the difference between the run's largest logit for the next token and its logit of `token`."""
    model = OpenedRun.load(run, device="cpu").writer
    with torch.inference_mode():
        logits = model.model(torch.tensor([[*model.prompt_ids(prompt), *written]]))[0, -1]  # (V)
    return float(logits.max() - logits[token])


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "biases", "tied", "starts"), CASES)
def test_llama_cpp_generates_what_the_run_generates(
    name: str, biases: tuple[str, ...], tied: bool, starts: bool, tmp_path: Path
) -> None:
    """Models without biases are tested in all combinations of tied head and start token, models with biases in two."""
    run = made(tmp_path, name, biases, tied, starts)
    report = exported(tmp_path)
    assert report.architecture == name
    assert report.checked_by.startswith("llama.cpp (xllamacpp ")
    assert {"by llama.cpp", "greedy by llama.cpp"} < {each.name for each in report.measured}
    agreed = 0
    for prompt, theirs, ours in zip(PROMPTS, written_there(report.out), written_here(run), strict=True):
        same = next((i for i, pair in enumerate(zip(theirs, ours, strict=False)) if pair[0] != pair[1]), len(ours))
        agreed += same
        if same < len(ours):  # GELU is a table of rounded numbers there: level tokens may change places
            assert name in ("starcoder2", "gpt2")
            assert apart(run, prompt, ours[:same], theirs[same]) <= 1e-2
    assert agreed >= 40


def test_llama_cpp_opens_a_file_of_a_run_without_biases(tmp_path: Path) -> None:
    """llama.cpp's starcoder2 has biases everywhere; a run has none by default."""
    run = made(tmp_path, "starcoder2")
    done = here("export", run, "--to", "gguf", "--out", tmp_path / "x.gguf", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["checked_by"].startswith("llama.cpp")
    assert said["notes"] == []
    assert written_there(tmp_path / "x.gguf") == written_here(run)


def test_llama_cpp_tokenizes_characters_and_omits_unknown_ones(tmp_path: Path) -> None:
    """Characters have one to four bytes; one that shares its first bytes with a known character is still unknown."""
    run = make_run(tmp_path / "run", tokenizer={"kind": "characters"}, **LLAMA)
    done = here("export", run, "--to", "gguf", "--out", tmp_path / "x.gguf", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "not in the vocabulary" in json.loads(done.stdout)["notes"][0]
    encode = OpenedRun.load(run, device="cpu").tokenizer.encode
    for text in ("the old dog", "আমি বাংলায় Größe, 7"):
        assert read_there(tmp_path / "x.gguf", text) == len(encode(text))
    assert read_there(tmp_path / "x.gguf", "the \u0998old\u20ac dog\U0001f642") == len(encode("the old dog"))


def read_there(path: Path, text: str) -> int:
    """Return the number of tokens into which llama.cpp splits a text."""
    return int(run_llama_cpp(path, 71, [{"prompt": text, "n_predict": 1}])[0]["tokens_evaluated"])


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", ["f16", "q8_0"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_llama_cpp_opens_smaller_weights(name: str, dtype: str, tmp_path: Path) -> None:
    make_run(tmp_path / "run", **ARCHITECTURES[name], width=96, head_width=32, hidden=64)
    measured = {each.name: each for each in exported(tmp_path, dtype).measured}
    assert 1e-4 < measured["by llama.cpp"].value < {"f16": 5e-3, "q8_0": 2e-1}[dtype]


@pytest.mark.thorough
def test_a_file_that_llama_cpp_cannot_open_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the zero biases are left out, the error quotes llama.cpp's reason and no file is left."""
    made(tmp_path, "starcoder2")
    right = writing.gguf_tensors

    def without(*arguments: Any) -> Any:
        return {name: value for name, value in right(*arguments).items() if not name.endswith("attn_output.bias")}

    monkeypatch.setattr(gguf_export, "gguf_tensors", without)
    monkeypatch.setattr(gguf_export, "compare", lambda *_: [])
    with pytest.raises(GlassError, match=r"llama.cpp cannot load .*'blk.0.attn_output.bias' not found"):
        exported(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


FAULTS = {
    "numbers": ("by llama.cpp", lambda found: {name: 1.5 * value for name, value in found.items()}),
    "one matrix": ("by llama.cpp", lambda found: found | {"blk.1.ffn_down.weight": found["blk.1.ffn_down.weight"] / 2}),
}


@pytest.mark.thorough
@pytest.mark.parametrize("fault", FAULTS)
def test_llama_cpp_detects_changed_numbers(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, change = FAULTS[fault]
    made(tmp_path, "llama")
    right = writing.gguf_tensors
    monkeypatch.setattr(gguf_export, "gguf_tensors", lambda *arguments: change(right(*arguments)))
    monkeypatch.setattr(gguf_export, "compare", lambda *_: [])
    with pytest.raises(GlassError, match=f"the GGUF export does not match the run: in the comparison '{name}"):
        exported(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.thorough
def test_without_the_package_the_numpy_reader_checks_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path, "starcoder2")
    monkeypatch.setattr(llama_cpp, "PACKAGE", "a-package-that-is-not-there")
    report = exported(tmp_path)
    assert report.checked_by == "glassformer's GGUF reader"
    assert report.notes == (
        "not checked by llama.cpp itself, which needs the package xllamacpp: pip install xllamacpp",
    )
    assert {each.name for each in report.measured} == {"by rules", "by transformers", "greedy tokens", "token ids"}
