# %% [markdown]
# # Byte pair encoding
#
# A byte pair encoding tokenizer is trained by counting. Tokens are ids: 0 to 255 are the single bytes, and each *merge*
# adds one. `merges` is a list of pairs of ids, in the order they were learned: merge number n (from 0) joins its pair
# into token 256 + n.
#
# Write the four functions; `learn_merges`, which uses the first two, is given. Ids are always lists of int.
#
# - `best_pair(ids)`: the most frequent pair of adjacent ids in the list `ids`, as a tuple of two ids. Overlapping pairs
#   count, so `[97, 97, 97]` contains the pair (97, 97) twice. **Ties**: of equally frequent pairs, take the smallest,
#   as Python compares tuples. With fewer than two ids: `None`.
# - `merge(ids, pair, new)`: a new list in which `pair` is replaced by the id `new`, from left to right; a token that
#   was merged is not merged again. `merge([97, 97, 97], (97, 97), 256)` is `[256, 97]`.
# - `encode(text, merges)`: start from the UTF-8 bytes of the text as ids, then apply all merges, each over the whole
#   list, in the order they were learned.
# - `decode(ids, merges)`: the text of the ids. First join the bytes of all tokens, then decode them as UTF-8, with
#   `errors="replace"`, because the ids that a model generates need not form whole characters.
#
# So `decode(encode(text, merges), merges) == text` for every text in every script.

# %%
from collections import Counter


def best_pair(ids):
    """Return the most frequent adjacent pair, on ties the smallest, or None: list -> (int, int)."""
    # BEGIN SOLUTION
    counts = Counter((ids[position], ids[position + 1]) for position in range(len(ids) - 1))
    return min(counts, key=lambda pair: (-counts[pair], pair), default=None)
    # END SOLUTION


def merge(ids, pair, new):
    """Return the ids with the pair replaced by the new id, from left to right: list, (int, int), int -> list."""
    # BEGIN SOLUTION
    merged = []
    position = 0
    while position < len(ids):
        if tuple(ids[position : position + 2]) == pair:
            merged.append(new)
            position += 2
        else:
            merged.append(ids[position])
            position += 1
    return merged
    # END SOLUTION


def learn_merges(text, count):
    """Learn at most `count` merges: each is the best pair after the earlier ones. (Nothing to write here.)"""
    ids = list(text.encode("utf-8"))
    merges = []
    while len(merges) < count and len(ids) > 1:
        merges.append(best_pair(ids))
        ids = merge(ids, merges[-1], 255 + len(merges))
    return merges


def encode(text, merges):
    """Return the ids of a text: str, list of pairs -> list of int."""
    # BEGIN SOLUTION
    ids = list(text.encode("utf-8"))
    for number, pair in enumerate(merges):
        ids = merge(ids, pair, 256 + number)
    return ids
    # END SOLUTION


def decode(ids, merges):
    """Return the text of ids: list of int, list of pairs -> str."""
    # BEGIN SOLUTION
    pieces = [bytes([byte]) for byte in range(256)]
    for first, second in merges:
        pieces.append(pieces[first] + pieces[second])
    return b"".join(pieces[token] for token in ids).decode("utf-8", errors="replace")
    # END SOLUTION
