"""Functions that read sizes: few recordings where the proof knows what they do with them, eager's results always."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import ingot
from tests.frontend.jit.cache.test_dynamic_sizes import calls, generals
from tests.frontend.jit.comparing import same

jit: Any = ingot.jit
LENGTHS = (5, 9, 12, 20, 31, 33, 40, 7, 28, 50, 8, 6)
WIDTH = 6


def lengths(function: Callable[..., Any], given: Sequence[int] = LENGTHS, **options: Any) -> Any:
    return calls(function, [(2, length, WIDTH) for length in given], repeat=2, **options)


# --- sizes that stay open ---------------------------------------------------------------------------------------------


def unpacked(x: torch.Tensor) -> torch.Tensor:
    batch, length, width = x.shape
    return torch.tanh(x.view(batch * length, width)).view(batch, length, width) * 2


def of_intermediates(x: torch.Tensor) -> torch.Tensor:
    hidden = torch.cat([torch.tanh(x), x[:, 1:]], 1)
    shape = hidden.shape[:-1]
    return hidden.view(*shape, 2, -1).transpose(1, 2).reshape(*shape[:1], -1) + 1


def by_size_and_length(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x).reshape(x.numel()).view(len(x), x.size(1) * x.size(-1)) + x.size(-1)


def inner(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x[:, 1 : x.size(1) - 1]) * 2


def from_the_end(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x)[:, -(x.shape[1] - 3) :] * 2


def last_row(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x)[:, x.shape[1] - 1] * 2


def divided(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x).sum(1) / x.shape[1]


def counted(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) + torch.arange(x.shape[1]).view(1, -1, 1)


def filled(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) * x.new_ones(x.shape[1], 1) + torch.zeros(x.shape[0], x.shape[1], 1)


def checked(x: torch.Tensor) -> torch.Tensor:
    y = torch.tanh(x)
    if x.shape != y.shape or x.shape[:-1] + (WIDTH,) != y.shape or x.shape[1] < 1:
        raise ValueError("sizes differ")
    return y * 2 if x.shape[1] else y


def scaled_by_a_fixed_size(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x.view(x.shape[0], -1)) * x.size(-1) ** -0.5 / math.sqrt(x.shape[-1])


def negative_size(x: torch.Tensor) -> torch.Tensor:
    batch, length = x.shape[:2]
    return torch.tanh(x).expand(batch, length, -1) + torch.tanh(x).reshape(batch, length, WIDTH)


OPEN = [
    unpacked,
    of_intermediates,
    by_size_and_length,
    inner,
    from_the_end,
    last_row,
    divided,
    counted,
    filled,
    checked,
]
OPEN += [scaled_by_a_fixed_size, negative_size]


@pytest.mark.parametrize("function", OPEN, ids=lambda one: one.__name__)
def test_three_lengths_are_recorded(function: Callable[..., Any]):
    assert lengths(function).recordings == 3


@pytest.mark.parametrize("function", [one for one in OPEN if one is not of_intermediates], ids=lambda one: one.__name__)
def test_two_are_enough_where_sizes_are_said_to_vary(function: Callable[..., Any]):
    assert lengths(function, dynamic=True).recordings == 2


def test_conditions_on_sizes_are_checked():
    def branches(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) * 2 if x.shape[1] > 30 else torch.cos(x) * 3

    def cut(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x[:, : min(x.size(1), 30)]) * 2

    def reaching(x: torch.Tensor) -> torch.Tensor:
        length = x.size(1)
        return torch.tanh(x[:, :30]) * (x.shape == (2, length, WIDTH))

    for function in (branches, cut, reaching):
        assert lengths(function).recordings == 6  # three on either side of 30


def test_remainders_are_conditions():
    def by_parity(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) if x.shape[1] % 2 else torch.cos(x)

    assert lengths(by_parity, (4, 5, 6, 7, 8, 9, 10, 11, 12, 13)).recordings == 6


def test_sizes_among_a_few_numbers():
    def chosen(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) if x.shape[1] in (7, 28) else torch.cos(x)

    assert generals(lengths(chosen))


def test_slices_of_tensors_around_the_function_end_with_them():
    table = torch.randn(30, WIDTH)

    def positions(x: torch.Tensor) -> torch.Tensor:
        rows = table[: x.shape[1]]
        return torch.tanh(x[:, : rows.shape[0]]) + rows

    assert lengths(positions).recordings == 6


def test_two_sizes_that_vary_are_told_apart():
    def joined(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.tanh(x), y], 0)[x.shape[0] - 1 : x.shape[0] + y.shape[0] - 1] * 2

    def offset(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x)[-(y.shape[0] - 3) :] * 2

    for function in (joined, offset):
        shapes = [[(n, 3), (m, 3)] for n, m in ((10, 5), (20, 10), (30, 15), (40, 10), (11, 8), (17, 6), (25, 12))]
        assert generals(calls(function, shapes, repeat=2))


def test_unused_views_raise_as_in_eager():
    def unused(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.view(y.shape[0], -1, 4)
        return torch.tanh(x) * 2

    def as_rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.linear(x.view(y.shape[0], 8), torch.ones(8, 8)).view(2, -1, 8)

    for function in (unused, as_rows):
        compiled = jit(function)
        for n, m in ((4, 8), (8, 16), (12, 24), (16, 32)):
            x, y = torch.randn(2, n, 8), torch.randn(m)
            same(compiled(x, y), function(x, y))
        for _ in range(2):
            with pytest.raises(RuntimeError):
                compiled(torch.randn(2, 10, 8), torch.randn(21))


# --- sizes that are looked at in another way --------------------------------------------------------------------------


CACHE = {length: float(length % 7) for length in range(64)}


class Numbered:
    offsets = tuple(range(64))


PINNED: dict[str, Callable[[torch.Tensor], Any]] = {
    "half": lambda x: torch.tanh(x[:, : x.shape[1] // 2 * 2]),
    "padded": lambda x: F.pad(torch.tanh(x), (0, 0, 0, -x.shape[1] % 8)),
    "padded by rounding up": lambda x: torch.cat(
        [torch.tanh(x), x.new_zeros(2, (x.shape[1] + 7) // 8 * 8 - x.shape[1], 6)], 1
    ),
    "power": lambda x: torch.tanh(x) * 2 ** (x.shape[1] % 5),
    "scale": lambda x: torch.tanh(x) * x.size(1) ** -0.5,
    "root": lambda x: torch.tanh(x) / math.sqrt(x.shape[1]),
    "float": lambda x: torch.tanh(x) * float(x.shape[1]),
    "quotient": lambda x: torch.tanh(x) * (1 / x.shape[1]),
    "bits": lambda x: torch.tanh(x) * x.shape[1].bit_length(),
    "table": lambda x: torch.tanh(x) * CACHE[x.shape[1]],
    "attribute": lambda x: torch.tanh(x) * Numbered.offsets[x.shape[1]],
    "text": lambda x: torch.tanh(x) * len(str(x.shape[1] * 3)),
    "formatted": lambda x: torch.tanh(x) * len(f"{x.shape[1] * 3:>{x.shape[1]}}"),
    "list": lambda x: torch.tanh(x) * len([0] * x.shape[1]),
    "loop": lambda x: sum((torch.tanh(x) * step for step in range(x.shape[1])), x),
    "while": lambda x: torch.tanh(x) * _halvings(x.shape[1]),
    "returned": lambda x: (torch.tanh(x), x.shape[1]),
    "returned shape": lambda x: (torch.tanh(x), x.shape),
    "returned in a dictionary": lambda x: {"value": torch.tanh(x), "sizes": [x.shape[1] - 1]},
    "numel of a shape": lambda x: torch.tanh(x).sum() * float(x.shape.numel()),
    "stride": lambda x: torch.tanh(x) * x.stride(0),
    "rows": lambda x: torch.stack([row * index for index, row in enumerate(torch.tanh(x[0]))]),
    "square root of a product": lambda x: torch.tanh(x) * math.prod(x.shape),
    "key of a sort": lambda x: torch.tanh(x) * sorted([x.shape[1], 10, 30])[1],
    "bool": lambda x: torch.tanh(x) * int(x.shape[1] > 20) + bool(x.shape[1] - 7),
    "roll": lambda x: torch.tanh(x).roll(x.shape[1] // 3 + 1, 1),
    "diagonal": lambda x: torch.tanh(x).triu(x.shape[1] - 9),
    "shift": lambda x: torch.tanh(x) * (x.shape[1] << 1) + (x.shape[1] & 3),
    "divmod": lambda x: torch.tanh(x) * divmod(x.shape[1], 4)[1],
    "round": lambda x: torch.tanh(x) * round(x.shape[1] / 4),
    "max of values": lambda x: torch.tanh(x[:, : max(3, x.shape[1] - 20)]),
    "clamped twice": lambda x: torch.tanh(x[:, -30 : x.shape[1] + 5]),
    "nothing left": lambda x: torch.tanh(x[:, x.shape[1] - 8 : 4]),
    "generator": lambda x: torch.tanh(x) * max(size + 1 for size in x.shape),
    "polynomial": lambda x: torch.tanh(x) * (x.shape[1] * x.shape[1] - 5 * x.shape[1] + 6),
    "interpolated": lambda x: F.interpolate(torch.tanh(x), size=x.shape[2] + x.shape[1]),
}


def _halvings(number: int) -> int:
    count = 0
    while number > 1:
        number, count = number // 2, count + 1
    return count


@pytest.mark.parametrize(
    "given", [(4, 8, 12, 5, 9, 16, 33, 7), (9, 17, 25, 26, 8, 20), (3, 4, 5, 6, 7, 30, 45)], ids=str
)
@pytest.mark.parametrize("name", PINNED)
def test_what_else_is_done_with_sizes_is_as_in_eager(name: str, given: Sequence[int]):
    for dynamic in (None, True):
        lengths(PINNED[name], given, dynamic=dynamic)


def test_a_promise_does_not_cover_sizes():
    def pinned(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * float(x.shape[1])

    def unproven(x: torch.Tensor) -> torch.Tensor:
        decimal.getcontext()
        return unpacked(x)

    for function in (pinned, unproven):
        compiled = lengths(function, (4, 5, 6, 7, 8), dynamic=True, python="skip")
        assert compiled.recordings == 5 and not generals(compiled)
    assert lengths(unpacked, (4, 5, 6, 7, 8), dynamic=True, python="skip").recordings < 5


def test_what_a_size_was_compared_with_may_change():
    limit = [20]

    def limited(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) if x.shape[1] > limit[0] else torch.cos(x)

    compiled = jit(limited)
    for bound in (20, 6, 40):
        limit[0] = bound
        for length in (5, 9, 12, 25, 30, 35, 8, 50):
            x = torch.randn(2, length, WIDTH)
            same(compiled(x), limited(x))
