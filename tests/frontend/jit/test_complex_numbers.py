"""Functions of complex numbers: compiled, with conjugates that PyTorch puts off, views of parts, and gradients."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest
import torch

import ingot
from tests.frontend.jit.comparing import check
from tests.frontend.jit.gradients.comparing_gradients import gradients_match

EXAMPLES = int(os.environ.get("INGOT_TEST_EXAMPLES", "6"))
SHAPE = (3, 37)
"""Odd, so that vectors do not come out even."""


def numbers(*shape: int, dtype: torch.dtype = torch.complex64, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def pair() -> tuple[torch.Tensor, torch.Tensor]:
    return numbers(*SHAPE), numbers(*SHAPE, seed=1)


def rotary_embedding(x: torch.Tensor, frequencies: torch.Tensor) -> torch.Tensor:
    """As Llama's first implementation has it."""
    turned = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2)) * frequencies
    return torch.view_as_real(turned).flatten(-2).type_as(x)


def written_part(z: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    product = z * w
    product.real.mul_(2)
    torch.view_as_real(product)[..., 1] += 1
    return product + w


def written_conjugate(z: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    conjugate = (z + w).conj()
    conjugate.mul_(2)
    return conjugate


def quotients(z: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (z / (w + 2j)).abs() + (w / (z + 2j)).imag


def both_ways(z: torch.Tensor, w: torch.Tensor) -> Any:
    """A conjugate that a library call takes as it is, and generated code as a value."""
    conjugate = (z * w).mH
    return conjugate @ w, conjugate.abs() + 1


FUNCTIONS = {
    "polynomial": lambda z, w: z * w + 2 * z - 1j * w + 0.5,
    "quotient": lambda z, w: (z - 1) / (w + 2j),
    "magnitude": lambda z, w: (z * w + z).abs() ** 2,
    "conjugate": lambda z, w: (z * w.conj()).real,
    "returned conjugate": lambda z, w: (z * w).conj(),
    "part of a conjugate": lambda z, w: (z * w).conj().imag + 1,
    "conjugate twice": lambda z, w: (z.conj() * 2).conj() + w,
    "functions": lambda z, w: torch.sigmoid(z) * torch.exp(w) + z.square() / torch.polar(w.abs(), w.angle()),
    "power": lambda z, w: z**2 + w**3,
    "from parts": lambda z, w: torch.complex(z.real * 2, w.imag),
    "sums": lambda z, w: (z * w).sum(-1) + (z - w).mean(),
    "choice": lambda z, w: torch.where(z.real > 0, z, w).masked_fill(w.imag > 1, 0),
    "comparison": lambda z, w: (z == w) | torch.isfinite(z / w),
    "moved": lambda z, w: torch.cat([z.mT * 2, torch.stack([z, w]).sum(0).mT], 1)[1:, ::2],
    "with real numbers": lambda z, w: z * w.real + w.imag.double(),
    "written": lambda z, w: z.clone().mul_(w).add_(1j),
    "between transforms": lambda z, w: torch.fft.ifft(torch.fft.fft(z) * w.conj() * 2).real,
    "written part": written_part,
    "written conjugate": written_conjugate,
    "both ways": both_ways,
    "left to PyTorch": lambda z, w: (torch.sqrt(z) * torch.tanh(w)).cumsum(0),
}
WITHOUT_CALLS = ("polynomial", "quotient", "magnitude", "conjugate", "functions", "sums", "with real numbers")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gives_what_eager_gives(name: str):
    compiled = check(FUNCTIONS[name], pair)
    if name in WITHOUT_CALLS:
        assert "0 calls of PyTorch's" in compiled.explain()
    assert compiled(*pair())[0].is_conj() is FUNCTIONS[name](*pair())[0].is_conj()


def test_other_types_sizes_and_layouts():
    compiled = ingot.jit(quotients)
    for given in (
        [numbers(4, 9, dtype=torch.complex128), numbers(9, seed=1)],
        [numbers(), numbers(seed=1)],
        [numbers(0, 5), numbers(5)],
        [numbers(5, 66)[:, ::2], numbers(33, 5).mT],
        [numbers(5, 1).expand(5, 33), numbers(33)],
        [numbers(7).conj(), numbers(7)],
        [numbers(20_000), numbers(20_000, seed=1)],
    ):
        check(quotients, lambda given=given: given, compiled=compiled)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rotary_embedding_is_generated_between_views_of_pairs(dtype: torch.dtype):
    frequencies = torch.polar(torch.ones(5, 1, 8), torch.arange(40.0).reshape(5, 1, 8))
    heads = torch.randn(2, 5, 4, 16).to(dtype)
    text = check(rotary_embedding, lambda: (heads, frequencies)).explain()
    called = {line.partition("aten.")[2].partition(".")[0] for line in text.splitlines() if "left to PyTorch" in line}
    assert called == {"view_as_complex", "view_as_real"} and "mul x4" in text


# --- gradients --------------------------------------------------------------------------------------------------------

LOSSES = {
    "magnitude": lambda a, b: ((a * b.conj() + a).abs() ** 2).sum(),
    "parts": lambda a, b: (torch.view_as_real(a * b / (a + 2)).exp()).mean(),
    "transforms": lambda a, b: torch.fft.ifft(torch.fft.fft(a) * b).real.square().sum(),
    "gate": lambda a, b: (torch.sigmoid(a) * b).imag.sum(),
    "angle": lambda a, b: (a.angle() * torch.polar(b.abs(), b.real)).real.sum(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients(name: str):
    gradients_match(LOSSES[name], lambda: [value.requires_grad_() for value in pair()])


# --- random programs --------------------------------------------------------------------------------------------------

STEPS = [
    lambda z, w: z + w,
    lambda z, w: z - 2 * w,
    lambda z, w: z * w,
    lambda z, w: z / (w + 3),
    lambda z, w: z.conj() * w,
    lambda z, w: (z * 0.1).exp() + w,
    lambda z, w: torch.complex(z.real, w.imag),
    lambda z, w: z * w.abs(),
    lambda z, w: torch.where(z.real > w.real, z, w),
    lambda z, w: torch.view_as_complex(torch.view_as_real(z).flip(-1).contiguous()) + w,
    lambda z, w: z.mT.contiguous().mT + w.sum(-1, keepdim=True),
    lambda z, w: z.imag + w.real * 1j,
    lambda z, w: z.clone().mul_(w).neg_(),
    lambda z, w: z.resolve_conj().reciprocal() if z.is_conj() else z.conj().sgn() + w,
]


@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_random_programs(seed: int):
    random = Random(seed)
    chosen = [(random.choice(STEPS), random.random(), random.random()) for _ in range(8)]

    def program(*given: torch.Tensor) -> Any:
        values = list(given)
        for step, first, second in chosen:
            values.append(step(values[int(first * len(values))], values[int(second * len(values))]))
        return values[-1], values[-2], values[-3].real

    dtype = random.choice([torch.complex64, torch.complex128])
    check(program, lambda: [numbers(*SHAPE, dtype=dtype, seed=number) for number in range(2)], parts_of_largest=1e-4)
