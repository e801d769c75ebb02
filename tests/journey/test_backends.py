"""The option `--backend` of commands that generate text: onnxruntime compared with PyTorch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import glassformer
from glassformer.app.server.engine.loaded import LoadedCheckpoint
from glassformer.app.server.registry import ModelRegistry
from glassformer.backends import choosing
from glassformer.backends.choosing import choose_engine
from glassformer.backends.onnx_engine import OnnxEngine
from glassformer.base import packages
from glassformer.base.config import SampleConfig
from glassformer.base.errors import GlassError
from glassformer.base.packages import install_command
from tests.journey.commands import here

ONNX = ("onnxruntime", "onnxruntime-int8")


@pytest.fixture(autouse=True)
def _packages() -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a language model, a translator and a classifier, each trained for three steps."""
    folder = tmp_path_factory.mktemp("backends")
    for task, corpus in (("lm", "stories"), ("translate", "translation-en-bn"), ("classify", "topics")):
        words = ["train", corpus, "--task", task, "--steps", "3", "--out", task, "--data.size", "60", "--device", "cpu"]
        model = ["--model.layers", "2", "--model.width", "32", "--model.heads", "2", "--model.context", "64"]
        done = here(*words, *model, folder=folder)
        assert done.returncode == 0, done.stderr
    return folder


def generated(home: Path, *words: str) -> dict[str, Any]:
    done = here("generate", *words, "--json", folder=home)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("how", [("--temperature", "0"), ("--beams", "3"), ("--temperature", "1", "--seed", "4")])
@pytest.mark.parametrize("run", ["lm", "translate"])
def test_both_backends_generate_the_same_text(home: Path, run: str, how: tuple[str, ...]) -> None:
    words = (run, "The small farmer", "--tokens", "30", *how)
    one = generated(home, *words, "--backend", "torch")
    other = generated(home, *words, "--backend", "onnxruntime")
    assert one["samples"][0]["text"] == other["samples"][0]["text"]
    assert (one["backend"], one["precision"]) == ("torch", "float32")
    assert (other["backend"], other["precision"]) == ("onnxruntime", "float32")


def test_8_bit_precision_is_reported(home: Path) -> None:
    found = generated(home, "lm", "Once", "--tokens", "9", "--backend", "onnxruntime-int8")
    assert (found["backend"], found["precision"], found["tokens"]) == ("onnxruntime", "int8", 9)
    shown = here("generate", "lm", "Once", "--samples", "2", "--tokens", "9", "--backend", ONNX[1], folder=home)
    assert "onnxruntime, int8: " in shown.stdout


def test_a_stream_equals_the_text(home: Path) -> None:
    words = ("generate", "lm", "Once", "--tokens", "20", "--temperature", "0", "--backend")
    found = here(*words, "onnxruntime", folder=home)
    assert found.stdout == here(*words, "torch", folder=home).stdout
    assert found.stderr.endswith("--- onnxruntime, float32\n")


def test_the_backend_chosen_by_auto_is_reported(home: Path) -> None:
    words = ("generate", "lm", "Once", "--temperature", "0", "--tokens")
    assert "--- onnxruntime, float32" in here(*words, "500", folder=home).stderr
    assert "---" not in here(*words, "20", folder=home).stderr


@pytest.mark.parametrize(
    ("settings", "texts", "precision", "chosen"),
    [
        (SampleConfig(tokens=500, temperature=0), 1, "fp32", True),
        (SampleConfig(tokens=250, temperature=0), 2, "fp32", True),
        (SampleConfig(tokens=500, beams=4), 3, "fp32", False),  # faster with PyTorch
        (SampleConfig(tokens=499, temperature=0), 1, "fp32", False),  # too few
        (SampleConfig(tokens=500, temperature=1), 99, "fp32", False),  # drawn
        (SampleConfig(tokens=500, temperature=0), 1, "bf16", False),  # another precision was asked for
    ],
)
def test_auto_chooses_onnxruntime_for_much_greedy_text(
    home: Path, settings: SampleConfig, texts: int, precision: Any, chosen: bool
) -> None:
    model = glassformer.load(home / "lm", device="cpu", precision=precision).run.writer
    assert isinstance(choose_engine("auto", model.model, settings, texts), OnnxEngine) == chosen


def test_auto_falls_back_to_pytorch(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = glassformer.load(home / "lm", device="cpu").run.writer.model
    settings = SampleConfig(tokens=500, temperature=0)

    def refuses(*given: object, **named: object) -> None:
        raise GlassError("it cannot run this", "Use PyTorch.")

    with monkeypatch.context() as patch:
        patch.setattr(choosing, "OnnxEngine", refuses)
        assert choose_engine("auto", model, settings, 1) is None
    monkeypatch.setattr(choosing, "installed", lambda name: False)
    assert choose_engine("auto", model, settings, 1) is None


def test_a_backend_that_is_not_installed_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = glassformer.load(home / "lm", device="cpu")
    monkeypatch.setattr(packages, "installed", lambda name: False)
    with pytest.raises(GlassError, match="the packages onnx, onnxruntime") as caught:
        model.generate("Once", tokens=3, backend="onnxruntime")
    assert caught.value.remedy == install_command("backends")


def test_the_backend_can_be_given_for_one_text_in_python(home: Path) -> None:
    model = glassformer.load(home / "lm", device="cpu")
    plain = model.generate("Once", tokens=12, temperature=0)
    assert model.generate("Once", tokens=12, temperature=0, backend="onnxruntime") == plain
    assert model.run.writer.engine is None
    with pytest.raises(GlassError, match="unknown backend 'llama'"):
        model.generate("Once", tokens=3, backend="llama")  # type: ignore[arg-type]


def test_evaluate_reports_the_backend_of_its_texts(home: Path) -> None:
    def evaluated(*words: str) -> Any:
        return here("evaluate", *words, "--json", folder=home)

    one = json.loads(evaluated("translate", "--examples", "20", "--backend", "torch").stdout)
    other = json.loads(evaluated("translate", "--examples", "20", "--backend", "onnxruntime").stdout)
    assert (one.pop("backend"), other.pop("backend")) == ("torch", "onnxruntime")
    assert one == other
    assert json.loads(evaluated("lm", "--backend", "onnxruntime").stdout)["backend"] == "onnxruntime"
    idle = evaluated("classify", "--backend", "onnxruntime")
    assert idle.returncode != 0
    assert "--backend onnxruntime is for text generation" in idle.stderr
    idle = evaluated("lm", "--ablate", "dec.0.self.1", "--backend", "torch")
    assert "--backend torch is for text generation" in idle.stderr


@pytest.mark.parametrize("run", ["lm", "translate"])
def test_a_served_run_uses_the_backend(home: Path, run: str) -> None:
    texts = []
    for backend in ("torch", "onnxruntime"):
        loaded = LoadedCheckpoint(ModelRegistry([home / run], "cpu", backend).open(run), backend)
        assert (loaded.text_model.backend, loaded.beam_search_model().backend) == (backend, backend)
        loop = loaded.token_loop()
        settings = SampleConfig(tokens=12, temperature=0)
        for ids in ([5, 6, 7], [8], [9, 5, 4, 6]):
            loop.join(ids, settings)
        texts.append([(step.rows, step.tokens) for step in loop.steps()])
    assert texts[0] == texts[1]


def test_an_unknown_backend_is_refused(home: Path) -> None:
    done = here("generate", "lm", "Once", "--backend", "vllm", folder=home)
    assert done.returncode == 2
    assert "onnxruntime-int8" in done.stderr


@pytest.mark.parametrize("words", [("--top", "3"), ("--precision", "bf16")])
def test_options_that_the_backend_would_ignore_are_refused(home: Path, words: tuple[str, ...]) -> None:
    done = here("generate", "lm", "Once", "--backend", "onnxruntime", *words, folder=home)
    assert done.returncode == 2
    assert words[0] in done.stderr
