"""What a training step needs of a GPU's memory at its highest, weights, gradients and the optimizer's state included.

What other contestants hold is left out, so nobody may allocate for them in between. A CUDA graph keeps the memory of
its temporaries for itself, and PyTorch does not count it while the graph runs; it is added.
"""

from __future__ import annotations

import gc

import torch

from benchmarks.cuda.clocks import synchronize
from benchmarks.measuring import Call

STEPS = 2


class MemoryMeter:
    """What is allocated from now on."""

    def __init__(self, device: torch.device):
        self._device = device
        self._is_counted = device.type == "cuda"
        gc.collect()
        if self._is_counted:
            synchronize(device)
            self._before = torch.cuda.memory_allocated(device)
            self._graphs_before = memory_of_graphs(device)

    def peak_of(self, step: Call) -> int | None:
        """The most bytes allocated during a step, above what there was; nothing on a CPU."""
        if not self._is_counted:
            return None
        gc.collect()
        synchronize(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        for _ in range(STEPS):
            step()
        synchronize(self._device)
        allocated = torch.cuda.max_memory_allocated(self._device) - self._before
        return allocated + memory_of_graphs(self._device) - self._graphs_before


def memory_of_graphs(device: torch.device) -> int:
    """Bytes in pools of CUDA graphs that no tensor holds, and that nothing else can use."""
    segments = [one for one in torch.cuda.memory_snapshot() if one["device"] == device.index]
    of_graphs = [one for one in segments if tuple(one.get("segment_pool_id", (0, 0))) != (0, 0)]
    return sum(one["total_size"] - one["allocated_size"] for one in of_graphs)
