"""Attention by generated code, where PyTorch's own is not clearly quicker.

In: a call of PyTorch's attention on the CPU. Out: a function that takes the same arguments and gives the same results,
but for the sums that only gradients need. Only attention without a mask, or causal: PyTorch's own versions differ in
the result for a row that a mask hides completely.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from functools import lru_cache
from typing import Any

import torch

from ingot.frontend.jit.autotune.benchmarking import prefers_generated
from ingot.frontend.jit.trace.ssa import Operation, Version
from ingot.frontend.jit.trace.trace import TensorMeta
from ingot.runtime.attention import attend
from ingot.runtime.disk_cache.process import remembered
from ingot.runtime.kernels import span
from ingot.runtime.native.memory.pool import empty
from ingot.runtime.plan import is_plain

_flash: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_MOST_KEYS = 4096
"""The most rows of keys and values: those of a head are packed whole, and more would not stay in any cache."""


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The results, in the order of memory in which PyTorch gives them."""
    if is_plain(query) and is_plain(key) and is_plain(value):
        batches, heads, rows, width = query.shape
        out = empty((batches, rows, heads, width), torch.float32).transpose(1, 2)
        factor = width**-0.5 if scale is None else scale
        if attend(query, key, value, is_causal, factor, out) is not None:
            return out, None
    return _flash(query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)


def quicker_attention(operation: Operation, returned: Set[Version]) -> Callable[..., Any] | None:
    """Generated code for an operation that is attention; None where it cannot be, or is clearly slower."""
    if operation.event.target is not _flash:
        return None
    tensors = [value.note for value in operation.arguments[:3] if isinstance(value, Version)]
    dropout, is_causal = (*operation.arguments[3:], *(0.0, False)[len(operation.arguments) - 3 :])
    keywords = operation.keywords
    scale = keywords.get("scale")
    if len(tensors) != 3 or dropout != 0.0 or keywords.get("attn_mask") is not None:
        return None
    if not (scale is None or (isinstance(scale, float) and scale > 0.0)) or not _are_suitable(tensors):
        return None
    result, sums = operation.results
    if sums.consumers or sums in returned or not _lies_as_pytorchs(result.note):
        return None
    shapes = tuple((note.shape, note.strides) for note in tensors)
    return attention if _is_preferred(shapes, bool(is_causal), torch.get_num_threads()) else None


def _are_suitable(tensors: list[TensorMeta]) -> bool:
    query, key, value = tensors
    is_float = all(note.dtype is torch.float32 and note.device.type == "cpu" for note in tensors)
    is_fixed = all(note.open_sizes is None and 0 not in note.shape for note in tensors)
    if not is_float or not is_fixed or any(len(note.shape) != 4 or note.strides[3] != 1 for note in tensors):
        return False
    is_same = key.shape == value.shape and key.shape[0] == query.shape[0] and key.shape[3] == query.shape[3]
    return is_same and query.shape[1] % key.shape[1] == 0 and key.shape[2] <= _MOST_KEYS


def _lies_as_pytorchs(result: TensorMeta) -> bool:
    _, heads, rows, width = result.shape
    return result.strides == (rows * heads * width, width, heads * width, 1)


@lru_cache(maxsize=4096)
def _is_preferred(shapes: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...], is_causal: bool, threads: int) -> bool:
    """Whether it is quicker, by measuring. The last argument tells measurements apart."""
    return remembered("attention", (shapes, is_causal, threads), lambda: _is_quicker(shapes, is_causal)) is True


def _is_quicker(shapes: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...], is_causal: bool) -> bool:
    query, key, value = (torch.full((span(*shape),), 0.5).as_strided(*shape) for shape in shapes)
    generated = lambda: attention(query, key, value, 0.0, is_causal)
    return prefers_generated(generated, lambda: _flash(query, key, value, 0.0, is_causal))
