"""The bodies of requests: each field bounded, what would change the meaning refused, the rest of OpenAI's ignored."""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from glassformer.base.config import SampleConfig

MOST_TOKENS = 4096
"""Tokens of one text."""
MOST_CHOICES = 16
"""Texts for one prompt."""
MOST_TEXTS = 64
"""Texts of one request: prompts times n."""
MOST_CHARACTERS = 100_000
"""Of a prompt, or its tokens."""
MOST_SCORES = 20
"""Of the likeliest tokens that are named with each token."""
MOST_BEAMS = 16
"""Of a search."""
SEEDS = 2**64
OPENAI = SampleConfig(temperature=1.0)
"""How OpenAI draws where a request says nothing."""
DRAWING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""Fields that say how to draw, `seed` apart; beam search draws nothing."""

Text = Annotated[str, Field(max_length=MOST_CHARACTERS)]
Ids = Annotated[
    list[Annotated[int, Field(ge=0, lt=2**31)]],
    Field(min_length=1, max_length=MOST_CHARACTERS, fail_fast=True),
]
Ending = Annotated[str, Field(min_length=1, max_length=200)]
Nothing = Annotated[float, Field(ge=0, le=0, allow_inf_nan=False)]


class StreamOptions(BaseModel):
    """Options of a streamed answer."""

    model_config = ConfigDict(extra="forbid", strict=True)

    include_usage: bool = Field(False, description="the last chunk counts the tokens")
    include_obfuscation: bool | None = Field(None, description="ignored")


class Drawing(BaseModel):
    """Fields of both kinds of request: the model, sampling and streaming."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: Annotated[str, Field(max_length=300)] = Field(description="a name of /v1/models")
    n: int | None = Field(None, ge=1, le=MOST_CHOICES, description="texts for each prompt, with seeds one apart")
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False, description="0: always the likeliest")
    top_p: float | None = Field(None, gt=0, le=1, allow_inf_nan=False, description="share that the tokens must hold")
    top_k: int | None = Field(None, ge=1, le=10**9, description="not of OpenAI: draw from the k likeliest tokens")
    min_p: float | None = Field(None, gt=0, le=1, allow_inf_nan=False, description="not of OpenAI: as sample.min_p")
    repetition_penalty: float | None = Field(
        None, ge=1, le=100, allow_inf_nan=False, description="not of OpenAI: as sample.repetition_penalty"
    )
    seed: int | None = Field(None, ge=-(2**63), lt=SEEDS, description="of the draw; unset: another one each time")
    stop: Ending | Annotated[list[Ending], Field(max_length=4)] | None = Field(
        None, description="texts that end it; they are left out"
    )
    stream: bool | None = Field(None, description="server-sent events, one for each part of a text")
    stream_options: StreamOptions | None = None
    presence_penalty: Nothing | None = Field(None, description="not supported: 0")
    frequency_penalty: Nothing | None = Field(None, description="not supported: 0")
    logit_bias: Annotated[dict[str, Any], Field(max_length=0)] | None = Field(None, description="not supported")
    user: Any = Field(None, description="ignored")
    metadata: Any = Field(None, description="ignored")
    store: Any = Field(None, description="ignored")
    service_tier: Any = Field(None, description="ignored")
    safety_identifier: Any = Field(None, description="ignored")
    prompt_cache_key: Any = Field(None, description="ignored")

    def settings(self, tokens: int, stop: tuple[str, ...] = (), own: SampleConfig = OPENAI) -> list[SampleConfig]:
        """Return the sampling settings of each of the n texts.

        Args:
            tokens: maximum of each text.
            stop: stop texts besides those of the body.
            own: defaults for fields that the body leaves out.
        """
        first = secrets.randbits(63) if self.seed is None else self.seed
        asked = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        given = {name: value for name in DRAWING if (value := getattr(self, name)) is not None}
        drawn = own.replace(**{"beams": 1, **given, "tokens": tokens, "stop": (*asked, *stop)})
        return [drawn.replace(seed=(first + choice) % SEEDS) for choice in range(self.n or 1)]

    @property
    def tells_usage(self) -> bool:
        """True if the last chunk of a stream has the token counts."""
        return self.stream_options is not None and self.stream_options.include_usage


class CompletionBody(Drawing):
    """POST /v1/completions: texts that go on, or translations and summaries of sources."""

    prompt: (
        Text
        | Annotated[list[Text], Field(min_length=1, max_length=MOST_TEXTS, fail_fast=True)]
        | Ids
        | Annotated[list[Ids], Field(min_length=1, max_length=MOST_TEXTS, fail_fast=True)]
    ) = Field("", description="a text or its token ids, or several of one kind")
    max_tokens: int | None = Field(
        None,
        ge=0,
        le=MOST_TOKENS,
        description="unset: 16; of a run that translates or summarizes its sample.tokens; 0: nothing is written",
    )
    echo: bool | None = Field(None, description="begin with the prompt")
    logprobs: int | None = Field(
        None,
        ge=0,
        le=MOST_SCORES,
        description="log p of each token, with echo those of the prompt too, and of so many of the likeliest",
    )
    best_of: int | None = Field(None, ge=1, le=MOST_CHOICES, description="not supported: as n")
    beams: int | None = Field(
        None, ge=1, le=MOST_BEAMS, description="not of OpenAI: as sample.beams; above 1 the n likeliest texts"
    )
    length_penalty: float | None = Field(
        None, ge=0, le=10, allow_inf_nan=False, description="not of OpenAI: as sample.length_penalty, of beam search"
    )
    suffix: Annotated[str, Field(max_length=0)] | None = Field(None, description="not supported")

    def search(self, tokens: int, own: SampleConfig) -> SampleConfig | None:
        """Return the settings of a beam search; None: texts are sampled. Sampling fields imply one beam.

        Args:
            tokens: maximum of each text.
            own: defaults for fields that the body leaves out; see `settings`.

        Raises:
            ValueError: fields that contradict each other.
        """
        said = [name for name in (*DRAWING, "seed") if getattr(self, name) is not None]
        beams = self.beams or (1 if said else own.beams)
        if beams == 1:
            if self.length_penalty is not None:
                raise ValueError("length_penalty ranks the texts of beam search: it needs beams above 1")
            return None
        if said:
            raise ValueError(f"{said[0]} was given with beams = {beams}: beam search draws nothing")
        if (self.n or 1) > beams:
            raise ValueError(f"n = {self.n} asks for more texts than there are beams ({beams}): give beams = {self.n}")
        if self.logprobs is not None:
            raise ValueError("logprobs are told of texts that are drawn: it needs beams = 1")
        penalty = own.length_penalty if self.length_penalty is None else self.length_penalty
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        return SampleConfig(beams=beams, temperature=0.0, tokens=tokens, length_penalty=penalty, stop=stop)

    @property
    def prompts(self) -> list[str] | list[list[int]]:
        """Prompts as a list, of texts or of lists of token ids."""
        prompt: Any = self.prompt
        return prompt if isinstance(prompt, list) and not isinstance(prompt[0], int) else [prompt]


class ContentPart(BaseModel):
    """A part of a message."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["text"] = Field(description="no images or sounds")
    text: Text


class Message(BaseModel):
    """One turn of a conversation."""

    model_config = ConfigDict(extra="forbid", strict=True)

    role: Literal["system", "developer", "user", "assistant"]
    content: Text | Annotated[list[ContentPart], Field(min_length=1, max_length=100)]
    name: Annotated[str, Field(max_length=100)] | None = None
    refusal: None = Field(None, description="ignored")

    def plain(self) -> dict[str, str]:
        """Return the message as a chat template takes it, with the text in one piece."""
        content = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        plain = {"role": self.role, "content": content}
        return plain if self.name is None else {**plain, "name": self.name}


class ChatBody(Drawing):
    """POST /v1/chat/completions: the next turn of a conversation, by the run's chat template."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=500, fail_fast=True)]
    max_tokens: int | None = Field(None, ge=1, le=MOST_TOKENS, description="unset: sample.tokens of the run")
    max_completion_tokens: int | None = Field(None, ge=1, le=MOST_TOKENS, description="the newer name of max_tokens")
    logprobs: bool | None = Field(None, description="log p of each token")
    top_logprobs: int | None = Field(None, ge=0, le=MOST_SCORES, description="and of so many of the likeliest")
    tools: Annotated[list[Any], Field(max_length=0)] | None = Field(None, description="not supported")
    response_format: ResponseFormat | None = Field(None, description="text only")
    modalities: Annotated[list[Literal["text"]], Field(max_length=1)] | None = Field(None, description="text only")
    parallel_tool_calls: Any = Field(None, description="ignored")
    reasoning_effort: Any = Field(None, description="ignored")
    verbosity: Any = Field(None, description="ignored")

    @model_validator(mode="after")
    def _scores_are_asked_for(self) -> Self:
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs = true")
        return self


class ResponseFormat(BaseModel):
    """The form of an answer."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["text"]


ChatBody.model_rebuild()
