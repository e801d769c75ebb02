"""Tasks: the records, loss and sample of each, and a class that maps text to its output.

`task` has the protocol that the training loop knows and the tasks that learn from plain text (`lm`, `masked`);
`example_tasks` those that learn from examples with an answer (`classify`, `translate`, `summarize`); `losses` goes from
logits and a batch to nats. The classes below join a model with its tokenizer: `TextModel` continues a text,
`Translator` translates and summarizes, `TextClassifier` names labels, `MaskFiller` fills in masks.
`glassformer.runs.opening.OpenedRun` has the one that a run was trained for as its `text_model`.
"""

from __future__ import annotations

from glassformer.base.config import PAIRS, Config
from glassformer.model.transformer import Model
from glassformer.tasks.classifying import Classified, TextClassifier
from glassformer.tasks.continuing import TextModel
from glassformer.tasks.filling import Candidate, MaskFiller
from glassformer.tasks.translating import Translator
from glassformer.tasks.unknown import unknown_symbols
from glassformer.tasks.writing import Sample
from glassformer.text.tokenizers import Tokenizer

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
    "make_text_model",
    "unknown_symbols",
]


def make_text_model(
    config: Config, model: Model, tokenizer: Tokenizer, source: Tokenizer, labels: tuple[str, ...]
) -> AnyTextModel:
    """Return the object that does a task with a model.

    Args:
        config: of the run; `train.task` names the task.
        model: with its weights.
        tokenizer: of the text that is read, or of the one that is written where there are two.
        source: the tokenizer of the source of a translator or summarizer.
        labels: of a classifier.
    """
    task = config.train.task
    if task in PAIRS:
        return Translator(model, source, tokenizer, config)
    if task == "classify":
        return TextClassifier(model, tokenizer, labels, config)
    if task == "masked":
        return MaskFiller(model, tokenizer, config)
    return TextModel(model, tokenizer, config)
