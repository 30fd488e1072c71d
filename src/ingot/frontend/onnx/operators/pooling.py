"""Maxima and means of windows."""

from __future__ import annotations

import torch
from torch.nn import functional

from ingot.base.errors import ImportedModelError
from ingot.frontend.onnx.operator_table import NodeCall, defines
from ingot.frontend.onnx.operators.products import padded, window_padding

_MAXIMA = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
_MEANS = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}


def _windows(call: NodeCall, x: torch.Tensor) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    """Kernel, strides, dilations, and the padding before and after each axis."""
    kernel = list(call.attribute("kernel_shape"))
    if not 1 <= len(kernel) <= 3 or x.dim() != len(kernel) + 2:
        raise ImportedModelError(f"windows of {len(kernel)} axes are not known for a tensor of {x.dim()}")
    strides = list(call.attribute("strides", [1] * len(kernel)))
    dilations = list(call.attribute("dilations", [1] * len(kernel)))
    before, after = window_padding(call, x, kernel, strides, dilations)
    return kernel, strides, dilations, before, after


@defines("MaxPool")
def _max_pool(call: NodeCall) -> torch.Tensor:
    if len(call.node.outputs) > 1:
        raise ImportedModelError("the positions of maxima are not given")
    x = call.tensor(0)
    kernel, strides, dilations, before, after = _windows(call, x)
    is_half = all(2 * one <= width for one, width in zip(before, kernel, strict=True))
    if before != after or not is_half:  # PyTorch pads both sides alike, by half a window at most
        x, before = padded(x, before, after, _lowest(x.dtype)), [0] * len(kernel)
    is_ceiled = bool(call.attribute("ceil_mode", 0))
    return _MAXIMA[len(kernel)](x, kernel, strides, before, dilations, is_ceiled)


def _lowest(dtype: torch.dtype) -> float:
    return float("-inf") if dtype.is_floating_point else torch.iinfo(dtype).min


@defines("AveragePool")
def _average_pool(call: NodeCall) -> torch.Tensor:
    x = call.tensor(0)
    kernel, strides, dilations, before, after = _windows(call, x)
    if set(dilations) != {1}:
        raise ImportedModelError("means of windows with gaps are not known")
    counts_padding, is_ceiled = bool(call.attribute("count_include_pad", 0)), bool(call.attribute("ceil_mode", 0))
    pool = _MEANS[len(kernel)]
    is_half = all(2 * one <= width for one, width in zip(before, kernel, strict=True))
    if before == after and is_half:
        return pool(x, kernel, strides, before, is_ceiled, counts_padding)
    if counts_padding and not is_ceiled:
        return pool(padded(x, before, after), kernel, strides, 0, False, True)
    if is_ceiled and counts_padding:
        raise ImportedModelError("means with ceil_mode that count uneven padding are not known")
    ones = torch.ones((1, 1, *x.shape[2:]), dtype=x.dtype, device=x.device)
    sums, counts = (pool(padded(one, before, after), kernel, strides, 0, is_ceiled, True) for one in (x, ones))
    return sums / counts


@defines("GlobalAveragePool")
def _global_average_pool(call: NodeCall) -> torch.Tensor:
    x = call.tensor(0)
    return x.mean(list(range(2, x.dim())), keepdim=True)


@defines("GlobalMaxPool")
def _global_max_pool(call: NodeCall) -> torch.Tensor:
    x = call.tensor(0)
    return x.amax(list(range(2, x.dim())), keepdim=True)
