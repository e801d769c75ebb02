"""Fields of `config.json` for attention: heads, rotary positions, windows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from glassformer.base.config import ModelConfig
from glassformer.base.errors import GlassError
from glassformer.interop.huggingface.fields import ConfigReader, Refusal


@dataclass(frozen=True)
class HeadFields:
    """Fields for the number of query heads, the number of key and value heads, and the head width.

    Attributes:
        heads: name of the field for query heads.
        kv_heads: name of the field for key and value heads; None: there are as many as query heads.
        head_width: name of the field for the head width; None: the width divided by the number of query heads.
        default_kv: number of key and value heads if the field is missing; None: the number of query heads.
        default_width: head width if the field is missing; None: the width divided by the number of query heads.
        width: name of the field for the width of the residual stream.
    """

    heads: str
    kv_heads: str | None = None
    head_width: str | None = None
    default_kv: int | None = None
    default_width: int | None = None
    width: str = "hidden_size"

    def read(self, theirs: ConfigReader) -> dict[str, Any]:
        """Return `heads`, `kv_heads` if the class has it, and `head_width` unless it is `width` / `heads`."""
        heads = theirs.number(self.heads, int)
        width = theirs.number(self.width, int)
        settings: dict[str, Any] = {"heads": heads}
        if self.kv_heads is not None:
            default = self.default_kv if self.kv_heads not in theirs.values else None
            kv_heads = theirs.number(self.kv_heads, int, default)
            settings["kv_heads"] = heads if kv_heads is None else kv_heads
        if self.head_width is not None:
            settings["head_width"] = theirs.number(self.head_width, int, self.default_width)
        if heads < 1 or (settings.get("head_width") is None and width % heads):
            raise GlassError(
                f"{theirs.path} has {self.heads} = {heads}, which does not divide {self.width} = {width}",
                "Correct one of the two fields.",
            )
        if settings.get("head_width") is None or settings["head_width"] * heads == width:
            settings.pop("head_width", None)
        return settings

    def write(self, config: ModelConfig) -> dict[str, Any]:
        """Return the fields of the class for the numbers of heads and the head width."""
        values = {self.heads: config.heads}
        if self.kv_heads is not None:
            values[self.kv_heads] = config.G
        if self.head_width is not None:
            values[self.head_width] = config.K
        return values

    def refusals(self, config: ModelConfig) -> list[Refusal]:
        """Return refusals for grouped key heads or a separate head width, if the class has no field for them.

        Also refuse values of another width than queries and keys, for which no class has a field.
        Also refuse a separate head width if the class requires that the number of heads divides the width.
        """
        refusals = []
        if config.U != config.K:
            refusals.append(Refusal("value_width", config.U, None))
        if config.heads != config.G and self.kv_heads is None:
            refusals.append(Refusal("kv_heads", config.G, None))
        heads_fill_width = config.K * config.heads == config.width
        if not heads_fill_width and (
            self.head_width is None or (config.width % config.heads and self.width == "hidden_size")
        ):
            divides = config.width % config.heads == 0
            refusals.append(
                Refusal("head_width", config.K, None)
                if divides
                else Refusal("heads", config.heads, max(n for n in range(1, config.heads) if config.width % n == 0))
            )
        return refusals


@dataclass(frozen=True)
class Rope:
    """Fields for rotary positions: `rope_parameters` since transformers 5, earlier `rope_theta` and `rope_scaling`.

    Attributes:
        rotary_fraction: fraction of the head width that is rotated if `config.json` does not give it.
        writes_partial: whether the fraction is written to `config.json`.
    """

    rotary_fraction: float = 1.0
    writes_partial: bool = False

    def read(self, theirs: ConfigReader) -> dict[str, Any]:
        """Return the settings for rotary positions.

        Raises:
            GlassError: a field is malformed or unknown, or the positions are scaled or partial.
        """
        old = theirs.get("rope_scaling", None)
        new = theirs.get("rope_parameters", None)
        for name, scaling in (("rope_scaling", old), ("rope_parameters", new)):
            if scaling is not None and not isinstance(scaling, dict):
                raise theirs.refuse(name, scaling, "Set it to an object or null.")
        for name, scaling in (("rope_scaling", old or {}), ("rope_parameters", new or {})):
            kind = scaling.get("rope_type", scaling.get("type", "default"))
            if kind != "default":
                raise theirs.refuse(
                    f"{name}.rope_type", kind, "Only unscaled rotary positions ('default') are supported."
                )
        rope_parameters = {
            key: v for key, v in {**(old or {}), **(new or {})}.items() if key not in ("rope_type", "type")
        }
        theta = rope_parameters.pop("rope_theta", theirs.get("rope_theta", None))
        theta = 10_000.0 if theta is None else theta
        rotary_fraction = rope_parameters.pop(
            "partial_rotary_factor", theirs.get("partial_rotary_factor", self.rotary_fraction)
        )
        if rotary_fraction != 1:
            raise theirs.refuse(
                "partial_rotary_factor",
                rotary_fraction,
                "Only whole heads can be rotated: partial_rotary_factor = 1.0.",
            )
        for name, value in rope_parameters.items():
            field = "rope_parameters" if name in (new or {}) else "rope_scaling"
            raise theirs.refuse(f"{field}.{name}", value, "Only rope_theta is supported.")
        if isinstance(theta, bool) or not isinstance(theta, int | float) or not math.isfinite(theta):
            raise GlassError(f"{theirs.path} has rope_theta = {theta!r}", "Set it to a number.")
        return {"positions": "rotary", "rotary_base": float(theta)}

    def write(self, config: ModelConfig) -> dict[str, Any]:
        """Return `rope_parameters`, the form of transformers 5."""
        rope_parameters: dict[str, Any] = {"rope_type": "default", "rope_theta": config.rotary_base}
        if self.writes_partial:
            rope_parameters["partial_rotary_factor"] = 1.0
        return {"rope_parameters": rope_parameters}

    def refusals(self, config: ModelConfig) -> list[Refusal]:
        """Return a refusal if the positions are not rotary."""
        return [] if config.positions == "rotary" else [Refusal("positions", config.positions, "rotary")]


@dataclass(frozen=True)
class Window:
    """Fields for a sliding window in all layers: one field in StarCoder2, four in Qwen, where layers can differ.

    Attributes:
        mixes: whether the class can mix layers with and without a window.
    """

    mixes: bool = False

    def read(self, theirs: ConfigReader) -> dict[str, Any]:
        """Return the window; None if no layer uses a window, or if the window is longer than the context.

        Raises:
            GlassError: a field is malformed, or the layers differ.
        """
        window = theirs.number("sliding_window", int, None)
        if self.mixes:
            layers = theirs.number("num_hidden_layers", int)
            full_layers = theirs.number("max_window_layers", int, 28)
            used = bool(theirs.number("use_sliding_window", bool, False)) and window is not None
            layer_types = theirs.get("layer_types", None)
            if layer_types is None:
                layer_types = [
                    "sliding_attention" if used and layer >= full_layers else "full_attention"
                    for layer in range(layers)
                ]
            if not isinstance(layer_types, list) or len(layer_types) != layers or len(set(map(str, layer_types))) != 1:
                raise theirs.refuse(
                    "layer_types",
                    layer_types,
                    "Give a list with one type for each layer, the same type for all layers.",
                )
            if layer_types[0] not in ("full_attention", "sliding_attention"):
                raise theirs.refuse(
                    "layer_types", layer_types, "Only full_attention and sliding_attention are supported."
                )
            if layer_types[0] == "sliding_attention" and not used:
                raise theirs.refuse("layer_types", layer_types, "Set use_sliding_window and sliding_window.")
            window = window if layer_types[0] == "sliding_attention" else None
        context = theirs.number("max_position_embeddings", int)
        return {"window": window if window is None or window <= context else None}

    def write(self, config: ModelConfig) -> dict[str, Any]:
        """Return `sliding_window`, and the other three fields if the class can mix layers with and without a window."""
        values: dict[str, Any] = {"sliding_window": config.window}
        if self.mixes:
            used = config.window is not None
            values["use_sliding_window"] = used
            values["max_window_layers"] = 0 if used else config.layers
            values["layer_types"] = ["sliding_attention" if used else "full_attention"] * config.layers
        return values

    def refusals(self, config: ModelConfig) -> list[Refusal]:
        return []
