"""Random programs over objects that they are given leave in them what eager leaves, whatever changes between calls.

INGOT_TEST_EXAMPLES=5000 pytest tests/frontend/jit/objects/test_random_objects.py    a long run: others every time
"""

from __future__ import annotations

import itertools
import linecache
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from ingot.frontend.jit.cache import audits
from tests.frontend.jit.objects.beside_eager import Beside, Layer

EXAMPLES = int(os.environ.get("INGOT_TEST_EXAMPLES", 60))
_settings = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="INGOT_TEST_EXAMPLES" not in os.environ,
    database=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[
        *(HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture),
        HealthCheck.differing_executors,
    ],
    print_blob=False,
)
READS = (
    "t = t + one.state",
    "t = t * one.number",
    "t = t + len(one.items)",
    "t = t + one.items[-1]",
    "t = t + one.inner.length()",
    "t = t - one.table['a']",
    "t = t + (one.extra if hasattr(one, 'extra') else 1)",
    "t = t + sum(value for value in one.numbers)",
    "t = one.state.sum() + t if one.inner is one.other else t",
    "t = t + one.pair[{k} % 2]",
    "t = t + other.state",
)
WRITES = (
    "one.state = t",
    "one.state = one.items[0]",
    "one.number = {k}",
    "one.items[0] = t * 2",
    "one.items.append(t)",
    "one.items = one.items",
    "one.numbers[{k} % 3] = {k}",
    "one.table['a'] = t",
    "one.table[{k}] = None",
    "one.extra = t + {k}",
    "if hasattr(one, 'extra'): del one.extra",
    "t = t + one.inner.update(t)[-2:]",
    "one.inner, one.other = one.other, one.inner",
    "one.pair = (t, one.pair[0])",
    "one.state.add_({k}).clamp_(-9, 9)",
    "if t.sum() > {k} - 2: one.state = t - 1",
    "one.table['b'] = 3.0 in t",
    "other.state = one.state",
    "one.number = other.number",
    "t = torch.dropout(t, 0.5, False)",
)
RESULTS = ("t", "(t, one)", "[t, one.state, other]", "{{'state': one.state, 'one': one}}", "one.state", "other")


class Given:
    def __init__(self, number: int) -> None:
        self.state, self.number = torch.full((2, 4), float(number)), number
        self.items, self.numbers = [torch.ones(2, 4)], [1, 2, 3]
        self.table: dict[Any, Any] = {"a": 1}
        self.inner, self.other, self.pair = Layer(), Layer(), (torch.zeros(2, 4), 2)


class Child(Given):
    @property
    def extra(self) -> int:
        return 3


def _joined(one: Given) -> None:
    one.other = one.inner


def _shared(one: Given) -> None:
    one.items[0] = one.state


def _viewed(one: Given) -> None:
    one.items[0] = one.state[:1]


CHANGES: dict[str, Callable[[tuple[Given, Given]], Any]] = {
    "nothing": lambda given: None,
    "number": lambda given: setattr(given[0], "number", given[0].number + 1),
    "state": lambda given: setattr(given[0], "state", torch.full((2, 4), 2.0)),
    "shape": lambda given: setattr(given[0], "state", torch.full((1, 4), 2.0)),
    "dtype": lambda given: setattr(given[0], "state", torch.full((2, 4), 2, dtype=torch.int64)),
    "extra": lambda given: vars(given[0]).update(extra=2),
    "shorter": lambda given: given[0].items.__delitem__(slice(1, None)),
    "class": lambda given: setattr(given[0], "__class__", Child),
    "layer": lambda given: setattr(given[0], "inner", Layer()),
    "joined": lambda given: _joined(given[0]),
    "shared": lambda given: _shared(given[0]),
    "viewed": lambda given: _viewed(given[0]),
    "across": lambda given: setattr(given[1], "items", given[0].items),
    "cycle": lambda given: vars(given[0]).update(extra=given[1]),
}


@dataclass(frozen=True)
class Recipe:
    lines: tuple[tuple[str, int], ...]
    result: str
    calls: tuple[str, ...]
    """What changes before each call; "new" for objects that are new."""

    def source(self) -> str:
        body = [f"    {line.format(k=k)}\n    t = t.clamp(-9, 9)" for line, k in self.lines]
        head = "def f(x, given):\n    one, other = given\n    t = x + 1"
        return "\n".join([head, *body, f"    return {self.result.format()}"]) + "\n"


def recipes() -> st.SearchStrategy[Recipe]:
    line = st.tuples(st.sampled_from([*READS, *WRITES, *WRITES]), st.integers(0, 3))
    change = st.one_of(st.just("nothing"), st.just("new"), st.sampled_from([*CHANGES, "same"]))
    return st.builds(
        Recipe,
        st.lists(line, min_size=1, max_size=5).map(tuple),
        st.sampled_from(RESULTS),
        st.lists(change, min_size=6, max_size=14).map(tuple),
    )


def apart() -> tuple[Given, Given]:
    return Given(1), Given(2)


def same_object() -> tuple[Given, Given]:
    one = Given(1)
    return one, one


_NUMBERS = itertools.count()


def built(recipe: Recipe) -> Callable[..., Any]:
    """The function of a recipe, whose source can be found."""
    name, source = f"<random objects {next(_NUMBERS)}>", recipe.source()
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    namespace: dict[str, Any] = {"torch": torch}
    exec(compile(source, name, "exec"), namespace)
    return namespace["f"]


def run(recipe: Recipe) -> Beside:
    beside = Beside(built(recipe), apart)
    for number, change in enumerate(recipe.calls):
        if change in ("new", "same"):
            beside.renew(apart if change == "new" else same_object)
        else:
            beside.change(CHANGES[change])
        beside.call(torch.full((2, 4), float(number % 3)))
    return beside


@_settings
@given(recipe=recipes(), are_audited=st.booleans())
def test_random_programs_leave_in_objects_what_eager_leaves(
    recipe: Recipe, are_audited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    note(recipe.source())
    note(str(recipe.calls))
    with monkeypatch.context() as patched:
        if are_audited:
            patched.setattr(audits, "FIRST", 2)
            patched.setattr(audits, "PAUSE", 0)
        assert run(recipe).demotion is None


def test_each_line_alone_is_skipped() -> None:
    """Otherwise little would be tested above."""
    left = []
    for line in (*READS, *WRITES):
        beside = run(Recipe(((line, 2),), "(t, one)", ("new",) * 8))
        left += [line] if beside.compiled.tier != "skipping" else []
    assert not left
