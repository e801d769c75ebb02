"""Effect of rounding the weights: the library evaluates the run and the model in the file on the same texts.

The texts are the examples in the file and the run's own answers to them: no other data is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from glassformer.base.errors import GlassError
from glassformer.generation import decoding
from glassformer.generation.decoding import check_finite
from glassformer.model.evaluation_mode import inference
from glassformer.model.transformer import EncoderDecoder
from glassformer.tasks import AnyTextModel, MaskFiller, TextClassifier, TextModel, Translator

TOKENS = 96
"""At most so many are written after each text."""
EVERY = 6
"""Of an encoder each so-many-th token is hidden."""
ROW = 24
TOP = 32
"""The longest row, and the most logits, that the page checks itself by when it is opened."""


@dataclass(frozen=True)
class ComparedRow:
    """Token ids of one input and the reference answers at its positions.

    Attributes:
        ids: of an encoder-decoder, those of the target.
        source: of an encoder-decoder, else None.
        answers: place -> the token that is right, or of a classifier 0 -> the class.
    """

    ids: tuple[int, ...]
    source: tuple[int, ...] | None
    answers: dict[int, int]


@dataclass(frozen=True)
class Rounding:
    """Comparison of the predictions of the file's weights with those of the run's weights.

    Attributes:
        places: predictions that were compared, each over all answers.
        loss, loss_shared: mean -log p of what the run writes (of hidden tokens, of its labels), in nats.
        largest_difference: of any two probabilities.
        same_choice: share of the places where the likeliest answer is the same.
        row: what the page computes when it is opened: ids, source, place, and logits by id of the model in the file.
    """

    places: int
    loss: float
    loss_shared: float
    largest_difference: float
    same_choice: float
    row: dict[str, Any]

    def facts(self) -> dict[str, Any]:
        """Return the comparison as JSON, for the file's header."""
        return asdict(self)


def compare(run: AnyTextModel, shared: AnyTextModel, texts: Sequence[str]) -> Rounding:
    """The run and its rounded copy on the same rows.

    Raises:
        GlassError: a text does not fit the task, or rounding made numbers that are not finite.
    """
    rows = [row for text in texts for row in rows_of(run, text)]
    losses = torch.zeros(2, dtype=torch.float64)
    difference = 0.0
    same = 0
    places = 0
    for row in rows:
        ours, theirs = (_log_shares(model, row) for model in (run, shared))  # (P, V) each
        answers = torch.tensor(list(row.answers.values()))[:, None]  # (P, 1)
        losses -= torch.stack([each.gather(1, answers).sum() for each in (ours, theirs)])
        difference = max(difference, float((ours.exp() - theirs.exp()).abs().max()))
        same += int((ours.argmax(dim=1) == theirs.argmax(dim=1)).sum())
        places += len(answers)
    if not places:
        raise GlassError("there is no text to compare the rounded weights on", "Give --examples with some text in it.")
    loss, loss_shared = (losses / places).tolist()
    return Rounding(places, loss, loss_shared, difference, same / places, check_row(shared, rows[0]))


def rows_of(model: AnyTextModel, text: str) -> Iterator[ComparedRow]:
    """Yield the rows to compare for one text."""
    if isinstance(model, Translator):
        source = model.prompt_ids(text)
        start = model.tokenizer.target_start
        settings = model.config.sample.replace(beams=1, temperature=0.0, repetition_penalty=1.0, tokens=TOKENS)
        steps = decoding.generate(model.model, [source], settings, model.tokenizer.end_id, start=start)
        written = [step.tokens[0] for step in steps]
        yield _written((*start,), written, tuple(source))
    elif isinstance(model, TextModel):
        prompt = model.prompt_ids(text)[-model.config.model.context // 2 :]
        tokens = max(1, min(TOKENS, model.config.model.context - len(prompt)))
        settings = model.config.sample.replace(
            beams=1, temperature=1.0, top_k=None, top_p=None, min_p=None, repetition_penalty=1.0, tokens=tokens
        )
        steps = decoding.generate(model.model, [prompt], settings, model.tokenizer.end_id)
        yield _written(tuple(prompt), [step.tokens[0] for step in steps], None)
    elif isinstance(model, TextClassifier):
        ids = tuple(model.ids(text))
        yield ComparedRow(ids, None, {0: int(_logits(model, ComparedRow(ids, None, {}))[0].argmax())})
    else:
        yield from _hidden(model, text)


def _written(before: tuple[int, ...], written: list[int], source: tuple[int, ...] | None) -> ComparedRow:
    """Each written token is the right answer at the place before it."""
    first = len(before) - 1
    return ComparedRow((*before, *written[:-1]), source, {first + at: token for at, token in enumerate(written)})


def _hidden(model: MaskFiller, text: str) -> Iterator[ComparedRow]:
    """The holes of the text filled with what the run names, and then other tokens hidden in turn."""
    ids = model.ids(text)
    holes = [place for place, token in enumerate(ids) if token == model.mask_id]
    shares = _logits(model, ComparedRow(tuple(ids), None, {}))  # (T, V)
    shares[:, sorted(model.tokenizer.special)] = -torch.inf
    whole = [int(shares[place].argmax()) if place in holes else token for place, token in enumerate(ids)]
    for start in range(min(EVERY, len(ids))):
        hidden = {place: whole[place] for place in range(start, len(ids), EVERY)}
        yield ComparedRow(
            tuple(model.mask_id if at in hidden else token for at, token in enumerate(whole)), None, hidden
        )


def check_row(shared: AnyTextModel, row: ComparedRow) -> dict[str, Any]:
    """The beginning of a row, and the largest logits at its last place: the page computes the same."""
    ids = row.ids if isinstance(shared, TextClassifier) else row.ids[:ROW]
    logits = _logits(shared, ComparedRow(ids, row.source, {}))[-1]  # (V) or (C)
    best = logits.topk(min(TOP, len(logits)))
    return {
        "ids": list(ids),
        "source": None if row.source is None else list(row.source),
        "logits": [[id, value] for id, value in zip(best.indices.tolist(), best.values.tolist(), strict=True)],
    }


def _log_shares(model: AnyTextModel, row: ComparedRow) -> Tensor:
    """ln p at the places of the answers, (P, V) float64."""
    return _logits(model, row)[list(row.answers)].log_softmax(dim=-1)


def _logits(model: AnyTextModel, row: ComparedRow) -> Tensor:
    """(T, V), or of a classifier (1, C); float64."""
    ids = torch.tensor([row.ids])  # (1, T)
    with inference(model.model):
        if isinstance(model.model, EncoderDecoder):
            logits = model.model(torch.tensor([row.source]), ids)[0]  # (T, V)
        else:
            logits = model.model(ids)  # (1, T, V) or (1, C)
            logits = logits[0] if logits.dim() == 3 else logits
    check_finite(logits)
    return logits.double().clone()
