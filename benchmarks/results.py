"""What was measured: rows of figures by group, and the machine they were measured on. Saved as JSON.

Times are seconds a call, medians over the rounds; speeds are bytes per second.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

import ingot

EAGER, COMPILE, INGOT, JIT = "eager", "torch.compile", "ingot", "ingot.jit"
"""Who computes: ingot is a FusionDefinition, ingot.jit the plain PyTorch function, compiled."""


@dataclass(frozen=True)
class Row:
    """One case and everyone who computed it."""

    name: str
    seconds: Mapping[str, float]
    """By contestant."""
    elements: int
    nbytes: int
    """What has to move: every input read once, every result written once."""
    compile_seconds: Mapping[str, float] = field(default_factory=dict)
    """What compiling took, by contestant: what a first call took longer than later ones or, where a contestant says it
    itself, that."""
    triad: float | None = None
    own_streams: float | None = None
    """Speed of the triad, and of a loop with as many arrays as the case itself, in the same rounds."""
    memory_bound: bool = False
    second_result: Mapping[str, float] = field(default_factory=dict)
    """Seconds until a contestant that starts from nothing has given its second result, by contestant."""
    floor: float | None = None
    """Seconds that moving the bytes takes at the speed of a copy, in the same rounds."""
    kernels: int | None = None
    """Kernels that ingot.jit has generated for the case and runs; none where it leaves the case to PyTorch."""
    reason: str = ""
    """Why it leaves the case to PyTorch, where it does."""

    def over(self, other: str, contestant: str = INGOT) -> float | None:
        """How many times as long the other one takes; None if it was not measured."""
        if other not in self.seconds or contestant not in self.seconds:
            return None
        return self.seconds[other] / self.seconds[contestant]

    def over_floor(self, contestant: str) -> float | None:
        """How many times as long as moving the bytes a contestant takes; None if that was not measured."""
        if self.floor is None or contestant not in self.seconds:
            return None
        return self.seconds[contestant] / self.floor

    @property
    def speed(self) -> float:
        """Bytes per second that ingot moves."""
        return self.nbytes / self.seconds[INGOT]

    @property
    def compile_ratio(self) -> float | None:
        """How many times as long torch.compile takes to compile."""
        ours, theirs = (self.compile_seconds.get(name) for name in (INGOT, COMPILE))
        return theirs / ours if ours and theirs else None

    @property
    def second_result_ratio(self) -> float | None:
        """How many times as long torch.compile takes to its second result as ingot.jit."""
        ours, theirs = (self.second_result.get(name) for name in (JIT, COMPILE))
        return theirs / ours if ours and theirs else None


@dataclass(frozen=True)
class Speed:
    """One yardstick of the memory: bytes per second."""

    name: str
    best: float
    median: float


@dataclass(frozen=True)
class Results:
    machine: Mapping[str, str]
    memory: tuple[Speed, ...]
    first_use: Mapping[str, float]
    """Seconds until the first compiled call of the process, by contestant: libraries are loaded and set up in it."""
    groups: Mapping[str, tuple[Row, ...]]

    def rows(self, *groups: str) -> list[Row]:
        return [row for group in groups for row in self.groups.get(group, ())]


def machine() -> dict[str, str]:
    """What a reader needs to know to compare figures."""
    return {
        "processor": processor_name(Path("/proc/cpuinfo")),
        "threads": str(torch.get_num_threads()),
        "vector instructions": torch.backends.cpu.get_cpu_capability(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "ingot": ingot.__version__,
        "load before": f"{os.getloadavg()[0]:.2f}",
    }


def processor_name(description: Path) -> str:
    """As Linux describes it, or else as Python does."""
    if description.exists():
        for line in description.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def save(results: Results, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(results), indent=2) + "\n")
