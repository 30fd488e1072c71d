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
from ingot.runtime.native.abi.devices import device_kind
from ingot.runtime.native.abi.prototypes import Prototype, prototype
from ingot.runtime.native.assembler.addresses import torch_function
from ingot.runtime.native.assembler.routines import make_immortal
from ingot.runtime.native.cuda.device_structs import (
    AttributeWords,
    DeviceStepWords,
    LaunchExtentWords,
    LaunchWords,
    NewTensorWords,
    SiteWords,
)
from ingot.runtime.native.launch.record_structs import StepWords
from ingot.runtime.native.launch.records import Patch, Placed

_OVERLAPS = 6
"""The number of the attribute that lets a launch overlap with the one before."""
_ATTRIBUTE = AttributeWords(number=_OVERLAPS, value=1)
make_immortal(_ATTRIBUTE)


@dataclass(frozen=True, slots=True)
class DeviceStep:
    """One kernel: launches that follow each other, all with the same words."""

    launches: tuple[Launch, ...]
    words: tuple[int, ...]
    patches: tuple[Patch, ...]

    def native(self, record: Placed, step: StepWords) -> DeviceStepWords:
        launches = record.place_all(map(_launch, self.launches))
        return DeviceStepWords(step=step, launches=launches, launch_count=len(self.launches))


@dataclass(frozen=True, slots=True)
class DeviceSite:
    """A device that a record's kernels run on."""

    run: int
    """The address of the routine that launches them."""
    device: torch.device
    """The device, with its index."""
    context: int
    """The handle of the context that the functions were loaded in."""
    counters: int = 0
    """Where the counters of streams are found, if a kernel of the record counts blocks of threads."""

    def native(self, record: Placed, results: Sequence[Prototype], arena_bytes: int) -> SiteWords:
        arena = [prototype((arena_bytes,), torch.uint8)] if arena_bytes else []
        tensors = [*results, *arena]
        record.keep(tensors)
        kind = device_kind(self.device)
        assert kind is not None, "records are made for devices whose tensors are known"
        keys, inference_keys = kind.keys
        return SiteWords(
            context=self.context,
            kind=_interface_number(f"device_type_{self.device.type}"),
            index=self.device.index,
            keys=keys,
            inference_keys=inference_keys,
            device_mask=kind.device_mask,
            device_bits=kind.bits,
            tensor_count=len(tensors),
            tensors=record.place_all(map(_new_tensor, tensors)),
            counters=self.counters,
        )


def _launch(launch: Launch) -> LaunchWords:
    (grid_x, grid_y, grid_z), (block_x, block_y, block_z) = launch.grid, launch.block
    return LaunchWords(
        function=launch.function,
        grid_x=grid_x,
        grid_y=grid_y,
        grid_z=grid_z,
        block_x=block_x,
        block_y=block_y,
        block_z=block_z,
        shared_bytes=0,
        executables=launch.executables,
        extents=LaunchExtentWords(
            grid_x_and_y=grid_x | grid_y << 32,
            grid_z_and_block_x=grid_z | block_x << 32,
            block_y_and_z=block_y | block_z << 32,
            shared_bytes=0,
        ),
        attribute=_ATTRIBUTE.address if launch.overlaps else 0,
    )


def _new_tensor(tensor: Prototype) -> NewTensorWords:
    dtype = _interface_number(f"dtype_{str(tensor.dtype).removeprefix('torch.')}")
    return NewTensorWords(rank=len(tensor.shape), sizes=tensor.sizes, strides=tensor.strides, dtype=dtype)


@cache
def _interface_number(name: str) -> int:
    """The number by which torch's C interface knows a dtype or a kind of device."""
    function = torch_function("torch_cpu", f"aoti_torch_{name}", 32)
    assert function is not None, "torch has functions for the numbers that its other functions take"
    return ctypes.CFUNCTYPE(ctypes.c_int32)(function.address)()
