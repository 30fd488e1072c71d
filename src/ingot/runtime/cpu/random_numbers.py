"""Masks of dropout on the CPU: the numbers that PyTorch draws, many at a time.

In: a tensor and a probability. Out: the tensor, filled with ones and zeros, and torch's default generator as
`Tensor.bernoulli_` would have left it, bit for bit. PyTorch draws one number after the other.

The generator's state is read, moved on by generated code, and set. Nothing may draw in between, so PyTorch's call stays
wherever another Python thread may draw. It stays for good if the first use finds that the two ways differ, as where
PyTorch takes these numbers from MKL. Threads of C++ that draw from the default generator on their own, while Python
calls this, are not seen.
"""

from __future__ import annotations

import _thread
import ctypes
import math
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache
from multiprocessing.queues import Queue
from typing import Any

import torch

from ingot.base.logs import log
from ingot.codegen.cpu.mersenne_twister import STATE_BYTES, TwisterWord, compiled_twister
from ingot.runtime.disk_cache.process import process_functions
from ingot.runtime.profiling.ranges import in_range

FEWEST_ELEMENTS = 1024
"""Below, PyTorch's call costs no more than reading and setting the generator's state."""
_ONES = {torch.float32: 0x3F800000, torch.float64: 0x3FF0000000000000, torch.bfloat16: 0x3F80, torch.float16: 0x3C00}
"""The bits of the number 1 in each type."""
_BITS = 53
_Words = ctypes.c_int64 * len(TwisterWord)
_feed = getattr(Queue, "_feed")  # noqa: B009 - what a queue's own thread runs
_default: torch.Generator = torch.default_generator


def bernoulli_(tensor: torch.Tensor, p: float = 0.5, *, generator: torch.Generator | None = None) -> torch.Tensor:
    """Fill a tensor with ones, so many as the probability says, and zeros."""
    if generator is not None:
        return torch.Tensor.bernoulli_(tensor, p, generator=generator)
    if _can_draw(tensor, p) and _is_alone() and _agrees() and _draw(tensor, p, _default):
        torch.autograd.graph.increment_version(tensor)
        return tensor
    return torch.Tensor.bernoulli_(tensor, p)


def _can_draw(tensor: torch.Tensor, p: float) -> bool:
    return (
        tensor.numel() >= FEWEST_ELEMENTS
        and tensor.dtype in _ONES
        and type(tensor) is torch.Tensor
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and not tensor.requires_grad
        and not tensor.is_inference()
        and not tensor.is_neg()
        and type(p) is float
        and 0.0 <= p <= 1.0
    )


def _is_alone() -> bool:
    """Whether this is the only Python thread that could draw between reading the generator's state and setting it.
    The threads that send a DataLoader's workers their indices do not."""
    others = _thread._count()
    if others and others != sum(getattr(thread, "_target", None) is _feed for thread in threading.enumerate()):
        return False
    return threading.get_ident() == threading.main_thread().ident


def _draw(tensor: torch.Tensor, p: float, generator: torch.Generator) -> bool:
    """Fill a tensor from a generator; False, and nothing has changed, if its state is not one that is known."""
    state = generator.get_state()
    if state.numel() != STATE_BYTES:
        return False
    elements, threshold = tensor.numel(), math.ceil(math.ldexp(p, _BITS))
    words = _Words(state.data_ptr(), tensor.data_ptr(), elements, threshold, _ONES[tensor.dtype])  # as TwisterWord says
    in_range("bernoulli", _functions()[tensor.itemsize], words)
    if words[TwisterWord.DRAWN] != elements:
        return False
    generator.set_state(state)
    return True


@lru_cache(maxsize=1)
def _functions() -> dict[int, Callable[[Any], None]]:
    kind = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)  # keeps the interpreter's lock: no thread of Python draws meanwhile
    return {width: kind(address) for width, address in compiled_twister(process_functions()).draw.items()}


@lru_cache(maxsize=1)
def _agrees() -> bool:
    """Whether PyTorch draws as the generated code does, here and now; the default generator is not touched."""
    agrees = all(_is_same(*case) for case in _cases())
    if not agrees:
        log("perf", "bernoulli_ stays PyTorch's call: on this machine it draws in another way than generated code")
    return agrees


def _cases() -> Iterator[tuple[int, int, float, torch.dtype]]:
    """Draws made before, elements, probability and type."""
    for skipped in (0, 1, 622, 623, 624):
        for elements in (1, 311, 312, 313, 3001):
            yield skipped, elements, 0.1, torch.float32
    for dtype in _ONES:
        for p in (0.0, 1e-9, 0.3, 0.5, 1.0):
            yield 7, 1000, p, dtype


def _is_same(skipped: int, elements: int, p: float, dtype: torch.dtype) -> bool:
    ours, theirs = (torch.Generator().manual_seed(2147483647 + elements) for _ in range(2))
    for generator in (ours, theirs):
        torch.rand(skipped, generator=generator, device="cpu")
        torch.randn((), generator=generator, dtype=torch.float64, device="cpu")  # leaves a second number behind
    drawn, expected = (torch.empty(elements, dtype=dtype, device="cpu") for _ in range(2))
    expected.bernoulli_(p, generator=theirs)
    is_drawn = _draw(drawn, p, ours)
    return is_drawn and torch.equal(drawn, expected) and torch.equal(ours.get_state(), theirs.get_state())
