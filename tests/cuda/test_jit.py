"""`ingot.jit` on CUDA tensors: the seven forms, writes and views, several devices, random numbers, autocast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import ingot
from tests.frontend.jit.comparing import check, complaints, is_compiled, same

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("no_eager_comparison")]

GPU = torch.device("cuda", 0)
Pair = tuple[Callable[..., Any], Callable[..., Any]]
"""A compiled function of a tensor and a plain one."""
jit: Any = ingot.jit  # what it gives has more than what it was given


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))).to(GPU, dtype)


def gate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A gate."""
    return torch.sigmoid(x) * torch.tanh(y) + 1


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 32)
        self.norm = nn.LayerNorm(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.gelu(self.norm(self.linear(x))) + x

    def foo(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x)) * 2


class WithMethod(Net):
    @jit
    def foo(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x)) * 2


@jit
class Decorated(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.gelu(self.norm(self.linear(x))) + x


class Wrapped(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.gelu(self.norm(self.linear(x))) + x


def twins(kind: type[Net]) -> tuple[Net, Net]:
    """An object of a class, and a plain one with the same weights."""
    made, plain = kind().to(GPU).eval(), Net().to(GPU).eval()
    plain.load_state_dict(made.state_dict())
    return made, plain


def twice_gated(x: torch.Tensor) -> torch.Tensor:
    return gate(x, x)


def decorated_function() -> Pair:
    @jit
    def decorated(x: torch.Tensor) -> torch.Tensor:
        return gate(x, x)

    return decorated, twice_gated


def method() -> Pair:
    made, plain = twins(WithMethod)
    return made.foo, plain.foo


def bound_method() -> Pair:
    made, plain = twins(Net)
    setattr(made, "foo", jit(made.foo))  # noqa: B010
    return made.foo, plain.foo


def module() -> Pair:
    made, plain = twins(Net)
    return jit(made), plain


FORMS: dict[str, Callable[[], Pair]] = {
    "decorated function": decorated_function,
    "method": method,
    "decorated class": lambda: twins(Decorated),
    "function": lambda: (jit(twice_gated), twice_gated),
    "bound method": bound_method,
    "class": lambda: twins(jit(Wrapped)),
    "module": module,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_what_eager_gives(form: str):
    compiled, plain = FORMS[form]()
    with torch.no_grad():
        for shape in ((8, 32), (8, 32), (8, 32), (5, 32), (5, 32)):
            x = draw(*shape)
            found = compiled(x)
            assert found.device == GPU
            same(found, plain(x))


def test_functions_of_cuda_tensors_are_compiled_to_kernels():
    compiled = check(gate, lambda: [draw(33, 65), draw(33, 65)])
    assert is_compiled(compiled)
    (kind,) = compiled._compiled.specialisations.values()
    modules = kind.program.modules
    assert [len(module.kernels()) for module in modules] == [1]
    assert not any(module._plan.refuses(kernel, "cuda") for module in modules for kernel in module.kernels())
    assert complaints(lambda: compiled(draw(33, 65), draw(33, 65))) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_norms_losses_and_softmax(dtype: torch.dtype):
    def function(x, weight, target):
        normal = functional.layer_norm(x, (65,), weight)
        return functional.cross_entropy(normal.float(), target), torch.softmax(x, -1), functional.rms_norm(x, (65,))

    def make():
        return [draw(33, 65, dtype=dtype), draw(65, dtype=dtype), torch.arange(33, device=GPU)]

    assert is_compiled(check(function, make))


# --- writes and views -------------------------------------------------------------------------------------------------


def update_(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(2).add_(y)
    x[1:] += 1
    return x


def views(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x, x[1:], x.T, (x + y).view(-1), x.T + y.T


def out_(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    torch.add(x, 1, out=y)
    return y * 2


@pytest.mark.parametrize("function", [update_, views, out_])
def test_writes_and_views_are_eagers(function: Callable[..., Any]):
    makes: list[Callable[[], list[torch.Tensor]]] = [
        lambda: [draw(4, 4), draw(4, 4) + 1],
        lambda: [draw(4, 8)[:, ::2], draw(4, 4).T],
        lambda: [draw(6, 4)[:4], draw(6, 4)[2:]],
    ]
    for make in makes:
        check(function, make)


def test_arguments_that_overlap_are_written_as_eager_writes_them():
    def make():
        whole = draw(6, 4)
        return [whole[:4], whole[2:]]

    check(update_, make)


# --- several devices --------------------------------------------------------------------------------------------------


def test_functions_of_both_devices():
    def function(x, y):
        there = torch.relu(x * 2 + 1)
        here = torch.tanh(y) + 1
        return there.cpu() + here, there * here.to(there.device)

    check(function, lambda: [draw(7, 9), torch.randn(7, 9, generator=torch.Generator().manual_seed(0))])


def test_a_number_of_the_cpu_beside_tensors_of_the_gpu():
    def function(x, number):
        return torch.relu(x * number) + number * 2

    check(function, lambda: [draw(7, 9), torch.tensor(1.5)])


def test_the_same_function_on_either_device():
    compiled = jit(gate)
    for _ in range(4):
        for device in ("cpu", GPU):
            x, y = (draw(5, 33).to(device) for _ in range(2))
            same(compiled(x, y), gate(x, y))


def test_tensors_made_on_the_device():
    def function(x):
        positions = torch.arange(x.shape[1], device=x.device)
        mask = positions[:, None] >= positions[None, :]
        return torch.softmax(torch.where(mask, x.T @ x, float("-inf")), -1)

    assert is_compiled(check(function, lambda: [draw(9, 33)]))


# --- random numbers and autocast --------------------------------------------------------------------------------------


def test_dropout_follows_the_seed():
    def function(x):
        return functional.dropout(torch.relu(x) * 2, 0.4, training=True) + torch.rand_like(x)

    assert is_compiled(check(function, lambda: [draw(64, 64)]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_is_part_of_what_was_recorded(dtype: torch.dtype):
    model = Net().to(GPU).eval()
    compiled = jit(model)
    x = draw(8, 32)
    with torch.no_grad():
        for _ in range(3):
            with torch.autocast("cuda", dtype=dtype):
                found, expected = compiled(x), model(x)
            assert found.dtype is expected.dtype
            torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
            same(compiled(x), model(x))


def test_calls_that_need_gradients_have_eagers():
    x = draw(5, 7).requires_grad_()
    compiled = jit(gate)
    for _ in range(3):
        (gradient,) = torch.autograd.grad(compiled(x, x).sum(), x)
        (expected,) = torch.autograd.grad(gate(x, x).sum(), x)
        torch.testing.assert_close(gradient, expected)
