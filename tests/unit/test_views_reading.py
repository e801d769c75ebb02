"""The views tape, receipt, lens, importance, embeddings and positions compared with the library, and their scripts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from glassformer.app.server.registry import ModelRegistry, ServedModel
from glassformer.app.server.view import LIMIT, Binary
from glassformer.app.server.views import find_view, tape
from glassformer.app.server.views.importance import replacements
from glassformer.app.server.views.positions import fixed_of
from glassformer.app.server.views.tokens import count_tokens
from glassformer.base.errors import GlassError
from glassformer.inspection.attribution import agreement, case_of, lens, occlude, rollout, split_output
from glassformer.inspection.embeddings import components, neighbours
from glassformer.inspection.explain import Subject, make_tape, unshortened_subject_of
from glassformer.inspection.position_curves import (
    by_distance,
    embedding_of,
    position_vectors,
    rotary_effect_by_distance,
    shuffle_test,
)
from glassformer.runs.opening import OpenedRun
from tests.journey.commands import begin, ended
from tests.parity.written_runs import make_run

TEXT = "আমি গান গাই; the old dog."
RUNS: dict[str, dict[str, Any]] = {
    "book": {"positions": "rotary", "kv_heads": 1, "norm": "rmsnorm"},
    "fill": {"task": "masked", "positions": "relative", "relative_buckets": 8, "relative_max_distance": 16},
    "name": {"task": "classify", "positions": "sinusoidal"},
    "turn": {"task": "translate", "positions": "learned", "shared_embedding": False, "tokenizer": {"joint": False}},
    "post": {"norm_order": "post", "positions": "alibi"},
}
TEXTS = dict.fromkeys(RUNS, TEXT) | {"fill": f"{TEXT} [MASK]"}
FAMILIES = ("book", "fill", "name", "turn")


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> ModelRegistry:
    """Return a registry with a run of each family, as if trained."""
    home = tmp_path_factory.mktemp("reading")
    return ModelRegistry([make_run(home / name, **made) for name, made in RUNS.items()], "cpu")


@pytest.fixture(scope="module")
def subjects(registry: ModelRegistry) -> dict[str, Subject]:
    """Return the model and input of each run, created by calling the library directly, without the views."""
    return {
        name: unshortened_subject_of(OpenedRun.load(registry.open(name).folder).text_model, TEXTS[name])
        for name in RUNS
    }


def ask(opened: ServedModel, name: str, **question: Any) -> Any:
    """Return the response of a view to a JSON body: a dict, or a `Binary`."""
    reads = {} if name in ("embeddings", "positions") else {"text": TEXTS[opened.name]}
    view = find_view(name)
    reply = view.reply(opened, view.parse(json.dumps({**reads, **question}).encode()))
    assert len(reply.body) <= LIMIT
    return Binary.unpacked(reply.body) if reply.binary else json.loads(reply.body)


def near(shown: Any, right: Any) -> bool:
    """Return whether numbers agree to 1e-6."""
    return np.allclose(np.asarray(shown, float), np.asarray(right, float), rtol=1e-6, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("run", [*FAMILIES, "post"])
def test_the_tape_has_every_matrix(run: str, registry: ModelRegistry, subjects: dict[str, Subject]) -> None:
    opened = registry.open(run)
    right = make_tape(subjects[run])
    listed = []
    titles = []
    for part in range(len(right.parts)):
        contents = ask(opened, "tape", part=part)
        assert contents["pass"] == "observed"
        titles.append(contents["parts"][part]["title"])
        listed += [matrix for step in contents["steps"] for matrix in step["matrices"]]
        assert sum(len(step["matrices"]) for step in contents["steps"]) == contents["parts"][part]["matrices"]
    assert titles == list(right.parts)
    assert [(m["number"], m["name"], m["formula"], tuple(m["shape"])) for m in listed] == [
        (number, m.name, m.formula, m.shape) for number, m in enumerate(right.matrices)
    ]
    for number in {0, 3, len(listed) // 2, len(listed) - 1}:
        matrix = right.matrices[number]
        shown = ask(opened, "tape", matrix=number)
        assert shown.header["window"] == list(matrix.shape)
        assert near(np.frombuffer(shown.data, "<f4").reshape(matrix.shape), matrix.values)
        assert near(shown.header["statistics"]["mean"], matrix.statistics()["mean"])
        assert shown.header["difference"] == right.difference(number)
    number = next(n for n, matrix in enumerate(right.matrices) if matrix.name == "S'")
    cell = ask(opened, "tape", matrix=number - 1, cell=[2, 1])
    working = right.derive_cell(number - 1, 2, 1)
    assert working is not None
    assert working.products is not None
    assert near(cell["products"]["factors"], working.products.factors)
    assert near([cell["again"], cell["shown"]], [working.value, right.matrices[number - 1].values[2, 1]])


def test_a_large_matrix_is_sent_in_windows() -> None:
    for rows, columns in [(9, 7), (512, 512), (66, 50_000), (50_000, 66), (4_096, 4_096), (1, 50_000), (50_000, 1)]:
        height, width = tape._window_shape(rows, columns)
        assert 0 < height <= min(rows, tape.SIDE)
        assert 0 < width <= min(columns, tape.SIDE)
        assert height * width <= tape.CELLS
        assert (height, width) == (rows, columns) or 2 * height * width >= min(tape.CELLS, tape.SIDE)


def test_a_tape_that_would_be_too_long_is_refused(registry: ModelRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tape, "MOST_BYTES", 300_000)
    with pytest.raises(GlassError, match="tokens: all numbers of the forward pass would take 0 MiB") as refused:
        ask(registry.open("book"), "tape", text=TEXT[:-1])
    assert re.search(r"at most \d+ tokens", refused.value.remedy)


@pytest.mark.parametrize("run", FAMILIES)
def test_the_receipt_adds_up_to_the_logit(run: str, registry: ModelRegistry, subjects: dict[str, Subject]) -> None:
    subject = subjects[run]
    against = 2
    case = case_of(subject)
    output = case.outputs[-1]
    right = split_output(case.model, case.trace(), output, against)
    shown = ask(registry.open(run), "receipt", against=str(against), part=1)
    assert shown["pass"] == "observed"
    assert [part["name"] for part in shown["parts"]] == [part.name for part in right]
    assert near([part["value"] for part in shown["parts"]], [part.value for part in right])
    logits = case.logits()[0, -1].double()
    assert near(shown["logit"], logits[output.answer] - logits[against])
    assert abs(shown["residual"]) < 1e-4
    assert near(shown["residual"], shown["sum"] - shown["logit"])
    assert near(shown["sources"], right[1].sources)
    candidate = shown["candidates"][0]
    assert near(candidate["probability"], logits.softmax(dim=-1)[candidate["id"]])
    assert len(shown["own"]) == len(shown["row"])
    assert (shown["memory"] is None) == (run != "turn")


def test_a_receipt_without_an_exact_split_is_refused(registry: ModelRegistry) -> None:
    for view in ("receipt", "lens"):
        with pytest.raises(GlassError, match="norm_order = post"):
            ask(registry.open("post"), view)
    with pytest.raises(GlassError, match="no answer at position 500"):
        ask(registry.open("book"), "receipt", place=500)


@pytest.mark.parametrize("run", FAMILIES)
def test_the_last_row_of_the_lens_equals_the_logits(
    run: str, registry: ModelRegistry, subjects: dict[str, Subject]
) -> None:
    case = case_of(subjects[run], everywhere=True)
    right = lens(case.model, case.tokens, case.outputs, case.target)
    shown = ask(registry.open(run), "lens")
    assert shown["pass"] == "plain"
    assert [[cell["rank"] for cell in row] for row in shown["grid"]] == right.ranks.tolist()
    assert near([[cell["loss"] for cell in row] for row in shown["grid"]], right.losses)
    tops = [[[each["probability"] for each in cell["top"]] for cell in row] for row in shown["grid"]]
    assert near(tops, right.probabilities)
    log_p = case.logits()[0].double().log_softmax(dim=-1)
    own = [float(-log_p[n, output.answer]) for n, output in enumerate(case.outputs)]
    assert near([cell["loss"] for cell in shown["grid"][-1]], own)
    known = [loss for loss, output in zip(own, case.outputs, strict=True) if output.known]
    assert (shown["loss"] is None) == (not known)
    if known:
        assert near([shown["loss"], shown["curve"][-1]], [np.mean(known)] * 2)
    assert shown["settled"][-1] == 1


def test_positions_of_the_lens_are_sent_in_windows(registry: ModelRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ask(registry.open("book"), "lens")
    monkeypatch.setattr("glassformer.app.server.views.lens.WINDOW", 4)
    part = ask(registry.open("book"), "lens", first=5)
    assert part["count"] == whole["count"] > 9
    assert part["outputs"] == whole["outputs"][5:9]
    assert part["grid"] == [row[5:9] for row in whole["grid"]]


@pytest.mark.parametrize("run", FAMILIES)
def test_importance_equals_the_librarys(run: str, registry: ModelRegistry, subjects: dict[str, Subject]) -> None:
    opened = registry.open(run)
    case = case_of(subjects[run])
    output = case.outputs[-1]
    made = case.trace()
    replaced = replacements(opened.model)
    occlusion = occlude(case, *replaced)
    shown = ask(opened, "importance", layer=0)
    rows = list(output.reads)
    rolled = rollout(made)
    weights = made.stack.blocks[0].attention.pattern[0].double().mean(dim=0)[rows].mean(dim=0)
    own = shown["sides"][0]
    assert near(own["attention"], weights)
    assert near(own["rollout"], rolled.row[0][rows].mean(dim=0))
    assert near(own["blanked"], occlusion.row[-1])
    again = case.tokens if case.target is None else case.target
    again = again.clone()
    again[0, 1] = replaced[0]
    log_p = (case.logits(again) if case.target is None else case.logits(case.tokens, again))[0, -1].double()
    assert near(own["blanked"][1], occlusion.before[-1] - log_p.log_softmax(dim=-1)[output.answer])
    if run == "turn":
        assert occlusion.source is not None
        assert near(shown["sides"][1]["blanked"], occlusion.source[-1])
    right = agreement(case.model, made, occlusion).facts()["rows"]
    assert json.dumps(shown["layers_agree"]) == json.dumps(right)


@pytest.mark.parametrize(("run", "table"), [("book", "tokens"), ("turn", "source tokens"), ("turn", "positions")])
def test_the_map_and_the_neighbours(run: str, table: str, registry: ModelRegistry) -> None:
    model: Any = OpenedRun.load(registry.open(run).folder).model
    embedding = model.source_embedding if table.startswith("source") else model.embedding
    vectors = embedding.positions.table.weight if table == "positions" else embedding.tokens.weight
    found = components(vectors)
    shown = ask(registry.open(run), "embeddings", table=table, token="5")
    assert near(np.transpose([shown["x"], shown["y"]]), found.transform(vectors)[:, :2])
    assert near(shown["shares"], found.explained_variance_ratio[:10])
    right = neighbours(vectors, 5, 20)
    assert [each["id"] for each in shown["neighbours"]] == [row for row, _ in right]
    assert near([each["cosine"] for each in shown["neighbours"]], [cosine for _, cosine in right])
    assert len(shown["names"]) == len(vectors)


@pytest.mark.parametrize("run", [*FAMILIES, "post"])
def test_positions_and_the_shuffle_test(run: str, registry: ModelRegistry, subjects: dict[str, Subject]) -> None:
    opened = registry.open(run)
    case = case_of(subjects[run])
    stack, embedding = embedding_of(case.model, "dec" if run in ("book", "post", "turn") else "enc")
    shown = ask(opened, "positions")
    vectors = position_vectors(embedding, stack.context)
    assert shown.header["kind"] == RUNS[run]["positions"]
    if vectors is not None:
        assert near(np.frombuffer(shown.data, "<f4").reshape(len(vectors), -1), vectors)
        assert near(shown.header["cosine"], by_distance(vectors)[1][np.abs(shown.header["distances"])])
    if stack.score_positions is not None:
        made = case.trace().stack.blocks[0].attention.bias
        zero = shown.header["distances"].index(0)
        assert made is not None
        assert near(np.array(shown.header["bias"])[:, zero + 3], made[0, :, 7, 4])
    turn = rotary_effect_by_distance(stack, torch.tensor(shown.header["distances"]))
    assert (shown.header["turn"] is None) == (turn is None)
    if turn is not None:
        assert near(shown.header["turn"]["mean"], turn.mean)
    test = ask(opened, "positions", shuffle=True, text=TEXTS[run], times=4, seed=3)
    right = shuffle_test(case, len(case.outputs) - 1, fixed_of(opened), times=4, seed=3)
    assert near(test["after"], right.after)
    assert near(test["divergence"], right.divergence)
    assert near(test["drop"], right.before - float(right.after.mean()))
    assert test["moved"] == list(right.moved)
    assert sorted(test["example"]) == sorted(subjects[run].labels)


QUESTIONS: list[tuple[str, dict[str, Any]]] = [
    ("tape", {"matrix": 2, "cell": [1, 1]}),
    ("tape", {"matrix": 2}),
    ("receipt", {"against": "2", "part": 0}),
    ("lens", {}),
    ("importance", {"layer": 0}),
    ("embeddings", {"token": "7"}),
    ("positions", {}),
    ("positions", {"shuffle": True, "times": 2}),
]
RUNNER = """
import contextlib, io, json, sys
told = []
for script in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(script, {})
    told.append(out.getvalue())
print(json.dumps(told))
"""


@pytest.mark.thorough
def test_all_scripts_print_the_shown_numbers(registry: ModelRegistry) -> None:
    answers = []
    for run in FAMILIES:
        for view, question in QUESTIONS:
            more = {"text": TEXTS[run]} if question.get("shuffle") else {}
            answers.append((run, view, ask(registry.open(run), view, **{**question, **more})))
    facts = [answer.header if isinstance(answer, Binary) else answer for _, _, answer in answers]
    scripts = json.dumps([each["python"] for each in facts])
    done = ended(begin("-c", RUNNER, folder=Path.cwd(), text=scripts))
    assert done.returncode == 0, done.stderr
    for (run, view, _), fact, told in zip(answers, facts, json.loads(done.stdout), strict=True):
        printed = np.array([float(each) for each in re.findall(r"-?\d+\.?\d*(?:e[-+]?\d+)?", told)])
        wanted = expected(view, fact)
        assert wanted
        for number in wanted:
            assert np.abs(printed - number).min() <= 1e-6 * max(1, abs(number)), (run, view, number)


def expected(view: str, fact: dict[str, Any]) -> list[float]:
    """Return some numbers of an answer that its script must print."""
    match view:
        case "tape":
            return [fact["shown"]] if "shown" in fact else [fact["difference"] or 0.0, fact["statistics"]["max"]]
        case "receipt":
            return [fact["logit"], *(part["value"] for part in fact["parts"]), *fact["sources"]]
        case "lens":
            return [cell[key] for row in fact["grid"] for cell in row for key in ("rank", "loss")]
        case "importance":
            return [*fact["sides"][0]["rollout"], *fact["sides"][0]["blanked"]]
        case "embeddings":
            return [*fact["shares"], *fact["x"], *(each["cosine"] for each in fact["neighbours"])]
        case "positions":
            if "after" in fact:
                return [fact["before"], *fact["after"], *fact["divergence"]]
            return fact["dot"] or [value for row in fact["bias"] or [fact["turn"]["mean"]] for value in row]
    raise AssertionError(view)


def test_a_lens_that_would_take_long_is_refused(registry: ModelRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.app.server.views.lens.MAX_FLOPS", 1e4)
    for run in FAMILIES:
        with pytest.raises(GlassError, match=r"^the lens of all layers at \d+ positions would take \d") as refused:
            ask(registry.open(run), "lens", text=TEXTS[run] + " then")
        assert re.search(r"at most about \d+ tokens", refused.value.remedy)


@pytest.mark.parametrize("view", ["lens", "importance"])
def test_the_length_that_a_refusal_suggests_is_accepted(
    view: str, registry: ModelRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = registry.open("book")
    text = f"{TEXT} and then slept"  # no other test uses this text, so no response is cached
    ids = book.model.tokenizer.encode(text)
    limit = f"glassformer.app.server.views.{view}.MAX_FLOPS"
    monkeypatch.setattr(limit, 1.0)
    with pytest.raises(GlassError) as refused:
        ask(book, view, text=text)
    monkeypatch.setattr(limit, 0.6 * float(re.search(r"take (\S+) FLOPs", refused.value.problem)[1]))  # type: ignore[index]
    with pytest.raises(GlassError) as refused:
        ask(book, view, text=text)
    suggested = int(re.search(r"at most about (\d+) tokens", refused.value.remedy)[1])  # type: ignore[index]
    assert 2 < suggested < len(ids)
    ask(book, view, text=book.model.tokenizer.decode(ids[:suggested]))


def test_nothing_is_encoded_again_for_a_view(registry: ModelRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    def again(*given: object) -> None:
        raise AssertionError("that can take minutes")

    monkeypatch.setattr("glassformer.runs.run_text.prepare_run_text", again)
    book = registry.open("book")
    for part in (ask(book, "machines")["validation"], ask(book, "write", written="a")["copied"]):
        assert part["why"].endswith("is gone")
    with pytest.raises(GlassError, match="is gone") as refused:
        count_tokens(book)
    assert "glass evaluate" in refused.value.remedy
