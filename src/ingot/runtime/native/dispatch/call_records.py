"""Records of calls of Python functions: what the arguments and the environment must be, and how to answer then.

In: guards for the arguments in the order of the call, tensors that the function finds around itself, places that must
hold what they held, and either a record of kernels to run or a Python function to call. Out: a record that a table of
such calls can hold. It never changes, but for the count of calls that are inside it.

Arguments, with the items of lists, tuples and dictionaries in their place, and environment tensors together are the
leaves of a call; every leaf has a number.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ingot.runtime.native.assembler.routines import make_immortal
from ingot.runtime.native.dispatch.call_structs import (
    AS_CALLED,
    LEAF,
    NO_LEAF,
    AnswerWords,
    CallRecordWords,
    CountWords,
    NestingWords,
    OtherKind,
    OtherWords,
    SourceWords,
    TensorWords,
)
from ingot.runtime.native.dispatch.conditions import Places
from ingot.runtime.native.launch.record_structs import Convention, FormWords
from ingot.runtime.native.launch.records import (
    MOST_STACK_WORDS,
    Guard,
    NumberGuard,
    Placed,
    Record,
    TensorGuard,
    number_guard,
)

_FEW_TENSORS = 8
"""Up to this many tensors are compared with each other to find those that are the same object; more are looked up in a
table."""
MOST_ARGUMENTS = 1024
"""Calls with more go through Python."""

DECLINED = object()
"""What a function returns that cannot answer a call. Native code holds its address, so it is immortal."""
make_immortal(DECLINED)


@dataclass(frozen=True, slots=True)
class TensorArgument:
    leaf: int
    first: int
    """The first leaf that is the same tensor; usually the leaf itself."""
    type: type
    guard: TensorGuard
    needs_gradients: bool = False
    """Whether it must require gradients, where that counts."""


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
class ArgumentGuards:
    """What the arguments of a call must be."""

    positional: int
    names: tuple[str, ...]
    """The names of keyword arguments, which follow the positional ones, in this order."""
    tensors: tuple[TensorArgument, ...]
    others: tuple[OtherArgument | VariableArgument, ...]
    nesting: tuple[tuple[type | None, int], ...]
    """For each argument that is a list, a tuple or a dictionary its class and how many leaves it has; None and 1 for
    all others."""
    keys: tuple[str | None, ...]
    """For each leaf that is an entry of a dictionary its key, which must be this very object; None for all others."""


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


NEVER = 2**62
"""More calls than are ever made."""


class CallCounter:
    """A number that native code increases, and at which one call is left to Python. Native code then doubles that
    number, whether or not Python acts on it."""

    def __init__(self) -> None:
        self._words = CountWords(value=0, pause=NEVER)
        self.address = self._words.address

    @property
    def value(self) -> int:
        return self._words.value

    def pause_at(self, value: int) -> None:
        """Leave a call to Python once so many are counted."""
        self._words.pause = value


class CallRecord(Placed):
    """A record in memory, and everything that must live as long."""

    def __init__(
        self,
        key: Any,
        owner: object,
        settings: int,
        counts_gradients: bool,
        arguments: ArgumentGuards,
        environment_tensors: Sequence[torch.Tensor],
        places: Places,
        answer: RunKernels | CallFunction | CallOriginal,
        calls: CallCounter,
        forbids_attributes: bool = False,
    ):
        """`key` and `owner` let Python find the record again. Under `counts_gradients` tensors must require gradients
        where they do now, and only there; under `forbids_attributes` no tensor that is passed may have attributes of
        its own. `calls` counts the calls that were answered."""
        super().__init__()
        self.key, self.owner = key, owner
        self.environment_count = len(environment_tensors)
        self._counts_gradients = counts_gradients
        self.keep(arguments, list(environment_tensors), places, answer, calls)
        self._words = CallRecordWords(
            in_flight=0,
            settings=settings,
            gradients_count=int(counts_gradients),
            positional_count=arguments.positional,
            keyword_count=len(arguments.names),
            names=self.place([id(name) for name in arguments.names]),
            tensor_count=len(arguments.tensors),
            tensors=self.place_all(map(self._tensor, arguments.tensors)),
            other_count=len(arguments.others),
            others=self.place_all(map(_other, arguments.others)),
            environment_count=len(environment_tensors),
            environment_tensors=self.place_all(map(self._environment_tensor, environment_tensors)),
            places=self.place_all([places.native()]),
            calls=calls.address,
            answer=self._answer(answer),
            nesting=self.place_all(_nesting(*one) for one in arguments.nesting),
            identity_room=_identity_room(len(arguments.tensors)),
            forbids_attributes=int(forbids_attributes),
            keys=self.place([0 if key is None else id(key) for key in arguments.keys]),
            successor=0,
        )
        self.address = self._words.address

    @property
    def is_running(self) -> bool:
        """Whether a call is inside."""
        return self._words.in_flight != 0

    def _tensor(self, tensor: TensorArgument) -> TensorWords:
        guard = self.tensor_guard(tensor.guard)
        return TensorWords(
            source=tensor.leaf,
            first=tensor.first,
            class_=id(tensor.type),
            needs_gradients=int(tensor.needs_gradients),
            guard=guard,
        )

    def _environment_tensor(self, tensor: torch.Tensor) -> TensorWords:
        guard = self.tensor_guard(TensorGuard.like(tensor, is_strict=True))
        needs = self._counts_gradients and tensor.requires_grad
        return TensorWords(source=id(tensor), first=0, class_=id(type(tensor)), needs_gradients=int(needs), guard=guard)

    def _answer(self, answer: RunKernels | CallFunction | CallOriginal) -> AnswerWords:
        words = AnswerWords.zeroed()
        match answer:
            case RunKernels(record, sources, convention):
                form = FormWords(inputs=len(record.guards), outputs=len(record.results), convention=convention.value)
                words.kernels = record.address
                words.form = self.place_all([form])
                words.sources = self.place_all(_source(*source) for source in sources)
            case CallFunction(function, leaves):
                words.function = id(function)
                words.passed_count = len(leaves)
                words.passed = self.place(leaves)
            case CallOriginal(function):
                words.function = id(function)
                words.passed_count = AS_CALLED
        return words


def _other(other: OtherArgument | VariableArgument) -> OtherWords:
    if isinstance(other, VariableArgument):
        return OtherWords(leaf=other.leaf, kind=OtherKind.ANY_NUMBER, expected=0, guard=number_guard(other.guard))
    value, guard = other.value, NumberGuard(float)
    kind, expected = OtherKind.SAME_OBJECT, id(value)
    if type(value) is float:
        kind, (expected,) = OtherKind.SAME_BITS, struct.unpack("<q", struct.pack("<d", value))
    elif type(value) is int and value.bit_length() < 64:
        kind, expected, guard = OtherKind.SAME_BITS, value, NumberGuard(int, value, value)
    return OtherWords(leaf=other.leaf, kind=kind, expected=expected, guard=number_guard(guard))


def _source(leaf: int | None, number: int) -> SourceWords:
    return SourceWords(leaf=NO_LEAF, number=number) if leaf is None else SourceWords(leaf=leaf, number=0)


def _nesting(kind: type | None, length: int) -> NestingWords:
    return NestingWords(class_=LEAF if kind is None else id(kind), length=length)


def _identity_room(tensors: int) -> int:
    """How many places a table has in which tensors are looked up, a power of two; 0 where none is needed."""
    return 0 if tensors <= _FEW_TENSORS else 1 << (2 * tensors).bit_length()


def can_hold(guards: Sequence[Guard], leaves: int) -> bool:
    """Whether a record can have these guards and so many leaves: a call keeps their words on the stack."""
    layout_knows = all(guard.is_known for guard in guards if isinstance(guard, TensorGuard))
    return layout_knows and 8 * leaves <= MOST_STACK_WORDS
