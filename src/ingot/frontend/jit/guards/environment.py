"""What a function finds around itself: closed-over values, globals, and the modules it belongs to or calls.

In: a function and the objects it was bound to, then the code that is seen to run. Out: the tensors it can reach without
being given them, and guards over all places whose contents must still be the same objects for a recording to hold.
Modules and other objects are looked through wholly (parameters, buffers, submodules, flags, plain attributes, those of
their classes), functions through the globals and cells their code names.
"""

from __future__ import annotations

import functools
import gc
import inspect
import io
import os
import random
import sys
import threading
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from torch.nn.modules import module as torch_modules

from ingot.frontend.jit.guards.guards import NOTHING, SIMPLE, Guards, Identities, Items, ObjectSlots, contents
from ingot.frontend.jit.proof.domain.result_caches import KeepingFunction, ResultCache
from ingot.frontend.jit.python_code.library_code import assigned_names, global_names, is_librarys, methods, with_inner

_DEEPEST = 60
_MOST_PLACES = 100_000
_LARGEST_ARRAY = 4096
"""The largest array, in bytes, that is compared with a copy at every call."""
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks")
_MODULE_TABLES = ("_parameters", "_buffers", "_modules")
_UNGUARDED = frozenset(
    {
        *_HOOKS,
        *_MODULE_TABLES,
        "_backward_hooks",
        "_backward_pre_hooks",
        "_forward_hooks_with_kwargs",
        "_forward_hooks_always_called",
        "_forward_pre_hooks_with_kwargs",
        "_is_full_backward_hook",
        "_non_persistent_buffers_set",
        "_state_dict_hooks",
        "_state_dict_pre_hooks",
        "_load_state_dict_pre_hooks",
        "_load_state_dict_post_hooks",
        "_version",
        "_ingot_compiled_methods",
    }
)
"""Attributes of every module that do not change what its forward computes."""
_STATEFUL = (threading.local, Iterator, random.Random, numpy.random.Generator, numpy.random.RandomState, io.IOBase)
"""Objects of libraries that change when they are used, without anything to see from outside."""
_READS_ENVIRONMENT = frozenset({"environ", "getenv"})
_MEMBERS = (
    types.FunctionType,
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
    property,
    staticmethod,
    classmethod,
)


@dataclass(slots=True)
class Environment:
    """The tensors around a function, its modules, and the guards over all of it."""

    guards: Guards = field(default_factory=Guards)
    tensors: dict[int, torch.Tensor] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    """What to call those tensors, by their identity."""
    modules: list[tuple[str, torch.nn.Module]] = field(default_factory=list)
    contexts: list[tuple[ContextVar[Any], Any]] = field(default_factory=list)
    """Context variables that a recorded call has touched, and what they held before it did."""
    unguardable: str | None = None
    """Why no guards can tell whether a recording still holds, if they cannot."""
    seen: dict[int, Any] = field(default_factory=dict)
    """What has been looked at, kept alive so that no other object takes its identity."""
    _codes: set[types.CodeType] = field(default_factory=set)
    _inner: set[types.CodeType] = field(default_factory=set)
    """Code of functions that other functions define when they run: their variables outside are those functions' own."""
    _places: set[tuple[int, Any]] = field(default_factory=set)

    def uses(self, names: frozenset[str]) -> bool:
        """Whether code around the function, or its own, has one of some names for globals or attributes."""
        return any(not names.isdisjoint(code.co_names) for code in self._codes)

    def hooked(self, outermost: torch.nn.Module | None) -> str | None:
        """A module inside whose hooks Python would have to run; None if there is none.

        Hooks of the module whose forward is compiled run outside of it, and cost nothing here.
        """
        inner = [(name, module) for name, module in self.modules if module is not outermost]
        for name, module in inner:
            if any(getattr(module, hooks) for hooks in _HOOKS):
                return name
        if inner and any(getattr(torch_modules, hooks) for hooks in _GLOBAL_HOOKS):
            return "every module"
        return None

    def saw(self, frame: types.FrameType) -> str | None:
        """Take note of code that begins to run; why no recording can stand for it, if none can."""
        code = frame.f_code
        if is_librarys(frame.f_globals.get("__name__")):
            return None
        if code not in self._codes:
            self._visit_code(code, frame.f_globals, 0)
            if set(code.co_freevars) - {"__class__"} and not code.co_filename.startswith("<"):
                for function in gc.get_referrers(code):
                    if isinstance(function, types.FunctionType):
                        self.visit(function, "", 0)
        assigned = assigned_names(code) - (set(code.co_freevars) if code in self._inner else set())
        if assigned:
            return f"{code.co_name} assigns to {min(assigned)}, a variable outside of it"
        return self.unguardable

    def touch_context(self, variable: ContextVar[Any], is_read: bool) -> None:
        """Take note of a context variable that is about to be read or set; what is set first is not read."""
        if all(known is not variable for known, _ in self.contexts):
            value = variable.get(NOTHING)
            self.contexts.append((variable, value))
            if is_read:
                self.guards.contexts.append((variable, value, f"the context variable {variable.name}"))
                self.visit(value, variable.name, 0)

    def sets_context(self) -> str | None:
        """A context variable that a call has left with other contents than it found; None if there is none."""
        return next((variable.name for variable, value in self.contexts if variable.get(NOTHING) is not value), None)

    def let_go(self, outermost: torch.nn.Module | None) -> None:
        """Let go of the user's objects, because the recording does not stand in for Python: Python code that runs at
        every call would notice, by weak references and finalisers, that they are kept alive.

        Plain values in modules of Python and in the module whose method is compiled are still guarded, and hooks: a
        change of one, such as `training`, tells that another recording may be worth while.
        """
        inner = [] if outermost is None else list(outermost.modules())
        attributes = {id(vars(module)) for module in inner}
        hooks = {id(getattr(module, name)) for module in inner for name in _HOOKS}
        hooks |= {id(getattr(torch_modules, name)) for name in _GLOBAL_HOOKS}
        guards, kept = self.guards, Guards()
        for table, key, value, name in guards.entries:
            if isinstance(value, SIMPLE) and (id(table) in attributes or _is_of_a_module(table)):
                kept.entries.append((table, key, value, name))
        kept.lengths += [one for one in guards.lengths if id(one[0]) in hooks]
        self.guards = kept
        for held in (self.tensors, self.names, self.modules, self.contexts, self.seen):
            held.clear()
        for known in (self._codes, self._inner, self._places):
            known.clear()

    # --- looking through objects --------------------------------------------------------------------------------------

    def visit(self, value: Any, name: str, depth: int) -> None:
        if isinstance(value, SIMPLE) or id(value) in self.seen:
            return
        if depth > _DEEPEST or len(self.guards.entries) > _MOST_PLACES:
            self.unguardable = f"there are more objects around it than can be guarded (at {name})"
            return
        self.seen[id(value)] = value
        if isinstance(value, torch.Tensor):
            self.tensors[id(value)] = value
            self.names[id(value)] = name
        elif isinstance(value, torch.nn.Module):
            self._visit_module(value, name, depth)
        elif isinstance(value, types.MethodType):
            self.visit(value.__self__, _join(name, "self"), depth + 1)
            self.visit(value.__func__, name, depth + 1)
        elif isinstance(value, types.FunctionType):
            self._visit_function(value, depth)
        elif isinstance(value, functools.partial):
            self.visit((value.func, value.args, value.keywords), name, depth + 1)
        elif isinstance(value, list | tuple):
            self._visit_sequence(value, name, depth)
        elif isinstance(value, dict):
            self._visit_table(value, name, depth)
        elif isinstance(value, set | frozenset | deque | bytearray | numpy.ndarray):
            self._visit_values(value, name, depth)
        elif isinstance(value, type):
            self._visit_class(value, name, depth)
        elif _is_users_object(value):
            self._visit_attributes(value, name, depth)
        elif (wrapped := _wrapped(value)) is not None:
            if type(value) is KeepingFunction:
                self._visit_results(value, name, depth)
            self.visit(wrapped, name, depth + 1)
        elif isinstance(value, _STATEFUL):
            self.unguardable = f"{name} is a {type(value).__name__}, which changes without ingot seeing it"

    def _visit_module(self, module: torch.nn.Module, name: str, depth: int) -> None:
        self.modules.append((name or "the module", module))
        for table in _MODULE_TABLES:
            self._visit_table(vars(module).get(table, {}), name, depth)
        for hooks in _HOOKS:
            self.guards.lengths.append((getattr(module, hooks), len(getattr(module, hooks)), f"{name}.{hooks}"))
        attributes = {key: value for key, value in vars(module).items() if key not in _UNGUARDED}
        self._guard(vars(module), attributes, name, depth)
        if not is_librarys(type(module).__module__):
            self.guards.lengths.append((vars(module), len(vars(module)), f"the attributes of {name or 'the module'}"))
            self.visit(type(module), name, depth + 1)
            for method in methods(type(module), "forward"):
                self.visit(method, name, depth + 1)

    def _visit_attributes(self, value: Any, name: str, depth: int) -> None:
        table = getattr(value, "__dict__", None)
        if isinstance(table, dict):
            self._guard(table, dict(table), name, depth)
            self.guards.lengths.append((table, len(table), f"the attributes of {name}"))
        slots = ObjectSlots(value)
        held = {key: slots.get(key, NOTHING) for base in type(value).__mro__ for key in _slots(base)}
        self._guard(slots, {key: one for key, one in held.items() if one is not NOTHING}, name, depth)
        self.visit(type(value), name, depth + 1)
        for method in methods(type(value), "__call__"):
            self.visit(method, name, depth + 1)
        wrapped = _wrapped(value)
        if wrapped is not None:
            self.visit(wrapped, name, depth + 1)

    def _visit_class(self, class_: type, name: str, depth: int) -> None:
        """The attributes of a class that are no methods."""
        for base in class_.__mro__:
            if not is_librarys(base.__module__):
                plain = {
                    key: value
                    for key, value in vars(base).items()
                    if not key.startswith("__") and not isinstance(value, _MEMBERS) and key not in _UNGUARDED
                }
                self._guard(vars(base), plain, _join(name, base.__name__), depth)

    def _visit_function(self, function: types.FunctionType, depth: int) -> None:
        if is_librarys(function.__module__):
            return
        self._visit_code(function.__code__, function.__globals__, depth)
        for key, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            value = contents(cell)
            self.guards.cells.append((cell, value, key))
            self.visit(value, key, depth + 1)
        for value in (function.__defaults__, function.__kwdefaults__):
            self.visit(value, "a default", depth + 1)

    def _visit_code(self, code: types.CodeType, globals_: dict[str, Any], depth: int) -> None:
        for inner in with_inner(code):
            self._codes.add(inner)
            if inner is not code:
                self._inner.add(inner)
            if not _READS_ENVIRONMENT.isdisjoint(inner.co_names):
                self.guards.copies.append((os.environ.copy, os.environ.copy(), "os.environ"))
            names = [key for key in global_names(inner) if key in globals_ or key not in _BUILTINS]
            self._watch_names(globals_, names, inner, "", depth)

    def _watch_names(
        self, globals_: Mapping[str, Any], names: Iterable[str], code: types.CodeType, name: str, depth: int
    ) -> None:
        """Guard names in a table of globals; where they are modules of the user's, what the code looks up in them."""
        named = {key: globals_.get(key, NOTHING) for key in names}
        self._guard(globals_, named, name, depth)
        for key, module in named.items():
            if isinstance(module, types.ModuleType) and not is_librarys(module.__name__) and depth < _DEEPEST:
                table = vars(module)
                known = [one for one in code.co_names if one in table and (id(table), one) not in self._places]
                self._watch_names(table, known, code, _join(name, key), depth + 1)

    def _visit_sequence(self, values: Sequence[Any], name: str, depth: int) -> None:
        if isinstance(values, list):
            self.guards.lengths.append((values, len(values), name))
            items = Items(values)
            self.guards.entries += [(items, i, v, f"{name}[{i}]") for i, v in enumerate(values)]
        for index, value in enumerate(values):
            self.visit(value, f"{name}[{index}]", depth + 1)

    def _visit_results(self, value: KeepingFunction[Any], name: str, depth: int) -> None:
        """The tensors among the results that a function has kept."""
        cache = ResultCache.of(value)
        for result in () if cache is None else cache.results():
            if isinstance(result, torch.Tensor) or type(result) is tuple:
                self.visit(result, name, depth + 1)

    def _visit_table(self, table: Any, name: str, depth: int) -> None:
        if not all(map(_is_plain_key, dict.keys(table))):
            self.unguardable = f"{name} has keys that run Python code when they are compared"
            return
        if type(table).get is not dict.get or type(table).__len__ not in (dict.__len__, OrderedDict.__len__):
            self.unguardable = f"{name} is a {type(table).__name__}, which looks up entries in its own way"
            return
        self.guards.lengths.append((table, len(table), name))
        held = dict(dict.items(table))  # read by the base class: a subclass may give something else
        self._guard(table, held, name, depth)

    def _visit_values(self, values: Any, name: str, depth: int) -> None:
        """Containers whose parts have no place of their own."""
        if isinstance(values, numpy.ndarray):
            if values.nbytes > _LARGEST_ARRAY or values.dtype.hasobject:
                self.unguardable = f"{name} is a large array of numpy's, which changes without ingot seeing it"
                return
            take: Callable[[], Any] = values.tobytes
        elif isinstance(values, deque):
            take = lambda: Identities(values)
        else:
            take = lambda: bytes(values) if isinstance(values, bytearray) else frozenset(values)
        self.guards.copies.append((take, take(), name))
        for value in () if isinstance(values, numpy.ndarray | bytearray) else values:
            self.visit(value, name, depth + 1)

    def _guard(self, table: Mapping[Any, Any], contents_: Mapping[Any, Any], name: str, depth: int) -> None:
        for key, value in contents_.items():
            if (id(table), key) in self._places:
                continue
            full = _join(name, str(key))
            if not isinstance(table, types.MappingProxyType):  # a new object every time it is asked for
                self._places.add((id(table), key))
            self.guards.entries.append((table, key, value, full))
            self.visit(value, full, depth + 1)


class KnownTensors(Environment):
    """The tensors that a recording has found around a function. Code is not looked through for others: one that is not
    among these is a difference."""

    __slots__ = ()

    def saw(self, frame: types.FrameType) -> str | None:
        return None


def _is_of_a_module(table: Mapping[Any, Any]) -> bool:
    """Whether a table holds the globals of a module of Python's."""
    module = sys.modules.get(table.get("__name__", "")) if type(table) is dict else None
    return module is not None and vars(module) is table


def environment_of(function: Callable[..., Any], objects: Iterable[tuple[str, Any]]) -> Environment:
    """The environment of a function; `objects` are what it was bound to or passed that is not a tensor, by name."""
    found = Environment()
    for hooks in _GLOBAL_HOOKS:
        table = getattr(torch_modules, hooks)
        found.guards.lengths.append((table, len(table), "hooks of every module"))
    for name, value in objects:
        found.visit(value, name, 0)
    found.visit(function, "", 0)
    return found


_BUILTINS = frozenset(vars(__import__("builtins")))


def _join(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key


def _is_users_object(value: Any) -> bool:
    """Whether an object's attributes may decide what a function does."""
    if isinstance(value, type | types.ModuleType | types.BuiltinFunctionType):
        return False
    is_plain = type(value) in (types.SimpleNamespace,) or type(value).__module__ == "argparse"
    return is_plain or not is_librarys(type(value).__module__)


def _wrapped(value: Any) -> Any:
    """What a decorator of a library has wrapped, found without running code of the object's own."""
    found = inspect.getattr_static(value, "__wrapped__", None)
    return None if isinstance(found, types.MemberDescriptorType | types.GetSetDescriptorType | property) else found


def _is_plain_key(key: Any) -> bool:
    """Whether looking for a key in a dictionary runs no Python code."""
    if isinstance(key, tuple | frozenset) and type(key) in (tuple, frozenset):
        return all(map(_is_plain_key, key))
    return not any(isinstance(getattr(type(key), name), types.FunctionType) for name in ("__hash__", "__eq__"))


def _slots(class_: type) -> Sequence[str]:
    found = vars(class_).get("__slots__", ())
    return (found,) if isinstance(found, str) else [key for key in found if key not in ("__dict__", "__weakref__")]
