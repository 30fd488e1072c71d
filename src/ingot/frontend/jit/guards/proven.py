"""The guards of a proof, in Python and natively.

In: a proof that a function is closed. Out: guards that a specialisation holds, and the same for native code: what lies
in memory is compared there, a class by its version, which Python changes with the class or any of its bases. What only
Python can tell is asked of Python.
"""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import torch

from ingot.base.once import once
from ingot.frontend.jit.guards.guards import Guards
from ingot.frontend.jit.proof import Proof
from ingot.frontend.jit.proof.domain import place_guards as proven
from ingot.frontend.jit.proof.domain.place_guards import identities_in
from ingot.frontend.jit.proof.domain.result_caches import LimitedResult, result_address
from ingot.frontend.jit.python_code.class_versions import halves, version_half
from ingot.runtime.native.abi.object_layout import INLINE_RANK, TYPE_WORD, tensor_layout
from ingot.runtime.native.assembler.addresses import REQUIRES_GRAD, torch_function
from ingot.runtime.native.dispatch.conditions import Places

_WORD = 8
_get_dictionary = ctypes.pythonapi["_PyObject_GetDictPtr"]
_get_dictionary.restype, _get_dictionary.argtypes = ctypes.c_void_p, [ctypes.py_object]


@dataclass(slots=True)
class ProvenGuards(Guards):
    """The guards of what a proof read."""

    proof: Proof = field(default_factory=lambda: Proof([], [], [], []))
    versions: dict[type, list[int]] = field(default_factory=dict)
    """The versions of classes when native code was given their guards."""

    def changed(self) -> str | None:
        return self.proof.broken()

    def identities(self) -> frozenset[int]:
        """The identities of all objects that the guards hold: those they look at, and what they expect there."""
        return identities_in(self.proof.guards)

    def add_to(self, places: Places) -> bool:
        classes: set[int] = set()
        return all(_add(places, guard, self.versions, classes) for guard in self.proof.guards)


def _add(places: Places, guard: proven.Guard, versions: dict[type, list[int]], classes: set[int]) -> bool:
    """Have native code check a guard; whether it can."""
    match guard:
        case proven.DictEntry():
            return _add_entry(places, guard)
        case LimitedResult():
            places.dictionary_holds(guard.table, guard.key, guard.link)
            places.keep(guard.expected)
            places.word_is(result_address(guard.link), id(guard.expected))
        case proven.DictItems() if type(guard.dictionary) is dict or len(guard.dictionary) < 2:
            places.dictionary_is(guard.dictionary)
        case proven.DictItems() if not isinstance(guard.dictionary, OrderedDict):
            places.dictionary_is(guard.dictionary)
        case proven.ListItems():
            places.has_length(guard.items, len(guard.expected))
            for index, item in enumerate(guard.items):
                places.list_holds(guard.items, index, item)
        case proven.CellContents() if guard.expected is not proven.ABSENT:
            places.cell_holds(guard.cell, guard.cell.cell_contents)
        case proven.FunctionCode():
            return _add_function(places, guard)
        case proven.TypeAttribute():
            return _add_class(places, guard.cls, versions, classes) or _ask_python(places, guard)
        case proven.ObjectClass():
            places.keep(guard.value, guard.cls)
            places.word_is(id(guard.value) + TYPE_WORD * _WORD, id(guard.cls))
        case proven.InstanceDict():
            return _add_dictionary_of(places, guard)
        case proven.ClassName() if guard.name == "__mro__":
            return _add_class(places, guard.cls, versions, classes) or _ask_python(places, guard)
        case proven.SlotContents():
            return _add_slot(places, guard)
        case proven.ContextValue():
            places.context_holds(guard.variable, proven.ABSENT, guard.variable.get(proven.ABSENT))
        case proven.Switch() if guard.function() is guard.function():  # one object for each answer
            places.answers(guard.function, guard.function())
        case proven.WholeDict():  # names that are added ask for a new record, and Python says that they do no harm
            places.dictionary_is(guard.dictionary)
        case proven.TensorMetadata() if _add_tensor(places, guard.tensor):
            pass
        case _:
            return _ask_python(places, guard)
    return True


def _ask_python(places: Places, guard: proven.Guard) -> bool:
    places.answers(guard.holds, True)
    return True


def _add_entry(places: Places, guard: proven.DictEntry) -> bool:
    if type(guard.key) not in (str, int):
        return _ask_python(places, guard)
    value = dict.get(guard.dictionary, guard.key, proven.ABSENT)
    if value is proven.ABSENT:
        places.dictionary_lacks(guard.dictionary, guard.key)
    else:
        places.dictionary_holds(guard.dictionary, guard.key, value)
    return True


@once
def _function_words() -> tuple[int, int, int] | None:
    """Where a function has its code, its defaults and its keyword defaults."""

    def first(a: int = 1, *, b: int = 2) -> None: ...

    def second(a: str = "x", *, b: str = "y") -> None: ...

    found = []
    for name in ("__code__", "__defaults__", "__kwdefaults__"):
        places = [
            word
            for word in range(2, 16)
            if all(_read(id(one) + word * _WORD) == id(getattr(one, name)) for one in (first, second))
        ]
        found += places if len(places) == 1 else [-1]
    code, defaults, keywords = found
    return None if -1 in found else (code, defaults, keywords)


def _add_function(places: Places, guard: proven.FunctionCode) -> bool:
    words, function = _function_words(), guard.function
    if words is None or not hasattr(function, "__code__") or _read(id(function) + words[0] * _WORD) != id(guard.code):
        return _ask_python(places, guard)
    places.keep(function, guard.code, function.__defaults__, function.__kwdefaults__)
    for word in words:
        address = id(function) + word * _WORD
        places.word_is(address, _read(address))
    if function.__kwdefaults__:
        places.dictionary_is(function.__kwdefaults__)
    return True


_MOST_VERSIONS = 3
"""A class that had this many versions while a guard held is taken to change all the time, in attributes that do not
matter here: torch's own compiler counts its calls in attributes of a class."""


def _add_class(places: Places, cls: type, versions: dict[type, list[int]], classes: set[int]) -> bool:
    """The version of a class, which its bases' changes change as well; False if it has none, or a new one each time."""
    if id(cls) in classes:
        return True
    half = version_half()
    if half is None:
        return False
    getattr(cls, "__ingot_looks__", None)  # looking something up gives a class its version
    version, seen = halves(cls)[half], versions.setdefault(cls, [])
    if version and version not in seen and len(seen) < _MOST_VERSIONS:
        seen.append(version)
    if not version or len(seen) >= _MOST_VERSIONS:
        return False
    classes.add(id(cls))
    places.keep(cls)
    address, shift = id(cls) + half // 2 * _WORD, 32 * (half % 2)
    places.word_is(address, _read(address), 0xFFFFFFFF << shift)
    return True


def _add_dictionary_of(places: Places, guard: proven.InstanceDict) -> bool:
    address = _get_dictionary(guard.value)
    if not address or _read(address) != id(guard.dictionary):
        return _ask_python(places, guard)
    places.keep(guard.value, guard.dictionary)
    places.word_is(address, id(guard.dictionary))
    return True


class _Slotted:
    __slots__ = ("first", "second")


@once
def _offset_words() -> tuple[int, int] | None:
    """Where a descriptor of a slot refers to what describes it, and where that has the slot's offset in objects."""
    sample: Any = _Slotted()
    sample.first, sample.second = object(), object()
    words = (_DESCRIBED_WORD, _OFFSET_WORD)
    for name in _Slotted.__slots__:
        offset = _offset_of(vars(_Slotted)[name], words)
        is_known = 0 < offset < _Slotted.__basicsize__ and _read(id(sample) + offset) == id(getattr(sample, name))
        if not is_known:
            return None
    return words


_DESCRIBED_WORD, _OFFSET_WORD = 5, 2


def _offset_of(descriptor: Any, words: tuple[int, int]) -> int:
    return _read(_read(id(descriptor) + words[0] * _WORD) + words[1] * _WORD)


def _add_slot(places: Places, guard: proven.SlotContents) -> bool:
    """What an object holds in a slot; 0 where it holds nothing."""
    words = _offset_words()
    if words is None or type(guard.value).__dictoffset__ < 0 or guard.descriptor.__objclass__.__module__ == "builtins":
        return _ask_python(places, guard)
    address = id(guard.value) + _offset_of(guard.descriptor, words)
    held = 0 if guard.expected is proven.ABSENT else id(guard.expected)
    if _read(address) != held:
        return _ask_python(places, guard)
    places.keep(guard.value, guard.expected)
    places.word_is(address, held)
    return True


def _add_tensor(places: Places, tensor: torch.Tensor) -> bool:
    """Everything about a tensor but its values; False for unusual ones."""
    layout, requires_grad = tensor_layout(), torch_function(*REQUIRES_GRAD)
    if layout is None or requires_grad is None or tensor.layout != torch.strided or tensor.dim() > INLINE_RANK:
        return False
    implementation: Any = tensor._cdata
    places.keep(tensor)
    places.word_is(id(tensor) + layout.implementation_word * _WORD, implementation)
    word, quarter = divmod(layout.dtype_quarter, 4)
    words = [(layout.keys_word, -1), (word, 0xFFFF << 16 * quarter), (layout.rank_word, -1)]
    rank = tensor.dim()
    words += [(layout.rank_word + 1 + axis, -1) for axis in range(rank)]
    words += [(layout.rank_word + 1 + INLINE_RANK + axis, -1) for axis in range(rank)]
    for place, mask in words:
        address = implementation + place * _WORD
        places.word_is(address, _read(address), mask)
    places.flag_is(requires_grad.address, implementation, tensor.requires_grad)
    return True


def _read(address: int) -> int:
    return ctypes.c_int64.from_address(address).value
