"""Ranges of torch's profilers around what ingot runs.

In: the name of a kernel. Out: a range of that name in torch.profiler, emit_nvtx and emit_itt, for as long as the kernel
is being run or launched. Native code does not open ranges: while anything listens, `run` of the launcher leaves calls
to Python, which comes here (native/launch/cpu_running.py). While nothing listens, a range does nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch

from ingot.base.once import once
from ingot.runtime.native.assembler.addresses import torch_function
from ingot.runtime.native.assembler.routines import Foreign

_profiler: Any = getattr(torch._C, "_profiler")  # noqa: B009
"""torch's profiler, which its stubs do not know as a part of torch._C."""
kernel_range: Callable[[str], Any] = _profiler._RecordFunctionFast
"""A context that is a range of a name."""

_is_profiler_enabled = torch.autograd._profiler_enabled


def listening_function() -> Foreign | None:
    """torch's function that tells whether anything listens to ranges on this thread; None where it has none, and ranges
    are then missing from calls that native code answers."""
    return torch_function("torch_cpu", "_ZN2at12hasCallbacksEv", 8)


@once
def _listening() -> Callable[[], int]:
    found = listening_function()
    return _is_profiler_enabled if found is None else ctypes.PYFUNCTYPE(ctypes.c_bool)(found.address)


def is_profiled() -> bool:
    """Whether anything listens to ranges on this thread. Times taken meanwhile say little about other calls."""
    return bool(_listening()())


def in_range(name: str, function: Callable[[Any], None], words: Any) -> None:
    """Call a generated function that is not a kernel, inside a range if anything listens."""
    if not _is_profiler_enabled():
        function(words)
        return
    with kernel_range(name):
        function(words)
