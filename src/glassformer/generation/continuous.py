"""Continuous batching: rows join and leave a running batch at any step, and one forward pass serves them all.

Orca (Yu et al. 2022, section 3.1) calls it iteration-level scheduling. A step has two parts:

* **New rows are read**, as many as `reads` tokens allow; a longer prompt is read in pieces, over
  several steps. So those who are already writing wait for no more than `reads` tokens, and those who wait are read in
  the order they came. A row that is read to its end gets its first token in the same step, and then a slot.
* **All rows with slots get one more token.** A row that hops (see `generation.context`) gives its slot up and is read
  again, before the rows that are new.

What a row becomes depends on the weights, its prompt and its settings, its seed among them; not on the others, or on
when it came. It is what `generate` and `translate` write for it alone, but for float rounding as said there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.base.config import SampleConfig
from glassformer.base.errors import GlassError
from glassformer.generation.context import window_start
from glassformer.generation.decoding import (
    Ended,
    Row,
    Step,
    check_finite,
    check_prompts,
    check_sources,
    choose,
    row_of_prompt,
    row_of_source,
)
from glassformer.generation.fast import LAYOUT_STEPS, fast_decoder
from glassformer.generation.rows import batches_by_length
from glassformer.generation.slots import SlotCache
from glassformer.generation.targets import most_tokens, padded
from glassformer.model.cache import Cache
from glassformer.model.evaluation_mode import inference
from glassformer.model.transformer import Decoder, EncoderDecoder

READS = 512  # tokens of new rows that are read in one step
TOGETHER = 4  # rows that are read beside one another: with more, a processor is no faster, and there is more padding


@dataclass
class _Member:
    """A row of the batch."""

    row: Row
    source: list[int]  # of a target; empty where a prompt goes on
    left: int  # tokens that may still come
    context: int
    start: int = 0  # the first token that is seen, as the cache has it

    def seen(self) -> list[int]:
        """The tokens that are to be read before the next one comes."""
        return self.source or self.row.tokens[self.start :]

    def hops(self) -> bool:
        """Move the window if the row has grown out of it, and return whether it has."""
        before = self.start
        self.start = 0 if self.source else window_start(len(self.row.tokens), self.context)
        return self.start != before

    def columns(self) -> int:
        """Return the tokens that its slot must hold, at most."""
        return min(self.context, len(self.row.tokens) - self.start + self.left)


@dataclass
class _Reading:
    """Rows that are being read, beside one another; shorter ones are padded on the right, where nobody looks."""

    members: list[_Member]
    tokens: Tensor  # (B, T)
    real: Tensor | None  # (B, T); None: all
    cache: Cache
    done: int = 0  # columns that were read


class Batch:
    """A running batch of one model's rows.

    Args:
        model: its mode and gradients are left as they are. Between two steps it may not be changed: copies of its
            weights, laid out for speed, are kept.
        end_id: ends a row; None: no token does.
        start: begins the targets of an encoder-decoder; empty: the end token does.
        reads: most tokens of new rows that one step reads.

    Not safe to be used by several threads at once.

    Raises:
        GlassError: targets are to be written, and nothing begins them.
    """

    def __init__(
        self, model: Decoder | EncoderDecoder, end_id: int | None, start: Sequence[int] = (), reads: int = READS
    ) -> None:
        self.model = model
        self.end_id = end_id
        self.reads = reads
        self.start = list(start) or ([] if end_id is None else [end_id])
        if isinstance(model, EncoderDecoder) and not self.start:
            raise GlassError("no token begins the targets", "Give the end token, or what targets begin with.")
        self.parts = list(model.modules())
        self.fast = fast_decoder(model, LAYOUT_STEPS)
        self.weight = model.embedding.tokens.weight
        self.dtype = self.weight.dtype if self.fast is None else self.fast.cache_type
        self.waiting: deque[_Member] = deque()
        self.being_read: _Reading | None = None
        self.writing: list[_Member] = []  # in the order of their slots
        self.slots: SlotCache | None = None
        self.members: dict[int, _Member] = {}
        self.count = 0

    def __len__(self) -> int:
        """Rows that have not ended."""
        return len(self.members)

    def join(self, prompt: Sequence[int], settings: SampleConfig) -> int:
        """Take a row in: a prompt, or the source of a target. Returns the number by which steps name it.

        Raises:
            GlassError: the model cannot read it: as `generate` and `translate` say.
        """
        model = self.model
        index = self.count
        source: list[int] = []
        if isinstance(model, Decoder):
            check_prompts(model, [prompt])
            row = row_of_prompt(model, index, prompt, settings, settings.seed)
            most = settings.tokens
        else:
            check_sources(model, [prompt])
            row = row_of_source(model, index, self.start, settings, settings.seed)
            source = list(prompt)
            most = most_tokens(model, settings, len(self.start))
        member = _Member(row, source, most, model.config.context)
        member.hops()
        self.members[index] = member
        self.waiting.append(member)
        self.count += 1
        return index

    def leave(self, index: int) -> None:
        """Forget a row that has not ended: its slot is free from the next step on. Of others nothing is to forget."""
        self.members.pop(index, None)
        if not self.members:  # what is left is nobody's: its memory, too
            self.writing = []
            self.being_read = None
            self.slots = None
            self.waiting.clear()

    def step(self) -> Step:
        """One more token for each row that was read to its end.

        Raises:
            GlassError: the logits are not finite.
        """
        with inference(self.model, self.parts):
            self._free_slots()
            rows = [*self.writing]
            found = [self._read_on()] if self.writing else []
            new, of_new = self._read_new()
            rows = [*rows, *new]
            found = [*found, *of_new]
        if not rows:
            return Step((), (), self.weight.new_empty(0, self.model.vocab_size), {})
        whole = torch.cat(found)  # (rows, V)
        check_finite(whole)
        tokens = choose(whole, [member.row for member in rows])
        ended: dict[int, Ended] = {}
        for member, token in zip(rows, tokens, strict=True):
            member.row.tokens.append(token)
            member.left -= 1
            if token == self.end_id or not member.left:
                ended[member.row.index] = "end" if token == self.end_id else "length"
                self.leave(member.row.index)
        return Step(tuple(member.row.index for member in rows), tuple(tokens), whole, ended)

    def _free_slots(self) -> None:
        """Free the slots of rows that have left or ended; rows that hop are read again, before all that wait."""
        for slot in reversed(range(len(self.writing))):
            member = self.writing[slot]
            gone = member.row.index not in self.members
            if not gone and not member.hops():
                continue
            assert self.slots is not None  # where those who write are
            self.slots.remove(slot)
            self.writing[slot] = self.writing[-1]
            self.writing.pop()
            if not gone:
                self.waiting.appendleft(member)
        self.waiting = deque(member for member in self.waiting if member.row.index in self.members)

    def _read_on(self) -> Tensor:
        """The logits (B, V) after the last token of each row that has a slot."""
        assert self.slots is not None
        last = torch.tensor([member.row.tokens[-1] for member in self.writing], device=self.weight.device)  # (B)
        if self.fast is not None and self.fast.applies():
            real_memory = self.slots.real_memory
            return self.fast(last, self.slots, real_memory)
        if isinstance(self.model, Decoder):
            return self.model(last[:, None], None, self.slots)[:, 0]  # (B, V)
        memory = self.weight.new_empty(len(last), 0, self.weight.shape[1])  # its keys and values are in the slots
        return self.model.decode(last[:, None], memory, self.slots.real_memory, self.slots)[:, 0]  # (B, V)

    def _read_new(self) -> tuple[list[_Member], list[Tensor]]:
        """Read on in what is new: the rows that were read to their end, and the logits (rows, V) that follow them."""
        members: list[_Member] = []
        found: list[Tensor] = []
        for now in self._next_readings() if self.being_read is None else [self.being_read]:
            logits = self._read_targets(now) if isinstance(self.model, EncoderDecoder) else self._read_prompts(now)
            kept = [place for place, member in enumerate(now.members) if member.row.index in self.members]
            self.being_read = now if logits is None and kept else None
            if logits is not None and kept:
                members += self._give_slots(now, kept)
                found.append(logits[kept])
        return members, found

    def _give_slots(self, now: _Reading, kept: list[int]) -> list[_Member]:
        """Rows that were read begin to write."""
        members = [now.members[place] for place in kept]
        if self.slots is None:
            self.slots = SlotCache(self.model.config, self.weight.device, self.dtype)
        lengths = [len(member.seen()) for member in members]
        seen: list[int] = []
        if isinstance(self.model, EncoderDecoder):
            seen = lengths
            lengths = [len(self.start)] * len(kept)
        self.slots.add(now.cache, kept, lengths, max(member.columns() for member in members), seen)
        self.writing += members
        return members

    def _next_readings(self) -> list[_Reading]:
        """The rows that have waited longest, as many as one step can read; those of like length stand together."""
        members: list[_Member] = []
        room = self.reads
        while self.waiting and (not members or len(self.waiting[0].seen()) <= room):
            room -= len(self.waiting[0].seen())
            members.append(self.waiting.popleft())
        groups = batches_by_length([len(member.seen()) for member in members], TOGETHER)
        return [self._reading([members[place] for place in group]) for group in groups]

    def _reading(self, members: list[_Member]) -> _Reading:
        tokens, real = padded([member.seen() for member in members], self.weight.device)  # (B, T) each
        width = tokens.shape[1] if isinstance(self.model, Decoder) else len(self.start)
        return _Reading(members, tokens, real, Cache(self.model.config, len(members), width, tokens.device, self.dtype))

    def _read_prompts(self, now: _Reading) -> Tensor | None:
        """The logits (B, V) after the prompts, once they are all read; till then None."""
        assert isinstance(self.model, Decoder)
        rows, width = now.tokens.shape
        piece = self.reads if rows == 1 else width  # several rows are short enough to be read at once
        chunk = now.tokens[:, now.done : now.done + piece]  # (B, T)
        x = self.model.stack(chunk, self.model.embedding, cache=now.cache)  # (B, T, D)
        before = now.done
        now.done = now.done + chunk.shape[1]
        if now.done < width:
            return None
        last = torch.tensor([len(member.seen()) - 1 - before for member in now.members], device=x.device)  # (B)
        x = x[torch.arange(rows, device=x.device), last]  # (B, D)
        return self.model.head(x[:, None], self.model.embedding)[:, 0]  # (B, V)

    def _read_targets(self, now: _Reading) -> Tensor:
        """The first logits (B, V) of the targets, after their sources were read."""
        assert isinstance(self.model, EncoderDecoder)
        memory = self.model.encode(now.tokens, now.real)  # (B, S, D)
        start = torch.tensor([self.start] * len(memory), device=memory.device)  # (B, T)
        return self.model.decode(start, memory, now.real, now.cache)[:, -1]  # (B, V)
