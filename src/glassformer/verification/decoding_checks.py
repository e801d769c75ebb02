"""Generation checks: caching, batching and onnxruntime do not change results; beam search with one beam is greedy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch.nn.functional import cross_entropy

from glassformer.backends.choosing import open_engine
from glassformer.base.config import SampleConfig
from glassformer.base.errors import GlassError
from glassformer.base.packages import installed, version_of
from glassformer.base.wording import counted
from glassformer.generation.beam import Hypothesis, beam_search
from glassformer.generation.decoding import generate
from glassformer.generation.logit_readers import Reader, make_reader, next_logits
from glassformer.generation.slot_reader import Engine
from glassformer.model.evaluation_mode import inference
from glassformer.model.transformer import Decoder, EncoderDecoder
from glassformer.verification.check import LOGITS, Check, Finding, distance
from glassformer.verification.verified_run import VerifiedRun, no_generation

STEPS = 16  # tokens that are read or generated one by one
PAST = 6  # steps around the end of the context, where a decoder's window begins to move
ROWS_PAST = 2
LONGEST_PAST = 1024  # longest context tested at its end: without a cache, longer ones would take too long
BEAMS = 3
BEAM_STEPS = 8
TEMPERATURES = (0.0, 1.0)
PROBABILITIES = 1e-9  # limit in nats, for float64


def cached_logits(subject: VerifiedRun) -> Finding:
    """Compare cached with uncached logits at each step, while the rows grow by one token per step.

    A decoder's first rows are also compared around the end of its context, unless the context is longer than
    `LONGEST_PAST`.
    """
    model = subject.model
    assert isinstance(model, Decoder | EncoderDecoder)
    with inference(model):
        rows_by_step, sources = _growing_rows(subject)
        max_distance = _cache_distance(model, rows_by_step, sources)
        note = _size_note(rows_by_step)
        if isinstance(model, EncoderDecoder):
            return Finding(max_distance, note)
        prompts = subject.prompts
        context = model.config.context
        if context > LONGEST_PAST:
            return Finding(max_distance, f"{note}; not tested at the end of the context of {context}")
        ends = [_repeated(prompt, max(1, context - 2 - index)) for index, prompt in enumerate(prompts[:ROWS_PAST])]
        past_distance = _cache_distance(model, _extended_prompts(subject, ends, PAST))
        return Finding(
            max(max_distance, past_distance), f"{note}; and {ROWS_PAST} rows beyond the context of {context}"
        )


def backend_logits(subject: VerifiedRun) -> Finding:
    """Compare the logits of onnxruntime with PyTorch's; the note gives the change of the loss with 8-bit weights."""
    model = subject.model
    assert isinstance(model, Decoder | EncoderDecoder)
    with inference(model):
        rows_by_step, sources = _growing_rows(subject)
        max_distance = _cache_distance(model, rows_by_step, sources, open_engine("onnxruntime", model))
        exact_loss = _added_token_loss(model, rows_by_step, sources, None)
        quantized_loss = _added_token_loss(model, rows_by_step, sources, open_engine("onnxruntime-int8", model))
    note = f"{version_of('onnxruntime')}, {_size_note(rows_by_step)}"
    return Finding(max_distance, f"{note}; 8-bit weights change the loss by {quantized_loss - exact_loss:+.4f} nats")


def _size_note(rows_by_step: Sequence[Sequence[Sequence[int]]]) -> str:
    """Return a note with the number of rows and the number of steps."""
    return f"{counted(len(rows_by_step[0]), 'rows')}, {counted(len(rows_by_step), 'steps')}"


def _growing_rows(subject: VerifiedRun) -> tuple[list[list[list[int]]], Sequence[Sequence[int]]]:
    """Return the rows at each of up to `STEPS` steps, and the sources of an encoder-decoder.

    Every row is one token longer at each step.
    """
    if isinstance(subject.model, EncoderDecoder):
        targets = [_repeated(row.inputs.tolist(), STEPS) for row in subject.rows]
        steps = min(STEPS, subject.model.config.context)
        return [[row[: count + 1] for row in targets] for count in range(steps)], subject.prompts
    return _extended_prompts(subject, subject.prompts, STEPS), ()


def _cache_distance(
    model: Decoder | EncoderDecoder,
    rows_by_step: Sequence[Sequence[Sequence[int]]],
    sources: Sequence[Sequence[int]] = (),
    engine: Engine | None = None,
) -> float:
    """Return the largest distance, over all steps, between cached logits (of `engine`, if given) and uncached ones."""
    reader = _reader_with_rows(model, rows_by_step, sources, engine)
    return max(distance(reader.read(rows).logits, next_logits(model, rows, sources)) for rows in rows_by_step)


def _added_token_loss(
    model: Decoder | EncoderDecoder,
    rows_by_step: Sequence[Sequence[Sequence[int]]],
    sources: Sequence[Sequence[int]],
    engine: Engine | None,
) -> float:
    """Return the mean loss of the tokens that are added to the rows, in nats."""
    reader = _reader_with_rows(model, rows_by_step, sources, engine)
    losses = []
    for rows, next_rows in pairwise(rows_by_step):
        added = torch.tensor([row[-1] for row in next_rows])  # (B)
        losses.append(cross_entropy(reader.read(rows).logits.float().cpu(), added))
    return float(torch.stack(losses).mean())


def _reader_with_rows(
    model: Decoder | EncoderDecoder,
    rows_by_step: Sequence[Sequence[Sequence[int]]],
    sources: Sequence[Sequence[int]],
    engine: Engine | None,
) -> Reader:
    reader = make_reader(model, len(rows_by_step), engine)
    for index in range(len(rows_by_step[0])):
        reader.add(sources[index] if sources else (), longest=len(rows_by_step[-1][index]))
    return reader


def no_backend(subject: VerifiedRun) -> str | None:
    """Return the reason why the onnxruntime check does not apply to a run; None if it applies."""
    if not (installed("onnx") and installed("onnxruntime")):
        return "the packages onnx and onnxruntime are not installed"
    if not isinstance(subject.model, Decoder | EncoderDecoder):
        return no_generation(subject)
    try:
        open_engine("onnxruntime", subject.model)
    except GlassError as error:
        return error.problem
    return None


def _extended_prompts(subject: VerifiedRun, prompts: Sequence[list[int]], steps: int) -> list[list[list[int]]]:
    """Return the prompts at each step: at step i, counted from 0, each prompt is followed by i tokens of its row."""
    added = [_repeated(row.inputs.tolist(), steps) for row in subject.rows]
    return [[prompt + more[:count] for prompt, more in zip(prompts, added, strict=False)] for count in range(steps)]


def _repeated(ids: list[int], length: int) -> list[int]:
    return (ids * (length // len(ids) + 1))[:length]


def cached_text(subject: VerifiedRun) -> Finding:
    """Compare greedy and sampled tokens with and without a cache."""
    rows = subject.prompts
    pairs = [(_generated(subject, rows, t), _generated(subject, rows, t, cached=False)) for t in TEMPERATURES]
    return _token_differences(pairs, rows, "greedy and sampled, in float64")


def batched_text(subject: VerifiedRun) -> Finding:
    """Compare the greedy and sampled tokens of prompts in one batch with those of each prompt alone."""
    rows = subject.prompts
    pairs = [
        (_generated(subject, rows, t), [_generated(subject, [row], t, seed)[0] for seed, row in enumerate(rows)])
        for t in TEMPERATURES
    ]
    return _token_differences(pairs, rows, "greedy and sampled, in float64")


def beam_one(subject: VerifiedRun) -> Finding:
    """Compare beam search with one beam to greedy decoding."""
    rows = subject.prompts
    beam_tokens = [list(best[0].tokens) for best in _beam_hypotheses(subject, 1, True)]
    return _token_differences([(beam_tokens, _generated(subject, rows, 0.0))], rows, "in float64")


def beam_cached(subject: VerifiedRun) -> Finding:
    """Compare the tokens and log-probabilities of all beam search hypotheses, with and without a cache."""
    cached = _beam_hypotheses(subject, BEAMS, True)
    uncached = _beam_hypotheses(subject, BEAMS, False)
    cached_hypotheses = [best for each in cached for best in each]
    uncached_hypotheses = [best for each in uncached for best in each]
    differing = abs(len(cached_hypotheses) - len(uncached_hypotheses)) + sum(
        a.tokens != b.tokens for a, b in zip(cached_hypotheses, uncached_hypotheses, strict=False)
    )
    difference = max(
        abs(a.log_probability - b.log_probability) for a, b in zip(cached_hypotheses, uncached_hypotheses, strict=False)
    )
    different = counted(differing, "differ in their tokens", "differs in its tokens")
    note = f"{len(cached_hypotheses)} hypotheses of {len(cached)} prompts; {different}"
    return Finding(max(difference, float(differing)), note)


def _settings(temperature: float = 0.0, beams: int = 1) -> SampleConfig:
    tokens = STEPS if beams == 1 else BEAM_STEPS
    return SampleConfig(tokens=tokens, temperature=temperature, beams=beams)


def _end_id(subject: VerifiedRun) -> int:
    return subject.opened.tokenizer.end_id


def _target_start(subject: VerifiedRun) -> tuple[int, ...]:
    return subject.opened.tokenizer.target_start


def _generated(
    subject: VerifiedRun, rows: Sequence[Sequence[int]], temperature: float, first_seed: int = 0, cached: bool = True
) -> list[list[int]]:
    """Return the generated tokens of each row, in float64; row i has the seed `first_seed` + i."""
    seeds = range(first_seed, first_seed + len(rows))
    settings = _settings(temperature)
    model = subject.float64_model
    generated = [list[int]() for _ in rows]
    assert isinstance(model, Decoder | EncoderDecoder)
    for step in generate(
        model, rows, settings, _end_id(subject), seeds=seeds, cached=cached, start=_target_start(subject)
    ):
        for row, token in zip(step.rows, step.tokens, strict=True):
            generated[row].append(token)
    return generated


def _beam_hypotheses(subject: VerifiedRun, beams: int, cached: bool) -> list[list[Hypothesis]]:
    """Return the hypotheses of each prompt, in float64."""
    model = subject.float64_model
    rows = subject.prompts
    settings = _settings(beams=beams)
    assert isinstance(model, Decoder | EncoderDecoder)
    return beam_search(model, rows, settings, _end_id(subject), cached=cached, start=_target_start(subject))


def _token_differences(
    pairs: Sequence[tuple[list[list[int]], list[list[int]]]], rows: Sequence[Sequence[int]], description: str
) -> Finding:
    """Count the positions at which two rows have different tokens, or at which only one row has a token."""
    differing = sum(
        _count_differences(a, b) for actual, expected in pairs for a, b in zip(actual, expected, strict=True)
    )
    tokens = sum(len(row) for _, expected in pairs for row in expected)
    return Finding(differing, f"{tokens} tokens of {len(rows)} prompts, {description}")


def _count_differences(a: list[int], b: list[int]) -> int:
    return abs(len(a) - len(b)) + sum(x != y for x, y in zip(a, b, strict=False))


CHECKS = (
    Check(
        "cached-logits",
        "cached logits equal uncached logits",
        LOGITS,
        "of the largest logit",
        cached_logits,
        no_generation,
    ),
    Check(
        "backend-logits",
        "onnxruntime's logits equal PyTorch's",
        10 * LOGITS,
        "of the largest logit",
        backend_logits,
        no_backend,
    ),
    Check("cached-text", "cached text equals uncached text", 0, "tokens that differ", cached_text, no_generation),
    Check("batched-text", "batched text equals single-row text", 0, "tokens that differ", batched_text, no_generation),
    Check(
        "beam-one", "beam search with one beam equals greedy decoding", 0, "tokens that differ", beam_one, no_generation
    ),
    Check(
        "beam-cached",
        "beam search with a cache equals beam search without one",
        PROBABILITIES,
        "nats, or hypotheses that differ",
        beam_cached,
        no_generation,
    ),
)
