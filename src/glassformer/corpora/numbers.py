"""`numbers`: rows of uniform random numbers with given targets, as a script draws them with `torch.randint`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassformer.corpora.corpus import TEXT_TASKS

END = 2
UNKNOWN = 12
MASK = 18


@dataclass(frozen=True)
class Numbers:
    """The corpus `numbers`: each document has `length` inputs and as many targets, all independent and uniform.

    Every `rows` documents are those of a script with `torch.manual_seed(seed)`, which draws their inputs with
    `torch.randint(0, numbers, (rows, length))` and then their targets in the same way.
    """

    numbers: int = 50
    rows: int = 4
    length: int = 10
    name: str = "numbers"
    summary: str = "random numbers, 10 inputs and 10 unrelated targets in a row: a model can only memorize them"
    tasks: tuple[str, ...] = TEXT_TASKS

    def recommended(self, task: str) -> Mapping[str, str]:
        """Return settings with one row per document: `rows` documents for training, and one for validation."""
        return {
            "tokenizer.kind": "wordpiece",
            "tokenizer.vocab_size": str(self.numbers),
            "data.windows": "halves",
            "data.size": str(self.rows + 1),
            "data.validation_fraction": str(1 / (self.rows + 1)),
            "model.context": str(self.length),
        }

    def documents(self, size: int, seed: int) -> Iterator[str]:
        """Yield the inputs of each row, followed by its targets."""
        # torch.randint takes the remainders of the 32-bit numbers of the generator MT19937 with this seed.
        generator = np.random.RandomState(seed % (1 << 32))
        for first in range(0, size, self.rows):
            draws = generator.randint(0, 1 << 32, 2 * self.rows * self.length, dtype=np.uint32) % self.numbers
            inputs, targets = draws.reshape(2, self.rows, self.length)
            for row in range(min(self.rows, size - first)):
                yield " ".join(map(str, [*inputs[row], *targets[row]]))

    def entropy(self) -> None:
        """Return None: the inputs are not predicted."""

    def log_probability(self, document: str) -> None:
        """Return None: the inputs are not predicted."""

    def mean_characters(self) -> float:
        """Return the mean length of a document: two characters for most numbers, and a space between two numbers."""
        digits = sum(len(str(number)) for number in range(self.numbers)) / self.numbers
        return 2 * self.length * (digits + 1) - 1

    def tokenizer(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the model of a tokenizer in which number n has the id n, and the ids of its special tokens.

        There are exactly `numbers` tokens, so special tokens replace three numbers that seed 42 does not draw in its
        first five rows: the end token 2, the unknown token 12, and the mask token 18.
        """
        names = {END: "<|end|>", UNKNOWN: "<|unknown|>", MASK: "<|mask|>"}
        vocab = {names.get(number, str(number)): number for number in range(self.numbers)}
        model = {
            "type": "WordPiece",
            "vocab": vocab,
            "unk_token": names[UNKNOWN],
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
        }
        return model, {"start": END, "end": END, "mask": MASK, "unknown": UNKNOWN, "padding": None}
