"""Recordings that one world has kept answer calls of another only where they do what eager does there.

A world is built from fresh objects, as a process is. The second one begins with other state than the first: what was
recorded over the first must not be taken for it.

pytest tests/frontend/jit/kept                                                      what CI runs
INGOT_TEST_EXAMPLES=5000 pytest tests/frontend/jit/kept/test_random_programs.py     a long run: others every time
"""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import HealthCheck, given, note, settings

import ingot
from tests.frontend.jit.kept.conftest import Store
from tests.frontend.jit.state.random_programs import Call, Recipe, Statement
from tests.frontend.jit.state.running import same_histories
from tests.frontend.jit.state.state_kinds import KINDS
from tests.frontend.jit.state.test_random_programs import _history, _settings, recipes
from tests.frontend.jit.state.worlds import itself

CALLS_UNTIL_KEPT = 5


@pytest.fixture(autouse=True)
def local_classes_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes of these programs are made by functions, and would never be kept; what is told of them is tried here."""
    monkeypatch.setattr("ingot.frontend.jit.kept.anatomy._is_found", lambda cls, name, own: True)


def _kept_first(recipe: Recipe) -> tuple[Recipe, Recipe]:
    """The recipe with calls without changes, after which a recording is kept; and one that begins with changes."""
    quiet = dataclasses.replace(recipe.calls[0], changes=())
    changed = sorted({change for call in recipe.calls for change in call.changes})
    first = dataclasses.replace(recipe.calls[0], changes=tuple(changed))
    return (
        dataclasses.replace(recipe, calls=(quiet,) * CALLS_UNTIL_KEPT),
        dataclasses.replace(recipe, calls=(first, *recipe.calls)),
    )


@settings(_settings, suppress_health_check=[*_settings.suppress_health_check, HealthCheck.function_scoped_fixture])
@given(recipe=recipes())
def test_random_programs_of_another_world_do_what_eager_does(store: Store, recipe: Recipe) -> None:
    note(recipe.source())
    note("\n".join(map(str, recipe.calls)))
    before, later = _kept_first(recipe)
    _history(before, ingot.jit)
    for one in (before, later):
        same_histories(_history(one, ingot.jit), _history(one, itself))


@pytest.mark.parametrize("kind", KINDS)
def test_change_of_every_kind_of_state_between_worlds_is_seen(store: Store, kind: str) -> None:
    same, changed = (Call(changes, 3, "apart", "plain") for changes in ((), ((kind, 3),)))
    statement = (Statement("read", 1, 0, 0, 0, kind),)
    _history(Recipe(statement, (0,), (same,) * CALLS_UNTIL_KEPT), ingot.jit)
    recipe = Recipe(statement, (0,), (changed, same, same))
    same_histories(_history(recipe, ingot.jit), _history(recipe, itself))


def test_program_of_another_world_takes_up_what_was_kept(store: Store) -> None:
    """Otherwise the tests above could not fail."""
    same = Call((), 3, "apart", "plain")
    taken_up = 0
    for kind in KINDS:
        recipe = Recipe((Statement("read", 1, 0, 0, 0, kind),), (0,), (same,) * CALLS_UNTIL_KEPT)
        functions: list = []

        def compiled(function, functions=functions):
            functions.append(ingot.jit(function))
            return functions[-1]

        _history(recipe, ingot.jit)
        _history(recipe, compiled)
        taken_up += sum(one._compiled.taken_up for one in functions)
    assert taken_up >= len(KINDS) // 3
