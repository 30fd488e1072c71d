"""Pooling on a trace: written so that it can be generated.

    before   %1, %2 = aten.max_pool2d_with_indices.default(%0, [3, 3], [2, 2], [1, 1])      nothing reads %2
    after    %3 = aten.constant_pad_nd.default(%0, [1, 1, 1, 1], value=-inf)
             %1 = aten.max_pool2d.default(%3, [3, 3], [2, 2], [0, 0], 1, False)

The results are the same, bit for bit. Minus infinity beyond the edges changes no maximum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from ingot.frontend.aten.pooling import LARGEST_WINDOW
from ingot.frontend.jit.rewrites.trace_rewriting import TracePassResult, TraceRewriter
from ingot.frontend.jit.trace.trace import Trace, TraceOp, TraceValue, stride_order

_aten: Any = torch.ops.aten
_POOLING = _aten.max_pool2d_with_indices.default

LARGEST_WINDOW_OF_CHANNELS = 9
"""The most elements of a window where channels lie last, so that PyTorch compares vectors, too."""


@dataclass(frozen=True, slots=True)
class SimplifyPooling:
    name: str = "simplify_pooling"
    summary: str = "writes pooling whose indices nothing reads as padding and pooling that can be generated"
    needs_frozen: bool = False
    keeps_bits: bool = True

    def run(self, trace: Trace) -> TracePassResult:
        rewriter = TraceRewriter(trace)
        for index, event in rewriter.operations():
            if event.target is _POOLING and not rewriter.uses[event.results[1]] and _is_plain(trace, event):
                rewriter.put(index, *_simplified(rewriter, event))
        return rewriter.finish()


def _is_plain(trace: Trace, event: TraceOp) -> bool:
    """Whether generated code can do it, and is quicker at it: where channels lie last a padded copy costs too much."""
    _, kernel, _, padding, _, ceil_mode = _arguments(event)
    note = trace.note(event.arguments[0])
    area = math.prod(kernel) if len(kernel) > 1 else kernel[0] ** 2
    channels_are_last = stride_order(note) is not None
    if channels_are_last and (any(padding) or area > LARGEST_WINDOW_OF_CHANNELS):
        return False
    is_plain = note.dtype.is_floating_point and note.device.type == "cpu" and not trace.symbols
    return is_plain and area <= LARGEST_WINDOW and not ceil_mode


def _simplified(rewriter: TraceRewriter, event: TraceOp) -> list[TraceOp]:
    source, kernel, stride, padding, dilation, ceil_mode = _arguments(event)
    result, _ = event.results
    padded = []
    if any(padding):
        rows, columns = padding if len(padding) > 1 else padding * 2
        bounds = [columns, columns, rows, rows]
        source, given = _padded(rewriter, source, rows, columns), source
        keywords = {"value": -math.inf}
        padded = [TraceOp(_aten.constant_pad_nd.default, (given, bounds), keywords, source, event.place)]
    arguments = (source, kernel, stride, [0, 0], dilation, ceil_mode)
    return [*padded, TraceOp(_aten.max_pool2d.default, arguments, {}, result, event.place)]


def _padded(rewriter: TraceRewriter, value: TraceValue, rows: int, columns: int) -> TraceValue:
    """A value with so many more rows and columns on either side."""
    note = rewriter.note(value)
    *leading, height, width = note.shape
    shape = (*leading, height + 2 * rows, width + 2 * columns)
    return rewriter.new_value(note, shape=shape, strides=torch.empty(shape, device="meta").stride())


def _arguments(event: TraceOp) -> list[Any]:
    """All arguments of a pooling, those given and the others' defaults."""
    given = list(event.arguments)
    for parameter in event.target._schema.arguments[len(given) :]:
        given.append(event.keywords.get(parameter.name, parameter.default_value))
    return given
