"""Requests to an engine and their results: a request has one job for each text, and a job yields pieces of its text."""

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

    from glassformer.app.server.engine.loaded import LoadedCheckpoint
    from glassformer.generation.decoding import Ended


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """A token with its log-probability under the model's own distribution (temperature 1, no filters).

    Attributes:
        token: id of the token.
        log_probability: natural logarithm of its probability; None for a token at the beginning of a prompt, which the
            model does not predict.
        likeliest: ids and log-probabilities of the requested number of likeliest tokens, likeliest first.
        offset: number of characters before the token, in the generated text or in the prompt.
    """

    token: int
    log_probability: float | None
    likeliest: tuple[tuple[int, float], ...]
    offset: int


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Part of a text: the characters that one token adds or, after a beam search, the whole text.

    Attributes:
        choice: index of the text in its request.
        text: complete new characters, possibly none.
        scored: the token with its score, if scores were requested; an end token has a score only if `scores_end` of its
            job is True.
        ended: reason why the text ends here; None: the text continues.
        error: error that ends the text.
    """

    choice: int
    text: str = ""
    scored: ScoredToken | None = None
    ended: Ended | None = None
    error: GlassError | None = None

    @property
    def last(self) -> bool:
        """Whether this is the last piece of its text."""
        return self.ended is not None or self.error is not None


class GenerationRequest:
    """Texts to generate for one client, with a queue of their pieces in the event loop that created the request.

    Attributes:
        cancelled: whether to stop the generation at the next step, for example because the client has disconnected. Any
            thread may set it.
        jobs: one job for each text.
    """

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.created = time.monotonic()
        self.cancelled = False
        self.jobs: list[TextJob] = []
        self._pieces: asyncio.Queue[TextPiece] = asyncio.Queue()

    def put(self, piece: TextPiece) -> None:
        """Add a piece to the queue; call this in the event loop."""
        self._pieces.put_nowait(piece)

    async def pieces(self) -> AsyncIterator[list[TextPiece]]:
        """Yield lists of the pieces that are ready, until every text has ended.

        Raises:
            GlassError: the generation of a text failed.
        """
        unfinished = len(self.jobs)
        while unfinished:
            pieces = [await self._pieces.get()]
            while not self._pieces.empty():
                pieces.append(self._pieces.get_nowait())
            for piece in pieces:
                if piece.error is not None:
                    raise piece.error
                unfinished -= piece.last
            yield pieces


class TextJob:
    """Generation of one text, from the queue to its last token. Only one thread may use it at a time.

    Args:
        generation: request of the text; the job is appended to its `jobs`.
        loaded: checkpoint that generates the text.
        ids: token ids of the prompt, or of the source.
        settings: generation settings, including stop strings.
        scores: number of likeliest tokens to return with each token; None: no scores.
        extra_end_ids: token ids that end the text, besides the tokenizer's end token.
        scores_end: whether to return the score of an end token, too, as programs that score prompts expect.
    """

    def __init__(
        self,
        generation: GenerationRequest,
        loaded: LoadedCheckpoint,
        ids: Sequence[int],
        settings: SampleConfig,
        scores: int | None = None,
        extra_end_ids: frozenset[int] = frozenset(),
        scores_end: bool = False,
    ) -> None:
        self.generation = generation
        self.loaded = loaded
        self.ids = ids
        self.settings = settings
        self.scores = scores
        self.extra_end_ids = extra_end_ids
        self.scores_end = scores_end
        self.choice = len(generation.jobs)
        self.count = 0
        self._writer = loaded.writer(ids, settings.stop)
        self._decoder = loaded.decoder(ids)
        self._offset = 0
        generation.jobs.append(self)

    def take(self, token: int, logits: Tensor, ended: Ended | None) -> TextPiece:
        """Add a generated token, and return the piece of text that it adds.

        Args:
            token: id of the token.
            logits: logits, (V,), that the token was sampled from.
            ended: reason why the token loop ends the row with this token; None: the row continues.
        """
        self.count += 1
        if token in self.extra_end_ids:
            ended = "end"
        if ended != "end" and self._writer.add(token):  # an end token has no text
            ended = "stop"
        needs_score = self.scores is not None and (ended != "end" or self.scores_end)
        scored = self._score(token, logits) if needs_score else None
        return TextPiece(self.choice, self._writer.take(last=ended is not None), scored, ended)

    def _score(self, token: int, logits: Tensor) -> ScoredToken:
        log_probabilities = logits.double().log_softmax(dim=-1)  # (V)
        values, ids = log_probabilities.topk(min(self.scores or 0, len(log_probabilities)))
        offset = self._offset
        self._offset += len(self._decoder.feed(token))
        likeliest = tuple(zip(ids.tolist(), values.tolist(), strict=True))
        return ScoredToken(token, float(log_probabilities[token]), likeliest, offset)
