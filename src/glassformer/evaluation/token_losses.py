"""One text before one run: what each token costs it, and what it answers.

Whatever can be asked of a run can be asked with `forward` in the place of its model's own pass: with parts switched off
(see `ablation`), say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glassformer.base.errors import GlassError
from glassformer.base.wording import span
from glassformer.evaluation.probes.row_probabilities import PSEUDO, token_ends
from glassformer.generation.decoding import check_finite
from glassformer.generation.logit_readers import next_logits as read_next_logits
from glassformer.inspection.explain.sections import shown
from glassformer.inspection.explain.subject import Subject
from glassformer.model.evaluation_mode import inference
from glassformer.tasks import AnyTextModel, ChatModel, MaskFiller, TextClassifier, TextModel, Translator
from glassformer.tasks.losses import logits_of, token_losses, tokens_at_once
from glassformer.tasks.task_rows import MOST_TOKENS, groups
from glassformer.text.batches import Batch
from glassformer.text.rows import Row

Forward = Callable[..., Tensor]

MOST_HOLES = 512
"""Tokens that are hidden in turn: each takes a pass over the whole text."""
LEFT = "each token, after those that stand before it"
TARGET = "each token of the target, after those before it, with the source in sight"
NO_PROBABILITY = "a classifier gives the tokens of a text no probability"
NOT_LEARNT = "the run was trained on answers only: the tokens of a question have no loss"
"""Reason shown where a chat run has no loss."""


@dataclass(frozen=True)
class Surprisals:
    """The surprisal of each token of a text.

    Attributes:
        tokens: n ids: of the text, or of the target with the end token that ends it.
        labels: the text of each.
        writes: whether each stands for characters of the text, as special tokens do not.
        nats: -ln P of each; None where the run gives it none.
        ends: for each token, one past the last character of the text that it touches.
        text: what the tokens stand for.
        how: what a probability is given: in words.
    """

    tokens: tuple[int, ...]
    labels: tuple[str, ...]
    writes: tuple[bool, ...]
    nats: tuple[float | None, ...]
    ends: tuple[int, ...]
    text: str
    how: str

    @property
    def mean(self) -> float | None:
        """Nats per token that has a probability; None where none has."""
        known = [nats for nats in self.nats if nats is not None]
        return sum(known) / len(known) if known else None


@dataclass(frozen=True)
class Outlook:
    """The prediction of a run at one place of a text.

    Attributes:
        what: which answer this is, in words.
        place: where its logits stand in the row; 0 of a classifier.
        shares: (V) float64 over all tokens, or (classes); special tokens that are no candidates have 0.
        name: the text of a token, or of a class.
    """

    what: str
    place: int
    shares: Tensor
    name: Callable[[int], str]

    def best(self, n: int) -> list[int]:
        """The n likeliest, likeliest first; of equals the lower number."""
        return self.shares.sort(descending=True, stable=True).indices[:n].tolist()


def surprisals(model: AnyTextModel, text: str, target: str | None = None, forward: Forward | None = None) -> Surprisals:
    """Return the surprisal of each token of a text; of a run that writes for a source, of each token of the target.

    A run that fills holes has each token hidden in turn, with all others in sight; its holes have no token to cost. The
    text of a chat run is a question, whose tokens have no loss.

    Args:
        model: the run.
        text: what it reads.
        target: of a run that translates or summarizes.
        forward: called in the model's place.

    Raises:
        GlassError: the text or the target is longer than the context (of a filler, than `MOST_HOLES`), or a target is
            missing or too much.
    """
    if (target is not None) != isinstance(model, Translator):
        what = "a target was given" if target is not None else "no target was given"
        remedy = "Give one for translate, summarize (the text) and classify (the label); leave it out for other tasks."
        raise GlassError(f"{what} to a run of train.task = {model.config.train.task}", remedy)
    tokenizer = model.tokenizer
    if isinstance(model, Translator):
        assert target is not None
        tokens = [*tokenizer.encode(target), tokenizer.end_id]
        row = [*tokenizer.target_start, *tokens]
        _refuse_long(len(row) - 1, model)
        pair = Row.of_text(np.array(row), source=np.array(model.prompt_ids(text)))
        nats = _left_to_right(model, Batch.from_rows([pair]), forward)[-len(tokens) :]
        how = TARGET
    elif isinstance(model, TextModel):
        tokens = model.prompt_ids(text)
        _refuse_long(len(tokens), model)
        nats = [None] * len(tokens)
        how = NOT_LEARNT
        if not isinstance(model, ChatModel):
            how = LEFT
            if len(tokens) > 1:
                whole = Row.of_text(np.array(tokens))
                nats = [None, *_left_to_right(model, Batch.from_rows([whole]), forward)]
    else:
        tokens = framed_ids(model, text)
        _refuse_long(len(tokens), model)
        if isinstance(model, MaskFiller) and len(tokens) > MOST_HOLES:
            raise GlassError(
                f"each of {len(tokens):,} tokens would be hidden in turn, which takes as many passes",
                f"Give a text of at most {MOST_HOLES} tokens.",
            )
        nats = _hidden_in_turn(model, tokens, forward) if isinstance(model, MaskFiller) else [None] * len(tokens)
        how = PSEUDO if isinstance(model, MaskFiller) else NO_PROBABILITY
    return Surprisals(
        tokens=tuple(tokens),
        labels=tuple(map(tokenizer.token_text, tokens)),
        writes=tuple(id not in tokenizer.special for id in tokens),
        nats=tuple(nats),
        ends=tuple(token_ends(tokenizer, tokens)),
        text=tokenizer.decode(tokens),
        how=how,
    )


def framed_ids(model: TextClassifier | MaskFiller, text: str) -> list[int]:
    """Return the tokens that an encoder reads; of a text without holes, too."""
    if isinstance(model, MaskFiller) and model.MASK in text:
        return model.ids(text)
    return list(model.frame.around(model.tokenizer.encode(text)))


def _refuse_long(tokens: int, model: AnyTextModel) -> None:
    context = model.config.model.context
    if tokens > context:
        raise GlassError(f"the text has {tokens:,} tokens, the model reads {context:,}", "Give a shorter one.")


def _left_to_right(model: AnyTextModel, batch: Batch, forward: Forward | None) -> list[float | None]:
    """The nats of all targets of one row."""
    device = model.model.embedding.tokens.weight.device
    with inference(model.model):
        batch = batch.to(device)
        found: list[float | None] = token_losses(logits_of(model.model, batch, forward), batch)[0].double().tolist()
    return found


def _hidden_in_turn(model: MaskFiller, tokens: Sequence[int], forward: Forward | None) -> list[float | None]:
    """The nats of each token that stands for text, hidden alone."""
    row = np.array(tokens)
    device = model.model.embedding.tokens.weight.device
    places = [place for place, token in enumerate(tokens) if token not in model.tokenizer.special]
    rows = []
    nats: list[float] = []
    for place in places:
        chosen = np.arange(len(row)) == place
        rows.append(Row(np.where(chosen, model.mask_id, row), row, loss_mask=chosen))
    with inference(model.model):
        for group in groups(rows, min(MOST_TOKENS, tokens_at_once(model.model))):
            batch = Batch.from_rows(group).to(device)
            nats += token_losses(logits_of(model.model, batch, forward), batch).sum(dim=1).double().tolist()  # (B)
    found: list[float | None] = [None] * len(tokens)
    for place, each in zip(places, nats, strict=True):
        found[place] = each
    return found


def outlook(model: AnyTextModel, subject: Subject, forward: Forward | None = None, first: bool = False) -> Outlook:
    """Return the prediction of a run: after a text, after a target, in the first hole, or of a text.

    Args:
        model: the run.
        subject: what it reads.
        forward: called in the model's place.
        first: of a run that writes for a source, the first token of the target instead.
    """
    call: Forward = model.model if forward is None else forward
    device = model.model.embedding.tokens.weight.device
    tokens = torch.tensor([subject.ids], device=device)  # (1, T), or a source's (1, S)
    with inference(model.model):
        if subject.target_ids is None:
            logits = call(tokens)  # (1, T, V) or (1, C)
        else:
            logits = call(tokens, torch.tensor([subject.target_ids], device=device))  # (1, T, V)
    check_finite(logits)
    first = first and isinstance(model, Translator)
    place = 0 if isinstance(model, TextClassifier) else _place(model, subject, first)
    row = (logits[0] if isinstance(model, TextClassifier) else logits[0, place]).cpu().double()  # (V) or (C)
    if subject.special:
        row = row.index_fill(0, torch.tensor(subject.special), -torch.inf)
    return Outlook(_what(model, first), place, row.softmax(dim=-1), subject.name)


def _place(model: AnyTextModel, subject: Subject, first: bool) -> int:
    """Return the place to predict: a filler's first hole, else the last place; or the first that is written."""
    if first:
        assert isinstance(model, Translator)
        return len(model.tokenizer.target_start) - 1
    return subject.places[0] if isinstance(model, MaskFiller) else subject.places[-1]


def _what(model: AnyTextModel, first: bool) -> str:
    if isinstance(model, ChatModel):
        return "the first token of the answer"
    if isinstance(model, TextModel):
        return "the next token"
    if isinstance(model, Translator):
        return "the first token of the target" if first else "the next token of the target"
    return "the first [MASK]" if isinstance(model, MaskFiller) else "the label"


def guess(model: AnyTextModel, text: str, place: int) -> Outlook:
    """Predict one token of a text from the tokens before it, or from both sides.

    Args:
        model: a run that continues text, or fills holes.
        text: as for `surprisals`.
        place: of the token in what `surprisals` gives.

    Raises:
        GlassError: the run does neither, there is no such token, or nothing stands before it that a decoder could read.
    """
    if not isinstance(model, TextModel | MaskFiller):
        raise GlassError(
            f"a run of train.task = {model.config.train.task} guesses no token of the text itself",
            "Give one that continues text, or fills holes.",
        )
    tokens = model.prompt_ids(text) if isinstance(model, TextModel) else framed_ids(model, text)
    _refuse_long(len(tokens), model)
    first, reads_left = (1, True) if isinstance(model, TextModel) else (0, False)
    if not first <= place < len(tokens):
        raise GlassError(f"no token {place} to guess", f"Give {span(first, len(tokens) - 1)}.")
    device = model.model.embedding.tokens.weight.device
    row = tokens[:place] if reads_left else [*tokens[:place], model.tokenizer.mask_id, *tokens[place + 1 :]]
    with inference(model.model):
        logits = model.model(torch.tensor([row], device=device))[0, place - 1 if reads_left else place]  # (V)
    check_finite(logits)
    logits = logits.cpu().double()
    if not reads_left:
        logits = logits.index_fill(0, torch.tensor(sorted(model.tokenizer.special)), -torch.inf)
    what = f"token {place}, from what stands before it" if reads_left else f"token {place}, from both sides"
    return Outlook(what, place, logits.softmax(dim=-1), lambda id: shown(model.tokenizer.token_text(id)))


@dataclass(frozen=True)
class After:
    """Logits that a run samples the next token from.

    Attributes:
        logits: (V) on the CPU.
        read: the tokens before it, of the text or of the target.
        previous: those of them that a repetition penalty counts.
        step: which token of what is written it is, from 1: so many random numbers a draw has used by then.
    """

    logits: Tensor
    read: tuple[int, ...]
    previous: tuple[int, ...]
    step: int


def next_logits(model: TextModel | Translator, text: str, target: str | None = None) -> After:
    """The logits of the token after a text, as `glass generate` has them; or of the next token of a target.

    Args:
        model: a run that writes.
        text: to go on after, or the source.
        target: what was written for the source so far; None or "": nothing.

    Raises:
        GlassError: a target was given where there is none, or it is longer than the context.
    """
    ids = model.prompt_ids(text)
    tokenizer = model.tokenizer
    if isinstance(model, Translator):
        written = tokenizer.encode(target or "")
        row = [*tokenizer.target_start, *written]
        _refuse_long(len(row), model)
        with inference(model.model):
            logits = read_next_logits(model.model, [row], [ids])[0].cpu()  # (V)
        return After(logits, tuple(row), tuple(written), len(written) + 1)
    if target is not None:
        raise GlassError("a target was given to a run that continues text", "Leave it out.")
    with inference(model.model):
        logits = read_next_logits(model.model, [ids])[0].cpu()  # (V)
    return After(logits, tuple(ids), tuple(ids), 1)
