"""Growth of cost with size: a training step, a token, the encoding of a text and the opening of a run.

Each panel varies one quantity. Each point is the median of `--repeats` runs after a warm-up run (encoding: at most 2
runs, without warm-up). Training steps always process 3,072 tokens. In the folder `--out`, `results.md` contains the
tables, `results.svg` the charts, and `results.json` all runs, the machine and its measured peaks.

    python benchmarks/growth.py --threads 2 --text shakespeare.txt --out benchmarks/results/growth/avx512
    python benchmarks/growth.py --threads 2 --text shakespeare.txt --isa avx2 --only "training step, by model size"
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import generation
import torch
from isa import add_isa, restrict
from peers.machine import describe, peaks, precisions
from peers.models import Shape, our_step
from random_run import make_run

from glassformer.base.backends import BackendName
from glassformer.base.config import Config
from glassformer.training.memory import configure_allocator

STEP_TOKENS = 3072
SIZES = {
    "1 M": Shape(layers=5, heads=4, width=128, context=256, batch=12),
    "10 M": Shape(layers=6, heads=6, width=384, context=256, batch=12),
    "50 M": Shape(layers=16, heads=8, width=512, context=256, batch=12),
}
"""Models by their approximate number of parameters."""
BACKENDS: dict[str, BackendName] = {"torch": "torch", "onnxruntime": "onnxruntime", "8 bits": "onnxruntime-int8"}
ALPHABET = "".join(chr(code) for code in range(32, 97))


@dataclass(frozen=True)
class Point:
    """One measurement.

    Attributes:
        panel: name of the panel.
        series: precision, backend, tokenizer or command.
        x: size, in the unit of the panel.
        y: median cost, in the unit of the panel.
        turns: cost of each run, in the unit of the panel.
    """

    panel: str
    series: str
    x: float
    y: float
    turns: list[float]


@dataclass(frozen=True)
class Panel:
    """A chart: its axes and the function that measures its points."""

    x: str
    y: str
    measure: Callable[[argparse.Namespace], Iterator[tuple[str, float, list[float]]]]


Measured = Iterator[tuple[str, float, list[float]]]
"""Series, size, and cost of each turn."""


def turns_of(work: Callable[[], object], repeats: int) -> list[float]:
    """Return the seconds of each turn, after a warm-up turn."""
    seconds = []
    for turn in range(repeats + 1):
        start = time.perf_counter()
        work()
        if turn:
            seconds.append(time.perf_counter() - start)
    return seconds


def steps_of(shape: Shape, x: float, repeats: int) -> Measured:
    """Measure the seconds of a training step in each precision."""
    for precision in precisions(time.perf_counter, "cpu"):
        torch.manual_seed(0)
        step = our_step(shape, precision, "cpu", {})
        step()
        yield precision, x, turns_of(step, repeats)


def steps_by_size(options: argparse.Namespace) -> Measured:
    """Measure training steps of models with 1, 10 and 50 million parameters."""
    for shape in SIZES.values():
        yield from steps_of(shape, shape.weights / 1e6, options.repeats)


def steps_by_context(options: argparse.Namespace) -> Measured:
    """Measure training steps of the 10 M model, with the same number of tokens in rows of several lengths."""
    for context in (64, 256, 1024):
        shape = Shape(layers=6, heads=6, width=384, context=context, batch=STEP_TOKENS // context)
        yield from steps_of(shape, context, options.repeats)


def steps_by_vocabulary(options: argparse.Namespace) -> Measured:
    """Measure training steps of a model with the shape of the 1 M model, with several vocabulary sizes."""
    for vocabulary in (100, 2000, 8000, 32000):
        shape = Shape(layers=5, heads=4, width=128, context=256, batch=12, vocabulary=vocabulary)
        yield from steps_of(shape, vocabulary, options.repeats)


def written(options: argparse.Namespace, shape: Shape, batch: int, prompt: int, x: float) -> Measured:
    """Measure the milliseconds of a greedy step, which adds a token to each of `batch` texts, with each backend."""
    settings = argparse.Namespace(
        layers=shape.layers,
        width=shape.width,
        heads=shape.heads,
        vocabulary=shape.vocabulary,
        tokens=100,
        temperature=0.0,
        top_k=None,
        top_p=None,
    )
    model = generation.our_model(settings, max(shape.context, prompt + settings.tokens))
    numbers = torch.Generator().manual_seed(0)
    prompts = torch.randint(0, shape.vocabulary, (batch, prompt), generator=numbers).tolist()
    for name, backend in BACKENDS.items():
        write = generation.write_with_ours(model, settings, backend)
        seconds = turns_of(partial(write, prompts), options.repeats)
        yield name, x, [1000 * each / settings.tokens for each in seconds]


def tokens_by_size(options: argparse.Namespace) -> Measured:
    """Measure generation of one text by models with 1, 10 and 50 million parameters."""
    for shape in SIZES.values():
        yield from written(options, shape, 1, 16, shape.weights / 1e6)


def tokens_by_prompt(options: argparse.Namespace) -> Measured:
    """Measure generation of one text by the 10 M model, including the reading of prompts of several lengths."""
    for prompt in (16, 256, 1024):
        yield from written(options, SIZES["10 M"], 1, prompt, prompt)


def tokens_by_texts(options: argparse.Namespace) -> Measured:
    """Measure generation of several texts at once by the 10 M model."""
    for streams in (1, 8, 32, 128):
        yield from written(options, SIZES["10 M"], streams, 16, streams)


def encoding_by_corpus(options: argparse.Namespace) -> Measured:
    """Measure the seconds of `glass data encode`, including the training of the tokenizer."""
    text = options.text.read_bytes()
    with tempfile.TemporaryDirectory() as name:
        for megabytes in (1, 10, 50):
            path = Path(name) / f"{megabytes}.txt"
            size = megabytes * 10**6
            path.write_bytes((text * (size // len(text) + 1))[:size])
            for kind in ("characters", "bpe"):
                seconds = []
                for turn in range(min(2, options.repeats)):
                    out = Path(name) / f"{kind}-{megabytes}-{turn}"
                    words = ["data", "encode", str(path), "--out", str(out), "--tokenizer.kind", kind]
                    start = time.perf_counter()
                    run_glass(words, Path(name))
                    seconds.append(time.perf_counter() - start)
                yield kind, megabytes, seconds


def run_glass(words: list[str], folder: Path) -> None:
    """Run a `glass` command in a folder; raise RuntimeError with its error output if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "glassformer", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"glass {' '.join(words)} failed: {done.stderr[-1000:]}")


def opening_by_size(options: argparse.Namespace) -> Measured:
    """Measure the seconds that `glass generate` takes for one token, and the seconds that the import of torch takes."""
    with tempfile.TemporaryDirectory() as name:
        for label, shape in SIZES.items():
            sizes = {each: getattr(shape, each) for each in ("layers", "width", "heads", "context")}
            run = Path(name) / label
            make_run(run, sizes, ALPHABET, 0.02)
            words = ["generate", str(run), "A", "--tokens", "1"]
            seconds = turns_of(partial(run_glass, words, Path(name)), options.repeats)
            yield "glass generate, 1 token", shape.weights / 1e6, seconds
            alone = [sys.executable, "-c", "import torch"]
            seconds = turns_of(partial(subprocess.run, alone, check=True), options.repeats)
            yield "import torch", shape.weights / 1e6, seconds


PANELS = {
    "training step, by model size": Panel("million parameters", "seconds for 3,072 tokens", steps_by_size),
    "training step, by context": Panel("tokens of a row", "seconds for 3,072 tokens", steps_by_context),
    "training step, by vocabulary": Panel("tokens of the vocabulary", "seconds for 3,072 tokens", steps_by_vocabulary),
    "a token, by model size": Panel("million parameters", "milliseconds per token", tokens_by_size),
    "a token, by prompt": Panel("tokens of the prompt", "milliseconds per token, with the prompt", tokens_by_prompt),
    "generation step, by batch size": Panel("batch size", "milliseconds per step", tokens_by_texts),
    "encoding, by corpus": Panel("megabytes", "seconds", encoding_by_corpus),
    "opening a run, by model size": Panel("million parameters", "seconds", opening_by_size),
}


def exponent(points: list[Point]) -> float:
    """Return p of cost ~ size^p between the last two sizes: 1 is linear growth, 0 is none."""
    *_, before, last = sorted(points, key=lambda point: point.x)
    return math.log(last.y / before.y) / math.log(last.x / before.x)


def series_of(points: list[Point], panel: str) -> dict[str, list[Point]]:
    """Return the points of a panel by series."""
    found: dict[str, list[Point]] = {}
    for point in points:
        if point.panel == panel:
            found.setdefault(point.series, []).append(point)
    return found


def markdown(machine: dict[str, Any], peak: dict[str, float], points: list[Point]) -> str:
    """Return a table for each panel: a row for each series, a column for each size."""
    lines = [
        "# How cost grows",
        "",
        f"{machine['processor']}, {machine['threads']} threads, {machine['instruction_set']}. Peaks: matrix "
        f"multiplications {peak['fp32_gflops']} GFLOP/s in float32 and {peak['bf16_gflops']} in bfloat16, memory "
        f"{peak['memory_gb_per_second']} GB/s. Load average at the start: {machine['load']}.",
    ]
    for name, panel in PANELS.items():
        series = series_of(points, name)
        if not series:
            continue
        sizes = [point.x for point in next(iter(series.values()))]
        lines += ["", f"## {name[0].upper()}{name[1:]}", ""]
        lines += [f"The values are in {panel.y}. The last column is p in cost ~ size^p, from the last two sizes.", ""]
        lines += [f"| {panel.x} | {' | '.join(f'{size:,.5g}' for size in sizes)} | p |"]
        lines += ["|---" * (len(sizes) + 2) + "|"]
        for library, found in series.items():
            values = " | ".join(f"{point.y:.3g}" for point in found)
            lines += [f"| {library} | {values} | {exponent(found):.2f} |"]
    return "\n".join(lines) + "\n"


def draw(path: Path, points: list[Point]) -> None:
    """Draw each panel on logarithmic axes, with a dotted line of linear growth."""
    from matplotlib.figure import Figure

    names = [name for name in PANELS if series_of(points, name)]
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(4.2 * columns, 3.4 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(names) :]:
        axes.set_visible(False)
    for axes, name in zip(grid.flat, names, strict=False):
        for library, found in series_of(points, name).items():
            axes.plot([point.x for point in found], [point.y for point in found], marker="o", label=library)
        first = next(iter(series_of(points, name).values()))
        ends = [first[0].x, first[-1].x]
        axes.plot(ends, [first[0].y * end / ends[0] for end in ends], color="grey", linestyle=":", linewidth=1)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title(name, fontsize=9)
        axes.set_xlabel(PANELS[name].x, fontsize=8)
        axes.set_ylabel(PANELS[name].y, fontsize=8)
        axes.tick_params(labelsize=7)
        axes.legend(fontsize=7)
    figure.supxlabel("dotted: linear growth", fontsize=8)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Measure all panels, and print, write and draw the results."""
    options = arguments()
    torch.set_num_threads(options.threads)
    machine = describe(options.threads)
    peak = peaks(time.perf_counter, quick=False)
    configure_allocator(Config())  # as `glass train` does
    points = []
    for name in options.only or PANELS:
        for series, x, turns in PANELS[name].measure(options):
            point = Point(name, series, x, statistics.median(turns), turns)
            print(f"{name}: {series}, {x:,.4g} {PANELS[name].x}: {point.y:.3g} {PANELS[name].y}", flush=True)
            points.append(point)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        found = {"machine": machine, "peaks": peak, "points": [vars(point) for point in points]}
        (options.out / "results.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        (options.out / "results.md").write_text(markdown(machine, peak, points), encoding="utf-8")
        draw(options.out / "results.svg", points)


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True, help="text that is repeated to make the corpora")
    parser.add_argument(
        "--threads", type=int, default=torch.get_num_threads(), help="threads of PyTorch and onnxruntime"
    )
    parser.add_argument("--repeats", type=int, default=3, help="measured turns of each point; default 3")
    parser.add_argument("--only", action="append", choices=PANELS, help="measure only this panel; may be repeated")
    parser.add_argument("--out", type=Path, help="folder of the results")
    add_isa(parser)
    options = parser.parse_args()
    restrict(options.isa)
    return options


if __name__ == "__main__":
    main()
