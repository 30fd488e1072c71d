"""The memory that Python writes and native routines read while a call is followed: one declaration for each struct.

State   one followed call: where it is in the trace, and the lists that grow with it
Node    a point of the trace: the steps that lead on from it, the last added first, and what runs when it is flushed
Step    one torch call: what its arguments must be, and what it gives
Flush   one way in which what is pending at a node was run
Entry   one part of a step's arguments; groups are followed by their parts
"""

from __future__ import annotations

from enum import auto

from ingot.runtime.native.assembler.structs import Code, Field, Row, Struct, row


class FollowingWords(Struct):
    node: Field
    """The node that the call has reached; 0 where the steps are known to Python alone."""
    values: Field
    """The list of tensors, by number."""
    numbers: Field
    """The list of open numbers."""
    settings: Field
    """torch's settings while this is pending."""
    bytes: Field
    """Memory of the shells made since the last flush."""
    flushes: Field
    """How many flushes there were, those begun by other threads included."""
    roles: Field
    """The table of functions' roles."""
    mode: Field
    """The function mode."""
    classify: Field
    """The Python function that says which code is to be told of no mode."""
    flush: Field
    """The Python function that flushes; it is given the function that needs the flush."""
    root: Field
    """The node where steps begin again after a flush."""
    spare_values: Field
    """An empty list, which the next flush exchanges for the list of tensors."""
    spare_numbers: Field
    turns: Field
    """How many flushes native code has made since Python looked at the lists."""
    is_flushing: Field
    is_left: Field
    """Whether flushes are Python's, as a fork has left something to be run."""
    was_busy: Field
    """Whether a flush has compiled something."""
    acquire: Field
    """Takes the lock of the call, unless another thread has it."""
    release: Field
    begun: Field
    """The list of what has begun to run in a flush."""
    finish: Field
    """The Python function that runs what was pending at a node: it is given the node, both lists and the cause."""
    recent: Row = row(4)
    """The shells made last, each as its number plus 1, the newest first; 0 for none."""


class NativeRole(Code):
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
    """Code that is to be told of the mode."""


class CallStatus(Code):
    """What native code says of a call where it does not give the result."""

    NONE = auto()
    """Native code does not know: Python has to look at the call."""
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


class NodeWords(Struct):
    first: Field
    """The first step to compare with; 0 if there is none."""
    flushes: Field
    """The first flush that is known; 0 if there is none."""
    bases: Field
    """What each tensor is a view of, where a flush is known."""


class FlushWords(Struct):
    next: Field
    """Another flush of the same node, or 0."""
    cause: Field
    """The function that needed it, or None."""
    count: Field
    """How many tensors are pending."""
    needed: Field
    """A word for each: 1 if it is a result that is still needed."""
    function: Field
    """What runs; 0 if nothing has to."""
    inputs: Field
    """The numbers of the tensors that it is given before the open numbers."""
    input_count: Field
    destinations: Field
    """The numbers of those that it is given after them."""
    destination_count: Field
    writes: Field
    """The address of `WritesHead`."""
    ended: Field
    """The set of threads on which Python has run the function to its end."""
    times: Field
    """Where such flushes are counted; 0 if nowhere."""


class FollowedStepWords(Struct):
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
    """The address of an array with a prototype for each shell, or the function that makes it."""
    container: Field
    target: Field
    """The node it leads to."""


class StepKind(Code):
    LATER = auto()
    """Gives shells whose memory comes from the pool."""
    LATER_ELSEWHERE = auto()
    """Gives shells that Python functions without arguments make; `prototypes` holds the functions."""
    VIEW = auto()
    SAME = auto()
    """Gives its first argument, and leads nowhere."""
    IN_PLACE = auto()
    """Writes a tensor that is pending already."""
    FIRST_WRITE = auto()
    """Writes a tensor from outside, later where that can wait; otherwise as ALONE."""
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
    """A tensor that appeared earlier in the same call: FIRST is its number among the new ones."""
    OPEN = auto()
    """A number whose class is FIRST and whose absolute value is at most SECOND, for floats the bits of a float."""
    GROUP = auto()
    """A list or tuple whose class is FIRST, with as many parts as SECOND says."""
    SLICE = auto()
    """A slice; its three parts follow."""
    TEXT = auto()
    """A text equal to FIRST."""
    DEVICE = auto()
    """A device whose type and index are FIRST. It is compared by value: Python makes a new object for each
    `x.device`."""


MOST_OUTSIDE = 64
"""How many new tensors, and how many open numbers, one native step may have."""


class WritesHead(Struct):
    """Which of its arguments a function writes; `count` structs of the class `Write` follow."""

    count: Field


class Write(Struct):
    value: Field
    """Which argument."""
    count: Field
    """How often eager counts it."""
