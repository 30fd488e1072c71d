"""The memory of records of calls: what Python writes for each, and the dispatcher's native routines read.

Arguments, with the items of lists and tuples in their place, and surrounding tensors together are the leaves of a call;
every leaf has a number.
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

    most_surroundings: Field
    """Surrounding tensors that a record of the table has."""
    forwarding: Field
    """What calls without a record are handed on to."""


class ForwardingWords(Struct):
    target: Field
    """A Python function."""
    settings: Field
    """Under which settings of torch calls are handed on."""
    remaining: Field
    """How many more calls are."""


class AnswerWords(Struct):
    """How a call is answered: by a record of kernels, or else by a Python function."""

    kernels: Field
    """The record; 0 if a function answers."""
    form: Field
    """Of the record."""
    sources: Field
    """What each of its inputs is."""
    function: Field
    passed_count: Field
    """How many leaves the function is given in a tuple, or AS_CALLED."""
    passed: Field
    """Which leaves."""


class CallRecordWords(Struct):
    in_flight: Field
    """Calls that are inside."""
    settings: Field
    """torch's settings in one word."""
    gradients_count: Field
    """Whether no tensor may require gradients."""
    positional_count: Field
    keyword_count: Field
    names: Field
    """Of keyword arguments."""
    tensor_count: Field
    tensors: Field
    other_count: Field
    others: Field
    surrounding_count: Field
    surroundings: Field
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


class NestingWords(Struct):
    """How an argument is nested."""

    class_: Field
    """`list`, `tuple`, or LEAF."""
    length: Field
    """How many leaves it has."""


class TensorWords(Struct):
    source: Field
    """The leaf; of a surrounding tensor the tensor itself."""
    first: Field
    """The first leaf that is the same tensor."""
    class_: Field
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
    """A number whose bits are expected."""
    ANY_NUMBER = auto()


class SourceWords(Struct):
    """What a kernel's record is given as an input."""

    leaf: Field
    """A leaf; else NO_LEAF."""
    number: Field
    """What it is given if it is no leaf."""


class CountWords(Struct):
    value: Field
    """Calls answered so far."""
    pause: Field
    """At how many a call is left to Python."""


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


class IdentityWords(Struct):
    """A place of the table in which tensors are looked up."""

    object: Field
    leaf: Field
