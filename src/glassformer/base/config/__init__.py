"""All settings: documented field by field, validated on creation, immutable, read from and written to TOML.

`config.toml` in a run folder contains a `Config`; a recipe sets some of its fields, and `--set SECTION.FIELD=VALUE`
sets one field. Nothing here imports torch.
"""

from glassformer.base.config.model import GATED, Activation, Family, ModelConfig, Norm, Positions
from glassformer.base.config.run_config import Config, parse_changes, settings_of
from glassformer.base.config.tasks import (
    CONVERSATIONS,
    EXAMPLES,
    LABELLED,
    OF_DECODERS,
    PAIRS,
    TASK_FACTS,
    TEXTS,
    WRITERS,
    Task,
    TaskFacts,
    command_for,
)
from glassformer.base.config.text import CHAT_TEMPLATE, TOKENIZER_KINDS, DataConfig, TokenizerConfig
from glassformer.base.config.training import SampleConfig, TrainConfig

__all__ = [
    "CHAT_TEMPLATE",
    "CONVERSATIONS",
    "EXAMPLES",
    "GATED",
    "LABELLED",
    "OF_DECODERS",
    "PAIRS",
    "TASK_FACTS",
    "TEXTS",
    "TOKENIZER_KINDS",
    "WRITERS",
    "Activation",
    "Config",
    "DataConfig",
    "Family",
    "ModelConfig",
    "Norm",
    "Positions",
    "SampleConfig",
    "Task",
    "TaskFacts",
    "TokenizerConfig",
    "TrainConfig",
    "command_for",
    "parse_changes",
    "settings_of",
]
