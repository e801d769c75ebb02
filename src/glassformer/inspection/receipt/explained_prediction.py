"""The prediction that a receipt explains: the model's input, its logits, and the choice made from them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.base.config import SampleConfig
from glassformer.base.errors import GlassError
from glassformer.base.wording import counted, span
from glassformer.generation.beam import beam_search
from glassformer.generation.context_window import window
from glassformer.generation.decoding import ENDINGS, Ended, check_finite, generate
from glassformer.generation.logit_readers import next_logits
from glassformer.inspection.receipt.draw import Draw, SamplingStage, explain_draw, model_stage
from glassformer.model.evaluation_mode import inference
from glassformer.tasks import MaskFiller, TextClassifier, TextModel, Translator
from glassformer.tasks.written_text import TextStreamer

GeneratingModel = TextModel | Translator


@dataclass(frozen=True)
class ExplainedPrediction:
    """One forward pass, and the choice made from its logits.

    Attributes:
        read: input ids of the stack that yields the logits, at most one window of a long text; for an encoder-decoder,
            the target ids, including the tokens that start every target.
        source: encoder input ids of an encoder-decoder; otherwise None.
        unread: number of tokens of the text (in a decoder, of the prompt and the generated tokens) that the model does
            not read.
        positions: position in `read` that the head reads, or all positions that a classifier pools.
        logits: (V), or (classes), on the CPU.
        draw: choice of the token or class.
    """

    read: tuple[int, ...]
    source: tuple[int, ...] | None
    unread: int
    positions: tuple[int, ...]
    logits: Tensor
    draw: Draw


def predict_next_token(model: GeneratingModel, text: str, settings: SampleConfig, step: int) -> ExplainedPrediction:
    """Return the prediction of generated token number `step`, counted from 1, as in `glass generate`.

    Raises:
        GlassError: the generated text ends before that token, or the prompt does not fit the model.
    """
    prompt = model.prompt_ids(text)
    settings = model.with_stop_strings(settings)
    if settings.beams > 1:
        written_ids, logits = _search_tokens(model, prompt, settings, step)
    else:
        written_ids, logits = _sample_tokens(model, prompt, settings, step)
    previous_ids = written_ids[:-1]
    row_ids = [*(model.tokenizer.target_start if isinstance(model, Translator) else prompt), *previous_ids]
    draw = Draw("beam search", written_ids[-1], (model_stage(logits),), settings.seed, step, ())
    if settings.beams == 1:
        draw = explain_draw(logits, settings, previous_ids if isinstance(model, Translator) else row_ids, step)
    if isinstance(model, Translator):
        return ExplainedPrediction(
            tuple(row_ids), tuple(prompt), model.unread_tokens(text), (len(row_ids) - 1,), logits, draw
        )
    window_ids = window(row_ids, model.config.model.context)
    return ExplainedPrediction(
        tuple(window_ids), None, len(row_ids) - len(window_ids), (len(window_ids) - 1,), logits, draw
    )


def predict_mask(model: MaskFiller, text: str, mask_number: int) -> ExplainedPrediction:
    """Return the prediction for [MASK] number `mask_number`, counted from 1.

    The choice is the likeliest token that is not special.

    Raises:
        GlassError: the text has no such [MASK], or is longer than the context.
    """
    ids = model.ids(text)
    mask_positions = [position for position, token in enumerate(ids) if token == model.mask_id]
    if not 1 <= mask_number <= len(mask_positions):
        remedy = (
            f"Give a number from 1 to {len(mask_positions)}."
            if len(mask_positions) > 1
            else f"Leave the number out: the text has only one {model.MASK}."
        )
        raise GlassError(f"there is no {model.MASK} number {mask_number} in the text", remedy)
    position = mask_positions[mask_number - 1]
    with inference(model.model):
        logits = model.model(torch.tensor([ids], device=_device(model)))[0, position].cpu()  # (V)
    check_finite(logits)
    candidate_probabilities = model_stage(
        logits.index_fill(0, torch.tensor(sorted(model.tokenizer.special)), -torch.inf)
    ).probabilities  # (V)
    stages = (model_stage(logits), SamplingStage("special tokens left out", None, candidate_probabilities))
    return ExplainedPrediction(
        tuple(ids),
        None,
        0,
        (position,),
        logits,
        Draw("likeliest", int(candidate_probabilities.argmax()), stages, 0, 1, ()),
    )


def predict_label(model: TextClassifier, text: str) -> ExplainedPrediction:
    """Return the prediction of a label for a text; the choice is the likeliest class."""
    ids = model.ids(text)
    tokens = torch.tensor([ids], device=_device(model))  # (1, T)
    with inference(model.model):
        logits = model.model(tokens, torch.ones_like(tokens, dtype=torch.bool))[0].cpu()  # (C)
    check_finite(logits)
    positions = (0,) if model.config.model.pooling == "first" else tuple(range(len(ids)))
    draw = Draw("likeliest", int(logits.argmax()), (model_stage(logits),), 0, 1, ())
    return ExplainedPrediction(tuple(ids), None, model.unread_tokens(text), positions, logits, draw)


def _sample_tokens(
    model: GeneratingModel, prompt: list[int], settings: SampleConfig, step: int
) -> tuple[list[int], Tensor]:
    """Return the first `step` generated tokens, and the logits (V) from which the last of them was sampled."""
    writer = TextStreamer(model.tokenizer, model.ids_before_text(prompt), settings.stop)
    settings = settings.replace(tokens=step)
    start = model.tokenizer.target_start

    def stop(_: int, new: list[int]) -> bool:
        return writer.add(new[-1])

    written_ids = []
    for last_step in generate(
        model.model, [prompt], settings, model.tokenizer.end_id, stop, start=start, extra_end_ids=model.extra_end_ids
    ):
        written_ids.append(last_step.tokens[0])
    if len(written_ids) < step:
        raise _too_short_error(len(written_ids), last_step.ended[0])
    return written_ids, last_step.logits[0].cpu()


def _search_tokens(
    model: GeneratingModel, prompt: list[int], settings: SampleConfig, step: int
) -> tuple[list[int], Tensor]:
    """Return the first `step` tokens that beam search finds, and the logits (V) that predict the last of them."""
    start = model.tokenizer.target_start
    hypothesis = beam_search(
        model.model,
        [prompt],
        settings,
        model.tokenizer.end_id,
        wanted=1,
        start=start,
        extra_end_ids=model.extra_end_ids,
    )[0][0]
    written_ids = list(hypothesis.tokens[:step])
    if len(written_ids) < step:
        raise _too_short_error(len(written_ids), hypothesis.ended)
    with inference(model.model):
        if isinstance(model, Translator):
            logits = next_logits(model.model, [[*start, *written_ids[:-1]]], [prompt])  # (1, V)
        else:
            logits = next_logits(model.model, [[*prompt, *written_ids[:-1]]])  # (1, V)
    return written_ids, logits[0].cpu()


def _too_short_error(written: int, ended: Ended) -> GlassError:
    return GlassError(
        f"the generated text has {counted(written, 'tokens')} (ended by {ENDINGS[ended]})",
        f"Give step {span(1, written)}.",
    )


def _device(model: MaskFiller | TextClassifier) -> torch.device:
    return model.model.embedding.tokens.weight.device
