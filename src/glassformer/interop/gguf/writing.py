"""Write GGUF files: sizes, tokenizer and tensors."""

from __future__ import annotations

import errno
import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor

from glassformer.base.config import ModelConfig
from glassformer.base.packages import require_packages
from glassformer.interop.gguf.targets import GgufArchitecture, interleave_halves, refuse_rows
from glassformer.interop.gguf.tokens import PRE, Tokens

TYPES = ("f32", "f16", "q8_0")


def need_gguf() -> ModuleType:
    """Import and return the package gguf.

    Raises:
        GlassError: the package is not installed.
    """
    require_packages("export to GGUF", "gguf")
    return importlib.import_module("gguf")


def gguf_tensors(theirs: Mapping[str, Tensor], target: GgufArchitecture, config: ModelConfig) -> dict[str, Tensor]:
    """Convert the tensors of a Hugging Face class to GGUF's names and layout.

    Matrices are (outputs, inputs); those of GPT-2 are transposed in Hugging Face. A bias that the architecture
    requires and the run lacks is written as zeros.
    """
    gguf = need_gguf()
    architecture_id = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == target.name)
    names = gguf.get_tensor_name_map(architecture_id, config.layers)
    converted = {}
    for name, tensor in theirs.items():
        base, _, suffix = name.rpartition(".")
        gguf_name = names.get_name(base)
        if gguf_name is None:
            raise AssertionError(f"GGUF has no name for {name}")
        if target.name == "gpt2" and ".h." in name and tensor.ndim == 2:
            tensor = tensor.T
        if target.neighbours and gguf_name.endswith(("attn_q", "attn_k")):
            tensor = interleave_halves(tensor, config.heads if gguf_name.endswith("attn_q") else config.G)
        converted[f"{gguf_name}.{suffix}"] = tensor.contiguous()
    if target.biased:
        matrices = [name for name in converted if name.startswith("blk.") and converted[name].ndim == 2]
        zeros = {
            name.removesuffix("weight") + "bias": converted[name].new_zeros(len(converted[name])) for name in matrices
        }
        converted = {**zeros, **converted}
    return converted


def keeps_float32(name: str, tensor: Tensor) -> bool:
    """Return whether llama.cpp needs a tensor in float32: norms, biases and the position table."""
    return tensor.ndim == 1 or name.startswith("position_embd")


def write_gguf(
    path: Path,
    tensors: Mapping[str, Tensor],
    kind: str,
    target: GgufArchitecture,
    config: ModelConfig,
    tokens: Tokens,
    begins_with_start: bool,
    name: str,
    chat_template: str | None = None,
) -> None:
    """Write a GGUF file.

    Args:
        path: the new file.
        tensors: the result of `gguf_tensors`.
        kind: number type of the matrices, one of `TYPES`.
        target: the architecture.
        config: settings of the exported form of the model.
        tokens: the result of `read_tokens`.
        begins_with_start: whether texts begin with the start token, as training rows did.
        name: display name of the model.
        chat_template: Jinja template of conversations; None: no template.

    Raises:
        GlassError: a row length is not a multiple of the block size of `kind`.
    """
    gguf = need_gguf()
    matrices = [(key, tuple(value.shape)) for key, value in tensors.items() if not keeps_float32(key, value)]
    if kind == "q8_0":
        refuse_rows(matrices, config)
    writer = gguf.GGUFWriter(path, target.name)
    writer.add_name(name)
    writer.add_file_type({"f32": 0, "f16": 1, "q8_0": 7}[kind])
    if kind == "q8_0":
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    _add_sizes(writer, target, config)
    _add_tokens(writer, tokens, begins_with_start)
    if chat_template is not None:
        writer.add_chat_template(chat_template)
    quantization_type = gguf.GGMLQuantizationType[kind.upper()]
    for key, value in tensors.items():
        array = value.detach().cpu().float().numpy()
        if keeps_float32(key, value) or kind == "f32":
            writer.add_tensor(key, array)
        else:
            writer.add_tensor(key, gguf.quantize(array, quantization_type), raw_dtype=quantization_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    try:
        writer.write_tensors_to_file()
    except OSError as error:  # NumPy's error has no errno, only the number of bytes written
        raise error if error.errno else OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
    finally:
        writer.close()


def _add_sizes(writer: Any, target: GgufArchitecture, config: ModelConfig) -> None:
    writer.add_context_length(config.context)
    writer.add_embedding_length(config.width)
    writer.add_block_count(config.layers)
    writer.add_feed_forward_length(config.F)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.G)
    writer.add_key_length(config.K)
    writer.add_value_length(config.K)
    (writer.add_layer_norm_rms_eps if target.rms else writer.add_layer_norm_eps)(config.eps)
    if config.positions == "rotary":
        writer.add_rope_dimension_count(config.K)
        writer.add_rope_freq_base(config.rotary_base)
    if config.vocab_size is not None:
        writer.add_vocab_size(config.vocab_size)


def _add_tokens(writer: Any, tokens: Tokens, begins_with_start: bool) -> None:
    writer.add_tokenizer_model("gpt2")  # GGUF's name for byte-level BPE
    writer.add_tokenizer_pre(PRE)
    writer.add_token_list(tokens.tokens)
    writer.add_token_types(tokens.token_types)
    writer.add_token_merges(tokens.merges)
    writer.add_bos_token_id(tokens.end_id if tokens.start_id is None else tokens.start_id)
    writer.add_eos_token_id(tokens.end_id)
    if tokens.answer_end_id is not None:
        writer.add_eot_token_id(tokens.answer_end_id)
    if tokens.unknown_id is not None:
        writer.add_unk_token_id(tokens.unknown_id)
    writer.add_add_bos_token(begins_with_start)
    writer.add_add_eos_token(False)
