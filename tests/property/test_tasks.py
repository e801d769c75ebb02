"""All tasks with one trainer: padding, causality, batching, gradients, and bit-identical resuming."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.base.config import EXAMPLES, TASK_FACTS
from glassformer.base.errors import GlassError
from glassformer.tasks import MaskFiller, TextClassifier, Translator
from glassformer.tasks.example_tasks import (
    ChatTask,
    ClassTask,
    PairTask,
    conversation_rows,
    labelled_rows,
    pair_rows,
    row_lengths,
)
from glassformer.tasks.losses import logits_of, summed_loss, token_losses
from glassformer.tasks.task import MaskedTask
from glassformer.text.batches import Batch
from glassformer.text.buckets import AnyLength, LengthGroupedBatches
from glassformer.text.rows import MASK_REPLACE_PROBABILITY, RANDOM_REPLACE_PROBABILITY, Row, mask
from glassformer.training.loop import accumulate_gradients, train
from glassformer.training.setup import fresh_model
from glassformer.training.trainer import Trainer
from tests.property.models import VOCAB, as_if_trained, tiny
from tests.property.task_trainers import TASKS, trainer_of
from tests.property.trainers import killed_after, last_weights, resumed, same


def gradients(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in trainer.model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("micro", [1, 3, 4])
@pytest.mark.parametrize("task", TASKS)
def test_gradients_do_not_depend_on_how_a_ragged_batch_is_accumulated(tmp_path: Path, task: str, micro: int) -> None:
    options = {"train__batch": 32, "model__dropout_residual": 0.0, "train__label_smoothing": 0.1}
    whole = trainer_of(task, tmp_path, "whole", train__micro_batch=32, **options)
    parts = trainer_of(task, tmp_path, "parts", train__micro_batch=micro, **options)
    rows = whole.task.rows(3)
    assert len({len(row) for row in rows}) > 1, "the rows are meant to be ragged"
    found = []
    for trainer in (whole, parts):
        trainer.model.train()
        batches = trainer.stepper.batches(rows)
        found.append(accumulate_gradients(trainer.stepper, batches))
    assert len(parts.stepper.batches(rows)) == -(-32 // micro)
    assert found[0][1] == found[1][1]
    assert found[0][0] == pytest.approx(found[1][0], abs=1e-6)
    ours = gradients(parts)
    for name, gradient in gradients(whole).items():
        torch.testing.assert_close(ours[name], gradient, atol=1e-6, rtol=0)


@pytest.mark.parametrize("task", TASKS)
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(tmp_path: Path, task: str) -> None:
    changes: dict[str, Any] = {"train__batch_tokens": 90} if task in EXAMPLES else {}
    straight = trainer_of(task, tmp_path, "straight", **changes)
    train(straight)
    broken = trainer_of(task, tmp_path, "broken", **changes)
    killed_after(broken, 9)
    again = resumed(tmp_path, "broken")
    assert again.state.step == 8
    train(again)
    assert same(last_weights(straight), last_weights(again))


@pytest.mark.parametrize("task", EXAMPLES)
def test_a_step_counts_the_tokens_that_the_model_reads(tmp_path: Path, task: str) -> None:
    trainer = trainer_of(task, tmp_path, model__context=8, data__too_long="cut", train__batch_tokens=90)
    assert isinstance(trainer.task, ClassTask | PairTask | ChatTask)
    store = trainer.task.data.train
    rows_of = {"pairs": pair_rows, "labelled": labelled_rows, "conversations": conversation_rows}
    rows = rows_of[TASK_FACTS[trainer.config.train.task].records](store, trainer.config)
    read = [[len(row.inputs)] if row.source is None else [len(row.source), len(row.inputs)] for row in rows]
    lengths = row_lengths(store, trainer.config)
    assert lengths.tolist() == read
    assert (store.lengths().max(axis=1) > 8).any(), "some texts are meant to be longer than the context"
    assert max(len(trainer.task.rows(step)) for step in range(4)) >= 90 // max(map(sum, read))


@pytest.mark.thorough
@pytest.mark.parametrize("task", TASKS)
def test_evaluation_and_logging_do_not_change_training(tmp_path: Path, task: str) -> None:
    quiet = trainer_of(task, tmp_path, "quiet", train__evaluate_every=16, train__log_every=16)
    busy = trainer_of(task, tmp_path, "busy", train__evaluate_every=1, train__log_every=1)
    for trainer in (quiet, busy):
        train(trainer)
    assert same(last_weights(quiet), last_weights(busy))


@pytest.mark.thorough
@pytest.mark.parametrize("task", TASKS)
def test_every_task_learns_from_an_initial_loss_at_chance(tmp_path: Path, task: str) -> None:
    source = {"lm": "stories", "masked": "stories", "translate": "sort"}.get(task)
    easy: dict[str, Any] = {} if source is None else {"data__source": source}
    trainer = trainer_of(
        task,
        tmp_path,
        train__steps=60,
        train__learning_rate=1e-2,
        train__evaluate_every=60,
        train__batch=16,
        model__dropout_residual=0.0,
        model__width=32,
        model__hidden=64,
        model__tied=False,
        **easy,
    )
    rows = trainer.task.held_out(None)
    seeds = [trainer.config.replace(train=trainer.config.train.replace(seed=seed).model_dump()) for seed in range(5)]
    models = [fresh_model(config, trainer.task.data) for config in seeds]
    first = statistics.mean(trainer._loss_of(model, rows).loss for model in models)
    assert first == pytest.approx(math.log(trainer.task.choices), rel=0.02)
    outcome = train(trainer)
    assert outcome is not None
    assert outcome.validation.loss < 0.9 * first
    assert (outcome.bits_per_byte is None) == (task in ("masked", "classify", "chat"))


@pytest.mark.parametrize("task", TASKS)
def test_padding_and_batch_do_not_change_the_loss(tmp_path: Path, task: str) -> None:
    trainer = trainer_of(task, tmp_path)
    model = trainer.model.eval()
    collate = Batch.from_rows
    rows = sorted(trainer.task.rows(0), key=len)
    with torch.no_grad():
        together = collate(rows)
        losses = token_losses(logits_of(model, together), together).sum(dim=1)  # (B)
        alone = torch.stack([token_losses(logits_of(model, b), b).sum() for b in (collate([row]) for row in rows)])
        torch.testing.assert_close(losses, alone, atol=1e-5, rtol=0)
        noisy = collate(rows)
        noisy.inputs[~noisy.attention_mask] = 3
        if noisy.source is not None and noisy.source_attention_mask is not None:
            noisy.source[~noisy.source_attention_mask] = 3
        again = token_losses(logits_of(model, noisy), noisy).sum(dim=1)
    assert bool((~together.attention_mask).any()), "there is no padding to spoil"
    assert torch.equal(losses, again)


@pytest.mark.parametrize("task", TASKS)
def test_unscored_positions_get_no_gradient(tmp_path: Path, task: str) -> None:
    trainer = trainer_of(task, tmp_path)
    batch = Batch.from_rows(trainer.task.rows(0))
    logits = logits_of(trainer.model, batch)
    logits.retain_grad()
    summed_loss(logits, batch).backward()
    assert logits.grad is not None
    per_place = logits.grad.abs().sum(dim=-1).reshape(batch.loss_mask.shape)  # (B, T) or (B, 1)
    assert bool((per_place[~batch.loss_mask] == 0).all())
    assert bool((per_place[batch.loss_mask] > 0).all())


def test_a_pair_is_shifted_once_and_ends_are_where_they_belong() -> None:
    end = VOCAB - 1
    rows = [
        Row.of_text(np.array([end, 5, 6, 7, end]), source=np.array([3, 4, end])),
        Row.of_text(np.array([end, 9, end]), source=np.array([8, end])),
    ]
    batch = Batch.from_rows(rows)
    assert batch.source is not None
    assert batch.source_attention_mask is not None
    assert batch.source.tolist() == [[3, 4, end], [8, end, 0]]
    assert batch.source_attention_mask.tolist() == [[True] * 3, [True, True, False]]
    assert batch.inputs.tolist() == [[end, 5, 6, 7], [end, 9, 0, 0]]
    assert batch.targets.tolist() == [[5, 6, 7, end], [9, end, 0, 0]]
    assert batch.loss_mask.tolist() == [[True] * 4, [True, True, False, False]]
    assert batch.n_targets == 6


def test_a_target_token_is_predicted_from_the_ones_before_it_and_the_whole_source() -> None:
    model = as_if_trained(tiny(family="encoder-decoder"))
    row = Row.of_text(np.array([30, 5, 6, 7, 8, 30]), source=np.array([3, 4, 11, 30]))
    changed = Row.of_text(np.array([30, 5, 6, 9, 8, 30]), source=np.array([3, 4, 11, 30]))
    other = Row.of_text(row.ids, source=np.array([3, 4, 12, 30]))
    with torch.no_grad():
        first, later, source = (logits_of(model, Batch.from_rows([each]))[0] for each in (row, changed, other))
    assert torch.equal(first[:3], later[:3])
    assert bool((first[3:] != later[3:]).any(dim=-1).all())
    assert bool((first != source).any(dim=-1).all())


def test_labels_are_not_shifted() -> None:
    batch = Batch.from_rows([Row(np.array([30, 5, 6]), np.array([2])), Row(np.array([30]), np.array([0]))])
    assert batch.inputs.tolist() == [[30, 5, 6], [30, 0, 0]]
    assert batch.attention_mask.tolist() == [[True] * 3, [True, False, False]]
    assert batch.targets.tolist() == [[2], [0]]
    assert batch.n_targets == 2


@settings(max_examples=60)
@given(length=st.integers(1, 40), share=st.floats(0.01, 0.99), key=st.tuples(st.integers(0, 2**63), st.integers(0, 99)))
def test_masked_positions_follow_their_definition(length: int, share: float, key: tuple[int, int]) -> None:
    row = np.arange(length) % 29
    row[0] = 29  # the end token is never masked
    words = np.arange(29)
    found = mask(row, share, 30, words, key)
    assert found.loss_mask is not None
    assert found.targets.tolist() == row.tolist()
    assert int(found.loss_mask.sum()) == (max(1, round(share * (length - 1))) if length > 1 else 0)
    assert not found.loss_mask[0]
    assert bool((found.inputs[~found.loss_mask] == row[~found.loss_mask]).all())
    again = mask(row, share, 30, words, key)
    other = mask(row, share, 30, words, (key[0], key[1] + 1))
    assert again.inputs.tolist() == found.inputs.tolist()
    if length > 25 and 0.2 < share < 0.8:
        assert other.loss_mask.tolist() != found.loss_mask.tolist()


def test_masking_hides_80_percent_replaces_10_and_keeps_10() -> None:
    rows = [mask(np.full(1000, 7), 0.15, 100, np.arange(99), (5, number)) for number in range(200)]
    chosen = np.concatenate([row.inputs[row.loss_mask] for row in rows])
    assert len(chosen) == 200 * 150
    spread = 4 * math.sqrt(0.16 / len(chosen))
    assert (chosen == 100).mean() == pytest.approx(MASK_REPLACE_PROBABILITY, abs=spread)
    others = (chosen != 100) & (chosen != 7)
    assert others.mean() == pytest.approx(RANDOM_REPLACE_PROBABILITY * 98 / 99, abs=spread)
    assert set(np.unique(chosen)) == set(range(99)) | {100}, "any ordinary token may stand in"


def test_a_mask_is_predicted_from_both_sides(tmp_path: Path) -> None:
    model = as_if_trained(tiny(family="encoder"))
    row = np.array([3, 4, 5, 6, 7])
    with torch.no_grad():
        for place in (1, 4):
            other = row.copy()
            other[place] = 9
            one, two = (
                Batch.from_rows([Row(ids, row, loss_mask=np.array([0, 0, 1, 0, 0], dtype=bool))])
                for ids in (row, other)
            )
            assert bool((logits_of(model, one)[0, 2] != logits_of(model, two)[0, 2]).any())
    assert int(one.loss_mask.sum()) == one.n_targets == 1


@settings(max_examples=60)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=120),
    tokens=st.integers(1, 400),
    seed=st.integers(0, 2**64 - 1),
)
def test_length_buckets_contain_every_example_once_an_epoch(
    lengths: list[tuple[int, int]], tokens: int, seed: int
) -> None:
    plan = LengthGroupedBatches(np.array(lengths), tokens, seed)
    for epoch in (0, 1):
        steps = [plan.step(epoch * plan.steps_per_epoch + at) for at in range(plan.steps_per_epoch)]
        assert sorted(index for step in steps for index in step) == list(range(len(lengths)))
        for step in steps:
            widest = np.array([lengths[index] for index in step]).max(axis=0).sum()
            assert len(step) == 1 or len(step) * widest <= tokens
    assert LengthGroupedBatches(np.array(lengths), tokens, seed).step(plan.steps_per_epoch) == plan.step(
        plan.steps_per_epoch
    )


def test_length_buckets_have_little_padding_and_a_new_order_each_epoch() -> None:
    drawn = np.random.Generator(np.random.PCG64(0)).integers(3, 60, (3000, 1)) + np.array([[0, 3]])
    plan = LengthGroupedBatches(drawn, 2000, seed=1)
    first = [plan.step(at) for at in range(plan.steps_per_epoch)]
    second = [plan.step(plan.steps_per_epoch + at) for at in range(plan.steps_per_epoch)]
    padding = sum(len(step) * int(drawn[step].max(axis=0).sum()) for step in first) / int(drawn.sum()) - 1
    assert padding < 0.05
    assert first != second
    assert sorted(map(sorted, first)) != sorted(map(sorted, second)), "equal lengths change places"
    sizes = [int(drawn[step].max()) for step in first]
    assert sizes != sorted(sizes), "short ones do not come first"


def test_every_example_of_any_length_occurs_once_an_epoch() -> None:
    order = AnyLength(7, 3, seed=5)
    taken = [index for step in range(7) for index in order.step(step)]
    assert sorted(taken) == sorted([*range(7)] * 3)
    assert taken[:7] != taken[7:14]


@pytest.mark.parametrize(("pooling", "expected"), [("first", False), ("mean", True)])
def test_pooling_reads_the_first_vector_or_all(pooling: str, expected: bool) -> None:
    """With a window of one, no token attends to another, so only mean pooling can see the last token."""
    model = as_if_trained(tiny(family="encoder", classes=5, pooling=pooling, window=1))
    tokens = torch.tensor([[30, 4, 5]])
    with torch.no_grad():
        changed = not torch.equal(model(tokens), model(torch.tensor([[30, 4, 9]])))
        padded = model(torch.tensor([[30, 4, 5, 0]]), torch.tensor([[True, True, True, False]]))
    assert changed == expected
    torch.testing.assert_close(padded, model(tokens).detach(), atol=1e-6, rtol=0)


def test_too_long_examples_are_cut_left_out_or_refused(tmp_path: Path) -> None:
    rows = [f"{'a' * n}\t{'b' * n}" for n in (3, 5, 40, 4, 6, 50, 2, 7, 3, 4, 5, 6)]
    (tmp_path / "long.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    said: dict[str, Any] = {"data__source": str(tmp_path / "long.tsv"), "data__split": "end", "model__context": 9}
    cut = trainer_of("translate", tmp_path, "cut", **said)
    lengths = [(len(row.source), len(row.ids)) for row in (cut.task.rows(step)[0] for step in range(40))]
    assert max(lengths) == (9, 10)
    ends = cut.task.rows(0)[0].inputs[0]
    assert all(row.inputs[0] == ends and row.source[-1] == ends for row in cut.task.rows(1))
    long = [row for step in range(9) for row in cut.task.rows(step) if len(row.ids) == 10]
    assert long
    assert all(row.targets[-1] != ends for row in long), "a target that is cut has no end"
    short = trainer_of("translate", tmp_path, "short", data__too_long="leave_out", **said)
    assert max(len(row) for step in range(9) for row in short.task.rows(step)) <= 9
    with pytest.raises(GlassError, match=r"2 of .* examples are longer than model\.context = 9"):
        trainer_of("translate", tmp_path, "refused", data__too_long="refuse", **said)


@pytest.mark.thorough
def test_a_decoder_that_ignores_its_source_is_reported(tmp_path: Path) -> None:
    trainer = trainer_of("translate", tmp_path, data__size=400)
    measure = lambda rows: trainer._loss_of(trainer.model, rows).loss  # noqa: E731
    said = list(trainer.task.concerns(trainer.model, measure))
    assert len(said) == 1
    assert "ignores its source" in said[0]
    learnt = trainer_of(
        "translate",
        tmp_path,
        "learnt",
        data__source="sort",
        data__size=400,
        train__steps=60,
        train__optimizer="muon",
        train__learning_rate=1e-2,
        train__batch=32,
        model__width=32,
        model__dropout_residual=0.0,
        model__tied=False,
        train__evaluate_every=60,
    )
    train(learnt)
    assert not list(learnt.task.concerns(learnt.model, lambda rows: learnt._loss_of(learnt.model, rows).loss))


def test_too_many_unknown_tokens_are_reported(tmp_path: Path) -> None:
    trainer = trainer_of("translate", tmp_path, tokenizer__min_count=62)
    said = list(trainer.task.concerns(trainer.model, lambda rows: trainer._loss_of(trainer.model, rows).loss))
    assert any("of the tokens are unknown" in each for each in said)


@pytest.mark.parametrize("context", [23, 7])
def test_inference_reads_the_same_tokens_as_training(tmp_path: Path, context: int) -> None:
    """End tokens and truncation are the same in inference and training; otherwise rows would differ."""
    for task in ("translate", "classify"):
        trainer = trainer_of(task, tmp_path, task, model__context=context, data__split="end")
        trained = trainer.task
        assert isinstance(trained, PairTask | ClassTask)
        texts = [source for source, _ in trained.data.train.texts()]
        if isinstance(trained, PairTask):
            user = Translator(trainer.model, trained.data.source_tokenizer, trained.data.tokenizer, trainer.config)
            rows = [row.source.tolist() for row in pair_rows(trained.data.train, trainer.config)]
            assert rows == [user.prompt_ids(text) for text in texts]
        else:
            reader = TextClassifier(trainer.model, trained.data.tokenizer, trained.data.labels, trainer.config)
            rows = [row.inputs.tolist() for row in labelled_rows(trained.data.train, trainer.config)]
            assert rows == [reader.ids(text) for text in texts]
        assert max(map(len, rows)) <= context


def test_a_mask_is_encoded_as_in_training(tmp_path: Path) -> None:
    trainer = trainer_of("masked", tmp_path, data__source="stories", tokenizer__kind="words", model__context=60)
    trained = trainer.task
    assert isinstance(trained, MaskedTask)
    filler = MaskFiller(trainer.model, trained.tokenizer, trainer.config)
    row = trained.tokenizer.encode("One windy day Leo set out.")
    for place, word in enumerate(("One", " windy", " day", " Leo", " set", " out")):
        text = "One windy day Leo set out.".replace(word, f"{' ' if word[0] == ' ' else ''}[MASK]", 1)
        hidden = [trained.tokenizer.end_id, *row[:place], filler.mask_id, *row[place + 1 :]]
        assert filler.ids(text) == hidden


def test_masks_change_in_training_and_are_fixed_in_validation(tmp_path: Path) -> None:
    trainer = trainer_of("masked", tmp_path, data__size=40, train__mask_share=0.4)
    train = trainer.task.rows
    held_out = trainer.task.held_out(None)
    seen: dict[tuple[int, ...], list[tuple[bool, ...]]] = {}
    for step in range(40):
        for row in train(step):
            seen.setdefault(tuple(row.targets.tolist()), []).append(tuple(row.loss_mask.tolist()))
    often = [holes for text, holes in seen.items() if len(text) > 16 and len(holes) > 3]
    assert len(often) > 5
    assert all(len(set(holes)) == len(holes) for holes in often), "a text has other holes each time"
    same_again = trainer.task.held_out(None)
    assert [row.inputs.tolist() for row in held_out] == [row.inputs.tolist() for row in same_again]
    assert [row.inputs.tolist() for row in trainer.task.rows(3)] == [row.inputs.tolist() for row in train(3)]
