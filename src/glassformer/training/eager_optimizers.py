"""Optimizers of PyTorch that begin to work without loading its compiler."""

from __future__ import annotations

import inspect

import torch
from torch.optim import Optimizer


class EagerOptimizer(Optimizer):
    """An optimizer whose methods do not load PyTorch's compiler.

    PyTorch guards these methods against compilation, and the guards import `torch._dynamo` at their first call, which
    takes 0.8 s at the start of every training. Only the loss is compiled here, so the unguarded methods serve as well.
    """

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)
    state_dict = inspect.unwrap(Optimizer.state_dict)
    load_state_dict = inspect.unwrap(Optimizer.load_state_dict)


class AdamW(EagerOptimizer, torch.optim.AdamW):
    """`torch.optim.AdamW`, the same numbers. Loshchilov and Hutter 2019."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))
