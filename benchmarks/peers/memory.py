"""Peak memory against the context and against the size of the corpus, each in a process of its own."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import memory_of_large_text as large

from peers.rows import OURS, Options, Row, in_a_process

CONTEXTS = (512, 1024, 2048, 4096, 8192, 16384)
QUADRATIC = 4096  # whoever keeps the weights of attention is not asked for more than this context


def measure(options: Options) -> Iterator[Row]:
    """A row for each context; the last one of training and of reading says how memory grows."""
    whoever = {
        OURS: {"who": "ours"},
        "Hugging Face": {"who": "hugging_face", "attention": "sdpa"},
        "Hugging Face, weights kept": {"who": "hugging_face", "attention": "eager"},
    }
    contexts = (256, 512) if options.quick else CONTEXTS
    for mode in ("training",) if options.quick else ("training", "reading"):
        found: dict[str, dict[int, float]] = {name: {} for name in whoever}
        for context in contexts:
            asked = [name for name in whoever if "kept" not in name or context <= QUADRATIC]
            for name in asked:
                facts = {**whoever[name], "context": context, "mode": mode, "threads": options.threads}
                found[name][context] = in_a_process("remembering", facts)["megabytes"]
            values = {name: [found[name][context]] for name in asked}
            grows = {name: growth(found[name]) for name in asked if len(found[name]) > 1}
            yield Row(f"memory of {mode}", f"context {context}, 1 text", "MB", values, False, {"exponent": grows})


def growth(megabytes: dict[int, float]) -> float:
    """The exponent p of memory ~ context^p, from the first context to the last."""
    (first, *_, last) = sorted(megabytes)
    return round(math.log(megabytes[last] / max(megabytes[first], 1e-3)) / math.log(last / first), 2)


def measure_corpora(options: Options) -> Iterator[Row]:
    """Anonymous memory of `glass train`, reading and encoding included, by the size of the text."""
    for megabytes in (1,) if options.quick else options.corpora:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "text.txt"
            large.write_text(source, megabytes * 1_000_000, one_line=False)
            peak, trained = _watched(source, Path(folder) / "run", steps=5 if options.quick else 100)
        facts: dict[str, Any] = {"seconds_of_training": trained["train_seconds"]}
        yield Row("memory by corpus", f"{megabytes} MB of text", "MB", {OURS: [peak / 1e6]}, False, facts)


def _watched(source: Path, run: Path, steps: int) -> tuple[int, dict[str, Any]]:
    """The most anonymous memory of a training run, and what it says at its end."""
    command = [sys.executable, "-m", "glassformer", "train", str(source), "--out", str(run), "--json"]
    command += ["--steps", str(steps)]
    peak = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        while process.poll() is None:
            peak = max(peak, large.anonymous_memory(process.pid))
            time.sleep(large.EVERY)
        assert process.stdout is not None
        found: dict[str, Any] = json.loads(process.stdout.read())
    return peak, found
