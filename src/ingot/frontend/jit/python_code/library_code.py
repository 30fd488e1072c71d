"""What a code object tells: the names it looks up, those it assigns to, and the library it belongs to; and whether an
object runs no code but that of libraries."""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Any

import torch

_LIBRARIES = sys.stdlib_module_names | {"torch", "numpy", "ingot"}


def is_librarys(module: str | None) -> bool:
    """Whether code belongs to a library whose globals do not change."""
    return (module or "").split(".")[0] in _LIBRARIES


_VARIABLE_FUNCTIONS: Any = vars(torch._C)["_VariableFunctions"]
_HOLDS_NO_CODE = (
    *(bool, int, float, complex, str, bytes, type(None)),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)
_NATIVE = (
    *(types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType),
    *(types.MemberDescriptorType, types.ClassMethodDescriptorType),
)


def is_librarys_own(value: Any, _within: Collection[int] = ()) -> bool:
    """Whether an object is a library's function with everything it closes over, a class or module of a library, native
    code, or a plain value. `__module__` of a function says nothing: functools.wraps copies it."""
    if id(value) in _within or type(value) in _HOLDS_NO_CODE or type(value) in _NATIVE:
        return True
    within = (*_within, id(value))
    if type(value) is types.FunctionType:
        is_own = is_librarys(value.__globals__.get("__name__"))
        return is_own and all(is_librarys_own(held, within) for held in closed_over(value))
    if type(value) is types.BuiltinFunctionType:
        owner: Any = value.__self__
        return owner is None or isinstance(owner, types.ModuleType | type) or type(owner) is type(_VARIABLE_FUNCTIONS)
    if type(value) is property:
        return all(is_librarys_own(part, within) for part in (value.fget, value.fset, value.fdel))
    if type(value) in (staticmethod, classmethod):
        return is_librarys_own(value.__func__, within)
    if isinstance(value, types.ModuleType):
        return type(value) is types.ModuleType or is_librarys(type(value).__module__)
    return isinstance(value, type) and is_librarys(value.__module__)


def closed_over(function: types.FunctionType) -> Iterator[Any]:
    """What a function's closure holds."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # nothing yet
            continue


@lru_cache(maxsize=4096)
def names_in(code: types.CodeType) -> frozenset[str]:
    """All names of globals and attributes in code, and in code within it."""
    return frozenset(name for one in with_inner(code) for name in one.co_names)


@lru_cache(maxsize=4096)
def global_names(code: types.CodeType) -> tuple[str, ...]:
    """The names that code looks up among its globals; its other names are attributes."""
    # LOAD_GLOBAL keeps in its lowest bit whether a call follows.
    return tuple(
        {code.co_names[number >> (opcode == _LOAD_GLOBAL)] for opcode, number in _instructions(code, _LOOKING_UP)}
    )


_LOAD_GLOBAL, _EXTENDED_ARG = dis.opmap["LOAD_GLOBAL"], dis.EXTENDED_ARG
_LOOKING_UP = frozenset({_LOAD_GLOBAL, dis.opmap["LOAD_NAME"]})


def _instructions(code: types.CodeType, opcodes: frozenset[int]) -> Iterator[tuple[int, int]]:
    """The instructions of some kinds with their numbers. `dis` tells the same, and much more, in 20 times the time."""
    extension, content = 0, code.co_code
    for opcode, number in zip(content[::2], content[1::2], strict=True):
        if opcode in opcodes:
            yield opcode, extension | number
        extension = (extension | number) << 8 if opcode == _EXTENDED_ARG else 0


_ASSIGNING = {dis.opmap[name] for name in ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "DELETE_DEREF")}


@lru_cache(maxsize=4096)
def assigned_names(code: types.CodeType) -> frozenset[str]:
    """The variables outside a function, global or closed over, that it or a function inside it assigns to."""
    found: set[str] = set()
    for inner in with_inner(code):
        if _ASSIGNING.isdisjoint(inner.co_code[::2]):
            continue
        for one in dis.get_instructions(inner):
            is_global = one.opname in ("STORE_GLOBAL", "DELETE_GLOBAL")
            if is_global or (one.opname in ("STORE_DEREF", "DELETE_DEREF") and one.argval in code.co_freevars):
                found.add(one.argval)
    return frozenset(found)


def with_inner(code: types.CodeType) -> list[types.CodeType]:
    """A code object and those nested in it."""
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return [code, *(found for nested in inner for found in with_inner(nested))]


def methods(class_: type, name: str) -> list[types.FunctionType]:
    """The method of a user's class, and those it calls by name, with what wraps them."""
    found: dict[int, types.FunctionType] = {}
    names, waiting = {name}, [name]
    while waiting:
        name = waiting.pop()
        value = next((vars(base)[name] for base in class_.__mro__ if name in vars(base)), None)
        for function in _functions(value):
            if id(function) not in found and not is_librarys(function.__module__):
                found[id(function)] = function
                called = {other for code in with_inner(function.__code__) for other in code.co_names} - names
                names |= called
                waiting += called
    return list(found.values())


def _functions(value: object) -> list[types.FunctionType]:
    """The functions behind a method, property or wrapper, from the outside in."""
    found: list[types.FunctionType] = []
    while value is not None:
        if isinstance(value, types.FunctionType):
            found.append(value)
        inner = getattr(value, "fget", None) or getattr(value, "__func__", None)
        value = inner or getattr(value, "__wrapped__", None)
        if len(found) > 100:  # a wrapper that wraps itself
            break
    return found
