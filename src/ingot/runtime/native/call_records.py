"""Records of calls of Python functions: what the arguments and the surroundings must be, and how to answer then.

In: guards for the arguments in the order of the call, tensors that the function finds around itself, places that must
hold what they held, and either a record of kernels to run or a Python function to call. Out: a record that a table of
such calls can hold. It never changes, but for the count of calls that are inside it.

Arguments, with the items of lists and tuples in their place, and surrounding tensors together are the leaves of a call;
every leaf has a number.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ingot.runtime.native.callables import Convention
from ingot.runtime.native.conditions import Places
from ingot.runtime.native.records import GUARD_WORDS, MOST_STACK_WORDS, Guard, NumberGuard, Placed, Record, TensorGuard
from ingot.runtime.native.routines import make_immortal

# The words of a record of a call.
IN_FLIGHT, SETTINGS, GRADIENTS_COUNT, POSITIONAL_COUNT, KEYWORD_COUNT, NAMES = range(6)
TENSOR_COUNT, TENSORS, OTHER_COUNT, OTHERS, SURROUNDING_COUNT, SURROUNDINGS, PLACES, CALLS = range(6, 14)
KERNELS, KERNELS_TABLE, SOURCES, FUNCTION, PASSED_COUNT, PASSED, NESTING, IDENTITY_ROOM = range(14, 22)
FORBIDS_ATTRIBUTES = 22

# An argument that is a list or a tuple has its class and its length, any other one LEAF and 1.
NESTING_CLASS, NESTING_LENGTH = range(2)
NESTING_WORDS = 2
LEAF = 0
_FEW_TENSORS = 8
"""Of which each is compared with all others to see which are the same; more are looked up in a table."""

# A tensor: its leaf, or itself if it is a surrounding one; the first leaf that is the same tensor; its class.
TENSOR_SOURCE, TENSOR_FIRST, TENSOR_CLASS, TENSOR_GUARD = range(4)
TENSOR_WORDS = TENSOR_GUARD + GUARD_WORDS
# Any other argument: its leaf, how it is compared, and with what.
OTHER_LEAF, OTHER_KIND, OTHER_EXPECTED, OTHER_GUARD = range(4)
OTHER_WORDS = OTHER_GUARD + GUARD_WORDS
SAME_OBJECT, SAME_BITS, ANY_NUMBER = range(3)
# What a kernel's record is given: a leaf, or else a number.
SOURCE_LEAF, SOURCE_NUMBER = range(2)
SOURCE_WORDS = 2
NO_LEAF = -1
AS_CALLED = -1
"""Instead of a number of leaves: the function takes the arguments of the call as they are."""

# The words of a table of such records, before the count.
MOST_SURROUNDINGS = 0
MOST_ARGUMENTS = 1024
"""Calls with more go through Python."""


DECLINED = object()
"""What a function returns that cannot answer a call. Native code knows where it is, so it stays."""
make_immortal(DECLINED)


@dataclass(frozen=True, slots=True)
class TensorArgument:
    leaf: int
    first: int
    """The first leaf that is the same tensor; usually the leaf itself."""
    type: type
    guard: TensorGuard


@dataclass(frozen=True, slots=True)
class OtherArgument:
    """An argument that must be this very object; a number may be another one that is equal."""

    leaf: int
    value: Any


@dataclass(frozen=True, slots=True)
class VariableArgument:
    """A number that may be another at every call."""

    leaf: int
    guard: NumberGuard


@dataclass(frozen=True, slots=True)
class Arguments:
    """What the arguments of a call must be."""

    positional: int
    names: tuple[str, ...]
    """Of keyword arguments, which follow the positional ones, in this order."""
    tensors: tuple[TensorArgument, ...]
    others: tuple[OtherArgument | VariableArgument, ...]
    nesting: tuple[tuple[type | None, int], ...]
    """For each argument that is a list or a tuple its class and how many leaves it has; None and 1 for all others."""


@dataclass(frozen=True, slots=True)
class RunKernels:
    """Answer with the results of a record of kernels."""

    record: Record
    sources: tuple[tuple[int | None, int], ...]
    """For each input of it a leaf, or None and a number."""
    convention: Convention


@dataclass(frozen=True, slots=True)
class CallFunction:
    """Answer with what a Python function returns for the tuple of some leaves; DECLINED means that the call has to go
    another way."""

    function: Callable[[tuple[Any, ...]], Any]
    leaves: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CallOriginal:
    """Answer with what a Python function returns for the arguments as they are."""

    function: Callable[..., Any]


# The words of a count: calls answered so far, and at how many a call is left to Python.
COUNT_VALUE, COUNT_PAUSE = range(2)
NEVER = 2**62
"""More calls than are ever made."""


class Count:
    """A number that native code increases, and at which one call is left to Python. Native code then doubles that
    number, so that Python may do nothing about it."""

    def __init__(self) -> None:
        self._words = (ctypes.c_int64 * 2)(0, NEVER)
        self.address = ctypes.addressof(self._words)

    @property
    def value(self) -> int:
        return self._words[COUNT_VALUE]

    def pause_at(self, value: int) -> None:
        """Leave a call to Python once so many are counted."""
        self._words[COUNT_PAUSE] = value


class CallRecord(Placed):
    """A record in memory, and everything that must live as long."""

    def __init__(
        self,
        key: Any,
        owner: object,
        settings: int,
        counts_gradients: bool,
        arguments: Arguments,
        surroundings: Sequence[torch.Tensor],
        places: Places,
        answer: RunKernels | CallFunction | CallOriginal,
        calls: Count,
        forbids_attributes: bool = False,
    ):
        """`key` and `owner` are for those who look for the record. Under `counts_gradients` no tensor may require
        gradients, under `forbids_attributes` no tensor that is passed may have attributes of its own. `calls` counts
        the calls that were answered."""
        super().__init__()
        self.key, self.owner = key, owner
        self.surroundings = len(surroundings)
        self.keep(arguments, list(surroundings), places, answer, calls)
        tensors = [word for tensor in arguments.tensors for word in self._tensor_words(tensor)]
        others = [word for other in arguments.others for word in self._other_words(other)]
        around = [word for tensor in surroundings for word in self._surrounding_words(tensor)]
        room = _identity_room(len(arguments.tensors))
        words = [
            *(0, settings, int(counts_gradients)),
            *(arguments.positional, len(arguments.names), self.place([id(name) for name in arguments.names])),
            *(len(arguments.tensors), self.place(tensors), len(arguments.others), self.place(others)),
            *(len(surroundings), self.place(around), self.place(places.words()), calls.address),
            *self._answer_words(answer),
            *(self.place([word for one in arguments.nesting for word in _nesting_words(*one)]), room),
            int(forbids_attributes),
        ]
        self._words = (ctypes.c_int64 * len(words))(*words)
        self.address = ctypes.addressof(self._words)

    @property
    def is_running(self) -> bool:
        """Whether a call is inside."""
        return self._words[IN_FLIGHT] != 0

    def _tensor_words(self, tensor: TensorArgument) -> list[int]:
        return [tensor.leaf, tensor.first, id(tensor.type), *self.guard_words(tensor.guard)]

    def _surrounding_words(self, tensor: torch.Tensor) -> list[int]:
        return [id(tensor), 0, id(type(tensor)), *self.guard_words(TensorGuard.like(tensor, is_strict=True))]

    def _other_words(self, other: OtherArgument | VariableArgument) -> list[int]:
        if isinstance(other, VariableArgument):
            return [other.leaf, ANY_NUMBER, 0, *self.guard_words(other.guard)]
        value, guard = other.value, NumberGuard(float)
        kind, expected = SAME_OBJECT, id(value)
        if type(value) is float:
            kind, (expected,) = SAME_BITS, struct.unpack("<q", struct.pack("<d", value))
        elif type(value) is int and value.bit_length() < 64:
            kind, expected, guard = SAME_BITS, value, NumberGuard(int, value, value)
        return [other.leaf, kind, expected, *self.guard_words(guard)]

    def _answer_words(self, answer: RunKernels | CallFunction | CallOriginal) -> list[int]:
        if isinstance(answer, CallOriginal):
            return [0, 0, 0, id(answer.function), AS_CALLED, 0]
        if isinstance(answer, CallFunction):
            return [0, 0, 0, id(answer.function), len(answer.leaves), self.place(answer.leaves)]
        record = answer.record
        table = [len(record.guards), len(record.results), answer.convention.value]
        sources = [(NO_LEAF, number) if leaf is None else (leaf, 0) for leaf, number in answer.sources]
        placed = self.place([word for source in sources for word in source])
        return [record.address, self.place(table), placed, 0, 0, 0]


def _nesting_words(kind: type | None, length: int) -> tuple[int, int]:
    return (LEAF if kind is None else id(kind), length)


def _identity_room(tensors: int) -> int:
    """How many places a table has in which tensors are looked up, a power of two; 0 where none is needed."""
    return 0 if tensors <= _FEW_TENSORS else 1 << (2 * tensors).bit_length()


def can_hold(guards: Sequence[Guard], leaves: int) -> bool:
    """Whether a record can have these guards and so many leaves: a call keeps their words on the stack."""
    layout_knows = all(guard.is_known for guard in guards if isinstance(guard, TensorGuard))
    return layout_knows and 8 * leaves <= MOST_STACK_WORDS
