"""Recorded operations as plain data, and back.

In: a trace whose environment's tensors have numbers. Out: lists and texts, as JSON has them; read back, the same
trace over the tensors of this process. What always holds: everything in a trace is either written or a reason not to
keep it. Unlike the traces of bundles, these come from a directory that no one else can write to: what kernels rely
on, such as strides and shared memory, is part of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

from ingot.frontend.jit.arguments.structure import LEAF, Context, Fields, Registered, Shape
from ingot.frontend.jit.kept.anatomy import NotPortable
from ingot.frontend.jit.kept.references import (
    Mismatch,
    Numbering,
    ObjectBinding,
    Reference,
    plain_reference,
    read_plain,
)
from ingot.frontend.jit.trace.trace import (
    EnvironmentTensor,
    Made,
    SizeQuery,
    SliceBounds,
    TensorMeta,
    Trace,
    TraceArgument,
    TraceOp,
    TraceValue,
)

_ORIGINS = {TraceArgument: "argument", EnvironmentTensor: "environment", Made: "made"}
_FLAGS = ("reads_sizes", "has_unseen_queries", "reads_constants", "casts")


def write_trace(trace: Trace) -> dict[str, Any]:
    """A trace as data. Its environment's tensors are told apart by their position alone."""
    if trace.questions or trace.training is not None or trace.symbols:
        raise NotPortable("it decides by values, trains, or holds for several sizes")
    return {
        "tensors": [_write_tensor(note) for note in trace.tensors],
        "operations": [_write_operation(event) for event in trace.events],
        "results": [_write_value(value) for value in trace.results],
        "queries": [[query.name, query.register.index] for query in trace.size_queries],
        "slices": [[one.register.index, one.axis, one.start, one.stop] for one in trace.slices],
        **{name: getattr(trace, name) for name in _FLAGS},
    }


def read_trace(told: dict[str, Any], environment_tensors: Sequence[torch.Tensor]) -> Trace:
    return Trace(
        tensors=[_read_tensor(one) for one in told["tensors"]],
        events=[_read_operation(one) for one in told["operations"]],
        results=[_read_value(one) for one in told["results"]],
        environment_tensors=list(environment_tensors),
        size_queries=[SizeQuery(name, TraceValue(index)) for name, index in told["queries"]],
        slices=[SliceBounds(TraceValue(index), *bounds) for index, *bounds in told["slices"]],
        **{name: told[name] for name in _FLAGS},
    )


# --- tensors and operations -------------------------------------------------------------------------------------------


def _write_tensor(note: TensorMeta) -> list[Any]:
    if type(note.origin) not in _ORIGINS or note.open_sizes is not None:
        raise NotPortable("it holds for several sizes, or uses gradients")
    number = note.origin.event if isinstance(note.origin, Made) else note.origin.position
    if note.device.type != "cpu":  # what PyTorch does on a GPU depends on the GPU
        raise NotPortable("it computes on a GPU")
    return [_ORIGINS[type(note.origin)], number, str(note.dtype), note.shape, note.strides, note.storage]


def _read_tensor(told: list[Any]) -> TensorMeta:
    kind, number, dtype, shape, strides, storage = told
    return TensorMeta(_BY_ORIGIN[kind](number), _dtype(dtype), tuple(shape), tuple(strides), storage)


_BY_ORIGIN: dict[str, Callable[[int], Any]] = {name: cls for cls, name in _ORIGINS.items()}


@cache
def _dtype(name: str) -> torch.dtype:
    return getattr(torch, name.removeprefix("torch."))


def _write_operation(event: TraceOp) -> list[Any]:
    if operator(str(event.target)) is not event.target:
        raise NotPortable(f"{event.target} is not found by its name")
    keywords = {name: _write_value(value) for name, value in event.keywords.items()}
    arguments = [_write_value(value) for value in event.arguments]
    return [str(event.target), arguments, keywords, _write_value(event.results), event.place, sorted(event.numbers)]


def _read_operation(told: list[Any]) -> TraceOp:
    name, arguments, keywords, results, place, numbers = told
    return TraceOp(
        operator(name),
        tuple([_read_value(value) for value in arguments]),
        {name: _read_value(value) for name, value in keywords.items()},
        _read_value(results),
        place,
        frozenset(numbers),
    )


@cache
def operator(name: str) -> torch._ops.OpOverload:
    """The operator of PyTorch's with a name such as aten.add.Tensor."""
    found: Any = torch.ops
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise NotPortable(f"there is no operator {name}") from None
    return found


def _plain(value: Any) -> Reference:
    found = plain_reference(value)
    if found is None or found[0] in "aeuhkr":
        raise NotPortable(f"a value of the type {type(value).__name__} is not kept")
    return found


def _write_value(value: Any) -> Any:
    """An argument or a result: a number of a register, or a list that says what it is."""
    if type(value) is TraceValue:
        return value.index
    if type(value) is list:
        return ["list", [_write_value(one) for one in value]]
    if type(value) is tuple:
        return ["tuple", [_write_value(one) for one in value]]
    return _plain(value)


def _read_value(told: Any) -> Any:
    if type(told) is int:
        return TraceValue(told)
    if told[0] == "list":
        return [_read_value(one) for one in told[1]]
    if told[0] == "tuple":
        return tuple([_read_value(one) for one in told[1]])
    return read_plain(told)


# --- how results are nested -------------------------------------------------------------------------------------------


def write_shape(shape: Shape, numbering: Numbering) -> list[Any]:
    """How results are nested. Their classes are objects that the proof has read."""
    if shape.kind is None:
        return ["leaf"]
    kind, cls, context = "plain", shape.kind, shape.context
    if isinstance(cls, Registered | Fields):
        kind, cls = ("registered" if isinstance(cls, Registered) else "fields"), cls.type
    context = _write_context(context.value if isinstance(context, Context) else context, numbering)
    return [kind, numbering.reference(cls), context, [write_shape(part, numbering) for part in shape.parts]]


def read_shape(told: list[Any], binding: ObjectBinding) -> Shape:
    if told[0] == "leaf":
        return LEAF
    kind, reference, context, parts = told
    if len(reference) == 5:
        binding.bind_named(reference)
    cls, around = binding.value(reference), _read_context(context, binding)
    if kind != "plain":
        cls = Registered(cls) if kind == "registered" else Fields(cls)
    around = Context(around) if kind == "registered" else around
    return Shape(cls, around, tuple([read_shape(part, binding) for part in parts]))


def _write_context(value: Any, numbering: Numbering) -> list[Any]:
    """What a container knows besides its parts: names, mostly."""
    if type(value) in (list, tuple):
        return [type(value).__name__, [_write_context(one, numbering) for one in value]]
    if isinstance(value, type):
        return ["class", numbering.reference(value)]
    return ["plain", _plain(value)]


def _read_context(told: list[Any], binding: ObjectBinding) -> Any:
    kind, inner = told
    if kind in ("list", "tuple"):
        read = [_read_context(one, binding) for one in inner]
        return read if kind == "list" else tuple(read)
    if kind == "class":
        if len(inner) == 5:
            binding.bind_named(inner)
        return binding.value(inner)
    if kind != "plain":
        raise Mismatch
    return read_plain(inner)
