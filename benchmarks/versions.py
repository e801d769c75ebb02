"""Comparison of two checkouts of this project: a training step, and several kinds of generation.

Each checkout has a process with its model; the two processes work in turns, so that a slower machine affects both. A
ratio compares two adjacent turns, time before / time after: above 1, the second checkout is faster. The median of the
ratios and its 95 % interval (by order statistics of the pairs) are printed. Even two processes of the same checkout may
differ in speed by several percent, for as long as they run: `--restarts` averages over this.

    git worktree add ../before COMMIT
    python benchmarks/versions.py ../before . --pairs 24 --threads 2
    python benchmarks/versions.py ../before . --pairs 24 --precision bf16 --width 192 --layers 4 --context 64 --batch 24
    python benchmarks/versions.py ../before . --works greedy sampled prompts beams streams --width 384 --layers 6 \
        --heads 6 --context 256 --repeats 1

The kinds of work; texts get up to `--tokens` tokens, fewer if the context is short:

* `training`: forward pass, backward pass and a step of the optimizer.
* `writing`: one prompt, greedy, with the modules of the model and its cache: a hook on the last norm disables
  `generation/fast.py`.
* `greedy`, `sampled`: one prompt. `prompts`: 32 prompts of 8 to 39 tokens, sampled.
* `past`: 4 prompts as long as the context, greedy.
* `beams`: 16 sources, a beam of 4. `targets`: 32 sources, greedy.
* `streams`: 48 rows of different lengths in a continuous batch of 16 rows; each gets half of `--tokens` plus 0 to 30
tokens.
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
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from isa import add_isa, restrict

WORKS = ("training", "writing", "greedy", "sampled", "prompts", "past", "beams", "targets", "streams")
VOCABULARY = 65
END = 1


def first_module(*names: str) -> Any:
    """Import the first of these modules that the checkout has, as modules have moved between versions."""
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
    raise ModuleNotFoundError(f"none of {', '.join(names)} is in {os.environ['PYTHONPATH']}")


def work(options: argparse.Namespace) -> None:
    """Read kinds of work from standard input, and print the seconds that `--repeats` repetitions of each take."""
    import torch

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    works = {name: maker(options) for name, maker in MAKERS.items() if name in options.works}
    for line in sys.stdin:
        done = works[line.strip()]
        clock = time.process_time if options.clock == "cpu" else time.perf_counter
        start = clock()
        for _ in range(options.repeats):
            done()
        print(json.dumps(clock() - start), flush=True)


def new_model(options: argparse.Namespace, family: str = "decoder") -> Any:
    """Build a model with the shape in the options."""
    settings = first_module("glassformer.base.config", "glassformer.config")
    config = settings.ModelConfig(
        family=family,
        width=options.width,
        layers=options.layers,
        heads=options.heads,
        context=options.context,
        positions=options.positions,
        norm=options.norm,
        activation=options.activation,
    )
    return first_module("glassformer.model.build").build_model(config, VOCABULARY)


def sample_config(options: argparse.Namespace, **changes: Any) -> Any:
    """Return the settings of generation."""
    tokens = min(options.tokens, options.context - 8)
    config = first_module("glassformer.base.config", "glassformer.config").SampleConfig
    return config(**{"tokens": tokens, "temperature": 0, **changes})


def rows_of(*lengths: int) -> list[list[int]]:
    """Return rows of random ids."""
    import torch

    return [torch.randint(2, VOCABULARY, (length,)).tolist() for length in lengths]


def training(options: argparse.Namespace) -> Callable[[], None]:
    """Return a function that takes one step of the optimizer."""
    import torch
    from torch.nn import functional as F

    model = new_model(options)
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(0, VOCABULARY, (options.batch, options.context + 1))  # (B, T + 1)

    def training_step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bf16"):
            logits = model(ids[:, :-1])  # (B, T, V)
            loss = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return training_step


def generating(
    options: argparse.Namespace, prompts: list[list[int]], hooked: bool = False, **changes: Any
) -> Callable[[], None]:
    """Return a function that generates continuations of prompts."""
    decoding = first_module("glassformer.generation.decoding")
    model = new_model(options).eval()
    sample = sample_config(options, **changes)
    if hooked:
        model.stack.norm.register_forward_hook(lambda module, args, output: None)

    def generate() -> None:
        for _ in decoding.generate(model, prompts, sample):
            pass

    return generate


def translating(options: argparse.Namespace, beams: int, sources: int) -> Callable[[], None]:
    """Return a function that generates targets for sources, with beam search if there are several beams."""
    decoding = first_module("glassformer.generation.decoding")
    beam = first_module("glassformer.generation.beam")
    search = getattr(beam, "beam_translate", beam.beam_search)  # versions that had two functions
    write = getattr(decoding, "translate", decoding.generate)
    model = new_model(options, "encoder-decoder").eval()
    rows = rows_of(*range(8, 8 + sources))
    sample = sample_config(options, beams=beams)

    def translate() -> None:
        if beams > 1:
            search(model, rows, sample, END)
        else:
            list(write(model, rows, sample, END))

    return translate


def streaming(options: argparse.Namespace) -> Callable[[], None]:
    """Return a function that adds rows to a continuous batch as others end."""
    running = first_module("glassformer.generation.continuous", "glassformer.generation.decoding")
    model = new_model(options).eval()

    def new_loop() -> Any:
        if hasattr(running, "Batch"):
            return running.Batch(model, None)
        reader = first_module("glassformer.generation.logit_readers", "glassformer.generation.readers").CachedReader(
            model, steps=16, limit=512
        )
        return running.TokenLoop(reader, None)

    prompts = rows_of(*[8 + 7 * (number % 13) for number in range(48)])
    samples = [
        sample_config(options, temperature=0.8, tokens=max(1, options.tokens // 2 + 3 * (number % 11)), seed=number)
        for number in range(48)
    ]

    def stream() -> None:
        batch = new_loop()
        left = list(zip(prompts, samples, strict=True))
        while left or len(batch):
            while left and len(batch) < 16:
                batch.join(*left.pop())
            batch.step()

    return stream


MAKERS: dict[str, Callable[[argparse.Namespace], Callable[[], None]]] = {
    "training": training,
    "writing": lambda options: generating(options, rows_of(8), hooked=True),
    "greedy": lambda options: generating(options, rows_of(8)),
    "sampled": lambda options: generating(options, rows_of(8), temperature=0.8, top_k=40),
    "prompts": lambda options: generating(options, rows_of(*range(8, 40)), temperature=0.8),
    "past": lambda options: generating(options, rows_of(*[options.context] * 4)),
    "beams": lambda options: translating(options, beams=4, sources=16),
    "targets": lambda options: translating(options, beams=1, sources=32),
    "streams": streaming,
}


class Worker:
    """A process that measures one checkout."""

    def __init__(self, checkout: Path, words: list[str]) -> None:
        environment = {**os.environ, "PYTHONPATH": str(checkout.resolve() / "src")}
        command = [sys.executable, __file__, "--worker", *words]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def seconds(self, work: str) -> float:
        """Let the process repeat a kind of work `--repeats` times, and return the seconds of all repetitions."""
        lines: IO[str] | None = self.process.stdin
        answers: IO[str] | None = self.process.stdout
        assert lines is not None
        assert answers is not None
        print(work, file=lines, flush=True)
        found: float = json.loads(answers.readline())
        return found

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def interval(ratios: list[float]) -> tuple[float, float]:
    """Return a 95 % confidence interval of the median, from order statistics."""
    ordered = sorted(ratios)
    away = 1.96 * math.sqrt(len(ordered)) / 2
    low = max(0, math.floor(len(ordered) / 2 - away))
    high = min(len(ordered) - 1, math.ceil(len(ordered) / 2 + away) - 1)
    return ordered[low], ordered[high]


def main() -> None:
    """Compare two checkouts, and print a row for each kind of work."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="*", type=Path, metavar="BEFORE AFTER", help="two checkouts")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--pairs", type=int, default=24, help="measured turns of each (default: 24)")
    parser.add_argument(
        "--restarts", type=int, default=1, help="starts of both processes, which share the pairs (default: 1)"
    )
    parser.add_argument("--repeats", type=int, default=5, help="repetitions in a turn (default: 5)")
    parser.add_argument("--threads", type=int, default=1, help="threads of each process (default: 1)")
    parser.add_argument(
        "--clock", choices=("wall", "cpu"), default="wall", help="cpu on a busy machine (default: wall)"
    )
    parser.add_argument("--width", type=int, default=128, help="(default: 128)")
    parser.add_argument("--layers", type=int, default=4, help="(default: 4)")
    parser.add_argument("--heads", type=int, default=4, help="(default: 4)")
    parser.add_argument("--context", type=int, default=128, help="(default: 128)")
    parser.add_argument("--works", nargs="+", choices=WORKS, default=WORKS[:2], help="(default: training writing)")
    parser.add_argument("--tokens", type=int, default=120, help="largest number of tokens per text (default: 120)")
    parser.add_argument("--batch", type=int, default=16, help="rows of a training step (default: 16)")
    parser.add_argument(
        "--precision", choices=("fp32", "bf16"), default="fp32", help="precision of training (default: fp32)"
    )
    parser.add_argument("--positions", default="rotary", help="(default: rotary)")
    parser.add_argument("--norm", default="rmsnorm", help="(default: rmsnorm)")
    parser.add_argument("--activation", default="swiglu", help="(default: swiglu)")
    add_isa(parser)
    options = parser.parse_args()
    restrict(options.isa)
    if options.worker:
        work(options)
        return
    if len(options.checkouts) != 2:
        parser.error("give two checkouts: BEFORE AFTER")
    words = [word for word in sys.argv[1:] if word not in {str(each) for each in options.checkouts}]
    for name in options.works:
        times: list[tuple[float, float]] = []
        for restart in range(options.restarts):
            before = Worker(options.checkouts[0], words)
            after = Worker(options.checkouts[1], words)
            for worker in (before, after):
                worker.seconds(name)  # warm-up
            for number in range(max(1, options.pairs // options.restarts)):
                first, second = (after, before) if (number + restart) % 2 else (before, after)
                seconds = {first: first.seconds(name)}
                seconds[second] = second.seconds(name)
                times.append((seconds[before], seconds[after]))
            for worker in (before, after):
                worker.close()
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
