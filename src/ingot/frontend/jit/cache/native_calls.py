"""From a call that was answered in Python to a record with which machine code answers calls like it.

In: the arguments of a call, the specialisation that answered it and its guards. Out: a record in the table of the
compiled function, or none where a part of the call needs Python: arguments that are nested deeply, places that cannot
be read natively.
A record stands for exactly the calls that its specialisation would be found for; every other call takes the way through
Python, which needs no records.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from ingot.base.forks import new_lock
from ingot.frontend.jit.arguments.call_key import CallKey, KeyedCall
from ingot.frontend.jit.arguments.structure import Shape
from ingot.frontend.jit.cache.executors import call_gradients, call_program, run_kernels, variables_of
from ingot.frontend.jit.cache.native_guards import places_of
from ingot.frontend.jit.cache.shape_families import Generalised
from ingot.frontend.jit.cache.specialisation import Specialisation
from ingot.runtime.native.dispatch.call_records import (
    ArgumentGuards,
    CallCounter,
    CallOriginal,
    CallRecord,
    OtherArgument,
    TensorArgument,
    VariableArgument,
    can_hold,
)
from ingot.runtime.native.dispatch.dispatcher import ANY_SETTINGS, Dispatcher, DispatchTable, NativeCallable, dispatcher
from ingot.runtime.native.launch.records import NumberGuard, TensorGuard

MOST_ATTEMPTS = 4
"""How many records are made for one kind of call before a rest: objects that are new at every call would need one each
time."""
_FIRST_REST = 64
"""How many calls of a kind get no record during a rest, four times as many at each next rest. What changed may be
stable afterwards."""
_MOST_COMPARED = 32
"""How many arguments a record compares that only says that the original is to be called."""
_MOST_KINDS = 1024
"""For how many kinds of calls attempts are counted."""


@dataclass(slots=True)
class _Attempts:
    """Records that were made for one kind of call, and did not last."""

    made: int = 0
    rest: float = _FIRST_REST
    calls: float = 0
    """How many calls get no record before another one is made."""

    def may_try(self) -> bool:
        if self.made >= MOST_ATTEMPTS:
            self.calls -= 1
            if self.calls > 0:
                return False
        self.made += 1
        if self.made >= MOST_ATTEMPTS:
            self.calls, self.rest = self.rest, 4 * self.rest
        return True

    def give_up(self) -> None:
        """No record can be made."""
        self.made, self.calls = MOST_ATTEMPTS, math.inf


@dataclass(slots=True)
class _Answered:
    """What records do for one specialisation."""

    specialisation: Specialisation
    calls: CallCounter = field(default_factory=CallCounter)
    attempts: dict[Hashable, _Attempts] = field(default_factory=dict)
    """Attempts by kind of call."""

    def may_try(self, key: Hashable) -> bool:
        """Whether to make another record for a kind of call; if so, that is counted."""
        if key not in self.attempts and len(self.attempts) >= _MOST_KINDS:
            return False
        return self.attempts.setdefault(key, _Attempts()).may_try()


class NativeCalls:
    """The records of one compiled function. Threads may share it."""

    def __init__(self, owner: NativeCallable, function: Callable[..., Any]):
        """`function` is the original; `otherwise` answers calls that have no recording."""
        self._owner = weakref.ref(owner)
        self._function = self.otherwise = function
        self.forbids_attributes = False
        """Whether tensors that are passed may have no attributes of their own, which code may look for."""
        self._table: DispatchTable | None = None
        self._answered: dict[int, _Answered] = {}
        """What records do, by the identity of the specialisation."""
        self._earlier = 0
        """Calls answered by records that are gone."""
        self._is_closed = False
        self._lock = new_lock()

    def belong_to(self, owner: NativeCallable) -> None:
        """Answer calls of another object, for which no records exist yet."""
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

    def add(self, call: KeyedCall, found: Specialisation, general: Generalised | None = None) -> bool:
        """Answer calls like this one, which a specialisation has just answered, with a record from now on; whether that
        can be done."""
        owner, native = self._owner(), dispatcher()
        if owner is None or native is None or call.described.given is not None:
            return False
        if found.standing_in is None and len(call.described.leaves) > _MOST_COMPARED:
            return False  # the original may be called without comparing anything
        with self._lock:
            if self._is_closed:
                return False
            if found.audits is not None and found.audits.is_put_off:
                found.audits.is_put_off = False
                return True  # the record exists, and has left this call to Python although there was nothing to do
            answered = self._answered.setdefault(id(found), _Answered(found))
            if not answered.may_try(call.key):
                return False
            original = self._function if found.prefers_eager or found.leaves_gradients else self.otherwise
            counted, forbids = answered.calls, self.forbids_attributes
            record = _record(native, call, found, original, general, counted, forbids)
            if record is None:
                answered.attempts[call.key].give_up()
                return False
            if self._table is None:
                self._table = native.attach(owner)
            self._table.remove(lambda known: known.owner is found and known.key == call.key)
            self._table.put(record)
            self.pause(found)
            return True

    def pause(self, found: Specialisation) -> None:
        """Have native code leave the next call of a specialisation that is to be audited, or recorded again, to
        Python."""
        answered = self._answered.get(id(found))
        if answered is None:
            return
        if found.audits is not None and found.standing_in is not None:
            answered.calls.pause_at(found.audits.due - found.calls - 1)
        elif found.calls_until_another < math.inf:
            answered.calls.pause_at(int(found.calls_until_another) - found.calls)

    def hand_on(self, target: Callable[..., Any], calls: int, settings: int = ANY_SETTINGS) -> None:
        """Give the next calls that no record answers to a function as they are."""
        owner, native = self._owner(), dispatcher()
        if owner is None or native is None:
            return
        with self._lock:
            if self._table is None:
                self._table = native.attach(owner)
            self._table.forward(target, settings, calls)

    def look_again(self) -> None:
        """Hand no calls on."""
        with self._lock:
            if self._table is not None:
                self._table.stop_forwarding()

    @property
    def to_be_handed_on(self) -> int:
        """How many more calls are handed on."""
        return 0 if self._table is None else self._table.remaining

    @staticmethod
    def settings() -> int:
        """torch's settings in one word."""
        native = dispatcher()
        return ANY_SETTINGS if native is None else native.settings()

    def drop(self, found: Specialisation) -> None:
        """Forget the records of a specialisation."""
        with self._lock:
            if self._table is not None:
                self._table.remove(lambda known: known.owner is found)
            answered = self._answered.pop(id(found), None)
            self._earlier += 0 if answered is None else answered.calls.value

    def close(self) -> None:
        """Answer no calls any more, and take no new records."""
        with self._lock:
            self._is_closed = True
            for answered in list(self._answered.values()):
                self.drop(answered.specialisation)

    def forget(self) -> None:
        """Be as if no call had ever been answered."""
        with self._lock:
            self.close()
            self._is_closed = False
            self._earlier = 0
            self.look_again()


def _record(
    native: Dispatcher,
    call: KeyedCall,
    found: Specialisation,
    function: Callable[..., Any],
    general: Generalised | None,
    count: CallCounter,
    forbids_attributes: bool,
) -> CallRecord | None:
    described, settings, program = call.described, native.settings(), found.program
    environment_tensors = [] if found.standing_in is None else found.standing_in.environment_tensors
    nesting = _nesting(described.shape)
    if settings < 0 or nesting is None:
        return None
    places = places_of(found.environment.guards)
    tensors = _tensor_arguments(described)
    guards = [one.guard for one in tensors] + [TensorGuard.like(tensor) for tensor in environment_tensors]
    if places is None or not can_hold(guards, len(described.leaves) + len(environment_tensors)):
        return None
    if any(type(tensor) not in (torch.Tensor, torch.nn.Parameter) for tensor in environment_tensors):
        return None
    variables = {} if general is None else {leaf: _variable(leaf, described, general) for leaf in variables_of(general)}
    if found.is_differentiated:
        answer = call_gradients(found, function, described)
    elif program is None or found.trace is None:
        answer = CallOriginal(function)
    else:
        answer = run_kernels(found, program, described, general, variables) or call_program(
            found, program, tensors, general
        )
    others = [
        variables.get(leaf, OtherArgument(leaf, value))
        for leaf, value in enumerate(described.leaves)
        if not isinstance(value, torch.Tensor)
    ]
    keys = tuple(_keys(described.shape))
    arguments = ArgumentGuards(len(call.args), tuple(call.kwargs), tuple(tensors), tuple(others), nesting, keys)
    is_counted = torch.is_grad_enabled()
    return CallRecord(
        call.key, found, settings, is_counted, arguments, environment_tensors, places, answer, count, forbids_attributes
    )


# --- what must hold ---------------------------------------------------------------------------------------------------


def _nesting(shape: Shape) -> tuple[tuple[type | None, int], ...] | None:
    """How arguments are nested: which of them are lists, tuples or dictionaries of leaves. None if there is more to
    it."""
    arguments = _arguments(shape)
    if not all(one.kind in (None, list, tuple, dict) and _is_flat(one) for one in arguments):
        return None
    if any(one.kind is dict and not all(type(key) is str for key in one.context) for one in arguments):
        return None
    return tuple((one.kind, 1 if one.kind is None else len(one.parts)) for one in arguments)


def _keys(shape: Shape) -> Iterator[str | None]:
    """For each leaf of arguments that are nested so the key by which a dictionary has it; None if none has it."""
    for one in _arguments(shape):
        if one.kind is dict:
            yield from one.context
        else:
            yield from [None] * (1 if one.kind is None else len(one.parts))


def _arguments(shape: Shape) -> list[Shape]:
    return [argument for part in shape.parts for argument in part.parts]


def _is_flat(shape: Shape) -> bool:
    return all(part.kind is None for part in shape.parts)


def _tensor_arguments(described: CallKey) -> list[TensorArgument]:
    found: list[TensorArgument] = []
    first: dict[int, int] = {}
    grad_mode = torch.is_grad_enabled()
    for leaf, value in enumerate(described.leaves):
        if isinstance(value, torch.Tensor):
            same = first.setdefault(id(value), leaf)
            guard, needs_gradients = TensorGuard.like(value, is_strict=True), grad_mode and value.requires_grad
            found.append(TensorArgument(leaf, same, type(value), guard, needs_gradients))
    return found


def _variable(leaf: int, described: CallKey, general: Generalised) -> VariableArgument:
    value = described.leaves[leaf]
    return VariableArgument(leaf, NumberGuard(float) if isinstance(value, float) else NumberGuard(int, *general.range))
