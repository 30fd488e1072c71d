"""The long steps of compiling, on any number of threads at once.

llvmlite lets one thread at a time into LLVM, whatever it does there. LLVM itself asks for less: modules of different
contexts may be worked on at the same time. The three steps here take nearly all the time of a compilation, so they
call the same functions of the same library past llvmlite's lock (and, as ever with ctypes, without Python's). The
caller sees to it that no other thread uses the context, the module or the target machine meanwhile.
"""

from __future__ import annotations

import ctypes
from typing import Any

from llvmlite import binding
from llvmlite.binding import ffi

_library = ctypes.CDLL(ffi.lib._name)


def _function(name: str) -> Any:
    declared = getattr(ffi.lib, name)
    function = getattr(_library, name)
    function.argtypes, function.restype = declared.argtypes, declared.restype
    return function


_parse = _function("LLVMPY_ParseAssembly")
_run_passes = _function("LLVMPY_RunNewModulePassManager")
_emit = _function("LLVMPY_TargetMachineEmitToMemory")


def parse(text: str, context: binding.ContextRef) -> binding.ModuleRef:
    """The module a text stands for, in a context that is this thread's own."""
    with ffi.OutputString() as error:
        module = binding.ModuleRef(_parse(context, text.encode(), error), context)
        if error:
            module.close()
            raise RuntimeError(f"LLVM does not understand its input: {error}")
    return module


def run_passes(passes: Any, module: binding.ModuleRef, builder: Any) -> None:
    _run_passes(passes, module, builder)


def emit(machine: binding.TargetMachine, module: binding.ModuleRef, assembly: bool = False) -> bytes:
    """Machine code: an object file's bytes, or text in assembly language."""
    with ffi.OutputString() as error:
        buffer = _emit(machine, module, int(not assembly), error)
        if not buffer:
            raise RuntimeError(f"LLVM cannot generate code: {error}")
    try:
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)
