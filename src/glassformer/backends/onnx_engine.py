"""Engine that computes the logits of generated text with onnxruntime on the CPU.

It is used by `generation.slot_reader`; the graph reads and fills the memory of the cache's tensors directly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.backends.onnx_graph import Precision, head_channels, step_graph
from glassformer.base.errors import GlassError
from glassformer.base.packages import require_packages
from glassformer.generation.fast import hooks_of, unsupported_module
from glassformer.generation.logit_readers import pad_right, target_logits
from glassformer.generation.slot_cache import SlotCache
from glassformer.model.cache import Cache
from glassformer.model.transformer import Decoder, EncoderDecoder

NUMPY_TYPES = {torch.float32: np.float32, torch.int8: np.int8, torch.int32: np.int32, torch.int64: np.int64}


class OnnxEngine:
    """Engine that runs the ONNX graph of a model; PyTorch encodes sources and reads target prefixes.

    Implements `Engine`.

    Args:
        model: model on the CPU. Do not change its weights while the engine is in use, because the engine keeps
            optimized copies of them.
        threads: number of threads, including the caller's.
        precision: precision of the matrix multiplications, see `step_graph`; "int8" is faster but approximate.
        spins: whether idle threads busy-wait between steps too, not only within a step. On two cores this makes greedy
            decoding of one row 1.1 to 1.4 times as fast, but beam search, which uses PyTorch's threads between steps,
            1.2 to 1.4 times slower.

    Raises:
        GlassError: onnx or onnxruntime is not installed, the model is not on the CPU, or no graph can be built for it.
    """

    def __init__(
        self,
        model: Decoder | EncoderDecoder,
        threads: int,
        precision: Precision = "float32",
        spins: bool = False,
    ) -> None:
        check_supported(model)
        self.name = "onnxruntime"
        self.precision: str = precision
        self.model = model
        self.hooks = hooks_of(model)
        self.vocab_size = model.vocab_size
        self.torch_threads: int | None = 1
        with torch.inference_mode():
            graph = step_graph(model, precision)
        self.cache_config = graph.cache_config
        self.cache_type = graph.cache_type
        self.layers = graph.layers
        self.cross_layers = graph.cross_layers
        self.has_positions = graph.has_positions
        self.weights = graph.weights  # onnxruntime uses this memory without keeping a reference
        self.session = _open_session(graph.model, graph.weights, threads, spins)
        self.binding = self.session.io_binding()
        self.bound: list[object] = []  # addresses and shapes of the cache tensors that are bound now

    def read_last(self, tokens: Tensor, cache: SlotCache) -> Tensor:
        """Read one token per slot, ids (slots), and return logits (slots, V)."""
        positions, _, _ = cache.extend(1)  # (slots or 1, 1)
        B = len(tokens)
        ends = torch.tensor(cache.lengths, dtype=torch.int32) - 1  # (slots)
        return self._run(tokens[:, None], positions.expand(B, 1), ends, torch.arange(B), cache)  # (slots, V)

    def read_prompts(self, tokens: Sequence[Sequence[int]], cache: Cache) -> Tensor:
        """Read prompts, or the next chunk of one prompt, and return next-token logits (B, V).

        Padding is on the right; tokens do not attend to later positions.
        """
        n_cached = cache.length
        ids, _ = pad_right(tokens, torch.device("cpu"))  # (B, T)
        B, T = ids.shape
        positions, _, _ = cache.extend(T)  # (1, T)
        lengths = torch.tensor([len(row) for row in tokens])  # (B)
        ends = (n_cached + lengths - 1).to(torch.int32)  # (B)
        last = torch.arange(B) * T + lengths - 1  # (B)
        return self._run(ids, positions.expand(B, T), ends, last, cache)  # (B, V)

    def read_targets(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], cache: Cache) -> Tensor:
        """Encode sources, read the prefixes of their targets, and return next-token logits (B, V)."""
        assert isinstance(self.model, EncoderDecoder)
        config = self.model.config
        T = max(map(len, targets))
        torch_cache = Cache(config, len(targets), T, torch.device("cpu"), self.cache_type)
        logits = target_logits(self.model, sources, targets, torch_cache)  # (B, V)
        key_channels = head_channels(config.K, self.cache_config.K)
        value_channels = head_channels(config.U, self.cache_config.U)
        for layer, torch_layer in zip(cache.layers, torch_cache.layers, strict=True):
            layer.keys[:, :, :T, key_channels] = torch_layer.keys  # (B, G, T, K)
            layer.values[:, :, :T, value_channels] = torch_layer.values  # (B, G, T, U)
            assert torch_layer.memory is not None
            k, v = torch_layer.memory  # (B, G, S, K), (B, G, S, U)
            layer.memory = (k.to(self.cache_type).contiguous(), v.to(self.cache_type).contiguous())
        return logits.to(torch.float32)

    def _run(self, tokens: Tensor, positions: Tensor, ends: Tensor, last: Tensor, cache: Cache) -> Tensor:
        """Run the graph on ids (B, T), positions (B, T), `ends` (B) and `last` (B); return logits (B, V)."""
        if any(self.hooks):
            raise GlassError(
                "the model has a forward hook, but onnxruntime does not call hooks",
                "Remove the hook, or choose the backend torch.",
            )
        inputs = {"tokens": tokens.contiguous(), "last": last}
        if self.layers:
            inputs["ends"] = ends
            inputs["longest"] = torch.tensor(cache.length, dtype=torch.int32)  # ()
        if self.has_positions:
            inputs["positions"] = positions.contiguous()
        if self.cross_layers:
            assert isinstance(cache, SlotCache)
            inputs["memory_bias"] = self._memory_bias(cache)
        for name, tensor in inputs.items():
            self._bind(self.binding.bind_input, name, tensor)
        self._bind_cache(cache)
        logits = torch.empty(len(tokens), self.vocab_size)  # (B, V)
        self._bind(self.binding.bind_output, "logits", logits)
        self.session.run_with_iobinding(self.binding)
        return logits

    def _memory_bias(self, cache: SlotCache) -> Tensor:
        """Return the score bias (sources, 1, 1, columns) that masks padding: 0, and -inf after the end of a memory."""
        columns = cache.slots[self.cross_layers[0]].allocated_memory[0].shape[2]
        lengths = torch.tensor(cache.source_lengths)[:, None, None, None]  # (sources, 1, 1, 1)
        padding = torch.arange(columns) >= lengths  # (sources, 1, 1, columns)
        return torch.zeros(padding.shape).masked_fill(padding, -math.inf)

    def _bind_cache(self, cache: Cache) -> None:
        """Bind the tensors of this cache to the inputs and outputs of the graph, unless they are already bound."""
        cache_tensors = {}
        for number in self.layers:
            layer = cache.layers[number]
            cache_tensors[f"keys.{number}"] = layer.keys  # (B, G, columns, K)
            cache_tensors[f"values.{number}"] = layer.values  # (B, G, columns, K)
        memory_tensors = {}
        for number in self.cross_layers:
            assert isinstance(cache, SlotCache)
            keys, values = cache.slots[number].allocated_memory  # (any number, G, columns, K) each
            memory_tensors[f"memory_keys.{number}"] = keys[: len(cache.source_lengths)]  # (sources, G, columns, K)
            memory_tensors[f"memory_values.{number}"] = values[: len(cache.source_lengths)]  # (sources, G, columns, K)
        addresses: list[object] = [
            (tensor.data_ptr(), tensor.shape) for tensor in (*cache_tensors.values(), *memory_tensors.values())
        ]
        if addresses == self.bound:
            return
        self.bound = addresses
        for name, tensor in cache_tensors.items():
            self._bind(self.binding.bind_input, name, tensor)
            self._bind(self.binding.bind_output, f"new_{name}", tensor)
        for name, tensor in memory_tensors.items():
            self._bind(self.binding.bind_input, name, tensor)

    def _bind(self, bind: Any, name: str, tensor: Tensor) -> None:
        """Bind the memory of a tensor to an input or output of the graph."""
        assert tensor.is_contiguous()
        bind(name, "cpu", 0, NUMPY_TYPES[tensor.dtype], list(tensor.shape), tensor.data_ptr())


def check_supported(model: Decoder | EncoderDecoder) -> None:
    """Raise a `GlassError` if packages are missing, the model is not on the CPU, or no graph can be built for it."""
    require_packages("generation with onnxruntime", "onnx", "onnxruntime", extra="backends")
    device = model.embedding.tokens.weight.device.type
    if device != "cpu":
        raise GlassError(
            f"onnxruntime computes on the CPU, but the model is on {device}",
            "Move the model to the CPU, or choose the backend torch.",
        )
    part = unsupported_module(model)
    if part is not None:
        raise GlassError(f"the onnxruntime backend does not support {part}", "Choose the backend torch for this model.")


def _open_session(model: bytes, weights: dict[str, Tensor], threads: int, spins: bool) -> Any:
    """Return an onnxruntime session for a graph whose weights are these tensors."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.force_spinning_stop", str(int(not spins)))  # stop at the end of a step
    options.log_severity_level = 3  # errors only
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(tensor.numpy()) for tensor in weights.values()]
    options.add_external_initializers(list(weights), values)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
