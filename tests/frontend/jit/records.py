"""For tests of calls that machine code answers: whether it did, and how to get it to."""

from __future__ import annotations

from typing import Any

import torch

import ingot
from tests.frontend.jit.comparing import same

ENOUGH = 30
"""More calls than it takes until a record answers."""
jit: Any = ingot.jit
"""Without the type of what it is given, for tests look inside of what it gives."""


def answered(function):
    """How many calls of a function were answered by records."""
    return function._compiled.native.total


def warm(function, *args, **kwargs):
    """Call a function until a record answers."""
    before = answered(function)
    for _ in range(ENOUGH):
        function(*args, **kwargs)
        if answered(function) > before:
            return function
    raise AssertionError("no record answers")


def expect_python(function, eager, *args, **kwargs):
    """Check that Python answers a call, not a record, and that its result is right."""
    before = answered(function)
    same(function(*args, **kwargs), eager(*args, **kwargs))
    assert answered(function) == before


def expect_record(function, eager, *args, **kwargs):
    """Check that a record answers a call, and that its result is right."""
    before = answered(function)
    same(function(*args, **kwargs), eager(*args, **kwargs))
    assert answered(function) == before + 1


def multiply_add(a, b, c):
    return a * b + c


def three(*shape):
    return [torch.randn(*shape or (4, 6)) for _ in range(3)]


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.randn(6), requires_grad=False)
        self.register_buffer("shift", torch.randn(6))
        self.drop = torch.nn.Dropout(0.5)
        self.extra = 1.0
        self.steps = [1.0, 2.0]

    def forward(self, x):
        return self.drop(x * self.scale + self.shift) + self.extra + sum(self.steps)
