"""Guards: places that a recording depends on, and what they held.

In: dictionaries, objects, cells and containers with what they hold now. Out: the name of the first that holds something
else later. Places are compared by identity, plain values by value; containers whose parts have no place of their own
are compared with a copy.
"""

from __future__ import annotations

import gc
import types
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch

from ingot.runtime.native.dispatch.conditions import Places

SIMPLE = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size, Enum)
"""Classes whose values are compared by equality, not by identity."""


class _Nothing:
    """The content of an empty place: a missing key, an empty cell."""

    def __repr__(self) -> str:
        return "nothing"


NOTHING = _Nothing()


@dataclass(slots=True)
class Guards:
    """Places and what they held."""

    entries: list[tuple[Mapping[Any, Any], Any, Any, str]] = field(default_factory=list)
    """dictionary, key, the object there, and how to name the place to a user"""
    cells: list[tuple[types.CellType, Any, str]] = field(default_factory=list)
    lengths: list[tuple[Any, int, str]] = field(default_factory=list)
    copies: list[tuple[Callable[[], Any], Any, str]] = field(default_factory=list)
    """a function that copies a container, and the copy it gave"""

    contexts: list[tuple[ContextVar[Any], Any, str]] = field(default_factory=list)

    def add_to(self, places: Places) -> bool:
        """Have native code guard the same places; whether it can read all of them."""
        is_complete = not self.copies
        for container, length, _ in self.lengths:
            is_complete = is_complete and type(container).__len__ in (list.__len__, dict.__len__)
            places.has_length(container, length)
        for table, key, _, _ in self.entries:
            is_complete = is_complete and _add_entry(places, table, key)
        for variable, _, _ in self.contexts:
            places.context_holds(variable, NOTHING, variable.get(NOTHING))
        for cell, _, _ in self.cells:
            content = contents(cell)
            if content is NOTHING:
                places.cell_is_empty(cell)
            else:
                places.cell_holds(cell, content)
        return is_complete

    def changed(self) -> str | None:
        """The first place that holds something else than it did; None if all is as it was."""
        for table, key, value, name in self.entries:
            if table.get(key, NOTHING) is not value and not _is_same(table.get(key, NOTHING), value):
                return name
        for cell, value, name in self.cells:
            if contents(cell) is not value and not _is_same(contents(cell), value):
                return name
        for variable, value, name in self.contexts:
            if variable.get(NOTHING) is not value and not _is_same(variable.get(NOTHING), value):
                return name
        for container, length, name in self.lengths:
            if len(container) != length:
                return name
        for copy, value, name in self.copies:
            if copy() != value:
                return name
        return None


@dataclass(slots=True)
class Outdated(Guards):
    """The guards of a recording that is to be made again."""

    def changed(self) -> str:
        return "what kept Python from being skipped"


class Items(dict[int, Any]):
    """A list as a table of its items."""

    def __init__(self, values: list[Any]):
        super().__init__()
        self.source = values

    def get(self, key: int, default: Any = None) -> Any:
        return self.source[key] if key < len(self.source) else default


class ObjectSlots(dict[str, Any]):
    """The slots of an object as a table."""

    def __init__(self, value: Any):
        super().__init__()
        self._value = value

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return object.__getattribute__(self._value, key)  # the class may have a fallback for missing ones
        except AttributeError:
            return default


class Identities:
    """The objects of a container; equal to those of another if they are the same objects in the same order."""

    def __init__(self, values: Iterable[Any]):
        self._values = list(values)  # kept alive, so that no other object takes the identity of one of them

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Identities) or len(self._values) != len(other._values):
            return False
        return all(one is another for one, another in zip(self._values, other._values, strict=True))

    __hash__ = None  # type: ignore[assignment]


def contents(cell: types.CellType) -> Any:
    """What a cell holds."""
    try:
        return cell.cell_contents
    except ValueError:  # a variable that has no value yet
        return NOTHING


def _is_same(found: Any, expected: Any) -> bool:
    """Whether another object may take the place of one: numbers, texts and the like may, if they are equal."""
    if type(found) is not type(expected) or not isinstance(found, SIMPLE):
        return False
    return found == expected and str(found) == str(expected)  # 0.0 == -0.0, but they give different results


def _add_entry(places: Places, table: Any, key: Any) -> bool:
    """Add an entry of a table with what it holds now, if native code can read the table."""
    value = table.get(key, NOTHING)
    if type(table) is Items:
        places.list_holds(table.source, key, value)
        return type(table.source) is list
    if isinstance(table, types.MappingProxyType):
        (table,) = gc.get_referents(table)
    if not isinstance(table, dict) or type(table).get is not dict.get or type(key) not in (str, int):
        return False
    if value is NOTHING:
        places.dictionary_lacks(table, key)
    else:
        places.dictionary_holds(table, key, value)
    return True
