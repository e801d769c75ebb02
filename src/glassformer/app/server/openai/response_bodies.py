"""Response bodies as OpenAI defines them: completions and chats, whole and in chunks, with log-probabilities."""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from glassformer.app.server.engine.jobs import ScoredToken, TextPiece

if TYPE_CHECKING:
    from glassformer.text.tokenizers import Tokenizer

REASONS = {"end": "stop", "stop": "stop", "length": "length"}


@dataclass
class Choice:
    """One text of a response, or a part of that text, during its generation."""

    index: int
    text: str = ""
    scores: list[ScoredToken] = field(default_factory=list)
    reason: str | None = None

    def add(self, piece: TextPiece) -> None:
        """Append a piece's text and scored token, and set the finish reason (None unless the text ends here)."""
        self.text += piece.text
        self.scores += [piece.scored] if piece.scored is not None else []
        self.reason = REASONS[piece.ended] if piece.ended is not None else None

    @property
    def has_content(self) -> bool:
        """Whether there is text, a scored token or a finish reason to send."""
        return bool(self.text or self.scores or self.reason)


@dataclass(frozen=True)
class Usage:
    """Numbers of prompt tokens and of generated tokens."""

    prompt: int
    generated: int

    def facts(self) -> dict[str, int]:
        """Return the token counts under OpenAI's names."""
        total = self.prompt + self.generated
        return {"prompt_tokens": self.prompt, "completion_tokens": self.generated, "total_tokens": total}


class ResponseBuilder(ABC):
    """Builder of the response bodies of one request.

    Args:
        model: name of the run in the request.
        tokenizer: tokenizer of the generated text.
        scored: whether log-probabilities were requested.
        notes: notes on the prompts, such as characters that the tokenizer does not know, and on the run; if there are
            any, they are in the field `notes` of the whole response, or of the first chunk.
    """

    prefix = ""
    complete_object = ""
    chunk_object = ""

    def __init__(self, model: str, tokenizer: Tokenizer, scored: bool, notes: Sequence[str] = ()) -> None:
        self.tokenizer = tokenizer
        self._notes = list(notes)
        self.scored = scored
        self._common_fields = {
            "id": f"{self.prefix}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
        }

    def complete(self, choices: Sequence[Choice], usage: Usage) -> dict[str, Any]:
        """Return the body of a response with all texts."""
        bodies = [self._choice(choice, is_complete=True) for choice in choices]
        return {**self._body(self.complete_object, bodies), "usage": usage.facts()}

    def chunk(self, choice: Choice) -> dict[str, Any]:
        """Return the chunk for a part of a text."""
        return self._body(self.chunk_object, [self._choice(choice, is_complete=False)])

    def usage_chunk(self, usage: Usage) -> dict[str, Any]:
        """Return the last chunk, with the token counts."""
        return {**self._body(self.chunk_object, []), "usage": usage.facts()}

    def first_chunks(self, count: int) -> list[dict[str, Any]]:
        """Return the chunks to send before the first token; none by default."""
        return []

    def _body(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        """Return a body with the fields of every body and, in the first one, the notes."""
        notes, self._notes = self._notes, []
        return {**self._common_fields, "object": kind, "choices": choices, **({"notes": notes} if notes else {})}

    @abstractmethod
    def _choice(self, choice: Choice, is_complete: bool) -> dict[str, Any]:
        """Return the entry for a text, or for a part of a text."""

    def _token_text_and_bytes(self, id: int) -> tuple[str, list[int]]:
        """Return the text and the bytes of a token.

        The text of a token that is not valid UTF-8 lists its bytes. The text of a special token is its name, and its
        list of bytes is empty.
        """
        data = self.tokenizer.token_bytes(id)
        if not data:
            return self.tokenizer.token_text(id), []
        try:
            return data.decode("utf-8"), list(data)
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data), list(data)


class CompletionResponseBuilder(ResponseBuilder):
    """Builder of the response bodies of /v1/completions.

    Args:
        model, tokenizer, scored, notes: as for `ResponseBuilder`.
        before: for each text, the text to return before it (the prompt with `echo`, else empty).
        scores_before: for each text, the scored tokens of its prompt; empty if they were not requested.
    """

    prefix = "cmpl"
    complete_object = "text_completion"
    chunk_object = "text_completion"

    def __init__(
        self,
        model: str,
        tokenizer: Tokenizer,
        scored: bool,
        before: Sequence[str],
        scores_before: Sequence[Sequence[ScoredToken]] = (),
        notes: Sequence[str] = (),
    ) -> None:
        super().__init__(model, tokenizer, scored, notes)
        self._echoed = before
        self._scores_before = scores_before
        self._started = set[int]()

    def _choice(self, choice: Choice, is_complete: bool) -> dict[str, Any]:
        prompt = self._echoed[choice.index]
        is_first = choice.index not in self._started
        echoed = prompt if is_first else ""
        prompt_scores = self._scores_before[choice.index] if is_first and self._scores_before else ()
        self._started.add(choice.index)
        entry: dict[str, Any] = {"index": choice.index, "text": echoed + choice.text, "logprobs": None}
        if self.scored:
            scores = [*prompt_scores, *choice.scores]
            entry["logprobs"] = {
                "tokens": [self._token_text_and_bytes(each.token)[0] for each in scores],
                "token_logprobs": [each.log_probability for each in scores],
                "top_logprobs": [self._likeliest(each) for each in scores],
                "text_offset": [
                    *(each.offset for each in prompt_scores),
                    *(len(prompt) + each.offset for each in choice.scores),
                ],
            }
        return {**entry, "finish_reason": choice.reason}

    def _likeliest(self, scored: ScoredToken) -> dict[str, float] | None:
        if scored.log_probability is None:
            return None
        return {self._token_text_and_bytes(id)[0]: value for id, value in reversed(scored.likeliest)}


class ChatResponseBuilder(ResponseBuilder):
    """Builder of the response bodies of /v1/chat/completions."""

    prefix = "chatcmpl"
    complete_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def first_chunks(self, count: int) -> list[dict[str, Any]]:
        """Return a chunk for each text with the role of its author, the assistant."""
        delta = {"role": "assistant", "content": ""}
        empty = {"delta": delta, "logprobs": None, "finish_reason": None}
        return [self._body(self.chunk_object, [{"index": index, **empty}]) for index in range(count)]

    def _choice(self, choice: Choice, is_complete: bool) -> dict[str, Any]:
        content: dict[str, Any] = {"content": choice.text} if is_complete or choice.text else {}
        message = {"message": {"role": "assistant", **content, "refusal": None}} if is_complete else {"delta": content}
        scores = {"content": [self._score(each) for each in choice.scores], "refusal": None} if self.scored else None
        return {"index": choice.index, **message, "logprobs": scores, "finish_reason": choice.reason}

    def _score(self, scored: ScoredToken) -> dict[str, Any]:
        assert scored.log_probability is not None  # prompts are not scored in chats
        return {
            **self._logprob_entry(scored.token, scored.log_probability),
            "top_logprobs": [self._logprob_entry(id, value) for id, value in scored.likeliest],
        }

    def _logprob_entry(self, id: int, value: float) -> dict[str, Any]:
        text, data = self._token_text_and_bytes(id)
        return {"token": text, "logprob": value, "bytes": data}
