"""Compute one run's surprisal of each token of a text, and its predictions.

`surprisals` and `predict` accept a `forward` function to call instead of the model, for example with ablated components
(see `inspection.ablation`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glassformer.base.errors import GlassError
from glassformer.base.wording import span, visible_text
from glassformer.evaluation.probes.row_probabilities import PSEUDO, token_ends
from glassformer.generation.decoding import check_finite
from glassformer.generation.logit_readers import next_logits as read_next_logits
from glassformer.inspection.explain.subject import Subject
from glassformer.model.evaluation_mode import inference
from glassformer.tasks import AnyTextModel, ChatModel, MaskFiller, TextClassifier, TextModel, Translator
from glassformer.tasks.losses import logits_of, token_losses, tokens_at_once
from glassformer.tasks.task_rows import MOST_TOKENS, groups
from glassformer.text.batches import Batch
from glassformer.text.rows import Row

Forward = Callable[..., Tensor]

MAX_MASKED_TOKENS = 512
"""Maximum number of tokens to mask one at a time; each token takes a forward pass over the whole text."""
LEFT = "each token given the tokens before it"
TARGET = "each token of the target given the source and the target tokens before it"
NO_PROBABILITY = "a classifier assigns no probability to the tokens of a text"
NOT_LEARNED = "the run was trained on answers only: the tokens of a question have no loss"
"""Reason shown where a chat run has no loss."""


@dataclass(frozen=True)
class Surprisals:
    """The surprisal of each token of a text.

    Attributes:
        tokens: n token ids of the text, or of the target with its end token.
        labels: text of each token.
        writes: whether each token represents characters of the text; False for special tokens and unknown tokens.
        nats: -ln P of each token; None if the run assigns it no probability.
        ends: end of each token in the text: one past the last character to which the token contributes.
        text: decoded text of the tokens.
        conditioning: description of what each probability is conditioned on.
    """

    tokens: tuple[int, ...]
    labels: tuple[str, ...]
    writes: tuple[bool, ...]
    nats: tuple[float | None, ...]
    ends: tuple[int, ...]
    text: str
    conditioning: str

    @property
    def mean(self) -> float | None:
        """Mean nats of the tokens that have a probability; None if no token has one."""
        defined = [nats for nats in self.nats if nats is not None]
        return sum(defined) / len(defined) if defined else None


@dataclass(frozen=True)
class Prediction:
    """The prediction of a run at one position of a text.

    Attributes:
        what: name of the prediction, such as "the next token".
        position: position of the prediction's logits in the row or, from `predict_token`, of the predicted token; 0 for
            a classifier.
        probabilities: (V) or (classes) float64 probabilities; special tokens that cannot be predicted have 0.
        name: function that returns the text of a token, or the name of a class.
    """

    what: str
    position: int
    probabilities: Tensor
    name: Callable[[int], str]

    def best(self, n: int) -> list[int]:
        """Return the ids of the n most probable tokens or classes, most probable first; ties go to the lower id."""
        return self.probabilities.sort(descending=True, stable=True).indices[:n].tolist()


def surprisals(model: AnyTextModel, text: str, target: str | None = None, forward: Forward | None = None) -> Surprisals:
    """Return the surprisal of each token of a text, or of the target for a run that translates or summarizes.

    The first token that a language model reads has no surprisal. For a masked language model, each token is masked in
    turn while all others are visible; unknown tokens and special tokens, such as masks that are already in the text,
    have no surprisal. For a chat run, the text is a question, whose tokens have no loss. A classifier assigns no
    probability to tokens.

    Args:
        model: the run.
        text: input text, or the source, which is cut to the context.
        target: target text, for a run that translates or summarizes.
        forward: function that is called instead of the model; None: the model.

    Raises:
        GlassError: the text or the target is longer than the context (or, for a masked language model, than
            `MAX_MASKED_TOKENS`), a target is missing, or the task takes no target.
    """
    if (target is not None) != isinstance(model, Translator):
        problem = "a target was given" if target is not None else "no target was given"
        remedy = "Give a target for the tasks translate and summarize, and leave it out for other tasks."
        raise GlassError(f"{problem} to a run of train.task = {model.config.train.task}", remedy)
    tokenizer = model.tokenizer
    if isinstance(model, Translator):
        assert target is not None
        tokens = [*tokenizer.encode(target), tokenizer.end_id]
        row = [*tokenizer.target_start, *tokens]
        _refuse_long(len(row) - 1, model, "target")
        pair = Row.of_text(np.array(row), source=np.array(model.prompt_ids(text)))
        nats = _left_to_right(model, Batch.from_rows([pair]), forward)[-len(tokens) :]
        how = TARGET
    elif isinstance(model, TextModel):
        tokens = model.prompt_ids(text)
        _refuse_long(len(tokens), model)
        nats = [None] * len(tokens)
        how = NOT_LEARNED
        if not isinstance(model, ChatModel):
            how = LEFT
            if len(tokens) > 1:
                text_row = Row.of_text(np.array(tokens))
                nats = [None, *_left_to_right(model, Batch.from_rows([text_row]), forward)]
    else:
        tokens = framed_ids(model, text)
        _refuse_long(len(tokens), model)
        if isinstance(model, MaskFiller) and len(tokens) > MAX_MASKED_TOKENS:
            raise GlassError(
                f"the text has {len(tokens):,} tokens, and each token would need a separate forward pass",
                f"Give a text of at most {MAX_MASKED_TOKENS} tokens.",
            )
        nats = _masked_in_turn(model, tokens, forward) if isinstance(model, MaskFiller) else [None] * len(tokens)
        how = PSEUDO if isinstance(model, MaskFiller) else NO_PROBABILITY
    return Surprisals(
        tokens=tuple(tokens),
        labels=tuple(map(tokenizer.token_text, tokens)),
        writes=tuple(id not in tokenizer.special for id in tokens),
        nats=tuple(nats),
        ends=tuple(token_ends(tokenizer, tokens)),
        text=tokenizer.decode(tokens),
        conditioning=how,
    )


def framed_ids(model: TextClassifier | MaskFiller, text: str) -> list[int]:
    """Return the token ids that an encoder reads, including special tokens; the text may or may not contain masks."""
    if isinstance(model, MaskFiller) and model.MASK in text:
        return model.ids(text)
    return list(model.frame.around(model.tokenizer.encode(text)))


def _refuse_long(tokens: int, model: AnyTextModel, name: str = "text") -> None:
    context = model.config.model.context
    if tokens > context:
        raise GlassError(
            f"the {name} has {tokens:,} tokens, but the model reads at most {context:,}", f"Give a shorter {name}."
        )


def _left_to_right(model: AnyTextModel, batch: Batch, forward: Forward | None) -> list[float | None]:
    """Return the nats of all targets of a batch with one row."""
    device = model.model.embedding.tokens.weight.device
    with inference(model.model):
        batch = batch.to(device)
        nats: list[float | None] = token_losses(logits_of(model.model, batch, forward), batch)[0].double().tolist()
    return nats


def _masked_in_turn(model: MaskFiller, tokens: Sequence[int], forward: Forward | None) -> list[float | None]:
    """Return the nats of each token when only this token is masked; None for special tokens and unknown tokens."""
    row = np.array(tokens)
    device = model.model.embedding.tokens.weight.device
    positions = [position for position, token in enumerate(tokens) if token not in model.tokenizer.special]
    rows = []
    masked_nats: list[float] = []
    for position in positions:
        masked = np.arange(len(row)) == position
        rows.append(Row(np.where(masked, model.mask_id, row), row, loss_mask=masked))
    with inference(model.model):
        for group in groups(rows, min(MOST_TOKENS, tokens_at_once(model.model))):
            batch = Batch.from_rows(group).to(device)
            masked_nats += (
                token_losses(logits_of(model.model, batch, forward), batch).sum(dim=1).double().tolist()
            )  # (B)
    nats: list[float | None] = [None] * len(tokens)
    for position, value in zip(positions, masked_nats, strict=True):
        nats[position] = value
    return nats


def predict(model: AnyTextModel, subject: Subject, forward: Forward | None = None, first: bool = False) -> Prediction:
    """Return the prediction of a run: the next token of a text or target, the first mask, or the label.

    Args:
        model: the run.
        subject: the input.
        forward: function that is called instead of the model; None: the model.
        first: whether to predict the first token of the target, for a run that translates or summarizes.

    Raises:
        GlassError: the model's logits are not finite.
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
    position = 0 if isinstance(model, TextClassifier) else _position(model, subject, first)
    row = (logits[0] if isinstance(model, TextClassifier) else logits[0, position]).cpu().double()  # (V) or (C)
    if subject.special:
        row = row.index_fill(0, torch.tensor(subject.special), -torch.inf)
    return Prediction(_prediction_name(model, first), position, row.softmax(dim=-1), subject.name)


def _position(model: AnyTextModel, subject: Subject, first: bool) -> int:
    """Return the position to predict: the first mask, the last position, or the position of the first target token."""
    if first:
        assert isinstance(model, Translator)
        return len(model.tokenizer.target_start) - 1
    return subject.positions[0] if isinstance(model, MaskFiller) else subject.positions[-1]


def _prediction_name(model: AnyTextModel, first: bool) -> str:
    if isinstance(model, ChatModel):
        return "the first token of the answer"
    if isinstance(model, TextModel):
        return "the next token"
    if isinstance(model, Translator):
        return "the first token of the target" if first else "the next token of the target"
    return "the first [MASK]" if isinstance(model, MaskFiller) else "the label"


def predict_token(model: AnyTextModel, text: str, position: int) -> Prediction:
    """Predict one token of a text from the tokens before it, or from the tokens on both sides.

    Args:
        model: a language model or a masked language model.
        text: as in `surprisals`.
        position: index of the token in the result of `surprisals`.

    Raises:
        GlassError: the run has another task, the text is longer than the context, there is no such token, the
            token is the first that a decoder reads, or the model's logits are not finite.
    """
    if not isinstance(model, TextModel | MaskFiller):
        raise GlassError(
            f"a run of train.task = {model.config.train.task} does not predict tokens of the text",
            "Give a run of train.task = lm or masked.",
        )
    tokens = model.prompt_ids(text) if isinstance(model, TextModel) else framed_ids(model, text)
    _refuse_long(len(tokens), model)
    first_position, reads_left = (1, True) if isinstance(model, TextModel) else (0, False)
    if not first_position <= position < len(tokens):
        last_position = len(tokens) - 1
        positions = f"Give a position: {span(first_position, last_position)}."
        raise GlassError(
            f"there is no token to predict at position {position} (positions start at 0)",
            positions if first_position <= last_position else "Give a longer text.",
        )
    device = model.model.embedding.tokens.weight.device
    row = tokens[:position] if reads_left else [*tokens[:position], model.tokenizer.mask_id, *tokens[position + 1 :]]
    with inference(model.model):
        logits = model.model(torch.tensor([row], device=device))[0, position - 1 if reads_left else position]  # (V)
    check_finite(logits)
    logits = logits.cpu().double()
    if not reads_left:
        logits = logits.index_fill(0, torch.tensor(sorted(model.tokenizer.special)), -torch.inf)
    what = f"token {position}, from the tokens before it" if reads_left else f"token {position}, from both sides"
    return Prediction(what, position, logits.softmax(dim=-1), lambda id: visible_text(model.tokenizer.token_text(id)))


@dataclass(frozen=True)
class NextTokenLogits:
    """The logits from which a run samples the next token.

    Attributes:
        logits: logits (V) of the next token, on the CPU.
        read: the tokens before the next token, in the text or in the target.
        previous: the tokens to which a repetition penalty applies.
        step: index of the token to sample, from 1; sampling this token uses the random noise with the same index.
    """

    logits: Tensor
    read: tuple[int, ...]
    previous: tuple[int, ...]
    step: int


def next_logits(model: TextModel | Translator, text: str, target: str | None = None) -> NextTokenLogits:
    """Return the logits of the next token of a text, as used by `glass generate`, or of the next token of a target.

    Args:
        model: a run that generates text.
        text: prompt, or the source, which is cut to the context.
        target: beginning of the target; None: empty.

    Raises:
        GlassError: a target was given to a run without a source, or the target is longer than the context.
    """
    ids = model.prompt_ids(text)
    tokenizer = model.tokenizer
    if isinstance(model, Translator):
        target_ids = tokenizer.encode(target or "")
        row = [*tokenizer.target_start, *target_ids]
        _refuse_long(len(row), model, "target")
        with inference(model.model):
            logits = read_next_logits(model.model, [row], [ids])[0].cpu()  # (V)
        return NextTokenLogits(logits, tuple(row), tuple(target_ids), len(target_ids) + 1)
    if target is not None:
        raise GlassError("a target was given to a run that has no targets", "Leave it out.")
    with inference(model.model):
        logits = read_next_logits(model.model, [ids])[0].cpu()  # (V)
    return NextTokenLogits(logits, tuple(ids), tuple(ids), 1)
