"""Requests to an engine and their results: an order has one job for each text, and each text comes in pieces."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from glassformer.base.config import SampleConfig
from glassformer.base.errors import GlassError

if TYPE_CHECKING:
    from torch import Tensor

    from glassformer.app.server.engine.loaded import Loaded
    from glassformer.generation.decoding import Ended


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """A token with its probability before the settings act (temperature 1, whole vocabulary).

    Attributes:
        token: its id.
        log_probability: natural logarithm; None of the first token of a prompt, which nothing precedes.
        likeliest: ids and log-probabilities of the likeliest tokens, best first; as many as requested.
        offset: characters of the text before it.
    """

    token: int
    log_probability: float | None
    likeliest: tuple[tuple[int, float], ...]
    offset: int


@dataclass(frozen=True, slots=True)
class TextPiece:
    """The part of a text that one token adds.

    Attributes:
        choice: the number of the text in its order.
        text: whole characters that are ready: none, one or many.
        scored: the token, if scores were requested; an end token has no text and no score.
        ended: why the text ends here; None: it continues.
        error: why the text cannot continue.
    """

    choice: int
    text: str = ""
    scored: ScoredToken | None = None
    ended: Ended | None = None
    error: GlassError | None = None

    @property
    def last(self) -> bool:
        """Return whether this is the last piece of its text."""
        return self.ended is not None or self.error is not None


class Order:
    """The texts of one request; its pieces come out in the event loop in which it was made.

    Attributes:
        cancelled: the client has gone. Any thread may set it; the rows leave at the next step.
        jobs: its texts.
    """

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.born = time.monotonic()
        self.cancelled = False
        self.jobs: list[TextJob] = []
        self._pieces: asyncio.Queue[TextPiece] = asyncio.Queue()

    def put(self, piece: TextPiece) -> None:
        """Hand a piece over, in the event loop."""
        self._pieces.put_nowait(piece)

    async def pieces(self) -> AsyncIterator[list[TextPiece]]:
        """Yield the pieces that are ready, again and again, until every text has ended.

        Raises:
            GlassError: one of the texts cannot continue.
        """
        left = len(self.jobs)
        while left:
            found = [await self._pieces.get()]
            while not self._pieces.empty():
                found.append(self._pieces.get_nowait())
            for piece in found:
                if piece.error is not None:
                    raise piece.error
                left -= piece.last
            yield found


class TextJob:
    """One text, from the queue to its last token. Made and used by one thread at a time.

    Args:
        order: receives this job as its next text.
        loaded: the model.
        ids: of the prompt, or of the source.
        settings: of the sampling; their stop texts end it.
        scores: number of likeliest tokens to return with each token; None: no scores.
        more_ends: tokens that end it beside the tokenizer's end token.
        scores_end: return scores of the end token too, as programs expect that score prompts.
    """

    def __init__(
        self,
        order: Order,
        loaded: Loaded,
        ids: Sequence[int],
        settings: SampleConfig,
        scores: int | None = None,
        more_ends: frozenset[int] = frozenset(),
        scores_end: bool = False,
    ) -> None:
        self.order = order
        self.loaded = loaded
        self.ids = ids
        self.settings = settings
        self.scores = scores
        self.more_ends = more_ends
        self.scores_end = scores_end
        self.choice = len(order.jobs)
        self.count = 0
        self._writer = loaded.writer(ids, settings.stop)
        self._decoder = loaded.decoder(ids)
        self._offset = 0
        order.jobs.append(self)

    def take(self, token: int, logits: Tensor, ended: Ended | None) -> TextPiece:
        """Return the piece that a token adds, sampled from logits (V); `ended`: why the loop ends the row with it."""
        self.count += 1
        if token in self.more_ends:
            ended = "end"
        if ended != "end" and self._writer.add(token):  # an end token has no text
            ended = "stop"
        wanted = self.scores is not None and (ended != "end" or self.scores_end)
        scored = self._scored(token, logits) if wanted else None
        return TextPiece(self.choice, self._writer.take(last=ended is not None), scored, ended)

    def _scored(self, token: int, logits: Tensor) -> ScoredToken:
        log_probabilities = logits.double().log_softmax(dim=-1)  # (V)
        values, ids = log_probabilities.topk(min(self.scores or 0, len(log_probabilities)))
        offset = self._offset
        self._offset += len(self._decoder.feed(token))
        likeliest = tuple(zip(ids.tolist(), values.tolist(), strict=True))
        return ScoredToken(token, float(log_probabilities[token]), likeliest, offset)
