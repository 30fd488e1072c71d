"""Random programs that read and change state of all kinds between calls do what eager does, in every mode.

pytest tests/frontend/jit/state                                        what CI runs: the same programs every time
INGOT_TEST_EXAMPLES=5000 pytest tests/frontend/jit/state/test_random_programs.py    a long run: others every time
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import warnings

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from tests.frontend.jit.state import random_programs
from tests.frontend.jit.state.random_programs import ARGUMENTS, WAYS, Call, Recipe, Statement, run_recipe
from tests.frontend.jit.state.running import MODES, History, jitted, look, same_histories
from tests.frontend.jit.state.state_kinds import KINDS
from tests.frontend.jit.state.worlds import World, itself

CI_EXAMPLES = 60
EXAMPLES = int(os.environ.get("INGOT_TEST_EXAMPLES", CI_EXAMPLES))

_settings = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="INGOT_TEST_EXAMPLES" not in os.environ,
    database=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.differing_executors],
    print_blob=False,
)
FORMS = ("effect", "write", "view", "extra", "fault", "branch")
"""What a program may hold besides reads and operations. Each program draws some: in one with all of them hardly any
call is like the one before."""


def _statements(forms: list[str]) -> st.SearchStrategy[Statement]:
    small = st.integers(0, 4)
    plain = [form for form in forms if form != "branch"]
    numbers = (st.integers(0, 19), small, small, small, st.sampled_from(list(KINDS)))
    line = st.builds(Statement, st.sampled_from(plain), *numbers)
    if "branch" not in forms:
        return line
    block = st.lists(line, max_size=2).map(tuple)
    return st.one_of(line, line, st.builds(Statement, st.just("branch"), *numbers, then=block, otherwise=block))


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    """A program, some calls without any change, and calls with changes of what the program reads, mostly."""
    forms = ["read", "operation", "read", *draw(st.lists(st.sampled_from(FORMS), unique=True, max_size=3))]
    body = draw(st.lists(_statements(forms), min_size=1, max_size=7).map(tuple))
    read = sorted({one.read for one in body if one.form in ("read", "branch")}) or ["global"]
    kinds = st.one_of(st.sampled_from(read), st.sampled_from(read), st.sampled_from(list(KINDS)))
    changes = st.lists(st.tuples(kinds, st.integers(0, 3)), max_size=2).map(tuple)
    rows = st.sampled_from([3, 2, 4, 5]) if draw(st.booleans()) else st.just(3)
    ways = st.sampled_from(WAYS) if draw(st.booleans()) else st.just("plain")
    arguments = st.sampled_from(ARGUMENTS) if draw(st.booleans()) else st.just("apart")
    first = draw(st.builds(Call, st.just(()), rows, arguments, ways))
    later = draw(st.lists(st.builds(Call, changes, rows, arguments, ways), min_size=3, max_size=8))
    returned = draw(st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple))
    return Recipe(body, returned, (*[first] * draw(st.integers(1, 4)), *later))


def _history(recipe: Recipe, compile_function: object) -> History:
    printed = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(printed):
        warnings.simplefilter("ignore")
        moments = run_recipe(recipe, compile_function)  # type: ignore[arg-type]
    return History(moments, look(printed.getvalue()))


@pytest.mark.parametrize("mode", MODES)
@_settings
@given(recipe=recipes())
def test_random_programs_do_what_eager_does(mode: str, recipe: Recipe) -> None:
    note(recipe.source())
    note("\n".join(map(str, recipe.calls)))
    same_histories(_history(recipe, jitted(mode)), _history(recipe, itself))


@settings(_settings, max_examples=min(EXAMPLES, 200))
@given(recipe=recipes())
def test_random_programs_are_fair(recipe: Recipe) -> None:
    """Two eager worlds agree, and the program is Python that can be read back."""
    note(recipe.source())
    same_histories(_history(recipe, itself), _history(recipe, itself))
    with World(itself) as world:
        function = random_programs._built(recipe, world, {})
        assert "def f(x, y, *, keyword=1):" in inspect.getsource(function)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_state_can_be_seen_to_change(kind: str) -> None:
    """A change of each kind shows in the program that reads it: one that did not could not fail."""
    statement = Statement("read", 1, 0, 0, 0, kind)
    same, changed = Call((), 3, "apart", "plain"), Call(((kind, 3),), 3, "apart", "plain")
    without = Recipe((statement,), (0,), (same,) * 3)
    with pytest.raises(AssertionError, match="call 1"):
        same_histories(_history(Recipe((statement,), (0,), (same, changed, same)), itself), _history(without, itself))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", sorted(set(WAYS)))
@pytest.mark.parametrize("kind", KINDS)
def test_change_of_every_kind_of_state_is_seen(kind: str, way: str, mode: str) -> None:
    """The smallest program of each kind: random programs in CI are too few to hold them all."""
    same, changed, back = (Call(changes, 3, "apart", way) for changes in ((), ((kind, 3),), ((kind, 2),)))
    recipe = Recipe((Statement("read", 1, 0, 0, 0, kind),), (0,), (*[same] * 4, changed, same, back, same))
    same_histories(_history(recipe, jitted(mode)), _history(recipe, itself))
