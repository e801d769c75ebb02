"""`ChatModel`: a decoder with its tokenizer and a chat template, for conversations."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import cycle

from glassformer.base.config import Config, SampleConfig
from glassformer.base.errors import GlassError
from glassformer.generation.beam import StepCallback
from glassformer.model.transformer import Model
from glassformer.tasks.continuing import TextModel
from glassformer.tasks.written_text import Sample, TextStreamer
from glassformer.text.chat_template import ChatTemplate, Message
from glassformer.text.conversations import ROLES, messages_of
from glassformer.text.records import START_MARK
from glassformer.text.special_names import MARK, SpecialNames, id_of_mark, marked_ids, parts_of
from glassformer.text.tokenizers import Tokenizer, frame_of

PLACEHOLDER_MESSAGES = ("glassformer-first-question", "glassformer-answer", "glassformer-second-question")
"""Placeholder messages, used to find the text that a template writes around messages."""


class ChatModel(TextModel):
    """A decoder that answers in a conversation.

    Methods that take a prompt treat it as a conversation with one question; `answer`, `reply` and `conversation_ids`
    take any conversation.

    Args:
        model: a decoder.
        tokenizer: the tokenizer that the model was trained with.
        config: settings of the run.
        template: the chat template; None: use `data.chat_template`.

    Raises:
        GlassError: the model is not a decoder, its vocabulary size differs from the tokenizer's, or the template is not
            valid.
    """

    def __init__(
        self, model: Model, tokenizer: Tokenizer, config: Config, template: ChatTemplate | None = None
    ) -> None:
        super().__init__(model, tokenizer, config)
        self.chat = TokenizedTemplate(template or ChatTemplate(config.data.chat_template), tokenizer)

    def reads_same_tokens_as(self, other: ChatModel) -> bool:
        """Return whether another model has the same chat template and the same tokenizer."""
        same_template = self.chat.template.source == other.chat.template.source
        return same_template and self.tokenizer.digest == other.tokenizer.digest

    def conversation_ids(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids that the model reads before it generates the assistant's next answer.

        Raises:
            GlassError: there is no message, a message is malformed, the last message is the assistant's, the template
                writes a message like one of another role or not at all, or it refuses the conversation or fails.
        """
        if not messages:
            raise GlassError("the conversation has no messages", "Give at least one question.")
        before = frame_of(self.tokenizer, self.config).before
        checked_messages = messages_of(list(messages), "the conversation") or []
        if checked_messages[-1]["role"] == "assistant":
            raise GlassError(
                "the conversation ends with a message of the assistant, so there is nothing to answer",
                "End it with a message of the user; to continue a text, use the model of a run of task lm.",
            )
        self.chat.refuse_confused_roles(checked_messages)
        roles = tuple(message["role"] for message in checked_messages)
        if unwritten := self.chat.template.unwritten_roles(roles, True):
            raise GlassError(
                f"the chat template does not write this message of the role {unwritten[0]}, so the model would not "
                "read it",
                "Leave this message out, or use a template that writes it.",
            )
        ids = [*before, *self.chat.ids(checked_messages, after_start=bool(before))]
        return ids or [self.tokenizer.start_id]

    def around_question(self) -> tuple[list[int], list[int]] | None:
        """Return the ids before and after the first question's tokens; None if they may depend on the question."""
        before = frame_of(self.tokenizer, self.config).before
        around = self.chat.around_question(after_start=bool(before))
        if around is None:
            return None
        prefix, suffix = around
        return [*before, *prefix], suffix

    def prompt_ids(self, prompt: str) -> list[int]:
        """Return the ids of a conversation with one question."""
        return self.conversation_ids([{"role": "user", "content": prompt}])

    def fit_to_context(self, messages: Sequence[Message], tokens: int, n_kept: int = 0) -> list[Message]:
        """Return a conversation, without its oldest question-answer pairs if an answer would not fit otherwise.

        Args:
            messages: the conversation; its last message is a question, which is always kept.
            tokens: maximum number of tokens in the answer; at most half of the context is reserved for the answer.
            n_kept: number of messages at the beginning that are always kept.

        Raises:
            GlassError: the last question, together with the kept messages, is longer than the context; or as in
                `conversation_ids`.
        """
        context = self.config.model.context
        max_prompt_tokens = context - min(tokens, context // 2)

        def without(pairs: int) -> list[Message]:
            last = len(messages) - 1
            return [*messages[:n_kept], *messages[min(n_kept + 2 * pairs, last) :]]

        def fits(pairs: int) -> bool:
            return len(self.conversation_ids(without(pairs))) <= max_prompt_tokens

        if fits(0):
            return list(messages)
        max_pairs = (
            len(messages) - n_kept
        ) // 2  # pairs before the last question; the last pair may be a single message
        remaining = without(bisect_left(range(max_pairs), True, lo=1, key=fits))
        length = len(self.conversation_ids(remaining))
        if length > context:
            subject = "the question and the system message have" if n_kept else "the question has"
            remedy = "Shorten the question or the system message." if n_kept else "Ask a shorter question."
            raise GlassError(f"{subject} {length:,} tokens, but the model reads at most {context:,}", remedy)
        return remaining

    def decode_conversation(self, ids: Sequence[int]) -> str:
        """Decode the ids of a conversation to text; a line ends at each end token and end-of-turn token."""
        ends = {self.tokenizer.end_id, *self.extra_end_ids}
        lines: list[list[int]] = [[]]
        for id in ids:
            if id in ends:
                lines.append([])
            else:
                lines[-1].append(id)
        return "\n".join(self.tokenizer.decode(line) for line in lines if line)

    def answers(self, conversations: Sequence[Sequence[int]], settings: SampleConfig) -> list[Sample]:
        """Generate the next answer in each conversation, given as ids without a start token.

        The `prompt` of each sample is empty. A conversation of more than
        `context - min(settings.tokens, context // 2)` tokens, including its start token, loses its first tokens.
        """
        before = list(frame_of(self.tokenizer, self.config).before)
        context = self.config.model.context
        max_prompt_tokens = context - min(settings.tokens, context // 2)  # longer conversations lose their first tokens
        rows = [[*before, *ids][-max_prompt_tokens:] for ids in conversations]
        settings = self.with_stop_strings(settings)
        if settings.beams > 1:
            return [ranking[0] for ranking in self.n_best(rows, settings, 1)]
        samples: dict[int, Sample] = {}
        for group in self._batches(rows, settings):
            group_samples = self._generate_batch([""] * len(group), [rows[index] for index in group], settings, None)
            samples.update(zip(group, group_samples, strict=True))
        return [samples[index] for index in range(len(rows))]

    def answer(self, messages: Sequence[Message], settings: SampleConfig) -> Sample:
        """Generate the next answer in a conversation; the `prompt` of the sample is empty.

        Raises:
            GlassError: as in `conversation_ids`.
        """
        ids = self.conversation_ids(messages)
        settings = self.with_stop_strings(settings)
        if settings.beams > 1:
            return self.n_best([ids], settings, 1)[0][0]
        return self._generate_batch([""], [ids], settings, None)[0]

    def reply(self, messages: Sequence[Message], settings: SampleConfig) -> Generator[str, None, Sample]:
        """Yield the next answer while it is generated, as `stream` does.

        Raises:
            GlassError: as in `conversation_ids`.
        """
        ids = self.conversation_ids(messages)
        settings = self.with_stop_strings(settings)
        if settings.beams > 1:
            sample = self.n_best([ids], settings, 1)[0][0]
            yield sample.text
            return sample
        streamer = TextStreamer(self.tokenizer, self.ids_before_text(ids), settings.stop)
        return (yield from self._stream(messages[-1]["content"], ids, streamer, settings))

    def stream(self, prompt: str, settings: SampleConfig) -> Generator[str, None, Sample]:
        """Yield the answer to a question while it is generated; see `TextGenerator.stream`."""
        return super().stream(prompt, self.with_stop_strings(settings))

    def generate(
        self, prompts: Sequence[str], settings: SampleConfig, seeds: Sequence[int] | None = None
    ) -> list[Sample]:
        """Answer each question in a separate conversation; see `TextGenerator.generate`."""
        return super().generate(prompts, self.with_stop_strings(settings), seeds)

    def n_best(
        self,
        prompts: Sequence[str | Sequence[int]],
        settings: SampleConfig,
        wanted: int | None = None,
        watch: StepCallback | None = None,
    ) -> list[list[Sample]]:
        """Return the likeliest answers by beam search; see `TextGenerator.n_best`."""
        return super().n_best(prompts, self.with_stop_strings(settings), wanted, watch)

    def with_stop_strings(self, settings: SampleConfig) -> SampleConfig:
        """Return the settings with the text that ends an answer in the template, if any, as a further stop string."""
        stop, _ = self.chat.ending
        return settings.replace(stop=tuple(dict.fromkeys((*settings.stop, *stop))))

    @property
    def extra_end_ids(self) -> frozenset[int]:
        """Return the ids besides the end token that end an answer, such as the template's end-of-turn token."""
        return self.tokenizer.extra_end_ids | self.chat.extra_end_ids

    def ids_before_text(self, ids: Sequence[int]) -> Sequence[int]:
        return ()  # an answer is encoded separately from the text before it


class TokenizedTemplate:
    """A chat template with a tokenizer; converts a conversation to token ids, and finds how an answer ends.

    Args:
        template: the template.
        tokenizer: tokenizer of the run.
    """

    def __init__(self, template: ChatTemplate, tokenizer: Tokenizer) -> None:
        self.template = template
        self._tokenizer = tokenizer
        self._names = SpecialNames.of(tokenizer)

    def ids(self, messages: Sequence[Message], after_start: bool = False) -> list[int]:
        """Return the token ids of a conversation, up to the beginning of the assistant's next answer.

        Args:
            messages: the conversation.
            after_start: whether the ids follow a start token, so that the start token of the template is left out.

        Raises:
            GlassError: the template refuses the conversation or fails, or a message is not valid Unicode.
        """
        pieces = self.template.pieces(messages, True, self._names)
        if after_start:
            pieces[0] = pieces[0].removeprefix(START_MARK)
        return [id for piece in pieces for id in marked_ids(piece, self._tokenizer)]

    @cached_property
    def equal_roles(self) -> frozenset[str]:
        """Return the roles whose messages have the same ids as a message of another role with the same content."""
        ids_by_role: dict[str, list[int]] = {}
        for role in ROLES:
            with suppress(GlassError):  # the template may refuse a conversation that begins with this role
                text = self.template.marked([{"role": role, "content": PLACEHOLDER_MESSAGES[0]}], False, self._names)
                ids_by_role[role] = marked_ids(text, self._tokenizer)
        counts = Counter(map(tuple, ids_by_role.values()))
        return frozenset(role for role, ids in ids_by_role.items() if ids and counts[tuple(ids)] > 1)

    def refuse_confused_roles(self, messages: Sequence[Message]) -> None:
        """Raise a `GlassError` if the ids of a conversation are also those of questions and answers in turn.

        If a template writes no roles, only the order distinguishes them: first a question, then an answer, and so on.
        """
        for message, usual_role in zip(messages, cycle(("user", "assistant")), strict=False):
            role = message["role"]
            if role != usual_role and {role, usual_role} <= self.equal_roles:
                raise GlassError(
                    f"the chat template writes this message of the role {role} like one of the role {usual_role}, so "
                    "the model cannot tell them apart",
                    "Begin with a question, and let questions and answers alternate, without a system message; or "
                    "train with a template that writes the roles.",
                )

    def around_question(self, after_start: bool = False) -> tuple[list[int], list[int]] | None:
        """Return the ids that the template writes before and after a first question; `after_start` as in `ids`.

        Return None if the template changes or repeats the question, or writes ordinary text directly before or after
        it, because a tokenizer may merge this text with the question.
        """
        # A template may change outer or double spaces, line breaks, HTML characters, the case of letters, or length.
        question = f" \n{PLACEHOLDER_MESSAGES[0]}  <&\"'>É\n" + 500 * "x" + " "
        pieces = self.template.pieces([{"role": "user", "content": question}], True, self._names)
        if after_start:
            pieces[0] = pieces[0].removeprefix(START_MARK)
        parts = [part for piece in pieces for part in parts_of(piece)]
        question_indices = [index for index, part in enumerate(parts) if PLACEHOLDER_MESSAGES[0] in part]
        if len(question_indices) != 1 or parts[question_indices[0]] != question:
            return None
        before = marked_ids("".join(parts[: question_indices[0]]), self._tokenizer)
        return before, marked_ids("".join(parts[question_indices[0] + 1 :]), self._tokenizer)

    @property
    def writes_start(self) -> bool:
        """Return whether the template begins a conversation with the start token."""
        return self.template.pieces(_placeholder_messages("user"), True, self._names)[0].startswith(START_MARK)

    @property
    def before_answer(self) -> str:
        """Return the generation prompt (the text before an answer), without special tokens or white space around it."""
        messages = _placeholder_messages("user")
        without_answer = self.template.marked(messages, False, self._names)
        return MARK.sub("", self.template.marked(messages, True, self._names).removeprefix(without_answer)).strip()

    @property
    def extra_end_ids(self) -> frozenset[int]:
        """Return a set with the id of the special token with which the template ends an answer, if there is one."""
        _, ends = self.ending
        return ends

    @cached_property
    def ending(self) -> tuple[tuple[str, ...], frozenset[int]]:
        """Return the stop strings and stop ids of an answer: the special token that follows it, or else the text."""
        question, answer, next_question = PLACEHOLDER_MESSAGES
        messages = _placeholder_messages("user", "assistant", "user")
        text = self.template.marked(messages, False, self._names)
        between = text.partition(answer)[2].partition(next_question)
        if question not in text or not between[1]:
            return (), frozenset()
        mark = MARK.search(between[0])
        if mark is not None:
            id = id_of_mark(mark.group(), self._tokenizer)
            assert id is not None
            return (), frozenset({id})
        pieces = self.template.pieces(messages[:2], False, self._names)
        closing = pieces[1].partition(answer)[2].strip() if len(pieces) > 1 else ""
        stop = closing or between[0].rstrip() or between[0]
        return ((stop,) if stop else ()), frozenset()


def _placeholder_messages(*roles: str) -> list[Message]:
    """Return a conversation of placeholder messages with these roles."""
    return [{"role": role, "content": content} for role, content in zip(roles, PLACEHOLDER_MESSAGES, strict=False)]
