"""`Architecture`: the description of one Hugging Face class, for import and export."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from glassformer.base.config import ModelConfig, Task
from glassformer.base.errors import GlassError
from glassformer.interop.huggingface.fields import ConfigReader, Field, Refusal
from glassformer.interop.huggingface.weights import Rule, Tensors, to_ours, to_theirs
from glassformer.model.build import build_model
from glassformer.model.shapes_only import shapes_only

HARMLESS = frozenset(
    """_name_or_path architectures model_type transformers_version torch_dtype dtype use_cache id2label label2id
    num_labels directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head
    pooler_type problem_type task_specific_params finetuning_task tokenizer_class initializer_range
    initializer_factor init_std output_attentions output_hidden_states return_dict gradient_checkpointing
    chunk_size_feed_forward output_past bos_token_id eos_token_id pad_token_id sep_token_id cls_token_id
    mask_token_id unk_token_id decoder_start_token_id forced_bos_token_id forced_eos_token_id bad_words_ids
    num_beams max_length min_length length_penalty early_stopping no_repeat_ngram_size temperature top_k top_p
    typical_p do_sample repetition_penalty num_return_sequences num_beam_groups diversity_penalty
    exponential_decay_length_penalty encoder_no_repeat_ngram_size remove_invalid_values return_dict_in_generate
    output_scores prefix begin_suppress_tokens suppress_tokens pretraining_tp n_ctx n_positions tf_legacy_loss
    torchscript use_bfloat16 is_decoder _attn_implementation_autoset n_special predict_special_tokens
    add_bias_logits classif_dropout extra_pos_embeddings
    force_bos_token_to_be_generated save_step unk_index""".split()  # noqa: SIM905
)
"""Fields about labels, generation, versions and initialization, on which no logit depends. Labels are read in
`read_model`, and some fields for generation in `importing` and `tokenizer_import`."""
TRAINING_ONLY = frozenset(
    """resid_pdrop embd_pdrop attn_pdrop attention_dropout residual_dropout embedding_dropout hidden_dropout
    hidden_dropout_prob attention_probs_dropout_prob dropout dropout_rate activation_dropout classifier_dropout
    classifier_dropout_prob encoder_layerdrop decoder_layerdrop summary_type summary_use_proj summary_activation
    summary_proj_to_labels summary_first_dropout""".split()  # noqa: SIM905
)
"""Fields without effect on the output of a trained model (`read_model` reads `summary_type` in our exports)."""
FORBIDDEN: Mapping[str, Any] = {
    "quantization_config": None,
    "is_encoder_decoder": None,
    "add_cross_attention": False,
    "cross_attention_hidden_size": None,
    "pruned_heads": {},
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
}
"""Fields that change the result, each with its only allowed value besides null; the family determines
`is_encoder_decoder`."""


@dataclass(frozen=True)
class Architecture:
    """Description of one Hugging Face architecture.

    Attributes:
        name: value of `--architecture`: the `model_type`; with `-masked`, the class with a masked-LM head.
        classes: name of the Hugging Face class for each supported task.
        family: our model family.
        fields: fields of `config.json`.
        rules: conversion rules of the tensors.
        prefix: prefix of all tensor names except those of the head; files of the bare model omit it.
        aliases: additional tensor names that a file may contain, and the name of the tensor that each must equal.
        ignored: suffixes of tensor names that a file may contain but the class does not use.
        renamed: suffixes of tensor names, each with its suffix in older files.
        rewrites: names of the equivalent forms that bring our model closer to the class; see `equivalent_forms`.
        needs_padding: required id of the padding token, if the class computes positions from it.
        pads_with_end: whether `pad_token_id` must be set; without a padding token, it is the id of the end token.
        own_code: the module of this package with the class, if transformers lacks it; None: transformers has it.
    """

    name: str
    classes: Mapping[Task, str]
    family: str
    fields: tuple[Field, ...]
    rules: tuple[Rule, ...]
    prefix: str = "model."
    aliases: Mapping[str, str] | None = None
    ignored: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    rewrites: tuple[str, ...] = ()
    needs_padding: int | None = None
    pads_with_end: bool = False
    own_code: str | None = None

    @property
    def model_type(self) -> str:
        """Return the value of `model_type` in `config.json`."""
        return self.name.removesuffix("-masked")

    def refusals(self, config: ModelConfig) -> list[Refusal]:
        """Return a refusal for each of our settings that the class cannot express."""
        if config.family != self.family:
            return [Refusal("family", config.family, self.family)]
        return [refusal for each in self.fields for refusal in each.refusals(config)]

    def read_config(self, values: Mapping[str, Any], path: str) -> ModelConfig:
        """Convert the fields of a `config.json` to our settings.

        Args:
            values: the fields.
            path: path of the file, for error messages.

        Raises:
            GlassError: a field is missing or unknown, contradicts another field, or has a value that our models cannot
                express.
        """
        theirs = ConfigReader(values, path)
        settings: dict[str, Any] = {"family": self.family}
        for each in self.fields:
            for setting, value in each.read(theirs).items():
                if settings.get(setting, value) != value:
                    raise GlassError(
                        f"{path} has contradictory fields: {settings[setting]} and {value} for model.{setting}",
                        "Correct one of the two fields.",
                    )
                settings[setting] = value
        allowed = {**FORBIDDEN, "is_encoder_decoder": self.family == "encoder-decoder"}
        for name, value in values.items():
            if name in theirs.read_names or name in HARMLESS or name in TRAINING_ONLY:
                continue
            if name in allowed:
                if value is not None and value != allowed[name]:
                    raise theirs.refuse(name, value, f"Only {name} = {allowed[name]} is supported.")
            elif value is not None:
                raise GlassError(
                    f"{path} has the field {name} = {str(value)[:60]!r}, which is unknown for {self.name} models",
                    "Remove the field if it has no effect on the result.",
                )
        try:
            return ModelConfig().replace(**settings)
        except GlassError as error:
            raise GlassError(f"{path}: {error.problem}", error.remedy) from None

    def write_config(self, config: ModelConfig) -> dict[str, Any]:
        """Convert our settings to the fields of `config.json`."""
        values: dict[str, Any] = {"model_type": self.model_type}
        for each in self.fields:
            values.update(each.write(config))
        return values

    def shapes(self, config: ModelConfig, classes: int | None) -> tuple[Tensors, Tensors]:
        """Return our tensors and those of the class for these settings, on the device "meta": names and shapes only."""
        with shapes_only():
            ours = dict(build_model(config, classes=classes).state_dict())
        return ours, self.to_theirs(ours, config)

    def to_theirs(self, ours: Tensors, config: ModelConfig) -> Tensors:
        """Convert our tensors to those of the class; see `weights.to_theirs`."""
        return to_theirs(self.rules, ours, config, self.name)

    def to_ours(self, theirs: Tensors, config: ModelConfig, expected: Tensors) -> Tensors:
        """Convert tensors of the class to ours; see `weights.to_ours`."""
        return to_ours(self.rules, theirs, expected, config)
