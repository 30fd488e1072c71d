"""What calls of a compiled function have cost: calls, launches, bytes, times, and the share of the machine's bandwidth.

In: a compiled function. Out: a frozen record, whose text is a table. Counts are always there; the time of each kernel
is there under `enable_profiling`, which has calls take the way through Python and, on GPUs, wait for every kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from ingot.frontend.jit.api.explaining import calls_of, kinds_of, programs_of
from ingot.frontend.jit.api.function import CompiledFunction, Tier
from ingot.frontend.jit.api.wording import byte_count, counted, duration, text_table
from ingot.frontend.jit.trace.trace import CPU
from ingot.runtime.compiler import CompiledModule
from ingot.runtime.kernels import TunedKernel
from ingot.runtime.profiling.kernel_statistics import KernelStatistics, memory_speed


@dataclass(frozen=True, slots=True)
class FunctionStatistics:
    """What calls of a function have cost so far."""

    name: str
    tier: Tier
    device: torch.device
    """Where its kernels run; the CPU, if it has none."""
    calls: int
    recordings: int
    """How often something was recorded: whole calls, and segments of calls that are followed."""
    cache_hits: int
    """How often a recording was found and run, of calls and of segments."""
    launches: int
    """Generated kernels, and operations that they leave to PyTorch."""
    bytes_moved: int
    """What those read and wrote."""
    seconds: float
    """What those took, with what calling them takes; on a GPU what the host took, unless it was profiled."""
    is_profiled: bool
    kernels: tuple[KernelStatistics, ...]
    """By name; under `enable_profiling` with times, the most expensive first, and with all calls of PyTorch's."""
    tuned: tuple[TunedKernel, ...] = ()
    """What tuning has found, where kernels are tuned."""
    saved_bytes: int | None = None
    """What the latest kind of calls that was compiled with gradients keeps for its backward pass, apart from arguments
    and tensors around the function; None if there is none."""

    @property
    def bandwidth(self) -> float | None:
        """Bytes a second of everything that was timed; None before anything was."""
        return self.bytes_moved / self.seconds if self.seconds else None

    @property
    def machine_bandwidth(self) -> float:
        """Bytes a second that a copy moves on the device, measured when it is first asked for."""
        return memory_speed(self.device)

    def share(self, kernel: KernelStatistics) -> float | None:
        """A kernel's bandwidth as a share of the machine's; what stays in a cache may be above 1."""
        return None if kernel.bandwidth is None else kernel.bandwidth / self.machine_bandwidth

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        hits = f"{counted(self.recordings, 'recording')} ({counted(self.cache_hits, 'hit')})"
        yield f"{self.name}: {self.tier}, {counted(self.calls, 'call')}, {hits}"
        moved = f"{byte_count(self.bytes_moved)} in {duration(self.seconds)}"
        rate = "" if self.bandwidth is None else f", {_rate(self.bandwidth)}"
        yield f"{counted(self.launches, 'launch', 'es')}, {moved}{rate}"
        if self.kernels:
            yield ""
            yield from text_table(_HEADER if self.is_profiled else _HEADER[:2], map(self._row, self.kernels))
        yield from (f"{one.kernel} {one}" for one in self.tuned)
        if self.is_profiled:
            yield f"the machine copies {_rate(self.machine_bandwidth)}"
        else:
            yield 'config={"enable_profiling": True} adds the time and the bandwidth of each kernel'

    def _row(self, kernel: KernelStatistics) -> tuple[str, ...]:
        counts = kernel.name, str(kernel.launches)
        if not self.is_profiled:
            return counts
        seconds, share = kernel.seconds or 0.0, self.share(kernel)
        each = duration(seconds / kernel.launches) if kernel.launches else ""
        rate = "" if kernel.bandwidth is None or share is None else _rate(kernel.bandwidth)
        return (
            *counts,
            duration(seconds),
            each,
            byte_count(kernel.bytes_moved or 0),
            rate,
            f"{share:.0%}" if rate else "",
        )


_HEADER = ("kernel", "launches", "time", "each", "moved", "bandwidth", "of the machine's")


def _rate(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e9:.3g} GB/s"


def statistics_of(compiled: CompiledFunction) -> FunctionStatistics:
    """What calls of a function have cost so far."""
    found = [module.stats() for module in _modules(compiled)]
    called = compiled.compiler.timed_calls()
    kernels: dict[str, KernelStatistics] = {}
    for one in (*(kernel for stats in found for kernel in stats.kernels), *called):
        kernels[one.name] = kernels[one.name] + one if one.name in kernels else one
    recorded = [compiled, *(segment.recorded for segment in compiled.follower.summary().segments)]
    hits = [each.calls_of(kind) for each in recorded for kind in list(each.specialisations.values()) if kind.trace]
    return FunctionStatistics(
        compiled.name,
        compiled.tier,
        _device(compiled),
        calls=calls_of(compiled),
        recordings=compiled.all_recordings,
        cache_hits=sum(hits),
        launches=sum(stats.kernel_launches for stats in found) + sum(call.launches for call in called),
        bytes_moved=sum(stats.memory_transferred for stats in found) + sum(call.bytes_moved or 0 for call in called),
        seconds=sum(stats.total_time_us for stats in found) / 1e6 + sum(call.seconds or 0.0 for call in called),
        is_profiled=compiled.options.config["enable_profiling"],
        kernels=tuple(sorted(kernels.values(), key=lambda kernel: (-(kernel.seconds or 0.0), kernel.name))),
        saved_bytes=_saved_bytes(compiled),
        tuned=() if compiled.compiler.tuner is None else tuple(compiled.compiler.tuner.findings()),
    )


def _saved_bytes(compiled: CompiledFunction) -> int | None:
    kinds = [kind.gradients for kind in kinds_of(compiled) if kind.gradients is not None]
    found = [one.programs.split.bytes_kept for one in kinds if one.programs is not None]
    return found[-1] if found else None


def _modules(compiled: CompiledFunction) -> list[CompiledModule]:
    """Everything that was compiled for a function, also what its compiler does not keep because it may not cache."""
    found = {id(module): module for module in compiled.compiler.modules()}
    for kind in kinds_of(compiled):
        found |= {id(module): module for program in programs_of(kind) for module in program.modules}
    return list(found.values())


def _device(compiled: CompiledFunction) -> torch.device:
    """Where the newest program runs."""
    programs = [program for kind in kinds_of(compiled) for program in programs_of(kind)]
    return programs[-1].steps.versions.trace.device if programs else CPU
