"""Places in memory that following needs besides those of tensors, confirmed by objects of this process."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ingot.runtime.native.abi.object_layout import TensorLayout, tensor_layout
from ingot.runtime.native.abi.storages import StorageLayout
from ingot.runtime.native.assembler.addresses import torch_function
from ingot.runtime.native.assembler.routines import Foreign

COUNT_WORD = 1
"""Where a tensor and a storage have the number of their references, in the lower half; confirmed below."""
LOWER_HALF = 0xFFFFFFFF
_VERSION_AFTER_STORAGE = 3
"""How far behind its storage a tensor has what counts its versions."""
VERSION_WORD = 2
"""Where that has the number, in the lower half."""
GETTER_SLOT_WORD, GETTER_ATTRIBUTE_WORD = 2, 3
"""Where the bound `__get__` of an attribute has its slot, and the attribute."""
_STORAGE_WORDS, _TENSOR_WORDS = 16, 24
"""Words that a storage and a tensor have at least."""
SLICE_WORD = 2
"""Where a slice has its three parts."""
DEVICE_WORD, DEVICE_MASK = 2, 0xFFFF
"""Where a device has its type and index, a byte each."""


class NativeMode(TorchFunctionMode):
    """A function mode whose calls are answered natively."""

    __slots__ = ("_native_call",)

    _native_call: tuple[Any, ...]
    """The address of the call's state in a form that native code reads, what is kept alive for it, and the Python
    function for all that it does not answer."""


@dataclass(frozen=True, slots=True)
class FollowingLayout:
    tensors: TensorLayout
    storages: StorageLayout
    set_excluded: Foreign
    """Lets this thread pass a dispatch key: the key, and whether."""
    is_excluded: Foreign
    """Whether it passes a key now."""
    getter_class: int
    getter_slot: int
    code_word: int
    """Where a Python function has its code."""
    owner_word: int
    """Where a mode has what belongs to native code."""
    elements_word: int
    """Where a tensor has the number of its elements."""
    version_word: int
    """Where a tensor has the address of what counts its versions, 0 for those of inference mode."""
    storage_object_word: int
    """Where a storage has the Python object that stands for it, once Python code has asked for one; 0 if torch does not
    keep such objects, so that a storage counts them only while they live."""

    @classmethod
    def find(cls) -> FollowingLayout | None:
        """All of it; None where anything is not as expected."""
        tensors = tensor_layout()
        storages = StorageLayout.find()
        set_excluded = torch_function("c10", "_ZN3c104impl29tls_set_dispatch_key_excludedENS_11DispatchKeyEb")
        is_excluded = torch_function("c10", "_ZN3c104impl28tls_is_dispatch_key_excludedENS_11DispatchKeyE", 8)
        if tensors is None or storages is None or set_excluded is None or is_excluded is None:
            return None
        if not (_counts_are_there() and _slices_are_as_expected() and _devices_are_as_expected()):
            return None
        shape: Any = torch.Tensor.shape
        getter, slot = shape.__get__, type(shape).__dict__["__get__"]
        words = _words(id(getter), GETTER_ATTRIBUTE_WORD + 1)
        if words[GETTER_SLOT_WORD] != id(slot) or words[GETTER_ATTRIBUTE_WORD] != id(shape):
            return None
        version_word = tensors.storage_word + _VERSION_AFTER_STORAGE
        code_word, owner_word, elements_word = _code_word(), _owner_word(), _elements_word()
        if code_word is None or owner_word is None or elements_word is None or not _counts_versions(version_word):
            return None
        words = code_word, owner_word, elements_word, version_word, _storage_object_word()
        return cls(tensors, storages, set_excluded, is_excluded, id(type(getter)), id(slot), *words)


def _counts_are_there() -> bool:
    """Whether the numbers of references lie where they are expected."""
    tensor: Any = torch.zeros(3)
    storage = tensor.untyped_storage()
    views = []
    for _ in range(3):
        counts = tensor._use_count(), torch._C._storage_Use_Count(storage._cdata)
        found = (_words(tensor._cdata, 2)[COUNT_WORD], _words(storage._cdata, 2)[COUNT_WORD])
        if tuple(word & LOWER_HALF for word in found) != counts:
            return False
        views.append(tensor.view(3))
    return True


def _storage_object_word() -> int:
    found = set(range(_STORAGE_WORDS))
    for size in (3, 500):
        tensor = torch.empty(size)
        storage = tensor.untyped_storage()
        words, object_ = _words(storage._cdata, _STORAGE_WORDS), id(storage)
        found &= {place for place, word in enumerate(words) if word == object_}
        address = storage._cdata
        del storage
        is_kept = _words(address, COUNT_WORD + 1)[COUNT_WORD] & LOWER_HALF == 2
        if not is_kept or _words(object_, 1)[0] & LOWER_HALF != 1:
            return 0
    return found.pop() if len(found) == 1 else 0


def _owner_word() -> int | None:
    probe, owner = NativeMode(), (object(), object())
    probe._native_call = owner
    words = _words(id(probe), NativeMode.__basicsize__ // 8)
    places = [place for place, word in enumerate(words) if word == id(owner)]
    return places[0] if len(places) == 1 else None


def _elements_word() -> int | None:
    samples = [torch.empty(shape) for shape in ((3, 7), (2, 5, 11), (13, 1, 17))]
    words = [_words(tensor._cdata, _TENSOR_WORDS) for tensor in samples]
    places = [
        place
        for place in range(_TENSOR_WORDS)
        if all(found[place] == tensor.numel() for found, tensor in zip(words, samples, strict=True))
    ]
    return places[0] if len(places) == 1 else None


def _counts_versions(word: int) -> bool:
    """Whether tensors have their counters there: views share them, tensors of inference mode have none."""
    tensor, other = torch.zeros(3), torch.zeros(3)
    with torch.inference_mode():
        without = torch.zeros(3)
    alike = [_words(one._cdata, word + 1)[word] for one in (tensor, tensor.detach())]
    if alike[0] != alike[1] or alike[0] in (0, _words(other._cdata, word + 1)[word]):
        return False
    if _words(without._cdata, word + 1)[word] != 0:
        return False
    for _ in range(3):
        if _words(alike[0], VERSION_WORD + 1)[VERSION_WORD] & LOWER_HALF != tensor._version:
            return False
        tensor.add_(1)
    return True


def _code_word() -> int | None:
    functions = [lambda: None, _counts_are_there, _slices_are_as_expected]
    words = [_words(id(function), 12) for function in functions]
    places = [
        place
        for place in range(12)
        if all(found[place] == id(function.__code__) for found, function in zip(words, functions, strict=True))
    ]
    return places[0] if len(places) == 1 else None


def _slices_are_as_expected() -> bool:
    parts = object(), object(), object()
    return _words(id(slice(*parts)), SLICE_WORD + 3)[SLICE_WORD:] == list(map(id, parts))


def device_word(device: torch.device) -> int:
    """What tells a device from others."""
    return _words(id(device), DEVICE_WORD + 1)[DEVICE_WORD] & DEVICE_MASK


def _devices_are_as_expected() -> bool:
    """Whether equal devices have equal words, and others have others."""
    names = "cpu", "cpu:0", "cpu:1", "meta", "cuda", "cuda:0", "cuda:1", "mps"
    words = [device_word(torch.device(name)) for name in names]
    return len(set(words)) == len(names) and words == [device_word(torch.device(name)) for name in names]


def _words(address: int, count: int) -> list[int]:
    return list((ctypes.c_uint64 * count).from_address(address))
