"""NumPy implementation of llama.cpp's forward pass for a GGUF file.

It does not use the exported run: sizes, layout and weights come from the file, and all else follows from the
architecture's name, as in llama.cpp's src/models. If it agrees with the run, llama.cpp should agree too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.interop.gguf.targets import TARGETS
from glassformer.interop.gguf.writing import need_gguf

Array = NDArray[np.float64]


class GgufModel:
    """A decoder in a GGUF file, computed in float64."""

    def __init__(self, path: Path) -> None:
        gguf = need_gguf()
        reader = gguf.GGUFReader(path)
        self._fields = {name: field.contents() for name, field in reader.fields.items()}
        self._tensors: dict[str, Array] = {
            each.name: gguf.dequantize(each.data, each.tensor_type).astype(np.float64) for each in reader.tensors
        }
        self.target = TARGETS[str(self._fields["general.architecture"])]
        self.heads = int(self._field("attention.head_count"))
        self.kv_heads = int(self._field("attention.head_count_kv"))
        kind = "rms_epsilon" if self.target.rms else "epsilon"
        self.eps = float(self._field(f"attention.layer_norm_{kind}"))

    def _field(self, name: str) -> Any:
        return self._fields[f"{self.target.name}.{name}"]

    def logits(self, tokens: Sequence[int]) -> Array:
        """Compute logits: ids (T) -> (T, V)."""
        x = self._tensors["token_embd.weight"][list(tokens)]  # (T, D)
        if "position_embd.weight" in self._tensors:
            x = x + self._tensors["position_embd.weight"][: len(x)]  # (T, D)
        for layer in range(int(self._field("block_count"))):
            prefix = f"blk.{layer}."
            x = x + self._attention(self._norm(x, prefix + "attn_norm"), prefix)  # (T, D)
            x = x + self._feedforward(self._norm(x, prefix + "ffn_norm"), prefix)  # (T, D)
        head = self._tensors.get("output.weight", self._tensors["token_embd.weight"])  # (V, D)
        result: Array = self._norm(x, "output_norm") @ head.T  # (T, V)
        return result

    def _linear(self, x: Array, name: str) -> Array:
        """Apply a linear layer: (T, inputs) -> (T, outputs)."""
        bias_required = self.target.biased and name.startswith("blk.")
        bias = self._tensors[name + ".bias"] if bias_required else self._tensors.get(name + ".bias", np.zeros(1))
        return x @ self._tensors[name + ".weight"].T + bias

    def _norm(self, x: Array, name: str) -> Array:
        """Normalize over the last axis with the architecture's RMSNorm or LayerNorm."""
        centred = x if self.target.rms else x - x.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + self.eps)
        return scaled * self._tensors[name + ".weight"] + self._tensors.get(name + ".bias", np.zeros(1))

    def _attention(self, x: Array, prefix: str) -> Array:
        """Apply causal self-attention: (T, D) -> (T, D)."""
        T = len(x)
        H = self.heads
        G = self.kv_heads
        K = int(self._field("attention.key_length"))
        if prefix + "attn_qkv.weight" in self._tensors:
            q, k, v = np.split(self._linear(x, prefix + "attn_qkv"), [H * K, (H + G) * K], axis=1)  # (T, H K), (T, G K)
        else:
            q, k, v = (self._linear(x, prefix + name) for name in ("attn_q", "attn_k", "attn_v"))  # (T, H K), (T, G K)
        q = q.reshape(T, H, K)
        k = k.reshape(T, G, K)
        v = v.reshape(T, G, K)
        if prefix + "attn_q_norm.weight" in self._tensors:
            q = self._norm(q, prefix + "attn_q_norm")  # (T, H, K)
            k = self._norm(k, prefix + "attn_k_norm")  # (T, G, K)
        if "position_embd.weight" not in self._tensors:
            q = self._rotated(q)  # (T, H, K)
            k = self._rotated(k)  # (T, G, K)
        k = np.repeat(k, H // G, axis=1)  # (T, H, K)
        v = np.repeat(v, H // G, axis=1)  # (T, H, K)
        scores = np.einsum("thk,shk->hts", q, k) / np.sqrt(K)  # (H, T, T)
        scores[:, np.triu(np.ones((T, T), dtype=bool), 1)] = -np.inf
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))  # (H, T, T)
        weights /= weights.sum(axis=-1, keepdims=True)
        z = np.einsum("hts,shk->thk", weights, v).reshape(T, H * K)  # (T, H K)
        return self._linear(z, prefix + "attn_output")  # (T, D)

    def _rotated(self, x: Array) -> Array:
        """Apply rotary positions to (T, heads, K), pairing neighbouring channels or channels half a head apart."""
        T, _, K = x.shape
        frequency = float(self._field("rope.freq_base")) ** (-np.arange(0, K, 2) / K)  # (K/2)
        angles = np.arange(T)[:, None, None] * frequency  # (T, 1, K/2)
        pairs = (slice(0, K, 2), slice(1, K, 2)) if self.target.neighbours else (slice(0, K // 2), slice(K // 2, K))
        first = x[..., pairs[0]]  # (T, heads, K/2)
        second = x[..., pairs[1]]  # (T, heads, K/2)
        result = np.empty_like(x)
        result[..., pairs[0]] = first * np.cos(angles) - second * np.sin(angles)
        result[..., pairs[1]] = first * np.sin(angles) + second * np.cos(angles)
        return result

    def _feedforward(self, x: Array, prefix: str) -> Array:
        """Apply the feed-forward layer, SwiGLU or tanh-GELU: (T, D) -> (T, D)."""
        up = self._linear(x, prefix + "ffn_up")  # (T, F)
        if self.target.gated:
            gate = self._linear(x, prefix + "ffn_gate")  # (T, F)
            return self._linear(gate / (1 + np.exp(-gate)) * up, prefix + "ffn_down")  # (T, D)
        hidden = 0.5 * up * (1 + np.tanh(np.sqrt(2 / np.pi) * (up + 0.044715 * up**3)))  # (T, F)
        return self._linear(hidden, prefix + "ffn_down")  # (T, D)
