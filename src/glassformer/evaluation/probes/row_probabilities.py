"""Read rows with a run: ln P of each token of a row, and the token it finds likeliest there.

A decoder reads from left to right. An encoder that fills holes has each token hidden in turn, with all others in
sight: a pseudo-log-likelihood (Salazar et al. 2020, "Masked language model scoring"), which is no probability of the
text.
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

PSEUDO = "a masked model: each token is hidden in turn and the model sees both sides (pseudo-log-likelihood)"
Readable = TextModel | MaskFiller


@dataclass(frozen=True)
class Read:
    """Log-probabilities and likeliest tokens of a row of n tokens.

    Attributes:
        nats: (n,) -ln P of each token.
        best: (n,) the likeliest token at each place.
    """

    nats: npt.NDArray[np.float64]
    best: npt.NDArray[np.int64]


def readable(model: AnyTextModel) -> Readable:
    """The run, if it gives the tokens of one text probabilities.

    Raises:
        GlassError: it does not; the error says why.
    """
    task = model.config.train.task
    if isinstance(model, Readable) and task not in CONVERSATIONS:
        return model
    why = "it gives the tokens of a text no probability" if task in LABELLED else "it writes a text for another one"
    raise GlassError(
        f"this run learnt to {TASK_FACTS[task].verb}: {why}, so there is nothing to probe",
        "Give a run of --task lm or --task masked; glass evaluate measures this one.",
    )


def read_rows(model: Readable, rows: Sequence[Sequence[int]]) -> list[Read]:
    """Read each row by itself, as the beginning of a text: an end token stands before it.

    Args:
        model: a run that continues text or fills holes.
        rows: tokens, at least one and at most `longest(model)` each.
    """
    start = model.tokenizer.start_id
    return read_after(model, [np.array([start, *row]) for row in rows])


def read_after(model: Readable, rows: Sequence[npt.NDArray[np.integer]]) -> list[Read]:
    """Read each row by itself; all tokens but its first are scored.

    Args:
        model: a run that continues text or fills holes; a masked one sees its frame in place of the first token.
        rows: (T+1,) tokens each.
    """
    spread = list(map(Row.of_text, rows)) if isinstance(model, TextModel) else _Holes(model, rows)
    return _read(model.model, spread, [len(row) - 1 for row in rows])


def read_pairs(model: Translator, rows: Sequence[Row]) -> list[Read]:
    """Read the target of each pair after its source, each token after the true ones before it; all but its first count.

    Args:
        model: a run that translates or summarizes.
        rows: as `pair_rows` makes them.
    """
    return _read(model.model, rows, [len(row.targets) for row in rows])


def _read(model: Model, spread: Sequence[Row], lengths: Sequence[int]) -> list[Read]:
    """Read every token that counts, cut into parts of these lengths."""
    device = model.embedding.tokens.weight.device
    nats = []
    best = []
    with inference(model):
        for group in groups(spread, min(MOST_TOKENS, tokens_at_once(model))):
            batch = Batch.from_rows(group).to(device)
            logits = logits_of(model, batch)  # (B, T, V)
            scored = batch.loss_mask  # (B, T)
            nats.append(token_losses(logits, batch)[scored].cpu().double().numpy())  # (tokens,)
            best.append(logits.argmax(dim=-1)[scored].cpu().numpy())  # (tokens,)
    ends = np.cumsum(lengths)[:-1]
    parts = zip(np.split(np.concatenate(nats), ends), np.split(np.concatenate(best), ends), strict=True)
    return [Read(*part) for part in parts]


def longest(model: Readable) -> int:
    """Most tokens of a row that the run can read."""
    return model.config.model.context - (len(model.frame) if isinstance(model, MaskFiller) else 0)


class _Holes(Sequence[Row]):
    """Copies of each row with a hole at one token, for each token but the first; made when asked for."""

    def __init__(self, model: MaskFiller, rows: Sequence[npt.NDArray[np.integer]]) -> None:
        self._mask = model.mask_id
        self._first = len(model.frame.before)
        self._rows = [np.array(model.frame.around(row[1:].tolist())) for row in rows]
        self._places = [(number, place) for number, row in enumerate(rows) for place in range(len(row) - 1)]

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        number, place = self._places[index]
        row = self._rows[number]
        chosen = np.zeros(len(row), dtype=np.bool_)
        chosen[self._first + place] = True
        return Row(np.where(chosen, self._mask, row), row, loss_mask=chosen)


def as_written(tokenizer: Tokenizer, text: str) -> str:
    """Encode and decode a text: normalise it and replace characters that the tokenizer cannot represent."""
    return tokenizer.decode(tokenizer.encode(text))


def token_scores(model: Readable, texts: Sequence[str]) -> list[TokenScores]:
    """ln P of the tokens of each text, with the places where they end; as `minimal_pairs.TokenLogProbabilities`.

    Args:
        model: a run that continues text or fills holes.
        texts: as `as_written` gives them.

    Raises:
        GlassError: a text is empty, or longer than the run reads.
    """
    rows = [checked_row(model, text) for text in texts]
    return scored(model.tokenizer, rows, [-read.nats for read in read_rows(model, rows)])


def scored(
    tokenizer: Tokenizer, rows: Sequence[Sequence[int]], scores: Sequence[npt.NDArray[np.float64]]
) -> list[TokenScores]:
    """The scores of each row's tokens with the characters up to which they reach."""
    return [
        list(zip(token_ends(tokenizer, row), part.tolist(), strict=True))
        for row, part in zip(rows, scores, strict=True)
    ]


def checked_row(model: Readable, text: str) -> list[int]:
    """The tokens of a text.

    Raises:
        GlassError: there are none, or more than the run reads.
    """
    row = model.tokenizer.encode(text)
    if not row:
        raise GlassError(f"the text {text!r} has no tokens", "Give a text that is not empty.")
    if len(row) > longest(model):
        raise GlassError(
            f"{text[:60]!r} has {len(row):,} tokens, this run reads {longest(model):,} (model.context)",
            "Leave it out, or take a run with a longer context.",
        )
    return row


def token_ends(tokenizer: Tokenizer, row: Sequence[int]) -> list[int]:
    """Return for each token one past the last character of the decoded text that it touches."""
    data = [tokenizer.token_bytes(id) for id in row]
    if tokenizer.drops_space:  # the first token that has text loses its space
        first = next((place for place, part in enumerate(data) if part), 0)
        data[first] = data[first].removeprefix(b" ")
    ends = []
    characters = 0
    for part in data:
        characters += sum(byte & 0xC0 != 0x80 for byte in part)  # bytes that begin a character
        ends.append(characters)
    return ends
