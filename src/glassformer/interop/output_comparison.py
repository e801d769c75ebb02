"""Comparison of another program's output with the run's: logits, and greedy tokens one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from glassformer.base.config import SampleConfig
from glassformer.generation.context_window import window_start
from glassformer.generation.decoding import TokenStep, generate
from glassformer.interop.export_report import Measured
from glassformer.model.transformer import Decoder, EncoderDecoder
from glassformer.runs.opening import OpenedRun
from glassformer.text.tokenizers import Tokenizer

TOKENS = 64
LOGITS = 1e-3
"""The most that logits of a float32 export may differ from the run's."""
LEVEL = 1e-5
"""Two logits of the run that are closer than this are level: rounding decides which one is written."""

Logits = NDArray[np.floating]
Next = Callable[[Sequence[int], Sequence[int]], Logits]
"""A source (empty for a decoder) and the tokens so far -> logits (V) of the next token, by the other program."""


def logits_limit(right: Sequence[Logits]) -> float:
    """`LOGITS`; and less where the run's own logits are small, so that a young model's export is held as strictly."""
    return LOGITS * min(1.0, max(float(np.abs(each).max()) for each in right))


def largest_difference(one: Sequence[Logits], other: Sequence[Logits]) -> float:
    """Of any two numbers in the same place; infinite where one is not finite."""
    most = max(float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True))
    return most if most == most else float("inf")


def random_rows(rows: int, length: int, vocab_size: int) -> list[list[int]]:
    """Ids (rows, length) to compare on; the same ones at every call."""
    generator = torch.Generator().manual_seed(rows * 100_003 + length)
    return torch.randint(vocab_size, (rows, length), generator=generator).tolist()


def check_greedy(opened: OpenedRun, theirs: Next, how: str) -> Measured:
    """Write `TOKENS` likeliest tokens after three prompts (or for three sources) and count those that differ.

    The run writes with its cache, as `glass generate` does. The other program is given the same tokens at every step,
    so that each step is compared by itself. A target is no longer than the context, and ends at the end token.

    Args:
        opened: of the run, in float32; a decoder or an encoder-decoder.
        theirs: the other program.
        how: how it writes, for the report.
    """
    model = opened.model
    end = opened.source_tokenizer.end_id
    assert isinstance(model, Decoder | EncoderDecoder)
    context = model.config.context
    size = opened.source_tokenizer.vocab_size
    prompts = [[end], *random_rows(1, min(5, context), size), *random_rows(1, min(11, context), size)]
    count = differ = 0
    for prompt in prompts:
        begun = list(opened.tokenizer.target_start)
        source, tokens = ([], list(prompt)) if isinstance(model, Decoder) else (prompt, begun)
        for step in _steps(model, prompt, opened.tokenizer):
            logits = theirs(source, tokens[window_start(len(tokens), context) :])  # (V)
            token = step.tokens[0]
            choice = int(logits.argmax())
            level = float(step.logits[0, token] - step.logits[0, choice]) <= LEVEL
            differ += token != choice and not level
            count += 1
            tokens.append(token)
    return Measured("greedy tokens", differ, 0, f"{count} tokens after {len(prompts)} prompts, {how}")


def _steps(model: Decoder | EncoderDecoder, prompt: list[int], tokenizer: Tokenizer) -> list[TokenStep]:
    """The run's own greedy tokens; a target ends where the run ends it."""
    settings = SampleConfig(tokens=TOKENS, temperature=0.0)
    end = tokenizer.end_id if isinstance(model, EncoderDecoder) else None
    return list(generate(model, [prompt], settings, end, start=tokenizer.target_start))
