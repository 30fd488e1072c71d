"""Python's side of interception: native functions take the places of torch's, which stay what they are for Python.

In: a builtin function, a method or an attribute of torch's, and what native code does with it. Out: the same object,
whose calls come to native code first. Of methods and attributes the address of the definition is replaced that they
read their C function from, by that of a copy with another function. Builtin functions are told apart by their C
functions, in sets and dictionaries too: theirs stay, and only the address is replaced that Python calls them through.
Identity, name and documentation stay, and compilers that read Python see no difference.
"""

from __future__ import annotations

import ctypes
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ingot.runtime.native.assembler.routines import Library, make_immortal
from ingot.runtime.native.assembler.structs import WORD_BYTES, Field, Struct
from ingot.runtime.native.following.following_structs import NativeRole
from ingot.runtime.native.following.intercepting import (
    BARES,
    GETTERS,
    METHODS,
    QUICK_CALL_WORD,
    SLOTS,
    ArgumentForm,
    SlotWords,
)

_DEFINITION_WORDS = {
    types.BuiltinFunctionType: 2,
    types.MethodDescriptorType: 5,
    types.GetSetDescriptorType: 5,
}
"""Where objects of these classes have the address of their definition."""
_COPIED_WORDS = {types.BuiltinFunctionType: 4, types.MethodDescriptorType: 4, types.GetSetDescriptorType: 5}
"""How many words such a definition has."""
_POSITIONAL_AND_KEYWORDS, _NO_ARGUMENTS, _ONE_ARGUMENT, _STATIC, _COEXIST, _FAST = 3, 4, 8, 32, 64, 128
_MAPPING_WORD, _SUBSCRIPT_WORD = 14, 1
"""Where a class has the address of its functions for subscripts, and where the one that reads is among them."""
_GET_ITEM: Any = torch.Tensor.__getitem__
_QUESTIONS = (
    ("_has_torch_function_unary", "ask_one", _ONE_ARGUMENT),
    ("_has_torch_function", "ask_all", _ONE_ARGUMENT),
    ("_has_torch_function_variadic", "ask_many", _FAST),
)


class _DescriptorDefinition(Struct):
    """What PyMethodDef and PyGetSetDef begin with."""

    name: Field
    function: Field
    """The C function."""
    flags: Field
    """The calling convention; not of an attribute."""


class Interception:
    """The functions that are intercepted in this process. There is one, for good."""

    def __init__(self, library: Library, mode_class: type):
        """Calls are followed by modes of one class."""
        self._library = library
        self._slots = _address_of(library, "slots_address")
        self._taken: set[int] = set()
        self._free = {"method": iter(range(METHODS)), "bare": iter(range(BARES)), "getter": iter(range(GETTERS))}
        self._aliases = _aliases()
        _words_at(library, "mode_class_address", 1)[0] = id(mode_class)
        self._ask_natively()

    def _ask_natively(self) -> None:
        originals = _words_at(self._library, "questions_address", len(_QUESTIONS))
        for place, (name, routine, _) in enumerate(_QUESTIONS):
            question = getattr(torch._C, name)
            originals[place] = _quick_call(question).value
            # Python calls functions of one argument directly, unless their definition says something that it does not
            # expect; this flag means nothing for a function that is no method.
            _replace(
                question, _DescriptorDefinition.flags, _definition(question)[_DescriptorDefinition.flags] | _COEXIST
            )
            _quick_call(question).value = self._library.address(routine)

    def take(self, function: Any, role: NativeRole) -> None:
        """Let native code come first when a function, method or attribute of torch's is called."""
        for one in (function, *self._aliases.get(id(function), ())):
            self._take(one, function, role)

    def _take(self, function: Any, key: Any, role: NativeRole) -> None:
        kind, first = _kind(function), {"method": 0, "bare": METHODS, "getter": METHODS + BARES}
        if id(function) in self._taken or (kind == "getter" and role is not NativeRole.METADATA):
            return
        if function is _GET_ITEM:
            self._take_subscript(role)
        if kind == "builtin":
            self._taken.add(id(function))
            _quick_call(function).value = self._library.address("call_builtin")
        if kind in (None, "builtin"):
            return
        index = next(self._free[kind], None)
        if index is None:
            return
        self._taken.add(id(function))
        make_immortal(function)
        self._fill(
            first[kind] + index, key, role, _definition(function)[_DescriptorDefinition.function], ArgumentForm.METHOD
        )
        _replace(function, _DescriptorDefinition.function, self._library.address(f"{kind}_{index}"))

    def _fill(self, number: int, key: Any, role: NativeRole, original: int, form: ArgumentForm) -> None:
        slot = SlotWords.at(self._slots + number * SlotWords.words() * WORD_BYTES)
        slot.become(SlotWords(key=id(key), role=role, original=original, form=form))

    def _take_subscript(self, role: NativeRole) -> None:
        """Classes have the function behind tensor[index] in a place of their own; those that are made later inherit it,
        and a `__getitem__` that a user sets on a class goes before it."""
        places = [_subscript_of(kind) for kind in (torch.Tensor, torch.nn.Parameter)]
        if any(place.value != places[0].value for place in places):
            return
        self._taken.add(id(_GET_ITEM))
        self._fill(SLOTS - 1, _GET_ITEM, role, places[0].value, ArgumentForm.PAIR)
        for place in places:
            place.value = self._library.address("subscript")


def can_intercept() -> bool:
    """Whether torch's questions and methods are defined as expected."""
    questions = [getattr(torch._C, name, None) for name, _, _ in _QUESTIONS]
    if not all(isinstance(one, types.BuiltinFunctionType) and _has_own_name(one) for one in questions):
        return False
    if any(_flags(one) != flags for one, (_, _, flags) in zip(questions, _QUESTIONS, strict=True)):
        return False
    samples = (torch.Tensor.mul, torch.Tensor.dim, torch.Tensor.shape, torch.sigmoid)
    if not all(map(_has_own_name, samples)) or [*map(_kind, samples)] != ["method", "bare", "getter", "builtin"]:
        return False
    quick = [_quick_call(one).value for one in (*questions, torch.sigmoid, len)]
    if 0 in quick[:-2] or quick[-2] != 0 or quick[-1] != quick[0]:
        return False
    own = type("Own", (), {"__getitem__": lambda self, index: index, "__len__": lambda self: 0})
    other = type("Other", (), {"__getitem__": lambda self, index: index})
    return _subscript_of(own).value == _subscript_of(other).value != _subscript_of(torch.Tensor).value


def _kind(function: Any) -> str | None:
    """Which of the native functions can stand in for one of torch's."""
    if isinstance(function, types.GetSetDescriptorType):
        is_torchs = function.__objclass__ is torch._C.TensorBase
        return "getter" if is_torchs and _has_own_name(function) else None
    if isinstance(function, types.MethodDescriptorType):
        is_torchs = function.__objclass__ is torch._C.TensorBase and _has_own_name(function)
        kinds = {_POSITIONAL_AND_KEYWORDS: "method", _NO_ARGUMENTS: "bare"}
        return kinds.get(_flags(function)) if is_torchs else None
    if isinstance(function, types.BuiltinFunctionType) and _is_function_of_torch(function) and _has_own_name(function):
        is_free = _flags(function) == _POSITIONAL_AND_KEYWORDS and _quick_call(function).value == 0
        return "builtin" if is_free else None
    return None


def _is_function_of_torch(function: Any) -> bool:
    owners = (torch._C, *(getattr(torch._C, name, None) for name in ("_VariableFunctions", "_nn")))
    return any(getattr(owner, function.__name__, None) is function for owner in owners)


def _definition(function: Any) -> Any:
    """The words of an object's definition."""
    address = ctypes.c_uint64.from_address(id(function) + 8 * _DEFINITION_WORDS[type(function)]).value
    return (ctypes.c_uint64 * _COPIED_WORDS[type(function)]).from_address(address)


def _has_own_name(function: Any) -> bool:
    """Whether there is a definition where one is expected."""
    return ctypes.string_at(_definition(function)[_DescriptorDefinition.name]) == function.__name__.encode()


def _flags(function: Any) -> int:
    return _definition(function)[_DescriptorDefinition.flags] & 0xFFFFFFFF & ~_STATIC


def _quick_call(function: Any) -> Any:
    """Where a builtin function has the address that Python calls it through, 0 for none."""
    distance = ctypes.c_uint64.from_address(id(types.BuiltinFunctionType) + 8 * QUICK_CALL_WORD).value
    return ctypes.c_uint64.from_address(id(function) + distance)


def _replace(function: Any, word: int, value: int) -> None:
    """Give an object a definition that differs in a word."""
    definition = _definition(function)
    copied = type(definition)(*definition)
    copied[word] = value
    make_immortal(copied)
    place = id(function) + 8 * _DEFINITION_WORDS[type(function)]
    ctypes.c_uint64.from_address(place).value = ctypes.addressof(copied)


def _subscript_of(class_: type) -> Any:
    """Where a class has the function behind object[index]."""
    table = ctypes.c_uint64.from_address(id(class_) + 8 * _MAPPING_WORD).value
    return ctypes.c_uint64.from_address(table + 8 * _SUBSCRIPT_WORD)


def _words_at(library: Library, name: str, count: int) -> Any:
    return (ctypes.c_uint64 * count).from_address(_address_of(library, name))


def _address_of(library: Library, name: str) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_uint64)(library.address(name))()


# --- operators --------------------------------------------------------------------------------------------------------

_OPERATORS = (
    *("__add__", "__radd__", "__iadd__", "__mul__", "__rmul__", "__imul__", "__sub__", "__isub__", "__matmul__"),
    *("__div__", "__truediv__", "__itruediv__", "__neg__", "__mod__", "__and__", "__or__", "__xor__", "__invert__"),
    *("__pow__", "__ipow__", "__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"),
)


class _Listening(TorchFunctionMode):
    """Notes what torch tells modes of, and computes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.heard.append(func)
        return args[0]


def _aliases() -> dict[int, list[Any]]:
    """The methods behind operators, by the identity of the function that torch tells modes of instead."""
    found: dict[int, list[Any]] = {}
    operand = torch.zeros(1, 1)
    for name in _OPERATORS:
        method = vars(torch._C.TensorBase).get(name)
        if not isinstance(method, types.MethodDescriptorType):
            continue
        with _Listening() as listening:
            _call_either(method, ((operand, operand), (operand,)))
        if len(listening.heard) == 1 and listening.heard[0] is not method:
            found.setdefault(id(listening.heard[0]), []).append(method)
    return found


def _call_either(method: Callable[..., Any], choices: Iterable[tuple[Any, ...]]) -> None:
    for given in choices:
        try:
            method(*given)
        except TypeError:
            continue
        return
