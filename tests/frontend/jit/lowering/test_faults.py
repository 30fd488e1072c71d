"""Mistakes of rows and passes: none is taken for a call that cannot be lowered, and none stops the user's program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import ingot
from ingot.base import warning
from ingot.base.errors import FaultWarning
from ingot.frontend.aten import lowered, lowering_for
from ingot.frontend.aten.table import ROWS
from ingot.frontend.jit.lowering import faults

MISTAKES: dict[str, Callable[[Any, Any], Any]] = {
    "a key that is not there": lambda b, x: {}[x.dtype],
    "an attribute that is not there": lambda b, x: x.extent,
    "an argument too many": lambda b, x: b.abs(x, 1),
    "a keyword that is not there": lambda b, x: b.abs(x, exact=True),
    "an operator that is not there": lambda b, x: b.absolutely(x),
    "something that is no handle": lambda b, x: b.abs("x"),
    "the truth of a value": lambda b, x: x if b.gt(x, 0) else -x,
    "a result that is no handle": lambda b, x: None,
    "an index beyond the end": lambda b, x: x.shape[7],
    "a division by zero": lambda b, x: 1 // 0,
    "what should hold": lambda b, x: _assert(not b),
}


def _assert(condition: bool) -> None:
    assert condition


@pytest.fixture(params=MISTAKES)
def mistaken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The row of `digamma` makes a mistake; it has none otherwise."""
    assert "digamma.default" not in ROWS
    monkeypatch.setitem(ROWS, "digamma.default", MISTAKES[request.param])
    monkeypatch.setattr(faults, "warn", warning.warn)
    lowering_for.cache_clear()
    yield
    lowering_for.cache_clear()
    lowered._lowered.cache_clear()


def f(x: torch.Tensor) -> torch.Tensor:
    return torch.digamma(x + 1) * 2


X = torch.rand(8, 8) + 1


def test_a_mistake_is_no_refusal(mistaken: None):
    lowering: Any = lowering_for(torch.ops.aten.digamma.default)
    builder = ingot.GraphBuilder()
    with pytest.raises(Exception) as raised:
        builder.output(lowering(builder, [builder.input((4,))], {}))
    assert not isinstance(raised.value, ingot.base.errors.UnsupportedError)


@pytest.mark.parametrize(("python", "place"), [("skip", r"test_faults\.py:\d+"), ("run", "<ingot segment>")])
def test_the_user_is_asked_for_a_report_and_calls_run_eagerly(
    mistaken: None, no_eager_comparison: None, python: Any, place: str
):
    compiled = ingot.jit(f, python=python)
    with pytest.warns(FaultWarning, match=rf"please report it: .*aten\.digamma\.default.*{place}"):
        for _ in range(4):
            torch.testing.assert_close(compiled(X), f(X), rtol=0, atol=0)


def test_what_the_op_table_refuses_is_no_mistake(no_eager_comparison: None):
    x, index = torch.rand(4, 3), torch.zeros(4, 3, dtype=torch.int32)
    compiled: Any = ingot.jit(lambda: torch.gather(x + 1, 0, index) * 2, python="skip")
    for _ in range(3):
        assert torch.equal(compiled(), torch.gather(x + 1, 0, index) * 2)
    assert "aten.gather" in compiled.explain()
