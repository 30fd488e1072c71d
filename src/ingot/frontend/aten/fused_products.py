"""Whether eager PyTorch rounds products before it adds them, which depends on how it was compiled and on the processor.

In: the name of one of its functions on half types. Out: what it was seen to do in this process, with numbers whose sums
differ. Short tensors, tensors as long as several vectors, and tensors that are not contiguous go through different
code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class _Probe:
    """A call that gives one number where products are rounded, and another where they are not."""

    call: Callable[..., torch.Tensor]
    dtype: torch.dtype
    operands: tuple[float, ...]
    fused: float
    rounded: float

    def results(self) -> set[float]:
        found: set[float] = set()
        for length, step in ((1, 1), (131, 1), (131, 2)):
            operands: list[Any] = [
                torch.full((step * length,), operand, dtype=self.dtype)[::step] for operand in self.operands
            ]
            found |= set(self.call(*operands).double().tolist())
        return found


def _lerp(weight: float) -> Callable[..., torch.Tensor]:
    return lambda x, y: torch.lerp(x, y, weight)


def _addcmul(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return torch.addcmul(x, first, second, value=0.1)


_HALF, _BRAIN = torch.float16, torch.bfloat16
_PROBES: dict[str, tuple[_Probe, ...]] = {
    "addcmul": (
        _Probe(_addcmul, _HALF, (-0.130859375, 1.0634765625, 1.015625), -0.0228424072265625, -0.022857666015625),
        _Probe(_addcmul, _BRAIN, (-0.1923828125, -2.21875, -1.328125), 0.10205078125, 0.1025390625),
    ),
    "lerp": (
        _Probe(_lerp(0.3), _HALF, (-0.179931640625, 1.9794921875), 0.468017578125, 0.4677734375),
        _Probe(
            *(_lerp(0.7), _HALF, (0.0279998779296875, -0.003681182861328125)),
            *(0.005825042724609375, 0.00582122802734375),
        ),
        _Probe(_lerp(0.3), _BRAIN, (0.0791015625, -0.78515625), -0.1806640625, -0.1796875),
        _Probe(_lerp(0.7), _BRAIN, (-1.7265625, 0.197265625), -0.380859375, -0.37890625),
    ),
}


@cache
def fuses(name: str) -> bool | None:
    """Whether products are added unrounded; None where that is so for some tensors and not for others."""
    with torch.no_grad():
        seen = [(probe, probe.results()) for probe in _PROBES[name]]
    if all(found == {probe.fused} for probe, found in seen):
        return True
    return False if all(found == {probe.rounded} for probe, found in seen) else None
