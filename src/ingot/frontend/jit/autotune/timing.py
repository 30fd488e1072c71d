"""How long calls take, where they are computed.

In: a device, and the moments before and after a call. Out: seconds. On the CPU a call is over when it returns. A GPU
has only been told by then what to do, so events in its stream tell when it began and ended: if Python is the slower of
the two, the GPU waits in between, so that the longer time of both counts, as it does in the program around. Nothing
waits for the GPU until somebody wants to know the seconds.
"""

from __future__ import annotations

import time

import torch


class DeviceTime:
    """The time between two events of a GPU; asking for it waits for the second."""

    def __init__(self, start: torch.cuda.Event, end: torch.cuda.Event):
        self._start, self._end = start, end

    def __float__(self) -> float:
        self._end.synchronize()
        return self._start.elapsed_time(self._end) * 1e-3


class Stopwatch:
    """Begins when it is made."""

    def __init__(self, device: torch.device):
        self._event = _event(device) if device.type == "cuda" else None
        self._device = device
        self._start = time.perf_counter()

    def stop(self) -> float | DeviceTime:
        """The time since it was made: seconds, or what becomes seconds."""
        if self._event is None:
            return time.perf_counter() - self._start
        return DeviceTime(self._event, _event(self._device))


def _event(device: torch.device) -> torch.cuda.Event:
    """An event in what a device is doing."""
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def is_capturing() -> bool:
    """Whether what is asked of a GPU is put into a graph, to be done later: nothing can be measured or kept then."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
