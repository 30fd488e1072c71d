"""How a record answers calls: with the kernels of a program that is one region, with the program, or with the original.

In: a specialisation and a call that it has answered. Out: what the launcher needs to answer calls like it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ingot.base import sizes
from ingot.base.errors import IngotError
from ingot.base.sizes import SizeExpression
from ingot.frontend.jit.arguments.call_key import CallKey
from ingot.frontend.jit.cache.shape_families import Generalised
from ingot.frontend.jit.cache.specialisation import Specialisation
from ingot.frontend.jit.gradients.answering import Call, answer
from ingot.frontend.jit.lowering.branches import UnseenAnswer
from ingot.frontend.jit.lowering.partition import Region
from ingot.frontend.jit.lowering.recorded_program import RecordedProgram, ShapeMismatch
from ingot.frontend.jit.lowering.regions import build_region
from ingot.frontend.jit.trace.trace import EnvironmentTensor, TraceArgument, TraceValue, Variable, stride_order
from ingot.runtime.native.dispatch.call_records import (
    DECLINED,
    CallFunction,
    RunKernels,
    TensorArgument,
    VariableArgument,
)
from ingot.runtime.native.launch.record_structs import Convention
from ingot.runtime.native.launch.records import NumberGuard


def variables_of(general: Generalised) -> Sequence[int]:
    """The leaves that are numbers which stay open, in the order in which the program takes them."""
    return list(general.unified.variables)


def run_kernels(
    found: Specialisation,
    program: RecordedProgram,
    described: CallKey,
    general: Generalised | None,
    variables: dict[int, VariableArgument],
) -> RunKernels | None:
    """The kernels of a program that is one region, whose results are what the function returns."""
    convention = _convention(found, program)
    if convention is None:
        return None
    (region,) = program.steps.steps
    assert isinstance(region, Region) and found.trace is not None
    if not all(isinstance(version.note.origin, TraceArgument | EnvironmentTensor) for version in region.inputs):
        return None
    sources, inputs = _sources(region, program, found.trace.environment_tensors, described, general)
    if not region.names_device or any(version.note.device != region.device for version in region.inputs):
        return None  # a record's inputs are all on the device where it runs
    record = program.modules[0].record_for(inputs)
    if record is None:
        return None
    for (leaf, _), guard in zip(sources, record.guards, strict=True):
        if isinstance(guard, NumberGuard) and leaf is not None:
            known = variables[leaf].guard
            bounds = max(known.lowest, guard.lowest), min(known.highest, guard.highest)
            variables[leaf] = VariableArgument(leaf, NumberGuard(guard.type, *bounds))
    return RunKernels(record, tuple(sources), convention)


def _convention(found: Specialisation, program: RecordedProgram) -> Convention | None:
    """How results are returned, if they are those of a program's only region as they come."""
    shape, results = found.result_shape, program.steps.versions.trace.results
    if not program.is_single_region or not isinstance(program.steps.steps[0], Region) or shape is None:
        return None
    if found.repeated:
        return None
    if results == [None] and shape.kind is None and not program.steps.steps[0].outputs:
        return Convention.NOTHING
    versions, homes = program.steps.versions, program.steps.homes
    outputs = [homes.get(version, version) for version in program.steps.steps[0].outputs]
    if not all(isinstance(value, TraceValue) for value in results) or any(stride_order(one.note) for one in outputs):
        return None
    current = [versions.current[register] for register in results]
    if [homes.get(version, version) for version in current] != outputs:
        return None
    if shape.kind is None:
        return Convention.POSITIONAL
    is_plain = shape.kind in (list, tuple) and all(part.kind is None for part in shape.parts)
    return (Convention.LIST if shape.kind is list else Convention.TUPLE) if is_plain else None


def _sources(
    region: Region,
    program: RecordedProgram,
    environment_tensors: Sequence[torch.Tensor],
    described: CallKey,
    general: Generalised | None,
) -> tuple[list[tuple[int | None, int]], list[Any]]:
    """For each input of a region its leaf, or None and a number; and what it is in this call."""
    symbols = program.steps.versions.trace.symbols
    leaves = [leaf for leaf, value in enumerate(described.leaves) if isinstance(value, torch.Tensor)]
    sources: list[tuple[int | None, int]] = []
    inputs: list[Any] = []
    for version in region.inputs:
        origin = version.note.origin
        assert isinstance(origin, TraceArgument | EnvironmentTensor)
        is_argument = isinstance(origin, TraceArgument)
        sources.append((leaves[origin.position] if is_argument else len(described.leaves) + origin.position, 0))
        inputs.append((described.tensors if is_argument else environment_tensors)[origin.position])
    is_open = len(program.modules[0].graph.inputs) > len(inputs)
    for number in build_region(region, program.steps.versions.numerics).numbers if is_open else ():
        if isinstance(number, Variable):
            assert general is not None
            leaf = variables_of(general)[number.position]
            sources.append((leaf, 0))
            inputs.append(described.leaves[leaf])
        else:
            bound = {name: described.tensors[which].shape[axis] for name, (which, axis) in symbols.items()}
            value = sizes.evaluate(number, bound) if isinstance(number, SizeExpression) else number
            sources.append((None, value))
            inputs.append(value)
    return sources, inputs


def call_gradients(found: Specialisation, function: Callable[..., Any], described: CallKey) -> CallFunction:
    """A call of the two programs of calls that need gradients."""
    shape = described.shape
    places = [leaf for leaf, value in enumerate(described.leaves) if isinstance(value, torch.Tensor)]

    def run(leaves: tuple[Any, ...]) -> Any:
        tensors = [leaves[place] for place in places]
        try:
            path = found.path_of(tensors)
        except UnseenAnswer:
            found.note_unseen()
            return DECLINED
        except IngotError:
            return DECLINED  # Python repeats the call, meets the error again and handles it
        gradients = path.gradients
        assert gradients is not None
        if gradients.refused is not None and path is found:
            return DECLINED
        if gradients.written and path.shares_memory_anew(tensors):
            return DECLINED
        return answer(gradients, Call(function, shape, leaves, tensors))

    return CallFunction(run, tuple(range(len(described.leaves))))


def call_program(
    found: Specialisation, program: RecordedProgram, tensors: Sequence[TensorArgument], general: Generalised | None
) -> CallFunction:
    """A call of the program, with what has to be done around it."""
    trace, build, function, count = found.trace, found.build_result, program.function, len(tensors)
    assert trace is not None and build is not None
    mutates = program.mutates_leaves
    has_effects, environment_tensors = program.has_effects, trace.environment_tensors
    errors = IngotError if general is None else (IngotError, ShapeMismatch, RuntimeError, ValueError, TypeError)

    def run(leaves: tuple[Any, ...]) -> Any:
        given = leaves[:count]
        if mutates and found.shares_memory_anew(given):
            return DECLINED
        try:
            results = function(given, environment_tensors, leaves[count:])
        except UnseenAnswer:
            found.note_unseen()
            return DECLINED
        except errors:
            if has_effects:
                raise
            return DECLINED  # Python repeats the call, meets the error again and handles it
        return build(results)

    return CallFunction(run, (*(one.leaf for one in tensors), *(() if general is None else variables_of(general))))
