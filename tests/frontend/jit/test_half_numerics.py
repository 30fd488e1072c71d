"""`numerics="eager"`: half types are rounded where eager PyTorch rounds them, in both tiers and in backward passes."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest
import torch
from torch.nn import functional

import ingot
from ingot.frontend.aten.table import EAGER_ROWS, ROWS
from tests.frontend.jit.half_chains import EXACT, NEARLY, chain, operands, steps_apart

jit: Any = ingot.jit
EXAMPLES = int(os.environ.get("INGOT_TEST_EXAMPLES", "8"))
HALVES = [torch.bfloat16, torch.float16]
SHAPES = [(7,), (64,), (1,), (5, 33), (128, 64), (3, 1001), (2, 3, 17)]
NEAR_ZERO = {"layer_norm": 1e-5}
"""What PyTorch's own results are right to, absolutely, where they are nearly 0; 1e-6 for all others, such as gelu."""

halves = pytest.mark.parametrize("dtype", HALVES, ids=str)


def assert_same_bits(found: torch.Tensor, expected: torch.Tensor, about: Any) -> None:
    assert found.dtype is expected.dtype
    apart = steps_apart(found, expected)
    assert not apart.any(), f"{int((apart != 0).sum())} of {apart.numel()} elements differ: {about}"


def compiled_results(function: Any, given: list[torch.Tensor], calls: int, **options: Any) -> tuple[Any, torch.Tensor]:
    compiled = jit(function, numerics="eager", **options)
    result = None
    for _ in range(calls):
        result = compiled(*given)
    assert isinstance(result, torch.Tensor)
    return compiled, result


# --- results ----------------------------------------------------------------------------------------------------------


@halves
@pytest.mark.parametrize("name", EXACT)
def test_single_steps_give_eagers_bits(name: str, dtype: torch.dtype):
    random = Random(name)
    with torch.no_grad():
        for shape in SHAPES:
            given = operands(random, shape, dtype)
            _, found = compiled_results(EXACT[name], given, calls=2, python="skip")
            assert_same_bits(found, EXACT[name](*given), (name, shape))


@halves
@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_chains_give_eagers_bits_where_python_is_skipped(seed: int, dtype: torch.dtype):
    random = Random(seed)
    for _ in range(4):
        function, names = chain(random, EXACT)
        given = operands(random, random.choice(SHAPES), dtype)
        with torch.no_grad():
            compiled, found = compiled_results(function, given, calls=2, python="skip")
            assert_same_bits(found, function(*given), names)
        assert compiled.tier == "skipping"


@halves
@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_chains_give_eagers_bits_where_python_is_followed(seed: int, dtype: torch.dtype):
    random = Random(1000 + seed)
    function, names = chain(random, EXACT, shortest=4)
    given = operands(random, random.choice(SHAPES), dtype)
    with torch.no_grad():
        compiled, found = compiled_results(function, given, calls=8, python="run")
        assert_same_bits(found, function(*given), names)
    assert compiled.tier == "following" and "def segment" in compiled.inspect("segments")


@halves
@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_sizes_that_stay_open_change_no_bit(seed: int, dtype: torch.dtype):
    random = Random(2000 + seed)
    function, names = chain(random, EXACT)
    compiled = jit(function, numerics="eager", python="skip", dynamic=True)
    with torch.no_grad():
        for columns in (33, 64, 7, 128, 1001):
            given = operands(random, (3, columns), dtype)
            assert_same_bits(compiled(*given), function(*given), (names, columns))


@halves
@pytest.mark.parametrize("name", NEARLY)
def test_functions_and_rows_are_a_step_of_the_half_type_away_at_most(name: str, dtype: torch.dtype):
    random = Random(name)
    with torch.no_grad():
        for shape in SHAPES:
            given = operands(random, shape, dtype)
            _, found = compiled_results(NEARLY[name], given, calls=2, python="skip")
            expected = NEARLY[name](*given)
            near_zero = (found.float() - expected.float()).abs() <= NEAR_ZERO.get(name, 1e-6)
            apart = steps_apart(found, expected).masked_fill(near_zero, 0)
            assert apart.max() <= 1, (name, shape)


@halves
def test_functions_are_mostly_eagers_to_the_bit(dtype: torch.dtype):
    """One that rounds at other places than eager differs in a fifth of all elements or more."""
    for name in (
        "exp",
        "tanh",
        "sigmoid",
        "silu",
        "log",
        "xlogy",
        "xlogy of a number",
        "xlog1py",
        "logit",
        "entr",
        "log_softmax",
    ):
        given = operands(Random(name), (64, 257), dtype)
        with torch.no_grad():
            _, found = compiled_results(NEARLY[name], given, calls=2, python="skip")
            assert (steps_apart(found, NEARLY[name](*given)) != 0).float().mean() < 0.01, name


def test_other_types_are_computed_as_ever():
    given = operands(Random(3), (5, 33), torch.float32)
    function, _ = chain(Random(4), EXACT | NEARLY, shortest=8)
    fast, exact = jit(function, python="skip"), jit(function, python="skip", numerics="eager")
    with torch.no_grad():
        for _ in range(2):
            assert torch.equal(fast(*given), exact(*given))
    assert fast.inspect("graph") == exact.inspect("graph")


# --- gradients --------------------------------------------------------------------------------------------------------


def backward_chain(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    hidden = torch.where(x > a, x * b, x / (b.abs() + 0.5))
    hidden = functional.leaky_relu(torch.lerp(hidden, a, 0.3), 0.2) + functional.hardsigmoid(x * a)
    return functional.mse_loss(torch.addcmul(hidden, a, x, value=0.1).clamp(-3, 3), b, reduction="none")


@halves
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients_are_eagers_bits(shape: tuple[int, ...], dtype: torch.dtype):
    compiled = jit(backward_chain, numerics="eager")
    x, a, b = operands(Random(5), shape, dtype)
    weight = operands(Random(6), shape, dtype)[0]

    def gradients(function: Any) -> list[torch.Tensor]:
        leaves = [one.clone().requires_grad_() for one in (x, a)]
        (function(*leaves, b) * weight).sum().backward()
        return [leaf.grad for leaf in leaves if leaf.grad is not None]

    expected = gradients(backward_chain)
    for call in range(4):
        for found, wanted in zip(gradients(compiled), expected, strict=True):
            assert_same_bits(found, wanted, f"call {call}")
    assert "backward pass" in compiled.explain(), compiled.explain()


@halves
def test_gradients_of_layer_norm_are_nearly_eagers_bits(dtype: torch.dtype):
    """Eager rounds on the way while it adds up those of weights; elsewhere the order of sums is all that differs."""
    x, weight, tangent = operands(Random(10), (33, 70), dtype)

    def rows(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x * weight, (70,), weight[0], weight[1])

    def gradients(function: Any) -> list[torch.Tensor]:
        leaves = [one.clone().requires_grad_() for one in (x, weight)]
        function(*leaves).backward(tangent)
        return [leaf.grad for leaf in leaves if leaf.grad is not None]

    compiled, expected = jit(rows, numerics="eager"), gradients(rows)
    for _ in range(3):
        for found, wanted in zip(gradients(compiled), expected, strict=True):
            assert steps_apart(found, wanted).float().mean() < 0.01


@halves
def test_the_derivative_of_sigmoid_is_rounded_as_eagers(dtype: torch.dtype):
    given = operands(Random(7), (64, 33), dtype)[:2]
    function = lambda gradient, output: torch.ops.aten.sigmoid_backward(gradient, output) * 2
    _, found = compiled_results(function, given, calls=2, python="skip")
    assert_same_bits(found, function(*given), "sigmoid_backward")


# --- what the option decides ------------------------------------------------------------------------------------------


def squares(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return functional.mse_loss(x, target, reduction="none") * 2


def test_functions_with_and_without_it_share_no_kernel_that_differs():
    x, target, _ = operands(Random(8), (64, 33), torch.bfloat16)
    fast, exact = jit(squares, numerics="fast"), jit(squares, numerics="eager")
    for _ in range(3):
        fast(x, target)
        assert_same_bits(exact(x, target), squares(x, target), "after the other was compiled")
    assert fast.inspect("graph") != exact.inspect("graph")
    assert fast.inspect("kernels") != exact.inspect("kernels")


def test_rows_of_eagers_rounding_stand_in_for_others():
    assert set(EAGER_ROWS) <= set(ROWS)


def test_the_flag_of_configurations_is_the_option():
    x, target, _ = operands(Random(9), (64, 33), torch.bfloat16)
    exact = jit(squares, config={"numerics": "eager"})
    exact(x, target)
    assert_same_bits(exact(x, target), squares(x, target), "by config")


def test_what_is_left_to_pytorch_for_its_rounding_is_explained():
    exact, x = jit(lambda x: torch.rsqrt(x * 2) + 1, numerics="eager", python="skip"), torch.ones(64, 33).bfloat16()
    for _ in range(2):
        exact(x)
    assert 'aten.rsqrt.default (rounds half types in ways of its own, and numerics="eager" asks' in exact.explain()
    fast = jit(lambda x: torch.rsqrt(x * 2) + 1, python="skip")
    for _ in range(2):
        fast(x)
    assert "rsqrt.default" not in fast.explain()


def test_values_that_it_cannot_have_are_refused():
    with pytest.raises(ingot.IngotError, match="numerics must be one of 'fast', 'eager', not 'egaer'; did you mean"):
        jit(squares, numerics="egaer")
    with pytest.raises(ingot.IngotError, match="numerics must be one of fast, eager"):
        jit(squares, config={"numerics": "exact"})
    with pytest.raises(ingot.IngotError, match="leave one of them out"):
        jit(squares, numerics="eager", config={"numerics": "fast"})
    assert jit(squares, numerics="eager", config={"numerics": "eager"})


class Normalised(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.convolution(x)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_rewrites_that_round_otherwise_are_left_out_for_half_types(dtype: torch.dtype):
    model, x = Normalised().eval().to(dtype), torch.randn(2, 3, 8, 8).to(dtype)
    model.norm.running_mean = torch.randn(4).to(dtype)
    exact = jit(model, numerics="eager", freeze=True)
    with torch.no_grad():
        found = [exact(x) for _ in range(3)][-1]
        expected = model(x)
    program = exact.forward.inspect("program")
    assert ("batch_norm" in program) == (dtype is torch.bfloat16), program
    if dtype is torch.bfloat16:
        assert_same_bits(found, expected, "a frozen model")


def test_gpus_are_told_not_to_approximate():
    exact, fast = (ingot.JitCompiler({"numerics": numerics}) for numerics in ("eager", "fast"))
    builder = ingot.GraphBuilder()
    x = builder.input((8, 8), ingot.DataType.BFloat16)
    builder.output(builder.ops.exp(x) / 3.0)
    graph = builder.build()
    assert [kernel.may_approximate for kernel in exact.compile(graph).kernels()] == [False]
    assert [kernel.may_approximate for kernel in fast.compile(graph).kernels()] == [True]
