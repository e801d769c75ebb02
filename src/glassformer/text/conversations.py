"""Convert the messages of conversations to one format, and make the records that a chat model is trained on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from glassformer.base.errors import GlassError
from glassformer.text.chat_template import NO_NAMES, ChatTemplate, Message
from glassformer.text.left_out import Tally
from glassformer.text.records import RecordPiece
from glassformer.text.special_names import SpecialNames

ROLES = ("system", "user", "assistant")
OTHER_NAMES = {"human": "user", "gpt": "assistant", "bot": "assistant", "developer": "system"}
"""The role for each alternative name of a role in the data of ShareGPT and OpenAI."""


def messages_of(value: object, position: str) -> list[Message] | None:
    """Return the messages of a conversation in one format, or None if the value is not a list.

    A message is an object with `role` and `content`, or `from` and `value`. Consecutive messages of one role are joined
    by a line end. Content may be a list of parts of the type `text`.

    Args:
        value: the conversation, as read from a table.
        position: position of the row, for error messages.

    Raises:
        GlassError: a message lacks these fields, has an unknown role, or has content that is not text or not valid
            Unicode.
    """
    if not isinstance(value, list):
        return None
    messages: list[Message] = []
    for each in value:
        role, content = _role_and_content(each, position)
        if messages and messages[-1]["role"] == role:
            content = f"{messages[-1]['content']}\n{content}"
            messages.pop()
        messages.append({"role": role, "content": content})
    return messages


def _role_and_content(message: object, position: str) -> tuple[str, str]:
    """Return the role and the text of one message."""
    fields = message if isinstance(message, Mapping) else {}
    role = fields.get("role", fields.get("from"))
    content = fields.get("content", fields.get("value"))
    if isinstance(content, list):
        content = _joined_parts(content)
    if not isinstance(role, str) or not isinstance(content, str):
        raise GlassError(
            f'{position}: a message is not {{"role": ..., "content": ...}} with text in both',
            'Write each message as {"role": "user", "content": "..."}.',
        )
    try:
        content.encode("utf-8")
    except UnicodeEncodeError:
        raise GlassError(
            f"{position}: a message has a lone surrogate (half a character)",
            "Write both \\u escapes of the character (a surrogate pair), or remove the escape.",
        ) from None
    role = OTHER_NAMES.get(role, role)
    if role not in ROLES:
        raise GlassError(f"{position}: a message has the unknown role {role!r}", f"Use one of: {', '.join(ROLES)}.")
    return role, content


def _joined_parts(parts: Sequence[Any]) -> str | None:
    """Return the joined parts of a message's content, or None if a part is not text."""
    texts = [part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None for part in parts]
    strings = [text for text in texts if isinstance(text, str)]
    return "".join(strings) if len(strings) == len(texts) else None


def conversation_records(
    rows: Iterable[tuple[str, Sequence[object]]],
    template: ChatTemplate,
    tally: Tally,
    names: SpecialNames = NO_NAMES,
) -> Iterator[RecordPiece]:
    """Yield a record for each conversation.

    Rows without a conversation, and conversations without an answer or with an empty answer, are counted and left out.

    Args:
        rows: the position of each row, with either its messages or its question and answer.
        template: the chat template that renders a conversation as text.
        tally: counter of conversations that are left out or changed.
        names: names of the special tokens that the template may write.

    Raises:
        GlassError: a message cannot be read, or the template fails or changes earlier messages.
    """
    numbers = count()
    for position, values in rows:
        messages = messages_of(values[0], position) if len(values) == 1 else _question_and_answer(values)
        if messages is None:
            tally.leave_out("rows without a conversation", position)
            continue
        if any(message["role"] == "assistant" and not message["content"].strip() for message in messages):
            tally.leave_out("conversations with an empty answer", position)
            continue
        answer_ends = [number for number, message in enumerate(messages, start=1) if message["role"] == "assistant"]
        if not answer_ends:
            tally.leave_out("conversations without an answer", position)
            continue
        if answer_ends[-1] < len(messages):
            tally.remark(
                "conversations that end without an answer (what follows the last answer is not read)", position
            )
            messages = messages[: answer_ends[-1]]
        try:
            text, spans = template.training_text(messages, names)
        except GlassError as error:
            raise GlassError(f"{position}: {error.problem}", error.remedy) from None
        yield RecordPiece(next(numbers), (text,), (), position, loss_spans=spans)


def _question_and_answer(values: Sequence[object]) -> list[Message] | None:
    """Return a conversation of one question and one answer, or None if the question or the answer is not text."""
    if not all(isinstance(value, str) for value in values):
        return None
    return [{"role": role, "content": str(value)} for role, value in zip(("user", "assistant"), values, strict=True)]
