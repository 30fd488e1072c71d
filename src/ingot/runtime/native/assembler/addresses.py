"""Where the functions and types are that native routines use: Python's, the C library's and torch's.

Nothing is compiled against headers: functions are found by name in what is loaded already. What may be missing is None,
and the caller does without.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch

from ingot.runtime.native.assembler.routines import Catching, Foreign
from ingot.runtime.native.assembler.structs import Field, Struct


class TorchSymbol(NamedTuple):
    """A function that one of torch's libraries exports."""

    library: str
    name: str
    """As C++ mangles it."""
    bits: int
    """How many bits its result has."""


REQUIRES_GRAD = TorchSymbol("c10", "_ZNK3c1010TensorImpl13requires_gradEv", 8)
"""Whether a C++ tensor needs gradients."""


def python_function(name: str, result_bits: int = 64) -> Foreign:
    """A function of Python's C interface."""
    return Foreign(_address(ctypes.pythonapi, name), result_bits)


def system_function(name: str, result_bits: int = 64) -> Foreign:
    """A function of the C library."""
    return Foreign(_address(_process(), name), result_bits)


def torch_function(library: str, name: str, result_bits: int = 64) -> Foreign | None:
    """A function that one of torch's libraries exports, by its C++ name; None if there is none."""
    for path in (Path(torch.__file__).parent / "lib").glob(f"lib{library}.*"):
        try:
            return Foreign(_address(ctypes.CDLL(str(path)), name), result_bits)
        except (OSError, AttributeError):
            continue
    return None


def torch_variable(library: str, name: str) -> int | None:
    """The address of a variable that one of torch's libraries exports, by its C++ name; None if there is none."""
    found = torch_function(library, name)
    return None if found is None else found.address


def exception_catching() -> Catching | None:
    """How to catch what torch's functions throw; None where torch's C++ library is not one that is known here."""
    names = ("__cxa_begin_catch", "__cxa_end_catch", "__gxx_personality_v0")
    begin, end, personality = (torch_function("torch_cpu", name) for name in names)
    if begin is None or end is None or personality is None:
        return None
    return Catching(begin, end, personality.address)


def _address(library: ctypes.CDLL, name: str) -> int:
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert address is not None
    return address


@lru_cache(maxsize=1)
def _process() -> ctypes.CDLL:
    return ctypes.CDLL(None)


class _ExchangeWords(Struct):
    """DLPackExchangeAPI."""

    version: Field
    previous: Field
    """The same for an older version."""
    allocate: Field
    from_python: Field
    to_python: Field
    borrow_from_python: Field
    current_stream: Field


class TensorExchange:
    """torch's functions to make a tensor from native memory, and to tell its stream (DLPack's C interface)."""

    _NAME = b"dlpack_exchange_api"
    _MAJOR_VERSION = 1

    def __init__(self, table: int):
        found = _ExchangeWords.at(table)
        self.version = found.version
        """Major version in the lower half of the word, minor version in the upper."""
        self.to_python = Foreign(found.to_python, 32)
        """managed_tensor_to_py_object_no_sync"""
        self.current_stream = Foreign(found.current_stream, 32)
        """current_work_stream"""

    @classmethod
    def find(cls) -> TensorExchange | None:
        """torch's table of functions; None where this version of torch has none that is known here."""
        capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
        if capsule is None:
            return None
        get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
        get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        found = cls(get_pointer(capsule, cls._NAME))
        is_known = found.version & 0xFFFFFFFF == cls._MAJOR_VERSION
        return found if is_known and found.to_python.address else None
