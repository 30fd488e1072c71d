"""PTX as functions of a device, and launching them.

In: the PTX of a kernel and the names of its entries. Out: one `LoadedFunction` for each, in that order. Equal PTX is
loaded once for a device, whichever threads ask for it. Modules are never unloaded: records, CUDA graphs and launches
still on their way hold nothing but handles, so nothing could say when the last user of one is gone; and a kernel's code
is a few kilobytes.

A fault names the kernel, and its PTX is kept in a file for people to look into.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import tempfile
from collections.abc import Sequence
from ctypes import byref, c_int, c_void_p
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingot.base.environment_variables import environment
from ingot.base.errors import CudaError
from ingot.base.forks import new_lock
from ingot.base.once import OncePerKey, once
from ingot.base.working_directory import working_directory
from ingot.runtime.cuda.driver import Driver, driver
from ingot.runtime.cuda.prepared import Extent

_LOG_BYTES = 8192
_INFORMATION_LOG, _INFORMATION_LOG_BYTES, _ERROR_LOG, _ERROR_LOG_BYTES = range(3, 7)
_THREADS, _SHARED_BYTES, _LOCAL_BYTES, _REGISTERS = 0, 1, 3, 4
"""Options and attributes, as the driver numbers them."""
_WAIT_FOR_LAUNCH = "griddepcontrol.wait;"
"""How PTX says that the launch before has to end first."""


@dataclass(frozen=True, slots=True)
class LoadedFunction:
    """An entry of a kernel, in the context of one device."""

    handle: int
    """The driver's handle of the function."""
    entry: str
    name: str
    """The kernel's name, for people."""
    device: int
    context: int
    ptx: str = field(repr=False)
    registers: int
    """Registers of each thread."""
    local_bytes: int
    """Bytes of each thread in the device's memory: registers that did not fit."""
    shared_bytes: int
    """Bytes of shared memory of each block: what the kernel declares, for launches ask for no more."""
    threads: int
    """The most threads that a block can have, with the registers it needs."""
    overlaps: bool
    """Whether it waits for the launch before it by itself, so that it may be on its way while that one ends."""


class Modules:
    """Loaded PTX of the process. Thread-safe."""

    def __init__(self) -> None:
        self._loaded: OncePerKey[tuple[str, int, tuple[str, ...]], tuple[LoadedFunction, ...]] = OncePerKey()
        self._functions: dict[int, LoadedFunction] = {}
        self._lock = new_lock()
        """The driver assembles one module at a time, and takes half as long again where several threads ask at once."""

    def load(self, ptx: str, entries: Sequence[str], device: int, name: str) -> tuple[LoadedFunction, ...]:
        """The entries of a kernel, on a device."""
        key = (ptx, device, tuple(entries))
        return self._loaded.get(key, lambda: self._load(ptx, entries, device, name))

    def _load(self, ptx: str, entries: Sequence[str], device: int, name: str) -> tuple[LoadedFunction, ...]:
        with self._lock:
            functions = _load(driver(), ptx, entries, device, name)
        self._functions.update((function.handle, function) for function in functions)
        return functions

    def launch(self, function: int, grid: Extent, block: Extent, words: ctypes.Array[Any], stream: int) -> None:
        """Put a function, by its handle, on a stream of its device. The words are copied: they may change at once."""
        loaded, found = self._functions[function], driver()
        parameters = (c_void_p * 1)(ctypes.addressof(words))
        try:
            with found.current(loaded.context):
                found.call("cuLaunchKernel", function, *grid, *block, 0, stream, parameters, None)
        except CudaError as error:
            raise _about(error, loaded.name, loaded.device, loaded.ptx) from None


modules = Modules()
load, launch = modules.load, modules.launch


def _load(driver: Driver, ptx: str, entries: Sequence[str], device: int, name: str) -> tuple[LoadedFunction, ...]:
    try:
        context = driver.context(device)
        with driver.current(context), driver.unseen_by_capture():
            module = _module(driver, ptx)
            try:
                return tuple(_function(driver, module, ptx, entry, device, name) for entry in entries)
            except CudaError:
                driver.call("cuModuleUnload", module)
                raise
    except CudaError as error:
        raise _about(error, name, device, ptx) from None


def _module(driver: Driver, ptx: str) -> c_void_p:
    """PTX turned into machine code by the driver; what its assembler has to say is part of the error."""
    module = c_void_p()
    logs = [ctypes.create_string_buffer(_LOG_BYTES) for _ in range(2)]
    options = (c_int * 4)(_INFORMATION_LOG, _INFORMATION_LOG_BYTES, _ERROR_LOG, _ERROR_LOG_BYTES)
    values = (c_void_p * 4)(*(value for log in logs for value in (ctypes.addressof(log), _LOG_BYTES)))
    try:
        driver.call("cuModuleLoadDataEx", byref(module), ptx.encode(), len(options), options, values)
    except CudaError as error:
        said = [log.value.decode(errors="replace").strip() for log in logs]
        raise CudaError("\n".join([str(error), *filter(None, said)])) from None
    return module


def _function(driver: Driver, module: c_void_p, ptx: str, entry: str, device: int, name: str) -> LoadedFunction:
    handle = c_void_p()
    driver.call("cuModuleGetFunction", byref(handle), module, entry.encode())

    def ask(attribute: int) -> int:
        value = c_int()
        driver.call("cuFuncGetAttribute", byref(value), attribute, handle)
        return value.value

    return LoadedFunction(
        handle.value or 0,
        entry,
        name,
        device,
        driver.context(device),
        ptx,
        registers=ask(_REGISTERS),
        local_bytes=ask(_LOCAL_BYTES),
        shared_bytes=ask(_SHARED_BYTES),
        threads=ask(_THREADS),
        overlaps=_WAIT_FOR_LAUNCH in ptx,
    )


def _about(error: CudaError, name: str, device: int, ptx: str) -> CudaError:
    """The same error, with the name of the kernel and the file that keeps its PTX."""
    error.within(f"kernel {name} on cuda:{device}, {_kept(ptx, name)}")
    return error


def _kept(ptx: str, name: str) -> str:
    """Where the PTX of a kernel is, after it was written there."""
    readable = re.sub(r"[^\w+.-]", "_", name)[:80]
    try:
        path = _directory() / f"{readable}-{hashlib.sha256(ptx.encode()).hexdigest()[:12]}.ptx"
        path.write_text(ptx)
    except OSError as error:
        return f"whose PTX could not be kept: {error}"
    return f"whose PTX is kept in {path}"


@once
def _directory() -> Path:
    """The working directory, if one is named; or one that no other user can read, made when something has failed."""
    named = working_directory() if environment().workdir is not None else None
    return Path(tempfile.mkdtemp(prefix="ingot-")) if named is None else named
