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
_limited = functools.lru_cache(maxsize=1)(lambda number: number * SCALES[0])
SCALES = [2.0]
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


class Named:
    pass


NAMED = Named()


def _named(x: Any) -> Any:
    return x * (2.0 if _names(NAMED, NAMED) else 3.0)


_names = functools.cache(lambda one, other: one is other)


def test_what_is_kept_by_keywords_and_objects_and_what_is_a_tensor_is_proven(monkeypatch: pytest.MonkeyPatch):
    for function in (lambda x: x * _square(number=4), lambda x: x * _tensor(4), _named):
        function(tensor(4))
        assert isinstance(prove(function, (tensor(4),), {}), Proof)
    proof = prove(_named, (tensor(4),), {})
    monkeypatch.setattr(Named, "__eq__", lambda self, other: False, raising=False)
    assert isinstance(proof, Proof) and not proof.holds()  # whether a key is found is up to that now


def test_a_link_that_holds_another_result_is_noticed():
    """A full cache uses its links again: here for the same key in the end."""
    function = lambda x: x * _limited(4)
    function(tensor(4))
    proof = prove(function, (tensor(4),), {})
    assert isinstance(proof, Proof) and proof.holds()
    SCALES[0] = 3.0
    assert _limited(5) == 15 and not proof.holds()
    assert _limited(4) == 12 and not proof.holds()
    SCALES[0] = 2.0
    _limited.cache_clear()


_REFUSED: dict[str, Callable[[Any], Any]] = {
    "by types": lambda x: x * _typed(4),
    "NaN": lambda x: x * _square(float("nan")),
    "a tensor as key": lambda x: x * _rows(x),
    "perhaps": lambda x: x * _limited(4) if x.stride() else x,
}
_rows = functools.lru_cache(lambda given: given.shape[0])


@pytest.mark.parametrize("name", _REFUSED)
def test_other_caches_are_refused(name: str):
    x = tensor(4)
    _REFUSED[name](x)
    assert "lru_cache" in _refusal(_REFUSED[name], x)


def test_a_limited_cache_keeps_and_counts_as_in_eager(no_eager_comparison: None):
    """Calls without Python are calls of the cache: what is used stays, what is not goes."""

    def made() -> tuple[Any, Callable[[Any], Any]]:
        called: list[int] = []
        scale = functools.lru_cache(maxsize=2)(lambda key: called.append(key) or key / 2)
        return scale, lambda x: x * scale(4) + called.count(7)

    (ours, plain), (eagers, function) = made(), made()
    compiled: Any = ingot.jit(plain)
    x, results = tensor(3), []
    for key in (None, None, None, 7, 8, 4, 7, None, None, None, 8, 8, 7, None, None):
        for scale, one in ((ours, compiled), (eagers, function)):
            result = one(x)
            if key is not None:
                scale(key)
            results.append(result)
        assert torch.equal(*results[-2:])
        assert ours.cache_info() == eagers.cache_info()


def test_native_code_compares_and_repeats_calls_of_a_limited_cache(no_eager_comparison: None):
    scales = [2.0]
    scale = functools.lru_cache(maxsize=1)(lambda key: scales[0] + key)
    compiled: Any = ingot.jit(lambda x: x * scale(1) * scale(1))
    for _ in range(40):
        result = compiled(tensor(3))
    assert compiled.tier == "skipping" and scale.cache_info()[:2] == (79, 1)
    scales[0] = 3.0
    assert scale(2) == 5.0 and scale(1) == 4.0  # the link of the first result, with another one
    for _ in range(3):
        result = compiled(tensor(3))
        assert torch.equal(result, tensor(3) * 4.0 * 4.0)


def test_a_call_that_fills_a_cache_is_not_what_later_calls_do(no_eager_comparison: None):
    """The first call draws a random number, for a result that is kept."""
    drawn = functools.cache(lambda key: torch.rand(1).add(key))
    compiled: Any = ingot.jit(lambda x: x * drawn(2))
    torch.manual_seed(3)
    results = [compiled(tensor(3)) for _ in range(6)]
    after = torch.rand(1)
    torch.manual_seed(3)
    assert torch.equal(results[0], tensor(3) * torch.rand(1).add(2)) and torch.equal(after, torch.rand(1))
    assert all(torch.equal(result, results[0]) for result in results) and compiled.tier == "skipping"
    drawn(2).fill_(1)  # a tensor that is kept may be written
    assert torch.equal(compiled(tensor(3)), tensor(3))


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
