"""Every setting: documented under its field, validated when made, frozen afterwards; TOML in and out.

A `Config` is what `config.toml` in a run folder holds, what a recipe fills in, and what `--set SECTION.FIELD=VALUE`
changes. Nothing here imports torch.
"""

from glassformer.base.config.model import GATED, Activation, Family, ModelConfig, Norm, Positions
from glassformer.base.config.tasks import EXAMPLES, FAMILIES, PAIRS, Task
from glassformer.base.config.text import TOKENIZER_KINDS, DataConfig, TokenizerConfig
from glassformer.base.config.training import SampleConfig, TrainConfig
from glassformer.base.config.whole import Config, parse_changes, settings_of

__all__ = [
    "EXAMPLES",
    "FAMILIES",
    "GATED",
    "PAIRS",
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
    "TokenizerConfig",
    "TrainConfig",
    "parse_changes",
    "settings_of",
]
