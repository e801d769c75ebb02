"""Choose a llama.cpp architecture for a decoder, and convert tensors to its layout.

A GGUF file names an architecture and contains its sizes, the norm epsilon and the rotary base. The rest is fixed in
llama.cpp's code for that architecture: the activation, the layers with biases, and the pairs of channels that rotary
positions rotate (see github.com/ggml-org/llama.cpp, src/models/{llama,qwen3,starcoder2,gpt2}.cpp). A file for a model
with other properties could load without an error but compute wrong results, so such models are refused here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.base.config import ModelConfig
from glassformer.base.errors import GlassError, nearest
from glassformer.interop.huggingface.choosing import ARCHITECTURES, closest_form
from glassformer.interop.huggingface.fields import FixedSetting, Refusal
from glassformer.interop.huggingface.weights import Tensors

BLOCK = 32
"""Number of weights in a block of Q8_0; a row is divided into blocks, each with its own scale."""


@dataclass(frozen=True)
class GgufArchitecture:
    """One architecture of llama.cpp.

    Attributes:
        name: name of the architecture in GGUF and in Hugging Face.
        fixed: settings that are fixed in llama.cpp's code but not in the Hugging Face class.
        neighbours: True if rotary positions rotate channels 2 j and 2 j + 1 together, False if they rotate j and
            j + K/2 together, as in glassformer.
        rms: True if norms are RMSNorm, False if they are LayerNorm with a bias.
        gated: True if the activation is SwiGLU, False if it is tanh-GELU.
        biased: whether llama.cpp requires a bias for every matrix in the blocks.
    """

    name: str
    fixed: tuple[FixedSetting, ...]
    neighbours: bool
    rms: bool
    gated: bool
    biased: bool

    def refusals(self, config: ModelConfig, ours: Tensors) -> list[Refusal]:
        """Return a refusal for each setting that the architecture cannot express."""
        architecture = ARCHITECTURES[self.name]
        if config.family != "decoder":
            return [Refusal("family", config.family, "decoder")]
        shapes = {name: torch.empty_like(tensor, device="meta") for name, tensor in ours.items()}
        form = closest_form(architecture, config, shapes)[0]
        refusals = [refusal for each in self.fixed for refusal in each.refusals(form)]
        refusals += architecture.refusals(form)
        return list({each.setting: each for each in reversed(refusals)}.values())


NO_WINDOW = FixedSetting("window", (None,))
NO_BIAS = FixedSetting("attention_bias", (False,))
SILU = FixedSetting("activation", ("swiglu",))
GELU = FixedSetting("activation", ("gelu_tanh",))
TARGETS = {
    each.name: each
    for each in (
        GgufArchitecture("llama", (SILU, NO_WINDOW), neighbours=True, rms=True, gated=True, biased=False),
        GgufArchitecture("qwen3", (SILU, NO_WINDOW, NO_BIAS), neighbours=False, rms=True, gated=True, biased=False),
        GgufArchitecture("starcoder2", (GELU, NO_WINDOW), neighbours=False, rms=False, gated=False, biased=True),
        GgufArchitecture("gpt2", (GELU, NO_WINDOW), neighbours=False, rms=False, gated=False, biased=True),
    )
}
"""Name -> architecture; if several architectures can express a model, the first one is chosen."""


def choose_target(config: ModelConfig, ours: Tensors, requested_name: str | None) -> GgufArchitecture:
    """Return the architecture to export a model as.

    Args:
        config: settings of the model.
        ours: tensors of the model; only names and shapes are read.
        requested_name: the name of an architecture; None: the first one that can express all settings.

    Raises:
        GlassError: `requested_name` is unknown, or it cannot express a setting; without it, no architecture can
            express all settings. The error names the closest possible settings.
    """
    if requested_name is not None and requested_name not in TARGETS:
        raise GlassError(f"unknown GGUF architecture {requested_name!r}", nearest(requested_name, TARGETS))
    targets = [TARGETS[requested_name]] if requested_name else list(TARGETS.values())
    tried = [(each, each.refusals(config, ours)) for each in targets]
    target = next((each for each, refusals in tried if not refusals), None)
    if target is not None:
        return target
    closest, refusals = min(tried, key=lambda pair: len(pair[1]))
    values = ", ".join(f"model.{each.setting} = {each.value}" for each in refusals)
    changes = " ".join(f"--set {each.remedy()}" for each in refusals)
    raise GlassError(
        f"llama.cpp cannot run {values} as {closest.name}", f"Nearest: {closest.name}, for a run trained with {changes}"
    )


def interleave_halves(matrix: Tensor, heads: int) -> Tensor:
    """Reorder a query or key matrix (heads K, D), or bias (heads K), so that channels j and j + K/2 become neighbours.

    Scores do not change: queries, keys and their rotation are reordered in the same way.
    """
    halves = matrix.view(heads, 2, -1, *matrix.shape[1:])  # (heads, 2, K/2, D)
    return halves.transpose(1, 2).reshape(matrix.shape)  # (heads K, D)


def refuse_rows(tensors: Sequence[tuple[str, tuple[int, ...]]], config: ModelConfig) -> None:
    """Raise a `GlassError` if a row length is not a multiple of the Q8_0 block.

    Args:
        tensors: the tensors to quantize: name and shape (rows, row length).
        config: settings of the model, to name the setting to change.
    """
    for name, (_, length) in tensors:
        if length % BLOCK:
            next_multiple = -(-length // BLOCK) * BLOCK
            setting = "hidden" if "ffn_down" in name else "width"
            if "attn_output" in name and length != config.width:
                setting = "head_width"
                next_multiple = -(-config.K // BLOCK) * BLOCK
            raise GlassError(
                f"the rows of {name} have {length} numbers, which is not a multiple of the q8_0 block size {BLOCK}",
                "Nearest: --dtype f16 for this run, or q8_0 for a run trained with "
                f"--set model.{setting}={next_multiple}",
            )
