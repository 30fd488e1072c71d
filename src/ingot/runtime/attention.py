"""Attention on the CPU by generated code, in float32, without a mask or causal.

In: queries, keys and values of batches x heads x rows x width, in any order of memory whose last axis is dense. Out:
the results, written, or None where PyTorch has to be asked, because scores are not finite.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from functools import lru_cache

import torch

from ingot.codegen.cpu.products import AttentionWord, ProductTile, compiled_products, scratch_floats
from ingot.runtime.disk_cache.process import process_functions
from ingot.runtime.native.memory.pool import empty
from ingot.runtime.profiling.ranges import in_range
from ingot.runtime.threads import bind_openmp, thread_count

_Words = ctypes.c_int64 * len(range(max(AttentionWord) + 1))


@lru_cache(maxsize=1)
def _function() -> tuple[ProductTile, Callable[[ctypes.Array[ctypes.c_int64]], None]]:
    bind_openmp()
    compiled = compiled_products(process_functions())
    return compiled.tile, ctypes.CFUNCTYPE(None, ctypes.c_void_p)(compiled.attention)


def attend(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    is_causal: bool,
    scale: float,
    out: torch.Tensor,
) -> torch.Tensor | None:
    """Attention into `out`; None if its results are void. Where there are fewer heads of keys than of queries,
    neighbouring heads of queries share one."""
    tile, function = _function()
    batches, heads, rows, width = queries.shape
    threads = max(1, min(thread_count(), batches * heads))
    floats = scratch_floats(tile, keys.shape[2], width)
    scratch = empty((threads * floats,), torch.float32)
    words = _Words()
    for place, tensor in (
        (AttentionWord.QUERIES_ADDRESS, queries),
        (AttentionWord.KEYS_ADDRESS, keys),
        (AttentionWord.VALUES_ADDRESS, values),
        (AttentionWord.RESULTS_ADDRESS, out),
    ):
        strides = [stride * tensor.itemsize for stride in tensor.stride()[:3]]
        words[place : place + 4] = [tensor.data_ptr(), *strides]
    words[AttentionWord.BATCHES], words[AttentionWord.HEADS] = batches, heads
    words[AttentionWord.HEADS_PER_KEY] = heads // keys.shape[1]
    words[AttentionWord.QUERIES], words[AttentionWord.KEYS] = rows, keys.shape[2]
    words[AttentionWord.WIDTH] = width
    words[AttentionWord.SCALE] = struct.unpack("<i", struct.pack("<f", scale))[0]
    words[AttentionWord.IS_CAUSAL] = int(is_causal)
    words[AttentionWord.SCRATCH_ADDRESS] = scratch.data_ptr()
    words[AttentionWord.SCRATCH_BYTES] = floats * scratch.itemsize
    words[AttentionWord.THREADS] = threads
    in_range("attention", function, words)
    return None if words[AttentionWord.FAULT] else out
