"""Calls of compiled functions, each compared with eager PyTorch in every respect a caller can see.

Values, dtypes, shapes, strides where memory is dense, types of containers, what arguments hold afterwards, which
results are arguments or one another, and which share memory.
"""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ingot import IngotWarning
from ingot.frontend.jit.api.forms import jit
from ingot.frontend.jit.arguments.structure import take_apart


def check(
    function: Callable[..., Any],
    make: Callable[[], Sequence[Any]],
    calls: int = 3,
    *,
    compiled: Any = None,
    parts_of_largest: float | None = None,
    **options: Any,
) -> Any:
    """Call a function, compiled and not, on equal arguments, several times; gives the compiled function.

    How far results may differ depends on their types, or is given in parts of the largest number.
    """
    compiled = jit(function, **options) if compiled is None else compiled
    for call in range(calls):
        given = list(make())
        twins = copy.deepcopy(given)  # in memory of their own: what shared memory still does
        torch.manual_seed(call)
        expected = outcome(function, given)
        torch.manual_seed(call)
        found = outcome(compiled, twins)
        same(found, expected, twins, given, parts_of_largest=parts_of_largest)
    return compiled


def outcome(function: Callable[..., Any], given: Sequence[Any]) -> Any:
    """What a function returns or raises."""
    try:
        return function(*given)
    except Exception as error:
        return error


def same(
    found: Any,
    expected: Any,
    found_given: Sequence[Any] = (),
    expected_given: Sequence[Any] = (),
    *,
    parts_of_largest: float | None = None,
) -> None:
    """Fail unless two results are alike, and what they were computed from, too."""
    if isinstance(expected, Exception):
        assert type(found) is type(expected), f"{found!r} instead of {expected!r}"
        return
    if isinstance(found, Exception):
        raise found
    leaves, expected_leaves = _leaves((found, found_given)), _leaves((expected, expected_given))
    assert leaves[0] == expected_leaves[0], f"{leaves[0]} is not {expected_leaves[0]}"
    for one, other in zip(leaves[1], expected_leaves[1], strict=True):
        _same_leaf(one, other, parts_of_largest)
    assert _identities(leaves[1]) == _identities(expected_leaves[1]), "results are other objects among each other"
    assert _memories(leaves[1]) == _memories(expected_leaves[1]), "memory is shared otherwise"


def _leaves(value: Any) -> tuple[Any, list[Any]]:
    leaves: list[Any] = []
    return take_apart(value, leaves), leaves


def _same_leaf(found: Any, expected: Any, parts_of_largest: float | None) -> None:
    assert type(found) is type(expected), f"{type(found)} instead of {type(expected)}"
    if not isinstance(expected, torch.Tensor):
        assert found is expected or repr(found) == repr(expected)
        return
    assert found.dtype is expected.dtype and found.shape == expected.shape
    assert found.requires_grad == expected.requires_grad
    if expected.layout is not torch.strided:
        torch.testing.assert_close(found, expected)
        return
    if _is_dense(expected):
        assert found.stride() == expected.stride(), f"strides {found.stride()} instead of {expected.stride()}"
    detached, wanted = found.detach(), expected.detach()
    if not torch.equal(detached, wanted):
        assert wanted.is_floating_point() or wanted.is_complex(), f"{detached} instead of {wanted}"
        relative = absolute = None
        if parts_of_largest is not None:
            relative, absolute = 0.0, parts_of_largest * float(wanted.abs().max())
        torch.testing.assert_close(detached, wanted, rtol=relative, atol=absolute, equal_nan=True)


def _is_dense(tensor: torch.Tensor) -> bool:
    if tensor.numel() <= 1:
        return False
    expected = 1
    for size, stride in sorted(zip(tensor.shape, tensor.stride(), strict=True), key=lambda pair: pair[1]):
        if size == 1:
            return False
        if stride != expected:
            return False
        expected *= size
    return True


def _identities(leaves: Sequence[Any]) -> list[int]:
    first: dict[int, int] = {}
    return [first.setdefault(id(leaf), index) for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]


def _memories(leaves: Sequence[Any]) -> list[tuple[int, int]]:
    """For each tensor, the first that it shares memory with, and how far it begins behind that one."""
    first: dict[int, tuple[int, int]] = {}
    found = []
    for index, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and leaf.numel():
            begin = leaf.data_ptr()
            other, other_begin = first.setdefault(leaf.untyped_storage().data_ptr(), (index, begin))
            found.append((other, begin - other_begin))
    return found


def is_compiled(compiled: Any) -> bool:
    """Whether the last kind of call runs as a recording."""
    kinds = list(compiled._compiled.specialisations.values())
    return compiled._compiled.given_up is None and bool(kinds) and kinds[-1].trace is not None


def why_followed(compiled: Any) -> str:
    """Why Python runs at every call of a function, and the line: what `explain()` says. It must be followed."""
    text = compiled.explain()
    assert compiled.tier == "following", text
    first, second = text.splitlines()[:2]
    assert f": {compiled.tier}, " in first and second.startswith("  not skipping: ")
    return second.removeprefix("  not skipping: ")


def place(path: str, line: int) -> str:
    """A line as `explain()` writes it."""
    return f"({os.path.relpath(path)}:{line})"


def complaints(function: Callable[[], Any]) -> list[str]:
    """What a function is warned of by ingot."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return [str(one.message) for one in caught if issubclass(one.category, IngotWarning)]
