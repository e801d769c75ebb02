"""Shared files: the effect of rounding on weights, the contents of a file, and errors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from glassformer.app.share import share
from glassformer.app.share.loading import load_shared
from glassformer.app.share.package import DATA_BLOCK, Package, make_package
from glassformer.app.share.quantize import LEVELS, Bits, pack, unpack
from glassformer.app.share.share import ShareRequest, share_run
from glassformer.app.share.tokenizing import page_tokenizer
from glassformer.base.errors import GlassError
from glassformer.runs.folder import Run
from glassformer.runs.opening import OpenedRun
from glassformer.tasks import Translator
from glassformer.text.tokenizers import Tokenizer
from tests.journey.commands import here
from tests.parity.written_runs import make_run

TASKS = {
    "lm": "the old dog",
    "masked": "the [MASK] dog",
    "classify": "the old dog",
    "translate": "the old dog",
    "chat": "the old dog",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("runs")
    return {task: make_run(home / task, task) for task in TASKS}


def test_eight_bits_keep_each_weight_to_half_a_level_of_its_row() -> None:
    weights = np.random.default_rng(0).standard_normal((5, 7)) * [[1e-4], [1], [0], [50], [1e-9]]
    small = {"b": np.arange(3), "x.positions.table.weight": weights[:2]}
    tensors = {name: value.astype(np.float32) for name, value in {"a": weights, **small}.items()}
    stored, data = pack(tensors, 8)
    found = unpack(stored, data)
    level = np.abs(tensors["a"]).max(axis=1, keepdims=True) / LEVELS
    assert (np.abs(found["a"] - tensors["a"]) <= 0.501 * level).all()
    assert (found["a"][2] == 0).all()
    assert [each.kind for each in stored] == ["int8", "float32", "float32"]
    assert all(each.offset % 4 == 0 for each in stored)
    for name in small:
        assert np.array_equal(found[name], tensors[name])


@pytest.mark.parametrize(("bits", "kind"), [(16, np.float16), (32, np.float32)])
def test_floats_are_rounded_only_once(bits: Bits, kind: type) -> None:
    weights = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
    found = unpack(*pack({"a": weights}, bits))["a"]
    assert np.array_equal(found, weights.astype(kind).astype(np.float32))


@pytest.mark.thorough
@pytest.mark.parametrize("task", list(TASKS))
def test_a_file_gives_the_model_back(task: str, runs: dict[str, Path], tmp_path: Path) -> None:
    report = share_run(ShareRequest(runs[task], tmp_path / "whole.html", 32, [TASKS[task]]))
    run = OpenedRun.load(runs[task]).text_model
    shared = load_shared(report.out)
    weights = run.model.state_dict()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in shared.model.state_dict().items())
    assert (report.rounding.largest_difference, report.rounding.same_choice) == (0.0, 1.0)
    assert shared.tokenizer.digest == run.tokenizer.digest
    assert isinstance(shared, Translator) == (task == "translate")
    assert report.bytes == report.out.stat().st_size
    assert report.parameters == sum(weight.numel() for weight in weights.values())
    rounded = share_run(ShareRequest(runs[task], tmp_path / "small.html", 8, [TASKS[task]]))
    assert 0 < rounded.rounding.largest_difference < 0.1
    assert rounded.bytes < report.bytes


def test_what_is_measured_is_the_difference_of_the_two_models(runs: dict[str, Path], tmp_path: Path) -> None:
    report = share_run(ShareRequest(runs["lm"], tmp_path / "a.html", 8, ["the old dog"]))
    run = OpenedRun.load(runs["lm"]).text_model
    shared = load_shared(report.out)
    row = Package.read(report.out).header["check"]["row"]
    with torch.no_grad():
        ours, theirs = (model.model(torch.tensor([row["ids"]]))[0] for model in (run, shared))
    assert [value for _, value in row["logits"]] == theirs[-1].double().topk(len(row["logits"])).values.tolist()
    assert float((ours.softmax(-1) - theirs.softmax(-1)).abs().max()) <= report.rounding.largest_difference + 1e-7


def test_nothing_in_a_run_can_close_the_script_element(runs: dict[str, Path], tmp_path: Path) -> None:
    texts = ["</script><script>alert(1)</script>", "<!-- <!--glass:data--> -->", "&amp; \u2028 ' \" \\u003c"]
    out = tmp_path / "a.html"
    share_run(ShareRequest(runs["lm"], out, 8, texts))
    whole = out.read_text(encoding="utf-8")
    header = Package.read(out).header
    assert header["examples"] == texts
    assert whole.count(DATA_BLOCK) == 1
    assert "alert(1)</script>" not in whole
    assert "connect-src" not in whole.partition("</head>")[0]  # default-src 'none' forbids all connections
    assert "default-src 'none'" in whole.partition("</head>")[0]


def test_a_shared_file_contains_no_local_path(runs: dict[str, Path], tmp_path: Path) -> None:
    share_run(ShareRequest(runs["lm"], tmp_path / "a.html"))
    assert str(runs["lm"].parent) not in (tmp_path / "a.html").read_text(encoding="utf-8")
    assert set(Package.read(tmp_path / "a.html").header["config"]["data"]) == {"windows"}


def test_a_run_that_is_too_large_is_refused_with_its_size(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit, remedy in ((10_000, "Use a smaller model"), (150_000, "Use --bits 8")):
        monkeypatch.setattr(share, "MOST_BYTES", limit)
        with pytest.raises(GlassError, match=rf"with 16 bits per weight, the file would be .* MB.*\n{remedy}"):
            share_run(ShareRequest(runs["lm"], tmp_path / "a.html", 16))
    assert list(tmp_path.iterdir()) == []


def test_settings_that_the_page_cannot_compute_are_refused_by_name(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(share.SUPPORTED_SETTINGS, "activation", ("relu",))
    with pytest.raises(
        GlassError,
        match=r"does not support model.activation = \w+\nUse a run with model.activation set to one of relu, or use",
    ):
        share_run(ShareRequest(runs["lm"], tmp_path / "a.html", 16))
    assert list(tmp_path.iterdir()) == []


def test_a_chat_template_with_text_in_it_is_refused(tmp_path: Path) -> None:
    """The page puts tokens around a question, and cannot render templates."""
    names = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
    run = make_run(tmp_path / "run", "chat", data={"chat_template": names})
    message = r"only special tokens around a question, .*, and end an answer with <\|end\|>\nServe the run: glass serve"
    with pytest.raises(GlassError, match=message):
        share_run(ShareRequest(run, tmp_path / "a.html", 16))
    other = "{% for m in messages %}{{ m.content }}{{ '<|unknown|>' if loop.index is even else eos_token }}{% endfor %}"
    run = make_run(tmp_path / "other", "chat", {"kind": "words"}, {"chat_template": other})
    with pytest.raises(GlassError, match=message):
        share_run(ShareRequest(run, tmp_path / "a.html", 16))
    assert not (tmp_path / "a.html").exists()


def test_a_tokenizer_with_several_ends_is_refused(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = OpenedRun.load(runs["lm"])
    monkeypatch.setattr(opened.tokenizer, "extra_end_ids", frozenset({3}))
    with pytest.raises(GlassError, match=r"ends a text with any of several tokens, .*\nServe the run: glass serve"):
        make_package(opened, 16, [])


def test_a_failure_leaves_the_old_file(runs: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "a.html"
    out.write_text("old", encoding="utf-8")
    with pytest.raises(GlassError, match=r"\[MASK\]"):
        share_run(ShareRequest(runs["masked"], out, 8, ["no hole"]))
    assert (out.read_text(encoding="utf-8"), [path.name for path in tmp_path.iterdir()]) == ("old", ["a.html"])


@pytest.mark.parametrize(
    ("part", "change", "named"),
    [
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": ""}, "normalizer Precompiled"),
        ("pre_tokenizer", {"type": "Metaspace", "replacement": "_"}, "pre-tokenizer Metaspace"),
        ("pre_tokenizer", {"type": "ByteLevel", "use_regex": True}, "use_regex = True"),
        ("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "a+"}, "behavior": "Isolated"}, "pattern 'a\\+'"),
    ],
)
def test_tokenizers_that_the_page_cannot_run_are_refused_by_name(
    part: str, change: dict[str, object], named: str, runs: dict[str, Path], tmp_path: Path
) -> None:
    path = Run(runs["lm"]).tokenizer_file
    document = json.loads(path.read_text(encoding="utf-8"))
    document[part] = {"type": "Sequence", f"{part.removesuffix('r')}rs".replace("_", ""): [change]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(GlassError, match=named):
        page_tokenizer(Tokenizer.load(path), tmp_path / "tokenizer.json")


def test_a_damaged_file_is_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "a.html"
    share_run(ShareRequest(runs["lm"], out))
    text = out.read_text(encoding="utf-8")
    for damaged in (text[: len(text) // 2], text.replace(DATA_BLOCK, DATA_BLOCK + "%"), "<html></html>"):
        out.write_text(damaged, encoding="utf-8")
        with pytest.raises(GlassError, match="not a complete file"):
            load_shared(out)
    with pytest.raises(GlassError, match="cannot be read: "):
        load_shared(tmp_path)


def test_the_command_writes_the_file(runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("\ufeffthe old dog\n\n আমি \n", encoding="utf-8")
    done = here("share", str(runs["lm"]), "--out", "a.html", "--examples", "texts.txt", "--json", folder=tmp_path)
    facts = json.loads(done.stdout)
    assert '"examples":["the old dog","আমি"]' in (tmp_path / "a.html").read_text(encoding="utf-8").replace(
        ": ", ":"
    ).replace(", ", ",")
    (tmp_path / "texts.csv").write_text('id,text\n1,the old dog\n2,"the dog, the cat"\n', encoding="utf-8")
    done = here("share", str(runs["lm"]), "--out", "t.html", "--examples", "texts.csv", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the dog, the cat" in (tmp_path / "t.html").read_text(encoding="utf-8")
    assert "id,text" not in (tmp_path / "t.html").read_text(encoding="utf-8")
    assert facts["file"] == "a.html"
    assert facts["bytes"] == (tmp_path / "a.html").stat().st_size
    assert {"parameters", "largest_difference", "loss", "loss_shared"} <= facts.keys()
    (tmp_path / "empty.txt").write_text("\n \n", encoding="utf-8")
    refused = here("share", str(runs["lm"]), "--out", "b.html", "--examples", "empty.txt", folder=tmp_path)
    assert "empty.txt contains no text" in refused.stderr
    assert not (tmp_path / "b.html").exists()
    refused = here("share", str(runs["lm"]), "--out", "nowhere/a.html", folder=tmp_path)
    assert (refused.returncode, len(refused.stderr.strip().splitlines())) == (2, 2)
