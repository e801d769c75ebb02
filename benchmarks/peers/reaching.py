"""Time until the loss on the whole validation split reaches a target: our recipe and a published one.

One row has the time of training only, the other the time of the whole command from start to end.

The peer's recipe is the one that nanoGPT publishes for CPUs: 4 layers, 4 heads, width 128, context 64, 12 rows per
step, 2,000 steps of AdamW. With `--nanogpt`, nanoGPT's `train.py` takes all of these steps; without
`--until-commands`, Hugging Face's GPT-2 is trained with this recipe in a plain loop until the loss is reached. Text and
split are the same: the last tenth is held out. The time of evaluations counts only in the whole command; the loss of
every model is measured over the held-out characters, in windows of the context.
"""

from __future__ import annotations

import json
import math
import pickle
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from peers.models import Shape, hugging_face, nanogpt
from peers.rows import OURS, Options, Row

SHAPE = Shape(layers=4, heads=4, width=128, context=64, batch=12)
STEPS = 2000
EVERY = 250
PUBLISHED = {
    "device": "cpu",
    "compile": "False",
    "eval_iters": 20,
    "log_interval": 1,
    "block_size": 64,
    "batch_size": 12,
    "n_layer": 4,
    "n_head": 4,
    "n_embd": 128,
    "max_iters": STEPS,
    "lr_decay_iters": STEPS,
    "dropout": 0.0,
}


@dataclass(frozen=True)
class Reached:
    """Result of one training run.

    Attributes:
        training: seconds of the training steps only.
        whole: seconds of the whole command; None if no command was run.
        loss: loss over the held-out characters, in nats per character.
    """

    training: float
    whole: float | None
    loss: float


def measure(options: Options) -> Iterator[Row]:
    """Yield the rows of training and of the whole command, if a text is given."""
    if options.until_text is None:
        return
    text = options.until_text.read_text(encoding="utf-8")
    symbols = sorted(set(text))
    ids = np.array([symbols.index(character) for character in text], dtype=np.uint16)
    cut = int(0.9 * len(ids))
    training: dict[str, list[float]] = {}
    whole: dict[str, list[float]] = {}
    losses: dict[str, list[float]] = {}
    for _ in range(options.until_repeats):
        with tempfile.TemporaryDirectory() as folder:
            found = {OURS: _ours(options, Path(folder))}
            if options.nanogpt is not None:
                parts = (ids[:cut], ids[cut:], len(symbols))
                found["nanoGPT"] = run_nanogpt(options.nanogpt, Path(folder), *parts)
        if not options.until_commands:
            found["Hugging Face, published recipe"] = _plain_loop(ids[:cut], ids[cut:], len(symbols), options)
        for name, run in found.items():
            training.setdefault(name, []).append(run.training)
            losses.setdefault(name, []).append(round(run.loss, 4))
            if run.whole is not None:
                whole.setdefault(name, []).append(run.whole)
    reached = {name: max(each) <= options.until for name, each in losses.items()}
    facts = {"loss": losses, "reached": reached, "recipe": options.recipe}
    work = f"validation loss {options.until}"
    yield Row("time to a loss, training alone", work, "seconds", training, False, facts)
    yield Row("time to a loss, whole command", work, "seconds", whole, False, facts)


def _ours(options: Options, folder: Path) -> Reached:
    """Run our command; the loss is that of its best checkpoint."""
    command = [sys.executable, "-m", "glassformer", "train", str(options.until_text), "--recipe", options.recipe]
    command += ["--out", str(folder / "run"), "--until-loss", str(options.until), "--json"]
    command += ["--set", f"train.threads={options.threads}"]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    whole = time.perf_counter() - start
    found = json.loads(done.stdout)
    return Reached(found["train_seconds"], whole, found["loss"])


def run_nanogpt(
    published: Path, folder: Path, train: Any, held_out: Any, vocabulary: int, steps: int = STEPS, seed: int = 1337
) -> Reached:
    """Run nanoGPT's script in a copy of the checkout.

    The time of an iteration with an evaluation is replaced by the median time of all iterations.

    Args:
        published: checkout of nanoGPT.
        folder: folder for the copy.
        train, held_out: ids of both splits, of type uint16.
        vocabulary: vocabulary size.
        steps: number of steps, and of the steps over which the learning rate decays.
        seed: seed of the weights and of the rows, which the script sets itself.
    """
    checkout = folder / "nanogpt"
    shutil.copytree(published, checkout, ignore=shutil.ignore_patterns(".git", "assets"))
    script = checkout / "train.py"
    script.write_text(script.read_text(encoding="utf-8").replace("1337", str(seed)), encoding="utf-8")
    data = checkout / "data" / "shakespeare_char"
    train.tofile(data / "train.bin")
    held_out.tofile(data / "val.bin")
    (data / "meta.pkl").write_bytes(
        pickle.dumps({"vocab_size": vocabulary})
    )  # without it, nanoGPT uses GPT-2's 50,304 tokens
    changed = PUBLISHED | {"max_iters": steps, "lr_decay_iters": steps}
    settings = [f"--{name}={value}" for name, value in changed.items()]
    command = [sys.executable, "train.py", "config/train_shakespeare_char.py", *settings]
    start = time.perf_counter()
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True)
    whole = time.perf_counter() - start
    times = [float(each) / 1000 for each in re.findall(r"^iter \d+: loss \S+ time (\S+)ms", _plain(done.stdout), re.M)]
    usual = statistics.median(times)
    taken = sum(usual if number % EVERY == 0 else each for number, each in enumerate(times))
    saved = torch.load(checkout / "out-shakespeare-char" / "ckpt.pt", weights_only=True)
    model = nanogpt(Shape(4, 4, 128, 64, 12, saved["model_args"]["vocab_size"]), checkout)
    model.load_state_dict(saved["model"])
    return Reached(taken, whole, whole_loss(lambda ids: model(ids, ids)[0], model, held_out))


def _plain(log: str) -> str:
    return log.replace(",", "")


def _plain_loop(train: Any, held_out: Any, vocabulary: int, options: Options) -> Reached:
    """Train Hugging Face's GPT-2 with the published settings until the loss is reached or the steps are done."""
    shape = Shape(**{**vars(SHAPE), "vocabulary": vocabulary})
    torch.manual_seed(0)
    model: Any = hugging_face(shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
    draw = np.random.default_rng(0)
    taken = 0.0
    loss = math.inf
    last = 40 if options.quick else STEPS
    for step in range(1, last + 1):
        start = time.perf_counter()
        rows = draw.integers(0, len(train) - 65, shape.batch)[:, None] + np.arange(65)
        ids = torch.from_numpy(train[rows].astype(np.int64))  # (B, T+1)
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * _factor(step)
        optimizer.zero_grad(set_to_none=True)
        logits = model(ids[:, :-1], use_cache=False).logits  # (B, T, V)
        cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        taken += time.perf_counter() - start
        if step % EVERY == 0 or step == last:
            loss = whole_loss(lambda ids: model(ids, use_cache=False).logits, model, held_out)
            if loss <= options.until:
                break
    return Reached(taken, None, loss)


def _factor(step: int) -> float:
    """Return the factor on the learning rate: 100 steps of warm-up, then a cosine decay to a tenth."""
    if step <= 100:
        return step / 100
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - 100) / (STEPS - 100)))


@torch.no_grad()
def whole_loss(logits: Any, model: nn.Module, held_out: Any) -> float:
    """Return the loss in nats per character over the held-out text, in non-overlapping windows of the context.

    An incomplete last window is left out.
    """
    was = model.training
    T = SHAPE.context
    model.eval()
    count = (len(held_out) - 1) // T
    ids = torch.from_numpy(held_out[: count * T + 1].astype(np.int64))
    inputs = ids[:-1].view(count, T)  # (windows, T)
    targets = ids[1:].view(count, T)  # (windows, T)
    total = 0.0
    for some, wanted in zip(inputs.split(64), targets.split(64), strict=True):
        found: Tensor = logits(some)  # (B, T, V)
        total += float(cross_entropy(found.flatten(0, 1), wanted.flatten(), reduction="sum"))
    model.train(was)
    return total / (count * T)
