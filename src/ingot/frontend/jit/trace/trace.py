"""The trace: what a function did when it was called, as a list of PyTorch's own operations on numbered tensors.

    trace   := tensors, events, results
    tensor := a register: where it came from, its type, sizes, strides, and which storage it lies in
    event  := results = operator(arguments), arguments being registers and plain values

A register is a tensor object of the call, so an operation that works in place gives the register it was called with.
Registers that share a storage share memory. A trace does not contain what Python did between the operations. In a trace
that was generalised from several, some sizes are expressions and some numbers variables (cache/generalisation.py).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

import torch

from ingot.base.forks import cached_property
from ingot.base.sizes import Size

Part = TypeVar("Part")
CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class TraceValue:
    """A place in a trace's list of tensors; stands for that tensor among an event's arguments and results."""

    index: int

    def __repr__(self) -> str:
        return f"%{self.index}"


@dataclass(frozen=True, slots=True)
class TraceArgument:
    """A tensor that was passed to the function, by its position among them."""

    position: int


@dataclass(frozen=True, slots=True)
class EnvironmentTensor:
    """A tensor that the function found in its environment, by its position among those it used."""

    position: int


@dataclass(frozen=True, slots=True)
class GradientOf:
    """What a tensor of the environment has in its `.grad` when the call begins, by the position of that tensor."""

    position: int


@dataclass(frozen=True, slots=True)
class Made:
    """A tensor that an event made."""

    event: int


Origin = TraceArgument | EnvironmentTensor | GradientOf | Made


@dataclass(frozen=True, slots=True)
class Variable:
    """A number that is given at every call, by its position among those, and its type, int or float."""

    position: int
    type: type

    def __repr__(self) -> str:
        return f"numbers[{self.position}]"


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """What is known of a register."""

    origin: Origin
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    storage: int
    """Registers with the same number lie in the same memory."""
    open_sizes: tuple[Size, ...] | None = None
    """The sizes as expressions, on a trace that holds for more than one shape; `shape` is then one of many."""
    device: torch.device = CPU

    @property
    def sizes(self) -> tuple[Size, ...]:
        return self.shape if self.open_sizes is None else self.open_sizes

    @property
    def is_leaf(self) -> bool:
        """Whether it exists before the function begins."""
        return not isinstance(self.origin, Made)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def is_number(self) -> bool:
        """Whether PyTorch takes it for a number beside tensors on other devices."""
        return not self.shape and self.device.type == "cpu"

    def __str__(self) -> str:
        place = "" if self.device.type == "cpu" else f" on {self.device}"
        return f"{str(self.dtype).removeprefix('torch.')}[{', '.join(map(str, self.sizes))}]{place}"


@dataclass(frozen=True)
class TraceOp:
    """One operation. Tensors among arguments, keywords and results are registers."""

    target: torch._ops.OpOverload
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    results: Any
    place: str
    """The line of the user's code that asked for it."""
    numbers: frozenset[int] = frozenset()
    """Numbers among the call's arguments that were handed to the function of torch which did this, by their place."""

    @cached_property
    def operands(self) -> tuple[TraceValue, ...]:
        return tuple(values_in((self.arguments, self.keywords)))

    @cached_property
    def products(self) -> tuple[TraceValue, ...]:
        return tuple(values_in(self.results))

    def __str__(self) -> str:
        given = [_text(value) for value in self.arguments]
        given += [f"{name}={_text(value)}" for name, value in self.keywords.items()]
        return f"{_text(self.results)} = {self.target}({', '.join(given)})"


@dataclass(frozen=True, slots=True)
class SliceBounds:
    """A part that Python took of a tensor along one axis. PyTorch clamps its ends to the size of the axis before a mode
    sees the operation, so that other sizes may give other operations."""

    register: TraceValue
    axis: int
    start: int | None
    stop: int | None


@dataclass(frozen=True, slots=True)
class SizeQuery:
    """Python asked a tensor of the call for its sizes, or indexed it."""

    name: str
    register: TraceValue


@dataclass(frozen=True, slots=True)
class Question:
    """A place where Python asked a tensor for its value, and what it was told."""

    register: TraceValue
    event: int
    """How many events were recorded before."""
    asked_by: str
    """The method of tensors that asked, such as __bool__."""
    answer: bool | int | float
    place: str
    """The line of the user's code that asked."""
    decisions: tuple[tuple[str, bool], ...] = ()
    """What Python decided by this answer and those before, in order: an expression of answers r0, r1 ..., and whether
    it was true. A path is what happens while these are the same."""

    def __str__(self) -> str:
        decided = [f"{text} is {outcome}" for text, outcome in self.decisions]
        return f"ask {self.register}: {', '.join(decided) or self.answer}"


@dataclass(frozen=True, slots=True)
class SettingNumber:
    """A number that is read at every call: a setting of an optimizer, such as its learning rate."""

    group: dict[str, Any] = field(repr=False)
    key: str
    index: int | None = None
    """Its place, where the setting is a tuple."""

    def read(self) -> Any:
        value = self.group[self.key]
        return value if self.index is None else value[self.index]

    def __str__(self) -> str:
        return self.key if self.index is None else f"{self.key}[{self.index}]"


@dataclass(frozen=True, slots=True)
class GradientUpdate:
    """What a call leaves in the `.grad` of a tensor of its environment, where that is not what was there before."""

    position: int
    """That tensor, by its position among the environment's."""
    value: TraceValue | None


@dataclass(slots=True)
class Training:
    """What a call that differentiates does besides its operations: it reads settings, and sets `.grad`."""

    settings: list[SettingNumber] = field(default_factory=list)
    """Numbers that are read at every call, which the variables of the trace stand for."""
    updates: list[GradientUpdate] = field(default_factory=list)
    cleared: list[int] = field(default_factory=list)
    """Tensors whose gradients are set to None before anything else is done, by their position."""
    expected: list[tuple[int, TensorMeta | None]] = field(default_factory=list)
    """What `.grad` must hold when the call begins, where that matters: the tensor, by its position, and what its
    gradient is like; None if it must have none."""
    spent: tuple[int, ...] = ()
    """Results whose history the call itself has used up, by their place."""
    inputs: tuple[int, ...] = ()
    """Tensors that `torch.autograd.grad` gives the gradients of, by their position."""
    read: tuple[tuple[int, TraceValue], ...] = ()
    """Tensors whose values are read when everything else is done, for results that are numbers. The number says which
    question of all it was that asked."""
    schedules: list[Any] = field(default_factory=list)
    """Schedules of learning rates that take a step when everything else is done."""
    readings: tuple[tuple[int, str], ...] = ()
    """Those results, by their place, and what they are as expressions of the values r0, r1 ... that are read."""

    def moved(self, places: Sequence[int]) -> Training:
        """The same where the environment's tensors have other positions, these."""
        updates = [GradientUpdate(places[update.position], update.value) for update in self.updates]
        expected = [(places[position], note) for position, note in self.expected]
        inputs = tuple(places[one] for one in self.inputs)
        cleared = [places[one] for one in self.cleared]
        return dataclasses.replace(self, updates=updates, expected=expected, inputs=inputs, cleared=cleared)


@dataclass(slots=True)
class Trace:
    """One recorded call."""

    tensors: list[TensorMeta] = field(default_factory=list)
    events: list[TraceOp] = field(default_factory=list)
    results: Any = None
    """What the function returned, flattened: registers and plain values."""
    environment_tensors: list[Any] = field(default_factory=list)
    """The tensors of the environment that were used, in the order of first use."""
    reads_sizes: bool = False
    """Whether Python looked at sizes or strides, so that other sizes might have taken another way."""
    size_queries: list[SizeQuery] = field(default_factory=list)
    """How Python looked at sizes, in order."""
    has_unseen_queries: bool = False
    """Whether it looked at them in ways that are not among these."""
    reads_constants: bool = False
    """Whether Python read the value of a tensor that is the same at every call like this, but not at others."""
    casts: bool = False
    """Whether autocast was on around the call: what it cast are events, and nothing is to be cast again."""
    assumes_constants: bool = False
    """Whether tensors that no recording sees being made were taken for constants: TorchScript makes them of numbers."""
    slices: list[SliceBounds] = field(default_factory=list)
    """Parts that Python took of tensors, in order."""
    questions: list[Question] = field(default_factory=list)
    """Where Python asked for values, in order: with other answers it might have taken another path."""
    symbols: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Sizes that stay open, by their name: an argument, and the axis of it where the size is read."""
    training: Training | None = None
    """What a call does that differentiates within; None for all others."""

    def note(self, register: TraceValue) -> TensorMeta:
        return self.tensors[register.index]

    @property
    def device(self) -> torch.device:
        """Where the call's work is done: the first device of its tensors that is not the CPU, if there is one."""
        return next((note.device for note in self.tensors if note.device.type != "cpu"), CPU)

    @property
    def text(self) -> str:
        lines = [f"%{index}: {note}" for index, note in enumerate(self.tensors) if note.is_leaf]
        asked = {place: [one for one in self.questions if one.event == place] for place in range(len(self.events) + 1)}
        for index, event in enumerate(self.events):
            lines += [*map(str, asked[index]), f"{event}  # {', '.join(str(self.note(r)) for r in event.products)}"]
        lines += map(str, asked[len(self.events)])
        return "\n".join([*lines, f"return {_text(self.results)}"])


def stride_order(note: TensorMeta) -> tuple[int, ...] | None:
    """The axes from the slowest to the fastest, for a tensor that is dense in another order than row-major. Axes of one
    element lie where that gives their strides, too: by these PyTorch tells channels that are last."""
    exact = sorted(range(len(note.shape)), key=lambda axis: (-note.strides[axis], note.shape[axis] == 1))
    if 0 not in note.shape and _is_dense(note, exact):
        return None if exact == sorted(exact) else tuple(exact)
    axes = [axis for axis, size in enumerate(note.shape) if size != 1]
    if 0 in note.shape or not axes:
        return None
    order = sorted(axes, key=lambda axis: -note.strides[axis])
    if order == axes or not _is_dense(note, order):
        return None
    return (*(axis for axis, size in enumerate(note.shape) if size == 1), *order)


def _is_dense(note: TensorMeta, order: Sequence[int]) -> bool:
    """Whether axes in some order, the fastest last, have the strides of a tensor without gaps."""
    expected = 1
    for axis in reversed(order):
        if note.strides[axis] != expected:
            return False
        expected *= note.shape[axis]
    return True


def all_of(kind: type[Part] | tuple[type[Part], ...], value: Any) -> list[Part]:
    """Everything of a type, or of several, in nested lists, tuples and dictionaries; of no plain type."""
    found: list[Part] = []
    _gather(kind, (value,), found)
    return found


def _gather(kind: type[Part] | tuple[type[Part], ...], values: Iterable[Any], found: list[Part]) -> None:
    for value in values:
        if type(value) in _SIMPLE:  # most are
            continue
        if isinstance(value, kind):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            _gather(kind, value, found)
        elif isinstance(value, dict):
            _gather(kind, value.values(), found)


_SIMPLE = frozenset((int, float, bool, str, type(None)))
"""Types of values that hold no others."""


def values_in(value: Any) -> list[TraceValue]:
    """All registers in nested lists, tuples and dictionaries."""
    return all_of(TraceValue, value)


def replace_values(value: Any, replace: Any) -> Any:
    """The same nested value with every register replaced by replace(register)."""
    if isinstance(value, TraceValue):
        return replace(value)
    if isinstance(value, list):
        return [replace_values(element, replace) for element in value]
    if isinstance(value, tuple):
        return tuple(replace_values(element, replace) for element in value)
    if isinstance(value, dict):
        return {name: replace_values(element, replace) for name, element in value.items()}
    return value


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        inner = ", ".join(map(_text, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    return repr(value)


def renumbered(trace: Trace, events: list[TraceOp]) -> Trace:
    """The trace with these events; registers are told which of them makes them now."""
    tensors = list(trace.tensors)
    for index, event in enumerate(events):
        for made in event.products:
            if isinstance(tensors[made.index].origin, Made) and made not in event.operands:
                tensors[made.index] = dataclasses.replace(tensors[made.index], origin=Made(index))
    return dataclasses.replace(trace, tensors=tensors, events=events)


@cache
def tags_of(target: torch._ops.OpOverload) -> frozenset[torch.Tag]:
    """What PyTorch says of an operator; in its own list a tag takes ten times as long to find."""
    return frozenset(target.tags)


def draws_numbers(target: torch._ops.OpOverload) -> bool:
    """Whether an operator draws random numbers."""
    return torch.Tag.nondeterministic_seeded in tags_of(target)


@cache
def is_mutable(target: torch._ops.OpOverload) -> bool:
    """Whether an operator writes into what it is given."""
    return target._schema.is_mutable


def written_arguments(target: torch._ops.OpOverload, arguments: Sequence[Any], keywords: dict[str, Any]) -> list[Any]:
    """The arguments that an operator writes into: by its schema, or the statistics of a normalization in training mode,
    which its schema does not tell."""
    found: list[Any] = []
    if not is_mutable(target):
        return _statistics(target, arguments, keywords) if _has_statistics(target) else found
    for position, argument in enumerate(target._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            is_positional = position < len(arguments) and not argument.kwarg_only
            found.append(arguments[position] if is_positional else keywords.get(argument.name))
    return found


@cache
def _has_statistics(target: torch._ops.OpOverload) -> bool:
    is_backward = target.overloadpacket.__name__.endswith("_backward")  # which is given the statistics, and leaves them
    return not is_backward and any(argument.name == "running_mean" for argument in target._schema.arguments)


def _statistics(target: torch._ops.OpOverload, arguments: Sequence[Any], keywords: dict[str, Any]) -> list[Any]:
    """The statistics that a normalization updates."""
    names = [argument.name for argument in target._schema.arguments]
    given = dict(zip(names, arguments, strict=False)) | keywords
    does_learn = any(given.get(flag, False) for flag in ("training", "train", "use_input_stats"))
    return [given.get("running_mean"), given.get("running_var")] if does_learn else []
