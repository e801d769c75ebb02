"""`MaskFiller`: predicts the masked tokens of a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from glassformer.base.config import Config
from glassformer.base.errors import GlassError
from glassformer.generation.sampling import ranked
from glassformer.model.evaluation_mode import inference
from glassformer.model.transformer import Encoder, Model
from glassformer.tasks.naming import token_named
from glassformer.tasks.task_errors import refuse_mismatch, wrong_task
from glassformer.text.tokenizers import Tokenizer, frame_of
from glassformer.text.tokenizers.pieces import utf8

SPACE_BELONGS_TO_WORD = ("words", "bpe", "unigram")
"""Tokenizer types whose tokens include the space before them; a mask after a space replaces the space too."""


@dataclass(frozen=True)
class Candidate:
    """A candidate for a mask: a token, its text, and its probability among all tokens except special tokens."""

    token: int
    text: str
    probability: float


class MaskFiller:
    """An encoder that fills each `[MASK]` of a text with one token.

    Args:
        model: an encoder.
        tokenizer: the tokenizer that the model was trained with.
        config: settings of the run.

    Raises:
        GlassError: the model is not an encoder, the tokenizer has no mask token, or their vocabulary sizes differ.
    """

    MASK = "[MASK]"

    def __init__(self, model: Model, tokenizer: Tokenizer, config: Config) -> None:
        if not isinstance(model, Encoder) or tokenizer.mask_id is None:
            raise wrong_task(config.train.task, "masked", "Give a run of --task masked.")
        refuse_mismatch(model, tokenizer)
        self.model = model
        self.tokenizer = self.source_tokenizer = tokenizer
        self.mask_id = tokenizer.mask_id
        self.config = config
        self.frame = frame_of(tokenizer, config)

    def __repr__(self) -> str:
        return f"MaskFiller({self.tokenizer!r})"

    def output_id(self, name: str | int) -> int:
        """Return the id of the token called `name`; see `token_named`."""
        return token_named(self.tokenizer, name)

    def output_text(self, id: int) -> str:
        """Return the text of a token."""
        return self.tokenizer.token_text(id)

    def parts(self, text: str) -> list[str]:
        """Split a text at its masks; a space that would belong to the missing token is left out.

        Raises:
            GlassError: there is no mask, or the text is not valid Unicode.
        """
        utf8(text)
        *before, last = text.split(self.MASK)
        if not before:
            raise GlassError(
                f"there is no {self.MASK} in {text[:60]!r}", f"Write {self.MASK} in place of each missing token."
            )
        if self.tokenizer.kind in SPACE_BELONGS_TO_WORD:
            before = [part.removesuffix(" ") for part in before]
        return [*before, last]

    def ids(self, text: str) -> list[int]:
        """Return the ids of a text with a mask token for each `[MASK]`, between the special tokens of training rows.

        Raises:
            GlassError: there is no mask, or the text is longer than the context or not valid Unicode.
        """
        first, *other_parts = self.parts(text)
        ids = self.tokenizer.encode(first)
        for part in other_parts:
            ids += [self.mask_id, *self.tokenizer.encode(part)]
        ids = self.frame.around(ids)
        if len(ids) > self.config.model.context:
            raise GlassError(
                f"the text has {len(ids):,} tokens, but the model reads at most {self.config.model.context:,}",
                "Give a shorter text.",
            )
        return ids

    def fill(self, text: str, n: int = 5) -> list[list[Candidate]]:
        """Return the n likeliest tokens for each mask, predicted from the text in which all masks are still unfilled.

        Raises:
            GlassError: as in `ids`.
        """
        return [
            [Candidate(token, self.tokenizer.decode([token]), probability) for token, probability in ranking]
            for _, ranking in self._rankings(self.ids(text), n)
        ]

    def filled(self, text: str, predictions: Sequence[Sequence[Candidate]] | None = None) -> str:
        """Return the text with each mask replaced by the likeliest token.

        Args:
            text: a text with masks.
            predictions: candidates for each mask, as `fill` returned them; None: compute them.
        """
        best = [candidates[0] for candidates in (predictions or self.fill(text, 1))]
        *before, last = text.split(self.MASK)
        filled_text = ""
        for part, candidate in zip(before, best, strict=True):
            # A token that includes its space replaces the space before the mask.
            filled_text += (part.removesuffix(" ") if candidate.text.startswith(" ") else part) + candidate.text
        return filled_text + last

    def _rankings(self, ids: list[int], n: int) -> list[tuple[int, list[tuple[int, float]]]]:
        """Return the position of each mask, and its n likeliest tokens; special tokens are excluded."""
        device = self.model.embedding.tokens.weight.device
        with inference(self.model):
            logits = self.model(torch.tensor([ids], device=device))[0]  # (T, V)
        special = torch.tensor(sorted(self.tokenizer.special), device=device)  # (special ids)
        logits = logits.index_fill(1, special, -torch.inf)  # (T, V)
        masks = [position for position, token in enumerate(ids) if token == self.mask_id]
        return [(position, ranked(logits[position], n)) for position in masks]
