"""Start-up times of `glass --help`, and of `glass train` on an encoded text until its first step.

The baselines are Python and torch alone. Hugging Face's row builds a GPT-2 of the same size in a script and takes one
step on random ids, which is less than a training script does. Each measurement runs in a separate process.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from peers.rows import CLOCKS, OURS, Options, Row, take_turns

THEIR_STEP = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel
model = GPT2LMHeadModel(GPT2Config(vocab_size=65, n_positions=64, n_embd=128, n_layer=4, n_head=4))
optimizer = torch.optim.AdamW(model.parameters())
ids = torch.randint(0, 65, (12, 64))
model(ids, labels=ids).loss.backward()
optimizer.step()
"""
GLASS = ("-m", "glassformer")


def measure(options: Options) -> Iterator[Row]:
    """Yield a row for `glass --help` and a row for `glass train` until its first step."""
    clock = CLOCKS[options.clock]
    repeats = 1 if options.quick else options.repeats
    helped: dict[str, Callable[[], object]] = {OURS: partial(_run, *GLASS, "--help"), "Python": partial(_run, "-c", "")}
    yield Row("start", "glass --help", "seconds", take_turns(helped, repeats, clock), more_is_better=False)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = folder / "text.txt"
        text.write_text("".join(f"{number} and {number * number % 9973}.\n" for number in range(50_000)))
        begun: dict[str, Callable[[], object]] = {
            OURS: partial(_until_first_step, text, folder),
            "import torch": partial(_run, "-c", "import torch"),
            "Hugging Face": partial(_run, "-c", THEIR_STEP),
        }
        yield Row("start", "glass train, to its first step", "seconds", take_turns(begun, repeats, clock), False)


def _run(*words: str) -> None:
    subprocess.run([sys.executable, *words], check=True, capture_output=True)


def _until_first_step(text: Path, folder: Path) -> None:
    """Train until the log has the line of the first step; the first turn also encodes the text."""
    run = folder / "runs" / str(time.monotonic_ns())
    words = ["train", str(text), "--recipe", "shakespeare-nano", "--out", str(run), "--set", "train.log_every=1"]
    command = [sys.executable, *GLASS, *words, "--steps", "100000"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        metrics = run / "metrics.jsonl"
        while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
            time.sleep(0.005)
        if process.poll() is not None:
            assert process.stderr is not None
            raise RuntimeError(f"training ended before its first step: {process.stderr.read()[-2000:]}")
        process.kill()
