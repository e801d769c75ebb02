"""Names of the backends that compute logits when text is generated; see `glassformer.backends`."""

from __future__ import annotations

from typing import Literal, get_args

BackendName = Literal["auto", "torch", "onnxruntime", "onnxruntime-int8"]
BACKENDS: tuple[str, ...] = get_args(BackendName)
"""Values of `--backend`; `glass serve` accepts all except auto."""
