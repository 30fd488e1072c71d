"""From a plan and the arguments of a call to a record: what the launcher needs to answer calls like it without Python.

In: a plan and arguments it has answered. Out: a record, or None where a step or a result needs Python. The plan's steps
are gone through with tensors that have no memory (torch's meta tensors), which follow views as real ones do. Everything
that depends on sizes alone is a constant of the record. A whole number that decides a size must be the same in later
calls.

A result that is a view, an input, or the same memory as another result gets memory of its own and a kernel that copies
it there. What belongs into an input and was not written there by the kernel that computed it is copied last.
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
from ingot.loops.kernel_arguments import ACCESS
from ingot.ops import Kind
from ingot.runtime.arena import Lifetime, plan_arena
from ingot.runtime.backends.interface import KernelCall, NativeSite
from ingot.runtime.copies import copying
from ingot.runtime.destinations import empty_without_memory, slices_of
from ingot.runtime.in_place import inputs_overwritten, picks, stands_alone
from ingot.runtime.kernels import Kernel, word_of
from ingot.runtime.native.abi.prototypes import DTYPES, Prototype, prototype
from ingot.runtime.native.launch.cpu_running import can_overwrite
from ingot.runtime.native.launch.records import (
    AnyStep,
    CallSlots,
    Guard,
    NumberGuard,
    Patch,
    Record,
    RunStatistics,
    TensorGuard,
    can_record,
)
from ingot.runtime.plan import Plan

_EXACT_IN_DOUBLE = 1 << 53


class _NeedsPython(Exception):
    """Calls like this one cannot be answered natively."""


def may_record(plan: Plan) -> bool:
    """Whether calls of a plan can be recorded at all, as far as one can tell without arguments."""
    return all(isinstance(step, Kernel) or _is_simple(step) for step in plan.steps) and all(
        output.stride_order is None and isinstance(output.node.type, TensorType) for output in plan.graph.outputs
    )


def record_call(
    plan: Plan, inputs: Sequence[Any], statistics: RunStatistics, site: NativeSite, is_private: bool = False
) -> Record | None:
    """A record for calls with arguments like these, which are plain tensors on the site's device and numbers.

    `is_private` says that no input which is written shares memory with another one, in any call.
    """
    try:
        return _Recording(plan, inputs, site, is_private).record(statistics)
    except (_NeedsPython, IngotError):  # errors are for Python to find, and to word
        return None


def _is_simple(node: Node) -> bool:
    return node.op.kind is Kind.VIEW or node.op.name == "full" or isinstance(node.type, ScalarType)


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
    """Memory during a call: an input's, a result's, a constant's, or part of the arena."""

    nbytes: int
    input: int | None = None
    result: int | None = None
    constant: torch.Tensor | None = None
    """A tensor that all calls share, and none writes."""
    offset: int = 0
    """Where it begins, from the address that a call has of it: an input begins somewhere in its storage."""
    first: int = 0
    last: int = 0


@dataclass(frozen=True, slots=True)
class _Passed:
    """A number that a call brings: which input it is, and whether it is wanted as a double."""

    position: int
    as_double: bool


@dataclass(frozen=True, slots=True)
class _Launch:
    """A kernel that is called, with tensors without memory that say where its buffers lie."""

    kernel: Kernel
    call: KernelCall
    tensors: tuple[torch.Tensor, ...]
    """Results first, then what it reads."""
    is_copy: bool = False
    """Whether it moves a result to where it belongs; calls through Python do not count such kernels either."""

    @property
    def bytes_moved(self) -> int:
        return 0 if self.is_copy else sum(tensor.nbytes for tensor in self.tensors)


@dataclass(slots=True)
class _Recording:
    plan: Plan
    inputs: Sequence[Any]
    site: NativeSite
    is_private: bool
    values: dict[Node, Any] = field(default_factory=dict)
    """What is known of each value: a tensor without memory, or a number that calls like this one share."""
    passed: dict[Node, _Passed] = field(default_factory=dict)
    buffers: dict[int, _Buffer] = field(default_factory=dict)
    """Buffers by the storage of the tensors that lie in them."""
    workspaces: dict[int, _Buffer] = field(default_factory=dict)
    """Workspaces by the number of the kernel call that needs one."""
    launches: list[_Launch] = field(default_factory=list)
    made: list[torch.Tensor] = field(default_factory=list)
    """Tensors that belong to no value of the graph; their storages must not be those of others meanwhile."""
    written: list[int] = field(default_factory=list)
    """Inputs that kernels overwrite."""
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
        self._overwrite_inputs([output for output in self.plan.graph.outputs if output.alias_input is not None])
        if not self.is_private:
            self._require_overwritable(len(self.plan.graph.outputs) - len(returned))
        arena_bytes = self._place_intermediates()
        slots = CallSlots(len(self.inputs), len(results))
        steps = [self._step(index, slots) for index in range(len(self.launches))]
        guards = [self._guard(position, bound) for position in range(len(self.inputs))]
        if not can_record(guards, steps):
            raise _NeedsPython
        calls = [launch.call for launch in self.launches]
        counts = any(call.counters_word is not None for call in calls)
        return Record(
            guards,
            results,
            steps,
            statistics,
            arena_bytes=arena_bytes,
            doubles=sorted({number.position for number in self.passed.values() if number.as_double}),
            is_long=any(call.is_long for call in calls),
            copies=sum(launch.is_copy for launch in self.launches),
            bytes_moved=sum(launch.bytes_moved for launch in self.launches),
            keeps=[*(call.keeps for call in calls), *(buffer.constant for buffer in self.buffers.values())],
            site=self.site.counting_site if counts else self.site.site,
            written=() if self.is_private else self.written,
        )

    def _require_overwritable(self, count: int) -> None:
        """Check that all inputs which are to be overwritten are, and that no later step can fail: a call that Python
        has to repeat must not have changed anything."""
        if count == 0:
            return
        can_fail = any(picks(launch.kernel) for launch in self.launches)
        is_sure = self.site.overwrites and can_overwrite() and not can_fail
        if not is_sure or len(self.written) != count or count != len(self.plan.graph.outputs):
            raise _NeedsPython
        tensors = [value for value in self.inputs if isinstance(value, torch.Tensor)]
        if not all(stands_alone(self.inputs[position], tensors) for position in self.written):
            raise _NeedsPython

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

    def _run_kernel(self, kernel: Kernel, bound: _NotedSizes, later: Sequence[Kernel | Node]) -> None:
        if self.plan.refuses(kernel, self.site.device.type):
            raise _NeedsPython
        if any(sizes.evaluate(size, bound) == 0 for size in kernel.cluster.space):
            self._compute_nothing(kernel, bound)
            return
        tensors = [self.values[read.node] for read in kernel.lowered.tensors]
        targets = self._overwritten(kernel, bound, later)
        targets |= self.plan.destinations.targets(kernel, self.values, bound, empty_without_memory)
        call = self.site.prepare(kernel, tensors, bound, targets)
        made = [
            targets[index] if index in targets else empty_without_memory(shape, to_torch(dtype))
            for index, (shape, dtype) in enumerate(call.outputs)
        ]
        self.values.update(zip(kernel.cluster.outputs, made, strict=True))
        self._launch(_Launch(kernel, call, (*made, *tensors)))

    def _compute_nothing(self, kernel: Kernel, bound: _NotedSizes) -> None:
        """Leave out a kernel whose results have no elements. PyTorch decides whether an operation on no elements is
        allowed."""
        for node in kernel.cluster.outputs:
            assert isinstance(node.type, TensorType)
            shape = tuple(sizes.evaluate(size, bound) for size in node.type.shape)
            if 0 not in shape:
                raise _NeedsPython
            self.values[node] = made = empty_without_memory(shape, to_torch(node.type.dtype))
            self.buffers[_storage(made)] = _Buffer(0)

    def _launch(self, launch: _Launch) -> None:
        """Call a kernel after all before it."""
        number = len(self.launches)
        self.launches.append(launch)
        if launch.call.workspace_word is not None:
            self.workspaces[number] = _Buffer(launch.call.workspace_bytes, first=number, last=number)
        for tensor in launch.tensors:
            nbytes = tensor.untyped_storage().nbytes()
            self.buffers.setdefault(_storage(tensor), _Buffer(nbytes, first=number)).last = number

    def _copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Copy a tensor into another of the same shape."""
        is_possible = source.shape == target.shape and source.dtype is target.dtype and source.dtype in DTYPES
        if not self.site.copies or not is_possible:
            raise _NeedsPython
        if source.numel() == 0:
            return
        kernel, bound = copying(source)
        call = self.site.prepare(kernel, [source], bound, {0: target})
        self._launch(_Launch(kernel, call, (target, source), is_copy=True))

    def _copied(self, source: torch.Tensor) -> torch.Tensor:
        """A copy in new memory, row-major."""
        made = self._new(tuple(source.shape), source.dtype)
        self._copy(source, made)
        return made

    def _new(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """New memory for what the next kernels write."""
        made = empty_without_memory(shape, dtype)
        self.made.append(made)
        self.buffers[_storage(made)] = _Buffer(made.nbytes, first=len(self.launches), last=len(self.launches))
        return made

    def _overwritten(
        self, kernel: Kernel, bound: _NotedSizes, later: Sequence[Kernel | Node]
    ) -> dict[int, torch.Tensor]:
        """The inputs that a kernel writes its results into, by the number of the result."""
        found = inputs_overwritten(self.plan.graph, kernel, later, self.values, bound, self.is_private)
        self.written += found.values()
        return {index: self.values[self.plan.graph.inputs[position]] for index, position in found.items()}

    def _run_node(self, node: Node, binding: Binding) -> None:
        if node in self.plan.destinations:
            if not self.plan.destinations.is_complete(node, self.values):
                raise _NeedsPython
            return
        if any(operand in self.passed for operand in node.operands):
            self._convert_number(node)
            return
        if node.op.name == "full":
            self.values[node] = self._constant(node, binding)
            return
        value = self.plan.evaluate(node, self.values, binding)
        if isinstance(value, torch.Tensor) and _storage(value) not in self.buffers:
            value = self._filled(node, tuple(value.shape), value.dtype, binding)
        self.values[node] = value

    def _filled(self, node: Node, shape: tuple[int, ...], dtype: torch.dtype, binding: Binding) -> torch.Tensor:
        """Write tensors that cannot be views: joined ones, and those whose strides do not fit a new shape."""
        made = self._new(shape, dtype)
        if node.op.name == "cat":
            for operand, part in zip(node.operands, slices_of(node, made, binding.sizes), strict=True):
                self._copy(self.values[operand], part)
        elif node.op.name == "reshape":
            source = self.values[node.operands[0]]
            self._copy(source, made.view(source.shape))
        else:
            raise _NeedsPython
        return made

    def _constant(self, node: Node, binding: Binding) -> torch.Tensor:
        """A tensor with the same value everywhere, of which there is one element in memory."""
        (number,) = node.operands
        if number.constant is None or not self.site.copies:
            raise _NeedsPython
        value = self.plan.evaluate(node, {}, Binding(binding.sizes, torch.device("cpu")))
        assert isinstance(value, torch.Tensor)
        like = torch.empty(1, dtype=value.dtype, device="meta").as_strided(value.shape, value.stride())
        self.buffers[_storage(like)] = _Buffer(value.nbytes, constant=value)
        return like

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
        """What a result is like. It is what one kernel wrote, and no other result is the same memory."""
        tensor = self.values.get(output.node)
        if not isinstance(tensor, torch.Tensor) or tensor.dtype not in DTYPES:
            raise _NeedsPython
        buffer = self.buffers[_storage(tensor)]
        is_whole = tensor.is_contiguous() and tensor.storage_offset() == 0 and tensor.nbytes == buffer.nbytes
        is_taken = buffer.input is not None or buffer.result is not None or buffer.constant is not None
        if is_taken or not is_whole:
            buffer = self.buffers[_storage(self._copied(tensor))]
        buffer.result = index
        return prototype(tuple(tensor.shape), tensor.dtype)

    def _overwrite_inputs(self, outputs: Sequence[Output]) -> None:
        """Copy what belongs into inputs and is not there yet. What lies in inputs that are overwritten is set aside
        before the first of them is."""
        moves = [(output.alias_input, self.values.get(output.node)) for output in outputs]
        overwritten = {position for position, _ in moves}
        waiting: list[tuple[torch.Tensor, torch.Tensor]] = []
        for position, value in moves:
            assert position is not None
            target = self.values[self.plan.graph.inputs[position]]
            if not isinstance(value, torch.Tensor):
                raise _NeedsPython
            if value is not target:
                self.written.append(position)
                source = self.buffers[_storage(value)].input
                waiting.append((self._copied(value) if source in overwritten else value, target))
        for value, target in waiting:
            self._copy(value, target)

    def _place_intermediates(self) -> int:
        inner = [
            buffer
            for buffer in self.buffers.values()
            if buffer.input is None and buffer.result is None and buffer.constant is None
        ]
        inner += self.workspaces.values()
        lifetimes = [Lifetime(buffer.first, buffer.last, buffer.nbytes) for buffer in inner]
        offsets, total = plan_arena(lifetimes, self.site.alignment)
        for buffer, offset in zip(inner, offsets, strict=True):
            buffer.offset = offset
        return total

    # --- making the record --------------------------------------------------------------------------------------------

    def _step(self, index: int, slots: CallSlots) -> AnyStep:
        kernel, call = self.launches[index].kernel, self.launches[index].call
        prepared = call.prepared
        words = list(prepared.words)
        buffers = zip(prepared.addresses, self.launches[index].tensors, call.alignments, strict=True)
        patches: list[Patch] = []
        for word, tensor, alignment in buffers:
            constant = self.buffers[_storage(tensor)].constant
            if constant is None:
                patches.append(self._address(word, tensor, alignment, slots))
            else:
                words[word] = constant.data_ptr()
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

    def _address(self, word: int, tensor: torch.Tensor, alignment: int, slots: CallSlots) -> Patch:
        buffer = self.buffers[_storage(tensor)]
        begin = int(tensor.storage_offset()) * tensor.element_size()
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


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata
