"""Published figures of a two-layer post-norm model, reproduced by the recipes tutorial-a3 and tutorial-a4."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from glassformer.app.cli.main import main
from glassformer.base.config import Config
from glassformer.base.recipes import load_recipe
from glassformer.corpora.numbers import Numbers
from glassformer.model.build import build_model

VOCAB = 50
WIDTH = 16
HIDDEN = 64


def train(recipe: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[float]:
    """Train a recipe by command in a folder, and return the loss of each step from `metrics.jsonl`."""
    monkeypatch.chdir(folder)
    assert main(["train", "--recipe", recipe, "--out", "run", "--set", "train.threads=1"]) == 0
    return [json.loads(line)["loss"] for line in Path("run/metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def test_the_corpus_has_the_numbers_of_torch() -> None:
    torch.manual_seed(42)
    inputs, targets = torch.randint(0, VOCAB, (4, 10)), torch.randint(0, VOCAB, (4, 10))
    rows = [[int(number) for number in text.split()] for text in Numbers().documents(4, seed=42)]
    assert rows == torch.cat([inputs, targets], dim=1).tolist()
    assert list(Numbers().documents(9, seed=7))[:5] == list(Numbers().documents(5, seed=7))


@pytest.mark.parametrize("recipe", ["tutorial-a3", "tutorial-a4"])
def test_the_initial_weights_are_those_of_torchs_layers(recipe: str) -> None:
    """The layers are created in this order: embedding; attention, linear layers and norms of each block; output."""
    config = Config.from_dict(load_recipe(recipe).settings).model
    torch.manual_seed(42)
    torch.randint(0, VOCAB, (4, 10))
    torch.randint(0, VOCAB, (4, 10))
    wanted = {"embedding.tokens.weight": nn.Embedding(VOCAB, WIDTH).weight}
    for block in ("stack.blocks.0", "stack.blocks.1"):
        attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        for row, name in enumerate(("query", "key", "value")):
            part = slice(row * WIDTH, (row + 1) * WIDTH)
            wanted[f"{block}.attention.{name}.weight"] = attention.in_proj_weight[part]
            wanted[f"{block}.attention.{name}.bias"] = attention.in_proj_bias[part]
        modules = {
            "attention.output": attention.out_proj,
            "feedforward.up": nn.Linear(WIDTH, HIDDEN),
            "feedforward.down": nn.Linear(HIDDEN, WIDTH),
            "attention_norm": nn.LayerNorm(WIDTH),
            "feedforward_norm": nn.LayerNorm(WIDTH),
        }
        wanted |= {f"{block}.{name}.weight": module.weight for name, module in modules.items()}
        wanted |= {f"{block}.{name}.bias": module.bias for name, module in modules.items()}
    output = nn.Linear(WIDTH, VOCAB)
    wanted |= {"head.bias": output.bias} if config.tied else {"head.bias": output.bias, "head.weight": output.weight}
    weights = build_model(config, VOCAB, seed=42).state_dict()
    assert weights.keys() == wanted.keys()
    assert all(torch.equal(weights[name], value) for name, value in wanted.items())


def test_the_first_loss_without_mask_and_with_untied_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("tutorial-a3", monkeypatch, tmp_path) == [pytest.approx(4.222940444946289, abs=5e-7)]
    assert "loss 4.2229" in capsys.readouterr().err


def test_five_steps_with_mask_and_tied_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    losses = train("tutorial-a4", monkeypatch, tmp_path)
    assert [round(loss, 4) for loss in losses] == [12.4078, 8.8194, 6.9047, 5.6511, 4.8191]
    numbers = next(Numbers().documents(1, seed=42)).split()[:10]
    Path("rows.txt").write_text("".join(f"{' '.join(numbers[:end])}\n" for end in range(1, 11)), encoding="utf-8")
    capsys.readouterr()
    assert main(["generate", "run", "--input", "rows.txt", "--tokens", "1", "--temperature", "0"]) == 0
    predicted = [int(line.split()[-1]) for line in capsys.readouterr().out.splitlines()]
    assert predicted == [11, 3, 19, 19, 19, 35, 19, 11, 43, 43]
