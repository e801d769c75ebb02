"""Views of the page: a request body, a function that answers it, and a script that prints the same numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Any, Concatenate, Generic, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from glassformer.app.server.registry import ServedModel
from glassformer.app.server.request_errors import RefusedRequestError, in_two_lines
from glassformer.base.report import finite

LIMIT = 2**20
"""Bytes of an answer. A view that could give more cuts, pools or pages."""
MOST_CHARACTERS = 200_000
"""Of a text that is asked about; the model's context bounds its tokens."""

Text = Annotated[str, Field(min_length=1, max_length=MOST_CHARACTERS)]
"""A text that somebody typed."""
Name = Annotated[str, Field(min_length=1, max_length=100)]
"""A name such as dec.1.self.2."""
Pass = Literal["plain", "observed", "recomputed"]
"""Which forward pass made the numbers of an answer; its field `pass`.

"plain": one that nobody observes. "observed": one whose scores and patterns were kept, so that attention was computed
step by step. "recomputed": the text is too long to keep them; the layer's own attention ran once more for the rows that
are shown, on queries, keys and values of the pass. A shared file says "browser".
"""


class ViewQuestion(BaseModel):
    """The body of a view's request: every field has bounds, and unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class TextQuestion(ViewQuestion):
    """A question about a text.

    Attributes:
        text: what the run's model reads; of a filler, with [MASK].
        target: of a run that translates or summarizes; None: what it writes greedily.
    """

    text: Text
    target: Text | None = None


@dataclass(frozen=True, eq=False)
class Binary:
    """An answer in numbers rather than in words.

    It is sent as `application/octet-stream`: four bytes with the header's length, little-endian; the header, JSON in
    UTF-8, with spaces at its end so that what follows begins at a multiple of 8; the data.

    Attributes:
        header: how to read the data.
        data: numbers, little-endian.
    """

    header: dict[str, Any]
    data: bytes

    def packed(self) -> bytes:
        """The bytes that are sent."""
        text = json.dumps(finite(self.header), ensure_ascii=False, allow_nan=False).encode("utf-8")
        text += b" " * (-(4 + len(text)) % 8)
        return len(text).to_bytes(4, "little") + text + self.data

    @classmethod
    def unpacked(cls, body: bytes) -> Binary:
        """Decode the bytes that `packed` returned."""
        start = 4 + int.from_bytes(body[:4], "little")
        return cls(json.loads(body[4:start]), body[start:])


class Reply(NamedTuple):
    """An answer as it is sent.

    Attributes:
        body: JSON in UTF-8, or a `Binary`, packed.
        binary: which.
    """

    body: bytes
    binary: bool


Q = TypeVar("Q", bound=ViewQuestion)


def nobody(question: ViewQuestion) -> Sequence[str]:
    """Return no names: the default of `PageView.others`."""
    return ()


@dataclass(frozen=True)
class PageView(Generic[Q]):
    """One view.

    Attributes:
        question: the body.
        answer: what is shown; it holds the run's lock while it works, and those of the others.
        python: a short script with the library's public functions that prints the same numbers.
        others: the names of other runs that are looked at, too: `answer` and `python` are given them, opened.
    """

    question: type[Q]
    answer: Callable[Concatenate[ServedModel, Q, ...], dict[str, Any] | Binary]
    python: Callable[Concatenate[ServedModel, Q, ...], str]
    others: Callable[[Q], Sequence[str]] = nobody

    def asked(self, body: bytes) -> Q:
        """The question in a body of JSON.

        Raises:
            GlassError: it is no such question; of its faults the first.
        """
        try:
            return self.question.model_validate_json(body)
        except ValidationError as error:
            raise in_two_lines(error) from None

    def reply(
        self,
        opened: ServedModel,
        question: Q,
        others: Sequence[ServedModel] = (),
        gone: Callable[[], bool] = lambda: False,
    ) -> Reply:
        """The answer as it is sent, with the fields `run`, `version` and `python`: JSON in UTF-8, or binary.

        Locks are taken in the order of the runs' names, so that two questions never wait for each other.

        Args:
            opened, others: the run, and those that it is compared with.
            question: about it.
            gone: whether nobody waits for the answer any more; asked when it is the question's turn.

        Raises:
            GlassError: the question does not fit the run, the answer would be above `LIMIT`, or nobody waits for it.
        """
        with ExitStack() as locks:
            for each in sorted((opened, *others), key=lambda run: run.name):
                locks.enter_context(each.lock)
            if gone():  # someone who moves through a text asks much, and waits for the last answer only
                raise RefusedRequestError("nobody waits for this answer any more", "Ask again.", 499)
            answer = self.answer(opened, question, *others)
            python = self.python(opened, question, *others)
        of = {"run": opened.name, "version": opened.version, "python": python}
        if isinstance(answer, Binary):
            reply = Binary({**answer.header, **of}, answer.data).packed()
        else:
            text = json.dumps(finite({**answer, **of}), ensure_ascii=False, allow_nan=False)
            reply = text.encode("utf-8", "backslashreplace")
        if len(reply) > LIMIT:
            raise RefusedRequestError(
                f"the answer would take {len(reply):,} bytes, and at most {LIMIT:,} are sent", "Ask for less at once."
            )
        return Reply(reply, isinstance(answer, Binary))


def script(opened: ServedModel, *lines: str, imports: Sequence[str] = ()) -> str:
    """Return a view's script: its imports, the lines that load the run into `run` and `model`, and its own lines."""
    own = sorted(
        [line for line in imports if "glassformer" in line] + ["from glassformer.runs.opening import OpenedRun"]
    )
    others = [line for line in imports if "glassformer" not in line]
    first = [*others, "", *own] if others else own
    load = [f"run = OpenedRun.load({str(opened.folder)!r})", "model = run.text_model"]
    return "\n".join([*first, "", *load, *lines]) + "\n"
