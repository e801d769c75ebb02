"""Script that recomputes the logit of a receipt from the files of the run, with NumPy and without PyTorch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from glassformer.base.config import LABELLED
from glassformer.base.wording import in_quotes
from glassformer.inspection.receipt.receipt import Receipt

SCRIPT = '''\
"""One logit of a run, or the difference of two, computed from the run's files with NumPy, without PyTorch."""

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from glassformer.base.config import Config
from glassformer.numpy_reference import logits

RUN = Path({run})
{comment}
settings = Config.read(RUN / "config.toml").model{classes}
weights = load_file(RUN / "checkpoints" / {checkpoint} / "model.safetensors")
{arrays}
found = logits(settings, weights, {names})[0{place}]  # ({letter})
print(f"{{{value}:.6f}}")
'''


def snippet(receipt: Receipt, folder: Path, checkpoint: str) -> str:
    """Return a script that prints the logit, or the difference of logits, that a receipt explains.

    Args:
        receipt: receipt of a run on disk.
        folder: folder of the run.
        checkpoint: name of the checkpoint that the receipt was made from, such as "step-000850".
    """
    prediction = receipt.prediction
    labelled = receipt.config.train.task in LABELLED
    arrays = [_array("tokens", prediction.read, receipt.read)]
    names = ["tokens=tokens"]
    if prediction.source is not None and receipt.source is not None:
        arrays.append(_array("source", prediction.source, receipt.source))
        names.append("source=source")
    value = f"found[{receipt.token}]"
    explained = in_quotes(receipt.names(receipt.token))
    if receipt.against is not None:
        value += f" - found[{receipt.against}]"
        explained += f" against {in_quotes(receipt.names(receipt.against))}"
    return SCRIPT.format(
        run=json.dumps(folder.resolve().as_posix(), ensure_ascii=False),
        comment=f"# {explained}: glass receipt printed {receipt.logit:.6f}",
        checkpoint=json.dumps(checkpoint),
        arrays="\n".join(arrays),
        names=", ".join(names),
        classes=f".replace(classes={len(prediction.logits)})" if labelled else "",
        place="" if labelled else f", {prediction.positions[0]}",
        letter="classes" if labelled else "V",
        value=value,
    )


def _array(name: str, ids: Sequence[int], texts: Sequence[str]) -> str:
    """Return the ids as a line of code, with their texts in a comment."""
    return f"{name} = np.array([{list(ids)}])  # {' '.join(map(repr, texts))}"
