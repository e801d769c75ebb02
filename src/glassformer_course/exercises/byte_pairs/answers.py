"""Known mistakes, and alternative correct solutions."""

from collections import Counter
from itertools import pairwise

from glassformer_course.cases import Mistake


def _merge(ids, pair, new):
    merged = []
    position = 0
    while position < len(ids):
        is_pair = tuple(ids[position : position + 2]) == pair
        merged.append(new if is_pair else ids[position])
        position += 2 if is_pair else 1
    return merged


def _pieces(merges):
    pieces = {byte: bytes([byte]) for byte in range(256)}
    for number, (first, second) in enumerate(merges, start=256):
        pieces[number] = pieces[first] + pieces[second]
    return pieces


def _with_encode(merge):
    """Return a merge function with an `encode` that uses it."""

    def encode(text, merges):
        ids = list(text.encode())
        for number, pair in enumerate(merges, start=256):
            ids = merge(ids, pair, number)
        return ids

    return {"merge": merge, "encode": encode}


def _first_seen(ids):
    pairs = Counter(pairwise(ids))
    return pairs.most_common(1)[0][0] if pairs else None


def _largest(ids):
    pairs = Counter(pairwise(ids))
    return max(pairs, key=lambda pair: (pairs[pair], pair), default=None)


def _without_overlaps(ids):
    pairs = set(pairwise(ids))
    counts = {pair: sum(token < 0 for token in _merge(ids, pair, -1)) for pair in pairs}
    return min(counts, key=lambda pair: (-counts[pair], pair), default=None)


def _not_skipped(ids, pair, new):
    return [new if tuple(ids[position : position + 2]) == pair else token for position, token in enumerate(ids)]


def _from_the_right(ids, pair, new):
    return _merge(ids[::-1], pair[::-1], new)[::-1]


def _characters(text, merges):
    ids = [ord(character) for character in text]
    for number, pair in enumerate(merges, start=256):
        ids = _merge(ids, pair, number)
    return ids


def _longest_first(text, merges):
    remaining = text.encode()
    ids = []
    pieces = _pieces(merges)
    while remaining:
        ids.append(
            max((token for token in pieces if remaining.startswith(pieces[token])), key=lambda t: len(pieces[t]))
        )
        remaining = remaining[len(pieces[ids[-1]]) :]
    return ids


def _token_by_token(ids, merges):
    pieces = _pieces(merges)
    return "".join(pieces[token].decode("utf-8", errors="replace") for token in ids)


def _no_broken_text(ids, merges):
    pieces = _pieces(merges)
    return b"".join(pieces[token] for token in ids).decode("utf-8")


def _by_sorting(ids):
    pairs = Counter(pairwise(ids))
    return sorted(pairs, key=lambda pair: (-pairs[pair], pair))[0] if pairs else None


def _by_rank(text, merges):
    """Repeatedly apply the earliest merge that is still possible, at its first position."""
    ids = list(text.encode())
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    while candidates := [(ranks[pair], position) for position, pair in enumerate(pairwise(ids)) if pair in ranks]:
        rank, position = min(candidates)
        ids[position : position + 2] = [256 + rank]
    return ids


def _in_place(ids, pair, new):
    ids = list(ids)
    position = 0
    while position < len(ids) - 1:
        if (ids[position], ids[position + 1]) == pair:
            ids[position : position + 2] = [new]
        position += 1
    return ids


MISTAKES = [
    Mistake(
        "ties go to the pair seen first",
        "Counter.most_common keeps the order in which pairs first occur, so the tokenizer depends on how the text "
        "begins. Of equally frequent pairs, take the smallest: min with the key (-count, pair).",
        {"best_pair": _first_seen},
    ),
    Mistake(
        "ties go to the largest pair",
        "max with the key (count, pair) takes the largest of equally frequent pairs. Negate the count: min with the "
        "key (-count, pair).",
        {"best_pair": _largest},
    ),
    Mistake(
        "overlapping pairs are not counted",
        "Overlapping pairs count: [7, 7, 7] contains (7, 7) twice. Count zip(ids, ids[1:]).",
        {"best_pair": _without_overlaps},
    ),
    Mistake(
        "the second token is not skipped",
        "A merged token replaces two tokens, so continue after both: i += 2. Otherwise the second one stays, and "
        'in "aaa" it is merged once more.',
        _with_encode(_not_skipped),
    ),
    Mistake(
        "merged from the right",
        '"aaa" became a, aa. Merges go from left to right: aa, a.',
        _with_encode(_from_the_right),
    ),
    Mistake(
        "characters instead of bytes",
        "ord gives code points, and those above 255 are ids of other tokens. Start from text.encode('utf-8'): in every "
        "script, bytes are 0 to 255.",
        {"encode": _characters},
    ),
    Mistake(
        "the longest token first",
        "This repeatedly takes the longest known token from the start. Byte pair encoding applies the merges in the "
        "order they were learned, which often splits the text differently.",
        {"encode": _longest_first},
    ),
    Mistake(
        "decoded token by token",
        "A character can be spread over several tokens, and part of a character cannot be decoded. Join all bytes "
        "first, then decode once.",
        {"decode": _token_by_token},
    ),
    Mistake(
        "broken characters raise an error",
        "A model can stop inside a character. Decode with errors='replace', which inserts �.",
        {"decode": _no_broken_text},
    ),
]
ALSO_RIGHT = [{"best_pair": _by_sorting, "encode": _by_rank}, {"merge": _in_place}]
