"""`Translator`: a source text goes in, a text written for it comes out. Summaries are written in the same way."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import torch

from glassformer.config import PAIRS, Config, SampleConfig
from glassformer.errors import GlassError
from glassformer.generation import decoding
from glassformer.generation.beam import Hypothesis, beam_translate
from glassformer.generation.context import reading
from glassformer.generation.decoding import Ended
from glassformer.generation.sampling import ranked
from glassformer.model.families import EncoderDecoder, Model
from glassformer.text_model.loading import refuse_mismatch, wrong_task
from glassformer.text_model.writing import Sample, Writer, written
from glassformer.tokenizers import Tokenizer

ROWS = 32  # sources that are worked on side by side


class Translator:
    """A text in, a text out.

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
        self.model, self.source_tokenizer, self.tokenizer, self.config = model, source_tokenizer, tokenizer, config

    def source_ids(self, text: str) -> list[int]:
        """What the encoder reads: the text, cut to the context, and an end token."""
        ids = self.source_tokenizer.encode(text)[: self.config.model.context - 1]
        return [*ids, self.source_tokenizer.end_id]

    def unread_tokens(self, text: str) -> int:
        """How many tokens of the text are beyond what the encoder reads."""
        return max(0, len(self.source_tokenizer.encode(text)) - (self.config.model.context - 1))

    def stream(self, prompt: str, settings: SampleConfig) -> Generator[str, None, Sample]:
        """The text as it is written, in pieces; with beam search all at once. The return value is the `Sample`."""
        if settings.beams > 1:
            sample = self.generate([prompt], settings)[0]
            yield sample.text
            return sample
        writer = Writer(self.tokenizer, [], settings.stop)
        text, count, ended = "", 0, None
        for step in self._steps([self.source_ids(prompt)], settings, [writer]):
            count, ended = count + 1, step.ended.get(0)
            piece = writer.take(last=ended is not None)
            text += piece
            if piece:
                yield piece
        assert ended is not None  # settings.tokens is at least 1, and the last step ends the row
        return Sample(prompt, text, count, ended)

    def generate(
        self, prompts: Sequence[str], settings: SampleConfig, seeds: Sequence[int] | None = None
    ) -> list[Sample]:
        """Write a text for every source; each is what the source would give alone.

        Args:
            prompts: the sources, any number; they are worked on in batches of like length.
            settings: `beams` above 1: the likeliest text by beam search; otherwise drawn, greedily at temperature 0.
            seeds: one for each source; None: `settings.seed` for all.

        Raises:
            GlassError: a source is not valid Unicode, or seeds are too few or too many.
        """
        if settings.beams > 1:
            return [found[0] for found in self.best(prompts, settings)]
        if seeds is not None and len(seeds) != len(prompts):
            raise GlassError(f"{len(seeds)} seeds were given for {len(prompts)} prompts", "Give one for each prompt.")
        sources = [self.source_ids(prompt) for prompt in prompts]
        samples: dict[int, Sample] = {}
        for group in _like_length(sources):
            writers = [Writer(self.tokenizer, [], settings.stop) for _ in group]
            counts, ended = [0] * len(group), dict[int, Ended]()
            own = None if seeds is None else [seeds[index] for index in group]
            for step in self._steps([sources[index] for index in group], settings, writers, own):
                ended.update(step.ended)
                for row in step.rows:
                    counts[row] += 1
            for row, index in enumerate(group):
                samples[index] = Sample(prompts[index], writers[row].take(last=True), counts[row], ended[row])
        return [samples[index] for index in range(len(prompts))]

    def best(self, prompts: Sequence[str], settings: SampleConfig) -> list[list[Sample]]:
        """The `settings.beams` best texts that beam search finds for each source, the best first."""
        sources = [self.source_ids(prompt) for prompt in prompts]
        found: dict[int, list[Hypothesis]] = {}
        for group in _like_length(sources):
            texts = beam_translate(self.model, [sources[index] for index in group], settings, self.tokenizer.end_id)
            found.update(zip(group, texts, strict=True))
        return [
            [self._sample(prompt, hypothesis, settings) for hypothesis in found[index]]
            for index, prompt in enumerate(prompts)
        ]

    def _sample(self, prompt: str, found: Hypothesis, settings: SampleConfig) -> Sample:
        text, stopped = written(self.tokenizer, [], found.tokens, settings.stop)
        return Sample(prompt, text, len(found.tokens), "stop" if stopped else found.ended, found.score)

    def _steps(
        self,
        sources: Sequence[Sequence[int]],
        settings: SampleConfig,
        writers: Sequence[Writer],
        seeds: Sequence[int] | None = None,
    ) -> Generator[decoding.Step, None, None]:
        yield from decoding.translate(
            self.model, sources, settings, self.tokenizer.end_id, lambda row, new: writers[row].add(new[-1]), seeds
        )

    def candidates(self, prompt: str, n: int) -> list[tuple[int, str, float]]:
        """The n likeliest first tokens: id, printable text, probability over the whole vocabulary."""
        device = self.model.embedding.tokens.weight.device
        source = torch.tensor([self.source_ids(prompt)], device=device)  # (1, S)
        target = torch.tensor([[self.tokenizer.end_id]], device=device)  # (1, 1)
        with reading(self.model):
            logits = self.model(source, target)[0, -1]  # (V)
        return [(id, self.tokenizer.token_text(id), probability) for id, probability in ranked(logits, n)]


def _like_length(sources: Sequence[Sequence[int]]) -> list[list[int]]:
    """Indices of sources in groups of like length, so that little is padding."""
    order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
    return [order[start : start + ROWS] for start in range(0, len(order), ROWS)]
