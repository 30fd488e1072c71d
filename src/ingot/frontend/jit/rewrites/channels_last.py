"""Channels last: convolutions with packed weights give tensors in this order, for operands in any order, and so do
those of a GPU whose operands have it.

The order is kept from one convolution to the next, through everything that works element by element and through
pooling. What needs the order that was recorded, a view or a result, gets a copy in that order.

In: a trace, and the results of those convolutions. Out: a trace whose notes tell how tensors lie. Always holds: views
that were possible are still possible, and results lie as they did.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Set
from typing import Any

import torch

from ingot.frontend.jit.rewrites.freezing import NORMALIZATIONS, uses_statistics
from ingot.frontend.jit.rewrites.trace_rewriting import TraceRewriter
from ingot.frontend.jit.trace.trace import (
    TensorMeta,
    Trace,
    TraceOp,
    TraceValue,
    replace_values,
    values_in,
    written_arguments,
)

_aten: Any = torch.ops.aten

KEEPING = frozenset(
    {
        *("_convolution_pointwise", "convolution", "max_pool2d_with_indices", "avg_pool2d", "_adaptive_avg_pool2d"),
        *("add", "add_", "sub", "mul", "mul_", "div", "clamp", "clamp_", "clamp_min", "clamp_min_", "relu", "relu_"),
        *("leaky_relu", "leaky_relu_", "elu", "gelu", "silu", "silu_", "sigmoid", "sigmoid_", "tanh", "hardsigmoid"),
        *("hardswish", "hardswish_", "hardtanh", "hardtanh_"),
    }
)
"""Operators whose results lie as their operands do. One that is named here wrongly costs a copy and no more."""
KEEPING_ON_GPUS = KEEPING | {
    *(*NORMALIZATIONS, "cat", "max_pool2d", "maximum", "minimum", "mish", "neg"),
    *("upsample_nearest2d", "upsample_bilinear2d"),
}
"""The same on GPUs, batch norms with running statistics among them. Most are generated: kernels write any order."""
_INDIFFERENT = frozenset({"mean", "sum"})
"""Operators that are generated for operands in any order, and whose results have no channels left to be last."""


def name_of(event: TraceOp) -> str:
    return event.target.overloadpacket.__name__


def strides_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a tensor of four axes whose channels are last."""
    return torch.empty(shape, device="meta", memory_format=torch.channels_last).stride()


def may_change_layout(trace: Trace, register: TraceValue) -> bool:
    """Whether no operation can tell that a tensor lies in another order: it has no views, and is written only as a
    whole."""
    storage = trace.note(register).storage
    has_views = sum(note.storage == storage for note in trace.tensors) > 1
    for event in trace.events:
        written = values_in(written_arguments(event.target, event.arguments, event.keywords))
        is_written = any(trace.note(one).storage == storage for one in written)
        if is_written and (has_views or name_of(event) not in KEEPING):
            return False
    return True


def keep_channels_last(trace: Trace, packed: set[TraceValue], keeping: Set[str] = KEEPING) -> Trace:
    """The trace with the results of some convolutions, and what follows from them, channels last."""
    return _ChannelsLastRewrite(TraceRewriter(trace), packed, keeping).rewritten() if packed else trace


def is_row_major(note: TensorMeta) -> bool:
    return note.strides == torch.empty(note.shape, device="meta").stride()


@dataclasses.dataclass(slots=True)
class _ChannelsLastRewrite:
    rewriter: TraceRewriter
    packed: set[TraceValue]
    keeping: Set[str]
    changed_registers: set[TraceValue] = dataclasses.field(default_factory=set)
    """Registers that lie in another order than was recorded."""
    copies: dict[TraceValue, TraceValue] = dataclasses.field(default_factory=dict)
    """Copies in the order that was recorded."""

    def rewritten(self) -> Trace:
        rewriter = self.rewriter
        for index, event in rewriter.operations():
            is_concerned = not self.changed_registers.isdisjoint(event.operands)
            if self.packed.isdisjoint(event.products) and not is_concerned:
                continue
            if self._keeps(event) and self._may_change(event):
                self._change(event)
            elif name_of(event) not in _INDIFFERENT:
                rewriter.put(index, *self._with_copies(event))
        clones: list[TraceOp] = []
        recorded = lambda register: self._recorded(register, "the results", clones)
        rewriter.results = replace_values(rewriter.results, recorded)
        rewriter.append(*clones)
        return rewriter.finish().trace

    def _keeps(self, event: TraceOp) -> bool:
        name = name_of(event)
        return name in self.keeping and (name not in NORMALIZATIONS or uses_statistics(event))

    def _may_change(self, event: TraceOp) -> bool:
        return all(one in self.changed_registers or self._may_change_result(one) for one in event.products)

    def _may_change_result(self, register: TraceValue) -> bool:
        note = self.rewriter.note(register)
        is_plain = len(note.shape) != 4 or note.strides == strides_of(note.shape) or is_row_major(note)
        return is_plain and may_change_layout(self.rewriter.trace, register)

    def _change(self, event: TraceOp) -> None:
        for register in event.products:
            note = self.rewriter.note(register)
            self.copies.pop(register, None)  # it may just have been written
            is_new = register not in event.operands
            if is_new and len(note.shape) == 4 and note.strides != strides_of(note.shape):
                self.rewriter.change_note(register, strides=strides_of(note.shape))
                self.changed_registers.add(register)

    def _with_copies(self, event: TraceOp) -> list[TraceOp]:
        """An operation on copies in the order that was recorded, after those that make them."""
        clones: list[TraceOp] = []
        recorded = lambda register: self._recorded(register, event.place, clones)
        arguments = replace_values(event.arguments, recorded)
        keywords = replace_values(event.keywords, recorded)
        return [*clones, dataclasses.replace(event, arguments=arguments, keywords=keywords)]

    def _recorded(self, register: TraceValue, place: str, clones: list[TraceOp]) -> TraceValue:
        """A register that lies as it did when it was recorded: a copy, if it does not, which `clones` make."""
        if register not in self.changed_registers:
            return register
        if register not in self.copies:
            copy = self.copies[register] = self.rewriter.new_value(self.rewriter.trace.note(register))
            keywords = {"memory_format": torch.contiguous_format}
            clones.append(TraceOp(_aten.clone.default, (register,), keywords, copy, place))
        return self.copies[register]
