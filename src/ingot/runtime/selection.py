"""Selecting by a mask on the CPU: the elements where it is true, side by side.

In: a tensor and a mask of the same shape, both row-major. Out: a new tensor of one axis. PyTorch finds the places of
the elements first, on one thread.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from ingot.codegen.cpu.compaction import CHUNK, WIDTHS, CompactionWord, compiled_compaction
from ingot.runtime.disk_cache.process import process_functions
from ingot.runtime.native.abi.prototypes import DTYPES
from ingot.runtime.native.memory.pool import empty
from ingot.runtime.profiling.ranges import in_range
from ingot.runtime.threads import bind_openmp, thread_count

_Words = ctypes.c_int64 * len(CompactionWord)
_Function = Callable[[Any], None]


@lru_cache(maxsize=1)
def _functions() -> tuple[_Function, _Function, dict[int, _Function]]:
    bind_openmp()
    compiled = compiled_compaction(process_functions())
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    writing = {width: kind(address) for width, address in compiled.write.items()}
    return kind(compiled.count), kind(compiled.add_up), writing


def can_select(source: torch.Tensor, mask: torch.Tensor) -> bool:
    """Whether `select` takes these tensors."""
    return (
        mask.dtype is torch.bool
        and source.shape == mask.shape
        and source.device.type == mask.device.type == "cpu"
        and source.itemsize in WIDTHS
        and source.is_contiguous()
        and mask.is_contiguous()
    )


def select(source: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The elements of a tensor where a mask is true, in order."""
    count, add_up, writing = _functions()
    elements = source.numel()
    chunks = -(-elements // CHUNK)
    places = (ctypes.c_int64 * (chunks + 1))()
    words = _Words()
    words[CompactionWord.MASK_ADDRESS], words[CompactionWord.SOURCE_ADDRESS] = mask.data_ptr(), source.data_ptr()
    words[CompactionWord.ELEMENTS] = elements
    words[CompactionWord.PLACES_ADDRESS] = ctypes.addressof(places)
    words[CompactionWord.THREADS] = thread_count()
    in_range("count", count, words)
    in_range("add_up", add_up, words)
    is_pools = source.dtype in DTYPES and not torch.is_inference_mode_enabled()
    shape = (places[chunks],)
    result = empty(shape, source.dtype) if is_pools else torch.empty(shape, dtype=source.dtype)
    words[CompactionWord.RESULT_ADDRESS] = result.data_ptr()
    in_range("write", writing[source.itemsize], words)
    return result
