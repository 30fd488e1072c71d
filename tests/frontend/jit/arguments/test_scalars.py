"""Numbers that only feed arithmetic may change without a new recording; all others may not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import ingot
from ingot.frontend.jit.arguments.variable_numbers import arithmetic_parameters
from ingot.frontend.jit.cache import settling
from tests.frontend.jit.comparing import same

jit: Any = ingot.jit
ARGUMENTS = torch.linspace(-2, 2, 12).reshape(3, 4)


@pytest.fixture(autouse=True)
def many_recordings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recordings that differ in numbers alone are made for as many numbers as these tests try."""
    monkeypatch.setattr(settling, "MOST_OF_NUMBERS", 8)


def calls(function: Any, numbers: Sequence[Any], x: torch.Tensor = ARGUMENTS, exactly: bool = False) -> int:
    """Call a function with each number, compare with eager, and give how many recordings that took."""
    compiled = jit(function)
    for number in numbers:
        given, twin = x.clone(), x.clone()
        found, expected = compiled(given, number), function(twin, number)
        same(found, expected, [given], [twin])
        if exactly:
            assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    return compiled._compiled.recordings


# --- what stays open --------------------------------------------------------------------------------------------------


def scaled(x: torch.Tensor, alpha: float) -> torch.Tensor:
    return torch.sigmoid(x * alpha + 1) - alpha / 3.0 * x


def operands(x: torch.Tensor, alpha: float) -> torch.Tensor:
    return ((alpha + x) * (alpha - x)) + (x / alpha) + (alpha / (x * x + 1))


def in_place(x: torch.Tensor, alpha: float) -> torch.Tensor:
    y = x.clone()
    y *= alpha
    x += alpha
    return y


def of_torch(x: torch.Tensor, alpha: float) -> torch.Tensor:
    y = torch.add(x, x, alpha=alpha) + torch.clamp(x, min=alpha) + torch.lerp(x, x * 2, alpha)
    return y + F.leaky_relu(x, alpha) + torch.where(x > 0, x, alpha) + torch.full_like(x, alpha)


@pytest.mark.parametrize("function", [operands, in_place, of_torch])
def test_floats_are_recorded_twice_at_most(function: Any):
    assert calls(function, [0.5, 0.25, 3.0, -7.5, 1e-30, 0.5, 123.0]) == 2


def test_special_values_need_no_recording():
    specials = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e308, 5e-324]
    assert calls(operands, [0.5, 0.25, *specials]) == 2


def test_signs_of_zeros_are_kept():
    def multiply(x: torch.Tensor, alpha: float) -> torch.Tensor:
        return x * alpha

    compiled = jit(multiply)
    for alpha in (1.0, 2.0, 0.0, -0.0):
        assert torch.equal(torch.signbit(compiled(ARGUMENTS, alpha)), torch.signbit(ARGUMENTS * alpha))
    assert compiled._compiled.recordings == 2


def test_ints_stay_ints():
    x = torch.arange(-4, 8)
    assert calls(lambda x, k: x * k + k - 2, [3, 4, 5, -6, 2**40], x) == 5  # a lambda's text is no definition

    def integers(x: torch.Tensor, k: int) -> torch.Tensor:
        return x * k + k - 2

    assert calls(integers, [3, 4, 5, -6, 2**40], x) == 2
    assert calls(integers, [3, 4, 5, -6, 2**40]) == 2


def test_ints_and_floats_are_recorded_apart():
    def product(x: torch.Tensor, k: Any) -> torch.Tensor:
        return x * k

    assert calls(product, [2, 3, 4, 0.5, 0.25, 0.125, 5, 6], torch.arange(12)) == 4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [int, float])
def test_promotion_is_that_of_a_number(dtype: torch.dtype, kind: type):
    values = [kind(value) for value in (2, 3, 5, 7, 1000, 16777217)]
    if kind is float:
        values += [0.1, 1 / 3, 2.718281828459045, 1.00390625000001]

    def mixed(x: torch.Tensor, k: float) -> tuple[torch.Tensor, ...]:
        return x * k, x + k, k - x, x / k

    assert calls(mixed, values, ARGUMENTS.to(dtype), exactly=True) == 2


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool])
@pytest.mark.parametrize("kind", [int, float])
def test_promotion_with_integers_is_that_of_a_number(dtype: torch.dtype, kind: type):
    values = [kind(value) for value in (2, 3, 5, 7, 100)]
    x = torch.tensor([0, 1, 1, 100]).to(dtype)

    def mixed(x: torch.Tensor, k: float) -> tuple[torch.Tensor, ...]:
        return x * k, x + k, x / k

    assert calls(mixed, values, x) == 2


@pytest.mark.parametrize("name", ["add", "mul", "clamp", "addcmul"])
def test_what_does_not_fit_a_type_is_as_in_eager(name: str):
    functions: dict[str, Any] = {"add": added, "mul": multiplied, "clamp": clamped, "addcmul": addcmul}
    function, x = functions[name], torch.arange(4, dtype=torch.int8)
    compiled = jit(function)
    for k in (1, 2, 3, 127, -128, 128, 300, -1000, 2**40, 2**62, 2**63, 2**70):
        same(outcome(compiled, x, k), outcome(function, x, k))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.float16, torch.float32])
def test_numbers_that_are_no_operands_are_refused_as_in_eager(dtype: torch.dtype):
    """What does not fit as an operand overflows; as a factor it is an error."""
    x = torch.arange(4).to(dtype)
    for function in (addcmul, weighted):
        compiled = jit(function)
        for k in (1.0, 2.0, 3.0, math.inf, math.nan, 1e300, 4.0):
            same(outcome(compiled, x, k), outcome(function, x, k))


def weighted(x: torch.Tensor, k: float) -> torch.Tensor:
    return torch.add(x, x, alpha=k)


def added(x: torch.Tensor, k: int) -> torch.Tensor:
    return x + k


def multiplied(x: torch.Tensor, k: int) -> torch.Tensor:
    return x * k


def clamped(x: torch.Tensor, k: int) -> torch.Tensor:
    return torch.clamp(x, max=k)


def addcmul(x: torch.Tensor, k: float) -> torch.Tensor:
    return torch.addcmul(x, x, x, value=k)


def outcome(function: Any, *given: Any) -> Any:
    try:
        return function(*given)
    except (RuntimeError, OverflowError) as error:
        return error


def test_several_numbers_by_keyword_and_position():
    def blend(x: torch.Tensor, a: float, *, b: float = 1.0) -> torch.Tensor:
        return x * a + x * x * b

    compiled = jit(blend)
    for a, b in ((0.5, 2.0), (0.25, 2.0), (0.75, 3.0), (1.5, 4.0), (2.5, 5.0), (0.5, 0.5)):
        same(compiled(ARGUMENTS, a, b=b), blend(ARGUMENTS, a, b=b))
    assert compiled._compiled.recordings == 3


def test_two_numbers_that_were_the_same_are_told_apart_by_where_they_go():
    def blend(x: torch.Tensor, a: float, b: float) -> torch.Tensor:
        return x * a + b

    compiled = jit(blend)
    for a, b in ((1.0, 1.0), (2.0, 2.0), (3.0, 4.0), (5.0, 6.0), (7.0, 7.0)):
        same(compiled(ARGUMENTS, a, b), blend(ARGUMENTS, a, b))
    assert compiled._compiled.recordings == 2


def test_methods_of_modules_take_numbers():
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor, scale: float) -> torch.Tensor:
            """Scale,

            and scale again.
            """
            return self.linear(x * scale) * scale

    eager = Scaled().eval()
    compiled = jit(eager)
    with torch.no_grad():
        for scale in (0.5, 1.5, 2.5, 3.5):
            same(compiled(ARGUMENTS, scale), eager(ARGUMENTS, scale))
    assert compiled.forward._compiled.recordings == 2


# --- what does not ----------------------------------------------------------------------------------------------------


def compares(x: torch.Tensor, alpha: float) -> torch.Tensor:
    return x * alpha if alpha > 1 else x - alpha


def powers(x: torch.Tensor, alpha: float) -> torch.Tensor:
    return x.abs() ** alpha


def loops(x: torch.Tensor, count: int) -> torch.Tensor:
    for _ in range(count):
        x = x * 2
    return x


def rebinds(x: torch.Tensor, alpha: float) -> torch.Tensor:
    alpha = max(alpha, 1.0)
    return x * alpha


def closes_over(x: torch.Tensor, alpha: float) -> torch.Tensor:
    return (lambda y: y * alpha)(x)


def hands_on(x: torch.Tensor, alpha: float) -> torch.Tensor:
    return compares(x, alpha)


def returns(x: torch.Tensor, alpha: float) -> tuple[torch.Tensor, float]:
    return x * alpha, alpha


def sees_all(x: torch.Tensor, alpha: float) -> torch.Tensor:
    return x * (2 if locals()["alpha"] > 1 else 3) + alpha


def sizes(x: torch.Tensor, count: int) -> torch.Tensor:
    return x.reshape(-1)[:count] * 2


def negates(x: torch.Tensor, alpha: float) -> torch.Tensor:
    return x * -alpha


OTHERS = [compares, powers, loops, rebinds, closes_over, hands_on, returns, sees_all, sizes, negates]


@pytest.mark.parametrize("function", OTHERS, ids=lambda function: function.__name__)
def test_other_uses_are_part_of_the_key(function: Any):
    """Eager's results all the same, for values on both sides of every decision."""
    assert arithmetic_parameters(function) <= {"x"}
    assert calls(function, [1, 2, 3, 5, 4, 1, 2]) == 5


def test_numbers_computed_from_numbers_are_recorded_each_time():
    """Evidence alone would take the sum for the first number: it is, as long as the second is too small to count."""

    def absorbed(x: torch.Tensor, alpha: float, beta: float) -> torch.Tensor:
        return x * (alpha + beta)

    compiled = jit(absorbed)
    for alpha, beta in ((1e20, 1.0), (2e20, 2.0), (1.0, 2.0), (3.0, 4.0)):
        same(compiled(ARGUMENTS, alpha, beta), absorbed(ARGUMENTS, alpha, beta))
    assert compiled._compiled.recordings == 4


def test_a_number_that_is_equal_by_chance_is_not_the_parameter():
    settings = {"scale": 1.0}

    def shifted(x: torch.Tensor, alpha: float) -> torch.Tensor:
        return x * settings["scale"] + alpha

    compiled = jit(shifted)
    for alpha, scale in ((1.0, 1.0), (2.0, 2.0), (3.0, 2.0), (4.0, 2.0), (5.0, 7.0)):
        settings["scale"] = scale
        same(compiled(ARGUMENTS, alpha), shifted(ARGUMENTS, alpha))


def test_operators_of_other_classes_see_the_number():
    class Rounded:
        def __init__(self, tensor: torch.Tensor):
            self.tensor = tensor

        def __mul__(self, other: float) -> torch.Tensor:
            return self.tensor * math.floor(other)

    def product(x: torch.Tensor, alpha: float) -> torch.Tensor:
        return Rounded(x) * alpha

    compiled = jit(product)
    for alpha in (2.0, 3.0, 4.5, 5.25):
        same(compiled(ARGUMENTS, alpha), product(ARGUMENTS, alpha))


def test_values_of_constants_are_seen():
    def through_a_tensor(x: torch.Tensor, alpha: float) -> torch.Tensor:
        threshold = torch.full((), 0.0) + alpha
        return x * 2 if threshold.item() > 1 else x - 3

    compiled = jit(through_a_tensor)
    for alpha in (0.5, 0.75, 1.5, 2.5):
        same(compiled(ARGUMENTS, alpha), through_a_tensor(ARGUMENTS, alpha))


def test_bools_are_never_numbers():
    def product(x: torch.Tensor, flag: Any) -> torch.Tensor:
        return x * flag

    compiled = jit(product)
    for flag in (True, False, True, 1, 0, 2):
        same(compiled(torch.arange(4), flag), product(torch.arange(4), flag))
        same(compiled(torch.arange(4) > 1, flag), product(torch.arange(4) > 1, flag))


def test_functions_without_text_have_no_numbers():
    namespace: dict[str, Any] = {}
    exec("def product(x, alpha):\n    return x * alpha", namespace)
    assert arithmetic_parameters(namespace["product"]) == frozenset()
    assert calls(namespace["product"], [1.0, 2.0, 3.0]) == 3


def test_a_text_of_another_version_is_not_believed(tmp_path, monkeypatch):
    path = tmp_path / "changing.py"
    path.write_text("def product(x, alpha):\n    return x * 2 if alpha > 1 else x\n")
    namespace: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    path.write_text("def product(x, alpha):\n    return x * alpha\n")
    assert arithmetic_parameters(namespace["product"]) == frozenset()


def test_words_for_numbers_that_change():
    compiled = jit(compares)
    for alpha in (0.5, 0.7, 2):
        compiled(ARGUMENTS, alpha)
    assert compiled._compiled.recompiles == ["alpha: 0.5 became 0.7", "alpha: was of type float, is of type int"]


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: torch.mul(a, b),
        lambda a, b: (torch.add(a, b), torch.mul(a, b)),
        lambda a, b: torch.add(a, b).expand(3) * 2,
        lambda a, b: torch.where(torch.add(a, b) > 3, 1, 2),
    ],
)
def test_what_numbers_alone_give_is_a_tensor(function: Any) -> None:
    compiled = jit(function)
    for given in [(2, 3)] * 3 + [(4, 5), (6, 7), (8, 9), (True, 2), (2.5, 1), (3.5, 1), (4.5, 2)]:
        same(compiled(*given), function(*given))
