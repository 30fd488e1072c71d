"""Where a dictionary has its version, a number that every change of it changes and that no two states share.

In: a dictionary. Out: whether its version tells of every change, as dictionaries of this very process show when they
are changed in all the ways there are. Python has such versions since 3.6 (PEP 509). From 3.13 on, attributes that are
set on an object can change its dictionary without a new version; the versions of modules' dictionaries are right there,
too. Where anything is not as expected no version is read, and entries are looked up.
"""

from __future__ import annotations

import ctypes
import sys
import types
from collections.abc import Callable
from typing import Any

from ingot.base.once import once

VERSION_WORD = 3
"""The word of a dictionary with its version."""
NO_VERSION = 0
"""No dictionary has this one."""
_WORD = 8
_ROUNDS = 80
"""Often enough for Python to have specialised the code that makes a change."""


def has_version(dictionary: dict[Any, Any]) -> bool:
    """Whether the version of a dictionary changes whenever the dictionary does."""
    if not _are_versions_right():
        return False
    return _are_versions_of_objects_right() or _is_of_module(dictionary)


def _is_of_module(dictionary: dict[Any, Any]) -> bool:
    name = dict.get(dictionary, "__name__")
    module = sys.modules.get(name) if type(name) is str else None
    return type(module) is types.ModuleType and module.__dict__ is dictionary


@once
def _are_versions_right() -> bool:
    """Whether each change of a dictionary gives it a version that none had, and looking at it keeps the one it has."""
    changes: tuple[Callable[[dict[str, Any]], Any], ...] = (
        lambda table: table.__setitem__("first", object()),
        lambda table: table.__setitem__("last", object()),
        lambda table: table.pop("last"),
        lambda table: table.setdefault("last", object()),
        lambda table: table.update(first=object()),
        lambda table: table.popitem(),
        lambda table: table.__delitem__("first"),
        lambda table: table.__ior__({"first": object()}),
        lambda table: table.clear(),
    )
    tables: list[dict[str, Any]] = [{"first": 1}, types.ModuleType("sample").__dict__, type("Sample", (dict,), {})()]
    return all(_tells(table, changes) for table in tables) and _tells_of_globals()


def _tells(table: dict[str, Any], changes: tuple[Callable[[dict[str, Any]], Any], ...]) -> bool:
    seen = {_version(table), NO_VERSION}
    for change in changes * 2:
        change(table)
        version = _version(table)
        if version in seen:
            return False
        seen.add(version)
        _ = table.get("first"), list(table), len(table), table.copy(), "last" in table
        if _version(table) != version:
            return False
    return True


def _tells_of_globals() -> bool:
    """The same of names that code assigns to globally, and of attributes that are set on a module."""
    module = types.ModuleType("sample")
    table: dict[str, Any] = module.__dict__
    table["value"] = None

    def assign(value: Any) -> None:
        global value_of_sample
        value_of_sample = value

    assign = types.FunctionType(assign.__code__, table)
    return _tells_each_time(table, assign) and _tells_each_time(table, lambda value: setattr(module, "value", value))


class _Sample:
    value: Any


@once
def _are_versions_of_objects_right() -> bool:
    """The same of attributes that are set on an object whose dictionary has been asked for."""
    return all(_tells_of_attributes(_Sample()) for _ in range(3))


def _tells_of_attributes(sample: Any) -> bool:
    sample.value = 0
    table: dict[str, Any] = sample.__dict__

    def assign(value: Any) -> None:
        sample.value = value

    return _tells_each_time(table, assign)


def _tells_each_time(table: dict[str, Any], assign: Callable[[Any], None]) -> bool:
    for _ in range(_ROUNDS):
        before = _version(table)
        assign(object())
        if _version(table) == before:
            return False
    return True


def _version(dictionary: dict[Any, Any]) -> int:
    return ctypes.c_uint64.from_address(id(dictionary) + VERSION_WORD * _WORD).value
