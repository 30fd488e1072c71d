"""Matrix products on a trace: written as what they are, and together where they share their weights.

    view -> t -> addmm -> view                    linear
    unbind -> linear of every part                linear of the whole -> unbind

PyTorch takes `linear` apart into a product of matrices and views of everything around it. As one call it takes one step
instead of four; steps between products are slow, because a product leaves nothing of Python in the caches. A loop over
time that multiplies each step by the same weights does in one product of many rows what it did in many of few.

In: a trace. Out: a trace that gives the same results within rounding.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import torch

from ingot.base.sizes import product
from ingot.frontend.jit.trace.trace import (
    Made,
    TensorMeta,
    Trace,
    TraceOp,
    TraceValue,
    renumbered,
    values_in,
    written_arguments,
)

_aten: Any = torch.ops.aten
LINEAR = _aten.linear.default
_MATRIX_PRODUCTS = frozenset({_aten.addmm.default, _aten.mm.default})
_PRODUCTS = _MATRIX_PRODUCTS | {LINEAR}
_VIEWS = frozenset({_aten.view.default, _aten._unsafe_view.default})
_FEWEST_PARTS = 4
_MOST_ROWS = 128
"""Products of more rows are as quick one by one."""


def gather_products(trace: Trace) -> Trace:
    """The trace with its matrix products as calls of linear, and with those together that share weights."""
    if not any(event.target in _PRODUCTS for event in trace.events):
        return trace
    trace = _Rewriter(trace).find_linears()
    while not trace.symbols and (joined := _Rewriter(trace).join_parts()) is not None:
        trace = joined
    return trace


@dataclass(slots=True)
class _Rewriter:
    trace: Trace
    uses: Counter[TraceValue] = field(default_factory=Counter)
    makers: dict[TraceValue, int] = field(default_factory=dict)
    written: set[int] = field(default_factory=set)
    """Storages that some event writes into."""

    def __post_init__(self) -> None:
        for index, event in enumerate(self.trace.events):
            self.uses.update(event.operands)
            for register in event.products:
                self.makers.setdefault(register, index)
            if written_arguments(event.target, event.arguments, event.keywords):
                self.written.update(self.trace.note(register).storage for register in event.operands)
        self.uses.update(values_in(self.trace.results))

    # --- linear -------------------------------------------------------------------------------------------------------

    def find_linears(self) -> Trace:
        events: list[TraceOp | None] = list(self.trace.events)
        for index, event in enumerate(self.trace.events):
            if event.target in _MATRIX_PRODUCTS and not event.keywords:
                self._take_linear(index, event, events)
        return renumbered(self.trace, [event for event in events if event is not None])

    def _take_linear(self, index: int, event: TraceOp, events: list[TraceOp | None]) -> None:
        (*bias, source, transposed) = event.arguments
        turned = self._maker(transposed)
        if turned is None or turned.target is not _aten.t.default or len(bias) > 1:
            return
        weight = turned.arguments[0]
        note = self.trace.note(event.results)
        if any(self.trace.note(one).sizes != (note.sizes[1],) for one in bias):
            return
        source, result, reader = self._outer(index, source, event.results)
        expected = (*self.trace.note(source).sizes[:-1], note.sizes[1])
        if self.trace.note(result).sizes != expected:
            return
        arguments = (source, weight, *bias)
        events[index] = dataclasses.replace(event, target=LINEAR, arguments=arguments, results=result)
        if reader is not None:
            events[reader] = None

    def _outer(self, index: int, source: TraceValue, result: TraceValue) -> tuple[TraceValue, TraceValue, int | None]:
        """What both matrices are views of, where they are views of tensors of more axes; else the matrices."""
        flattened = self._maker(source)
        if flattened is None or flattened.target not in _VIEWS or self.uses[result] != 1:
            return source, result, None
        whole = flattened.arguments[0]
        sizes, flat = self.trace.note(whole).sizes, self.trace.note(source).sizes
        if sizes[-1:] != flat[-1:] or product(sizes) != product(flat):
            return source, result, None
        for reader in range(index + 1, len(self.trace.events)):
            event = self.trace.events[reader]
            if result not in event.operands:
                continue
            if event.target in _VIEWS and self._is_like(whole, event.results, result):
                return whole, event.results, reader
            break
        return source, result, None

    def _is_like(self, source: TraceValue, result: TraceValue, matrix: TraceValue) -> bool:
        leading = self.trace.note(source).sizes[:-1]
        return self.trace.note(result).sizes == (*leading, self.trace.note(matrix).sizes[1])

    def _maker(self, register: TraceValue) -> TraceOp | None:
        index = self.makers.get(register)
        return None if index is None else self.trace.events[index]

    # --- products that share weights ----------------------------------------------------------------------------------

    def join_parts(self) -> Trace | None:
        """The trace with one more group of products taken together; None if there is none left."""
        groups: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
        for index, event in enumerate(self.trace.events):
            maker = self._maker(event.arguments[0]) if event.target is LINEAR else None
            if maker is not None and maker.target is _aten.unbind.int:
                groups[(*event.arguments[1:], self.makers[event.arguments[0]])].append(index)
        for (*_, maker), members in groups.items():
            joined = self._join(self.trace.events[maker], members)
            if joined is not None:
                return joined
        return None

    def _join(self, unbound: TraceOp, members: list[int]) -> Trace | None:
        """One product for the parts of a tensor, if these are all of its parts."""
        events = [self.trace.events[index] for index in members]
        by_part = {event.arguments[0]: event for event in events}
        parts, first = list(unbound.results), events[0]
        if len(by_part) != len(events) or set(by_part) != set(parts) or len(parts) < _FEWEST_PARTS:
            return None
        results = [by_part[part].results for part in parts]
        rows = self.trace.note(parts[0]).shape[:-1]
        operands = (*first.operands, *unbound.operands, *results)
        is_written = any(self.trace.note(operand).storage in self.written for operand in operands)
        is_returned = not set(results).isdisjoint(values_in(self.trace.results))
        if len(rows) != 1 or rows[0] > _MOST_ROWS or is_written or is_returned:
            return None
        (whole, *dimension) = unbound.arguments
        axis = dimension[0] if dimension else 0
        note = self._product_note(whole, results[0])
        whole_product = TraceValue(len(self.trace.tensors))
        tensors = [*self.trace.tensors, note]
        stand_in = torch.empty_strided(note.shape, note.strides, device="meta").unbind(axis)
        for result, view in zip(results, stand_in, strict=True):
            tensors[result.index] = dataclasses.replace(note, shape=tuple(view.shape), strides=view.stride())
        joined = dataclasses.replace(first, arguments=(whole, *first.arguments[1:]), results=whole_product)
        split = TraceOp(_aten.unbind.int, (whole_product, axis), {}, results, first.place)
        rewritten: list[TraceOp] = []
        for index, event in enumerate(self.trace.events):
            rewritten += [joined, split] if index == min(members) else [] if index in members else [event]
        return renumbered(dataclasses.replace(self.trace, tensors=tensors), rewritten)

    def _product_note(self, whole: TraceValue, like: TraceValue) -> TensorMeta:
        """What is known of the product of a whole tensor."""
        shape = (*self.trace.note(whole).shape[:-1], self.trace.note(like).shape[-1])
        strides = torch.empty(shape, device="meta").stride()
        storage = 1 + max(note.storage for note in self.trace.tensors)
        known = self.trace.note(like)
        return TensorMeta(Made(0), known.dtype, shape, strides, storage, device=known.device)
