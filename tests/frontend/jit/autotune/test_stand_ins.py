"""Tensors to measure with: like those they stand for, and drawn from no generator of the user's."""

from __future__ import annotations

import pytest
import torch

from ingot.frontend.jit.autotune.benchmarking import stand_in


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_generators_are_left_alone(device: torch.device, dtype: torch.dtype):
    torch.manual_seed(3)
    expected = torch.rand(4, device=device)
    torch.manual_seed(3)
    made = stand_in((5, 3), (1, 5), dtype, device)
    assert made.stride() == (1, 5) and made.dtype is dtype and made.device.type == torch.device(device).type
    assert torch.equal(torch.rand(4, device=device), expected)
    assert torch.equal(made, stand_in((5, 3), (1, 5), dtype, device)) and made.float().std() > 0.1
