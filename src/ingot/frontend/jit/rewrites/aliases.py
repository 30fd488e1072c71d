"""Views that give back what they were made of are taken away: backward passes are full of them.

    before   %1 = aten.t.default(%0)
             %2 = aten.t.default(%1)
             %3 = aten.detach.default(%2)
             %4 = aten.mul.Tensor(%3, %3)
    after    %1 = aten.t.default(%0)
             %4 = aten.mul.Tensor(%0, %0)

A tensor that the call returns stays one of its own: it is replaced only where nothing else that is returned, and no
tensor from before the call, takes its place.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch

from ingot.frontend.jit.rewrites.trace_rewriting import TracePassResult, TraceRewriter
from ingot.frontend.jit.trace.trace import Trace, TraceValue, replace_values, values_in

_aten: Any = torch.ops.aten
_KEEP_PLACE = frozenset(
    {
        *(_aten.t.default, _aten.transpose.int, _aten.permute.default, _aten.detach.default, _aten.alias.default),
        *(_aten.view.default, _aten.unsqueeze.default, _aten.squeeze.dim),
    }
)
"""Views that begin where the tensor begins that they are made of."""


@dataclass(frozen=True, slots=True)
class DropAliases:
    name: str = "drop_aliases"
    summary: str = "takes away views that give back what they were made of, such as the transpose of a transpose"
    needs_frozen: bool = False
    keeps_bits: bool = True

    def run(self, trace: Trace) -> TracePassResult:
        rewriter = TraceRewriter(trace)
        returned = set(values_in(trace.results))
        instead: dict[TraceValue, TraceValue] = {}
        for index, event in rewriter.operations():
            if event.target not in _KEEP_PLACE or len(event.operands) != 1 or len(event.products) != 1:
                continue
            found, (made,) = _earlier(rewriter, index), event.products
            found = None if found is None else instead.get(found, found)
            if found is None or (made in returned and (found in returned or trace.note(found).is_leaf)):
                continue
            if made in returned:
                returned.add(found)
            instead[made] = found
            rewriter.put(index)
        if instead:
            _substitute(rewriter, instead)
        return rewriter.finish()


def _earlier(rewriter: TraceRewriter, index: int) -> TraceValue | None:
    """The value that a chain of views began with, or went through, which is like the one at its end."""
    made, value = rewriter.operation(index).products[0], rewriter.operation(index).operands[0]
    expected = _likeness(rewriter, made)
    while True:
        if _likeness(rewriter, value) == expected:
            return value
        maker = rewriter.maker(value)
        if maker is None or maker.target not in _KEEP_PLACE or maker.products != (value,):
            return None
        value = maker.operands[0]


def _likeness(rewriter: TraceRewriter, value: TraceValue) -> tuple[Any, ...]:
    note = rewriter.note(value)
    return note.storage, note.dtype, note.sizes, note.strides


def _substitute(rewriter: TraceRewriter, instead: dict[TraceValue, TraceValue]) -> None:
    replace = lambda value: instead.get(value, value)
    for index, event in rewriter.operations():
        if any(value in instead for value in (*event.operands, *event.products)):
            parts = {
                name: replace_values(getattr(event, name), replace) for name in ("arguments", "keywords", "results")
            }
            rewriter.put(index, dataclasses.replace(event, **parts))
    rewriter.results = replace_values(rewriter.results, replace)
