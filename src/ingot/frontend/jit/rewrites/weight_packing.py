"""Weights in another order, where measuring finds them quicker: that of generated code for products, and that of the
library for convolutions.

    before   %3 = aten.linear.default(%0, %weight, %bias)
    after    %3 = ingot.packed_product.default(%0, tensor, 16, tensor)

    before   %3 = aten.convolution.default(%0, %weight, %bias, ...)
             %4 = aten.relu.default(%3)                                              if there is a relu
    after    %4 = mkldnn._convolution_pointwise.default(%0, tensor, tensor, ..., 'relu', [], '')      channels last

Packed weights are part of the program: what they were made of is not read again, or compared at every call
(lowering/checked_weights.py). Convolutions are packed all together or not at all: packed ones give channels last
(channels_last.py), so that one among others would have everything transposed twice. The results are the same within
rounding, as long as the weights keep their values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from ingot.frontend.jit.autotune.benchmarking import CLEARLY, seconds_of
from ingot.frontend.jit.rewrites.channels_last import keep_channels_last, may_change_layout
from ingot.frontend.jit.rewrites.product_strategies import PACKED_PRODUCT, is_row, packed_if_quicker
from ingot.frontend.jit.rewrites.trace_rewriting import TracePassResult, TraceRewriter
from ingot.frontend.jit.trace.trace import Trace, TraceOp, TraceValue
from ingot.runtime.disk_cache.process import remembered
from ingot.runtime.plan import is_plain

_aten: Any = torch.ops.aten
_PACKED = frozenset({_aten.linear.default, _aten.addmm.default, _aten.mm.default, _aten.convolution.default})
"""Operators whose weights are packed."""


def has_weights_to_pack(trace: Trace) -> bool:
    """Whether there may be something to pack, as far as one can tell without looking at each operation."""
    return bool(trace.environment_tensors) and any(event.target in _PACKED for event in trace.events)


@dataclass(frozen=True, slots=True)
class PackProducts:
    name: str = "pack_products"
    summary: str = "packs the weights of products once, where generated code with packed weights is quicker"
    needs_frozen: bool = True
    keeps_bits: bool = False
    fewest_rows: int = 1
    """With how many rows the weights of a product are packed at least."""

    def run(self, trace: Trace) -> TracePassResult:
        rewriter = TraceRewriter(trace)
        for index, event in rewriter.operations():
            found = None if event.keywords else _product(rewriter, event)
            if found is not None and found.rows >= self.fewest_rows:
                panels = packed_if_quicker(rewriter.note(found.source), found.matrix)
                if panels is not None:
                    arguments = (found.source, panels, found.matrix.shape[1], found.bias)
                    rewriter.call_instead(index, PACKED_PRODUCT, arguments, None)
                    rewriter.take(*found.weights)
        return rewriter.finish()


@dataclass(frozen=True, slots=True)
class _Product:
    """What is multiplied with which known matrix, and the known bias."""

    source: TraceValue
    matrix: torch.Tensor
    bias: torch.Tensor | None
    weights: tuple[Any, ...]
    """The arguments that the matrix and the bias are."""
    rows: int


def _product(rewriter: TraceRewriter, event: TraceOp) -> _Product | None:
    """An event as a product with a known matrix; None for everything else."""
    given = event.arguments
    if event.target is _aten.linear.default:
        source, weight, bias = given[0], given[1], given[2:]
        matrix = rewriter.known(weight)
        matrix = None if matrix is None else matrix.t()
    elif event.target in (_aten.addmm.default, _aten.mm.default):
        source, weight, bias = given[-2], given[-1], given[:-2]
        matrix = rewriter.known(weight)
    else:
        return None
    known = [rewriter.known(one) for one in bias]
    if matrix is None or any(one is None or not _is_bias(one, matrix) for one in known):
        return None
    rows = math.prod(rewriter.note(source).shape[:-1])
    return _Product(source, matrix, known[0] if known else None, (weight, *bias), rows)


def _is_bias(given: torch.Tensor, matrix: torch.Tensor) -> bool:
    is_plain_float = given.dtype is torch.float32 and is_plain(given)
    return is_plain_float and is_row(tuple(given.shape), given.stride(), matrix.shape[1])


# --- convolutions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Convolution:
    """A convolution that could be packed, and the relu after it that it would take in."""

    index: int
    event: TraceOp
    weight: torch.Tensor
    bias: torch.Tensor | None
    rectifier: int | None

    @property
    def settings(self) -> tuple[Any, ...]:
        _, _, _, stride, padding, dilation, _, _, groups = self.event.arguments
        return padding, stride, dilation, groups

    def plain(self, given: torch.Tensor) -> torch.Tensor:
        made = torch.convolution(given, self.weight, self.bias, *self.event.arguments[3:])
        return made if self.rectifier is None else made.relu_()

    def packed_arguments(self, pack: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
        """What the packed call takes after the tensor."""
        packed = pack(self.weight, *self.settings, list(shape))
        return packed, self.bias, *self.settings, "none" if self.rectifier is None else "relu", [], ""


@dataclass(frozen=True, slots=True)
class PackConvolutions:
    name: str = "pack_convolutions"
    summary: str = "packs the weights of convolutions, with the relu after them, where that is quicker for all together"
    needs_frozen: bool = True
    keeps_bits: bool = False

    def run(self, trace: Trace) -> TracePassResult:
        rewriter = TraceRewriter(trace)
        packed = _pack(rewriter)
        result = rewriter.finish()
        return replace(result, trace=keep_channels_last(result.trace, packed))


def _pack(rewriter: TraceRewriter) -> set[TraceValue]:
    """Pack the weights of all convolutions, if they take clearly less time together; the results of those packed."""
    pack, call = _find("_reorder_convolution_weight"), _find("_convolution_pointwise")
    if pack is None or call is None or rewriter.trace.symbols:
        return set()
    found = [made for index, event in rewriter.operations() if (made := _convolution(rewriter, index, event))]
    shapes = [rewriter.note(one.event.arguments[0]).shape for one in found]
    try:
        packed = [one.packed_arguments(pack, shape) for one, shape in zip(found, shapes, strict=True)]
        if not _is_quicker(found, shapes, packed, call):
            return set()
    except RuntimeError:  # the library does not have it for these sizes
        return set()
    for one, arguments in zip(found, packed, strict=True):
        rewriter.call_instead(one.index, call, (one.event.arguments[0], *arguments), one.rectifier)
        rewriter.take(*one.event.arguments[1:3])
    return {rewriter.operation(one.index).results for one in found}


def _convolution(rewriter: TraceRewriter, index: int, event: TraceOp) -> _Convolution | None:
    """An event as a convolution that can be packed; None if it is none."""
    if event.target is not _aten.convolution.default:
        return None
    weight, bias, is_transposed = rewriter.known(event.arguments[1]), event.arguments[2], event.arguments[6]
    if weight is None or rewriter.is_missing(bias) or is_transposed or weight.dim() != 4:
        return None
    if not _is_float(rewriter, event.results) or len(rewriter.note(event.results).shape) != 4:
        return None
    rectifier = rewriter.rectifier(index, event.results)
    result = event.results if rectifier is None else rewriter.operation(rectifier).results
    if not may_change_layout(rewriter.trace, result):
        return None
    return _Convolution(index, event, weight, rewriter.known(bias), rectifier)


def _is_quicker(found: list[_Convolution], shapes: list[tuple[int, ...]], packed: list[Any], call: Any) -> bool:
    """Whether all convolutions together take clearly less time packed. Those that are alike are measured once."""
    measured: dict[Any, tuple[float, ...]] = {}
    total = [0.0, 0.0]
    for one, shape, arguments in zip(found, shapes, packed, strict=True):
        key = repr((shape, one.weight.shape, one.settings, one.rectifier is None, one.bias is None))
        if key not in measured:
            what = (key, torch.get_num_threads())
            measured[key] = remembered("convolution", what, partial(_seconds, one, shape, call, arguments))
        total = [sum(pair) for pair in zip(total, measured[key], strict=True)]
    return total[0] < CLEARLY * total[1]


def _seconds(one: _Convolution, shape: tuple[int, ...], call: Any, arguments: Any) -> tuple[float, ...]:
    """How long a convolution takes, packed and plain, each on a tensor in the order that suits it."""
    given = torch.randn(shape)
    channels_last = given.to(memory_format=torch.channels_last)
    return seconds_of(lambda: call(channels_last, *arguments), lambda: one.plain(given))


def _find(name: str) -> Any:
    """An operator of torch's that only some builds have; None where it is missing."""
    return getattr(getattr(torch.ops.mkldnn, name, None), "default", None)


def _is_float(rewriter: TraceRewriter, register: TraceValue) -> bool:
    note = rewriter.note(register)
    return note.dtype is torch.float32 and note.device.type == "cpu"
