"""Operators that pick elements by indices, or write at indices. Negative indices count from the end."""

from __future__ import annotations

from typing import Any

import numpy
import torch

from ingot.base.errors import ImportedModelError
from ingot.frontend.onnx.model_values import HostValue, sizes_of
from ingot.frontend.onnx.operator_table import NodeCall, defines


def _counted(indices: torch.Tensor, size: int) -> torch.Tensor:
    indices = indices.to(torch.int64)
    return torch.where(indices < 0, indices + size, indices)


def _gather_array(call: NodeCall, array: Any, indices: Any) -> Any:
    return numpy.asarray(numpy.take(array, indices, axis=call.attribute("axis", 0)))


@defines("Gather", on_arrays=_gather_array)
def _gather(call: NodeCall) -> torch.Tensor:
    x, axis, indices = call.tensor(0), call.attribute("axis", 0), call.values[1]
    axis %= x.dim()
    if isinstance(indices, HostValue) and indices.array.ndim == 0:
        return x.select(axis, int(indices.array))
    places = call.tensor(1)
    if axis == 0 and x.dim() == 2 and x.dtype.is_floating_point:
        return torch.nn.functional.embedding(_counted(places, sizes_of(x)[0]), x)
    picked = x.index_select(axis, _counted(places, x.shape[axis]).reshape(-1))
    return picked.reshape(*x.shape[:axis], *places.shape, *x.shape[axis + 1 :])


@defines("GatherElements")
def _gather_elements(call: NodeCall) -> torch.Tensor:
    x, axis = call.tensor(0), call.attribute("axis", 0)
    return torch.gather(x, axis, _counted(call.tensor(1), x.shape[axis]))


@defines("GatherND")
def _gather_parts(call: NodeCall) -> torch.Tensor:
    x, indices, batch = call.tensor(0), call.tensor(1), call.attribute("batch_dims", 0)
    depth = indices.shape[-1]
    places: list[Any] = [
        torch.arange(x.shape[axis], device=x.device).reshape(-1, *[1] * (indices.dim() - 2 - axis))
        for axis in range(batch)
    ]
    places += [_counted(indices[..., one], x.shape[batch + one]) for one in range(depth)]
    return x[tuple(places)]


_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@defines("ScatterND")
def _scatter_parts(call: NodeCall) -> torch.Tensor:
    x, indices, updates = call.tensor(0), call.tensor(1), call.tensor(2)
    reduction, depth = call.attribute("reduction", "none"), indices.shape[-1]
    if reduction not in ("none", "add"):
        raise ImportedModelError(f"the reduction {reduction!r} is not known")
    places = tuple(_counted(indices[..., one], x.shape[one]) for one in range(depth))
    return torch.index_put(x, places, updates, accumulate=reduction == "add")


@defines("Scatter", "ScatterElements")
def _scatter_elements(call: NodeCall) -> torch.Tensor:
    x, axis, updates = call.tensor(0), call.attribute("axis", 0), call.tensor(2)
    reduction = call.attribute("reduction", "none")
    places = _counted(call.tensor(1), x.shape[axis])
    if reduction == "none":
        return torch.scatter(x, axis, places, updates)
    return torch.scatter_reduce(x, axis, places, updates, _REDUCTIONS[reduction])


@defines("NonZero")
def _nonzero(call: NodeCall) -> torch.Tensor:
    return torch.nonzero(call.tensor(0)).t()


@defines("Compress")
def _compress(call: NodeCall) -> torch.Tensor:
    x, axis = call.tensor(0), call.attribute("axis")
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    return x.index_select(axis, torch.nonzero(call.tensor(1)).reshape(-1))
