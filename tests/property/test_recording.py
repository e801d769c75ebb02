"""A recording contains the values of a trace in the estimated number of bytes, and removes its hooks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from glassformer.base.config import ModelConfig, SampleConfig
from glassformer.base.errors import GlassError
from glassformer.generation.beam import beam_search
from glassformer.generation.decoding import generate
from glassformer.inspection.catalogue import ALL_TENSOR_KINDS, TENSOR_KINDS, catalogue
from glassformer.inspection.patching import Resample, patch
from glassformer.inspection.recording import BUDGET, estimate, record, record_passes
from glassformer.inspection.sites import heads
from glassformer.inspection.trace import AttentionTrace, trace
from glassformer.model.build import build_model
from glassformer.model.transformer import Model
from tests.property.models import VOCAB, as_if_trained, decoder, encoder_decoder, tiny, tokens
from tests.property.traced_models import FAMILIES, PAD, full_state, inputs, logits_of, model_of, stacks

CHOICES: list[dict[str, Any]] = [
    {},
    {"norm_order": "post", "kv_heads": 2, "positions": "alibi"},
    {"value_width": 7, "kv_heads": 2, "attention_bias": True},
    {"width": 24, "value_width": 4, "output_projection": False},
    {"positions": "rotary", "qk_norm": "head"},
    {"norm_order": "output", "norm": "rmsnorm", "qk_norm": "whole", "positions": "relative", "window": 3},
    {"attention_bias": True, "feedforward_bias": True, "activation": "swiglu", "kv_heads": 1},
]


@pytest.mark.thorough
@pytest.mark.parametrize("choice", CHOICES, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_recording_equals_the_trace_and_its_estimated_size(family: str, choice: dict[str, Any]) -> None:
    model = model_of(family, **choice)
    for real in (None, PAD):
        given = inputs(family, real)
        found = record(model, **given, keep=ALL_TENSOR_KINDS)  # type: ignore[arg-type]
        wanted = trace(model, **given)
        by_name = of_trace(wanted, family)
        assert set(found) == set(by_name) == set(catalogue(model))
        for name, value in by_name.items():
            assert found[name].shape == value.shape, name
            torch.testing.assert_close(found[name], value, atol=1e-5, rtol=1e-5, msg=name)
        length = given["target"].shape[1] if "target" in given else None  # type: ignore[union-attr]
        bytes_ = estimate(model, ALL_TENSOR_KINDS, 2, 13, length, padded=real is not None)
        assert bytes_ == found.nbytes == sum(value.nbytes for value in by_name.values())
        assert torch.equal(found["logits"], wanted.logits)
        torch.testing.assert_close(found["logits"], logits_of(model, given), atol=1e-4, rtol=0)
        unobserved = [name for name in catalogue(model) if name.split(".")[-1] not in ("scores", "pattern")]
        found = record(model, **given, keep=unobserved)  # type: ignore[arg-type]
        assert torch.equal(found["logits"], logits_of(model, given))


def of_trace(wanted: Any, family: str) -> dict[str, Tensor]:
    """Return all values of a trace under the names of a recording."""
    names = ["enc", "dec"] if wanted.source is not None else ["dec" if family == "decoder" else "enc"]
    kept: dict[str, Tensor] = {"logits": wanted.logits}
    for name, stack in zip(names, stacks(wanted), strict=True):
        kept[f"{name}.embedding"] = stack.embedded
        kept[f"{name}.final"] = stack.final
        if stack.position_vectors is not None:
            kept[f"{name}.positions"] = stack.position_vectors
        for n, block in enumerate(stack.blocks):
            kept[f"{name}.{n}.resid"] = block.before
            kept[f"{name}.{n + 1}.resid"] = block.after
            kept[f"{name}.{n}.feedforward"] = block.feedforward.output
            kept[f"{name}.{n}.feedforward.hidden"] = block.feedforward.hidden
            for part, attention in (("self", block.attention), ("cross", block.cross)):
                if attention is not None:
                    kept |= of_attention(f"{name}.{n}.{part}", attention)
    return kept


def of_attention(site: str, own: AttentionTrace) -> dict[str, Tensor]:
    return {
        site: own.output,
        f"{site}.q": own.q,
        f"{site}.k": own.k,
        f"{site}.v": own.v,
        f"{site}.pattern": own.pattern,
        f"{site}.scores": own.masked,
        f"{site}.z": own.z,
        f"{site}.head_output": own.head_outputs,
    }


def test_the_size_of_a_recording_equals_the_estimate() -> None:
    """All kinds of tensors for 256 tokens need at most 63 MB with six layers of eight heads and width 256."""
    config = ModelConfig(layers=6, heads=8, width=256, context=256)
    model = build_model(config, 4096)
    found = record(model, torch.arange(256)[None], keep=ALL_TENSOR_KINDS)
    assert found.nbytes == estimate(model, ALL_TENSOR_KINDS, 1, 256)
    assert 50e6 < found.nbytes <= 63e6


def test_rows_and_precision_save_memory_exactly() -> None:
    model = model_of("encoder-decoder")
    given = inputs("encoder-decoder", PAD)
    whole = record(model, **given, keep=ALL_TENSOR_KINDS)  # type: ignore[arg-type]
    part = record(model, **given, keep=ALL_TENSOR_KINDS, rows=slice(-3, None), dtype=torch.float16)  # type: ignore[arg-type]
    assert part.nbytes == estimate(model, ALL_TENSOR_KINDS, 2, 13, 7, slice(-3, None), torch.float16, padded=True)
    for name, entry in catalogue(model).items():
        wanted = whole[name]
        if "T" in entry.dims:
            wanted = wanted.narrow(entry.dims.index("T"), wanted.shape[entry.dims.index("T")] - 3, 3)
        torch.testing.assert_close(part[name], wanted.half())


def test_recorded_tensors_are_copies() -> None:
    """Writing to a returned tensor changes neither the recording nor the model, and inputs are copied as well."""
    model = model_of("decoder")
    ids = tokens(2, 13)
    found = record(model, ids, keep=ALL_TENSOR_KINDS)
    before = {name: found[name].clone() for name in found}
    weights = {k: v.clone() for k, v in model.state_dict().items()}
    for name in found:
        found[name].fill_(7)
    ids.zero_()
    assert all(torch.equal(found[name], value) for name, value in before.items())
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())
    assert not any(value.requires_grad or value.is_inference() for value in before.values())


def test_recorded_heads_keep_their_numbers_after_removal() -> None:
    model = as_if_trained(tiny(removed_heads=("dec.0.self.1", "dec.0.self.2", *(f"dec.2.self.{h}" for h in range(6)))))
    given = {"tokens": tokens(2, 13)}
    found = record(model, **given, keep=ALL_TENSOR_KINDS)
    assert found["dec.2.self.pattern"].shape == (2, 0, 13, 13)
    assert [str(head) for head in heads(model)][:5] == [
        "dec.0.self.0",
        "dec.0.self.3",
        "dec.0.self.4",
        "dec.0.self.5",
        "dec.1.self.0",
    ]
    assert torch.equal(found["dec.0.self.3"], found["dec.0.self.z"][:, 1])
    assert torch.equal(found["dec.0.self.3.pattern"], found["dec.0.self.pattern"][:, 1])
    for name in ("dec.0.self.1", "dec.0.self.3.k", "dec.0.self.3.resid", "dec.7.self.0", "nothing"):
        assert name not in found
    other = record(model, tokens(2, 13, seed=5), keep=("z",))
    with patch(model, {"dec.0.self.3": Resample(other)}):
        assert torch.equal(record(model, **given, keep=("z",))["dec.0.self.3"], other["dec.0.self.3"])


@pytest.mark.parametrize("choice", [{}, {"kv_heads": 2, "positions": "rotary"}, {"positions": "alibi"}], ids=str)
def test_cached_generation_records_the_last_row_of_the_full_trace(choice: dict[str, Any]) -> None:
    """Two prompts have different lengths; the pattern of each step is the last row of an uncached trace."""
    model = decoder(tiny(**choice))
    settings = SampleConfig(tokens=6, temperature=0)
    texts: list[list[int]] = [[3, 4, 5, 6, 7], [8, 9]]
    with record_passes(model, keep=("pattern", "resid")) as passes:
        steps = list(generate(model, texts, settings))
    assert len(passes) == len(steps) == 6
    assert passes[-1]["dec.0.self.pattern"].shape == (2, 6, 1, 10)
    for step, found in zip(steps, passes, strict=True):
        for slot, row in enumerate(step.rows):
            alone = trace(model, torch.tensor([texts[row]])).stack
            for layer, block in enumerate(alone.blocks):
                want = block.attention.pattern[0, :, -1]  # (H, T)
                pattern = found[f"dec.{layer}.self.pattern"]  # (B, H, T, S)
                last = min(len(texts[row]), pattern.shape[2]) - 1  # prompts are padded on the right
                seen = pattern[slot, :, last]  # (H, S)
                torch.testing.assert_close(seen[:, : want.shape[1]], want, atol=1e-5, rtol=1e-5)
                assert (seen[:, want.shape[1] :] == 0).all()  # padding
                stream = found[f"dec.{layer}.resid"][slot, last]
                torch.testing.assert_close(stream, block.before[0, -1], atol=1e-5, rtol=1e-5)
            texts[row].append(step.tokens[slot])


def test_cached_translation_and_beams_record_attention() -> None:
    """Cross-attention of each step is the last row of the uncached trace; hypotheses have separate rows."""
    model = encoder_decoder(kv_heads=2)
    settings = SampleConfig(tokens=5, temperature=0)
    sources = [[3, 5, 7, 11], [2, 4]]
    targets = [[0], [0]]
    with record_passes(model, keep=("pattern",)) as passes:
        steps = list(generate(model, sources, settings, end_id=0))
    assert ["enc.0.self.pattern" in each for each in passes] == [True] + [False] * (len(steps) - 1)
    for step, found in zip(steps, passes, strict=True):
        for slot, row in enumerate(step.rows):
            alone = trace(model, torch.tensor([sources[row]]), torch.tensor([targets[row]])).stack
            for layer, block in enumerate(alone.blocks):
                for part, own in (("self", block.attention), ("cross", block.cross)):
                    assert own is not None
                    want = own.pattern[0, :, -1]  # (H, S)
                    seen = found[f"dec.{layer}.{part}.pattern"][slot, :, -1]  # (H, S), padded
                    torch.testing.assert_close(seen[:, : want.shape[1]], want, atol=1e-5, rtol=1e-5)
                    assert (seen[:, want.shape[1] :] == 0).all()
            targets[row].append(step.tokens[slot])
    with record_passes(model, keep=("pattern",)) as both:
        for _ in range(2):
            list(generate(model, sources, settings, end_id=0))
    assert ["enc.0.self.pattern" in each for each in both] == ([True] + [False] * (len(steps) - 1)) * 2
    assert all("dec.0.self.pattern" in each for each in both)
    beams = SampleConfig(beams=3, tokens=2)
    with record_passes(
        model, keep=("dec.1.cross.pattern", "dec.1.cross.scores", "dec.1.cross.z", "dec.1.cross.v")
    ) as own:
        beam_search(model, sources, beams, end_id=0)
    seen = own[-1]["dec.1.cross.pattern"]
    scores = own[-1]["dec.1.cross.scores"]
    assert seen.shape == (6, 6, 1, 4)
    torch.testing.assert_close(scores.softmax(-1), seen)
    v = own[-1]["dec.1.cross.v"].repeat_interleave(3, dim=1)  # (B, H, S, K)
    torch.testing.assert_close(seen @ v, own[-1]["dec.1.cross.z"], atol=1e-6, rtol=1e-5)


def test_training_can_be_recorded() -> None:
    model = model_of("decoder").train().requires_grad_(True)
    with record_passes(model, keep=("dec.1.self.pattern",)) as passes:
        for _ in range(2):
            model(tokens(2, 13)).square().mean().backward()
    assert len(passes) == 2
    assert list(passes[0]) == ["dec.1.self.pattern"]
    assert not passes[0]["dec.1.self.pattern"].requires_grad


@pytest.mark.parametrize("family", FAMILIES)
def test_only_recorded_sites_have_hooks_and_none_remains(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No hook remains after a recording, an exception inside the model, or an exceeded memory budget."""
    model = model_of(family).train()
    given = inputs(family, None)
    before = full_state(model)
    name = str(heads(model)[0].site)
    with record_passes(model, keep=(f"{name}.pattern",)):
        hooked = [path for path, part in model.named_modules() if part._forward_hooks]
        assert len(hooked) == 1
        assert hooked[0].endswith(".blocks.0.attention.hook_pattern")
    record(model, **given, keep=ALL_TENSOR_KINDS)  # type: ignore[arg-type]
    assert full_state(model) == before
    with (
        pytest.raises(GlassError, match="exceeds its budget of 99 bytes"),
        record_passes(model, keep=("pattern",), budget=99),
    ):
        logits_of(model, given)
    assert full_state(model) == before
    monkeypatch.setattr(model.head, "forward", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        record(model, **given, keep=ALL_TENSOR_KINDS)  # type: ignore[arg-type]
    monkeypatch.undo()
    assert full_state(model) == before
    assert torch.is_grad_enabled()


def test_an_exceeded_budget_suggests_what_would_fit() -> None:
    model = model_of("decoder")
    ids = tokens(2, 13)
    size = {thing: estimate(model, [thing], 2, 13) for thing in TENSOR_KINDS if thing not in ("cross",)}
    for keep, budget, words in (
        (("pattern", "resid"), size["resid"], r"keep=\('resid',\), or raise"),
        (ALL_TENSOR_KINDS[:-1], size["resid"] + size["embedding"] + 99, r"keep=\('embedding', "),
        (("pattern",), estimate(model, ["dec.0.self.pattern"], 2, 13), r"keep=\('dec.0.self.pattern',\)"),
        (("pattern",), 10, "fewer tokens"),
    ):
        before = full_state(model)
        needed = estimate(model, [thing for thing in keep if thing != "cross"], 2, 13)
        with pytest.raises(GlassError, match=words) as caught:
            record(model, ids, keep=[thing for thing in keep if thing != "cross"], budget=budget)
        assert f"would take {needed:,} bytes" in str(caught.value) or needed > 1e5
        assert full_state(model) == before
    assert record(model, ids, keep=("pattern",), budget=size["pattern"]).nbytes == size["pattern"]
    assert BUDGET == 256_000_000


def test_what_cannot_be_recorded_is_refused() -> None:
    model: Model = model_of("decoder")
    for keep, words in (
        (("patern",), "no tensor 'patern' to record\nDid you mean pattern"),
        (("dec.3.self.pattern",), "no tensor 'dec.3.self.pattern'"),
        ((), r"keep is \(\)"),
        ("pattern", "keep is 'pattern'"),
        (("cross",), "this model has no tensor of the kind cross"),
    ):
        with pytest.raises(GlassError, match=words):
            record(model, tokens(1, 5), keep=keep)
    with pytest.raises(GlassError, match="outside the vocabulary"):
        record(model, tokens(1, 5) + VOCAB)
    with pytest.raises(GlassError, match="no target"):
        record(model_of("encoder-decoder"), tokens(1, 5))
    found = record(model, tokens(1, 5))
    with pytest.raises(
        GlassError, match=r"dec.0.self.2 was not recorded\nRecord it, if the model has it: keep=\('dec.0.self.z',\)"
    ):
        found["dec.0.self.2"]
    with pytest.raises(GlassError, match=r"dec.0.self.z"), patch(model, {"dec.0.self.2": Resample(found)}):
        model(tokens(1, 5))
    assert found.get("dec.0.resid") is None


@pytest.mark.parametrize("thing", ["k", "v"])
def test_keys_and_values_of_one_head_are_refused(thing: str) -> None:
    model: Model = model_of("decoder", kv_heads=2)
    name = f"dec.0.self.2.{thing}"
    with pytest.raises(GlassError, match=f"{name} was not recorded\nRecord it.*keep=.'dec.0.self.{thing}',."):
        record(model, tokens(1, 5))[name]
    with pytest.raises(GlassError, match=f"heads may share keys and values\nUse dec.0.self.{thing}."):
        record(model, tokens(1, 5), keep=(thing,))[name]


def test_the_documentation_lists_all_tensor_kinds() -> None:
    page = (Path(__file__).parents[2] / "docs" / "trace.md").read_text(encoding="utf-8")
    listed = [line for line in page.splitlines() if line.startswith("| `") and line.count("|") == 5]
    assert listed == [
        f"| `{n}` | `{name}` | {', '.join(dims)} | {what} |" for n, (name, dims, what) in TENSOR_KINDS.items()
    ]
