"""Functions that launch kernels of others, which no operation tells of: they are followed, and right."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.cuda import jiterator

import ingot
from tests.frontend.jit.comparing import why_followed

pytestmark = pytest.mark.cuda
triton: Any = pytest.importorskip("triton")
language: Any = pytest.importorskip("triton.language")
jit: Any = ingot.jit


@triton.jit
def doubled_kernel(source, target, count, BLOCK: language.constexpr):  # pyright: ignore[reportInvalidTypeForm]
    places = language.program_id(0) * BLOCK + language.arange(0, BLOCK)
    values = language.load(source + places, mask=places < count)
    language.store(target + places, values * 2, mask=places < count)


def doubled(x: torch.Tensor) -> torch.Tensor:
    result = torch.empty_like(x)
    doubled_kernel[(triton.cdiv(x.numel(), 128),)](x, result, x.numel(), BLOCK=128)
    return result + 1


def test_kernels_of_triton():
    compiled = jit(doubled)
    for _ in range(4):
        x = torch.randn(1000, device="cuda")
        torch.testing.assert_close(compiled(x), x * 2 + 1)
    assert why_followed(compiled)


def test_kernels_written_as_text():
    kernel = jiterator._create_jit_fn("template <typename T> T twice(T x) { return x + x; }")
    compiled = jit(lambda x: kernel(x) + 1)
    for _ in range(4):
        x = torch.randn(1000, device="cuda")
        torch.testing.assert_close(compiled(x), x * 2 + 1)
    assert why_followed(compiled)
