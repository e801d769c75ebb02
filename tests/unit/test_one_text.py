"""Surprisal of a text in one or two runs, ablated parts and the beam tree, checked by independent computations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from glassformer.app.server.views.beams import tree_of
from glassformer.base.config import SampleConfig
from glassformer.base.errors import GlassError
from glassformer.evaluation.run_comparison import (
    attention_difference,
    attention_weights,
    compare_predictions,
    head_labels,
    shared_spans,
)
from glassformer.evaluation.token_losses import next_logits, predict, predict_token, surprisals
from glassformer.generation.beam import BeamStep, beam_search
from glassformer.inspection.ablation import (
    AblatedModel,
    Ablation,
    ablatable,
    ablate,
    ablation_loss,
    check_ablation,
    generate_ablated,
    means_of,
)
from glassformer.inspection.explain import subject_of
from glassformer.inspection.patching import KnockOut, Pattern, Value, Zero, patch
from glassformer.inspection.recording import record
from glassformer.inspection.visibility import attention_masks
from glassformer.runs.opening import OpenedRun
from glassformer.tasks import AnyTextModel, TextModel, Translator
from glassformer.tasks.task_rows import TaskRows
from glassformer.tasks.written_text import decode_until_stop
from glassformer.text.rows import Row
from tests.parity.written_runs import make_run

TEXT = "আমি বাংলায় গান গাই; the old dog."
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, AnyTextModel]:
    """Return models of four tasks with random weights; the tokenizer of `bytes` splits Bangla characters."""
    home = tmp_path_factory.mktemp("one")
    made = {
        "book": {"positions": "rotary", "kv_heads": 1},
        "bytes": {"tokenizer": {"vocab_size": 270}, "context": 90},
        "fill": {"task": "masked"},
        "name": {"task": "classify"},
        "turn": {"task": "translate", "layers": 1},
    }
    return {name: OpenedRun.load(make_run(home / name, **each), device="cpu").text_model for name, each in made.items()}


def rows_of(model: AnyTextModel, seed: int) -> TaskRows:
    """Return two rows of unequal length."""
    random = np.random.default_rng(seed)
    one, two = (random.integers(0, model.tokenizer.vocab_size, size) for size in (9, 5))
    task: Any = None
    if model.config.train.task == "translate":
        return TaskRows(task, [Row.of_text(two, source=one), Row.of_text(one, source=two)], CPU)
    return TaskRows(task, [Row.of_text(one), Row.of_text(two)], CPU)


def test_surprisal_of_a_decoder_is_computed_from_left_to_right(models: dict[str, AnyTextModel]) -> None:
    model = models["bytes"]
    found = surprisals(models["bytes"], TEXT)
    assert (found.text, found.nats[0]) == (TEXT, None)
    for place in (1, 5, len(found.tokens) - 1):
        with torch.no_grad():
            logits = model.model(torch.tensor([found.tokens[:place]]))[0, -1]
        assert found.nats[place] == pytest.approx(-float(logits.log_softmax(0)[found.tokens[place]]), abs=1e-5)
        assert float(predict_token(model, TEXT, place).probabilities.log()[found.tokens[place]]) == pytest.approx(
            -found.nats[place], abs=1e-5
        )
    assert found.mean == pytest.approx(
        math.fsum(nats for nats in found.nats if nats is not None) / (len(found.nats) - 1)
    )


def test_surprisal_of_a_masked_model_masks_each_token_in_turn(models: dict[str, AnyTextModel]) -> None:
    model = models["fill"]
    text = f"{TEXT} [MASK] old"
    found = surprisals(model, text)
    holes = [place for place, token in enumerate(found.tokens) if token == model.tokenizer.mask_id]
    assert [place for place, nats in enumerate(found.nats) if nats is None] == holes
    place = 7
    row = [*found.tokens[:place], model.tokenizer.mask_id, *found.tokens[place + 1 :]]
    with torch.no_grad():
        logits = model.model(torch.tensor([row]))[0, place]
    assert found.nats[place] == pytest.approx(-float(logits.log_softmax(0)[found.tokens[place]]), abs=1e-5)


def test_surprisal_of_a_target_includes_its_end_token(models: dict[str, AnyTextModel]) -> None:
    model = models["turn"]
    found = surprisals(models["turn"], TEXT, "the old dog")
    start = model.tokenizer.target_start
    source, target = (torch.tensor([ids]) for ids in (model.prompt_ids(TEXT), [*start, *found.tokens[:-1]]))  # type: ignore[union-attr]
    with torch.no_grad():
        shares = model.model(source, target)[0].log_softmax(-1)[len(start) - 1 :]
    assert found.tokens[-1] == model.tokenizer.end_id
    np.testing.assert_allclose(
        found.nats, [-float(row[id]) for row, id in zip(shares, found.tokens, strict=True)], atol=1e-5
    )
    first = predict(model, subject_of(model, TEXT), first=True)
    np.testing.assert_allclose(first.probabilities, shares[0].exp(), atol=1e-6)
    after = next_logits(model, TEXT, "the old dog")  # type: ignore[arg-type]
    assert (after.step, after.previous) == (len(found.tokens), found.tokens[:-1])


@pytest.mark.parametrize(
    ("name", "target", "said"),
    [
        ("book", "a", "a target was given"),
        ("turn", None, "no target was given"),
        ("turn", "old " * 60, "the model reads at most 37"),
    ],
)
def test_invalid_inputs_are_refused(models: dict[str, AnyTextModel], name: str, target: str | None, said: str) -> None:
    with pytest.raises(GlassError, match=said):
        surprisals(models[name], TEXT, target)


def test_only_tokens_of_the_text_can_be_predicted(models: dict[str, AnyTextModel]) -> None:
    for name, place in (("turn", 1), ("name", 1), ("book", 0), ("fill", 99)):
        with pytest.raises(GlassError):
            predict_token(models[name], TEXT, place)


def test_shared_segments_end_at_common_boundaries_and_keep_the_total(models: dict[str, AnyTextModel]) -> None:
    one = surprisals(models["book"], TEXT)
    other = surprisals(models["bytes"], TEXT)
    assert len(one.tokens) < len(other.tokens)
    found = shared_spans(one, other)
    assert "".join(each.text for each in found) == TEXT
    assert [each.end for each in found] == sorted(set(one.ends) & set(other.ends))
    assert found[0].one is None  # no token precedes the first one
    for side, costs in (("one", one), ("other", other)):
        rest = math.fsum(nats for nats, end in zip(costs.nats, costs.ends, strict=True) if end > found[0].end and nats)
        assert math.fsum(getattr(each, side) for each in found[1:]) == pytest.approx(rest)
    with pytest.raises(GlassError, match="same characters"):
        shared_spans(one, surprisals(models["book"], "the old dog."))


def test_bars_show_the_likeliest_tokens_of_both(models: dict[str, AnyTextModel]) -> None:
    says = [predict(models[name], subject_of(models[name], TEXT)) for name in ("book", "bytes")]
    found = {bar.name: bar for bar in compare_predictions(says[0], says[1], 4)}
    for side, say in (("one", says[0]), ("other", says[1])):
        for id in say.best(4):
            assert getattr(found[say.name(id)], side) >= float(say.probabilities[id]) - 1e-12
    # At least one token is missing in the smaller vocabulary.
    assert any(each.other is None for each in compare_predictions(says[0], says[1], 40))


def test_maps_are_subtracted_where_tokens_are_the_same(models: dict[str, AnyTextModel]) -> None:
    subject = subject_of(models["book"], TEXT)
    one = attention_weights(subject, "dec.0.self.0")
    other = attention_weights(subject, "dec.1.self.2")
    torch.testing.assert_close(
        attention_difference((subject, "dec.0.self.0"), (subject, "dec.1.self.2")), one - other, equal_nan=True
    )
    turn = subject_of(models["turn"], TEXT, "the old dog")
    assert head_labels(turn, "dec.0.cross.1") == (turn.target_labels, turn.labels)
    with pytest.raises(GlassError, match="cannot be subtracted"):
        attention_difference((turn, "dec.0.cross.1"), (turn, "enc.0.self.1"))


def test_attention_masks_are_correct(models: dict[str, AnyTextModel]) -> None:
    turn = attention_masks(subject_of(models["turn"], TEXT, "the old dog"))
    assert {kind: bool(allowed.all()) for kind, allowed in turn.items()} == {
        "enc.self": True,
        "dec.self": False,
        "dec.cross": True,
    }
    T = len(turn["dec.self"])
    assert torch.equal(turn["dec.self"], torch.ones(T, T).tril().bool())


@pytest.mark.parametrize("name", ["book", "turn"])
def test_ablatable_parts_include_only_effective_masks(models: dict[str, AnyTextModel], name: str) -> None:
    names = ablatable(models[name].model)
    assert ("dec.mask" in names, "enc.mask" in names) == (True, False)
    assert {"dec.positions", "dec.0.self", "dec.0.self.2", "dec.0.feedforward"} <= set(names)
    assert not any(part.endswith(("resid", "final", "embedding")) for part in names)


@pytest.mark.parametrize(
    ("name", "off"), [("book", ("dec.0.self.1", "dec.1.feedforward")), ("turn", ("dec.0.cross.0", "enc.0.self"))]
)
def test_frozen_patterns_equal_those_of_the_whole_model(
    models: dict[str, AnyTextModel], name: str, off: tuple[str, ...]
) -> None:
    model = models[name].model
    subject = subject_of(models[name], TEXT)
    given = [torch.tensor([ids]) for ids in (subject.ids, subject.target_ids) if ids is not None]
    kept = record(model, *given)
    own = {key.removesuffix(".pattern") for key in kept} - set(off)
    with torch.no_grad(), patch(model, {**{site: Pattern(kept) for site in own}, **{part: Zero() for part in off}}):
        real = model(*given)
    with torch.no_grad():
        found = AblatedModel(model, Ablation(off, "frozen"))(*given)
        zero = AblatedModel(model, Ablation(off))(*given)
    torch.testing.assert_close(found, real)
    assert not torch.allclose(found, zero)


@pytest.mark.parametrize("name", ["book", "turn"])
def test_means_are_computed_without_padding(models: dict[str, AnyTextModel], name: str) -> None:
    model = models[name].model
    data = rows_of(models[name], 3)
    part = "dec.0.cross.1" if name == "turn" else "dec.1.self.2"
    found = means_of(model, data, [part, "dec.0.feedforward"])
    alone = []
    for row in data.rows:
        batch = data.batch([row])
        given = (batch.source, batch.inputs) if name == "turn" else (batch.inputs,)
        site = part.rpartition(".")[0]
        kept = record(model, *given, keep=[f"{site}.z", "dec.0.feedforward"])
        alone.append((kept[part][0], kept["dec.0.feedforward"][0]))
    for number, each in enumerate((part, "dec.0.feedforward")):
        real = torch.cat([parts[number] for parts in alone]).double().mean(0)
        torch.testing.assert_close(found[each], real, atol=1e-6, rtol=0)


def test_the_loss_without_ablation_equals_the_models(models: dict[str, AnyTextModel]) -> None:
    model = models["book"].model
    data = rows_of(models["book"], 5)
    whole = ablation_loss(AblatedModel(model, Ablation(())), data)
    assert whole.change == 0
    off = ablation_loss(ablate(model, check_ablation(model, ["dec.0.self.0"], "frozen"), data), data)
    assert off.full == whole.full
    assert off.change != 0
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("name", ["book", "turn"])
def test_a_tree_contains_every_step_of_the_search(models: dict[str, AnyTextModel], name: str) -> None:
    model = models[name]
    assert isinstance(model, TextModel | Translator)
    steps: list[BeamStep] = []
    settings = SampleConfig(beams=3, tokens=5, length_penalty=0.9)
    ids = model.prompt_ids(TEXT)
    end = model.tokenizer.end_id
    found = beam_search(model.model, [ids], settings, end, watch=steps.append)[0]
    assert found == beam_search(model.model, [ids], settings, end)[0]
    tree = tree_of(steps, found, 0.9)
    words = [()]
    for node in tree[1:]:
        assert node.parent is not None
        assert node.token is not None
        words.append((*words[node.parent], node.token))
    assert len(set(words)) == len(words) == 1 + sum(len(look.children) for look in steps)
    for node, tokens in zip(tree, words, strict=True):
        if node.rank is not None:
            best = found[node.rank]
            assert (tokens, node.score, node.log_probability) == (best.tokens, best.score, best.log_probability)
    assert sorted(node.rank for node in tree if node.rank is not None) == list(range(len(found)))
    ran = [node for node in tree if node.fate == "ran on" and node.tokens == 2]
    assert len(ran) == 3


def test_a_part_of_a_long_text_equals_that_part_of_the_whole(models: dict[str, AnyTextModel]) -> None:
    subject = subject_of(models["bytes"], TEXT)
    for whole, part in (
        (attention_weights(subject, "dec.1.self.0")[-5:, -5:], attention_weights(subject, "dec.1.self.0", 5)),
        (attention_masks(subject)["dec.self"][:5, :5], attention_masks(subject, 5)["dec.self"]),
    ):
        torch.testing.assert_close(part, whole, equal_nan=True)


def test_ablated_generation_is_the_same_with_and_without_a_cache(models: dict[str, AnyTextModel]) -> None:
    """Generation under ablation equals plain forward passes, even with the mask removed."""
    model = models["book"]
    for off in ((), ("dec.0.self.1", "dec.positions"), ("dec.mask",)):
        found = AblatedModel(model.model, Ablation(off))
        ids = model.prompt_ids(TEXT)  # type: ignore[union-attr]
        new: list[int] = []
        for _ in range(5):
            with torch.no_grad():
                new.append(int(found(torch.tensor([[*ids, *new]]))[0, -1].argmax()))
        wanted, _ = decode_until_stop(model.tokenizer, ids, new, ())
        assert generate_ablated(found, model, TEXT, 5) == wanted  # type: ignore[arg-type]


def test_each_kind_of_ablation_inserts_its_values(models: dict[str, AnyTextModel]) -> None:
    model = models["book"].model  # type: ignore[union-attr]
    tokens = torch.tensor([models["book"].prompt_ids(TEXT)])
    data = rows_of(models["book"], 7)
    means = means_of(model, data, ["dec.1.self.1"])
    kinds = {"zero": Zero(), "mean": Value(means["dec.1.self.1"]), "first": KnockOut()}
    for instead, kind in kinds.items():
        ablation = check_ablation(model, ["dec.1.self.1", "dec.positions"], instead)
        with torch.no_grad(), patch(model, {"dec.1.self.1": kind, "dec.positions": Zero()}):
            real = model(tokens)
        with torch.no_grad():
            torch.testing.assert_close(ablate(model, ablation, data)(tokens), real)
