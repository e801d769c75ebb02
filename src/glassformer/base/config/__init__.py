"""Every setting: documented under its field, validated when made, frozen afterwards; TOML in and out.

A `Config` is what `config.toml` in a run folder holds, what a recipe fills in, and what `--set SECTION.FIELD=VALUE`
changes. Nothing here imports torch.
"""

from glassformer.base.config.model import GATED, Activation, Family, ModelConfig, Norm, Positions
from glassformer.base.config.run_config import Config, parse_changes, settings_of
from glassformer.base.config.tasks import EXAMPLES, LABELLED, PAIRS, TASK_FACTS, TEXTS, Task, TaskFacts, command_for
from glassformer.base.config.text import TOKENIZER_KINDS, DataConfig, TokenizerConfig
from glassformer.base.config.training import SampleConfig, TrainConfig

__all__ = [
    "EXAMPLES",
    "GATED",
    "LABELLED",
    "PAIRS",
    "TASK_FACTS",
    "TEXTS",
    "TOKENIZER_KINDS",
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
