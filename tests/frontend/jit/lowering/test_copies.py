"""Copies in compiled programs: a region makes small ones itself, PyTorch makes large ones."""

from __future__ import annotations

import pytest
import torch

from tests.frontend.jit.comparing import same
from tests.frontend.jit.records import jit


def joined(x, y):
    return torch.tanh(torch.cat([x, y], 1)), y - 1


def stacked(x, y):
    return torch.stack([x, y.exp()], 1), x * y


def copied(x, y):
    return x.t().clone(memory_format=torch.contiguous_format), torch.relu(y)


def filled(x, y):
    return torch.zeros_like(x), torch.where(x > y, torch.full_like(x, 3.0), y)


COPIES = {joined: "aten_cat_default", stacked: "aten_stack_default", copied: "aten_clone_default"}


@pytest.mark.parametrize("size", [8, 200])
@pytest.mark.parametrize("function", [*COPIES, filled], ids=lambda function: function.__name__)
def test_programs_copy_small_tensors_in_regions_and_large_ones_through_pytorch(function, size):
    compiled = jit(function, python="skip")
    for _ in range(4):
        x, y = torch.randn(size, size), torch.randn(size, size)
        same(compiled(x, y), function(x, y))
    program = compiled.inspect("program")
    assert (COPIES.get(function, "aten_zeros_like_default") in program) == (size == 200), program
    assert program.count(".execute(") == 1 or size == 200, program
