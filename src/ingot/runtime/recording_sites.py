"""How calls are recorded for each kind of device: what its kernels need, and where they run.

In: a device. Out: a `RecordingSite`, which prepares kernels for tensors without memory; None for a device on which
calls are not answered natively.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from ingot.base.errors import CudaError
from ingot.runtime import kernels
from ingot.runtime.cuda import kernels as cuda_kernels
from ingot.runtime.cuda.counters import counters_of
from ingot.runtime.cuda.driver import driver
from ingot.runtime.cuda.prepared import PreparedLaunches
from ingot.runtime.devices import Bound, Targets, Tensors, backend_for
from ingot.runtime.kernels import Kernel, OutputTypes, PreparedCall
from ingot.runtime.native import pool_routines
from ingot.runtime.native.device_launching import device_launcher
from ingot.runtime.native.device_records import DeviceSite, DeviceStep
from ingot.runtime.native.records import AnyStep, Patch, Site, Step

Words = tuple[int, ...]

DEVICE_ALIGNMENT = 256
"""What addresses of new memory on a GPU are multiples of, and parts of it should be."""


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A kernel prepared for some kind of device; addresses and scalars are still to come."""

    prepared: PreparedCall | PreparedLaunches
    step: Callable[[Words, tuple[Patch, ...]], AnyStep]
    """What a record has of it, once there are words and patches."""
    is_long: bool
    """Whether other Python threads should run meanwhile."""
    keeps: Any
    """What must live as long as the step."""
    alignments: Words
    """What the address of each buffer must be a multiple of, outputs first."""
    workspace_bytes: int = 0
    workspace_word: int | None = None
    """The word for the address of memory that the kernel needs for itself."""
    counters_word: int | None = None
    """The word for the address of what its blocks of threads are counted by."""

    @property
    def outputs(self) -> OutputTypes:
        return self.prepared.outputs


@dataclass(frozen=True, slots=True)
class RecordingSite:
    device: torch.device
    prepare: Callable[[Kernel, Tensors, Bound, Targets], KernelCall]
    """The call of a kernel for tensors, size symbols, and places of results, as `runtime.kernels.prepare` has it."""
    alignment: int
    """What places of intermediate values are multiples of."""
    site: Site | None = None
    """Where kernels run, if not on the CPU."""
    counting_site: Site | None = None
    """The same for those whose blocks of threads are counted."""


def site_for(device: torch.device) -> RecordingSite | None:
    """How calls on a device are recorded; None where they are not."""
    if device.type == "cpu":
        return _CPU
    if device.type != "cuda" or backend_for(device) is None:
        return None
    launching = device_launcher()
    if launching is None:
        return None
    try:
        context = driver().context(device.index)
    except CudaError:  # which whoever launches will find, and word
        return None

    def prepare(kernel: Kernel, tensors: Tensors, bound: Bound, targets: Targets) -> KernelCall:
        return launched(cuda_kernels.prepare(kernel, tensors, bound, targets, device.index))

    site = DeviceSite(launching.run, device, context)
    counting_site = replace(site, counters=counters_of(device.index).table)
    return RecordingSite(device, prepare, DEVICE_ALIGNMENT, site, counting_site)


def _called(kernel: Kernel, tensors: Tensors, bound: Bound, targets: Targets) -> KernelCall:
    prepared = kernels.prepare(kernel, tensors, bound, targets)
    step = lambda words, patches: Step(prepared.entry, words, patches, prepared.parallel)
    return KernelCall(prepared, step, prepared.parallel, prepared.compiled, (1,) * len(prepared.addresses))


def launched(prepared: PreparedLaunches) -> KernelCall:
    """Launches as a call. A launch waits while a device has enough to do, perhaps for something that needs Python.

    Nothing is kept for it: modules are never unloaded.
    """
    return KernelCall(
        prepared,
        lambda words, patches: DeviceStep(prepared.launches, words, patches),
        True,
        None,
        prepared.alignments or (1,) * len(prepared.addresses),
        prepared.workspace_bytes,
        prepared.workspace_word,
        prepared.counters_word,
    )


_CPU = RecordingSite(torch.device("cpu"), _called, pool_routines.ALIGNMENT)
