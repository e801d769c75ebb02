"""The tasks: model family, wording and default settings of each task, and the settings that only some tasks have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from glassformer.base.config.model import Family
from glassformer.base.wording import quoted

Task = Literal["lm", "masked", "classify", "translate", "summarize", "chat"]


@dataclass(frozen=True)
class TaskFacts:
    """Properties of a task, for settings, messages and commands.

    Attributes:
        family: the model family for the task.
        records: type of the training data: running text, pairs of source and target, texts with labels, or
            conversations.
        verb: phrase that completes the sentence "this run was trained to ...".
        command: the command that uses a run of this task; {} is replaced by the run folder.
        method: the method of `glassformer.Transformer` for the task.
        recipe: the default recipe for a new run without a settings file or parent run, if its data is not a generated
            corpus; without a parent run, `--recipe auto` selects it too.
        example: an input that the web page suggests if the run has neither a suitable sample nor a prompt.
        defaults: default settings by section, which a recipe, a file or an option overrides.
    """

    family: Family
    records: Literal["text", "pairs", "labelled", "conversations"]
    verb: str
    command: str
    method: str
    recipe: str
    example: str
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def settings(self) -> Mapping[str, Mapping[str, Any]]:
        """`defaults` together with `model.family`."""
        return {**self.defaults, "model": {"family": self.family}}


_RANDOM_SPLIT: dict[str, dict[str, Any]] = {"data": {"split": "random"}}
_WRITTEN_BY_BEAMS: dict[str, dict[str, Any]] = {**_RANDOM_SPLIT, "sample": {"temperature": 0.0, "beams": 4}}
TASK_FACTS: Mapping[str, TaskFacts] = {
    "lm": TaskFacts(
        family="decoder",
        records="text",
        verb="continue text",
        command="generate {} PROMPT",
        method="generate",
        recipe="auto",
        example="The",
    ),
    "masked": TaskFacts(
        family="encoder",
        records="text",
        verb="fill in masked tokens",
        command="fill {} TEXT-WITH-[MASK]",
        method="fill",
        recipe="auto-masked",
        example="The [MASK] was here.",
    ),
    "classify": TaskFacts(
        family="encoder",
        records="labelled",
        verb="classify texts",
        command="classify {} TEXT",
        method="classify",
        recipe="auto-classify",
        example="This is a text.",
        defaults=_RANDOM_SPLIT,
    ),
    "translate": TaskFacts(
        family="encoder-decoder",
        records="pairs",
        verb="translate",
        command="generate {} SOURCE",
        method="generate",
        recipe="auto-translate",
        example="the old dog sleeps .",
        defaults=_WRITTEN_BY_BEAMS,
    ),
    "summarize": TaskFacts(
        family="encoder-decoder",
        records="pairs",
        verb="summarize",
        command="generate {} SOURCE",
        method="generate",
        recipe="auto-summarize",
        example="The rain came early. Then the old dog sleeps.",
        defaults=_WRITTEN_BY_BEAMS,
    ),
    "chat": TaskFacts(
        family="decoder",
        records="conversations",
        verb="answer in a conversation",
        command="chat {}",
        method="chat",
        recipe="auto-chat",
        example="Who are you?",
        defaults=_RANDOM_SPLIT,
    ),
}
TEXTS: tuple[Task, ...] = tuple(task for task in get_args(Task) if TASK_FACTS[task].records == "text")
"""Tasks with running text as training data."""
PAIRS: tuple[Task, ...] = tuple(task for task in get_args(Task) if TASK_FACTS[task].records == "pairs")
"""Tasks that generate a target text for a source text."""
LABELLED: tuple[Task, ...] = tuple(task for task in get_args(Task) if TASK_FACTS[task].records == "labelled")
"""Tasks that predict the label of a text."""
CONVERSATIONS: tuple[Task, ...] = tuple(task for task in get_args(Task) if TASK_FACTS[task].records == "conversations")
"""Tasks with conversations as training data."""
EXAMPLES: tuple[Task, ...] = (*PAIRS, *LABELLED, *CONVERSATIONS)
"""Tasks trained on examples (an input with a target, label or answer) instead of running text."""
OF_DECODERS: tuple[Task, ...] = tuple(task for task in get_args(Task) if TASK_FACTS[task].family == "decoder")
"""Tasks for which the model is a decoder: language modelling and chat."""
WRITERS: tuple[Task, ...] = (*OF_DECODERS, *PAIRS)
"""Tasks that generate text."""
ONLY_FOR: Mapping[tuple[str, str], tuple[Task, ...]] = {
    ("model", "encoder_layers"): PAIRS,
    ("model", "shared_embedding"): PAIRS,
    ("model", "source_vocab_size"): PAIRS,
    ("model", "classes"): LABELLED,
    ("model", "pooling"): LABELLED,
    ("model", "head_transform"): (*TEXTS, *PAIRS, *CONVERSATIONS),
    ("tokenizer", "joint"): PAIRS,
    ("data", "windows"): TEXTS,
    ("data", "document"): TEXTS,
    ("data", "min_characters"): TEXTS,
    ("data", "clean"): TEXTS,
    ("data", "duplicates"): TEXTS,
    ("data", "validation"): EXAMPLES,
    ("data", "too_long"): EXAMPLES,
    ("data", "chat_template"): CONVERSATIONS,
    ("train", "batch_tokens"): EXAMPLES,
    ("train", "mask_share"): ("masked",),
}
"""Setting -> tasks to which it applies, for settings that do not apply to all tasks."""


def command_for(run: Path, task: str) -> str:
    """Return the command that uses a run of this task.

    >>> command_for(Path("runs/book"), "lm")
    'glass generate runs/book PROMPT'
    """
    return f"glass {TASK_FACTS[task].command.format(quoted(run))}"
