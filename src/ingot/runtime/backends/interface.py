"""The interface that every backend implements: how kernels are compiled, prepared, launched, looked at and timed.

In: kernels, tensors of one device or tensors without memory that stand for them, values of size symbols, and tensors
that results are written to, by their number. Out: results, or what a native launcher needs to have them. Always holds:
all methods may be called from any thread; those that compile or launch are called while their device is torch's
current one (`current`).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, SupportsFloat

import torch

from ingot.base.numbers import Number
from ingot.loops.program import Program
from ingot.runtime.kernels import Kernel, OutputTypes
from ingot.runtime.native.launch.records import AnyStep, Patch, Site

Tensors = Sequence[torch.Tensor]
Targets = Mapping[int, torch.Tensor]
Bound = Mapping[str, int]
Words = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Features:
    """What a backend can do: a row of the table that `ingot backends` prints."""

    reductions: str
    """Which reductions become part of kernels."""
    binary_cache: str
    """Where compiled kernels are kept."""
    kernel_reuse: str
    """Which calls share a compiled kernel."""
    non_contiguous_input: str
    """How tensors are read that are not row-major."""


class Prepared(Protocol):
    """A call of a kernel for tensors of certain types, sizes and strides; addresses and scalars are still to come."""

    @property
    def words(self) -> Words: ...

    @property
    def addresses(self) -> Words:
        """The word for each buffer's address: outputs first, then inputs."""
        ...

    @property
    def scalars(self) -> Words:
        """The word for each scalar."""
        ...

    @property
    def outputs(self) -> OutputTypes:
        """Shape and type of each result, which is row-major."""
        ...


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A kernel prepared for native code."""

    prepared: Prepared
    step: Callable[[Words, tuple[Patch, ...]], AnyStep]
    """Makes the step of a record, given words and patches."""
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
class NativeSite:
    """Where native code runs kernels on one device."""

    device: torch.device
    prepare: Callable[[Kernel, Tensors, Bound, Targets], KernelCall]
    """The call of a kernel for tensors without memory."""
    alignment: int
    """What places of intermediate values are multiples of."""
    overwrites: bool
    """Whether kernels may write over inputs: a record that has begun cannot fail."""
    copies: bool
    """Whether kernels also copy views and constants that lie in memory of this process; else PyTorch does it."""
    site: Site | None = None
    """The site that records name, if it is not the CPU."""
    counting_site: Site | None = None
    """The same for records whose blocks of threads are counted."""


class Stopwatch(Protocol):
    """Begins when it is made."""

    def stop(self) -> SupportsFloat:
        """The time since it was made: seconds, or what becomes seconds when they are asked for."""
        ...


class HostStopwatch:
    """For calls that are over when they return."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def stop(self) -> float:
        return time.perf_counter() - self._start


class Backend(ABC):
    """What runs kernels on all devices of one kind."""

    name: ClassVar[str]
    """What INGOT_BACKEND calls it."""
    device_type: ClassVar[str]
    """The kind of devices whose tensors it takes, in torch's words."""
    features: ClassVar[Features]
    allocates_plain: ClassVar[bool] = False
    """Whether memory does not come from torch, which wraps new tensors inside transforms such as vmap."""
    tunes: ClassVar[bool] = False
    """Whether schedules of its kernels can be found by measuring."""
    captures: ClassVar[bool] = False
    """Whether torch can capture what a device is asked for, to be replayed."""

    # --- whether it can be used ---------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def platform(self) -> str:
        """What it generates code for, on this machine."""

    @abstractmethod
    def why_unavailable(self) -> str | None:
        """Why it cannot be used in this process; None if it can."""

    # --- kernels ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def compile(
        self, kernel: Kernel, tensors: Tensors, bound: Bound, targets: Targets, device: torch.device
    ) -> tuple[Callable[[], object] | None, OutputTypes]:
        """For tensors without memory: what compiles the kernel that a call will need (None if its code is at hand),
        and what the call will give."""

    @abstractmethod
    def launch(
        self,
        kernel: Kernel,
        tensors: Tensors,
        scalars: Sequence[Number],
        bound: Bound,
        targets: Targets,
        device: torch.device,
    ) -> list[torch.Tensor]:
        """Run a kernel; results are new, except those that have a target. A `KernelFault` says that they are void, a
        `CodegenError` that there is no code for it."""

    @abstractmethod
    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """New memory, row-major."""

    def native_site(self, device: torch.device) -> NativeSite | None:
        """How native code prepares and launches kernels on a device; None if calls go through Python."""
        return None

    # --- looking at it ------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def stages(self) -> Mapping[str, Callable[[Program], list[str]]]:
        """What can be seen of compiled kernels, in the order of the pipeline: by name, the texts of all compiled forms
        of a program."""

    # --- time and place -----------------------------------------------------------------------------------------------

    def clock(self, device: torch.device) -> float:
        """Seconds since some moment, when all that a device was given to do is done."""
        return time.perf_counter()

    def stopwatch(self, device: torch.device) -> Stopwatch:
        """What times calls without waiting for a device."""
        return HostStopwatch()

    def current(self, device: torch.device) -> AbstractContextManager[object]:
        """A context in which a device is torch's current one."""
        return nullcontext()
