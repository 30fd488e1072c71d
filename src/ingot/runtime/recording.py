"""From a plan and the arguments of a call to a record: what the launcher needs to answer calls like it without Python.

In: a plan and arguments it has answered. Out: a record, or None where a step or a result needs Python. The plan's steps
are gone through with tensors that have no memory (torch's meta tensors), which follow views as real ones do. Whatever
depends on sizes alone is a constant of the record. A whole number that decides a size must be the same in later calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ingot.base import sizes
from ingot.base.dtypes import DataType
from ingot.base.errors import IngotError
from ingot.base.numbers import integer_range
from ingot.base.types import ScalarType, TensorType
from ingot.ir.binding import Binding, bind
from ingot.ir.graph import Output
from ingot.ir.node import Node
from ingot.ir.torch_types import to_torch
from ingot.loops.gpu.schedule import ACCESS
from ingot.ops import Kind
from ingot.runtime.arena import Lifetime, plan_arena
from ingot.runtime.destinations import empty_without_memory
from ingot.runtime.in_place import results_in_place
from ingot.runtime.kernels import Kernel, word_of
from ingot.runtime.native.prototypes import DTYPES, Prototype, prototype
from ingot.runtime.native.records import (
    AnyStep,
    Guard,
    NumberGuard,
    Patch,
    Record,
    RunStatistics,
    Slots,
    TensorGuard,
    can_record,
)
from ingot.runtime.plan import Plan
from ingot.runtime.recording_sites import KernelCall, RecordingSite

_EXACT_IN_DOUBLE = 1 << 53


class _NeedsPython(Exception):
    """Calls like this one cannot be answered natively."""


def may_record(plan: Plan, is_private: bool = False) -> bool:
    """Whether calls of a plan can be recorded at all, as far as one can tell without arguments.

    Inputs are only written if `is_private`: no other input shares their memory, in any call.
    """
    return all(isinstance(step, Kernel) or _is_simple(step) for step in plan.steps) and all(
        (output.alias_input is None or is_private)
        and output.stride_order is None
        and isinstance(output.node.type, TensorType)
        for output in plan.graph.outputs
    )


def record_call(plan: Plan, inputs: Sequence[Any], statistics: RunStatistics, site: RecordingSite) -> Record | None:
    """A record for calls with arguments like these, which are plain tensors on the site's device and numbers."""
    try:
        return _Recording(plan, inputs, site).record(statistics)
    except (_NeedsPython, IngotError):  # errors are for Python to find, and to word
        return None


def _is_simple(node: Node) -> bool:
    return node.op.kind is Kind.VIEW or isinstance(node.type, ScalarType)


class _NotedSizes(dict[str, int]):
    """Values of size symbols that remember which of them were asked for."""

    def __init__(self, values: dict[str, int]):
        super().__init__(values)
        self.used: set[str] = set()

    def __getitem__(self, name: str) -> int:
        self.used.add(name)
        return super().__getitem__(name)


@dataclass(slots=True)
class _Buffer:
    """Memory during a call: an input's, a result's, or part of the arena."""

    nbytes: int
    input: int | None = None
    result: int | None = None
    offset: int = 0
    """Where it begins, from the address that a call has of it: an input begins somewhere in its storage."""
    first: int = 0
    last: int = 0


@dataclass(frozen=True, slots=True)
class _Passed:
    """A number that a call brings: which input it is, and whether it is wanted as a double."""

    position: int
    as_double: bool


@dataclass(slots=True)
class _Recording:
    plan: Plan
    inputs: Sequence[Any]
    site: RecordingSite
    values: dict[Node, Any] = field(default_factory=dict)
    """What is known of each value: a tensor without memory, or a number that calls like this one share."""
    passed: dict[Node, _Passed] = field(default_factory=dict)
    buffers: dict[int, _Buffer] = field(default_factory=dict)
    """By the storage of the tensors that lie in it."""
    workspaces: dict[int, _Buffer] = field(default_factory=dict)
    """By the number of the call that needs one."""
    calls: list[tuple[Kernel, KernelCall]] = field(default_factory=list)
    limited: set[int] = field(default_factory=set)
    """Inputs that must be whole numbers a double can hold."""

    def record(self, statistics: RunStatistics) -> Record:
        bound = _NotedSizes(bind(self.plan.graph, self.inputs).sizes)
        binding = Binding(bound, torch.device("meta"))
        for assumption in self.plan.graph.assumptions:
            for size in (assumption.left, assumption.right):
                sizes.evaluate(size, bound)
        for position, (node, value) in enumerate(zip(self.plan.graph.inputs, self.inputs, strict=True)):
            self._take_input(position, node, value)
        for index, step in enumerate(self.plan.steps):
            if isinstance(step, Kernel):
                self._run_kernel(step, bound, self.plan.steps[index + 1 :])
            else:
                self._run_node(step, binding)
        returned = [output for output in self.plan.graph.outputs if output.alias_input is None]
        results = [self._result(index, output) for index, output in enumerate(returned)]
        if not all(map(self._is_in_place, self.plan.graph.outputs)):
            raise _NeedsPython
        arena_bytes = self._place_intermediates()
        slots = Slots(len(self.inputs), len(results))
        steps = [self._step(index, slots) for index in range(len(self.calls))]
        guards = [self._guard(position, bound) for position in range(len(self.inputs))]
        if not can_record(guards, steps):
            raise _NeedsPython
        counts = any(call.counters_word is not None for _, call in self.calls)
        return Record(
            guards,
            results,
            steps,
            statistics,
            arena_bytes=arena_bytes,
            doubles=sorted({number.position for number in self.passed.values() if number.as_double}),
            is_long=any(call.is_long for _, call in self.calls),
            bytes_moved=sum(self._bytes_moved(kernel) for kernel, _ in self.calls),
            keeps=[call.keeps for _, call in self.calls],
            site=self.site.counting_site if counts else self.site.site,
        )

    # --- going through the steps --------------------------------------------------------------------------------------

    def _take_input(self, position: int, node: Node, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            remainder = TensorGuard.like(value).remainder or 0
            if remainder % value.element_size():
                raise _NeedsPython
            begin = remainder // value.element_size()
            memory = torch.empty(0, dtype=value.dtype, device="meta")
            self.values[node] = like = memory.as_strided(value.shape, value.stride(), begin)
            self.buffers[_storage(like)] = _Buffer(value.nbytes, input=position, offset=-remainder)
        else:
            assert isinstance(node.type, ScalarType)
            self.passed[node] = _Passed(position, node.type.dtype.is_float and not isinstance(value, float))

    def _is_in_place(self, output: Output) -> bool:
        """Whether a result that belongs to an input lies in that input's memory."""
        if output.alias_input is None:
            return True
        target = self.values[self.plan.graph.inputs[output.alias_input]]
        return self.values.get(output.node) is target

    def _run_kernel(self, kernel: Kernel, bound: _NotedSizes, later: Sequence[Kernel | Node]) -> None:
        is_refused = self.plan.refuses(kernel, self.site.device.type)
        if is_refused or any(sizes.evaluate(size, bound) == 0 for size in kernel.cluster.space):
            raise _NeedsPython
        number = len(self.calls)
        tensors = [self.values[read.node] for read in kernel.lowered.tensors]
        for tensor in tensors:
            self.buffers[_storage(tensor)].last = number
        targets = self.plan.destinations.targets(kernel, self.values, bound, empty_without_memory)
        targets |= results_in_place(self.plan.graph, kernel, later, self.values, bound, is_private=True)
        call = self.site.prepare(kernel, tensors, bound, targets)
        self.calls.append((kernel, call))
        if call.workspace_word is not None:
            self.workspaces[number] = _Buffer(call.workspace_bytes, first=number, last=number)
        for index, (node, (shape, dtype)) in enumerate(zip(kernel.cluster.outputs, call.outputs, strict=True)):
            made = targets.get(index)
            if made is None:
                made = torch.empty(shape, dtype=to_torch(dtype), device="meta")
            self.values[node] = made
            nbytes = made.untyped_storage().nbytes()
            self.buffers.setdefault(_storage(made), _Buffer(nbytes, first=number)).last = number

    def _run_node(self, node: Node, binding: Binding) -> None:
        if node in self.plan.destinations:
            if not self.plan.destinations.is_complete(node, self.values):
                raise _NeedsPython
            return
        if any(operand in self.passed for operand in node.operands):
            self._convert_number(node)
            return
        value = self.plan.evaluate(node, self.values, binding)
        if isinstance(value, torch.Tensor) and _storage(value) not in self.buffers:
            raise _NeedsPython  # a copy, not a view
        self.values[node] = value

    def _convert_number(self, node: Node) -> None:
        """A number cast to a float type: kernels read floats from doubles and round them once, as the cast does."""
        (number, *others) = (self.passed.get(operand) for operand in node.operands)
        (source, *_) = (operand.type for operand in node.operands)
        target = node.type
        if number is None or others or node.op.name != "cast":
            raise _NeedsPython
        assert isinstance(source, ScalarType) and isinstance(target, ScalarType)
        is_exact = source.dtype is DataType.Double or not source.dtype.is_float
        if target.dtype not in (DataType.Float, DataType.Double) or not is_exact:
            raise _NeedsPython
        if not source.dtype.is_float:
            self.limited.add(number.position)
        is_float = isinstance(self.inputs[number.position], float)
        self.passed[node] = _Passed(number.position, not is_float)

    # --- memory -------------------------------------------------------------------------------------------------------

    def _result(self, index: int, output: Output) -> Prototype:
        """What a result is like, if it is exactly what one kernel wrote, and no other result is the same memory."""
        tensor = self.values.get(output.node)
        if not isinstance(tensor, torch.Tensor):
            raise _NeedsPython
        buffer = self.buffers[_storage(tensor)]
        is_whole = tensor.is_contiguous() and tensor.storage_offset() == 0 and tensor.nbytes == buffer.nbytes
        if buffer.input is not None or buffer.result is not None or not is_whole or tensor.dtype not in DTYPES:
            raise _NeedsPython
        buffer.result = index
        return prototype(tuple(tensor.shape), tensor.dtype)

    def _place_intermediates(self) -> int:
        inner = [buffer for buffer in self.buffers.values() if buffer.input is None and buffer.result is None]
        inner += self.workspaces.values()
        lifetimes = [Lifetime(buffer.first, buffer.last, buffer.nbytes) for buffer in inner]
        offsets, total = plan_arena(lifetimes, self.site.alignment)
        for buffer, offset in zip(inner, offsets, strict=True):
            buffer.offset = offset
        return total

    # --- making the record --------------------------------------------------------------------------------------------

    def _step(self, index: int, slots: Slots) -> AnyStep:
        kernel, call = self.calls[index]
        prepared = call.prepared
        words = list(prepared.words)
        buffers = zip(prepared.addresses, _nodes_of_buffers(kernel), call.alignments, strict=True)
        patches = [self._address(word, node, alignment, slots) for word, node, alignment in buffers]
        if call.workspace_word is not None:
            patches.append(Patch(call.workspace_word, slots.arena, self.workspaces[index].offset))
        if call.counters_word is not None:
            patches.append(Patch(call.counters_word, slots.counters))
        for word, node, scalar in zip(prepared.scalars, kernel.lowered.scalars, kernel.program.scalars, strict=True):
            number = self.passed.get(node)
            if number is None:
                words[word] = word_of(self.values[node], scalar)
            else:
                place = slots.double if number.as_double else slots.input
                patches.append(Patch(word, place(number.position)))
        return call.step(tuple(words), tuple(patches))

    def _address(self, word: int, node: Node, alignment: int, slots: Slots) -> Patch:
        tensor = self.values[node]
        buffer = self.buffers[_storage(tensor)]
        begin = tensor.storage_offset() * tensor.element_size()
        if begin % alignment or alignment > ACCESS:
            raise _NeedsPython  # guards tell addresses apart as far as kernels count on them, and no farther
        offset = begin + buffer.offset
        if buffer.input is not None:
            return Patch(word, slots.input(buffer.input), offset)
        return Patch(word, slots.arena if buffer.result is None else slots.result(buffer.result), offset)

    def _guard(self, position: int, bound: _NotedSizes) -> Guard:
        value = self.inputs[position]
        if isinstance(value, torch.Tensor):
            return TensorGuard.like(value)
        declared = self.plan.graph.inputs[position].type
        assert isinstance(declared, ScalarType)
        if not declared.dtype.is_integer or (isinstance(value, bool) and f"n{position}" not in bound.used):
            return NumberGuard(type(value))
        lowest, highest = integer_range(declared.dtype)
        if position in self.limited:
            lowest, highest = max(lowest, -_EXACT_IN_DOUBLE), min(highest, _EXACT_IN_DOUBLE)
        if f"n{position}" in bound.used:
            lowest, highest = max(lowest, value), min(highest, value)
        if isinstance(value, bool) or not lowest <= value <= highest:
            raise _NeedsPython
        return NumberGuard(type(value), lowest, highest)

    def _bytes_moved(self, kernel: Kernel) -> int:
        return sum(self.values[node].nbytes for node in _nodes_of_buffers(kernel))


def _nodes_of_buffers(kernel: Kernel) -> list[Node]:
    return [*kernel.cluster.outputs, *(read.node for read in kernel.lowered.tensors)]


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata
