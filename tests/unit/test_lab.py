"""The bug lab: each bug is caught by the test that its case names, is visible in the evidence, and is removed."""

from __future__ import annotations

import importlib
import inspect
import json
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer.base.errors import GlassError
from glassformer.base.wording import LEVELS
from glassformer.model.precision import Speeds, cache_speeds
from glassformer.verification.process_state import in_float64
from glassformer_course.lab.bench import LabTrainer
from glassformer_course.lab.case import BugCase, cases, diagnoses, find_case
from glassformer_course.lab.charts import chart_text, charts_svg, map_text, maps_svg
from glassformer_course.lab.evidence import Chart, Evidence, Map, Number
from glassformer_course.lab.planting import replaced
from glassformer_course.lab.report import report_text, verdict_of
from glassformer_course.lab.room import LabFolder, collect_evidence
from tests.journey.pages import ROOT
from tests.parity.reference_cases import DIFFERENTIATED

LEARNED = {"positions": "learned", "kv_heads": 6}
GIVEN: dict[str, dict[str, Any]] = {
    "test_a_block_is_a_transformer_encoder_layer": {
        "order": "pre",
        "activation": "relu",
        "padding": False,
        "causal": True,
    },
    "test_a_token_never_changes_what_comes_before_it": {"kind": LEARNED, "window": None},
    "test_a_target_token_never_changes_what_comes_before_it": {"kind": LEARNED, "window": None},
    "test_cached_logits_equal_uncached": {"kind": LEARNED, "heads": "multi-head", "window": None, "ragged": False},
    "test_padding_and_batch_mates_change_nothing": {"kind": LEARNED, "side": "left"},
    "test_gradients_do_not_depend_on_how_ragged_rows_are_grouped": {"micro": 1},
    "test_gradients_are_finite_differences": {"case": DIFFERENTIATED[0]},
}
"""Arguments of the named tests: one value for each parameter."""
SHARES = {"shift": 0.2, "soft_mask": 0.55, "pad_loss": 0.2, "leak": 0.25, "top_p": 0.45, "swapped": 0.25}
"""Fractions of the training steps that are enough to show the bug; 0.1 for all other cases."""
EACH = pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)


def catcher(case: BugCase, folder: Path) -> Callable[[], None]:
    """Return the test that a case names, ready to be called."""
    path, _, name = case.caught_by.partition("::")
    assert (ROOT / path).is_file(), path
    test = getattr(importlib.import_module(path.removesuffix(".py").replace("/", ".")), name)
    given = dict(GIVEN.get(name, {}))
    if "tmp_path" in inspect.signature(test).parameters:
        given["tmp_path"] = folder
    around: AbstractContextManager[None] = in_float64() if "reference_training" in path else nullcontext()

    def call() -> None:
        with around:
            test(**given)

    return call


@pytest.mark.thorough
@EACH
def test_the_named_test_catches_the_bug_and_passes_without_it(case: BugCase, tmp_path: Path) -> None:
    for name in ("with", "after"):
        (tmp_path / name).mkdir()
    with pytest.raises((AssertionError, GlassError)), case.experiment().fault():
        catcher(case, tmp_path / "with")()
    catcher(case, tmp_path / "after")()


@pytest.fixture(scope="module")
def evidence() -> Iterator[Callable[[BugCase], Evidence]]:
    """Return a function that makes the evidence of a case from fewer training steps, with a cache."""
    found: dict[str, Evidence] = {}

    def of(case: BugCase) -> Evidence:
        if case.name not in found:
            found[case.name] = collect_evidence(case, SHARES.get(case.name, 0.1))
        return found[case.name]

    yield of
    found.clear()


@pytest.mark.thorough
@EACH
def test_the_evidence_supports_its_description(case: BugCase, evidence: Callable[[BugCase], Evidence]) -> None:
    found = evidence(case)
    assert case.experiment().evidence_shows_bug(found)
    kept = json.loads(json.dumps(found.facts()))
    assert json.loads(json.dumps(Evidence.of(kept).facts())) == kept
    text = report_text(case, found)
    assert diagnoses()[case.answer] not in text
    assert case.source not in text
    for letter, key in case.choices.items():
        verdict = verdict_of(case, found, letter)
        assert verdict.right == (key == case.answer)
        assert (case.source in verdict.text) == verdict.right
        assert "{" not in verdict.text.replace(case.wrong, "").replace(case.right, "")


@EACH
def test_every_case_has_its_texts(case: BugCase) -> None:
    assert case.answer in diagnoses()
    assert set(case.tempting) <= diagnoses().keys() - {case.answer}
    assert len(case.choices) >= 6
    assert case.choices == next(each for each in cases() if each.name == case.name).choices
    assert set(case.look) == set(LEVELS)
    assert len(case.hints) == 3
    assert case.source
    assert case.told
    assert case.link.startswith("https://github.com/") or case.source.startswith("tutorial ")


def test_models_of_the_lab_are_trained_in_float32_where_bfloat16_is_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = LabTrainer(nullcontext, tmp_path)
    losses = trainer.train({}, 8).losses
    with monkeypatch.context() as changed:
        changed.setenv("GLASS_CACHE", str(tmp_path / "cache"))
        cache_speeds(Speeds(float32=1.0, bfloat16=100.0))
        assert trainer.train({}, 8).losses == losses


def test_right_letters_vary_and_titles_are_unique() -> None:
    right = [letter for case in cases() for letter, key in case.choices.items() if key == case.answer]
    assert len(set(right)) >= 4
    assert len({case.folder for case in cases()}) == len(cases()) >= 12
    assert len({case.answer for case in cases()}) == len(cases())


def test_replaced_functions_are_restored_also_after_an_error() -> None:
    class Owner:
        """A class with a class method."""

        @classmethod
        def name(cls) -> str:
            """Return the name of the class."""
            return "own"

    before = vars(Owner)["name"]
    other = classmethod(lambda cls: "other")
    with replaced((Owner, "name", other)):
        assert Owner.name() == "other"
    assert vars(Owner)["name"] is before
    with pytest.raises(TypeError), replaced((Owner, "name", other)):
        len(3)  # type: ignore[arg-type]
    assert vars(Owner)["name"] is before
    with pytest.raises(KeyError), replaced((Owner, "name", None), (Owner, "nothing", None)):
        raise AssertionError("the second change is not possible")
    assert vars(Owner)["name"] is before


def test_a_case_restores_threads_and_modules(evidence: Callable[[BugCase], Evidence]) -> None:
    threads = torch.get_num_threads()
    case = find_case("1")
    names = ("attend", "math")
    attention = importlib.import_module("glassformer.model.attention")
    before = [vars(attention)[name] for name in names]
    evidence(case)
    assert torch.get_num_threads() == threads
    assert [vars(attention)[name] for name in names] == before


SMALL = Evidence(
    charts=[
        Chart(
            "a <curve>",
            "step",
            "loss",
            {"healthy": [(0, 1.0), (10, 0.5)], "faulty": [(0, 1.0), (10, 1.0)]},
            ("floor", 0.25),
        )
    ],
    maps=[Map("healthy", ["a", "b"], ["a", "b"], [[1.0, 0.0], [0.25, 0.75]])],
    samples={"healthy: …": ["text"]},
    numbers=[Number("loss", "loss", 0.5, 1.0)],
)


def test_charts_and_maps_as_text_and_as_svg() -> None:
    from xml.etree import ElementTree

    text = chart_text(SMALL.charts[0])
    lines = text.splitlines()
    assert lines[0] == "a <curve> (loss)   o healthy   x faulty   # both   - floor 0.25"
    plot = [line.partition("|")[2] for line in lines[1:13]]
    assert plot[0].startswith("#") or plot[1].startswith("#"), "both begin at one point"
    assert plot[0].endswith("x") or plot[1].endswith("x"), "the faulty one stays above"
    assert sum(line.count("-") > 50 for line in plot) == 1, "the level is a line"
    shown = map_text(SMALL.maps[0]).splitlines()
    assert shown[2].split() == ["a", "███", "···", "1.00"]
    assert shown[-1].split() == ["sum", "1.2", "0.8"]
    for svg in (charts_svg(SMALL.charts), maps_svg(SMALL.maps)):
        ElementTree.fromstring(svg)
    assert "a &lt;curve&gt;" in charts_svg(SMALL.charts)


def room_with(folder: Path, case: BugCase) -> LabFolder:
    """Return a lab folder in which a case is open, with evidence that needed no training."""
    room = LabFolder(folder)
    room.case_folder(case).mkdir(parents=True)
    facts = SMALL.facts()
    names = [name.removesuffix("_healthy") for name in _fields(case.why) if name.endswith("_healthy")]
    names += [name.removesuffix("_faulty") for name in _fields(case.why) if name.endswith("_faulty")]
    facts["numbers"] = [{"name": name, "what": name, "healthy": 1.0, "faulty": 2.0} for name in dict.fromkeys(names)]
    (room.case_folder(case) / "evidence.json").write_text(json.dumps(facts), encoding="utf-8")
    return room


def _fields(text: str) -> list[str]:
    from string import Formatter

    return [str(name) for _, name, _, _ in Formatter().parse(text) if name]


def test_hints_come_one_at_a_time_and_answers_are_counted(tmp_path: Path) -> None:
    case = find_case("2")
    room = room_with(tmp_path, case)
    assert [room.hint(case) for _ in range(4)] == [
        (1, case.hints[0]),
        (2, case.hints[1]),
        (3, case.hints[2]),
        (3, case.hints[2]),
    ]
    right = next(letter for letter, key in case.choices.items() if key == case.answer)
    wrong = next(letter for letter in case.choices if letter != right)
    assert not room.answer(case, wrong).right
    assert not room.record(case).right
    assert room.answer(case, right.upper()).right
    assert not room.answer(case, wrong).right
    record = LabFolder(tmp_path).record(case)
    assert (record.hints, record.answers, record.right) == (3, [wrong, right, wrong], True)


def test_stored_evidence_is_reused_without_training(tmp_path: Path) -> None:
    case = find_case("3")
    room = room_with(tmp_path, case)
    told: list[str] = []
    assert room.open(case, told.append).charts[0].title == "a <curve>"
    assert told == []


def test_bad_input_is_refused_in_two_lines_and_nothing_is_lost(tmp_path: Path) -> None:
    case = find_case("4")
    room = room_with(tmp_path, case)
    for word in ("0", "18", "-1", "x", "²", ""):
        with pytest.raises(GlassError, match="there is no case"):
            find_case(word)
    with pytest.raises(GlassError, match="case 4 has no choice"):
        room.answer(case, "z")
    with pytest.raises(GlassError, match="case 5 is not open yet"):
        room.answer(find_case("5"), "a")
    with pytest.raises(GlassError, match="case 5 is not open yet"):
        room.hint(find_case("5"))
    room.hint(case)
    file = room.case_folder(case) / "evidence.json"
    whole = json.loads(file.read_text(encoding="utf-8"))
    odd: list[dict[str, Any]] = [
        {"numbers": []},
        {"numbers": [{**whole["numbers"][0], "healthy": math.nan}, *whole["numbers"][1:]]},
        {"numbers": [{**whole["numbers"][0], "faulty": "much"}, *whole["numbers"][1:]]},
        {"maps": [{**whole["maps"][0], "weights": [[1.0]]}]},
        {"charts": [{**whole["charts"][0], "level": 5}]},
        {"charts": [{**whole["charts"][0], "curves": {"healthy": [[0, 1e308], [1, -1e308]]}}]},
    ]
    texts = ["", "[]", '{"charts": [], "maps": 3}', file.read_text(encoding="utf-8")[:-9]]
    for damaged in (*texts, *(json.dumps({**whole, **change}) for change in odd)):
        file.write_text(damaged, encoding="utf-8")
        with pytest.raises(GlassError, match=r"evidence\.json is damaged") as caught:
            room.open(case, str)
        assert len(str(caught.value).splitlines()) == 2
        assert file.read_text(encoding="utf-8") == damaged
    records = [
        {"hints": "many"},
        {"hints": -5, "answers": [], "right": False},
        {"hints": 1, "answers": "ab", "right": True},
    ]
    for damaged in ("", "[]", '{"cases": {"x": 1}}', *(json.dumps({"cases": {"1": each}}) for each in records)):
        room.progress_file.write_text(damaged, encoding="utf-8")
        with pytest.raises(GlassError, match=r"progress\.json is damaged"):
            room.records()
        assert room.progress_file.read_text(encoding="utf-8") == damaged


def test_a_case_that_is_stopped_leaves_nothing(tmp_path: Path) -> None:
    def stop(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LabFolder(tmp_path / "course").open(find_case("1"), stop)
    assert list(tmp_path.iterdir()) == []


def test_an_unusable_folder_is_reported_before_training(tmp_path: Path) -> None:
    (tmp_path / "lab").write_text("a file", encoding="utf-8")
    told: list[str] = []
    with pytest.raises(GlassError):
        LabFolder(tmp_path).open(find_case("1"), told.append)
    assert told == []
