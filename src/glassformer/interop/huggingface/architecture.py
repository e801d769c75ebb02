"""`Architecture`: one class of Hugging Face, described once, read in both directions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from glassformer.base.config import ModelConfig, Task
from glassformer.base.errors import GlassError
from glassformer.interop.huggingface.fields import Field, Refusal, Theirs
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
"""Fields that say how text is written, what was saved by which version, or how training began: no logit depends on
them (`forced_bos_token_id` and those for writing are read where the tokenizer is)."""
TRAINING_ONLY = frozenset(
    """resid_pdrop embd_pdrop attn_pdrop attention_dropout residual_dropout embedding_dropout hidden_dropout
    hidden_dropout_prob attention_probs_dropout_prob dropout dropout_rate activation_dropout classifier_dropout
    classifier_dropout_prob encoder_layerdrop decoder_layerdrop summary_type summary_use_proj summary_activation
    summary_proj_to_labels summary_first_dropout""".split()  # noqa: SIM905
)
"""Fields without effect on what a trained model computes."""
FORBIDDEN: Mapping[str, Any] = {
    "quantization_config": None,
    "is_encoder_decoder": None,
    "add_cross_attention": False,
    "cross_attention_hidden_size": None,
    "pruned_heads": {},
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
}
"""Fields that would change the result, and the value with which they do not; `is_encoder_decoder` is the family's."""


@dataclass(frozen=True)
class Architecture:
    """One class.

    Attributes:
        name: as `--architecture` takes it: their model_type; with `-masked`, the class with a head for hidden words.
        classes: the name of their class for each task of ours that it can do.
        family: of ours.
        fields: of `config.json`.
        rules: of the tensors.
        prefix: of the names of all tensors but the head's: files of the bare model leave it out.
        aliases: names that a file may have besides: each must equal the tensor of the other name.
        ignored: endings of names of tensors that files may have besides and the class does not use.
        renamed: endings of names, and what older files say instead.
        rewrites: names of the equivalent forms of our models that fit it better; see `equivalent_forms`.
        needs_padding: places are counted by the padding token, whose id must be this one.
        pads_with_end: it must have a padding token: the end token, where the tokenizer has none for padding.
        own_code: the module of this package that holds the class, which transformers lacks; None: transformers has it.
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
        """As `config.json` says it."""
        return self.name.removesuffix("-masked")

    def refusals(self, config: ModelConfig) -> list[Refusal]:
        """What of our settings it cannot express; empty: everything."""
        if config.family != self.family:
            return [Refusal("family", config.family, self.family)]
        return [refusal for each in self.fields for refusal in each.refusals(config)]

    def read_config(self, values: Mapping[str, Any], place: str) -> ModelConfig:
        """Our settings for their `config.json`.

        Raises:
            GlassError: a field is missing, contradicts another, is unknown, or says what our models cannot express.
        """
        theirs = Theirs(values, place)
        found: dict[str, Any] = {"family": self.family}
        for each in self.fields:
            for setting, value in each.read(theirs).items():
                if found.get(setting, value) != value:
                    raise GlassError(
                        f"{place} says both {found[setting]} and {value} for what is model.{setting} here",
                        "They must be one.",
                    )
                found[setting] = value
        allowed = {**FORBIDDEN, "is_encoder_decoder": self.family == "encoder-decoder"}
        for name, value in values.items():
            if name in theirs.asked or name in HARMLESS or name in TRAINING_ONLY:
                continue
            if name in allowed:
                if value is not None and value != allowed[name]:
                    raise theirs.refuse(name, value, f"It can express {name} = {allowed[name]}.")
            elif value is not None:
                raise GlassError(
                    f"{place} has {name} = {str(value)[:60]!r}, which {self.name} models are not known to have",
                    "It may change the result, so it is not passed over. Take it out if it means nothing.",
                )
        try:
            return ModelConfig().replace(**found)
        except GlassError as error:
            raise GlassError(f"{place}: {error.problem}", error.remedy) from None

    def write_config(self, config: ModelConfig) -> dict[str, Any]:
        """Their fields for our settings."""
        found: dict[str, Any] = {"model_type": self.model_type}
        for each in self.fields:
            found.update(each.write(config))
        return found

    def shapes(self, config: ModelConfig, classes: int | None) -> tuple[Tensors, Tensors]:
        """Our tensors and theirs for these settings, on the device "meta": names and shapes."""
        with shapes_only():
            ours = dict(build_model(config, classes=classes).state_dict())
        return ours, self.to_theirs(ours, config)

    def to_theirs(self, ours: Tensors, config: ModelConfig) -> Tensors:
        """Their tensors for ours; see `weights.to_theirs`."""
        return to_theirs(self.rules, ours, config, self.name)

    def to_ours(self, theirs: Tensors, config: ModelConfig, wanted: Tensors) -> Tensors:
        """Our tensors for theirs; see `weights.to_ours`."""
        return to_ours(self.rules, theirs, wanted, config)
