"""Operators that reduce axes. Their axes are an attribute in older versions, an input in newer ones."""

from __future__ import annotations

from typing import Any

import numpy
import torch

from ingot.frontend.onnx.operator_table import NodeCall, define, defines


def _product(x: torch.Tensor, axes: list[int], keeps: bool) -> torch.Tensor:
    for axis in sorted((axis % x.dim() for axis in axes), reverse=True):
        x = torch.prod(x, axis, keepdim=keeps)
    return x


_REDUCTIONS: dict[str, Any] = {
    "ReduceSum": lambda x, axes, keeps: x.sum(axes, keepdim=keeps, dtype=x.dtype),
    "ReduceMean": lambda x, axes, keeps: x.mean(axes, keepdim=keeps),
    "ReduceMax": lambda x, axes, keeps: x.amax(axes, keepdim=keeps),
    "ReduceMin": lambda x, axes, keeps: x.amin(axes, keepdim=keeps),
    "ReduceProd": lambda x, axes, keeps: _product(x, axes, keeps).to(x.dtype),
    "ReduceL1": lambda x, axes, keeps: x.abs().sum(axes, keepdim=keeps, dtype=x.dtype),
    "ReduceL2": lambda x, axes, keeps: (x * x).sum(axes, keepdim=keeps).sqrt(),
    "ReduceSumSquare": lambda x, axes, keeps: (x * x).sum(axes, keepdim=keeps, dtype=x.dtype),
    "ReduceLogSum": lambda x, axes, keeps: x.sum(axes, keepdim=keeps).log(),
    "ReduceLogSumExp": lambda x, axes, keeps: torch.logsumexp(x, axes, keepdim=keeps),
}
_OF_ARRAYS = {"ReduceProd": numpy.prod, "ReduceSum": numpy.sum, "ReduceMax": numpy.max, "ReduceMin": numpy.min}


def _reduce(call: NodeCall) -> torch.Tensor:
    x, axes, keeps = call.tensor(0), call.axes(1), bool(call.attribute("keepdims", 1))
    if not axes:
        if call.attribute("noop_with_empty_axes", 0):
            return x
        axes = list(range(x.dim()))
    if not axes:
        return _REDUCTIONS[call.node.operator](x.reshape(1), [0], False)
    return _REDUCTIONS[call.node.operator](x, axes, keeps)


def _reduce_array(call: NodeCall, array: Any, *axes: Any) -> Any:
    named = call.axes(1)
    if not named and call.attribute("noop_with_empty_axes", 0):
        return array
    over, keeps = tuple(named) if named else None, bool(call.attribute("keepdims", 1))
    return numpy.asarray(_OF_ARRAYS[call.node.operator](array, axis=over, keepdims=keeps)).astype(array.dtype)


for _name in _REDUCTIONS:
    define(_name, _reduce, on_arrays=_reduce_array if _name in _OF_ARRAYS else None)


@defines("ArgMax", "ArgMin")
def _position(call: NodeCall) -> torch.Tensor:
    x, axis, keeps = call.tensor(0), call.attribute("axis", 0), bool(call.attribute("keepdims", 1))
    find = torch.argmax if call.node.operator == "ArgMax" else torch.argmin
    if not call.attribute("select_last_index", 0):
        return find(x, axis, keepdim=keeps)
    return x.shape[axis] - 1 - find(x.flip(axis), axis, keepdim=keeps)


@defines("CumSum")
def _cumulative_sum(call: NodeCall) -> torch.Tensor:
    x, axis = call.tensor(0), int(call.number(1))
    is_reversed = call.attribute("reverse", 0)
    x = x.flip(axis) if is_reversed else x
    total = torch.cumsum(x, axis, dtype=x.dtype)
    total = total - x if call.attribute("exclusive", 0) else total
    return total.flip(axis) if is_reversed else total


@defines("TopK", since=10)
def _largest(call: NodeCall) -> Any:
    x, count, axis = call.tensor(0), int(call.number(1)), call.attribute("axis", -1)
    found = torch.sort(x, dim=axis, descending=bool(call.attribute("largest", 1)), stable=True)
    return found.values.narrow(axis, 0, count), found.indices.narrow(axis, 0, count)  # the first of equal ones first
