"""The long steps of compiling, on any number of threads at once.

llvmlite lets one thread at a time into LLVM. LLVM itself asks for less: modules of different contexts may be worked on
at the same time. The three steps here take nearly all the time of a compilation, so they call the same functions of the
same library past llvmlite's lock (and, as ever with ctypes, without Python's). The caller makes sure that no other
thread uses the context, the module or the target machine meanwhile.

LLVM has locks and tables of its own, and a child forked while another thread changes them could not use it. A fork
waits until no thread is inside LLVM, and no thread goes in until it is over.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import binding
from llvmlite.binding import ffi

from ingot.base.forks import ThreadCount

_library = ctypes.CDLL(ffi.lib._name)


def _function(name: str) -> Any:
    declared = getattr(ffi.lib, name)
    function = getattr(_library, name)
    function.argtypes, function.restype = declared.argtypes, declared.restype
    return function


_parse = _function("LLVMPY_ParseAssembly")
_run_passes = _function("LLVMPY_RunNewModulePassManager")
_emit = _function("LLVMPY_TargetMachineEmitToMemory")


_LONGEST = 30.0
"""Seconds that a fork waits: far longer than any of the steps takes."""


class _Entrance:
    """Lets threads into LLVM while no thread forks."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = ThreadCount()
        self._is_closed = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._close, after_in_parent=self._open, after_in_child=self._open)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        token = object()
        try:
            with self._changed:
                self._inside.enter(token)
            yield
        finally:
            try:
                self._leave(token)
            except KeyboardInterrupt:  # in the middle of it, or before it began
                self._leave(token)
                raise

    def _leave(self, token: object) -> None:
        with self._changed:
            self._inside.leave(token)
            self._changed.notify_all()

    def _close(self) -> None:
        """Both locks are this thread's until it has forked, in the child too."""
        self._changed.acquire()
        self._changed.wait_for(lambda: not self._inside.others, _LONGEST)
        ffi.lib._lock.__enter__()
        self._is_closed = True

    def _open(self) -> None:
        if self._is_closed:
            self._is_closed = False
            ffi.lib._lock.__exit__()
            self._changed.release()


_inside = _Entrance()


def parse(text: str, context: binding.ContextRef) -> binding.ModuleRef:
    """The module a text stands for, in a context that is this thread's own."""
    with ffi.OutputString() as error:
        with _inside():
            parsed = _parse(context, text.encode(), error)
        module = binding.ModuleRef(parsed, context)
        if error:
            module.close()
            raise RuntimeError(f"LLVM does not understand its input: {error}")
    return module


def run_passes(passes: Any, module: binding.ModuleRef, builder: Any) -> None:
    with _inside():
        _run_passes(passes, module, builder)


def emit(machine: binding.TargetMachine, module: binding.ModuleRef, assembly: bool = False) -> bytes:
    """Machine code: an object file's bytes, or text in assembly language."""
    with ffi.OutputString() as error:
        with _inside():
            buffer = _emit(machine, module, int(not assembly), error)
        if not buffer:
            raise RuntimeError(f"LLVM cannot generate code: {error}")
    try:
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)
