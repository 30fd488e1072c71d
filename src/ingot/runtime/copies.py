"""Copying kernels: elements from one layout into another, every bit as it is.

In: a tensor. Out: a kernel that copies tensors with as many axes and elements of the same width, of any strides, and
the sizes that it is to be called with. Floats are moved as integers of their width, so that no conversion touches a
NaN.
"""

from __future__ import annotations

from functools import cache

import torch

from ingot.base.dtypes import DataType
from ingot.codegen.llvm.support import supports
from ingot.fusion.clusters import Cluster, find_clusters
from ingot.fusion.placement import shape_of
from ingot.ir.builder import Builder
from ingot.ops.attributes import CastAttributes
from ingot.runtime.kernels import Kernel, KernelOrigin

_OF_WIDTH = {1: DataType.Int8, 2: DataType.Int16, 4: DataType.Int32, 8: DataType.Int, 16: DataType.ComplexDouble}


def copying(source: torch.Tensor) -> tuple[Kernel, dict[str, int]]:
    """The kernel that copies tensors like this one, and the values of its size symbols."""
    kernel = _copying(source.element_size(), source.dim())
    (read,) = kernel.lowered.tensors
    return kernel, {str(symbol): size for symbol, size in zip(shape_of(read.node), source.shape, strict=True)}


@cache
def _copying(width: int, axes: int) -> Kernel:
    builder, dtype = Builder(), _OF_WIDTH[width]
    source = builder.tensor_input([-1] * axes, dtype)
    builder.add_output(builder.node("cast", source, attributes=CastAttributes(dtype)))
    (step,) = find_clusters(builder.build(), supports)
    assert isinstance(step, Cluster)
    return Kernel.of(step, KernelOrigin(is_common=True))
