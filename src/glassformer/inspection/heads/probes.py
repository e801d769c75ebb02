"""Probe sequences for attention heads: text, random tokens (repeated or distinct), and sentences with gold relations.

The probes of a run are deterministic. Random tokens separate roles that coincide on natural text, where the previous
token is often also the token after an earlier copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from glassformer.base.wording import counted
from glassformer.inspection.heads.attention_arrays import Bools, Ids
from glassformer.inspection.heads.relations import RELATIONS, SENTENCES, gold, token_spans
from glassformer.model.transformer import Decoder, EncoderDecoder, Model
from glassformer.text.batches import padded
from glassformer.text.tokenizers import Tokenizer

SEGMENT = 25
"""Maximum number of random tokens in a segment.

The values of `SEGMENT`, `SEGMENT_COPIES` and `EXAMPLES` are those of Olsson et al. 2022.
"""
SEGMENT_COPIES = 4
"""Number of times that the segment occurs in a sequence of the probe "repeated"."""
EXAMPLES = 10
"""Number of sequences of random tokens in a probe."""
SEED = 0
TEXTS = 16
"""Maximum number of sequences in the probe "text": held-out rows, windows of a text, or rows of random tokens."""
SENTENCE_COUNT = 200
"""Number of generated sentences with gold relations, before unsuitable sentences are skipped."""
EDGE = 0.1
"""Fraction of the text tokens that is excluded from random sequences at each end of the frequency ranking."""
LARGE = 100
"""Minimum number of text tokens in a vocabulary at which the most and the least frequent tokens are excluded."""


@dataclass(frozen=True, eq=False)
class HeadProbe:
    """Probe: input sequences of one kind, on which heads are measured.

    Attributes:
        name: kind of the sequences: "text", "repeated", "distinct" or "sentences".
        description: description of the sequences for reports.
        rows: ids of each sequence; for an encoder-decoder the source ids.
        targets: decoder input ids of each sequence of an encoder-decoder; otherwise None.
        gold: for "sentences", relation -> a (T, T) mask of the gold partners for each sequence; otherwise empty.
        aligned: for "text" of an encoder-decoder, a (T, S) mask, for each sequence, of the source tokens of the target
            token that each query predicts; empty if they are not known.
    """

    name: str
    description: str
    rows: Sequence[Ids]
    targets: Sequence[Ids] | None = None
    gold: dict[str, list[Bools]] = field(default_factory=dict)
    aligned: Sequence[Bools] = ()

    @property
    def distinct(self) -> bool:
        """Whether the probe is "distinct": no token occurs twice in a sequence, as the copying score requires."""
        return self.name == "distinct"


@dataclass(frozen=True, eq=False)
class TokenPool:
    """Ids to sample random tokens from, and the ids that begin and end a sequence.

    Attributes:
        pool: ids to sample from.
        start, end: ids of the special tokens that begin and end a sequence.
    """

    pool: Ids
    start: int
    end: int


def text_token_pool(tokenizer: Tokenizer, counts: Ids | None = None) -> TokenPool:
    """Return the pool of a vocabulary's text tokens, without special and unknown tokens.

    If there are `counts` (V,) and at least `LARGE` text tokens, leave out the most and the least frequent tokens;
    see `EDGE`.
    """
    special = special_ids(tokenizer) | {tokenizer.unknown_id}
    pool = np.array([token for token in range(tokenizer.vocab_size) if token not in special], dtype=np.int64)
    pool = pool[[bool(tokenizer.token_bytes(int(token))) for token in pool]]
    if counts is not None and len(pool) >= LARGE:
        order = pool[np.argsort(-counts[pool], kind="stable")]
        edge = int(EDGE * len(order))
        pool = np.sort(order[edge : len(order) - edge])
    return TokenPool(pool, tokenizer.start_id, tokenizer.end_id)


def special_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """Return the ids of special tokens that are not text: start, end and mask."""
    return frozenset(id for id in (tokenizer.start_id, tokenizer.end_id, tokenizer.mask_id) if id is not None)


def punctuation_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """Return the ids of the full stop, the comma and the danda (।), with or without spaces."""
    texts = {token: tokenizer.token_bytes(token).strip() for token in range(tokenizer.vocab_size)}
    return frozenset(token for token, text in texts.items() if text in (b".", b",", "।".encode()))


def random_probes(model: Model, source: TokenPool, target: TokenPool) -> list[HeadProbe]:
    """Return a probe of repeated and a probe of distinct random tokens, with segments of at most `SEGMENT` tokens.

    Segments are shorter if the context or a pool requires it. A probe is left out if its segments would have fewer than
    2 tokens. Source sequences of an encoder-decoder end with the end token; all other sequences begin with a special
    token.

    Args:
        model: a model of any family.
        source, target: token pools of an encoder-decoder; the same pool for other models.
    """
    generator = np.random.Generator(np.random.Philox(SEED))
    context = model.config.context
    probes = []
    for name, copies in (("repeated", SEGMENT_COPIES), ("distinct", 1)):
        length = min(SEGMENT, (context - 1) // copies, len(source.pool), len(target.pool))
        if length < 2:
            continue
        description = f"{EXAMPLES} sequences of {length} random tokens"
        description += f", repeated {copies} times" if copies > 1 else ", all different"
        sampled = [_random_segments(generator, source, length, copies) for _ in range(EXAMPLES)]
        if isinstance(model, EncoderDecoder):
            sampled_targets = [_random_segments(generator, target, length, copies) for _ in range(EXAMPLES)]
            rows = [np.append(ids, source.end) for ids in sampled]
            probes.append(
                HeadProbe(name, description, rows, [np.insert(ids, 0, target.end) for ids in sampled_targets])
            )
        else:
            probes.append(HeadProbe(name, description, [np.insert(ids, 0, source.start) for ids in sampled]))
    return probes


def _random_segments(generator: np.random.Generator, token_pool: TokenPool, length: int, copies: int) -> Ids:
    ids: Ids = np.tile(generator.choice(token_pool.pool, length, replace=False), copies)
    return ids


def sentence_probe(model: Model, tokenizer: Tokenizer, start: bool, corpus: str | None) -> HeadProbe | None:
    """Return a probe of generated sentences with gold relations, or None if the corpus has none for this model.

    Sentences that cannot be aligned with tokens, or that are longer than the context, are skipped; if no sentence
    remains, the result is None.

    Args:
        model: a decoder or an encoder.
        tokenizer: tokenizer of the run.
        start: True if rows begin with a special token.
        corpus: `data.source` of the run, such as the name of a generated corpus; None for a run with target texts.
    """
    if corpus is None or corpus not in RELATIONS or (corpus == "coreference" and isinstance(model, Decoder)):
        return None
    rows: list[Ids] = []
    relations: dict[str, list[Bools]] = {relation: [] for relation in RELATIONS[corpus]}
    for sentence in SENTENCES[corpus](SENTENCE_COUNT):
        ids = tokenizer.encode(sentence.text)
        spans = token_spans(tokenizer, sentence.text, ids)
        if spans is None or len(ids) + start > model.config.context:
            continue
        rows.append(np.array([tokenizer.start_id] * start + ids))
        for relation, patterns in relations.items():
            patterns.append(gold(sentence, spans, relation, int(start)))
    if not rows:
        return None
    gold_words = "subjects" if corpus == "agreement" else 'nouns for "it"'
    return HeadProbe(
        "sentences", f"{counted(len(rows), 'generated sentences')} with known {gold_words}", rows, gold=relations
    )


def batch(rows: Sequence[Ids]) -> tuple[Ids, Bools]:
    """Pad rows at the end, and return ids (N, T) and a mask (N, T), False at padding."""
    ids, real = padded(rows)
    return ids.numpy(), real.numpy()
