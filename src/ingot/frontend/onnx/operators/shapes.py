"""Shapes as values, and tensors that are made of numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy
import torch

from ingot.frontend.onnx.model_values import HostValue, dtype_of, numpy_dtype
from ingot.frontend.onnx.operator_table import NodeCall, defines


def _shape_of(value: Any) -> tuple[int, ...]:
    return tuple(value.array.shape if isinstance(value, HostValue) else value.shape)


@defines("Shape")
def _shape(call: NodeCall) -> HostValue:
    sizes = _shape_of(call.values[0])[call.attribute("start", 0) : call.attribute("end")]
    return HostValue(numpy.array(sizes, numpy.int64).reshape(len(sizes)))


@defines("Size")
def _size(call: NodeCall) -> HostValue:
    return HostValue(numpy.array(math.prod(_shape_of(call.values[0])), numpy.int64))


@defines("ConstantOfShape")
def _constant_of_shape(call: NodeCall) -> Any:
    sizes = [int(size) for size in call.known(0)]
    value = call.attribute("value")
    array = numpy.zeros(1, numpy.float32) if value is None else value
    if numpy_dtype(torch.int64) == array.dtype and math.prod(sizes) <= 64:
        return HostValue(numpy.full(sizes, array.item(), array.dtype))
    dtype = getattr(torch, str(array.dtype))
    return torch.full(sizes, array.item(), dtype=dtype, device=call.device)


def _range_array(call: NodeCall, start: Any, limit: Any, delta: Any) -> Any:
    made = numpy.arange(start.item(), limit.item(), delta.item(), dtype=start.dtype)
    return made if made.size <= 64 else NotImplemented


@defines("Range", on_arrays=_range_array)
def _range(call: NodeCall) -> torch.Tensor:
    start, limit, delta = (call.number(position) for position in range(3))
    first: Any = call.values[0]
    dtype = first.dtype if isinstance(first, torch.Tensor) else getattr(torch, str(first.array.dtype))
    count = max(math.ceil((limit - start) / delta), 0)
    positions = torch.arange(count, device=call.device)
    return (positions * delta + start).to(dtype)


@defines("OneHot")
def _one_hot(call: NodeCall) -> torch.Tensor:
    indices, depth, axis = call.tensor(0).to(torch.int64), int(call.number(1)), call.attribute("axis", -1)
    off, on = (one.reshape(()) for one in call.tensor(2).split(1))
    axis = axis if axis >= 0 else axis + indices.dim() + 1
    indices = torch.where(indices < 0, indices + depth, indices).unsqueeze(axis)
    places = torch.arange(depth, device=indices.device).reshape(-1, *[1] * (indices.dim() - 1 - axis))
    return torch.where(indices == places, on, off)


@defines("EyeLike")
def _eye_like(call: NodeCall) -> torch.Tensor:
    x, diagonal = call.tensor(0), call.attribute("k", 0)
    rows, columns = (torch.arange(size, device=x.device) for size in x.shape)
    number = call.attribute("dtype")
    return (rows[:, None] + diagonal == columns).to(x.dtype if number is None else dtype_of(number))
