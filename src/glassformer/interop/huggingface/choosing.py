"""Choice of the Hugging Face class for a model, and the reasons for a refusal."""

from __future__ import annotations

from typing import Any

import torch

from glassformer.base.config import ModelConfig, Task
from glassformer.base.errors import GlassError, nearest
from glassformer.interop.huggingface import decoders, encoders, pairs
from glassformer.interop.huggingface.architecture import Architecture
from glassformer.interop.huggingface.equivalent_forms import WRITE, restored_heads, rewritten
from glassformer.interop.huggingface.fields import Refusal
from glassformer.interop.huggingface.weights import Tensors

ARCHITECTURES: dict[str, Architecture] = {
    each.name: each
    for each in (
        decoders.LLAMA,
        decoders.QWEN3,
        decoders.QWEN2,
        decoders.ARCEE,
        decoders.STARCODER2,
        decoders.STABLELM,
        decoders.GPT2,
        decoders.OLMO2,
        encoders.DEBERTA,
        encoders.BERT_MEAN,
        encoders.BERT,
        encoders.BERT_MASKED,
        encoders.ESM_MEAN,
        encoders.ESM,
        encoders.ESM_MASKED,
        encoders.ROBERTA,
        encoders.ROBERTA_MASKED,
        pairs.BART,
        pairs.MARIAN,
        pairs.MBART,
        pairs.PEGASUS,
        pairs.BLENDERBOT,
        pairs.T5,
    )
}
"""All that can be read and written; where several fit, the first one is written."""
REFUSED = {
    "olmo3": "Nearest: olmo2, whose layers all look equally far.",
    "mistral": "Nearest: llama, or qwen2 with a window.",
    "gemma": "Nearest: llama, with model.activation=geglu.",
    "gpt_neox": "Nearest: stablelm or starcoder2.",
    "distilbert": "Nearest: bert.",
}
"""Known classes that our blocks are not."""


def architecture_named(name: str) -> Architecture:
    """One class.

    Raises:
        GlassError: there is none of that name, or it is one that our models cannot be.
    """
    if name in ARCHITECTURES:
        return ARCHITECTURES[name]
    if name in REFUSED:
        raise GlassError(
            f"{name} models are built otherwise than glassformer's: none is read or written", REFUSED[name]
        )
    raise GlassError(f"the architecture {name!r} is not known", nearest(name, ARCHITECTURES))


def architecture_of(model_type: str, kinds: Any) -> Architecture:
    """Return the architecture with this `model_type`; if several have it, the one whose classes include `kinds[0]`.

    Raises:
        GlassError: as `architecture_named`.
    """
    named = str(kinds[0]) if isinstance(kinds, list) and kinds else None
    same = [each for each in ARCHITECTURES.values() if each.model_type == model_type]
    return next((each for each in same if named in each.classes.values()), None) or architecture_named(model_type)


def fitted(architecture: Architecture, config: ModelConfig, ours: Tensors) -> tuple[ModelConfig, Tensors]:
    """The form of a model in which it is closest to a class; no class leaves heads out."""
    return rewritten([restored_heads, *(WRITE[name] for name in architecture.rewrites)], config, ours)


def choose(
    config: ModelConfig, ours: Tensors, task: Task, wanted: str | None, before: str | None, padding: int | None = None
) -> Architecture:
    """The class to write a model as.

    Args:
        config: of the model.
        ours: its tensors.
        task: that it learnt.
        wanted: the name of a class; None: the first one that has all its settings.
        before: the class that it was imported from, which then comes first.
        padding: the id of a token that no text has; RoBERTa counts its places by it.

    Raises:
        GlassError: the class, or every class, lacks a setting; it is named, with the nearest that there is.
    """
    if wanted is not None:
        found = architecture_named(wanted)
        if refusals := _refusals(found, config, ours):
            raise _refused(found, refusals)
        if found.needs_padding not in (None, padding):
            raise GlassError(
                f"{found.name} counts places by a padding token with the id {found.needs_padding}, and this run's "
                "tokenizer has none",
                f"Nearest: --architecture {found.name.replace('roberta', 'bert')}.",
            )
        found.to_theirs(fitted(found, config, ours)[1], fitted(found, config, ours)[0])
        return found
    likely = [each for each in ARCHITECTURES.values() if task in each.classes and each.needs_padding in (None, padding)]
    if task == "classify":  # a class for tokens is for who asks for it: pipelines would give it another head
        likely = [each for each in likely if not each.classes[task].endswith("ForTokenClassification")]
    if not likely:
        raise GlassError(f"no class of Hugging Face is known for train.task = {task}", "Name one with --architecture.")
    likely.sort(key=lambda each: each.name != before)
    tried = [(each, _refusals(each, config, ours)) for each in likely]
    for each, refusals in tried:
        if not refusals and _has_place(each, config, ours):
            return each
    closest, refusals = min(tried, key=lambda pair: len(pair[1]) or 99)
    raise _refused(closest, refusals, "no class of Hugging Face fits")


def _refusals(architecture: Architecture, config: ModelConfig, ours: Tensors) -> list[Refusal]:
    if config.family != architecture.family:
        return [Refusal("family", config.family, architecture.family)]
    shapes = {name: torch.empty_like(tensor, device="meta") for name, tensor in ours.items()}
    return architecture.refusals(fitted(architecture, config, shapes)[0])


def _has_place(architecture: Architecture, config: ModelConfig, ours: Tensors) -> bool:
    """Return True if the tensors convert to the class; those that it lacks must have the values that it implies."""
    try:
        form, tensors = fitted(architecture, config, ours)
        architecture.to_theirs(tensors, form)
    except GlassError:
        return False
    return True


def _refused(architecture: Architecture, refusals: list[Refusal], problem: str = "") -> GlassError:
    values = ", ".join(f"model.{each.setting} = {each.value}" for each in refusals)
    problem = problem or f"{architecture.name} cannot express this run"
    changes = " ".join(f"--set {each.remedy()}" for each in refusals)
    return GlassError(f"{problem}: {values}", f"Nearest: {architecture.name}, for a run trained with {changes}")
