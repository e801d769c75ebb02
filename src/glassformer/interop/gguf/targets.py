"""Choice of a llama.cpp architecture for a decoder, and the tensor layout that it needs.

A GGUF file names an architecture and carries its sizes. All else is fixed in llama.cpp's code for that architecture:
the activation, which parts have biases, how rotary positions pair channels (github.com/ggml-org/llama.cpp,
src/models/{llama,qwen3,starcoder2,gpt2}.cpp). A file that means something else loads, and computes something else. So
what is fixed there is refused here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.base.config import ModelConfig
from glassformer.base.errors import GlassError, nearest
from glassformer.interop.huggingface.choosing import ARCHITECTURES, fitted
from glassformer.interop.huggingface.fields import Always, Refusal
from glassformer.interop.huggingface.weights import Tensors

BLOCK = 32
"""Q8_0 keeps a row in blocks of so many numbers, each with a scale of its own."""


@dataclass(frozen=True)
class Target:
    """One architecture of llama.cpp.

    Attributes:
        name: as GGUF and Hugging Face call it.
        fixed: settings that its code does not ask the file for, beyond those that its class at Hugging Face lacks too.
        neighbours: its rotary positions turn channels 2 j and 2 j + 1 together; ours, and the other architectures'
            here, j and j + K/2.
        rms: its norms are RMSNorm; otherwise LayerNorm with a bias.
        gated: the activation is SiLU in a gate; otherwise tanh-GELU without one.
        biased: every matrix in its blocks must have a bias; a file without one is not opened.
    """

    name: str
    fixed: tuple[Always, ...]
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
        form = fitted(architecture, config, shapes)[0]
        found = [refusal for each in self.fixed for refusal in each.refusals(form)]
        found += architecture.refusals(form)
        return list({each.setting: each for each in reversed(found)}.values())


NO_WINDOW = Always("window", (None,))
NO_BIAS = Always("attention_bias", (False,))
SILU = Always("activation", ("swiglu",))
GELU = Always("activation", ("gelu_tanh",))
TARGETS = {
    each.name: each
    for each in (
        Target("llama", (SILU, NO_WINDOW), neighbours=True, rms=True, gated=True, biased=False),
        Target("qwen3", (SILU, NO_WINDOW, NO_BIAS), neighbours=False, rms=True, gated=True, biased=False),
        Target("starcoder2", (GELU, NO_WINDOW), neighbours=False, rms=False, gated=False, biased=True),
        Target("gpt2", (GELU, NO_WINDOW), neighbours=False, rms=False, gated=False, biased=True),
    )
}
"""Where several fit, the first one is written."""


def choose_target(config: ModelConfig, ours: Tensors, wanted: str | None) -> Target:
    """The architecture to write a model as.

    Args:
        config: of the model.
        ours: its tensors; only names and shapes are read.
        wanted: the name of an architecture; None: the first that has all settings.

    Raises:
        GlassError: it, or every one, lacks a setting; it is named, with the nearest that there is.
    """
    if wanted is not None and wanted not in TARGETS:
        raise GlassError(f"the architecture {wanted!r} is not written as GGUF", nearest(wanted, TARGETS))
    targets = [TARGETS[wanted]] if wanted else list(TARGETS.values())
    tried = [(each, each.refusals(config, ours)) for each in targets]
    found = next((each for each, refusals in tried if not refusals), None)
    if found is not None:
        return found
    closest, refusals = min(tried, key=lambda pair: len(pair[1]))
    values = ", ".join(f"model.{each.setting} = {each.value}" for each in refusals)
    changes = " ".join(f"--set {each.remedy()}" for each in refusals)
    raise GlassError(
        f"llama.cpp cannot run {values} as {closest.name}", f"Nearest: {closest.name}, for a run trained with {changes}"
    )


def neighbouring(matrix: Tensor, heads: int) -> Tensor:
    """Rows of a query or key matrix (heads K, D), or bias (heads K), so that channels j and j + K/2 become neighbours.

    Scores do not change: queries and keys are reordered alike, and their rotation with them.
    """
    halves = matrix.view(heads, 2, -1, *matrix.shape[1:])  # (heads, 2, K/2, D)
    return halves.transpose(1, 2).reshape(matrix.shape)  # (heads K, D)


def refuse_rows(tensors: Sequence[tuple[str, tuple[int, ...]]], config: ModelConfig) -> None:
    """Raise a `GlassError` if a row does not divide into blocks of Q8_0.

    Args:
        tensors: those that shall be quantised: name and shape (rows, length of a row).
        config: of the model, for the setting to change.
    """
    for name, (_, length) in tensors:
        if length % BLOCK:
            above = -(-length // BLOCK) * BLOCK
            setting = "hidden" if "ffn_down" in name else "width"
            if "attn_output" in name and length != config.width:
                setting = "head_width"
                above = -(-config.K // BLOCK) * BLOCK
            raise GlassError(
                f"the rows of {name} have {length} numbers, and q8_0 keeps them in blocks of {BLOCK}",
                f"Nearest: --dtype f16 for this run, or q8_0 for a run trained with --set model.{setting}={above}",
            )
