# %% [markdown]
# # Byte pair encoding
#
# A tokenizer that is learnt by counting. Tokens are ids: 0 to 255 are the single bytes, and each *merge* makes one
# more. `merges` is a list of pairs of ids, in the order they were learnt: merge number n (from 0) joins its pair to
# token 256 + n.
#
# Write the four parts; `learn_merges`, which uses the first two, is there already. All ids are in lists of int.
#
# - `best_pair(ids)`: the pair of neighbours that stands most often in the list `ids`, as a tuple of two ids. Every
#   place counts, so `[97, 97, 97]` holds the pair (97, 97) twice. **Ties**: of equally frequent pairs the smallest, as
#   Python compares tuples. With fewer than two ids: `None`.
# - `merge(ids, pair, new)`: a new list in which `pair` is replaced by the id `new`, from left to right; a token that
#   was merged is used up. `merge([97, 97, 97], (97, 97), 256)` is `[256, 97]`.
# - `encode(text, merges)`: the bytes of the text in UTF-8 as ids, then all merges, each over the whole list, in the
#   order they were learnt.
# - `decode(ids, merges)`: the text again. Join the bytes of all tokens first, then read them as UTF-8, with
#   `errors="replace"`, because ids that a model makes up need not be whole characters.
#
# So `decode(encode(text, merges), merges) == text` for every text in every script.

# %%
from collections import Counter


def best_pair(ids):
    """The most frequent pair of neighbours, the smallest of equals; None if there is none: list -> (int, int)."""
    # BEGIN SOLUTION
    counts = Counter((ids[place], ids[place + 1]) for place in range(len(ids) - 1))
    return min(counts, key=lambda pair: (-counts[pair], pair), default=None)
    # END SOLUTION


def merge(ids, pair, new):
    """The pair replaced by the new id, from left to right: list, (int, int), int -> list."""
    # BEGIN SOLUTION
    merged = []
    place = 0
    while place < len(ids):
        if tuple(ids[place : place + 2]) == pair:
            merged.append(new)
            place += 2
        else:
            merged.append(ids[place])
            place += 1
    return merged
    # END SOLUTION


def learn_merges(text, count):
    """At most `count` merges, each the best pair of what the ones before it have left. (Nothing to write here.)"""
    ids = list(text.encode("utf-8"))
    merges = []
    while len(merges) < count and len(ids) > 1:
        merges.append(best_pair(ids))
        ids = merge(ids, merges[-1], 255 + len(merges))
    return merges


def encode(text, merges):
    """The ids of a text: str, list of pairs -> list of int."""
    # BEGIN SOLUTION
    ids = list(text.encode("utf-8"))
    for number, pair in enumerate(merges):
        ids = merge(ids, pair, 256 + number)
    return ids
    # END SOLUTION


def decode(ids, merges):
    """The text of ids: list of int, list of pairs -> str."""
    # BEGIN SOLUTION
    pieces = [bytes([byte]) for byte in range(256)]
    for first, second in merges:
        pieces.append(pieces[first] + pieces[second])
    return b"".join(pieces[token] for token in ids).decode("utf-8", errors="replace")
    # END SOLUTION
