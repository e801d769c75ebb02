"""The attention views of the server and their scripts, compared with traces of the library for every family."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from glassformer.app.server.registry import ModelRegistry, ServedModel
from glassformer.app.server.view import LIMIT, Binary
from glassformer.app.server.views import find_view
from glassformer.app.server.views.attention import attention_pass
from glassformer.base.errors import GlassError
from glassformer.inspection.explain import unshortened_subject_of
from glassformer.inspection.heads.numbers import entropy
from glassformer.inspection.heads.of_run import heads_of_run
from glassformer.inspection.plots import Floats, pooled, record_attention_maps
from glassformer.inspection.recording import record
from glassformer.inspection.sites import attentions
from glassformer.inspection.trace import AttentionTrace
from glassformer.inspection.traced import Trace
from glassformer.model.pruned_attention import head_numbers
from glassformer.runs.opening import OpenedRun
from glassformer.tasks import Translator
from tests.journey.commands import begin, ended
from tests.parity.written_runs import make_run

SOURCE = "আমি বাংলায় গান গাই; the old dog sleeps."
NOWHERE = {"source": "nowhere.txt"}
RUNS: dict[str, dict[str, Any]] = {
    "book": {"positions": "rotary", "kv_heads": 1, "removed_heads": ("dec.0.self.1",), "data": NOWHERE},
    "slope": {"positions": "alibi", "layers": 1, "window": 5, "removed_heads": ("dec.0.self.1",)},
    "fill": {"task": "masked", "positions": "relative", "relative_buckets": 8, "relative_max_distance": 16},
    "name": {"task": "classify", "positions": "sinusoidal"},
    "turn": {"task": "translate", "positions": "relative", "relative_buckets": 8, "relative_max_distance": 16},
}
TEXTS = dict.fromkeys(RUNS, SOURCE) | {"fill": f"{SOURCE} [MASK]"}
SITES = {
    "book": "dec.0.self",
    "slope": "dec.0.self",
    "fill": "enc.1.self",
    "name": "enc.0.self",
    "turn": "dec.1.cross",
}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> ModelRegistry:
    """Return a registry with a run of each family, with Bangla in its vocabulary."""
    home = tmp_path_factory.mktemp("views")
    return ModelRegistry([make_run(home / name, **made) for name, made in RUNS.items()], "cpu")


def ask(opened: ServedModel, name: str, **question: Any) -> Any:
    """Return the response of a view to a JSON body: a dict, or a `Binary`."""
    view = find_view(name)
    body = json.dumps(question if name == "roles" else {"text": TEXTS.get(opened.name, ""), **question})
    reply = view.reply(opened, view.parse(body.encode()))
    assert len(reply.body) <= LIMIT
    return Binary.unpacked(reply.body) if reply.binary else json.loads(reply.body)


def numbers(answer: Binary, at: int = 0, count: int = -1) -> Floats:
    return np.frombuffer(answer.data, "<f4", count, 4 * at)


def traced(opened: ServedModel) -> Trace:
    """Return the trace of the run's example text, made by the library without the views."""
    model = OpenedRun.load(opened.folder, device="cpu").text_model
    return unshortened_subject_of(model, TEXTS[opened.name]).trace()


def part(trace: Trace, site: str) -> AttentionTrace:
    stack, layer, kind = site.split(".")
    blocks = (trace.source if stack == "enc" and trace.source else trace.stack).blocks
    found = blocks[int(layer)].cross if kind == "cross" else blocks[int(layer)].attention
    assert found is not None
    return found


def weights_of(trace: Trace, head: str) -> Floats:
    """Return the (T, S) attention weights, NaN where masked."""
    site, _, number = head.rpartition(".")
    here = part(trace, site)
    found = here.pattern[0, here.heads.index(int(number))].masked_fill(~here.allowed[0, 0], math.nan)
    return found.numpy()


def summed(weights: Floats, block: int) -> Floats:
    """Return, for each block, the mean over its rows of the sum over its keys."""
    T, S = weights.shape
    return np.array(
        [
            [np.nansum(weights[i : i + block, j : j + block]) / len(weights[i : i + block]) for j in range(0, S, block)]
            for i in range(0, T, block)
        ]
    )


@pytest.mark.parametrize("name", RUNS)
def test_every_map_equals_the_trace(registry: ModelRegistry, name: str) -> None:
    opened = registry.open(name)
    trace = traced(registry.open(name))
    sites = attentions(opened.model.model)
    for site, layer in sites.items():
        for number in head_numbers(layer):
            real = weights_of(trace, f"{site}.{number}")
            answer = ask(opened, "attention", head=f"{site}.{number}", form="float32")
            assert answer.header["shape"] == answer.header["size"] == list(real.shape)
            np.testing.assert_allclose(numbers(answer).reshape(real.shape), real, atol=1e-6)
            np.testing.assert_allclose(answer.header["row_sums"], 1.0, atol=1e-6)
            ahead = np.triu(np.ones(real.shape, dtype=bool), 1)
            if site.stack == "dec" and site.part == "self":
                assert np.isnan(numbers(answer).reshape(real.shape)[ahead]).all()
            else:
                assert not np.isnan(numbers(answer)).any()
            assert answer.header["largest"] == pytest.approx(np.nanmax(real), abs=1e-6)


@pytest.mark.parametrize("name", RUNS)
def test_rows_of_a_long_text_equal_a_recording(
    registry: ModelRegistry, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limits are so low that no patterns are stored: every attention layer computes a few rows at a time."""
    whole = registry.open(name)
    opened = ServedModel(name, whole.run)
    monkeypatch.setattr(attention_pass, "OBSERVED", 0)
    monkeypatch.setattr(attention_pass, "CELLS", 120)
    subject = opened.subject(TEXTS[name])
    target = None if subject.target_ids is None else torch.tensor([subject.target_ids])
    for site, layer in attentions(opened.model.model).items():
        found = record(subject.model, torch.tensor([subject.ids]), target, keep=(f"{site}.pattern",))
        for number in head_numbers(layer):
            rows = ask(opened, "attention", head=f"{site}.{number}", form="float32")
            assert rows.header["pass"] == "recomputed"
            wanted = found[f"{site}.{number}.pattern"][0].numpy()
            np.testing.assert_allclose(np.nan_to_num(numbers(rows)).reshape(wanted.shape), wanted, atol=1e-6)
        assert not any(part._forward_hooks for part in layer.modules())
    monkeypatch.undo()
    assert ask(whole, "heads").header["pass"] == "observed"


@pytest.mark.parametrize("name", RUNS)
def test_labels_are_the_tokens_of_both_sides(registry: ModelRegistry, name: str) -> None:
    opened = registry.open(name)
    subject = opened.subject(TEXTS[name])
    labels = ask(opened, "attention", head=f"{SITES[name]}.0").header["labels"]
    assert labels["keys"] == list(subject.labels)
    assert labels["queries"] == list(subject.target_labels or subject.labels)


@pytest.mark.parametrize("name", ["book", "slope", "turn"])
@pytest.mark.parametrize("px", [1, 7, 11])
def test_pooling_keeps_the_largest_and_the_sums(registry: ModelRegistry, name: str, px: int) -> None:
    opened = registry.open(name)
    head = f"{SITES[name]}.0"
    real = weights_of(traced(opened), head)
    best, sums = (ask(opened, "attention", head=head, form="float32", px=px, agg=agg) for agg in ("max", "sum"))
    block = best.header["block"]
    shape = best.header["shape"]
    assert max(shape) <= px
    assert best.header["labels"] is None
    np.testing.assert_allclose(numbers(best).reshape(shape), pooled(real, block), atol=1e-6)
    assert np.nanmax(numbers(best)) == pytest.approx(best.header["largest"])
    cells = numbers(sums).reshape(shape)
    np.testing.assert_allclose(np.nan_to_num(cells), summed(real, block), atol=1e-6)
    np.testing.assert_allclose(np.nansum(cells, axis=1), 1.0, atol=1e-5)
    assert np.array_equal(np.isnan(cells), np.isnan(numbers(best).reshape(shape)))


@pytest.mark.parametrize(
    ("name", "window"), [("book", {"queries": [3, 9], "keys": [2, 5]}), ("turn", {"keys": [1, 4]})]
)
def test_a_window_of_the_map_can_be_requested(registry: ModelRegistry, name: str, window: dict[str, list[int]]) -> None:
    opened = registry.open(name)
    head = f"{SITES[name]}.2"
    real = weights_of(traced(opened), head)
    answer = ask(opened, "attention", head=head, form="float32", **window)
    sides = zip(("queries", "keys"), real.shape, strict=True)
    rows, keys = (slice(*window.get(side, (0, length))) for side, length in sides)
    np.testing.assert_allclose(numbers(answer).reshape(answer.header["shape"]), real[rows, keys], atol=1e-6)
    np.testing.assert_allclose(answer.header["row_sums"], 1.0, atol=1e-6)


@pytest.mark.parametrize("scale", ["linear", "sqrt", "log"])
def test_bytes_encode_weights_on_the_scale(registry: ModelRegistry, scale: str) -> None:
    opened = registry.open("book")
    real = weights_of(traced(opened), "dec.1.self.0")
    answer = ask(opened, "attention", head="dec.1.self.0", scale=scale)
    found = np.frombuffer(answer.data, np.uint8).reshape(real.shape)
    assert np.array_equal(found == answer.header["hidden"], np.isnan(real))
    seen = ~np.isnan(real)
    places = found[seen] / answer.header["full"]
    weights = {"linear": places, "sqrt": places**2, "log": 10 ** (4 * (places - 1))}[scale]
    low = np.maximum(real[seen], 1e-4) if scale == "log" else real[seen]
    steps = {"linear": 1 / 508, "sqrt": 1 / 254, "log": 10 ** (4 / 508) - 1}[scale]
    assert np.abs(weights - low).max() <= steps


def test_small_maps_equal_those_of_glass_look(registry: ModelRegistry) -> None:
    for name in RUNS:
        opened = registry.open(name)
        drawn = record_attention_maps(opened.subject(TEXTS[name]))
        trace = traced(opened)
        answer = ask(opened, "heads")
        assert [each["head"] for each in answer.header["heads"]] == list(map(str, drawn.maps))
        for each, cells in zip(answer.header["heads"], drawn.maps.values(), strict=True):
            length = math.prod(each["shape"])
            found = np.frombuffer(answer.data, np.uint8, length, each["at"]).reshape(each["shape"])
            assert np.array_equal(found, np.where(np.isnan(cells), 255, np.rint(np.nan_to_num(cells) * 254)))
            real = np.nan_to_num(weights_of(trace, each["head"]).astype(np.float64))
            assert each["entropy"] == pytest.approx(entropy(real).mean(), abs=1e-5)


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("place", [0, 6])
def test_one_query_is_returned_for_every_head(registry: ModelRegistry, name: str, place: int) -> None:
    opened = registry.open(name)
    trace = traced(registry.open(name))
    if name == "turn" and place >= len(opened.subject(TEXTS[name]).target_ids or ()):
        pytest.fail("the target is too short for this test")
    for stack in ("enc", "dec") if name == "turn" else (None,):
        answer = ask(opened, "focus", place=place, stack=stack, top=3)
        assert answer.header["block"] == 1
        for each in answer.header["heads"]:
            real = weights_of(trace, each["head"])[place]
            row = numbers(answer, each["at"], each["cells"])
            np.testing.assert_allclose(row, real, atol=1e-6)
            assert sum(top["weight"] for top in each["top"]) + each["rest"] == pytest.approx(1.0, abs=1e-6)
            assert [row[top["key"]] for top in each["top"]] == sorted(row[~np.isnan(row)])[::-1][: len(each["top"])]
            assert len(answer.header["labels"][each["part"]]) == len(real)


@pytest.mark.parametrize("name", RUNS)
def test_the_steps_of_a_score_are_returned(registry: ModelRegistry, name: str) -> None:
    opened = registry.open(name)
    site = SITES[name]
    query = 4
    here = part(traced(opened), site)
    for place, number in enumerate(here.heads):
        scores = here.scaled[0, place, query]
        weights = here.pattern[0, place, query]
        bias = 0 if here.bias is None else here.bias[0, place, query]
        allowed = here.allowed[0, 0, query]
        for key in (0, 3, len(scores) - 1):
            answer = ask(opened, "score", head=f"{site}.{number}", query=query, key=key)
            assert sum(answer["products"]) == pytest.approx(answer["dot"], abs=1e-6)
            assert answer["dot"] == pytest.approx(float(here.scores[0, place, query, key]), abs=1e-5)
            assert answer["scaled"] == pytest.approx(float(scores[key]), abs=1e-6)
            assert answer["weight"] == pytest.approx(float(weights[key]), abs=1e-6)
            assert answer["masked"] is not bool(allowed[key])
            whole = torch.where(allowed, scores + bias, math.nan)
            row = [math.nan if score is None else score for score in answer["row"]["scores"]]
            np.testing.assert_allclose(row, whole, atol=1e-5)
            if not answer["masked"]:
                # the score and the weight are the model's own float32, the rest is float64 arithmetic
                assert answer["score"] == pytest.approx(answer["scaled"] + answer["bias"], abs=1e-5)
                assert math.exp(answer["score"] - answer["log_sum"]) == pytest.approx(answer["weight"], abs=1e-6)
    assert np.nansum([w or 0 for w in answer["row"]["weights"]]) == pytest.approx(1.0)


@pytest.mark.parametrize("head", [None, 1])
def test_an_alignment_equals_the_cross_attention(registry: ModelRegistry, head: int | None) -> None:
    opened = registry.open("turn")
    here = part(traced(opened), "dec.1.cross").pattern[0].double()
    real = (here.mean(0) if head is None else here[head]).numpy()
    answer = ask(opened, "alignment", head=head, beams=2)
    header = answer.header
    np.testing.assert_allclose(numbers(answer).reshape(header["shape"]), real, atol=1e-6)
    np.testing.assert_allclose(header["entropy"], entropy(real), atol=1e-6)
    np.testing.assert_allclose(header["coverage"], real.sum(axis=0), atol=1e-6)
    assert header["covered"] == pytest.approx((real.sum(axis=0) >= 0.5).mean())
    model = OpenedRun.load(opened.folder, device="cpu").text_model
    assert isinstance(model, Translator)
    settings = model.config.sample.replace(beams=2, temperature=0.0, repetition_penalty=1.0)
    best = model.n_best([SOURCE], settings)[0]
    assert [(each["text"], each["score"]) for each in header["hypotheses"]] == [(b.text, b.score) for b in best]
    assert (header["target"], header["written"]) == (opened.subject(SOURCE).target, True)
    assert (len(header["labels"]["target"]), len(header["labels"]["source"])) == real.shape


def test_a_given_target_is_used(registry: ModelRegistry) -> None:
    opened = registry.open("turn")
    answer = ask(opened, "alignment", target="the river", beams=0)
    subject = opened.subject(SOURCE, "the river")
    assert answer.header["labels"]["target"] == list(subject.target_labels or ())
    assert (answer.header["written"], answer.header["hypotheses"]) == (False, [])


WRONG = [
    ("book", "attention", {"head": "dec.0.self.1"}, "there is no head"),
    ("book", "attention", {"head": "dec.0.self.0", "queries": [5, 5]}, "queries [5, 5) are empty"),
    ("book", "attention", {"head": "dec.0.self.0", "keys": [0, 10**9]}, "are not within"),
    ("book", "attention", {"head": "dec.0.self.0", "px": 513}, "less than or equal to 512"),
    ("book", "attention", {"head": "dec.0.self.0", "path": "/etc"}, "Extra inputs"),
    ("book", "attention", {"head": "dec.0.self.0", "text": "the dog " * 99}, "tokens, but the model reads"),
    ("book", "focus", {"place": 999}, "position 999"),
    ("book", "focus", {"place": 0, "stack": "enc"}, "no stack"),
    ("book", "score", {"head": "dec.0.self.0", "query": 0, "key": 999}, "keys [999, 1000)"),
    ("book", "alignment", {}, "no cross-attention"),
    ("book", "heads", {"sites": ["dec.9.self"]}, "no attention"),
    ("turn", "alignment", {"head": 7}, "no head 7"),
    ("fill", "attention", {"head": "enc.0.self.0", "text": "no hole"}, "no [MASK]"),
]


@pytest.mark.parametrize(("name", "view", "question", "said"), WRONG)
def test_impossible_requests_are_explained(
    registry: ModelRegistry, name: str, view: str, question: dict[str, Any], said: str
) -> None:
    with pytest.raises(GlassError) as caught:
        ask(registry.open(name), view, **question)
    assert said in caught.value.problem
    assert caught.value.remedy


def when_ready(opened: ServedModel) -> Any:
    """Return the roles after they have been measured."""
    deadline = time.monotonic() + 60
    while not (answer := ask(opened, "roles"))["ready"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return answer


def test_roles_equal_those_of_glass_heads(registry: ModelRegistry) -> None:
    opened = ModelRegistry([registry.open("book").folder], "cpu").open("book")
    assert ask(opened, "roles")["ready"] is False
    answer = when_ready(opened)
    report = heads_of_run(OpenedRun.load(opened.folder, device="cpu"))
    assert answer["heads"] == json.loads(json.dumps(report.facts()["heads"]))
    assert answer["importance"].startswith("none is gone")  # its text is not available
    some = ask(opened, "roles", sites=["dec.1.self"])["heads"]
    assert [head["name"] for head in some] == ["dec.1.self.0", "dec.1.self.1", "dec.1.self.2"]


@pytest.mark.thorough
def test_long_texts_are_pooled_into_small_answers(tmp_path: Path) -> None:
    """With 4,096 tokens, maps are pooled to at most 512 by 512 cells, and every answer is at most `LIMIT` bytes."""
    folder = make_run(tmp_path / "long", layers=1, heads=2, width=8, head_width=4, hidden=8, context=4096, kv_heads=1)
    opened = ModelRegistry([folder], "cpu").open("long")
    text = "the old dog sleeps; " * 4000
    ids = opened.model.tokenizer.encode(text)[:4096]
    text = opened.model.tokenizer.decode(ids)
    answer = ask(opened, "attention", text=text, head="dec.0.self.1")
    assert (answer.header["size"], answer.header["shape"], answer.header["block"]) == ([4096, 4096], [512, 512], 8)
    assert len(answer.data) == 512 * 512
    whole = ask(
        opened, "attention", text=text, head="dec.0.self.1", queries=[4000, 4096], keys=[4000, 4096], form="float32"
    )
    assert np.nanmax(numbers(whole)[:8]) <= answer.header["largest"]
    assert [each["shape"] for each in ask(opened, "heads", text=text).header["heads"]] == [[64, 64]] * 2
    focus = ask(opened, "focus", text=text, place=4095).header["heads"][1]
    assert sum(top["weight"] for top in focus["top"]) + focus["rest"] == pytest.approx(1.0, abs=1e-5)
    assert len(ask(opened, "score", text=text, head="dec.0.self.1", query=4095, key=9)["row"]["scores"]) == 4096


# The views' scripts, all run in one separate process.
DRIVER = """
import contextlib, io, json, sys
outputs = []
for script in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(script, "script", "exec"), {"__name__": "script"})
    outputs.append(out.getvalue())
print(json.dumps(outputs))
"""


def test_every_script_is_python(registry: ModelRegistry) -> None:
    for agg in ("max", "sum"):
        script = ask(registry.open("book"), "attention", head="dec.1.self.2", agg=agg).header["python"]
        compile(script, agg, "exec")
    for view, question in {"heads": {}, "focus": {"place": 2}}.items():
        compile(ask(registry.open("book"), view, **question).header["python"], view, "exec")
    for view, question in {"score": {"head": "dec.1.self.2", "query": 3, "key": 1}, "tokens": {}}.items():
        compile(ask(registry.open("book"), view, **question)["python"], view, "exec")


@pytest.mark.thorough
def test_the_scripts_print_the_same_numbers(registry: ModelRegistry) -> None:
    asked: list[tuple[str, Any]] = []
    when_ready(registry.open("book"))

    def note(name: str, view: str, **question: Any) -> Any:
        answer = ask(registry.open(name), view, **question)
        asked.append((answer.header["python"] if isinstance(answer, Binary) else answer["python"], answer))
        return answer

    for name, site in SITES.items():
        for agg in ("max", "sum"):
            note(name, "attention", head=f"{site}.2", form="float32", px=9, agg=agg)
        note(name, "heads", px=8, sites=[site])
        note(name, "focus", place=2)
        note(name, "score", head=f"{site}.2", query=3, key=1)
        note(name, "tokens")
    note("book", "roles")
    note("turn", "alignment", beams=2)
    note("turn", "alignment", head=1, target="the river", beams=0)
    note("turn", "tokens", target="the river")
    scripts = json.dumps([script for script, _ in asked])
    done = ended(begin("-c", DRIVER, folder=Path.cwd(), text=scripts))
    assert done.returncode == 0, done.stderr
    for output, (script, answer) in zip(json.loads(done.stdout), asked, strict=True):
        if isinstance(answer, Binary):
            _check_binary(output, answer)
        elif "sides" in answer:
            ids = [token["id"] for side in answer["sides"] for token in side["tokens"]]
            assert [int(line.split(" ")[0]) for line in output.splitlines()] == ids, script
        elif "probes" in answer:
            assert [json.loads(line) for line in output.splitlines()] == answer["heads"]
        else:
            products, scores, weights = (_numbers(line) for line in output.splitlines())
            np.testing.assert_allclose(products, [*answer["products"], answer["dot"], answer["scaled"]], atol=1e-5)
            np.testing.assert_allclose(np.where(np.isneginf(scores), np.nan, scores), _row(answer, "scores"), atol=1e-5)
            np.testing.assert_allclose(weights, np.nan_to_num(_row(answer, "weights")), atol=1e-6)


def _row(answer: dict[str, Any], name: str) -> Floats:
    return np.array([math.nan if value is None else value for value in answer["row"][name]])


def _check_binary(output: str, answer: Binary) -> None:
    header = answer.header
    lines = output.splitlines()
    if "place" in header:
        rows = np.concatenate([_numbers(line.partition(" ")[2].partition("#")[0]) for line in lines])
        np.testing.assert_allclose(rows, np.nan_to_num(numbers(answer)), atol=1e-6)
    elif "heads" in header:
        found = [np.frombuffer(answer.data, np.uint8, math.prod(e["shape"]), e["at"]) for e in header["heads"]]
        for line, cells in zip(lines, found, strict=True):
            printed = _numbers(line.partition(" ")[2])
            assert np.array_equal(np.where(np.isnan(printed), 255, np.rint(np.nan_to_num(printed) * 254)), cells)
    else:
        np.testing.assert_allclose(np.nan_to_num(_numbers(lines[0])), np.nan_to_num(numbers(answer)), atol=1e-6)
    if "hypotheses" in header:
        np.testing.assert_allclose(_numbers(lines[1]), header["entropy"], atol=1e-6)
        np.testing.assert_allclose(_numbers(lines[2]), header["coverage"], atol=1e-6)
        scores = [float(line.partition(" ")[0]) for line in lines[3:]]
        assert scores == pytest.approx([each["score"] for each in header["hypotheses"]])


def _numbers(line: str) -> Floats:
    """Return all numbers of a line, in order."""
    words = line.replace("[", " ").replace("]", " ").replace(",", " ").split()
    return np.array([float(word) for word in words])
