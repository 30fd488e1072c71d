"""Time on a device and time on the host.

A device's time is taken by events on its stream: what lies between two of them, and nothing of what the host does
meanwhile. Calls are queued behind a wait, so that the device never waits for the host between them. The host's time is
what a call takes to return, with so few calls in a row that the queue of the device never fills up.
"""

from __future__ import annotations

import torch

from benchmarks.measuring import Call, Clock, seconds

WAIT_CYCLES = 2_000_000
"""About a millisecond on a device: what the host needs to queue the calls of a turn, or to get well ahead of it."""
HOST_BATCH = 100
"""Calls in a row whose host time is taken. A queue holds about a thousand launches."""


def device_clock(device: torch.device) -> Clock:
    """The clock for what a device does; a CPU has only the host's."""
    return _by_events if device.type == "cuda" else seconds


def host_clock(device: torch.device) -> Clock:
    """The clock for what the host does to have something computed."""

    def clock(call: Call, repeats: int) -> float:
        synchronize(device)
        spent = seconds(call, repeats * HOST_BATCH)
        synchronize(device)
        return spent

    return clock


def whole_clock(device: torch.device) -> Clock:
    """The clock for calls in a row until the device has done them: the host's, from nothing to do to nothing to do."""

    def clock(call: Call, repeats: int) -> float:
        def turn() -> None:
            for _ in range(repeats):
                call()
            synchronize(device)

        synchronize(device)
        return seconds(turn) / repeats

    return clock


def synchronize(device: torch.device) -> None:
    """Wait until a device has done everything."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _by_events(call: Call, repeats: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(WAIT_CYCLES)
    start.record()
    for _ in range(repeats):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / repeats
