"""Operators that give tensors another shape or another order."""

from __future__ import annotations

import math
from typing import Any

import numpy
import torch
from torch.nn import functional

from ingot.base.errors import ImportedModelError
from ingot.frontend.onnx.operator_table import NodeCall, defines


def _reshape_array(call: NodeCall, array: Any, shape: Any) -> Any:
    return array.reshape([array.shape[axis] if size == 0 else size for axis, size in enumerate(shape.tolist())])


@defines("Reshape", on_arrays=_reshape_array)
def _reshape(call: NodeCall) -> torch.Tensor:
    x, sizes = call.tensor(0), [int(size) for size in call.known(1)]
    if not call.attribute("allowzero", 0):
        sizes = [x.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)]
    return x.reshape(sizes)


@defines("Flatten")
def _flatten(call: NodeCall) -> torch.Tensor:
    x, axis = call.tensor(0), call.attribute("axis", 1)
    axis = axis + x.dim() if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


def _squeeze_array(call: NodeCall, array: Any, *axes: Any) -> Any:
    named = call.axes(1)
    return numpy.squeeze(array, None if named is None else tuple(named))


@defines("Squeeze", on_arrays=_squeeze_array)
def _squeeze(call: NodeCall) -> torch.Tensor:
    x, axes = call.tensor(0), call.axes(1)
    return x.squeeze() if axes is None else x.squeeze(tuple(axes))


@defines("Unsqueeze", on_arrays=lambda call, array, *axes: numpy.expand_dims(array, tuple(call.axes(1) or ())))
def _unsqueeze(call: NodeCall) -> torch.Tensor:
    x, axes = call.tensor(0), call.axes(1) or []
    for axis in sorted(axis % (x.dim() + len(axes)) for axis in axes):
        x = x.unsqueeze(axis)
    return x


@defines("Transpose", on_arrays=lambda call, array: numpy.transpose(array, call.attribute("perm")))
def _transpose(call: NodeCall) -> torch.Tensor:
    x = call.tensor(0)
    return x.permute(list(call.attribute("perm", range(x.dim())[::-1])))


@defines("Concat", on_arrays=lambda call, *arrays: numpy.concatenate(arrays, call.attribute("axis")))
def _concat(call: NodeCall) -> torch.Tensor:
    return torch.cat(call.tensors(), call.attribute("axis"))


@defines("Split")
def _split(call: NodeCall) -> Any:
    x, axis, sizes = call.tensor(0), call.attribute("axis", 0), call.axes(1, "split")
    if sizes is None:
        count = call.attribute("num_outputs", len(call.node.outputs))
        part = -(-x.shape[axis] // count)
        sizes = [part] * (count - 1) + [x.shape[axis] - part * (count - 1)]
    return torch.split(x, sizes, axis)


def _slices(call: NodeCall, rank: int) -> list[slice]:
    if call.opset < 10:
        starts, ends, steps = call.attribute("starts"), call.attribute("ends"), None
        axes = call.attribute("axes")
    else:
        starts, ends, axes = call.known(1), call.known(2), call.axes(3)
        steps = call.axes(4, "steps")
    axes = list(range(len(starts))) if axes is None else axes
    found = [slice(None)] * rank
    for axis, start, end, step in zip(axes, starts, ends, steps or [1] * len(axes), strict=True):
        found[axis % rank] = slice(int(start), int(end), int(step))
    return found


@defines("Slice", on_arrays=lambda call, array, *rest: array[tuple(_slices(call, array.ndim))])
def _slice(call: NodeCall) -> torch.Tensor:
    x = call.tensor(0)
    for axis, part in enumerate(_slices(call, x.dim())):
        if part == slice(None):
            continue
        size = x.shape[axis]
        positions = range(size)[_clamped(part, size)]
        if len(positions) == 0:
            x = x.narrow(axis, 0, 0)
        elif positions.step > 0:
            x = x[(slice(None),) * axis + (slice(positions.start, positions.stop, positions.step),)]
        else:  # from the last to the first of them
            first, last = positions[-1], positions[0]
            x = x[(slice(None),) * axis + (slice(first, last + 1, -positions.step),)].flip(axis)
    return x


def _clamped(part: slice, size: int) -> slice:
    """A slice as Python reads it: an end far below 0 is before the first element."""
    stop = None if part.step < 0 and part.stop < -size else part.stop
    return slice(part.start, stop, part.step)


@defines(
    "Expand", on_arrays=lambda call, x, shape: numpy.broadcast_to(x, numpy.broadcast_shapes(x.shape, tuple(shape)))
)
def _expand(call: NodeCall) -> torch.Tensor:
    x, sizes = call.tensor(0), [int(size) for size in call.known(1)]
    return x.expand(torch.broadcast_shapes(tuple(x.shape), tuple(sizes)))


@defines("Tile", on_arrays=lambda call, array, repeats: numpy.tile(array, repeats))
def _tile(call: NodeCall) -> torch.Tensor:
    return call.tensor(0).repeat([int(count) for count in call.known(1)])


_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


@defines("Pad")
def _pad(call: NodeCall) -> torch.Tensor:
    x = call.tensor(0)
    mode = call.attribute("mode", "constant")
    pads = call.attribute("pads") if call.opset < 11 else [int(one) for one in call.known(1)]
    value = call.attribute("value", 0.0) if call.opset < 11 else call.number(2, 0.0)
    axes = [axis % x.dim() for axis in call.axes(3) or range(x.dim())]
    before, after = [0] * x.dim(), [0] * x.dim()
    for position, axis in enumerate(axes):
        before[axis], after[axis] = pads[position], pads[position + len(axes)]
    if mode not in _MODES:
        raise ImportedModelError(f"the padding {mode!r} is not known")
    if mode == "constant":
        spread = [one for pair in zip(reversed(before), reversed(after), strict=True) for one in pair]
        return functional.pad(x, spread, value=value)
    return _pad_by_elements(x, before, after, mode)


def _pad_by_elements(x: torch.Tensor, before: list[int], after: list[int], mode: str) -> torch.Tensor:
    """Padding with elements of the tensor itself, axis by axis."""
    for axis, (less, more) in enumerate(zip(before, after, strict=True)):
        if less or more:
            size = x.shape[axis]
            way = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}[mode]
            inner = numpy.arange(max(-less, 0), size - max(-more, 0))
            positions = numpy.pad(inner, (max(less, 0), max(more, 0)), mode=way)  # type: ignore[call-overload]
            x = x.index_select(axis, torch.tensor(positions.tolist(), device=x.device))
    return x


@defines("Trilu", since=14)
def _triangle(call: NodeCall) -> torch.Tensor:
    x, diagonal = call.tensor(0), int(call.number(1, 0))
    return torch.triu(x, diagonal) if call.attribute("upper", 1) else torch.tril(x, diagonal)


@defines("DepthToSpace")
def _depth_to_space(call: NodeCall) -> torch.Tensor:
    x, block = call.tensor(0), call.attribute("blocksize")
    batch, channels, height, width = x.shape
    inner = channels // block**2
    if call.attribute("mode", "DCR") == "DCR":
        x = x.reshape(batch, block, block, inner, height, width).permute(0, 3, 4, 1, 5, 2)
    else:
        x = x.reshape(batch, inner, block, block, height, width).permute(0, 1, 4, 2, 5, 3)
    return x.reshape(batch, inner, height * block, width * block)


@defines("SpaceToDepth")
def _space_to_depth(call: NodeCall) -> torch.Tensor:
    x, block = call.tensor(0), call.attribute("blocksize")
    batch, channels, height, width = x.shape
    x = x.reshape(batch, channels, height // block, block, width // block, block).permute(0, 3, 5, 1, 2, 4)
    return x.reshape(batch, channels * block**2, height // block, width // block)
