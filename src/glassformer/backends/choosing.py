"""Choose what computes the logits of generated text: PyTorch, or onnxruntime on the processor.

`auto` never changes a text that is drawn: it stays with PyTorch unless every token is the likeliest. The logits agree
to about 1e-5, so only ties of less than that may end otherwise. Beam search is faster with PyTorch, which does much of
its work between two steps.
"""

from __future__ import annotations

import torch

from glassformer.backends.onnx_engine import OnnxEngine
from glassformer.base.backends import BACKENDS, BackendName
from glassformer.base.config import SampleConfig
from glassformer.base.errors import GlassError, nearest
from glassformer.base.packages import installed
from glassformer.generation.slot_reader import Engine
from glassformer.model.transformer import Decoder, EncoderDecoder

AUTO_TOKENS = 500
"""Tokens to generate, all texts together, from which on `auto` uses onnxruntime: to load it and to build the graph
takes a tenth of a second, as PyTorch does for some 50 tokens of a model of 10 M weights."""


def open_engine(name: BackendName, model: Decoder | EncoderDecoder, greedy: bool = False) -> Engine | None:
    """Return the engine of that name for a model, which may not be changed as long as it is used; None: PyTorch.

    Args:
        name: of the backend.
        model: that writes.
        greedy: PyTorch has next to nothing to do between two steps.

    Raises:
        GlassError: there is no such backend, it is not installed, or it cannot run this model.
    """
    match name:
        case "torch":
            return None
        case "onnxruntime":
            return OnnxEngine(model, torch.get_num_threads(), spins=greedy)
        case "onnxruntime-int8":
            return OnnxEngine(model, torch.get_num_threads(), "int8", spins=greedy)
    raise GlassError(f"there is no backend {name} for this", nearest(name, BACKENDS))


def choose_engine(
    name: BackendName, model: Decoder | EncoderDecoder, settings: SampleConfig, texts: int
) -> Engine | None:
    """Return the engine of that name; for `auto`, the one that suits so many texts with these settings.

    Raises:
        GlassError: as `open_engine`; never for `auto`.
    """
    greedy = settings.beams == 1 and settings.temperature == 0
    if name != "auto":
        return open_engine(name, model, greedy)
    tokens = texts * settings.tokens
    weight = model.embedding.tokens.weight
    is_exact = weight.dtype == torch.float32 and weight.device.type == "cpu"
    has_packages = installed("onnx") and installed("onnxruntime")
    if not greedy or tokens < AUTO_TOKENS or not is_exact or not has_packages:
        return None
    try:
        return open_engine("onnxruntime", model, greedy)
    except GlassError:  # a model that it cannot run
        return None
