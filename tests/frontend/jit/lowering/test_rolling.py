"""Rolling into memory that was used before gives what PyTorch's roll gives."""

from __future__ import annotations

import pytest
import torch

from ingot.frontend.jit.lowering.rolling import rolled
from tests.frontend.jit.comparing import check


@pytest.mark.parametrize("x", [torch.randn(6, 5), torch.randn(5, 6).T, torch.arange(30).view(6, 5), torch.empty(0, 5)])
@pytest.mark.parametrize("shift", [0, 1, -1, 7, -13, 6])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_axis(x: torch.Tensor, shift: int, axis: int):
    memory = torch.empty(x.shape, dtype=x.dtype)
    assert rolled(x, [shift], [axis], out=memory) is memory
    assert torch.equal(memory, x.roll(shift, axis)) and torch.equal(rolled(x, [shift], [axis]), x.roll(shift, axis))


def test_several_axes_and_none():
    x = torch.randn(4, 6)
    for shifts, axes in (([1, -2], [0, 1]), ([5], [])):
        assert torch.equal(rolled(x, shifts, axes, out=torch.empty(4, 6)), x.roll(shifts, axes))


def test_compiled_functions_roll():
    def laplacian(x: torch.Tensor) -> torch.Tensor:
        return x.roll(1, 0) + x.roll(-1, 0) + x.roll((1, 2), (1, 0)) + x.roll(3) - 4 * x

    compiled = check(laplacian, lambda: [torch.randn(150, 160)])
    assert "out=" in compiled.inspect("program")
