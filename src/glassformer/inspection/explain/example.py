"""Example model with three tokens, one head and width 4, small enough to check every number by hand.

The weights are set by hand, so that the model continues "the cat sat" with a word that can follow a verb with a
subject. Channel 0 marks articles, 1 nouns and 2 verbs; 3 means "the subject is known". The query of the verb matches
the key of the noun, and the value of the noun sets channel 3.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from glassformer.base.config import ModelConfig
from glassformer.inspection.explain.subject import Subject
from glassformer.model.build import build_model
from glassformer.model.transformer import Decoder

Rows = Sequence[Sequence[float]]
WORDS = ("the", "cat", "sat", "on", "down", ".")
IDS = (0, 1, 2)
EMBEDDING: Rows = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 1, 0], [0, 0, 1, 1], [0, 0, 0, 1]]
POSITIONS: Rows = [[0, 0, 0, 0], [0, 0.5, 0, 0], [0, 0, 0.5, 0]]
QUERY: Rows = [[1, 0, 0, 0], [1, 1, 0, 0], [0, 2, 0, 0], [0, 0, 0, 1]]
KEY: Rows = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
VALUE: Rows = [[0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0]]
OUTPUT: Rows = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
UP: Rows = [[1, 0, 0, -1], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
DOWN: Rows = [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0.5]]
HEAD: Rows = [[0, 0, 0, 0], [1, 0, -1, -1], [0, 1, -1, 0], [0, -1, 0, 1], [0, -1, 0.5, 0.5], [0, 0, -0.5, 0.5]]
"""Weights of the example. `QUERY` to `DOWN` are matrices W for products x W with row vectors, as in the formulas.

`EMBEDDING` and `HEAD` have a row for each word, and `POSITIONS` has a row for each position.
"""


NOTES = (
    "In this example, the weights are chosen by hand; in a trained model, training sets them.",
    "Channel 0 is for articles, 1 for nouns and 2 for verbs; channel 3 means that the subject is known.",
    'Follow "sat", the verb: its query matches the key of "cat", whose value sets channel 3, so "on" comes next.',
)


def example() -> Subject:
    """Return the example subject, which `glass explain` shows if no run is given."""
    config = ModelConfig(
        layers=1, width=4, heads=1, hidden=4, context=3, positions="learned", norm="none", activation="relu", tied=False
    )
    model = build_model(config, len(WORDS)).eval().requires_grad_(False)
    assert isinstance(model, Decoder)
    state = {
        "embedding.tokens.weight": EMBEDDING,
        "embedding.positions.table.weight": POSITIONS,
        "head.weight": HEAD,
        "stack.blocks.0.attention.query.weight": _turned(QUERY),
        "stack.blocks.0.attention.key.weight": _turned(KEY),
        "stack.blocks.0.attention.value.weight": _turned(VALUE),
        "stack.blocks.0.attention.output.weight": _turned(OUTPUT),
        "stack.blocks.0.feedforward.up.weight": _turned(UP),
        "stack.blocks.0.feedforward.down.weight": _turned(DOWN),
    }
    model.load_state_dict({name: torch.as_tensor(rows, dtype=torch.float32) for name, rows in state.items()})
    labels = tuple(WORDS[id] for id in IDS)
    return Subject(
        title="Three tokens, one head: an example made by hand",
        model=model,
        text=" ".join(labels),
        ids=IDS,
        labels=labels,
        positions=(2,),
        name=WORDS.__getitem__,
        notes=NOTES,
    )


def _turned(rows: Rows) -> Tensor:
    """Transpose a matrix: `nn.Linear` stores (out, in), but formulas have (in, out)."""
    return torch.tensor(rows, dtype=torch.float32).T
