"""Count the matrix multiplications of PyTorch by the precision of their operands, in forward and backward passes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "mv", "dot", "einsum", "addmv", "convolution")
"""Names of operators that multiply matrices; a trailing underscore is ignored."""
FAMILIES = (
    "_scaled_dot_product",
    "scaled_dot_product",
    "mkldnn",
    "_linear_pointwise",
    "_addmm",
    "_efficient",
    "_flash",
)
"""Prefixes of the names of further operators that multiply matrices: attention, oneDNN and fused linear layers."""


class BfloatProducts(TorchDispatchMode):
    """Context manager that counts matrix multiplications with and without an operand in bfloat16.

    Attributes:
        bfloat16: number of multiplications with an operand in bfloat16.
        others: number of all other multiplications.
        names: number of bfloat16 multiplications of each operator.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bfloat16 = 0
        self.others = 0
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count the call if it multiplies matrices, and call the operator."""
        kwargs = kwargs or {}
        name = function.overloadpacket.__name__
        if name.rstrip("_") in PRODUCTS or name.startswith(FAMILIES):
            operands = [each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)]
            if any(operand.dtype == torch.bfloat16 for operand in operands):
                self.bfloat16 += 1
                self.names[str(function)] += 1
            else:
                self.others += 1
        return function(*args, **kwargs)
