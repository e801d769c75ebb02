"""Gold relations between words: verb and subject (corpus `agreement`), "it" and its noun (corpus `coreference`).

The relations come from the grammar that generates the sentences, so no parser is needed. The score of a head is the
fraction of rows whose largest weight is on the gold partner; the score is compared with that of the best fixed offset
(Voita et al. 2019, section 5.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from glassformer.corpora.agreement.corpus import Agreement
from glassformer.corpora.agreement.items import NUMBERS, PREDICATES, Item, animacy, draw_item, form
from glassformer.corpora.coreference import ROLES, adjectives, draw_scene
from glassformer.corpora.corpus import below, generator
from glassformer.inspection.heads.attention_arrays import AttentionArrays, Bools, Floats
from glassformer.text.tokenizers import Tokenizer

ABOVE_BASELINE = 0.10
"""Minimum margin of a syntactic head's score over the best fixed offset."""
FIRST_SENTENCE_INDEX = (
    1 << 40
)  # first index of these sentences in the generator, distinct from those of documents and minimal pairs
RELATIONS: Mapping[str, tuple[str, ...]] = {
    "agreement": ("verb to subject", "before verb to subject", "subject to verb"),
    "coreference": ("it to noun", "noun to it"),
}
"""Relations of each corpus. The query of "before verb to subject" is the token that predicts the verb.

Relations to later tokens need an encoder. So does "it to noun", because the adjective after "it" determines the noun.
"""
BEFORE_WORD = ("before verb to subject",)
"""Relations whose query is the token before the word."""
BACKWARDS = ("subject to verb", "noun to it")
"""Relations from the second word of a link to the first one."""
Span = tuple[int, int]


@dataclass(frozen=True)
class Sentence:
    """Sentence with its gold relations.

    Attributes:
        text: the sentence.
        links: character spans of related words: (verb, subject) for the main verb and for the verb of a relative or
            coordinate clause, if any; or ("it", noun).
    """

    text: str
    links: tuple[tuple[Span, Span], ...]


def sentences(size: int, seed: int = 0) -> Iterator[Sentence]:
    """Generate sentences with 1 to `Agreement.most` nouns between the subject and the main verb.

    Equal arguments give equal sentences.
    """
    for index in range(size):
        rng = generator(seed, FIRST_SENTENCE_INDEX + index)
        nouns = 1 + below(rng, Agreement.most)
        item = draw_item(rng, nouns, rng.random() < 1 / 2, held=False)
        subject, front, *chain = (NUMBERS[below(rng, 2)] for _ in range(nouns + 2))
        yield _linked_sentence(item, subject, "".join(chain), front)


def sentences_with_it(size: int, seed: int = 0) -> Iterator[Sentence]:
    """Generate sentences of `coreference`; "it" refers to the animal and to the thing in turn.

    Equal arguments give equal sentences.
    """
    for index in range(size):
        scene, point, _ = draw_scene(seed, FIRST_SENTENCE_INDEX + index, held=False)
        role = ROLES[index % 2]
        options = adjectives(scene.animal, scene.thing, role, held=False)
        text = scene.text("it", options[int(point * len(options))])
        it = _span_of(text, "it", text.index(" it was too "))
        yield Sentence(text, ((it, _span_of(text, scene.noun(role), 0)),))


SENTENCES: Mapping[str, Callable[[int], Iterator[Sentence]]] = {
    "agreement": sentences,
    "coreference": sentences_with_it,
}
"""For each corpus, a function that generates a given number of sentences."""


def missing_relations_reason(corpus: str | None, causal: bool) -> str:
    """Return the reason why there is no sentence with gold relations for a run on this corpus."""
    if corpus not in RELATIONS:
        return f"gold relations exist only for the corpora {' and '.join(RELATIONS)}"
    if corpus == "coreference" and causal:
        return 'a decoder reads "it" before the adjective that determines its noun'
    return f"no sentence of {corpus} fits into the context and can be aligned with the tokens"


def _linked_sentence(item: Item, subject: str, chain: str, front: str) -> Sentence:
    text = item.text(subject, chain, front, subject)
    start = 0 if item.front is None else len(f"{item.front[0]} the {form(item.front[1], front)}, ")
    noun = _span_of(text, form(item.subject, subject), start)
    verb = _span_of(text, _main_predicate(item, text).split()[0], len(text) - 1 - len(_main_predicate(item, text)))
    links = [(verb, noun)]
    if item.frame == "that":  # "the author that the guards like": "guards" is the first noun of the chain
        inner = _span_of(text, form(item.chain[0], chain[0]), noun[1])
        links.append((_span_of(text, item.verb + "s" * (chain[0] == "S"), inner[1]), inner))
    elif item.frame in ("who", "and"):
        links.append((_span_of(text, item.verb + "s" * (subject == "S"), noun[1]), noun))
    return Sentence(text, tuple(links))


def _main_predicate(item: Item, text: str) -> str:
    """Return the main predicate, which ends the sentence."""
    return next(p for p in PREDICATES[animacy(item.subject)][item.predicate] if text.endswith(f" {p}."))


def _span_of(text: str, word: str, start: int) -> Span:
    begin = text.index(word, start)
    return begin, begin + len(word)


def token_spans(tokenizer: Tokenizer, text: str, ids: list[int]) -> list[Span] | None:
    """Return the character span of each token of an ASCII text.

    Return None if the ids do not decode to the text; differences in case are ignored.
    """
    if tokenizer.decode(ids).lower() != text.lower():
        return None
    dropped = int(tokenizer.drops_space and tokenizer.token_bytes(ids[0]).startswith(b" "))
    ends = (np.cumsum([len(tokenizer.token_bytes(token)) for token in ids]) - dropped).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True))


def gold(sentence: Sentence, spans: list[Span], relation: str, before: int) -> Bools:
    """Return a (T, T) mask: in the row of each query of a relation, True at all tokens of the gold partner.

    The query is the last token of a word or, in the relations of `BEFORE_WORD`, the token before the word. A query that
    is itself a token of the partner is left out.

    Args:
        sentence: the sentence.
        spans: character spans of the sentence's tokens.
        relation: a relation of the corpus, from `RELATIONS`.
        before: number of tokens that the model reads before the sentence.
    """
    size = len(spans) + before
    pattern = np.zeros((size, size), dtype=np.bool_)  # (T, T)
    for link in sentence.links:
        query_span, key_span = reversed(link) if relation in BACKWARDS else link
        query_tokens = [number for number, span in enumerate(spans) if _overlap(span, query_span)]
        keys = [number + before for number, span in enumerate(spans) if _overlap(span, key_span)]
        row = (query_tokens[0] - 1 if relation in BEFORE_WORD else query_tokens[-1]) + before
        if row not in keys:  # in "the guards avoid", the token before the verb is the subject itself
            pattern[row, keys] = True
    return pattern


def _overlap(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def offset_hits(arrays: AttentionArrays, pattern: Bools, span: int) -> tuple[Floats, float]:
    """Count the rows whose gold partner is at each offset -span … span, and all rows with a gold partner.

    Args:
        arrays: attention of a self-attention layer.
        pattern: (N, T, S) True at the gold partners of each query.
        span: largest offset.
    """
    candidates = pattern & arrays.allowed & ~arrays.special_keys[:, None, :]  # (N, T, S)
    rows = arrays.rows & candidates.any(axis=-1)  # (N, T)
    row_pattern = candidates & rows[..., None]  # (N, T, S)
    T = row_pattern.shape[1]
    hits = np.zeros(2 * span + 1)
    for offset in range(max(-span, 1 - T), min(span, T - 1) + 1):
        hits[offset + span] = np.trace(row_pattern, offset, axis1=1, axis2=2).sum()
    return hits, float(rows.sum())
