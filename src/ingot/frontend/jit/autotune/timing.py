"""How long calls take, where they are computed.

In: a device, and the moments before and after a call. Out: seconds, or what becomes seconds. What a device's backend
knows of time counts: on the CPU a call is over when it returns, on a GPU events in its stream tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import SupportsFloat

import torch

from ingot.runtime.backends.interface import HostStopwatch, Stopwatch
from ingot.runtime.backends.registry import backend_of_kind


def stopwatch(device: torch.device) -> Stopwatch:
    """Begins now."""
    backend = backend_of_kind(device.type)
    return HostStopwatch() if backend is None else backend.stopwatch(device)


def is_capturing() -> bool:
    """Whether what is asked of a GPU is put into a graph, to be done later: nothing can be measured or kept then."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def combined(combine: Callable[[Sequence[float]], float], *times: SupportsFloat) -> SupportsFloat:
    """Seconds made of several times, at once where these are seconds already: a GPU is not waited for."""
    seconds = [one for one in times if isinstance(one, float)]
    return combine(seconds) if len(seconds) == len(times) else _Combined(combine, times)


@dataclass(frozen=True, slots=True)
class _Combined:
    """Times that become seconds when they are asked for."""

    combine: Callable[[Sequence[float]], float]
    times: Sequence[SupportsFloat]

    def __float__(self) -> float:
        return self.combine([float(one) for one in self.times])
