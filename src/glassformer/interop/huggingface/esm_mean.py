"""Text classifier for the package transformers: ESM with a linear layer on the mean of the token vectors.

ESM with rotary positions is a plain pre-norm encoder. transformers has no class that averages the token vectors of
ESM, so this file is stored beside the weights. Load the folder with `trust_remote_code=True`.
"""

from typing import Any

import torch
from torch import nn
from transformers import EsmConfig, EsmModel, EsmPreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput


class EsmMeanConfig(EsmConfig):
    """Settings of ESM, with the `model_type` of the classifier in this file."""

    model_type = "esm-mean"


class EsmMeanForSequenceClassification(EsmPreTrainedModel):
    """Classifier on the mean of the last layer's vectors at positions that are not padding."""

    config_class = EsmMeanConfig

    def __init__(self, config: EsmMeanConfig) -> None:
        super().__init__(config)
        self.esm = EsmModel(config, add_pooling_layer=False)
        self.dropout = nn.Dropout(config.hidden_dropout_prob or 0.0)
        self.classifier = nn.Linear(config.hidden_size, len(config.id2label or {}))
        self.post_init()

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Return logits (B, C) for ids and mask (B, T); with labels (B), also return the cross-entropy."""
        kwargs.pop("return_dict", None)
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)[
            None
        ]  # (1, T): by default, ESM computes them from a padding token
        outputs = self.esm(input_ids, attention_mask=attention_mask, position_ids=positions, return_dict=True, **kwargs)
        x = outputs.last_hidden_state  # (B, T, D)
        mask = torch.ones(x.shape[:2], device=x.device) if attention_mask is None else attention_mask  # (B, T)
        mask = mask.to(x.dtype)[..., None]  # (B, T, 1)
        mean = (x * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)  # (B, D)
        logits = self.classifier(self.dropout(mean))  # (B, C)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)
