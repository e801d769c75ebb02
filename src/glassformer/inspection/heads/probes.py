"""The texts on which heads are looked at: some of the run's own, random tokens that repeat, and some that do not.

The same run always gets the same ones. Random tokens show what a head does whatever the text says: on text, the
previous token and the one after an earlier copy are often the same place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from glassformer.inspection.heads.attention_arrays import Bools, Ids
from glassformer.inspection.heads.relations import RELATIONS, SENTENCES, gold, token_spans
from glassformer.model.transformer import Decoder, EncoderDecoder, Model
from glassformer.text.batches import padded
from glassformer.text.tokenizers import Tokenizer

SEGMENT = 25
"""Random tokens of a segment: Olsson et al. 2022, like the next two."""
COPIES = 4
"""Repetitions of a segment in one sequence."""
EXAMPLES = 10
"""Sequences of random tokens."""
SEED = 0
TEXTS = 16
"""Rows of text."""
MANY = 200
"""Sentences with gold relations."""
EDGE = 0.1
"""Share of the vocabulary's most, and of its least frequent tokens that random sequences leave out."""
LARGE = 100
"""Only vocabularies of at least so many tokens have such edges."""


@dataclass(frozen=True, eq=False)
class HeadProbe:
    """Sequences of one kind.

    Attributes:
        name: "text", "repeated", "distinct" or "sentences".
        words: what they are, for people.
        rows: ids of each sequence; of an encoder-decoder the source's.
        targets: of an encoder-decoder the target's ids, as the decoder reads them; else None.
        gold: of "sentences": relation -> (T, T) for each sequence.
    """

    name: str
    words: str
    rows: Sequence[Ids]
    targets: Sequence[Ids] | None = None
    gold: dict[str, list[Bools]] = field(default_factory=dict)

    @property
    def distinct(self) -> bool:
        """Return whether no token of a sequence repeats, as the copying score asks for."""
        return self.name == "distinct"


@dataclass(frozen=True, eq=False)
class TokenPool:
    """The ids that random tokens are drawn from, and the ids that begin or end a sequence.

    Attributes:
        pool: ids to draw from.
        start, end: special ids.
    """

    pool: Ids
    start: int
    end: int


def vocabulary(tokenizer: Tokenizer, counts: Ids | None = None) -> TokenPool:
    """The tokens that stand for text; where their counts (V,) are known, without the most and the least frequent."""
    special = special_ids(tokenizer) | {tokenizer.unknown_id}
    pool = np.array([token for token in range(tokenizer.vocab_size) if token not in special], dtype=np.int64)
    pool = pool[[bool(tokenizer.token_bytes(int(token))) for token in pool]]
    if counts is not None and len(pool) >= LARGE:
        order = pool[np.argsort(-counts[pool], kind="stable")]
        edge = int(EDGE * len(order))
        pool = np.sort(order[edge : len(order) - edge])
    return TokenPool(pool, tokenizer.start_id, tokenizer.end_id)


def special_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """Ids that stand for no text."""
    return frozenset(id for id in (tokenizer.start_id, tokenizer.end_id, tokenizer.mask_id) if id is not None)


def marks(tokenizer: Tokenizer) -> frozenset[int]:
    """Ids of the full stop and the comma, with or without a space."""
    texts = {token: tokenizer.token_bytes(token).strip() for token in range(tokenizer.vocab_size)}
    return frozenset(token for token, text in texts.items() if text in (b".", b",", "।".encode()))


def random_probes(model: Model, source: TokenPool, target: TokenPool) -> list[HeadProbe]:
    """Random tokens repeated, and random tokens all different; as many as the context has room for.

    Args:
        model: decides how a sequence is made: a source ends with its end token, everything else begins with one.
        source, target: of an encoder-decoder; of others both the same.
    """
    generator = np.random.Generator(np.random.Philox(SEED))
    context = model.config.context
    made = []
    for name, copies in (("repeated", COPIES), ("distinct", 1)):
        length = min(SEGMENT, (context - 1) // copies, len(source.pool), len(target.pool))
        if length < 2:
            continue
        words = f"{EXAMPLES} sequences of {length} random tokens"
        words += f", {copies} times" if copies > 1 else ", all different"
        drawn = [_drawn(generator, source, length, copies) for _ in range(EXAMPLES)]
        if isinstance(model, EncoderDecoder):
            answers = [_drawn(generator, target, length, copies) for _ in range(EXAMPLES)]
            rows = [np.append(ids, source.end) for ids in drawn]
            made.append(HeadProbe(name, words, rows, [np.insert(ids, 0, target.end) for ids in answers]))
        else:
            made.append(HeadProbe(name, words, [np.insert(ids, 0, source.start) for ids in drawn]))
    return made


def _drawn(generator: np.random.Generator, from_: TokenPool, length: int, copies: int) -> Ids:
    ids: Ids = np.tile(generator.choice(from_.pool, length, replace=False), copies)
    return ids


def sentence_probe(model: Model, tokenizer: Tokenizer, start: bool, corpus: str | None) -> HeadProbe | None:
    """Sentences with gold relations; None where this corpus has none, or this tokenizer or this context no room.

    Args:
        model: a decoder or an encoder.
        tokenizer: of the run.
        corpus: that it learnt from.
        start: whether its rows begin with a special token.
    """
    if corpus is None or corpus not in RELATIONS or (corpus == "coreference" and isinstance(model, Decoder)):
        return None
    rows: list[Ids] = []
    relations: dict[str, list[Bools]] = {relation: [] for relation in RELATIONS[corpus]}
    for sentence in SENTENCES[corpus](MANY):
        ids = tokenizer.encode(sentence.text)
        spans = token_spans(tokenizer, sentence.text, ids)
        if spans is None or len(ids) + start > model.config.context:
            continue
        rows.append(np.array([tokenizer.start_id] * start + ids))
        for relation, patterns in relations.items():
            patterns.append(gold(sentence, spans, relation, int(start)))
    if not rows:
        return None
    known = "subjects" if corpus == "agreement" else 'nouns for "it"'
    return HeadProbe("sentences", f"{len(rows)} generated sentences with known {known}", rows, gold=relations)


def batch(rows: Sequence[Ids]) -> tuple[Ids, Bools]:
    """Pad rows at the end and return (N, T) ids and an (N, T) mask of real tokens."""
    ids, real = padded(rows)
    return ids.numpy(), real.numpy()
