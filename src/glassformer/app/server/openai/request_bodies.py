"""Request bodies of the API.

Numbers, texts and lists have bounds, except in ignored fields. Unknown fields are refused. Unsupported fields of
OpenAI's API are refused if they would change the result, and ignored otherwise.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from glassformer.base.config import SampleConfig

MOST_TOKENS = 4096
"""Maximum number of tokens that a request may set for one text."""
MOST_CHOICES = 16
"""Maximum number of texts for one prompt."""
MOST_TEXTS = 64
"""Maximum number of texts of one request (prompts times n)."""
MOST_CHARACTERS = 100_000
"""Maximum number of characters or token ids in a prompt, and maximum number of characters in a text of a message."""
MOST_SCORES = 20
"""Maximum number of likeliest tokens to return with each token."""
MOST_BEAMS = 16
"""Maximum number of beams."""
SEEDS = 2**64
OPENAI = SampleConfig(temperature=1.0)
"""Default sampling settings of OpenAI's API."""
SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""Sampling fields except `seed`; beam search does not use them."""

Text = Annotated[str, Field(max_length=MOST_CHARACTERS)]
Ids = Annotated[
    list[Annotated[int, Field(ge=0, lt=2**31)]],
    Field(min_length=1, max_length=MOST_CHARACTERS, fail_fast=True),
]
StopText = Annotated[str, Field(min_length=1, max_length=200)]
Zero = Annotated[float, Field(ge=0, le=0, allow_inf_nan=False)]


class StreamOptions(BaseModel):
    """Options of a streamed response."""

    model_config = ConfigDict(extra="forbid", strict=True)

    include_usage: bool = Field(False, description="the last chunk has the token counts")
    include_obfuscation: bool | None = Field(None, description="ignored")


class SamplingBody(BaseModel):
    """Fields common to completion and chat requests: the model, sampling and streaming."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: Annotated[str, Field(max_length=300)] = Field(description="name of a run in /v1/models")
    n: int | None = Field(
        None, ge=1, le=MOST_CHOICES, description="number of texts for each prompt, with consecutive seeds"
    )
    temperature: float | None = Field(
        None, ge=0, le=2, allow_inf_nan=False, description="sampling temperature; 0 means greedy decoding"
    )
    top_p: float | None = Field(None, gt=0, le=1, allow_inf_nan=False, description="nucleus sampling; see sample.top_p")
    top_k: int | None = Field(None, ge=1, le=10**9, description="extension; sample from the k likeliest tokens")
    min_p: float | None = Field(None, gt=0, le=1, allow_inf_nan=False, description="extension; see sample.min_p")
    repetition_penalty: float | None = Field(
        None, ge=1, le=100, allow_inf_nan=False, description="extension; see sample.repetition_penalty"
    )
    seed: int | None = Field(
        None, ge=-(2**63), lt=SEEDS, description="seed of sampling; if unset, a new seed each time"
    )
    stop: StopText | Annotated[list[StopText], Field(max_length=4)] | None = Field(
        None, description="texts that end the generation; they are not part of the result"
    )
    stream: bool | None = Field(None, description="stream the texts as server-sent events, one chunk per event")
    stream_options: StreamOptions | None = None
    presence_penalty: Zero | None = Field(None, description="not supported; only 0 is allowed")
    frequency_penalty: Zero | None = Field(None, description="not supported; only 0 is allowed")
    logit_bias: Annotated[dict[str, Any], Field(max_length=0)] | None = Field(None, description="not supported")
    user: Any = Field(None, description="ignored")
    metadata: Any = Field(None, description="ignored")
    store: Any = Field(None, description="ignored")
    service_tier: Any = Field(None, description="ignored")
    safety_identifier: Any = Field(None, description="ignored")
    prompt_cache_key: Any = Field(None, description="ignored")

    def settings(self, tokens: int, stop: tuple[str, ...] = (), defaults: SampleConfig = OPENAI) -> list[SampleConfig]:
        """Return the generation settings of each of the n texts.

        Args:
            tokens: maximum number of tokens of each text.
            stop: stop strings in addition to those of the body.
            defaults: defaults for the fields in `SAMPLING` that the body does not set.
        """
        first_seed = secrets.randbits(63) if self.seed is None else self.seed
        stop_texts = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        sampling = {name: value for name in SAMPLING if (value := getattr(self, name)) is not None}
        settings = defaults.replace(**{"beams": 1, **sampling, "tokens": tokens, "stop": (*stop_texts, *stop)})
        return [settings.replace(seed=(first_seed + choice) % SEEDS) for choice in range(self.n or 1)]

    @property
    def includes_usage(self) -> bool:
        """Whether the last chunk of a stream has the token counts."""
        return self.stream_options is not None and self.stream_options.include_usage


class CompletionBody(SamplingBody):
    """Body of POST /v1/completions: prompts to continue, or sources to translate or summarize."""

    prompt: (
        Text
        | Annotated[list[Text], Field(min_length=1, max_length=MOST_TEXTS, fail_fast=True)]
        | Ids
        | Annotated[list[Ids], Field(min_length=1, max_length=MOST_TEXTS, fail_fast=True)]
    ) = Field("", description="a text, a list of token ids, or a list of either")
    max_tokens: int | None = Field(
        None,
        ge=0,
        le=MOST_TOKENS,
        description="if unset, 16, or sample.tokens of a run that translates or summarizes; 0: generate nothing",
    )
    echo: bool | None = Field(None, description="return the prompt before the text")
    logprobs: int | None = Field(
        None,
        ge=0,
        le=MOST_SCORES,
        description="return ln p of each token (with echo, also of the prompt), and of this number of likeliest tokens",
    )
    best_of: int | None = Field(
        None, ge=1, le=MOST_CHOICES, description="not supported; only the value of n is allowed"
    )
    beams: int | None = Field(
        None, ge=1, le=MOST_BEAMS, description="extension; see sample.beams; above 1, return the n likeliest texts"
    )
    length_penalty: float | None = Field(
        None, ge=0, le=10, allow_inf_nan=False, description="extension; see sample.length_penalty; only for beam search"
    )
    suffix: Annotated[str, Field(max_length=0)] | None = Field(None, description="not supported")

    def search(self, tokens: int, defaults: SampleConfig) -> SampleConfig | None:
        """Return the settings of the beam search; None if the texts are sampled.

        Without `beams`, sampling fields turn off a beam search that is the run's default.

        Args:
            tokens: maximum number of tokens of each text.
            defaults: defaults for fields that the body does not set.

        Raises:
            ValueError: a field contradicts the number of beams.
        """
        sampling = [name for name in (*SAMPLING, "seed") if getattr(self, name) is not None]
        beams = self.beams or (1 if sampling else defaults.beams)
        if beams == 1:
            if self.length_penalty is not None:
                raise ValueError("length_penalty is used only by beam search: it needs beams above 1")
            return None
        if sampling:
            raise ValueError(f"{sampling[0]} was given with beams = {beams}: beam search does not sample")
        if (self.n or 1) > beams:
            raise ValueError(f"n = {self.n} is above the number of beams ({beams}): give beams = {self.n}")
        if self.logprobs is not None:
            raise ValueError(f"logprobs was given with beams = {beams}: beam search does not return log-probabilities")
        penalty = defaults.length_penalty if self.length_penalty is None else self.length_penalty
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        return SampleConfig(beams=beams, temperature=0.0, tokens=tokens, length_penalty=penalty, stop=stop)

    @property
    def prompts(self) -> list[str] | list[list[int]]:
        """List of the prompts, which are texts or lists of token ids."""
        prompt: Any = self.prompt
        return prompt if isinstance(prompt, list) and not isinstance(prompt[0], int) else [prompt]


class ContentPart(BaseModel):
    """Part of the content of a message."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["text"] = Field(description="only text; no images or audio")
    text: Text


class Message(BaseModel):
    """One message of a conversation."""

    model_config = ConfigDict(extra="forbid", strict=True)

    role: Literal["system", "developer", "user", "assistant"]
    content: Text | Annotated[list[ContentPart], Field(min_length=1, max_length=100)]
    name: Annotated[str, Field(max_length=100)] | None = Field(None, description="not supported")
    refusal: None = Field(None, description="ignored")

    def plain(self) -> dict[str, str]:
        """Return the message as chat templates expect it, with its content as one text."""
        content = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        plain = {"role": self.role, "content": content}
        return plain if self.name is None else {**plain, "name": self.name}


class ChatBody(SamplingBody):
    """Body of POST /v1/chat/completions: a conversation, which the run's chat template formats."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=500, fail_fast=True)]
    max_tokens: int | None = Field(None, ge=1, le=MOST_TOKENS, description="if unset, sample.tokens of the run")
    max_completion_tokens: int | None = Field(None, ge=1, le=MOST_TOKENS, description="newer name of max_tokens")
    logprobs: bool | None = Field(None, description="return ln p of each token")
    top_logprobs: int | None = Field(
        None, ge=0, le=MOST_SCORES, description="return ln p of this number of likeliest tokens"
    )
    tools: Annotated[list[Any], Field(max_length=0)] | None = Field(None, description="not supported")
    response_format: ResponseFormat | None = Field(None, description="only text is supported")
    modalities: Annotated[list[Literal["text"]], Field(max_length=1)] | None = Field(
        None, description="only text is supported"
    )
    parallel_tool_calls: Any = Field(None, description="ignored")
    reasoning_effort: Any = Field(None, description="ignored")
    verbosity: Any = Field(None, description="ignored")

    @model_validator(mode="after")
    def _check_top_logprobs(self) -> Self:
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs was given without logprobs = true")
        return self


class ResponseFormat(BaseModel):
    """Value of `response_format` in a request: only {"type": "text"} is accepted."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["text"]


ChatBody.model_rebuild()
