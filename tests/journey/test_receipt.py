"""`glass receipt` through the real command line: sums, agreement with other commands, the script, errors."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from glassformer.text.tokenizers import Tokenizer
from tests.journey.commands import environment, here
from tests.journey.task_runs import DOES, PAIRS, TASKS, refused

WRITERS = ("lm", *PAIRS)
SAMPLING = {
    "as the run says": [],
    "greedy": ["--temperature=0"],
    "hot": ["--temperature=1.5", "--seed=4"],
    "filtered": ["--temperature=1.2", "--top-k=9", "--top-p=0.8", "--repetition-penalty=1.7", "--seed=11"],
    "beams": ["--beams=3"],
}
RUN_ALONE = """
import runpy, sys
runpy.run_path(sys.argv[1])
heavy = {name.split(".")[0] for name in sys.modules} & {"torch", "tokenizers"}  # pydantic reads the settings
assert not heavy, heavy
"""


def told(name: str, home: Path, *more: str, text: str | None = None) -> dict[str, Any]:
    """Return the JSON output of `glass receipt` for a run."""
    done = here("receipt", f"runs/{name}", text or DOES[name][1], "--json", *more, folder=home)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", TASKS)
def test_parts_and_source_tokens_add_up_to_the_logit(name: str, task_home: Path) -> None:
    facts = told(name, task_home)
    assert abs(facts["sum"] - facts["logit"]) <= 1e-4
    assert sum(part["value"] for part in facts["parts"]) == pytest.approx(facts["sum"], abs=1e-9)
    assert facts["difference"] == facts["sum"] - facts["logit"]
    assert (facts["source"] is not None) == (name in PAIRS)
    for tokens, cross in ((facts["read"], False), (facts["source"] or [], True)):
        parts = [part for part in facts["parts"] if part["sources"] and (part["kind"] == "cross head") == cross]
        for place, token in enumerate(tokens):
            assert token["place"] == place
            assert token["value"] == pytest.approx(sum(part["sources"][place] for part in parts), abs=1e-9)
    stages = facts["draw"]["stages"]
    assert stages[0]["filter"] is None
    assert all(0 <= each["probability"] <= 1 for stage in stages for each in stage["probabilities"])


@pytest.mark.parametrize("drawing", SAMPLING)
@pytest.mark.parametrize("name", WRITERS)
def test_receipts_step_by_step_give_the_text_of_generate(name: str, drawing: str, task_home: Path) -> None:
    settings = [*SAMPLING[drawing], "--tokens=5"]
    done = here("generate", f"runs/{name}", DOES[name][1], "--json", *settings, folder=task_home)
    written = json.loads(done.stdout)
    steps = [told(name, task_home, *settings, f"--step={step}") for step in range(1, written["tokens"] + 1)]
    tokenizer = Tokenizer.load(task_home / "runs" / name / "tokenizer.json")
    assert tokenizer.decode([facts["token"]["id"] for facts in steps]) == written["text"]
    assert all(facts["token"] == facts["draw"]["token"] for facts in steps)
    for facts in steps:
        race = facts["draw"]["race"]
        assert bool(race) == (facts["draw"]["how"] == "drawn")
        if race:
            assert race[0]["token"] == facts["token"]["id"]
            assert race[0]["arrival"] == race[0]["number"] / race[0]["probability"]


def test_the_receipt_agrees_with_fill_and_classify(task_home: Path) -> None:
    holes = json.loads(here("fill", "runs/masked", DOES["masked"][1], "--json", folder=task_home).stdout)["masks"]
    for number, candidates in enumerate(holes, start=1):
        facts = told("masked", task_home, f"--mask={number}")
        assert facts["token"]["id"] == candidates[0]["token"]
        left = facts["draw"]["stages"][-1]
        assert left["filter"] == "special tokens left out"
        assert left["probabilities"][0]["probability"] == pytest.approx(candidates[0]["probability"], abs=1e-9)
    done = here("classify", "runs/classify", DOES["classify"][1], "--json", folder=task_home)
    (found,) = json.loads(done.stdout)["texts"]
    facts = told("classify", task_home, "--against=work")
    assert facts["token"]["text"] == found["label"] == "spam"
    shares = {each["text"]: each["probability"] for each in facts["draw"]["stages"][0]["probabilities"]}
    assert shares == pytest.approx({label: found["probabilities"][label] for label in ("spam", "work")}, abs=1e-9)


@pytest.mark.thorough
@pytest.mark.parametrize("name", TASKS)
def test_the_script_gives_the_same_number_with_numpy_alone(name: str, task_home: Path, tmp_path: Path) -> None:
    script = tmp_path / "again.py"
    more = {"lm": ["--against= old"], "classify": ["--against=work"], "masked": ["--mask=2"]}.get(name, ["--step=2"])
    facts = told(name, task_home, "--snippet", str(script), *more)
    assert script.read_text(encoding="utf-8") == facts["snippet"]
    assert len(facts["snippet"].splitlines()) < 20
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALONE, str(script)],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert abs(float(done.stdout) - facts["logit"]) <= 1e-4


def test_a_script_is_printed_and_never_overwrites_a_file(task_home: Path, tmp_path: Path) -> None:
    done = here("receipt", "runs/lm", "It was", "--snippet", folder=task_home)
    assert done.stdout.startswith('"""One logit of a run')
    compile(done.stdout, "the script", "exec")
    (tmp_path / "mine.py").write_text("precious", encoding="utf-8")
    problem, _ = refused("receipt", "runs/lm", "It was", "--snippet", str(tmp_path / "mine.py"), folder=task_home)
    assert "mine.py already exists" in problem
    assert (tmp_path / "mine.py").read_text(encoding="utf-8") == "precious"


def test_the_text_output_has_parts_sources_and_the_sampling(task_home: Path) -> None:
    shown = here("receipt", "runs/lm", "It was", "--top=2", "--top-k=7", folder=task_home).stdout
    facts = told("lm", task_home, "--top-k=7")
    lines = shown.splitlines()
    assert lines[0] == f"token {facts['token']['text']!r} ({facts['token']['id']}): logit {facts['logit']:.6f}"
    largest = facts["parts"][0]
    value = re.escape(f"{largest['value']:+.4f}")
    assert re.search(rf"^{largest['name']} +{value} .*█", shown, flags=re.MULTILINE)
    assert f"{len(facts['parts']) - 2} others" in shown
    assert f"sum of parts {facts['sum']:.6f} = logit {facts['logit']:.6f}, difference " in shown
    assert re.search(r"^top k 7 .* 7$", shown, flags=re.MULTILINE)
    winner = facts["draw"]["race"][0]
    assert f"   1.  {winner['text']!r} arrives after " in shown
    assert f"= {winner['arrival']:.6g}: sampled" in shown


@pytest.mark.parametrize(
    ("name", "more", "problem", "remedy"),
    [
        ("lm", ["It was", "--token", "zebra"], "'zebra' is not in the vocabulary", "Name one token"),
        ("lm", ["It was", "--token", " old dog"], "' old dog' is 2 tokens, not one", "Name one token"),
        ("lm", ["It was", "--token", "old"], "not in the vocabulary", "Did you mean ' old', which is one token?"),
        ("lm", ["It was", "--token", "100000"], "token 100000 is outside the vocabulary", "Give an id from 0 to"),
        ("lm", ["It was", "--against", ""], "'' names no token", "its id"),
        ("lm", [""], "the text is empty", "Give a text"),
        ("lm", ["It was", "--step", "0"], "--step 0 is below 1", "at least 1"),
        ("lm", ["It was", "--mask", "1"], "--mask has no effect for a run of train.task = lm", "Remove --mask"),
        ("lm", ["It was", "--temperature=-1"], "temperature", "0 or more"),
        (
            "lm",
            ["It was", "--beams=2", "--seed=1"],
            "--seed was given with --beams 2: beam search does not sample",
            "--beams 1",
        ),
        ("translate", ["the old dog sleeps .", "--step", "999"], "the generated text", "Give step 1"),
        ("masked", ["It was a day"], "there is no [MASK]", "Write [MASK]"),
        ("masked", ["a [MASK]", "--mask", "2"], "there is no [MASK] number 2", "the text has only one"),
        (
            "lm",
            ["It", "--tokens", "3", "--step", "4"],
            "--step 4 is above --tokens 3",
            "Give a smaller --step, or a larger --tokens.",
        ),
        (
            "lm",
            ["It", "--tokens", "1", "--step", "2"],
            "--step 2 is above --tokens 1",
            "Give a smaller --step, or a larger --tokens.",
        ),
        ("lm", ["It", "--length-penalty=2"], "--length-penalty 2 was given without beam search", "--beams 2"),
        ("lm", ["It", "--snippet", "none/again.py"], "there is no folder none", "Create it first."),
        ("masked", ["a [MASK] day " * 20], "tokens, but the model reads at most 40", "shorter"),
        ("masked", ["a [MASK]", "--top-k=3"], "--top-k has no effect", "Remove --top-k"),
        ("classify", ["win", "--token", "spma"], "there is no label 'spma'", "Did you mean spam?"),
        ("nothing", ["It was"], "there is no run at runs/nothing", ""),
    ],
)
def test_invalid_requests_get_two_line_errors(
    name: str, more: list[str], problem: str, remedy: str, task_home: Path
) -> None:
    said, what = refused("receipt", f"runs/{name}", *more, folder=task_home)
    assert problem in said
    assert remedy in what


def test_a_post_norm_run_is_refused_with_the_reason(task_home: Path, tmp_path: Path) -> None:
    done = here(
        "train",
        "book.txt",
        "--model.norm_order=post",
        "--steps=1",
        "--model.layers=1",
        "--model.width=24",
        "--model.heads=2",
        "--model.context=40",
        "--train.threads=1",
        "--tokenizer.kind=words",
        "--out",
        str(tmp_path / "new"),
        folder=task_home,
    )
    assert done.returncode == 0, done.stderr
    problem, remedy = refused("receipt", str(tmp_path / "new"), "It was", folder=task_home)
    assert "passes through the norms of all later layers" in problem
    assert remedy == "Give a run with model.norm_order = pre or output."


def test_truncated_text_is_reported(task_home: Path) -> None:
    text = "It was a old day when the dog met the cat. " * 6
    done = here("receipt", "runs/lm", text, folder=task_home)
    unread = told("lm", task_home, text=text)["unread"]
    assert f"{unread} tokens of the text are not read" in done.stdout
    done = here("receipt", "runs/classify", "win a zebra " * 30, folder=task_home)
    assert "these words are not in the vocabulary" in done.stderr
    assert "left out" in done.stderr
