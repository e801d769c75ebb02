"""Choose the backend that computes the logits of generated text: PyTorch or onnxruntime on the CPU.

`auto` uses onnxruntime only for greedy decoding of at least `AUTO_TOKENS` tokens by a float32 model on the CPU, if the
packages are installed and the model is supported; for sampling and beam search it uses PyTorch. In float32, the logits
of the two backends agree to about 1e-5, so a greedy token can differ only in a near-tie.
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
"""Minimum number of tokens, over all texts, for which `auto` uses onnxruntime. Loading it and building the graph take
about 0.1 s; in that time PyTorch generates about 50 tokens with a model of 10 M parameters."""


def open_engine(name: BackendName, model: Decoder | EncoderDecoder, greedy: bool = False) -> Engine | None:
    """Return the engine of a backend, or None for PyTorch. Do not change the model while the engine is in use.

    Args:
        name: backend; not "auto".
        model: model that generates text.
        greedy: whether decoding is greedy; onnxruntime's threads then busy-wait between steps.

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
    raise GlassError(f"unknown backend {name!r}", nearest(name, BACKENDS))


def choose_engine(
    name: BackendName, model: Decoder | EncoderDecoder, settings: SampleConfig, texts: int
) -> Engine | None:
    """Return the engine of a backend, or None for PyTorch; for `auto`, choose as the module's docstring says.

    Args:
        name: name of the backend.
        model: model that generates text.
        settings: settings of the generation.
        texts: number of texts to generate.

    Raises:
        GlassError: as in `open_engine`; never for `auto`.
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
    except GlassError:  # onnxruntime cannot run this model
        return None
