"""Peak memory by context length and by size of the corpus, each in a separate process."""

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
QUADRATIC = 4096  # longest context for models that keep the attention weights


def measure(options: Options) -> Iterator[Row]:
    """Yield a row for each mode and context, with the exponent of memory growth up to this context."""
    models = {
        OURS: {"library": "ours"},
        "Hugging Face": {"library": "hugging_face", "attention": "sdpa"},
        "Hugging Face with eager attention": {"library": "hugging_face", "attention": "eager"},
    }
    contexts = (256, 512) if options.quick else CONTEXTS
    for mode in ("training",) if options.quick else ("training", "reading"):
        found: dict[str, dict[int, float]] = {name: {} for name in models}
        for context in contexts:
            asked = [name for name in models if models[name].get("attention") != "eager" or context <= QUADRATIC]
            for name in asked:
                facts = {**models[name], "context": context, "mode": mode, "threads": options.threads}
                found[name][context] = in_a_process("remembering", facts)["megabytes"]
            values = {name: [found[name][context]] for name in asked}
            grows = {name: growth(found[name]) for name in asked if len(found[name]) > 1}
            kind = "memory of training" if mode == "training" else "memory of a forward pass"
            yield Row(kind, f"context {context}, 1 text", "MB", values, False, {"exponent": grows})


def growth(megabytes: dict[int, float]) -> float:
    """Return the exponent p of memory ~ context^p, from the first context to the last."""
    (first, *_, last) = sorted(megabytes)
    return round(math.log(megabytes[last] / max(megabytes[first], 1e-3)) / math.log(last / first), 2)


def measure_corpora(options: Options) -> Iterator[Row]:
    """Yield the anonymous memory of `glass train`, including reading and encoding, by the size of the text."""
    for megabytes in (1,) if options.quick else options.corpora:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "text.txt"
            large.write_text(source, megabytes * 1_000_000, one_line=False)
            peak, trained = _watched(source, Path(folder) / "run", steps=5 if options.quick else 100)
        facts: dict[str, Any] = {"seconds_of_training": trained["train_seconds"]}
        yield Row("memory by corpus", f"{megabytes} MB of text", "MB", {OURS: [peak / 1e6]}, False, facts)


def _watched(source: Path, run: Path, steps: int) -> tuple[int, dict[str, Any]]:
    """Return the peak anonymous memory of a training run in bytes, and its JSON output."""
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
