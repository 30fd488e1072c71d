"""How Python's objects and torch's tensors lie in memory, found out by looking at some whose contents are known.

The launcher reads a few fields without calling anybody: an object's type, the value of a float, the items of a list,
and a tensor's dispatch keys, which tell in one comparison whether its memory holds what the tensor stands for. Each
place is confirmed by objects of this very process; where anything is not exactly as expected, there is no layout and
everything goes through Python.
"""

from __future__ import annotations

import ctypes
import platform
import struct
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from ingot.runtime.native.once import once

# Words of Python's objects; `_python_is_as_expected` confirms them.
TYPE_WORD = 1
FLOAT_WORD = 2
LENGTH_WORD = 2
ITEMS_WORD = 3
"""A list has the address of its items there, a tuple the items themselves."""

_TENSOR_OBJECT_WORDS = 4
_FIRST_FIELD = 2
"""Where that address must be. Older versions of torch have a flag before it, and sometimes another address."""
_TENSOR_WORDS = 24
"""A torch::TensorImpl has at least so many."""


@dataclass(frozen=True, slots=True)
class TensorLayout:
    implementation_word: int
    """Where a tensor object has the address of the tensor itself."""
    keys_word: int
    """Where the tensor has its dispatch keys."""
    plain_keys: tuple[int, ...]
    """The keys of ordinary CPU tensors: those that can take part in autograd, and those made in inference mode."""


@once
def tensor_layout() -> TensorLayout | None:
    """The layout of tensors in this process; None if Python or torch are not as expected."""
    if not _python_is_as_expected():
        return None
    samples = _sample_tensors()
    implementation = _only(
        {word for word in range(_TENSOR_OBJECT_WORDS) if _words(id(tensor), word + 1)[word] == tensor._cdata}
        for tensor in samples
    )
    keys = _only(
        {index for index, word in enumerate(_words(tensor._cdata, _TENSOR_WORDS)) if word == _keys(tensor)}
        for tensor in samples
    )
    if implementation != _FIRST_FIELD or keys is None:
        return None
    plain = sorted({_keys(tensor) for tensor in samples[:3]}, reverse=True)
    return TensorLayout(implementation, keys, tuple(plain))


def _python_is_as_expected() -> bool:
    if platform.python_implementation() != "CPython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return False
    if sys.byteorder != "little" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    first, second, number = object(), object(), 1234.5678
    items, pair = [first, second], (first, second)
    inside = _words(_words(id(items), ITEMS_WORD + 1)[ITEMS_WORD], 2)
    return (
        all(_words(id(thing), 2)[TYPE_WORD] == id(type(thing)) for thing in (items, pair, number, True, 5))
        and _words(id(number), 3)[FLOAT_WORD] == struct.unpack("<Q", struct.pack("<d", number))[0]
        and _words(id(items), 3)[LENGTH_WORD] == _words(id(pair), 3)[LENGTH_WORD] == 2
        and inside == [id(first), id(second)]
        and _words(id(pair), ITEMS_WORD + 2)[ITEMS_WORD:] == [id(first), id(second)]
    )


def _sample_tensors() -> list[torch.Tensor]:
    """Tensors of different kinds, so that their keys differ; the first three are ordinary ones."""
    with torch.inference_mode():
        inference = torch.empty(3)
    with torch.inference_mode(False):
        complex_ = torch.zeros(3, dtype=torch.complex64)
        return [
            torch.empty(3),
            torch.empty(3, 5, requires_grad=True),
            inference,
            complex_.conj(),
            complex_.conj().imag,
            torch._efficientzerotensor(3),
            torch.empty(3, device="meta"),
        ]


def _keys(tensor: torch.Tensor) -> int:
    return torch._C._dispatch_keys(tensor).raw_repr()


def _words(address: int, count: int) -> list[int]:
    return list((ctypes.c_uint64 * count).from_address(address))


def _only(candidates: Iterable[set[int]]) -> int | None:
    """The one number that is in every set."""
    common = set.intersection(*candidates)
    return common.pop() if len(common) == 1 else None
