"""What the ordinary tensors of one device have in common, as native code compares it.

In: a device. Out: the dispatch keys of its tensors, and the bits by which a tensor says which device it lies on; None
where they are not known. All CPU tensors are of one kind, which their keys tell. The keys of CUDA tensors say only that
they are on some GPU: which one stands beside the dtype, in the same word. That place is confirmed by meta tensors that
claim to be on one device or another; the GPU itself is not used.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import lru_cache

import torch

from ingot.base.once import once
from ingot.runtime.native.abi.object_layout import TensorLayout, dispatch_keys, tensor_layout

_DTYPE_BITS = 16
_DEVICE_BITS = 24
"""A byte each for the type of a device, its number, and whether there is one."""


@dataclass(frozen=True, slots=True)
class DeviceKind:
    keys: tuple[int, int]
    """The dispatch keys of tensors that can take part in autograd, and of those made in inference mode."""
    mask: int
    """The bits of the word with a tensor's dtype that say its dtype and device."""
    bits: int
    """Of `mask`, the bits that say the device, as tensors of this device have them."""
    dtype_shift: int
    """How many bits of that word lie below the dtype."""

    @property
    def device_mask(self) -> int:
        """The bits of the word that are reserved for the device."""
        return self.mask & ~(((1 << _DTYPE_BITS) - 1) << self.dtype_shift)


@lru_cache(maxsize=64)
def device_kind(device: torch.device) -> DeviceKind | None:
    """What tensors on a device have in common; None for devices whose tensors native code does not know."""
    layout = tensor_layout()
    if layout is None:
        return None
    shift = _dtype_shift(layout)
    dtype = ((1 << _DTYPE_BITS) - 1) << shift
    if device.type == "cpu":
        return DeviceKind((layout.plain_keys[0], layout.plain_keys[-1]), dtype, 0, shift)
    place = _device_shift()
    if device.type != "cuda" or device.index is None or place is None:
        return None
    mask = ((1 << _DEVICE_BITS) - 1) << place
    return DeviceKind(_plain_keys(device), dtype | mask, _type_word(_somewhere(device), layout) & mask, shift)


def _plain_keys(device: torch.device) -> tuple[int, int]:
    found = []
    for is_inference in (False, True):
        with torch.inference_mode(is_inference):
            found.append(dispatch_keys(torch.empty(0, device=device)))
    return found[0], found[1]


@once
def _device_shift() -> int | None:
    """How many bits of the word with the dtype lie below the device; None if the device is not in that word."""
    layout = tensor_layout()
    assert layout is not None, "asked for where there is a layout"
    samples = {(1, 0): "cuda:0", (1, 1): "cuda:1", (1, 6): "cuda:6", (0, 255): "cpu"}
    fitting = set(range(0, 64 - _DEVICE_BITS + 1, 8))
    for (kind, index), name in samples.items():
        word = _type_word(_somewhere(torch.device(name)), layout)
        expected = kind | index << 8 | 1 << 16
        fitting = {place for place in fitting if word >> place & (1 << _DEVICE_BITS) - 1 == expected}
    return fitting.pop() if len(fitting) == 1 else None


class _Somewhere(torch.Tensor):
    """A tensor without memory that claims to be on a device."""

    __torch_dispatch__ = None  # pyright: ignore[reportAssignmentType]


def _somewhere(device: torch.device) -> torch.Tensor:
    return torch.Tensor._make_wrapper_subclass(_Somewhere, (3,), device=device)


def _type_word(tensor: torch.Tensor, layout: TensorLayout) -> int:
    return ctypes.c_uint64.from_address(tensor._cdata + layout.dtype_quarter // 4 * 8).value


def _dtype_shift(layout: TensorLayout) -> int:
    return layout.dtype_quarter % 4 * _DTYPE_BITS
