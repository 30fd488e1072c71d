"""Which kernels a model spends its time in: what a GPU does for one call, by torch's profiler.

In: calls. Out: lines of text, the longest kernels first. On a CPU operators take the place of kernels.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.cuda.clocks import synchronize
from benchmarks.measuring import Call

CALLS = 5
MOST_LINES = 25
_NAME_WIDTH = 120


def profile_lines(calls: Mapping[str, Call], device: torch.device) -> Iterator[str]:
    """The kernels of each contestant: microseconds and launches of one call, and their names."""
    for name, call in calls.items():
        found = kernel_times(call, device)
        total, launches = (sum(pair[side] for pair in found.values()) for side in (0, 1))
        yield f"{name}: {total:.0f} us in {launches:g} kernels a call"
        longest = sorted(found.items(), key=lambda item: -item[1][0])
        for kernel, (spent, count) in longest[:MOST_LINES]:
            yield f"  {spent:9.1f} us  {count:5g} x  {kernel[:_NAME_WIDTH]}"
        yield ""


def kernel_times(call: Call, device: torch.device) -> dict[str, tuple[float, float]]:
    """Microseconds and launches by kernel, for one call."""
    kind = DeviceType.CUDA if device.type == "cuda" else DeviceType.CPU
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    synchronize(device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with profile(activities=activities) as recorded:
            for _ in range(CALLS):
                call()
            synchronize(device)
        spent: dict[str, list[float]] = defaultdict(list)
        for event in recorded.events() or []:
            if event.device_type == kind:
                spent[event.name].append(event.time_range.elapsed_us())
    return {name: (sum(times) / CALLS, len(times) / CALLS) for name, times in spent.items()}
