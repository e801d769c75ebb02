"""`TextGenerator`: base class of models that generate text, with streaming, batches, beam search and stop strings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence

from glassformer.base.config import Config, SampleConfig
from glassformer.base.errors import GlassError
from glassformer.base.wording import counted
from glassformer.generation.beam import Hypothesis, StepCallback, beam_search
from glassformer.generation.decoding import Ended, Stop, TokenStep, candidates, generate
from glassformer.generation.length_batches import batches_by_length
from glassformer.generation.slot_reader import Engine
from glassformer.model.transformer import Decoder, EncoderDecoder
from glassformer.tasks.naming import token_named
from glassformer.tasks.written_text import Sample, TextStreamer, decode_until_stop
from glassformer.text.tokenizers import Tokenizer

ROWS = 128  # maximum number of prompts in a batch: a CPU is no faster with more
TOKENS = 65_536  # maximum number of tokens in a batch, with prompts and all beams: limits the memory of the cache


class TextGenerator(ABC):
    """Base class of models that generate text for a prompt: a continuation, an answer, a translation or a summary.

    Args:
        model: a decoder or an encoder-decoder.
        tokenizer: tokenizer of the generated text.
        config: settings of the run.
        source_tokenizer: tokenizer of the prompt; None: `tokenizer`.

    Attributes:
        engine: an engine that computes the logits of this model; None: PyTorch. See `glassformer.backends`.
    """

    def __init__(
        self,
        model: Decoder | EncoderDecoder,
        tokenizer: Tokenizer,
        config: Config,
        source_tokenizer: Tokenizer | None = None,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.source_tokenizer = tokenizer if source_tokenizer is None else source_tokenizer
        self.config = config
        self.engine: Engine | None = None

    @property
    def backend(self) -> str:
        """Return the name of the backend that computes the logits."""
        return "torch" if self.engine is None else self.engine.name

    @property
    def precision(self) -> str:
        """Return the precision of the matrix multiplications, such as float32."""
        torch_precision = str(self.model.embedding.tokens.weight.dtype).removeprefix("torch.")
        return torch_precision if self.engine is None else self.engine.precision

    @property
    def extra_end_ids(self) -> frozenset[int]:
        """Return the ids that end a text in addition to the tokenizer's end token."""
        return self.tokenizer.extra_end_ids

    def with_stop_strings(self, settings: SampleConfig) -> SampleConfig:
        """Return the settings with the stop strings of the model added; this base class has none to add."""
        return settings

    def __repr__(self) -> str:
        return f"{type(self).__name__}(train.task = {self.config.train.task}, {self.tokenizer!r})"

    def output_id(self, name: str | int) -> int:
        """Return the id of the token called `name`; see `token_named`."""
        return token_named(self.tokenizer, name)

    def output_text(self, id: int) -> str:
        """Return the text of a token."""
        return self.tokenizer.token_text(id)

    @abstractmethod
    def prompt_ids(self, prompt: str) -> list[int]:
        """Return the ids that the model reads for a prompt."""

    @abstractmethod
    def ids_before_text(self, ids: Sequence[int]) -> Sequence[int]:
        """Return the ids that the generated text continues; empty for a separate text, such as an answer."""

    def _steps(
        self, rows: Sequence[Sequence[int]], settings: SampleConfig, stop: Stop, seeds: Sequence[int] | None
    ) -> Iterator[TokenStep]:
        """Generate tokens step by step until every row has ended; yield each step."""
        return generate(
            self.model,
            rows,
            settings,
            self.tokenizer.end_id,
            stop,
            seeds,
            start=self.tokenizer.target_start,
            engine=self.engine,
            extra_end_ids=self.extra_end_ids,
        )

    def stream(self, prompt: str, settings: SampleConfig) -> Generator[str, None, Sample]:
        """Yield chunks of whole characters while the text is generated; joined, they equal the text of `generate`.

        Text that may begin a stop string is held back until the following text shows whether it does. Beam search
        yields a single chunk. The return value of the generator (of `yield from`) is the `Sample`.

        Raises:
            GlassError: the prompt is not valid Unicode, or a stop string is empty.
        """
        ids = self.prompt_ids(prompt)
        return self._stream(
            prompt, ids, TextStreamer(self.tokenizer, self.ids_before_text(ids), settings.stop), settings
        )

    def _stream(
        self, prompt: str, ids: list[int], streamer: TextStreamer, settings: SampleConfig
    ) -> Generator[str, None, Sample]:
        if settings.beams > 1:
            sample = self.generate([prompt], settings)[0]
            yield sample.text
            return sample
        text = ""
        count = 0
        ended = None
        for step in self._steps([ids], settings, lambda _, new: streamer.add(new[-1]), None):
            count += 1
            ended = step.ended.get(0)
            piece = streamer.take(last=ended is not None)
            text += piece
            if piece:
                yield piece
        assert ended is not None  # settings.tokens is at least 1, and the last step ends the row
        return Sample(prompt, text, count, ended)

    def generate(
        self, prompts: Sequence[str], settings: SampleConfig, seeds: Sequence[int] | None = None
    ) -> list[Sample]:
        """Generate a text for every prompt; the text does not depend on the other prompts.

        Args:
            prompts: any number of prompts; they are batched by length.
            settings: settings of generation: beam search if `beams` is above 1, otherwise sampling (greedy at
                temperature 0).
            seeds: one seed of sampling for each prompt; None: use `settings.seed` for all prompts. Ignored by beam
                search.

        Raises:
            GlassError: a prompt is not valid Unicode, a stop string is empty, or (for sampling) there are too few or
                too many seeds.
        """
        if settings.beams > 1:
            return [ranking[0] for ranking in self.n_best(prompts, settings, 1)]
        if seeds is not None and len(seeds) != len(prompts):
            problem = f"{counted(len(seeds), 'seeds')} for {counted(len(prompts), 'prompts')}"
            raise GlassError(problem, "Give one seed for each prompt.")
        ids = [self.prompt_ids(prompt) for prompt in prompts]
        samples: dict[int, Sample] = {}
        for group in self._batches(ids, settings):
            group_seeds = None if seeds is None else [seeds[index] for index in group]
            group_samples = self._generate_batch(
                [prompts[index] for index in group], [ids[index] for index in group], settings, group_seeds
            )
            samples.update(zip(group, group_samples, strict=True))
        return [samples[index] for index in range(len(prompts))]

    def _generate_batch(
        self, prompts: list[str], rows: list[list[int]], settings: SampleConfig, seeds: list[int] | None
    ) -> list[Sample]:
        streamers = [TextStreamer(self.tokenizer, self.ids_before_text(ids), settings.stop) for ids in rows]
        counts = [0] * len(rows)
        ended: dict[int, Ended] = {}
        for step in self._steps(rows, settings, lambda row, new: streamers[row].add(new[-1]), seeds):
            ended.update(step.ended)
            for row in step.rows:
                counts[row] += 1
        return [
            Sample(prompt, streamer.take(last=True), counts[row], ended[row])
            for row, (prompt, streamer) in enumerate(zip(prompts, streamers, strict=True))
        ]

    def n_best(
        self,
        prompts: Sequence[str | Sequence[int]],
        settings: SampleConfig,
        wanted: int | None = None,
        watch: StepCallback | None = None,
    ) -> list[list[Sample]]:
        """Return the likeliest texts for each prompt by beam search, best first: `wanted` texts, or one for each beam.

        `wanted` is at most `settings.beams`. A prompt may be given as the ids that the model reads; its samples then
        have an empty `prompt`. `watch` is called with each step of the search, and may raise an exception to end the
        search.
        """
        ids = [self.prompt_ids(prompt) if isinstance(prompt, str) else list(prompt) for prompt in prompts]
        prompt_texts = [prompt if isinstance(prompt, str) else "" for prompt in prompts]
        samples: dict[int, list[Sample]] = {}
        for group in self._batches(ids, settings):
            rows = [ids[index] for index in group]
            rankings = beam_search(
                self.model,
                rows,
                settings,
                self.tokenizer.end_id,
                wanted=wanted,
                start=self.tokenizer.target_start,
                watch=watch,
                engine=self.engine,
                extra_end_ids=self.extra_end_ids,
            )
            for index, ranking in zip(group, rankings, strict=True):
                before = self.ids_before_text(ids[index])
                samples[index] = [
                    self._sample(prompt_texts[index], before, hypothesis, settings) for hypothesis in ranking
                ]
        return [samples[index] for index in range(len(prompts))]

    def candidates(self, prompt: str, n: int) -> list[tuple[int, str, float]]:
        """Return the n likeliest first tokens: id, text, probability over the whole vocabulary (temperature 1)."""
        best = candidates(self.model, self.prompt_ids(prompt), n, self.tokenizer.target_start)
        return [(id, self.tokenizer.token_text(id), probability) for id, probability in best]

    def _batches(self, ids: Sequence[Sequence[int]], settings: SampleConfig) -> list[list[int]]:
        """Return batches of prompt indices, with prompts of similar length, as large as `ROWS` and `TOKENS` allow."""
        max_cached = 2 * self.config.model.context  # maximum number of cached tokens per row
        token_counts = [settings.beams * min(len(row) + settings.tokens, max_cached) for row in ids]
        return batches_by_length(token_counts, ROWS, TOKENS)

    def _sample(self, prompt: str, before: Sequence[int], hypothesis: Hypothesis, settings: SampleConfig) -> Sample:
        text, stopped = decode_until_stop(self.tokenizer, before, hypothesis.text_tokens, settings.stop)
        return Sample(prompt, text, len(hypothesis.tokens), "stop" if stopped else hypothesis.ended, hypothesis.score)
