"""The spellings of `define_tensor`: nvFuser changed them over the years, and all of them are taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ingot.base.errors import ArgumentError, DefinitionError
from ingot.frontend.fusion_definition.recorded_statements import TensorDeclaration
from ingot.ir.torch_types import from_torch
from ingot.ops.parameters import data_type


def declare_tensor(
    *,
    shape: int | Sequence[int] | None,
    contiguity: bool | Sequence[bool | None] | None,
    dtype: Any,
    is_cpu: bool,
    stride_order: Sequence[int] | None,
    ndims: int | None,
    symbolic_sizes: Sequence[int] | None,
    contiguous: bool | Sequence[bool | None] | None,
    sizes: Sequence[int] | None,
    strides: Sequence[int] | None,
    static_sizes: bool,
) -> TensorDeclaration:
    """One declaration from whichever spelling was used."""
    spellings = {"shape": shape, "a rank": ndims, "symbolic_sizes": symbolic_sizes, "sizes": sizes}
    given = [name for name, value in spellings.items() if value is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        raise ArgumentError(f"define_tensor takes one of {', '.join(spellings)}, got {found}")
    element_type = data_type(dtype)
    if element_type is None:
        raise ArgumentError("define_tensor needs a data type")
    if sizes is not None:
        if strides is None:
            raise ArgumentError("define_tensor(sizes=...) needs strides too")
        return _like(tuple(sizes), tuple(strides), element_type, is_cpu, static_sizes)
    if strides is not None or static_sizes:
        raise ArgumentError("strides and static_sizes go with sizes")
    declared = _declared_shape(shape, ndims, symbolic_sizes)
    flags = contiguity if contiguity is not None else contiguous
    return TensorDeclaration(
        declared, _contiguity(flags, declared), element_type, is_cpu, _stride_order(stride_order, len(declared))
    )


def declare_like(tensor: torch.Tensor, static_sizes: bool) -> TensorDeclaration:
    """A declaration that fits an existing tensor, and others of its rank and layout."""
    if not isinstance(tensor, torch.Tensor):
        raise ArgumentError(f"from_pytorch takes a tensor, not {tensor!r}")
    dtype = data_type(from_torch(tensor.dtype) or tensor.dtype)
    assert dtype is not None
    is_cpu = tensor.dim() == 0 and tensor.device.type == "cpu"
    return _like(tuple(tensor.shape), tuple(tensor.stride()), dtype, is_cpu, static_sizes)


def _like(
    sizes: tuple[int, ...], strides: tuple[int, ...], dtype: Any, is_cpu: bool, static_sizes: bool
) -> TensorDeclaration:
    if len(sizes) != len(strides):
        raise ArgumentError(f"sizes {list(sizes)} and strides {list(strides)} must have the same length")
    shape = sizes if static_sizes else tuple(1 if size == 1 else -1 for size in sizes)
    order = sorted(range(len(sizes)), key=lambda axis: (strides[axis], -axis))
    contiguity: list[bool | None] = [None] * len(sizes)
    expected = 1
    for axis in order:
        if sizes[axis] != 1:
            contiguity[axis] = strides[axis] == expected
            expected = strides[axis] * sizes[axis]
    ranks = tuple(order.index(axis) for axis in range(len(sizes)))
    row_major = tuple(reversed(range(len(sizes))))
    return TensorDeclaration(shape, tuple(contiguity), dtype, is_cpu, None if ranks == row_major else ranks)


def _declared_shape(
    shape: int | Sequence[int] | None, ndims: int | None, symbolic_sizes: Sequence[int] | None
) -> tuple[int, ...]:
    rank = shape if isinstance(shape, int) else ndims
    if rank is not None:
        if rank < 0:
            raise DefinitionError(f"a rank cannot be negative: {rank}")
        return (-1,) * rank
    declared = symbolic_sizes if symbolic_sizes is not None else shape
    assert declared is not None and not isinstance(declared, int)
    for size in declared:
        if not isinstance(size, int) or isinstance(size, bool) or size < -1:
            raise DefinitionError(f"a size must be -1 (any), 1 (broadcast) or a fixed number, not {size!r}")
    return tuple(declared)


def _contiguity(flags: bool | Sequence[bool | None] | None, shape: tuple[int, ...]) -> tuple[bool | None, ...]:
    if flags is None or isinstance(flags, bool) or not len(flags):
        return (flags is True,) * len(shape)
    if len(flags) != len(shape):
        raise DefinitionError(f"contiguity {list(flags)} must have one entry per dimension of {list(shape)}")
    return tuple(flags)


def _stride_order(order: Sequence[int] | None, rank: int) -> tuple[int, ...] | None:
    if order is None or not len(order):  # nvFuser's way to say that there is none
        return None
    if sorted(order) != list(range(rank)):
        raise DefinitionError(f"stride_order {list(order)} must name each of the {rank} dimensions once")
    return tuple(order)
