"""Make the two objects of the task in the settings: one for training, one that applies the model to text."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from glassformer.base.config import CONVERSATIONS, LABELLED, PAIRS, Config
from glassformer.model.transformer import Model
from glassformer.tasks import AnyTextModel, ChatModel, MaskFiller, TextClassifier, TextModel, Translator
from glassformer.tasks.example_tasks import ChatTask, ClassTask, PairTask
from glassformer.tasks.task import LanguageTask, MaskedTask, Task
from glassformer.text.prepare import Prepared
from glassformer.text.tokenizers import Tokenizer

TASKS: Mapping[str, Callable[[Config, Prepared], Task]] = {
    "lm": LanguageTask,
    "masked": MaskedTask,
    "classify": ClassTask,
    "translate": PairTask,
    "summarize": PairTask,
    "chat": ChatTask,
}


def make_task(config: Config, data: Prepared) -> Task:
    """Return the task named by `train.task`, on prepared data."""
    return TASKS[config.train.task](config, data)


def make_text_model(
    config: Config, model: Model, tokenizer: Tokenizer, source: Tokenizer, labels: tuple[str, ...]
) -> AnyTextModel:
    """Return the object that applies a run's model to text.

    Args:
        config: settings of the run; `train.task` names the task.
        model: the model with its weights.
        tokenizer: the tokenizer of the text; for translate and summarize, the tokenizer of the target.
        source: the tokenizer of the source, for translate and summarize.
        labels: names of the labels, for classify.
    """
    task = config.train.task
    if task in PAIRS:
        return Translator(model, source, tokenizer, config)
    if task in CONVERSATIONS:
        return ChatModel(model, tokenizer, config)
    if task in LABELLED:
        return TextClassifier(model, tokenizer, labels, config)
    if task == "masked":
        return MaskFiller(model, tokenizer, config)
    assert task == "lm"
    return TextModel(model, tokenizer, config)
