"""Every check of `glass verify` can fail: faults are planted one by one, and the failing checks are listed.

All checks run with every fault, except the slow ones of `SLOW`, which run only for the faults that concern them.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.backends.onnx_engine import OnnxEngine
from glassformer.base.config import Config
from glassformer.generation import beam, decoding, logit_readers
from glassformer.generation.slot_cache import SlotCache, SlotLayer
from glassformer.model import attention, transformer
from glassformer.model.attention import Mask
from glassformer.model.transformer import EncoderDecoder, Stack
from glassformer.runs.folder import Run, open_run
from glassformer.tasks.losses import TrainingLoss
from glassformer.text.batches import Batch, padded
from glassformer.text.tokenizers import Tokenizer, train_tokenizer
from glassformer.training import loop, trainer
from glassformer.training.loop import train
from glassformer.training.reporting import Silent
from glassformer.training.setup import new_training
from glassformer.training.stepping import Stepper
from glassformer.verification.report import CHECKS, run_check, verify_run
from glassformer.verification.verified_run import VerifiedRun
from tests.journey.task_files import write_all
from tests.property.trainers import LINES, record_files, small_config

Patch = pytest.MonkeyPatch
SLOW = {"resume", "moved", "export-hf"}
TEXTS = {"cached-text", "batched-text", "beam-cached", "beam-one", "backend-logits"}
"""Checks that may also notice the faults of other checks, because changed logits change some texts but not others."""
MODEL = {"layers": 2, "heads": 4, "head_width": 6, "width": 14, "hidden": 22, "context": 29}
TRAIN = {"steps": 30, "batch": 8, "warmup": 0, "learning_rate": 0.01, "threads": 1, "evaluate_every": 30}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run of each family; the decoder is Llama-like with grouped queries."""
    folder = tmp_path_factory.mktemp("faults")
    write_all(folder)
    few: dict[str, Any] = {"train": TRAIN, "sample": {"tokens": 5, "beams": 1}}
    words = {"kind": "words"}
    llama = {
        **MODEL,
        "width": 24,
        "kv_heads": 2,
        "positions": "rotary",
        "norm": "rmsnorm",
        "activation": "swiglu",
        "dropout_residual": 0.1,
    }
    settings: dict[str, dict[str, Any]] = {
        "decoder": {**small_config(folder).model_dump(), **few, "model": llama},
        "encoder": {
            **few,
            "train": {**TRAIN, "task": "masked"},
            "model": MODEL,
            "tokenizer": words,
            "data": {"source": str(folder / "book.txt"), "document": "line", "windows": "documents"},
        },
        "pairs": {
            **few,
            "train": {**TRAIN, "task": "translate", "steps": 80},
            "model": MODEL,
            "tokenizer": words,
            "data": {"source": str(folder / "train.en"), "target": str(folder / "train.de")},
        },
    }
    for name, values in settings.items():
        with new_training(Config.from_dict(values), folder / "runs" / name, Silent()) as trainer:
            assert train(trainer)
    return folder / "runs"


def failed(run: Path, also: set[str]) -> set[str]:
    """Return the names of the failing checks, among the quick checks and the slow checks in `also`."""
    names = [check.name for check in CHECKS if check.name not in SLOW - also]
    return {result.check.name for result in verify_run(run, device="cpu", only=names).results if result.ok is False}


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["decoder", "encoder", "pairs"])
def test_without_a_fault_nothing_fails(name: str, home: Path) -> None:
    assert failed(home / name, {"resume", "moved"}) == set()


# --- faults of the model -----------------------------------------------------------------------------------------


def future_is_seen(patch: Patch) -> None:
    own = transformer.self_attention_mask
    patch.setattr(transformer, "self_attention_mask", lambda q, k, mask, causal, window: own(q, k, mask, False, window))


def padding_is_seen(patch: Patch) -> None:
    own = transformer.self_attention_mask
    patch.setattr(
        transformer, "self_attention_mask", lambda q, k, real, causal, window: own(q, k, None, causal, window)
    )


def padding_of_the_memory_is_seen(patch: Patch) -> None:
    own = Stack.forward

    def forward(
        self: Stack,
        tokens: Tensor,
        embedding: Any,
        mask: Any = None,
        memory: Any = None,
        hidden: Any = None,
        cache: Any = None,
    ) -> Tensor:
        return own(self, tokens, embedding, mask, memory, None, cache)

    patch.setattr(Stack, "forward", forward)


def left_padding_is_seen(patch: Patch) -> None:
    own = logit_readers._last_logits
    patch.setattr(
        logit_readers, "_last_logits", lambda model, tokens, mask, cache=None: own(model, tokens, None, cache)
    )


def source_and_target_are_swapped(patch: Patch) -> None:
    own = EncoderDecoder.hidden_states
    patch.setattr(
        EncoderDecoder,
        "hidden_states",
        lambda self, source, target, real=None: own(self, target, source)[:, : target.shape[1]],
    )


def cache_is_off_by_one(patch: Patch) -> None:
    own = SlotLayer.append

    def append(self: SlotLayer, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        ends = self.ends
        self.ends = ends - 1 if isinstance(ends, int) else (ends[0], ends[1] - 1)
        found = own(self, k, v)
        self.ends = ends
        return found

    patch.setattr(SlotLayer, "append", append)


def positions_after_a_cache_are_off_by_one(patch: Patch) -> None:
    own = SlotCache.extend

    def extend(self: SlotCache, new: int, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
        positions, key_positions, key_mask = own(self, new, mask)
        return positions + 1, key_positions, key_mask

    patch.setattr(SlotCache, "extend", extend)


def scale_is_one_over_k(patch: Patch) -> None:
    own = F.scaled_dot_product_attention
    patch.setattr(
        F, "scaled_dot_product_attention", lambda q, *rest, **more: own(q, *rest, **more, scale=1 / q.shape[-1])
    )


def explicit_scale_is_one_over_k(patch: Patch) -> None:
    own = attention.explicit_attention
    patch.setattr(
        attention, "explicit_attention", lambda q, *rest, **more: own(q / math.sqrt(q.shape[-1]), *rest, **more)
    )


def key_heads_are_in_another_order(patch: Patch) -> None:
    own = attention.explicit_attention

    def explicit_attention(q: Tensor, k: Tensor, v: Tensor, *rest: Any, **more: Any) -> Any:
        group = q.shape[1] // k.shape[1]
        return own(q, k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1), *rest, **more)

    patch.setattr(attention, "explicit_attention", explicit_attention)


def explicit_mask_is_another(patch: Patch) -> None:
    own = attention.explicit_attention
    patch.setattr(
        attention, "explicit_attention", lambda q, k, v, mask, *rest, **more: own(q, k, v, Mask(), *rest, **more)
    )


def keys_turn_in_other_pairs(patch: Patch) -> None:
    own = attention.rotate

    def rotate(x: Tensor, rotation: Any) -> Tensor:
        if x.shape[1] == MODEL["heads"]:
            return own(x, rotation)
        order = torch.arange(x.shape[-1]).reshape(-1, 2).T.flatten()  # (K): 0 2 4 … 1 3 5 …
        return own(x[..., order], rotation)

    patch.setattr(attention, "rotate", rotate)


def residual_is_left_out(patch: Patch) -> None:
    own = transformer.PreNormBlock.forward
    patch.setattr(transformer.PreNormBlock, "forward", lambda self, x, *rest: own(self, x, *rest) - x)


def changed_activation(change: Callable[[Tensor], Tensor]) -> Callable[[Patch], None]:
    """Return a function that plants a fault: `change` is applied to the output of every activation."""

    def plant(patch: Patch) -> None:
        own = transformer.activate
        patch.setattr(transformer, "activate", lambda x, name: change(own(x, name)))

    return plant


float32_is_rough = changed_activation(lambda y: y.bfloat16().float() if y.dtype == torch.float32 else y)
bfloat16_is_wrong = changed_activation(lambda y: 3 * y if torch.is_autocast_enabled("cpu") else y)
threads_disagree = changed_activation(lambda y: y * 1.001 if torch.get_num_threads() > 1 else y)
gradient_is_doubled = changed_activation(lambda y: y + (y - y.detach()))


def norms_compute_in_bfloat16(patch: Patch) -> None:
    own = nn.LayerNorm.forward

    def forward(self: nn.LayerNorm, x: Tensor) -> Tensor:
        return own(self, x.bfloat16() if torch.is_autocast_enabled("cpu") else x)

    patch.setattr(nn.LayerNorm, "forward", forward)


# --- faults of generation ----------------------------------------------------------------------------------------


def with_a_cache_the_token_before_the_last_is_read(patch: Patch) -> None:
    own = logit_readers.CachedReader.read
    patch.setattr(
        logit_readers.CachedReader, "read", lambda self, rows: own(self, [[*row[:-1], row[-2]] for row in rows])
    )


def beams_leave_the_cache_behind(patch: Patch) -> None:
    own = SlotCache.select
    patch.setattr(
        SlotCache, "select", lambda self, slots: own(self, slots) if len(slots) != len(self.lengths) else None
    )


def a_row_draws_with_the_numbers_of_another(patch: Patch) -> None:
    own = decoding.sample_tokens
    patch.setattr(decoding, "sample_tokens", lambda shares, noise: own(shares, noise.roll(1, dims=0)))


def beam_takes_the_second_best(patch: Patch) -> None:
    own = beam.likeliest
    patch.setattr(beam, "likeliest", lambda logits, n: own(logits, n + 1)[:, 1:])


def onnxruntime_reads_an_older_token(patch: Patch) -> None:
    own = OnnxEngine.read_last
    patch.setattr(OnnxEngine, "read_last", lambda self, tokens, cache: own(self, tokens.roll(1), cache))


# --- faults of training ------------------------------------------------------------------------------------------


def labels_are_shifted_twice(patch: Patch) -> None:
    own = Batch.from_rows

    def from_rows(rows: Any) -> Batch:
        targets, _ = padded([[*row.targets[1:], row.targets[-1]] for row in rows])
        return replace(own(rows), targets=targets)

    patch.setattr(Batch, "from_rows", from_rows)


def padding_counts_in_the_loss(patch: Patch) -> None:
    own = TrainingLoss.forward

    def loss(self: TrainingLoss, batch: Batch, targets: int = 1) -> Tensor:
        every = torch.ones_like(batch.loss_mask)
        return own(self, replace(batch, n_targets=batch.targets.numel(), loss_mask=every), targets)

    patch.setattr(TrainingLoss, "forward", loss)


def micro_batches_weigh_alike(patch: Patch) -> None:
    own = loop.accumulate_gradients

    def accumulate(stepper: Stepper, batches: list[Batch]) -> tuple[float, int]:
        for batch in batches:
            before = [None if p.grad is None else p.grad.clone() for p in stepper.model.parameters()]
            loss, targets = own(stepper, [batch])
            for parameter, grad in zip(stepper.model.parameters(), before, strict=True):
                assert parameter.grad is not None
                parameter.grad.div_(len(batches))
                if grad is not None and batch is not batches[0]:
                    parameter.grad.add_(grad)
        return loss, targets

    patch.setattr(loop, "accumulate_gradients", accumulate)


def optimizer_starts_anew(patch: Patch) -> None:
    own = trainer.load_checkpoint
    patch.setattr(trainer, "load_checkpoint", lambda folder, model, optimizers: own(folder, model, _fresh(model)))


def _fresh(model: nn.Module) -> list[torch.optim.Optimizer]:
    """Return new optimizers that nothing else uses."""
    from glassformer.base.config import TrainConfig
    from glassformer.training.optimizers import make_optimizers

    return make_optimizers(model, TrainConfig())


def steps_are_counted_from_the_next(patch: Patch) -> None:
    own = trainer.load_checkpoint

    def load(*given: Any) -> Any:
        state = own(*given)
        state.step += 1
        return state

    patch.setattr(trainer, "load_checkpoint", load)


# --- faults of text and files ------------------------------------------------------------------------------------


def spaces_are_lost(patch: Patch) -> None:
    own = Tokenizer.decode
    patch.setattr(Tokenizer, "decode", lambda self, ids: own(self, ids).replace("e ", "e"))


def run_needs_what_lies_beside_it(patch: Patch) -> None:
    own = Run.config

    def config(self: Run) -> Config:
        return own(self) if (self.folder.parent / ".tokens").exists() else own(self).with_changes({"model.window": "1"})

    patch.setattr(Run, "config", config)


FORWARD = "batched-logits padding-blind reference reference-gradients loss accumulation"
"""Checks that notice attention to padding: rows then differ from rows computed alone, and from the reference."""
FAULTS: dict[str, tuple[Callable[[Patch], None], str, str]] = {
    "the future is seen": (future_is_seen, "decoder", f"future-blind cached-logits {FORWARD}"),
    "padding is seen": (padding_is_seen, "encoder", FORWARD),
    "padding of the memory is seen": (padding_of_the_memory_is_seen, "pairs", f"cached-logits {FORWARD}"),
    "left padding is seen": (left_padding_is_seen, "decoder", "batched-logits cached-logits"),
    "source and target are swapped": (source_and_target_are_swapped, "pairs", FORWARD),
    "the cache is off by one": (cache_is_off_by_one, "decoder", "cached-logits beam-cached"),
    "the target's cache is off by one": (cache_is_off_by_one, "pairs", "cached-logits beam-cached"),
    "positions after a cache are off by one": (positions_after_a_cache_are_off_by_one, "decoder", "cached-logits"),
    "with a cache the token before the last is read": (
        with_a_cache_the_token_before_the_last_is_read,
        "decoder",
        "cached-logits cached-text beam-cached",
    ),
    "onnxruntime reads an older token": (onnxruntime_reads_an_older_token, "decoder", "backend-logits"),
    "beams leave the cache behind": (beams_leave_the_cache_behind, "decoder", "beam-cached"),
    "the beam takes the second best": (beam_takes_the_second_best, "decoder", "beam-one"),
    "a row draws with the numbers of another": (a_row_draws_with_the_numbers_of_another, "decoder", "batched-text"),
    "the scale is 1/K": (scale_is_one_over_k, "decoder", "bf16 fused-explicit reference reference-gradients"),
    "the explicit scale is 1/K": (explicit_scale_is_one_over_k, "encoder", "bf16 fused-explicit"),
    "key heads are in another order": (key_heads_are_in_another_order, "decoder", "bf16 fused-explicit"),
    "the explicit mask is another": (explicit_mask_is_another, "decoder", "bf16 fused-explicit"),
    "keys turn in other pairs": (keys_turn_in_other_pairs, "decoder", "cached-logits reference reference-gradients"),
    "the residual is left out": (residual_is_left_out, "encoder", "reference reference-gradients"),
    "a gradient is doubled": (gradient_is_doubled, "encoder", "reference-gradients"),
    "float32 is rough": (float32_is_rough, "encoder", "float64"),
    "bfloat16 is wrong": (bfloat16_is_wrong, "encoder", "bf16"),
    "norms compute in bfloat16": (norms_compute_in_bfloat16, "encoder", "bf16-norms"),
    "threads disagree": (threads_disagree, "encoder", "threads"),
    "labels are shifted twice": (labels_are_shifted_twice, "decoder", "loss"),
    "padding counts in the loss": (padding_counts_in_the_loss, "decoder", "loss accumulation"),
    "micro-batches weigh alike": (micro_batches_weigh_alike, "decoder", "accumulation"),
    "the optimizer starts anew": (optimizer_starts_anew, "encoder", "resume"),
    "steps are counted from the next": (steps_are_counted_from_the_next, "encoder", "resume"),
    "spaces are lost": (spaces_are_lost, "decoder", "tokenizer"),
    "a run needs what lies beside it": (run_needs_what_lies_beside_it, "decoder", "moved"),
}
"""Name of a fault -> the function that plants it, the run, and the checks that notice it."""


@pytest.mark.thorough
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_detected_by_the_right_checks(name: str, home: Path, monkeypatch: Patch) -> None:
    plant, run, named = FAULTS[name]
    wanted = set(named.split())
    plant(monkeypatch)
    found = failed(home / run, wanted)
    assert found >= wanted
    assert found - TEXTS == wanted - TEXTS


# --- faults of the files -----------------------------------------------------------------------------------------


@pytest.fixture
def spoilt(home: Path, tmp_path: Path) -> Path:
    """Return a copy of the decoder's run, which a test damages."""
    return Path(shutil.copytree(home / "decoder", tmp_path / "decoder"))


def test_a_flipped_bit_in_the_weights_is_detected(spoilt: Path) -> None:
    path = open_run(spoilt).checkpoint("best") / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    report = verify_run(spoilt)
    assert [result.check.name for result in report.results if result.ok is False] == ["checkpoints", "settings"]
    assert [result.check.name for result in report.results if result.ok] == ["vocabulary"]
    assert "model.safetensors was altered" in report.results[0].note
    assert not report.ok


def test_an_altered_log_is_detected(spoilt: Path) -> None:
    log = spoilt / "metrics.jsonl"
    before, loss, after = log.read_text(encoding="utf-8").rpartition('"loss": ')
    log.write_text(f"{before}{loss}1{after}", encoding="utf-8")
    (result,) = verify_run(spoilt, only=["checkpoints"]).results
    assert result.ok is False
    assert "metrics.jsonl was altered" in result.note


def test_settings_of_another_model_are_detected(spoilt: Path) -> None:
    config = spoilt / "config.toml"
    config.write_text(config.read_text(encoding="utf-8").replace("hidden = 22", "hidden = 23"), encoding="utf-8")
    assert failed(spoilt, set()) == {"settings", "vocabulary"}
    record_files(spoilt)
    assert failed(spoilt, set()) == {"settings"}


def test_a_checkpoint_of_another_step_is_noticed(spoilt: Path) -> None:
    last = spoilt / "checkpoints" / "step-000031"
    open_run(spoilt).checkpoint("last").rename(last)
    for which in ("best", "last"):
        open_run(spoilt).point(which, last)  # type: ignore[arg-type]
    assert failed(spoilt, set()) == {"settings"}


def test_another_tokenizer_of_the_same_size_is_detected(spoilt: Path) -> None:
    own = open_run(spoilt)
    other = train_tokenizer(own.config().tokenizer, ["".join(LINES).upper() + "0123456"])
    ours = Tokenizer.load(own.tokenizer_file)
    assert other.vocab_size == ours.vocab_size
    other.save(own.tokenizer_file)
    assert failed(spoilt, set()) == {"settings", "vocabulary"}


def test_a_device_with_wrong_results_is_detected(home: Path, monkeypatch: Patch) -> None:
    """The check runs as for an accelerator, with the CPU as the "device"."""
    check = next(check for check in CHECKS if check.name == "device")
    assert run_check(check, VerifiedRun(open_run(home / "decoder"), device="cpu")).ok is None
    check = replace(check, exempt=lambda subject: None)
    assert run_check(check, VerifiedRun(open_run(home / "decoder"), device="cpu")).ok is True
    own = nn.Module.to

    def to(self: nn.Module, *where: Any) -> nn.Module:
        moved = own(self, *where)
        with torch.no_grad():
            next(moved.parameters()).mul_(1.01)
        return moved

    monkeypatch.setattr(nn.Module, "to", to)
    assert run_check(check, VerifiedRun(open_run(home / "decoder"), device="cpu")).ok is False


@pytest.mark.thorough
def test_an_export_with_other_results_is_detected(home: Path, monkeypatch: Patch) -> None:
    pytest.importorskip("transformers")
    from glassformer.interop.huggingface import export

    own = export.to_huggingface

    def written(*given: Any) -> Any:
        values, tensors = own(*given)
        return values, {name: tensor * 1.01 for name, tensor in tensors.items()}

    assert "export-hf" not in failed(home / "decoder", {"export-hf"})
    monkeypatch.setattr(export, "to_huggingface", written)
    assert failed(home / "decoder", {"export-hf"}) == {"export-hf"}


def test_every_check_detects_some_fault() -> None:
    own_test = {"checkpoints", "settings", "vocabulary", "device", "export-hf"}
    noticed = {name for _, _, named in FAULTS.values() for name in named.split()}
    assert {check.name for check in CHECKS} == noticed | own_test
