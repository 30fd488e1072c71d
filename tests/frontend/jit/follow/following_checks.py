"""How a followed function is compared with eager: result or error, arguments afterwards, and what Python saw."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import ingot
from ingot.frontend.jit.autotune import eager_comparison

CALLS = 5
"""The first calls learn, the next is recorded, the last run compiled segments."""


def followed(function: Callable[..., Any]) -> Any:
    """A function that is followed at every call and never left to eager for the sake of speed."""
    eager_comparison.ROUNDS = 0
    return ingot.jit(function, python="run")


def outcome(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """What a call gives: its result, or the type of its error."""
    try:
        return function(*arguments)
    except Exception as error:
        return type(error)


def check(function: Callable[..., Any], make: Callable[[], tuple[Any, ...]], calls: int = CALLS) -> Any:
    """Compare calls on arguments made anew each time; gives the followed function."""
    jitted = followed(function)
    for number in range(calls):
        torch.manual_seed(number)
        mine = make()
        torch.manual_seed(number)
        its = make()
        torch.manual_seed(number)
        found = outcome(jitted, mine)
        state = torch.get_rng_state()
        torch.manual_seed(number)
        expected = outcome(function, its)
        assert torch.equal(state, torch.get_rng_state()), f"call {number}: other random numbers were drawn"
        same(found, expected, f"call {number}, result")
        same(mine, its, f"call {number}, arguments")
    nothing_is_left()
    return jitted


def same(found: Any, expected: Any, where: str) -> None:
    """Two values are the same: types, sizes, strides, values."""
    assert type(found) is type(expected), f"{where}: {found!r} instead of {expected!r}"
    if isinstance(expected, torch.Tensor):
        _same_tensors(found, expected, where)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), f"{where}: {len(found)} parts instead of {len(expected)}"
        for number, pair in enumerate(zip(found, expected, strict=True)):
            same(*pair, f"{where}[{number}]")
    elif isinstance(expected, dict):
        assert list(found) == list(expected), where
        for key in expected:
            same(found[key], expected[key], f"{where}[{key!r}]")
    elif isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype and np.allclose(found, expected, 1e-5, 1e-6, equal_nan=True), where
    elif type(expected) is float:  # fused code may round otherwise than eager in the last places
        is_close = math.isclose(found, expected, rel_tol=1e-5, abs_tol=1e-6)
        assert is_close or (found != found and expected != expected), f"{where}: {found!r}, not {expected!r}"
    elif not callable(expected) and type(expected).__eq__ is not object.__eq__:
        assert found == expected or (found != found and expected != expected), f"{where}: {found!r}, not {expected!r}"


def _same_tensors(found: torch.Tensor, expected: torch.Tensor, where: str) -> None:
    for name in ("dtype", "shape", "device", "layout", "requires_grad", "is_leaf", "is_nested"):
        if expected.is_nested and name == "shape":
            continue
        assert getattr(found, name) == getattr(expected, name), f"{where}: {name} {getattr(found, name)}"
    assert found.is_inference() == expected.is_inference(), f"{where}: inference"
    if expected.layout is torch.strided and not expected.is_nested:
        assert found.stride() == expected.stride(), f"{where}: strides {found.stride()} instead of {expected.stride()}"
        assert found.storage_offset() == expected.storage_offset(), f"{where}: offset"
    if not expected.is_inference():
        assert found._version == expected._version, f"{where}: version {found._version}, not {expected._version}"
    if expected.is_meta or expected.is_quantized or expected.is_nested:
        return
    torch.testing.assert_close(
        found.detach(), expected.detach(), equal_nan=True, msg=lambda text: f"{where}: {text}", check_layout=True
    )


def nothing_is_left() -> None:
    """No mode, no call that is still followed."""
    from ingot.frontend.jit.follow.following import ACTIVE

    gc.collect()
    assert torch._C._len_torch_function_stack() == 0
    assert torch._C._len_torch_dispatch_stack() == 0
    assert not ACTIVE
