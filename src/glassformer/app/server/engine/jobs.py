"""What the API asks of an engine, and what comes back: an order has jobs, one for each text, which come in pieces."""

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
class Scored:
    """A token with its probability before the settings act (temperature 1, whole vocabulary).

    Attributes:
        token: its id.
        log_probability: natural logarithm.
        likeliest: ids and logarithms of the likeliest tokens, the best first; as many as were asked for.
        offset: characters of the text before it.
    """

    token: int
    log_probability: float
    likeliest: tuple[tuple[int, float], ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Piece:
    """What one token adds to a text.

    Attributes:
        choice: the number of the text in its order.
        text: whole characters that are ready: none, one or many.
        scored: the token, where scores were asked for; an end token has no text and no score.
        ended: why the text ends with it; None: it goes on.
        error: the text cannot go on.
    """

    choice: int
    text: str = ""
    scored: Scored | None = None
    ended: Ended | None = None
    error: GlassError | None = None

    @property
    def last(self) -> bool:
        """Whether nothing more comes of this text."""
        return self.ended is not None or self.error is not None


class Order:
    """What one request asks for; its pieces come out in the event loop in which it was made.

    Attributes:
        cancelled: nobody waits for it any more. May be set by any thread; the rows go at the next step.
        jobs: its texts.
    """

    def __init__(self) -> None:
        self.loop, self.born, self.cancelled = asyncio.get_running_loop(), time.monotonic(), False
        self.jobs: list[Job] = []
        self._pieces: asyncio.Queue[Piece] = asyncio.Queue()

    def put(self, piece: Piece) -> None:
        """Hand a piece over, in the event loop."""
        self._pieces.put_nowait(piece)

    async def pieces(self) -> AsyncIterator[list[Piece]]:
        """All that is there, again and again, until every text has ended.

        Raises:
            GlassError: one of the texts cannot go on.
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


class Job:
    """One text, from the queue to its last token. Made and used by one thread at a time.

    Args:
        order: that it is part of, as its next text.
        loaded: the model that writes it.
        ids: what the model reads.
        settings: how it is drawn; their stop texts end it.
        scores: how many of the likeliest tokens are named with each token; None: no scores at all.
        stop_ids: tokens that end it as a stop text does.
    """

    def __init__(
        self,
        order: Order,
        loaded: Loaded,
        ids: Sequence[int],
        settings: SampleConfig,
        scores: int | None = None,
        stop_ids: frozenset[int] = frozenset(),
    ) -> None:
        self.order, self.loaded, self.ids, self.settings = order, loaded, ids, settings
        self.scores, self.stop_ids, self.choice, self.count = scores, stop_ids, len(order.jobs), 0
        self._writer, self._decoder = loaded.writer(ids, settings.stop), loaded.decoder(ids)
        self._offset = 0
        order.jobs.append(self)

    def take(self, token: int, logits: Tensor, ended: Ended | None) -> Piece:
        """What a token adds, drawn from logits (V); `ended`: why the batch ends the row with it."""
        self.count += 1
        stopped = self._writer.add(token) or token in self.stop_ids
        if stopped and ended != "end":
            ended = "stop"
        scored = self._scored(token, logits) if self.scores is not None and ended != "end" else None
        return Piece(self.choice, self._writer.take(last=ended is not None), scored, ended)

    def _scored(self, token: int, logits: Tensor) -> Scored:
        shares = logits.double().log_softmax(dim=-1)  # (V)
        values, ids = shares.topk(min(self.scores or 0, len(shares)))
        offset, self._offset = self._offset, self._offset + len(self._decoder.feed(token))
        likeliest = tuple(zip(ids.tolist(), values.tolist(), strict=True))
        return Scored(token, float(shares[token]), likeliest, offset)
