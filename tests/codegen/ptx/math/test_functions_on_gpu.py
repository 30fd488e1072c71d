"""The functions on a GPU, against PyTorch's in float64. INGOT_TEST_EXAMPLES from 2^32 on tries every float32."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
import torch

import ingot
from ingot.codegen.llvm.host import Host
from ingot.codegen.llvm.math import FUNCTIONS, SUMS_WITH_ONE, TO_8_BITS
from ingot.codegen.ptx.target import gpu
from tests.codegen.ptx.math.function_kernels import ARITY
from tests.codegen.ptx.math.measured import (
    REFERENCES,
    all_singles,
    evaluate,
    random_doubles,
    reference,
    relative,
    relative_or_near_zero,
    ulps,
    worst_single,
)

pytestmark = pytest.mark.cuda
UNARY = [name for name in FUNCTIONS if name not in ARITY]
ROUGH = ["exp", "exp2", "expm1", "sigmoid", "log", "log2", "log10", "log1p", "tanh", "erf", "rsqrt"]
EXAMPLES = int(os.environ.get("INGOT_TEST_EXAMPLES", "0"))
STEP = 1 if EXAMPLES >= 1 << 32 else 41


@pytest.fixture(scope="module")
def host() -> Host:
    return gpu(torch.cuda.get_device_capability())


@pytest.mark.parametrize("name", UNARY)
def test_single_precision_stays_within_bound(name: str, host: Host):
    worst = worst_single(name, host, STEP)
    print(f"\n{name} float32: {worst.error:.3f} ulp at {worst.at!r}", end="")
    assert worst.error <= 2.0, worst


@pytest.mark.parametrize("name", ROUGH)
def test_approximate_functions_are_good_to_18_bits(name: str, host: Host):
    errors_of = relative_or_near_zero if name in ("log", "log2", "log10") else relative
    worst = worst_single(name, replace(host, approximates=True), STEP, errors_of)
    print(f"\n{name} roughly: {worst.error:.3g} at {worst.at!r}", end="")
    assert worst.error <= 1.05 * 2.0**-18, worst


@pytest.mark.parametrize("name", TO_8_BITS)
def test_what_is_rounded_to_bfloat16_at_once_is_good_to_11_bits(name: str, host: Host, monkeypatch):
    rough = replace(host, approximates=True)
    monkeypatch.setitem(FUNCTIONS, f"{name}_to_8_bits", TO_8_BITS[name])
    monkeypatch.setitem(REFERENCES, f"{name}_to_8_bits", reference(name))
    worst = worst_single(f"{name}_to_8_bits", rough, STEP, relative)
    print(f"\n{name} to 8 bits: {worst.error:.3g} at {worst.at!r}", end="")
    assert worst.error <= 1.05 * 2.0**-11, worst


@pytest.mark.parametrize("name", SUMS_WITH_ONE)
def test_sums_with_one_are_good_to_17_bits(name: str, host: Host, monkeypatch):
    sums = {"erf": lambda x: torch.special.erfc(-x), "tanh": lambda x: 2 * torch.sigmoid(2 * x)}
    monkeypatch.setitem(FUNCTIONS, f"one_and_{name}", SUMS_WITH_ONE[name])
    monkeypatch.setitem(REFERENCES, f"one_and_{name}", sums[name])
    x = torch.linspace(-4.0, 10.0, 1 << 24, device="cuda")
    errors = relative(evaluate(f"one_and_{name}", replace(host, approximates=True), x), sums[name](x.double()))
    assert errors.max() <= 1.5 * 2.0**-18, f"{float(errors.max())} at {float(x[errors.argmax()])}"


@pytest.mark.parametrize("divisor", [255.0, -3.0, 0.1, 1e30, 1e-30, 2.0**-140, 0.0, float("inf"), float("nan")])
def test_quotients_by_one_divisor_are_those_of_eager(divisor: float):
    """One number away at most, and equal where the dividend is not tiny."""
    divided = ingot.jit(lambda x, y: x / y)
    x, y = next(all_singles(64 * 41 + 1)), torch.full((1, 1), divisor, device="cuda")
    x = x[: x.numel() // 4096 * 4096].reshape(-1, 4096)
    exact = x / y
    divided(x, y)
    got = divided(x, y)
    assert torch.equal(got.isnan(), exact.isnan())
    assert torch.equal(got.isinf(), exact.isinf())
    assert torch.equal(got.signbit()[~exact.isnan()], exact.signbit()[~exact.isnan()])
    distance = (got.view(torch.int32) - exact.view(torch.int32)).abs()
    assert not torch.any(distance[~exact.isnan()] > 1)
    ordinary = (x.abs() >= 2.0**-36) & (exact.abs() >= 2.0**-124) & (exact.abs() < 2.0**127)
    assert torch.equal(got[ordinary], exact[ordinary])


@pytest.mark.parametrize("name", [name for name in UNARY if name != "lgamma"])
def test_double_precision_stays_within_bound(name: str, host: Host):
    """8 ulp: PyTorch's functions are off by some, too."""
    x = random_doubles(1 << 20, seed=len(name))
    errors = ulps(evaluate(name, host, x), reference(name)(x))
    assert errors.max() <= 8.0, f"{name}({float(x[errors.argmax()])!r}) is off by {float(errors.max())} ulp"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["fmod", "remainder"])
def test_remainders_are_exact(name: str, dtype: torch.dtype, host: Host):
    x, y = (torch.randn(1 << 20, device="cuda", dtype=dtype).exp() * sign for sign in (1e3, -1.0))
    exact = torch.fmod(x.double(), y.double())
    exact = exact + torch.where(exact != 0, y.double(), 0.0) if name == "remainder" else exact
    assert torch.equal(evaluate(name, host, x, y), exact.to(dtype))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_integers_have_common_divisors_and_powers(dtype: torch.dtype, host: Host):
    x, y = (torch.randint(-(10**6), 10**6, (1 << 18,), device="cuda", dtype=dtype) for _ in range(2))
    assert torch.equal(evaluate("gcd", host, x, y), torch.gcd(x, y))
    exponent = y.abs() % 9
    assert torch.equal(evaluate("pow", host, x, exponent), torch.pow(x, exponent))


def test_powers_stay_within_bound(host: Host):
    x = torch.rand(1 << 22, device="cuda") * 4
    y = (torch.rand(1 << 22, device="cuda") - 0.5) * 120
    assert ulps(evaluate("pow", host, x, y), torch.pow(x.double(), y.double())).max() <= 2.0
