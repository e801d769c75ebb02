"""Tasks: the records, loss and sample of each, and a class that maps text to its output.

`task` has the protocol that the training loop knows and the tasks that learn from plain text (`lm`, `masked`);
`example_tasks` those that learn from examples with an answer (`classify`, `translate`, `summarize`, `chat`); `losses`
goes from logits and a batch to nats; `make` has the table of tasks. The classes below join a model with its tokenizer:
`TextModel` continues a text, `ChatModel` answers in a conversation, `Translator` translates and summarizes,
`TextClassifier` names labels, `MaskFiller` fills in masks.
`glassformer.runs.opening.OpenedRun` has the one that a run was trained for as its `text_model`.
"""

from __future__ import annotations

from glassformer.tasks.chatting import ChatModel
from glassformer.tasks.classifying import Classified, TextClassifier
from glassformer.tasks.continuing import TextModel
from glassformer.tasks.filling import Candidate, MaskFiller
from glassformer.tasks.translating import Translator
from glassformer.tasks.unknown_symbols import unknown_symbols
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
    "unknown_symbols",
]
