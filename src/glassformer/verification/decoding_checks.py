"""Writing: with a cache, in batches and by beam search comes what comes without."""

from __future__ import annotations

from collections.abc import Sequence

from glassformer.base.config import SampleConfig
from glassformer.generation.beam import Hypothesis, beam_search, beam_translate
from glassformer.generation.context import CachedReader, PlainReader, Reader, reading
from glassformer.generation.decoding import generate, translate
from glassformer.generation.targets import CachedTargetReader, PlainTargetReader
from glassformer.model.transformer import Decoder, EncoderDecoder
from glassformer.verification.check import LOGITS, Check, Finding, distance
from glassformer.verification.subject import Subject, writes

STEPS = 16  # tokens that are read or written in a row
PAST = 6  # steps around the end of the context, where the window of a decoder moves
ROWS_PAST = 2
LONGEST_PAST = 1024  # contexts beyond it would take too long to read again and again
BEAMS, BEAM_STEPS = 3, 8
TEMPERATURES = (0.0, 1.0)
PROBABILITIES = 1e-9  # of float64


def cached_logits(subject: Subject) -> Finding:
    """Both ways read the same growing rows; every step is compared."""
    model, apart, note = subject.model, 0.0, f"{len(subject.rows)} rows, {STEPS} steps"
    with reading(model):
        if isinstance(model, EncoderDecoder):
            sources, targets = subject.prompts, [_tiled(row.inputs.tolist(), STEPS) for row in subject.rows]
            grown = [[row[: count + 1] for row in targets] for count in range(min(STEPS, model.config.context))]
            apart = _apart(CachedTargetReader(model, sources, STEPS), PlainTargetReader(model, sources), grown)
            return Finding(apart, note)
        assert isinstance(model, Decoder)
        prompts, context = subject.prompts, model.config.context
        apart = _apart(CachedReader(model, _longest(prompts)), PlainReader(model), _grown(subject, prompts, STEPS))
        if context > LONGEST_PAST:
            return Finding(apart, f"{note}; the end of a context of {context} is not reached")
        ends = [_tiled(prompt, max(1, context - 2 - slot)) for slot, prompt in enumerate(prompts[:ROWS_PAST])]
        past = _apart(CachedReader(model, _longest(ends)), PlainReader(model), _grown(subject, ends, PAST))
        return Finding(max(apart, past), f"{note}; and {ROWS_PAST} past the context of {context}")


def _apart(one: Reader, other: Reader, grown: Sequence[Sequence[Sequence[int]]]) -> float:
    return max(distance(one.read(rows), other.read(rows)) for rows in grown)


def _grown(subject: Subject, prompts: Sequence[list[int]], steps: int) -> list[list[list[int]]]:
    """The prompts, and what they are after each step; what is added is text of the run."""
    added = [_tiled(row.inputs.tolist(), steps) for row in subject.rows]
    return [[prompt + more[:count] for prompt, more in zip(prompts, added, strict=False)] for count in range(steps)]


def _tiled(ids: list[int], length: int) -> list[int]:
    return (ids * (length // len(ids) + 1))[:length]


def _longest(prompts: Sequence[Sequence[int]]) -> int:
    return max(map(len, prompts)) + STEPS


def cached_text(subject: Subject) -> Finding:
    """Greedy and drawn tokens, by the generator itself."""
    rows = subject.prompts
    pairs = [(_written(subject, rows, t), _written(subject, rows, t, cached=False)) for t in TEMPERATURES]
    return _differing(pairs, rows, "greedy and drawn, in float64")


def batched_text(subject: Subject) -> Finding:
    """Greedy and drawn tokens of prompts of different lengths, side by side and each by itself."""
    rows = subject.prompts
    pairs = [
        (_written(subject, rows, t), [_written(subject, [row], t, seed)[0] for seed, row in enumerate(rows)])
        for t in TEMPERATURES
    ]
    return _differing(pairs, rows, "greedy and drawn, in float64")


def beam_one(subject: Subject) -> Finding:
    """One hypothesis is greedy decoding."""
    rows = subject.prompts
    found = [list(best[0].tokens) for best in _searched(subject, 1, True)]
    return _differing([(found, _written(subject, rows, 0.0))], rows, "in float64")


def beam_cached(subject: Subject) -> Finding:
    """All hypotheses: their tokens, and the sum of log p of each."""
    cached, plain = _searched(subject, BEAMS, True), _searched(subject, BEAMS, False)
    found, wanted = [best for each in cached for best in each], [best for each in plain for best in each]
    differing = abs(len(found) - len(wanted)) + sum(a.tokens != b.tokens for a, b in zip(found, wanted, strict=False))
    apart = max(abs(a.log_probability - b.log_probability) for a, b in zip(found, wanted, strict=False))
    note = f"{len(found)} hypotheses of {len(cached)} prompts; {differing} have other tokens"
    return Finding(max(apart, float(differing)), note)


def _settings(temperature: float = 0.0, beams: int = 1) -> SampleConfig:
    tokens = STEPS if beams == 1 else BEAM_STEPS
    return SampleConfig(tokens=tokens, temperature=temperature, beams=beams)


def _end(subject: Subject) -> int:
    return subject.parts.tokenizer.end_id


def _start(subject: Subject) -> tuple[int, ...]:
    return subject.parts.tokenizer.target_start


def _written(
    subject: Subject, rows: Sequence[Sequence[int]], temperature: float, first_seed: int = 0, cached: bool = True
) -> list[list[int]]:
    """The tokens of each row, in float64; each row has a seed of its own."""
    seeds, settings = range(first_seed, first_seed + len(rows)), _settings(temperature)
    model, written = subject.double, [list[int]() for _ in rows]
    if isinstance(model, EncoderDecoder):
        steps = translate(model, rows, settings, _end(subject), seeds=seeds, cached=cached, start=_start(subject))
    else:
        assert isinstance(model, Decoder)
        steps = generate(model, rows, settings, _end(subject), seeds=seeds, cached=cached)
    for step in steps:
        for row, token in zip(step.rows, step.tokens, strict=True):
            written[row].append(token)
    return written


def _searched(subject: Subject, beams: int, cached: bool) -> list[list[Hypothesis]]:
    """The hypotheses of each prompt, in float64."""
    model, rows, settings = subject.double, subject.prompts, _settings(beams=beams)
    if isinstance(model, EncoderDecoder):
        return beam_translate(model, rows, settings, _end(subject), cached=cached, start=_start(subject))
    assert isinstance(model, Decoder)
    return beam_search(model, rows, settings, _end(subject), cached=cached)


def _differing(
    pairs: Sequence[tuple[list[list[int]], list[list[int]]]], rows: Sequence[Sequence[int]], how: str
) -> Finding:
    """How many tokens are not the same at the same place."""
    differing = sum(_unequal(a, b) for found, wanted in pairs for a, b in zip(found, wanted, strict=True))
    tokens = sum(len(row) for _, wanted in pairs for row in wanted)
    return Finding(differing, f"{tokens} tokens of {len(rows)} prompts, {how}")


def _unequal(a: list[int], b: list[int]) -> int:
    return abs(len(a) - len(b)) + sum(x != y for x, y in zip(a, b, strict=False))


CHECKS = (
    Check("cached-logits", "with a cache come the logits that come without", LOGITS, "of the largest logit",
          cached_logits, writes),
    Check("cached-text", "with a cache comes the text that comes without", 0, "tokens that differ",
          cached_text, writes),
    Check("batched-text", "in a batch comes the text that comes alone", 0, "tokens that differ",
          batched_text, writes),
    Check("beam-one", "a beam of one writes the greedy text", 0, "tokens that differ", beam_one, writes),
    Check("beam-cached", "a beam finds the same with a cache and without", PROBABILITIES,
          "nats, or hypotheses that differ", beam_cached, writes),
)  # fmt: skip
