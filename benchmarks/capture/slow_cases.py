"""Calls for which little is to be gained, or which fit no recording: what ingot costs there is what counts.

In: nothing. Out: programs, each with state of its own, so that eager and ingot start alike. A program's calls are
numbered from 0, and each may differ from the one before. What always holds: two programs made alike do the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Function = Callable[..., Any]


@dataclass(frozen=True)
class Program:
    function: Function
    """What is compiled, or not."""
    call: Callable[[Function, int], Any]
    """Makes one call of the function, or of what it was compiled to, given the number of the call."""
    state: Callable[[], Any] = lambda: None
    """What calls change, to be compared."""


@dataclass(frozen=True)
class Slow:
    name: str
    make: Callable[[], Program]
    cycle: int = 8
    """Calls after which the kinds of calls repeat: that many are warmed up several times, and measured together."""
    measured_from: int = 0
    """The first call of the cycle that is measured."""
    wanted_over_eager: float | None = None
    """Where there is much to be gained after all."""
    needs_gradients: bool = False


def _numbers(*shape: int) -> Tensor:
    """The same numbers at every call, around 1."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(20)) + 0.5


# --- kinds of calls ---------------------------------------------------------------------------------------------------

KINDS = 80


def _many_kinds() -> Program:
    x = _numbers(64)

    def scaled(x: Tensor, label: str) -> Tensor:
        return x * float(len(label)) + 1.0

    labels = [f"layer {number}" for number in range(KINDS)]
    return Program(scaled, lambda function, number: function(x, labels[number % KINDS]))


class _Settings:
    scale = 1.0


def _changing_settings() -> Program:
    x, settings = _numbers(64), _Settings()

    def scaled(x: Tensor) -> Tensor:
        return torch.tanh(x * settings.scale) + x

    def call(function: Function, number: int) -> Any:
        settings.scale = 1.0 + 0.001 * (number // 2)
        return function(x)

    return Program(scaled, call)


LENGTHS = 20


def _many_lengths() -> Program:
    tensors = [_numbers(4, 10 + 3 * number) for number in range(LENGTHS)]

    def normalised(x: Tensor) -> Tensor:
        rows, length = x.shape
        return torch.softmax(x.reshape(rows * length).view(rows, length) / math.sqrt(length), -1)

    return Program(normalised, lambda function, number: function(tensors[number % LENGTHS]))


class _Batch:
    def __init__(self, left: Tensor, right: Tensor):
        self.left, self.right = left, right


def _unknown_argument() -> Program:
    batch = _Batch(_numbers(64), _numbers(64) + 1.0)
    return Program(lambda batch: batch.left * batch.right + batch.left, lambda function, number: function(batch))


def _with_gradients() -> Program:
    x, weight = _numbers(64), _numbers(64).requires_grad_()
    return Program(lambda x, weight: torch.tanh(x * weight) + x, lambda function, number: function(x, weight))


def _quicker_eagerly() -> Program:
    x = _numbers(4, 4)
    return Program(lambda x: x @ x, lambda function, number: function(x))


# --- lists of tensors, changed in place -------------------------------------------------------------------------------

PARAMETERS = 40


def _tensors(count: int = PARAMETERS, width: int = 128) -> list[Tensor]:
    """Weights and biases in turn."""
    return [_numbers(width, width) if number % 2 == 0 else _numbers(width) for number in range(count)]


def _gradients(parameters: list[Tensor]) -> list[Tensor]:
    return [0.01 * (parameter - 1.0) for parameter in parameters]


def adamw(
    parameters: list[Tensor], gradients: list[Tensor], averages: list[Tensor], squares: list[Tensor], step: int
) -> None:
    """A step of AdamW as people write it."""
    rate, b1, b2, epsilon, decay = 1e-3, 0.9, 0.999, 1e-8, 1e-2
    for parameter, gradient, average, square in zip(parameters, gradients, averages, squares, strict=True):
        parameter.mul_(1 - rate * decay)
        average.mul_(b1).add_(gradient, alpha=1 - b1)
        square.mul_(b2).addcmul_(gradient, gradient, value=1 - b2)
        corrected = average / (1 - b1**step)
        denominator = (square / (1 - b2**step)).sqrt_().add_(epsilon)
        parameter.addcdiv_(corrected, denominator, value=-rate)


def _adamw() -> Program:
    parameters = _tensors()
    gradients = _gradients(parameters)
    averages, squares = ([torch.zeros_like(one) for one in parameters] for _ in range(2))
    return Program(
        adamw,
        lambda function, number: function(parameters, gradients, averages, squares, number + 1),
        lambda: (parameters, averages, squares),
    )


def _in_place() -> Program:
    tensors = _tensors()

    def decay(tensors: list[Tensor]) -> None:
        for tensor in tensors:
            tensor.mul_(0.999).add_(0.001)

    return Program(decay, lambda function, number: function(tensors), lambda: tensors)


def _long_list() -> Program:
    tensors = [_numbers(16) * number for number in range(80)]
    return Program(lambda tensors: torch.stack(tensors).mean(0), lambda function, number: function(tensors))


def _moving_average() -> Program:
    model, average = _tensors(), [torch.zeros_like(tensor) for tensor in _tensors()]

    def update(average: list[Tensor], model: list[Tensor], decay: float) -> None:
        for old, new in zip(average, model, strict=True):
            old.lerp_(new, 1.0 - decay)

    return Program(update, lambda function, number: function(average, model, 0.999), lambda: average)


def _foreach() -> Program:
    parameters = _tensors()
    gradients, momenta = _gradients(parameters), [torch.zeros_like(tensor) for tensor in parameters]

    def momentum(parameters: list[Tensor], gradients: list[Tensor], momenta: list[Tensor]) -> None:
        torch._foreach_mul_(momenta, 0.9)
        torch._foreach_add_(momenta, gradients)
        torch._foreach_add_(parameters, momenta, alpha=-1e-3)

    return Program(
        momentum, lambda function, number: function(parameters, gradients, momenta), lambda: (parameters, momenta)
    )


def _optimizer() -> Program:
    parameters = [torch.nn.Parameter(tensor) for tensor in _tensors()]
    for parameter, gradient in zip(parameters, _gradients([one.detach() for one in parameters]), strict=True):
        parameter.grad = gradient
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    return Program(
        optimizer.step, lambda function, number: function(), lambda: [parameter.detach() for parameter in parameters]
    )


CASES = (
    Slow("80 kinds of calls, the last 10", _many_kinds, cycle=KINDS, measured_from=KINDS - 10),
    Slow("setting that changes every second call", _changing_settings),
    Slow("AdamW by hand, 40 parameters in place", _adamw, cycle=2, wanted_over_eager=3.0),
    Slow("list of 40 tensors changed in place", _in_place, cycle=2),
    Slow("list of 80 tensors", _long_list),
    Slow("moving average of 40 parameters", _moving_average, cycle=2),
    Slow("torch._foreach_*, 40 parameters", _foreach, cycle=2),
    Slow("optimizer.step of AdamW", _optimizer, cycle=2),
    Slow("x.shape read, 20 lengths", _many_lengths, cycle=LENGTHS),
    Slow("gradients needed", _with_gradients, needs_gradients=True),
    Slow("quicker eagerly", _quicker_eagerly),
    Slow("argument of an unknown type", _unknown_argument),
)
