"""A position method defined only by a subclass works in fast decoding, in the position curves and in the tape."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from glassformer.generation.fast import fast_decoder
from glassformer.inspection.explain import Subject, make_tape
from glassformer.inspection.position_curves import bias_by_distance, embedding_of, position_vectors
from glassformer.inspection.trace import trace
from glassformer.model import transformer
from glassformer.model.positions import AddedPositions, ScorePositions
from glassformer.model.transformer import Decoder
from tests.property.models import decoder, tiny, tokens

HEADS = 6


class Waves(ScorePositions):
    """A bias that oscillates with the distance, at a different frequency in each head."""

    def by_distance(self, relative_positions: Tensor) -> Tensor:
        pace = torch.arange(1, HEADS + 1, device=relative_positions.device)  # (H)
        return torch.cos(relative_positions[:, None] / pace[:, None, None])  # (B, H, T, S)


class Steps(AddedPositions):
    """Position vectors with a cosine of a different frequency in each channel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, positions: Tensor) -> Tensor:
        return torch.cos(positions[..., None] * torch.arange(self.width))  # (B, T, D)


@pytest.fixture(params=["added", "score"])
def model(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Decoder:
    """Return a decoder with the setting "none" whose parts use a custom position method."""
    if request.param == "added":
        monkeypatch.setattr(transformer, "added_positions", lambda config: Steps(config.width))
    else:
        monkeypatch.setattr(transformer, "score_positions", lambda config, causal: Waves())
    return decoder(tiny(positions="none", heads=HEADS, kv_heads=2))


def test_custom_positions_change_the_logits(model: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    given = tokens(1, 9)
    changed = model(given)
    monkeypatch.undo()
    assert not torch.allclose(changed, decoder(tiny(positions="none", heads=HEADS, kv_heads=2))(given), atol=1e-3)


def test_the_fast_decoder_supports_custom_positions(model: Decoder) -> None:
    assert fast_decoder(model, steps=20) is not None


def test_position_curves_agree_with_the_model(model: Decoder) -> None:
    made = trace(model, tokens(1, 11))
    stack, embedding = embedding_of(model, "dec")
    vectors = position_vectors(embedding, 11)
    bias = bias_by_distance(stack, torch.arange(11))
    if vectors is not None:
        assert bias is None
        assert made.stack.position_vectors is not None
        assert torch.equal(vectors, made.stack.position_vectors[0].double())
    else:
        assert bias is not None
        own = made.stack.blocks[0].attention.bias
        assert own is not None
        assert torch.equal(own[0, :, 10].double().flip(-1), bias)


def test_each_cell_of_the_tape_can_be_recomputed(model: Decoder) -> None:
    ids = tuple(tokens(1, 7)[0].tolist())
    labels = tuple(map(str, ids))
    tape = make_tape(Subject("a model", model, "a text", ids, labels, (6,), str))
    numbers = [number for number, matrix in enumerate(tape.matrices) if matrix.name in ("B", "P")]
    assert numbers
    for number in numbers:
        difference = tape.difference(number)
        assert difference is not None
        assert difference < 1e-6
        working = tape.derive_cell(number, 5, 2)
        assert working is not None
