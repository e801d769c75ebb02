"""`TextModel`: a model with its tokenizer and settings, so that text goes in and text comes out."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path

from glassformer.config import Config, SampleConfig
from glassformer.errors import GlassError
from glassformer.generation import decoding
from glassformer.generation.beam import Hypothesis, beam_search
from glassformer.generation.decoding import Ended
from glassformer.model.families import Decoder, Model
from glassformer.runs import Which
from glassformer.text_model.loading import load_parts, refuse_mismatch, wrong_task
from glassformer.text_model.writing import Sample, Writer, written
from glassformer.tokenizers import Tokenizer

ROWS = 32  # prompts that are continued side by side


class TextModel:
    """Text in, text out.

    Args:
        model: a decoder.
        tokenizer: the one that the model was trained with.
        config: of the run.

    Raises:
        GlassError: the model is of another family, or has another number of tokens than the tokenizer.
    """

    def __init__(self, model: Model, tokenizer: Tokenizer, config: Config) -> None:
        if not isinstance(model, Decoder):
            raise wrong_task(config.train.task, "lm", "Give a run of --task lm (model.family = decoder).")
        refuse_mismatch(model, tokenizer)
        self.model, self.tokenizer, self.config = model, tokenizer, config

    @classmethod
    def load(cls, folder: Path, which: Which = "best", device: str = "auto", precision: str = "fp32") -> TextModel:
        """What a run folder holds, ready to write; the folder alone is enough.

        Args:
            folder: of the run.
            which: the best checkpoint on validation, or the last one.
            device: as in `train.device`.
            precision: "bf16" keeps the weights in bfloat16; "auto" does so where the device is fast at it.

        Raises:
            GlassError: there is no such run, or its files are not whole or not of one model.
        """
        parts = load_parts(folder, which, device, precision)
        return cls(parts.model, parts.tokenizer, parts.config)

    def prompt_ids(self, prompt: str) -> list[int]:
        """The tokens the model is given: after the end token where rows in training began with it, or if empty."""
        ids = self.tokenizer.encode(prompt)
        return [self.tokenizer.end_id, *ids] if self.config.data.windows == "documents" or not ids else ids

    def stream(self, prompt: str, settings: SampleConfig) -> Generator[str, None, Sample]:
        """The text as it is written, in pieces of whole characters; their sum is the text of `generate`.

        What may be the beginning of a stop string is held back until that is decided. The generator's return value
        (of `yield from`) is the `Sample`.

        Raises:
            GlassError: the prompt is not valid Unicode, or a stop string is empty.
        """
        ids = self.prompt_ids(prompt)
        writer = Writer(self.tokenizer, ids, settings.stop)
        return self._stream(prompt, ids, writer, settings)

    def _stream(
        self, prompt: str, ids: list[int], writer: Writer, settings: SampleConfig
    ) -> Generator[str, None, Sample]:
        if settings.beams > 1:
            sample = self.generate([prompt], settings)[0]
            yield sample.text
            return sample
        text, count, ended = "", 0, None
        end_id, stop = self.tokenizer.end_id, lambda _, new: writer.add(new[-1])
        for step in decoding.generate(self.model, [ids], settings, end_id, stop):
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
        """Continue every prompt; each sample is what the prompt would become alone.

        Args:
            prompts: any number; they are worked on in batches.
            settings: how to draw, when to stop.
            seeds: one for each prompt; None: `settings.seed` for all.

        Raises:
            GlassError: a prompt is not valid Unicode, a stop string is empty, or seeds are too few or too many.
        """
        if settings.beams > 1:
            return [found[0] for found in self.best(prompts, settings)]
        if seeds is not None and len(seeds) != len(prompts):
            raise GlassError(f"{len(seeds)} seeds were given for {len(prompts)} prompts", "Give one for each prompt.")
        samples: list[Sample] = []
        for start in range(0, len(prompts), ROWS):
            part = slice(start, start + ROWS)
            samples += self._generate(prompts[part], settings, None if seeds is None else seeds[part])
        return samples

    def best(self, prompts: Sequence[str], settings: SampleConfig) -> list[list[Sample]]:
        """The `settings.beams` likeliest continuations that beam search finds for each prompt, the best first."""
        found: list[list[Sample]] = []
        for start in range(0, len(prompts), ROWS):
            group = prompts[start : start + ROWS]
            ids = [self.prompt_ids(prompt) for prompt in group]
            for prompt, own, best in zip(
                group, ids, beam_search(self.model, ids, settings, self.tokenizer.end_id), strict=True
            ):
                found.append([self._sample(prompt, own, hypothesis, settings) for hypothesis in best])
        return found

    def _sample(self, prompt: str, ids: Sequence[int], found: Hypothesis, settings: SampleConfig) -> Sample:
        text, stopped = written(self.tokenizer, ids, found.tokens, settings.stop)
        return Sample(prompt, text, len(found.tokens), "stop" if stopped else found.ended, found.score)

    def _generate(self, prompts: Sequence[str], settings: SampleConfig, seeds: Sequence[int] | None) -> list[Sample]:
        ids = [self.prompt_ids(prompt) for prompt in prompts]
        writers = [Writer(self.tokenizer, each, settings.stop) for each in ids]
        counts, ended = [0] * len(ids), dict[int, Ended]()
        for step in decoding.generate(
            self.model, ids, settings, self.tokenizer.end_id, lambda row, new: writers[row].add(new[-1]), seeds
        ):
            ended.update(step.ended)
            for row in step.rows:
                counts[row] += 1
        return [
            Sample(prompt, writer.take(last=True), counts[row], ended[row])
            for row, (prompt, writer) in enumerate(zip(prompts, writers, strict=True))
        ]

    def candidates(self, prompt: str, n: int) -> list[tuple[int, str, float]]:
        """The n likeliest next tokens: id, printable text, probability over the whole vocabulary (temperature 1)."""
        best = decoding.candidates(self.model, self.prompt_ids(prompt), n)
        return [(id, self.tokenizer.token_text(id), probability) for id, probability in best]
