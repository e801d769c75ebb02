"""`TextModel`: a model with its tokenizer and settings, so that text goes in and text comes out."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import regex

from glassformer.config import Config, SampleConfig
from glassformer.errors import GlassError
from glassformer.generation import decoding
from glassformer.generation.decoding import Ended
from glassformer.model.build import build_model
from glassformer.model.device import choose_device, choose_precision
from glassformer.model.families import Decoder, Model
from glassformer.model.weights import load_weights
from glassformer.runs import Which, open_run
from glassformer.tokenizers import Tokenizer
from glassformer.tokenizers.layout import WORDS

ROWS = 32  # prompts that are continued side by side


@dataclass(frozen=True)
class Sample:
    """One continued prompt.

    Attributes:
        prompt: as it was given.
        text: what the model wrote after it; stop strings and the end token are left out.
        tokens: how many were drawn, the end token and those of a stop string included.
        ended: why it ends: "stop" a stop string, "end" the end token, "length" all tokens asked for were drawn.
    """

    prompt: str
    text: str
    tokens: int
    ended: Ended


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
            raise GlassError(
                f"a model of the family {config.model.family!r} does not continue text",
                "Give a run that was trained as a decoder (model.family = decoder).",
            )
        if model.vocab_size != tokenizer.vocab_size:
            raise GlassError(
                f"the model has {model.vocab_size} tokens, the tokenizer {tokenizer.vocab_size}",
                "Use the tokenizer that the model was trained with.",
            )
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
        run, place = open_run(folder), choose_device(device)
        config, tokenizer = run.config(), Tokenizer.load(run.tokenizer_file)
        model = build_model(config.model, tokenizer.vocab_size)
        load_weights(model, run.checkpoint(which) / "model.safetensors")
        return cls(model.to(place, choose_precision(precision, place)).eval(), tokenizer, config)

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
        writer = _Writer(self.tokenizer, ids, settings.stop)
        return self._stream(prompt, ids, writer, settings)

    def _stream(
        self, prompt: str, ids: list[int], writer: _Writer, settings: SampleConfig
    ) -> Generator[str, None, Sample]:
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
        if seeds is not None and len(seeds) != len(prompts):
            raise GlassError(f"{len(seeds)} seeds were given for {len(prompts)} prompts", "Give one for each prompt.")
        samples: list[Sample] = []
        for start in range(0, len(prompts), ROWS):
            part = slice(start, start + ROWS)
            samples += self._generate(prompts[part], settings, None if seeds is None else seeds[part])
        return samples

    def _generate(self, prompts: Sequence[str], settings: SampleConfig, seeds: Sequence[int] | None) -> list[Sample]:
        ids = [self.prompt_ids(prompt) for prompt in prompts]
        writers = [_Writer(self.tokenizer, each, settings.stop) for each in ids]
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

    def unknown_characters(self, prompt: str) -> list[str]:
        """What the tokenizer cannot write, each once, in the order it appears.

        Characters; graphemes or words where those are the tokenizer's symbols.
        """
        unknown = self.tokenizer.unknown_id
        if unknown is None or unknown not in self.tokenizer.encode(prompt):
            return []
        parts = [part for part in self._symbols(prompt) if unknown in self.tokenizer.encode(part)]
        return list(dict.fromkeys(part.strip() or part for part in parts))

    def _symbols(self, prompt: str) -> list[str]:
        """The parts of the prompt that the tokenizer knows, or does not know, as a whole."""
        patterns = {"graphemes": r"\X", "words": WORDS, "wordpiece": r"\w+|\W"}
        return regex.findall(patterns.get(self.tokenizer.kind, r"(?s)."), prompt)


class _Writer:
    """One row's text while it grows: whole characters only, up to the first stop string.

    The last character is left out if its bytes are not all there when the row ends.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stop: Sequence[str]) -> None:
        self._decoder = tokenizer.stream_decoder()
        for id in prompt:  # the text goes on after the prompt: its first word may begin with a space
            self._decoder.feed(id)
        self._stop = StopFilter(stop)
        self._ready: list[str] = []

    def add(self, id: int) -> bool:
        """Take one token; True if a stop string is now complete."""
        self._ready.append(self._stop.feed(self._decoder.feed(id)))
        return self._stop.found

    def take(self, last: bool) -> str:
        """The text that is ready and was not taken yet; with `last`, also what was held back."""
        text = "".join(self._ready) + (self._stop.finish() if last else "")
        self._ready.clear()
        return text


class StopFilter:
    """Lets text through up to the first stop string, holding back what may be the beginning of one.

    The first is the one that is complete first, so it does not matter in which pieces the text comes. Of two that are
    complete at the same character, the longer one counts.

    Raises:
        GlassError: a stop string is empty.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        if "" in stop:
            raise GlassError("a stop text is empty, and would end every text before it begins", "Leave it out.")
        self._stop = tuple(stop)
        self._held = ""
        self.found = False

    def feed(self, text: str) -> str:
        """What can be let through after this text; nothing once a stop string was found."""
        if self.found:
            return ""
        self._held += text
        places = [(at + len(stop), at) for stop in self._stop if (at := self._held.find(stop)) >= 0]
        if places:
            self.found = True
            _, cut = min(places)
            result, self._held = self._held[:cut], ""
            return result
        cut = len(self._held) - self._undecided()
        result, self._held = self._held[:cut], self._held[cut:]
        return result

    def finish(self) -> str:
        """What was held back and did not become a stop string."""
        result, self._held = self._held, ""
        return result

    def _undecided(self) -> int:
        """Characters at the end that begin a stop string."""
        longest = min(len(self._held), max(map(len, self._stop), default=1) - 1)
        ends = (self._held[len(self._held) - n :] for n in range(longest, 0, -1))
        return next((len(end) for end in ends if any(stop.startswith(end) for stop in self._stop)), 0)
