"""Text classifier for transformers: BERT with a linear layer on the mean of the token vectors.

transformers has no BERT class that averages over a text's tokens, so this file is stored beside the weights. Load the
folder with `trust_remote_code=True`.
"""

from typing import Any

import torch
from torch import nn
from transformers import BertConfig, BertModel, BertPreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput


class BertMeanConfig(BertConfig):
    """Settings of BERT, under the `model_type` that names this file's classifier."""

    model_type = "bert-mean"


class BertMeanForSequenceClassification(BertPreTrainedModel):
    """Classifier on the mean of the last layer's vectors at positions that are not padding."""

    config_class = BertMeanConfig

    def __init__(self, config: BertMeanConfig) -> None:
        super().__init__(config)
        self.bert = BertModel(config, add_pooling_layer=False)
        rate = config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout
        self.dropout = nn.Dropout(rate)
        self.classifier = nn.Linear(config.hidden_size, len(config.id2label or {}))
        self.post_init()

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Compute the scores: ids and mask (B, T) -> (B, C); with labels (B), also the cross entropy."""
        kwargs.pop("return_dict", None)
        outputs = self.bert(input_ids, attention_mask=attention_mask, return_dict=True, **kwargs)
        x = outputs.last_hidden_state  # (B, T, D)
        mask = torch.ones(x.shape[:2], device=x.device) if attention_mask is None else attention_mask  # (B, T)
        mask = mask.to(x.dtype)[..., None]  # (B, T, 1)
        mean = (x * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)  # (B, D)
        logits = self.classifier(self.dropout(mean))  # (B, C)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)
