"""Compare a function's results and gradients with eager's, call after call, as recorded, compiled and run again."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch

import ingot
from ingot.frontend.jit.gradients.autograd_functions import Differentiated
from ingot.frontend.jit.gradients.gradient_calls import GradientCalls

CALLS = 5
"""Enough for a recording, one with its backward pass, and compiled calls."""


def calls_of(compiled: Any) -> list[GradientCalls]:
    """What takes the calls of a compiled function that need gradients."""
    owner: Any = compiled.forward if isinstance(compiled, torch.nn.Module) else compiled
    return [kind.gradients for kind in owner._compiled.specialisations.values() if kind.gradients is not None]


def is_compiled(compiled: Any) -> bool:
    """Whether the latest kind of calls runs as two programs."""
    found = calls_of(compiled)
    return bool(found) and found[-1].programs is not None


def same(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, equal_nan=True)


def gradients_match(
    function: Callable[..., Any],
    make: Callable[[], Sequence[Any]],
    loss: Callable[[Any], torch.Tensor] = lambda result: result.square().sum(),
    calls: int = CALLS,
    **options: Any,
) -> Any:
    """Call a function compiled and as it is, and compare results and gradients of arguments; what was compiled."""
    compiled = ingot.jit(function, **options)
    for number in range(calls):
        torch.manual_seed(number)
        given = make()
        copies = [_copy(one) for one in given]
        torch.manual_seed(number)
        found = compiled(*given)
        loss(found).backward()
        torch.manual_seed(number)
        expected = function(*copies)
        loss(expected).backward()
        same(found, expected)
        for one, other in zip(given, copies, strict=True):
            if isinstance(one, torch.Tensor):
                assert (one.grad is None) == (other.grad is None)
                same(one.grad, other.grad)
    return compiled


def modules_match(
    compiled: torch.nn.Module,
    eager: torch.nn.Module,
    make: Callable[[], Sequence[Any]],
    loss: Callable[[Any], torch.Tensor] = lambda result: result.square().sum(),
    calls: int = CALLS,
) -> None:
    """Train two equal modules, and compare losses, gradients, parameters and buffers."""
    for number in range(calls):
        torch.manual_seed(number)
        given = make()
        results = []
        for module in (compiled, eager):
            torch.manual_seed(100 + number)
            result = loss(module(*given))
            result.backward()
            results.append(result)
        same(results[0], results[1])
        for one, other in zip(compiled.parameters(), eager.parameters(), strict=True):
            assert (one.grad is None) == (other.grad is None)
            same(one.grad, other.grad)
            one.grad = other.grad = None
        for one, other in zip(compiled.buffers(), eager.buffers(), strict=True):
            same(one, other)


def _copy(value: Any) -> Any:
    return value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value


def has_our_history(tensor: torch.Tensor) -> bool:
    return isinstance(tensor.grad_fn, Differentiated._backward_cls)


def leaf(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def gated(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x * y + 1) * torch.sigmoid(x) + y.exp().mean(-1, keepdim=True)


def pair(make: Callable[[], Any]) -> tuple[Any, Any, Any]:
    """A compiled module, the module that it shares its state with, and an equal one."""
    torch.manual_seed(0)
    eager = make()
    module = copy.deepcopy(eager)
    return ingot.jit(module), module, eager
