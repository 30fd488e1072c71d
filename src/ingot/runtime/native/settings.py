"""torch's settings in one word, which is compared with that of a recorded call.

In: functions of torch's that tell its settings. Out: a native routine that puts them together; nobody has to know what
its bits mean. The same routine says that somebody is watching. Where torch does not export one of the functions there
are no settings, and calls that depend on them go through Python.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from ingot.base.forks import ThreadCount, new_lock
from ingot.runtime.native.addresses import TRANSFORMS, torch_function
from ingot.runtime.native.launcher import Modes
from ingot.runtime.native.routines import Foreign, Library, Routine, Word, make_immortal

WATCHED = -1
"""Instead of settings: somebody is looking at the operations of this thread, or wants no records to answer."""
_CPU, _CUDA = 0, 1
"""The numbers of the CPU and of CUDA among torch's kinds of devices."""
_AUTOCAST_BITS = 9
_FLAGS = (
    "16userEnabledCuDNN",
    "18deterministicCuDNN",
    "23deterministicAlgorithms",
    "19userEnabledFlashSDP",
    "26userEnabledMemEfficientSDP",
    "18userEnabledMathSDP",
    "19userEnabledCuDNNSDP",
)
"""What decides by which of several operators torch does something on a GPU, as C++ names it in torch's context."""


class Suspension:
    """How many threads want no records to answer. Calls of other threads are then slower, and no different."""

    def __init__(self) -> None:
        self._word = (ctypes.c_int64 * 1)()
        make_immortal(self._word)
        self.address = ctypes.addressof(self._word)
        self._lock = new_lock()
        self._threads = ThreadCount()
        os.register_at_fork(after_in_child=self._tell)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """No record answers inside this context."""
        token = object()
        try:
            self._begin(token)
            yield
        finally:
            try:
                self._end(token)
            except KeyboardInterrupt:  # in the middle of it, or before it began
                self._end(token)
                raise

    def _begin(self, token: object) -> None:
        with self._lock:
            self._threads.enter(token)
            self._tell()

    def _end(self, token: object) -> None:
        with self._lock:
            self._threads.leave(token)
            self._tell()

    def _tell(self) -> None:
        self._word[0] = self._threads.total


suspended = Suspension()


class DevicesInUse:
    """Whether settings that matter to GPUs alone are looked at. They are from the first moment on that there is one in
    use; before that nothing may wake it. A forked child has none: asking there is an error. Which device is the current
    one is asked where there are several: it takes longer than all other settings together."""

    NONE, ONE, SEVERAL = range(3)

    def __init__(self) -> None:
        self._word = (ctypes.c_int64 * 1)()
        make_immortal(self._word)
        self.address = ctypes.addressof(self._word)
        os.register_at_fork(after_in_child=self.forget)

    def look(self) -> None:
        if self._word[0] == self.NONE and torch.cuda.is_initialized():
            # As CUDA says: what torch.cuda.device_count says may depend on the environment of the moment.
            self._word[0] = self.SEVERAL if torch._C._cuda_getDeviceCount() > 1 else self.ONE

    def forget(self) -> None:
        self._word[0] = self.NONE


devices_in_use = DevicesInUse()


@dataclass(frozen=True, slots=True)
class Settings:
    """torch's functions that tell its settings."""

    transforms: Foreign
    tracing: Foreign
    """The state of torch.jit.trace: a pointer to a pointer."""
    autocast: Foreign
    autocast_dtype: Foreign
    default_dtype: Foreign
    grad_mode: Foreign
    inference_mode: Foreign
    requires_grad: Foreign
    """Of a tensor."""
    context: Foreign
    """torch's context, which has flags."""
    current_device: Foreign
    """The number of the current device of a GPU: a code of success, and where to put it."""
    flags: tuple[Foreign, ...]
    """Each of a context."""

    @property
    def deterministic(self) -> Foreign:
        """Whether algorithms are deterministic, of a context."""
        return self.flags[_FLAGS.index("23deterministicAlgorithms")]

    @classmethod
    def find(cls) -> Settings | None:
        """All of them; None where this version of torch lacks one."""
        names = {
            "transforms": TRANSFORMS,
            "tracing": ("torch_cpu", "_ZN5torch3jit6tracer15getTracingStateEv", 64),
            "autocast": ("torch_cpu", "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE", 8),
            "autocast_dtype": ("torch_cpu", "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE", 8),
            "default_dtype": ("c10", "_ZN3c1017get_default_dtypeEv", 16),
            "grad_mode": ("c10", "_ZN3c108GradMode10is_enabledEv", 8),
            "inference_mode": ("c10", "_ZN3c1013InferenceMode10is_enabledEv", 8),
            "requires_grad": ("c10", "_ZNK3c1010TensorImpl13requires_gradEv", 8),
            "context": ("torch_cpu", "_ZN2at13globalContextEv", 64),
            "current_device": ("torch_cpu", "aoti_torch_get_current_device_index", 32),
        }
        flags = [("torch_cpu", f"_ZNK2at7Context{flag}Ev", 8) for flag in _FLAGS]
        wanted = [*names.values(), *flags]
        found = [function for function in (torch_function(*name) for name in wanted) if function is not None]
        if len(found) < len(wanted):
            return None
        values: dict[str, Any] = dict(zip(names, found, strict=False))
        return cls(**values, flags=tuple(found[len(names) :]))


def emit_settings(library: Library, modes: Modes, settings: Settings) -> Routine:
    """settings(): all settings that decide what operations a call does, in one word; or WATCHED."""
    of_devices = _emit_device_settings(library, settings)
    routine = library.routine("settings", 0)
    transforms = routine.call(settings.transforms)
    watchers = [
        routine.call(modes.function_mode),
        routine.call(modes.dispatch_mode, 0),
        routine.load(routine.call(settings.tracing)),
        routine.differing_bits(routine.load(transforms, 0), routine.load(transforms, 1)),
        routine.load(suspended.address),
    ]
    is_watched = watchers[0]
    for watcher in watchers[1:]:
        is_watched = routine.united_bits(is_watched, watcher)
    with routine.when(routine.compare(is_watched, "!=", 0)):
        routine.give_back(WATCHED)
    cell = routine.stack(1)
    routine.store(0, cell)
    with routine.when(routine.compare(routine.load(devices_in_use.address), "!=", DevicesInUse.NONE)):
        found = routine.call(of_devices)
        with routine.when(routine.compare(found, "<", 0)):
            routine.give_back(WATCHED)
        routine.store(found, cell)
    word = routine.load(cell)
    autocast = _autocast(routine, settings, _CPU)
    for value, bits in (
        (autocast, _AUTOCAST_BITS),
        (routine.call(settings.default_dtype), 16),
        (routine.call(settings.grad_mode), 1),
        (routine.call(settings.inference_mode), 1),
    ):
        word = routine.united_bits(routine.shift_left(word, bits), value)
    routine.give_back(word)
    return routine


def _emit_device_settings(library: Library, settings: Settings) -> Routine:
    """device_settings(): those that matter to GPUs alone, in a word of 25 bits; WATCHED if the current device cannot be
    told, as in a forked child."""
    routine = library.routine("device_settings", 0)
    cell = routine.stack(1)
    routine.store(0, cell)
    with routine.when(routine.compare(routine.load(devices_in_use.address), "==", DevicesInUse.SEVERAL)):
        failure = routine.call(settings.current_device, cell)
        with routine.when(routine.compare(failure, "!=", 0)):
            routine.give_back(WATCHED)
    word = routine.shift_left(routine.load(cell), _AUTOCAST_BITS)
    word = routine.united_bits(word, _autocast(routine, settings, _CUDA))
    context = routine.call(settings.context)
    for flag in settings.flags:
        word = routine.united_bits(routine.shift_left(word, 1), routine.call(flag, context))
    routine.give_back(word)
    return routine


def _autocast(routine: Routine, settings: Settings, kind: int) -> Word:
    """What autocast casts to on a kind of device, if it does."""
    cell = routine.stack(1)
    routine.store(0, cell)
    with routine.when(routine.compare(routine.call(settings.autocast, kind), "!=", 0)):
        dtype = routine.call(settings.autocast_dtype, kind)
        routine.store(routine.united_bits(routine.shift_left(dtype, 1), 1), cell)
    return routine.load(cell)
