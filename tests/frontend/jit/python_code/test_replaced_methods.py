"""Methods of tensors that a program replaces run as often as in eager, before a recording and after it."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

import ingot
from ingot.frontend.jit.python_code.replaced_methods import replaced_method

FACTOR = 2.0


def _times_factor(real: Any) -> Any:
    @functools.wraps(real)
    def replacement(self: torch.Tensor, *others: Any) -> Any:
        found = real(self, *others)
        return type(found)(found * FACTOR) if isinstance(found, int) else found * FACTOR

    return replacement


class _Bound:
    """A descriptor of a program's own."""

    def __init__(self, real: Any):
        self.real = real

    def __get__(self, value: Any, owner: Any) -> Any:
        return self.real if value is None else lambda *others: self.real(value, *others) * FACTOR


CASES: dict[str, tuple[str, Any, Any]] = {
    "method": ("tanh", _times_factor, lambda x: x.tanh() + 1),
    "method of Python": ("norm", _times_factor, lambda x: x.norm(2, 1) + 1),
    "operator": ("__add__", _times_factor, lambda x: torch.tanh(x + 2)),
    "operator of Python": ("__rsub__", _times_factor, lambda x: torch.tanh(2 - x)),
    "length": ("__len__", _times_factor, lambda x: torch.tanh(x) * len(x)),
    "partial method": (
        "tanh",
        lambda real: functools.partialmethod(lambda self: real(self) * FACTOR),
        lambda x: x.tanh() + 1,
    ),
    "descriptor": ("__sub__", _Bound, lambda x: torch.tanh(x - 2)),
    "attribute": ("mT", lambda real: property(lambda self: real.__get__(self) * FACTOR), lambda x: torch.tanh(x.mT)),
    "within one of PyTorch's": (
        "reshape",
        _times_factor,
        lambda x: torch.tensordot(x, x.T, dims=1) + x.reshape(-1)[0],
    ),
}


@pytest.mark.parametrize("python", ["auto", "run"])
@pytest.mark.parametrize("case", CASES)
def test_replaced_methods_run_as_in_eager(case: str, python: Any, monkeypatch: pytest.MonkeyPatch):
    name, replace, function = CASES[case]
    x, compiled = torch.randn(4, 5), ingot.jit(function, python=python)
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, name, replace(getattr(torch.Tensor, name)))
        for call in range(8):
            patch.setattr("tests.frontend.jit.python_code.test_replaced_methods.FACTOR", 2.0 if call < 5 else 3.0)
            torch.testing.assert_close(compiled(x), function(x))
    for _ in range(4):
        torch.testing.assert_close(compiled(x), function(x))
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, name, replace(getattr(torch.Tensor, name)))
        for _ in range(4):
            torch.testing.assert_close(compiled(x), function(x))


def test_what_counts_as_replaced(monkeypatch: pytest.MonkeyPatch):
    assert replaced_method() is None
    monkeypatch.setattr(torch.Tensor, "__repr__", lambda self: "a tensor")
    monkeypatch.setattr(torch.Tensor, "a_method_of_ours", lambda self: self, raising=False)
    assert replaced_method() is None, "nothing that PyTorch looks up to compute"
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "tanh", lambda self: self)
        assert replaced_method() == "tanh"
        compiled: Any = ingot.jit(lambda x: x.tanh())
        compiled(torch.ones(2))
        assert "torch.Tensor.tanh is not PyTorch's own any more" in compiled.explain()
    assert replaced_method() is None
