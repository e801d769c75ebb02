"""Runs that begin from another run: copied weights, frozen parts, mixed texts, and resuming without the parent."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import glassformer as gf
from glassformer.base.config import Config
from glassformer.base.errors import GlassError
from glassformer.inspection.pruning.new_run import prune_model, read_training_state, write_pruned
from glassformer.model.weights import load_tensors
from glassformer.runs.folder import Run
from glassformer.runs.opening import OpenedRun
from glassformer.runs.parent import Parent
from glassformer.tasks.mixed import MixedTask
from glassformer.training.loop import train
from glassformer.training.reporting import Silent
from glassformer.training.setup import new_training
from glassformer.training.trainer import Trainer
from tests.property.task_trainers import TASKS, trainer_of
from tests.property.trainers import killed_after, last_weights, resumed, same

FINE = {"steps": 8, "batch": 5, "warmup": 0, "evaluate_every": 4, "save_every": 3, "log_every": 2, "threads": 1}


def child_of(parent: Path, folder: Path, name: str = "child", task: str | None = None, **changes: Any) -> Trainer:
    """Return the trainer at step 0 of a run that begins from another run, on the text of that run."""
    opened = Parent.open(parent)
    task = task or opened.task
    sections = opened.settings(task)  # type: ignore[arg-type]
    data = opened.config.data.model_dump(exclude_none=True)
    sections["data"] = {"source": data["source"], "size": 150, **sections.get("data", {}), "seed": 3}
    sections["train"] = {**sections["train"], **FINE}
    for key, value in changes.items():
        section, _, field = key.partition("__")
        sections[section][field] = value
    with new_training(Config.from_dict(sections), folder / name, Silent(), parent=opened) as trainer:
        return trainer


def parent_of(task: str, folder: Path, **changes: Any) -> Path:
    trainer = trainer_of(task, folder, "parent", **changes)
    train(trainer)
    return trainer.run.folder


@pytest.mark.parametrize("task", TASKS)
def test_a_child_begins_with_its_parents_weights_and_tokenizer(task: str, tmp_path: Path) -> None:
    parent = parent_of(task, tmp_path)
    child = child_of(parent, tmp_path)
    best = load_tensors(Run(parent).checkpoint("best") / "model.safetensors")
    assert same(best, child.model.state_dict())
    assert (child.run.folder / "tokenizer.json").read_bytes() == (parent / "tokenizer.json").read_bytes()
    assert not any(optimizer.state for optimizer in child.optimizers)  # newly initialized
    outcome = train(child)
    assert outcome is not None
    assert outcome.first_loss == pytest.approx(child.state.evaluations[0][1])
    assert outcome.parent_losses is not None
    unchanged = outcome.parent_losses[0] == outcome.parent_losses[1]
    assert unchanged == (outcome.step == 0)  # the parent's own weights were the best


@pytest.mark.parametrize("task", TASKS)
def test_a_child_resumes_bit_for_bit_without_its_parent(task: str, tmp_path: Path) -> None:
    parent = parent_of(task, tmp_path)
    straight = child_of(parent, tmp_path, "straight")
    train(straight)
    killed_after(child_of(parent, tmp_path, "broken"), 5)
    shutil.rmtree(parent)
    again = resumed(tmp_path, "broken")
    assert again.state.step in (3, 4)
    train(again)
    assert same(last_weights(straight), last_weights(again))
    assert again.state.parent_loss == straight.state.parent_loss  # from before the first step


def test_a_childs_text_is_encoded_again_with_the_tokenizer_of_its_parent(tmp_path: Path) -> None:
    """The tokenizer is not trained again on the child's text, because that would change the tokenizer."""
    parent = parent_of("classify", tmp_path)
    lines = [f"aab {i} {'xyz'[i % 3] * (1 + i % 5)}\t{['odd', 'even'][i % 2]}\n" for i in range(60)]
    (tmp_path / "labels.tsv").write_text("".join(lines), encoding="utf-8")
    child = child_of(parent, tmp_path)
    killed_after(child, 5)
    shutil.rmtree(parent)
    shutil.rmtree(tmp_path / ".tokens")
    again = resumed(tmp_path, "child")
    assert again.task.rows(0)[0].inputs.tolist() == child.task.rows(0)[0].inputs.tolist()
    train(again)


def test_a_masked_run_becomes_a_classifier_with_a_new_head(tmp_path: Path) -> None:
    parent = parent_of("masked", tmp_path, model__tied=False, model__head_transform=True)
    texts = [f"{chr(97 + i % 26)}{'abc'[i % 3] * (1 + i % 7)}{'xyz'[i % 2]}" for i in range(90)]
    lines = [f"{text}\t{['odd', 'even'][i % 2]}\n" for i, text in enumerate(texts)]
    (tmp_path / "labels.tsv").write_text("".join(lines), encoding="utf-8")
    child = child_of(parent, tmp_path, task="classify", data__source=str(tmp_path / "labels.tsv"), data__split="random")
    best = load_tensors(Run(parent).checkpoint("best") / "model.safetensors")
    own = child.model.state_dict()
    assert {name for name in own if name not in best or not torch.equal(own[name], best[name])} == {
        "head.weight",
        "head.bias",
    }
    assert own["head.weight"].shape == (2, 14)
    outcome = train(child)
    assert outcome is not None
    assert outcome.parent_losses is None
    assert child.parent_text is not None
    assert "no head" in child.parent_text.reason


@pytest.mark.parametrize("same_labels", [True, False])
def test_a_classifiers_head_is_kept_if_the_labels_are_equal(same_labels: bool, tmp_path: Path) -> None:
    parent = parent_of("classify", tmp_path)
    names = ["odd", "even"] if same_labels else ["left", "right"]
    lines = [f"ab {i} xyz\t{names[i % 2]}\n" for i in range(90)]
    (tmp_path / "labels.tsv").write_text("".join(lines), encoding="utf-8")
    child = child_of(parent, tmp_path)
    best = load_tensors(Run(parent).checkpoint("best") / "model.safetensors")
    assert torch.equal(child.model.state_dict()["head.weight"], best["head.weight"]) == same_labels


def test_a_chain_of_parents_is_recorded(tmp_path: Path) -> None:
    parent = parent_of("lm", tmp_path)
    train(child_of(parent, tmp_path, "child"))
    train(child_of(tmp_path / "child", tmp_path, "grandchild"))
    record = json.loads((tmp_path / "grandchild" / "manifest.json").read_text())["parent"]
    assert Path(record["run"]).name == "child"
    assert Path(record["parent"]["run"]).name == "parent"
    assert record["weights_sha256"] != record["parent"]["weights_sha256"]


def test_a_parent_record_is_read_exactly_or_refused(tmp_path: Path) -> None:
    parent = parent_of("lm", tmp_path)
    run = child_of(parent, tmp_path).run
    entry = run.parent_entry()
    assert entry == Parent.open(parent).entry()
    assert Run(parent).parent_entry() is None
    manifest = run.manifest()
    assert manifest["parent"].keys().isdisjoint({"imported", "parent"})
    run.write_manifest({**manifest, "parent": {**manifest["parent"], "later": 1}})
    assert run.parent_entry() == entry
    for wrong in ({"task": "lm"}, [], "parent", {**manifest["parent"], "data": None}):
        run.write_manifest({**manifest, "parent": wrong})
        with pytest.raises(GlassError, match=r"manifest\.json is damaged"):
            resumed(tmp_path, "child")


FROZEN = {
    "lm": (["embedding", "layers.0"], ("embedding.", "stack.blocks.0.")),
    "masked": (["head", "layers.0-1"], ("head.", "stack.blocks.")),
    "classify": (["encoder"], ("stack.",)),
    "translate": (["encoder", "layers.1"], ("encoder.", "decoder.blocks.1.")),
}


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("task", FROZEN)
def test_frozen_parts_are_unchanged_and_the_others_are_trained(task: str, optimizer: str, tmp_path: Path) -> None:
    parts, names = FROZEN[task]
    parent = parent_of(task, tmp_path, model__tied=False)
    child = child_of(parent, tmp_path, train__freeze=parts, train__optimizer=optimizer)
    before = {name: value.clone() for name, value in child.model.state_dict().items()}
    train(child)
    after = last_weights(child)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert changed == {name for name in before if not name.startswith(names)}
    updated = {id(p) for each in child.optimizers for group in each.param_groups for p in group["params"]}
    frozen = [p for name, p in child.model.named_parameters() if name.startswith(names)]
    assert not updated & {id(parameter) for parameter in frozen}


def test_a_run_with_frozen_parts_resumes_bit_for_bit(tmp_path: Path) -> None:
    parent = parent_of("lm", tmp_path)
    straight = child_of(parent, tmp_path, "straight", train__freeze="embedding,layers.1")
    train(straight)
    killed_after(child_of(parent, tmp_path, "broken", train__freeze="embedding,layers.1"), 5)
    again = resumed(tmp_path, "broken")
    train(again)
    assert same(last_weights(straight), last_weights(again))


def test_freezing_everything_is_refused(tmp_path: Path) -> None:
    parent = parent_of("classify", tmp_path)
    with pytest.raises(GlassError, match="leaves no parameter to train"):
        child_of(parent, tmp_path, train__freeze="embedding,encoder,head")


def test_freezing_a_part_without_weights_is_refused(tmp_path: Path) -> None:
    parent = parent_of("lm", tmp_path)
    with pytest.raises(GlassError, match="no parameters of its own"):
        child_of(parent, tmp_path, train__freeze="head")


def test_a_new_head_cannot_be_frozen(tmp_path: Path) -> None:
    parent = parent_of("classify", tmp_path)
    lines = [f"ab {i} xyz\t{['left', 'right'][i % 2]}\n" for i in range(90)]
    (tmp_path / "labels.tsv").write_text("".join(lines), encoding="utf-8")
    with pytest.raises(GlassError, match="so the head would be random"):
        child_of(parent, tmp_path, train__freeze="head")


def test_a_frozen_output_matrix_costs_no_gradient(tmp_path: Path) -> None:
    """The gradient of the output matrix, the largest tensor of the loss computation, is not computed."""
    parent = parent_of("lm", tmp_path)
    child = child_of(parent, tmp_path, train__freeze="embedding")
    batch = child.stepper.batches(child.task.rows(0))[0]
    loss = child.stepper.loss(batch, 1)
    assert loss.grad_fn is not None
    of_inputs, of_matrix, _ = loss.grad_fn.saved_tensors
    assert of_inputs.any()
    assert of_matrix is None


def test_pruning_a_run_with_frozen_parts_works(tmp_path: Path) -> None:
    """Optimizers that are created again assign the same indices to the parameters as the run's checkpoints."""
    parent = parent_of("lm", tmp_path)
    child = child_of(parent, tmp_path, train__freeze="layers.0")
    train(child)
    run = OpenedRun.load(child.run.folder)
    smaller = prune_model(read_training_state(run, "best"), ["dec.1.self.0"])
    assert smaller.names == ("dec.1.self.0",)
    write_pruned(tmp_path / "smaller", run, smaller, {})
    assert "parent" in json.loads((tmp_path / "smaller" / "manifest.json").read_text())
    train(resumed(tmp_path, "smaller", **{"train.steps": "10"}))


def texts_of(rows: Any) -> Iterator[bytes]:
    return (row.inputs.tobytes() for row in rows)


def test_with_length_buckets_whole_steps_come_from_the_parents_text(tmp_path: Path) -> None:
    parent = parent_of("translate", tmp_path)
    changes = {"data__seed": 11, "train__batch_tokens": 90}
    mixed = child_of(parent, tmp_path, "mixed", data__mix=0.3, **changes)
    assert isinstance(mixed.task, MixedTask)
    repeated = 0
    for step in range(200):
        found = list(texts_of(mixed.task.rows(step)))
        own = list(texts_of(mixed.task.main_task.rows(step)))
        other = list(texts_of(mixed.task.other_task.rows(step)))
        assert found in (own, other)
        repeated += found == other
    assert 40 < repeated < 80


@pytest.mark.parametrize("task", ["lm", "masked", "translate"])
def test_a_fraction_of_the_rows_comes_from_the_parents_text(task: str, tmp_path: Path) -> None:
    parent = parent_of(task, tmp_path)
    changes = {"data__seed": 11, "train__batch": 40}
    plain = child_of(parent, tmp_path, "plain", **changes)
    mixed = child_of(parent, tmp_path, "mixed", data__mix=0.25, **changes)
    assert isinstance(mixed.task, MixedTask)
    assert not isinstance(plain.task, MixedTask)
    repeated = 0
    for step in range(25):
        own = list(texts_of(plain.task.rows(step)))
        found = list(texts_of(mixed.task.rows(step)))
        other = set(texts_of(mixed.task.other_task.rows(step)))
        assert found == list(texts_of(mixed.task.rows(step)))  # a function of the step
        assert len(found) == len(own)
        differing = [text for text, before in zip(found, own, strict=True) if text != before]
        assert set(differing) <= other
        repeated += len(differing)
    assert 0.18 * 1000 < repeated <= 0.32 * 1000
    assert list(texts_of(plain.task.held_out(None))) == list(texts_of(mixed.task.held_out(None)))


def test_a_mixed_run_resumes_bit_for_bit_without_its_parent(tmp_path: Path) -> None:
    parent = parent_of("lm", tmp_path)
    straight = child_of(parent, tmp_path, "straight", data__mix=0.4)
    train(straight)
    killed_after(child_of(parent, tmp_path, "broken", data__mix=0.4), 5)
    shutil.rmtree(parent)
    again = resumed(tmp_path, "broken")
    train(again)
    assert same(last_weights(straight), last_weights(again))


def test_a_parent_with_removed_heads_can_be_used(tmp_path: Path) -> None:
    parent = parent_of("lm", tmp_path, model__removed_heads=["dec.0.self.1", "dec.1.self.0"])
    child = child_of(parent, tmp_path)
    train(child)
    assert child.config.model.removed_heads == ("dec.0.self.1", "dec.1.self.0")


def test_rows_of_a_classifiers_head_follow_their_labels(tmp_path: Path) -> None:
    """An estimator sorts integer labels as numbers, a new run sorts them as texts; imports have any order."""
    pytest.importorskip("sklearn")
    from glassformer.interop.sklearn import TransformerClassifier

    texts = [f"{'abcdefghijkl'[number % 12] * 3} {number // 12}" for number in range(480)]
    labels = [number % 12 for number in range(480)]
    settings = {"train.learning_rate": 0.01, "tokenizer.kind": "characters", "train.threads": 1}
    estimator = TransformerClassifier(
        layers=1, width=16, heads=2, epochs=8, validation_fraction=0, random_state=0, settings=settings
    ).fit(texts, labels)
    assert estimator.score(texts, labels) == 1
    estimator.save(tmp_path / "numbered")
    assert Run(tmp_path / "numbered").labels() == tuple(map(str, range(12)))
    table = tmp_path / "labels.tsv"
    table.write_text("".join(f"{text}\t{label}\n" for text, label in zip(texts, labels, strict=True)))
    slow = {"train.learning_rate": 1e-9, "train.warmup": 0, "train.threads": 1}
    child = gf.fit(table, begin_from=tmp_path / "numbered", steps=1, out=tmp_path / "child", settings=slow)
    assert child.run.labels == tuple(sorted(map(str, range(12))))
    assert [found.label for found in child.run.text_model.classify(texts)] == list(map(str, labels))


@pytest.mark.parametrize(
    ("names", "random_rows", "said"),
    [
        (("even", "odd"), (), None),
        (("big", "even", "odd"), (0,), "partly new (random weights: big; kept: even, odd)"),
        (("even", "neither"), (1,), "partly new (random weights: neither; kept: even; not in this text: odd)"),
        (("left", "right"), (0, 1), "is new (random weights: left, right; not in this text: even, odd)"),
    ],
)
def test_labels_that_the_parent_has_keep_their_weights(
    names: tuple[str, ...], random_rows: tuple[int, ...], said: str | None, tmp_path: Path
) -> None:
    parent = parent_of("classify", tmp_path)
    parent_labels = Run(parent).labels()
    table = tmp_path / "more.tsv"
    table.write_text("".join(f"ab {i} xyz\t{names[i % len(names)]}\n" for i in range(90)), encoding="utf-8")
    settings = {"train.learning_rate": 1e-12, "train.warmup": 0, "train.threads": 1}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        child = gf.fit(table, begin_from=parent, steps=1, out=tmp_path / "child", settings=settings)
    best = load_tensors(Run(parent).checkpoint("best") / "model.safetensors")
    own = child.model.state_dict()
    for row, name in enumerate(names):
        for part in ("head.weight", "head.bias"):
            kept = name in parent_labels and torch.allclose(own[part][row], best[part][parent_labels.index(name)])
            assert kept == (row not in random_rows)
    notes = [str(each.message) for each in caught]
    assert [said for note in notes if said is not None and said in note] == ([] if said is None else [said])
    assert any("head of the classifier" in note for note in notes) == (said is not None)
