"""Convert request bodies to generation requests: prompt token ids, settings, and the builder of the response."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from threading import Event
from typing import TYPE_CHECKING

from glassformer.app.server.engine import Engine, GenerationRequest, TextJob
from glassformer.app.server.engine.jobs import ScoredToken, TextPiece
from glassformer.app.server.openai.errors import BadRequestError
from glassformer.app.server.openai.prompt_scores import prompt_scores
from glassformer.app.server.openai.request_bodies import MOST_TEXTS, OPENAI, ChatBody, CompletionBody
from glassformer.app.server.openai.response_bodies import ChatResponseBuilder, CompletionResponseBuilder
from glassformer.app.server.openai.responses import PendingResponse
from glassformer.app.server.request_errors import RefusedRequestError
from glassformer.base.config import SampleConfig
from glassformer.base.errors import GlassError
from glassformer.runs.folder import CHAT_TEMPLATE_FILE, open_run
from glassformer.tasks import ChatModel, TextModel, text_notes
from glassformer.text.chat_template import ChatTemplate

if TYPE_CHECKING:
    from glassformer.app.server.engine.loaded import LoadedCheckpoint

DEFAULT_TOKENS = 16
"""Default of `max_tokens` for completions, as in OpenAI's API."""
MOST_SCORES = 1 << 18
"""Maximum number of log-probabilities in a response."""
compiled = lru_cache(maxsize=8)(ChatTemplate)
"""The template of a text, compiled once."""


def prepare_completion(engine: Engine, body: CompletionBody, generation: GenerationRequest) -> PendingResponse:
    """Prepare the continuations of prompts, or the translations or summaries of sources.

    This may load the model, so do not call it in the event loop.

    Raises:
        GlassError: the run does not generate text, the fields contradict each other, a prompt is not valid, or too many
            texts or log-probabilities are requested.
    """
    loaded = engine.load()
    defaults = loaded.text_model.config.sample if loaded.is_encoder_decoder else OPENAI
    default_tokens = defaults.tokens if loaded.is_encoder_decoder else DEFAULT_TOKENS
    tokens = default_tokens if body.max_tokens is None else body.max_tokens
    try:
        search = body.search(max(1, tokens), defaults)
    except ValueError as error:
        raise BadRequestError(str(error), "Change or remove one of these fields.") from None
    settings = body.settings(max(1, tokens), defaults=defaults)
    if body.best_of is not None and body.best_of != len(settings):
        raise BadRequestError("best_of is not supported", "Remove it, or give the value of n.", "best_of")
    if len(body.prompts) * len(settings) > MOST_TEXTS:
        raise BadRequestError(
            f"{len(body.prompts)} prompts with {len(settings)} texts each are more than {MOST_TEXTS} texts",
            "Request fewer texts at once.",
            "prompt",
        )
    prompts = [_encode_prompt(loaded, prompt) for prompt in body.prompts]
    echoes_scores = bool(body.echo) and body.logprobs is not None
    longest = max(map(len, prompts)) if echoes_scores else 0
    _check_scores(len(prompts) * len(settings), longest + tokens, body.logprobs, "logprobs")
    scores_by_prompt = _all_prompt_scores(loaded, body, prompts) if echoes_scores else []
    for ids in prompts:
        for text_settings in settings:
            TextJob(generation, loaded, ids, text_settings, body.logprobs, scores_end=bool(scores_by_prompt))
    echoed_prompts = [_prompt_text(loaded, prompt) if body.echo else "" for prompt in body.prompts for _ in settings]
    scored = body.logprobs is not None
    builder = CompletionResponseBuilder(
        body.model,
        loaded.tokenizer,
        scored,
        echoed_prompts,
        [scores for scores in scores_by_prompt for _ in settings],
        [*engine.notes(), *text_notes(loaded.text_model, [each for each in body.prompts if isinstance(each, str)])],
    )
    run_search = None if search is None else partial(_search, loaded, generation, prompts, search, len(settings))
    if tokens == 0:
        run_search = partial(_empty_texts, generation)
    return PendingResponse(engine, generation, builder, sum(map(len, prompts)), run_search)


def _all_prompt_scores(
    loaded: LoadedCheckpoint, body: CompletionBody, prompts: list[list[int]]
) -> list[list[ScoredToken]]:
    """Return the scored tokens of each prompt.

    Raises:
        GlassError: the prompts are sources, or the logits are not finite.
    """
    if loaded.is_encoder_decoder:
        raise BadRequestError(
            f"echo together with logprobs is not supported for {loaded.name}: its prompts are sources",
            "Remove echo or logprobs; to measure the loss of a model on a text, use glass evaluate.",
            "echo",
        )
    likeliest = body.logprobs or 0
    is_text = isinstance(body.prompts[0], str)
    return [prompt_scores(loaded, ids, likeliest, is_text) for ids in prompts]


def _empty_texts(generation: GenerationRequest, stopped: Event) -> list[TextPiece]:
    """Return an empty last piece for each text of a request with `max_tokens` = 0."""
    return [TextPiece(job.choice, ended="length") for job in generation.jobs]


class _StoppedError(Exception):
    """Raised to stop a beam search after the client has disconnected."""


def _search(
    loaded: LoadedCheckpoint,
    generation: GenerationRequest,
    prompts: list[list[int]],
    settings: SampleConfig,
    samples_per_prompt: int,
    stopped: Event,
) -> list[TextPiece]:
    """Return the best texts of a beam search for each prompt, in the order of the jobs; empty if `stopped` was set."""

    def watch(step: object) -> None:
        if stopped.is_set():
            raise _StoppedError

    try:
        best = loaded.beam_search_model().n_best(prompts, settings, samples_per_prompt, watch)
    except _StoppedError:
        return []
    samples = [sample for texts in best for sample in texts]
    for job, sample in zip(generation.jobs, samples, strict=True):
        job.count = sample.tokens
    return [
        TextPiece(job.choice, each.text, ended=each.ended) for job, each in zip(generation.jobs, samples, strict=True)
    ]


def prepare_chat(engine: Engine, body: ChatBody, generation: GenerationRequest) -> PendingResponse:
    """Prepare the assistant's next message in a conversation.

    This may load the model, so do not call it in the event loop.

    Raises:
        GlassError: the run does not generate text, translates or summarizes, or has no chat template; the template
            raises an error; the conversation is longer than the context; or the response would have too many
            log-probabilities.
    """
    loaded = engine.load()
    if loaded.is_encoder_decoder:
        problem = f"{loaded.name} translates or summarizes, and does not support conversations"
        raise BadRequestError(problem, "Use /v1/completions, with the source as the prompt.", "model")
    try:
        chat_model = _chat_model(loaded)
        messages = [message.plain() for message in body.messages]
        ids = chat_model.conversation_ids(messages)
    except RefusedRequestError:
        raise
    except GlassError as error:
        raise BadRequestError(error.problem, error.remedy, "messages") from None
    _check_length(loaded, ids, "messages")
    stop, _ = chat_model.chat.ending
    tokens = body.max_completion_tokens or body.max_tokens or loaded.text_model.config.sample.tokens
    scores = (body.top_logprobs or 0) if body.logprobs else None
    settings = body.settings(tokens, stop)
    _check_scores(len(settings), tokens, scores, "top_logprobs")
    for text_settings in settings:
        TextJob(generation, loaded, ids, text_settings, scores, chat_model.extra_end_ids)
    notes = [*engine.notes(), *text_notes(chat_model, [message["content"] for message in messages])]
    builder = ChatResponseBuilder(body.model, loaded.tokenizer, bool(body.logprobs), notes)
    return PendingResponse(engine, generation, builder, len(ids))


def _chat_model(loaded: LoadedCheckpoint) -> ChatModel:
    """Return the chat model of a run; a run of task lm uses the chat template in its folder.

    Raises:
        GlassError: there is no chat template, or it is not valid.
    """
    if isinstance(loaded.text_model, ChatModel):
        return loaded.text_model
    template = open_run(loaded.folder).chat_template()
    if template is None:
        raise BadRequestError(
            f"{loaded.folder.name} has no chat template to format the conversation",
            f"Use /v1/completions, or save the run's chat template in its folder as {CHAT_TEMPLATE_FILE}.",
            "model",
            "no_chat_template",
        )
    return ChatModel(loaded.text_model.model, loaded.tokenizer, loaded.text_model.config, compiled(template))


def _encode_prompt(loaded: LoadedCheckpoint, prompt: str | Sequence[int]) -> list[int]:
    """Return the token ids of a prompt.

    Raises:
        BadRequestError: the prompt is longer than the context, or has ids outside the vocabulary.
    """
    if isinstance(prompt, str):
        unread = getattr(loaded.text_model, "unread_tokens", None)  # a translator would truncate a long source
        model = loaded.text_model
        # For a chat model, a prompt of /v1/completions is text to continue, not a question.
        ids = TextModel.prompt_ids(model, prompt) if isinstance(model, ChatModel) else model.prompt_ids(prompt)
        _check_length(loaded, ids, "prompt", 0 if unread is None else unread(prompt))
    else:
        ids = list(prompt)
        _check_length(loaded, ids, "prompt")
    vocab_size = loaded.prompt_vocab_size
    outside = next((id for id in ids if id >= vocab_size), None)
    if outside is not None:
        problem = f"the prompt contains the token id {outside}, which is outside the vocabulary"
        raise BadRequestError(problem, f"Give ids from 0 to {vocab_size - 1}.", "prompt")
    return ids


def _check_length(loaded: LoadedCheckpoint, ids: Sequence[int], name: str, unread: int = 0) -> None:
    """Raise a `BadRequestError` if the prompt is longer than the context."""
    if len(ids) + unread > loaded.context:
        raise BadRequestError(
            f"{name} has {len(ids) + unread} tokens, but the model reads at most {loaded.context}",
            "Shorten it."
            if loaded.is_encoder_decoder
            else "Shorten it. Generation may continue beyond the context: the oldest tokens are then dropped.",
            name,
            "context_length_exceeded",
        )


def _check_scores(texts: int, tokens: int, scores: int | None, name: str) -> None:
    """Raise a `BadRequestError` if a response has too many log-probabilities, which are all stored in memory."""
    if scores is not None and texts * tokens * (1 + scores) > MOST_SCORES:
        raise BadRequestError(
            f"the response would have {texts * tokens * (1 + scores):,} log-probabilities, "
            f"but at most {MOST_SCORES:,} are allowed",
            "Request fewer texts, tokens or log-probabilities at once.",
            name,
        )


def _prompt_text(loaded: LoadedCheckpoint, prompt: str | Sequence[int]) -> str:
    return prompt if isinstance(prompt, str) else loaded.prompt_tokenizer.decode(prompt)
