"""Functions that decide by the values of tensors take the path that eager PyTorch takes, without Python."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ingot.frontend.jit.api.forms import jit
from ingot.frontend.jit.cache.paths import MOST_PATHS, Paths
from tests.frontend.jit.comparing import outcome, same

Function = Callable[..., Any]


def compare(function: Function, calls: list[tuple[Any, ...]], **options: Any) -> Any:
    """Calls a function, compiled and not; gives the compiled function."""
    compiled: Any = jit(function, **options)
    for given in calls:
        twins = tuple(one.clone() if isinstance(one, Tensor) else one for one in given)
        given = tuple(one.clone() if isinstance(one, Tensor) else one for one in given)
        same(outcome(compiled, twins), outcome(function, given), twins, given)
    return compiled


def flipping(count: int = 50, size: int = 24) -> list[tuple[Tensor]]:
    """Tensors whose sum is positive or negative, in no order."""
    generator = torch.Generator().manual_seed(3)
    made = [torch.randn(4, size, generator=generator) for _ in range(count)]
    return [(one + (1.0 if torch.rand((), generator=generator) > 0.5 else -1.0),) for one in made]


def two_ways(x: Tensor) -> Tensor:
    hidden = torch.tanh(x) * 2
    if hidden.sum() > 0:
        return hidden * x
    return hidden - x


def test_values_that_flip_between_two_branches():
    compiled = compare(two_ways, flipping())
    assert (compiled.tier, compiled.recordings) == ("skipping", 2)
    assert "2 paths by the values of tensors, in 3 pieces" in compiled.explain()


def test_following_is_not_needed_for_paths_that_are_known():
    assert "follow" not in compare(two_ways, flipping()).explain()


def early(x: Tensor) -> tuple[Tensor, int]:
    for step in range(6):
        x = x * 0.5
        if x.abs().max() < 0.2:
            return x, step
    return x + 1, -1


def test_early_return():
    compiled = compare(early, [(x * scale,) for (x,) in flipping(12) for scale in (0.01, 0.3, 1.0, 30.0)])
    assert compiled.tier == "skipping"
    assert 4 <= compiled.recordings <= 7


def converging(x: Tensor, tolerance: float) -> tuple[Tensor, int]:
    guess, steps = x * 0.5 + 0.5, 0
    while ((guess * guess - x) / x).abs().max() > tolerance:
        guess = 0.5 * (guess + x / guess)
        steps += 1
    return guess, steps


def test_while_loops_with_changing_counts():
    calls = [(x.abs() * scale + 0.5, 1e-3) for (x,) in flipping(10) for scale in (0.1, 3.0, 100.0)]
    assert compare(converging, calls).tier == "skipping"


def with_nan(x: Tensor) -> Tensor:
    if torch.isnan(x).any():
        return torch.nan_to_num(x) - 1
    if x.sum():  # NaN would count as true
        return x * 2
    return x


def test_conditions_on_nan_and_zero():
    nan = torch.ones(3, 5)
    nan[1, 2] = float("nan")
    calls = [(one,) for _ in range(15) for one in (torch.ones(3, 5), nan, torch.zeros(3, 5))]
    compiled = compare(with_nan, calls)
    assert (compiled.tier, compiled.recordings) == ("skipping", 3)


def test_a_number_that_is_nan_counts_as_true():
    def function(x: Tensor) -> Tensor:
        return x + 1 if x.sum() else x - 1

    calls = [(torch.full((4,), value),) for _ in range(10) for value in (float("nan"), 0.0, 2.0)]
    assert compare(function, calls).recordings == 2


def test_conditions_in_all_places():
    def function(x: Tensor) -> tuple[Tensor, bool, Any]:
        low = x.min() > -2
        flag = bool(x.sum() > 0)
        y = x * 2 if low and not (x > 3).any() else x * 3
        if any([(y > 5).any(), (y < -5).any()]):
            y = y.clamp(-5, 5)
        return y, flag, flag and x.max() > 2

    assert compare(function, flipping(60)).tier == "skipping"


def test_a_flag_among_the_arguments():
    def function(x: Tensor, flag: Tensor) -> Tensor:
        return x.exp() if flag else x.sin()

    calls = [(torch.randn(5), torch.tensor(number % 3 == 0)) for number in range(30)]
    assert compare(function, calls).tier == "skipping"


def test_the_same_tensor_passed_twice():
    def function(x: Tensor, y: Tensor) -> Tensor:
        z = x * y
        return z + x if z.sum() > 9 else z - y

    compiled: Any = jit(function)
    for number in range(30):
        x = torch.full((3, 3), float(number % 3))
        same(compiled(x, x), function(x, x))
    assert compiled.tier == "skipping"


class Gated(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 8), torch.nn.Linear(8, 6)
        self.is_on: Tensor
        self.register_buffer("is_on", torch.tensor(True))

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.first(x))
        if self.is_on and hidden.mean() > 0.3:
            return self.second(hidden)
        return x - hidden.sum()


@pytest.mark.parametrize("freeze", [False, True])
def test_a_module_with_a_branch(freeze: bool):
    torch.manual_seed(0)
    module = Gated().eval()
    compiled: Any = jit(module, freeze=freeze)
    with torch.no_grad():
        for number in range(40):
            x = torch.randn(4, 6) * (number % 3)
            torch.testing.assert_close(compiled(x), module(x))
        assert compiled.tier == "skipping"
        if not freeze:
            module.is_on.fill_(False)
            x = torch.randn(4, 6) * 3
            torch.testing.assert_close(compiled(x), module(x))
            module.second.bias.add_(1.0)
            module.is_on.fill_(True)
            torch.testing.assert_close(compiled(x), module(x))


def test_results_of_different_structure():
    def function(x: Tensor) -> Any:
        y = x.exp()
        if x.sum() > 0:
            return {"y": y, "first": y[0], "n": 1}
        return [x, y, "other", None]

    assert compare(function, flipping(30)).tier == "skipping"


def test_views_and_writes_across_branches():
    def function(x: Tensor) -> tuple[Tensor, ...]:
        y = x * 2
        row = y[1]
        if y.sum() > 0:
            y.add_(1)  # seen through the view
        else:
            row.mul_(3)
        if row.sum() > 5:
            row.zero_()
        return y, row, y.t()

    assert compare(function, flipping(40)).tier == "skipping"


def test_paths_are_bounded():
    def function(x: Tensor) -> tuple[Tensor, int]:
        count = 0
        while x.sum() > count:
            x, count = x * 1.0, count + 1
        return x * 2, count

    calls = [(torch.full((2,), 0.5 * (number * 7 % 40)),) for number in range(120)]
    compiled = compare(function, calls)
    assert compiled._compiled.recordings <= MOST_PATHS
    assert compiled.tier != "skipping"
    assert "more paths than are kept" in compiled.explain()


def test_a_path_that_is_seldom_and_cannot_be_skipped():
    printed: list[int] = []

    def function(x: Tensor) -> Tensor:
        y = x.tanh()
        if (y > 0.99).any():
            printed.append(1)
        return y * 2

    compiled: Any = jit(function)
    for number in range(100):
        x = torch.full((3,), 9.0 if number % 20 == 7 else 0.5)
        same(compiled(x), torch.tanh(x) * 2)
    assert len(printed) == 5
    assert compiled.tier == "skipping"


def test_sizes_that_change_all_the_time_are_followed():
    compiled: Any = jit(two_ways)
    for size in range(2, 60):
        x = torch.randn(4, size)
        same(compiled(x), two_ways(x))
    kinds = list(compiled._compiled.specialisations.values())
    assert sum(isinstance(one, Paths) for one in kinds) <= 4
    assert compiled.tier != "skipping"


def test_threads_take_their_own_paths():
    errors: list[int] = []
    compiled: Any = jit(two_ways)

    def call(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(60):
            x = torch.randn(4, 24, generator=generator)
            if not torch.allclose(compiled(x), two_ways(x), atol=1e-6):
                errors.append(seed)

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert compiled.tier == "skipping"


def test_a_promise_to_skip_Python_covers_branches():
    compiled = compare(two_ways, flipping(20), python="skip")
    assert (compiled.tier, compiled.recordings) == ("skipping", 2)


def test_the_whole_function_can_be_asked_for():
    assert compare(two_ways, flipping(20), fullgraph=True).tier == "skipping"


def test_what_can_be_inspected():
    compiled = compare(two_ways, flipping(20))
    assert "if bool(r0) is True:" in compiled.inspect("program")
    assert "bool(r0) is" in compiled.inspect("trace")


def test_conditions_on_several_lines():
    def function(x: Tensor) -> Tensor:
        if (
            x.sum() > 0
            and x
            .abs()
            .max()
            .item() > 1
        ):  # fmt: skip
            return x * 2
        return (lambda y: y - 1 if y.min() < -2 else y + 1)(x)

    assert compare(function, flipping(40)).tier == "skipping"


def test_conditions_of_which_each_part_is_asked_once():
    def function(x: Tensor) -> tuple[Tensor, int]:
        count = 0
        for row in x:
            if row.sum() > 0 and row.max() < 3 and not (row.min() < -3 or row[0] > 1):
                count += 1
            if -1 < row.mean() < 1 or row[1] > 0:
                count += 10
            while not (row.sum() < 4 and row.sum() > -9):
                row, count = row * 0.5, count + 100
        return x * 2, count

    assert compare(function, flipping(12)).tier in ("skipping", "following")
    assert compare(function, [(x[:1],) for (x,) in flipping(40)]).tier == "skipping"


def test_values_that_may_be_asked_again_are_left_to_Python():
    def function(x: Tensor) -> Tensor:
        found = x.sum() > 0 and x.min() > -1
        return x * 2 if found else x - 1

    compiled = compare(function, flipping(40))
    assert compiled.tier != "skipping"
