"""Errors for a model that does not match its tokenizer, and for a run whose task is not the required one."""

from __future__ import annotations

from glassformer.base.config import TASK_FACTS
from glassformer.base.errors import GlassError
from glassformer.model.transformer import Model
from glassformer.text.tokenizers import Tokenizer


def refuse_mismatch(model: Model, tokenizer: Tokenizer) -> None:
    """Raise a `GlassError` if the vocabulary sizes of model and tokenizer differ."""
    if model.vocab_size != tokenizer.vocab_size:
        raise GlassError(
            f"the model has a vocabulary of {model.vocab_size} tokens, but the tokenizer has {tokenizer.vocab_size}",
            "Use the tokenizer that the model was trained with.",
        )


def wrong_task(task: str, expected_task: str, remedy: str) -> GlassError:
    """Return the error for a run that was trained on `task` where a run of task `expected_task` is needed."""
    return GlassError(
        f"this run was trained to {TASK_FACTS[task].verb}, not to {TASK_FACTS[expected_task].verb}", remedy
    )
