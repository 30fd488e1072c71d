"""Functions run on a GPU over many numbers, and how far their results are from float64's, all of it on that GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ingot.codegen.llvm import ir
from ingot.codegen.llvm.host import Host
from ingot.runtime.cuda import modules
from tests.codegen.ptx.math.function_kernels import THREADS, ptx_of_functions

_LANES = {
    torch.float32: ir.FloatType(),
    torch.float64: ir.DoubleType(),
    torch.int32: ir.IntType(32),
    torch.int64: ir.IntType(64),
}
_CHUNK = 1 << 26
REFERENCES: dict[str, Callable[..., torch.Tensor]] = {
    "erfc": torch.special.erfc,
    "erfinv": torch.special.erfinv,
    "sigmoid": lambda x: torch.where(x < 0, torch.exp(x) / (1 + torch.exp(x)), 1 / (1 + torch.exp(-x))),
}
"""PyTorch's functions where they go by other names, or are worth less than a formula."""


def reference(name: str) -> Callable[..., torch.Tensor]:
    return REFERENCES.get(name) or getattr(torch, name)


def evaluate(name: str, host: Host, *operands: torch.Tensor) -> torch.Tensor:
    """The function of tensors on a GPU: contiguous, of one type and size."""
    first = operands[0]
    ptx = ptx_of_functions([name], _LANES[first.dtype], 1, host)
    (function,) = modules.load(ptx, [f"kernel_{name}"], first.device.index or 0, name)
    result = torch.empty_like(first)
    words = [*(operand.data_ptr() for operand in (*operands, result)), first.numel()]
    stream = torch.cuda.current_stream(first.device).cuda_stream
    grid = (-(-first.numel() // THREADS), 1, 1)
    modules.launch(function.handle, grid, (THREADS, 1, 1), (ctypes.c_int64 * len(words))(*words), stream)
    return result


def all_singles(step: int) -> Iterator[torch.Tensor]:
    """Every bit pattern of float32 that is a multiple of an odd step, or with step 1 all there are, in parts."""
    for start in range(0, 1 << 32, _CHUNK * step):
        patterns = torch.arange(start, min(start + _CHUNK * step, 1 << 32), step, device="cuda")
        yield patterns.to(torch.int32).view(torch.float32)


@dataclass(frozen=True)
class Worst:
    error: float
    at: float

    def or_worse(self, errors: torch.Tensor, x: torch.Tensor) -> Worst:
        largest, index = errors.max(0)
        return Worst(float(largest), float(x[index])) if float(largest) > self.error else self


def ulps(got: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Distance from exact values in units in the last place of the result's type; overflow counts as the power of two
    after the largest number, NaN where there should be none as infinitely far."""
    fraction, lowest, top = (23, -126, 128) if got.dtype is torch.float32 else (52, -1022, 1024)
    largest = 2.0 ** (top - 1) * (2 - 2.0**-fraction)
    wide, exact = got.double(), exact.double()
    limit = largest * (1 + 2.0 ** -(fraction + 2)) if got.dtype is torch.float32 else largest
    exponent = torch.frexp(exact.abs().clamp(max=largest))[1] - 1
    unit = torch.exp2((exponent.clamp(min=lowest) - fraction).double())
    both_overflow = (exact.abs() > limit) & wide.isinf() & (wide.sign() == exact.sign())
    distance = (wide - exact.clamp(-largest, largest)).abs() / unit
    distance = torch.where(both_overflow | (got.isnan() & exact.isnan()), 0.0, distance)
    near_overflow = wide.isinf() & (exact.abs() >= largest * (1 - 2.0**-fraction)) & (wide.sign() == exact.sign())
    distance = torch.where(near_overflow & ~both_overflow, 1.0, distance)
    return torch.where(got.isnan() != exact.isnan(), float("inf"), distance).nan_to_num(nan=float("inf"))


def worst_single(name: str, host: Host, step: int, errors_of: Callable[..., torch.Tensor] = ulps) -> Worst:
    """The largest error of a function of one float32."""
    worst = Worst(-1.0, 0.0)
    for x in all_singles(step):
        worst = worst.or_worse(errors_of(evaluate(name, host, x), reference(name)(x.double())), x)
    return worst


def relative(got: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Relative error where results are normal numbers, 0 where they are denormal; infinite for results of another kind:
    NaN, infinities and zeros that should be none, and none that should be."""
    normal = (exact.abs() >= 2.0**-126) & (exact.abs() < 2.0**128 * (1 - 2.0**-18))
    error = ((got.double() - exact) / exact).abs()
    same = (got.isnan() == exact.isnan()) & (~exact.isinf() | (got == exact)) & ((exact != 0) | (got == exact))
    return torch.where(~same, float("inf"), torch.where(normal, error, 0.0))


def relative_or_near_zero(got: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """The same for logarithms, which near 1 are as good as if they were not below 1/4."""
    scale = (exact.abs() / 0.25).clamp(max=1.0)
    errors = relative(got, exact)
    return torch.where(exact.isfinite() & (exact != 0) & errors.isfinite(), errors * scale, errors)


def random_doubles(count: int, seed: int) -> torch.Tensor:
    """Any bit patterns, and as many numbers of ordinary size."""
    generator = torch.Generator("cuda").manual_seed(seed)
    options: dict[str, Any] = {"device": "cuda", "generator": generator}
    patterns = torch.randint(-(1 << 63), (1 << 63) - 1, (count,), dtype=torch.int64, **options).view(torch.float64)
    return torch.cat([patterns, torch.randn(count, dtype=torch.float64, **options) * 8])
