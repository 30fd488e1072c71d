"""Quotients and roots on a GPU, against eager's. INGOT_TEST_EXAMPLES from 2^32 on tries every float32, and as many
quotients."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy
import pytest
import torch

from ingot.codegen.llvm.math import FUNCTIONS
from ingot.codegen.llvm.math.dsl.definitions import emitter
from ingot.codegen.llvm.math.gpu import exact
from ingot.codegen.ptx.target import gpu
from tests.codegen.ptx.math import function_kernels
from tests.codegen.ptx.math.hard_quotients import ALL_ONES, hard_quotients
from tests.codegen.ptx.math.measured import all_singles, evaluate

pytestmark = pytest.mark.cuda
EXAMPLES = int(os.environ.get("INGOT_TEST_EXAMPLES", "0"))
STEP = 1 if EXAMPLES >= 1 << 32 else 41
PAIRS = 1 << 24

Divide = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@pytest.fixture
def divide(monkeypatch) -> Divide:
    monkeypatch.setitem(FUNCTIONS, "exact_quotient", emitter(exact.quotient))
    monkeypatch.setitem(function_kernels.ARITY, "exact_quotient", 2)
    host = gpu(torch.cuda.get_device_capability())
    return lambda x, y: evaluate("exact_quotient", host, x.contiguous(), y.contiguous())


def require_equal(got: torch.Tensor, expected: torch.Tensor) -> None:
    """The same bits, of NaN any."""
    same = (got.view(torch.int32) == expected.view(torch.int32)) | (got.isnan() & expected.isnan())
    assert bool(same.all()), f"{int((~same).sum())} differ, such as {got[~same][:4]} from {expected[~same][:4]}"


def on_device(*arrays: numpy.ndarray) -> list[torch.Tensor]:
    return [torch.from_numpy(array).cuda() for array in arrays]


def test_every_root_is_rounded_exactly(monkeypatch):
    monkeypatch.setitem(FUNCTIONS, "exact_root", emitter(exact.square_root))
    host = gpu(torch.cuda.get_device_capability())
    for x in all_singles(STEP):
        require_equal(evaluate("exact_root", host, x), torch.sqrt(x))


def test_any_quotient_is_rounded_exactly_unless_denormal_or_next_to_infinity(divide: Divide):
    generator = torch.Generator("cuda").manual_seed(1)
    for _ in range(max(1, EXAMPLES // PAIRS)):
        bits = torch.randint(-(1 << 31), 1 << 31, (2, PAIRS), device="cuda", generator=generator)
        x, y = bits.to(torch.int32).view(torch.float32)
        got, expected = divide(x, y), x / y
        denormal = expected.abs() < 2.0**-126
        last = ((x.double() / y.double()).abs() * 2.0**-128 - 1).abs() < 2.0**-21
        away = (got.view(torch.int32) - expected.view(torch.int32)).abs()
        assert int(away[denormal].max()) <= 1
        assert not torch.any(away[last] > 2)
        ordinary = ~(denormal | last)
        require_equal(got[ordinary], expected[ordinary])


@pytest.mark.parametrize("remainder", [1, -1, 3, -3])
def test_quotients_nearly_halfway_between_two_numbers_are_rounded_exactly(divide: Divide, remainder: int):
    for pair in hard_quotients(remainder):
        x, y = on_device(*pair)
        require_equal(divide(x, y), x / y)


def test_quotients_by_the_last_numbers_before_a_power_of_two_are_rounded_exactly(divide: Divide):
    x = torch.arange(1 << 23, 1 << 24, device="cuda").float()
    for below in range(8):
        y = torch.full_like(x, ALL_ONES - below)
        require_equal(divide(x, y), x / y)
