"""Turn a model into the arrays of a snapshot: the scores of `glass heads`, and attention maps of a few texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from glassformer.inspection.heads import HeadProbe, TokenFacts, survey
from glassformer.inspection.heads.attention_arrays import Ids
from glassformer.inspection.heads.role_scores import LIFT, RoleScore
from glassformer.inspection.recording import record
from glassformer.inspection.replay.snapshot import Flags, Map, Numbers, Shown, SnapshotLabels
from glassformer.inspection.sites import Site, attentions
from glassformer.model.transformer import EncoderDecoder, Model
from glassformer.text.tokenizers import Tokenizer

TEXT = 32
"""Most tokens of a text in a map."""
REPEATED = 48
"""Most random tokens in a map, where the second copy has to begin."""
SIZES = ((4, 48), (2, 48), (1, 48), (1, 40), (1, 32), (1, 24), (1, 16), (1, 8))
"""Texts, and most tokens of a map: the first that fits is taken."""
MOST_BYTES = 400_000
"""Most bytes of the maps of one snapshot, before they are compressed: 64 snapshots stay below 30 MB."""


@dataclass(frozen=True, eq=False)
class MappedText:
    """A text whose maps are kept: its tokens, and their ids, (T,) each; `target` of an encoder-decoder."""

    shown: Shown
    source: Ids
    target: Ids | None


@dataclass(frozen=True, eq=False)
class HeadArrays:
    """The arrays of one model: labels, scores (heads, R), reached (heads, R), numbers (heads, M), and maps."""

    labels: SnapshotLabels
    scores: Numbers
    reached: Flags
    numbers: Numbers
    maps: dict[tuple[int, str], Map]


def look(model: Model, probes: Sequence[HeadProbe], known: TokenFacts, texts: Sequence[MappedText]) -> HeadArrays:
    """Look at all heads. Nothing about the model changes, and no random number is drawn.

    Args:
        model: any of the families.
        probes, known: as for `heads.survey`.
        texts: as `mapped_texts` chooses them.
    """
    found = survey(model, probes, known).heads
    roles = tuple(dict.fromkeys(role for each in found for role in each.roles))
    kinds = tuple(dict.fromkeys(number for each in found for number in each.numbers))
    labels = SnapshotLabels(tuple(str(each.head) for each in found), roles, kinds, tuple(text.shown for text in texts))
    scores = np.full((len(found), len(roles)), np.nan, dtype=np.float32)  # (heads, R)
    reached = np.zeros(scores.shape, dtype=np.bool_)  # (heads, R)
    numbers = np.full((len(found), len(kinds)), np.nan, dtype=np.float32)  # (heads, M)
    for row, each in enumerate(found):
        for role, scored in each.roles.items():
            scores[row, roles.index(role)] = scored.score
            reached[row, roles.index(role)] = _reaches(scored)
        for kind, value in each.numbers.items():
            numbers[row, kinds.index(kind)] = value
    return HeadArrays(labels, scores, reached, numbers, _maps(model, texts))


def _reaches(scored: RoleScore) -> bool:
    """Return whether the score alone, measured on texts, is high enough. An induction head need not copy here."""
    high = scored.score >= scored.threshold and (scored.lift is None or scored.lift >= LIFT)
    return high and scored.interval is not None and scored.interval[0] > (scored.chance or 0.0)


def _maps(model: Model, texts: Sequence[MappedText]) -> dict[tuple[int, str], Map]:
    """(H, T, S) for each text and attention, each text alone: without padding."""
    maps = {}
    for number, text in enumerate(texts):
        target = None if text.target is None else torch.from_numpy(text.target)[None]  # (1, T)
        kept = record(model, torch.from_numpy(text.source)[None], target, keep=("pattern",), dtype=torch.float32)
        for site in attentions(model):
            weights = kept[f"{site}.pattern"][0].numpy()  # (H, T, S)
            maps[number, str(site)] = np.rint(255 * weights).astype(np.uint8)  # (H, T, S)
    return maps


def mapped_texts(model: Model, probes: Sequence[HeadProbe], reader: Tokenizer, writer: Tokenizer) -> list[MappedText]:
    """Return rows of the text probe, and one of repeated random tokens, while all maps together are small enough.

    Args:
        model: decides how large maps are.
        probes: "text" and "repeated" are used, where there are such.
        reader, writer: tokenizers of source and target; the same where there is only one.
    """
    for texts, longest in SIZES:
        found = [
            _mapped(probe, row, min(TEXT if probe.name == "text" else REPEATED, longest), reader, writer)
            for probe in probes
            for row in _chosen(probe, texts)
        ]
        if sum(_size(model, each.shown) for each in found) <= MOST_BYTES:
            break
    return found


def _chosen(probe: HeadProbe, texts: int) -> list[int]:
    """Numbers of the rows, evenly drawn."""
    wanted = {"text": min(texts, len(probe.rows)), "repeated": 1}.get(probe.name, 0)
    return [number * len(probe.rows) // wanted for number in range(wanted)]


def _mapped(probe: HeadProbe, row: int, longest: int, reader: Tokenizer, writer: Tokenizer) -> MappedText:
    source = probe.rows[row][:longest]  # (S,)
    target = None if probe.targets is None else probe.targets[row][:longest]  # (T,)
    written = () if target is None else tuple(writer.token_text(int(id)) for id in target)
    return MappedText(Shown(probe.name, tuple(reader.token_text(int(id)) for id in source), written), source, target)


def _size(model: Model, shown: Shown) -> int:
    """Bytes of all maps of a text."""
    assert bool(shown.target) == isinstance(model, EncoderDecoder)
    sides = {site: shown.rows_and_columns(Site(site.stack, site.layer, site.part)) for site in attentions(model)}
    return sum(layer.heads * len(sides[site][0]) * len(sides[site][1]) for site, layer in attentions(model).items())
