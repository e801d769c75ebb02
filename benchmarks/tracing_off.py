"""Cost of inspection after it has ended: training and generation of an inspected and an untouched model.

Two models have equal weights; one of them was traced, recorded, gated and patched before. Rounds alternate between
them, so that a slower machine affects both. Times are CPU times, summed over threads; the ratio should be 1.

    python benchmarks/tracing_off.py
    python benchmarks/tracing_off.py --width 256 --layers 6 --rounds 40
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from glassformer.base.config import ModelConfig, SampleConfig
from glassformer.generation.decoding import generate
from glassformer.inspection.catalogue import ALL_TENSOR_KINDS
from glassformer.inspection.head_gates import gated
from glassformer.inspection.patching import KnockOut, Zero, patch
from glassformer.inspection.recording import record
from glassformer.inspection.trace import trace
from glassformer.model.build import build_model
from glassformer.model.transformer import Decoder

VOCAB = 512


def look_inside(model: Decoder) -> None:
    """Trace, record, gate and patch a model once."""
    ids = torch.arange(32)[None]
    trace(model, ids)
    record(model, ids, keep=ALL_TENSOR_KINDS)
    with gated(model), patch(model, {"dec.0.self.0": Zero(), "dec.1.self": KnockOut(), "dec.mask": Zero()}):
        model(ids).sum().backward()
    model.zero_grad(set_to_none=True)


def train_step(model: Decoder, ids: torch.Tensor) -> None:
    """Run a forward pass, a backward pass and an update."""
    logits = model(ids[:, :-1])  # (B, T, V)
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter -= 1e-4 * parameter.grad
            parameter.grad = None


def write(model: Decoder, tokens: int) -> None:
    """Generate greedily with a cache."""
    for _ in generate(model, [[1, 2, 3]], SampleConfig(tokens=tokens, temperature=0)):
        pass


def compare(name: str, models: list[Decoder], work: Callable[[Decoder], None], rounds: int) -> None:
    """Measure both models in turns, and print their times and ratio."""
    times: list[list[float]] = [[], []]
    for number in range(rounds + 2):
        for which in (0, 1) if number % 2 else (1, 0):
            start = time.process_time()
            work(models[which])
            if number >= 2:  # the first rounds are a warm-up
                times[which].append(time.process_time() - start)
    plain, after = (statistics.median(each) for each in times)
    pairs = statistics.median(two / one for one, two in zip(*times, strict=True))
    print(f"{name:<12} {1e3 * plain:>9.2f} ms  {1e3 * after:>9.2f} ms  ratio {after / plain:.4f}, by pairs {pairs:.4f}")


def main() -> None:
    """Print a row for training and a row for generation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=128, help="(default: 128)")
    parser.add_argument("--layers", type=int, default=4, help="(default: 4)")
    parser.add_argument("--rounds", type=int, default=30, help="measured rounds of each model (default: 30)")
    options = parser.parse_args()
    config = ModelConfig(width=options.width, layers=options.layers, heads=4, context=128)
    models = []
    for _ in range(2):
        model = build_model(config, VOCAB)
        assert isinstance(model, Decoder)
        models.append(model)
    look_inside(models[1])
    ids = torch.randint(0, VOCAB, (4, 128), generator=torch.Generator().manual_seed(0))
    print(f"{'':<12} {'untouched':>12}  {'after':>12}")
    compare("training", models, lambda model: train_step(model, ids), options.rounds)
    compare("generation", models, lambda model: write(model, 64), options.rounds)


if __name__ == "__main__":
    main()
