"""Beam search: the likeliest texts instead of a sampled one; for decoders and for encoder-decoders.

With b beams, n the tokens of a hypothesis, log p the sum of their logarithmic probabilities:

* **Score.** log p / ((5 + n) / 6)^alpha, alpha the length penalty (Wu et al. 2016, section 7, equation 14). An end
  token counts as a token. Alpha 0 compares log p itself, which favours short texts.
* **A step.** With e end tokens (e >= 1), a step considers the (1 + e) b likeliest continuations of all running
  hypotheses of one source, over the whole vocabulary. At most e b of them end, so at least b others continue, if there
  are as many. The b likeliest of these keep running. They all have one length, so log p ranks them as scores would.
* **The pool.** A hypothesis that ends enters its source's pool if it is among the b likeliest continuations: with b = 1
  the search is then greedy. The pool keeps the best scores, as many as are wanted; of equal ones, the earliest.
* **The end.** A source is done when its pool is full and no running hypothesis has, at its present length, a better
  score than the last in the pool. With alpha = 0 none can become better, so a search for fewer finds the first ones of
  a search for more, sooner; with alpha > 0 a longer text could in theory still overtake, and the search does not wait
  for it. When no more tokens may be written, the running hypotheses enter the pool as they are.
* **Ties** go to the hypothesis in the lower row, then to the lower token id.

Rows of one source stand side by side; all sources have the same number of rows at any time, because all start at once
and grow alike, and a source that is done leaves with all its rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from glassformer.base.config import SampleConfig
from glassformer.generation.context_window import most_tokens
from glassformer.generation.decoding import Ended, check_finite, check_prompts, start_of_targets
from glassformer.generation.logit_readers import Reader, make_reader
from glassformer.generation.slot_cache import kept_slots
from glassformer.generation.slot_reader import Engine
from glassformer.model.evaluation_mode import inference
from glassformer.model.transformer import Decoder, EncoderDecoder


@dataclass(frozen=True)
class Hypothesis:
    """One text that the search found.

    Attributes:
        tokens: the generated tokens; the end token included, if it came.
        log_probability: the sum of the natural logarithms of all generated tokens' probabilities. Each is computed in
            float32 (in float64 where the model is), the sum in float64.
        score: ranks hypotheses: see the module.
        ended: "end" the end token came; "length" the text has all tokens that may be written.
    """

    tokens: tuple[int, ...]
    log_probability: float
    score: float
    ended: Ended

    @property
    def text_tokens(self) -> tuple[int, ...]:
        """Return the tokens of the text: all but the end token."""
        return self.tokens[:-1] if self.ended == "end" else self.tokens


@dataclass(frozen=True)
class Child:
    """A running hypothesis with one more token.

    Attributes:
        parent: its row among the running hypotheses.
        token: the token.
        log_probability: of all its tokens together.
    """

    parent: int
    token: int
    log_probability: float


@dataclass(frozen=True)
class BeamStep:
    """One step of the search for one source; hypotheses are given by their generated tokens.

    Attributes:
        source: its number.
        before: hypotheses that ran before the step.
        children: continuations considered, likeliest first.
        after: hypotheses that keep running.
    """

    source: int
    before: tuple[tuple[int, ...], ...]
    children: tuple[Child, ...]
    after: tuple[tuple[int, ...], ...]


Watch = Callable[[BeamStep], None]
"""Receives each step of a search; an exception ends the search."""


def beam_search(
    model: Decoder | EncoderDecoder,
    prompts: Sequence[Sequence[int]],
    settings: SampleConfig,
    end_id: int | None = None,
    cached: bool = True,
    wanted: int | None = None,
    start: Sequence[int] = (),
    watch: Watch | None = None,
    engine: Engine | None = None,
    more_ends: Collection[int] = (),
) -> list[list[Hypothesis]]:
    """Return the likeliest texts for each prompt, up to `wanted` of them, best first.

    A decoder continues the prompt. An encoder-decoder reads it as the source and writes a target, which cannot be
    longer than its context; the tokens that start a target are not generated.

    Nothing is random. The result for a prompt depends on the weights, the prompt and the settings; not on the other
    prompts or on `cached`, but for float rounding where two hypotheses are level to about 1e-6. Past the context
    limit, see `generation.context_window`; the hypotheses of one prompt have one length, so their windows move
    together.

    Args:
        model: its mode and gradients are left as they are.
        prompts: token ids, at least one each; lengths may differ.
        settings: `tokens`, `beams` and `length_penalty` are read; the others concern sampling.
        end_id: ends a hypothesis; None: no token does, and all have `settings.tokens` tokens.
        cached: False reads everything anew for each token: slow, for checking.
        wanted: number of hypotheses, at most `settings.beams`; None: as many. The fewer, the sooner the search ends.
        start: starts the targets of an encoder-decoder; empty: the end token does.
        watch: receives each step.
        engine: of this model, computes the logits; None: PyTorch does.
        more_ends: further tokens that end a hypothesis as `end_id` does.

    Raises:
        GlassError: a prompt is empty or holds an id outside the vocabulary; a source is longer than the context; no
            token starts the targets; the model's logits are not finite.
    """
    check_prompts(model, prompts)
    end_ids = frozenset(more_ends) if end_id is None else frozenset({end_id, *more_ends})
    if isinstance(model, EncoderDecoder):
        begun = start_of_targets(model, end_id, start)
        rule = _Rule.of(settings, most_tokens(model, settings, len(begun)), end_ids, wanted)
        reader = make_reader(model, rule.most, engine, cached=cached)
        return _search(reader, [begun] * len(prompts), prompts, rule, watch)
    rule = _Rule.of(settings, settings.tokens, end_ids, wanted)
    reader = make_reader(model, rule.most, engine, cached=cached)
    return _search(reader, prompts, [()] * len(prompts), rule, watch)


def penalty(tokens: int, alpha: float) -> float:
    """Return the divisor of the log-probability of `tokens` tokens: Wu et al. 2016, equation 14."""
    return float(((5 + tokens) / 6) ** alpha)


@dataclass(frozen=True)
class _Rule:
    """The goal and the limits of a search."""

    beams: int
    length_penalty: float
    most: int  # tokens of a hypothesis
    end_ids: frozenset[int]
    wanted: int  # hypotheses to return

    @classmethod
    def of(cls, settings: SampleConfig, most: int, end_ids: frozenset[int], wanted: int | None) -> _Rule:
        """Return the rule of these settings."""
        wanted = settings.beams if wanted is None else min(wanted, settings.beams)
        return cls(settings.beams, settings.length_penalty, most, end_ids, wanted)

    @property
    def considered(self) -> int:
        """Return the number of continuations considered in a step: enough that b of them do not end the text."""
        return (1 + max(1, len(self.end_ids))) * self.beams


@dataclass
class _Beam:
    """The search for one source."""

    index: int
    start: int  # tokens that a row had before the search
    rows: list[list[int]]  # of running hypotheses, from the first token on
    sums: list[float]  # the log-probability of each
    pool: list[Hypothesis] = field(default_factory=list)  # best first

    def finish(self, row: list[int], log_probability: float, ended: Ended, rule: _Rule) -> None:
        """Put a finished row into the pool, if there is room or a worse one."""
        tokens = tuple(row[self.start :])
        score = log_probability / penalty(len(tokens), rule.length_penalty)
        rank = bisect_right(self.pool, -score, key=lambda each: -each.score)  # after equals
        self.pool.insert(rank, Hypothesis(tokens, log_probability, score, ended))
        del self.pool[rule.wanted :]

    def done(self, rule: _Rule) -> bool:
        """Return whether no hypothesis runs, or none that is better than the worst of a full pool."""
        if not self.rows:
            return True
        best = max(self.sums) / penalty(len(self.rows[0]) - self.start, rule.length_penalty)
        return len(self.pool) == rule.wanted and best <= self.pool[-1].score


def _search(
    reader: Reader,
    starts: Sequence[Sequence[int]],
    sources: Sequence[Sequence[int]],
    rule: _Rule,
    watch: Watch | None,
) -> list[list[Hypothesis]]:
    for start, source in zip(starts, sources, strict=True):
        reader.add(source, len(start) + rule.most)
    beams = [_Beam(index, len(start), [list(start)], [0.0]) for index, start in enumerate(starts)]
    pools = [beam.pool for beam in beams]
    with inference(reader.model):
        for count in range(1, rule.most + 1):
            if not beams:
                break
            logits = reader.read([row for beam in beams for row in beam.rows]).logits  # (rows, V)
            found = _candidates(logits, beams, rule.considered)
            before = len(beams[0].rows)
            parents = [_grow(beam, each, rule, watch) for beam, each in zip(beams, found, strict=True)]
            kept = kept_slots([beam.done(rule) for beam in beams])
            rows = [slot * before + parent for slot in kept for parent in parents[slot]]
            if rows and count < rule.most and rows != list(range(len(beams) * before)):
                reader.select(rows)
            beams = [beams[slot] for slot in kept]
    for beam in beams:
        for row, log_probability in zip(beam.rows, beam.sums, strict=True):
            beam.finish(row, log_probability, "length", rule)
    return pools


def _candidates(logits: Tensor, beams: Sequence[_Beam], n: int) -> list[list[Child]]:
    """Return the n likeliest continuations of each beam, likeliest first: logits (rows, V).

    First the n likeliest of each row, in the order of their logits, then the n likeliest of those: the token of greedy
    decoding is then likeliest here, too, whatever rounding does to the sums.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # (rows, V)
    ids = likeliest(logits, n)  # (rows, k), k = min(n, V)
    shares = logits.log_softmax(dim=-1).gather(1, ids)  # (rows, k)
    check_finite(shares)
    sums = torch.tensor([total for beam in beams for total in beam.sums], dtype=torch.float64)  # (rows)
    totals = (sums[:, None] + shares.to("cpu").to(torch.float64)).reshape(len(beams), -1)  # (beams, rows of each k)
    totals, order = totals.sort(dim=-1, descending=True, stable=True)
    totals = totals[:, :n]  # (beams, n)
    order = order[:, :n]  # (beams, n)
    tokens = ids.to("cpu").reshape(len(beams), -1).gather(1, order)  # (beams, n)
    parents = order // ids.shape[1]  # (beams, n)
    return [
        [Child(*child) for child in zip(*each, strict=True)]
        for each in zip(parents.tolist(), tokens.tolist(), totals.tolist(), strict=True)
    ]


def likeliest(logits: Tensor, n: int) -> Tensor:
    """Return ids of the n highest logits, highest first, of equals the lower id: (B, V) -> (B, min(n, V))."""
    if n >= logits.shape[-1]:
        return logits.sort(dim=-1, descending=True, stable=True).indices  # (B, V)
    values, ids = logits.topk(n + 1, dim=-1)  # (B, n + 1); equals come in any order
    ids = ids[:, :n]  # (B, n)
    last = values[:, n - 1 : n]  # (B, 1)
    level = values[:, n] == values[:, n - 1]  # (B): only the first of several equals are among the n
    if bool(level.any()):
        x = logits[level]  # (some of B, V)
        t = last[level]  # (some of B, 1)
        early = torch.arange(logits.shape[-1], 0, -1, device=ids.device, dtype=torch.int32)  # (V)
        ids[level] = ((x >= t) * early + (x > t) * len(early)).topk(n, dim=-1).indices
    ids = ids.sort(dim=-1).values  # (B, n)
    order = logits.gather(1, ids).sort(dim=-1, descending=True, stable=True).indices  # (B, n)
    return ids.gather(1, order)


def _grow(beam: _Beam, found: list[Child], rule: _Rule, watch: Watch | None) -> list[int]:
    """Continue a beam with the best continuations; return the parents of its new rows."""
    before = beam.rows
    for child in found[: rule.beams]:
        if child.token in rule.end_ids:
            beam.finish([*beam.rows[child.parent], child.token], child.log_probability, "end", rule)
    running = [child for child in found if child.token not in rule.end_ids][: rule.beams]
    running = _in_parents_rows(running, len(beam.rows))
    beam.rows = [[*beam.rows[child.parent], child.token] for child in running]
    beam.sums = [child.log_probability for child in running]
    if watch is not None:
        watch(BeamStep(beam.index, _generated(before, beam.start), tuple(found), _generated(beam.rows, beam.start)))
    return [child.parent for child in running]


def _generated(rows: Sequence[Sequence[int]], start: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(row[start:]) for row in rows)


def _in_parents_rows(children: list[Child], rows: int) -> list[Child]:
    """Return the same children, each parent's first one in its parent's row, so that it need not be copied."""
    if len(children) < rows:
        return children
    placed: dict[int, Child] = {}
    others: list[Child] = []
    for child in children:
        if placed.setdefault(child.parent, child) is not child:
            others.append(child)
    rest = iter(others)
    return [placed[row] if row in placed else next(rest) for row in range(len(children))]
