"""PyTorch optimizers that do not load PyTorch's compiler."""

from __future__ import annotations

import inspect

import torch
from torch.optim import Optimizer


class EagerOptimizer(Optimizer):
    """Optimizer whose methods do not load PyTorch's compiler.

    PyTorch guards these methods against compilation, and the guards import `torch._dynamo` at their first call, which
    takes 0.8 s at the start of every training run. glassformer compiles only the loss, so it does not need the guards.
    """

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)
    state_dict = inspect.unwrap(Optimizer.state_dict)
    load_state_dict = inspect.unwrap(Optimizer.load_state_dict)


class AdamW(EagerOptimizer, torch.optim.AdamW):
    """AdamW (Loshchilov and Hutter 2019); gives the same results as `torch.optim.AdamW`."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))
