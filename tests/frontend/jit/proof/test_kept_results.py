"""Calls of functions that keep their results: taken for what they have kept, as long as they keep it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import ingot
from ingot.frontend.jit.proof import Proof, Refusal, prove
from tests.frontend.jit.proof.cases import tensor

TOLD: list[str] = []


class Teller:
    @functools.lru_cache(None)  # noqa: B019
    def tell_once(self, text: str) -> None:
        TOLD.append(text)

    @functools.cache  # noqa: B019
    def scale(self, number: int) -> float:
        return number / 2


TELLER = Teller()
_square = functools.cache(lambda number: number * number)
_limited = functools.lru_cache(lambda number: number * number)
_typed = functools.lru_cache(None, typed=True)(lambda number: number * number)
_tensor = functools.cache(lambda number: torch.ones(4) * number)


def _tells(x: Any) -> Any:
    TELLER.tell_once(f"got {x.dim()} dimensions")
    return x * TELLER.scale(3) + _square(4)


def test_what_is_kept_is_proven_and_guarded():
    x = tensor(3, 4)
    _tells(x)
    proof = prove(_tells, (x,), {})
    assert isinstance(proof, Proof), proof
    _square(5)
    assert proof.holds()
    for function in (Teller.tell_once, Teller.scale, _square):
        function.cache_clear()
        assert not proof.holds()
        _tells(x)
        assert proof.holds()


_REFUSED: dict[str, Callable[[Any], Any]] = {
    "a limited number": lambda x: x * _limited(4),
    "by types": lambda x: x * _typed(4),
    "a keyword": lambda x: x * _square(number=4),
    "tensors": lambda x: x * _tensor(4),
    "NaN": lambda x: x * _square(float("nan")),
}


@pytest.mark.parametrize("name", _REFUSED)
def test_other_caches_are_refused(name: str):
    x = tensor(4)
    _REFUSED[name](x)
    assert "lru_cache" in _refusal(_REFUSED[name], x)


def test_a_result_that_is_not_kept_is_refused():
    _square.cache_clear()
    assert "no plain result" in _refusal(lambda x: x * _square(4), tensor(4))


def _refusal(function: Callable[[Any], Any], x: torch.Tensor) -> str:
    found = prove(function, (x,), {})
    assert isinstance(found, Refusal)
    return found.reason


def test_a_cleared_cache_tells_again(no_eager_comparison: None):
    """The compiled function runs in Python again, and tells what eager would tell."""
    compiled: Any = ingot.jit(_noted)
    for _ in range(4):
        compiled(tensor(3))
    assert compiled.tier == "skipping"
    _kept.cache_clear()
    assert torch.equal(compiled(tensor(3)), tensor(3) * 2)
    assert _kept.cache_info().currsize == 1


@functools.cache
def _kept(text: str) -> float:
    return 2.0


def _noted(x: Any) -> Any:
    return x * _kept("noted")
