"""`Translator`: an encoder-decoder with its tokenizers, for translation and summarization."""

from __future__ import annotations

from collections.abc import Sequence

from glassformer.base.config import PAIRS, Config
from glassformer.model.transformer import EncoderDecoder, Model
from glassformer.tasks.task_errors import refuse_mismatch, wrong_task
from glassformer.tasks.text_generator import TextGenerator
from glassformer.text.tokenizers import Tokenizer, frame_of


class Translator(TextGenerator):
    """An encoder-decoder that generates the target of a source.

    Args:
        model: an encoder-decoder.
        source_tokenizer, tokenizer: tokenizers of sources and of targets; the same object if the vocabulary is shared.
        config: settings of the run.

    Raises:
        GlassError: the model is not an encoder-decoder, or its vocabulary size differs from that of `tokenizer`.
    """

    def __init__(self, model: Model, source_tokenizer: Tokenizer, tokenizer: Tokenizer, config: Config) -> None:
        if not isinstance(model, EncoderDecoder):
            raise wrong_task(config.train.task, PAIRS[0], "Give a run of --task translate or --task summarize.")
        refuse_mismatch(model, tokenizer)
        super().__init__(model, tokenizer, config, source_tokenizer)
        self.frame = frame_of(source_tokenizer, config)

    def prompt_ids(self, prompt: str) -> list[int]:
        """Return the ids that the encoder reads: the source, cut to the context, and its special tokens."""
        return self.frame.around(self.source_tokenizer.encode(prompt), self.config.model.context)

    def unread_tokens(self, text: str) -> int:
        """Return the number of tokens at the end of the text that do not fit the context and are not read."""
        return max(0, len(self.source_tokenizer.encode(text)) - (self.config.model.context - len(self.frame)))

    def ids_before_text(self, ids: Sequence[int]) -> Sequence[int]:
        return ()
