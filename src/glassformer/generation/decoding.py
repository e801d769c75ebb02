"""Rows of tokens that grow: one token for each row at a time, as a stream of steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from glassformer.base.config import SampleConfig
from glassformer.base.errors import GlassError
from glassformer.generation.context import CachedReader, PlainReader, Reader
from glassformer.generation.rows import kept_slots
from glassformer.generation.sampling import draw_rows, races, ranked, row_probabilities
from glassformer.generation.targets import CachedTargetReader, PlainTargetReader, most_tokens
from glassformer.model.evaluation_mode import inference
from glassformer.model.transformer import Decoder, EncoderDecoder, Model

Ended = Literal["end", "stop", "length"]
Stop = Callable[[int, list[int]], bool]


@dataclass(frozen=True)
class Step:
    """One token for each row that was still running.

    Attributes:
        rows: indices of these prompts, in no particular order.
        tokens: what each of these rows got; an end token is among them.
        logits: (len(rows), V), what the tokens were drawn from, before the settings act.
        ended: the rows that this step was the last of, and why: "end" the end token came; "stop" the caller's
            condition held; "length" all tokens asked for are there.
    """

    rows: tuple[int, ...]
    tokens: tuple[int, ...]
    logits: Tensor
    ended: Mapping[int, Ended]


@dataclass
class Row:
    """One prompt while it grows.

    Attributes:
        index: its number, for whoever gave it.
        tokens: the prompt's, or those that a target begins with, and what was generated.
        settings: how its tokens are drawn.
        races: the random numbers (V) of one draw after the other.
        prompt_length: how many of the tokens were not generated.
        counted_from: where the tokens begin that the repetition penalty counts.
    """

    index: int
    tokens: list[int]
    settings: SampleConfig
    races: Iterator[Tensor]
    prompt_length: int
    counted_from: int = 0

    def generated(self) -> list[int]:
        """Return the tokens after the prompt."""
        return self.tokens[self.prompt_length :]


def generate(
    model: Decoder,
    prompts: Sequence[Sequence[int]],
    settings: SampleConfig,
    end_id: int | None = None,
    stop: Stop | None = None,
    seeds: Sequence[int] | None = None,
    cached: bool = True,
) -> Iterator[Step]:
    """Continue every prompt by up to `settings.tokens` tokens.

    What a row becomes depends on the weights, its prompt, the settings and its seed; not on the other rows, its place
    among them, their number, `cached`, or any other random numbers (PyTorch's own are neither used nor changed). The
    logits agree to float rounding only, about 1e-6: a draw in which two tokens are level to that precision may differ
    (measured: fewer than 1 in a million tokens).
    Past the context limit, see `generation.context`.

    Args:
        model: its mode and gradients are left as they are; between steps, too.
        prompts: token ids, at least one each; lengths may differ.
        settings: how to draw; `prompt` and `stop` in it concern text and are not read here.
        end_id: ends a row; None: no token does.
        stop: called after each token with the row's index and the tokens generated so far; True ends the row.
        seeds: one for each prompt; None: `settings.seed` for all, so equal prompts give equal rows.
        cached: False reads everything anew for each token: slow, for checking.

    Raises:
        GlassError: a prompt is empty or holds an id outside the vocabulary; the model's logits are not finite.
    """
    check_prompts(model, prompts)
    _check_seeds(len(prompts), "prompts", seeds)
    rows = [
        row_of_prompt(model, index, prompt, settings, seeds[index] if seeds else settings.seed)
        for index, prompt in enumerate(prompts)
    ]
    longest = max((len(prompt) for prompt in prompts), default=0) + settings.tokens
    reader: Reader = CachedReader(model, longest) if cached else PlainReader(model)
    return _steps(model, rows, reader, settings.tokens, end_id, stop)


def translate(
    model: EncoderDecoder,
    sources: Sequence[Sequence[int]],
    settings: SampleConfig,
    end_id: int,
    stop: Stop | None = None,
    seeds: Sequence[int] | None = None,
    cached: bool = True,
    start: Sequence[int] = (),
) -> Iterator[Step]:
    """Write a target for every source: up to `settings.tokens` tokens, and no more than the model's context.

    What holds for `generate` holds here, with the source in the prompt's place. The tokens that a target begins with
    are not generated, and the repetition penalty does not count them: most often it is the one that ends the target.

    Args:
        model: its mode and gradients are left as they are; between steps, too.
        sources: ids as in training, at least one each; lengths may differ.
        settings, stop, seeds, cached: as in `generate`.
        end_id: ends a target.
        start: begins a target; empty: the end token does.

    Raises:
        GlassError: a source is empty, longer than the context, or holds an id outside the source's vocabulary; the
            model's logits are not finite.
    """
    check_sources(model, sources)
    _check_seeds(len(sources), "sources", seeds)
    start = list(start or [end_id])
    rows = [
        row_of_source(model, index, start, settings, seed)
        for index, seed in enumerate(seeds or [settings.seed] * len(sources))
    ]
    most = most_tokens(model, settings, len(start))
    reader: Reader = CachedTargetReader(model, sources, most) if cached else PlainTargetReader(model, sources)
    return _steps(model, rows, reader, most, end_id, stop)


def candidates(model: Decoder, prompt: Sequence[int], n: int) -> list[tuple[int, float]]:
    """The n likeliest next tokens of one prompt and their probabilities over the whole vocabulary.

    Raises:
        GlassError: as `generate`.
    """
    check_prompts(model, [prompt])
    with inference(model):
        logits = PlainReader(model).read([prompt])  # (1, V)
    check_finite(logits)
    return ranked(logits[0], n)


def _steps(
    model: Model,
    rows: list[Row],
    reader: Reader,
    most: int,
    end_id: int | None,
    stop: Stop | None,
) -> Iterator[Step]:
    kept: list[int] | None = None
    parts = list(model.modules())
    for count in range(1, most + 1):
        if not rows:
            return
        with inference(model, parts):  # the caller's code, after the yield, runs outside
            if kept is not None:
                reader.select(kept)
            logits = reader.read([row.tokens for row in rows])  # (rows, V)
        check_finite(logits)
        tokens = choose(logits, rows)
        ended: dict[int, Ended] = {}
        for row, token in zip(rows, tokens, strict=True):
            row.tokens.append(token)
            if token == end_id:
                ended[row.index] = "end"
            elif stop is not None and stop(row.index, row.generated()):
                ended[row.index] = "stop"
            elif count == most:
                ended[row.index] = "length"
        indices = tuple(row.index for row in rows)
        kept = kept_slots([row.index in ended for row in rows]) if ended else None
        rows = rows if kept is None else [rows[slot] for slot in kept]
        yield Step(indices, tuple(tokens), logits, ended)


def choose(logits: Tensor, rows: Sequence[Row]) -> list[int]:
    """One token for each row, from its logits (rows, V), by its own settings and random numbers."""
    alike: dict[tuple[float | None, ...], list[int]] = {}
    for place, row in enumerate(rows):
        own = row.settings
        alike.setdefault((own.temperature, own.top_k, own.top_p, own.repetition_penalty), []).append(place)
    if len(alike) == 1:
        return _choose_alike(logits, rows)
    found = [0] * len(rows)
    for places in alike.values():
        for place, token in zip(places, _choose_alike(logits[places], [rows[each] for each in places]), strict=True):
            found[place] = token
    return found


def _choose_alike(logits: Tensor, rows: Sequence[Row]) -> list[int]:
    """`choose` for rows with the same settings but for their seeds."""
    settings = rows[0].settings
    if settings.temperature == 0 and settings.repetition_penalty == 1:
        return logits.argmax(dim=-1).tolist()
    shares = row_probabilities(logits, settings, [row.tokens[row.counted_from :] for row in rows])  # (rows, V)
    if settings.temperature == 0:
        return shares.argmax(dim=-1).tolist()
    times = torch.stack([next(row.races) for row in rows])  # (rows, V)
    return draw_rows(shares, times)


def row_of_prompt(model: Decoder, index: int, prompt: Sequence[int], settings: SampleConfig, seed: int) -> Row:
    """A row that goes on after a prompt."""
    return Row(index, list(prompt), settings, _races(model, seed), len(prompt))


def row_of_source(model: EncoderDecoder, index: int, start: Sequence[int], settings: SampleConfig, seed: int) -> Row:
    """A target that begins with `start`, which the repetition penalty does not count."""
    return Row(index, list(start), settings, _races(model, seed), len(start), counted_from=len(start))


def _races(model: Decoder | EncoderDecoder, seed: int) -> Iterator[Tensor]:
    return races(model.vocab_size, torch.Generator().manual_seed(seed))


def check_prompts(model: Decoder, prompts: Sequence[Sequence[int]]) -> None:
    """Refuse prompts that a decoder cannot continue."""
    _check_ids("prompt", prompts, model.vocab_size)


def check_sources(model: EncoderDecoder, sources: Sequence[Sequence[int]]) -> None:
    """Refuse sources that an encoder cannot read."""
    embedding = model.embedding if model.source_embedding is None else model.source_embedding
    _check_ids("source", sources, embedding.tokens.num_embeddings)
    for index, source in enumerate(sources):
        if len(source) > model.config.context:
            raise GlassError(
                f"source {index} has {len(source)} tokens, and the model reads at most {model.config.context}",
                "Cut the source, or train a model with a larger model.context.",
            )


def check_finite(logits: Tensor) -> None:
    """Refuse to go on with what damaged weights give; any shape."""
    if not math.isfinite(logits.sum()) and not bool(torch.isfinite(logits).all()):  # a finite sum has finite terms
        raise GlassError(
            "the model's logits are not finite numbers",
            "The weights are damaged: take an earlier checkpoint, or train again with a lower learning rate.",
        )


def _check_ids(name: str, rows: Sequence[Sequence[int]], vocab_size: int) -> None:
    for index, row in enumerate(rows):
        if not row:
            raise GlassError(f"{name} {index} is empty", "Give at least one token, such as the end token.")
        outside = next((token for token in row if not 0 <= token < vocab_size), None)
        if outside is not None:
            raise GlassError(
                f"{name} {index} holds the token {outside}, outside the vocabulary",
                f"Ids of this model go from 0 to {vocab_size - 1}.",
            )


def _check_seeds(count: int, names: str, seeds: Sequence[int] | None) -> None:
    if seeds is not None and len(seeds) != count:
        raise GlassError(
            f"{len(seeds)} seeds were given for {count} {names}", f"Give one seed for each of the {names}."
        )
