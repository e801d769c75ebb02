"""Probes whose answers occur earlier in the row: induction, and recall of values by their keys.

A prediction is correct if the answer is the most probable token of the whole vocabulary. Rows consist of tokens from
the run's vocabulary.
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
from glassformer.evaluation.minimal_pairs import Proportion
from glassformer.evaluation.probes.result import Group, ProbeResult, by_number
from glassformer.evaluation.probes.row_probabilities import RowScores, ScorableModel, max_row_tokens, score_rows
from glassformer.evaluation.probes.token_counts import TokenCounts

COPIES = 4
"""Number of copies of a segment, as in Olsson et al. 2022, "In-context learning and induction heads"."""
LONGEST = 25
"""Maximum number of tokens in a segment, as in Olsson et al. 2022."""
MIN_VOCABULARY_TO_TRIM = 100
"""Minimum number of distinct tokens at which the rarest quarter and the most frequent quarter are left out."""
RECALLED = (2, 8)
"""Minimum and maximum number of key-value pairs in a row, as in documents of the corpus `recall`."""


@dataclass(frozen=True)
class SequenceQuestion:
    """A token that can be predicted from the tokens before it in the row.

    Attributes:
        row, position: index of the row, and position of the token in the row.
        groups: names of the groups that the question belongs to, besides the group of all questions.
        rules: heuristic -> probability that it predicts this token.
    """

    row: int
    position: int
    groups: Sequence[str]
    rules: Mapping[str, float]


def accuracy_by_group(
    rows: Sequence[Sequence[int]],
    row_scores: Sequence[RowScores],
    questions: Sequence[SequenceQuestion],
    chance: float,
    everything: str,
) -> list[Group]:
    """Compute the proportion of correct predictions, on all questions and by group.

    Args:
        rows: token ids of each row.
        row_scores: the model's predictions for each row.
        questions: tokens that are scored.
        chance: proportion that guessing gets right.
        everything: name of the group of all questions.
    """
    correct = [float(row_scores[q.row].best[q.position] == rows[q.row][q.position]) for q in questions]
    names = sorted({name for q in questions for name in q.groups}, key=by_number)
    groups = []
    for name in (everything, *names):
        selected = [number for number, q in enumerate(questions) if name == everything or name in q.groups]
        rules = {rule: float(np.mean([questions[n].rules[rule] for n in selected])) for rule in questions[0].rules}
        groups.append(Group(name, Proportion(sum(correct[n] for n in selected), len(selected)), chance, rules))
    return groups


def middle_tokens(model: ScorableModel, token_counts: TokenCounts | None) -> npt.NDArray[np.int64]:
    """Return the ids of tokens with medium frequency in the training text.

    With fewer than `MIN_VOCABULARY_TO_TRIM` distinct tokens, return all tokens that occur. If `token_counts` is None,
    return all text tokens.
    """
    tokens = model.tokenizer.text_ids
    if token_counts is None:
        return tokens
    seen_tokens = tokens[token_counts.counts[tokens] > 0]
    quarter = len(seen_tokens) // 4 if len(seen_tokens) >= MIN_VOCABULARY_TO_TRIM else 0
    by_frequency = seen_tokens[np.argsort(token_counts.counts[seen_tokens], kind="stable")]
    return by_frequency[quarter : len(by_frequency) - quarter]


def _few_tokens(number: int, token_counts: TokenCounts | None) -> str:
    """Return the beginning of an error message saying that `middle_tokens` returned only `number` tokens."""
    location = "vocabulary" if token_counts is None else "training text"
    return f"only {counted(number, 'distinct text tokens are', 'distinct text token is')} in the {location} of this run"


def induction_rows(
    model: ScorableModel, token_counts: TokenCounts | None, size: int, seed: int
) -> tuple[list[list[int]], int]:
    """Return `size` rows, each a repeated random segment, and the length of a segment in tokens.

    Tokens are sampled from `middle_tokens`, without replacement within the segment if there are enough.

    Raises:
        GlassError: the context of the run is too small, or its vocabulary or training text has too few distinct tokens.
    """
    symbols = middle_tokens(model, token_counts)
    length = min(LONGEST, max_row_tokens(model) // COPIES)
    if length < 2:
        raise GlassError(
            f"this run reads only {counted(max_row_tokens(model), 'tokens')}, too few for a repeated segment",
            f"Probe a run that reads at least {2 * COPIES} tokens, with a larger model.context.",
        )
    if len(symbols) < 2:
        raise GlassError(
            f"{_few_tokens(len(symbols), token_counts)}, too few for a random segment",
            "Probe a run with a larger vocabulary, or trained on more varied text.",
        )
    rng = np.random.Generator(np.random.Philox(seed))
    with_replacement = len(symbols) < length
    segments = [rng.choice(symbols, length, replace=with_replacement).tolist() for _ in range(size)]
    return [segment * COPIES for segment in segments], length


def probe_induction(model: ScorableModel, token_counts: TokenCounts | None, size: int, seed: int) -> ProbeResult:
    """Probe induction: test whether the run predicts the next token of a repeated random segment.

    The first copy and the first token of the second copy cannot be predicted, so they are not questions.

    Args:
        model: the run.
        token_counts: counts of the run's training text; None if not available.
        size: number of rows.
        seed: random seed.

    Raises:
        GlassError: as in `induction_rows`.
    """
    rows, length = induction_rows(model, token_counts, size, seed)
    row_scores = score_rows(model, rows)
    questions = [
        SequenceQuestion(
            number,
            position,
            list(_question_groups(row, position, length, token_counts)),
            _frequency_rules(row[position - 1], row[position], token_counts),
        )
        for number, row in enumerate(rows)
        for position in range(length + 1, len(row))
    ]
    symbols = len(middle_tokens(model, token_counts))
    nats = np.array([scores.nats for scores in row_scores])  # (rows, T)
    T = nats.shape[1]
    early = max(1, T // 10)
    figures = {
        "nats per token in the first copy": float(nats[:, :length].mean()),
        "nats per token in the others, without the first token of the second": float(nats[:, length + 1 :].mean()),
        f"lowest possible mean without use of earlier tokens, ln {symbols:,}": math.log(symbols),
        f"in-context learning, loss of token {T} less that of token {early}": float(
            nats[:, T - 1].mean() - nats[:, early - 1].mean()
        ),
    }
    about = f"{counted(length, 'random tokens')} out of {symbols:,}, in {COPIES} copies: the next token from copy 2 on"
    return ProbeResult(
        "induction", about, accuracy_by_group(rows, row_scores, questions, 1 / symbols, "repeated tokens"), figures
    )


def _question_groups(row: Sequence[int], position: int, length: int, token_counts: TokenCounts | None) -> Iterator[str]:
    yield f"copy {position // length + 1}"
    if token_counts is not None and not token_counts.has(row[position - 1], row[position]):
        yield "neighbours never trained on"


def _frequency_rules(before: int, token: int, token_counts: TokenCounts | None) -> dict[str, float]:
    """Return the probability that each frequency heuristic predicts `token`; empty if `token_counts` is None."""
    if token_counts is None:
        return {}
    return {"majority": float(token == token_counts.majority), "bigram": float(token == token_counts.follower(before))}


def probe_recall(model: ScorableModel, token_counts: TokenCounts | None, size: int, seed: int) -> ProbeResult:
    """Probe recall: test whether the run predicts the value of a repeated key (Arora et al. 2023, "Zoology").

    If each character of the corpus `recall` is a separate token of the run, rows are documents of that corpus.
    Otherwise keys and values are sampled from `middle_tokens`, without a separator between the pairs and the questions.

    Args:
        model: the run.
        token_counts: counts of the run's training text; None if not available.
        size: number of rows.
        seed: random seed.

    Raises:
        GlassError: the context of the run is too small, or its vocabulary or training text has too few distinct tokens.
    """
    rows, values, description = recall_rows(model, token_counts, size, seed)
    if max(map(len, rows)) > max_row_tokens(model):
        raise GlassError(
            f"the rows of the recall probe have up to {max(map(len, rows))} tokens, "
            f"but this run reads at most {max_row_tokens(model):,}",
            "Probe a run with a larger model.context.",
        )
    questions = [
        question for number, row in enumerate(rows) for question in _value_questions(number, row, token_counts)
    ]
    groups = accuracy_by_group(rows, score_rows(model, rows), questions, 1 / values, "all values")
    return ProbeResult("recall", f"{description}: the value of each key that is asked for", groups)


def recall_rows(
    model: ScorableModel, token_counts: TokenCounts | None, size: int, seed: int
) -> tuple[list[list[int]], int, str]:
    """Return the rows, the number of possible values, and a description of the rows.

    Raises:
        GlassError: the vocabulary or the training text of the run has too few distinct tokens.
    """
    tokenizer = model.tokenizer
    codes = [tokenizer.encode(character) for character in (*KEYS, *ALPHABET, "|")]
    if all(len(code) == 1 for code in codes) and len({code[0] for code in codes} - {tokenizer.unknown_id}) == len(
        codes
    ):
        texts = list(islice(Recall().documents(size, seed), size))
        rows = tokenizer.encode_many(texts)
        if [len(row) for row in rows] == [len(text) for text in texts]:
            return rows, len(ALPHABET), "documents of recall"
    symbols = middle_tokens(model, token_counts)
    rng = np.random.Generator(np.random.Philox(seed))
    keys = symbols[::2]
    values = symbols[1::2]
    if len(keys) < RECALLED[1] or not len(values):
        raise GlassError(
            f"{_few_tokens(len(symbols), token_counts)}, too few for {RECALLED[1]} keys and their values",
            "Probe a run with a larger vocabulary, or trained on more varied text.",
        )
    rows = []
    for _ in range(size):
        pair_count = int(rng.integers(RECALLED[0], RECALLED[1] + 1))
        key_value_pairs = np.stack(
            [rng.choice(keys, pair_count, replace=False), rng.choice(values, pair_count)], axis=1
        )
        rows.append([*key_value_pairs.flatten().tolist(), *rng.permutation(key_value_pairs).flatten().tolist()])
    return rows, len(values), "random tokens in pairs, and the pairs again in another order"


def _value_questions(number: int, row: Sequence[int], token_counts: TokenCounts | None) -> Iterator[SequenceQuestion]:
    """Yield the values in the second half of a row as questions.

    In documents of `recall`, a separator precedes the second half.
    """
    pair_count = len(row) // 4
    values = list(row[1 : 2 * pair_count : 2])
    start = len(row) - 2 * pair_count
    for position in range(start + 1, len(row), 2):
        previous_values = values if position == start + 1 else [row[position - 2]]
        rules = {
            "last value": float(row[position] == previous_values[-1]),
            "a value shown": values.count(row[position]) / pair_count,
        }
        yield SequenceQuestion(
            number,
            position,
            [f"{pair_count} pairs"],
            rules | _frequency_rules(row[position - 1], row[position], token_counts),
        )
