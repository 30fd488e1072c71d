"""Frozen weights: parameters and buffers taken as they are, so that work on them is done once.

    conv -> batch norm        conv with other weights
    conv -> relu              one call that does both, with weights in the library's own order

In: a trace. Out: a trace that gives the same results within rounding, as long as the weights keep their values.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from ingot.frontend.grad_mode import without_gradients
from ingot.frontend.jit.rewrites.channels_last import keep_channels_last
from ingot.frontend.jit.rewrites.frozen import FrozenTrace
from ingot.frontend.jit.rewrites.packing import pack_convolutions
from ingot.frontend.jit.trace.trace import Trace, TraceOp

_aten: Any = torch.ops.aten
_NORMALIZATIONS = {"native_batch_norm": 5, "cudnn_batch_norm": 5, "_native_batch_norm_legit_no_training": None}
"""Batch norms that use running statistics, and the position of the flag that says so where there is one."""


def freeze(trace: Trace) -> Trace:
    """The trace with its weights taken as they are."""
    return without_gradients(_freeze, trace)


def _freeze(trace: Trace) -> Trace:
    frozen = FrozenTrace.of(trace)
    _fold_normalizations(frozen)
    packed = pack_convolutions(frozen)
    return keep_channels_last(frozen.finish(), packed)


def _fold_normalizations(frozen: FrozenTrace) -> None:
    for index, event in enumerate(frozen.events):
        if event is None or event.target is not _aten.convolution.default:
            continue
        follower = frozen.only_reader(index, event.results)
        if follower is not None and _uses_statistics(frozen.event(follower)):
            _fold(frozen, index, follower)


def _fold(frozen: FrozenTrace, index: int, follower: int) -> None:
    convolution, norm = frozen.event(index), frozen.event(follower)
    weight, bias = map(frozen.known, convolution.arguments[1:3])
    scale, shift, mean, variance = map(frozen.known, norm.arguments[1:5])
    is_transposed = convolution.arguments[6]
    if weight is None or mean is None or variance is None or is_transposed or weight.dtype is not mean.dtype:
        return
    if any(frozen.is_missing(given) for given in (convolution.arguments[2], *norm.arguments[1:5])):
        return
    if any(frozen.uses[other] for other in norm.results[1:]):
        return
    factor = (1.0 if scale is None else scale.double()) / torch.sqrt(variance.double() + norm.arguments[-1])
    offset = (0.0 if bias is None else bias.double()) - mean.double()
    folded = weight.double() * factor.view(-1, *[1] * (weight.dim() - 1))
    moved = offset * factor + (0.0 if shift is None else shift.double())
    constants = folded.to(weight.dtype), moved.to(weight.dtype)
    arguments = (convolution.arguments[0], *constants, *convolution.arguments[3:])
    frozen.events[index] = dataclasses.replace(convolution, arguments=arguments, results=norm.results[0])
    frozen.events[follower] = None


def _uses_statistics(event: TraceOp) -> bool:
    name = event.target.overloadpacket.__name__
    flag = _NORMALIZATIONS.get(name)
    return name in _NORMALIZATIONS and (flag is None or event.arguments[flag] is False)
