"""Token loop: each step generates one token for every row that was read to its end; rows join and leave at any step.

`generate` adds all rows at once and steps until the last row has ended. A server uses one loop for all its requests
(iteration-level scheduling: Yu et al. 2022, section 3.1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from glassformer.base.config import SampleConfig
from glassformer.base.errors import GlassError
from glassformer.base.wording import counted
from glassformer.generation.context_window import max_new_tokens
from glassformer.generation.logit_readers import Reader, make_reader, next_logits
from glassformer.generation.sampling import exponential_noise, ranked, row_probabilities, sample_tokens
from glassformer.generation.slot_reader import Engine
from glassformer.model.evaluation_mode import inference
from glassformer.model.threads import threads
from glassformer.model.transformer import Decoder, EncoderDecoder

Ended = Literal["end", "stop", "length"]
ENDINGS: Mapping[Ended, str] = {"end": "an end token", "stop": "a stop string", "length": "the length limit"}
"""Reason why a text ended -> its description in reports and messages."""
Stop = Callable[[int, list[int]], bool]


@dataclass(frozen=True)
class TokenStep:
    """One step of generation: one token for each row that was read to its end.

    Attributes:
        rows: numbers of these rows, in no particular order.
        tokens: generated token of each of these rows; end tokens are included.
        logits: (len(rows), V) logits before temperature and the other sampling settings are applied.
        ended: number of each row that ends with this step -> reason: "end" (an end token), "stop" (the caller's stop
            condition) or "length" (the maximum number of tokens).
    """

    rows: tuple[int, ...]
    tokens: tuple[int, ...]
    logits: Tensor
    ended: Mapping[int, Ended]


@dataclass
class TokenRow:
    """State of one row during generation.

    Attributes:
        index: number of the row for the caller.
        tokens: tokens of the prompt or the start of a target, followed by the generated tokens.
        settings: sampling settings.
        noise: iterator over the exponential noise (V) of each token.
        start: index of the first generated token.
        max_length: maximum length of `tokens`, the prompt included.
        counted_from: index of the first token that the repetition penalty counts.
        removed: whether the row is to be removed before the next step.
    """

    index: int
    tokens: list[int]
    settings: SampleConfig
    noise: Iterator[Tensor]
    start: int
    max_length: int
    counted_from: int
    removed: bool = False


class TokenLoop:
    """Token loop over the rows of one model.

    The tokens of a row depend on the model's weights and on the row's prompt, settings and seed. They do not depend on
    other rows, or on the step at which the row joined. See `generate` for float rounding. This class is not
    thread-safe.

    Args:
        reader: reader of the model, whose mode and gradients are not changed, not even between steps.
        end_id: end token; None: no end token.
        target_start: tokens that start the targets of an encoder-decoder; empty: the end token.
        stop: function that is called after each token, except an end token, with the row's number and its generated
            tokens; True ends the row.
        extra_end_ids: further end tokens.

    Raises:
        GlassError: an encoder-decoder has no start token for its targets.
    """

    def __init__(
        self,
        reader: Reader,
        end_id: int | None,
        target_start: Sequence[int] = (),
        stop: Stop | None = None,
        extra_end_ids: Collection[int] = (),
    ) -> None:
        self.reader = reader
        self.model = reader.model
        self.end_ids = frozenset(extra_end_ids) if end_id is None else frozenset({end_id, *extra_end_ids})
        self.stop = stop
        self.target_start = start_of_targets(self.model, end_id, target_start)
        self.modules = list(self.model.modules())
        self.rows: list[TokenRow] = []  # in the reader's order
        self.active_rows: dict[int, TokenRow] = {}
        self.count = 0

    def __len__(self) -> int:
        """Return the number of rows that have not ended."""
        return len(self.active_rows)

    def join(self, prompt: Sequence[int], settings: SampleConfig, seed: int | None = None) -> int:
        """Add a row for a prompt or a source, and return its number.

        Raises:
            GlassError: the model cannot read the prompt; see `generate`.
        """
        check_prompts(self.model, [prompt])
        generator = torch.Generator().manual_seed(settings.seed if seed is None else seed)
        noise = exponential_noise(self.model.vocab_size, generator)
        if isinstance(self.model, EncoderDecoder):
            tokens = list(self.target_start)
            longest = len(tokens) + max_new_tokens(self.model, settings, len(tokens))
            row = TokenRow(self.count, tokens, settings, noise, len(tokens), longest, counted_from=len(tokens))
            self.reader.add(prompt, longest)
        else:
            longest = len(prompt) + settings.tokens
            row = TokenRow(self.count, list(prompt), settings, noise, len(prompt), longest, counted_from=0)
            self.reader.add(longest=longest)
        self.rows.append(row)
        self.active_rows[row.index] = row
        self.count += 1
        return row.index

    def leave(self, index: int) -> None:
        """Remove a row; do nothing if it has ended. Free the reader's memory when no row remains."""
        row = self.active_rows.pop(index, None)
        if row is not None:
            row.removed = True
        if not self.active_rows:
            self.rows = []
            self.reader.select([])

    def step(self) -> TokenStep:
        """Generate one more token for each row whose tokens have all been read (a long prompt may take several steps).

        Raises:
            GlassError: the logits are not finite.
        """
        with threads(self.reader.torch_threads):
            return self._step()

    def _step(self) -> TokenStep:
        with inference(self.model, self.modules):
            if len(self.active_rows) < len(self.rows):
                self.reader.select([number for number, row in enumerate(self.rows) if not row.removed])
                self.rows = [row for row in self.rows if not row.removed]
            ready, logits = self.reader.read([row.tokens for row in self.rows])  # (rows, V)
        check_finite(logits)
        rows = [self.rows[number] for number in ready]
        tokens = choose(logits, rows)
        ended: dict[int, Ended] = {}
        for row, token in zip(rows, tokens, strict=True):
            row.tokens.append(token)
            reason = self._reason_to_end(row, token)
            if reason is not None:
                ended[row.index] = reason
                self.leave(row.index)
        return TokenStep(tuple(row.index for row in rows), tuple(tokens), logits, ended)

    def steps(self) -> Iterator[TokenStep]:
        """Yield steps until the last row has ended."""
        while self.active_rows:
            yield self.step()  # the caller's code runs outside of `inference`

    def _reason_to_end(self, row: TokenRow, token: int) -> Ended | None:
        if token in self.end_ids:
            return "end"
        if self.stop is not None and self.stop(row.index, row.tokens[row.start :]):
            return "stop"
        return "length" if len(row.tokens) == row.max_length else None


def generate(
    model: Decoder | EncoderDecoder,
    prompts: Sequence[Sequence[int]],
    settings: SampleConfig,
    end_id: int | None = None,
    stop: Stop | None = None,
    seeds: Sequence[int] | None = None,
    cached: bool = True,
    start: Sequence[int] = (),
    engine: Engine | None = None,
    extra_end_ids: Collection[int] = (),
) -> Iterator[TokenStep]:
    """Generate up to `settings.tokens` tokens for every prompt; return an iterator over the steps.

    A decoder continues the prompt. An encoder-decoder reads it as the source and generates a target, which cannot be
    longer than the model's context. The tokens that start a target are not part of the result, and the repetition
    penalty does not count them, because the start token is usually the end token too.

    The result for a row depends on the weights, the settings, and the row's prompt and seed. It does not depend on the
    other rows, their number or order, on other random numbers (PyTorch's global generator is neither used nor changed)
    or, for a model with a causal mask, on `cached`. Logits agree up to float rounding, about 1e-6, so a sampled token
    may differ if two tokens are closer than that (measured: fewer than 1 in a million tokens). For texts longer than
    the context, see `generation.context_window`.

    Args:
        model: model that generates; its mode and gradients are not changed, not even between steps.
        prompts: token ids of each prompt, at least one; lengths may differ.
        settings: sampling settings; `prompt` and `stop`, which are text, and the settings of beam search are not used.
        end_id: end token; None: no end token.
        stop: function that is called after each token, except an end token, with the row's index and the tokens
            generated so far; True ends the row.
        seeds: seed of each prompt; None: `settings.seed` for all, so equal prompts give equal rows.
        cached: whether to use a key-value cache; False is slow, but needed if the model has no causal mask.
        start: tokens that start the targets of an encoder-decoder; empty: the end token.
        engine: engine of this model, which computes the logits; None: PyTorch.
        extra_end_ids: further end tokens.

    Raises:
        GlassError: a prompt is empty or has an id outside the vocabulary; a source is longer than the context; the
            numbers of prompts and seeds differ; an encoder-decoder has no start token; the model's logits are not
            finite.
    """
    check_prompts(model, prompts)
    if seeds is not None and len(seeds) != len(prompts):
        problem = f"{counted(len(seeds), 'seeds')} for {counted(len(prompts), 'prompts')}"
        raise GlassError(problem, "Give one seed for each prompt.")
    reader = make_reader(model, settings.tokens, engine, cached=cached)
    loop = TokenLoop(reader, end_id, start, stop, extra_end_ids)
    for index, prompt in enumerate(prompts):
        loop.join(prompt, settings, None if seeds is None else seeds[index])
    return loop.steps()


def candidates(
    model: Decoder | EncoderDecoder, prompt: Sequence[int], n: int, start: Sequence[int] = ()
) -> list[tuple[int, float]]:
    """Return the n likeliest next tokens after a prompt, with their probabilities over the whole vocabulary.

    Args:
        model: a decoder, or an encoder-decoder, which reads the prompt as its source.
        prompt: token ids.
        n: number of tokens.
        start: tokens that start the target of an encoder-decoder, at least one; not used for a decoder.

    Raises:
        GlassError: the prompt is empty, has an id outside the vocabulary or is a source longer than the context;
            `start` is empty for an encoder-decoder; the model's logits are not finite.
    """
    check_prompts(model, [prompt])
    with inference(model):
        if isinstance(model, EncoderDecoder):
            logits = next_logits(model, [start_of_targets(model, None, start)], [prompt])  # (1, V)
        else:
            logits = next_logits(model, [prompt])  # (1, V)
    check_finite(logits)
    return ranked(logits[0], n)


def choose(logits: Tensor, rows: Sequence[TokenRow]) -> list[int]:
    """Return one token for each row from the logits (rows, V), using the settings and noise of that row."""
    groups: dict[tuple[float | None, ...], list[int]] = {}
    for number, row in enumerate(rows):
        settings = row.settings
        key = (settings.temperature, settings.top_k, settings.top_p, settings.min_p, settings.repetition_penalty)
        groups.setdefault(key, []).append(number)
    if len(groups) == 1:
        return _choose_for_group(logits, rows)
    chosen = [0] * len(rows)
    for numbers in groups.values():
        tokens = _choose_for_group(logits[numbers], [rows[number] for number in numbers])
        for number, token in zip(numbers, tokens, strict=True):
            chosen[number] = token
    return chosen


def _choose_for_group(logits: Tensor, rows: Sequence[TokenRow]) -> list[int]:
    """Return one token for each row; all rows have the same sampling settings."""
    settings = rows[0].settings
    if settings.temperature == 0 and settings.repetition_penalty == 1:
        return logits.argmax(dim=-1).tolist()
    probabilities = row_probabilities(logits, settings, [row.tokens[row.counted_from :] for row in rows])  # (rows, V)
    if settings.temperature == 0:
        return probabilities.argmax(dim=-1).tolist()
    noise = torch.stack([next(row.noise) for row in rows])  # (rows, V)
    return sample_tokens(probabilities, noise)


def check_prompts(model: Decoder | EncoderDecoder, prompts: Sequence[Sequence[int]]) -> None:
    """Raise a `GlassError` if a decoder cannot continue a prompt, or an encoder cannot read a source."""
    name = "prompt"
    vocab_size = model.vocab_size
    if isinstance(model, EncoderDecoder):
        name = "source"
        vocab_size = (model.source_embedding or model.embedding).tokens.num_embeddings
    for index, prompt in enumerate(prompts):
        if not prompt:
            raise GlassError(f"{name} {index} is empty", "Give at least one token, such as the end token.")
        outside = next((token for token in prompt if not 0 <= token < vocab_size), None)
        if outside is not None:
            raise GlassError(
                f"{name} {index} contains the token {outside}, which is outside the vocabulary",
                f"Give ids from 0 to {vocab_size - 1}.",
            )
        if isinstance(model, EncoderDecoder) and len(prompt) > model.config.context:
            raise GlassError(
                f"source {index} has {len(prompt)} tokens, but the model reads at most {model.config.context}",
                "Shorten the source, or train a model with a larger model.context.",
            )


def start_of_targets(model: Decoder | EncoderDecoder, end_id: int | None, start: Sequence[int]) -> list[int]:
    """Return the tokens that start the targets of an encoder-decoder: `start`, or else the end token.

    Raises:
        GlassError: the model is an encoder-decoder, and both are missing.
    """
    start_tokens = list(start) or ([] if end_id is None else [end_id])
    if isinstance(model, EncoderDecoder) and not start_tokens:
        raise GlassError(
            "an encoder-decoder needs a start token for its targets, but none was given",
            "Give the start tokens of a target, or the end token.",
        )
    return start_tokens


def check_finite(logits: Tensor) -> None:
    """Raise a `GlassError` if logits, of any shape, are not finite."""
    if not math.isfinite(logits.sum()) and not bool(torch.isfinite(logits).all()):  # a finite sum has finite terms
        raise GlassError(
            "the model's logits are not finite numbers",
            "Use an earlier checkpoint, or train again with a lower learning rate.",
        )
