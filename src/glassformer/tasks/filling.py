"""`MaskFiller`: a text with holes goes in, what may stand in them comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from glassformer.base.config import Config
from glassformer.base.errors import GlassError
from glassformer.generation.sampling import ranked
from glassformer.model.evaluation_mode import inference
from glassformer.model.transformer import Encoder, Model
from glassformer.tasks.task_errors import refuse_mismatch, wrong_task
from glassformer.text.tokenizers import Tokenizer, frame_of

SPACE_BELONGS_TO_WORD = ("words", "bpe", "unigram")
"""Schemes whose tokens carry the space before them: a hole after a space stands for both."""


@dataclass(frozen=True)
class Candidate:
    """A candidate for a hole: a token, its text, and its probability among all tokens that stand for text."""

    token: int
    text: str
    probability: float


class MaskFiller:
    """Fills each `[MASK]` of a text with one token.

    Args:
        model: an encoder.
        tokenizer: the one that the model was trained with.
        config: of the run.

    Raises:
        GlassError: the model is of another family, or has another number of tokens than the tokenizer.
    """

    MASK = "[MASK]"

    def __init__(self, model: Model, tokenizer: Tokenizer, config: Config) -> None:
        if not isinstance(model, Encoder) or tokenizer.mask_id is None:
            raise wrong_task(config.train.task, "masked", "Give a run of --task masked.")
        refuse_mismatch(model, tokenizer)
        self.model = model
        self.tokenizer = tokenizer
        self.mask_id = tokenizer.mask_id
        self.config = config
        self.frame = frame_of(tokenizer, config)

    def __repr__(self) -> str:
        return f"MaskFiller({self.tokenizer!r})"

    def parts(self, text: str) -> list[str]:
        """Return the texts around the holes; a space that would belong to the missing token is left out.

        Raises:
            GlassError: there is no hole.
        """
        *before, last = text.split(self.MASK)
        if not before:
            raise GlassError(f"there is no {self.MASK} in {text[:60]!r}", "Write it where a token is to be filled in.")
        if self.tokenizer.kind in SPACE_BELONGS_TO_WORD:
            before = [part.removesuffix(" ") for part in before]
        return [*before, last]

    def ids(self, text: str) -> list[int]:
        """The text's tokens, the mask token in each hole, framed as rows in training were.

        Raises:
            GlassError: there is no hole, or the text is longer than the context.
        """
        first, *rest = self.parts(text)
        ids = self.tokenizer.encode(first)
        for part in rest:
            ids += [self.mask_id, *self.tokenizer.encode(part)]
        ids = self.frame.around(ids)
        if len(ids) > self.config.model.context:
            raise GlassError(
                f"the text has {len(ids):,} tokens, the model reads {self.config.model.context:,}",
                "Give a shorter one.",
            )
        return ids

    def fill(self, text: str, n: int = 5) -> list[list[Candidate]]:
        """The n likeliest tokens for each hole, each hole filled with the others still open.

        Raises:
            GlassError: as `ids`.
        """
        return [
            [Candidate(token, self.tokenizer.decode([token]), probability) for token, probability in ranking]
            for _, ranking in self._rankings(self.ids(text), n)
        ]

    def filled(self, text: str, holes: Sequence[Sequence[Candidate]] | None = None) -> str:
        """The text with the likeliest token in each hole; everything else stays as it is written.

        Args:
            text: with holes.
            holes: what `fill` gave for it; None: it is asked.
        """
        best = [candidates[0] for candidates in (holes or self.fill(text, 1))]
        *before, last = text.split(self.MASK)
        written = ""
        for part, candidate in zip(before, best, strict=True):
            # A token that carries its space takes the place of the one before the hole.
            written += (part.removesuffix(" ") if candidate.text.startswith(" ") else part) + candidate.text
        return written + last

    def _rankings(self, ids: list[int], n: int) -> list[tuple[int, list[tuple[int, float]]]]:
        """Return the place of each hole, and its n likeliest tokens; special tokens are no candidates."""
        device = self.model.embedding.tokens.weight.device
        with inference(self.model):
            logits = self.model(torch.tensor([ids], device=device))[0]  # (T, V)
        special = torch.tensor(sorted(self.tokenizer.special), device=device)  # (special ones)
        logits = logits.index_fill(1, special, -torch.inf)  # (T, V)
        holes = [place for place, token in enumerate(ids) if token == self.mask_id]
        return [(place, ranked(logits[place], n)) for place in holes]
