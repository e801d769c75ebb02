"""Two checkouts of this project side by side: a training step, and writing by the model's own modules.

One process for each checkout keeps its model; they work in turn, so that a machine that slows down slows both. A
ratio is of two turns side by side, time before over time after: above 1, the second checkout is faster. Printed are
the median of the ratios and its 95 % interval (by order statistics of the pairs).

    git worktree add ../before COMMIT
    python benchmarks/versions.py ../before . --pairs 24 --threads 2
    python benchmarks/versions.py ../before . --pairs 24 --precision bf16 --width 192 --layers 4 --context 64 --batch 24

Writing is by the model itself, with its cache: a hook on the last norm keeps `generation/fast.py` out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

WORKS = ("training step", "writing")
VOCABULARY = 65


def first_module(*names: str) -> Any:
    """Import the first of some modules that this checkout has: modules have moved between versions."""
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
    raise ModuleNotFoundError(f"none of {', '.join(names)} is in {os.environ['PYTHONPATH']}")


def work(options: argparse.Namespace) -> None:
    """Read names of works from standard input; write the seconds that each takes."""
    import torch
    from torch.nn import functional as F

    settings = first_module("glassformer.base.config", "glassformer.config")
    build = first_module("glassformer.model.build")
    decoding = first_module("glassformer.generation.decoding")
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    config = settings.ModelConfig(
        width=options.width,
        layers=options.layers,
        heads=options.heads,
        context=options.context,
        positions=options.positions,
        norm=options.norm,
        activation=options.activation,
    )
    model = build.build_model(config, VOCABULARY)
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(0, VOCABULARY, (options.batch, options.context + 1))  # (B, T + 1)
    prompts = ids[:1, :8].tolist()
    sample = settings.SampleConfig(tokens=options.context - 8, temperature=0)
    model.stack.norm.register_forward_hook(lambda module, args, output: None)

    def training_step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bf16"):
            logits = model(ids[:, :-1])  # (B, T, V)
            loss = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    def writing() -> None:
        model.eval()
        for _ in decoding.generate(model, prompts, sample):
            pass
        model.train()

    for line in sys.stdin:
        done = {"training step": training_step, "writing": writing}[line.strip()]
        start = time.perf_counter()
        for _ in range(options.repeats):
            done()
        print(json.dumps(time.perf_counter() - start), flush=True)


class Worker:
    """A process that measures one checkout."""

    def __init__(self, checkout: Path, words: list[str]) -> None:
        environment = {**os.environ, "PYTHONPATH": str(checkout.resolve() / "src")}
        command = [sys.executable, __file__, "--worker", *words]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def seconds(self, work: str) -> float:
        """Do a work once and return its seconds."""
        lines: IO[str] | None = self.process.stdin
        answers: IO[str] | None = self.process.stdout
        assert lines is not None
        assert answers is not None
        print(work, file=lines, flush=True)
        found: float = json.loads(answers.readline())
        return found


def interval(ratios: list[float]) -> tuple[float, float]:
    """Return a 95 % interval of the median, by order statistics."""
    ordered = sorted(ratios)
    away = 1.96 * math.sqrt(len(ordered)) / 2
    low = max(0, math.floor(len(ordered) / 2 - away))
    high = min(len(ordered) - 1, math.ceil(len(ordered) / 2 + away) - 1)
    return ordered[low], ordered[high]


def main() -> None:
    """Compare two checkouts, and print a row for each work."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="*", type=Path, metavar="BEFORE AFTER", help="two checkouts")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--pairs", type=int, default=24, help="turns of each (default: 24)")
    parser.add_argument("--repeats", type=int, default=5, help="works in a turn (default: 5)")
    parser.add_argument("--threads", type=int, default=1, help="of each process (default: 1)")
    parser.add_argument("--width", type=int, default=128, help="(default: 128)")
    parser.add_argument("--layers", type=int, default=4, help="(default: 4)")
    parser.add_argument("--heads", type=int, default=4, help="(default: 4)")
    parser.add_argument("--context", type=int, default=128, help="(default: 128)")
    parser.add_argument("--batch", type=int, default=16, help="rows of a training step (default: 16)")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="of training (default: fp32)")
    parser.add_argument("--positions", default="rotary", help="(default: rotary)")
    parser.add_argument("--norm", default="rmsnorm", help="(default: rmsnorm)")
    parser.add_argument("--activation", default="swiglu", help="(default: swiglu)")
    options = parser.parse_args()
    if options.worker:
        work(options)
        return
    if len(options.checkouts) != 2:
        parser.error("give two checkouts: BEFORE AFTER")
    words = [word for word in sys.argv[1:] if word not in {str(each) for each in options.checkouts}]
    workers = [Worker(checkout, words) for checkout in options.checkouts]
    for name in WORKS:
        for worker in workers:
            worker.seconds(name)  # warms up
        times: list[tuple[float, float]] = []
        for number in range(options.pairs):
            if number % 2:
                after = workers[1].seconds(name)
                before = workers[0].seconds(name)
            else:
                before = workers[0].seconds(name)
                after = workers[1].seconds(name)
            times.append((before, after))
        ratios = [before / after for before, after in times]
        low, high = interval(ratios)
        print(
            f"{name:<14} before {1e3 * statistics.median(b for b, _ in times) / options.repeats:8.2f} ms"
            f"  after {1e3 * statistics.median(a for _, a in times) / options.repeats:8.2f} ms"
            f"  before : after {statistics.median(ratios):.3f} ({low:.3f} to {high:.3f}), {len(ratios)} pairs",
            flush=True,
        )


if __name__ == "__main__":
    main()
