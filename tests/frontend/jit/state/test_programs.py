"""Every program of the catalogue does over time what it does eagerly, in every mode; and is a fair test of that."""

from __future__ import annotations

import sys
import types

import pytest
import torch

from tests.frontend.jit.state.programs import KINDS, PROGRAMS
from tests.frontend.jit.state.running import MODES, compare, jitted, run, same_histories
from tests.frontend.jit.state.worlds import World, itself, nothing, numbers


def _programs_of(kind: object) -> list[str]:
    return [name for name, build in PROGRAMS.items() if vars(kind).get(name) is build]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_does_what_eager_does(name: str, mode: str) -> None:
    compare(PROGRAMS[name], jitted(mode))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__.rpartition(".")[2])
def test_programs_are_fair(kind: object) -> None:
    """Two eager runs agree, so that a difference is the compiler's."""
    for name in _programs_of(kind):
        compare(PROGRAMS[name], itself)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__.rpartition(".")[2])
def test_changes_are_seen(kind: object) -> None:
    """A program with a change does otherwise after it: one that did not could not fail."""
    for name in _programs_of(kind):
        with World(lambda function: function) as world:
            has_change = PROGRAMS[name](world).change is not nothing
        if has_change:
            with pytest.raises(AssertionError, match=r"after the change"):
                same_histories(run(PROGRAMS[name], itself), run(PROGRAMS[name], itself, changes=False))
                pytest.fail(f"{name} does not see its change", pytrace=False)


def test_profilers_see_the_code_of_the_user_where_python_runs() -> None:
    """Where Python is skipped there is no such code to see: only in this mode it must be there."""
    seen: list[str] = []

    def inner(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def profile(frame: types.FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is inner.__code__:
            seen.append("inner")

    compiled, before = jitted("run")(lambda x: inner(x) + 1), sys.getprofile()
    for call in range(6):
        sys.setprofile(profile)
        try:
            result = compiled(numbers(call, 4, 5))
        finally:
            sys.setprofile(before)
        assert torch.equal(result, numbers(call, 4, 5) * 2 + 1)
    assert len(seen) == 6


def test_there_are_many_programs() -> None:
    assert len(PROGRAMS) >= 130
