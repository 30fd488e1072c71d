"""Shapes and dtypes that are worked out without PyTorch are those that PyTorch gives."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from ingot.frontend.jit.proof.semantics.result_shapes import result_of

DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool, torch.complex64)
OPERANDS = [torch.ones(shape, dtype=dtype) for shape in ((), (3,), (2, 3), (2, 1)) for dtype in DTYPES]
BINARY = [operator.add, operator.sub, operator.mul, operator.truediv, operator.iadd, operator.imul]
BINARY += [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, torch.add, torch.div]
UNARY: list[Callable[..., Any]] = [F.relu, F.gelu, F.silu, torch.tanh, torch.sigmoid, torch.exp, torch.rsqrt, torch.neg]
UNARY += [
    torch.abs,
    torch.square,
    torch.erf,
    F.softplus,
    F.elu,
    F.leaky_relu,
    F.hardswish,
    torch.floor,
    torch.reciprocal,
]


def _meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to("meta")
    return type(value)(map(_meta, value)) if isinstance(value, list | tuple) else value


def _check(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any] | None = None) -> bool:
    """Compares what is worked out with what the function gives; says whether anything was."""
    metas = [_meta(one) for one in args]
    found = result_of(function.__name__, metas, kwargs or {})
    if found is None:
        return False
    real = [one.clone() if isinstance(one, torch.Tensor) else one for one in args]
    expected = function(*real, **kwargs or {})
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype), (function, args)
    return True


@pytest.mark.parametrize("function", BINARY, ids=lambda function: function.__name__)
def test_operators(function: Callable[..., Any]):
    checked = 0
    for left, right in itertools.product([*OPERANDS, 2, 2.5, True], repeat=2):
        if not isinstance(left, torch.Tensor) and not isinstance(right, torch.Tensor):
            continue
        try:
            function(left.clone() if isinstance(left, torch.Tensor) else left, right)
        except (RuntimeError, TypeError):
            continue  # PyTorch does not take these operands
        checked += _check(function, [left, right])
    assert checked > 50


@pytest.mark.parametrize("function", UNARY, ids=lambda function: function.__name__)
def test_functions_of_one_tensor(function: Callable[..., Any]):
    assert sum(_check(function, [one]) for one in OPERANDS if one.is_floating_point()) > 5
    assert not any(_check(function, [one]) for one in OPERANDS if not one.is_floating_point())


def test_normalisations_and_choices():
    x, mask = torch.ones(2, 3), torch.ones(3, dtype=torch.bool)
    assert _check(torch.softmax, [x, -1]) and _check(torch.softmax, [x], {"dim": 0})
    assert not _check(torch.softmax, [x, -1, torch.float64])
    assert not _check(torch.softmax, [x], {"dim": 0, "dtype": torch.float64})
    assert _check(torch.layer_norm, [x, (3,)]) and _check(torch.dropout, [x, 0.5, False])
    for left, right in itertools.product((x, x.double(), 1.0, 2), repeat=2):
        if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor):
            assert _check(torch.where, [mask, left, right])


def test_products_and_joins():
    x, weight = torch.ones(2, 5, 3), torch.ones(4, 3)
    assert _check(F.linear, [x, weight]) and _check(F.linear, [x, weight, torch.ones(4)])
    assert _check(F.linear, [torch.ones(3), weight])
    for name, dim in itertools.product((torch.cat, torch.stack), (0, 1, -1)):
        assert _check(name, [[x, x]], {"dim": dim}) and _check(name, [(x, x, x), dim])
    assert _check(torch.cat, [[x, torch.ones(2, 1, 3)], 1]) and _check(torch.cat, [[x, x]])
    assert not _check(torch.cat, [[x, x.double()]]) and not _check(torch.cat, [[x, torch.ones(0)]])
