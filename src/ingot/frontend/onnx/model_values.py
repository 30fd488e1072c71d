"""Values of an ONNX graph: tensors, and small arrays that are known while a model is called.

In: arrays of the model, shapes of tensors. Out: what operators are handed. Shapes and what is computed from them stay
numpy arrays, so that sizes are plain numbers to PyTorch and nothing is recorded for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy
import torch

from ingot.base.errors import ImportedModelError

MOST_KNOWN = 4096
"""The most elements of an array of the model that operators may look into while it is called."""


@dataclass(frozen=True, slots=True, eq=False)
class HostValue:
    """An array whose elements are known; `tensor` holds the same, for arrays of the model."""

    array: Any
    tensor: torch.Tensor | None = None


Value = torch.Tensor | HostValue

DTYPES: dict[int, torch.dtype] = {
    1: torch.float32,
    2: torch.uint8,
    3: torch.int8,
    4: torch.uint16,
    5: torch.int16,
    6: torch.int32,
    7: torch.int64,
    9: torch.bool,
    10: torch.float16,
    11: torch.float64,
    12: torch.uint32,
    13: torch.uint64,
    16: torch.bfloat16,
}
"""What the numbers of ONNX's element types mean."""

_OF_NUMPY = {
    numpy.dtype(name): getattr(torch, name)
    for name in (
        "float16",
        "float32",
        "float64",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
    )
} | {numpy.dtype(bool): torch.bool}
_TO_NUMPY = {dtype: name for name, dtype in _OF_NUMPY.items()}


def sizes_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """The sizes of a tensor. Those of weights are always the same: a recording need not hold for them alone."""
    return declared_sizes(tensor) if isinstance(tensor, torch.nn.Parameter) else tuple(tensor.shape)


def declared_sizes(tensor: torch.Tensor) -> tuple[int, ...]:
    """The sizes of a tensor, read without a recording taking note: for sizes that decide nothing."""
    with torch._C.DisableTorchFunction():
        return tuple(tensor.shape)


def dtype_of(number: int) -> torch.dtype:
    """The dtype that a number of ONNX's means."""
    if number not in DTYPES:
        raise ImportedModelError(f"ONNX's element type {number} has no counterpart that ingot computes with")
    return DTYPES[number]


def numpy_dtype(dtype: torch.dtype) -> Any:
    """The same type in numpy; None if it has none."""
    return _TO_NUMPY.get(dtype)


def tensor_of(array: Any, device: torch.device) -> torch.Tensor:
    """A tensor with an array's elements, in memory of PyTorch's own."""
    if array.dtype in _OF_NUMPY:
        return torch.tensor(array.tolist(), dtype=_OF_NUMPY[array.dtype], device=device).reshape(array.shape)
    raise ImportedModelError(f"arrays of type {array.dtype} have no counterpart that ingot computes with")


def stored_tensor(array: Any) -> torch.Tensor:
    """A tensor with the elements of an array of the model."""
    array = numpy.array(array, order="C")  # memory of its own
    if array.dtype in _OF_NUMPY:
        return torch.from_numpy(array).clone()
    if str(array.dtype) == "bfloat16":
        return torch.from_numpy(array.view(numpy.uint16)).view(torch.bfloat16).clone()
    raise ImportedModelError(f"arrays of type {array.dtype} have no counterpart that ingot computes with")
