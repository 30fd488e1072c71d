"""Which tensors ingot compiles for, and which it leaves to PyTorch."""

from __future__ import annotations

import torch

from ingot.runtime.backends.registry import backend_for


def refused_tensor(tensor: torch.Tensor) -> str | None:
    """Why a tensor cannot come into a recording from outside, if it cannot."""
    if is_lazy(tensor):
        return "tensors that PyTorch conjugates or negates when they are read are left to PyTorch"
    return refused_result(tensor)


def is_lazy(tensor: torch.Tensor) -> bool:
    """Whether PyTorch conjugates or negates a tensor when it is read, so that its memory holds something else."""
    return tensor.is_conj() or tensor.is_neg()


def refused_result(tensor: torch.Tensor) -> str | None:
    """Why a tensor that an operation has made cannot be part of a recording, if it cannot. One that is conjugated when
    it is read is a view like others: the value that it stands for is the conjugate."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return f"{type(tensor).__name__} is a tensor of a class of its own"
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        return "sparse, quantised and nested tensors are left to PyTorch"
    if backend_for(tensor.device) is None:
        return f"tensors on {tensor.device.type} are left to PyTorch"
    return None
