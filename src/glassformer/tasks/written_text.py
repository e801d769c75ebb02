"""Turn tokens into text as they are generated: whole characters, up to the first stop string."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from glassformer.base.errors import GlassError
from glassformer.generation.decoding import Ended
from glassformer.text.tokenizers import Tokenizer


@dataclass(frozen=True)
class Sample:
    """The text generated for one prompt.

    Attributes:
        prompt: the text that was continued, the question, or the source; empty if the prompt was given as ids.
        text: the generated text, without stop strings and the end token.
        tokens: number of generated tokens, including the end token, the tokens of a stop string and, with beam search,
            all tokens after it.
        ended: reason why the text ended: "stop" (a stop string), "end" (the end token or another token that ends texts)
            or "length" (the maximum number of tokens).
        score: with beam search, the sum of log p of the tokens divided by the length penalty; otherwise None.
    """

    prompt: str
    text: str
    tokens: int
    ended: Ended
    score: float | None = None


def decode_until_stop(
    tokenizer: Tokenizer, prompt: Sequence[int], tokens: Sequence[int], stop: Sequence[str]
) -> tuple[str, bool]:
    """Return the text of tokens after a prompt up to the first stop string, and whether a stop string was found."""
    streamer = TextStreamer(tokenizer, prompt, stop)
    for token in tokens:
        if streamer.add(token):
            return streamer.take(last=True), True
    return streamer.take(last=True), False


class TextStreamer:
    """The growing text of one row, in whole characters, up to the first stop string.

    The last character is left out if it is incomplete when the row ends.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stop: Sequence[str]) -> None:
        self._decoder = tokenizer.stream_decoder()
        for id in prompt:  # the text continues the prompt: its first word may begin with a space
            self._decoder.feed(id)
        self._stop = StopFilter(stop)
        self._ready: list[str] = []

    def add(self, id: int) -> bool:
        """Add one token; return whether a stop string is now complete."""
        self._ready.append(self._stop.feed(self._decoder.feed(id)))
        return self._stop.found

    def take(self, last: bool) -> str:
        """Return the text that has become ready since the last call; with `last`, also the text held back."""
        text = "".join(self._ready) + (self._stop.finish() if last else "")
        self._ready.clear()
        return text


class StopFilter:
    """A filter that passes on text up to the first stop string, and holds back a possible beginning of a stop string.

    The text ends at the stop string that is completed first, so the result does not depend on how the text is split
    into chunks. If the same character completes two stop strings, the text ends at the longer one.

    Raises:
        GlassError: a stop string is empty.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        if "" in stop:
            raise GlassError("a stop string is empty, which would end every text at its start", "Leave it out.")
        self._stop = tuple(stop)
        self._held_back = ""
        self.found = False

    def feed(self, text: str) -> str:
        """Add text, and return the text that can be passed on; empty after a stop string was found."""
        if self.found:
            return ""
        self._held_back += text
        matches = [(start + len(stop), start) for stop in self._stop if (start := self._held_back.find(stop)) >= 0]
        if matches:
            self.found = True
            _, cut = min(matches)
            result = self._held_back[:cut]
            self._held_back = ""
            return result
        cut = len(self._held_back) - self._undecided_length()
        result = self._held_back[:cut]
        self._held_back = self._held_back[cut:]
        return result

    def finish(self) -> str:
        """Return the text that was held back and did not become a stop string."""
        result = self._held_back
        self._held_back = ""
        return result

    def _undecided_length(self) -> int:
        """Return the number of characters at the end that begin a stop string."""
        longest = min(len(self._held_back), max(map(len, self._stop), default=1) - 1)
        suffixes = (self._held_back[len(self._held_back) - n :] for n in range(longest, 0, -1))
        return next((len(suffix) for suffix in suffixes if any(stop.startswith(suffix) for stop in self._stop)), 0)
