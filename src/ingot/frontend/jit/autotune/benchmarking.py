"""Which of several strategies is quicker, found out by measuring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ingot.frontend.grad_mode import without_gradients
from ingot.frontend.jit.trace.trace import CPU
from ingot.ir.interpreter import clock

_ROUNDS = 5
_LONG = 0.002
"""Seconds of a call from which on there are no more rounds: longer calls need few to be told apart."""
_FAR_AHEAD = 2.0
"""Rounds end as soon as one strategy is this many times as quick as all others."""
_CALLS_ON_A_GPU = 20
"""Calls that are timed together: a GPU that is waited for after each would seem slower than it is."""
CLEARLY = 0.9
"""The other strategy is taken if it takes less than this share of the plain one's time."""


def stand_in(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor to measure with: random numbers that are drawn from no generator of the user's, or zeros."""
    made = torch.empty_strided(shape, strides, dtype=dtype, device=device)
    if not dtype.is_floating_point:
        return made.zero_()
    return made.normal_(generator=torch.Generator(device).manual_seed(0))


def seconds_of(*ways: Callable[[], Any], device: torch.device = CPU) -> tuple[float, ...]:
    """What a call takes each way: the best of a few in turns."""
    best = [float("inf")] * len(ways)
    calls = 1 if device.type == "cpu" else _CALLS_ON_A_GPU
    begun = clock(device)
    for done in range(_ROUNDS):
        if done > 1 and (clock(device) - begun > _LONG * len(ways) or _is_far_ahead(best)):
            break
        for number, way in enumerate(ways):
            start = clock(device)
            for _ in range(calls):
                way()
            best[number] = min(best[number], (clock(device) - start) / calls)
    return tuple(best)


def _is_far_ahead(best: Sequence[float]) -> bool:
    """Whether one way is much quicker than all others."""
    first, *others = sorted(best)
    return bool(others) and others[0] >= _FAR_AHEAD * first


def is_clearly_quicker(candidate: Callable[[], Any], plain: Callable[[], Any], device: torch.device = CPU) -> bool:
    """Whether one way takes clearly less time than the other on a device."""
    taken, allowed = seconds_of(candidate, plain, device=device)
    return taken < CLEARLY * allowed


_CLEARLY_QUICKER = 0.95
"""Share of the time of generated code that PyTorch's must stay below to be preferred. In programs generated code is
quicker than in a benchmark: its threads take the next task as they become free, also when other programs keep some
cores busy."""


def prefers_generated(generated: Callable[[], Any], *others: Callable[[], Any]) -> bool:
    """Whether none of the other ways on the CPU is clearly quicker than generated code."""
    taken, *rest = without_gradients(seconds_of, generated, *others)
    return min(rest) >= _CLEARLY_QUICKER * taken
