"""Normalizations folded into the convolutions before them, whose weights are taken as they are.

    before   %2 = aten.convolution.default(%0, %weight, %bias, ...)
             %3, _, _ = aten.native_batch_norm.default(%2, %scale, %shift, %mean, %variance, False, ...)
    after    %3 = aten.convolution.default(%0, tensor, tensor, ...)

The results are the same within rounding, as long as the weights keep their values.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch

from ingot.frontend.jit.rewrites.trace_rewriting import TracePassResult, TraceRewriter
from ingot.frontend.jit.trace.trace import Trace, TraceOp

_aten: Any = torch.ops.aten
NORMALIZATIONS = {"native_batch_norm": 5, "cudnn_batch_norm": 5, "_native_batch_norm_legit_no_training": None}
"""Batch norms that use running statistics, and the position of the flag that says so where there is one."""


@dataclass(frozen=True, slots=True)
class FoldNormalizations:
    name: str = "fold_normalizations"
    summary: str = "folds batch norms that use running statistics into the weights of the convolutions before them"
    needs_frozen: bool = True
    keeps_bits: bool = False

    def run(self, trace: Trace) -> TracePassResult:
        rewriter = TraceRewriter(trace)
        for index, event in rewriter.operations():
            if event.target is _aten.convolution.default:
                follower = rewriter.only_reader(index, event.results)
                if follower is not None and uses_statistics(rewriter.operation(follower)):
                    _fold(rewriter, index, follower)
        return rewriter.finish()


def _fold(rewriter: TraceRewriter, index: int, follower: int) -> None:
    convolution, norm = rewriter.operation(index), rewriter.operation(follower)
    weight, bias = map(rewriter.known, convolution.arguments[1:3])
    scale, shift, mean, variance = map(rewriter.known, norm.arguments[1:5])
    is_transposed = convolution.arguments[6]
    if weight is None or mean is None or variance is None or is_transposed or weight.dtype is not mean.dtype:
        return
    if any(rewriter.is_missing(given) for given in (convolution.arguments[2], *norm.arguments[1:5])):
        return
    if any(rewriter.uses[other] for other in norm.results[1:]):
        return
    factor = (1.0 if scale is None else scale.double()) / torch.sqrt(variance.double() + norm.arguments[-1])
    offset = (0.0 if bias is None else bias.double()) - mean.double()
    folded = weight.double() * factor.view(-1, *[1] * (weight.dim() - 1))
    moved = offset * factor + (0.0 if shift is None else shift.double())
    constants = folded.to(weight.dtype), moved.to(weight.dtype)
    arguments = (convolution.arguments[0], *constants, *convolution.arguments[3:])
    rewriter.put(index, dataclasses.replace(convolution, arguments=arguments, results=norm.results[0]))
    rewriter.put(follower)
    rewriter.take(*convolution.arguments[1:3], *norm.arguments[1:5])


def uses_statistics(event: TraceOp) -> bool:
    """Whether an event is a batch norm with running statistics: element by element, once these are known."""
    name = event.target.overloadpacket.__name__
    flag = NORMALIZATIONS.get(name)
    return name in NORMALIZATIONS and (flag is None or event.arguments[flag] is False)
