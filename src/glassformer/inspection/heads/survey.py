"""Survey of the roles of all attention heads of a model, measured on probe sequences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from glassformer.inspection.heads import copying, cross, numbers, relations, roles
from glassformer.inspection.heads.attention_arrays import AttentionArrays, Floats, Ids
from glassformer.inspection.heads.passes import ProbedLayer, passes
from glassformer.inspection.heads.probes import HeadProbe
from glassformer.inspection.heads.report import HeadReport, HeadSurvey, LeftOut
from glassformer.inspection.heads.role_scores import LIFT, RoleScore, RoleTally, score_heads
from glassformer.inspection.sites import HeadSite, Site, attentions
from glassformer.model.pruned_attention import head_numbers
from glassformer.model.transformer import Block, Model

THRESHOLDS: Mapping[str, float] = {
    **{name: role.threshold for name, role in roles.ROLES.items()},
    "delimiter": roles.DELIMITER,
    "positional": roles.POSITIONAL,
    "rare_word": roles.RARE,
    "copying": copying.COPYING_THRESHOLD,
    "alignment": cross.ALIGNED,
    "monotone": cross.MONOTONE,
    "end_sink": roles.SINK,
}

NO_ROWS = {
    "rare_word": f"no text of the probe has a token outside the {roles.FREQUENT} most frequent ones",
    "alignment": "no sequence of the probe has 4 source tokens and a target token with a known source token",
    "monotone": "no sequence of the probe has at least 3 queries",
}
"""Reasons why a role may have no rows."""
NO_ROWS_IN_DECODERS = {
    "next": "a decoder does not attend to later tokens",
    "subject to verb": "a decoder does not attend to later tokens",
}
"""Further reasons, for decoders."""


@dataclass(frozen=True, eq=False)
class TokenFacts:
    """Special tokens, punctuation and token frequencies of a run.

    Attributes:
        special: ids of special tokens that are not text; for an encoder-decoder those of the target.
        source_special: ids of special tokens of the source of an encoder-decoder.
        marks: ids of full stop, comma and danda in the input of the model; used for encoders.
        counts: (V,) counts of each token in the training text; None without data, or for a run with target texts.
        corpus: `data.source` of the run, such as the name of a generated corpus; None for a run with target texts.
    """

    special: frozenset[int]
    source_special: frozenset[int] = frozenset()
    marks: frozenset[int] = frozenset()
    counts: Ids | None = None
    corpus: str | None = None


@dataclass
class _Layer:
    """Tallies of one attention layer, collected batch by batch.

    Attributes:
        tallies: role -> tally of each batch.
        probe: role -> name of the probe that it is measured on.
        votes: results of `roles.offset_votes` for each batch.
        sums: statistic -> sums (H,) and their divisor, for each batch.
        hits: relation -> hits of each fixed offset, and number of rows, for each batch.
        hidden: largest weight on a masked key, (H,), of each batch.
    """

    tallies: dict[str, list[RoleTally]] = field(default_factory=lambda: defaultdict(list))
    probe: dict[str, str] = field(default_factory=dict)
    votes: list[tuple[Floats, Floats, Floats]] = field(default_factory=list)
    sums: dict[str, list[tuple[Floats, float]]] = field(default_factory=lambda: defaultdict(list))
    hits: dict[str, list[tuple[Floats, float]]] = field(default_factory=lambda: defaultdict(list))
    hidden: list[Floats] = field(default_factory=list)

    def add(self, role: str, tally: RoleTally, probe: str) -> None:
        self.tallies[role].append(tally)
        self.probe[role] = probe


def survey(model: Model, probes: Sequence[HeadProbe], token_facts: TokenFacts) -> HeadSurvey:
    """Score all heads in all possible roles.

    Attention weights are reduced to sums batch by batch, so that memory use hardly depends on the number of sequences.

    Args:
        model: a model of any family; it is not modified.
        probes: input sequences, from `glassformer.inspection.heads.probes`.
        token_facts: special tokens, punctuation and token frequencies of the run.
    """
    layers: dict[Site, _Layer] = defaultdict(_Layer)
    for probe in probes:
        for probed_layer in passes(model, probe, token_facts.special, token_facts.source_special):
            _tally(layers[probed_layer.site], probed_layer, probe, token_facts, model.config.context)
    reports: list[HeadReport] = []
    left_out: dict[LeftOut, None] = {}
    for site, attention in attentions(model).items():
        layer = layers[site]
        role_scores, unscored = _role_scores(layer, site.stack)
        by_weights = _by_weights(model, site)
        if by_weights is not None:
            role_scores["copying_by_weights"] = by_weights
        _require_copying(role_scores)
        for role, reason in [*unscored.items(), *_unmeasured_roles(model, site, role_scores, unscored, token_facts)]:
            left_out[LeftOut(f"{site.stack}.{site.part}", role, reason)] = None
        for index, number in enumerate(head_numbers(attention)):
            head_scores = {role: scores[index] for role, scores in role_scores.items()}
            reports.append(HeadReport(HeadSite(site, number), head_scores, _statistics(layer, index)))
    return HeadSurvey(reports, tuple(probes), tuple(left_out))


def _tally(layer: _Layer, probed_layer: ProbedLayer, probe: HeadProbe, token_facts: TokenFacts, span: int) -> None:
    """Add the tallies of one batch of a probe to those of the layer."""
    arrays = probed_layer.arrays
    if probed_layer.raised is not None:
        layer.add("copying", copying.copying(arrays, probed_layer.raised), probe.name)
    if probed_layer.aligned is not None:
        layer.add("alignment", roles.voted(arrays, probed_layer.aligned), probe.name)
    if not arrays.cross:
        for name, role in roles.ROLES.items():
            if role.probe == probe.name:
                layer.add(name, roles.role(arrays, name), probe.name)
        for name, pattern in probed_layer.gold.items():
            layer.add(name, roles.voted(arrays, pattern), probe.name)
            layer.hits[name].append(relations.offset_hits(arrays, pattern, span))
    if probe.name == "text":
        _tally_text(layer, probed_layer.site, arrays, token_facts, span)


def _tally_text(layer: _Layer, site: Site, arrays: AttentionArrays, token_facts: TokenFacts, span: int) -> None:
    rows = float(arrays.rows.sum())
    for name, sums in numbers.attention_statistics(arrays).items():
        layer.sums[name].append((sums.sum(axis=0), rows))
    layer.hidden.append(cross.hidden_weight(arrays))
    if arrays.cross:
        layer.add("monotone", cross.monotone(arrays), "text")
        layer.add("end_sink", cross.end_sink(arrays), "text")
        layer.sums["coverage"].append((cross.coverage(arrays).sum(axis=0), float(len(arrays.keys))))
        return
    layer.votes.append(roles.offset_votes(arrays, span))
    layer.sums["divergence"].append(numbers.divergence(arrays))
    layer.sums["first_of_64"].append((roles.sink_weight(arrays).sum(axis=0), float(len(arrays.keys))))
    if site.stack == "enc":
        layer.add("delimiter", roles.delimiter(arrays, token_facts.marks), "text")
    if token_facts.counts is not None:
        layer.add("rare_word", roles.rare_word(arrays, token_facts.counts), "text")


def _role_scores(layer: _Layer, stack: str) -> tuple[dict[str, list[RoleScore]], dict[str, str]]:
    """Return the scores of all heads by role, and the reasons for roles without rows."""
    scores: dict[str, list[RoleScore]] = {}
    unscored: dict[str, str] = {}
    for role, tallies in layer.tallies.items():
        tally = RoleTally.join(tallies)
        if not tally.rows.sum():
            reasons = NO_ROWS | NO_ROWS_IN_DECODERS if stack == "dec" else NO_ROWS
            unscored[role] = reasons.get(role, f"no query of the probe {layer.probe[role]!r} allows this role")
            continue
        threshold = THRESHOLDS.get(role, 0.0)
        details = None
        if role in layer.hits:
            best = _best_offset(layer.hits[role])
            threshold = best + relations.ABOVE_BASELINE
            details = [{"baseline": best}] * tally.score.shape[1]
        lowest = -1.0 if role == "copying" else 0.0
        needed_lift = cross.ALIGNED_LIFT if role == "alignment" else LIFT
        scores[role] = score_heads(
            tally, threshold, layer.probe[role], lowest=lowest, details=details, needed_lift=needed_lift
        )
    if layer.votes:
        votes, chance, rows = (np.concatenate(part) for part in zip(*layer.votes, strict=True))
        tally, offsets = roles.positional(votes, chance, rows)
        if rows.sum():
            details = [{"offset": float(offset)} for offset in offsets]
            scores["positional"] = score_heads(tally, roles.POSITIONAL, "text", details=details)
        else:
            unscored["positional"] = "no query of the probe 'text' allows this role"
    return scores, unscored


def _require_copying(role_scores: dict[str, list[RoleScore]]) -> None:
    """Require that an induction head also copies (Olsson et al. 2022): one of the available copying scores is above 0.

    On tokens that do not repeat, an induction head has no earlier copy to attend to, so its weights are often better
    evidence of copying than its outputs.
    """
    copying_scores = [role_scores[name] for name in ("copying", "copying_by_weights") if name in role_scores]
    if copying_scores and "induction" in role_scores:
        copies = [any(one.score > 0 for one in each) for each in zip(*copying_scores, strict=True)]
        role_scores["induction"] = [
            one.if_also(copy) for one, copy in zip(role_scores["induction"], copies, strict=True)
        ]


def _best_offset(hits: Sequence[tuple[Floats, float]]) -> float:
    """Return the fraction of rows whose gold partner is at the best fixed offset; 0 without rows."""
    total = sum(hit for hit, _ in hits)
    rows = sum(count for _, count in hits)
    return float(np.max(total) / max(rows, 1.0))


def _statistics(layer: _Layer, head: int) -> dict[str, float]:
    statistics = {}
    for name, parts in layer.sums.items():
        count = sum(rows for _, rows in parts)
        if count:
            statistics[name] = float(sum(float(sums[head]) for sums, _ in parts) / count)
    if layer.hidden:
        statistics["hidden_weight"] = float(max(each[head] for each in layer.hidden))
    return statistics


def _by_weights(model: Model, site: Site) -> list[RoleScore] | None:
    """Return each head's copying score from its weights, which has no chance level and no interval.

    Return None for cross-attention, or if the heads have no direct path to the logits.
    """
    if site.part == "cross" or copying.no_direct_path(model, site.stack, site.part) is not None:
        return None
    block = model.stacks[site.stack].blocks[site.layer]
    assert isinstance(block, Block)
    threshold = copying.COPYING_BY_WEIGHTS_THRESHOLD
    return [
        RoleScore(score, None, None, None, threshold, score >= threshold, 0, "weights", {})
        for score in copying.copying_by_weights(model, block)
    ]


def _unmeasured_roles(
    model: Model, site: Site, role_scores: Collection[str], unscored: Collection[str], token_facts: TokenFacts
) -> Iterator[tuple[str, str]]:
    """Yield roles that could not be measured at a site and are not in `unscored`, each with the reason.

    "induction" is yielded for "induction" and "duplicate" together, and "syntactic" for all gold relations together.
    """
    if "copying" not in role_scores and "copying" not in unscored:
        reason = copying.no_direct_path(model, site.stack, site.part)
        yield "copying", reason or "the context or the vocabulary is too small for random tokens"
    if site.part == "cross":
        if "alignment" not in role_scores and "alignment" not in unscored:
            yield "alignment", "word pairs are learned from the training text of the run, which is not available"
        return
    if site.stack == "dec":
        yield "delimiter", "the role is defined for encoders; a decoder's usual sink is the first token"
    if token_facts.counts is None:
        yield "rare_word", "token frequencies need the training text of a run without separate targets"
    if not any(role in role_scores or role in unscored for role in ("induction", "duplicate")):
        yield "induction", "the context or the vocabulary is too small for repeated random tokens"
    if not any(role in role_scores or role in unscored for names in relations.RELATIONS.values() for role in names):
        yield "syntactic", relations.missing_relations_reason(token_facts.corpus, causal=site.stack == "dec")
