"""Training: gradients, resumed runs, evaluation that does not change training, settings, and reasons to stop."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer.base.config import TrainConfig
from glassformer.base.errors import GlassError
from glassformer.model.build import build_model
from glassformer.model.weights import load_weights
from glassformer.runs.folder import Run
from glassformer.text.rows import Row
from glassformer.training import loop
from glassformer.training.checkpoint import save_checkpoint, save_state, seed_torch, step_name
from glassformer.training.loop import train
from glassformer.training.optimizers import make_optimizers
from glassformer.training.reporting import Silent
from glassformer.training.trainer import Trainer
from glassformer.training.validation import validation_loss
from tests.property.models import VOCAB, decoder, tiny, tokens
from tests.property.trainers import (
    killed_after,
    last_weights,
    resumed,
    same,
    small_trainer,
    stop_after,
    take_step,
    weights,
)


def gradients(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in trainer.model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("micro", [1, 2, 3])
def test_gradients_do_not_depend_on_how_ragged_rows_are_grouped(tmp_path: Path, micro: int) -> None:
    options: dict[str, Any] = {"data__windows": "documents", "model__dropout_residual": 0.0, "train__batch": 7}
    whole = small_trainer(tmp_path, "whole", **options)
    parts = small_trainer(tmp_path, "parts", train__micro_batch=micro, **options)
    for trainer in (whole, parts):
        trainer.model.train()
    data = whole.task
    rows = [
        Row.of_text(data.train.tokens[start : start + length + 1])
        for start, length in zip(range(0, 70, 10), range(2, 9), strict=True)
    ]
    loss, targets = loop.accumulate_gradients(whole.stepper, whole.stepper.batches(rows))
    assert targets == sum(range(2, 9))
    loss_in_parts, _ = loop.accumulate_gradients(parts.stepper, parts.stepper.batches(rows))
    assert loss_in_parts == pytest.approx(loss, abs=1e-6)
    ours = gradients(parts)
    for name, gradient in gradients(whole).items():
        torch.testing.assert_close(ours[name], gradient, atol=1e-6, rtol=0)


def test_weight_decay_is_taken_off_the_weights() -> None:
    """The decay is not part of the gradient: with gradient 0, a matrix shrinks by rate times decay, and nothing else
    changes."""
    model = decoder(tiny(norm_bias=True)).requires_grad_()
    (optimizer,) = make_optimizers(model, TrainConfig(learning_rate=0.1, weight_decay=0.5))
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in model.named_parameters():
        left = 1 - 0.1 * 0.5 if parameter.ndim >= 2 else 1
        torch.testing.assert_close(parameter.detach(), left * before[name], msg=name)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"train__optimizer": "muon", "train__schedule": "wsd"},
        {"train__schedule": "plateau", "train__plateau_patience": 0, "train__warmup": 0},
        {"data__windows": "documents", "train__micro_batch": 2, "model__dropout_attention": 0.2},
    ],
)
@pytest.mark.parametrize("stop", [1, 7, 11])
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(tmp_path: Path, changes: dict[str, Any], stop: int) -> None:
    straight = small_trainer(tmp_path, "straight", **changes)
    train(straight)
    broken = small_trainer(tmp_path, "broken", **changes)
    killed_after(broken, stop)
    again = resumed(tmp_path, "broken")
    assert again.state.step <= stop
    train(again)
    assert same(last_weights(straight), last_weights(again))
    without_clock = [
        [{k: v for k, v in json.loads(line).items() if k != "train_seconds"} for line in text.splitlines()]
        for text in (t.run.metrics_file.read_text(encoding="utf-8") for t in (straight, again))
    ]
    assert without_clock[0] == without_clock[1]


def test_a_tied_head_is_one_matrix_in_memory_and_in_the_file(tmp_path: Path) -> None:
    model, other, own = (build_model(tiny(tied=tied), VOCAB, seed) for tied, seed in ((True, 1), (True, 2), (False, 1)))
    sizes = [sum(parameter.numel() for parameter in each.parameters()) for each in (model, own)]
    assert sizes[1] - sizes[0] == VOCAB * model.config.width
    save_state(tmp_path, model, make_optimizers(model, TrainConfig()))
    load_weights(other, tmp_path / "model.safetensors")
    assert torch.equal(other(tokens(2, 7)), model(tokens(2, 7)))


@pytest.mark.thorough
def test_evaluation_and_logging_do_not_change_training(tmp_path: Path) -> None:
    quiet = small_trainer(tmp_path, "quiet", train__evaluate_every=24, train__log_every=24, train__save_every=24)
    busy = small_trainer(tmp_path, "busy", train__evaluate_every=1, train__log_every=1, train__save_every=1)
    seeded = small_trainer(tmp_path, "seeded", sample__temperature=1.5, sample__seed=9, train__evaluate_every=2)
    for trainer in (quiet, busy, seeded):
        train(trainer)
    assert same(last_weights(quiet), last_weights(busy))
    assert same(last_weights(quiet), last_weights(seeded))


def test_the_seed_is_all_that_makes_two_runs_differ(tmp_path: Path) -> None:
    first = small_trainer(tmp_path, "a")
    second = small_trainer(tmp_path, "b")
    other = small_trainer(tmp_path, "c", train__seed=1)
    for trainer in (first, second, other):
        torch.rand(1)  # other code draws random numbers meanwhile
        train(trainer)
    assert same(last_weights(first), last_weights(second))
    assert not same(last_weights(first), last_weights(other))


@pytest.mark.parametrize("fault", ["weight", "output", "gradient"])
def test_a_non_finite_loss_stops_before_the_step_and_names_the_tensor(tmp_path: Path, fault: str) -> None:
    trainer = small_trainer(tmp_path)
    save_checkpoint(trainer.run, trainer.model, trainer.optimizers, trainer.state, trainer.config)
    take_step(trainer)
    block = trainer.model.stack.blocks[1]
    if fault == "weight":
        with torch.no_grad():
            block.feedforward.up.weight[3, 5] = math.inf
        culprit = "the weight stack.blocks.1.feedforward.up.weight"
    elif fault == "output":
        block.attention.value.register_forward_hook(lambda module, inputs, output: output * math.inf)
        culprit = "the output of stack.blocks.1.attention.value"
    else:
        block.feedforward.up.weight.register_hook(lambda gradient: gradient * math.nan)
        culprit = "the gradient of stack.blocks.1.feedforward.up.weight"
    before = weights(trainer)
    with pytest.raises(GlassError) as caught:
        train(trainer)
    assert "step 2 was not taken" in caught.value.problem
    assert culprit in caught.value.problem
    assert "step-000000 is intact" in caught.value.remedy
    assert trainer.state.step == 1
    after = weights(trainer)
    assert all(torch.equal(before[name].nan_to_num(), after[name].nan_to_num()) for name in before)


@pytest.mark.thorough
def test_training_stops_for_each_reason(tmp_path: Path) -> None:
    outcome = train(small_trainer(tmp_path, "loss", train__until_loss=3.4, train__steps=500, train__evaluate_every=5))
    assert outcome is not None
    assert "reached 3.4" in outcome.reason
    assert outcome.validation.loss <= 3.4 + 1e-6
    still = train(
        small_trainer(
            tmp_path,
            "patience",
            train__patience=2,
            train__steps=500,
            train__learning_rate=1e-12,
            train__weight_decay=0.0,
        )
    )
    assert still is not None
    assert "2 evaluations brought no improvement" in still.reason
    timed = train(small_trainer(tmp_path, "minutes", train__minutes=0.01, train__steps=None))
    assert timed is not None
    assert "train.minutes = 0.01 leaves no time" in timed.reason
    asked = small_trainer(tmp_path, "asked")
    asked.stop_requested = True
    assert train(asked) is None
    assert resumed(tmp_path, "asked").state.step == asked.state.step


def test_the_best_checkpoint_is_kept_and_reported(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, train__steps=60, train__learning_rate=0.05, train__schedule="constant")
    outcome = train(trainer)
    assert outcome is not None
    best_step, best = min(trainer.state.evaluations, key=lambda pair: pair[1])
    assert outcome.step == best_step
    assert outcome.validation.loss == pytest.approx(best, abs=1e-6)
    assert outcome.validation.tokens == len(trainer.task.validation.tokens) - 1
    assert trainer.run.checkpoint("best").name == f"step-{best_step:06d}"
    assert trainer.run.checkpoint("last").name == "step-000060"
    assert {path.name for path in trainer.run.checkpoints_folder.iterdir()} == {f"step-{best_step:06d}", "step-000060"}
    assert (trainer.run.folder / "loss.svg").read_text(encoding="utf-8").startswith("<svg")
    assert "--- step 60" in trainer.run.samples_file.read_text(encoding="utf-8")


MATTERS: dict[str, Any] = {
    "seed": 5,
    "batch": 4,
    "micro_batch": 2,
    "optimizer": "muon",
    "learning_rate": 2e-3,
    "muon_learning_rate": 0.1,
    "muon_momentum": 0.5,
    "beta1": 0.5,
    "beta2": 0.5,
    "epsilon": 1e-2,
    "weight_decay": 0.5,
    "clip": 0.01,
    "schedule": "constant",
    "warmup": 9,
    "final_rate": 0.5,
    "decay_share": 0.9,
    "plateau_factor": 0.9,
    "plateau_patience": 0,
    "precision": "bf16",
    "muon_precision": "bf16",
    "steps": 25,
    "label_smoothing": 0.1,
    "average": "ema",
    "average_decay": 0.2,
    "freeze": ["layers.0"],
}
NEEDS: dict[str, dict[str, Any]] = {
    "muon_learning_rate": {"train__optimizer": "muon"},
    "muon_momentum": {"train__optimizer": "muon"},
    "muon_precision": {"train__optimizer": "muon"},
    "average_decay": {"train__average": "ema"},
    "decay_share": {"train__schedule": "wsd"},
    "plateau_factor": {
        "train__schedule": "plateau",
        "train__plateau_patience": 0,
        "train__learning_rate": 0.3,
        "train__evaluate_every": 1,
    },
    "plateau_patience": {
        "train__schedule": "plateau",
        "train__learning_rate": 0.3,
        "train__evaluate_every": 1,
        "train__plateau_patience": 3,
    },
    "micro_batch": {"model__dropout_residual": 0.2},
}
SEEN_ELSEWHERE = {
    "device",
    "threads",
    "minutes",
    "until_loss",
    "patience",
    "evaluate_every",
    "evaluate_tokens",
    "save_every",
    "log_every",
    "snapshots",
    "task",
    "batch_tokens",
    "mask_share",
    "shard",
    "compile",
    "checkpoint_blocks",
}


def test_every_training_setting_is_tested() -> None:
    assert set(MATTERS) | SEEN_ELSEWHERE == set(TrainConfig.model_fields)


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Trainer]:
    """Return a function that trains a run with the setting unchanged; settings with the same needs share a run."""
    made: dict[str, Trainer] = {}

    def finished(name: str) -> Trainer:
        needs = NEEDS.get(name, {})
        if (key := repr(needs)) not in made:
            made[key] = small_trainer(tmp_path_factory.mktemp("unchanged"), **needs)
            train(made[key])
        return made[key]

    return finished


@pytest.mark.thorough
@pytest.mark.parametrize("name", MATTERS)
def test_a_training_setting_changes_the_weights(tmp_path: Path, name: str, unchanged: Callable[[str], Trainer]) -> None:
    changed = small_trainer(tmp_path, **{**NEEDS.get(name, {}), f"train__{name}": MATTERS[name]})
    train(changed)
    assert not same(last_weights(unchanged(name)), last_weights(changed))


def test_cadence_settings_change_what_is_written(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, train__log_every=5, train__evaluate_every=7, train__evaluate_tokens=30)
    train(trainer)
    lines = [json.loads(line) for line in trainer.run.metrics_file.read_text(encoding="utf-8").splitlines()]
    assert [line["step"] for line in lines] == [5, 7, 10, 14, 15, 20, 21, 24]
    assert [line["step"] for line in lines if "validation_loss" in line] == [7, 14, 21, 24]
    whole = small_trainer(tmp_path, "whole", train__evaluate_every=7, train__evaluate_tokens=None)
    train(whole)
    assert whole.state.evaluations != trainer.state.evaluations


@pytest.mark.thorough
def test_random_tokens_cannot_be_learnt(tmp_path: Path) -> None:
    """A model whose loss on uniform tokens is clearly below ln V has seen its targets."""
    from glassformer.launch.request import merge_settings, source_settings
    from glassformer.training.setup import new_training

    changes = {
        "train.steps": "300",
        "train.batch": "16",
        "model.context": "32",
        "model.layers": "2",
        "model.width": "32",
        "model.heads": "2",
        "train.log_every": "1",
        "train.evaluate_every": "300",
        "train.threads": "1",
        "train.learning_rate": "3e-3",
    }
    config = merge_settings(None, None, {**changes, **source_settings("random")})
    with new_training(config, tmp_path / "run", Silent()) as trainer:
        train(trainer)
    floor = 0.98 * math.log(trainer.task.tokenizer.vocab_size)
    losses = [json.loads(line)["loss"] for line in trainer.run.metrics_file.read_text(encoding="utf-8").splitlines()]
    assert len(losses) == 300
    assert min(losses) >= floor


def test_a_lost_best_checkpoint_does_not_stop_a_resumed_run(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path)
    stop_after(trainer, 9)
    best = trainer.run.checkpoint("best")
    assert (best.name, trainer.run.checkpoint("last").name) == ("step-000006", "step-000009")
    (best / "model.safetensors").write_bytes(b"cut short")
    outcome = train(resumed(tmp_path))
    assert outcome is not None
    assert outcome.step >= 9
    assert trainer.run.checkpoint("best").name == f"step-{outcome.step:06d}"


def test_the_newest_checkpoint_has_the_highest_step(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for step in (999_000, 1_200_000):
        (run.checkpoints_folder / step_name(step)).mkdir(parents=True)
    assert [path.name for path in run.all_checkpoints()] == ["step-999000", "step-1200000"]


def test_with_a_lowered_limit_the_last_weights_are_evaluated(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, train__steps=100, train__evaluate_every=1000)
    stop_after(trainer, 9)
    outcome = train(resumed(tmp_path, **{"train.steps": "5"}))
    assert outcome is not None
    assert (outcome.step, outcome.last_step) == (9, 9)


def test_a_run_resumed_with_steps_ends_at_the_steps(tmp_path: Path) -> None:
    """A run with a time limit that is resumed with steps loses its time limit, and vice versa."""
    timed = small_trainer(tmp_path, "run", train__steps=None, train__minutes=0.0005)
    train(timed)
    more = timed.state.step + 3
    again = resumed(tmp_path, **{"train.steps": str(more)})
    assert (again.config.train.minutes, again.config.train.steps) == (None, more)
    outcome = train(again)
    assert outcome is not None
    assert outcome.last_step == more
    third = resumed(tmp_path, **{"train.minutes": "5"})
    assert (third.config.train.minutes, third.config.train.steps) == (5, None)


def test_seeding_is_that_of_torch() -> None:
    seed_torch(7)
    ours = torch.rand(7)
    torch.manual_seed(7)
    assert torch.equal(ours, torch.rand(7))


def test_the_last_evaluation_is_not_made_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The final loss is over the whole validation split, which an evaluation of the best step may have measured."""
    measured: list[int] = []

    def counting(model: Any, rows: Any, *arguments: Any, **settings: Any) -> Any:
        measured.append(len(rows))
        return validation_loss(model, rows, *arguments, **settings)

    monkeypatch.setattr("glassformer.training.trainer.validation_loss", counting)
    whole = small_trainer(tmp_path, "whole", train__steps=6, train__evaluate_every=6, train__evaluate_tokens=None)
    outcome = train(whole)
    assert outcome is not None
    assert len(measured) == 1
    assert outcome.validation.loss == whole.state.evaluations[-1][1]
    measured.clear()
    part = small_trainer(tmp_path, "part", train__steps=6, train__evaluate_every=6, train__evaluate_tokens=100)
    again = train(part)
    assert again is not None
    assert len(measured) == 2
    assert measured[0] < measured[1]
    assert again.validation.loss == outcome.validation.loss
