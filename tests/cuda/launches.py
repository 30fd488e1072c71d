"""What was launched on a device: proof that a test has run generated code and not PyTorch's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from ingot.runtime.backends.registry import using
from ingot.runtime.cuda.backend import CudaBackend


@dataclass
class Launches:
    generated: int = 0
    """Kernels that plans have launched."""


@dataclass(frozen=True)
class _Counting(CudaBackend):
    launches: Launches = field(default_factory=Launches)

    def launch(self, *arguments: Any, **named: Any) -> list[torch.Tensor]:
        results = super().launch(*arguments, **named)
        self.launches.generated += 1
        return results


@contextmanager
def counted_launches() -> Iterator[Launches]:
    """Counts the kernels that plans launch on GPUs from Python."""
    backend = _Counting()
    with using(backend):
        yield backend.launches
