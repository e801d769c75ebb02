"""`Translator`: a source text goes in, a text written for it comes out. Summaries are written in the same way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from glassformer.base.config import PAIRS, Config, SampleConfig
from glassformer.generation import decoding
from glassformer.generation.beam import Hypothesis, Watch, beam_translate
from glassformer.generation.decoding import Step, Stop
from glassformer.generation.sampling import ranked
from glassformer.model.evaluation_mode import inference
from glassformer.model.transformer import EncoderDecoder, Model
from glassformer.tasks.refusing import refuse_mismatch, wrong_task
from glassformer.tasks.text_writer import TextWriter
from glassformer.text.tokenizers import Tokenizer, frame_of


class Translator(TextWriter):
    """A text in, a text for it out.

    Args:
        model: an encoder-decoder.
        source_tokenizer, tokenizer: of what is read and of what is written; the same one where they share it.
        config: of the run.

    Raises:
        GlassError: the model is of another family, or has another number of tokens than the tokenizer.
    """

    def __init__(self, model: Model, source_tokenizer: Tokenizer, tokenizer: Tokenizer, config: Config) -> None:
        if not isinstance(model, EncoderDecoder):
            raise wrong_task(config.train.task, PAIRS[0], "Give a run of --task translate or --task summarize.")
        refuse_mismatch(model, tokenizer)
        super().__init__(tokenizer, config)
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.frame = frame_of(source_tokenizer, config)

    def prompt_ids(self, prompt: str) -> list[int]:
        """Return the ids that the encoder reads: the source, cut to the context, and an end token, or another frame."""
        return self.frame.around(self.source_tokenizer.encode(prompt), self.config.model.context)

    def unread_tokens(self, text: str) -> int:
        """Return how many tokens of the text are beyond the part that the encoder reads."""
        return max(0, len(self.source_tokenizer.encode(text)) - (self.config.model.context - len(self.frame)))

    def _before(self, ids: Sequence[int]) -> Sequence[int]:
        return ()

    def _steps(
        self, rows: Sequence[Sequence[int]], settings: SampleConfig, stop: Stop, seeds: Sequence[int] | None
    ) -> Iterator[Step]:
        tokenizer = self.tokenizer
        return decoding.translate(
            self.model, rows, settings, tokenizer.end_id, stop, seeds, start=tokenizer.target_start
        )

    def _search(
        self, rows: Sequence[Sequence[int]], settings: SampleConfig, wanted: int | None, watch: Watch | None = None
    ) -> list[list[Hypothesis]]:
        tokenizer = self.tokenizer
        return beam_translate(
            self.model, rows, settings, tokenizer.end_id, wanted=wanted, start=tokenizer.target_start, watch=watch
        )

    def candidates(self, prompt: str, n: int) -> list[tuple[int, str, float]]:
        """The n likeliest first tokens: id, printable text, probability over the whole vocabulary."""
        device = self.model.embedding.tokens.weight.device
        source = torch.tensor([self.prompt_ids(prompt)], device=device)  # (1, S)
        target = torch.tensor([self.tokenizer.target_start], device=device)  # (1, what targets begin with)
        with inference(self.model):
            logits = self.model(source, target)[0, -1]  # (V)
        return [(id, self.tokenizer.token_text(id), probability) for id, probability in ranked(logits, n)]
