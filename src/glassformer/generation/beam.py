"""Beam search: the likeliest texts, not one drawn text; for decoders and for encoder-decoders.

With b beams, n the tokens of a hypothesis, log p the sum of their logarithmic probabilities:

* **Score.** log p / ((5 + n) / 6)^alpha, alpha the length penalty (Wu et al. 2016, section 7, equation 14). An end
  token counts as a token. Alpha 0 compares log p itself, which favours short texts.
* **A step** looks at the 2 b likeliest continuations of all running hypotheses of one source, over the whole
  vocabulary. At most b of them end (one for each running hypothesis), so b that go on are among them, if there are as
  many. The b likeliest that go on are kept running. They all have one length, so log p ranks them as scores would.
* **The pool.** A hypothesis that ends enters its source's pool if it is among the b likeliest continuations: one that
  only the lower half holds would push out nothing that is worth keeping, and with b = 1 the search is then greedy. The
  pool keeps those with the best scores, as many as are wanted; of equal ones, those that came first.
* **The end.** A source is done when its pool holds as many as are wanted, and no running hypothesis has, at its present
  length, a better score than the last of these. With alpha = 0 none can become better, so whoever wants fewer gets the
  first of those that whoever wants more gets, sooner; with more, a longer text could in theory still overtake, which is
  not waited for. When no more tokens may be written, what still runs enters the pool as it is.
* **Ties** go to the hypothesis in the lower row, then to the lower token id.

Rows of one source stand side by side; all sources have the same number of them at any time, because all began at once
and grow alike, and a source that is done leaves with all its rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from glassformer.base.config import SampleConfig
from glassformer.generation.context import CachedReader, PlainReader, Reader
from glassformer.generation.decoding import Ended, check_finite, check_prompts, check_sources
from glassformer.generation.rows import kept_slots
from glassformer.generation.targets import CachedTargetReader, PlainTargetReader, most_tokens
from glassformer.model.evaluation_mode import inference
from glassformer.model.transformer import Decoder, EncoderDecoder, Model


@dataclass(frozen=True)
class Hypothesis:
    """One text that the search found.

    Attributes:
        tokens: what was generated; the end token included, if it came.
        log_probability: the sum of the natural logarithms of all generated tokens' probabilities. Each is computed in
            float32 (in float64 where the model is), the sum in float64.
        score: what hypotheses are ranked by: see the module.
        ended: "end" the end token came; "length" all tokens that may be written are there.
    """

    tokens: tuple[int, ...]
    log_probability: float
    score: float
    ended: Ended


@dataclass(frozen=True)
class Child:
    """A running hypothesis with one more token.

    Attributes:
        parent: its row among those that ran.
        token: the token.
        log_probability: of all its tokens together.
    """

    parent: int
    token: int
    log_probability: float


@dataclass(frozen=True)
class Look:
    """One step of the search for one source; of all hypotheses what was generated.

    Attributes:
        source: its number.
        before: what ran before the step.
        children: what was looked at, likeliest first.
        after: what runs on.
    """

    source: int
    before: tuple[tuple[int, ...], ...]
    children: tuple[Child, ...]
    after: tuple[tuple[int, ...], ...]


Watch = Callable[[Look], None]
"""Is told each step of a search; what it raises ends the search."""


def beam_search(
    model: Decoder,
    prompts: Sequence[Sequence[int]],
    settings: SampleConfig,
    end_id: int | None = None,
    cached: bool = True,
    wanted: int | None = None,
    watch: Watch | None = None,
) -> list[list[Hypothesis]]:
    """The likeliest continuations of each prompt, up to `wanted` of them, best first.

    Nothing is random. What comes for a prompt depends on the weights, the prompt and the settings; not on the other
    prompts or on `cached`, but for float rounding where two hypotheses are level to about 1e-6. Past the context
    limit, see `generation.context`; the hypotheses of one prompt have one length, so their windows move together.

    Args:
        model: its mode and gradients are left as they are.
        prompts: token ids, at least one each; lengths may differ.
        settings: `tokens`, `beams` and `length_penalty` are read; nothing is drawn, so the others have no meaning.
        end_id: ends a hypothesis; None: no token does, and all have `settings.tokens` tokens.
        cached: False reads everything anew for each token: slow, for checking.
        wanted: how many, at most `settings.beams`; None: as many. The fewer, the sooner the search ends.
        watch: is told each step.

    Raises:
        GlassError: a prompt is empty or holds an id outside the vocabulary; the model's logits are not finite.
    """
    check_prompts(model, prompts)
    longest = max((len(prompt) for prompt in prompts), default=0) + settings.tokens
    reader: Reader = CachedReader(model, longest) if cached else PlainReader(model)
    return _search(model, prompts, reader, _Rule.of(settings, settings.tokens, end_id, wanted), watch)


def beam_translate(
    model: EncoderDecoder,
    sources: Sequence[Sequence[int]],
    settings: SampleConfig,
    end_id: int,
    cached: bool = True,
    wanted: int | None = None,
    start: Sequence[int] = (),
    watch: Watch | None = None,
) -> list[list[Hypothesis]]:
    """The likeliest targets of each source, up to `wanted` of them, best first.

    What holds for `beam_search` holds here. What a target begins with is not generated; it has up to
    `settings.tokens` tokens, and no more than the model's context.

    Args:
        model: its mode and gradients are left as they are.
        sources: ids as in training, at least one each; lengths may differ.
        settings, cached, wanted, watch: as in `beam_search`.
        end_id: ends a target.
        start: begins a target; empty: the end token does.

    Raises:
        GlassError: a source is empty, longer than the context, or holds an id outside the source's vocabulary; the
            model's logits are not finite.
    """
    check_sources(model, sources)
    start = list(start or [end_id])
    most = most_tokens(model, settings, len(start))
    reader: Reader = CachedTargetReader(model, sources, most) if cached else PlainTargetReader(model, sources)
    return _search(model, [start] * len(sources), reader, _Rule.of(settings, most, end_id, wanted), watch)


def penalty(tokens: int, alpha: float) -> float:
    """Return the divisor of the log-probability of so many tokens: Wu et al. 2016, equation 14."""
    return float(((5 + tokens) / 6) ** alpha)


@dataclass(frozen=True)
class _Rule:
    """The goal and the limits of a search."""

    beams: int
    length_penalty: float
    most: int  # tokens of a hypothesis
    end_id: int | None
    wanted: int  # hypotheses that are given back

    @classmethod
    def of(cls, settings: SampleConfig, most: int, end_id: int | None, wanted: int | None) -> _Rule:
        """Return the rule of these settings."""
        wanted = settings.beams if wanted is None else min(wanted, settings.beams)
        return cls(settings.beams, settings.length_penalty, most, end_id, wanted)

    def penalty(self, tokens: int) -> float:
        """Return the divisor of the log-probability of so many tokens: Wu et al. 2016, equation 14."""
        return penalty(tokens, self.length_penalty)


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
        score = log_probability / rule.penalty(len(tokens))
        place = bisect_right(self.pool, -score, key=lambda each: -each.score)  # after equals
        self.pool.insert(place, Hypothesis(tokens, log_probability, score, ended))
        del self.pool[rule.wanted :]

    def done(self, rule: _Rule) -> bool:
        """Nothing runs, or nothing that runs is better than the worst of a full pool."""
        if not self.rows:
            return True
        best = max(self.sums) / rule.penalty(len(self.rows[0]) - self.start)
        return len(self.pool) == rule.wanted and best <= self.pool[-1].score


def _search(
    model: Model,
    starts: Sequence[Sequence[int]],
    reader: Reader,
    rule: _Rule,
    watch: Watch | None,
) -> list[list[Hypothesis]]:
    beams = [_Beam(index, len(start), [list(start)], [0.0]) for index, start in enumerate(starts)]
    pools = [beam.pool for beam in beams]
    with inference(model):
        for count in range(1, rule.most + 1):
            if not beams:
                break
            logits = reader.read([row for beam in beams for row in beam.rows])  # (rows, V)
            found = _candidates(logits, beams, 2 * rule.beams)
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
    """The n likeliest continuations of each beam, likeliest first: logits (rows, V).

    First the n likeliest of each row, in the order of their logits, then the n likeliest of those: what greedy decoding
    finds likeliest is then likeliest here, too, whatever rounding does to the sums.
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
    """The ids of the n highest logits of each row, highest first, of equals the lower id: (B, V) -> (B, min(n, V))."""
    if n >= logits.shape[-1]:
        return logits.sort(dim=-1, descending=True, stable=True).indices  # (B, V)
    values, ids = logits.topk(n + 1, dim=-1)  # (B, n + 1); equals come in any order
    ids = ids[:, :n]  # (B, n)
    last = values[:, n - 1 : n]  # (B, 1)
    level = values[:, n] == values[:, n - 1]  # (B): of several equals, only the first have a place
    if bool(level.any()):
        x = logits[level]  # (some of B, V)
        t = last[level]  # (some of B, 1)
        early = torch.arange(logits.shape[-1], 0, -1, device=ids.device, dtype=torch.int32)  # (V)
        ids[level] = ((x >= t) * early + (x > t) * len(early)).topk(n, dim=-1).indices
    ids = ids.sort(dim=-1).values  # (B, n)
    order = logits.gather(1, ids).sort(dim=-1, descending=True, stable=True).indices  # (B, n)
    return ids.gather(1, order)


def _grow(beam: _Beam, found: list[Child], rule: _Rule, watch: Watch | None) -> list[int]:
    """Let the beam go on with the best of what was found; the parents of its new rows."""
    before = beam.rows
    for child in found[: rule.beams]:
        if child.token == rule.end_id:
            beam.finish([*beam.rows[child.parent], child.token], child.log_probability, "end", rule)
    running = [child for child in found if child.token != rule.end_id][: rule.beams]
    running = _in_place(running, len(beam.rows))
    beam.rows = [[*beam.rows[child.parent], child.token] for child in running]
    beam.sums = [child.log_probability for child in running]
    if watch is not None:
        ran, runs = (tuple(tuple(row[beam.start :]) for row in rows) for rows in (before, beam.rows))
        watch(Look(beam.index, ran, tuple(found), runs))
    return [child.parent for child in running]


def _in_place(children: list[Child], rows: int) -> list[Child]:
    """Return the same children, each parent's first one in its parent's row: then it need not be copied."""
    if len(children) < rows:
        return children
    placed: dict[int, Child] = {}
    others: list[Child] = []
    for child in children:
        if placed.setdefault(child.parent, child) is not child:
            others.append(child)
    rest = iter(others)
    return [placed[row] if row in placed else next(rest) for row in range(len(children))]
