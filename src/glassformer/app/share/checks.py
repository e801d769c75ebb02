"""Measure the effect of rounding the weights: compare the run with the model in the file on the same texts.

The texts are the first examples in the file and the run's outputs for these examples, so no other data is needed.
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
from glassformer.model.transformer import ModelInput
from glassformer.tasks import AnyTextModel, MaskFiller, TextClassifier, TextModel, Translator

TOKENS = 96
"""Maximum number of tokens generated after each text."""
EVERY = 6
"""Distance between the masked tokens in the rows of a masked language model."""
ROW = 24
TOP = 32
"""Maximum numbers of tokens (`ROW`, except for classifiers) and of logits (`TOP`) of the row that the page checks."""


@dataclass(frozen=True)
class ComparedRow:
    """Token ids of one input, and the reference answers at some of its positions.

    Attributes:
        ids: token ids of the text; for an encoder-decoder, of the target.
        source: token ids of the source for an encoder-decoder, else None.
        answers: position -> reference token; for a classifier, 0 -> reference class.
    """

    ids: tuple[int, ...]
    source: tuple[int, ...] | None
    answers: dict[int, int]


@dataclass(frozen=True)
class Rounding:
    """Comparison of the predictions of the model in the file with the predictions of the run.

    Attributes:
        places: number of compared predictions, each a distribution over all tokens or labels.
        loss, loss_shared: mean -ln p of the reference answers, in nats, for the run and for the file.
        largest_difference: largest absolute difference between the probabilities of one answer in the run and in the
            file.
        same_choice: fraction of the predictions with the same likeliest answer.
        row: row that the page computes as a check when the page opens: its ids, its source, and the largest logits at
            its last position, from the model in the file.
    """

    places: int
    loss: float
    loss_shared: float
    largest_difference: float
    same_choice: float
    row: dict[str, Any]

    def facts(self) -> dict[str, Any]:
        """Return the comparison as a dictionary for the header of the file."""
        return asdict(self)


def compare(run: AnyTextModel, shared: AnyTextModel, texts: Sequence[str]) -> Rounding:
    """Compare the predictions of a run and of its rounded copy on the same rows.

    Raises:
        GlassError: there is no text, a text does not fit the task, or rounding led to logits that are not finite.
    """
    rows = [row for text in texts for row in rows_of(run, text)]
    losses = torch.zeros(2, dtype=torch.float64)
    largest_difference = 0.0
    same_choices = 0
    predictions = 0
    for row in rows:
        original, rounded = (_log_probabilities(model, row) for model in (run, shared))  # (P, V) each
        answers = torch.tensor(list(row.answers.values()))[:, None]  # (P, 1)
        losses -= torch.stack([each.gather(1, answers).sum() for each in (original, rounded)])
        largest_difference = max(largest_difference, float((original.exp() - rounded.exp()).abs().max()))
        same_choices += int((original.argmax(dim=1) == rounded.argmax(dim=1)).sum())
        predictions += len(answers)
    if not predictions:
        raise GlassError(
            "there is no text to compare the rounded weights on", "Give a file with texts: --examples FILE."
        )
    loss, loss_shared = (losses / predictions).tolist()
    return Rounding(
        predictions, loss, loss_shared, largest_difference, same_choices / predictions, check_row(shared, rows[0])
    )


def rows_of(model: AnyTextModel, text: str) -> Iterator[ComparedRow]:
    """Yield the rows to compare for one text."""
    if isinstance(model, Translator):
        source = model.prompt_ids(text)
        start = model.tokenizer.target_start
        settings = model.config.sample.replace(beams=1, temperature=0.0, repetition_penalty=1.0, tokens=TOKENS)
        steps = decoding.generate(model.model, [source], settings, model.tokenizer.end_id, start=start)
        generated = [step.tokens[0] for step in steps]
        yield _generated_row((*start,), generated, tuple(source))
    elif isinstance(model, TextModel):
        prompt = model.prompt_ids(text)[-model.config.model.context // 2 :]
        tokens = max(1, min(TOKENS, model.config.model.context - len(prompt)))
        settings = model.config.sample.replace(
            beams=1, temperature=1.0, top_k=None, top_p=None, min_p=None, repetition_penalty=1.0, tokens=tokens
        )
        steps = decoding.generate(model.model, [prompt], settings, model.tokenizer.end_id)
        yield _generated_row(tuple(prompt), [step.tokens[0] for step in steps], None)
    elif isinstance(model, TextClassifier):
        ids = tuple(model.ids(text))
        yield ComparedRow(ids, None, {0: int(_logits(model, ComparedRow(ids, None, {}))[0].argmax())})
    else:
        yield from _masked_rows(model, text)


def _generated_row(prompt: tuple[int, ...], generated: list[int], source: tuple[int, ...] | None) -> ComparedRow:
    """Return a row in which each generated token is the reference answer at the position before it."""
    first = len(prompt) - 1
    return ComparedRow(
        (*prompt, *generated[:-1]), source, {first + offset: token for offset, token in enumerate(generated)}
    )


def _masked_rows(model: MaskFiller, text: str) -> Iterator[ComparedRow]:
    """Fill the masks of the text with the run's predictions, then yield rows with every `EVERY`-th token masked.

    In row i, the first masked token is token i, so every token is masked in exactly one row.
    """
    ids = model.ids(text)
    masks = [position for position, token in enumerate(ids) if token == model.mask_id]
    logits = _logits(model, ComparedRow(tuple(ids), None, {}))  # (T, V)
    logits[:, sorted(model.tokenizer.special)] = -torch.inf
    filled = [int(logits[position].argmax()) if position in masks else token for position, token in enumerate(ids)]
    for start in range(min(EVERY, len(ids))):
        answers = {position: filled[position] for position in range(start, len(ids), EVERY)}
        yield ComparedRow(
            tuple(model.mask_id if position in answers else token for position, token in enumerate(filled)),
            None,
            answers,
        )


def check_row(shared: AnyTextModel, row: ComparedRow) -> dict[str, Any]:
    """Return the row that the page computes as a check, with the largest logits at its last position.

    The row is the beginning of `row` or, for a classifier, the whole `row`.
    """
    ids = row.ids if isinstance(shared, TextClassifier) else row.ids[:ROW]
    logits = _logits(shared, ComparedRow(ids, row.source, {}))[-1]  # (V) or (C)
    best = logits.topk(min(TOP, len(logits)))
    return {
        "ids": list(ids),
        "source": None if row.source is None else list(row.source),
        "logits": [[id, value] for id, value in zip(best.indices.tolist(), best.values.tolist(), strict=True)],
    }


def _log_probabilities(model: AnyTextModel, row: ComparedRow) -> Tensor:
    """Return ln p at the positions of the answers, (P, V) float64."""
    return _logits(model, row)[list(row.answers)].log_softmax(dim=-1)


def _logits(model: AnyTextModel, row: ComparedRow) -> Tensor:
    """Return the logits of a row, float64 (T, V), or (1, C) for a classifier.

    Raises:
        GlassError: the logits are not finite.
    """
    ids = torch.tensor([row.ids])  # (1, T)
    inputs = ModelInput(ids) if row.source is None else ModelInput(torch.tensor([row.source]), ids)
    with inference(model.model):
        logits = model.model.run(inputs)  # (1, T, V) or (1, C)
    check_finite(logits)
    return logits.double().clone().reshape(-1, logits.shape[-1])
