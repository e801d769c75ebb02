"""Views of the page: each has a request body, a function for its response, and a script that prints its numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Any, Concatenate, Generic, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from glassformer.app.server.registry import ServedModel
from glassformer.app.server.request_errors import RefusedRequestError, from_validation_error
from glassformer.base.report import finite
from glassformer.tasks import text_notes

LIMIT = 2**20
"""Maximum size of a response in bytes. A view that could exceed it truncates, pools or pages its data."""
MOST_CHARACTERS = 200_000
"""Maximum number of characters of an input text; the model's context limits the number of tokens."""

Text = Annotated[str, Field(min_length=1, max_length=MOST_CHARACTERS)]
"""Input text of a request."""
Name = Annotated[str, Field(min_length=1, max_length=100)]
"""Name such as dec.1.self.2."""
Pass = Literal["plain", "observed", "recomputed"]
"""Kind of forward pass that computed the numbers of a response, in its field `pass`.

"plain": an ordinary forward pass. "observed": a pass that recorded scores and patterns, so that attention was computed
step by step. "recomputed": the text is too long to record them; for the shown rows, the layer's attention was computed
again from the queries, keys and values of the pass. In a shared file the kind is "browser".
"""


class ViewQuestion(BaseModel):
    """Base class of the request bodies of views; unknown fields and numbers that are not finite are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def read_texts(self) -> tuple[list[str], list[str | None]]:
        """Return the texts of the user that the model reads, and the targets."""
        return [], []


class TextQuestion(ViewQuestion):
    """Request about a text.

    Attributes:
        text: input text of the model, with [MASK] for a run of task masked.
        target: target for a run that translates or summarizes; None: the model's greedy output.
    """

    text: Text
    target: Text | None = None

    def read_texts(self) -> tuple[list[str], list[str | None]]:
        """Return the text and the target."""
        return [self.text], [self.target]


@dataclass(frozen=True, eq=False)
class Binary:
    """Binary response.

    It is sent as `application/octet-stream`: four bytes with the length of the header, little-endian; the header as
    UTF-8 JSON, padded with spaces so that the data begins at a multiple of 8 bytes; the data.

    Attributes:
        header: description of the data.
        data: numbers, little-endian.
    """

    header: dict[str, Any]
    data: bytes

    def packed(self) -> bytes:
        """Return the bytes to send."""
        text = json.dumps(finite(self.header), ensure_ascii=False, allow_nan=False).encode("utf-8")
        text += b" " * (-(4 + len(text)) % 8)
        return len(text).to_bytes(4, "little") + text + self.data

    @classmethod
    def unpacked(cls, body: bytes) -> Binary:
        """Decode the bytes that `packed` returned."""
        start = 4 + int.from_bytes(body[:4], "little")
        return cls(json.loads(body[4:start]), body[start:])


class Reply(NamedTuple):
    """Body of a response.

    Attributes:
        body: UTF-8 JSON, or a packed `Binary`.
        binary: whether the body is a packed `Binary`.
    """

    body: bytes
    binary: bool


Q = TypeVar("Q", bound=ViewQuestion)


def no_others(question: ViewQuestion) -> Sequence[str]:
    """Return an empty sequence: the default of `PageView.others`, for views that need no other run."""
    return ()


@dataclass(frozen=True)
class PageView(Generic[Q]):
    """One view of the web page: its request body, the function that computes its response, and its script.

    Attributes:
        question: class of the request body.
        answer: function that returns the data of the response; the caller holds the locks of all runs of the request.
        python: function that returns a short script that prints the same numbers with the library's public functions.
        others: function that returns the names of other runs that the view needs; their loaded checkpoints are passed
            to `answer` and `python`.
    """

    question: type[Q]
    answer: Callable[Concatenate[ServedModel, Q, ...], dict[str, Any] | Binary]
    python: Callable[Concatenate[ServedModel, Q, ...], str]
    others: Callable[[Q], Sequence[str]] = no_others

    def parse(self, body: bytes) -> Q:
        """Parse a JSON body.

        Raises:
            GlassError: the body is not valid; the error names the first problem.
        """
        try:
            return self.question.model_validate_json(body)
        except ValidationError as error:
            remedy = "See GET /api/views for the fields of each view and their bounds."
            raise from_validation_error(error, remedy) from None

    def reply(
        self,
        opened: ServedModel,
        question: Q,
        others: Sequence[ServedModel] = (),
        is_disconnected: Callable[[], bool] = lambda: False,
    ) -> Reply:
        """Return the body of the response: the data of the view with `run`, `version`, `python` and `text_notes`.

        `text_notes` lists the notes on the text of the request, such as characters that the tokenizer does not know.
        Locks are acquired in the order of the runs' names, so that two requests cannot deadlock.

        Args:
            opened: loaded checkpoint of the run.
            question: the parsed request.
            others: loaded checkpoints of the other runs that the view needs.
            is_disconnected: function that returns True if the client has disconnected; called after the locks are
                acquired.

        Raises:
            GlassError: the request does not fit the run, the response is larger than `LIMIT`, or the client has
                disconnected.
        """
        with ExitStack() as locks:
            for each in sorted((opened, *others), key=lambda run: run.name):
                locks.enter_context(each.lock)
            # a user who moves through a text sends many requests, and waits only for the last response
            if is_disconnected():
                raise RefusedRequestError("the client has disconnected", "Send the request again.", 499)
            answer = self.answer(opened, question, *others)
            python = self.python(opened, question, *others)
        notes = [note for each in (opened, *others) for note in text_notes(each.model, *question.read_texts())]
        metadata = {
            "run": opened.name,
            "version": opened.version,
            "python": python,
            "text_notes": list(dict.fromkeys(notes)),
        }
        if isinstance(answer, Binary):
            reply = Binary({**answer.header, **metadata}, answer.data).packed()
        else:
            text = json.dumps(finite({**answer, **metadata}), ensure_ascii=False, allow_nan=False)
            reply = text.encode("utf-8", "backslashreplace")
        if len(reply) > LIMIT:
            raise RefusedRequestError(
                f"the response has {len(reply):,} bytes, but at most {LIMIT:,} are allowed",
                "Request less data at once.",
            )
        return Reply(reply, isinstance(answer, Binary))


def script(opened: ServedModel, *lines: str, imports: Sequence[str] = ()) -> str:
    """Return the script of a view: imports, lines that load the run into `run` and `model`, and the given lines."""
    library_imports = sorted(
        [line for line in imports if "glassformer" in line] + ["from glassformer.runs.opening import OpenedRun"]
    )
    other_imports = [line for line in imports if "glassformer" not in line]
    all_imports = [*other_imports, "", *library_imports] if other_imports else library_imports
    load = [f"run = OpenedRun.load({str(opened.folder)!r})", "model = run.text_model"]
    return "\n".join([*all_imports, "", *load, *lines]) + "\n"
