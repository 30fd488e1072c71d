"""What a case is, and the random tensors that cases are made of.

What always holds: a case made twice has the same tensors, and its function is plain PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

SEED = 20


class Data:
    """Random tensors, all drawn from one generator."""

    def __init__(self, is_small: bool):
        self._generator = torch.Generator().manual_seed(SEED)
        self.is_small = is_small

    def size(self, size: int) -> int:
        """A size that may shrink: the smaller one of quick tests keeps it odd or even, and above all windows."""
        return size if not self.is_small or size <= 16 else 16 + size % 2

    def floats(self, *sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=self._generator)

    def fractions(self, *sizes: int) -> Tensor:
        return torch.rand(*sizes, generator=self._generator)

    def bytes(self, *sizes: int) -> Tensor:
        return torch.randint(0, 256, sizes, generator=self._generator, dtype=torch.uint8)

    def below(self, end: int, *sizes: int) -> Tensor:
        return torch.randint(0, end, sizes, generator=self._generator)


@dataclass(frozen=True)
class OperationCase:
    name: str
    function: Callable[..., Any]
    make: Callable[[Data], tuple[Any, ...]]
    """The arguments of a call."""
