"""Abstract values: what a walk over code knows of the objects that the code would handle.

In: nothing. Out: the kinds of values below, and the state in which a walk is: what local variables and the containers
and objects made during the call hold. What always holds: a value stands for the same thing at each call with the same
call key, as long as the guards hold; only the values inside tensors may differ.

    value = Known(object)          an object reached from the function, its arguments and constants by guarded places
          | Open, OpenTuple        a known integer, or a tuple of some, that depends on sizes (open_sizes.py)
          | AbstractTensor         a tensor whose values differ from call to call
          | Determined             a plain value that is the same at each call, but not known here
          | Tuple(values)          a tuple made during the call
          | Fresh                  a list, dictionary, set, iterator or object made during the call
          | Closure                a function made during the call
          | Bound(function, self)  a method
          | View(dictionary, kind) keys, values or items of a dictionary
          | Super                  what super() gives
          | Union(values)          one of these, always the same one
          | ReadNumber             a number that was read from a tensor, which differs from call to call
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from ingot.base.sizes import Size
from ingot.frontend.jit.proof.domain.place_guards import is_plain

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.domain.open_sizes import OpenSizes


class Refused(Exception):
    """The walk meets something that cannot be proven."""

    def __init__(self, reason: str, place: str):
        super().__init__(reason)
        self.reason, self.place = reason, place


class Raised(Exception):
    """The walked code raises an exception of a class."""

    def __init__(self, cls: type[BaseException], text: str = "", value: Any = None):
        super().__init__(text)
        self.cls, self.value = cls, value


class AbstractValue:
    __slots__ = ()


class Known(AbstractValue):
    __slots__ = ("name", "value")

    def __init__(self, value: Any, name: str = ""):
        self.value, self.name = value, name


class Open(Known):
    """An integer that depends on sizes: `concrete` is what it is in this call, `size` an expression over the sizes that
    were read. Asking for its `value` pins it: the proof then holds only for calls in which it has the same value."""

    __slots__ = ("concrete", "size", "tracker")

    def __init__(self, concrete: int, size: Size, tracker: OpenSizes):
        self.concrete, self.size, self.tracker, self.name = concrete, size, tracker, ""

    @property
    def value(self) -> int:  # type: ignore[override]
        self.tracker.pin(self)
        return self.concrete


class OpenTuple(Known):
    """A tuple, torch.Size or slice with open integers in it. Asking for its `value` pins them."""

    __slots__ = ("cls", "items")

    def __init__(self, items: Sequence[AbstractValue], cls: type = tuple):
        self.items, self.cls, self.name = tuple(items), cls, ""

    @property
    def value(self) -> Any:  # type: ignore[override]
        values = [item.value for item in self.items]  # type: ignore[attr-defined]
        return slice(*values) if self.cls is slice else self.cls(values)


class AbstractTensor(AbstractValue):
    """`meta` is a tensor without memory of its shape and dtype; `constant` is one with its values, if no argument's
    values go into them; both may be missing. `written` counts when it was made, as writes drop constants. `is_new` says
    that it was made during the call, and is none of the user's; `path` says where it is among the arguments, and
    `attributes` which attributes the user has given it."""

    __slots__ = ("attributes", "cls", "constant", "device", "has_dtype", "is_new", "meta", "path", "written")

    def __init__(
        self,
        meta: torch.Tensor | None = None,
        device: torch.device | None = None,
        has_dtype: bool = True,
        constant: torch.Tensor | None = None,
        written: int = 0,
        cls: type = torch.Tensor,
        is_new: bool = False,
    ):
        self.meta, self.device, self.has_dtype, self.cls = meta, device, has_dtype, cls
        self.constant, self.written, self.is_new = constant, written, is_new
        self.path: tuple[Any, ...] | None = None
        self.attributes: frozenset[str] = frozenset()


class Determined(AbstractValue):
    """`cls` is its class, where that is known; `is_full` says that it is a text with something in it."""

    __slots__ = ("cls", "is_full")

    def __init__(self, cls: type | None = None, is_full: bool = False):
        self.cls, self.is_full = cls, is_full


class Tuple(AbstractValue):
    __slots__ = ("cls", "items")

    def __init__(self, items: Sequence[AbstractValue], cls: type = tuple):
        self.items, self.cls = tuple(items), cls


class Fresh(AbstractValue):
    """What it holds is in the state, under its identity. One that the caller made must not be written."""

    __slots__ = ("cls", "identity", "is_callers")

    def __init__(self, cls: type, identity: int, is_callers: bool = False):
        self.cls, self.identity, self.is_callers = cls, identity, is_callers


class Iterator:
    """The class of iterators made during a call."""


@dataclass(slots=True)
class Frame:
    """One call of a function that is walked."""

    node: Any
    globals: dict[str, Any]
    builtins: dict[str, Any]
    identity: int
    file: str
    names: frozenset[str]
    """Names that are local variables."""
    global_names: frozenset[str]
    class_name: str | None
    parent: Frame | None = None
    """The frame around it, if its function was made during the call."""
    cells: dict[str, Any] = field(default_factory=dict)
    """Cells of the closure of a function that was not made during the call."""
    exits: list[tuple[str, WalkState, Any]] = field(default_factory=list)
    first: AbstractValue | None = None
    """Its first argument: super() needs it."""
    lines: tuple[int, int] = (0, 0)
    """The first and the last line of the statement that runs; zeros where there are no statements."""
    called_at: int = 0
    """The line of the caller."""
    is_captured: bool = False
    """Whether a function that was made in it may still read its variables."""
    is_dispatched: bool = False
    """Whether modes of PyTorch see the call of this function, but no operation inside it."""


class Closure(AbstractValue):
    __slots__ = ("defaults", "frame", "keyword_defaults", "node")

    def __init__(
        self, node: Any, frame: Frame, defaults: list[AbstractValue], keyword_defaults: dict[str, AbstractValue]
    ):
        self.node: ast.FunctionDef | ast.Lambda = node
        self.frame, self.defaults, self.keyword_defaults = frame, defaults, keyword_defaults


class Bound(AbstractValue):
    __slots__ = ("function", "receiver")

    def __init__(self, function: AbstractValue, receiver: AbstractValue):
        self.function, self.receiver = function, receiver


class View(AbstractValue):
    __slots__ = ("kind", "mapping")

    def __init__(self, mapping: AbstractValue, kind: str):
        self.mapping, self.kind = mapping, kind


class Super(AbstractValue):
    __slots__ = ("cls", "receiver")

    def __init__(self, cls: type, receiver: AbstractValue):
        self.cls, self.receiver = cls, receiver


class Union(AbstractValue):
    __slots__ = ("values",)

    def __init__(self, values: Sequence[AbstractValue]):
        self.values = tuple(values)


class ReadNumber(AbstractValue):
    """`text` says how it is computed of numbers r0, r1 ... that were read; `value` is what it was in the recorded call.
    Code may only compute with it and decide by it; each decision is part of the path."""

    __slots__ = ("text", "value")

    def __init__(self, text: str, value: Any):
        self.text, self.value = text, value


class Mixed:
    """The contents of a container that two branches changed in different ways."""


MIXED = Mixed()


@dataclass(slots=True)
class WalkState:
    """What may change while code is walked. Dictionaries of the frames change in place; the rest is replaced."""

    frames: dict[int, dict[str, AbstractValue]] = field(default_factory=dict)
    items: dict[int, Any] = field(default_factory=dict)
    """What fresh containers hold: a tuple of values, or a dictionary from keys to values."""
    attributes: dict[int, dict[str, AbstractValue]] = field(default_factory=dict)
    """The attributes of fresh objects."""
    written: dict[tuple[int, Any], tuple[Any, Any]] = field(default_factory=dict)
    """Places of known objects that hold something else for a while: the object, and the value."""

    def copy(self) -> WalkState:
        frames = {identity: dict(names) for identity, names in self.frames.items()}
        return WalkState(frames, dict(self.items), dict(self.attributes), dict(self.written))


NONE, TRUE, FALSE = Known(None), Known(True), Known(False)


def known(value: Any, name: str = "") -> Known:
    return Known(value, name)


def tuple_of(items: Sequence[AbstractValue], cls: type = tuple) -> AbstractValue:
    """A tuple made during the call: one that is known, if it holds plain values alone."""
    if any(map(is_open, items)) and all(map(plain, items)):
        return OpenTuple(items, cls)
    if all(type(item) is Known and is_plain(item.value) for item in items):
        values = [item.value for item in items]  # type: ignore[attr-defined]
        return Known(slice(*values) if cls is slice else cls(values))
    return Tuple(items, cls)


def is_open(value: AbstractValue) -> bool:
    """Whether a value is plain, and depends on sizes."""
    return isinstance(value, Open | OpenTuple)


def open_items(value: AbstractValue) -> tuple[AbstractValue, ...] | None:
    """The items of a tuple or torch.Size with open integers in it; None for anything else."""
    return value.items if isinstance(value, OpenTuple) and value.cls is not slice else None


def plain(value: AbstractValue) -> bool:
    return is_open(value) or (type(value) is Known and is_plain(value.value))


def holds_nan(value: Any) -> bool:
    """Whether a plain value is NaN, or a tuple with NaN in it: containers find that by its identity, which guards do
    not compare."""
    if type(value) in (tuple, frozenset):
        return any(map(holds_nan, value))
    return type(value) in (float, complex) and value != value


def join(one: AbstractValue, other: AbstractValue) -> AbstractValue:
    """A value that is one of two, always the same one."""
    if one is other:
        return one
    for value in (one, other):
        if is_open(value):
            _ = value.value  # type: ignore[attr-defined]  # pinned: which of the two it is may depend on sizes
    if isinstance(one, Known) and isinstance(other, Known):
        if one.value is other.value:
            return one
        if is_plain(one.value) and is_plain(other.value):
            same = type(one.value) is type(other.value)
            if same and repr(one.value) == repr(other.value):
                return one
            return Determined(type(one.value) if same else None, same and _is_full(one) and _is_full(other))
    if _is_determined(one) and _is_determined(other):
        cls = _class(one)
        return Determined(cls if cls is _class(other) else None, _is_full(one) and _is_full(other))
    if isinstance(one, Fresh) and isinstance(other, Fresh) and one.identity == other.identity:
        return one
    if isinstance(one, AbstractTensor) and isinstance(other, AbstractTensor):
        return AbstractTensor(has_dtype=False)
    if isinstance(one, Tuple) and isinstance(other, Tuple) and _are_alike(one, other):
        return Tuple([join(a, b) for a, b in zip(one.items, other.items, strict=True)], one.cls)
    return Union([*_alternatives(one), *(value for value in _alternatives(other) if value not in _alternatives(one))])


def _are_alike(one: Tuple, other: Tuple) -> bool:
    return one.cls is other.cls and len(one.items) == len(other.items)


def _is_full(value: AbstractValue) -> bool:
    if isinstance(value, Known):
        return type(value.value) is str and value.value != ""
    return isinstance(value, Determined) and value.is_full


def _is_determined(value: AbstractValue) -> bool:
    return isinstance(value, Determined) or plain(value)


def _class(value: AbstractValue) -> type | None:
    return type(value.value) if isinstance(value, Known) else getattr(value, "cls", None)


def _alternatives(value: AbstractValue) -> tuple[AbstractValue, ...]:
    return value.values if isinstance(value, Union) else (value,)


def merge(one: WalkState, other: WalkState) -> WalkState:
    """The state after either of two branches; what they wrote differently is mixed."""
    if one is other:
        return one
    frames: dict[int, dict[str, AbstractValue]] = {}
    for identity in one.frames.keys() & other.frames.keys():
        left, right = one.frames[identity], other.frames[identity]
        # A variable that only one of the branches sets must not be read afterwards: it is left out.
        frames[identity] = {name: join(left[name], right[name]) for name in left if name in right}
    items = {identity: _merge_items(identity, one.items, other.items) for identity in one.items | other.items}
    attributes = {
        identity: _merge_items(identity, one.attributes, other.attributes)
        for identity in one.attributes | other.attributes
    }
    written = dict(one.written)
    for key in one.written.keys() | other.written.keys():
        first, second = one.written.get(key), other.written.get(key)
        if first is None or second is None:
            written[key] = ((first or second)[0], MIXED)  # type: ignore[index]
        elif first[1] is not second[1]:
            written[key] = (first[0], MIXED)
    return WalkState(frames, items, attributes, written)


def _merge_items(identity: int, one: dict[int, Any], other: dict[int, Any]) -> Any:
    if identity not in one or identity not in other:
        return one.get(identity, other.get(identity))
    left, right = one[identity], other[identity]
    if left is right:
        return left
    if isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right):
        return tuple(join(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict) and list(left) == list(right):
        return {key: join(value, right[key]) for key, value in left.items()}
    return MIXED


def is_tensor(value: AbstractValue) -> bool:
    return type(value) is AbstractTensor or (type(value) is Known and isinstance(value.value, torch.Tensor))


def is_undetermined(value: AbstractValue) -> bool:
    """Whether a value is always the same plain one, or a tuple of such, but not known. Named tuples may have operators
    of their own."""
    if isinstance(value, Tuple):
        return value.cls in (tuple, torch.Size, slice) and all(
            plain(item) or is_undetermined(item) for item in value.items
        )
    return isinstance(value, Determined)


def computed(function: Callable[..., Any], *args: Any) -> Known:
    """What a function gives for plain values."""
    try:
        return Known(function(*args))
    except Exception as error:
        raise Raised(type(error), str(error)) from None
