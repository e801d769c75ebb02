"""ONNX graph of one decoding step with a cache, built node by node from a model.

The graph is not traced and not written to a file: this module adds the nodes in the order of the model's forward pass.
Weights that need no change of layout or data type stay in the memory of the model's tensors. The same graph reads
prompts (T tokens per row) and single new tokens (T = 1).

Inputs, with C' columns in the cache, and heads padded to a width of K' (see below):

* `tokens` (B, T): ids; prompts are padded on the right.
* `ends` (B): number of tokens in each row after this step, minus 1.
* `longest` (): maximum number of tokens in a row after this step.
* `last` (B): index of the last token of each row among the B T tokens.
* `positions` (B, T): positions of the tokens, if the model adds position vectors or score biases.
* `keys.0`, `values.0`, … (B, G, C', K'): the cache; the outputs `new_keys.0`, … must be bound to the same memory. The
  data type of the cache is `StepGraph.cache_type`.

A layer without self-attention heads has no cache; if no layer has such heads, `ends` and `longest` do not exist.

The output `logits` (B, V) belongs to the last token of each row. Self-attention is one operator, onnxruntime's
`GroupQueryAttention`, which rotates queries and keys if the model has rotary positions, and appends to the cache.

The graph of an encoder-decoder is a step of its decoder, with T = 1, and has these additional inputs:

* `memory_keys.0`, `memory_values.0`, … (sources, G, S, K): keys and values of the memories; B/sources rows attend to
  each memory.
* `memory_bias` (sources, 1, 1, S): 0, and -inf at padding of the memories.

**Unsupported shapes.** The operator needs head widths that are multiples of 8 (16 with rotation), and key heads that
serve the same number of query heads. Other shapes are padded with zeros: zero channels add nothing to the scores, and
the outputs of zero query heads are multiplied by zeros in the output projection.

**8 bits.** onnxruntime's `MatMulNBits` multiplies in 8 bits and accumulates in 32 bits. Weights have one scale per
`BLOCK` inputs of each output. The input of a multiplication has one scale per `BLOCK` channels of a token, computed at
each step, so a row's logits do not depend on the other rows. A decoder also stores its cache in 8 bits, with one scale
per channel (`cache_scales`): attention then reads a quarter of the memory. An encoder-decoder keeps a float32 cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from glassformer.backends.cache_scales import LEVELS, cache_scales
from glassformer.base.config import Activation, ModelConfig
from glassformer.model.attention import Attention
from glassformer.model.pruned_attention import head_numbers, kv_index
from glassformer.model.transformer import Block, Decoder, EncoderDecoder, FeedForward, Stack

Precision = Literal["float32", "int8"]
Attribute = int | float | str | list[int]
Sublayer = Callable[[str, str | None], str]
"""Function that adds the nodes of a sublayer: (name of its input, name of the residual stream to add or None) -> name
of its output."""

MICROSOFT = "com.microsoft"  # domain of onnxruntime's own operators
OPSET = 20
IR_VERSION = 10  # version of the file format; onnx's default may be newer than onnxruntime supports
# With 128 inputs, rows of a batch would differ from single rows on AVX-512.
BLOCK = 64  # number of inputs that share a scale in 8 bits; a power of 2
ZERO = 128  # zero point: the byte that represents 0
FIRST_SCALE = 12  # index of the operator's input for the scales of the keys; the scales of the values follow
ONNX_TYPES = {torch.float32: 1, torch.uint8: 2, torch.int8: 3}  # data types as `onnx.TensorProto.DataType`


@dataclass(frozen=True)
class StepGraph:
    """ONNX graph of a decoding step, and its weights, which the graph refers to by name.

    Attributes:
        model: serialized ONNX model.
        weights: name -> tensor.
        layers: indices of the layers with a self-attention cache: all layers that have self-attention heads.
        cross_layers: indices of the layers with cross-attention heads.
        cache_config: model settings with the operator's head width, which give the shape of the cache.
        cache_type: data type of the cache: int8 for a decoder in 8 bits, float32 otherwise.
        has_positions: whether the graph has the input `positions`.
    """

    model: bytes
    weights: dict[str, Tensor]
    layers: list[int]
    cross_layers: list[int]
    cache_config: ModelConfig
    cache_type: torch.dtype
    has_positions: bool


def step_graph(model: Decoder | EncoderDecoder, precision: Precision = "float32") -> StepGraph:
    """Build the graph of a decoder, or of the decoder of an encoder-decoder, without dropout.

    Args:
        model: model on the CPU.
        precision: precision of the multiplications by weight matrices and of a decoder's cache: "float32", or "int8"
            for 8-bit weights, inputs and cache. Everything else, including the embedding, is float32, even if the model
            has another data type.
    """
    import onnx

    config = model.config
    padded_width = padded_head_width(config)
    stack = decoder_stack(model)
    attentions = _attentions(stack)
    layers = [layer for layer, attention in enumerate(attentions) if attention.heads]
    cross = {layer: block.cross for layer, block in enumerate(_blocks(stack)) if block.cross and block.cross.heads}
    nodes = _Nodes()
    scales = cache_scales(model) if precision == "int8" and isinstance(model, Decoder) else None
    cache_type = torch.float32 if scales is None else torch.int8
    builder = _Builder(model, nodes, precision, padded_width, scales)
    nodes.add("Identity", [builder.logits()], output="logits")

    inputs = [
        onnx.helper.make_tensor_value_info("tokens", onnx.TensorProto.INT64, ["B", "T"]),
        onnx.helper.make_tensor_value_info("last", onnx.TensorProto.INT64, ["B"]),
    ]
    if layers:
        inputs.append(onnx.helper.make_tensor_value_info("ends", onnx.TensorProto.INT32, ["B"]))
        inputs.append(onnx.helper.make_tensor_value_info("longest", onnx.TensorProto.INT32, []))
    has_positions = model.embedding.positions is not None or (stack.score_positions is not None and bool(layers))
    if has_positions:
        inputs.append(onnx.helper.make_tensor_value_info("positions", onnx.TensorProto.INT64, ["B", "T"]))
    outputs = [onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["B", model.vocab_size])]
    for layer in layers:
        shape: list[str | int | None] = ["B", attentions[layer].kv_heads, "columns", padded_width]
        for name in (f"keys.{layer}", f"values.{layer}"):
            inputs.append(onnx.helper.make_tensor_value_info(name, ONNX_TYPES[cache_type], shape))
            outputs.append(onnx.helper.make_tensor_value_info(f"new_{name}", ONNX_TYPES[cache_type], shape))
    for layer, attention in cross.items():
        for name, width in ((f"memory_keys.{layer}", config.K), (f"memory_values.{layer}", config.U)):
            shape = ["sources", attention.kv_heads, "S", width]
            inputs.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))
    if cross:
        shape = ["sources", 1, 1, "S"]
        inputs.append(onnx.helper.make_tensor_value_info("memory_bias", onnx.TensorProto.FLOAT, shape))
    used = {name for node in nodes.nodes for name in node.input}  # the rotation is unused if no layer has heads
    weights = {name: tensor for name, tensor in nodes.weights.items() if name in used}
    initializers = [_external_initializer(name, tensor) for name, tensor in weights.items()]
    graph = onnx.helper.make_graph(nodes.nodes, "step", inputs, outputs, [*initializers, *nodes.constants])
    versions = [onnx.helper.make_opsetid("", OPSET), onnx.helper.make_opsetid(MICROSOFT, 1)]
    onnx_model = onnx.helper.make_model(graph, opset_imports=versions, ir_version=IR_VERSION)
    cache_config = config.model_copy(update={"head_width": padded_width, "value_width": padded_width})
    return StepGraph(
        onnx_model.SerializeToString(), weights, layers, list(cross), cache_config, cache_type, has_positions
    )


def padded_head_width(config: ModelConfig) -> int:
    """Return the operator's head width, also of the values: the larger of K and U rounded up to a supported width."""
    unit = 16 if config.positions == "rotary" else 8
    return -(-max(config.K, config.U) // unit) * unit


def decoder_stack(model: Decoder | EncoderDecoder) -> Stack:
    """Return the stack of a decoder, or the decoder stack of an encoder-decoder."""
    return model.stack if isinstance(model, Decoder) else model.decoder


def _blocks(stack: Stack) -> list[Block]:
    return [block for block in stack.blocks if isinstance(block, Block)]


def _attentions(stack: Stack) -> list[Attention]:
    return [block.attention for block in _blocks(stack)]


def _external_initializer(name: str, tensor: Tensor) -> Any:
    """Return an initializer without data; the session receives the tensor itself."""
    import onnx

    initializer = onnx.TensorProto(name=name, dims=list(tensor.shape), data_type=ONNX_TYPES[tensor.dtype])
    initializer.data_location = onnx.TensorProto.EXTERNAL
    initializer.external_data.add(key="location", value="memory")
    return initializer


@dataclass
class _Nodes:
    """Nodes, weights and small constants of a graph under construction."""

    nodes: list[Any] = field(default_factory=list)
    weights: dict[str, Tensor] = field(default_factory=dict)
    constants: list[Any] = field(default_factory=list)
    constant_names: dict[bytes, str] = field(default_factory=dict)  # content of a constant -> its name
    count: int = 0

    def add(
        self,
        operator: str,
        inputs: Sequence[str],
        attributes: Mapping[str, Attribute] | None = None,
        domain: str = "",
        output: str | None = None,
    ) -> str:
        """Add a node with one output, and return the name of the output."""
        return self.add_several(operator, inputs, [output or self._new_name()], attributes, domain)[0]

    def split(self, x: str, widths: Sequence[int]) -> list[str]:
        """Split the last axis of x into parts of these widths."""
        sizes = self.constant(np.array(widths, dtype=np.int64))
        return self.add_several("Split", [x, sizes], [self._new_name() for _ in widths], {"axis": -1})

    def add_several(
        self,
        operator: str,
        inputs: Sequence[str],
        outputs: list[str],
        attributes: Mapping[str, Attribute] | None = None,
        domain: str = "",
    ) -> list[str]:
        """Add a node, and return the names of its outputs."""
        import onnx

        node = onnx.helper.make_node(operator, inputs, outputs, domain=domain)
        for name, value in (attributes or {}).items():
            node.attribute.append(onnx.helper.make_attribute(name, value))
        self.nodes.append(node)
        return outputs

    def weight(self, tensor: Tensor) -> str:
        """Add a weight of any shape, stored outside the graph, and return its name."""
        name = f"weight.{len(self.weights)}"
        stored = tensor if tensor.dtype == torch.uint8 else tensor.to(torch.float32)
        self.weights[name] = stored.detach().contiguous()
        return name

    def constant(self, value: NDArray[Any]) -> str:
        """Add a small constant to the graph, unless an equal one exists, and return its name."""
        import onnx

        key = repr((value.dtype, value.shape)).encode() + value.tobytes()
        if key not in self.constant_names:
            self.constant_names[key] = f"constant.{len(self.constant_names)}"
            self.constants.append(onnx.numpy_helper.from_array(value, self.constant_names[key]))
        return self.constant_names[key]

    def _new_name(self) -> str:
        self.count += 1
        return f"x.{self.count}"


class _Builder:
    """Builder of the nodes of one model.

    A `str` that a method takes or returns is the name of a tensor. The shapes in docstrings and comments are those of
    the tensors. N is B T, or B after `Gather` has selected the last token of each row; C is the context.

    Args:
        model: a decoder or an encoder-decoder.
        nodes: nodes of the graph, to which this class adds nodes.
        precision: precision of the matrix multiplications.
        padded_width: head width of the operator.
        scales: scales of each layer's cached keys and values, (G, K) each; None: a float32 cache.
    """

    def __init__(
        self,
        model: Decoder | EncoderDecoder,
        nodes: _Nodes,
        precision: Precision,
        padded_width: int,
        scales: list[tuple[Tensor, Tensor]] | None,
    ) -> None:
        self.model = model
        self.stack = decoder_stack(model)
        self.config = model.config
        self.nodes = nodes
        self.precision = precision
        self.padded_width = padded_width
        self.scales = scales
        self.flat = nodes.constant(np.array([-1], dtype=np.int64))
        self.three_axes = ""
        self.rotation: list[str] = []
        self.bias = ""

    def logits(self) -> str:
        """Add all nodes, and return the name of the logits (B, V)."""
        stack = self.stack
        head = self.model.head
        sizes = self.nodes.add("Shape", ["tokens"])  # (2): B and T
        self.three_axes = self.nodes.add("Concat", [sizes, self.flat], {"axis": 0})  # (3): B, T and the rest
        self.rotation = self._rotation()
        self.bias = self._score_bias()
        x = self._embedded()  # (N, D)
        for layer, block in enumerate(_blocks(stack)):
            x = self._part(x, block.norm_order, block.attention_norm, self._attention(layer, block.attention))  # (N, D)
            if block.cross is not None and block.cross_norm is not None:
                x = self._part(x, block.norm_order, block.cross_norm, self._cross_attention(layer, block.cross))
            if layer == len(stack.blocks) - 1:  # only the last tokens are needed after the last attention
                x = self.nodes.add("Gather", [x, "last"])  # (B, D)
            x = self._part(x, block.norm_order, block.feedforward_norm, self._feedforward(block.feedforward))
        x = self._norm(x, stack.norm)  # (B, D)
        if head.transform is not None:
            x = self._linear(x, head.transform.weight, head.transform.bias)  # (B, D)
            x = self._norm(self._activated(x, head.activation), head.norm)  # (B, D)
        matrix = self.model.embedding.tokens.weight if head.weight is None else head.weight  # (V, D)
        return self._linear(x, matrix, head.bias)  # (B, V)

    def _embedded(self) -> str:
        """Add the nodes of `Embedding`, and return its output (N, D)."""
        embedding = self.model.embedding
        table = self.nodes.weight(embedding.tokens.weight)  # (V, D)
        ids = self.nodes.add("Reshape", ["tokens", self.flat])  # (N)
        x = self.nodes.add("Gather", [table, ids])  # (N, D)
        if embedding.scale != 1:
            x = self.nodes.add("Mul", [x, self.nodes.constant(np.array(embedding.scale, dtype=np.float32))])
        if embedding.positions is not None:
            vectors = embedding.positions(torch.arange(self.config.context)[None])[0]  # (C, D)
            positions = self.nodes.add("Reshape", ["positions", self.flat])  # (N)
            added = self.nodes.add("Gather", [self.nodes.weight(vectors), positions])  # (N, D)
            x = self.nodes.add("Add", [x, added])  # (N, D)
        return self._norm(x, embedding.norm)  # (N, D)

    def _part(self, x: str, order: str, norm: nn.Module, part: Sublayer) -> str:
        """Add a sublayer with its norm and residual connection: (N, D) -> (N, D). See `BLOCKS`."""
        match order:
            case "pre":
                return part(self._norm(x, norm), x)
            case "post":
                return self._norm(part(x, x), norm)
            case _:
                return self.nodes.add("Add", [x, self._norm(part(x, None), norm)])

    def _norm(self, x: str, norm: nn.Module) -> str:
        """Add a norm over the width, or nothing for the identity; return the output, shaped like x."""
        match norm:
            case nn.LayerNorm():
                inputs = [x, self.nodes.weight(norm.weight)]
                if norm.bias is not None:
                    inputs.append(self.nodes.weight(norm.bias))
                return self.nodes.add("LayerNormalization", inputs, {"axis": -1, "epsilon": norm.eps})
            case nn.RMSNorm():
                return self._root_mean_square_norm(x, norm.weight, norm.eps or 0.0)
            case _:
                return x

    def _root_mean_square_norm(self, x: str, weight: Tensor, eps: float) -> str:
        return self.nodes.add(
            "SimplifiedLayerNormalization", [x, self.nodes.weight(weight)], {"axis": -1, "epsilon": eps}
        )

    def _feedforward(self, layer: FeedForward) -> Sublayer:
        """Return a function that adds the nodes of a feed-forward layer."""

        def part(x: str, stream: str | None) -> str:
            hidden = self._linear(x, layer.up.weight, layer.up.bias)  # (N, F)
            if layer.gate is None:
                hidden = self._activated(hidden, layer.activation)  # (N, F)
            else:
                gate = self._activated(self._linear(x, layer.gate.weight, layer.gate.bias), layer.activation)  # (N, F)
                hidden = self.nodes.add("Mul", [gate, hidden])  # (N, F)
            return self._linear(hidden, layer.down.weight, layer.down.bias, stream)  # (N, D)

        return part

    def _activated(self, x: str, name: Activation) -> str:
        """Add the nodes of an activation of x, any shape, and return the output."""
        match name:
            case "relu":
                return self.nodes.add("Relu", [x])
            case "relu2":
                x = self.nodes.add("Relu", [x])
                return self.nodes.add("Mul", [x, x])
            case "gelu" | "geglu":
                return self.nodes.add("Gelu", [x])
            case "gelu_tanh":
                return self.nodes.add("Gelu", [x], {"approximate": "tanh"})
            case "swiglu":  # x sigmoid(x)
                return self.nodes.add("QuickGelu", [x], {"alpha": 1.0}, MICROSOFT)

    def _attention(self, number: int, layer: Attention) -> Sublayer:
        """Return a function that adds the self-attention of layer `number`, which reads and fills its cache."""
        if not layer.heads:
            return self._constant_attention(layer)
        queries = padded_query_heads(layer)  # (H')
        H = len(queries)
        G = layer.kv_heads
        keys = range(G)
        query = self._pad_heads(layer.query.weight, queries)  # (H' K', D)
        key = self._pad_heads(layer.key.weight, keys)  # (G K', D)
        value = self._pad_heads(layer.value.weight, keys, old_width=layer.value_width)  # (G K', D)
        inputs = torch.cat([query, key, value])  # ((H' + 2 G) K', D)
        input_bias = None
        if layer.query.bias is not None:
            query_bias = self._pad_heads(layer.query.bias, queries)  # (H' K')
            key_bias = self._pad_heads(layer.key.bias, keys)  # (G K')
            value_bias = self._pad_heads(layer.value.bias, keys, old_width=layer.value_width)  # (G K')
            input_bias = torch.cat([query_bias, key_bias, value_bias])  # ((H' + 2 G) K')
        output = self._pad_heads(layer.output.weight.T, queries, old_width=layer.value_width).T  # (D, H' K')
        attributes: dict[str, Attribute] = {
            "num_heads": H,
            "kv_num_heads": G,
            "scale": 1 / math.sqrt(layer.head_width),
            "local_window_size": self.stack.window or -1,
            "do_rotary": int(bool(self.rotation)),
        }
        scale_names: list[str] = []
        if self.scales is not None:
            attributes |= {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL", "kv_cache_bit_width": 8}
            for scales in self.scales[number]:  # (G, K) of the keys, (G, U) of the values
                padded_scales = scales.new_ones(G, self.padded_width)  # (G, K')
                padded_scales[:, head_channels(scales.shape[1], self.padded_width)] = scales
                scale_names.append(self.nodes.weight(padded_scales.flatten()))  # (G K')

        def part(x: str, stream: str | None) -> str:
            qkv = self._linear(x, inputs, input_bias)  # (N, (H' + 2 G) K')
            if layer.query_norm is None or layer.key_norm is None:
                node_inputs = [self._as_rows(qkv), "", ""]  # (B, T, (H' + 2 G) K')
            else:
                q, k, v = self.nodes.split(
                    qkv, [width * self.padded_width for width in (H, G, G)]
                )  # (N, H' K' or G K')
                q = self._head_norm(q, layer.query_norm, queries)  # (N, H' K')
                k = self._head_norm(k, layer.key_norm, keys)  # (N, G K')
                node_inputs = [self._as_rows(name) for name in (q, k, v)]  # (B, T, H' K' or G K')
            node_inputs += [f"keys.{number}", f"values.{number}", "ends", "longest", *(self.rotation or ["", ""])]
            if self.bias:
                node_inputs += ["", self._bias_of_heads(layer, queries)]  # (B, H', T, S)
            if scale_names:
                node_inputs += [""] * (FIRST_SCALE - len(node_inputs)) + scale_names
            new_cache_names = [f"new_keys.{number}", f"new_values.{number}"]
            names = [f"z.{number}", *new_cache_names]
            z = self.nodes.add_several("GroupQueryAttention", node_inputs, names, attributes, MICROSOFT)[
                0
            ]  # (B, T, H' K')
            width = self.nodes.constant(np.array([-1, H * self.padded_width], dtype=np.int64))
            z = self.nodes.add("Reshape", [z, width])  # (N, H' K')
            return self._linear(z, output, layer.output.bias, stream)  # (N, D)

        return part

    def _cross_attention(self, number: int, layer: Attention) -> Sublayer:
        """Return a function that adds the cross-attention of layer `number` to the memories.

        The rows of a source and the query heads that share a key head attend as if they were tokens of one row.
        """
        if not layer.heads:
            return self._constant_attention(layer)
        queries = padded_query_heads(layer)  # (H')
        H = len(queries)
        G = layer.kv_heads
        K = layer.head_width
        U = layer.value_width
        query = self._pad_heads(layer.query.weight, queries, K)  # (H' K, D)
        query_bias = None
        if layer.query.bias is not None:
            query_bias = self._pad_heads(layer.query.bias, queries, K)  # (H' K)
        output = self._pad_heads(layer.output.weight.T, queries, U, old_width=U).T  # (D, H' U)
        keys = f"memory_keys.{number}"  # (sources, G, S, K)
        values = f"memory_values.{number}"  # (sources, G, S, U)
        scaled: dict[str, Attribute] = {"transB": 1, "alpha": 1 / math.sqrt(K)}

        def part(x: str, stream: str | None) -> str:
            q = self._linear(x, query, query_bias)  # (B, H' K)
            if layer.query_norm is not None:
                q = self._head_norm(q, layer.query_norm, queries, K)  # (B, H' K)
            sources = self.nodes.add("Shape", [keys], {"start": 0, "end": 1})  # (1)
            head_shape = self.nodes.constant(np.array([-1, G, H // G, K], dtype=np.int64))
            q = self.nodes.add("Reshape", [q, self.nodes.add("Concat", [sources, head_shape], {"axis": 0})])
            q = self.nodes.add("Transpose", [q], {"perm": [0, 2, 3, 1, 4]})  # (sources, G, H'/G, B/sources, K)
            q = self.nodes.add("Reshape", [q, self.nodes.constant(np.array([0, 0, -1, K], dtype=np.int64))])
            scores = self.nodes.add("FusedMatMul", [q, keys], scaled, MICROSOFT)  # (sources, G, H'/G B/sources, S)
            scores = self.nodes.add("Add", [scores, "memory_bias"])
            pattern = self.nodes.add("Softmax", [scores], {"axis": -1})  # (sources, G, H'/G B/sources, S)
            z = self.nodes.add("MatMul", [pattern, values])  # (sources, G, H'/G B/sources, U)
            z = self.nodes.add("Reshape", [z, self.nodes.constant(np.array([0, 0, H // G, -1, U], dtype=np.int64))])
            z = self.nodes.add("Transpose", [z], {"perm": [0, 3, 1, 2, 4]})  # (sources, B/sources, G, H'/G, U)
            z = self.nodes.add("Reshape", [z, self.nodes.constant(np.array([-1, H * U], dtype=np.int64))])  # (B, H' U)
            return self._linear(z, output, layer.output.bias, stream)  # (B, D)

        return part

    def _constant_attention(self, layer: Attention) -> Sublayer:
        """Return a function that adds an attention layer without heads: the bias of its output projection, or zeros."""
        bias = torch.zeros(self.config.width) if layer.output.bias is None else layer.output.bias  # (D)

        def part(x: str, stream: str | None) -> str:
            name = self.nodes.weight(bias)  # (D)
            if stream is not None:
                return self.nodes.add("Add", [stream, name])  # (N, D)
            return self.nodes.add("Expand", [name, self.nodes.add("Shape", [x])])  # (N, D)

        return part

    def _as_rows(self, x: str) -> str:
        """Reshape (N, any width) -> (B, T, any width)."""
        return self.nodes.add("Reshape", [x, self.three_axes])

    def _pad_heads(
        self, weight: Tensor, heads: Sequence[int | None], width: int | None = None, old_width: int | None = None
    ) -> Tensor:
        """Return the rows (heads K, ...) of a weight in the order of `heads`, padded with zeros: (H' K', ...).

        Args:
            heads: (H') index of each head in the weight; None: a head of zeros.
            width: K'; None: the operator's head width. Each half of a head is padded separately, because a rotation
                pairs channel i with channel i + K'/2.
            old_width: width of a head in the weight; None: K.
        """
        width = width or self.padded_width
        old_width = old_width or self.config.K
        if width == old_width and list(heads) == list(range(len(weight) // width)):
            return weight
        channels = head_channels(old_width, width)
        old = weight.unflatten(0, (-1, old_width))  # (heads, K, ...)
        new = old.new_zeros(len(heads), width, *weight.shape[1:])  # (H', K', ...)
        for index, head in enumerate(heads):
            if head is not None:
                new[index, channels] = old[head]  # (K, ...)
        return new.flatten(0, 1)  # (H' K', ...)

    def _head_norm(self, x: str, norm: nn.RMSNorm, heads: Sequence[int | None], width: int | None = None) -> str:
        """Add the QK-norm of (N, H' K'), over each head or over all heads as one vector.

        Padding with zeros lowers the mean square; the scaled weights and eps compensate for that.
        """
        old_width = len(norm.weight)
        per_head = old_width == self.config.K
        weight = self._pad_heads(norm.weight, [0] if per_head else heads, width)  # (K' or H' K')
        new_width = len(weight)
        parts = x
        if per_head:
            shape = self.nodes.constant(np.array([0, len(heads), new_width], dtype=np.int64))
            parts = self.nodes.add("Reshape", [x, shape])  # (N, H', K')
        fraction = old_width / new_width
        parts = self._root_mean_square_norm(parts, weight * math.sqrt(fraction), (norm.eps or 0.0) * fraction)
        if not per_head:
            return parts  # (N, H' K')
        flat_shape = self.nodes.constant(np.array([0, -1], dtype=np.int64))
        return self.nodes.add("Reshape", [parts, flat_shape])  # (N, H' K')

    def _rotation(self) -> list[str]:
        """Add tables (C, K'/2) of the cosines and sines of all positions; return their names; [] without rotation."""
        rotary = self.stack.rotary
        if rotary is None:
            return []
        rotation = rotary(torch.arange(self.config.context)[None])  # (1, 1, C, K) each
        K = self.config.K
        tables = []
        for angles in (rotation.cos, rotation.sin):
            table = angles.new_zeros(self.config.context, self.padded_width // 2)  # (C, K'/2)
            table[:, : K // 2] = angles[0, 0, :, : K // 2]  # (C, K/2)
            tables.append(self.nodes.weight(table))
        return tables

    def _score_bias(self) -> str:
        """Add the score bias (B, H, T, S) of the position method; return its name, or "" if there is no bias."""
        score_positions = self.stack.score_positions
        if score_positions is None or not any(layer.heads for layer in _attentions(self.stack)):
            return ""
        all_distances = torch.arange(self.config.context)[None, None]  # (1, 1, C)
        table = self.nodes.weight(score_positions.by_distance(all_distances)[0, :, 0])  # (H, C)
        zero = self.nodes.constant(np.array(0, dtype=np.int64))
        one = self.nodes.constant(np.array(1, dtype=np.int64))
        end = self.nodes.add("Cast", ["longest"], {"to": 7})  # (): int64
        keys = self.nodes.add("Range", [zero, end, one])  # (S)
        queries = self.nodes.add("Unsqueeze", ["positions", self.flat])  # (B, T, 1)
        distances = self.nodes.add("Sub", [queries, keys])  # (B, T, S)
        distances = self.nodes.add("Max", [distances, zero])  # (B, T, S); later keys are masked anyway
        bias = self.nodes.add("Gather", [table, distances], {"axis": 1})  # (H, B, T, S)
        return self.nodes.add("Transpose", [bias], {"perm": [1, 0, 2, 3]})  # (B, H, T, S)

    def _bias_of_heads(self, layer: Attention, heads: Sequence[int | None]) -> str:
        """Return the score bias (B, H', T, S) of an attention layer's heads; heads of zeros get an arbitrary bias."""
        numbers = head_numbers(layer)
        head_indices = [0 if head is None else numbers[head] for head in heads]
        if head_indices == list(range(self.config.heads)):
            return self.bias
        return self.nodes.add("Gather", [self.bias, self.nodes.constant(np.array(head_indices))], {"axis": 1})

    def _linear(self, x: str, weight: Tensor, bias: Tensor | None, stream: str | None = None) -> str:
        """Add the nodes of x weightᵀ + bias + stream: (N, inputs) -> (N, outputs)."""
        if self.precision == "int8":
            y = self._linear_8bit(x, weight, bias)  # (N, outputs)
            return y if stream is None else self.nodes.add("Add", [y, stream])
        terms = [] if bias is None else [self.nodes.weight(bias)]  # (outputs)
        terms += [] if stream is None else [stream]  # (N, outputs)
        y = self.nodes.add("Gemm", [x, self.nodes.weight(weight), *terms[:1]], {"transB": 1})  # (N, outputs)
        for term in terms[1:]:
            y = self.nodes.add("Add", [y, term])  # (N, outputs)
        return y

    def _linear_8bit(self, x: str, weight: Tensor, bias: Tensor | None) -> str:
        """Add the nodes of x weightᵀ + bias, multiplied in 8 bits: (N, inputs) -> (N, outputs)."""
        outputs, width = weight.shape
        levels, scales = quantized_matrix(weight)  # (outputs, blocks, BLOCK), (outputs, blocks)
        inputs = [x, self.nodes.weight(levels), self.nodes.weight(scales)]
        if bias is not None:
            inputs += ["", "", self.nodes.weight(bias)]  # no zero points and no group indices
        attributes: dict[str, Attribute] = {"N": outputs, "K": width, "bits": 8, "block_size": BLOCK}
        attributes["accuracy_level"] = 4  # x is quantized to 8 bits too
        return self.nodes.add("MatMulNBits", inputs, attributes, MICROSOFT)


def head_channels(K: int, width: int) -> list[int]:
    """Return the channel in a padded head of `width` channels for each channel of a head of K channels.

    >>> head_channels(6, 16)
    [0, 1, 2, 8, 9, 10]
    """
    half = (K + 1) // 2
    return [i if i < half else width // 2 + i - half for i in range(K)]


def padded_query_heads(layer: Attention) -> list[int | None]:
    """Return the query heads (H') of the operator as indices of the layer's query heads; None: a head of zeros.

    Groups are padded to the size of the largest, so that every key head serves the same number of query heads: key head
    i G // H' serves entry i.
    """
    groups: list[list[int | None]] = [[] for _ in range(layer.kv_heads)]
    for head, kv in enumerate(kv_index(layer)):
        groups[kv].append(head)
    group_size = max(map(len, groups))
    return [head for heads in groups for head in [*heads, *[None] * (group_size - len(heads))]]


def quantized_matrix(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize a weight (outputs, inputs): 8-bit levels (outputs, blocks, BLOCK) uint8 and scales (outputs, blocks).

    A level l represents the value (l - `ZERO`) times its scale. The last block is padded with zeros.
    """
    weight = weight.detach().to(torch.float32)  # (outputs, inputs)
    outputs, inputs = weight.shape
    blocks = -(-inputs // BLOCK)
    padded_weight = torch.nn.functional.pad(weight, (0, blocks * BLOCK - inputs))  # (outputs, blocks BLOCK)
    blocks_of_inputs = padded_weight.view(outputs, blocks, BLOCK)
    scales = blocks_of_inputs.abs().amax(dim=2).clamp(min=torch.finfo(torch.float32).tiny) / LEVELS  # (outputs, blocks)
    levels = (blocks_of_inputs / scales[:, :, None]).round().clamp(-LEVELS, LEVELS)  # (outputs, blocks, BLOCK)
    return (levels + ZERO).to(torch.uint8), scales
