"""The recurrent network beside the transformer: as many weights, causal, and compared by what both compute."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from glassformer.app.cli.main import main
from glassformer.base.config import Config
from glassformer.model.build import build_model
from glassformer.model.transformer import Decoder
from glassformer_course import recurrence
from glassformer_course.recurrence import LSTM, TEXT, TRANSFORMER, alteration

TINY = {"LINES": 300, "LENGTHS": (32, 64), "TEXT_STEPS": 16, "RECALL_STEPS": 8, "RATES": (1e-2, 3e-2)}


def both() -> dict[str, Decoder]:
    """Return both networks with the settings of the study and 29 tokens."""
    models = {}
    for name in (TRANSFORMER, LSTM):
        model = build_model(Config.from_dict(TEXT).model, 29, seed=3)
        assert isinstance(model, Decoder)
        change = alteration(name, 3)
        if change is not None:
            change.apply(model)
        models[name] = model.eval()
    return models


def test_both_networks_have_about_as_many_weights_and_the_same_embedding_and_head() -> None:
    models = both()
    sizes = {name: sum(each.numel() for each in model.parameters()) for name, model in models.items()}
    assert abs(sizes[LSTM] / sizes[TRANSFORMER] - 1) < 0.02
    for part in ("embedding", "head"):
        first, second = (getattr(models[name], part).state_dict() for name in (TRANSFORMER, LSTM))
        assert first.keys() == second.keys()
        assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_seed_decides_the_initial_weights() -> None:
    before = torch.get_rng_state()
    first, second = (both()[LSTM].state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", [TRANSFORMER, LSTM])
def test_a_later_token_changes_no_earlier_logits(name: str) -> None:
    model = both()[name]
    tokens = torch.randint(29, (2, 13), generator=torch.Generator().manual_seed(0))  # (B, T)
    changed = tokens.clone()
    changed[:, 7] = (changed[:, 7] + 1) % 29
    before, after = model(tokens), model(changed)  # (B, T, V)
    assert torch.equal(before[:, :7], after[:, :7])
    assert not torch.allclose(before[:, 7:], after[:, 7:])


def test_the_layers_are_an_lstm_step_by_step() -> None:
    stack = both()[LSTM].stack
    lstm = stack.blocks
    x = torch.randn(1, 5, lstm.hidden_size)  # (B, T, D)
    state = [(torch.zeros(lstm.hidden_size), torch.zeros(lstm.hidden_size)) for _ in range(lstm.num_layers)]
    rows = []
    for given in x[0]:
        h = given  # (D)
        for layer in range(lstm.num_layers):
            hidden, cell = state[layer]
            weights = [getattr(lstm, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
            gates = weights[0] @ h + weights[1] @ hidden + weights[2] + weights[3]  # (4 D)
            enter, forget, new, out = gates.chunk(4)
            cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
            h = out.sigmoid() * cell.tanh()
            state[layer] = (h, cell)
        rows.append(h)
    torch.testing.assert_close(lstm(x)[0][0], torch.stack(rows))
    for layer in range(lstm.num_layers):
        forget_bias = getattr(lstm, f"bias_ih_l{layer}")[lstm.hidden_size : 2 * lstm.hidden_size]
        assert torch.equal(forget_bias, torch.ones_like(forget_bias))


@pytest.mark.thorough
def test_the_study_by_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in TINY.items():
        monkeypatch.setattr(recurrence, name, value)
    monkeypatch.chdir(tmp_path)
    text = tmp_path / "text.txt"
    text.write_text("the old dog sleeps. a bird sings to the moon. " * 300, encoding="utf-8")
    assert main(["learn", "rnn", str(text), "--out", "rnn.svg", "--seeds", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {name: len(losses) for name, losses in found["losses"].items()} == {TRANSFORMER: 2, LSTM: 2}
    assert all(0 < loss < 4 for losses in found["losses"].values() for loss in losses)
    training, times, gradients, recall = found["charts"]
    for name in (TRANSFORMER, LSTM):
        assert training["curves"][name]
        assert [length for length, _ in times["curves"][name]] == [32, 64]
        assert [distance for distance, _ in gradients["curves"][name]] == list(range(64))
        assert {distance for distance, _ in recall["curves"][name]} <= set(range(3, 50))
        assert 0 <= found["recalled"][name] <= 1
    assert (tmp_path / "rnn.svg").read_text(encoding="utf-8").startswith("<svg")
    for words, problem in (
        (["rnn", "--seeds", "0"], "--seeds is 0"),
        (["rnn", "--out", "rnn.png"], "--out rnn.png is not the name of a picture"),
        (["rnn", "none.txt"], "none.txt does not exist"),
    ):
        assert main(["learn", *words]) == 2
        assert problem in capsys.readouterr().err.splitlines()[-2], words
