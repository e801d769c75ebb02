"""The tasks of a model: an object for training each task, and a class that applies the trained model to text.

`task` has the protocol for the training loop, and the tasks that train on running text (`lm`, `masked`);
`example_tasks` has the tasks that train on examples (`classify`, `translate`, `summarize`, `chat`); `losses` computes
losses in nats; `make` has the table of tasks. The classes below combine a model with its tokenizer: `TextModel`
continues a prompt, `ChatModel` answers in a conversation, `Translator` translates and summarizes, `TextClassifier`
predicts labels, `MaskFiller` fills in masks. The `text_model` of `glassformer.runs.opening.OpenedRun` is an object of
the class that suits the task of that run.
"""

from __future__ import annotations

from glassformer.tasks.chatting import ChatModel
from glassformer.tasks.classifying import Classified, TextClassifier
from glassformer.tasks.continuing import TextModel
from glassformer.tasks.filling import Candidate, MaskFiller
from glassformer.tasks.translating import Translator
from glassformer.tasks.unknown_symbols import other_forms, symbol_notes, text_notes, unknown_symbols
from glassformer.tasks.written_text import Sample

AnyTextModel = TextModel | Translator | TextClassifier | MaskFiller

__all__ = [
    "AnyTextModel",
    "Candidate",
    "ChatModel",
    "Classified",
    "MaskFiller",
    "Sample",
    "TextClassifier",
    "TextModel",
    "Translator",
    "other_forms",
    "symbol_notes",
    "text_notes",
    "unknown_symbols",
]
