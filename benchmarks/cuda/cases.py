"""What is computed on a GPU: the cases of the CPU, and what users run on GPUs above all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch.nn import functional

from benchmarks.cases import (
    ANGLES,
    CHANNELS,
    FULL,
    GATE,
    HEADS,
    IMAGES,
    MULTIPLY_ADD,
    POINTWISE,
    REDUCTIONS,
    ROW,
    SOFTMAX,
    Case,
)


def rope(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding: pairs of elements, half a head apart, turned by the angle of their position."""
    first, second = x.chunk(2, -1)
    return x * cosines + torch.cat((-second, first), -1) * sines


def normalized_images(images: torch.Tensor, mean: torch.Tensor, deviation: torch.Tensor) -> torch.Tensor:
    """Bytes as numbers of the type of the mean, with a mean of 0 and a deviation of 1 in every channel."""
    return (images.to(mean.dtype) / 255 - mean) / deviation


def _shaped(cases: Iterable[Case], names: Iterable[str], rows: int, columns: int) -> tuple[Case, ...]:
    """Cases of these names, about a shape."""
    named = {case.name: case for case in cases}
    shape = (rows, columns)
    return tuple(replace(named[name], name=f"{name}, {rows:,} x {columns:,}", shape=shape) for name in names)


CASES = (
    *POINTWISE,
    Case("bias+gelu, tanh", (FULL, ROW), lambda x, bias: functional.gelu(x + bias, approximate="tanh")),
    *REDUCTIONS,
    Case("smooth_l1", (FULL, FULL), functional.smooth_l1_loss),
    Case("rope", (HEADS, ANGLES, ANGLES), rope),
    Case("images from bytes", (IMAGES, CHANNELS, CHANNELS), normalized_images),
    *_shaped(REDUCTIONS, ("softmax", "log_softmax", "layer_norm", "residual+layer_norm"), 1_000_000, 32),
    *_shaped(POINTWISE, ("bias+gelu",), 1_000, 50_257),
    *_shaped(REDUCTIONS, ("column sum",), 65_536, 1_000),
)
FULL_REDUCTIONS = ("variance of all", "smooth_l1")
"""Cases whose one result needs all elements: their last step cannot begin before everything has been read."""

SMALL_CASES = (MULTIPLY_ADD, GATE, SOFTMAX)
"""Measured on tensors so small that a call is all there is."""
