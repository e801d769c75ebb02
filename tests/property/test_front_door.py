"""The Python API returns the numbers of the model itself, for five tasks and random texts.

Each number is computed a second time here with plain PyTorch: the module is called with token ids, with forward
hooks on the modules of attention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import glassformer as gf
from glassformer.tasks import MaskFiller, TextClassifier, TextModel, Translator
from tests.fixtures.replaying import RUNS

NAMES = ("lm", "masked", "classify", "translate", "summarize")
TEXTS = st.text(alphabet="adehlost .", min_size=3, max_size=12)
PAIRS = ("translate", "summarize")
LABEL = "sport"


@cache
def opened(name: str) -> gf.Transformer:
    """Return a stored run, opened once."""
    return gf.load(RUNS / name)


def target_of(name: str, written: str) -> str | None:
    """Return the target that the methods of this run take in addition to the text, or None."""
    if name.startswith("classify"):
        return LABEL
    return written if name.startswith(PAIRS) else None


def ids_of(model: gf.Transformer, text: str, target: str | None) -> list[Tensor]:
    """Compute the tensors of ids, (1, T) each, for a call of the module, with the tokenizers only."""
    run = model.text_model
    if isinstance(run, Translator):
        row = [*run.tokenizer.target_start, *run.tokenizer.encode(target or "")]
        return [torch.tensor([run.prompt_ids(text)]), torch.tensor([row])]
    if isinstance(run, TextModel):
        return [torch.tensor([run.prompt_ids(text)])]
    return [torch.tensor([run.frame.around(run.tokenizer.encode(text))])]


def called(model: gf.Transformer, text: str, target: str | None) -> Tensor:
    """Return the logits (T, V) or (C) of the module."""
    with torch.no_grad():
        return model.model(*ids_of(model, text, target))[0]


def attention_of(model: gf.Transformer, part: str = "attention") -> Any:
    """Return an attention module of the first layer of the last stack."""
    stack = model.model.decoder if isinstance(model.text_model, Translator) else model.model.stack
    return getattr(stack.blocks[0], part)


@contextmanager
def hooked(module: nn.Module, hook: Callable[[Tensor], Tensor | None]) -> Iterator[None]:
    """Call `hook` with the output of a module; a tensor that it returns replaces the output."""
    handle = module.register_forward_hook(lambda _module, _inputs, output: hook(output))
    try:
        yield
    finally:
        handle.remove()


def prefix(model: gf.Transformer) -> str:
    """Return the name of the last stack."""
    return "enc" if isinstance(model.text_model, MaskFiller | TextClassifier) else "dec"


@pytest.mark.parametrize("name", NAMES)
@given(text=TEXTS, written=TEXTS)
@settings(max_examples=8)
def test_tokens_and_logits_equal_those_of_the_module(name: str, text: str, written: str) -> None:
    model = opened(name)
    target = None if name.startswith("classify") else target_of(name, written)
    found = model.tokens(text, target)
    *source, row = ids_of(model, text, target)
    assert found.ids.tolist() == row[0].tolist()
    assert len(found) == len(found.texts) == row.shape[1]
    assert (found.source is None) == (not source)
    if found.source is not None:
        assert found.source.ids.tolist() == source[0][0].tolist()
    logits = model.logits(text, target)
    torch.testing.assert_close(logits, called(model, text, target), rtol=0, atol=0)
    assert logits.shape == ((4,) if name.startswith("classify") else (len(found), model.tokenizer.vocab_size))


def loss_of(model: gf.Transformer, text: str, target: str | None) -> float:
    """Return the mean loss in nats, from the module's logits."""
    run = model.text_model
    *_, row = ids_of(model, text, target)
    if isinstance(run, TextClassifier):
        return -float(called(model, text, None).double().log_softmax(-1)[run.labels.index(LABEL)])
    if isinstance(run, MaskFiller):
        losses = []
        for place, id in enumerate(row[0].tolist()):
            if id not in run.tokenizer.special:
                hidden = row.index_fill(1, torch.tensor([place]), run.mask_id)
                with torch.no_grad():
                    losses.append(-float(run.model(hidden)[0, place].double().log_softmax(-1)[id]))
        return sum(losses) / len(losses)
    logits = called(model, text, target).double().log_softmax(-1)  # (T, V)
    following = [*row[0, 1:].tolist(), *([run.tokenizer.end_id] if isinstance(run, Translator) else [])]
    first = len(run.tokenizer.target_start) - 1 if isinstance(run, Translator) else 0
    return -sum(float(logits[place, id]) for place, id in enumerate(following) if place >= first) / (
        len(following) - first
    )


@pytest.mark.parametrize("name", NAMES)
@given(text=TEXTS, written=TEXTS)
@settings(max_examples=8)
def test_the_loss_follows_from_the_logits(name: str, text: str, written: str) -> None:
    model = opened(name)
    target = target_of(name, written)
    assume(set(model.tokens(text).ids.tolist()) - set(model.tokenizer.special))
    assert model.loss(text, target) == pytest.approx(loss_of(model, text, target), abs=1e-5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("part", ["self", "cross"])
@given(text=TEXTS, written=TEXTS, head=st.integers(0, 1))
@settings(max_examples=5)
def test_the_pattern_equals_that_of_the_module(name: str, part: str, text: str, written: str, head: int) -> None:
    model = opened(name)
    if part == "cross" and not isinstance(model.text_model, Translator):
        with pytest.raises(gf.GlassError, match="there is no head"):
            model.attention(text, 0, head, part="cross")
        return
    target = None if name.startswith("classify") else target_of(name, written)
    seen: list[Tensor] = []
    module = attention_of(model, "attention" if part == "self" else "cross")
    with hooked(module.hook_pattern, lambda pattern: seen.append(pattern.clone())):
        called(model, text, target)
    pattern = model.attention(text, 0, head, part=part, target=target)  # type: ignore[arg-type]
    torch.testing.assert_close(pattern, seen[0][0, head], rtol=0, atol=1e-6)
    tokens = model.tokens(text, target)
    keys = tokens.source if part == "cross" else tokens
    assert keys is not None
    assert pattern.shape == (len(tokens), len(keys))
    torch.testing.assert_close(pattern.sum(dim=-1), torch.ones(len(tokens)))
    name_of = f"{prefix(model)}.0.{part}.pattern"
    torch.testing.assert_close(model.record(text, name_of, target)[name_of][0, head], pattern, rtol=0, atol=0)


@pytest.mark.parametrize("name", NAMES)
@given(text=TEXTS, written=TEXTS, data=st.data(), head=st.integers(0, 1))
@settings(max_examples=6)
def test_a_patch_inserts_the_values_of_the_other_text(
    name: str, text: str, written: str, data: st.DataObject, head: int
) -> None:
    model = opened(name)
    target = None if name.startswith("classify") else target_of(name, written)
    other = data.draw(st.text(alphabet="adehlost .", min_size=len(text), max_size=len(text)))
    module = attention_of(model)
    there: list[Tensor] = []
    with hooked(module.hook_z, lambda z: there.append(z.clone())):
        called(model, other, target)
    at = data.draw(st.none() | st.integers(0, len(model.tokens(text, target)) - 1))

    def put(z: Tensor) -> Tensor:
        z = z.clone()  # (1, H, T, K)
        z[:, head, slice(None) if at is None else at] = there[0][:, head, slice(None) if at is None else at]
        return z

    with hooked(module.hook_z, put):
        expected = called(model, text, target)
    part = f"{prefix(model)}.0.self.{head}"
    torch.testing.assert_close(model.patch(text, part, other, at=at, target=target), expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(model.logits(text, target), called(model, text, target), rtol=0, atol=0)


@pytest.mark.parametrize("name", NAMES)
@given(text=TEXTS, written=TEXTS, head=st.integers(0, 1))
@settings(max_examples=5)
def test_an_ablated_head_gives_zeros(name: str, text: str, written: str, head: int) -> None:
    model = opened(name)
    target = target_of(name, written)
    assume(set(model.tokens(text).ids.tolist()) - set(model.tokenizer.special))

    def zero(z: Tensor) -> Tensor:
        z = z.clone()  # (B, H, T, K)
        z[:, head] = 0
        return z

    before = loss_of(model, text, target)
    with hooked(attention_of(model).hook_z, zero):
        after = loss_of(model, text, target)
    change = model.ablate(text, f"{prefix(model)}.0.self.{head}", target)
    assert change == pytest.approx(after - before, abs=2e-5)


@pytest.mark.parametrize("name", NAMES)
@given(text=TEXTS)
@settings(max_examples=5)
def test_the_receipt_adds_up_to_the_logit(name: str, text: str) -> None:
    model = opened(name)
    if model.config.model.norm_order == "post":
        with pytest.raises(gf.GlassError, match="no exact split"):
            model.receipt(text)
        return
    read = text + " [MASK]" if name.startswith("masked") else text
    receipt = model.receipt(read)
    assert receipt.total == pytest.approx(receipt.logit, abs=1e-4)
    if name.startswith(("lm", "classify")):
        logits = model.logits(read)
        own = logits[receipt.token] if name.startswith("classify") else logits[-1, receipt.token]
        assert receipt.logit == pytest.approx(float(own), abs=1e-5)
