"""Guards: the places a proof read, and what they held.

In: a place (an entry of a dictionary, a cell, the items of a list, an attribute of a class ...) and what it held when
the code was walked. Out: whether it still holds that. What always holds: `holds` runs no code of the user's; objects
are compared by identity, plain values by type and value, so that 1, True and 1.0 differ, and 0.0 and -0.0.
"""

from __future__ import annotations

import functools
import types
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch


class Guard(Protocol):
    @property
    def text(self) -> str:
        """How to name the place to a user."""
        ...

    def holds(self) -> bool: ...


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


ABSENT = _Absent()
"""The content of an empty place: a missing key, an empty cell."""

PLAIN = frozenset(
    [bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented), range]
    + [torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, torch.finfo, torch.iinfo]
)
"""Types whose objects never change and are compared by equality."""


def is_plain(value: Any) -> bool:
    """Whether a value never changes and is compared by equality: numbers, texts and the like, and tuples of them."""
    kind = type(value)
    if kind in PLAIN:
        return True
    if kind is slice:
        return is_plain(value.start) and is_plain(value.stop) and is_plain(value.step)
    return kind in (tuple, frozenset) and all(map(is_plain, value))


def is_same(found: Any, expected: Any) -> bool:
    """Whether an object is the expected one, or a plain value equal to it."""
    if found is expected:
        return True
    kind = type(expected)
    if type(found) is not kind:
        return False
    if kind is tuple:
        return len(found) == len(expected) and all(map(is_same, found, expected))
    if kind not in PLAIN:
        return False
    # By their text: 0.0 and -0.0 differ, NaN equals NaN, and range(0, 3, 2) is not range(0, 4, 2).
    return repr(found) == repr(expected) if kind in (float, complex, range) else found == expected


@dataclass(frozen=True, eq=False)
class DictEntry:
    """An entry of a dictionary: of a module, of an instance or of the user's own."""

    dictionary: dict[Any, Any] = field(repr=False)
    key: Any
    expected: Any
    text: str

    def holds(self) -> bool:
        return is_same(dict.get(self.dictionary, self.key, ABSENT), self.expected)


@dataclass(frozen=True, eq=False)
class DictItems:
    """All entries of a dictionary, in their order."""

    dictionary: dict[Any, Any] = field(repr=False)
    expected: tuple[tuple[Any, Any], ...]
    text: str

    def holds(self) -> bool:
        if len(self.dictionary) != len(self.expected):
            return False
        pairs = zip(dict_items(self.dictionary), self.expected, strict=True)
        return all(is_same(found[0], entry[0]) and is_same(found[1], entry[1]) for found, entry in pairs)


@dataclass(frozen=True, eq=False)
class ListItems:
    """All items of a list."""

    items: list[Any]
    expected: tuple[Any, ...]
    text: str

    def holds(self) -> bool:
        return len(self.items) == len(self.expected) and all(map(is_same, self.items, self.expected))


@dataclass(frozen=True, eq=False)
class SetItems:
    """All members of a set, in the order in which it gives them."""

    members: set[Any]
    expected: tuple[Any, ...]
    text: str

    def holds(self) -> bool:
        return len(self.members) == len(self.expected) and all(map(is_same, self.members, self.expected))


@dataclass(frozen=True, eq=False)
class SetMember:
    """Whether a set has a member, where neither it nor any member compares itself in a way of its own."""

    members: set[Any]
    member: Any
    expected: bool
    text: str

    def holds(self) -> bool:
        are_usual = all(map(_compares_as_usual, set(map(type, self.members))))
        return are_usual and (self.member in self.members) is self.expected


def is_compared_as_usual(value: Any) -> bool:
    """Whether an object is a text, or a class that equals itself alone."""
    return _compares_as_usual(type(value))


def _compares_as_usual(kind: type) -> bool:
    return kind is str or (issubclass(kind, type) and kind.__eq__ is type.__eq__ and kind.__hash__ is type.__hash__)


@dataclass(frozen=True, eq=False)
class CellContents:
    """A variable of a closure."""

    cell: types.CellType
    expected: Any
    text: str

    def holds(self) -> bool:
        try:
            return is_same(self.cell.cell_contents, self.expected)
        except ValueError:  # the variable has been deleted
            return self.expected is ABSENT


@dataclass(frozen=True, eq=False)
class FunctionCode:
    """What a function does when it is called: its code and its defaults."""

    function: Any
    code: types.CodeType
    defaults: tuple[Any, ...] | None
    keyword_defaults: tuple[tuple[str, Any], ...]
    text: str

    @staticmethod
    def of(function: Any) -> FunctionCode:
        keywords = tuple((function.__kwdefaults__ or {}).items())
        return FunctionCode(function, function.__code__, function.__defaults__, keywords, function.__qualname__)

    def holds(self) -> bool:
        function = self.function
        if function.__code__ is not self.code or not is_same(function.__defaults__, self.defaults):
            return False
        found = tuple((function.__kwdefaults__ or {}).items())
        return is_same(found, self.keyword_defaults)


@dataclass(frozen=True, eq=False)
class PartialCall:
    """What a partial function calls and passes, which `__setstate__` can replace."""

    partial: functools.partial[Any]
    parts: tuple[Any, Any, Any]
    text: str

    @staticmethod
    def of(partial: functools.partial[Any], text: str) -> PartialCall:
        return PartialCall(partial, (partial.func, partial.args, partial.keywords), text)

    def holds(self) -> bool:
        found = (self.partial.func, self.partial.args, self.partial.keywords)
        return all(one is other for one, other in zip(found, self.parts, strict=True))


@dataclass(frozen=True, eq=False)
class TypeAttribute:
    """What looking up a name along a class's method resolution order finds (ABSENT: nothing)."""

    cls: type
    name: str
    expected: Any
    text: str

    def holds(self) -> bool:
        return is_same(type_lookup(self.cls, self.name), self.expected)


@dataclass(frozen=True, eq=False)
class ClassName:
    """What a class is called, or the order of its bases."""

    cls: type
    name: str
    expected: Any
    text: str

    def holds(self) -> bool:
        return is_same(type.__getattribute__(self.cls, self.name), self.expected)


@dataclass(frozen=True, eq=False)
class Subclass:
    """Whether a class counts as a subclass of an abstract one, which may have been registered."""

    cls: type
    of: type
    expected: bool
    text: str

    def holds(self) -> bool:
        return issubclass(self.cls, self.of) is self.expected


@dataclass(frozen=True, eq=False)
class ObjectClass:
    """The class of an object, where assigning to `__class__` can change it."""

    value: Any
    cls: type
    text: str

    def holds(self) -> bool:
        return type(self.value) is self.cls


@dataclass(frozen=True, eq=False)
class InstanceDict:
    """The dictionary of an instance, which assigning to `__dict__` can replace."""

    value: Any
    dictionary: dict[str, Any] = field(repr=False)
    text: str

    def holds(self) -> bool:
        return object.__getattribute__(self.value, "__dict__") is self.dictionary


@dataclass(frozen=True, eq=False)
class SlotContents:
    """What an object holds in a slot of its class."""

    value: Any
    descriptor: types.MemberDescriptorType
    expected: Any
    text: str

    def holds(self) -> bool:
        try:
            return is_same(self.descriptor.__get__(self.value, type(self.value)), self.expected)
        except AttributeError:
            return self.expected is ABSENT


@dataclass(frozen=True, eq=False)
class ContextValue:
    """What a context variable holds for the calling thread."""

    variable: ContextVar[Any]
    expected: Any
    text: str

    def holds(self) -> bool:
        return is_same(self.variable.get(ABSENT), self.expected)


@dataclass(frozen=True, eq=False)
class Switch:
    """What a native function of PyTorch's answers about one of its switches."""

    function: Callable[[], Any]
    expected: Any
    text: str

    def holds(self) -> bool:
        return is_same(self.function(), self.expected)


@dataclass(frozen=True, eq=False)
class TensorMetadata:
    """What a tensor that is not an argument is like, apart from its values."""

    tensor: torch.Tensor
    expected: tuple[Any, ...]
    text: str

    @staticmethod
    def of(tensor: torch.Tensor, text: str) -> TensorMetadata:
        return TensorMetadata(tensor, tensor_metadata(tensor), text)

    def holds(self) -> bool:
        return is_same(tensor_metadata(self.tensor), self.expected)


@dataclass(frozen=True, eq=False)
class WholeDict:
    """The dictionary of a module whose functions are taken as single operations: they may read any entry."""

    dictionary: dict[str, Any] = field(repr=False)
    expected: dict[str, Any] = field(repr=False)
    builtins: Any = field(repr=False)
    text: str

    def holds(self) -> bool:
        found = self.dictionary
        if any(found.get(name, ABSENT) is not value for name, value in self.expected.items()):
            return False
        # Names that are added (modules imported later) do no harm, unless they hide a built-in name.
        return len(found) == len(self.expected) or not any(
            name in self.builtins for name in found.keys() - self.expected.keys()
        )


_LOOKED_AT = ("dictionary", "items", "members", "table", "cell", "function", "partial", "cls", "value", "variable")
_EXPECTED = ("expected", "parts", "defaults", "keyword_defaults")


def identities_in(guards: Iterable[Guard]) -> frozenset[int]:
    """The identities of all objects that guards hold: those they look at, and what they expect there."""
    looked_at = {id(getattr(guard, name)) for guard in guards for name in _LOOKED_AT if hasattr(guard, name)}
    return frozenset(looked_at) | expected_in(guards)


def expected_in(guards: Iterable[Guard], apart_from: Collection[int] = ()) -> frozenset[int]:
    """The identities of the objects that guards expect to find, apart from places in objects of these identities."""
    found: set[int] = set()
    for guard in guards:
        if any(id(getattr(guard, name, None)) in apart_from for name in _LOOKED_AT):
            continue
        for name in _EXPECTED:
            _note_parts(getattr(guard, name, None), found)
    return frozenset(found)


def _note_parts(value: Any, found: set[int]) -> None:
    found.add(id(value))
    for part in tuple.__iter__(value) if isinstance(value, tuple) else ():
        _note_parts(part, found)


def tensor_metadata(tensor: torch.Tensor) -> tuple[Any, ...]:
    with torch._C.DisableTorchFunction():
        parts = (tensor.dtype, tensor.device, tensor.shape, tensor.layout, tensor.requires_grad)
        return (*parts, tensor.stride()) if tensor.layout == torch.strided else parts


def dict_items(dictionary: dict[Any, Any]) -> tuple[tuple[Any, Any], ...]:
    """The entries in the order in which iterating gives them: an OrderedDict keeps one of its own."""
    return tuple(OrderedDict.items(dictionary) if isinstance(dictionary, OrderedDict) else dict.items(dictionary))


def type_lookup(cls: type, name: str) -> Any:
    """What Python's own lookup along the method resolution order finds; ABSENT if nothing."""
    for base in type.__dict__["__mro__"].__get__(cls):
        entries = type.__dict__["__dict__"].__get__(base)
        if name in entries:
            return entries[name]
    return ABSENT
