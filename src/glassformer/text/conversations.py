"""Convert the messages of conversations to one format, and make the records that a chat model is trained on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from glassformer.base.errors import GlassError
from glassformer.text.chat_template import NO_NAMES, ChatTemplate, Message
from glassformer.text.left_out import Tally
from glassformer.text.records import RecordPiece
from glassformer.text.special_names import SpecialNames

SHOWN_CHARACTERS = 100
"""Maximum number of characters of the names of fields in a note."""
ROLES = ("system", "user", "assistant")
OTHER_NAMES = {"human": "user", "gpt": "assistant", "bot": "assistant", "developer": "system"}
"""The role for each alternative name of a role in the data of ShareGPT and OpenAI."""
JSON_MESSAGES = re.compile(r"\s*\[\s*\{")
"""The beginning of a list of messages that is written as text."""
CHAT_COLUMNS = Mapping[str, Sequence[object]]
"""The values of a row, by their use: `messages`, or `question`, `context` and `answer`; and `system`."""


def messages_of(value: object, position: str, tally: Tally | None = None) -> list[Message] | None:
    """Return the messages of a conversation in one format, or None if the value is not a list.

    A message is an object with `role` and `content`, or `from` and `value`; if it has the `weight` 0, it does not
    contribute to the loss. Consecutive messages of one role are joined by a line end if both have the same weight.
    Content may be a list of parts of the type `text`.

    Args:
        value: the conversation, as read from a table.
        position: position of the row, for error messages.
        tally: counter of messages with other fields, which are not read; None: such fields are an error.

    Raises:
        GlassError: a message lacks these fields, has an unknown role or weight, or has content that is not text or not
            valid Unicode.
    """
    if not isinstance(value, list):
        return None
    messages: list[Message] = []
    for each in value:
        message = _message(each, position, tally)
        previous = messages[-1] if messages else {}
        if (previous.get("role"), previous.get("weight")) == (message["role"], message.get("weight")):
            message = {**message, "content": f"{previous['content']}\n{message['content']}"}
            messages.pop()
        messages.append(message)
    return messages


def _message(value: object, position: str, tally: Tally | None) -> Message:
    """Return one message: its role, its text and, for an answer that does not contribute to the loss, the weight 0."""
    fields = {str(name): field for name, field in value.items() if field is not None} if isinstance(value, dict) else {}
    role = fields.pop("role", None) or fields.pop("from", None)
    content = fields.pop("content") if "content" in fields else fields.pop("value", None)
    role, content = _checked(role, content, position)
    weight = fields.pop("weight", 1)
    if weight not in (0, 1):
        raise GlassError(
            f"{position}: a message has the weight {weight!r}",
            "Give an answer the weight 0, so that it does not contribute to the loss, or 1.",
        )
    if unread := [name for name, field in fields.items() if field not in ([], {}, "")]:
        if tally is None:
            raise GlassError(f"{position}: a message has the field {unread[0]!r}, which is not read", "Remove it.")
        tally.remark(
            f"messages with fields that are not read: {', '.join(sorted(unread))[:SHOWN_CHARACTERS]}", position
        )
    message: Message = {"role": role, "content": content}
    return message if weight or role != "assistant" else {**message, "weight": 0}


def _checked(role: object, content: object, position: str) -> tuple[str, str]:
    """Return the role and the text of one message, after a check."""
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
    rows: Iterable[tuple[str, CHAT_COLUMNS]],
    template: ChatTemplate,
    tally: Tally,
    names: SpecialNames = NO_NAMES,
) -> Iterator[RecordPiece]:
    """Yield a record for each conversation.

    Rows without a conversation, and conversations without an answer that contributes to the loss or with such an answer
    that is empty, are counted and left out.

    Args:
        rows: the position of each row, with its values by their use.
        template: the chat template that renders a conversation as text.
        tally: counter of conversations that are left out or changed.
        names: names of the special tokens that the template may write.

    Raises:
        GlassError: a message cannot be read, or the template fails or changes earlier messages.
    """
    numbers = count()
    for position, values in rows:
        messages = _messages_of_row(values, position, tally)
        if messages is None:
            tally.leave_out("rows without a conversation", position)
            continue
        answers = [message for message in messages if message["role"] == "assistant"]
        taught_answers = [message for message in answers if message.get("weight") != 0]
        if not taught_answers:
            weightless = " whose weight is not 0" if answers else ""
            tally.leave_out(f"conversations without an answer{weightless}", position)
            continue
        if any(not message["content"].strip() for message in taught_answers):
            tally.leave_out("conversations with an empty answer", position)
            continue
        end = max(number for number, message in enumerate(messages, start=1) if message is taught_answers[-1])
        if any(message.get("weight") != 0 for message in messages[end:]):
            tally.remark(
                "conversations that end without an answer (what follows the last answer is not read)", position
            )
        try:
            text, spans = template.training_text(messages[:end], names)
        except GlassError as error:
            raise GlassError(f"{position}: {error.problem}", error.remedy) from None
        roles = tuple(message["role"] for message in messages[:end])
        for role in template.unwritten_roles(roles, False):
            tally.remark(
                f"conversations with a message of the role {role} that the chat template does not write (it is not "
                "read)",
                position,
            )
        yield RecordPiece(next(numbers), (text,), (), position, loss_spans=spans)


def _messages_of_row(values: CHAT_COLUMNS, position: str, tally: Tally) -> list[Message] | None:
    """Return the conversation in a row, or None if there is none."""
    if "messages" in values:
        value = values["messages"][0]
        if isinstance(value, str) and JSON_MESSAGES.match(value):
            value = _from_json(value, position)
        messages = messages_of(value, position, tally)
        if messages is None:
            return None
    else:
        question = [*values["question"], *values.get("context", ())]
        messages = [
            {"role": "user", "content": "\n".join(str(text) for text in question if str(text).strip())},
            {"role": "assistant", "content": str(values["answer"][0])},
        ]
    system = "\n".join(str(text) for text in values.get("system", ()))
    first = messages[0] if messages else {}
    if not system.strip() or (first.get("role"), first.get("content")) == ("system", system):
        return messages
    return messages_of([{"role": "system", "content": system}, *messages], position, tally)


def _from_json(text: str, position: str) -> object:
    """Return the messages that a text contains as JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise GlassError(
            f"{position}: the messages are a text that is not JSON: {str(error)[:SHOWN_CHARACTERS]}",
            'Write them as JSON: [{"role": "user", "content": "..."}, ...].',
        ) from None
