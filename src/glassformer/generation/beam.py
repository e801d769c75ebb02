"""Beam search for the likeliest texts, for decoders and encoder-decoders.

Let b be the number of beams, n the number of tokens of a hypothesis, and log p the sum of their log-probabilities.

* **Score.** log p / ((5 + n) / 6)^alpha, where alpha is the length penalty (Wu et al. 2016, section 7, equation 14). An
  end token counts as a token. With alpha = 0 the score is log p, which favours short texts.
* **Step.** With e end tokens (without any, e = 1 here), a step considers the (1 + e) b likeliest continuations of all
  running hypotheses of one source, over the whole vocabulary. At most e b of them end, so at least b continue, if there
  are that many. The b likeliest of these keep running. They all have the same length, so log p ranks them in the same
  order as the score.
* **Pool.** A hypothesis that ends enters the pool of its source if it is among the b likeliest continuations; with
  b = 1 the search is therefore greedy. The pool keeps the `wanted` hypotheses with the best scores; among
  equal scores, it keeps the earliest.
* **End.** The search for a source ends when its pool is full and no running hypothesis has, at its present length, a
  better score than the worst in the pool, or when no hypothesis is running. With alpha = 0 no score can improve, so a
  search for fewer hypotheses finds the best hypotheses of a search for more, but ends sooner. With alpha > 0 the score
  of a longer text could still improve; the search does not wait for it. At the maximum number of tokens, the running
  hypotheses enter the pool without an end token.
* **Ties** go to the hypothesis in the lower row, then to the lower token id.

The rows of one source are adjacent. All sources have the same number of rows at any time, because they start together
and add rows equally, and a finished source is removed with all its rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from glassformer.base.config import SampleConfig
from glassformer.generation.context_window import max_new_tokens
from glassformer.generation.decoding import Ended, check_finite, check_prompts, start_of_targets
from glassformer.generation.logit_readers import Reader, make_reader
from glassformer.generation.slot_cache import remaining_slots
from glassformer.generation.slot_reader import Engine
from glassformer.model.evaluation_mode import inference
from glassformer.model.transformer import Decoder, EncoderDecoder


@dataclass(frozen=True)
class Hypothesis:
    """Finished hypothesis of a beam search.

    Attributes:
        tokens: the generated tokens, with the end token if there is one.
        log_probability: sum of the log-probabilities of all generated tokens, in nats. Each is computed in float32
            (float64 for a float64 model), the sum in float64.
        score: log-probability with length penalty, by which hypotheses are ranked; see the module's docstring.
        ended: "end": the last token is an end token; "length": the maximum number of tokens was reached.
    """

    tokens: tuple[int, ...]
    log_probability: float
    score: float
    ended: Ended

    @property
    def text_tokens(self) -> tuple[int, ...]:
        """Return the generated tokens without the end token."""
        return self.tokens[:-1] if self.ended == "end" else self.tokens


@dataclass(frozen=True)
class Child:
    """Continuation of a running hypothesis by one token.

    Attributes:
        parent: index of the continued hypothesis among the running hypotheses of its source.
        token: id of the added token.
        log_probability: sum of the log-probabilities of all generated tokens, including the added token.
    """

    parent: int
    token: int
    log_probability: float


@dataclass(frozen=True)
class BeamStep:
    """One step of the search for one source. Hypotheses are tuples of their generated tokens.

    Attributes:
        source: index of the source.
        before: running hypotheses before the step.
        children: continuations considered, likeliest first.
        after: running hypotheses after the step.
    """

    source: int
    before: tuple[tuple[int, ...], ...]
    children: tuple[Child, ...]
    after: tuple[tuple[int, ...], ...]


StepCallback = Callable[[BeamStep], None]
"""Function called with each step of a search; an exception ends the search."""


def beam_search(
    model: Decoder | EncoderDecoder,
    prompts: Sequence[Sequence[int]],
    settings: SampleConfig,
    end_id: int | None = None,
    cached: bool = True,
    wanted: int | None = None,
    start: Sequence[int] = (),
    watch: StepCallback | None = None,
    engine: Engine | None = None,
    extra_end_ids: Collection[int] = (),
) -> list[list[Hypothesis]]:
    """Return the likeliest hypotheses for each prompt, at most `wanted`, best first.

    A decoder continues the prompt. An encoder-decoder reads it as the source and generates a target, which cannot be
    longer than the model's context; the tokens that start a target are not part of the result.

    The search is deterministic. The result for a prompt depends on the weights, the prompt and the settings; other
    prompts and, for a model with a causal mask, `cached` can change it only by float rounding, if two hypotheses differ
    by less than about 1e-6. For texts longer than the context, see `generation.context_window`; the hypotheses of one
    prompt have the same length, so their windows move together.

    Args:
        model: model that generates; its mode and gradients are not changed.
        prompts: token ids of each prompt, at least one; lengths may differ.
        settings: `tokens`, `beams` and `length_penalty` are used; the other settings are for sampling.
        end_id: end token; None: hypotheses have the maximum number of tokens, unless `extra_end_ids` has one.
        cached: whether to use a key-value cache; False is slow, but needed if the model has no causal mask.
        wanted: number of hypotheses to return, at most `settings.beams`; None: `settings.beams`. A smaller number
            can end the search sooner.
        start: tokens that start the targets of an encoder-decoder; empty: the end token.
        watch: function that is called with each step.
        engine: engine of this model, which computes the logits; None: PyTorch.
        extra_end_ids: further end tokens.

    Raises:
        GlassError: a prompt is empty or has an id outside the vocabulary; a source is longer than the context; no
            token starts the targets; the model's logits are not finite.
    """
    check_prompts(model, prompts)
    end_ids = frozenset(extra_end_ids) if end_id is None else frozenset({end_id, *extra_end_ids})
    if isinstance(model, EncoderDecoder):
        prefix = start_of_targets(model, end_id, start)
        search = _SearchSettings.of(settings, max_new_tokens(model, settings, len(prefix)), end_ids, wanted)
        reader = make_reader(model, search.max_tokens, engine, cached=cached)
        return _search(reader, [prefix] * len(prompts), prompts, search, watch)
    search = _SearchSettings.of(settings, settings.tokens, end_ids, wanted)
    reader = make_reader(model, search.max_tokens, engine, cached=cached)
    return _search(reader, prompts, [()] * len(prompts), search, watch)


def penalty(tokens: int, alpha: float) -> float:
    """Return the divisor of the log-probability of `tokens` tokens: Wu et al. 2016, equation 14."""
    return float(((5 + tokens) / 6) ** alpha)


@dataclass(frozen=True)
class _SearchSettings:
    """Settings and limits of a search."""

    beams: int
    length_penalty: float
    max_tokens: int  # maximum number of generated tokens of a hypothesis
    end_ids: frozenset[int]
    n_hypotheses: int  # number of hypotheses to return

    @classmethod
    def of(
        cls, settings: SampleConfig, max_tokens: int, end_ids: frozenset[int], n_hypotheses: int | None
    ) -> _SearchSettings:
        """Return the search settings for these sampling settings."""
        n_hypotheses = settings.beams if n_hypotheses is None else min(n_hypotheses, settings.beams)
        return cls(settings.beams, settings.length_penalty, max_tokens, end_ids, n_hypotheses)

    @property
    def n_candidates(self) -> int:
        """Return the number of continuations considered per step.

        At least `beams` of them do not end the text, if there are that many.
        """
        return (1 + max(1, len(self.end_ids))) * self.beams


@dataclass
class _Beam:
    """State of the search for one source."""

    index: int
    start: int  # number of tokens in a row before the search
    rows: list[list[int]]  # all tokens of each running hypothesis
    log_probabilities: list[float]  # log-probability of each running hypothesis
    pool: list[Hypothesis] = field(default_factory=list)  # best first

    def finish(self, row: list[int], log_probability: float, ended: Ended, search: _SearchSettings) -> None:
        """Add a finished row to the pool if the pool has room or contains a worse hypothesis."""
        tokens = tuple(row[self.start :])
        score = log_probability / penalty(len(tokens), search.length_penalty)
        rank = bisect_right(self.pool, -score, key=lambda hypothesis: -hypothesis.score)  # after equal scores
        self.pool.insert(rank, Hypothesis(tokens, log_probability, score, ended))
        del self.pool[search.n_hypotheses :]

    def is_done(self, search: _SearchSettings) -> bool:
        """Return whether no hypothesis is running, or none has a better score than the worst of a full pool."""
        if not self.rows:
            return True
        best = max(self.log_probabilities) / penalty(len(self.rows[0]) - self.start, search.length_penalty)
        return len(self.pool) == search.n_hypotheses and best <= self.pool[-1].score


def _search(
    reader: Reader,
    prefixes: Sequence[Sequence[int]],
    sources: Sequence[Sequence[int]],
    search: _SearchSettings,
    watch: StepCallback | None,
) -> list[list[Hypothesis]]:
    for start, source in zip(prefixes, sources, strict=True):
        reader.add(source, len(start) + search.max_tokens)
    beams = [_Beam(index, len(start), [list(start)], [0.0]) for index, start in enumerate(prefixes)]
    pools = [beam.pool for beam in beams]
    with inference(reader.model):
        for n_tokens in range(1, search.max_tokens + 1):
            if not beams:
                break
            logits = reader.read([row for beam in beams for row in beam.rows]).logits  # (rows, V)
            candidates = _candidates(logits, beams, search.n_candidates)
            rows_per_beam = len(beams[0].rows)
            parents = [
                _advance(beam, children, search, watch) for beam, children in zip(beams, candidates, strict=True)
            ]
            remaining = remaining_slots([beam.is_done(search) for beam in beams])
            rows = [slot * rows_per_beam + parent for slot in remaining for parent in parents[slot]]
            if rows and n_tokens < search.max_tokens and rows != list(range(len(beams) * rows_per_beam)):
                reader.select(rows)
            beams = [beams[slot] for slot in remaining]
    for beam in beams:
        for row, log_probability in zip(beam.rows, beam.log_probabilities, strict=True):
            beam.finish(row, log_probability, "length", search)
    return pools


def _candidates(logits: Tensor, beams: Sequence[_Beam], n: int) -> list[list[Child]]:
    """Return the n likeliest continuations of each beam, likeliest first, from logits (rows, V).

    Find the n likeliest tokens of each row in the order of their logits, then the n likeliest of these, so that the
    greedy token comes first even if rounding makes two sums equal.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # (rows, V)
    ids = likeliest(logits, n)  # (rows, k), k = min(n, V)
    log_probabilities = logits.log_softmax(dim=-1).gather(1, ids)  # (rows, k)
    check_finite(log_probabilities)
    sums = torch.tensor([total for beam in beams for total in beam.log_probabilities], dtype=torch.float64)  # (rows)
    totals = sums[:, None] + log_probabilities.to("cpu").to(torch.float64)  # (rows, k)
    totals = totals.reshape(len(beams), -1)  # (beams, rows of one beam x k)
    totals, order = totals.sort(dim=-1, descending=True, stable=True)
    totals = totals[:, :n]  # (beams, n)
    order = order[:, :n]  # (beams, n)
    tokens = ids.to("cpu").reshape(len(beams), -1).gather(1, order)  # (beams, n)
    parents = order // ids.shape[1]  # (beams, n)
    return [
        [Child(*child) for child in zip(*columns, strict=True)]
        for columns in zip(parents.tolist(), tokens.tolist(), totals.tolist(), strict=True)
    ]


def likeliest(logits: Tensor, n: int) -> Tensor:
    """Return the ids of the n highest logits, highest first, ties by lower id: (B, V) -> (B, min(n, V))."""
    if n >= logits.shape[-1]:
        return logits.sort(dim=-1, descending=True, stable=True).indices  # (B, V)
    values, ids = logits.topk(n + 1, dim=-1)  # (B, n + 1); topk orders equal values arbitrarily
    ids = ids[:, :n]  # (B, n)
    nth = values[:, n - 1 : n]  # (B, 1)
    tied = values[:, n] == values[:, n - 1]  # (B): of these ties, only the lowest ids may be among the n
    if bool(tied.any()):
        tied_logits = logits[tied]  # (some of B, V)
        tied_nth = nth[tied]  # (some of B, 1)
        priority = torch.arange(logits.shape[-1], 0, -1, device=ids.device, dtype=torch.int32)  # (V)
        ids[tied] = (
            ((tied_logits >= tied_nth) * priority + (tied_logits > tied_nth) * len(priority)).topk(n, dim=-1).indices
        )
    ids = ids.sort(dim=-1).values  # (B, n)
    order = logits.gather(1, ids).sort(dim=-1, descending=True, stable=True).indices  # (B, n)
    return ids.gather(1, order)


def _advance(beam: _Beam, children: list[Child], search: _SearchSettings, watch: StepCallback | None) -> list[int]:
    """Take one step: add ended hypotheses to the pool, replace the rows by the best continuations, and call `watch`.

    Return the parents of the new rows.
    """
    rows_before = beam.rows
    for child in children[: search.beams]:
        if child.token in search.end_ids:
            beam.finish([*beam.rows[child.parent], child.token], child.log_probability, "end", search)
    running = [child for child in children if child.token not in search.end_ids][: search.beams]
    running = _in_parents_rows(running, len(beam.rows))
    beam.rows = [[*beam.rows[child.parent], child.token] for child in running]
    beam.log_probabilities = [child.log_probability for child in running]
    if watch is not None:
        watch(
            BeamStep(
                beam.index, _generated(rows_before, beam.start), tuple(children), _generated(beam.rows, beam.start)
            )
        )
    return [child.parent for child in running]


def _generated(rows: Sequence[Sequence[int]], start: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(row[start:]) for row in rows)


def _in_parents_rows(children: list[Child], n_rows: int) -> list[Child]:
    """Return the children reordered: the first child of each parent keeps its parent's row and needs no copy.

    If there are fewer children than rows, return them unchanged.
    """
    if len(children) < n_rows:
        return children
    first_children: dict[int, Child] = {}
    others: list[Child] = []
    for child in children:
        if first_children.setdefault(child.parent, child) is not child:
            others.append(child)
    remaining = iter(others)
    return [first_children[row] if row in first_children else next(remaining) for row in range(len(children))]
