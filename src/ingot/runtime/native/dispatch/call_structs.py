"""The memory of records of calls: what Python writes for each, and the dispatcher's native routines read.

Arguments, with the items of lists, tuples and dictionaries in their place, and environment tensors together are the
leaves of a call; every leaf has a number.
"""

from __future__ import annotations

from enum import auto

from ingot.runtime.native.assembler.structs import Code, Field, Inline, Struct
from ingot.runtime.native.launch.record_structs import NumberGuardWords, TableWords, TensorGuardWords

LEAF = 0
"""Instead of the class of an argument that is neither a list nor a tuple."""
NO_LEAF = -1
AS_CALLED = -1
"""Instead of a number of leaves: the function takes the arguments of the call as they are."""


class DispatchTableWords(TableWords):
    """The records of calls of one object."""

    most_environment_tensors: Field
    """The largest number of environment tensors in a record of the table."""
    forwarding: Field
    """What calls without a record are handed on to."""


class ForwardingWords(Struct):
    target: Field
    """A Python function."""
    settings: Field
    """The settings of torch under which calls are handed on."""
    remaining: Field
    """How many more calls are handed on."""


class AnswerWords(Struct):
    """How a call is answered: by a record of kernels, or else by a Python function."""

    kernels: Field
    """The record; 0 if a function answers."""
    form: Field
    """The form of the record: how inputs and results are passed."""
    sources: Field
    """Where each input of the record comes from: an array of `SourceWords`."""
    function: Field
    passed_count: Field
    """How many leaves the function is given in a tuple, or AS_CALLED."""
    passed: Field
    """Which leaves."""


class CallRecordWords(Struct):
    in_flight: Field
    """How many calls are using the record."""
    settings: Field
    """torch's settings in one word."""
    gradients_count: Field
    """Whether no tensor may require gradients."""
    positional_count: Field
    keyword_count: Field
    names: Field
    """The names of keyword arguments."""
    tensor_count: Field
    tensors: Field
    other_count: Field
    others: Field
    environment_count: Field
    environment_tensors: Field
    """Tensors that are no arguments."""
    places: Field
    """Places in Python that must hold what they held."""
    calls: Field
    """Where calls are counted."""
    answer: Inline[AnswerWords]
    nesting: Field
    """How each argument is nested."""
    identity_room: Field
    """How many places a table has in which tensors are looked up; 0 where none is needed."""
    forbids_attributes: Field
    """Whether no tensor that is passed may have attributes of its own."""
    keys: Field
    """For each leaf that is an entry of a dictionary its key; 0 for all others."""
    successor: Field
    """The record that was used after this one, when it was used last. It may be gone."""


class NestingWords(Struct):
    """How an argument is nested."""

    class_: Field
    """`list`, `tuple`, `dict`, or LEAF."""
    length: Field
    """How many leaves it has."""


class TensorWords(Struct):
    source: Field
    """The leaf; of an environment tensor the tensor itself."""
    first: Field
    """The first leaf that is the same tensor."""
    class_: Field
    needs_gradients: Field
    """1 if it must require gradients, where that counts, and 0 if it must not."""
    guard: Inline[TensorGuardWords]


class OtherWords(Struct):
    """An argument that is no tensor."""

    leaf: Field
    kind: Field
    expected: Field
    guard: Inline[NumberGuardWords]


class OtherKind(Code):
    """How such an argument is compared."""

    SAME_OBJECT = auto()
    SAME_BITS = auto()
    """A number with the same bits."""
    ANY_NUMBER = auto()


class SourceWords(Struct):
    """What a kernel's record is given as an input."""

    leaf: Field
    """A leaf; else NO_LEAF."""
    number: Field
    """The number that it is given if it is no leaf."""


class CountWords(Struct):
    value: Field
    """Calls answered so far."""
    pause: Field
    """The count at which one call is left to Python."""


class CallWords(Struct):
    """A call, while it is compared with records."""

    settings: Field
    """torch's settings, as they are now."""
    positional: Field
    named: Field
    names: Field
    leaves: Field
    """How many leaves there is room for."""
    given: Field
    """How many of them are arguments."""
    nesting: Field
    keyed: Field
    """How many of them have a key or the absence of one noted: none if no argument is nested."""
    keys: Field


class IdentityWords(Struct):
    """A place of the table in which tensors are looked up."""

    object: Field
    leaf: Field
