"""Choose the Hugging Face class for a model, or explain why no class fits."""

from __future__ import annotations

from typing import Any

import torch

from glassformer.base.config import ModelConfig, Task
from glassformer.base.errors import GlassError, nearest
from glassformer.interop.huggingface import decoders, encoder_decoders, encoders
from glassformer.interop.huggingface.architecture import Architecture
from glassformer.interop.huggingface.equivalent_forms import (
    EXPORT_FORMS,
    apply_forms,
    identity_projections,
    restored_heads,
)
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
        encoder_decoders.BART,
        encoder_decoders.MARIAN,
        encoder_decoders.MBART,
        encoder_decoders.PEGASUS,
        encoder_decoders.BLENDERBOT,
        encoder_decoders.T5,
    )
}
"""All supported architectures; if several can express a model, `choose` prefers the first one, unless the model was
imported from another."""
REFUSED = {
    "olmo3": "Nearest: olmo2, which has no sliding windows.",
    "mistral": "Nearest: llama, or qwen2 with a window.",
    "gemma": "Nearest: llama, with model.activation=geglu.",
    "gpt_neox": "Nearest: stablelm or starcoder2.",
    "distilbert": "Nearest: bert.",
}
"""Known architectures that our blocks cannot express, with advice on the nearest supported architecture."""


def architecture_named(name: str) -> Architecture:
    """Return the architecture of this name.

    Raises:
        GlassError: the name is unknown, or our models cannot express the architecture.
    """
    if name in ARCHITECTURES:
        return ARCHITECTURES[name]
    if name in REFUSED:
        raise GlassError(f"{name} models are not supported: glassformer's blocks cannot express them", REFUSED[name])
    raise GlassError(f"unknown architecture {name!r}", nearest(name, ARCHITECTURES))


def architecture_of(model_type: str, class_names: Any) -> Architecture:
    """Return the first architecture with this `model_type` and the class `class_names[0]`.

    If there is none, return the architecture named `model_type`.

    Args:
        model_type: the field of `config.json`.
        class_names: the field `architectures` of `config.json`, a list of class names.

    Raises:
        GlassError: as in `architecture_named`.
    """
    class_name = str(class_names[0]) if isinstance(class_names, list) and class_names else None
    candidates = [each for each in ARCHITECTURES.values() if each.model_type == model_type]
    match = next((each for each in candidates if class_name in each.classes.values()), None)
    return match or architecture_named(model_type)


def closest_form(architecture: Architecture, config: ModelConfig, ours: Tensors) -> tuple[ModelConfig, Tensors]:
    """Convert a model to the equivalent form that is closest to a class.

    Removed heads are restored, and missing output projections become identity matrices.
    """
    rewrites = [EXPORT_FORMS[name] for name in architecture.rewrites]
    return apply_forms([restored_heads, identity_projections, *rewrites], config, ours)


def choose(
    config: ModelConfig,
    ours: Tensors,
    task: Task,
    requested_name: str | None,
    imported_from: str | None,
    padding_id: int | None = None,
) -> Architecture:
    """Choose the architecture to export a model as.

    Args:
        config: settings of the model.
        ours: tensors of the model.
        task: task of the model.
        requested_name: the name of an architecture; None: the first one that can express all settings and tensors.
            Classes that classify tokens are not chosen for a text classifier unless they are requested.
        imported_from: the architecture that the model was imported from, which is tried first; None: not imported.
        padding_id: id of the padding token, from which RoBERTa computes positions; None: no padding token.

    Raises:
        GlassError: `requested_name` is unknown, cannot express the model, or needs another padding token; without it,
            no architecture can express the model. If settings are the reason, the error names the closest possible
            settings.
    """
    if requested_name is not None:
        architecture = architecture_named(requested_name)
        if task not in architecture.classes:
            other_family = config.family != architecture.family
            reason = f"model.family = {config.family}" if other_family else f"train.task = {task}"
            names = sorted(each.name for each in ARCHITECTURES.values() if task in each.classes)
            raise GlassError(
                f"{architecture.name} cannot express this run: {reason}", f"Choose one of: {', '.join(names)}."
            )
        if refusals := _refusals(architecture, config, ours):
            raise _refusal_error(architecture, refusals)
        if architecture.needs_padding not in (None, padding_id):
            raise GlassError(
                f"{architecture.name} computes positions from a padding token with the id "
                f"{architecture.needs_padding}, which this run's tokenizer lacks",
                f"Nearest: --architecture {architecture.name.replace('roberta', 'bert')}.",
            )
        form, tensors = closest_form(architecture, config, ours)
        architecture.to_theirs(tensors, form)
        return architecture
    candidates = [
        each for each in ARCHITECTURES.values() if task in each.classes and each.needs_padding in (None, padding_id)
    ]
    if task == "classify":  # only on request: pipelines would load a class for tokens with an untrained head
        candidates = [each for each in candidates if not each.classes[task].endswith("ForTokenClassification")]
    if not candidates:
        raise GlassError(
            f"no Hugging Face class is known for train.task = {task}",
            "Name an architecture with --architecture, such as bert.",
        )
    candidates.sort(key=lambda each: each.name != imported_from)
    tried = [(each, _refusals(each, config, ours)) for each in candidates]
    for each, refusals in tried:
        if not refusals and _tensors_fit(each, config, ours):
            return each
    closest, refusals = min(tried, key=lambda pair: len(pair[1]) or 99)
    raise _refusal_error(closest, refusals, "no Hugging Face class fits")


def _refusals(architecture: Architecture, config: ModelConfig, ours: Tensors) -> list[Refusal]:
    if config.family != architecture.family:
        return [Refusal("family", config.family, architecture.family)]
    shapes = {name: torch.empty_like(tensor, device="meta") for name, tensor in ours.items()}
    return architecture.refusals(closest_form(architecture, config, shapes)[0])


def _tensors_fit(architecture: Architecture, config: ModelConfig, ours: Tensors) -> bool:
    """Return whether the tensors convert to the class; tensors that the class lacks must have their implied values."""
    try:
        form, tensors = closest_form(architecture, config, ours)
        architecture.to_theirs(tensors, form)
    except GlassError:
        return False
    return True


def _refusal_error(architecture: Architecture, refusals: list[Refusal], problem: str = "") -> GlassError:
    values = ", ".join(f"model.{each.setting} = {each.value}" for each in refusals)
    problem = problem or f"{architecture.name} cannot express this run"
    changes = " ".join(f"--set {each.remedy()}" for each in refusals)
    return GlassError(f"{problem}: {values}", f"Nearest: {architecture.name}, for a run trained with {changes}")
