"""`TextClassifier`: a text goes in, the label comes out, with the probability of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from glassformer.base.config import Config
from glassformer.model.evaluation_mode import inference
from glassformer.model.transformer import Classifier, Model
from glassformer.tasks.task_errors import refuse_mismatch, wrong_task
from glassformer.text.tokenizers import Tokenizer, frame_of

ROWS = 64  # texts that are read side by side


@dataclass(frozen=True)
class Classified:
    """A text and what the model says of it.

    Attributes:
        text: as it was given.
        label: the likeliest.
        probability: of that label.
        probabilities: of all labels, the likeliest first.
    """

    text: str
    label: str
    probability: float
    probabilities: dict[str, float]


class TextClassifier:
    """Texts in, labels out.

    Args:
        model: a classifier.
        tokenizer: the one that the model was trained with.
        labels: the names of its classes, in the order of its scores.
        config: of the run.

    Raises:
        GlassError: the model is of another family, or has another number of tokens than the tokenizer.
    """

    def __init__(self, model: Model, tokenizer: Tokenizer, labels: Sequence[str], config: Config) -> None:
        if not isinstance(model, Classifier):
            raise wrong_task(config.train.task, "classify", "Give a run of --task classify.")
        refuse_mismatch(model, tokenizer)
        self.model = model
        self.tokenizer = tokenizer
        self.labels = tuple(labels)
        self.config = config
        self.frame = frame_of(tokenizer, config)

    def __repr__(self) -> str:
        return f"TextClassifier(labels {', '.join(self.labels)}; {self.tokenizer!r})"

    def ids(self, text: str) -> list[int]:
        """Return the ids to read: an end token, which stands for the whole, and the text, cut to the context.

        Of an imported run it is framed as its own model was used.
        """
        return self.frame.around(self.tokenizer.encode(text), self.config.model.context)

    def unread_tokens(self, text: str) -> int:
        """Return how many tokens of the text are beyond the part that the model reads."""
        return max(0, len(self.tokenizer.encode(text)) - (self.config.model.context - len(self.frame)))

    def probabilities(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """(texts, labels), each row a distribution; a text's row does not depend on the others."""
        rows = [self.ids(text) for text in texts]
        order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
        result = np.zeros((len(rows), len(self.labels)))
        device = self.model.embedding.tokens.weight.device
        for start in range(0, len(order), ROWS):
            group = order[start : start + ROWS]
            width = max(len(rows[index]) for index in group)
            tokens = torch.tensor([rows[i] + [0] * (width - len(rows[i])) for i in group], device=device)  # (B, T)
            lengths = torch.tensor([len(rows[index]) for index in group], device=device)  # (B)
            real = torch.arange(width, device=device) < lengths[:, None]  # (B, T)
            with inference(self.model):
                scores = self.model(tokens, real).double()  # (B, C)
            result[group] = scores.softmax(dim=-1).cpu().numpy()
        return result

    def classify(self, texts: Sequence[str]) -> list[Classified]:
        """The label of each text, with all probabilities."""
        found = []
        for text, row in zip(texts, self.probabilities(texts), strict=True):
            ranking = np.argsort(-row, kind="stable")
            shares = {self.labels[index]: float(row[index]) for index in ranking}
            found.append(Classified(text, self.labels[ranking[0]], float(row[ranking[0]]), shares))
        return found
