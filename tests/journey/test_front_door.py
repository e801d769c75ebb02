"""The Python interface, `import glassformer as gf`: load, train, import and use models; messages for wrong names."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import glassformer as gf
from glassformer import api
from glassformer.base.config import TASK_FACTS
from glassformer.evaluation.token_losses import surprisals
from glassformer.inspection.ablation import ablate, check_ablation
from glassformer.training.trainer import Trainer
from tests.fixtures.replaying import copy_runs
from tests.journey.commands import glass, here
from tests.journey.damage import make_text, train
from tests.journey.pages import ROOT, blocks

TEXT = "the old dog"
RUNS = ("lm", "masked", "classify", "translate", "summarize")
TINY = {
    "model.layers": 1,
    "model.width": 32,
    "model.heads": 2,
    "model.context": 16,
    "train.batch": 2,
    "train.warmup": 0,
    "train.evaluate_every": 2,
    "train.threads": 1,
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with copies of stored runs, one for each of five tasks."""
    folder = tmp_path_factory.mktemp("front-door")
    copy_runs(list(RUNS), folder)
    return folder


@pytest.fixture(scope="module")
def models(home: Path) -> dict[str, gf.Transformer]:
    """Return the opened runs of `home`, by task."""
    return {task: gf.load(home / task) for task in RUNS}


def advice(owner: Any, name: str) -> str:
    """Return the error message for an attribute that does not exist."""
    with pytest.raises(AttributeError) as caught:
        getattr(owner, name)
    return str(caught.value)


def test_the_package_lists_its_public_names() -> None:
    assert {"load", "fit", "import_model", "Transformer", "GlassError"} <= set(dir(gf))
    assert set(dir(gf)) == set(gf.__all__)
    assert all(getattr(gf, name) is not None for name in gf.__all__)
    for name in api.__all__:
        assert getattr(gf, name) is getattr(api, name)
    methods = [value for name, value in vars(gf.Transformer).items() if not name.startswith("_")]
    assert all(value.__doc__ for value in (*methods, gf.load, gf.fit, gf.import_model))


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("laod", "Did you mean load?"), ("fti", "Did you mean fit?"), ("importmodel", "Did you mean import_model?")],
)
def test_a_wrong_name_gets_a_suggestion(wrong: str, right: str) -> None:
    assert right in advice(gf, wrong)
    assert hasattr(gf, right[len("Did you mean ") : -1])


def test_a_misplaced_or_misspelt_name_gets_advice(models: dict[str, gf.Transformer]) -> None:
    assert "glassformer.load(RUN).attention" in advice(gf, "attention")
    assert "Did you mean attention?" in advice(models["lm"], "atention")
    assert "Choose one of: " in advice(models["lm"], "zzzz")
    code = "import glassformer as gf\ntry: gf.numpy_reference\nexcept AttributeError as error: print(error)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip().endswith("import glassformer.numpy_reference")


def test_every_object_has_a_useful_repr(models: dict[str, gf.Transformer], home: Path) -> None:
    for task, model in models.items():
        parameters = sum(parameter.numel() for parameter in model.model.parameters())
        assert str(home / task) in repr(model)
        assert f"{model.config.model.family}: " in repr(model)
        assert f"{parameters:,} parameters" in repr(model)
        assert f"task {task}" in repr(model)
        assert model.tokenizer.description() in repr(model)
        assert model.tokenizer.description() in repr(model.text_model)
        assert "\n[train]\n" in repr(model.config)
    model = models["lm"]
    assert re.match(r"11 tokens: 't':\d+ 'h':\d+ 'e':\d+ ' ':\d+ ", repr(model.tokens(TEXT)))
    assert "source, 12 tokens: 't':" in repr(models["translate"].tokens(TEXT, "a"))
    assert re.search(r"^  dec\.0\.self\.pattern +\(1, 2, 11, 11\)$", repr(model.record(TEXT)), flags=re.MULTILINE)
    assert "sum of parts" in repr(model.receipt(TEXT))
    assert re.search(r"^dec\.0\.self\.0 +\d", repr(model.heads(TEXT)), flags=re.MULTILINE)


def test_texts_equal_those_of_the_command_line(models: dict[str, gf.Transformer], home: Path) -> None:
    for task in ("lm", "summarize"):
        words = ("--tokens", "7", "--seed", "3", "--temperature", "0.9")
        done = here("generate", task, TEXT, *words, folder=home)
        written = models[task].generate(TEXT, tokens=7, seed=3, temperature=0.9)
        assert done.stdout == (TEXT if task == "lm" else "") + written + "\n"
    searched = models["translate"].generate(TEXT, beams=3, tokens=5)
    assert here("generate", "translate", TEXT, "--beams", "3", "--tokens", "5", folder=home).stdout == (searched + "\n")
    assert models["lm"].generate("", tokens=2)


def test_answers_equal_those_of_the_task_models(models: dict[str, gf.Transformer]) -> None:
    filler: Any = models["masked"].text_model
    assert models["masked"].fill("the [MASK]ld", 3) == filler.fill("the [MASK]ld", 3)
    classifier: Any = models["classify"].text_model
    assert models["classify"].classify(TEXT) == classifier.classify([TEXT])[0]


def test_a_method_of_another_task_names_that_task(models: dict[str, gf.Transformer]) -> None:
    for task, model in models.items():
        for method in {"generate", "fill", "classify"} - {TASK_FACTS[task].method}:
            with pytest.raises(gf.GlassError) as caught:
                getattr(model, method)("the [MASK]")
            assert f".{TASK_FACTS[task].method}()" in caught.value.remedy
        with pytest.raises(AttributeError) as unknown:
            _ = model.zzzzz
        offered = set(re.findall(r"\w+", str(unknown.value))) & {"generate", "fill", "classify"}
        assert offered == {TASK_FACTS[task].method}


@pytest.mark.parametrize("method", ["tokens", "logits", "loss", "record", "receipt"])
def test_texts_that_cannot_be_read_are_refused(models: dict[str, gf.Transformer], method: str) -> None:
    for task, model in models.items():
        target = ("sport",) if (task, method) == ("classify", "loss") else ()
        wrong = ["", ["a", "b"]]
        wrong += [] if task == "lm" and method == "receipt" else ["the " * 100]  # glass receipt reads the end of a text
        for text in wrong if method != "receipt" else wrong[:1]:
            with pytest.raises(gf.GlassError):
                getattr(model, method)(text, *target)


@pytest.mark.parametrize(
    ("ask", "problem", "remedy"),
    [
        (lambda model: model.attention(TEXT, 9, 0), "no head 'dec.9.self.0'", "dec.0.self.0 to dec.0.self.1"),
        (lambda model: model.attention(TEXT, -1, 0), "no head 'dec.-1.self.0'", "It has dec.0.self.0"),
        (lambda model: model.attention(TEXT, 0, 0, stack="enc"), "no head 'enc.0.self.0'", "It has dec.0.self.0"),
        (lambda model: model.record(TEXT, "patern"), "'patern'", "Did you mean pattern?"),
        (lambda model: model.patch(TEXT, "dec.0.slef", TEXT), "'dec.0.slef'", "Did you mean dec.0.self?"),
        (lambda model: model.patch(TEXT, "dec.0.self.0", "short"), "11 and 5 tokens", "model.tokens(other)"),
        (lambda model: model.patch(TEXT, "dec.mask", TEXT), "dec.mask cannot be patched", "Patch a head"),
        (lambda model: model.patch(TEXT, "dec.0.self.0", TEXT, at=11), "no token 11", "Give 0 to 10."),
        (
            lambda model: model.ablate(TEXT, "dec.0.self.9"),
            "'dec.0.self.9'",
            "dec.0.self has heads dec.0.self.0 to dec.0.self.1.",
        ),
        (lambda model: model.ablate(TEXT, "dec.9.self.0"), "'dec.9.self.0'", "dec has layers 0"),
        (lambda model: model.patch(TEXT, "dec.9.resid", TEXT), "'dec.9.resid'", "dec has residual streams 0"),
        (lambda model: model.patch(TEXT, "dec.9.feedforward", TEXT), "'dec.9.feedforward'", "dec has layers 0"),
        (lambda model: model.ablate(TEXT, "dec.0.self.1", instead="men"), "'men'", "Did you mean mean?"),
        (lambda model: model.loss("a"), "no token of 'a' is predicted", "longer"),
        (lambda model: model.loss(TEXT, "b"), "a target was given", ""),
        (lambda model: model.generate(TEXT, temperature=-1), "temperature = -1", "Give 0 or more."),
        (lambda model: model.generate(TEXT, seed=1, beams=2), "seed was given with beams = 2", ""),
        (lambda model: model.generate(7), "must be a string, got int", "Give one text"),
        (lambda model: gf.load("runs/nothing"), "there is no run at", ""),
    ],
)
def test_errors_name_the_given_and_the_allowed_values(
    models: dict[str, gf.Transformer], ask: Any, problem: str, remedy: str
) -> None:
    with pytest.raises(gf.GlassError) as caught:
        ask(models["lm"])
    assert problem in caught.value.problem
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("task", "ask", "problem"),
    [
        ("lm", lambda model: model.ablate(TEXT, "dec.0.self", instead=len), "unknown kind of ablation"),
        ("lm", lambda model: model.ablate(TEXT, "dec.0.self", instead=["zero"]), "unknown kind of ablation"),
        ("lm", lambda model: model.heads(["a"]), "the text must be a string, got list"),
        ("translate", lambda model: model.heads(["a"]), "the text must be a string, got list"),
        ("lm", lambda model: model.receipt(5), "the text must be a string, got int"),
        ("translate", lambda model: model.logits(TEXT, 5), "the text must be a string, got int"),
        ("masked", lambda model: model.fill(None), "the text must be a string, got NoneType"),
        ("masked", lambda model: model.receipt(5), "the text must be a string, got int"),
        ("classify", lambda model: model.classify(None), "the text must be a string, got NoneType"),
        ("classify", lambda model: model.classify([TEXT]), "the text must be a string, got list"),
        ("classify", lambda model: model.loss(TEXT, ["sport"]), "there is no label"),
        ("lm", lambda model: gf.load(model.folder, precision="fp16"), "there is no precision 'fp16'"),
    ],
)
def test_an_argument_of_a_wrong_type_is_refused_in_two_lines(
    models: dict[str, gf.Transformer], task: str, ask: Any, problem: str
) -> None:
    with pytest.raises(gf.GlassError) as caught:
        ask(models[task])
    assert problem in caught.value.problem
    assert caught.value.remedy


def test_a_loss_without_its_target_is_refused(models: dict[str, gf.Transformer]) -> None:
    with pytest.raises(gf.GlassError, match="sport"):
        models["classify"].loss(TEXT)
    with pytest.raises(gf.GlassError, match="target="):
        models["translate"].loss(TEXT)
    with pytest.raises(gf.GlassError, match="the text is empty"):
        models["translate"].generate("")


def test_every_part_can_be_ablated(models: dict[str, gf.Transformer]) -> None:
    for task, target in (("lm", None), ("masked", None), ("classify", "sport"), ("translate", "a b")):
        model = models[task]
        changes = {part: model.ablate(TEXT, part, target) for part in model.parts}
        assert all(isinstance(change, float) for change in changes.values())
        assert any(changes.values())
        both = model.ablate(TEXT, model.parts[-2:], target)
        assert both != changes[model.parts[-1]]


def test_mean_ablation_uses_means_of_the_validation_text(models: dict[str, gf.Transformer], home: Path) -> None:
    model = models["lm"]
    run: Any = model.text_model
    ablation = check_ablation(model.model, ["dec.0.self.1"], "mean")
    off = surprisals(run, TEXT, None, ablate(model.model, ablation, model.run.held_out(api.MEAN_TOKENS)))
    whole = surprisals(run, TEXT)
    assert off.mean is not None
    assert whole.mean is not None
    assert model.ablate(TEXT, "dec.0.self.1", instead="mean") == off.mean - whole.mean
    kinds = {kind: model.ablate(TEXT, "dec.0.self.1", instead=kind) for kind in ("zero", "mean", "first", "frozen")}
    assert len(set(kinds.values())) == 4


def test_both_texts_of_a_patch_use_the_target_of_the_first(models: dict[str, gf.Transformer]) -> None:
    model = models["summarize"]
    written = model.tokenizer.decode(model.tokens(TEXT).ids.tolist()[1:])
    assert model.tokens("the odd cat").ids.tolist() != model.tokens(TEXT).ids.tolist()
    found = model.patch(TEXT, "enc.0.self.0", "the odd cat")
    torch.testing.assert_close(found, model.patch(TEXT, "enc.0.self.0", "the odd cat", target=written), rtol=0, atol=0)


def test_training_from_python_equals_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    make_text(tmp_path)
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    model = gf.fit("proverbs.txt", steps=4, settings=TINY)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert capfd.readouterr() == ("", "")
    assert model.folder == Path("runs/proverbs")
    options = [f"--{name}={value}" for name, value in TINY.items()]
    done = here("train", "proverbs.txt", *options, "--steps", "4", "--out", "runs/other", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    other = gf.load("runs/other")
    assert other.run.checkpoint.name == model.run.checkpoint.name
    for name, weight in other.model.state_dict().items():
        assert torch.equal(weight, model.model.state_dict()[name]), name
    with pytest.raises(gf.GlassError, match=r"already contains a run\nOpen it with gf\.load\("):
        gf.fit("proverbs.txt", steps=4, settings=TINY)


def test_training_in_a_thread_can_show_its_progress(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    make_text(tmp_path)
    found: list[gf.Transformer] = []

    def work() -> None:
        out = tmp_path / "run"
        found.append(gf.fit(tmp_path / "proverbs.txt", steps=4, out=out, settings=TINY, progress=True))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found[0].folder == tmp_path / "run"
    assert re.search(r"^step +4 .* validation ", capfd.readouterr().err, flags=re.MULTILINE)


def test_an_opened_model_can_be_copied(models: dict[str, gf.Transformer]) -> None:
    copied = copy.copy(models["lm"])
    assert copied.loss(TEXT) == models["lm"].loss(TEXT)


def test_interrupted_training_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_text(tmp_path)
    whole = api.train

    def stopped(trainer: Trainer) -> Any:
        trainer.stop_requested = True
        return whole(trainer)

    monkeypatch.setattr(api, "train", stopped)
    with pytest.raises(KeyboardInterrupt):
        gf.fit(tmp_path / "proverbs.txt", steps=4, out=tmp_path / "run", settings=TINY)
    assert gf.load(tmp_path / "run", "last").run.checkpoint.name == "step-000000"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"data": ["a", "b"]}, "data must be a path, got list"),
        ({"data": "nothing.txt"}, "nothing.txt does not exist"),
        ({"data": "stories", "task": "translate"}, "the corpus stories does not support train.task = translate"),
        ({"data": "stories", "settings": {"model.leyers": 1}}, "there is no setting 'model.leyers'"),
        ({"data": "stories", "settings": {"model.layers": object()}}, "model.layers = <object"),
        ({"data": "stories", "settings": {"model.layers": 0}}, "model.layers = 0"),
    ],
)
def test_invalid_training_arguments_are_refused(
    given: dict[str, Any], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(gf.GlassError) as caught:
        gf.fit(**given, steps=1)
    assert problem in caught.value.problem
    assert not list(tmp_path.iterdir())


@pytest.mark.thorough
def test_training_by_minutes_chooses_sizes_and_writes_a_plan(tmp_path: Path) -> None:
    """As with `glass train --recipe auto`, the outcome is added to the forecast in `plan.json`."""
    text = "\n".join(f"It was day {number}, and the old dog slept in the sun." for number in range(500))
    (tmp_path / "book.txt").write_text(text, encoding="utf-8")
    model = gf.fit(tmp_path / "book.txt", minutes=0.15, recipe="auto", out=tmp_path / "run")
    assert model.config.model.positions == "rotary"
    assert '"outcome"' in (tmp_path / "run" / "plan.json").read_text(encoding="utf-8")


@pytest.mark.thorough
def test_an_imported_model_opens_like_any_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    make_text(tmp_path)
    monkeypatch.chdir(tmp_path)
    shape = ("--model.positions=rotary", "--model.norm=rmsnorm", "--model.activation=swiglu")
    for words in (train("proverbs.txt", *shape, out="run"), ["export", "run", "--to", "hf", "--out", "theirs"]):
        done = glass(*words, folder=tmp_path)
        assert done.returncode == 0, done.stderr
    model = gf.import_model("theirs")
    assert model.folder == Path("runs/theirs")
    torch.testing.assert_close(model.logits(TEXT), gf.load("run").logits(TEXT), rtol=0, atol=1e-5)
    with pytest.raises(gf.GlassError, match=r"already contains a run\nOpen it with gf\.load\("):
        gf.import_model("theirs")


def test_ten_tasks_of_a_researcher_take_fifteen_lines() -> None:
    """The tasks are numbered in the first code block of docs/python.md, which `test_docs.py` runs."""
    code = blocks(ROOT / "docs" / "python.md", "python")[0].code
    lines = [line for line in code.splitlines() if line.strip()]
    assert len(lines) <= 15
    assert [line for line in lines if re.match(r"(import|from) ", line)] == ["import glassformer as gf"]
    assert re.findall(r"# (\d+)", code) == [str(number) for number in range(1, 11)]
