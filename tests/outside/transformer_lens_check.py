"""The listings of docs/python.md for TransformerLens and transformers compute the numbers of the listing for us.

Run `pip install -c constraints.txt transformer-lens==4.3.0`, and then `pytest tests/outside/transformer_lens_check.py`.
The file's name does not begin with `test_`, so pytest does not collect it with the test suite.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.journey.commands import here as glass
from tests.journey.pages import blocks
from tests.journey.task_files import write_all
from tests.outside.lm_eval_check import TRAINED

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"
LISTINGS = {
    "ours": "import glassformer",
    "transformer_lens": "from transformer_lens",
    "transformers": "from transformers",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Return the variables of each listing after it ran, with a small model at the paths of the page."""
    pytest.importorskip("transformer_lens")
    folder = tmp_path_factory.mktemp("page")
    write_all(folder)
    done = glass("train", "book.txt", "--recipe", "serve", *TRAINED, "--out", "runs/book", folder=folder)
    assert done.returncode == 0, done.stderr
    done = glass("export", "runs/book", "--to", "hf", "--out", "exported/book", folder=folder)
    assert done.returncode == 0, done.stderr
    pieces = [block.code for language in ("python", "text") for block in blocks(PAGE, language)]
    variables: dict[str, dict[str, Any]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, beginning in LISTINGS.items():
            (code,) = [each for each in pieces if beginning in each][:1]
            variables[name] = {}
            exec(compile(code, f"{PAGE.name}: {name}", "exec"), variables[name])
    return variables


def log_probabilities(logits: Any) -> torch.Tensor:
    return logits.reshape(-1, logits.shape[-1]).detach().log_softmax(-1)


@pytest.mark.parametrize("name", ["transformer_lens", "transformers"])
def test_the_numbers_are_ours(found: dict[str, dict[str, Any]], name: str) -> None:
    ours, theirs = found["ours"], found[name]
    assert theirs["loss"].item() == pytest.approx(ours["loss"], abs=1e-5)
    assert theirs["change"].item() == pytest.approx(ours["change"], abs=1e-5)
    assert abs(ours["change"]) > 1e-3
    assert torch.allclose(theirs["pattern"], ours["pattern"], atol=1e-5)
    for key in ("logits", "patched"):
        assert torch.allclose(log_probabilities(theirs[key]), log_probabilities(ours[key]), atol=1e-4), key
    assert not torch.allclose(log_probabilities(ours["patched"]), log_probabilities(ours["logits"]), atol=1e-3)


def test_the_contributions_add_up_to_the_logit(found: dict[str, dict[str, Any]]) -> None:
    theirs = found["transformer_lens"]
    assert theirs["gives"].sum().item() == pytest.approx(theirs["logits"][0, -1].max().item(), abs=1e-3)
