"""`Translator`: an encoder-decoder with its tokenizers, which writes a translation or a summary of a source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from glassformer.base.config import PAIRS, Config, SampleConfig
from glassformer.generation import decoding
from glassformer.generation.beam import Hypothesis, Watch, beam_translate
from glassformer.generation.decoding import Stop, TokenStep
from glassformer.model.transformer import EncoderDecoder, Model
from glassformer.tasks.task_errors import refuse_mismatch, wrong_task
from glassformer.tasks.text_writer import TextWriter
from glassformer.text.tokenizers import Tokenizer, frame_of


class Translator(TextWriter):
    """Writes a target for a source.

    Args:
        model: an encoder-decoder.
        source_tokenizer, tokenizer: of sources and of targets; the same one if they share it.
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
    ) -> Iterator[TokenStep]:
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
        """Return the n likeliest first tokens: id, text, probability over the whole vocabulary (temperature 1)."""
        best = decoding.candidates(self.model, self.tokenizer.target_start, n, self.prompt_ids(prompt))
        return [(id, self.tokenizer.token_text(id), probability) for id, probability in best]
