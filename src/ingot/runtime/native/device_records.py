"""The parts of a record whose kernels run on a GPU: where, in which new tensors, and what is launched.

A record of such calls has a `DeviceSite`, and steps that are a `DeviceStep` each. New tensors are the results, in their
order, and one of bytes for all intermediate values, if there are any.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch

from ingot.runtime.cuda.prepared import Launch
from ingot.runtime.native.addresses import torch_function
from ingot.runtime.native.devices import device_kind
from ingot.runtime.native.prototypes import Prototype, prototype
from ingot.runtime.native.records import STEP_ENTRY, STEP_IS_PARALLEL, Patch, Placed
from ingot.runtime.native.routines import make_immortal

# The words of a site.
CONTEXT, KIND, INDEX, KEYS, INFERENCE_KEYS, DEVICE_MASK, DEVICE_BITS, TENSOR_COUNT, TENSORS, COUNTERS = range(10)
# A stream among those whose counters are known: its handle, and where they are. The number of streams comes first.
STREAM_WORDS = 2
# A new tensor: rank, sizes, strides and dtype, as torch's C interface takes them.
TENSOR_WORDS = 4
# What a step on a device has instead of an entry.
STEP_LAUNCHES, STEP_LAUNCH_COUNT = STEP_ENTRY, STEP_IS_PARALLEL
# A launch, as the driver takes it: function, grid and block along three axes each, and bytes of shared memory beyond
# those it declares, which are 0. Then where its executable graphs are, or 0, and all but the function again in halves
# of words, as a graph's node and a launch with attributes have it; and where the attribute is that lets it overlap with
# the launch before, or 0.
LAUNCH_ARGUMENTS = 8
LAUNCH_EXECUTABLES, LAUNCH_EXTENTS, EXTENTS_WORDS, LAUNCH_ATTRIBUTE = 8, 9, 4, 13
LAUNCH_WORDS = 14

_OVERLAPS = 6
_ATTRIBUTE = (ctypes.c_int64 * 9)(_OVERLAPS, 1)
"""An attribute of a launch as the driver takes it: its number, and a value in as many words as any has."""
make_immortal(_ATTRIBUTE)


@dataclass(frozen=True, slots=True)
class DeviceStep:
    """One kernel: launches that follow each other, all with the same words."""

    launches: tuple[Launch, ...]
    words: tuple[int, ...]
    patches: tuple[Patch, ...]

    def code(self, record: Placed) -> tuple[int, int]:
        return record.place([word for launch in self.launches for word in _launch_words(launch)]), len(self.launches)


@dataclass(frozen=True, slots=True)
class DeviceSite:
    """A device that a record's kernels run on."""

    run: int
    """The address of the routine that launches them."""
    device: torch.device
    """With its number."""
    context: int
    """The handle of the context that the functions were loaded in."""
    counters: int = 0
    """Where the counters of streams are found, if a kernel of the record counts blocks of threads."""

    def words(self, record: Placed, results: Sequence[Prototype], arena_bytes: int) -> list[int]:
        arena = [prototype((arena_bytes,), torch.uint8)] if arena_bytes else []
        tensors = [*results, *arena]
        record.keep(tensors)
        described = record.place([word for tensor in tensors for word in _tensor_words(tensor)])
        number, kind = _interface_number(f"device_type_{self.device.type}"), device_kind(self.device)
        assert kind is not None, "records are made for devices whose tensors are known"
        known = [*kind.keys, kind.device_mask, kind.bits]
        return [self.context, number, self.device.index, *known, len(tensors), described, self.counters]


def _launch_words(launch: Launch) -> list[int]:
    extents = (*launch.grid, *launch.block, 0)
    halves = (*extents, 0)
    paired = [low | high << 32 for low, high in zip(halves[::2], halves[1::2], strict=True)]
    attribute = ctypes.addressof(_ATTRIBUTE) if launch.overlaps else 0
    return [launch.function, *extents, launch.executables, *paired, attribute]


def _tensor_words(tensor: Prototype) -> list[int]:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return [len(tensor.shape), tensor.sizes, tensor.strides, _interface_number(f"dtype_{dtype}")]


@cache
def _interface_number(name: str) -> int:
    """The number by which torch's C interface knows a dtype or a kind of device."""
    function = torch_function("torch_cpu", f"aoti_torch_{name}", 32)
    assert function is not None, "torch has functions for the numbers that its other functions take"
    return ctypes.CFUNCTYPE(ctypes.c_int32)(function.address)()
