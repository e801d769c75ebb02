"""Gold relations between words: who is the subject of which verb, in sentences of the corpus `agreement`.

The grammar made the sentence, so no parser is needed. A head is scored by how often its largest weight goes from one
word to the other, beside the best that a fixed offset can do (Voita et al. 2019, section 5.3).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from glassformer.data.corpora.agreement.corpus import Agreement
from glassformer.data.corpora.agreement.items import NUMBERS, PREDICATES, Item, animacy, draw_item, form
from glassformer.data.corpora.corpus import below, generator
from glassformer.inspection.heads.looks import Bools, Floats, Looks
from glassformer.tokenizers import Tokenizer

ABOVE_BASELINE = 0.10
"""By how much a syntactic head is right more often than the best fixed offset."""
FROM = 1 << 40  # sentences take their random numbers from here on: documents and minimal pairs have others
RELATIONS = ("verb to subject", "before verb to subject", "subject to verb")
"""The second one starts at the token that the verb is predicted from. The third needs an encoder."""
Span = tuple[int, int]


@dataclass(frozen=True)
class Sentence:
    """A sentence and its relations, in characters.

    Attributes:
        text: the sentence.
        links: (verb, subject) of its verbs: of the main one, and of the one in its relative clause.
    """

    text: str
    links: tuple[tuple[Span, Span], ...]


def sentences(size: int, seed: int = 0) -> Iterator[Sentence]:
    """Sentences with 1 to `Agreement.most` nouns between subject and verb; a pure function of the arguments."""
    for index in range(size):
        numbers = generator(seed, FROM + index)
        nouns = 1 + below(numbers, Agreement.most)
        item = draw_item(numbers, nouns, numbers.random() < 1 / 2, held=False)
        subject, front, *chain = (NUMBERS[below(numbers, 2)] for _ in range(nouns + 2))
        yield _linked(item, subject, "".join(chain), front)


def _linked(item: Item, subject: str, chain: str, front: str) -> Sentence:
    text = item.text(subject, chain, front, subject)
    start = 0 if item.front is None else len(f"{item.front[0]} the {form(item.front[1], front)}, ")
    noun = _found(text, form(item.subject, subject), start)
    verb = _found(text, _main(item, text).split()[0], len(text) - 1 - len(_main(item, text)))
    links = [(verb, noun)]
    if item.frame == "that":  # "the author that the guards like": its subject is the first noun of the chain
        inner = _found(text, form(item.chain[0], chain[0]), noun[1])
        links.append((_found(text, item.verb + "s" * (chain[0] == "S"), inner[1]), inner))
    elif item.frame in ("who", "and"):
        links.append((_found(text, item.verb + "s" * (subject == "S"), noun[1]), noun))
    return Sentence(text, tuple(links))


def _main(item: Item, text: str) -> str:
    """The main predicate as it stands at the end of the sentence."""
    return next(p for p in PREDICATES[animacy(item.subject)][item.predicate] if text.endswith(f" {p}."))


def _found(text: str, word: str, start: int) -> Span:
    place = text.index(word, start)
    return place, place + len(word)


def token_spans(tokenizer: Tokenizer, text: str, ids: list[int]) -> list[Span] | None:
    """The characters of each token of an ASCII text; None where the tokens do not spell it."""
    if tokenizer.decode(ids).lower() != text.lower():
        return None
    dropped = int(tokenizer.drops_space and tokenizer.token_bytes(ids[0]).startswith(b" "))
    ends = (np.cumsum([len(tokenizer.token_bytes(token)) for token in ids]) - dropped).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True))


def gold(sentence: Sentence, spans: list[Span], relation: str, before: int) -> Bools:
    """(T, T): True from the last token of one word to every token of its partner.

    Args:
        sentence: with its links.
        spans: of the sentence's tokens, in characters.
        relation: one of `RELATIONS`.
        before: tokens that the model reads before the sentence.
    """
    size = len(spans) + before
    pattern = np.zeros((size, size), dtype=np.bool_)  # (T, T)
    for verb, subject in sentence.links:
        from_, to = (subject, verb) if relation == "subject to verb" else (verb, subject)
        start = [number for number, span in enumerate(spans) if _meet(span, from_)]
        keys = [number + before for number, span in enumerate(spans) if _meet(span, to)]
        row = (start[0] - 1 if relation == "before verb to subject" else start[-1]) + before
        if row not in keys:  # "the guards avoid": there the token before the verb is the subject
            pattern[row, keys] = True
    return pattern


def _meet(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def offset_hits(looks: Looks, pattern: Bools, span: int) -> tuple[Floats, float]:
    """How often each fixed offset -span … span would hit the gold partner, summed, and on how many rows."""
    candidates = pattern & looks.allowed & ~looks.special_keys[:, None, :]  # (N, T, S)
    rows = looks.rows & candidates.any(axis=-1)  # (N, T)
    kept = candidates & rows[..., None]  # (N, T, S)
    T = kept.shape[1]
    hits = np.zeros(2 * span + 1)
    for offset in range(max(-span, 1 - T), min(span, T - 1) + 1):
        hits[offset + span] = np.trace(kept, offset, axis1=1, axis2=2).sum()
    return hits, float(rows.sum())
