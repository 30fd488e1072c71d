"""NVIDIA's driver, through ctypes: the few functions that are called, the devices there are, and their contexts.

The library is loaded at first use, never at import. Every call goes through `Driver.call`, where its code is checked:
what fails is a `CudaError` that names the function and has the driver's own words. A device's context is the primary
one, which is torch's too, so memory and streams are shared with it; the context that was current stays current.

Once a process has initialised the driver its forked children cannot use it, which `driver` says in each of them.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

from ingot.base.errors import CudaError
from ingot.base.once import OncePerKey, once

PROTOTYPES: Mapping[str, tuple[type, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuCtxGetCurrent": (POINTER(c_void_p),),
    "cuCtxPushCurrent": (c_void_p,),
    "cuCtxPopCurrent": (POINTER(c_void_p),),
    "cuThreadExchangeStreamCaptureMode": (POINTER(c_int),),
    "cuModuleLoadDataEx": (POINTER(c_void_p), c_void_p, c_uint, POINTER(c_int), POINTER(c_void_p)),
    "cuModuleGetFunction": (POINTER(c_void_p), c_void_p, c_char_p),
    "cuModuleUnload": (c_void_p,),
    "cuFuncGetAttribute": (POINTER(c_int), c_int, c_void_p),
    "cuMemAlloc": (POINTER(c_uint64), c_size_t),
    "cuMemsetD8Async": (c_uint64, c_ubyte, c_size_t, c_void_p),
    "cuStreamCreate": (POINTER(c_void_p), c_uint),
    "cuStreamDestroy": (c_void_p,),
    "cuStreamIsCapturing": (c_void_p, POINTER(c_int)),
    "cuStreamSynchronize": (c_void_p,),
    "cuLaunchKernel": (c_void_p, *[c_uint] * 7, c_void_p, POINTER(c_void_p), c_void_p),
}
"""The functions that are called, by their documented names, and the types of their arguments. All return a code."""
NATIVE = (
    "cuLaunchKernelEx",
    "cuStreamGetPriority",
    "cuGraphCreate",
    "cuGraphAddKernelNode",
    "cuGraphInstantiateWithFlags",
    "cuGraphExecKernelNodeSetParams",
    "cuGraphLaunch",
)
"""Functions that native code alone calls. Drivers may lack them."""
_SYMBOLS = {
    name: f"{name}_v2"
    for name in (
        "cuCtxPushCurrent",
        "cuCtxPopCurrent",
        "cuMemAlloc",
        "cuStreamDestroy",
        "cuGraphAddKernelNode",
        "cuGraphExecKernelNodeSetParams",
    )
}
"""Names in the library where they differ from the documented ones: without the suffix these are functions of old."""
PER_THREAD_STREAM = 2
"""The handle of the per-thread default stream: it stands for another stream in every thread."""
_MAJOR, _MINOR = 75, 76
"""The numbers under which the driver is asked for what a `Device` says."""
_RELAXED_CAPTURE = 2
_MAY_BE_OLDER = "it may be the fault of a kernel launched earlier: run with CUDA_LAUNCH_BLOCKING=1 to see which one"
_ADVICE = {
    2: "free memory of the device, for example with torch.cuda.empty_cache()",
    3: "a forked process cannot use CUDA if its parent has: start processes by spawning them",
    100: "nvidia-smi lists the devices there are; CUDA_VISIBLE_DEVICES may hide them",
    221: "the driver's own assembler, libnvidia-ptxjitcompiler, is not installed: it comes with the driver",
    222: "the driver is older than the code made for it: update the driver",
    701: "a thread block has more threads than its registers and shared memory allow",
    **dict.fromkeys((700, 702, 710, *range(714, 720)), _MAY_BE_OLDER),
}
"""What to do about a code, where there is something to be done."""


@dataclass(frozen=True, slots=True)
class Device:
    """What code for a device depends on. How programs are spread over threads does not: it is the same on all."""

    index: int
    """Its number, as torch counts."""
    capability: tuple[int, int]
    """The generation of its machine code: (9, 0) for sm_90."""


class Driver:
    """The driver's functions, initialised, in the process that did so."""

    def __init__(self, functions: Mapping[str, Any]) -> None:
        """`functions` are ctypes functions of the types in PROTOTYPES, by its names."""
        self._functions = functions
        self._contexts: OncePerKey[int, int] = OncePerKey()
        self._devices: OncePerKey[int, Device] = OncePerKey()
        self.call("cuInit", 0)
        self.process = os.getpid()

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver; a `CudaError` unless it succeeds."""
        code = self._functions[name](*arguments)
        if code:
            raise self.error(name, code)

    def error(self, name: str, code: int) -> CudaError:
        """What a function's code means, for people."""
        called, words = self._text("cuGetErrorName", code), self._text("cuGetErrorString", code)
        advice = f"; {_ADVICE[code]}" if code in _ADVICE else ""
        return CudaError(f"{name} failed with {called} ({code}): {words}{advice}")

    def _text(self, name: str, code: int) -> str:
        text = c_char_p()
        self._functions[name](code, byref(text))  # leaves the text null for a code that it does not know
        return text.value.decode() if text.value else "an unknown error"

    def address_of(self, name: str) -> int:
        """Where a function of the driver begins, for native code that calls it; a `CudaError` if it has none."""
        if name not in self._functions:
            raise CudaError(f"this driver has no {name}; update it")
        return ctypes.cast(self._functions[name], c_void_p).value or 0

    def version(self) -> int:
        """Of CUDA, as far as the driver knows it: 13000 for 13.0."""
        version = c_int()
        self.call("cuDriverGetVersion", byref(version))
        return version.value

    def device_count(self) -> int:
        count = c_int()
        self.call("cuDeviceGetCount", byref(count))
        return count.value

    def device(self, index: int) -> Device:
        """The device of a number."""
        return self._devices.get(index, lambda: self._describe(index))

    def _describe(self, index: int) -> Device:
        handle = self._handle(index)

        def ask(attribute: int) -> int:
            value = c_int()
            self.call("cuDeviceGetAttribute", byref(value), attribute, handle)
            return value.value

        return Device(index, (ask(_MAJOR), ask(_MINOR)))

    def context(self, index: int) -> int:
        """The primary context of a device. It is held as long as the process lives, as torch does."""
        return self._contexts.get(index, lambda: self._retain(index))

    def _retain(self, index: int) -> int:
        context = c_void_p()
        self.call("cuDevicePrimaryCtxRetain", byref(context), self._handle(index))
        return context.value or 0

    def _handle(self, index: int) -> int:
        handle = c_int()
        self.call("cuDeviceGet", byref(handle), index)
        return handle.value

    @contextmanager
    def current(self, context: int) -> Iterator[None]:
        """A block within which a context is this thread's current one; afterwards the one before is again."""
        found = c_void_p()
        self.call("cuCtxGetCurrent", byref(found))
        if found.value == context:
            yield
            return
        self.call("cuCtxPushCurrent", context)
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent", byref(found))

    @contextmanager
    def unseen_by_capture(self) -> Iterator[None]:
        """A block whose calls do not spoil a CUDA graph that is being captured, here or in another thread: a capture
        forbids allocation, unless the thread declares that its calls are no part of it."""
        mode = c_int(_RELAXED_CAPTURE)
        self.call("cuThreadExchangeStreamCaptureMode", byref(mode))
        try:
            yield
        finally:
            self.call("cuThreadExchangeStreamCaptureMode", byref(mode))


@once
def _loaded() -> Driver:
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        library = ctypes.CDLL(name)
        functions = {function: getattr(library, _SYMBOLS.get(function, function)) for function in PROTOTYPES}
    except (OSError, AttributeError) as error:
        raise CudaError(f"no driver for NVIDIA devices, or too old a one: {error}; install or update it") from error
    for function, types in PROTOTYPES.items():
        functions[function].argtypes, functions[function].restype = types, c_int
    symbols = {name: _SYMBOLS.get(name, name) for name in NATIVE}
    functions |= {name: getattr(library, symbol) for name, symbol in symbols.items() if hasattr(library, symbol)}
    return Driver(functions)


def driver() -> Driver:
    """The driver, initialised at first use; a `CudaError` where there is none and in a forked child."""
    found = _loaded()
    if found.process != os.getpid():
        raise CudaError(
            "CUDA was used before this process was forked, and a forked child cannot use it: start processes by "
            "spawning them, as with multiprocessing.get_context('spawn')"
        )
    return found


def why_unavailable() -> str | None:
    """Why no device can be used; None if there are a driver and a device. Asking initialises the driver: children
    forked later cannot use it."""
    try:
        return None if driver().device_count() > 0 else "the driver finds no device"
    except CudaError as error:
        return str(error)


def address_of(name: str) -> int:
    """Where a function of the driver begins, for native code that calls it; a `CudaError` if there is none."""
    return driver().address_of(name)


def device(index: int) -> Device:
    """The device of a number, as torch counts."""
    return driver().device(index)
