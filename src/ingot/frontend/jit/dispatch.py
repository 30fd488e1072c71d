"""From a call that was answered in Python to a record with which machine code answers calls like it.

In: the arguments of a call, the specialisation that answered it and its watch. Out: a record in the table of the
compiled function, or none where a part of the call needs Python: nested arguments, places that cannot be read natively.
A record stands for exactly the calls that its specialisation would be found for; every other call takes the way through
Python, which needs no records.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch.autograd import forward_ad

from ingot.base import sizes
from ingot.base.errors import IngotError
from ingot.base.sizes import SizeExpression
from ingot.frontend.jit.arguments import Described
from ingot.frontend.jit.families import General
from ingot.frontend.jit.planning import Region
from ingot.frontend.jit.program import Program, Unforeseen
from ingot.frontend.jit.regions import build_region
from ingot.frontend.jit.specialisation import Specialisation
from ingot.frontend.jit.structure import Shape
from ingot.frontend.jit.tape import Argument, Register, Surrounding, Variable, stride_order
from ingot.frontend.jit.watch import NOTHING, Items, Watch, contents
from ingot.runtime.native.call_records import (
    DECLINED,
    Arguments,
    CallFunction,
    CallRecord,
    Count,
    OtherArgument,
    RunKernels,
    TensorArgument,
    VariableArgument,
    can_hold,
)
from ingot.runtime.native.callables import Convention
from ingot.runtime.native.conditions import Places
from ingot.runtime.native.dispatch import Dispatched, Dispatcher, DispatchTable, dispatcher
from ingot.runtime.native.records import NumberGuard, TensorGuard

MOST_ATTEMPTS = 4
"""Records that are made for one kind of call; objects that are new at every call would need one each time."""
_MOST_KINDS = 1024
"""Kinds of calls whose attempts are counted."""


@dataclass(slots=True)
class _Answered:
    """What records do for one specialisation."""

    specialisation: Specialisation
    calls: Count = field(default_factory=Count)
    attempts: dict[Hashable, int] = field(default_factory=dict)
    """How many records were made, by kind of call."""

    def may_try(self, key: Hashable) -> bool:
        """Whether to make another record for a kind of call; if so, that is counted."""
        made = self.attempts.get(key, 0)
        if made >= MOST_ATTEMPTS or (made == 0 and len(self.attempts) >= _MOST_KINDS):
            return False
        self.attempts[key] = made + 1
        return True


class NativeCalls:
    """The records of one compiled function. Threads may share it."""

    def __init__(self, owner: Dispatched, function: Callable[..., Any]):
        """`function` is the original, which calls are handed to that cannot be compiled."""
        self._owner = weakref.ref(owner)
        self._function = function
        self._table: DispatchTable | None = None
        self._answered: dict[int, _Answered] = {}
        """By the identity of the specialisation."""
        self._earlier = 0
        """Calls answered by records that are gone."""
        self._lock = threading.RLock()

    def belong_to(self, owner: Dispatched) -> None:
        """Answer calls of another object, which has been called in none of the recorded ways yet."""
        self._owner = weakref.ref(owner)

    @property
    def total(self) -> int:
        """How many calls records have answered."""
        with self._lock:
            return self._earlier + sum(one.calls.value for one in self._answered.values())

    def of(self, found: Specialisation) -> int:
        """How many of them for one specialisation."""
        answered = self._answered.get(id(found))
        return 0 if answered is None else answered.calls.value

    def add(
        self,
        key: Hashable,
        found: Specialisation,
        described: Described,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        general: General | None = None,
    ) -> None:
        """Answer calls like this one, which a specialisation has just answered, with a record from now on."""
        owner, native = self._owner(), dispatcher()
        if owner is None or native is None:
            return
        with self._lock:
            answered = self._answered.setdefault(id(found), _Answered(found))
            if not answered.may_try(key):
                return
            record = _record(native, key, found, self._function, described, args, kwargs, general, answered.calls)
            if record is None:
                answered.attempts[key] = MOST_ATTEMPTS
                return
            if self._table is None:
                self._table = native.attach(owner)
            self._table.remove(lambda known: known.owner is found and known.key == key)
            self._table.put(record)

    def drop(self, found: Specialisation) -> None:
        """Forget the records of a specialisation."""
        with self._lock:
            if self._table is not None:
                self._table.remove(lambda known: known.owner is found)
            answered = self._answered.pop(id(found), None)
            self._earlier += 0 if answered is None else answered.calls.value

    def forget(self) -> None:
        """Be as if no call had ever been answered."""
        with self._lock:
            for answered in list(self._answered.values()):
                self.drop(answered.specialisation)
            self._earlier = 0


def _record(
    native: Dispatcher,
    key: Hashable,
    found: Specialisation,
    function: Callable[..., Any],
    described: Described,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    general: General | None,
    count: Count,
) -> CallRecord | None:
    settings, program = native.settings(), found.program
    surroundings = [] if found.tape is None else found.tape.surroundings
    if settings < 0 or not _is_flat(described.shape):
        return None
    places = _places(found.surroundings.watch)
    tensors = _tensor_arguments(described)
    guards = [one.guard for one in tensors] + [TensorGuard.like(tensor) for tensor in surroundings]
    if places is None or not can_hold(guards, len(described.leaves) + len(surroundings)):
        return None
    if any(type(tensor) not in (torch.Tensor, torch.nn.Parameter) for tensor in surroundings):
        return None
    variables = {} if general is None else {leaf: _variable(leaf, described, general) for leaf in _variables(general)}
    if program is None or found.tape is None:
        answer = _original(function, len(args), tuple(kwargs))
    else:
        answer = _kernels(found, program, described, general, variables) or _function(found, program, tensors, general)
    others = [
        variables.get(leaf, OtherArgument(leaf, value))
        for leaf, value in enumerate(described.leaves)
        if not isinstance(value, torch.Tensor)
    ]
    arguments = Arguments(len(args), tuple(kwargs), tuple(tensors), tuple(others))
    is_counted = torch.is_grad_enabled()
    return CallRecord(key, found, settings, is_counted, arguments, surroundings, places, answer, count)


# --- what must hold ---------------------------------------------------------------------------------------------------


def _is_flat(shape: Shape) -> bool:
    """Whether arguments are not nested, so that every leaf is an argument."""
    return all(argument.kind is None for part in shape.parts for argument in part.parts)


def _tensor_arguments(described: Described) -> list[TensorArgument]:
    found: list[TensorArgument] = []
    first: dict[int, int] = {}
    for leaf, value in enumerate(described.leaves):
        if isinstance(value, torch.Tensor):
            same = first.setdefault(id(value), leaf)
            found.append(TensorArgument(leaf, same, type(value), TensorGuard.like(value, is_strict=True)))
    return found


def _variables(general: General) -> Sequence[int]:
    """The leaves that are numbers which stay open, in the order in which the program takes them."""
    return list(general.unified.variables)


def _variable(leaf: int, described: Described, general: General) -> VariableArgument:
    value = described.leaves[leaf]
    return VariableArgument(leaf, NumberGuard(float) if isinstance(value, float) else NumberGuard(int, *general.range))


def _places(watch: Watch) -> Places | None:
    """Everything a watch looks at, and what `is_off` asks of Python; None if some of it cannot be read natively."""
    found = Places()
    for module, name, value in ((torch.compiler, "_is_compiling_flag", False), (forward_ad, "_current_level", -1)):
        if vars(module).get(name) is not value:
            return None
        found.dictionary_holds(vars(module), name, value)
    is_complete = not watch.copies
    for container, length, _ in watch.lengths:
        is_complete = is_complete and type(container).__len__ in (list.__len__, dict.__len__)
        found.has_length(container, length)
    for table, key, _, _ in watch.entries:
        is_complete = is_complete and _add_entry(found, table, key)
    for variable, _, _ in watch.contexts:
        found.context_holds(variable, NOTHING, variable.get(NOTHING))
    for cell, _, _ in watch.cells:
        content = contents(cell)
        if content is NOTHING:
            found.cell_is_empty(cell)
        else:
            found.cell_holds(cell, content)
    return found if is_complete else None


def _add_entry(places: Places, table: Any, key: Any) -> bool:
    """Add an entry of a table with what it holds now, if native code can read the table."""
    value = table.get(key, NOTHING)
    if type(table) is Items:
        places.list_holds(table.source, key, value)
        return type(table.source) is list
    if isinstance(table, MappingProxyType):
        (table,) = gc.get_referents(table)
    if not isinstance(table, dict) or type(table).get is not dict.get or type(key) not in (str, int):
        return False
    if value is NOTHING:
        places.dictionary_lacks(table, key)
    else:
        places.dictionary_holds(table, key, value)
    return True


# --- how to answer ----------------------------------------------------------------------------------------------------


def _kernels(
    found: Specialisation,
    program: Program,
    described: Described,
    general: General | None,
    variables: dict[int, VariableArgument],
) -> RunKernels | None:
    """The kernels of a program that is one region, whose results are what the function returns."""
    convention = _convention(found, program)
    if convention is None:
        return None
    (region,) = program.steps.steps
    assert isinstance(region, Region) and found.tape is not None
    if not all(isinstance(version.note.origin, Argument | Surrounding) for version in region.inputs):
        return None
    sources, inputs = _sources(region, program, found.tape.surroundings, described, general)
    record = program.modules[0].record_for(inputs)
    if record is None:
        return None
    for (leaf, _), guard in zip(sources, record.guards, strict=True):
        if isinstance(guard, NumberGuard) and leaf is not None:
            known = variables[leaf].guard
            bounds = max(known.lowest, guard.lowest), min(known.highest, guard.highest)
            variables[leaf] = VariableArgument(leaf, NumberGuard(guard.type, *bounds))
    return RunKernels(record, tuple(sources), convention)


def _convention(found: Specialisation, program: Program) -> Convention | None:
    """How results are returned, if they are those of a program's only region as they come."""
    shape, results = found.result_shape, program.steps.versions.tape.results
    if not program.is_single_region or not isinstance(program.steps.steps[0], Region) or shape is None:
        return None
    versions, homes = program.steps.versions, program.steps.homes
    outputs = [homes.get(version, version) for version in program.steps.steps[0].outputs]
    if not all(isinstance(value, Register) for value in results) or any(stride_order(one.note) for one in outputs):
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
    program: Program,
    surroundings: Sequence[torch.Tensor],
    described: Described,
    general: General | None,
) -> tuple[list[tuple[int | None, int]], list[Any]]:
    """For each input of a region its leaf, or None and a number; and what it is in this call."""
    symbols = program.steps.versions.tape.symbols
    leaves = [leaf for leaf, value in enumerate(described.leaves) if isinstance(value, torch.Tensor)]
    sources: list[tuple[int | None, int]] = []
    inputs: list[Any] = []
    for version in region.inputs:
        origin = version.note.origin
        assert isinstance(origin, Argument | Surrounding)
        is_argument = isinstance(origin, Argument)
        sources.append((leaves[origin.position] if is_argument else len(described.leaves) + origin.position, 0))
        inputs.append((described.tensors if is_argument else surroundings)[origin.position])
    is_open = len(program.modules[0].graph.inputs) > len(inputs)
    for number in build_region(region).numbers if is_open else ():
        if isinstance(number, Variable):
            assert general is not None
            leaf = _variables(general)[number.position]
            sources.append((leaf, 0))
            inputs.append(described.leaves[leaf])
        else:
            bound = {name: described.tensors[which].shape[axis] for name, (which, axis) in symbols.items()}
            value = sizes.evaluate(number, bound) if isinstance(number, SizeExpression) else number
            sources.append((None, value))
            inputs.append(value)
    return sources, inputs


def _function(
    found: Specialisation, program: Program, tensors: Sequence[TensorArgument], general: General | None
) -> CallFunction:
    """A call of the program, with what has to be done around it."""
    tape, build, function, count = found.tape, found.build_result, program.function, len(tensors)
    assert tape is not None and build is not None
    mutates, has_effects, surroundings = program.steps.versions.mutates_leaves, program.has_effects, tape.surroundings
    errors = IngotError if general is None else (IngotError, Unforeseen, RuntimeError, ValueError, TypeError)

    def run(leaves: tuple[Any, ...]) -> Any:
        given = leaves[:count]
        if mutates and found.shares_memory_anew(given):
            return DECLINED
        try:
            results = function(given, surroundings, leaves[count:])
        except errors:
            if has_effects:
                raise
            return DECLINED  # the way through Python meets the error again, and knows what to do
        return build(results)

    return CallFunction(run, (*(one.leaf for one in tensors), *(() if general is None else _variables(general))))


def _original(function: Callable[..., Any], positional: int, names: Sequence[str]) -> CallFunction:
    """A call of the function itself, for calls that cannot be compiled."""

    def run(leaves: tuple[Any, ...]) -> Any:
        return function(*leaves[:positional], **dict(zip(names, leaves[positional:], strict=True)))

    return CallFunction(run, tuple(range(positional + len(names))))
