"""Generation with each backend, and beam search, with the functions of `generation.py` and `beam_search.py`."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import beam_search
import generation
import torch

from peers.models import Shape, nanogpt
from peers.rows import CLOCKS, OURS, Options, Row, take_turns

PEER = "Hugging Face"
BATCHES = (1, 8, 32)
PROMPTS = (16, 512)


@contextmanager
def _as_called(*words: str) -> Iterator[None]:
    """Replace `sys.argv` inside the block; the other benchmarks read their options from it."""
    before = sys.argv
    sys.argv = ["benchmark", *words]
    try:
        yield
    finally:
        sys.argv = before


def measure(options: Options) -> Iterator[Row]:
    """Yield a row of greedy decoding for each batch size and prompt length, then two rows of sampling.

    With `--nanogpt`, the sampling row of batch size 1 includes nanoGPT. With `--quick`, there is one greedy row.
    """
    quick = ["--layers", "2", "--width", "32", "--heads", "2", "--tokens", "8", "--context", "64"]
    with _as_called(*(quick if options.quick else [])):
        settings = generation.arguments()
    cases = [(batch, prompt, 0.0) for prompt in PROMPTS for batch in BATCHES] + [(1, 16, 0.8), (32, 16, 0.8)]
    for batch, prompt, temperature in [(2, 5, 0.0)] if options.quick else cases:
        settings.temperature = temperature
        yield _row(settings, batch, prompt, options)


def _row(settings: argparse.Namespace, batch: int, length: int, options: Options) -> Row:
    context = max(settings.context, length + settings.tokens)
    model = generation.our_model(settings, context).to(options.device)
    numbers = torch.Generator().manual_seed(0)
    prompts = torch.randint(0, settings.vocabulary, (batch, length), generator=numbers).tolist()
    writers = {OURS: generation.write_with_ours(model, settings)}
    if options.device == "cpu":
        writers[f"{OURS} onnxruntime"] = generation.write_with_ours(model, settings, "onnxruntime")
        writers[f"{OURS} int8"] = generation.write_with_ours(model, settings, "onnxruntime-int8")
    writers[PEER] = generation.write_with_theirs(generation.their_model(model), settings)
    texts: dict[str, Any] = {}
    work: dict[str, Callable[[], object]] = {
        name: partial(_keep, texts, name, writer, prompts) for name, writer in writers.items()
    }
    if options.nanogpt is not None and batch == 1 and length == 16 and settings.temperature:
        shape = Shape(settings.layers, settings.heads, settings.width, context, 1, settings.vocabulary)
        theirs = nanogpt(shape, options.nanogpt).to(options.device).eval()
        work["nanoGPT"] = partial(_write_with_nanogpt, theirs, settings, prompts)
    seconds = take_turns(work, options.repeats, CLOCKS[options.clock])
    made = batch * settings.tokens
    weights = [*model.stack.parameters(), model.embedding.tokens.weight]
    read = sum(each.numel() * each.element_size() for each in weights)
    sampling_label = f", sampled at temperature {settings.temperature}" if settings.temperature else ", greedy"
    exact = [texts[name] for name in texts if name not in (f"{OURS} int8", "nanoGPT")]
    equal = sum(all(row == rows[0] for row in rows) for rows in zip(*exact, strict=True))
    return Row(
        "generation",
        f"batch {batch}, prompt {length}, {settings.tokens} tokens{sampling_label}",
        "tokens/s",
        {name: [made / each for each in times] for name, times in seconds.items()},
        facts={
            **({} if settings.temperature else {"equal_rows": f"{equal} of {batch}"}),
            "weight_gb_read_per_second": round(read * settings.tokens / statistics.median(seconds[OURS]) / 1e9, 2),
        },
    )


def _keep(texts: dict[str, Any], name: str, writer: generation.Write, prompts: list[list[int]]) -> None:
    texts[name] = writer(prompts)


@torch.no_grad()
def _write_with_nanogpt(model: Any, settings: argparse.Namespace, prompts: list[list[int]]) -> None:
    """Generate with nanoGPT, which has no cache; its weights are different, so only time is compared."""
    ids = torch.tensor(prompts, device=next(model.parameters()).device)  # (B, T)
    model.generate(ids, settings.tokens, temperature=settings.temperature)


def measure_beams(options: Options) -> Iterator[Row]:
    """Yield a row for each of the two random models of `beam_search.py`."""
    quick = ["--layers", "1", "--width", "32", "--hidden", "64", "--vocabulary", "100", "--sentences", "4"]
    with _as_called(*(quick if options.quick else []), "--threads", str(options.threads)):
        settings = beam_search.arguments()
    settings.repeats = options.repeats
    for found in beam_search.random_work(settings):
        values = {
            name: [settings.sentences / each for each in times]
            for name, times in zip((OURS, PEER), found["seconds"].values(), strict=True)
        }
        work = f"{found['work']} lengths, {settings.beams} beams, {settings.sentences} sources"
        equal = f"{found['equal_texts']} of {found['sentences']}"
        yield Row("beam search", work, "sentences/s", values, facts={"equal_texts": equal})
