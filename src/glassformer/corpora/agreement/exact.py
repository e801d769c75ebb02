"""Exact probabilities of documents of `agreement`, and their mean length.

A prepositional phrase comes first with probability `FRONTED`; all other choices are uniform. The probability therefore
depends only on the subject, the frame that connects the chain, the length of the chain, and whether a prepositional
phrase comes first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import product
from statistics import mean

from glassformer.corpora.agreement.items import (
    FRAMES,
    NOUNS,
    NUMBERS,
    PREDICATES,
    PREPOSITIONS,
    VERBS,
    Item,
    animacy,
    form,
    partners,
    prepositions,
)

FRONTED = 1 / 3
"""Fraction of documents that begin with a prepositional phrase, whose noun precedes the subject."""
Kind = tuple[str, str, int, bool]
"""(subject, frame, number of nouns in the chain, whether a prepositional phrase comes first)."""


def kinds(most: int) -> Iterator[tuple[Kind, float]]:
    """Yield every kind of document with its probability; `most` is the maximum length of a chain."""
    for subject, nouns, fronted in product(NOUNS, range(most + 1), (False, True)):
        frames = FRAMES[animacy(subject)] if nouns else ("",)
        for frame in frames:
            probability = (FRONTED if fronted else 1 - FRONTED) / len(NOUNS) / (most + 1) / len(frames)
            yield (subject, frame, nouns, fronted), probability


def negative_log_probability(kind: Kind, most: int) -> float:
    """Return -ln p of a document of this kind in nats; `most` is the maximum length of a chain."""
    subject, frame, nouns, fronted = kind
    pool = partners(subject, held=False)
    frames = len(FRAMES[animacy(subject)]) if nouns else 1
    options = [len(NOUNS), most + 1, frames, len(PREDICATES[animacy(subject)])]
    options += [len(pool) - index for index in range(nouns + fronted)]
    if frame == "that":
        options[4] = sum(animacy(noun) == "person" for noun in pool)
    options += [len(prepositions(subject))] * (nouns if frame == "across" else max(nouns - 1, 0))
    options += [len(VERBS)] * (frame in ("who", "that", "and")) + [len(PREPOSITIONS)] * fronted
    options += [len(NUMBERS)] * (1 + nouns + fronted)
    return math.fsum(map(math.log, options)) - math.log(FRONTED if fronted else 1 - FRONTED)


def mean_length(kind: Kind) -> float:
    """Return the mean number of characters of a document of this kind, as a sum of the means of its parts."""
    subject, frame, nouns, fronted = kind
    predicates = PREDICATES[animacy(subject)]
    total = len("the  .") + _form_length(subject) + mean(len(text) for pair in predicates for text in pair)
    heads = [{subject: 1.0}, *(_marginal(kind, index) for index in range(nouns + fronted))]
    for index in range(nouns):
        total += len(" the ") + _mean(heads[index + 1], _form_length)
        if index or frame == "across":
            total += len(" ") + _mean(heads[index], lambda head: mean(map(len, prepositions(head))))
    if frame in ("who", "that", "and"):
        total += len(f" {frame} ") + mean(map(len, VERBS)) + 1 / 2
    if fronted:
        total += mean(map(len, PREPOSITIONS)) + len(" the , ") + _mean(heads[-1], _form_length)
    return total


def _form_length(noun: str) -> float:
    return mean(len(form(noun, number)) for number in NUMBERS)


def _mean(probabilities: Mapping[str, float], measure: Callable[[str], float]) -> float:
    return math.fsum(probability * measure(noun) for noun, probability in probabilities.items())


def _marginal(kind: Kind, index: int) -> dict[str, float]:
    """Return the probability of each noun at `index`.

    Indices count the nouns of the chain, and then the noun of the phrase before the subject.
    """
    subject, frame, _, _ = kind
    pool = partners(subject, held=False)
    if frame != "that":
        return dict.fromkeys(pool, 1 / len(pool))
    people = [noun for noun in pool if animacy(noun) == "person"]
    if index == 0:
        return dict.fromkeys(people, 1 / len(people))
    # The first noun is not used again; the remaining nouns are equally likely at every later index.
    used = {noun: (1 / len(people) if noun in people else 0.0) for noun in pool}
    return {noun: (1 - used[noun]) / (len(pool) - 1) for noun in pool}


@cache
def _pattern() -> re.Pattern[str]:
    """Return a pattern that matches every sentence of the corpus, and some invalid sentences, which `parse` rejects."""
    noun = _alternatives(form(noun, number) for noun in NOUNS for number in NUMBERS)
    link = _alternatives({link for noun in NOUNS for link in prepositions(noun)})
    verb = _alternatives(f"{verb}{ending}" for verb in VERBS for ending in ("", "s"))
    main = _alternatives({text for pairs in PREDICATES.values() for pair in pairs for text in pair})
    chain = f"the {noun}(?: {link} the {noun})*"
    frames = (
        f" (?P<across>{link} {chain})",
        f" who (?P<who>{verb} {chain})",
        f" that (?P<that>{chain} {verb})",
        f" (?P<and>{verb} {chain}) and",
    )
    start = f"(?:(?P<link>{_alternatives(PREPOSITIONS)}) the (?P<front>{noun}), )?"
    return re.compile(f"{start}the (?P<subject>{noun})(?:{'|'.join(frames)})? (?P<main>{main})\\.")


def _alternatives(words: Iterable[str]) -> str:
    return f"(?:{'|'.join(sorted(words))})"


def parse(document: str, most: int) -> Kind | None:
    """Parse a document and return its `Kind`; None if the corpus cannot generate it (for example, a wrong verb form).

    The sentence is generated again from the parsed words and must equal the document.

    Args:
        document: the text.
        most: maximum length of a chain.
    """
    match = _pattern().fullmatch(document[:1].lower() + document[1:])
    if match is None:
        return None
    noun_of_form = {form(noun, number): (noun, number) for noun in NOUNS for number in NUMBERS}
    frame = next((name for name in ("across", "who", "that", "and") if match[name]), "")
    segments = re.split(r" ?\bthe (\w+) ?", match[frame]) if frame else [""]
    chain = [noun_of_form[word] for word in segments[1::2]]
    links = [*(["", *segments[2:-1:2]] if frame != "across" else segments[:-1:2])][: len(chain)]
    verb = {"who": segments[0], "and": segments[0], "that": segments[-1]}.get(frame, "")
    subject, number = noun_of_form[match["subject"]]
    front = noun_of_form[match["front"]] if match["front"] else None
    predicates = [pair[NUMBERS.index(number)] for pair in PREDICATES[animacy(subject)]]
    if match["main"] not in predicates or not _compatible(
        subject, frame, [noun for noun, _ in chain], links, front, most
    ):
        return None
    item = Item(
        subject,
        frame,
        tuple(noun for noun, _ in chain),
        tuple(links),
        verb if verb in VERBS else verb[:-1],
        predicates.index(match["main"]),
        front and (match["link"], front[0]),
    )
    numbers = "".join(noun_number for _, noun_number in chain)
    expected = item.text(number, numbers, front[1] if front else "S", number)
    return (subject, frame, len(chain), front is not None) if expected == document else None


def _compatible(
    subject: str, frame: str, chain: list[str], links: list[str], front: tuple[str, str] | None, most: int
) -> bool:
    """Return whether a document can contain these nouns and prepositions together."""
    nouns = chain + ([front[0]] if front else [])
    heads = [subject, *chain]
    links_fit = all(link in prepositions(heads[index]) for index, link in enumerate(links) if link)
    frame_fits = not frame or frame in FRAMES[animacy(subject)]
    chain_fits = frame != "that" or animacy(chain[0]) == "person"
    nouns_fit = len(set(nouns)) == len(nouns) and set(nouns) <= set(partners(subject, held=False))
    return links_fit and frame_fits and chain_fits and nouns_fit and len(chain) <= most
