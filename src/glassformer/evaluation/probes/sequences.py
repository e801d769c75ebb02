"""Probes whose answer stands earlier in the row: induction, and recall of values by their keys.

Both ask for the likeliest token of the whole vocabulary. Rows are made of the run's own tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from glassformer.base.errors import GlassError
from glassformer.base.wording import counted
from glassformer.corpora.recall import KEYS, Recall
from glassformer.corpora.strings import ALPHABET
from glassformer.evaluation.minimal_pairs import Share
from glassformer.evaluation.probes.result import Group, ProbeResult, by_number
from glassformer.evaluation.probes.row_probabilities import Read, Readable, longest, read_rows
from glassformer.evaluation.probes.token_counts import Known

COPIES = 4
"""Repetitions of a segment: Olsson et al. 2022, "In-context learning and induction heads"."""
LONGEST = 25
"""Tokens of a segment at most, as there."""
MANY = 100
"""Tokens that a text must have for the rarest and the most frequent quarter to be left out."""
RECALLED = (2, 8)
"""Pairs of a row of recall, from and to, as documents of `recall` have them."""


@dataclass(frozen=True)
class SequenceQuestion:
    """A token of a row that can be known from what stands before it.

    Attributes:
        row, place: where it is.
        groups: which questions it is counted with, besides all.
        rules: how likely each rule of thumb says this token.
    """

    row: int
    place: int
    groups: Sequence[str]
    rules: Mapping[str, float]


def shares(
    rows: Sequence[Sequence[int]],
    read: Sequence[Read],
    questions: Sequence[SequenceQuestion],
    chance: float,
    everything: str,
) -> list[Group]:
    """Count the questions that are answered right, all and by group.

    Args:
        rows: the tokens.
        read: what the model makes of them.
        questions: which tokens count.
        chance: the share that guessing gets right.
        everything: what to call all questions.
    """
    right = [float(read[q.row].best[q.place] == rows[q.row][q.place]) for q in questions]
    names = sorted({name for q in questions for name in q.groups}, key=by_number)
    found = []
    for name in (everything, *names):
        chosen = [number for number, q in enumerate(questions) if name == everything or name in q.groups]
        rules = {rule: float(np.mean([questions[n].rules[rule] for n in chosen])) for rule in questions[0].rules}
        found.append(Group(name, Share(sum(right[n] for n in chosen), len(chosen)), chance, rules))
    return found


def middle_tokens(model: Readable, known: Known | None) -> npt.NDArray[np.int64]:
    """Return the tokens that are neither rare nor frequent in the run's text; all that occur, where these are few."""
    tokens = model.tokenizer.text_ids
    if known is None:
        return tokens
    seen = tokens[known.counts[tokens] > 0]
    quarter = len(seen) // 4 if len(seen) >= MANY else 0
    return seen[np.argsort(known.counts[seen], kind="stable")][quarter : len(seen) - quarter]


def induction_rows(model: Readable, known: Known | None, size: int, seed: int) -> tuple[list[list[int]], int]:
    """Return `size` rows of a repeated random segment, and the length of the segment in tokens.

    Tokens are sampled from `middle_tokens`, without replacement within the segment if there are enough.

    Raises:
        GlassError: the run reads too few tokens, or knows only one.
    """
    symbols = middle_tokens(model, known)
    length = min(LONGEST, longest(model) // COPIES)
    if length < 2:
        raise GlassError(
            f"this run reads {counted(longest(model), 'tokens')}: too few to repeat any",
            f"Take a run with model.context of at least {2 * COPIES}.",
        )
    if len(symbols) < 2:
        raise GlassError(
            f"this run knows {counted(len(symbols), 'tokens')} of text: too few to repeat any",
            "Take a run with a larger vocabulary.",
        )
    numbers = np.random.Generator(np.random.Philox(seed))
    few = len(symbols) < length
    drawn = [numbers.choice(symbols, length, replace=few).tolist() for _ in range(size)]
    return [segment * COPIES for segment in drawn], length


def probe_induction(model: Readable, known: Known | None, size: int, seed: int) -> ProbeResult:
    """Random tokens, again and again: is the next one taken from after its last occurrence?

    The first token of the second copy cannot be known, so it does not count.

    Args:
        model: the run.
        known: its training text; None where it is not at hand.
        size: rows.
        seed: of what is drawn.
    """
    rows, length = induction_rows(model, known, size, seed)
    read = read_rows(model, rows)
    questions = [
        SequenceQuestion(
            number, place, list(_copies(row, place, length, known)), _frequent(row[place - 1], row[place], known)
        )
        for number, row in enumerate(rows)
        for place in range(length + 1, len(row))
    ]
    symbols = len(middle_tokens(model, known))
    nats = np.array([found.nats for found in read])  # (rows, T)
    T = nats.shape[1]
    early = max(1, T // 10)
    figures = {
        "nats per token in the first copy": float(nats[:, :length].mean()),
        "nats per token in the others, without the first token of the second": float(nats[:, length + 1 :].mean()),
        f"without looking back nobody does better than ln {symbols:,}": math.log(symbols),
        f"in-context learning, loss of token {T} less that of token {early}": float(
            nats[:, T - 1].mean() - nats[:, early - 1].mean()
        ),
    }
    about = (
        f"{counted(length, 'random tokens')} of {symbols:,}, {COPIES} times over: the next one, from the second copy on"
    )
    return ProbeResult("induction", about, shares(rows, read, questions, 1 / symbols, "repeated tokens"), figures)


def _copies(row: Sequence[int], place: int, length: int, known: Known | None) -> Iterator[str]:
    yield f"copy {place // length + 1}"
    if known is not None and not known.has(row[place - 1], row[place]):
        yield "neighbours never trained on"


def _frequent(before: int, token: int, known: Known | None) -> dict[str, float]:
    """The rules of frequency, whose answers need the training text."""
    if known is None:
        return {}
    return {"majority": float(token == known.majority), "bigram": float(token == known.follower(before))}


def probe_recall(model: Readable, known: Known | None, size: int, seed: int) -> ProbeResult:
    """Keys with values, then every key again: its value? (Arora et al. 2023, "Zoology".)

    Documents of `recall` where each of their characters is a token of the run; otherwise keys and values are tokens of
    its own, and nothing stands between them and the questions.

    Args:
        model: the run.
        known: its training text; None where it is not at hand.
        size: rows.
        seed: of what is drawn.
    """
    rows, values, what = recall_rows(model, known, size, seed)
    if max(map(len, rows)) > longest(model):
        raise GlassError(
            f"{what} have up to {max(map(len, rows))} tokens, this run reads {longest(model):,}",
            "Take a run with a longer model.context.",
        )
    questions = [question for number, row in enumerate(rows) for question in _asked(number, row, known)]
    groups = shares(rows, read_rows(model, rows), questions, 1 / values, "all values")
    return ProbeResult("recall", f"{what}: the value of each key that is asked for", groups)


def recall_rows(model: Readable, known: Known | None, size: int, seed: int) -> tuple[list[list[int]], int, str]:
    """Rows, how many values there are to choose from, and what the rows are in words."""
    tokenizer = model.tokenizer
    codes = [tokenizer.encode(character) for character in (*KEYS, *ALPHABET, "|")]
    if all(len(code) == 1 for code in codes) and len({code[0] for code in codes} - {tokenizer.unknown_id}) == len(
        codes
    ):
        texts = list(islice(Recall().documents(size, seed), size))
        rows = tokenizer.encode_many(texts)
        if [len(row) for row in rows] == [len(text) for text in texts]:
            return rows, len(ALPHABET), "documents of recall"
    symbols = middle_tokens(model, known)
    numbers = np.random.Generator(np.random.Philox(seed))
    keys = symbols[::2]
    values = symbols[1::2]
    if len(keys) < RECALLED[1] or not len(values):
        raise GlassError(
            f"this run knows {counted(len(symbols), 'tokens')}: too few for {RECALLED[1]} keys and their values",
            "Take a run with a larger vocabulary.",
        )
    rows = []
    for _ in range(size):
        pairs = int(numbers.integers(RECALLED[0], RECALLED[1] + 1))
        shown = np.stack([numbers.choice(keys, pairs, replace=False), numbers.choice(values, pairs)], axis=1)
        rows.append([*shown.flatten().tolist(), *numbers.permutation(shown).flatten().tolist()])
    return rows, len(values), "random tokens in pairs, and the pairs again in another order"


def _asked(number: int, row: Sequence[int], known: Known | None) -> Iterator[SequenceQuestion]:
    """The values in the second half; before it, documents have one token more."""
    pairs = len(row) // 4
    shown = list(row[1 : 2 * pairs : 2])
    start = len(row) - 2 * pairs
    for place in range(start + 1, len(row), 2):
        seen = shown if place == start + 1 else [row[place - 2]]
        rules = {"last value": float(row[place] == seen[-1]), "a value shown": shown.count(row[place]) / pairs}
        yield SequenceQuestion(number, place, [f"{pairs} pairs"], rules | _frequent(row[place - 1], row[place], known))
