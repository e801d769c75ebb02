"""Exports to GGUF: results with llama.cpp's rules and with transformers equal the run's, or no file is written."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as Words

from glassformer.base.config import Config
from glassformer.base.errors import GlassError
from glassformer.base.recipes import load_recipe
from glassformer.interop.export_report import ExportReport, ExportRequest
from glassformer.interop.gguf import export as gguf_export
from glassformer.interop.gguf import writing
from glassformer.interop.gguf.numpy_reader import GgufModel
from glassformer.interop.gguf.targets import interleave_halves
from glassformer.runs.opening import OpenedRun
from glassformer.text.tokenizers import Tokenizer, layout
from tests.journey.commands import here
from tests.journey.their_models import END, bytes_bpe, saved
from tests.journey.their_models import LLAMA as LLAMA_SIZES
from tests.parity.written_runs import make_run

gguf = pytest.importorskip("gguf")
PreTrainedTokenizerFast = pytest.importorskip("transformers").PreTrainedTokenizerFast

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

BIASES = {"attention_bias": True, "feedforward_bias": True}
LLAMA: dict[str, Any] = {"positions": "rotary", "norm": "rmsnorm", "activation": "swiglu", "tied": False}
SMALL: dict[str, Any] = {"width": 96, "head_width": 32, "hidden": 64, "kv_heads": 1}
RUNS: dict[str, dict[str, Any]] = {
    "llama": {**LLAMA, **BIASES, "kv_heads": 1, "head_width": 14, "norm_eps": 1e-4, "rotary_base": 700.0},
    "qwen3": {**LLAMA, "qk_norm": "head", "tied": True, "head_width": 26},
    "starcoder2": {"positions": "rotary", "activation": "gelu_tanh", "norm_bias": True, **BIASES},
    "gpt2": {
        "positions": "sinusoidal",
        "activation": "gelu_tanh",
        "embedding_scale": True,
        "data": {"windows": "documents"},
    },
}


def exported(folder: Path, dtype: str | None = None, out: str = "model.gguf") -> ExportReport:
    """Export the run in a folder, and return the report."""
    return gguf_export.export(ExportRequest(folder / "run", folder / out, dtype=dtype))


@pytest.mark.thorough
@pytest.mark.parametrize("name", RUNS)
def test_a_float32_export_equals_the_run(name: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", **RUNS[name])
    report = exported(tmp_path)
    assert report.architecture == name
    values = {each.name: each.value for each in report.measured}
    by_llama_cpp = {"by llama.cpp", "greedy by llama.cpp"} if "llama.cpp" in report.checked_by else set()
    assert set(values) == {"by rules", "by transformers", "greedy tokens", "token ids"} | by_llama_cpp
    assert max(values["by rules"], values["by transformers"]) < 5e-5
    assert values["greedy tokens"] == values["token ids"] == 0
    fields = {key: field.contents() for key, field in gguf.GGUFReader(report.out).fields.items()}
    tokenizer = Tokenizer.load(run / "tokenizer.json")
    assert fields["general.architecture"] == name
    assert len(fields["tokenizer.ggml.tokens"]) == tokenizer.vocab_size
    assert fields["tokenizer.ggml.eos_token_id"] == tokenizer.end_id
    assert fields["tokenizer.ggml.token_type"][-2:] == [1, 3]
    assert fields["tokenizer.ggml.add_bos_token"] == (name == "gpt2")
    assert fields[f"{name}.context_length"] == 37
    assert list(tmp_path.glob("*.gguf*")) == [report.out]


def test_an_imported_chat_model_keeps_the_token_that_ends_an_answer(tmp_path: Path) -> None:
    theirs = bytes_bpe(None, ["<|im_start|>", "<|im_end|>"])
    document = json.loads(theirs.backend_tokenizer.to_str()) | {"pre_tokenizer": layout.pre_tokenizer("bpe")}
    words = PreTrainedTokenizerFast(tokenizer_object=Words.from_str(json.dumps(document)), eos_token=END)
    words.chat_template = CHATML
    saved(tmp_path / "theirs", "LlamaForCausalLM", words, **{**LLAMA_SIZES, "hidden_size": 40, "head_dim": 8})
    assert here("import", "theirs", "--out", "run", folder=tmp_path).returncode == 0
    fields = {key: field.contents() for key, field in gguf.GGUFReader(exported(tmp_path).out).fields.items()}
    assert fields["tokenizer.ggml.tokens"] == [words.convert_ids_to_tokens(id) for id in range(len(words))]
    special = {END, "<|im_start|>", "<|im_end|>"}
    kinds = dict(zip(fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"], strict=True))
    assert {token for token, kind in kinds.items() if kind == 3} == special
    assert fields["tokenizer.ggml.eos_token_id"] == words.eos_token_id
    assert fields["tokenizer.ggml.eot_token_id"] == words.convert_tokens_to_ids("<|im_end|>")
    assert fields["tokenizer.chat_template"] == CHATML


@pytest.mark.thorough
def test_smaller_weights_differ_by_rounding_only(tmp_path: Path) -> None:
    """float16 stores 11 significant bits; q8_0 stores multiples of 1/127 of the largest weight in each block of 32."""
    run = make_run(tmp_path / "run", **{**LLAMA, **SMALL})
    model = OpenedRun.load(run, device="cpu").model
    reports = {kind: exported(tmp_path, kind, f"{kind}.gguf") for kind in ("f32", "f16", "q8_0")}
    ids = [5, 250, 17, 3, 99, 211, 8]
    with torch.inference_mode():
        right = model(torch.tensor([ids]))[0].numpy()
    most = np.abs(right).max()
    away = {kind: np.abs(GgufModel(report.out).logits(ids) - right).max() / most for kind, report in reports.items()}
    assert away["f32"] < 1e-5
    assert 2e-5 < away["f16"] < 2e-3
    assert 1e-3 < away["q8_0"] < 2e-1
    assert reports["f32"].bytes > reports["f16"].bytes > reports["q8_0"].bytes
    for kind, low, high in (("f16", 1e-5, 4e-3), ("q8_0", 1e-3, 2e-1)):
        found = {each.name: each for each in reports[kind].measured}
        assert low < found["rounding"].value < high
        assert max(found["by rules"].value, found["by transformers"].value) < 1e-4
        types = {each.name: each.tensor_type.name.lower() for each in gguf.GGUFReader(reports[kind].out).tensors}
        assert types["blk.0.attn_q.weight"] == types["token_embd.weight"] == kind
        assert types["blk.0.attn_norm.weight"] == "f32"


def double(add: str) -> tuple[str, Any]:
    """Return the name of a method of `GGUFWriter`, and a replacement that writes twice the number."""
    right = getattr(gguf.GGUFWriter, add)
    return add, lambda self, value: right(self, 2 * value)


def other(add: str, change: Any) -> tuple[str, Any]:
    """Return the name of a method of `GGUFWriter`, and a replacement that writes a changed value."""
    right = getattr(gguf.GGUFWriter, add)
    return add, lambda self, value: right(self, change(value))


FAULTS: dict[str, tuple[str, Any]] = {
    "rotary base": double("add_rope_freq_base"),
    "epsilon": other("add_layer_norm_rms_eps", lambda value: value + 0.1),
    "merges": other("add_token_merges", lambda merges: merges[::-1]),
    "cutting of words": other("add_tokenizer_pre", lambda _: "gpt-2"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("fault", ["permutation", "permutation in q8_0", "bias permutation", "gate and up", *FAULTS])
def test_a_planted_fault_is_found_and_nothing_is_left(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dtype = "q8_0" if "q8_0" in fault else None
    make_run(tmp_path / "run", **{**RUNS["llama"], **(SMALL if dtype else {})})
    if fault.startswith("permutation"):
        monkeypatch.setattr(writing, "interleave_halves", lambda matrix, heads: matrix)
    elif fault == "bias permutation":
        monkeypatch.setattr(
            writing, "interleave_halves", lambda m, heads: m if m.ndim == 1 else interleave_halves(m, heads)
        )
    elif fault == "gate and up":
        right = gguf_export.gguf_tensors
        swap = {"ffn_gate": "ffn_up", "ffn_up": "ffn_gate"}

        def swapped(*arguments: Any) -> dict[str, torch.Tensor]:
            found = right(*arguments)
            names = {name: name.split(".")[-2] for name in found}
            return {name.replace(names[name], swap.get(names[name], names[name])): found[name] for name in found}

        monkeypatch.setattr(gguf_export, "gguf_tensors", swapped)
    else:
        monkeypatch.setattr(gguf.GGUFWriter, *FAULTS[fault])
    with pytest.raises(GlassError, match="the GGUF export does not match the run") as refused:
        exported(tmp_path, dtype, out="new/model.gguf")
    assert ("token ids" in refused.value.problem) == (fault in ("merges", "cutting of words"))
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize(
    ("settings", "dtype", "words"),
    [
        ({**LLAMA, "activation": "geglu"}, None, ["model.activation = geglu", "model.activation=swiglu"]),
        ({"positions": "learned", "activation": "relu"}, None, ["activation = relu", "gpt2", "activation=gelu_tanh"]),
        ({**LLAMA, "window": 5}, None, ["model.window = 5", "model.window=unset"]),
        ({**LLAMA, "positions": "alibi"}, None, ["model.positions = alibi", "model.positions=rotary"]),
        ({**LLAMA, "norm_order": "post"}, None, ["model.norm_order = post", "model.norm_order=pre"]),
        ({**LLAMA, "head_bias": True}, None, ["model.head_bias = True", "model.head_bias=false"]),
        ({**LLAMA, "qk_norm": "head", "attention_bias": True}, None, ["qk_norm = head as llama", "model.qk_norm=none"]),
        (LLAMA, "q8_0", ["have 66 numbers", "--dtype f16", "model.width=96"]),
        ({**LLAMA, **SMALL, "hidden": 50}, "q8_0", ["ffn_down", "have 50 numbers", "model.hidden=64"]),
        ({**LLAMA, **SMALL, "head_width": 14}, "q8_0", ["have 42 numbers", "model.head_width=32"]),
        (LLAMA, "q4_0", ["q4_0", "q8_0"]),
        ({"task": "classify"}, None, ["train.task = classify", "--to onnx"]),
        ({**LLAMA, "tokenizer": {"kind": "words"}}, None, ["kind = words", "tokenizer.kind=bpe"]),
        ({**LLAMA, "tokenizer": {"kind": "bytes"}}, None, ["kind = bytes", "tokenizer.kind=bpe"]),
        ({**LLAMA, "tokenizer": {"lowercase": True}}, None, ["lowercase = true", "lowercase=false"]),
        ({**LLAMA, "tokenizer": {"normalization": "nfc"}}, None, ["normalization = nfc", "normalization=none"]),
    ],
)
def test_settings_that_llama_cpp_computes_differently_are_refused(
    settings: dict[str, Any], dtype: str | None, words: list[str], tmp_path: Path
) -> None:
    make_run(tmp_path / "run", **settings)
    with pytest.raises(GlassError) as refused:
        exported(tmp_path, dtype)
    for word in words:
        assert word in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_requested_architecture_is_used_or_refused(tmp_path: Path) -> None:
    make_run(tmp_path / "run", **RUNS["qwen3"], attention_bias=True)
    refusals = {
        "gpt2": "cannot run .* as gpt2",
        "qwen3": "cannot run model.attention_bias = True as qwen3\n.*model.attention_bias=false",
        "lama": "unknown GGUF architecture 'lama'\nDid you mean llama",
    }
    for name, words in refusals.items():
        with pytest.raises(GlassError, match=words):
            gguf_export.export(ExportRequest(tmp_path / "run", tmp_path / "x.gguf", architecture=name))


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    make_run(tmp_path / "run", **LLAMA)
    (tmp_path / "model.gguf").write_text("mine", encoding="utf-8")
    with pytest.raises(GlassError, match="already exists"):
        exported(tmp_path)
    assert (tmp_path / "model.gguf").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(("target", "package"), [("gguf", "gguf"), ("gguf", "transformers"), ("hf", "transformers")])
def test_a_missing_package_is_reported_before_any_work(
    target: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run", **LLAMA)
    monkeypatch.setitem(sys.modules, package, None)
    done = here("export", run, "--to", target, "--out", tmp_path / "deep" / "out", folder=tmp_path)
    problem, remedy = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert problem.endswith(f"needs the package {package}")
    assert "[export]" in remedy
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("target", ["hf", "hf --dtype float32", "gguf --dtype q8_0"])
def test_the_serve_recipe_can_be_exported_to_every_target(target: str, tmp_path: Path) -> None:
    """Export a smaller model with the recipe's settings; the sizes of the recipe are multiples of 32.

    `test_onnx` tests the export to ONNX.
    """
    settings = load_recipe("serve").settings["model"]
    full = Config.from_dict(load_recipe("serve").settings).model
    assert full.K == 64
    assert [size % 32 for size in (full.width, full.heads * full.K, full.F)] == [0, 0, 0]
    small = {"layers": 1, "width": 64, "heads": 1, "hidden": 96, "context": 40}
    make_run(tmp_path / "run", data={"windows": "documents"}, **{**settings, **small})
    done = here("export", "run", "--out", "out", "--json", "--to", *target.split(), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert all(each["ok"] for each in facts["measured"])
    assert facts["architecture"] in ("LlamaForCausalLM", "llama")


def test_a_full_disk_is_reported_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy's error for an incomplete write has no errno."""
    import gguf

    def full(writer: object) -> None:
        raise OSError("3072 requested and 1832 written")

    make_run(tmp_path / "run", **LLAMA)
    monkeypatch.setattr(gguf.GGUFWriter, "write_tensors_to_file", full)
    with pytest.raises(GlassError, match="the disk is full"):
        gguf_export.export(ExportRequest(tmp_path / "run", tmp_path / "deep" / "x.gguf"))
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_the_printed_command_can_be_pasted(tmp_path: Path) -> None:
    make_run(tmp_path / "run", **LLAMA)
    report = gguf_export.export(ExportRequest(tmp_path / "run", tmp_path / "বই এক.gguf"))
    assert report.use == f"llama-server --model '{tmp_path / 'বই এক.gguf'}'"


def test_a_context_of_one_token_is_not_checked_by_llama_cpp(tmp_path: Path) -> None:
    make_run(tmp_path / "run", **LLAMA, context=1)
    assert exported(tmp_path).notes == ("not checked by llama.cpp itself, which needs a context of at least 2",)
