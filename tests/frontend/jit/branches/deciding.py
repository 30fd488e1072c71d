"""Functions that decide by values, with assertions as they are: pytest rewrites those in its test modules."""

from __future__ import annotations

import torch
from torch import Tensor


def asserted(x: Tensor) -> Tensor:
    assert torch.isfinite(x).all(), "not finite"
    return x * 2
