"""Every program of the catalogue does over time what it does eagerly, in every mode; and is a fair test of that."""

from __future__ import annotations

import pytest

from tests.frontend.jit.state.programs import KINDS, PROGRAMS
from tests.frontend.jit.state.running import MODES, compare, jitted, run, same_histories
from tests.frontend.jit.state.worlds import World, itself, nothing


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


def test_there_are_many_programs() -> None:
    assert len(PROGRAMS) >= 130
