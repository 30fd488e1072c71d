"""When two calls count as equal: structure, dtype, device, shape, strides, shared memory, values, arguments afterwards.

Integers, truth values and text are compared exactly. A float is right where it is as close to eager's as
`torch.testing.assert_close` wants by default, or as close to what eager computes in float64, or not twice as far from
that as eager: fused code rounds less often. Where eager raises an error, the other one must raise one, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from tests.opinfo.observing import Observation

TOLERANCES = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
}
"""Relative and absolute, by dtype."""

Exact = Callable[[], Observation | None]
"""Gives the same call in float64, if there is such a thing; asked only where results are not close anyway."""


def difference(found: Observation, expected: Observation, exact: Exact, compares_values: bool = True) -> str | None:
    """What differs, in words; None if nothing does."""
    if expected.error is not None or found.error is not None:
        return _difference_of_errors(found.error, expected.error)
    if found.sharing() != expected.sharing():
        pairs = zip(found.sharing(), expected.sharing(), strict=False)
        return next((f"{mine}; eager's {its}" for mine, its in pairs if mine != its), "more or fewer results")
    references: list[Observation | None] = []

    def reference(part: str) -> Any:
        if not references:
            references.append(exact())
        return None if references[0] is None else getattr(references[0], part)

    for part in ("result", "arguments"):
        for where, problem in _differences(
            getattr(found, part), getattr(expected, part), lambda part=part: reference(part), compares_values
        ):
            return f"{part}{where}: {problem}"
    return None


def _difference_of_errors(found: Exception | None, expected: Exception | None) -> str | None:
    if found is not None and expected is not None:
        return None
    if found is not None:
        return f"raises {type(found).__name__}: {str(found).splitlines()[0] if str(found) else ''}"
    return f"raises nothing, where eager raises {type(expected).__name__}: {str(expected).splitlines()[0]}"


def _differences(found: Any, expected: Any, exact: Callable[[], Any], values: bool) -> Iterator[tuple[str, str]]:
    """Differences with the path to them."""
    if type(found) is not type(expected):
        yield "", f"a {type(found).__name__}, where eager gives a {type(expected).__name__}"
    elif isinstance(expected, torch.Tensor):
        problem = _difference_of_tensors(found, expected, exact, values)
        if problem is not None:
            yield "", problem
    elif isinstance(expected, list | tuple):
        if len(found) != len(expected):
            yield "", f"{len(found)} elements instead of {len(expected)}"
            return
        for number, (mine, its) in enumerate(zip(found, expected, strict=True)):
            for where, problem in _differences(mine, its, lambda number=number: _part(exact(), number), values):
                yield f"[{number}]{where}", problem
    elif isinstance(expected, dict):
        if list(found) != list(expected):
            yield "", f"the keys {list(found)} instead of {list(expected)}"
            return
        for key, its in expected.items():
            for where, problem in _differences(found[key], its, lambda key=key: _part(exact(), key), values):
                yield f"[{key!r}]{where}", problem
    elif isinstance(expected, bool | int | float | complex | str) and values and repr(found) != repr(expected):
        yield "", f"{found!r} instead of {expected!r}"


def _part(value: Any, key: Any) -> Any:
    return None if value is None else value[key]


def _difference_of_tensors(
    found: torch.Tensor, expected: torch.Tensor, exact: Callable[[], Any], compares_values: bool
) -> str | None:
    for name in ("dtype", "layout", "device", "shape", "requires_grad"):
        if getattr(found, name) != getattr(expected, name):
            return f"{name} {getattr(found, name)} instead of {getattr(expected, name)}"
    if expected.layout is not torch.strided:
        return _difference_of_tensors(found.to_dense(), expected.to_dense(), lambda: None, compares_values)
    if _strides(found) != _strides(expected):
        return f"strides {found.stride()} instead of {expected.stride()} of the shape {tuple(expected.shape)}"
    if not compares_values or expected.numel() == 0:
        return None
    found, expected = found.detach().resolve_conj().resolve_neg(), expected.detach().resolve_conj().resolve_neg()
    if not expected.dtype.is_floating_point and not expected.dtype.is_complex:
        wrong = found != expected
        return _describe(wrong, found, expected) if bool(wrong.any()) else None
    wrong = ~_is_close(found, expected)
    if not bool(wrong.any()):
        return None
    reference = exact()
    if isinstance(reference, torch.Tensor) and reference.shape == expected.shape:
        wrong &= ~_is_as_good(found, expected, reference)
    return _describe(wrong, found, expected) if bool(wrong.any()) else None


def _strides(tensor: torch.Tensor) -> list[int]:
    """The strides that matter: those of axes with more than one element."""
    return [stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1 and tensor.numel()]


def _is_close(found: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    dtype = found.real.dtype if found.dtype.is_complex else found.dtype
    relative, absolute = TOLERANCES.get(dtype, TOLERANCES[torch.float64])
    wide = torch.complex128 if expected.dtype.is_complex else torch.float64
    return torch.isclose(found.to(wide), expected.to(wide), rtol=relative, atol=absolute, equal_nan=True)


def _is_as_good(found: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Whether elements are close to what is exact, or about as far from it as eager's are."""
    wide = torch.complex128 if expected.dtype.is_complex else torch.float64
    ours, theirs = (found.to(wide) - exact).abs(), (expected.to(wide) - exact).abs()
    return _is_close(found, exact.to(expected.dtype)) | (ours <= 2 * theirs)


def _describe(wrong: torch.Tensor, found: torch.Tensor, expected: torch.Tensor) -> str:
    place = tuple(wrong.nonzero()[0].tolist())
    share = f"{int(wrong.sum())} of {wrong.numel()} elements differ"
    return f"{share}, first {place}: {found[place].item()!r} instead of {expected[place].item()!r}"
