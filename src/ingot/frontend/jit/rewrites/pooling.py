"""Pooling on a trace: written so that it can be generated.

    max_pool2d_with_indices, indices unread       max_pool2d
    max_pool2d with padding                       constant_pad_nd -> max_pool2d

In: a trace. Out: a trace that gives the same results, bit for bit. Minus infinity beyond the edges changes no maximum.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch

from ingot.frontend.aten.pooling import LARGEST_WINDOW
from ingot.frontend.jit.trace.trace import (
    Made,
    TensorMeta,
    Trace,
    TraceOp,
    TraceValue,
    renumbered,
    stride_order,
    values_in,
)

_aten: Any = torch.ops.aten
_POOLING = _aten.max_pool2d_with_indices.default


def simplify_pooling(trace: Trace) -> Trace:
    """The trace with poolings that say no more than what is read of them."""
    if not any(event.target is _POOLING for event in trace.events):
        return trace
    read = {register for event in trace.events for register in event.operands} | set(values_in(trace.results))
    tensors, events = list(trace.tensors), []
    for event in trace.events:
        if event.target is _POOLING and event.results[1] not in read and _is_plain(trace, event):
            events += _simplified(tensors, event)
        else:
            events.append(event)
    return renumbered(dataclasses.replace(trace, tensors=tensors), events)


def _is_plain(trace: Trace, event: TraceOp) -> bool:
    """Whether generated code is quicker at it: PyTorch's own is quick where channels lie last."""
    _, kernel, _, _, _, ceil_mode = _arguments(event)
    note = trace.note(event.arguments[0])
    area = math.prod(kernel) if len(kernel) > 1 else kernel[0] ** 2
    is_slow = stride_order(note) is None and note.dtype.is_floating_point and note.device.type == "cpu"
    return not trace.symbols and is_slow and area <= LARGEST_WINDOW and not ceil_mode


def _simplified(tensors: list[TensorMeta], event: TraceOp) -> list[TraceOp]:
    source, kernel, stride, padding, dilation, ceil_mode = _arguments(event)
    result, _ = event.results
    padded = []
    if any(padding):
        rows, columns = padding if len(padding) > 1 else padding * 2
        bounds = [columns, columns, rows, rows]
        source, given = _new_register(tensors, source, rows, columns), source
        keywords = {"value": -math.inf}
        padded = [TraceOp(_aten.constant_pad_nd.default, (given, bounds), keywords, source, event.place)]
    arguments = (source, kernel, stride, [0, 0], dilation, ceil_mode)
    return [*padded, TraceOp(_aten.max_pool2d.default, arguments, {}, result, event.place)]


def _new_register(tensors: list[TensorMeta], like: TraceValue, rows: int, columns: int) -> TraceValue:
    """A register for a tensor with so many more rows and columns on either side."""
    note = tensors[like.index]
    *leading, height, width = note.shape
    shape = (*leading, height + 2 * rows, width + 2 * columns)
    strides = torch.empty(shape, device="meta").stride()
    storage = 1 + max(other.storage for other in tensors)
    tensors.append(dataclasses.replace(note, origin=Made(0), shape=shape, strides=strides, storage=storage))
    return TraceValue(len(tensors) - 1)


def _arguments(event: TraceOp) -> list[Any]:
    """All arguments of a pooling, those given and the others' defaults."""
    given = list(event.arguments)
    for parameter in event.target._schema.arguments[len(given) :]:
        given.append(event.keywords.get(parameter.name, parameter.default_value))
    return given
