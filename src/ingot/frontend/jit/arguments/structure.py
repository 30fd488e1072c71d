"""Nested arguments and results: taken apart into a shape and its leaves, and put together again.

    shape := leaf | container type with the shapes of its parts

Lists, tuples, named tuples, dictionaries and dataclasses are containers, and so is every class that is registered with
torch's own pytree. Everything else is a leaf. Shapes are compared and hashed: they are part of what a recording is for.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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
    if kind is dict or kind is OrderedDict:
        return Shape(kind, names_of(value), tuple([take_apart(part, leaves, expand) for part in value.values()]))
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return Shape(kind, None, tuple([take_apart(part, leaves, expand) for part in value]))
    if kind is defaultdict:
        parts = tuple([take_apart(part, leaves, expand) for part in value.values()])
        return Shape(kind, (value.default_factory, names_of(value)), parts)
    registered = _pytree.SUPPORTED_NODES.get(kind)
    if registered is not None and kind is not torch.Size:  # which is a plain value
        parts, context = registered.flatten_fn(value)
        return Shape(Registered(kind), Context(context), tuple([take_apart(part, leaves, expand) for part in parts]))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = tuple(field.name for field in dataclasses.fields(value))
    else:
        names = ()
    if names and set(getattr(value, "__dict__", names)) <= set(names):  # nothing besides its fields
        return Shape(Fields(kind), names, tuple([take_apart(getattr(value, name), leaves, expand) for name in names]))
    if expand is not None and (shape := expand(value, leaves)) is not None:
        return shape
    leaves.append(value)
    return LEAF


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
    return shape.kind(*parts)


def mutable_containers(value: Any) -> Iterator[Any]:
    """The containers in a value that can change, from the outside in."""
    kind = type(value)
    if kind is list or isinstance(value, dict) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        yield value
    if kind is list or isinstance(value, tuple):
        parts: Any = value
    elif isinstance(value, dict):
        parts = value.values()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
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
