"""Comparing results with what PyTorch computes from the same calls.

A right result may differ from PyTorch's, as the order of a sum is free, and by how much depends on the calls and on the
numbers. So it is measured: the calls are run in float64, once as they are and then several times with every value
disturbed by as much as rounding may disturb it (`PreciseRun`). A result is right where it lies no farther from the
first run than the others do, and the rounding of its own type. Before a result is called wrong, there are more runs: an
element that is rounded or cut off close to where two results meet comes out either way in one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ingot.base.errors import ValidationError
from ingot.frontend.fusion_definition.eager_runs import EagerRun, PreciseRun
from ingot.frontend.fusion_definition.recorded_statements import Statement

_RUNS = (4, 20)
"""How many disturbed runs there are, and how many if something seems to be wrong."""
_HARDLY_CHANCE = 0.05
"""The share of elements, if they are many, beyond which more runs would not help."""
_LAST_ULPS = 2.0
"""Steps of its type that a result may be off besides: its last operator may be a function."""


def require_as_eager(
    statements: Sequence[Statement], inputs: Sequence[Any], results: Sequence[Any], device: torch.device | None
) -> None:
    """Raise ValidationError at the first result that PyTorch does not compute from the same calls."""
    measured = _Spread(statements, inputs, device)
    _require_same_number(results, measured.middle)
    for position, (found, eager) in enumerate(zip(results, _eager_results(statements, inputs, measured), strict=True)):
        tensor, wanted = _same_shape(position, found, eager)
        _require(position, tensor, wanted, measured, is_reference=False)


def _eager_results(statements: Sequence[Statement], inputs: Sequence[Any], measured: _Spread) -> list[Any]:
    """PyTorch's own results; where it lacks a call for these types, those in float64."""
    try:
        return EagerRun(inputs, measured.device).results(statements)
    except (RuntimeError, TypeError):
        return list(measured.middle)


def require_close_to(
    statements: Sequence[Statement],
    inputs: Sequence[Any],
    results: Sequence[Any],
    references: Sequence[Any],
    device: torch.device | None,
) -> None:
    """Raise ValidationError at the first result that is not what was given for it.

    What was given is rounded, too, and may have been computed in another order: it may be as far off as a result.
    """
    _require_same_number(results, references)
    measured = _Spread(statements, inputs, device)
    for position, (found, reference) in enumerate(zip(results, references, strict=True)):
        tensor, wanted = _same_shape(position, found, reference)
        _require(position, tensor, wanted, measured, is_reference=True)


class _Spread:
    """How far right results may lie apart: values of the undisturbed run, and of those that are disturbed."""

    def __init__(self, statements: Sequence[Statement], inputs: Sequence[Any], device: torch.device | None):
        self._statements, self._inputs, self.device = statements, inputs, device
        self._generator = torch.Generator().manual_seed(0)
        self.middle = self._run(None)
        self.disturbed: list[list[torch.Tensor]] = []

    def grow(self, count: int) -> None:
        """Make more disturbed runs, until there are so many."""
        while len(self.disturbed) < count:
            self.disturbed.append(self._run(self._generator))

    def of(self, position: int) -> torch.Tensor:
        """Per element of a result, the largest distance of a disturbed run; infinite where one is not finite."""
        middle = self.middle[position]
        runs = [run[position] for run in self.disturbed]
        farthest = torch.zeros_like(middle)
        for run in runs:
            distance = (run - middle).abs()
            distance = torch.where((run == middle) | (run.isnan() & middle.isnan()), 0.0, distance)
            farthest = torch.maximum(farthest, distance.nan_to_num(torch.inf))
        return farthest

    def _run(self, generator: torch.Generator | None) -> list[torch.Tensor]:
        results = PreciseRun(self._inputs, self.device, generator).results(self._statements)
        return [parts_of(torch.as_tensor(value)).double() for value in results]


def _require(position: int, found: torch.Tensor, wanted: torch.Tensor, measured: _Spread, is_reference: bool) -> None:
    wrong = torch.ones_like(found, dtype=torch.bool)
    for runs in _RUNS:
        measured.grow(runs)
        wrong = ~_agrees(position, found, wanted, measured, is_reference)
        if not wrong.any():
            return
        if wrong.numel() > 100 and wrong.double().mean() > _HARDLY_CHANCE:
            break
    distance = (found.double() - wanted.double()).abs().nan_to_num(torch.inf)
    whose = "its reference" if is_reference else "PyTorch's"
    raise ValidationError(
        f"result {position} differs from {whose} in {int(wrong.sum())} of "
        f"{wrong.numel()} elements, by up to {distance[wrong].max().item():g}, more than rounding explains"
    )


def _agrees(
    position: int, found: torch.Tensor, wanted: torch.Tensor, measured: _Spread, is_reference: bool
) -> torch.Tensor:
    """Where a result is right."""
    same = (found == wanted) | ((found != found) & (wanted != wanted))
    spread, middle = (value.to(found.device) for value in (measured.of(position), measured.middle[position]))
    if not found.is_floating_point():
        distance = (found.double() - wanted.double()).abs()
        return same | (distance <= spread)
    if is_reference:
        return same | _is_within(found, wanted.double(), 2 * spread, rounding=1.0)
    return same | _is_within(found, middle, spread, rounding=0.5)


def _is_within(found: torch.Tensor, middle: torch.Tensor, spread: torch.Tensor, rounding: float) -> torch.Tensor:
    """Whether values lie within a distance, and so many steps of rounding to their own type besides."""
    own, computed = torch.finfo(found.dtype), torch.finfo(torch.promote_types(found.dtype, torch.float32))
    size = (middle.abs() + spread).nan_to_num(0.0, posinf=0.0)
    step = own.eps * torch.ldexp(torch.ones_like(size), torch.frexp(size.clamp(min=own.tiny)).exponent - 1)
    allowed = spread + rounding * step + _LAST_ULPS * computed.eps * size
    distance = (found.double() - middle).abs()
    is_either = found.isfinite() & middle.isfinite()
    # What overflows in one computation may be the largest number in another.
    overflows = (middle.abs() + spread >= own.max * (1 - own.eps)) & (found.isinf() | (found.abs() == own.max))
    same_sign = torch.sign(found.double()) == torch.sign(middle)
    return torch.where(is_either, distance <= allowed, spread.isinf()) | (overflows & same_sign)


def _require_same_number(results: Sequence[Any], expected: Sequence[Any]) -> None:
    if len(results) != len(expected):
        raise ValidationError(f"there are {len(results)} results, but {len(expected)} were expected")


def parts_of(value: torch.Tensor) -> torch.Tensor:
    """The parts of complex numbers along an axis of their own; real numbers as they are."""
    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value


def _same_shape(position: int, found: Any, wanted: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """A result and what was expected as tensors of one shape and type; numbers are tensors without dimensions."""
    tensors = [
        value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=_NUMBERS[type(value)])
        for value in (found, wanted)
    ]
    if tensors[0].shape != tensors[1].shape:
        raise ValidationError(f"result {position} has the shape {list(tensors[0].shape)}, not {list(tensors[1].shape)}")
    return parts_of(tensors[0]), parts_of(tensors[1].to(tensors[0]))


_NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
