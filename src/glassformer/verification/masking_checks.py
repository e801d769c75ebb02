"""Checks of masking: other rows of a batch, padding and later tokens do not affect the logits."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from glassformer.base.wording import counted
from glassformer.generation.logit_readers import next_logits
from glassformer.model.evaluation_mode import inference
from glassformer.model.transformer import Decoder, EncoderDecoder
from glassformer.tasks.losses import logits_of
from glassformer.text.batches import Batch
from glassformer.verification.check import LOGITS, Check, Finding, distance
from glassformer.verification.verified_run import VerifiedRun, no_causal_mask


def batched_logits(subject: VerifiedRun) -> Finding:
    """Compare the logits of each row in a padded batch with those of the row alone.

    For decoders, also compare them with padding on the left.
    """
    model = subject.model
    batch = subject.batch
    with inference(model):
        batched = logits_of(model, batch)  # (B, T, V) or (B, C)
        single = [logits_of(model, Batch.from_rows([row]))[0] for row in subject.rows]  # (T of the row, V) or (C)
        max_distance = max(
            distance(row_logits[: len(single_logits)], single_logits)
            for row_logits, single_logits in zip(batched, single, strict=True)
        )
        if isinstance(model, Decoder):
            pairs = zip(next_logits(model, subject.prompts), subject.prompts, strict=True)
            max_distance = max(
                max_distance, *(distance(row_logits, next_logits(model, [row])[0]) for row_logits, row in pairs)
            )
    return Finding(max_distance, f"{len(subject.rows)} rows of {_lengths(batch)} tokens")


def padding_blind(subject: VerifiedRun) -> Finding:
    """Change the ids of padding tokens on the right (for decoders, also on the left); the logits must not change.

    The logits of a row that contains only padding must be finite.
    """
    model = subject.model
    batch = subject.batch
    generator = subject.generator()
    changed = replace(
        batch,
        inputs=_with_random_padding(batch.inputs, batch.attention_mask, generator, subject.opened.tokenizer.vocab_size),
    )
    if batch.source is not None and batch.source_attention_mask is not None:
        size = subject.opened.source_tokenizer.vocab_size
        changed = replace(
            changed, source=_with_random_padding(batch.source, batch.source_attention_mask, generator, size)
        )
    with inference(model):
        actual = logits_of(model, changed)  # (B, T, V) or (B, C)
        expected = logits_of(model, batch)  # (B, T, V) or (B, C)
        if actual.ndim == 3:
            actual = actual[batch.attention_mask]  # (real tokens, V)
            expected = expected[batch.attention_mask]  # (real tokens, V)
        max_distance = distance(actual, expected)
        if isinstance(model, Decoder):
            ids = batch.inputs.flip(1)  # (B, T)
            attention_mask = batch.attention_mask.flip(1)  # (B, T): padding is now on the left
            filled = _with_random_padding(ids, attention_mask, generator, model.vocab_size)
            max_distance = max(
                max_distance,
                distance(model(filled, attention_mask)[attention_mask], model(ids, attention_mask)[attention_mask]),
            )
        is_finite = bool(torch.isfinite(_all_padding(subject, batch)).all())
    note = f"{counted(int((~batch.attention_mask).sum()) + _source_padding(batch), 'positions')} of padding"
    return Finding(
        max_distance if is_finite else float("inf"),
        note if is_finite else "a row that is all padding gives values that are not finite",
    )


def _all_padding(subject: VerifiedRun, batch: Batch) -> Tensor:
    """Return the output for a batch whose first row (first source, in an encoder-decoder) contains only padding."""
    model = subject.model
    attention_mask = batch.attention_mask.clone()
    attention_mask[0] = False
    if isinstance(model, EncoderDecoder):
        assert batch.source is not None
        assert batch.source_attention_mask is not None
        source_attention_mask = batch.source_attention_mask.clone()
        source_attention_mask[0] = False
        return model(batch.source, batch.inputs, source_attention_mask)
    return model(batch.inputs, attention_mask)


def future_blind(subject: VerifiedRun) -> Finding:
    """Change the tokens of the longest row, starting at a position; earlier logits must not change.

    Up to three positions are tested separately.
    """
    model = subject.model
    batch = Batch.from_rows(subject.rows[:1])
    ids = batch.inputs  # (1, T)
    size = subject.model.vocab_size
    length = ids.shape[1]
    cuts = sorted({1, length // 2, length - 1} - {0, length})
    max_distance = 0.0
    with inference(model):
        for position in cuts:
            changed_ids = ids.clone()
            changed_ids[:, position:] = (changed_ids[:, position:] + 1) % size
            max_distance = max(
                max_distance,
                *(distance(b[:, :position], a[:, :position]) for a, b in _logit_pairs(subject, batch, changed_ids)),
            )
    return Finding(max_distance, f"{length} tokens, changed from position {' or '.join(map(str, cuts))} on")


def _logit_pairs(subject: VerifiedRun, batch: Batch, changed_ids: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return pairs of logits (batch, `changed_ids`); for a decoder, one pair without and one with a padding mask."""
    model = subject.model
    ids = batch.inputs
    if isinstance(model, EncoderDecoder):
        assert batch.source is not None
        memory = model.encode(batch.source)
        return [(model.decode(ids, memory), model.decode(changed_ids, memory))]
    attention_mask = torch.ones_like(ids, dtype=torch.bool)
    return [(model(ids), model(changed_ids)), (model(ids, attention_mask), model(changed_ids, attention_mask))]


def no_padding(subject: VerifiedRun) -> str | None:
    """Return the reason why the padding check does not apply (no row has padding); None if it applies."""
    padding = int((~subject.batch.attention_mask).sum()) + _source_padding(subject.batch)
    return None if padding else "all rows have the same length, so no row has padding"


def no_future(subject: VerifiedRun) -> str | None:
    """Return the reason why the check of later tokens does not apply to a run; None if it applies."""
    if Batch.from_rows(subject.rows[:1]).inputs.shape[1] == 1:
        return "the longest row has only one token"
    return no_causal_mask(subject)


def _with_random_padding(ids: Tensor, attention_mask: Tensor, generator: torch.Generator, size: int) -> Tensor:
    """Replace the ids of padding tokens with random ids."""
    return torch.where(attention_mask, ids, torch.randint(1, max(2, size), ids.shape, generator=generator))


def _source_padding(batch: Batch) -> int:
    return 0 if batch.source_attention_mask is None else int((~batch.source_attention_mask).sum())


def _lengths(batch: Batch) -> str:
    counts = batch.attention_mask if batch.source_attention_mask is None else batch.source_attention_mask
    return ", ".join(str(count) for count in counts.sum(dim=1).tolist())


CHECKS = (
    Check("batched-logits", "batched logits equal single-row logits", LOGITS, "of the largest logit", batched_logits),
    Check(
        "padding-blind",
        "tokens at padding do not affect the logits",
        0,
        "of the largest logit",
        padding_blind,
        no_padding,
    ),
    Check(
        "future-blind", "later tokens do not affect earlier logits", 0, "of the largest logit", future_blind, no_future
    ),
)
