"""`load_shared`: the model in a file of `glass share`, for Python."""

from __future__ import annotations

from pathlib import Path

import torch

from glassformer.app.share.package import Package
from glassformer.base.config import Config
from glassformer.model.build import build_model
from glassformer.model.transformer import Model
from glassformer.runs.opening import Parts, text_model_of
from glassformer.tasks import AnyTextModel
from glassformer.text.tokenizers import Tokenizer


def load_shared(path: str | Path) -> AnyTextModel:
    """The model that a shared file holds, with its weights rounded as they are there.

    What it computes is what the page shows: the page works in float64, so to about 1e-5.

    Args:
        path: of the HTML file.

    Raises:
        GlassError: it is no such file, or not a whole one.
    """
    return text_model_of(parts_of(Package.read(Path(path))))


def parts_of(package: Package) -> Parts:
    """A run, opened, from what a file holds."""
    header = package.header
    config = Config.from_dict(header["config"])
    tokenizer = Tokenizer(header["tokenizer"]["document"])
    own_source = header["source_tokenizer"]
    source = tokenizer if own_source is None else Tokenizer(own_source["document"])
    labels = tuple(header["run"]["labels"])
    model = _built(config, tokenizer, source, len(labels))
    model.load_state_dict({name: torch.from_numpy(tensor.copy()) for name, tensor in package.tensors().items()})
    return Parts(config, model.eval(), tokenizer, source, labels)


def _built(config: Config, tokenizer: Tokenizer, source: Tokenizer, classes: int) -> Model:
    return build_model(
        config.model, tokenizer.vocab_size,
        source_vocab_size=None if config.model.shared_embedding else source.vocab_size,
        classes=classes if config.train.task == "classify" else None,
    )  # fmt: skip
