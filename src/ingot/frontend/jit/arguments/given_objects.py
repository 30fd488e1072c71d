"""Ordinary objects with state among the arguments of a call, such as caches of past keys, taken apart.

In: an object whose whole state is a plain `__dict__`. Out: its shape, whose leaves are what its attributes hold, and
what each object, list and dictionary in it held when the call began. What always holds: none of the user's code runs;
an object that is reached twice, or is too large, is refused, so that the shape says everything about the objects.
"""

from __future__ import annotations

import types
from abc import ABCMeta
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch

from ingot.frontend.jit.arguments.structure import (
    LEAF,
    InstanceAttributes,
    Shape,
    is_named_tuple,
    is_told_by_entries,
    mutable_containers,
    names_of,
)

MOST_PARTS = 4096
"""Leaves and containers of the objects of one call."""
MOST_NESTED = 12
_HEAP_TYPE = 1 << 9
_KEYS = (bool, int, float, complex, str, bytes, type(None))
_PLAIN_TABLES = (dict, OrderedDict, defaultdict)
_OWN_METHODS = ("__getattribute__", "__setattr__", "__delattr__")
_FORBIDDEN = ("__call__", "__del__", "__torch_function__")


class Unsuitable(Exception):
    """Objects that cannot be taken apart; the text says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """An object, a list or a dictionary, and what it held when the call began."""

    container: Any
    contents: dict[Any, Any] | list[Any]
    """A copy: of the attributes, where it is an object."""
    table: dict[str, Any] | None
    """The dictionary of an object's attributes; None for lists and dictionaries."""

    def now(self) -> dict[Any, Any] | list[Any] | None:
        """What it holds now; None if that cannot be compared with what it held: it has another class of dictionary."""
        if self.table is None:
            return list(self.container) if isinstance(self.contents, list) else dict(self.container)
        attributes = attributes_of(type(self.container))
        table = None if attributes is None else attributes(self.container)
        return dict(table) if type(table) is dict else None


@dataclass(slots=True)
class GivenObjects:
    """The objects of one call with the lists and dictionaries in them, in the order in which they are met."""

    held: list[Held] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)
    """The position of each by its identity; `held` keeps them alive."""
    outputs: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Dictionaries among the other arguments that are dataclasses as well, such as outputs of models, by identity."""
    _parts: int = 0

    def expand(self, value: Any, leaves: list[Any]) -> Shape | None:
        """The shape of an ordinary object, whose leaves are added to the list; None for anything else."""
        attributes = attributes_of(type(value))
        return None if attributes is None else self._object(value, attributes, leaves, 0)

    def finish(self, args: Any) -> None:
        """Make sure that the arguments around the objects reach nothing in them, and that their entries say all about
        dictionaries of other classes."""
        for one in mutable_containers(args):
            if id(one) in self.places:
                raise Unsuitable("an object among the arguments shares a list or a dictionary with another argument")
            if isinstance(one, dict) and type(one) not in _PLAIN_TABLES:
                if not is_told_by_entries(one):
                    raise Unsuitable(f"an argument is a {type(one).__name__}, which may change without ingot seeing it")
                self.outputs[id(one)] = one

    def position_of(self, value: Any) -> int | None:
        """The position of an object, a list or a dictionary; None for anything that is none of these."""
        return self.places.get(id(value))

    def identities(self) -> set[int]:
        """The identities of all of them, and of the dictionaries of attributes."""
        return {*self.places, *(id(one.table) for one in self.held if one.table is not None)}

    def _object(self, value: Any, attributes: Callable[[Any], dict[str, Any]], leaves: list[Any], depth: int) -> Shape:
        table = attributes(value)
        self._count(table, depth)
        if type(table) is not dict or not all(type(name) is str for name in table):
            raise Unsuitable(f"a {type(value).__name__} among the arguments keeps its attributes in an unusual way")
        self._hold(Held(value, dict(table), table))
        parts = tuple([self._take(part, leaves, depth + 1) for part in table.values()])
        return Shape(InstanceAttributes(type(value)), tuple(table), parts)

    def _take(self, value: Any, leaves: list[Any], depth: int) -> Shape:
        kind = type(value)
        if kind is torch.Tensor or kind in _KEYS:
            leaves.append(value)
            return LEAF
        if kind in (list, tuple, dict) or issubclass(kind, tuple):
            self._count(value, depth)
        if kind is list:
            self._hold(Held(value, list(value), None))
            return Shape(kind, None, tuple([self._take(part, leaves, depth + 1) for part in value]))
        if kind is dict and all(type(key) in _KEYS for key in value):
            self._hold(Held(value, dict(value), None))
            return Shape(kind, names_of(value), tuple([self._take(part, leaves, depth + 1) for part in value.values()]))
        if kind is tuple or is_named_tuple(value):
            return Shape(kind, None, tuple([self._take(part, leaves, depth + 1) for part in tuple.__iter__(value)]))
        attributes = attributes_of(kind)
        if attributes is not None:
            return self._object(value, attributes, leaves, depth)
        leaves.append(value)
        return LEAF

    def _count(self, container: Any, depth: int) -> None:
        self._parts += len(container)
        if self._parts > MOST_PARTS or depth > MOST_NESTED:
            raise Unsuitable("an object among the arguments has too many parts")

    def _hold(self, one: Held) -> None:
        if id(one.container) in self.places:
            raise Unsuitable("an object, a list or a dictionary is reached twice from the arguments")
        self.places[id(one.container)] = len(self.held)
        self.held.append(one)


class _Plain:
    """A class as `class Name: ...` makes it: its objects are as large, and keep their attributes where these do."""


_ATTRIBUTES: WeakKeyDictionary[type, list[Callable[[Any], dict[str, Any]]]] = WeakKeyDictionary()
"""For classes that were looked at: what gives the dictionary of their objects' attributes, or nothing."""


def attributes_of(kind: type) -> Callable[[Any], dict[str, Any]] | None:
    """What gives the dictionary that is the whole state of a class's objects; None if they have more state than that,
    or their class handles attributes in ways of its own.

    A class can come to do that after it was looked at. The proof notices, since it guards how attributes are read,
    written and deleted; what is read here is read in C."""
    if not kind.__flags__ & _HEAP_TYPE:
        return None
    found = _ATTRIBUTES.get(kind)
    if found is None:
        getter = _getter(kind)
        found = _ATTRIBUTES[kind] = [] if getter is None else [getter]
    return found[0] if found else None


def _getter(kind: type) -> Callable[[Any], dict[str, Any]] | None:
    sizes = ("__basicsize__", "__itemsize__", "__dictoffset__", "__weakrefoffset__")
    if type(kind) not in (type, ABCMeta) or any(getattr(kind, name) != getattr(_Plain, name) for name in sizes):
        return None
    *bases, root = kind.__mro__
    if root is not object or not all(base.__flags__ & _HEAP_TYPE for base in bases):
        return None
    if any(getattr(kind, name, None) is not getattr(object, name) for name in _OWN_METHODS):
        return None
    if any(name in vars(base) for base in bases for name in _FORBIDDEN):
        return None
    tables = [vars(base)["__dict__"] for base in bases if "__dict__" in vars(base)]
    return tables[0].__get__ if tables and type(tables[0]) is types.GetSetDescriptorType else None
