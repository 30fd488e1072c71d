"""Which tensors ingot compiles for, and which it leaves to PyTorch."""

from __future__ import annotations

import torch

from ingot.runtime.backends.registry import backend_for


def refused_tensor(tensor: torch.Tensor) -> str | None:
    """Why a tensor cannot be part of a recording, if it cannot."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return f"{type(tensor).__name__} is a tensor of a class of its own"
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        return "sparse, quantised and nested tensors are left to PyTorch"
    if backend_for(tensor.device) is None:
        return f"tensors on {tensor.device.type} are left to PyTorch"
    if tensor.is_conj() or tensor.is_neg():
        return "tensors that PyTorch conjugates or negates when they are read are left to PyTorch"
    return None
