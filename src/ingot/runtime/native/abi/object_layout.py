"""How Python's objects and torch's tensors lie in memory, found out by looking at some whose contents are known.

The launcher reads a few fields without calling a function: an object's type, the value of a float, the items of a list,
a tensor's dtype, sizes, strides and address, and its dispatch keys, which tell in one comparison whether its memory
holds what the tensor stands for. Each place is confirmed by objects of this very process; where anything is not exactly
as expected, there is no layout and everything goes through Python.
"""

from __future__ import annotations

import ctypes
import platform
import struct
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from ingot.base.once import once
from ingot.runtime.native.abi.prototypes import DTYPES

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
"""A torch::TensorImpl has at least this many words."""
_STORAGE_WORDS = 6
"""A torch::StorageImpl has at least this many words."""
INLINE_RANK = 5
"""A tensor has room for this many sizes after its rank, and for as many strides after them. If it has more axes, the
address of memory with all sizes and then all strides stands there instead."""


@dataclass(frozen=True, slots=True)
class TensorLayout:
    implementation_word: int
    """Where a tensor object has the address of the tensor itself."""
    keys_word: int
    """Where the tensor has its dispatch keys."""
    plain_keys: tuple[int, ...]
    """The keys of ordinary CPU tensors: those that can take part in autograd, and those made in inference mode."""
    rank_word: int
    """Where the tensor has its rank; sizes and strides follow."""
    offset_word: int
    """Where the tensor has its distance from the beginning of its storage, in elements."""
    storage_word: int
    """Where the tensor has the address of its storage."""
    data_word: int
    """Where the storage has the address of its memory."""
    dtype_quarter: int
    """Where the tensor has the code of its dtype, counted in quarters of words."""
    dtype_codes: Mapping[torch.dtype, int]
    """The codes of the dtypes that native code knows."""


@once
def tensor_layout() -> TensorLayout | None:
    """The layout of tensors in this process; None if Python or torch are not as expected."""
    if not _python_is_as_expected():
        return None
    samples = _sample_tensors()
    # Their storage's owner is not their memory, which would be found at two places.
    shifted = [torch.frombuffer(bytearray(120), dtype=torch.float32)[offset:] for offset in (7, 19)]
    implementation = _only(
        {word for word in range(_TENSOR_OBJECT_WORDS) if _words(id(tensor), word + 1)[word] == tensor._cdata}
        for tensor in samples
    )
    searched = (
        _only(_places(tensor, dispatch_keys(tensor)) for tensor in samples),
        _rank_word(),
        _only(_places(tensor, int(tensor.storage_offset())) for tensor in shifted),
        _only(_places(tensor, tensor.untyped_storage()._cdata) for tensor in shifted),
        _only(_data_words(tensor.untyped_storage()) for tensor in shifted),
        _dtype_quarter(),
    )
    found = [place for place in searched if place is not None]
    if implementation != _FIRST_FIELD or len(found) < len(searched):
        return None
    keys, rank, offset, storage, data, dtype = found
    plain = tuple(sorted({dispatch_keys(tensor) for tensor in samples[:3]}, reverse=True))
    codes = {known: _quarters(torch.empty(0, dtype=known))[dtype] for known in DTYPES}
    return TensorLayout(implementation, keys, plain, rank, offset, storage, data, dtype, codes)


def _places(tensor: torch.Tensor, value: int) -> set[int]:
    """Where a tensor has this word."""
    return {place for place, word in enumerate(_words(tensor._cdata, _TENSOR_WORDS)) if word == value}


def _data_words(storage: torch.UntypedStorage) -> set[int]:
    """Where a storage has the address of its memory."""
    return {place for place, word in enumerate(_words(storage._cdata, _STORAGE_WORDS)) if word == storage.data_ptr()}


def _rank_word() -> int | None:
    """Where a tensor has its rank: the place whose next words are sizes and strides, as described at `INLINE_RANK`."""
    sizes, strides = (3, 5, 7, 2, 4, 6, 8), (11, 13, 17, 19, 23, 29, 31)
    samples = [torch.empty(1000).as_strided(sizes[:rank], strides[:rank]) for rank in range(INLINE_RANK + 3)]

    def follow(tensor: torch.Tensor, place: int) -> bool:
        words, rank = _words(tensor._cdata, _TENSOR_WORDS)[place + 1 :], tensor.dim()
        if rank <= INLINE_RANK:
            found = words[:rank] + words[INLINE_RANK : INLINE_RANK + rank]
        else:
            found = _words(words[0], 2 * rank)
        return found == [*tensor.shape, *tensor.stride()]

    small, large = samples[: INLINE_RANK + 1], samples[INLINE_RANK + 1 :]
    found = _only({place for place in _places(tensor, tensor.dim()) if follow(tensor, place)} for tensor in small)
    # The strides of five axes lie after five sizes: there is no room for more, so what follows must be an address.
    return found if found is not None and all(follow(tensor, found) for tensor in large) else None


def _dtype_quarter() -> int | None:
    """Where tensors of one dtype have the same bits, and tensors of different dtypes different ones."""
    samples = [[torch.empty(3, dtype=dtype) for _ in range(3)] for dtype in DTYPES]
    bits = [[_quarters(tensor) for tensor in alike] for alike in samples]
    places = range(4 * _TENSOR_WORDS)
    alike = [{place for place in places if len({seen[place] for seen in same}) == 1} for same in bits]
    told_apart = {place for place in places if len({same[0][place] for same in bits}) == len(bits)}
    return _only([*alike, told_apart])


def _quarters(tensor: torch.Tensor) -> list[int]:
    """The words of a tensor in quarters."""
    return list((ctypes.c_uint16 * (4 * _TENSOR_WORDS)).from_address(tensor._cdata))


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


def dispatch_keys(tensor: torch.Tensor) -> int:
    return torch._C._dispatch_keys(tensor).raw_repr()


def _words(address: int, count: int) -> list[int]:
    return list((ctypes.c_uint64 * count).from_address(address))


def _only(candidates: Iterable[set[int]]) -> int | None:
    """The one number that is in every set."""
    common = set.intersection(*candidates)
    return common.pop() if len(common) == 1 else None
