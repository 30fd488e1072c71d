"""Matrix products on a trace: written as calls of linear, and joined where they share their weights.

    before   %2 = aten.view.default(%0, [12, 8])
             %3 = aten.t.default(%weight)
             %4 = aten.addmm.default(%bias, %2, %3)
             %5 = aten.view.default(%4, [3, 4, 16])
    after    %5 = aten.linear.default(%0, %weight, %bias)

    before   [%1, %2, ...] = aten.unbind.int(%0, 1)
             %5 = aten.linear.default(%1, %weight, %bias)               and so for every part
    after    %9 = aten.linear.default(%0, %weight, %bias)
             [%5, %6, ...] = aten.unbind.int(%9, 1)

PyTorch takes `linear` apart into a product of matrices and views of everything around it. As one call it takes one step
instead of four; steps between products are slow, because a product drives Python's data out of the caches. A loop over
time that multiplies each step by the same weights does in one product of many rows what it did in many of few. The
results are the same within rounding.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import torch

from ingot.base.sizes import product
from ingot.frontend.jit.rewrites.trace_rewriting import TracePassResult, TraceRewriter
from ingot.frontend.jit.trace.trace import TensorMeta, Trace, TraceOp, TraceValue, values_in

_aten: Any = torch.ops.aten
LINEAR = _aten.linear.default
_MATRIX_PRODUCTS = frozenset({_aten.addmm.default, _aten.mm.default})
_VIEWS = frozenset({_aten.view.default, _aten._unsafe_view.default})
_FEWEST_PARTS = 4
_MOST_ROWS = 128
"""The most rows of a product that is worth joining: larger ones are as quick one by one."""


# --- linear -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FindLinears:
    name: str = "find_linears"
    summary: str = "writes products of matrices and the views around them as calls of linear"
    needs_frozen: bool = False
    keeps_bits: bool = False

    def run(self, trace: Trace) -> TracePassResult:
        rewriter = TraceRewriter(trace)
        for index, event in rewriter.operations():
            if event.target in _MATRIX_PRODUCTS and not event.keywords:
                _take_linear(rewriter, index, event)
        return rewriter.finish()


def _take_linear(rewriter: TraceRewriter, index: int, event: TraceOp) -> None:
    (*bias, source, transposed) = event.arguments
    transpose = rewriter.maker(transposed)
    if transpose is None or transpose.target is not _aten.t.default or len(bias) > 1:
        return
    weight = transpose.arguments[0]
    note = rewriter.note(event.results)
    if any(rewriter.note(one).sizes != (note.sizes[1],) for one in bias):
        return
    source, result, reader = _outer(rewriter, index, source, event.results)
    expected = (*rewriter.note(source).sizes[:-1], note.sizes[1])
    if rewriter.note(result).sizes != expected:
        return
    arguments = (source, weight, *bias)
    rewriter.put(index, dataclasses.replace(event, target=LINEAR, arguments=arguments, results=result))
    if reader is not None:
        rewriter.put(reader)


def _outer(
    rewriter: TraceRewriter, index: int, source: TraceValue, result: TraceValue
) -> tuple[TraceValue, TraceValue, int | None]:
    """What both matrices are views of, where they are views of tensors of more axes; else the matrices."""
    flattened = rewriter.maker(source)
    if flattened is None or flattened.target not in _VIEWS or rewriter.uses[result] != 1:
        return source, result, None
    whole = flattened.arguments[0]
    sizes, flat = rewriter.note(whole).sizes, rewriter.note(source).sizes
    if sizes[-1:] != flat[-1:] or product(sizes) != product(flat):
        return source, result, None
    reader = rewriter.next_reader(index, result)
    if reader is None:
        return source, result, None
    event = rewriter.operation(reader)
    if event.target not in _VIEWS or not _is_like(rewriter, whole, event.results, result):
        return source, result, None
    return whole, event.results, reader


def _is_like(rewriter: TraceRewriter, source: TraceValue, result: TraceValue, matrix: TraceValue) -> bool:
    leading = rewriter.note(source).sizes[:-1]
    return rewriter.note(result).sizes == (*leading, rewriter.note(matrix).sizes[1])


# --- products that share weights --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JoinProducts:
    name: str = "join_products"
    summary: str = "multiplies all parts of a tensor by the same weights at once"
    needs_frozen: bool = False
    keeps_bits: bool = False

    def run(self, trace: Trace) -> TracePassResult:
        changed = 0
        while (result := _join_one(trace)).changed:
            trace, changed = result.trace, changed + result.changed
        return TracePassResult(trace, changed)


def _join_one(trace: Trace) -> TracePassResult:
    """The trace with one more group of products taken together, if there is one."""
    rewriter = TraceRewriter(trace)
    groups: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
    for index, event in rewriter.operations() if not trace.symbols else ():
        maker = rewriter.maker(event.arguments[0]) if event.target is LINEAR else None
        if maker is not None and maker.target is _aten.unbind.int:
            groups[(*event.arguments[1:], rewriter.maker_place(event.arguments[0]))].append(index)
    for (*_, maker), members in groups.items():
        if _join(rewriter, rewriter.operation(maker), members):
            break
    return rewriter.finish()


def _join(rewriter: TraceRewriter, unbound: TraceOp, members: list[int]) -> bool:
    """Have one product for the parts of a tensor, if these are all of its parts; whether they are."""
    events = [rewriter.operation(index) for index in members]
    by_part = {event.arguments[0]: event for event in events}
    parts, first = list(unbound.results), events[0]
    if len(by_part) != len(events) or set(by_part) != set(parts) or len(parts) < _FEWEST_PARTS:
        return False
    results = [by_part[part].results for part in parts]
    rows = rewriter.note(parts[0]).shape[:-1]
    operands = (*first.operands, *unbound.operands, *results)
    is_written = any(rewriter.note(operand).storage in rewriter.written for operand in operands)
    is_returned = not set(results).isdisjoint(values_in(rewriter.results))
    if len(rows) != 1 or rows[0] > _MOST_ROWS or is_written or is_returned:
        return False
    (whole, *dimension) = unbound.arguments
    axis = dimension[0] if dimension else 0
    whole_product = _new_product(rewriter, whole, results[0])
    note = rewriter.note(whole_product)
    stand_in = torch.empty_strided(note.shape, note.strides, device="meta").unbind(axis)
    for result, view in zip(results, stand_in, strict=True):
        rewriter.change_note(result, shape=tuple(view.shape), strides=view.stride(), storage=note.storage)
    joined = dataclasses.replace(first, arguments=(whole, *first.arguments[1:]), results=whole_product)
    split = TraceOp(_aten.unbind.int, (whole_product, axis), {}, results, first.place)
    for index in members:
        rewriter.put(index, *((joined, split) if index == min(members) else ()))
    return True


def _new_product(rewriter: TraceRewriter, whole: TraceValue, like: TraceValue) -> TraceValue:
    """The product of a whole tensor."""
    known = rewriter.note(like)
    shape = (*rewriter.note(whole).shape[:-1], known.shape[-1])
    strides = torch.empty(shape, device="meta").stride()
    return rewriter.new_value(TensorMeta(known.origin, known.dtype, shape, strides, 0, device=known.device))
