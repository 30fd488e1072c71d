"""Making results resizable, as eager's are.

torch takes memory that others made for memory that it cannot replace: `resize_` and `out=` then refuse to let a result
grow. What is missing is a flag in the result's storage, and the allocator that new memory is to come from. The memory
that the storage has goes back to the pool at the moment it is replaced, as it does when the storage dies.

Both places are found by comparing storages of this very process; where anything is not exactly as expected, there is no
layout, and results stay as torch made them.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch

from ingot.runtime.native.abi.object_layout import TensorLayout
from ingot.runtime.native.assembler.addresses import torch_function
from ingot.runtime.native.assembler.routines import Routine, Value

_WORDS = 10
"""A torch::StorageImpl has at least this many words."""
_WORD_BYTES = 8


@dataclass(frozen=True, slots=True)
class StorageLayout:
    flag_byte: int
    """Where a storage says whether it can be resized."""
    allocator_word: int
    """Where a storage has the address of its allocator."""
    allocator: int
    """torch's allocator for the CPU."""

    @classmethod
    def find(cls) -> StorageLayout | None:
        """The layout of storages in this process; None if they are not as expected."""
        get_allocator = torch_function("c10", "_ZN3c1015GetCPUAllocatorEv")
        if get_allocator is None:
            return None
        allocator = ctypes.CFUNCTYPE(ctypes.c_uint64)(get_allocator.address)()
        flags = {place for size in (3, 500) for place in _changed_by_fixing(torch.empty(size))}
        places = {place for size in (3, 500) for place in _places_of(allocator, torch.empty(size))}
        if not allocator or len(flags) != 1 or len(places) != 1:
            return None
        (flag,), (place,) = flags, places
        fixed = torch.frombuffer(bytearray(64), dtype=torch.uint8)
        return None if _bytes(fixed)[flag] or _words(fixed)[place] else cls(flag, place, allocator)


def make_resizable(routine: Routine, tensor: Value, tensors: TensorLayout, storages: StorageLayout) -> None:
    """Let a new tensor be resized. No other code may hold the tensor yet."""
    implementation = routine.load(tensor, tensors.implementation_word)
    storage = routine.load(implementation, tensors.storage_word)
    word, byte = divmod(storages.flag_byte, _WORD_BYTES)
    routine.store(routine.united_bits(routine.load(storage, word), 1 << 8 * byte), storage, word)
    routine.store(storages.allocator, storage, storages.allocator_word)


def _changed_by_fixing(tensor: torch.Tensor) -> set[int]:
    """Which bytes of a storage go from 1 to 0 when its size becomes fixed, as it does for numpy; several if anything
    else changes too."""
    storage = tensor.untyped_storage()
    before, could = _bytes(tensor), storage.resizable()
    tensor.numpy()
    after, can = _bytes(tensor), storage.resizable()
    changed = {place for place, (old, new) in enumerate(zip(before, after, strict=True)) if old != new}
    is_expected = could and not can and all((before[place], after[place]) == (1, 0) for place in changed)
    return changed if is_expected else set(range(len(before)))


def _places_of(allocator: int, tensor: torch.Tensor) -> set[int]:
    return {place for place, word in enumerate(_words(tensor)) if word == allocator}


def _words(tensor: torch.Tensor) -> list[int]:
    return list((ctypes.c_uint64 * _WORDS).from_address(tensor.untyped_storage()._cdata))


def _bytes(tensor: torch.Tensor) -> bytes:
    return bytes((ctypes.c_uint8 * (_WORDS * _WORD_BYTES)).from_address(tensor.untyped_storage()._cdata))
