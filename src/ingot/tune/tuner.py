"""What compilers ask for the schedules of their kernels: found before, found on disk, or searched for now.

In: a kernel and the tensors of a call, of which only types, sizes and strides count. Out: a tuning record. What always
holds: one search goes on at a time in a process; a search that is interrupted keeps its best so far, for this process
and on disk, and no other begins for the compiler that was interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from ingot.base.errors import CodegenError
from ingot.base.forks import new_lock
from ingot.base.logs import log
from ingot.loops.cpu.tuning import CpuTuning
from ingot.runtime.cpu.kernels import scheduled
from ingot.runtime.kernels import Kernel, TunedKernel
from ingot.tune.findings import Finding, FindingKey, read, write
from ingot.tune.measurement import Unmeasurable, Workbench
from ingot.tune.progress import TuningProgress
from ingot.tune.search import Limits, search
from ingot.tune.search_space import SearchSpace, in_words

_findings: dict[FindingKey, Finding] = {}
"""What this process knows."""
_measuring = new_lock()


class Tuner:
    """Tunes the kernels of one compiler, under its configuration."""

    def __init__(self, config: Mapping[str, Any]):
        self._limits = Limits(config["kernel_tuning_steps"], float(config["kernel_tuning_seconds"]))
        self._asked: dict[str, dict[FindingKey, tuple[str, tuple[int, ...]]]] = {}
        """By kernel: the findings it was asked about, with the kernel's name and the sizes of its loops."""
        self._given_up: dict[FindingKey, str] = {}
        """Why a search ended before its time."""
        self.is_interrupted = False

    def tuned(
        self,
        kernel: Kernel,
        tensors: Sequence[torch.Tensor],
        bound: Mapping[str, int],
        targets: Mapping[int, torch.Tensor],
        default: CpuTuning,
        may_measure: bool = True,
    ) -> CpuTuning:
        call, _ = scheduled(kernel, tensors, bound, targets, default)
        key = FindingKey.of(kernel.program, call, default)
        if may_measure:
            self._asked.setdefault(kernel.program.digest, {}).setdefault(key, (kernel.name, call.sizes))
        finding = _findings.get(key)
        if finding is not None and not finding.changes and (not may_measure or self._is_done(key, finding)):
            return default
        space = SearchSpace(kernel, tensors, bound, targets, default)
        if finding is None or (may_measure and not self._is_done(key, finding)):
            finding = self._found(key, space, may_measure)
        # What was found for sizes of the same class may not be allowed for these.
        chosen = space.candidate(finding.changes)
        return default if chosen is None else chosen.tuning

    def told(self, kernel: Kernel) -> list[str]:
        return [str(found) for found in self._findings_of(kernel.program.digest)]

    def findings(self) -> list[TunedKernel]:
        return [found for digest in list(self._asked) for found in self._findings_of(digest)]

    def _findings_of(self, digest: str) -> Iterator[TunedKernel]:
        for key, what in list(self._asked.get(digest, {}).items()):
            if key in _findings:
                yield self._tuned_kernel(key, *what)

    def _tuned_kernel(self, key: FindingKey, name: str, sizes: tuple[int, ...]) -> TunedKernel:
        found, stopped = _findings[key], self._given_up.get(key, "")
        if not stopped and not found.is_complete:
            stopped = "interrupted"
        chosen = in_words(found.changes)
        return TunedKernel(name, sizes, chosen, found.speedup, len(found.tried), stopped, found.is_from_disk)

    def _is_done(self, key: FindingKey, finding: Finding) -> bool:
        is_over = finding.is_over(self._limits.steps, self._limits.seconds)
        return is_over or self.is_interrupted or key in self._given_up

    def _found(self, key: FindingKey, space: SearchSpace, may_measure: bool) -> Finding:
        """The finding for a call: from this process, from disk, or searched for."""
        is_kept = space.kernel.origin.is_kept
        with _measuring:
            finding = _findings.get(key) or _known(key, space, is_kept)
            if not may_measure:
                return finding
            _findings[key] = finding
            if not self._is_done(key, finding):
                finding.is_from_disk = False
                self._search(key, space, finding, is_kept)
            return finding

    def _search(self, key: FindingKey, space: SearchSpace, finding: Finding, is_kept: bool) -> None:
        name, limits = space.kernel.name, self._limits
        progress = TuningProgress(name, limits.steps)

        def changed(found: Finding) -> None:
            if is_kept:
                write(key, name, found)
            progress.advance(len(found.tried), found.speedup)

        try:
            search(space, Workbench(space), finding, limits, changed)
        except (Unmeasurable, MemoryError, CodegenError) as error:
            log("perf", f"tuning of kernel {name} ended before its time: {error}")
            self._given_up[key] = str(error)
            return
        except KeyboardInterrupt:
            self.is_interrupted = True
            self._given_up[key] = "interrupted"
            raise
        finally:
            progress.close()
        log("perf", f"kernel {name} {self._tuned_kernel(key, name, space.default.call.sizes)}")


def _known(key: FindingKey, space: SearchSpace, is_kept: bool) -> Finding:
    """What is on disk, if it fits the call; else nothing yet."""
    found = read(key) if is_kept else None
    if found is None or space.candidate(found.changes) is None:
        return Finding()
    return found
