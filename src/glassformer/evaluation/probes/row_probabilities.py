"""Score rows with a run: compute ln P of each token of a row, and the most probable token at each position.

A decoder reads from left to right. For a masked language model, each token is masked in turn while all others are
visible. This gives a pseudo-log-likelihood (Salazar et al. 2020, "Masked language model scoring"), which is not the
probability of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from glassformer.base.config import CONVERSATIONS, LABELLED, TASK_FACTS
from glassformer.base.errors import GlassError
from glassformer.evaluation.minimal_pairs import TokenScores
from glassformer.model.evaluation_mode import inference
from glassformer.model.transformer import Model
from glassformer.tasks import AnyTextModel, MaskFiller, TextModel, Translator
from glassformer.tasks.losses import logits_of, token_losses, tokens_at_once
from glassformer.tasks.task_rows import MOST_TOKENS, groups
from glassformer.text.batches import Batch
from glassformer.text.rows import Row
from glassformer.text.tokenizers import Tokenizer

PSEUDO = "masked model: each token is masked in turn, and the model sees both sides (pseudo-log-likelihood)"
ScorableModel = TextModel | MaskFiller


@dataclass(frozen=True)
class RowScores:
    """Negative log-probabilities of the n scored tokens of a row, and the most probable tokens at their positions.

    Attributes:
        nats: -ln P of each scored token, (n,).
        best: id of the most probable token at the position of each scored token, (n,).
    """

    nats: npt.NDArray[np.float64]
    best: npt.NDArray[np.int64]


def require_scorable(model: AnyTextModel) -> ScorableModel:
    """Return the model if it assigns probabilities to the tokens of a single text.

    Raises:
        GlassError: the model assigns no such probabilities; the error gives the reason.
    """
    task = model.config.train.task
    if isinstance(model, ScorableModel) and task not in CONVERSATIONS:
        return model
    if task in LABELLED:
        reason = "it assigns no probability to tokens"
    elif task in CONVERSATIONS:
        reason = "it was trained on answers only"
    else:
        reason = "it generates a text from another text"
    raise GlassError(
        f"this run was trained to {TASK_FACTS[task].verb}: {reason}, so there is nothing to probe",
        "Give a run of --task lm or --task masked; glass evaluate measures this one.",
    )


def score_rows(model: ScorableModel, rows: Sequence[Sequence[int]]) -> list[RowScores]:
    """Score each row independently as the beginning of a text, after a start token.

    Args:
        model: a language model or a masked language model.
        rows: token ids; each row has at least one token and at most `max_row_tokens(model)` tokens.
    """
    start = model.tokenizer.start_id
    return score_after_first(model, [np.array([start, *row]) for row in rows])


def score_after_first(model: ScorableModel, rows: Sequence[npt.NDArray[np.integer]]) -> list[RowScores]:
    """Score all tokens except the first of each row, each row independently.

    Args:
        model: a language model or a masked language model. A masked language model reads the special tokens around a
            text in place of the first token.
        rows: token ids of each row, (T+1,).
    """
    model_rows = list(map(Row.of_text, rows)) if isinstance(model, TextModel) else _MaskedCopies(model, rows)
    return _score_loss_tokens(model.model, model_rows, [len(row) - 1 for row in rows])


def score_targets(model: Translator, rows: Sequence[Row]) -> list[RowScores]:
    """Score the target of each pair given its source, with teacher forcing; the first start token is not scored.

    Args:
        model: a run that translates or summarizes.
        rows: rows as `pair_rows` returns them.
    """
    return _score_loss_tokens(model.model, rows, [len(row.targets) for row in rows])


def _score_loss_tokens(model: Model, rows: Sequence[Row], lengths: Sequence[int]) -> list[RowScores]:
    """Score the tokens in the loss mask of all rows, and split the scores into arrays of the given `lengths`."""
    device = model.embedding.tokens.weight.device
    nats = []
    best = []
    with inference(model):
        for group in groups(rows, min(MOST_TOKENS, tokens_at_once(model))):
            batch = Batch.from_rows(group).to(device)
            logits = logits_of(model, batch)  # (B, T, V)
            mask = batch.loss_mask  # (B, T)
            nats.append(token_losses(logits, batch)[mask].cpu().double().numpy())  # (tokens,)
            best.append(logits.argmax(dim=-1)[mask].cpu().numpy())  # (tokens,)
    ends = np.cumsum(lengths)[:-1]
    parts = zip(np.split(np.concatenate(nats), ends), np.split(np.concatenate(best), ends), strict=True)
    return [RowScores(*part) for part in parts]


def max_row_tokens(model: ScorableModel) -> int:
    """Return the maximum number of tokens in a row that the run can read."""
    return model.config.model.context - (len(model.frame) if isinstance(model, MaskFiller) else 0)


class _MaskedCopies(Sequence[Row]):
    """A lazy sequence of copies of rows. For each token of a row except the first, one copy has this token masked."""

    def __init__(self, model: MaskFiller, rows: Sequence[npt.NDArray[np.integer]]) -> None:
        self._mask = model.mask_id
        self._prefix_length = len(model.frame.before)
        self._rows = [np.array(model.frame.around(row[1:].tolist())) for row in rows]
        self._masked_positions = [
            (number, position) for number, row in enumerate(rows) for position in range(len(row) - 1)
        ]

    def __len__(self) -> int:
        return len(self._masked_positions)

    def __getitem__(self, index: Any) -> Any:
        number, position = self._masked_positions[index]
        row = self._rows[number]
        masked = np.zeros(len(row), dtype=np.bool_)
        masked[self._prefix_length + position] = True
        return Row(np.where(masked, self._mask, row), row, loss_mask=masked)


def as_written(tokenizer: Tokenizer, text: str) -> str:
    """Encode and decode a text, which normalizes it and replaces characters that the tokenizer cannot represent."""
    return tokenizer.decode(tokenizer.encode(text))


def token_scores(model: ScorableModel, texts: Sequence[str]) -> list[TokenScores]:
    """Return ln P and the end position of each token of each text, as in `minimal_pairs.TokenLogProbabilities`.

    Args:
        model: a language model or a masked language model.
        texts: texts as returned by `as_written`.

    Raises:
        GlassError: a text has no tokens, or more tokens than the run can read (see `max_row_tokens`).
    """
    rows = [checked_row(model, text) for text in texts]
    return scored(model.tokenizer, rows, [-row_scores.nats for row_scores in score_rows(model, rows)])


def scored(
    tokenizer: Tokenizer, rows: Sequence[Sequence[int]], scores: Sequence[npt.NDArray[np.float64]]
) -> list[TokenScores]:
    """Return the (end position, score) pairs of the tokens of each row."""
    return [
        list(zip(token_ends(tokenizer, row), row_scores.tolist(), strict=True))
        for row, row_scores in zip(rows, scores, strict=True)
    ]


def checked_row(model: ScorableModel, text: str) -> list[int]:
    """Encode a text.

    Raises:
        GlassError: the text has no tokens, or more tokens than the run can read.
    """
    row = model.tokenizer.encode(text)
    if not row:
        raise GlassError(f"the text {text!r} has no tokens", "Give a text that is not empty.")
    if len(row) > max_row_tokens(model):
        raise GlassError(
            f"{text[:60]!r} has {len(row):,} tokens, but this run reads at most {max_row_tokens(model):,}",
            "Leave the text out, or probe a run with a larger model.context.",
        )
    return row


def token_ends(tokenizer: Tokenizer, row: Sequence[int]) -> list[int]:
    """Return the end of each token in the decoded text: one past the last character to which the token contributes."""
    data = [tokenizer.token_bytes(id) for id in row]
    if tokenizer.drops_space:  # decoding drops the leading space of the first text token
        first = next((index for index, part in enumerate(data) if part), 0)
        data[first] = data[first].removeprefix(b" ")
    ends = []
    characters = 0
    for part in data:
        characters += sum(byte & 0xC0 != 0x80 for byte in part)  # bytes that begin a character
        ends.append(characters)
    return ends
