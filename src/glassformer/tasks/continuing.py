"""`TextModel`: a decoder with its tokenizer, which continues a prompt."""

from __future__ import annotations

from collections.abc import Sequence

from glassformer.base.config import Config
from glassformer.model.transformer import Decoder, Model
from glassformer.tasks.task_errors import refuse_mismatch, wrong_task
from glassformer.tasks.text_generator import TextGenerator
from glassformer.text.tokenizers import Tokenizer, frame_of


class TextModel(TextGenerator):
    """A decoder that continues a prompt.

    Args:
        model: a decoder.
        tokenizer: the tokenizer that the model was trained with.
        config: settings of the run.

    Raises:
        GlassError: the model is not a decoder, or its vocabulary size differs from the tokenizer's.
    """

    def __init__(self, model: Model, tokenizer: Tokenizer, config: Config) -> None:
        if not isinstance(model, Decoder):
            raise wrong_task(config.train.task, "lm", "Give a run of --task lm (model.family = decoder).")
        refuse_mismatch(model, tokenizer)
        super().__init__(model, tokenizer, config)

    def prompt_ids(self, prompt: str) -> list[int]:
        """Return the ids of a prompt with the special tokens of training rows; a start token if there are no ids."""
        ids = frame_of(self.tokenizer, self.config).around(self.tokenizer.encode(prompt))
        return ids or [self.tokenizer.start_id]

    def ids_before_text(self, ids: Sequence[int]) -> Sequence[int]:
        return ids
