"""Operations on lists of tensors are fused as those on tensors are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.frontend.jit.comparing import same
from tests.frontend.jit.records import jit

pytestmark = pytest.mark.usefixtures("no_eager_comparison")
Lists = list[torch.Tensor]


def adamw(parameters: Lists, gradients: Lists, averages: Lists, squares: Lists) -> None:
    torch._foreach_mul_(parameters, 1 - 1e-5)
    torch._foreach_mul_(averages, 0.9)
    torch._foreach_add_(averages, gradients, alpha=0.1)
    torch._foreach_mul_(squares, 0.999)
    torch._foreach_addcmul_(squares, gradients, gradients, 0.001)
    divisors = torch._foreach_sqrt(squares)
    torch._foreach_add_(divisors, 1e-8)
    torch._foreach_addcdiv_(parameters, averages, divisors, -1e-3)


FUNCTIONS: dict[str, Callable[[Lists, Lists, Lists, Lists], object]] = {
    "adamw": adamw,
    "functional": lambda a, b, c, d: torch._foreach_add(torch._foreach_mul(a, b), torch._foreach_neg(c)),
    "lists of numbers": lambda a, b, c, d: torch._foreach_mul(a, [0.5 * i for i in range(len(a))]),
    "of every tensor": lambda a, b, c, d: torch._foreach_addcdiv(a, b, d, [0.5 * i for i in range(len(a))]),
    "reversed": lambda a, b, c, d: torch._foreach_sub(torch._foreach_div(a, 3.0), b, alpha=2),
    "unknown": lambda a, b, c, d: torch._foreach_norm(torch._foreach_exp(a)),
    "integers": lambda a, b, c, d: torch._foreach_add([x.long() for x in a], 1),
    "mixed": lambda a, b, c, d: torch._foreach_mul([x.long() for x in a], 0.5),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_lists_give_what_eager_gives(name: str) -> None:
    function = FUNCTIONS[name]
    compiled = jit(function)
    for _ in range(6):
        given = [[torch.rand(4 + number, 5) for number in range(6)] for _ in range(4)]
        copies = [[one.clone() for one in tensors] for tensors in given]
        same(compiled(*given), function(*copies))
        same(given, copies)


def test_an_optimizer_of_lists_is_one_region_without_calls() -> None:
    compiled = jit(adamw)
    for _ in range(3):
        compiled(*[[torch.rand(4, 5) for _ in range(6)] for _ in range(4)])
    (kind,) = compiled._compiled.specialisations.values()
    assert kind.program.is_single_region
