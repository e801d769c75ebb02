"""Threads that share a process or a model do not change each other's results: fits, dropout, hooks, modes, engines."""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from glassformer.base.config import ModelConfig
from glassformer.inspection.head_gates import gated
from glassformer.inspection.patching import KnockOut, Patch, Value, Zero, patch
from glassformer.inspection.recording import record
from glassformer.interop.sklearn import TransformerClassifier
from glassformer.model.build import build_model
from glassformer.model.dropout import Dropout, draw_dropout_from
from glassformer.model.evaluation_mode import evaluation_mode, inference
from glassformer.model.transformer import Decoder

TEXTS = [f"{word} number {n}" for n in range(12) for word in ("win a prize", "meet at work")]
LABELS = ["spam", "ham"] * 12
IDS = torch.arange(1, 12)[None]


def model_of(dropout: float = 0.0) -> Decoder:
    config = ModelConfig(
        layers=2, heads=3, width=12, context=16, dropout_residual=dropout, dropout_attention=dropout,
        dropout_embedding=dropout,
    )  # fmt: skip
    model = build_model(config, 17)
    assert isinstance(model, Decoder)
    return model


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Call functions in one thread each, beginning at the same moment; return their results."""
    barrier = threading.Barrier(len(calls))

    def begin(call: Callable[[], Any]) -> Any:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(begin, call) for call in calls]]


def fitted(seed: int) -> list[list[float]]:
    classifier = TransformerClassifier(
        layers=1, width=8, heads=2, dropout=0.3, validation_fraction=0, random_state=seed, verbose=False,
        settings={"train.steps": 6, "train.batch": 8},
    )  # fmt: skip
    return classifier.fit(TEXTS, LABELS).predict_proba(TEXTS[:4]).tolist()


@pytest.mark.thorough
def test_fits_in_threads_equal_fits_alone() -> None:
    alone = [fitted(0), fitted(1)]
    assert alone[0] != alone[1]
    assert together(*[lambda seed=seed: fitted(seed) for seed in (0, 1, 0, 1)]) == [*alone, *alone]


def test_a_fit_draws_nothing_from_the_random_generator_of_the_process() -> None:
    before = torch.get_rng_state()
    seen = []
    model = model_of(0.2)
    draw_dropout_from(model, torch.Generator().manual_seed(1))
    seen.append(torch.equal(torch.get_rng_state(), before))
    model.train()(IDS)
    seen.append(torch.equal(torch.get_rng_state(), before))
    assert seen == [True, True]


def test_dropout_with_its_own_generator_is_that_of_pytorch() -> None:
    x = torch.randn(5, 7, requires_grad=True)
    dropout = Dropout(0.4)
    dropout.generator = torch.Generator().manual_seed(3)
    found = dropout(x)
    torch.manual_seed(3)
    wanted = nn.functional.dropout(x, 0.4)
    assert torch.equal(found, wanted)
    gradients = [torch.autograd.grad(each.square().sum(), x, retain_graph=True)[0] for each in (found, wanted)]
    assert torch.equal(*gradients)
    assert torch.equal(dropout.eval()(x), x)
    assert copy.deepcopy(dropout).generator is None


PATCHES: dict[str, dict[str, Patch]] = {
    "output": {"dec.0.feedforward": Zero()},
    "head": {"dec.1.self.2": Zero()},
    "pattern": {"dec.0.self": KnockOut()},
    "stream": {"dec.1.resid": Value(torch.ones(1, 11, 12))},
    "mask": {"dec.mask": Zero()},
    "embedding": {"dec.embedding": Zero()},
}


@pytest.mark.parametrize("name", PATCHES)
def test_a_patch_is_visible_only_in_its_thread(name: str) -> None:
    model = model_of().eval()

    def logits() -> Tensor:
        with inference(model):
            return model(IDS)

    whole = logits()
    with patch(model, PATCHES[name]), ThreadPoolExecutor(1) as pool:
        here, elsewhere = logits(), pool.submit(logits).result()
        with patch(model, {"dec.1.feedforward": Zero()}) if name != "mask" else patch(model, {}):
            pass
        pool.submit(record, model, IDS, keep=("pattern",)).result()
        assert torch.equal(logits(), here)
    assert not torch.allclose(here, whole, atol=1e-3)
    assert torch.equal(elsewhere, whole)
    assert torch.equal(logits(), whole)


def test_two_threads_may_patch_one_activation() -> None:
    model = model_of().eval()

    def patched() -> Tensor:
        with patch(model, {"dec.0.self.1": Zero()}), inference(model):
            return model(IDS)

    with patch(model, {"dec.0.self.1": Value(torch.ones(1, 11, 4))}), ThreadPoolExecutor(1) as pool:
        zeroed = pool.submit(patched).result()
    assert torch.equal(zeroed, patched())


def test_gates_are_visible_only_in_their_thread() -> None:
    model = model_of().eval()
    whole = model(IDS)
    with gated(model, {"dec.0.self": torch.zeros(3)}), ThreadPoolExecutor(1) as pool:
        assert not torch.equal(model(IDS), whole)
        assert torch.equal(pool.submit(model, IDS).result(), whole)


@pytest.mark.thorough
def test_many_threads_that_patch_gate_and_record_one_model() -> None:
    model = model_of().eval()
    kinds = list(PATCHES)

    def logits(kind: str) -> Tensor:
        if kind == "whole":
            with inference(model):
                return model(IDS)
        if kind == "gates":
            with gated(model, {"dec.1.self": torch.tensor([0.0, 1.0, 2.0])}), inference(model):
                return model(IDS)
        if kind == "record":
            return record(model, IDS, keep=("pattern",))["dec.1.self.pattern"]
        with patch(model, PATCHES[kind]), inference(model):
            return model(IDS)

    names = [*kinds, "whole", "gates", "record"]
    wanted = {name: logits(name) for name in names}

    def hammer(seed: int) -> int:
        order = random.Random(seed)
        return sum(not torch.equal(logits(name), wanted[name]) for name in order.choices(names, k=300))

    assert together(*[lambda seed=seed: hammer(seed) for seed in range(6)]) == [0] * 6
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_evaluation_mode_ends_with_the_last_thread_that_uses_it() -> None:
    model = model_of(0.5).train()
    with inference(model):
        wanted = model(IDS)
    entered, left = threading.Event(), threading.Event()

    def first() -> None:
        with evaluation_mode(model):
            entered.set()
            second_is_in.wait(10)
        left.set()

    second_is_in = threading.Event()
    thread = threading.Thread(target=first)
    thread.start()
    assert entered.wait(10)
    with inference(model):
        second_is_in.set()
        assert left.wait(10)
        assert torch.equal(model(IDS), wanted)
    thread.join()
    assert all(module.training for module in model.modules())
