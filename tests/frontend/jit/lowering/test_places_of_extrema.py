"""argmax, argmin, max and min along an axis: generated code gives the very indices that eager gives."""

from __future__ import annotations

import pytest
import torch

from tests.frontend.jit.comparing import check

SPECIAL = [0.0, -0.0, 1.0, 1.0, -3.0, float("inf"), -float("inf"), float("nan")]


def elements(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Rows with equal elements, with some NaN, with zeros of both signs, and of nothing but infinities."""
    if dtype is torch.bool:
        return torch.randint(0, 2, shape).bool()
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        return torch.tensor([info.min, info.max, 0, 1], dtype=dtype)[torch.randint(0, 4, shape)]
    values = torch.tensor(SPECIAL, dtype=dtype)[torch.randint(0, 7, shape)]
    values[torch.rand(shape) < 0.02] = float("nan")
    values[0] = -float("inf")
    return values


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.uint8, torch.int64, torch.bool], ids=str
)
def test_the_first_of_equal_elements_and_the_first_nan_count(dtype: torch.dtype, axis: int):
    def places(x: torch.Tensor) -> list[torch.Tensor]:
        found = [*torch.max(x, axis), *torch.min(x, axis, keepdim=True)]
        if dtype is not torch.bool:
            found += [x.argmax(axis), x.argmin(axis, keepdim=True)]
        return [part.clone() for part in found]

    compiled = check(places, lambda: [elements(9, 37, 5, dtype=dtype)])
    program = compiled.inspect("program")
    assert not any(name in program for name in ("argmax", "argmin", "max_dim", "min_dim")), program


def test_indices_of_rows_that_lie_strided_or_are_of_one_element():
    check(
        lambda x: (x.mT.argmax(-1), x[:, ::3].argmax(1), x[:, :1].argmin(1), x.expand(4, 8, 30).argmax(1)),
        lambda: [elements(8, 30, dtype=torch.float32)],
    )
