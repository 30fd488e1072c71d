"""Runs a graph with plain torch: the definition of correct, the fallback, and the oracle of the tests.

In: a graph and its arguments. Out: the results, in memory of their own; aliased inputs are overwritten at the end.
Always holds: what a node computes depends on its operands' values alone, not on where in memory they lie. torch itself
does not give that: its vector and scalar code round differently, so an element's bits depend on its position and its
tensor's strides. Functions marked unstable are therefore run where only the scalar code applies, and reductions on a
row-major matrix of (kept, reduced) elements. That is what lets a pass move a permute without changing one bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ingot.base import sizes
from ingot.base.dtypes import DataType
from ingot.base.errors import ExecutionError, IngotError
from ingot.base.sizes import SizeExpression
from ingot.base.types import OperandSlot, ScalarType, TensorType
from ingot.ir.binding import Binding, bind
from ingot.ir.graph import Graph, Output
from ingot.ir.library import find_library_function
from ingot.ir.node import Node, is_structure
from ingot.ir.torch_types import to_torch
from ingot.ops import Kind
from ingot.ops.attributes import AxesAttributes, AxisAttributes, LibraryAttributes

Value = torch.Tensor | bool | int | float | complex | tuple[torch.Tensor, ...]


@dataclass(slots=True)
class Spent:
    """What all launches of one kernel or operator cost."""

    launches: int = 0
    bytes_moved: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Tally:
    """What running a graph cost."""

    launches: int = 0
    """Operations that computed something; views are free."""
    bytes_moved: int = 0
    """Bytes read and written by those operations."""
    spent: dict[str, Spent] = field(default_factory=dict)
    """The same by the name of a kernel or an operator, with times, where times were asked for."""

    def add(self, other: Tally) -> None:
        self.launches += other.launches
        self.bytes_moved += other.bytes_moved
        for name, spent in other.spent.items():
            self.spend(name, spent.launches, spent.bytes_moved, spent.seconds)

    def spend(self, name: str, launches: int, bytes_moved: int, seconds: float) -> None:
        known = self.spent.setdefault(name, Spent())
        known.launches += launches
        known.bytes_moved += bytes_moved
        known.seconds += seconds


class Interpreter:
    """A graph made ready to run. Running keeps no state, so threads may share one."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self._frees_of_nodes = free_after(graph, [node.operands for node in graph.nodes], [(n,) for n in graph.nodes])

    def run(
        self,
        inputs: Sequence[Any],
        device: torch.device | str | None = None,
        tally: Tally | None = None,
        timed: bool = False,
    ) -> list[Any]:
        """The results of the graph for these arguments, aliased outputs left out."""
        binding = bind(self.graph, inputs, device)
        with torch.no_grad():
            values: dict[Node, Value] = {}
            for node, value in zip(self.graph.inputs, inputs, strict=True):
                values[node] = _brought(value, binding.device) if isinstance(value, torch.Tensor) else value
            self._execute(values, binding, tally, timed)
            return self._deliver(_as_results(self.graph.outputs, values, inputs), inputs)

    def _execute(self, values: dict[Node, Value], binding: Binding, tally: Tally | None, timed: bool) -> None:
        """Compute every node, in program order."""
        for node, frees in zip(self.graph.nodes, self._frees_of_nodes, strict=True):
            values[node] = self._step(node, values, binding, tally, timed)
            for freed in frees:
                del values[freed]

    def _step(self, node: Node, values: dict[Node, Value], binding: Binding, tally: Tally | None, timed: bool) -> Value:
        operands = [_value_of(operand, values) for operand in node.operands]
        start = clock(binding.device) if timed else 0.0
        try:
            result = _EVALUATE[node.op.kind](node, operands, binding)
        except IngotError:
            raise
        except (RuntimeError, IndexError, ValueError, TypeError, ZeroDivisionError) as error:
            types = ", ".join(str(operand.type) for operand in node.operands)
            raise ExecutionError(f"PyTorch refused {node.op.name}({types}): {error}") from error
        _check_type(node, result, binding)
        if tally is not None:
            seconds = clock(binding.device) - start if timed else None
            _count(node, operands, result, tally, seconds)
        return result

    def _deliver(self, results: list[Any], inputs: Sequence[Any]) -> list[Any]:
        """Write aliased outputs into their inputs, after everything has been computed, and return the others."""
        returned = []
        for output, value in zip(self.graph.outputs, results, strict=True):
            if output.alias_input is None:
                returned.append(value)
            elif value is not inputs[output.alias_input]:
                inputs[output.alias_input].copy_(value)
        return returned


# --- evaluating one node, by kind -------------------------------------------------------------------------------------


def _pointwise(node: Node, operands: list[Value], binding: Binding) -> Value:
    reference = node.op.reference
    assert reference is not None
    on_host = isinstance(node.type, ScalarType)
    device = torch.device("cpu") if on_host else binding.device
    attributes = _attributes(node, binding)
    numbers = node.op.number_exponent and isinstance(node.operands[-1].type, ScalarType)
    tensors: list[Any] = [_as_tensor(o, n, device) for o, n in zip(operands, node.operands, strict=True)]
    if not node.op.stable and device.type == "cpu":
        tensors = [_spread(tensor) for tensor in tensors]
    if numbers:
        tensors[-1] = operands[-1]
    result = reference(torch, *tensors, **attributes)
    return result.item() if on_host else result


def _reduction(node: Node, operands: list[Value], binding: Binding) -> Value:
    (operand,) = operands
    assert isinstance(operand, torch.Tensor) and isinstance(node.attributes, AxesAttributes)
    assert node.op.reference is not None
    axes = node.attributes.axes
    kept = [axis for axis in range(operand.dim()) if axis not in axes]
    shape = [operand.shape[axis] for axis in kept]
    rows, columns = math.prod(shape), math.prod(operand.shape[axis] for axis in axes)
    matrix = operand.permute([*kept, *axes]).reshape(rows, columns).contiguous()
    return node.op.reference(torch, matrix, axes=(1,)).reshape(shape)


def _scan(node: Node, operands: list[Value], binding: Binding) -> Value:
    (operand,) = operands
    assert isinstance(operand, torch.Tensor) and isinstance(node.attributes, AxisAttributes)
    assert node.op.reference is not None
    rows = operand.movedim(node.attributes.axis, -1).contiguous()
    return node.op.reference(torch, rows, axis=-1).movedim(-1, node.attributes.axis)


def _moving(node: Node, operands: list[Value], binding: Binding) -> Value:
    assert node.op.reference is not None
    tensors = [_as_tensor(o, n, binding.device) for o, n in zip(operands, node.operands, strict=True)]
    return node.op.reference(torch, *tensors, **_attributes(node, binding))


def _made(node: Node, operands: list[Value], binding: Binding) -> Value:
    """Factories and random draws; those with operands find the device there."""
    assert node.op.reference is not None
    if operands:
        return _moving(node, operands, binding)
    return node.op.reference(torch, **_attributes(node, binding), device=binding.device)


def _library(node: Node, operands: list[Value], binding: Binding) -> Value:
    attributes = node.attributes
    assert isinstance(attributes, LibraryAttributes)
    tensors = [
        _aligned(value) if isinstance(value, torch.Tensor) else _as_tensor(value, operand, binding.device)
        for value, operand in zip(operands, node.operands, strict=True)
    ]

    def argument(value: object) -> Any:
        if isinstance(value, OperandSlot):
            return tensors[value.index]
        if isinstance(value, tuple):
            return [argument(element) for element in value]
        return _resolve(value, binding)

    function = find_library_function(attributes.target)
    keywords = {name: argument(value) for name, value in attributes.keywords}
    return function(*map(argument, attributes.arguments), **keywords)


def _structure(node: Node, operands: list[Value], binding: Binding) -> Value:
    if is_structure(node, "dimension"):
        return _attributes(node, binding)["size"]
    (results,) = operands
    assert isinstance(results, tuple | list)
    return results[_attributes(node, binding)["index"]]


_EVALUATE: dict[Kind, Callable[[Node, list[Value], Binding], Value]] = {
    Kind.POINTWISE: _pointwise,
    Kind.REDUCTION: _reduction,
    Kind.SCAN: _scan,
    Kind.VIEW: _moving,
    Kind.GATHER: _moving,
    Kind.FACTORY: _made,
    Kind.RANDOM: _made,
    Kind.LIBRARY: _library,
    Kind.STRUCTURE: _structure,
}


# --- values -----------------------------------------------------------------------------------------------------------


def _value_of(node: Node, values: dict[Node, Value]) -> Value:
    constant = node.constant
    return values[node] if constant is None else constant


def _brought(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor on the device of a run. One that acts as a number comes along without waiting for what the device still
    has to do; pinned memory, which is read later, is waited for."""
    if tensor.device == device:
        return tensor
    return tensor.to(device, non_blocking=not tensor.is_pinned())


def _as_tensor(value: Value, node: Node, device: torch.device) -> torch.Tensor:
    """A scalar as a tensor without dimensions, so that every function of torch takes it."""
    if isinstance(value, torch.Tensor):
        return value
    assert isinstance(node.type, ScalarType) and isinstance(value, bool | int | float | complex)
    dtype = to_torch(node.type.dtype)
    if device.type == "cpu":
        return torch.tensor(value, dtype=dtype)
    return torch.full((), value, dtype=dtype, device=device)  # written there, where `tensor` would wait for a copy


def _spread(tensor: torch.Tensor) -> torch.Tensor:
    """The same values two elements apart: torch then takes its scalar code for every one of them."""
    spread = torch.empty((*tensor.shape, 2), dtype=tensor.dtype, device=tensor.device)[..., 0]
    return spread.copy_(tensor)


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The same values row-major and where an allocation could begin: at other addresses MKL rounds differently."""
    if tensor.is_contiguous() and (tensor.device.type != "cpu" or tensor.data_ptr() % 64 == 0):
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def _attributes(node: Node, binding: Binding) -> dict[str, Any]:
    return {name: _resolve(value, binding) for name, value in node.attributes.items}


def _resolve(value: object, binding: Binding) -> Any:
    """An attribute with its sizes as numbers and its data types as torch's."""
    if isinstance(value, SizeExpression):
        return sizes.evaluate(value, binding.sizes)
    if isinstance(value, DataType):
        return to_torch(value)
    if isinstance(value, tuple):
        return tuple(_resolve(element, binding) for element in value)
    return value


def _as_results(outputs: Sequence[Output], values: dict[Node, Value], inputs: Sequence[Any]) -> list[Any]:
    """Every result in memory of its own, row-major or in the order of strides asked for; copied only if it must be."""
    taken = {_memory(value) for value in inputs if isinstance(value, torch.Tensor)}
    results = []
    for output in outputs:
        value = _value_of(output.node, values)
        is_in_place = output.alias_input is not None and value is inputs[output.alias_input]
        if isinstance(value, torch.Tensor) and not is_in_place:
            in_order = output.stride_order is None and _is_row_major(value)
            if not in_order or _memory(value) in (None, *taken):
                value = _laid_out(value, output.stride_order)
            elif type(value) is torch.Tensor and value._is_view() and not _is_wrapped(value):
                value = value.data  # nothing else is left of what it is a view of
            taken.add(_memory(value))
        results.append(value)
    return results


def _memory(tensor: torch.Tensor) -> int | None:
    """Where a tensor's storage lies; None for tensors that have none of their own, such as those inside vmap."""
    try:
        return tensor.untyped_storage().data_ptr()
    except RuntimeError:
        return None


def _is_wrapped(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one of torch's transforms of functions, such as vmap."""
    functorch: Any = getattr(torch._C, "_functorch")  # noqa: B009 (torch's stubs do not know it)
    return functorch.is_functorch_wrapped_tensor(tensor)


def _is_row_major(value: torch.Tensor) -> bool:
    """Whether strides are those of a new tensor. Contiguous tensors may have any along axes of one element, or where
    there are no elements: those of an expanded number are 0."""
    if not value.is_contiguous():
        return False
    return value.stride() == tuple(
        math.prod(max(size, 1) for size in value.shape[axis + 1 :]) for axis in range(value.dim())
    )


def _laid_out(value: torch.Tensor, order: tuple[int, ...] | None) -> torch.Tensor:
    """A copy, row-major or in an order of strides."""
    if order is None:
        return value.clone(memory_format=torch.contiguous_format)
    by_stride = sorted(range(len(order)), key=lambda axis: -order[axis])
    inverse = sorted(range(len(order)), key=lambda position: by_stride[position])
    return value.permute(by_stride).clone(memory_format=torch.contiguous_format).permute(inverse)


def _check_type(node: Node, result: Value, binding: Binding) -> None:
    """The type rule and torch must agree: where they do not, ingot is wrong and must say so rather than go on."""
    if not isinstance(node.type, TensorType) or not isinstance(result, torch.Tensor):
        return
    shape = tuple(sizes.evaluate(size, binding.sizes) for size in node.type.shape)
    if tuple(result.shape) != shape or result.dtype is not to_torch(node.type.dtype):
        found = f"{result.dtype} {list(result.shape)}"
        raise ExecutionError(f"{node.op.name} should give {node.type}, but PyTorch gave {found}")


_FREE = frozenset({Kind.VIEW, Kind.STRUCTURE})


def _count(node: Node, operands: list[Value], result: Value, tally: Tally, seconds: float | None) -> None:
    is_free = node.op.kind in _FREE or isinstance(node.type, ScalarType)
    launches, moved = (0, 0) if is_free else (1, bytes_of([*operands, result]))
    tally.launches += launches
    tally.bytes_moved += moved
    if seconds is not None:
        tally.spend(node.op.name, launches, moved, seconds)


def bytes_of(values: Iterable[Any]) -> int:
    """The bytes of all tensors among values, and of those in lists and tuples among them."""
    total = 0
    for value in values:
        if isinstance(value, torch.Tensor):
            total += value.numel() * value.element_size()
        elif isinstance(value, list | tuple):
            total += bytes_of(value)
    return total


def clock(device: torch.device) -> float:
    """Seconds since some moment, when all that a device was given to do is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def free_after(
    graph: Graph, reads: Sequence[Sequence[Node]], makes: Sequence[Sequence[Node]]
) -> list[tuple[Node, ...]]:
    """Per step, given what each reads and makes, the values that nothing needs after it."""
    kept = {output.node for output in graph.outputs}
    last_use: dict[Node, int] = {}
    for step, values in enumerate(zip(reads, makes, strict=True)):
        for value in (*values[0], *values[1]):
            if value.constant is None:
                last_use[value] = step
    frees: list[list[Node]] = [[] for _ in reads]
    for value, step in last_use.items():
        if value not in kept:
            frees[step].append(value)
    return [tuple(step) for step in frees]


def evaluate_scalar(node: Node) -> bool | int | float:
    """The value of an operation on constants, exactly as a run would compute it."""
    with torch.no_grad():
        value = Interpreter(Graph((), (), ()))._step(node, {}, Binding({}, torch.device("cpu")), None, False)
    assert isinstance(value, bool | int | float)
    return value
