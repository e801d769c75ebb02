"""Load the model of a file that `glass share` wrote."""

from __future__ import annotations

from pathlib import Path

import torch

from glassformer.app.share.package import Package
from glassformer.base.config import Config
from glassformer.runs.opening import untrained_model
from glassformer.tasks import AnyTextModel
from glassformer.tasks.make import make_text_model
from glassformer.text.tokenizers import Tokenizer


def load_shared(path: str | Path) -> AnyTextModel:
    """Load the model of a shared file, with its rounded weights.

    Its logits differ from those of the page by about 1e-5, because the page computes in float64.

    Args:
        path: path of the HTML file.

    Raises:
        GlassError: the file is missing, incomplete, not written by `glass share`, or has another format version.
    """
    package = Package.read(Path(path))
    header = package.header
    config = Config.from_dict(header["config"])
    tokenizer = Tokenizer(header["tokenizer"]["document"])
    source_data = header["source_tokenizer"]
    source = tokenizer if source_data is None else Tokenizer(source_data["document"])
    labels = tuple(header["run"]["labels"])
    model = untrained_model(config, tokenizer, source, labels)
    model.load_state_dict({name: torch.from_numpy(tensor.copy()) for name, tensor in package.tensors().items()})
    return make_text_model(config, model.eval(), tokenizer, source, labels)
