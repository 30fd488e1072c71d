"""What an object is made of that never changes: its kind, plain facts about it, and other objects.

In: any object of a process. Out: an `Anatomy`, the same for the object that takes its place in another process, or
`NotPortable`. What always holds: everything that the walk of a proof may read of an object without a guard is part of
its anatomy; whatever can change is not, for guards compare that. Objects that hold something else in native code,
such as locks, files and compiled patterns, have no anatomy.
"""

from __future__ import annotations

import builtins
import functools
import sys
import types
from collections import OrderedDict, _tuplegetter  # type: ignore[attr-defined]
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum, EnumMeta
from hashlib import sha256
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.torch_version import TorchVersion

from ingot.base.errors import UnsupportedError

_FUNCTIONS_OF_TORCH: Any = vars(torch._C)["_VariableFunctions"]
_HEAP_TYPE = 1 << 9
_WORD = 8
_CONTAINERS = (list, set, dict, OrderedDict)
_OPEN_BASES = frozenset({object, types.SimpleNamespace, *_CONTAINERS})
"""Native classes whose objects hold nothing besides what guards compare."""


class NotPortable(UnsupportedError):
    """Why something cannot be described to another process."""


@dataclass(frozen=True, slots=True)
class Anatomy:
    kind: str
    facts: Any
    """Texts, numbers and lists of these, as JSON has them."""
    parts: tuple[Any, ...] = ()


def anatomy(value: Any) -> Anatomy:
    """What an object is made of."""
    known = _BY_CLASS.get(type(value))
    if known is not None:
        return known(value)
    for cls, of_class in _BY_BASE:
        if isinstance(value, cls):
            return of_class(value)
    return _instance(value)


def named(module: Any, qualified_name: Any) -> Any:
    """What a module holds under a name with dots; None if there is no such thing. Runs no code of the module's."""
    found = sys.modules.get(module) if isinstance(module, str) else None
    for part in qualified_name.split(".") if isinstance(qualified_name, str) else ():
        if isinstance(found, type):
            found = type.__dict__["__dict__"].__get__(found).get(part)
        elif isinstance(found, types.ModuleType):
            found = vars(found).get(part)
        else:
            return None
    return found


# --- classes ----------------------------------------------------------------------------------------------------------


def _class(cls: type) -> Anatomy:
    name = [type.__getattribute__(cls, "__module__"), type.__getattribute__(cls, "__qualname__")]
    if not cls.__flags__ & _HEAP_TYPE:
        return Anatomy("native class", name)
    own = type.__dict__["__dict__"].__get__(cls)
    if "_ingot_original" in own:  # made by `ingot.jit` of a module, for that module alone
        return Anatomy("class of a compiled module", sorted(own), (type(cls), *cls.__mro__[1:]))
    if not _is_found(cls, name, own):
        raise NotPortable(f"the class {cls.__qualname__} is not found by its name")
    facts = [*name, cls.__dictoffset__ != 0, list(getattr(cls, "_fields", ())) if issubclass(cls, tuple) else None]
    members = (cls._member_map_,) if isinstance(cls, EnumMeta) else ()
    return Anatomy("class", facts, (type(cls), *cls.__mro__[1:], *members))


def _is_found(cls: type, name: list[str], own: Mapping[str, Any]) -> bool:
    """Whether a class is the one of its name. Modules that stand in for others, such as torch.backends, hide their
    classes: their methods find these, or they are of these. Where there is no CUDA, torch._C has classes instead of
    functions."""
    found = named(*name)
    if found is cls or type(sys.modules.get(name[0])) is cls or vars(torch._C).get(cls.__name__) is cls:
        return True
    return any(isinstance(one, types.FunctionType) and one.__globals__.get(cls.__name__) is cls for one in own.values())


def _instance(value: Any) -> Anatomy:
    cls = type(value)
    for base in cls.__mro__:
        if not base.__flags__ & _HEAP_TYPE:
            if base not in _OPEN_BASES:
                raise NotPortable(f"an object of the class {cls.__qualname__} may hold anything in native code")
        elif _is_native(base):
            raise NotPortable(f"the class {base.__qualname__} is native code")
    return Anatomy("object", None, (cls,))


def _is_native(cls: type) -> bool:
    """Whether a class that is made while a program runs was made by native code, and may have more in its objects. That
    is decided when the class is made."""
    found = _NATIVE.get(cls)
    if found is None:
        found = _NATIVE[cls] = _was_made_natively(cls)
    return found


_NATIVE: WeakKeyDictionary[type, bool] = WeakKeyDictionary()


def _was_made_natively(cls: type) -> bool:
    own = type.__dict__["__dict__"].__get__(cls)
    if any(type(one) is types.MethodDescriptorType and one.__objclass__ is cls for one in own.values()):
        return True
    slots = sum(type(one) is types.MemberDescriptorType for one in own.values())
    added = _WORD * (slots + ("__dict__" in own) + ("__weakref__" in own))
    base = cls.__base__
    return cls.__itemsize__ != 0 or base is None or cls.__basicsize__ - base.__basicsize__ > added


# --- functions --------------------------------------------------------------------------------------------------------


def _function(function: types.FunctionType) -> Anatomy:
    if function.__builtins__ is not builtins.__dict__:  # type: ignore[attr-defined]
        raise NotPortable(f"{function.__qualname__} has built-in functions of its own")
    parts: list[Any] = [function.__globals__]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        parts.append(cell)
        if name == "__class__":  # which super() reads
            parts.append(cell.cell_contents)
    facts = [function.__module__, function.__qualname__, function.__name__, code_digest(function.__code__)]
    return Anatomy("function", facts, tuple(parts))


def code_digest(code: types.CodeType) -> str:
    """A hash of all that code does. Where it stands in its file is not part of that."""
    return sha256(repr(_code_parts(code)).encode()).hexdigest()[:32]


def _code_parts(code: types.CodeType) -> list[Any]:
    constants = [_code_parts(one) if isinstance(one, types.CodeType) else _constant(one) for one in code.co_consts]
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return [code.co_name, code.co_code, code.co_exceptiontable, counts, names, constants]


def _constant(value: Any) -> Any:
    """A constant with its type. The order of a frozen set differs from process to process: a recording that depends on
    it is not kept."""
    if isinstance(value, tuple):
        return [tuple, *map(_constant, value)]
    if isinstance(value, frozenset):
        return [frozenset, *sorted(repr(_constant(one)) for one in value)]
    return [type(value), value]


def _builtin(function: types.BuiltinFunctionType) -> Anatomy:
    owner: Any = function.__self__
    if named(function.__module__, function.__name__) is function:
        return Anatomy("native function of a module", [function.__module__, function.__name__])
    return Anatomy("native function", [function.__module__, function.__qualname__], (owner,))


def _descriptor(found: Any) -> Anatomy:
    return Anatomy(type(found).__name__, found.__name__, (found.__objclass__,))


# --- everything else --------------------------------------------------------------------------------------------------


def _module(module: types.ModuleType) -> Anatomy:
    name = vars(module).get("__name__")
    if type(name) is not str or sys.modules.get(name) is not module:
        raise NotPortable("a module is not found by its name")
    return Anatomy("module", name, () if type(module) is types.ModuleType else (type(module),))


def _dictionary(value: dict[Any, Any]) -> Anatomy:
    if value is sys.modules:
        return Anatomy("sys.modules", None)
    name = value.get("__name__")
    module = sys.modules.get(name) if type(name) is str else None
    return Anatomy("globals", name) if module is not None and vars(module) is value else Anatomy("dict", None)


def _enumerated(member: Enum) -> Anatomy:
    return Anatomy("member", member._name_, (type(member),))


def _operator(operator: Any) -> Anatomy:
    return Anatomy("operator", str(operator), (type(operator),))


def _native_singleton(value: Any) -> Anatomy:
    """The object whose methods are PyTorch's functions: there is one."""
    if value is not _FUNCTIONS_OF_TORCH:
        raise NotPortable(f"an object of the class {type(value).__qualname__} may hold anything in native code")
    return Anatomy("torch._C._VariableFunctions", None)


_DESCRIPTORS = (
    *(types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType),
    *(types.MemberDescriptorType, types.ClassMethodDescriptorType),
)
_BY_CLASS: dict[Any, Callable[[Any], Anatomy]] = {
    types.FunctionType: _function,
    types.BuiltinFunctionType: _builtin,
    types.MethodType: lambda value: Anatomy("method", None, (value.__func__, value.__self__)),
    types.MethodWrapperType: lambda value: Anatomy("method-wrapper", value.__name__, (value.__self__,)),
    **dict.fromkeys(_DESCRIPTORS, _descriptor),
    property: lambda value: Anatomy("property", None, (value.fget, value.fset, value.fdel)),
    staticmethod: lambda value: Anatomy("staticmethod", None, (value.__func__,)),
    classmethod: lambda value: Anatomy("classmethod", None, (value.__func__,)),
    functools.partial: lambda value: Anatomy("partial", None),
    _tuplegetter: lambda value: Anatomy("field of a named tuple", value.__reduce__()[1][0]),
    types.CellType: lambda value: Anatomy("cell", None),
    TorchVersion: lambda value: Anatomy("torch version", str(value)),
    types.CodeType: lambda value: Anatomy("code", code_digest(value)),
    types.UnionType: lambda value: Anatomy("union", None, value.__args__),
    ContextVar: lambda value: Anatomy("context variable", value.name),
    torch.Tensor: lambda value: Anatomy("tensor", None, (torch.Tensor,)),
    torch.nn.Parameter: lambda value: Anatomy("tensor", None, (torch.nn.Parameter,)),
    dict: _dictionary,
    **dict.fromkeys((list, set, OrderedDict), lambda value: Anatomy(type(value).__name__, None)),
    type(_FUNCTIONS_OF_TORCH): _native_singleton,
}
_BY_BASE: tuple[tuple[type, Callable[[Any], Anatomy]], ...] = (
    (type, _class),
    (types.ModuleType, _module),
    (Enum, _enumerated),
    (tuple, lambda value: Anatomy("named tuple", len(value), (type(value), *value))),
    (torch._ops.OpOverload, _operator),
    (torch._ops.OpOverloadPacket, _operator),
)
