"""What was launched on a device: proof that a test has run generated code and not PyTorch's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import torch

from ingot.runtime import plan as plan_module
from ingot.runtime.devices import Backend, backend_for


@dataclass
class Launches:
    generated: int = 0
    """Kernels that plans have launched."""


@contextmanager
def counted_launches() -> Iterator[Launches]:
    """Counts the kernels that plans launch from Python, on any device."""
    launches = Launches()

    def counting(device: torch.device) -> Backend | None:
        backend = backend_for(device)
        if backend is None:
            return None

        def launch(*arguments: Any) -> list[torch.Tensor]:
            results = backend.launch(*arguments)
            launches.generated += 1
            return results

        return replace(backend, launch=launch)

    with patch.object(plan_module, "backend_for", counting):
        yield launches
