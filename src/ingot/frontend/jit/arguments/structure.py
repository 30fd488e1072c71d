"""Nested arguments and results: taken apart into a shape and its leaves, and put together again.

    shape := leaf | container type with the shapes of its parts

Lists, tuples, named tuples, dictionaries and dataclasses are containers, and so is every class that is registered with
torch's own pytree. Everything else is a leaf. Shapes are compared and hashed: they are part of what a recording is for.
"""

from __future__ import annotations

import dataclasses
from abc import ABCMeta
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MemberDescriptorType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils import _pytree


@dataclass(frozen=True, slots=True)
class Shape:
    """How leaves are nested: a kind of container, what it knows besides its parts, and the shapes of its parts."""

    kind: Any
    """The class of the container; None for a leaf."""
    context: Any = None
    parts: tuple[Shape, ...] = ()
    _hash: int | None = field(default=None, init=False, repr=False, compare=False)
    """The hash, once it was asked for: a call is looked up by its shape several times."""

    def __hash__(self) -> int:
        found = self._hash
        if found is None:
            found = hash((self.kind, self.context, self.parts))
            object.__setattr__(self, "_hash", found)
        return found


LEAF = Shape(None)
_NEVER_NESTED = frozenset({torch.Tensor, torch.nn.Parameter, bool, int, float, str, type(None)})


Expand = Callable[[Any, list[Any]], Shape | None]
"""Takes apart what would be a leaf and adds its leaves to a list, or gives None for a leaf."""


def take_apart(value: Any, leaves: list[Any], expand: Expand | None = None) -> Shape:
    """The shape of a value; its leaves are added to the list, in order. What `expand` takes apart is no leaf."""
    kind: Any = type(value)
    if kind in _NEVER_NESTED:
        leaves.append(value)
        return LEAF
    if kind is tuple or kind is list:
        return Shape(kind, None, tuple([take_apart(part, leaves, expand) for part in value]))
    if kind is dict or (kind is OrderedDict and not value.__dict__):
        return Shape(kind, names_of(value), tuple([take_apart(part, leaves, expand) for part in value.values()]))
    if is_named_tuple(value):
        return Shape(kind, None, tuple([take_apart(part, leaves, expand) for part in tuple.__iter__(value)]))
    if kind is defaultdict:
        parts = tuple([take_apart(part, leaves, expand) for part in value.values()])
        return Shape(kind, (value.default_factory, names_of(value)), parts)
    registered = _pytree.SUPPORTED_NODES.get(kind)
    if isinstance(value, dict) and dataclasses.is_dataclass(value) and not is_told_by_entries(value):
        leaves.append(value)
        return LEAF
    if registered is not None and kind not in (torch.Size, OrderedDict):  # a plain value; one with attributes as well
        parts, context = registered.flatten_fn(value)
        return Shape(Registered(kind), Context(context), tuple([take_apart(part, leaves, expand) for part in parts]))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = tuple(field.name for field in dataclasses.fields(value))
    else:
        names = ()
    if names and set(getattr(value, "__dict__", names)) <= set(names) and _keeps_fields_alone(kind, names):
        return Shape(Fields(kind), names, tuple([take_apart(getattr(value, name), leaves, expand) for name in names]))
    if expand is not None and (shape := expand(value, leaves)) is not None:
        return shape
    leaves.append(value)
    return LEAF


def is_named_tuple(value: Any) -> bool:
    """Whether a value is a named tuple that holds its items and nothing else: objects of classes that derive from one
    may have attributes besides."""
    kind = type(value)
    if not (issubclass(kind, tuple) and hasattr(kind, "_fields")):
        return False
    return kind.__dictoffset__ == 0 or not object.__getattribute__(value, "__dict__")


_FIELDS_ALONE: WeakKeyDictionary[type, tuple[tuple[str, ...], bool]] = WeakKeyDictionary()
"""For dataclasses that were looked at: the names of their fields, and whether their objects keep nothing besides."""


def _keeps_fields_alone(kind: type, names: tuple[str, ...]) -> bool:
    """Whether objects of a dataclass keep nothing besides its fields and `__dict__`: no slots of other names, and
    nothing that a base written in C keeps, such as the items of a list."""
    known = _FIELDS_ALONE.get(kind)
    if known is None or known[0] != names:
        *bases, root = kind.__mro__
        slots = {name for base in bases for name, one in vars(base).items() if isinstance(one, MemberDescriptorType)}
        keeps = root is object and slots <= set(names) and all(base.__flags__ & _HEAP_TYPE for base in bases)
        known = _FIELDS_ALONE[kind] = names, keeps
    return known[1]


_HEAP_TYPE = 1 << 9


def is_taken_apart(value: Any) -> bool:
    """Whether a value is told by its parts, and not by its identity."""
    return take_apart(value, []).kind is not None


def is_told_by_entries(table: dict[str, Any]) -> bool:
    """Whether a dictionary that is a dataclass has the attributes that its entries say: each field that has no entry is
    None."""
    if not dataclasses.is_dataclass(table) or type(type(table)) not in (type, ABCMeta):
        return False
    names = [one.name for one in dataclasses.fields(table)]
    attributes = object.__getattribute__(table, "__dict__")
    if type(attributes) is not dict or list(attributes) != names or not set(dict.keys(table)) <= set(names):
        return False
    return all(attributes[name] is dict.get(table, name) for name in names)


class Names(tuple[Any, ...]):
    """Keys of a dictionary that are not all texts, compared with their types: 1, 1.0 and True are equal as keys."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Names) and list(map(_typed, self)) == list(map(_typed, other))

    def __hash__(self) -> int:
        return hash(tuple(map(_typed, self)))


def names_of(table: Mapping[Any, Any]) -> tuple[Any, ...]:
    """The keys of a dictionary, in order."""
    names = tuple(table)
    return names if all(type(name) is str for name in names) else Names(names)


def _typed(name: Any) -> Hashable:
    """What tells a key from others: numbers by type and text, for 0.0 is not -0.0; classes of users' by identity."""
    if isinstance(name, tuple):
        return (type(name), *map(_typed, name))
    if type(name) in (bool, int, float, complex, str, bytes, type(None)):
        return (type(name), repr(name))
    return (type(name), id(name))


def put_together(shape: Shape, leaves: Iterator[Any]) -> Any:
    """The value of a shape with these leaves."""
    if shape.kind is None:
        return next(leaves)
    parts = [put_together(part, leaves) for part in shape.parts]
    if shape.kind is list:
        return parts
    if shape.kind is tuple:
        return tuple(parts)
    if shape.kind is dict or shape.kind is OrderedDict:
        return shape.kind(zip(shape.context, parts, strict=True))
    if shape.kind is defaultdict:
        factory, names = shape.context
        return defaultdict(factory, zip(names, parts, strict=True))
    if isinstance(shape.kind, Registered):
        return _pytree.SUPPORTED_NODES[shape.kind.type].unflatten_fn(parts, shape.context.value)
    if isinstance(shape.kind, Fields):
        return _dataclass(shape.kind.type, dict(zip(shape.context, parts, strict=True)))
    return tuple.__new__(shape.kind, parts)  # a class may make something else of what it is called with


def mutable_containers(value: Any) -> Iterator[Any]:
    """The containers in a value that can change, from the outside in."""
    kind = type(value)
    registered = None if kind is list or isinstance(value, tuple | dict) else _pytree.SUPPORTED_NODES.get(kind)
    is_dataclass = dataclasses.is_dataclass(value) and not isinstance(value, type)
    if kind is list or isinstance(value, dict) or is_dataclass or registered is not None:
        yield value
    if kind is list or isinstance(value, tuple):
        parts: Any = value
    elif isinstance(value, dict):
        parts = value.values()
    elif registered is not None:
        parts = registered.flatten_fn(value)[0]
    elif is_dataclass:
        parts = [getattr(value, one.name) for one in dataclasses.fields(value)]
    else:
        return
    for part in parts:
        yield from mutable_containers(part)


def builder_of(shape: Shape) -> Callable[[Sequence[Any]], Any]:
    """A function that puts leaves together; the commonest shapes have quick ones."""
    if shape is LEAF or shape.kind is None:
        return lambda leaves: leaves[0]
    if all(part.kind is None for part in shape.parts):
        if shape.kind is tuple or shape.kind is list:
            return shape.kind
        if shape.kind is dict:
            return lambda leaves: dict(zip(shape.context, leaves, strict=True))
    return lambda leaves: put_together(shape, iter(leaves))


@dataclass(frozen=True, slots=True)
class Registered:
    """A class that torch's pytree knows."""

    type: type


@dataclass(frozen=True, slots=True)
class Fields:
    """A dataclass."""

    type: type


@dataclass(frozen=True, slots=True)
class InstanceAttributes:
    """An ordinary object: its class; its attributes by name are its parts."""

    type: type


class Context:
    """What a registered class knows besides its parts, compared by value where it can be."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Context) and bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash(repr(self.value))


def _dataclass(kind: type, values: dict[str, Any]) -> Any:
    """A dataclass with these fields, without running what its constructor would do besides."""
    made = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made
