"""`TextClassifier`: predicts the label of a text, with the probability of each label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from glassformer.base.config import Config
from glassformer.model.evaluation_mode import inference
from glassformer.model.transformer import Classifier, Model
from glassformer.tasks.naming import label_named
from glassformer.tasks.task_errors import refuse_mismatch, wrong_task
from glassformer.text.tokenizers import Tokenizer, frame_of

ROWS = 64  # texts in one batch


@dataclass(frozen=True)
class Classified:
    """A text and its predicted label.

    Attributes:
        text: the text.
        label: the likeliest label.
        probability: probability of `label`.
        probabilities: probabilities of all labels, likeliest first.
    """

    text: str
    label: str
    probability: float
    probabilities: dict[str, float]


class TextClassifier:
    """A classifier with its tokenizer and the names of its labels.

    Args:
        model: a classifier.
        tokenizer: the tokenizer that the model was trained with.
        labels: names of the labels, in the order of the model's scores.
        config: settings of the run.

    Raises:
        GlassError: the model is not a classifier, or its vocabulary size differs from the tokenizer's.
    """

    def __init__(self, model: Model, tokenizer: Tokenizer, labels: Sequence[str], config: Config) -> None:
        if not isinstance(model, Classifier):
            raise wrong_task(config.train.task, "classify", "Give a run of --task classify.")
        refuse_mismatch(model, tokenizer)
        self.model = model
        self.tokenizer = self.source_tokenizer = tokenizer
        self.labels = tuple(labels)
        self.config = config
        self.frame = frame_of(tokenizer, config)

    def __repr__(self) -> str:
        return f"TextClassifier(labels {', '.join(self.labels)}; {self.tokenizer!r})"

    def output_id(self, name: str | int) -> int:
        """Return the number of the label called `name`; see `label_named`."""
        return label_named(self.labels, name)

    def output_text(self, id: int) -> str:
        """Return the name of a label."""
        return self.labels[id]

    def ids(self, text: str) -> list[int]:
        """Return the ids that the model reads: a start token and the text, cut to the context.

        If an imported tokenizer defines the special tokens around a text, these replace the start token.
        """
        return self.frame.around(self.tokenizer.encode(text), self.config.model.context)

    def unread_tokens(self, text: str) -> int:
        """Return the number of tokens at the end of the text that do not fit the context and are not read."""
        return max(0, len(self.tokenizer.encode(text)) - (self.config.model.context - len(self.frame)))

    def probabilities(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the probabilities of all labels, (texts, labels); each row is independent of the other texts."""
        rows = [self.ids(text) for text in texts]
        order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
        result = np.zeros((len(rows), len(self.labels)))
        device = self.model.embedding.tokens.weight.device
        for start in range(0, len(order), ROWS):
            group = order[start : start + ROWS]
            width = max(len(rows[index]) for index in group)
            tokens = torch.tensor([rows[i] + [0] * (width - len(rows[i])) for i in group], device=device)  # (B, T)
            lengths = torch.tensor([len(rows[index]) for index in group], device=device)  # (B)
            attention_mask = torch.arange(width, device=device) < lengths[:, None]  # (B, T)
            with inference(self.model):
                scores = self.model(tokens, attention_mask).double()  # (B, C)
            result[group] = scores.softmax(dim=-1).cpu().numpy()
        return result

    def classify(self, texts: Sequence[str]) -> list[Classified]:
        """Predict the label of each text, with the probabilities of all labels."""
        classified = []
        for text, row in zip(texts, self.probabilities(texts), strict=True):
            ranking = np.argsort(-row, kind="stable")
            probabilities = {self.labels[index]: float(row[index]) for index in ranking}
            classified.append(Classified(text, self.labels[ranking[0]], float(row[ranking[0]]), probabilities))
        return classified
