"""Models with their tokenizers and settings, so that text goes in and text, labels or fillings come out.

One class for each kind of task: `TextModel` continues, `Translator` translates and summarizes, `TextClassifier` names
labels, `MaskFiller` fills holes. `load_text_model` gives the one that a run was trained for.
"""

from __future__ import annotations

from glassformer.config import PAIRS
from glassformer.runs import Folder, Which
from glassformer.text_model.classifying import Classified, TextClassifier
from glassformer.text_model.continuing import TextModel
from glassformer.text_model.filling import Candidate, MaskFiller
from glassformer.text_model.loading import Parts, load_parts
from glassformer.text_model.translating import Translator
from glassformer.text_model.unknown import unknown_symbols
from glassformer.text_model.writing import Sample

AnyTextModel = TextModel | Translator | TextClassifier | MaskFiller

__all__ = [
    "AnyTextModel",
    "Candidate",
    "Classified",
    "MaskFiller",
    "Sample",
    "TextClassifier",
    "TextModel",
    "Translator",
    "load_text_model",
    "text_model_of",
    "unknown_symbols",
]


def load_text_model(
    folder: Folder, which: Which = "best", device: str = "auto", precision: str = "fp32"
) -> AnyTextModel:
    """What a run folder holds, ready for its task.

    Args:
        folder: of the run; it alone is enough.
        which: the best checkpoint on validation, or the last one.
        device: as in `train.device`.
        precision: "bf16" keeps the weights in bfloat16; "auto" does so where the device is fast at it.

    Raises:
        GlassError: there is no such run, or its files are not whole or not of one model.
    """
    return text_model_of(load_parts(folder, which, device, precision))


def text_model_of(parts: Parts) -> AnyTextModel:
    """What an opened run is, by its task."""
    task = parts.config.train.task
    if task in PAIRS:
        return Translator(parts.model, parts.source_tokenizer, parts.tokenizer, parts.config)
    if task == "classify":
        return TextClassifier(parts.model, parts.tokenizer, parts.labels, parts.config)
    if task == "masked":
        return MaskFiller(parts.model, parts.tokenizer, parts.config)
    return TextModel(parts.model, parts.tokenizer, parts.config)
