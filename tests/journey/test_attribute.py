"""`glass attribute` through the real command line: every view, every model family, errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from glassformer.base.locks import folder_lock
from tests.journey.commands import here
from tests.journey.task_runs import DOES, PAIRS, refused, train

CORRUPT = {
    "lm": "She was",
    "masked": "It was a [MASK] dog when the [MASK] met",
    "classify": "win a 7 pound prize today",
    "translate": "the old cat sleeps .",
    "two": "the old cat sleeps .",
}
VIEWS = ("logits", "lens", "rollout", "flow", "occlusion", "agreement")
FAMILIES = ("lm", "masked", "classify", "two")


def told(name: str, folder: Path, *more: str) -> dict[str, Any]:
    """Return the JSON output of `glass attribute` for a run and its text in `DOES`."""
    done = here("attribute", f"runs/{name}", DOES[name][1], "--json", *more, folder=folder)
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def shown(name: str, folder: Path, *more: str) -> str:
    """Return the output of `glass attribute` without --json for a run and its text in `DOES`."""
    done = here("attribute", f"runs/{name}", DOES[name][1], *more, folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.thorough
@pytest.mark.parametrize("name", FAMILIES)
def test_every_view_works_for_every_family(name: str, task_home: Path) -> None:
    found = {view: told(name, task_home, "--view", view) for view in VIEWS}
    lines = {view: shown(name, task_home, "--view", view) for view in VIEWS}
    assert all(facts["view"] == view for view, facts in found.items())
    row = found["lens"]["row"]
    source = found["lens"]["source"]
    assert (source is not None) == (name in PAIRS)

    assert found["logits"]["error"] <= 1e-4
    for output, *values in zip(
        found["logits"]["outputs"], *(part["values"] for part in found["logits"]["parts"]), strict=True
    ):
        assert sum(values) == pytest.approx(output["logit"], abs=1e-4)
    assert "sum" in lines["logits"]

    layers = found["lens"]["layers"]
    assert [layer["layer"] for layer in layers] == [0, 1]
    assert len(layers[0]["places"]) == len(found["lens"]["outputs"]) == (1 if name == "classify" else len(row))
    assert found["lens"]["settled"][-1] == 1.0
    assert (found["lens"]["loss"] is None) == (name in ("masked", "classify"))

    rolled = found["rollout"]
    for place, shares in enumerate(rolled["own"][-1]):
        whole = sum(shares) + (sum(rolled["source"][-1][place]) if source else 0.0)
        assert whole == pytest.approx(1, abs=1e-5)
    assert ("from the source" in lines["rollout"]) == ("from the source" in lines["flow"]) == bool(source)
    if name in ("lm", "masked"):  # one layer, and an output that reads one place
        assert found["flow"]["own"] == pytest.approx(rolled["own"][0][rolled["reads"][0]], abs=1e-6)

    blanked = found["occlusion"]
    assert len(blanked["own"]) == len(blanked["outputs"])
    assert {len(effects) for effects in blanked["own"]} == {len(row)}
    assert "<|unknown|>" in lines["occlusion"]
    assert {each["measure"] for each in found["agreement"]["rows"]} == {"attention", "rollout"}
    assert {each["side"] for each in found["agreement"]["rows"]} == ({"own", "source"} if source else {"own"})


@pytest.mark.parametrize("name", FAMILIES)
def test_patching_compares_two_texts_by_position(name: str, task_home: Path) -> None:
    answers = ["--token", "spam", "--against", "work"] if name == "classify" else ["--token", "5", "--against", "6"]
    for part in ("resid", "heads"):
        facts = told(name, task_home, "--view", "patching", "--corrupt", CORRUPT[name], "--part", part, *answers)
        assert [grid["stack"] for grid in facts["grids"]] == {
            "lm": ["dec"],
            "masked": ["enc"],
            "classify": ["enc"],
            "two": ["enc", "dec"],
        }[name]
        for grid in facts["grids"]:
            assert grid["nothing"] == pytest.approx([0.0] * len(grid["sites"]), abs=1e-3)
            if part == "resid" and len(facts["grids"]) == 1:
                assert grid["everything"] == pytest.approx([1.0, 1.0], abs=1e-3)
    text = shown(name, task_home, "--view", "patching", "--corrupt", CORRUPT[name], *answers)
    assert " for " in text
    assert "all patched" in text


def test_one_position_is_shown_in_detail(task_home: Path) -> None:
    whole = told("lm", task_home, "--token", "5", "--against", "6")
    one = told("lm", task_home, "--token", "5", "--against", "6", "--position", "1")
    for part, same in zip(whole["parts"], one["parts"], strict=True):
        assert same["values"] == pytest.approx(part["values"][1:2], abs=1e-9)
        if same["sources"] is not None:
            assert sum(same["sources"]) == pytest.approx(same["values"][0], abs=1e-9)
    head = told("lm", task_home, "--token", "5", "--against", "6", "--head", "dec.0.self.1", "--position", "1")
    assert head["value"] == next(p["values"][0] for p in one["parts"] if p["name"] == "layer 0 head 1")
    layer = told("lm", task_home, "--token", "5", "--against", "6", "--layer", "0", "--position", "1")
    assert layer["total"] == pytest.approx(next(p["values"][0] for p in one["parts"] if "feed" in p["kind"]), abs=1e-6)
    assert "others" in shown("lm", task_home, "--layer", "0", "--top", "2")
    assert "dec.0.cross.1 contributed" in shown("two", task_home, "--head", "dec.0.cross.1")
    assert "the likeliest" in shown("lm", task_home, "--view", "lens", "--position", "0", "--top", "2")


def test_a_given_target_is_attributed_to_its_end_token(task_home: Path) -> None:
    facts = told("two", task_home, "--view", "lens", "--target", "der alte Hund schläft .")
    assert [output["known"] for output in facts["outputs"]] == [True] * len(facts["row"])
    assert facts["outputs"][-1]["text"] == "<|end|>"
    written = told("two", task_home, "--view", "lens")
    assert [output["known"] for output in written["outputs"]][-2:] == [True, False]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_lens_and_a_rollout_are_drawn(name: str, task_home: Path, tmp_path: Path) -> None:
    for view, words in (("lens", "logit lens"), ("rollout", "attention rollout up to layer")):
        picture = tmp_path / f"{view}.svg"
        drawn = told(name, task_home, "--view", view, "--plot", str(picture))
        assert drawn == told(name, task_home, "--view", view)
        assert words in picture.read_text(encoding="utf-8")
        assert ("source tokens" in picture.read_text(encoding="utf-8")) == (view == "rollout" and name == "two")


def test_a_run_that_is_still_training_is_reported(task_home: Path) -> None:
    with folder_lock(task_home / "runs/lm"):
        done = here("attribute", "runs/lm", DOES["lm"][1], folder=task_home)
    assert done.returncode == 0, done.stderr
    assert "still training" in done.stderr


def test_invalid_requests_are_refused(task_home: Path) -> None:
    def error(text: str, *more: str, run: str = "lm") -> str:
        return " ".join(refused("attribute", f"runs/{run}", text, *more, folder=task_home))

    assert "the text is empty" in error("")
    assert "the text has 60 tokens, but the model reads at most 40" in error("It" + " was" * 59)
    assert "the text has" in error("win " * 70, run="classify")
    assert "the target has 71 tokens" in error("the old dog", "--target", " Hund" * 70, run="translate")
    assert "there is no view 'lense' Did you mean lens?" in error("It was", "--view", "lense")
    assert "there is no head 'dec.7.self.0' in this model" in error("It was", "--head", "dec.7.self.0")
    assert "enc.0.self.0 writes to the encoder's residual stream" in error(
        "the dog", "--head", "enc.0.self.0", run="two"
    )
    assert "there is no layer 5 Give 0." in error("It was", "--layer", "5")
    assert "there is no layer -1 Give 0." in error("It was", "--view", "rollout", "--layer", "-1")
    assert "there is no answer at position 9 Choose one of: 0, 1." in error("It was", "--position", "9")
    assert (
        "--layer has no effect with --view lens Remove --layer, or use one of the views: logits, rollout, flow."
        in error("It was", "--view", "lens", "--layer", "0")
    )
    assert "--plot has no effect with --view flow" in error("It was", "--view", "flow", "--plot", "flow.png")
    assert "--plot lens.pdf is not the name of a picture" in error("It was", "--view", "lens", "--plot", "lens.pdf")
    assert "without --corrupt" in error("It was", "--view", "patching")
    assert "the texts have 2 and 3 tokens" in error("It was", "--view", "patching", "--corrupt", "It was a")
    assert "--corrupt is the same as the text" in error("It was", "--view", "patching", "--corrupt", "It was")
    assert "there is no part 'hed' Did you mean heads?" in error(
        "It was", "--view", "patching", "--corrupt", "It dog", "--part", "hed"
    )
    assert "is outside the vocabulary" in error("It was", "--token", "9999")
    assert "--top 0 is below 1" in error("It was", "--top", "0")
    assert "Remove one of the two." in error("It was", "--layer", "0", "--head", "dec.0.self.0")


def test_a_post_norm_run_has_rollouts_but_no_residual_views(task_home: Path) -> None:
    done = here(*train("lm", "--model.norm_order=post", out="runs/post"), folder=task_home)
    assert done.returncode == 0, done.stderr
    for view in ("logits", "lens"):
        first, second = refused("attribute", "runs/post", "It was", "--view", view, folder=task_home)
        assert "model.norm_order = post" in first
        assert "norm_order = pre or output" in second
    for view in ("rollout", "occlusion"):
        assert here("attribute", "runs/post", "It was", "--view", view, folder=task_home).returncode == 0
