"""Equivalent forms of a model: other settings and other tensors that compute the same function.

Export converts a model to the form that the Hugging Face class supports. Import reverses some of these conversions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch

from glassformer.base.config import ModelConfig
from glassformer.interop.huggingface.weights import Tensors
from glassformer.model.positions import SinusoidalPositions

Form = tuple[ModelConfig, Tensors]
TOKENS = "embedding.tokens.weight"
HEAD = "head.weight"
READERS = ("query.weight", "key.weight", "value.weight", "up.weight", "gate.weight")
WRITERS = ("output.weight", "output.bias", "down.weight", "down.bias")
"""The columns of `READERS` read from the residual stream; the rows of `WRITERS` write to it."""


STACKS = {"stack": "", "encoder": "enc", "decoder": "dec"}
"""Name of a stack in tensor names -> its name in sites; empty: the family determines the name."""


def restored_heads(config: ModelConfig, ours: Tensors) -> Form:
    """Replace removed heads with heads whose queries and output columns are zero, so that they contribute nothing.

    Key and value heads that were removed with them become zero, too. Layers without any head get query and key norms
    with gains of one, if the model has such norms.
    """
    if not config.removed_heads:
        return config, ours
    restored = Tensors()
    for name, tensor in ours.items():
        stack, _, rest = name.partition(".blocks.")
        layer, _, inner = rest.partition(".")
        part, _, matrix = inner.partition(".")
        if stack not in STACKS or part not in ("attention", "cross"):
            restored[name] = tensor
            continue
        site_stack = STACKS[stack] or ("dec" if config.family == "decoder" else "enc")
        site = f"{site_stack}.{layer}.{'cross' if part == 'cross' else 'self'}"
        if matrix.startswith("key."):
            restored[name] = _with_zero_heads(tensor, config.kept_kv_heads(site), config.G, config.K)
        elif matrix.startswith("value."):
            restored[name] = _with_zero_heads(tensor, config.kept_kv_heads(site), config.G, config.U)
        elif matrix.startswith("query."):
            restored[name] = _with_zero_heads(tensor, config.kept_heads(site), config.heads, config.K)
        elif matrix == "output.weight":
            restored[name] = _with_zero_heads(tensor.T, config.kept_heads(site), config.heads, config.U).T.contiguous()
        else:
            restored[name] = tensor
        if matrix == "query.weight" and config.qk_norm == "head":
            for norm in ("query_norm", "key_norm"):
                restored.setdefault(name.replace("query.", f"{norm}."), tensor.new_ones(config.K))
    return config.replace(removed_heads=()), restored


def _with_zero_heads(tensor: torch.Tensor, kept_heads: list[int], heads: int, K: int) -> torch.Tensor:
    """Insert zeros for removed heads of width K: (remaining heads K, ...) -> (heads K, ...)."""
    restored = tensor.new_zeros(heads, K, *tensor.shape[1:])  # (heads, K, ...)
    restored[kept_heads] = tensor.reshape(len(kept_heads), K, *tensor.shape[1:])
    return restored.flatten(0, 1)


def identity_projections(config: ModelConfig, ours: Tensors) -> Form:
    """Replace the missing output projections by identity matrices, which give the same output."""
    if config.output_projection:
        return config, ours
    projected = Tensors(ours)
    for name, tensor in ours.items():
        if name.endswith((".attention.value.weight", ".cross.value.weight")):
            output = name.removesuffix("value.weight") + "output."
            projected[f"{output}weight"] = torch.eye(config.width, dtype=tensor.dtype, device=tensor.device)
            if config.attention_bias:
                projected[f"{output}bias"] = tensor.new_zeros(config.width)
    return config.replace(output_projection=True), projected


def sinusoids_as_table(config: ModelConfig, ours: Tensors) -> Form:
    """Replace sinusoidal positions with a position table with the same values."""
    if config.positions != "sinusoidal":
        return config, ours
    positions = torch.arange(config.context, device=ours[TOKENS].device)[None]  # (1, C)
    table = SinusoidalPositions(config.width)(positions)[0].to(ours[TOKENS].dtype)  # (C, D)
    tables = {
        f"{name}.positions.table.weight": table
        for name in ("embedding", "source_embedding")
        if f"{name}.tokens.weight" in ours
    }
    return config.replace(positions="learned"), {**ours, **tables}


def scale_inside(config: ModelConfig, ours: Tensors) -> Form:
    """Multiply the embedding by its scale; the head keeps the unscaled matrix and is no longer tied."""
    if not config.embedding_scale:
        return config, ours
    config, ours = untied_head(config, ours)
    return config.replace(embedding_scale=False), {**ours, TOKENS: ours[TOKENS] * math.sqrt(config.width)}


def untied_head(config: ModelConfig, ours: Tensors) -> Form:
    """Replace a tied head with an untied head that has a copy of the embedding."""
    if not config.tied:
        return config, ours
    return config.replace(tied=False), {HEAD: ours[TOKENS], **ours}


def tied_head(config: ModelConfig, ours: Tensors) -> Form:
    """Reverse `untied_head` for an encoder whose head is a copy of the embedding."""
    if config.family != "encoder" or config.tied or HEAD not in ours or not same(ours[HEAD], ours[TOKENS]):
        return config, ours
    return config.replace(tied=True), {name: tensor for name, tensor in ours.items() if name != HEAD}


def same_biases(config: ModelConfig, ours: Tensors) -> Form:
    """Add zero biases, so that attention and feed-forward layers both have biases."""
    if config.attention_bias == config.feedforward_bias:
        return config, ours
    zeros = {
        name.removesuffix("weight") + "bias": tensor.new_zeros(tensor.shape[0])
        for name, tensor in ours.items()
        if name.endswith((*READERS, "output.weight", "down.weight"))
    }
    return config.replace(attention_bias=True, feedforward_bias=True), {**zeros, **ours}


def two_embeddings(config: ModelConfig, ours: Tensors) -> Form:
    """Replace a shared embedding with two equal embeddings."""
    if not config.shared_embedding:
        return config, ours
    copies = {f"source_{name}": tensor for name, tensor in ours.items() if name.startswith("embedding.")}
    return config.replace(shared_embedding=False), {**ours, **copies}


def one_embedding(config: ModelConfig, ours: Tensors) -> Form:
    """Reverse `two_embeddings`, if both embeddings are equal."""
    pairs = [(tensor, ours.get(f"source_{name}")) for name, tensor in ours.items() if name.startswith("embedding.")]
    if config.shared_embedding or not all(other is not None and same(one, other) for one, other in pairs):
        return config, ours
    tensors = {name: tensor for name, tensor in ours.items() if not name.startswith("source_embedding.")}
    return config.replace(shared_embedding=True), tensors


def centred_stream(config: ModelConfig, ours: Tensors) -> Form:
    """Convert LayerNorm without a bias to RMSNorm: subtract the mean from every vector added to the residual stream.

    LayerNorm subtracts the mean over the channels of a vector, and divides by the root mean square of the result. In a
    pre-norm model the residual stream is only read through norms, so its mean has no effect. If each vector that is
    added to the stream has mean 0, the subtraction does nothing, and LayerNorm equals RMSNorm (Jiang et al. 2023,
    "Pre-RMSNorm and Pre-CRMSNorm Transformers", section 3). The head keeps the original embedding and is no
    longer tied.

    The model is returned unchanged unless it is a pre-norm model with rotary positions and LayerNorm without a bias,
    and without an embedding norm or query and key norms.
    """
    plain = config.positions == "rotary" and config.norm_order == "pre" and config.qk_norm == "none"
    if config.norm != "layernorm" or config.norm_bias or config.embedding_norm or not plain:
        return config, ours
    config, ours = untied_head(config, ours)
    centred = Tensors()
    for name, tensor in ours.items():
        if name == TOKENS:
            centred[name] = _centred(tensor, dim=1)  # (V, D)
        elif name.endswith(WRITERS):
            centred[name] = _centred(tensor, dim=0)  # (D, inputs), or (D) of a bias
        else:
            centred[name] = tensor
    return config.replace(norm="rmsnorm", norm_eps=config.eps), centred


def _centred(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """Subtract the mean over dimension `dim`, the channels of the residual stream."""
    exact = tensor.double()
    return (exact - exact.mean(dim=dim, keepdim=True)).to(tensor.dtype)


def sines_first(config: ModelConfig, ours: Tensors) -> Form:
    """Reorder the channels from sin, cos, sin, … to all sines first, as in Hugging Face's sinusoidal positions.

    Norms and sums do not depend on the order of channels, so it is enough to reorder every tensor that reads from or
    writes to the residual stream.
    """
    return _reordered(config, ours, torch.cat([torch.arange(0, config.width, 2), torch.arange(1, config.width, 2)]))


def sines_interleaved(config: ModelConfig, ours: Tensors) -> Form:
    """Restore the channel order sin, cos, sin, …: the inverse of `sines_first`."""
    return _reordered(config, ours, torch.arange(config.width).view(2, -1).T.flatten())


def _reordered(config: ModelConfig, ours: Tensors, order: torch.Tensor) -> Form:
    order = order.to(ours[TOKENS].device)
    reordered = Tensors()
    for name, tensor in ours.items():
        if name.endswith((*READERS, "tokens.weight")) or name == HEAD:
            reordered[name] = tensor[:, order]
        elif name.endswith(WRITERS) or (tensor.ndim == 1 and "norm." in name and not _is_query_or_key_norm(name)):
            reordered[name] = tensor[order]
        else:
            reordered[name] = tensor
    return config, reordered


def _is_query_or_key_norm(name: str) -> bool:
    """Return whether a tensor belongs to a query or key norm, whose channels are not those of the residual stream."""
    return name.endswith(("query_norm.weight", "key_norm.weight"))


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors have equal shapes and values; for meta tensors, only equal shapes."""
    if one.shape != other.shape:
        return False
    return one.is_meta or torch.equal(one, other)


EXPORT_FORMS: dict[str, Callable[[ModelConfig, Tensors], Form]] = {
    form.__name__: form
    for form in (
        sinusoids_as_table,
        scale_inside,
        untied_head,
        same_biases,
        two_embeddings,
        centred_stream,
        sines_first,
    )
}
IMPORT_FORMS: dict[str, Callable[[ModelConfig, Tensors], Form]] = {
    "untied_head": tied_head,
    "two_embeddings": one_embedding,
    "sines_first": sines_interleaved,
}
"""Name of an export form -> its inverse, for the forms that import reverses."""


def apply_forms(forms: Iterable[Callable[[ModelConfig, Tensors], Form]], config: ModelConfig, ours: Tensors) -> Form:
    """Apply the forms in order, and return the settings and tensors of the result."""
    for form in forms:
        config, ours = form(config, ours)
    return config, ours
