"""How long calls take on a GPU, told by events in its stream.

In: a device, and the moments before and after a call. Out: seconds. When a call returns, a GPU has only been told what
to do, so events in its stream tell when it began and ended: if Python is the slower of the two, the GPU waits in
between, so that the longer time of both counts, as it does in the program around. Nothing waits for the GPU until the
seconds are asked for.
"""

from __future__ import annotations

import torch


class DeviceTime:
    """The time between two events of a GPU; asking for it waits for the second."""

    def __init__(self, start: torch.cuda.Event, end: torch.cuda.Event):
        self._start, self._end = start, end

    def __float__(self) -> float:
        self._end.synchronize()
        return self._start.elapsed_time(self._end) * 1e-3


class EventStopwatch:
    """Begins when it is made."""

    def __init__(self, device: torch.device):
        self._device = device
        self._start = _event(device)

    def stop(self) -> DeviceTime:
        return DeviceTime(self._start, _event(self._device))


def _event(device: torch.device) -> torch.cuda.Event:
    """An event in what a device is doing."""
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event
