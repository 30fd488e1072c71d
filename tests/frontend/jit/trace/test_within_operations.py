"""Operations that are made of others: watched while they are recorded, they give what they give unwatched.

Within a mode of PyTorch's that watches operations, what an operation calls by itself is done without what lies between
a call and its operation: conjugating what was put off, and autocast.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from ingot import jit
from tests.frontend.jit.comparing import same, why_followed

CALLS = 4


@torch.library.custom_op("ingot_tests::product", mutates_args=())
def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x @ y


def autocast() -> Any:
    return torch.autocast("cpu", dtype=torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_pseudoinverses_of_complex_matrices(dtype: torch.dtype):
    x = torch.randn(5, 4, dtype=dtype)
    compiled = jit(lambda x: torch.linalg.pinv(x))
    for _ in range(CALLS):
        same(compiled(x), torch.linalg.pinv(x))


def test_residuals_of_complex_equations():
    def residuals(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.linalg.lstsq(a, b, driver="gels").residuals

    a, b = torch.randn(4, 3, dtype=torch.complex64), torch.randn(4, 2, dtype=torch.complex64)
    compiled = jit(residuals)
    for _ in range(CALLS):
        same(compiled(a, b), residuals(a, b))
    assert "depends on values" in why_followed(compiled)


def test_own_operations_that_autocast_casts_within():
    def inside(x: torch.Tensor) -> torch.Tensor:
        with autocast():
            return product(x, x) + 1

    def outside(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.ingot_tests.product(x, x) + 1

    x = torch.randn(4, 4)
    assert inside(x).dtype is torch.bfloat16
    compiled: Any = jit(inside)
    for _ in range(CALLS):
        same(compiled(x), inside(x))
    assert "autocast" in why_followed(compiled)
    compiled = jit(outside, python="skip")
    with autocast():
        for _ in range(CALLS):
            same(compiled(x), outside(x))
    assert "autocast" in why_followed(compiled)
    for _ in range(CALLS):  # and without it, they are calls like others
        same(compiled(x), outside(x))
    assert "1 call of PyTorch's" in compiled.explain()


encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
bilinear = nn.Bilinear(8, 8, 4)


@pytest.mark.parametrize(
    "function",
    [
        *(torch.linalg.pinv, torch.pinverse, torch.Tensor.pinverse),
        lambda x: torch.ops.aten.linalg_pinv.default(x, 1e-15),
        lambda x: torch.ops.aten.linalg_pinv.atol_rtol_tensor(x),
        lambda x: encoder(x),
        lambda x: attention(x, x, x)[0],
        lambda x: bilinear(x, x),
    ],
)
def test_functions_that_autocast_casts_within(function: Any):
    x = torch.randn(2, 8, 8)
    compiled = jit(lambda x: function(x))
    with torch.no_grad(), autocast():
        for _ in range(CALLS):
            found, expected = compiled(x), function(x)
            assert found.dtype is expected.dtype and torch.equal(found, expected)
    assert "autocast" in why_followed(compiled)


def test_profilers_marks_under_autocast():
    def marked(x: torch.Tensor) -> torch.Tensor:
        with torch.profiler.record_function("product"):
            return x @ x + 1

    x = torch.randn(4, 4)
    compiled: Any = jit(marked, fullgraph=True, python="skip")
    with autocast():
        for _ in range(CALLS):
            same(compiled(x), marked(x))


def test_what_autocast_leaves_alone_is_left_alone_later_as_well():
    """Distances are float32 under autocast, though for many rows they are made of a product."""
    x, y = 100 * torch.randn(64, 8), 100 * torch.randn(64, 8)
    compiled: Any = jit(lambda x, y: torch.cdist(x, y))
    with autocast():
        for _ in range(CALLS):
            found = compiled(x, y)
            assert found.dtype is torch.float32
            torch.testing.assert_close(found, torch.cdist(x, y), rtol=1e-5, atol=1e-3)
        assert "with uncast():" in compiled.inspect("program")
    compiled(x, y)


def test_what_autocast_leaves_alone_is_left_alone_for_other_sizes_as_well():
    compiled: Any = jit(lambda x, y: torch.ops.aten.cdist(x, y), dynamic=True)
    with autocast():
        for rows in (40, 50, 60, 70, 80):
            x, y = 100 * torch.randn(rows, 8), 100 * torch.randn(rows, 8)
            for _ in range(CALLS):
                found = compiled(x, y)
                assert found.dtype is torch.float32
                torch.testing.assert_close(found, torch.cdist(x, y), rtol=1e-5, atol=1e-3)
    assert compiled._compiled.recordings < 5


def test_results_that_are_lists_in_lists():
    """Where gradients are out of the question, PyTorch does not take some operations apart."""
    x = torch.randn(5, 3)
    compiled = jit(lambda x: torch.histogramdd(x, [2, 3, 2]))
    with torch.inference_mode():
        for _ in range(CALLS):
            same(compiled(x), torch.histogramdd(x, [2, 3, 2]))


@pytest.mark.parametrize("rows", [slice(None), slice(1, None)])
def test_a_diagonal_is_that_of_the_tensor_wherever_it_begins(rows: slice):
    def fill(x: torch.Tensor) -> torch.Tensor:
        x[rows].fill_diagonal_(7)
        return x * 2

    compiled: Any = jit(fill)
    for begin in (0, 0, 0, 0, 4, 7):
        memory, expected = torch.arange(40.0), torch.arange(40.0)
        same(compiled(memory[begin : begin + 16].view(4, 4)), fill(expected[begin : begin + 16].view(4, 4)))
        same(memory, expected)
    assert compiled.tier == "skipping"
