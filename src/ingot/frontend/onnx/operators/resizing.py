"""Resize and Upsample: every element of the result is a weighted sum of a few elements along each axis.

In: a tensor, and sizes or scales. Out: the resized tensor. Positions and weights are computed from sizes alone, as ONNX
defines them, so that they are constants of a recording.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch

from ingot.base.errors import ImportedModelError
from ingot.frontend.onnx.operator_table import NodeCall, defines


@dataclass(frozen=True, slots=True)
class _Axis:
    """How one axis is resized."""

    size: int
    result: int
    scale: float

    def sources(self, mode: str) -> Any:
        """Where each element of the result lies among those of the source."""
        places = numpy.arange(self.result, dtype=numpy.float64)
        if mode == "half_pixel":
            return (places + 0.5) / self.scale - 0.5
        if mode == "half_pixel_symmetric":
            whole = self.size * self.scale
            center = self.size / 2 * (1 - self.result / whole)
            return center + (places + 0.5) / self.scale - 0.5
        if mode == "pytorch_half_pixel":
            return (places + 0.5) / self.scale - 0.5 if self.result > 1 else numpy.zeros(1)
        if mode == "align_corners":
            return places * (self.size - 1) / (self.result - 1) if self.result > 1 else numpy.zeros(1)
        if mode == "asymmetric":
            return places / self.scale
        raise ImportedModelError(f"the coordinate transformation {mode!r} is not known")


_NEAREST: dict[str, Callable[[Any], Any]] = {
    "round_prefer_floor": lambda x: numpy.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: numpy.floor(x + 0.5),
    "floor": numpy.floor,
    "ceil": numpy.ceil,
}


@defines("Upsample")
def _upsample(call: NodeCall) -> torch.Tensor:
    scales = list(call.attribute("scales", ())) or call.known(1)
    return _resized(call, call.tensor(0), _axes(call.tensor(0).shape, None, scales), "asymmetric", "floor")


@defines("Resize", since=10)
def _resize_by_scales(call: NodeCall) -> torch.Tensor:
    x = call.tensor(0)
    return _resized(call, x, _axes(x.shape, None, call.known(1)), "asymmetric", "floor")


@defines("Resize", since=11)
def _resize(call: NodeCall) -> torch.Tensor:
    x = call.tensor(0)
    if call.attribute("keep_aspect_ratio_policy", "stretch") != "stretch" or call.attribute("antialias", 0):
        raise ImportedModelError("aspect ratios that are kept, and antialiasing, are not known")
    sizes = call.known(3) if call.has(3) and call.known(3) else None
    scales = call.known(2) if sizes is None else None
    named = [axis % x.dim() for axis in call.attribute("axes", range(x.dim()))]
    found = _axes([x.shape[axis] for axis in named], sizes, scales)
    every = [_Axis(size, size, 1.0) for size in x.shape]
    for axis, one in zip(named, found, strict=True):
        every[axis] = one
    mode = call.attribute("coordinate_transformation_mode", "half_pixel")
    return _resized(call, x, every, mode, call.attribute("nearest_mode", "round_prefer_floor"))


def _axes(shape: Sequence[int], sizes: Sequence[Any] | None, scales: Sequence[float] | None) -> list[_Axis]:
    if sizes is not None:
        return [_Axis(old, int(new), int(new) / old) for old, new in zip(shape, sizes, strict=True)]
    assert scales is not None
    return [_Axis(old, int(numpy.floor(old * scale)), float(scale)) for old, scale in zip(shape, scales, strict=True)]


def _resized(call: NodeCall, x: torch.Tensor, axes: Sequence[_Axis], mode: str, nearest: str) -> torch.Tensor:
    kind = call.attribute("mode", "nearest")
    for axis, one in enumerate(axes):
        if one.size == one.result and one.scale == 1.0:
            continue
        sources = one.sources(mode)
        if kind == "nearest":
            taps = [(_NEAREST[nearest](sources), None)]
        elif kind in ("linear", "bilinear"):
            taps = _linear(sources, one.size)
        elif kind == "cubic":
            taps = _cubic(sources, one.size, call)
        else:
            raise ImportedModelError(f"the interpolation {kind!r} is not known")
        x = _gathered(x, axis, taps, one.size)
    return x


def _linear(sources: Any, size: int) -> list[tuple[Any, Any]]:
    inside = numpy.clip(sources, 0, size - 1)
    lower = numpy.floor(inside)
    return [(lower, 1 - (inside - lower)), (lower + 1, inside - lower)]


def _cubic(sources: Any, size: int, call: NodeCall) -> list[tuple[Any, Any]]:
    a, excludes = call.attribute("cubic_coeff_a", -0.75), call.attribute("exclude_outside", 0)
    lower = numpy.floor(sources)
    fraction = sources - lower
    near = lambda t: ((a + 2) * t - (a + 3)) * t * t + 1
    far = lambda t: ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    taps = [
        (lower - 1, far(fraction + 1)),
        (lower, near(fraction)),
        (lower + 1, near(1 - fraction)),
        (lower + 2, far(2 - fraction)),
    ]
    if excludes:
        kept = [(place, numpy.where((place < 0) | (place >= size), 0, weight)) for place, weight in taps]
        total = sum(weight for _, weight in kept)
        taps = [(place, weight / total) for place, weight in kept]
    return taps


def _gathered(x: torch.Tensor, axis: int, taps: Sequence[tuple[Any, Any]], size: int) -> torch.Tensor:
    total: Any = None
    for place, weight in taps:
        positions = numpy.clip(place, 0, size - 1).astype(numpy.int64).tolist()
        part = x.index_select(axis, torch.tensor(positions, device=x.device))
        if weight is not None:
            factors = torch.tensor(weight.tolist(), dtype=x.dtype, device=x.device)
            part = part * factors.reshape(-1, *[1] * (x.dim() - 1 - axis))
        total = part if total is None else total + part
    return total
