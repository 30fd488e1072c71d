"""The memory that Python writes and native routines read while a call is followed: one declaration for each struct.

State   one followed call: where it is in the trace, and the lists that grow with it
Node    a point of the trace: the steps that lead on from it, the last added first
Step    one torch call: what its arguments must be, and what it gives
Entry   one part of a step's arguments; groups are followed by their parts
"""

from __future__ import annotations

from enum import auto

from ingot.runtime.native.assembler.structs import Code, Field, Row, Struct, row


class State(Struct):
    node: Field
    """The node reached; 0 where only Python knows the way."""
    values: Field
    """The list of tensors, by number."""
    numbers: Field
    """The list of open numbers."""
    settings: Field
    """torch's settings while this is pending."""
    bytes: Field
    """Memory of the shells made since the last flush."""
    flushes: Field
    """How often what was pending has run, or was about to be run by another thread."""
    roles: Field
    """The table of functions' roles."""
    mode: Field
    """The function mode."""
    classify: Field
    """The Python function that says which code is to be told of no mode."""
    flush: Field
    """The Python function that runs everything pending, given the function that does not let it wait."""
    recent: Row = row(4)
    """The shells made last, by their numbers and 1, the newest first; 0 for none."""


class Role(Code):
    """What native code does with a function of torch."""

    UNKNOWN = auto()
    METADATA = auto()
    """Calls it."""
    NOW = auto()
    """Calls it, after everything pending if a tensor among its arguments is not written yet."""
    OPERATION = auto()
    """Compares it with the steps."""
    VIEW = auto()
    """Calls it if all tensors among its arguments are written, else compares it with the steps."""
    PYTHON = auto()
    """Calls the function that stands in for it, with the mode on."""
    QUIET = auto()
    """Code that is to be told of no mode."""
    LOUD = auto()
    """Code that is to be told."""


class Answer(Code):
    """What native code says of a call where it does not give the result."""

    NONE = auto()
    """It has none: Python has to look at the call."""
    RAISED = auto()
    """Python's error is set."""
    PLAIN = auto()
    """PyTorch makes the call as if no mode were there."""
    PLAIN_AFTER_FLUSH = auto()
    """The same, after everything pending."""


class RoleEntry(Struct):
    key: Field
    """The function, or the attribute whose getter it is, or code."""
    role: Field
    stand_in: Field
    code: Field
    """The code that the function must have for its stand-in to be one."""


ROLE_PLACES = 2048
"""Places in the table of roles, a power of two; a function is at its own place or one of the following."""
ROLE_PROBES = 8


class Node(Struct):
    first: Field
    """The first step to compare with; 0 if there is none."""


class Step(Struct):
    next: Field
    """Another step from the same node, or 0."""
    key: Field
    """The function, or the attribute whose getter it is."""
    arguments: Field
    """How many positional arguments there are."""
    keywords: Field
    """How many arguments have names."""
    names: Field
    """Where the names are."""
    entries: Field
    """Where the entries are, those of keywords last."""
    kind: Field
    results: Field
    """How many new tensors it gives."""
    prototypes: Field
    """Where it is said what they are like, for shells."""
    container: Field
    target: Field
    """The node it leads to."""


class Kind(Code):
    LATER = auto()
    """Gives shells whose memory comes from the pool."""
    LATER_ELSEWHERE = auto()
    """Gives shells that Python functions without arguments make, where PROTOTYPES would be."""
    VIEW = auto()
    SAME = auto()
    """Gives its first argument, and leads nowhere."""
    IN_PLACE = auto()
    """On a tensor that is pending already."""
    FIRST_WRITE = auto()
    """On a tensor from outside, where it can wait; otherwise as ALONE."""
    NOW = auto()
    """Runs as PyTorch runs it, after everything pending if an argument is pending. Leads nowhere."""
    ALONE = auto()
    """Runs as PyTorch runs it, after everything pending. Leads nowhere."""


class Container(Code):
    NONE = auto()
    TUPLE = auto()
    LIST = auto()


class Entry(Struct):
    kind: Field
    first: Field
    second: Field


class EntryKind(Code):
    SAME = auto()
    """FIRST is the very object."""
    VALUE = auto()
    """FIRST is the number of a tensor that has appeared."""
    OUTSIDE = auto()
    """A tensor that has not appeared: FIRST is its guard, SECOND its class."""
    INTEGER = auto()
    """FIRST is the int's value."""
    FLOAT = auto()
    """FIRST has the float's bits."""
    AGAIN = auto()
    """The new tensor that this call has brought before, counted by FIRST."""
    OPEN = auto()
    """A number whose class is FIRST; without its sign it is at most SECOND, for floats the bits of a float."""
    GROUP = auto()
    """A list or tuple whose class is FIRST, with as many parts as SECOND says."""
    SLICE = auto()
    """A slice; its three parts follow."""
    TEXT = auto()
    """A text equal to FIRST."""
    DEVICE = auto()
    """A device whose type and index are FIRST; each time somebody asks for one there is another object."""


MOST_OUTSIDE = 64
"""Tensors and numbers that one native step may bring."""


class WritesHead(Struct):
    """What tells which of a function's arguments it writes; as many `Write` follow."""

    count: Field


class Write(Struct):
    value: Field
    """Which argument."""
    count: Field
    """How often eager counts it."""
