"""A driver that exists in Python alone: the same functions by ctypes, which note what they are asked and obey rules.

Every function is a C callback of the type that ingot calls it by, so arguments pass as they do to the real library.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
import time
from typing import Any

from ingot.runtime.cuda.driver import PROTOTYPES, Driver

INVALID_VALUE, NO_DEVICE, INVALID_DEVICE, INVALID_CONTEXT, INVALID_PTX, NOT_FOUND = 1, 100, 101, 201, 218, 500
CAPTURE_UNSUPPORTED = 900
RELAXED, NON_BLOCKING = 2, 1
NAMES = {INVALID_VALUE: b"CUDA_ERROR_INVALID_VALUE", INVALID_PTX: b"CUDA_ERROR_INVALID_PTX"}
ATTRIBUTES = {75: 9, 76: 0}
FUNCTION_ATTRIBUTES = {0: 1024, 1: 448, 3: 16, 4: 40}


class FakeDriver:
    """`calls` are the functions called, in order, with what matters of their arguments."""

    def __init__(self, devices: int = 1) -> None:
        self.devices = devices
        self.calls: list[tuple[Any, ...]] = []
        self.codes: dict[str, int] = {}
        """Functions that fail, and the code they fail with."""
        self.launched_words: list[list[int]] = []
        self.captured: set[int | None] = set()
        """Streams that are being captured."""
        self.allocated: list[tuple[int, int]] = []
        """Memory of the device: where it is, and its bytes."""
        self.streams: dict[int, int] = {}
        """Streams that were made, and their flags."""
        self._unfinished: set[int] = set()
        self._threads = threading.local()
        self._handles = itertools.count(0x7000)
        self._context_of: dict[int, int] = {}
        self._image_of: dict[int, str] = {}
        self._exports = {name: self._export(name) for name in PROTOTYPES}

    def start(self) -> Driver:
        return Driver(self._exports)

    def named(self, name: str) -> list[tuple[Any, ...]]:
        return [call for call in self.calls if call[0] == name]

    @property
    def contexts(self) -> list[int]:
        """This thread's stack of contexts, the current one last."""
        if not hasattr(self._threads, "contexts"):
            self._threads.contexts, self._threads.mode = [], 0
        return self._threads.contexts

    def _export(self, name: str) -> Any:
        function = getattr(self, name)

        def called(*arguments: Any) -> int:
            if name in self.codes:
                self.calls.append((name,))
                return self.codes[name]
            return function(*arguments) or 0

        return ctypes.CFUNCTYPE(ctypes.c_int, *PROTOTYPES[name])(called)

    def _note(self, *call: Any) -> None:
        self.calls.append(call)

    def cuInit(self, flags):
        self._note("cuInit", flags)

    def cuDriverGetVersion(self, version):
        version[0] = 12080

    def cuGetErrorName(self, code, text):
        if code in NAMES:
            text[0] = NAMES[code]

    def cuGetErrorString(self, code, text):
        if code in NAMES:
            text[0] = b"the driver's words"

    def cuDeviceGetCount(self, count):
        count[0] = self.devices

    def cuDeviceGet(self, handle, index):
        if index >= self.devices:
            return INVALID_DEVICE
        handle[0] = 50 + index
        return 0

    def cuDeviceGetAttribute(self, value, attribute, handle):
        value[0] = ATTRIBUTES[attribute] + (handle - 50 if attribute == 76 else 0)

    def cuDevicePrimaryCtxRetain(self, context, handle):
        self._note("cuDevicePrimaryCtxRetain", handle)
        context[0] = 1000 + handle

    def cuCtxGetCurrent(self, context):
        context[0] = self.contexts[-1] if self.contexts else None

    def cuCtxPushCurrent(self, context):
        self._note("cuCtxPushCurrent", context)
        self.contexts.append(context)

    def cuCtxPopCurrent(self, context):
        self._note("cuCtxPopCurrent")
        context[0] = self.contexts.pop()

    def cuThreadExchangeStreamCaptureMode(self, mode):
        self._note("cuThreadExchangeStreamCaptureMode", mode[0])
        mode[0], self._threads.mode = self._threads.mode, mode[0]

    def cuModuleLoadDataEx(self, module, image, count, options, values):
        text = ctypes.string_at(image).decode()
        self._note("cuModuleLoadDataEx", self.contexts[-1])
        time.sleep(0.02)  # so that threads meet here
        given = {options[index]: values[index] for index in range(count)}
        if "nonsense" in text:
            said = b"ptxas input, line 3; fatal: nonsense"
            assert len(said) < given[6]
            ctypes.memmove(given[5], said, len(said))
            return INVALID_PTX
        module[0] = self._new()
        self._image_of[module[0]] = text
        return 0

    def cuModuleGetFunction(self, function, module, entry):
        if f".entry {entry.decode()}(" not in self._image_of[module]:
            return NOT_FOUND
        function[0] = self._new()
        return 0

    def cuMemAlloc(self, address, size):
        if self._threads.mode != RELAXED:
            return CAPTURE_UNSUPPORTED
        address[0] = 0x100000 * (1 + len(self.allocated))
        self.allocated.append((address[0], size))
        return 0

    def cuStreamCreate(self, stream, flags):
        stream[0] = self._new()
        self.streams[stream[0]] = flags

    def cuMemsetD8Async(self, address, value, size, stream):
        if self.streams.get(stream) != NON_BLOCKING:
            return CAPTURE_UNSUPPORTED
        self._note("cuMemsetD8Async", address, value, size)
        self._unfinished.add(stream)
        return 0

    def cuStreamSynchronize(self, stream):
        self._unfinished.discard(stream)

    def cuStreamDestroy(self, stream):
        assert stream not in self._unfinished
        del self.streams[stream]

    def cuStreamIsCapturing(self, stream, status):
        if not self.contexts:
            return INVALID_CONTEXT
        status[0] = int(stream in self.captured)
        return 0

    def _new(self) -> int:
        handle = next(self._handles)
        self._context_of[handle] = self.contexts[-1]
        return handle

    def cuModuleUnload(self, module):
        self._note("cuModuleUnload")
        del self._image_of[module]

    def cuFuncGetAttribute(self, value, attribute, function):
        value[0] = FUNCTION_ATTRIBUTES[attribute]

    def cuLaunchKernel(self, function, *rest):
        grid, block, (shared_bytes, stream, parameters, extra) = rest[:3], rest[3:6], rest[6:]
        if not self.contexts or self.contexts[-1] != self._context_of[function]:
            return INVALID_CONTEXT
        assert extra is None
        self._note("cuLaunchKernel", function, grid, block, shared_bytes, stream)
        self.launched_words.append(list((ctypes.c_int64 * 3).from_address(parameters[0])))
        return 0
