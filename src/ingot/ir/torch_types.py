"""Conversions between ingot's data types and torch's."""

from __future__ import annotations

import torch

from ingot.base.dtypes import DataType

_TO_TORCH = {
    dtype: getattr(torch, dtype.torch_name)
    for dtype in DataType
    if dtype.torch_name is not None and hasattr(torch, dtype.torch_name)
}
_FROM_TORCH = {torch_dtype: dtype for dtype, torch_dtype in _TO_TORCH.items()}


def to_torch(dtype: DataType) -> torch.dtype:
    return _TO_TORCH[dtype]


def from_torch(dtype: torch.dtype) -> DataType | None:
    """ingot's name for a torch dtype, or None where it has none."""
    return _FROM_TORCH.get(dtype)
