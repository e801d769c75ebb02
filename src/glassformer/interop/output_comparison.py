"""Compare another program's output with the run's: logits, and greedy tokens step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from glassformer.base.config import SampleConfig
from glassformer.generation.context_window import window_start
from glassformer.generation.decoding import TokenStep, generate
from glassformer.interop.export_report import Comparison
from glassformer.model.transformer import Decoder, EncoderDecoder
from glassformer.runs.opening import OpenedRun
from glassformer.text.tokenizers import Tokenizer

TOKENS = 64
"""Largest number of greedy tokens to compare after each prompt."""
LOGITS = 1e-3
"""Largest allowed difference between the logits of a float32 export and the run's."""
TIE_TOLERANCE = 1e-5
"""Logits of the run that differ by at most this value are tied: rounding then decides which token is chosen."""

Logits = NDArray[np.floating]
NextLogitsFunction = Callable[[Sequence[int], Sequence[int]], Logits]
"""Function (source ids, empty for a decoder; token ids so far) -> next-token logits (V) of the other program."""


def logits_limit(run_logits: Sequence[Logits]) -> float:
    """Return `LOGITS`, or less if all logits of the run are between -1 and 1, so that the check stays strict."""
    return LOGITS * min(1.0, max(float(np.abs(each).max()) for each in run_logits))


def largest_difference(one: Sequence[Logits], other: Sequence[Logits]) -> float:
    """Return the largest absolute difference between corresponding elements; infinity if a value is not finite."""
    differences = [float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True)]
    return max(differences) if np.isfinite(differences).all() else float("inf")


def random_rows(rows: int, length: int, vocab_size: int) -> list[list[int]]:
    """Return pseudo-random token ids (rows, length), always the same for the same arguments."""
    generator = torch.Generator().manual_seed(rows * 100_003 + length)
    return torch.randint(vocab_size, (rows, length), generator=generator).tolist()


def check_greedy(opened: OpenedRun, theirs: NextLogitsFunction, how: str) -> Comparison:
    """Generate up to `TOKENS` greedy tokens after three prompts (or for three sources), and count differing tokens.

    The run generates with its cache, as `glass generate` does. At every step the other program gets the run's tokens,
    so an earlier difference has no effect. If the run's logits of both tokens are tied (`TIE_TOLERANCE`), a different
    token does not count. The target of an encoder-decoder ends at the end token or when the context is full.

    Args:
        opened: the run, in float32; a decoder or an encoder-decoder.
        theirs: function that returns the other program's logits.
        how: how the other program generates, for the report.
    """
    model = opened.model
    end = opened.source_tokenizer.end_id
    assert isinstance(model, Decoder | EncoderDecoder)
    context = model.config.context
    size = opened.source_tokenizer.vocab_size
    prompts = [[end], *random_rows(1, min(5, context), size), *random_rows(1, min(11, context), size)]
    count = differing = 0
    for prompt in prompts:
        target_start = list(opened.tokenizer.target_start)
        source, tokens = ([], list(prompt)) if isinstance(model, Decoder) else (prompt, target_start)
        for step in _greedy_steps(model, prompt, opened.tokenizer):
            logits = theirs(source, tokens[window_start(len(tokens), context) :])  # (V)
            token = step.tokens[0]
            choice = int(logits.argmax())
            tied = float(step.logits[0, token] - step.logits[0, choice]) <= TIE_TOLERANCE
            differing += token != choice and not tied
            count += 1
            tokens.append(token)
    return Comparison("greedy tokens", differing, 0, f"{count} tokens after {len(prompts)} prompts, {how}")


def _greedy_steps(model: Decoder | EncoderDecoder, prompt: list[int], tokenizer: Tokenizer) -> list[TokenStep]:
    """Generate greedily and return the steps with their logits; only an encoder-decoder stops at the end token."""
    settings = SampleConfig(tokens=TOKENS, temperature=0.0)
    end = tokenizer.end_id if isinstance(model, EncoderDecoder) else None
    return list(generate(model, [prompt], settings, end, start=tokenizer.target_start))
