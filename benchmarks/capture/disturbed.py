"""Twenty functions of large tensors, each with one thing inside that a recording cannot replace, and without it.

In: two tensors of numbers around zero. Out: tensors, and effects that Python can see. What always holds: a function and
its plain form compute the same from the same tensors, and need about the same operations; what the thing reads (a sum,
a largest element) is a result of the plain form, so that both have to compute it.
"""

from __future__ import annotations

import io
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from torch import Tensor

Function = Callable[..., Any]


@dataclass(frozen=True)
class Made:
    """A function with state of its own."""

    function: Function
    effects: Callable[[], Any] = lambda: None
    """What its calls have left behind so far, to be compared."""
    more: tuple[Any, ...] = ()
    """Arguments after the two tensors."""


@dataclass(frozen=True)
class Disturbed:
    name: str
    make: Callable[[], Made]
    plain: Function
    """The same without the thing."""


CASES: list[Disturbed] = []


def _disturbed(name: str, plain: Function) -> Callable[[Callable[[], Made]], Callable[[], Made]]:
    """Adds a function to the cases, under a name and beside its plain form."""

    def add(make: Callable[[], Made]) -> Callable[[], Made]:
        CASES.append(Disturbed(name, make, plain))
        return make

    return add


# --- what the functions are made of -----------------------------------------------------------------------------------


def gated(x: Tensor, y: Tensor) -> Tensor:
    """Seven operations on every element."""
    return torch.sigmoid(x * y + 0.5) * torch.tanh(x - y) + 0.1 * x


def settled(z: Tensor, y: Tensor) -> Tensor:
    """Seven more."""
    return torch.relu(z) * y + torch.exp(-z * z) / (1.0 + z.abs())


def _plain(x: Tensor, y: Tensor) -> Tensor:
    return settled(gated(x, y), y)


def _with_mean(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    z = gated(x, y)
    return settled(z, y), z.mean()


# --- values that Python reads -----------------------------------------------------------------------------------------


def _plain_branch(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    z = gated(x, y)
    total = (z * z).sum()
    z = z * 2.0
    return settled(z, y), total


@_disturbed("if total > 0", _plain_branch)
def branch() -> Made:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        z = gated(x, y)
        total = (z * z).sum()
        z = z * 2.0 if total > 0 else z - 1.0
        return settled(z, y), total

    return Made(function)


def _plain_item(x: Tensor, y: Tensor) -> Tensor:
    z = gated(x, y)
    return settled(z / z.abs().amax(), y)


@_disturbed(".item()", _plain_item)
def item() -> Made:
    def function(x: Tensor, y: Tensor) -> Tensor:
        z = gated(x, y)
        return settled(z / z.abs().amax().item(), y)

    return Made(function)


def _plain_mask(x: Tensor, y: Tensor) -> Tensor:
    z = _plain(x, y)
    kept = z > 0.5
    return torch.where(kept, z, 0.0).sum() / kept.sum()


@_disturbed("boolean mask", _plain_mask)
def boolean_mask() -> Made:
    def function(x: Tensor, y: Tensor) -> Tensor:
        z = _plain(x, y)
        return z[z > 0.5].mean()

    return Made(function)


def _plain_numpy(x: Tensor, y: Tensor) -> Tensor:
    z = gated(x, y)
    return settled(z * z[:256].amax(), y)


@_disturbed("numpy in the middle", _plain_numpy)
def numpy_in_the_middle() -> Made:
    def function(x: Tensor, y: Tensor) -> Tensor:
        z = gated(x, y)
        return settled(z * float(numpy.max(z.numpy()[:256])), y)

    return Made(function)


TOLERANCE, EXIT_STEPS, WHILE_STEPS, MOST_STEPS = 1e-3, 3, 3, 8
"""How many steps the loops below take until a value ends them, for normal numbers; the plain forms just take them."""


def _refined(z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """A step that comes thirty times closer to its limit, and how far it went."""
    better = z * 0.03 + torch.tanh(y) * 0.5
    return better, (better - z).abs().amax()


def _plain_exit(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    z = gated(x, y)
    for _ in range(EXIT_STEPS - 1):
        z, _change = _refined(z, y)
    z, change = _refined(z, y)
    return settled(z, y), change


@_disturbed("early exit", _plain_exit)
def early_exit() -> Made:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        z = gated(x, y)
        change = z
        for _ in range(MOST_STEPS):
            z, change = _refined(z, y)
            if change < 0.02:
                return settled(z, y), change
        return z, change

    return Made(function)


def _newton(guess: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    better = 0.5 * (guess + x / guess)
    return better, ((better - guess) / better).abs().amax()


def _plain_while(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    square = torch.sigmoid(x * y) + 0.5
    guess = square * 0.5 + 0.5
    error = guess
    for _ in range(WHILE_STEPS):
        guess, error = _newton(guess, square)
    return settled(guess, y), error


@_disturbed("while error > tolerance", _plain_while)
def while_error() -> Made:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        square = torch.sigmoid(x * y) + 0.5
        guess = square * 0.5 + 0.5
        guess, error = _newton(guess, square)
        while error > TOLERANCE:
            guess, error = _newton(guess, square)
        return settled(guess, y), error

    return Made(function)


def _plain_assert(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    z = gated(x, y)
    return settled(z, y), torch.isfinite(z).all()


@_disturbed("assert on a value", _plain_assert)
def assert_on_a_value() -> Made:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        z = gated(x, y)
        finite = torch.isfinite(z).all()
        assert finite, "not all elements are finite"
        return settled(z, y), finite

    return Made(function)


# --- effects ----------------------------------------------------------------------------------------------------------


@_disturbed("print", _plain)
def printing() -> Made:
    written = io.StringIO()

    def function(x: Tensor, y: Tensor) -> Tensor:
        z = gated(x, y)
        print("gated", tuple(z.shape), file=written)
        return settled(z, y)

    return Made(function, written.getvalue)


class _Statistics:
    def __init__(self) -> None:
        self.calls = 0


@_disturbed("counter", _plain)
def counter() -> Made:
    statistics = _Statistics()

    def function(x: Tensor, y: Tensor) -> Tensor:
        statistics.calls += 1
        return _plain(x, y)

    return Made(function, lambda: statistics.calls)


@_disturbed("list.append", _with_mean)
def list_append() -> Made:
    means: list[Tensor] = []

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        z = gated(x, y)
        mean = z.mean()
        means.append(mean)
        return settled(z, y), mean

    return Made(function, lambda: list(means))


@_disturbed("dict.update", _with_mean)
def dict_update() -> Made:
    seen: dict[str, Any] = {"calls": 0}

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        z = gated(x, y)
        mean = z.mean()
        seen.update(mean=mean, calls=seen["calls"] + 1)
        return settled(z, y), mean

    return Made(function, lambda: dict(seen))


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@_disturbed("logging", _plain)
def logging_call() -> Made:
    log, handler = logging.Logger("benchmarks.capture", logging.INFO), _Lines()
    log.addHandler(handler)

    def function(x: Tensor, y: Tensor) -> Tensor:
        z = gated(x, y)
        log.info("gated %d elements", z.numel())
        log.debug("a message without a handler")
        return settled(z, y)

    return Made(function, lambda: list(handler.lines))


@_disturbed("time.perf_counter", _plain)
def perf_counter() -> Made:
    spent: list[float] = []

    def function(x: Tensor, y: Tensor) -> Tensor:
        start = time.perf_counter()
        z = _plain(x, y)
        spent.append(time.perf_counter() - start)
        return z

    return Made(function, lambda: (len(spent), len(set(spent)) > 1))


# --- readings and objects ---------------------------------------------------------------------------------------------


@_disturbed("random.random", lambda x, y: settled(gated(x, y) * 1.05, y))
def random_number() -> Made:
    generator = random.Random(20)

    def function(x: Tensor, y: Tensor) -> Tensor:
        return settled(gated(x, y) * (1.0 + 0.1 * generator.random()), y)

    return Made(function, generator.getstate)


class Option:
    """A class that only this module uses."""

    def __init__(self, gain: float):
        self.gain = gain


class Sharper(Option):
    pass


@_disturbed("isinstance of an unknown object", lambda x, y: settled(gated(x, y) * 1.5, y))
def isinstance_of_unknown() -> Made:
    def function(x: Tensor, y: Tensor, option: Option) -> Tensor:
        z = gated(x, y)
        z = z * 1.5 if isinstance(option, Sharper) else z + 1.0
        return settled(z, y)

    return Made(function, more=(Sharper(2.0),))


@_disturbed("argument of an own class", lambda x, y: settled(gated(x, y) * 1.5, y))
def argument_of_own_class() -> Made:
    def function(x: Tensor, y: Tensor, option: Option) -> Tensor:
        return settled(gated(x, y) * option.gain, y)

    return Made(function, more=(Option(1.5),))


@dataclass
class Configuration:
    gain: float = 1.5
    steps: int = 2
    names: list[str] = field(default_factory=lambda: ["gate"])


def _plain_configuration(x: Tensor, y: Tensor) -> Tensor:
    z = gated(x, y)
    for _ in range(2):
        z = torch.tanh(z) * 1.5
    return settled(z, y)


@_disturbed("dataclass as configuration", _plain_configuration)
def dataclass_as_configuration() -> Made:
    def function(x: Tensor, y: Tensor, configuration: Configuration) -> Tensor:
        z = gated(x, y)
        for _ in range(configuration.steps):
            z = torch.tanh(z) * configuration.gain
        return settled(z, y)

    return Made(function, more=(Configuration(),))


@_disturbed("try / except", lambda x, y: settled(gated(x, y) * 1.5, y))
def try_except() -> Made:
    gains: dict[str, float] = {}

    def function(x: Tensor, y: Tensor) -> Tensor:
        z = gated(x, y)
        try:
            gain = gains["gate"]
        except KeyError:
            gain = 1.5
        return settled(z * gain, y)

    return Made(function)


@_disturbed("f-string of a shape", _plain)
def text_of_shape() -> Made:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, str]:
        z = gated(x, y)
        return settled(z, y), f"gate of {tuple(z.shape)}, {z.dtype}"

    return Made(function)


def _plain_generator(x: Tensor, y: Tensor) -> Tensor:
    first, second, third, fourth = _plain(x, y).chunk(4)
    return torch.tanh(first) + torch.tanh(second) + torch.tanh(third) + torch.tanh(fourth)


@_disturbed("generator expression", _plain_generator)
def generator_expression() -> Made:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return sum(torch.tanh(part) for part in _plain(x, y).chunk(4))  # type: ignore[return-value]

    return Made(function)
