"""From a trace to operations on values that never change, wherever that is possible.

In: a trace. Out: operations in program order, each of one kind:

    pure   computes new values from old ones and has a meaning in the op table; it may run any time, or never
    view   gives other names to memory; it may run any time, or never
    call   everything else: it runs as PyTorch runs it, on real tensors, in program order

An operation that writes in place is pure where no other operation can notice: it makes a new version of the register,
if no other register that shares the memory is used afterwards, nothing looks at the memory around, and what is returned
has no gaps in it. A register that existed before the call and has a new version at the end is written back. All other
writes are calls.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import torch

from ingot.base.dtypes import HELD
from ingot.base.numbers import number_type
from ingot.base.types import ScalarType, TensorType
from ingot.codegen.llvm.support import supports
from ingot.frontend.aten import lowering_for
from ingot.frontend.aten.lowered import lowered_call
from ingot.frontend.aten.overloads import functional_form
from ingot.frontend.jit.trace.trace import (
    Made,
    TensorMeta,
    Trace,
    TraceOp,
    TraceValue,
    Variable,
    all_of,
    draws_numbers,
    is_mutable,
    replace_values,
    values_in,
    written_arguments,
)
from ingot.ir.graph import Graph
from ingot.ir.node import Node
from ingot.ir.torch_types import from_torch
from ingot.ops import Kind

_JOINING = frozenset({"cat", "stack"})
_WITH_WORKSPACE = frozenset({"_thnn_fused_lstm_cell", "_thnn_fused_gru_cell"})
"""Operators with a further joined result that only their derivatives read."""
_WITH_PLACES = frozenset({"argmax", "argmin", "max", "min"})
"""Operators that compare their elements' positions, which kernels know: nothing is counted for them."""


_OF_PARTS = "view_as_real"
"""The view whose elements are parts of those of the tensor. Generated code takes single parts: `z.real`. Where both are
read or written side by side, memory has them so already, and a view is a matter of PyTorch's; so is one of pairs as
complex numbers."""
_LOOKING_AROUND = frozenset({"as_strided", "as_strided_copy", "as_strided_scatter"})
"""Operators whose result may hold elements of the tensor's memory that the tensor itself does not have."""


PRODUCTS = frozenset({"linear", "addmm", "mm", "bmm", "baddbmm", "convolution", "native_layer_norm"})
"""Operators that no value lets fail, nor write anything."""


class OperationKind(Enum):
    PURE = auto()
    VIEW = auto()
    CALL = auto()


@dataclass(eq=False, slots=True)
class Version:
    """The contents of a register between two writes."""

    register: TraceValue
    number: int
    note: TensorMeta
    producer: Operation | None
    """The operation that makes it; None for what exists before the call."""
    consumers: list[Operation] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"t{self.register.index}" + (f"_{self.number}" if self.number else "")

    @property
    def base(self) -> Version:
        """The version at the end of a chain of views; the version itself if it is no view."""
        producer = self.producer
        if producer is None or producer.kind is not OperationKind.VIEW:
            return self
        return producer.operands[0].base

    def __repr__(self) -> str:
        return self.name


_MANY_VIEWS = 8


@dataclass(eq=False, slots=True)
class Operation:
    """An event of the trace on versions. One that writes in place and is pure has another target than the event's."""

    index: int
    kind: OperationKind
    event: TraceOp
    target: torch._ops.OpOverload
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    operands: list[Version]
    graph: Graph | None
    """What it computes, with an input for each of its operands and of its open numbers; None for a call."""
    is_left_for_rounding: bool = False
    """Whether it is a call because no generated code rounds half types as eager does."""
    results: Any = None
    products: list[Version] = field(default_factory=list)
    is_live: bool = False

    @property
    def is_join(self) -> bool:
        """Whether it joins tensors, which costs nothing where all of them are computed in the same region."""
        return self.kind is OperationKind.PURE and self.target.overloadpacket.__name__ in _JOINING

    @property
    def is_taking_apart(self) -> bool:
        """Whether it makes many views of a tensor. Regions that each compute with one of them are alike, and compiled
        once, if the views are there before; inside regions each would begin with another one."""
        return self.kind is OperationKind.VIEW and len(self.products) >= _MANY_VIEWS

    @property
    def why_called(self) -> str:
        """Why a call is left to PyTorch."""
        if self.is_left_for_rounding:
            return 'rounds half types in ways of its own, and numerics="eager" asks for them'
        if is_mutable(self.target):
            return "writes into memory that other tensors share"
        if draws_numbers(self.target):
            return "draws random numbers"
        return "a library's" if lowering_for(self.target) is None else "with arguments that have no generated code"


@dataclass(slots=True)
class SSA:
    """The operations of a trace, and what must hold at its end."""

    trace: Trace
    numerics: str = "fast"
    """Where half types are rounded, by the flag of this name."""
    operations: list[Operation] = field(default_factory=list)
    current: dict[TraceValue, Version] = field(default_factory=dict)
    """The last version of each register."""
    leaves: dict[TraceValue, Version] = field(default_factory=dict)
    """The versions that exist before the call."""
    written: list[TraceValue] = field(default_factory=list)
    """Registers from before the call that get a new version."""
    mutates_leaves: bool = False
    """Whether the call writes into memory that existed before it."""

    results: set[Version] = field(default_factory=set)
    """What the function returns."""


def to_ssa(trace: Trace, numerics: str, called: frozenset[int] = frozenset()) -> SSA:
    """The operations of a trace on versions. The events of `called` become calls, even if they could be pure."""
    found = SSA(trace, numerics)
    uses = _Uses.of(trace)
    for index, event in enumerate(trace.events):
        _add_operation(found, index, event, uses, index in called)
    found.results = {_current(found, register) for register in values_in(trace.results)}
    _mark_live(found)
    return found


def _add_operation(found: SSA, index: int, event: TraceOp, uses: _Uses, is_called: bool) -> None:
    trace = found.trace
    mutated = _mutated(event)
    kind, called = OperationKind.CALL, _Called(event.target, event.arguments, event.keywords, event.results)
    functional = None if is_called else _functional(trace, index, event, mutated, uses)
    graph = None if functional is None else _lowered(found, functional, event.place)
    if functional is not None and graph is not None:
        called = functional
        kind = OperationKind.VIEW if not mutated and _is_view(trace, event) else OperationKind.PURE
    if kind is OperationKind.CALL and any(
        trace.note(register).storage in _leaf_storages(trace) for register in mutated
    ):
        found.mutates_leaves = True
    operands: list[Version] = []

    def version(register: TraceValue) -> Version:
        operands.append(_current(found, register))
        return operands[-1]

    operation = Operation(
        index,
        kind,
        event,
        called.target,
        replace_values(called.arguments, version),
        replace_values(called.keywords, version),
        operands,
        graph,
        functional is not None and graph is None and _is_left_for_rounding(found, functional),
    )
    for operand in operands:
        operand.consumers.append(operation)
    in_place = set(mutated) if kind is OperationKind.PURE else set()
    operation.results = replace_values(event.results, lambda register: _produce(found, operation, register, in_place))
    if in_place and not operation.products:  # an out= overload may return nothing
        operation.results = _produce(found, operation, mutated[0], in_place)
    found.operations.append(operation)


def _produce(found: SSA, operation: Operation, register: TraceValue, in_place: set[TraceValue]) -> Version:
    known = found.current.get(register)
    if known is None and found.trace.note(register).is_leaf:  # written before it was read
        known = _current(found, register)
    if known is not None and register not in in_place:
        return known
    if known is not None:
        if known.producer is operation:
            return known
        if found.trace.note(register).is_leaf:
            found.mutates_leaves = True
            if register not in found.written:
                found.written.append(register)
    number = 0 if known is None else known.number + 1
    made = Version(register, number, found.trace.note(register), operation)
    found.current[register] = made
    operation.products.append(made)
    return made


def _current(found: SSA, register: TraceValue) -> Version:
    version = found.current.get(register)
    if version is None:
        version = Version(register, 0, found.trace.note(register), None)
        found.current[register] = found.leaves[register] = version
    return version


def _mark_live(found: SSA) -> None:
    wanted = set(found.results) | {found.current[register] for register in found.written}
    for operation in reversed(found.operations):
        is_needed = any(made in wanted for made in operation.products)
        operation.is_live = is_needed or (operation.kind is OperationKind.CALL and not _is_idle(operation))
        if operation.is_live:
            wanted.update(operation.operands)


def _is_idle(operation: Operation) -> bool:
    """Whether a call does nothing but make a tensor, from no other or by a product, which no value lets fail: where
    the tensor is not needed, the call is not."""
    target = operation.target
    is_sure = not operation.operands or target.overloadpacket.__name__ in PRODUCTS
    return is_sure and not is_mutable(target) and not draws_numbers(target) and bool(operation.products)


# --- kinds of events --------------------------------------------------------------------------------------------------


def _mutated(event: TraceOp) -> list[TraceValue]:
    """The registers an event writes into."""
    return values_in(written_arguments(event.target, event.arguments, event.keywords))


def _is_view(trace: Trace, event: TraceOp) -> bool:
    """Whether an event gives another name to memory, of which it may also be one part of each complex number."""
    operands, products = event.operands, event.products
    if len(operands) != 1 or not products or operands[0] in products:
        return False
    storage = trace.note(operands[0]).storage
    shares = all(trace.note(product).storage == storage for product in products)
    keeps_type = all(trace.note(product).dtype is trace.note(operands[0]).dtype for product in products)
    return shares and (keeps_type or _takes_single_parts(trace, event))


def _takes_single_parts(trace: Trace, event: TraceOp) -> bool:
    """Whether all that comes of the parts of complex numbers is one of both."""
    is_of_parts = event.target.overloadpacket.__name__ == _OF_PARTS
    (product,) = event.products[:1]
    readers = (other for other in trace.events if product in other.operands)
    return is_of_parts and all(reader.target.overloadpacket.__name__ == "select" for reader in readers)


def _is_fresh(trace: Trace, event: TraceOp) -> bool:
    """Whether all results lie in memory that no register before had."""
    before = {trace.note(operand).storage for operand in event.operands}
    products = event.products
    return bool(products) and all(trace.note(product).storage not in before for product in products)


@dataclass(frozen=True, slots=True)
class _Called:
    """A call that returns its results, whether or not the event writes them."""

    target: torch._ops.OpOverload
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    results: Any


def _functional(trace: Trace, index: int, event: TraceOp, mutated: Sequence[TraceValue], uses: _Uses) -> _Called | None:
    """What an event computes, if computing is its only visible effect; None for an event that has to be a call."""
    if not mutated:
        is_apart = _is_view(trace, event) or _is_fresh(trace, event)
        return _Called(event.target, event.arguments, event.keywords, event.results) if is_apart else None
    return _unwritten(trace, index, event, mutated[0], uses) if len(mutated) == 1 else None


def _unwritten(trace: Trace, index: int, event: TraceOp, target: TraceValue, uses: _Uses) -> _Called | None:
    """The operation whose result an in-place operation writes, if no other operation can tell a new version from a
    write."""
    found = functional_form(event.target)
    if found is None:
        return None
    overload, written = found
    arguments, keywords = event.arguments, {k: v for k, v in event.keywords.items() if k != "out" or written != "out"}
    note, operands = trace.note(target), {operand.index for operand in event.operands}
    for other, other_note in enumerate(trace.tensors):
        is_alias = other_note.storage == note.storage and other != target.index
        is_earlier = not isinstance(other_note.origin, Made) or other_note.origin.event <= index
        # What it reads may be what it has just written; the order in which PyTorch goes decides.
        if is_alias and is_earlier and (uses.of_register[other] > index or other in operands):
            return None
    if uses.of_memory_around.get(note.storage, -1) > index:
        return None
    if _overlaps_itself(note) or (note.storage in _leaf_storages(trace) and not note.is_leaf):
        return None
    if any(register.index != target.index for register in event.products):
        return None
    if _has_gaps(note) and _is_returned(trace, note.storage):  # a new version would have none, and other strides
        return None
    return _Called(overload, arguments, keywords, target)


def _overlaps_itself(note: TensorMeta) -> bool:
    """Whether elements may lie in one place, so that a write of one is a write of others."""
    extent = 1
    for size, stride in sorted(zip(note.shape, note.strides, strict=True), key=lambda pair: pair[1]):
        if size > 1:
            if stride < extent:
                return True
            extent = stride * (size - 1) + extent
    return False


def _has_gaps(note: TensorMeta) -> bool:
    """Whether there is memory between elements that is no element's."""
    pairs = zip(note.shape, note.strides, strict=True)
    return math.prod(note.shape) not in (0, 1 + sum((size - 1) * stride for size, stride in pairs))


def _is_returned(trace: Trace, storage: int) -> bool:
    return any(trace.note(register).storage == storage for register in values_in(trace.results))


def _leaf_storages(trace: Trace) -> set[int]:
    return {note.storage for note in trace.tensors if note.is_leaf}


@dataclass(frozen=True, slots=True)
class _Uses:
    """The last events that use something."""

    of_register: Sequence[int]
    """The last event that reads or writes each register; results are read after all events."""
    of_memory_around: Mapping[int, int]
    """The last event that looks at all of a piece of memory, by the number of the memory."""

    @staticmethod
    def of(trace: Trace) -> _Uses:
        uses, around = [-1] * len(trace.tensors), dict[int, int]()
        for index, event in enumerate(trace.events):
            looks_around = event.target.overloadpacket.__name__ in _LOOKING_AROUND
            for register in event.operands:
                uses[register.index] = index
                if looks_around:
                    around[trace.note(register).storage] = index
        for register in values_in(trace.results):
            uses[register.index] = len(trace.events)
        return _Uses(uses, around)


# --- what the op table makes of it -----------------------------------------------------------------------------------


def _lowered(found: SSA, called: _Called, place: str) -> Graph | None:
    """The graph of a call that the user's code makes at a place; None where it is left to PyTorch."""
    try:
        return _graph_of(found.trace, called, found.numerics)
    except Exception as error:
        error.add_note(f"while {called.target} was lowered, which {place or 'an unknown line'} calls")
        raise


def _is_left_for_rounding(found: SSA, called: _Called) -> bool:
    """Whether a call that is left to PyTorch would be generated if half types might be rounded otherwise."""
    return found.numerics != "fast" and _graph_of(found.trace, called, "fast") is not None


def _graph_of(trace: Trace, called: _Called, numerics: str) -> Graph | None:
    if lowering_for(called.target) is None:
        return None
    fixed = called.arguments
    if called.target.overloadpacket.__name__ in _TAKES_VARIABLES:
        fixed = called.arguments[2:]
    if all_of(Variable, [*fixed, called.keywords]):
        return None
    made = [trace.note(register) for register in values_in(called.results)]
    read = [trace.note(register) for register in values_in((called.arguments, called.keywords))]
    if not _is_on_one_device(made, read) or any(from_torch(note.dtype) not in HELD for note in (*made, *read)):
        return None
    arguments = replace_values(called.arguments, lambda register: type_of(trace.note(register)))
    keywords = replace_values(called.keywords, lambda register: type_of(trace.note(register)))
    expected = [type_of(note) for note in made]
    return _generated(called.target, made[0].device.type, _with_scalar_types(arguments), keywords, expected, numerics)


def _generated(
    target: torch._ops.OpOverload,
    device: str,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    expected: Sequence[TensorType],
    numerics: str = "fast",
) -> Graph | None:
    """The graph of a call on operands of these types, if it gives what PyTorch gives and becomes machine code."""
    found = lowered_call(target, device, arguments, keywords, numerics)
    if found is None or [output.type for output in found.outputs] != expected:
        return None
    may_join = target.overloadpacket.__name__ in _JOINING | _WITH_WORKSPACE
    may_join = may_join or target.overloadpacket.__name__ == _OF_PARTS  # the join is taken apart again
    free = {"cat"} if may_join else set()
    free |= {"counter"} if target.overloadpacket.__name__ in _WITH_PLACES else set()
    free |= {"full"} if device == "cpu" else set()  # kernels take it for a number
    is_generated = all(_is_generated(node) or node.op.name in free for node in found.nodes)
    return found if is_generated else None


def type_of(note: TensorMeta) -> TensorType:
    """What a graph knows of a tensor."""
    dtype = from_torch(note.dtype)
    assert dtype is not None
    return TensorType(dtype, tuple(note.sizes))


def _with_scalar_types(value: Any) -> Any:
    """The same nested value with types in the place of numbers that are given at every call."""
    if isinstance(value, Variable):
        return ScalarType(number_type(value.type()))
    if isinstance(value, list):
        return [_with_scalar_types(element) for element in value]
    if isinstance(value, tuple):
        return tuple(_with_scalar_types(element) for element in value)
    return value


def _is_on_one_device(made: Sequence[TensorMeta], read: Sequence[TensorMeta]) -> bool:
    """Whether an operation takes place on the device of its results, apart from tensors that act as numbers."""
    devices = {note.device for note in made}
    return len(devices) == 1 and all(note.device in devices or note.is_number for note in read)


_TAKES_VARIABLES = frozenset({"add", "sub", "rsub", "mul", "div"})
"""Operators whose two operands may be any number: nothing is looked up or refused for the sake of its value, so that
one float stands for all."""


def _is_generated(node: Node) -> bool:
    """Whether a node costs nothing or becomes machine code; PyTorch itself is quicker at everything else."""
    if isinstance(node.type, ScalarType) or (node.op.kind is Kind.VIEW and len(node.operands) == 1):
        return node.op.name != "pad"
    if isinstance(node.type, TensorType) and 0 in node.type.shape:
        return True  # a result that PyTorch leaves empty
    return node.op.kind is Kind.STRUCTURE or supports(node)
