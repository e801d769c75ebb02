"""Rows that join and leave a token loop, and a check that each row equals the same row decoded alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st
from torch import Tensor

from glassformer.base.config import SampleConfig
from glassformer.generation.decoding import TokenLoop, TokenStep, generate
from glassformer.model.transformer import Decoder, EncoderDecoder
from tests.property.models import tokens

END = 4
WAYS = (
    SampleConfig(temperature=0, tokens=9),
    SampleConfig(temperature=1.0, tokens=40, seed=3),
    SampleConfig(temperature=0.7, top_k=20, top_p=0.95, repetition_penalty=1.1, tokens=25, seed=2**40),
    SampleConfig(temperature=0, repetition_penalty=1.3, tokens=1),
    SampleConfig(temperature=1.5, top_p=0.9, tokens=50, seed=11),
)
"""Sampling settings of the rows; a row with the longest prompt grows to about three times the context."""


@dataclass
class Guest:
    """A row: its prompt, its sampling settings, the steps at which it joins and may be cancelled, and its results."""

    prompt: list[int]
    how: SampleConfig
    comes: int
    goes: int | None = None
    written: list[int] = field(default_factory=list)
    logits: list[Tensor] = field(default_factory=list)
    ended: str | None = None


def guests(longest: int) -> st.SearchStrategy[list[Guest]]:
    """Return a strategy for one to seven guests, of which several are often in the loop at once."""
    prompt = st.builds(
        lambda length, seed: tokens(1, length, seed)[0].tolist(), st.integers(1, longest), st.integers(0, 99)
    )
    goes = st.none() | st.integers(0, 30)
    guest = st.builds(Guest, prompt, st.sampled_from(WAYS), st.integers(0, 20), goes)
    return st.lists(guest, min_size=1, max_size=7)


def play(loop: TokenLoop, visitors: list[Guest]) -> None:
    """Let the guests join and leave until all have ended."""
    inside: dict[int, Guest] = {}
    waiting = sorted(visitors, key=lambda guest: guest.comes)
    for clock in range(2000):
        while waiting and waiting[0].comes <= clock:
            guest = waiting.pop(0)
            inside[loop.join(guest.prompt, guest.how)] = guest
        for number, guest in inside.items():
            if guest.goes is not None and clock >= guest.comes + guest.goes and guest.ended is None:
                loop.leave(number)
                guest.ended = "gone"
        if len(loop):
            note(loop.step(), inside)
        elif not waiting:
            return
    raise AssertionError("some never end")


def note(step: TokenStep, inside: dict[int, Guest]) -> None:
    for number, token, logits in zip(step.rows, step.tokens, step.logits, strict=True):
        assert inside[number].ended is None
        inside[number].written.append(token)
        inside[number].logits.append(logits)
        inside[number].ended = step.ended.get(number)


def alone(model: Decoder | EncoderDecoder, guest: Guest) -> list[TokenStep]:
    """Return the steps of a row that is decoded alone."""
    return list(generate(model, [guest.prompt], guest.how, END))


def agree(model: Decoder | EncoderDecoder, guest: Guest, close: float = 1e-5) -> None:
    """Compare tokens, logits (to `close`) and end reasons; a cancelled row is compared up to its last step."""
    steps = alone(model, guest)
    if guest.ended == "gone":
        steps = steps[: len(guest.written)]
    else:
        assert guest.ended == steps[-1].ended[0]
    assert guest.written == [step.tokens[0] for step in steps]
    for logits, step in zip(guest.logits, steps, strict=True):
        assert (logits - step.logits[0]).abs().max() <= close


def some_guests(longest: int) -> list[Guest]:
    lengths = [1, 7, longest, 12, 3]
    return [Guest(tokens(1, length, seed=at)[0].tolist(), WAYS[at], 2 * at) for at, length in enumerate(lengths)]
