"""What is described to another process, and what is not."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest
import torch

import ingot
from ingot.frontend.jit.kept.anatomy import NotPortable, anatomy
from ingot.frontend.jit.kept.references import Mismatch, Numbering, ObjectBinding, outline
from tests.frontend.jit.kept.conftest import Store


class Holder:
    """A class that is found by its name."""


NATIVE = [re.compile("a"), threading.Lock(), iter([]), torch.Generator()]


@pytest.mark.parametrize("value", NATIVE, ids=[type(value).__name__ for value in NATIVE])
def test_what_may_hold_native_state_is_not_described(value: Any):
    with pytest.raises(NotPortable):
        anatomy(value)


def test_two_objects_do_not_become_one():
    one, other = [], []
    numbering = Numbering()
    told = [numbering.reference(value) for value in (one, other, one)]
    binding = ObjectBinding()
    binding.bind(told[0], new := [])
    with pytest.raises(Mismatch):
        binding.bind(told[1], new)
    with pytest.raises(Mismatch):
        binding.bind(told[2], [])


def test_numbers_of_what_could_not_be_described_are_taken_back():
    numbering, good, bad = Numbering(), Holder(), (Holder(), re.compile("a"))
    numbering.reference(good)
    with pytest.raises(NotPortable), numbering.tentatively():
        numbering.reference(bad)
    assert numbering.knows(good) and not numbering.knows(bad[0])
    assert len(numbering.reference(bad[0])) == 5


def test_functions_that_differ_in_their_defaults_have_other_outlines():
    made = [eval("lambda x, y=number: x", {"number": number}) for number in (1, 2)]
    assert made[0].__code__ == made[1].__code__ and outline(made[0]) != outline(made[1])


class Telling(torch.nn.Module):
    """A module whose own methods would be noticed."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def named_parameters(self, *args: Any, **kwargs: Any):
        raise AssertionError("it is not asked")

    modules = named_modules = named_buffers = named_parameters  # type: ignore[assignment]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


def test_looking_for_a_recording_calls_no_methods_of_modules(store: Store):
    x = torch.randn(2, 4)
    with torch.no_grad():
        for _ in range(2):
            module = Telling()
            fast = ingot.jit(module)
            for _ in range(6):
                torch.testing.assert_close(fast(x), module(x))
    assert store.entries and store.found == 1
