"""Random chains of operations on half types, for tests that compare compiled functions with eager to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import torch
from torch.nn import functional

Step = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

EXACT: dict[str, Step] = {
    "add": lambda x, a, b: x + a,
    "add a number": lambda x, a, b: x + 0.1,
    "sub": lambda x, a, b: a - x,
    "rsub a number": lambda x, a, b: 0.7 - x,
    "mul": lambda x, a, b: x * b,
    "mul by a number": lambda x, a, b: x * 0.3,
    "mul by a tensor without axes": lambda x, a, b: x * torch.tensor(0.3),
    "div": lambda x, a, b: x / (b.abs() + 0.5),
    "div by a number": lambda x, a, b: x / 3,
    "reciprocal": lambda x, a, b: 1 / (x.abs() + 0.25),
    "sqrt": lambda x, a, b: x.abs().sqrt(),
    "square": lambda x, a, b: x.clamp(-8, 8).square(),
    "cube": lambda x, a, b: x.clamp(-4, 4) ** 3,
    "inverse square": lambda x, a, b: (x.abs() + 0.5) ** -2,
    "abs": lambda x, a, b: x.abs(),
    "neg": lambda x, a, b: -x,
    "floor": lambda x, a, b: (x * 4).floor(),
    "ceil": lambda x, a, b: (x * 4).ceil(),
    "round": lambda x, a, b: (x * 4).round(),
    "trunc": lambda x, a, b: (x * 4).trunc(),
    "frac": lambda x, a, b: x.frac(),
    "sign": lambda x, a, b: x.sign() * a,
    "maximum": lambda x, a, b: torch.maximum(x, a),
    "minimum": lambda x, a, b: torch.minimum(x, b),
    "clamp": lambda x, a, b: x.clamp(-0.7, 1.3),
    "clamp by tensors": lambda x, a, b: x.clamp(a, b),
    "where": lambda x, a, b: torch.where(x > a, x, b),
    "comparison": lambda x, a, b: x + (x * b >= a).to(x.dtype),
    "masked_fill": lambda x, a, b: x.masked_fill(a > 0.3, 0.3),
    "addcmul": lambda x, a, b: torch.addcmul(x, a, b, value=0.1),
    "addcdiv": lambda x, a, b: torch.addcdiv(x, a, b.abs() + 0.5, value=0.3),
    "lerp": lambda x, a, b: torch.lerp(x, a, 0.3),
    "lerp by a tensor": lambda x, a, b: torch.lerp(x, a, b),
    "add with a factor": lambda x, a, b: torch.add(x, a, alpha=0.3),
    "there and back": lambda x, a, b: (x.float() * 1.1).to(x.dtype) + x,
    "to the other half type": lambda x, a, b: x.to(_other(x.dtype)).to(x.dtype) - a,
    "in double": lambda x, a, b: (x.double() / 3).to(x.dtype),
    "relu": lambda x, a, b: functional.relu(x) + a,
    "leaky_relu": lambda x, a, b: functional.leaky_relu(x, 0.2),
    "hardswish": lambda x, a, b: functional.hardswish(x),
    "hardsigmoid": lambda x, a, b: functional.hardsigmoid(x),
    "hardtanh": lambda x, a, b: functional.hardtanh(x, -0.3, 0.7),
    "softshrink": lambda x, a, b: functional.softshrink(x, 0.3),
    "fmod": lambda x, a, b: torch.fmod(x, 0.7),
    "remainder": lambda x, a, b: x % (b.abs() + 0.5),
    "mse_loss": lambda x, a, b: functional.mse_loss(x, a, reduction="none"),
    "smooth_l1_loss": lambda x, a, b: functional.smooth_l1_loss(x, a, reduction="none"),
    "l1_loss": lambda x, a, b: functional.l1_loss(x, b, reduction="none"),
    "rsqrt": lambda x, a, b: (x.abs() + 0.5).rsqrt(),
    "broadcast": lambda x, a, b: x * b[..., :1] + a[..., -1:],
    "largest of a row": lambda x, a, b: x - x.amax(-1, keepdim=True),
    "smallest of a row": lambda x, a, b: x + x.amin(-1, keepdim=True),
}
"""Steps whose results are eager's to the last bit."""

NEARLY: dict[str, Step] = {
    "sum": lambda x, a, b: x + x.sum(-1, keepdim=True) * 0.01,
    "mean": lambda x, a, b: x - x.mean(-1, keepdim=True),
    "softmax": lambda x, a, b: torch.softmax(x, -1),
    "softmax along the first axis": lambda x, a, b: torch.softmax(x, 0),
    "log_softmax": lambda x, a, b: torch.log_softmax(x, -1),
    "layer_norm": lambda x, a, b: functional.layer_norm(x + a, x.shape[-1:]),
    "rms_norm": lambda x, a, b: functional.rms_norm(x + a, x.shape[-1:]),
    "exp": lambda x, a, b: x.clamp(-3, 3).exp(),
    "tanh": lambda x, a, b: x.tanh(),
    "sigmoid": lambda x, a, b: x.sigmoid(),
    "silu": lambda x, a, b: functional.silu(x),
    "gelu": lambda x, a, b: functional.gelu(x),
    "log": lambda x, a, b: (x.abs() + 0.5).log(),
    "xlogy": lambda x, a, b: torch.xlogy(x, a.abs() + 0.5),
    "xlogy of a number": lambda x, a, b: torch.xlogy(0.3, x.abs() + 0.5),
    "xlog1py": lambda x, a, b: torch.special.xlog1py(a, x.abs()),
    "log_softmax along the first axis": lambda x, a, b: torch.log_softmax(x, 0),
    "logit": lambda x, a, b: torch.logit(x.clamp(0.1, 0.9)),
    "entr": lambda x, a, b: torch.special.entr(x.abs() + 0.25),
}
"""Steps with a function or a sum in them, of which eager has another approximation or order."""


def _other(dtype: torch.dtype) -> torch.dtype:
    return torch.float16 if dtype is torch.bfloat16 else torch.bfloat16


def chain(random: Random, steps: dict[str, Step], shortest: int = 2, longest: int = 10) -> tuple[Any, list[str]]:
    """A function of three tensors, and the names of its steps."""
    names = random.choices(sorted(steps), k=random.randint(shortest, longest))
    taken = [steps[name] for name in names]

    def run(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        for step in taken:
            x = step(x, a, b)
        return x

    return run, names


def operands(random: Random, shape: Sequence[int], dtype: torch.dtype) -> list[torch.Tensor]:
    """Ordinary numbers, among them whole ones and eighths, which lie where rounding decides."""
    generator = torch.Generator().manual_seed(random.getrandbits(32))
    made = []
    for _ in range(3):
        any_number = torch.randn(*shape, generator=generator) * 2
        eighths = torch.randint(-24, 24, tuple(shape), generator=generator) / 8
        made.append(torch.where(torch.rand(*shape, generator=generator) < 0.2, eighths, any_number).to(dtype))
    return made


def steps_apart(found: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """How many numbers of the half type lie between two tensors, element by element; 0 for the same bits or two NaN."""

    def in_order(x: torch.Tensor) -> torch.Tensor:
        bits = x.contiguous().view(torch.int16).int()
        return torch.where(bits < 0, -1 - (bits & 0x7FFF), bits)

    apart = (in_order(found) - in_order(expected)).abs()
    return apart.masked_fill(found.isnan() & expected.isnan(), 0)
