"""Recordings on disk: written once an audit has confirmed them, and taken up by the first call of a later process.

In: a specialisation of this process; or a call that nothing is recorded for. Out: an entry of the disk cache; or a
specialisation that is bound to the objects of this process. What always holds: a specialisation that is given out is
what recording the call and proving it would give; where that is not certain, nothing is.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from typing import Any

import torch

from ingot.base.errors import InternalError
from ingot.base.logs import log
from ingot.frontend.jit.arguments.call_key import CallKey
from ingot.frontend.jit.arguments.supported_tensors import refused_tensor
from ingot.frontend.jit.cache.audits import Audits
from ingot.frontend.jit.cache.specialisation import Specialisation
from ingot.frontend.jit.guards.environment import Environment
from ingot.frontend.jit.guards.proven import ProvenGuards
from ingot.frontend.jit.kept.anatomy import NotPortable
from ingot.frontend.jit.kept.call_identity import call_identity
from ingot.frontend.jit.kept.places import read_places, write_places
from ingot.frontend.jit.kept.references import Mismatch, Numbering, ObjectBinding
from ingot.frontend.jit.kept.traces import read_shape, read_trace, write_shape, write_trace
from ingot.frontend.jit.lowering.faults import reporting_faults
from ingot.frontend.jit.proof import Proof, SizeFacts
from ingot.frontend.jit.proof.domain.open_sizes import SizeGuard, SizeRead
from ingot.frontend.jit.settings.options import Options
from ingot.frontend.jit.trace.trace import EnvironmentTensor, Trace, TraceArgument
from ingot.ir.parser import parse_size
from ingot.runtime.disk_cache.process import find_recording, keep_recording, machine
from ingot.runtime.overlaps import NumberedMemory, addresses_of, are_joined

FIRST_AUDIT = 16
"""The first call of a process that is audited, where a recording was kept by another: that one has audited it."""


def keep(function: Any, name: str, options: Options, described: CallKey, state: Hashable, made: Specialisation) -> None:
    """Keep a recording for later processes, if it can be kept."""
    try:
        key = call_identity(function, described, state, options)
        content = write_recording(function, made)
    except InternalError:  # a warning has told of it
        return
    except NotPortable as error:
        log("cache", f"{name}: its recording is not kept: {error}")
        return
    content["settled"] = _conditions()
    owner = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', name)}"
    keep_recording(key, name, owner, json.dumps(content).encode())


def find(function: Any, name: str, options: Options, described: CallKey, state: Hashable) -> Specialisation | None:
    """What another process has recorded for a call like this, if it holds here."""
    try:
        payload = find_recording(call_identity(function, described, state, options))
        return None if payload is None else _taken_up(payload, function, described)
    except (NotPortable, InternalError):  # such a call is never kept; a warning has told of a mistake
        return None
    except Mismatch:
        log("cache", f"{name}: a recording of another process does not hold here")
        return None


@reporting_faults
def _taken_up(payload: bytes, function: Any, described: CallKey) -> Specialisation:
    content = json.loads(payload)
    made = read_recording(content, function, described)
    if content["settled"] == _conditions():
        made.eager_comparison.rounds = 0
    return made


def _conditions() -> list[Any]:
    """What decides whether compiled code is quicker than eager, besides the call: measured under others, it is
    measured again."""
    return [machine(), torch.get_num_threads()]


@reporting_faults
def write_recording(function: Any, made: Specialisation) -> dict[str, Any]:
    """A recording as plain data."""
    trace, guards = made.trace, made.environment.guards
    if made.changes is not None:
        raise NotPortable("it is given objects with state")
    if trace is None or made.result_shape is None or not isinstance(guards, ProvenGuards) or made.objects:
        raise NotPortable("nothing that is proven stands in for Python")
    if guards.proof.arguments or guards.proof.returned or made.gradients is not None or made.needs_gradients:
        raise NotPortable("it depends on objects among the arguments, or needs gradients")
    if guards.proof.goes_through_sets:
        raise NotPortable("it goes through a set, whose order is another one in another process")
    numbering = Numbering()
    return {
        "function": numbering.reference(function),
        "places": write_places(guards.proof.guards, numbering),
        "environment": [_write_environment(tensor, made, numbering) for tensor in trace.environment_tensors],
        "absent": [[list(path), name] for path, name in guards.proof.absent],
        "shape": write_shape(made.result_shape, numbering),
        "trace": write_trace(trace),
        "sizes": None if made.sizes is None else _write_sizes(made.sizes),
        "called": [] if made.program is None else sorted(made.program.called),
        "looked_at": sorted(made.looked_at),
        "passed": made.passed,
    }


def _write_environment(tensor: torch.Tensor, made: Specialisation, numbering: Numbering) -> list[Any]:
    if not numbering.knows(tensor):
        raise NotPortable("a tensor is used that no guard leads to")
    if tensor.is_inference():
        raise NotPortable("a tensor was made in inference mode")
    return [numbering.number(tensor), tensor.requires_grad, made.environment.names.get(id(tensor), "")]


def read_recording(content: dict[str, Any], function: Any, described: CallKey) -> Specialisation:
    """A recording over the objects of this process; a `Mismatch` if it does not hold here."""
    binding = ObjectBinding()
    binding.bind(content["function"], function)
    guards = read_places(content["places"], binding)
    tensors = [binding[number] for number, _, _ in content["environment"]]
    trace = read_trace(content["trace"], tensors)
    _check_environment(trace, [needs for _, needs, _ in content["environment"]])
    _check_memory(trace, described.tensors)
    sizes = None if content["sizes"] is None else _read_sizes(content["sizes"])
    absent = [(tuple(path), name) for path, name in content["absent"]]
    environment = Environment(guards=ProvenGuards(proof=Proof(guards, [], absent, [], sizes)))
    for tensor, (_, _, name) in zip(tensors, content["environment"], strict=True):
        environment.tensors[id(tensor)] = environment.seen[id(tensor)] = tensor
        environment.names[id(tensor)] = name
    made = Specialisation(environment, [], trace=trace, passed=content["passed"])
    made.note_results(read_shape(content["shape"], binding))
    made.sizes, made.looked_at = sizes, frozenset(content["looked_at"])
    made.audits = Audits(due=FIRST_AUDIT)
    made.is_kept = made.is_taken_up = True
    made.called = frozenset(content["called"])
    return made


def _check_environment(trace: Trace, requires_grad: Sequence[bool]) -> None:
    """Whether the tensors around the function are like those that were recorded."""
    for note in trace.tensors:
        if isinstance(note.origin, EnvironmentTensor):
            tensor: torch.Tensor = trace.environment_tensors[note.origin.position]
            if refused_tensor(tensor) is not None or tensor.is_inference():
                raise Mismatch
            found = (tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.device, tensor.requires_grad)
            if found != (note.dtype, note.shape, note.strides, note.device, requires_grad[note.origin.position]):
                raise Mismatch


def _check_memory(trace: Trace, passed: Sequence[torch.Tensor]) -> None:
    """Whether tensors that exist before the call share memory where they did, and nowhere else."""
    memories = []
    for note in trace.tensors:
        if isinstance(note.origin, TraceArgument | EnvironmentTensor) and note.nbytes:
            found = passed if isinstance(note.origin, TraceArgument) else trace.environment_tensors
            memories.append((addresses_of(found[note.origin.position]), note.storage))
    apart, pieces = NumberedMemory(), set[int]()
    for position, (memory, _) in enumerate(memories):
        number, joined = apart.number(memory, position)
        pieces = pieces - joined | {number}
    if are_joined(memories) or len(pieces) != len({number for _, number in memories}):
        raise Mismatch


def _write_sizes(facts: SizeFacts) -> list[Any]:
    guards = [[str(one.size), one.lowest, one.highest] for one in facts.guards]
    return [[[read.name, read.shape] for read in facts.reads], guards, [str(size) for size in facts.handed]]


def _read_sizes(told: list[Any]) -> SizeFacts:
    reads, guards, handed = told
    return SizeFacts(
        tuple([SizeRead(name, tuple(shape)) for name, shape in reads]),
        tuple([SizeGuard(parse_size(size), lowest, highest) for size, lowest, highest in guards]),
        tuple(map(parse_size, handed)),
    )
