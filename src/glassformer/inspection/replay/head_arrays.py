"""Compute the arrays of a snapshot from a model: the scores of `glass heads`, and attention maps on a few texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from glassformer.inspection.heads import HeadProbe, TokenFacts, survey
from glassformer.inspection.heads.attention_arrays import Ids
from glassformer.inspection.heads.role_scores import LIFT, RoleScore
from glassformer.inspection.recording import record
from glassformer.inspection.replay.snapshot import Flags, Map, MappedTokens, Numbers, SnapshotLabels
from glassformer.inspection.sites import Site, attentions
from glassformer.model.transformer import EncoderDecoder, Model
from glassformer.text.tokenizers import Tokenizer

TEXT = 32
"""Maximum number of tokens per map of a row of the text probe."""
REPEATED = 48
"""Maximum number of tokens per map of repeated random tokens: a segment and the beginning of its second copy."""
SIZES = ((4, 48), (2, 48), (1, 48), (1, 40), (1, 32), (1, 24), (1, 16), (1, 8))
"""Pairs (number of texts, maximum number of tokens per map).

The first pair whose maps fit into `MOST_BYTES` is used, or the last pair if none fits.
"""
MOST_BYTES = 400_000
"""Maximum size in bytes of a snapshot's maps before compression, unless even the last pair of `SIZES` exceeds it.

With this size, the maps of 64 snapshots take less than 30 MB.
"""


@dataclass(frozen=True, eq=False)
class MappedText:
    """Text whose attention maps are stored.

    Attributes:
        tokens: the text's tokens, as they are displayed.
        source: ids of the input tokens, (T,); for an encoder-decoder those of the source, (S,).
        target: decoder input ids of an encoder-decoder, (T,); otherwise None.
    """

    tokens: MappedTokens
    source: Ids
    target: Ids | None


@dataclass(frozen=True, eq=False)
class HeadArrays:
    """Arrays of a snapshot, with R roles and M statistics.

    Attributes:
        labels: names of heads, roles and statistics, and the mapped texts.
        scores: role scores, (heads, R), NaN if not measured.
        reached: bool, (heads, R), True if score and lift are high enough and the interval is above chance, as in
            `heads.score_heads`.
        numbers: statistics, (heads, M), NaN if not measured.
        maps: attention maps (H, T, S) by index of the text and attention site, as bytes from 0 to 255.
    """

    labels: SnapshotLabels
    scores: Numbers
    reached: Flags
    numbers: Numbers
    maps: dict[tuple[int, str], Map]


def measure_heads(
    model: Model, probes: Sequence[HeadProbe], token_facts: TokenFacts, texts: Sequence[MappedText]
) -> HeadArrays:
    """Measure all heads of a model, without modifying the model or using global random state.

    Args:
        model: a model of any family.
        probes, token_facts: as for `heads.survey`.
        texts: texts for attention maps, from `mapped_texts`.
    """
    reports = survey(model, probes, token_facts).heads
    roles = tuple(dict.fromkeys(role for each in reports for role in each.roles))
    statistics = tuple(dict.fromkeys(number for each in reports for number in each.statistics))
    labels = SnapshotLabels(
        tuple(str(report.head) for report in reports), roles, statistics, tuple(text.tokens for text in texts)
    )
    scores = np.full((len(reports), len(roles)), np.nan, dtype=np.float32)  # (heads, R)
    reached = np.zeros(scores.shape, dtype=np.bool_)  # (heads, R)
    numbers = np.full((len(reports), len(statistics)), np.nan, dtype=np.float32)  # (heads, M)
    for row, report in enumerate(reports):
        for role, role_score in report.roles.items():
            scores[row, roles.index(role)] = role_score.score
            reached[row, roles.index(role)] = _is_reached(role_score)
        for statistic, value in report.statistics.items():
            numbers[row, statistics.index(statistic)] = value
    return HeadArrays(labels, scores, reached, numbers, _maps(model, texts))


def _is_reached(role_score: RoleScore) -> bool:
    """Return whether score and lift are high enough and the interval is above chance; copying is not required."""
    high = role_score.score >= role_score.threshold and (role_score.lift is None or role_score.lift >= LIFT)
    return high and role_score.interval is not None and role_score.interval[0] > (role_score.chance or 0.0)


def _maps(model: Model, texts: Sequence[MappedText]) -> dict[tuple[int, str], Map]:
    """Return the attention maps (H, T, S) for each text and attention site, running one text at a time."""
    maps = {}
    for number, text in enumerate(texts):
        target = None if text.target is None else torch.from_numpy(text.target)[None]  # (1, T)
        recording = record(model, torch.from_numpy(text.source)[None], target, keep=("pattern",), dtype=torch.float32)
        for site in attentions(model):
            weights = recording[f"{site}.pattern"][0].numpy()  # (H, T, S)
            maps[number, str(site)] = np.rint(255 * weights).astype(np.uint8)  # (H, T, S)
    return maps


def mapped_texts(
    model: Model, probes: Sequence[HeadProbe], source_tokenizer: Tokenizer, target_tokenizer: Tokenizer
) -> list[MappedText]:
    """Choose texts for attention maps: rows of the text probe and one row of repeated tokens.

    `SIZES` and `MOST_BYTES` limit their number and length.

    Args:
        model: the model, which determines the size of the maps.
        probes: the probes; "text" and "repeated" are used, if available.
        source_tokenizer, target_tokenizer: tokenizers of source and target; the same if the run has only one tokenizer.
    """
    for text_count, max_tokens in SIZES:
        mapped = [
            _mapped_text(
                probe,
                row,
                min(TEXT if probe.name == "text" else REPEATED, max_tokens),
                source_tokenizer,
                target_tokenizer,
            )
            for probe in probes
            for row in _evenly_spaced_rows(probe, text_count)
        ]
        if sum(_map_bytes(model, each.tokens) for each in mapped) <= MOST_BYTES:
            break
    return mapped


def _evenly_spaced_rows(probe: HeadProbe, text_count: int) -> list[int]:
    """Return the indices of evenly spaced rows of a probe.

    There are up to `text_count` rows of the probe "text", one row of "repeated", and none of other probes.
    """
    row_count = {"text": min(text_count, len(probe.rows)), "repeated": 1}.get(probe.name, 0)
    return [number * len(probe.rows) // row_count for number in range(row_count)]


def _mapped_text(
    probe: HeadProbe, row: int, max_tokens: int, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer
) -> MappedText:
    source = probe.rows[row][:max_tokens]  # (S,)
    target = None if probe.targets is None else probe.targets[row][:max_tokens]  # (T,)
    target_texts = () if target is None else tuple(target_tokenizer.token_text(int(id)) for id in target)
    return MappedText(
        MappedTokens(probe.name, tuple(source_tokenizer.token_text(int(id)) for id in source), target_texts),
        source,
        target,
    )


def _map_bytes(model: Model, text: MappedTokens) -> int:
    """Return the size in bytes of all maps of a text."""
    assert bool(text.target) == isinstance(model, EncoderDecoder)
    map_axes = {site: text.rows_and_columns(Site(site.stack, site.layer, site.part)) for site in attentions(model)}
    return sum(
        layer.heads * len(map_axes[site][0]) * len(map_axes[site][1]) for site, layer in attentions(model).items()
    )
